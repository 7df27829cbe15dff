"""Dropout of whole channels, and the one that goes with selu, as modules."""

from __future__ import annotations

from typing import Any

from ..dtypes import checked_number
from . import functional as F
from .activation import check_not_in_place
from .module import Module


class Dropping(Module):
    """The base of all: `op` of nn.functional."""

    op = ""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.p = checked_number(type(self).__name__, "p", p)
        if not 0.0 <= self.p <= 1.0:
            raise ValueError(f"{type(self).__name__}: p outside [0, 1]: {p}. Use a probability.")

    def forward(self, x: Any) -> Any:
        """x -> the same shape; after eval() x itself. Raises ShapeError where x has other axes than the op takes."""
        return getattr(F, self.op)(x, self.p, self.training)

    def extra(self) -> str:
        return f"p={self.p}"


class Dropout1d(Dropping):
    """While training, zero whole channels of lines with probability p and scale the others by 1 / (1 - p)."""

    op = "dropout1d"


class Dropout2d(Dropping):
    """While training, zero whole channels of images with probability p and scale the others by 1 / (1 - p)."""

    op = "dropout2d"


class Dropout3d(Dropping):
    """While training, zero whole channels of volumes with probability p and scale the others by 1 / (1 - p)."""

    op = "dropout3d"


class AlphaDropout(Dropping):
    """While training, set elements to the lowest value of selu with probability p; mean 0 and variance 1 stay so."""

    op = "alpha_dropout"


class FeatureAlphaDropout(Dropping):
    """AlphaDropout of whole channels."""

    op = "feature_alpha_dropout"
