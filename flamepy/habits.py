"""Other libraries' names of options: `dim` and `keepdim` are taken for `axis` and `keepdims`, by ops and by functions composed of them."""

from __future__ import annotations

import functools
from typing import Any

from .core.door import Door
from .core.op import ALIASES, IGNORED

ALIASES |= {"dim": "axis", "keepdim": "keepdims"}  # as PyTorch calls them
IGNORED |= {"out", "dtype"}  # numpy.sum(x) passes them to x.sum(), None where its caller gave none


def composed(name: str, function: Any) -> Any:
    """A function composed of ops that takes these names, too, if it has an axis."""
    if "axis" not in function.__code__.co_varnames[: function.__code__.co_argcount]:
        return function

    @functools.wraps(function)
    def renaming(*args: Any, **options: Any) -> Any:
        if not options:
            return function(*args)
        return function(*args, **{ALIASES.get(k, k): v for k, v in options.items() if v is not None or k not in IGNORED})

    return renaming


Door.composed = staticmethod(composed)
