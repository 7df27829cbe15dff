"""All that core has under the names that flamepy gives it: `import flamepy.core.evening as fp`, and a lesson goes on as with flamepy."""

from __future__ import annotations

from . import op
from .backward import backward as backward
from .clip import clip_grad_norm as clip_grad_norm
from .clip import clip_grad_value as clip_grad_value
from .creation import full as full
from .creation import ones as ones
from .creation import randn as randn
from .creation import uniform as uniform
from .creation import zeros as zeros
from .custom import custom as custom
from .device import device as device
from .dtypes import bool_ as bool_
from .dtypes import float32 as float32
from .dtypes import float64 as float64
from .dtypes import int32 as int32
from .dtypes import int64 as int64
from .errors import FlameError as FlameError
from .gradients import GradientMap as GradientMap
from .methods import full_like as full_like
from .methods import tensor as tensor
from .modes import enable_grad as enable_grad
from .modes import no_grad as no_grad
from .modes import strict_mode as strict_mode
from .op import on_result as on_result
from .ops.network import cross_entropy as cross_entropy
from .ops.network import gelu as gelu
from .ops.network import layer_norm as layer_norm
from .ops.network import log_softmax as log_softmax
from .ops.network import softmax as softmax
from .optimizers import SGD as SGD
from .optimizers import Adam as Adam
from .optimizers import AdamW as AdamW
from .parameter import Parameter as Parameter
from .parameter import ParameterDict as ParameterDict
from .pointwise import pointwise as pointwise
from .rng import manual_seed as manual_seed
from .tape import tape as tape
from .tensor import Tensor as Tensor

globals().update({name: function for name, function in op.PUBLIC.items() if name not in globals()})
