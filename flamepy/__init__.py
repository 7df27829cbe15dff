"""flamepy: a tape autograd engine in Python; its kernels are compiled by Numba.

    import flamepy as fp
    w = fp.Parameter.randn((3, 2))
    loss = (fp.ones(4, 3) @ w).square().mean()
    grads = loss.backward()          # a GradientMap; nothing hidden in .grad
    print(grads[w])

Every op of flamepy/ops that is public is a name here too (one op is written in one place). Numba is imported when the first
kernel runs.
"""

from __future__ import annotations

from importlib import import_module as _import_module

from . import starting as _starting  # noqa: F401  (before all others: see there)

# isort: split
from . import definitions as _definitions  # noqa: F401  (before any op is defined)
from . import docstrings as _docstrings  # noqa: F401
from . import habits as _habits  # noqa: F401
from .engine import attach as _attach  # noqa: F401

# isort: split
from . import cuda as cuda
from . import gradient_clip as gradient_clip
from . import nn as nn
from . import ops as ops
from . import schedules as schedules
from . import words as words
from .activations import checkpoint_sequential as checkpoint_sequential
from .activations import offload as offload
from .advice import missing_in as _missing_in
from .autograd import AutogradEngine as AutogradEngine
from .autograd import enable_grad as enable_grad
from .autograd import is_grad_enabled as is_grad_enabled
from .autograd import no_grad as no_grad
from .autograd import strict_mode as strict_mode
from .autograd import tape as tape
from .backend.base import device as device
from .backend.precision import get_float32_matmul_precision as get_float32_matmul_precision
from .backend.precision import set_float32_matmul_precision as set_float32_matmul_precision
from .core.custom import custom as custom
from .core.op import HOMES as _HOMES
from .core.op import PUBLIC as _PUBLIC
from .core.pointwise import pointwise as pointwise
from .creation import arange as arange
from .creation import eye as eye
from .creation import from_dlpack as from_dlpack
from .creation import full as full
from .creation import full_like as full_like
from .creation import linspace as linspace
from .creation import ones as ones
from .creation import ones_like as ones_like
from .creation import pinned as pinned
from .creation import rand as rand
from .creation import rand_like as rand_like
from .creation import randn as randn
from .creation import randn_like as randn_like
from .creation import tri as tri
from .creation import tril_indices as tril_indices
from .creation import triu_indices as triu_indices
from .creation import uniform as uniform
from .creation import uniform_like as uniform_like
from .creation import zeros as zeros
from .creation import zeros_like as zeros_like
from .dtypes import bfloat16 as bfloat16
from .dtypes import bool_ as bool_
from .dtypes import float16 as float16
from .dtypes import float32 as float32
from .dtypes import float64 as float64
from .dtypes import int8 as int8
from .dtypes import int16 as int16
from .dtypes import int32 as int32
from .dtypes import int64 as int64
from .dtypes import uint8 as uint8
from .dtypes import uint16 as uint16
from .dtypes import uint32 as uint32
from .dtypes import uint64 as uint64
from .engine.autocast import autocast as autocast
from .engine.capture import capture as capture
from .errors import AccumulationError as AccumulationError
from .errors import AccumulatorFull as AccumulatorFull
from .errors import CaptureError as CaptureError
from .errors import DeviceError as DeviceError
from .errors import DTypeError as DTypeError
from .errors import EmulationError as EmulationError
from .errors import FlameError as FlameError
from .errors import FlameWarning as FlameWarning
from .errors import GradientError as GradientError
from .errors import IndexOutOfRange as IndexOutOfRange
from .errors import NoGradients as NoGradients
from .errors import NonFiniteError as NonFiniteError
from .errors import ShapeError as ShapeError
from .errors import ShapeMismatch as ShapeMismatch
from .errors import StateError as StateError
from .errors import VersionError as VersionError
from .gradient import GradientMap as GradientMap
from .gradient_checkpointing import checkpoint as checkpoint
from .gradients.check import gradcheck as gradcheck
from .gradients.clip import clip_grad_norm as clip_grad_norm
from .gradients.clip import clip_grad_norm_ as clip_grad_norm_
from .gradients.clip import clip_grad_norm_by_group as clip_grad_norm_by_group
from .gradients.clip import clip_grad_value as clip_grad_value
from .gradients.clip import clip_grad_value_ as clip_grad_value_
from .gradients.edits import add_gradient_noise as add_gradient_noise
from .gradients.edits import centralize_gradients as centralize_gradients
from .gradients.edits import clip_grad_agc as clip_grad_agc
from .gradients.edits import clip_grad_per_layer as clip_grad_per_layer
from .gradients.edits import decay_gradients as decay_gradients
from .gradients.edits import repair_gradients as repair_gradients
from .gradients.history import GradientNormTracker as GradientNormTracker
from .gradients.norm import ClipResult as ClipResult
from .gradients.norm import grad_norm as grad_norm
from .gradients.private import private_gradients as private_gradients
from .gradients.scaling import GradScaler as GradScaler
from .ops.random import exponential as exponential
from .ops.random import normal as normal
from .ops.random import randint as randint
from .ops.random import randperm as randperm
from .ops.rowwise import rowwise as rowwise
from .optimizers import LAMB as LAMB
from .optimizers import LARS as LARS
from .optimizers import LBFGS as LBFGS
from .optimizers import SAM as SAM
from .optimizers import SGD as SGD
from .optimizers import AdaBelief as AdaBelief
from .optimizers import Adadelta as Adadelta
from .optimizers import Adafactor as Adafactor
from .optimizers import Adagrad as Adagrad
from .optimizers import Adam as Adam
from .optimizers import Adamax as Adamax
from .optimizers import AdamConfig as AdamConfig
from .optimizers import AdamP as AdamP
from .optimizers import AdamW as AdamW
from .optimizers import AdamWScheduleFree as AdamWScheduleFree
from .optimizers import ByName as ByName
from .optimizers import Lion as Lion
from .optimizers import Muon as Muon
from .optimizers import NAdam as NAdam
from .optimizers import Prodigy as Prodigy
from .optimizers import RAdam as RAdam
from .optimizers import RMSprop as RMSprop
from .optimizers import SGDConfig as SGDConfig
from .optimizers import SGDScheduleFree as SGDScheduleFree
from .optimizers import Sophia as Sophia
from .optimizers.averages import EMA as EMA
from .optimizers.averages import SWA as SWA
from .optimizers.averages import Lookahead as Lookahead
from .parameter import Parameter as Parameter
from .parameter import ParameterDict as ParameterDict
from .rng import Generator as Generator
from .rng import get_rng_state as get_rng_state
from .rng import manual_seed as manual_seed
from .rng import set_rng_state as set_rng_state
from .tensors import Tensor as Tensor
from .tensors import tensor as tensor

