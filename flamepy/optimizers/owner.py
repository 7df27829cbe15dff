"""Owned: what belongs to an optimizer and knows it, without keeping it alive: its moments are freed as soon as nobody has it."""

from __future__ import annotations

import weakref
from typing import Any

from ..errors import StateError


class Owned:
    """`optimizer`: the one it belongs to. Raises StateError when that is gone."""

    owner: Any

    @property
    def optimizer(self) -> Any:
        found = self.owner()
        if found is None:
            raise StateError(f"{type(self).__name__}: its optimizer is gone: nobody keeps it. Keep the optimizer in a variable.")
        return found

    def belong(self, optimizer: Any) -> None:
        """Belong to this optimizer from now on."""
        self.owner = weakref.ref(optimizer)
