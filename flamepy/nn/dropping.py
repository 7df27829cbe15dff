"""Dropout, of single elements and of whole channels, and the one that goes with selu, as modules."""

from __future__ import annotations

from typing import Any

from ..dtypes import checked_number
from . import functional as F
from .activation import Named, check_not_in_place


class Dropping(Named):
    """The base of all."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.p = checked_number(type(self).__name__, "p", p)
        if not 0.0 <= self.p <= 1.0:
            raise ValueError(f"{type(self).__name__}: p outside [0, 1]: {self.p}. Use a probability.")

    def forward(self, x: Any) -> Any:
        """x -> the same shape; after eval() x itself. Raises ShapeError where x has other axes than the op takes."""
        return getattr(F, self.op)(x, self.p, self.training)

    def extra(self) -> str:
        return f"p={self.p}"


class Dropout(Dropping, op="dropout"):
    """While training, zero each element with probability p and scale the others by 1 / (1 - p)."""


class Dropout1d(Dropping, op="dropout1d"):
    """While training, zero whole channels of lines with probability p and scale the others by 1 / (1 - p)."""


class Dropout2d(Dropping, op="dropout2d"):
    """While training, zero whole channels of images with probability p and scale the others by 1 / (1 - p)."""


class Dropout3d(Dropping, op="dropout3d"):
    """While training, zero whole channels of volumes with probability p and scale the others by 1 / (1 - p)."""


class AlphaDropout(Dropping, op="alpha_dropout"):
    """While training, set elements to the lowest value of selu with probability p; mean 0 and variance 1 stay so."""


class FeatureAlphaDropout(Dropping, op="feature_alpha_dropout"):
    """AlphaDropout of whole channels."""
