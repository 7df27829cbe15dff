"""The model an optimizer was made from: a layer or Parameter put into it later is nobody's, and would never be trained.

The model is not kept alive. Its parameters are looked at again after something was put into a module, not at each step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..backend.divert import Settings
from ..errors import warn
from ..gradient import GradientMap
from ..parameter import Parameter, ParameterDict


class Model:
    """`params`: what the optimizer was made from; if that is no Module, and not a module's `params`, there is nothing to look at."""

    def __init__(self, params: Any):
        whole = not isinstance(params, Parameter) and hasattr(params, "params") and hasattr(params, "parameters")
        of_module = Settings.modules.get(params, nobody) if isinstance(params, ParameterDict) else nobody
        self.module: Callable[[], Any] = weakref.ref(params) if whole else of_module
        self.layers, self.told = Settings.layers, False
        self.new: list[Parameter] = []  # put in later, and no optimizer's

    def look(self, optimizer: Any, grads: GradientMap | None) -> None:
        """Warn, once, of a parameter that was put in later and has a gradient, in the map or in its `.grad`."""
        if self.layers != Settings.layers:
            self.layers, module = Settings.layers, self.module()
            told_of = module is None or any([p.replaced for p in optimizer.params])  # say_if_replaced() does that
            found = [] if told_of else module.parameters()
            self.new = [p for p in found if not p.held]
        for p in self.new:
            if p.requires_grad and not p.held and not self.told and (p.kept_grad() is not None if grads is None else p in grads):
                self.told = True
                advice = "It is not trained: make the optimizer afterwards, or call add_param_group({'params': [...]})"
                text = f"{optimizer.name}: a parameter was put into its model later: {p.label}. {advice}."
                warn(text)

    def __reduce__(self) -> Any:
        """A copy has a model of its own, which this does not know."""
        return Model, (None,)


def nobody() -> None:
    return None
