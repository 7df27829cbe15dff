"""All that core has under the names that flamepy gives it: `import flamepy.core.evening as fp`, and a lesson goes on as with flamepy."""
# ruff: noqa: F401

from __future__ import annotations

from . import op
from .backward import backward
from .clip import clip_grad_norm, clip_grad_value
from .creation import full, ones, randn, uniform, zeros
from .custom import custom
from .device import device
from .dtypes import bool_, float32, float64, int32, int64
from .errors import FlameError
from .gradients import GradientMap
from .methods import full_like, tensor
from .modes import enable_grad, no_grad, strict_mode
from .ops.network import cross_entropy, gelu, layer_norm, log_softmax, softmax
from .optimizers import SGD, Adam, AdamW
from .parameter import Parameter, ParameterDict
from .pointwise import pointwise
from .rng import manual_seed
from .tape import tape
from .tensor import Tensor

globals().update({name: function for name, function in op.PUBLIC.items() if name not in globals()})
