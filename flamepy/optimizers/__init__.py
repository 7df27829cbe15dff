"""Optimizers: SGD, Adam, AdamW. Read base.py for the step, adam.py for the arithmetic."""

from .adam import Adam as Adam
from .adam import AdamConfig as AdamConfig
from .adam import AdamW as AdamW
from .base import Optimizer as Optimizer
from .sgd import SGD as SGD
from .sgd import SGDConfig as SGDConfig
