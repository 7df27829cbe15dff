"""The errors by the name that users know this module by: core/errors.py."""

from .core.errors import AccumulationError as AccumulationError
from .core.errors import AccumulatorFull as AccumulatorFull
from .core.errors import CaptureError as CaptureError
from .core.errors import DeviceError as DeviceError
from .core.errors import DTypeError as DTypeError
from .core.errors import EmulationError as EmulationError
from .core.errors import FlameError as FlameError
from .core.errors import FlameWarning as FlameWarning
from .core.errors import GradientError as GradientError
from .core.errors import IndexOutOfRange as IndexOutOfRange
from .core.errors import NoGradients as NoGradients
from .core.errors import NonFiniteError as NonFiniteError
from .core.errors import ShapeError as ShapeError
from .core.errors import ShapeMismatch as ShapeMismatch
from .core.errors import StateError as StateError
from .core.errors import VersionError as VersionError
