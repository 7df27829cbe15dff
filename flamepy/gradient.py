"""FLAME's name for the module of GradientMap, what backward() returns, and of what asks tensors for their gradients in one."""

from .engine.gradient_map import GradientMap as GradientMap
from .tensor_grad import TensorGradExt as TensorGradExt
