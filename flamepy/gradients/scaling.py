"""Loss scaling: the loss is multiplied by a large number, so that small gradients of 16-bit values do not vanish, and the gradients are
divided by it before they are used.

    grads = scaler.scale(loss).backward()
    scaler.unscale(grads)                    # before clipping; step() does it otherwise
    fp.clip_grad_norm(grads, 1.0)
    scaler.step(optimizer, grads)            # False where gradients overflowed: then the scale is halved

The scale lives on the device, and whether gradients overflowed is decided there, so a captured step replays exactly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..backend.base import Buffer
from ..bus import changed, seen
from ..core.errors import DeviceError, GradientError, StateError
from ..dtypes import HALF, checked_steps, float32, float64
from ..engine.entries import scalings
from ..engine.marks import EARLIER, both_marks, kept_by, mark_of, scale_by_factor
from ..gradient import GradientMap
from ..tensors import Tensor, tensor
from .clip import apply_factor
from .norm import factor_and_mark, norm_of, places_of

MODES = ("dynamic", "static", "off")
LARGEST = float(np.finfo(np.float64).max)


class GradScaler:
    """Scales losses: by `init_scale`, doubled after `growth_interval` good steps, halved (not below 1) when gradients overflow.

    mode "static" keeps the scale and only skips steps; "off" does nothing at all. Micikevicius et al. 2017 (arXiv:1710.03740). Raises
    ValueError for a scale below 1 or an interval below 1.
    """

    def __init__(self, init_scale: float = 65536.0, growth_interval: int = 2000, mode: str = "dynamic"):
        if mode not in MODES:
            raise ValueError(f"GradScaler: unknown mode: {mode!r}. Use 'dynamic', 'static' or 'off'.")
        self.mode = mode
        self.growth_interval = growth_interval
        self.start = checked_numbers(init_scale, 0, 0)
        self.state: Buffer | None = None  # scale, good steps since it last changed, overflows: on the device of the first loss
        self.seen: Buffer | None = None  # whether the gradients unscaled since the last step may be used
        self.saw: float | None = None  # the same in a state that was restored, until the numbers are on a device

    def __repr__(self) -> str:
        scale, good, overflows = self.numbers()
        return f"GradScaler({self.mode}, scale={scale:g}, good_steps={int(good)}, overflows={int(overflows)})"

    # ---- what it knows --------------------------------------------------------------------------------------------------------
    @property
    def growth_interval(self) -> int:
        """After how many good steps the scale is doubled. May be set."""
        seen(self, "growth_interval", lambda: self._interval)
        return self._interval

    @growth_interval.setter
    def growth_interval(self, interval: int) -> None:
        self._interval = checked_steps("GradScaler", "growth_interval", interval)
        changed(self)

    def numbers(self) -> Any:
        """Scale, good steps, overflows."""
        return self.start if self.state is None else tuple(self.state.device.direct.download(self.state).tolist())

    def get_scale(self) -> float:
        """What the next loss is multiplied by; 1.0 when off. In a captured step: what can be returned from it."""
        if self.mode == "off":
            return 1.0
        return float(self.start[0]) if self.state is None else self.state.device.stream.number(self.state, 0)  # type: ignore[no-any-return]

    @property
    def good_steps(self) -> int:
        """Steps without overflow since the scale last changed."""
        return int(self.numbers()[1])

    @property
    def overflows(self) -> int:
        """Steps that were skipped because gradients were not finite."""
        return int(self.numbers()[2])

    def prepare(self, device: Any) -> None:
        """Put the numbers on the device. They are the scaler's own: no recorded step makes them anew."""
        if self.state is None:
            with device.stream.aside():
                self.state = device.direct.upload(np.array(self.start))
                self.limits = device.direct.upload(np.array([0.0, LARGEST, 1.0 / self.start[0]]))
                self.factor = tensor(np.float32(self.start[0]), device=device)
                self.seen, self.saw = None if self.saw is None else mark_of(self.saw, device), None
        if self.state.device is not device:
            raise DeviceError(f"GradScaler: a loss on another device: {device}, its scale is on {self.state.device}. Use one scaler each.")

    # ---- a step ---------------------------------------------------------------------------------------------------------------
    def scale(self, loss: Any) -> Any:
        """The loss times the scale (16-bit losses become float32). Raises GradientError unless it requires grad."""
        if self.mode == "off":
            return loss
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            what = loss.origin() if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise GradientError(f"GradScaler.scale: the loss does not require grad: {what}. Make its inputs require grad and record.")
        self.prepare(loss.device)
        wide = loss.to(float32) if loss.dtype in HALF else loss
        scaled = wide * self.factor.to(wide.dtype)
        if scaled.entry is not None:
            scaled.entry.scaled = self
            scalings.add(scaled.entry)
        return scaled

    def unscale(self, grads: GradientMap) -> GradientMap:
        """Divide the gradients by the scale and see whether they are finite; returns the map. Once for each map, before clipping.

        Raises GradientError for a map that is not of a loss scaled by this scaler, or unscaled already.
        """
        if self.mode == "off":
            return grads
        if isinstance(grads, GradientMap) and grads.scaled is EARLIER:
            self.prepare(next(iter(grads._gradients.values())).device)
        elif not isinstance(grads, GradientMap) or grads.scaled is not self:
            what = "unscaled already, or of a loss that was not scaled" if getattr(grads, "scaled", None) is None else "of another scaler"
            raise GradientError(f"GradScaler.unscale: not gradients of this scaler's loss: {what}. Call backward() on scaler.scale(loss).")
        grads.scaled = None
        grads.say_scaled(None)
        places = places_of("GradScaler", grads)
        found = norm_of(grads, places, math.inf)
        device = found.device
        device.launch("limits", None, (found,), (self.limits, *factor_and_mark(grads, device)), (), float64)
        apply_factor(grads, places, found)
        counted = set(places.ids)
        for number, g in grads._gradients.items():  # of inputs, and of tensors with retain_grad()
            if number not in counted and g.size:
                scale_by_factor(g.buffer, found, by="GradScaler.unscale")
        grads.mark = found
        self.seen = found if self.seen is None else both_marks(self.seen, found)
        return grads

    def step(self, optimizer: Any, grads: GradientMap) -> Any:
        """optimizer.step(grads), after unscale() if that was not called; then the scale for the next step. Returns what the step does:
        False where gradients overflowed, which leaves parameters and optimizer as they are."""
        if self.mode == "off":
            return optimizer.step(grads)
        if getattr(grads, "scaled", None) is not None:
            self.unscale(grads)
        if self.seen is None or getattr(grads, "mark", None) is None or self.state is None:
            raise GradientError(
                "GradScaler.step: not gradients of this scaler's loss: nothing was unscaled. Call backward() on scaler.scale(loss)."
            )
        took = optimizer.step(grads)
        found, self.seen = self.seen, None
        outs = self.state, self.limits, self.factor.buffer
        found.device.launch("scaler", None, outs, (found,), (np.float64(self.growth_interval), self.mode == "dynamic"), float64)
        self.factor.buffer.wrote("GradScaler.step")
        return took

    # ---- state ----------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Plain data: mode, growth_interval, scale, good_steps, overflows; seen: between unscale() and step(), whether gradients may be
        used (1 or 0), else None."""
        scale, good, overflows = self.numbers()
        counts = {"good_steps": int(good), "overflows": int(overflows)}
        seen = self.saw if self.seen is None else kept_by(self.seen)
        return {"mode": self.mode, "growth_interval": self.growth_interval, "scale": scale, **counts, "seen": seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(). Raises StateError for what is not one, or of another mode; it changes nothing then."""
        try:
            mode, interval = state["mode"], checked_steps("GradScaler", "growth_interval", state["growth_interval"])
            numbers = checked_numbers(state["scale"], state["good_steps"], state["overflows"])
            seen = checked_seen(state["seen"])
        except (KeyError, TypeError, ValueError) as problem:
            raise StateError(f"GradScaler: not its state: {problem}. Pass what state_dict() returned.") from None
        if mode != self.mode:
            raise StateError(f"GradScaler: the state of another mode: state '{mode}', this is '{self.mode}'. Make one of the same mode.")
        self.growth_interval, self.start, self.saw = interval, numbers, seen
        if self.state is not None:  # in its place: recorded steps go on with it
            device = self.state.device
            device.write(self.state, numbers)
            device.write(self.limits, [0.0, LARGEST, 1.0 / numbers[0]])
            device.write(self.factor.buffer, [numbers[0]])
            self.factor.buffer.wrote("GradScaler.load_state_dict")
            self.seen, self.saw = None if seen is None else mark_of(seen, device), None

    def __getstate__(self) -> dict[str, Any]:
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["scale"], state["growth_interval"], state["mode"])  # type: ignore[misc]
        self.load_state_dict(state)


def checked_seen(seen: Any) -> float | None:
    if seen not in (None, 0.0, 1.0):
        raise ValueError(f"GradScaler: seen is neither None nor 1 nor 0: {seen!r}. Use what state_dict() returned.")
    return None if seen is None else float(seen)


def checked_numbers(scale: Any, good: Any, overflows: Any) -> tuple[float, float, float]:
    if not isinstance(scale, int | float | np.number) or not 1.0 <= scale < math.inf:
        raise ValueError(f"GradScaler: the scale must be a finite number >= 1: {scale!r}. Use a power of two, such as 65536.")
    if not all([isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (good, overflows)]):
        raise ValueError(f"GradScaler: not counts: {good!r}, {overflows!r}. Use numbers of steps.")
    return float(scale), float(good), float(overflows)
