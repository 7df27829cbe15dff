"""Gradient accumulation: GradientAccumulator and its AccumulationConfig. Read next: accumulator.py."""

from .accumulator import GradientAccumulator as GradientAccumulator
from .config import AccumulationConfig as AccumulationConfig
from .config import AccumulationStats as AccumulationStats
