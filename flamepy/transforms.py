"""The transforms of gradients that an optimizer takes: see gradients/transforms.py."""

from .gradients.clip import ClipNorm as ClipNorm
from .gradients.clip import ClipValue as ClipValue
from .gradients.edits import Centralize as Centralize
from .gradients.edits import ClipAGC as ClipAGC
from .gradients.edits import ClipPerLayer as ClipPerLayer
from .gradients.edits import Decay as Decay
from .gradients.edits import Noise as Noise
from .gradients.edits import Repair as Repair
from .gradients.history import ClipHistory as ClipHistory
from .gradients.history import SkipSpikes as SkipSpikes
from .gradients.transforms import Clip as Clip
from .gradients.transforms import Edit as Edit
from .gradients.transforms import Function as Function
from .gradients.transforms import Transform as Transform
