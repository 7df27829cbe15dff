"""What an optimizer does to gradients before each step: a list of transforms, in order.

    optimizer = AdamW(model, lr=1e-3, transforms=[Centralize(), ClipNorm(1.0), Noise(0.01)])

Each edits the gradients of the optimizer's own parameters. They work in a captured step: what changes from step to step (noise, limits
made from past norms) is filled in by the host before it. A function of the map may stand in the list, too. What must survive a restart
is saved with the optimizer's state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..backend.base import Buffer
from ..backend.divert import active, changed, guard
from ..dtypes import checked_number, float64
from ..errors import NonFiniteError, StateError
from ..gradient import GradientMap
from ..gradient_memory import checked_steps
from .clip import apply_factor, checked_limit, clip_grad_norm, clip_grad_value, clip_norm, clip_value_to, require_finite
from .edits import (
    add_noise,
    centralize_gradients,
    clip_grad_agc,
    clip_grad_per_layer,
    decay_gradients,
    edited,
    noise_width,
    repair_gradients,
)  # fmt: skip
from .history import mean_and_std, quantile
from .norm import ClipResult, Places, chosen_keys, factor_and_mark, norm_of, places_of

RESULTS = ("result", "skipped", "total")  # attributes that a step sets


class Transform:
    """Base of all: `params` (a glob of names, a ParameterDict, a list) chooses among the optimizer's parameters."""

    def __init__(self, params: Any = None):
        self.params = params

    @property
    def name(self) -> str:
        return type(self).__name__

    def __call__(self, grads: GradientMap, optimizer: Any) -> None:
        if active:
            guard(self, "its settings", self.settings)
        self.edit(grads, self.chosen(grads, optimizer), optimizer)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name[0] != "_" and name not in RESULTS:
            changed()

    def settings(self) -> tuple[Any, ...]:
        """What a recorded step depends on."""
        rows = [(key, value) for key, value in vars(self).items() if key[0] != "_" and key not in RESULTS]
        return tuple([(key, value if isinstance(value, int | float | str | None) else id(value)) for key, value in rows])

    def chosen(self, grads: GradientMap, optimizer: Any) -> set[int] | None:
        """Ids of the gradients to edit; None where that is all of the map that count."""
        counted = grads.counted()
        mine = optimizer.names.keys() - optimizer.frozen()
        if self.params is None:
            return None if counted.keys() <= mine else counted.keys() & mine
        names = {number: optimizer.names[number] for number in counted if number in mine}
        return chosen_keys(self.name, names, self.params) & names.keys()

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        """What it does: yours to write in a class of your own."""
        raise NotImplementedError(f"{self.name}: no edit(): the class does not define it. Write edit(self, grads, params, optimizer).")

    # ---- state: most have none -------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        return {"class": self.name}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise StateError for what cannot be restored."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict()."""

    def __repr__(self) -> str:
        shown = [f"{key}={value!r}" for key, value in vars(self).items() if value is not None and not key.startswith("_")]
        return f"{self.name}({', '.join(shown)})"


class Function(Transform):
    """A function of the map that edits it."""

    def __init__(self, function: Callable[[GradientMap], Any]):
        super().__init__()
        self.function = function

    def __call__(self, grads: GradientMap, optimizer: Any) -> None:
        found = self.function(grads)
        if isinstance(found, GradientMap) and found is not grads:
            raise TypeError(f"{optimizer.name}: a transform returned another map: {self.function!r}. Edit the map that it is given.")


class Clip(Transform):
    """Base of those that report: `result` is the ClipResult of the newest step (None before the first)."""

    result: ClipResult | None = None

    def keep(self, places: Places, found: Buffer) -> None:
        """Have the result as soon as it is known."""
        found.device.stream.after(partial(self.known, places.ids, places.names), found)

    def known(self, ids: list[int], names: dict[int, str], found: Buffer) -> None:
        self.result = ClipResult(found.device.download(found), ids, names)


class ClipNorm(Clip):
    """Limit the joint norm: clip_grad_norm(). `nonfinite`: "raise", "skip" (no step) or "zero"."""

    def __init__(self, max_norm: float | None, norm_type: float = 2.0, nonfinite: str = "raise", params: Any = None):
        super().__init__(params)
        clip_grad_norm(GradientMap(), max_norm, norm_type, nonfinite)  # checks them
        self.max_norm, self.norm_type, self.nonfinite = max_norm, norm_type, nonfinite

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        self.keep(*clip_norm(grads, self.max_norm, self.norm_type, self.nonfinite, params))


