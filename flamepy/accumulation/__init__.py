"""Gradient accumulation: GradientAccumulator and its AccumulationConfig."""

from .accumulator import GradientAccumulator as GradientAccumulator
from .window import AccumulationConfig as AccumulationConfig
from .window import AccumulationStats as AccumulationStats
