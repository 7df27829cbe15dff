"""The public name of the transforms of gradients, which an optimizer takes: gradients/transforms.py and gradients/history.py."""

from .gradients.transforms import Centralize as Centralize
from .gradients.transforms import Clip as Clip
from .gradients.transforms import ClipAGC as ClipAGC
from .gradients.transforms import ClipHistory as ClipHistory
from .gradients.transforms import ClipNorm as ClipNorm
from .gradients.transforms import ClipPerLayer as ClipPerLayer
from .gradients.transforms import ClipValue as ClipValue
from .gradients.transforms import Decay as Decay
from .gradients.transforms import Function as Function
from .gradients.transforms import Noise as Noise
from .gradients.transforms import Remembering as Remembering
from .gradients.transforms import Repair as Repair
from .gradients.transforms import SkipSpikes as SkipSpikes
from .gradients.transforms import Transform as Transform
