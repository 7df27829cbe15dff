"""Tensor: a buffer with a shape, an id and a place on the tape. Methods, operators and ops attach from above."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from . import ids
from .changes import changed
from .dtypes import FLOATS
from .errors import DTypeError, GradientError
from .spec import Spec

if TYPE_CHECKING:
    from ..methods import Count, Methods  # a stub: what attaches from above, with types
else:
    Methods = object


class Tensor(Methods):
    """Numbers on a device. Make one with `flamepy.tensor(data)`; see flamepy.creation for zeros, randn and the like.
    A tensor is always contiguous. `id` is its key in a GradientMap. A leaf has no entry; the result of an op on tracked
    tensors has one."""

    # Class values are what almost every tensor has. What each op reads is set below: that is faster than finding it in the class.
    name: str = ""
    is_parameter: bool = False
    hooks: list[Callable] | None = None
    entry: Any = None  # the TapeEntry that made it
    slot: int = 0  # which output of its entry it is
    broken: tuple | None = None  # (op, why, code): the place where the chain to tracked tensors broke

    def __init__(self, buffer: Any, spec: Spec):
        self.buffer = buffer
        self.spec = spec
        self.id = ids.next_id()

    shape: tuple[int, ...] = property(attrgetter("spec.shape"))  # type: ignore[assignment]
    ndim: int = property(lambda self: len(self.spec.shape))  # type: ignore[assignment]
    dtype: np.dtype = property(attrgetter("spec.dtype"))  # type: ignore[assignment]
    device: Any = property(attrgetter("spec.device"))
    size: Count = property(attrgetter("spec.size"))  # type: ignore[assignment]
    is_leaf: bool = property(lambda self: self.entry is None)  # type: ignore[assignment]

    @property
    def requires_grad(self) -> bool:
        """Whether ops on it are recorded, so that backward() reaches it."""
        return self.spec.tracked

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if not isinstance(flag, bool | np.bool_):
            raise DTypeError(f"requires_grad: no yes or no: {flag!r}. Use True or False.")
        if flag != self.spec.tracked:
            self.check_leaf(flag)
            self.spec = self.spec.as_tracked(bool(flag))
            changed(self)

    def check_leaf(self, flag: bool) -> None:
        """Raise GradientError where `requires_grad` cannot be set: for integers, and for what an op on tracked tensors made."""
        if flag and self.dtype not in FLOATS:
            raise GradientError(f"requires_grad_: only float tensors have gradients: {self.dtype}. Cast it with .to(flamepy.float32).")
        if self.entry is not None:
            raise GradientError(f"requires_grad_: not a leaf: made by '{self.entry.op.title}'. Use detach().")


def attach(methods: type, to: type = Tensor) -> None:
    """Give Tensor, or a class of Tensors, what stands in this class and its bases: they are written where there are ops to write them
    with."""
    for cls in reversed(methods.__mro__[:-1]):
        for name, value in vars(cls).items():
            if name not in ("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__annotations__"):
                setattr(to, name, value)