class ClipValue(Clip):
    """Limit every element to [-value, value]: clip_grad_value()."""

    def __init__(self, value: float, params: Any = None):
        super().__init__(params)
        clip_grad_value(GradientMap(), value)  # checks it
        self.value = value

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        self.keep(*clip_value_to(grads, self.value, params))


class ClipPerLayer(Transform):
    """Limit the norm of each gradient: clip_grad_per_layer()."""

    def __init__(self, max_norm: float, params: Any = None):
        super().__init__(params)
        self.max_norm = checked_limit(self.name, "max_norm", max_norm)

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        clip_grad_per_layer(grads, self.max_norm, params)


class ClipAGC(Transform):
    """Limit the norm of each gradient to a share of its parameter's: clip_grad_agc()."""

    def __init__(self, clip: float = 0.01, eps: float = 1e-3, params: Any = None):
        super().__init__(params)
        self.clip, self.eps = checked_limit(self.name, "clip", clip), checked_limit(self.name, "eps", eps)

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        clip_grad_agc(grads, those(optimizer, params), self.clip, self.eps)


class Centralize(Transform):
    """Take the mean out of the gradients of matrices: centralize_gradients()."""

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        centralize_gradients(grads, params)


class Noise(Transform):
    """Add normal noise that shrinks with the number of finished steps: add_gradient_noise()."""

    def __init__(self, variance: float, params: Any = None):
        super().__init__(params)
        self.variance = checked_limit(self.name, "variance", variance)

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        add_noise(edited(self.name, grads, params), lambda: [noise_width(self.variance, optimizer.rates.finished)])


class Repair(Transform):
    """Put 0 in the place of NaN and infinity: repair_gradients()."""

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        repair_gradients(grads, params)


class Decay(Transform):
    """Add l1 * sign(w) + l2 * w to the gradients: decay_gradients()."""

    def __init__(self, l1: float = 0.0, l2: float = 0.0, params: Any = None):
        super().__init__(params)
        self.l1, self.l2 = checked_limit(self.name, "l1", l1), checked_limit(self.name, "l2", l2)

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        decay_gradients(grads, those(optimizer, params), self.l1, self.l2)


class Remembering(Clip):
    """Base of those whose limits come from the norms of past steps, the last `window`; there are none for the first `warmup` steps."""

    strict = True  # a norm that is not finite raises

    def __init__(self, window: int, warmup: int, params: Any):
        super().__init__(params)
        self.window, self.warmup = checked_steps(self.name, "window", window), checked_steps(self.name, "warmup", warmup)
        if warmup > window:
            raise ValueError(f"{self.name}: warmup is longer than the window: {warmup} > {window}. Make it shorter.")
        self._past: tuple[float, ...] = ()

    def limits(self) -> list[float]:
        """(limit of the norm, 0 for none; norm above which no step is taken, NaN for never; 1.0) for the next step."""
        raise NotImplementedError

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        places = places_of(self.name, grads, params)
        if not places.buffers:
            return
        found = norm_of(grads, places, 2.0)
        device = found.device
        limits = device.empty(3, float64)
        device.stream.before(self.limits, limits)
        device.launch("limits", None, (found,), (limits, *factor_and_mark(grads, device)), (), float64)
        if self.strict:
            require_finite(places, found, marked=True)
        device.stream.after(partial(self.record, places.ids, places.names), found)
        apply_factor(grads, places, found)
        grads.mark = found

    def record(self, ids: list[int], names: dict[int, str], found: Buffer) -> None:
        """What the norm was."""
        self.known(ids, names, found)
        self.remember(float(self.result or 0.0))

    def remember(self, norm: float) -> None:
        self._past = (*self._past, norm)[-self.window :]

    # ---- state, also of a replay that fails (backend/divert.py) -----------------------------------------------------------------
    def saved(self) -> Any:
        return self._past

    def restore(self, saved: Any) -> None:
        self._past = saved

    def state_dict(self) -> dict[str, Any]:
        return {"class": self.name, "past": list(self._past)}

    def check_state(self, state: dict[str, Any]) -> None:
        past = state.get("past")
        if not isinstance(past, list) or not all([isinstance(x, int | float) for x in past]):
            raise StateError(f"{self.name}: not the norms of past steps: {str(past)[:80]}. Restore what state_dict() returned.")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._past = tuple([float(x) for x in state["past"]])[-self.window :]


