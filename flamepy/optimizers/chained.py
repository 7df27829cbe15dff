"""Chained: what has parameters, and transforms that edit their gradients before each step."""

from __future__ import annotations

from typing import Any

from ..backend.divert import changed, guard
from ..gradient import GradientMap
from ..gradients.transforms import Transform, chain_of


class Chained:
    """Base of Optimizer and ByName."""

    name: str
    params: list[Any]
    chain: tuple[Transform, ...] = ()

    def frozen(self) -> frozenset[int]:
        """Ids of the parameters that do not require grad: no step moves them."""
        raise NotImplementedError

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """What is done to the gradients before each step. May be set as in the constructor."""
        return self.chain

    @transforms.setter
    def transforms(self, transforms: Any) -> None:
        self.chain = chain_of(self.name, transforms)
        changed()

    def transform(self, grads: GradientMap) -> None:
        """Do it, if there are gradients of these parameters."""
        if self.chain:
            still = self.frozen()
            if any([p.id in grads for p in self.params if p.id not in still]):
                for transform in self.chain:
                    transform(grads, self)

    def guard_chain(self) -> None:
        """A recorded step depends on the transforms."""
        guard(self, "transforms", lambda: tuple([id(t) for t in self.chain]))
