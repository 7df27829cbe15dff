"""FLAME's name for what gradients/clip.py holds."""

from .gradients.clip import clip_grad_norm as clip_grad_norm
from .gradients.clip import clip_grad_norm_ as clip_grad_norm_
from .gradients.clip import clip_grad_norm_by_group as clip_grad_norm_by_group
from .gradients.clip import clip_grad_value as clip_grad_value
from .gradients.clip import clip_grad_value_ as clip_grad_value_
from .gradients.norm import grad_norm as grad_norm