class ClipHistory(Remembering):
    """Limit the joint norm to a quantile of the past norms (AutoClip: Seetharaman et al. 2020, arXiv:2007.14469), or with `z` to so many
    standard deviations above their mean. A norm that is not finite raises NonFiniteError."""

    def __init__(self, quantile: float = 0.9, z: float | None = None, window: int = 100, warmup: int = 10, params: Any = None):
        super().__init__(window, warmup, params)
        if not 0.0 <= checked_number("ClipHistory", "quantile", quantile) <= 1.0:
            raise ValueError(f"ClipHistory: quantile outside [0, 1]: {quantile}. Use a share of the past norms.")
        self.quantile, self.z = float(quantile), None if z is None else checked_number("ClipHistory", "z", z)

    def limits(self) -> list[float]:
        if len(self._past) < self.warmup:
            return [0.0, math.nan, 1.0]
        if self.z is None:
            return [quantile(self._past, self.quantile), math.nan, 1.0]
        mean, std = mean_and_std(self._past)
        return [mean + self.z * std, math.nan, 1.0]


class SkipSpikes(Remembering):
    """Take no step when the joint norm lies more than `z` standard deviations above the mean of the past ones, or is not finite.

    At most `most` steps in a row are skipped: then a spike is taken for the new level, and a norm that is not finite raises
    NonFiniteError. `skipped` counts them in a row, `total` all of them.
    """

    strict = False

    def __init__(self, z: float = 6.0, most: int = 5, window: int = 100, warmup: int = 10, params: Any = None):
        super().__init__(window, warmup, params)
        if not checked_number("SkipSpikes", "z", z) > 0:
            raise ValueError(f"SkipSpikes: z must be positive: {z}. Use how many standard deviations are too many.")
        self.z, self.most, self.skipped, self.total = z, checked_steps(self.name, "most", most), 0, 0

    def limits(self) -> list[float]:
        if len(self._past) < self.warmup or self.skipped >= self.most:
            return [0.0, np.finfo(np.float64).max, 1.0]
        mean, std = mean_and_std(self._past)
        return [0.0, mean + self.z * std, 1.0]

    def record(self, ids: list[int], names: dict[int, str], found: Buffer) -> None:
        self.known(ids, names, found)
        norm = float(self.result or 0.0)
        if self.result is not None and self.result.skipped:
            if self.skipped >= self.most:
                raise NonFiniteError(
                    f"SkipSpikes: {self.skipped + 1} steps in a row without finite gradients: norm {norm}. Lower the rate."
                )
            self.skipped += 1
            self.total += 1
        else:
            self.skipped = 0
            self.remember(norm)

    def saved(self) -> Any:
        return self._past, self.skipped, self.total

    def restore(self, saved: Any) -> None:
        self._past, self.skipped, self.total = saved

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "skipped": self.skipped, "total": self.total}

    def check_state(self, state: dict[str, Any]) -> None:
        super().check_state(state)
        counts = [state.get("skipped"), state.get("total")]
        if not all([isinstance(x, int) and x >= 0 for x in counts]):
            raise StateError(f"SkipSpikes: not counts of skipped steps: {counts}. Restore what state_dict() returned.")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.skipped, self.total = state["skipped"], state["total"]


def those(optimizer: Any, params: set[int] | None) -> list[Any]:
    """The optimizer's parameters with these ids."""
    return [p for p in optimizer.params if params is None or p.id in params]


def chain_of(name: str, transforms: Any) -> tuple[Transform, ...]:
    """What a user gives as `transforms`: one, or several in order; functions too. Raises TypeError for anything else."""
    found = [] if transforms is None else list(transforms) if isinstance(transforms, list | tuple) else [transforms]
    for t in found:
        if not isinstance(t, Transform) and (isinstance(t, type) or not callable(t)):
            raise TypeError(
                f"{name}: not a transform: {t!r}. Use those of flamepy.transforms, such as ClipNorm(1.0), or a function of the map."
            )
    return tuple([t if isinstance(t, Transform) else Function(t) for t in found])