__version__ = "0.1.0"

globals().update({name: function for name, function in _PUBLIC.items() if _HOMES[name] != "functional"})

# The modules that a user may import; the others hold what stands above.
_MODULES = (
    "autograd", "cuda", "gradient", "gradient_checkpointing", "gradient_clip", "linalg", "metrics", "nn", "ops", "optimizers",
    "parameter", "regularizer", "schedules", "train", "transforms", "words",
)  # fmt: skip
# What is imported when it is first asked for, and from where: a tenth of the time of `import flamepy`.
_LATE = {
    **dict.fromkeys(("linalg", "metrics", "regularizer", "train", "transforms"), ""),
    **dict.fromkeys(("AccumulationConfig", "GradientAccumulator"), ".accumulation"),
    **dict.fromkeys(("GradientTracker", "Pipeline"), ".regularizer"),
    **dict.fromkeys(("load", "save"), ".saving"), "find_lr": ".schedules.search", "TrainState": ".train.state",
}  # fmt: skip


def __dir__() -> list[str]:
    """The names that are public."""
    hidden = {name for name, value in globals().items() if isinstance(value, type(nn)) and name not in _MODULES} | {"annotations"}
    return sorted({*_LATE, *(name for name in globals() if name not in hidden and (name[0] != "_" or name.startswith("__")))})


__all__ = [name for name in __dir__() if name[0] != "_"]  # what a star import takes, late names too
_unknown = _missing_in("flamepy", __dir__())


def __getattr__(name: str) -> object:
    """What is imported late; advice for what is not there."""
    if name not in _LATE:
        return _unknown(name)
    place = _LATE[name]
    found = getattr(_import_module(place, __name__), name) if place else _import_module(f".{name}", __name__)
    globals()[name] = found
    return found
