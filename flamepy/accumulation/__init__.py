"""Gradient accumulation: GradientAccumulator and its AccumulationConfig."""

from .accumulator import GradientAccumulator as GradientAccumulator
from .config import AccumulationConfig as AccumulationConfig
from .config import AccumulationStats as AccumulationStats
