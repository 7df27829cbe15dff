"""Gradient accumulation: one optimizer step for several micro-batches, for batches that do not fit into memory.

    accumulator = GradientAccumulator(4)
    for x, y in batches:
        grads = accumulator.step(loss(x, y).backward())     # None, None, None, then the mean of the four
        if grads is not None:
            optimizer.step(grads)

The sums are a GradientMap of the accumulator's own. Gradients of packed parameters are added span by span, one launch each, and the
map handed out has these spans, so that clipping and the optimizer are one launch each as well.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

from ..bus import before, here
from ..dtypes import FLOATS, HALF, float32, is_count
from ..engine.marks import EARLIER, kept_by, mark_of
from ..engine.named_map import check_device
from ..errors import (
    AccumulationError,
    AccumulatorFull,
    CaptureError,
    DTypeError,
    GradientError,
    NoGradients,
    ShapeMismatch,
    StateError,
)
from ..gradient import GradientMap
from ..gradients.clip import clip_grad_norm
from ..parameter import named
from ..tensors import Tensor, tensor
from .sums import Arrived, add_map, arrived_in, copied, taken_in
from .window import AccumulationConfig, AccumulationStats, Bound, Counts, Known, Torn, Window, checked_state, checked_weight


class GradientAccumulator:
    """Adds up gradients of micro-batches; after `accumulation_steps` of them hands out their mean (their sum: normalize=False).

    Two ways to use it. step(grads), or add(grads, weight), with the map of each backward. Or by name: register(name, shape), then
    accumulate(name, gradient) for each, and where should_update(), get_gradients() and reset(). A parameter that is missing from some
    micro-batches is divided by all of them. Maps handed in are neither changed nor kept; those handed out are the caller's own.
    Whatever raises has changed nothing. In a captured step a window must begin and end.
    """

    def __init__(self, config: AccumulationConfig | int = 4):
        self._config = config if isinstance(config, AccumulationConfig) else AccumulationConfig(config)
        self.known: dict[str, Known] = {}  # registered
        self.restored: dict[str, Known] = {}  # from a state, until their gradients come
        self.window = Window(GradientMap())
        self.done, self.torn = Counts(), Torn()
        self.finished: GradientMap | None = None  # what step() returned last, until something arrives
        self.sizes: dict[int, int] = {}  # elements of every id seen in the last window
        self.lock = threading.RLock()

    @property
    def config(self) -> AccumulationConfig:
        """May be set between windows."""
        return self._config

    @config.setter
    def config(self, config: AccumulationConfig) -> None:
        with self.lock:
            if not isinstance(config, AccumulationConfig):
                raise DTypeError(f"GradientAccumulator: no AccumulationConfig: {config!r}. Pass AccumulationConfig(steps).")
            if self.window.arrived:
                at = f"{self.window.arrived} of {self._config.accumulation_steps} micro-batches"
                raise AccumulationError(f"GradientAccumulator: the config was set inside a window: {at}. Call flush() or reset() first.")
            self._config = config

    def set_option(self, value: Any) -> None:
        advice = "Set accumulator.config = AccumulationConfig(...) between windows"
        raise AttributeError(f"GradientAccumulator: an option of its config, which is set as a whole: {value!r}. {advice}.")

    accumulation_steps = property(lambda self: self._config.accumulation_steps, set_option)
    normalize = property(lambda self: self._config.normalize, set_option)
    max_grad_norm = property(lambda self: self._config.max_grad_norm, set_option)
    accum_steps = property(lambda self: self._config.accumulation_steps)  # micro-batches of a full window
    current_step = property(lambda self: self.window.arrived)  # micro-batches in the open window
    total_micro_batches = property(lambda self: self.done.micro_batches)
    total_updates = property(lambda self: self.done.updates)

    def should_update(self) -> bool:
        """Whether the window is full."""
        return self.window.arrived >= self._config.accumulation_steps

    def stats(self) -> AccumulationStats:
        """Counts since the beginning; parameters and elements are those registered, and those that came in the last window."""
        with self.lock:
            sizes = {**self.sizes, **{known.number: math.prod(known.shape) for known in self.known.values()}}
            return AccumulationStats(*self.done.saved(), self._config.accumulation_steps, len(sizes), sum(sizes.values()))

    def __repr__(self) -> str:
        return f"GradientAccumulator({self.current_step} of {self.accum_steps} micro-batches, {self.total_updates} updates so far)"

    # ---- whole maps -----------------------------------------------------------------------------------------------------------------
    def step(self, grads: GradientMap | Mapping[str, Any]) -> GradientMap | None:
        """Add the gradients of one micro-batch. Returns the result of the window when this was its last, else None."""
        return self.add(grads, 1.0)

    def add(self, grads: GradientMap | Mapping[str, Any], weight: float = 1.0) -> GradientMap | None:
        """step() for micro-batches that count differently, by their number of tokens: the result is the weighted mean. With weight 0
        a micro-batch counts and adds nothing, whatever is in it. `grads` may be a dict of arrays for registered names."""
        share = checked_weight(weight)
        n, limit = self._config.accumulation_steps, self._config.max_grad_norm
        with self.lock:
            source = grads if isinstance(grads, GradientMap) else GradientMap()
            rows, was = self.arrivals(grads), self.window
            self.torn.check(was.total)
            last = was.arrived + 1 == n
            if last and self._config.normalize and was.weight + share == 0:
                raise AccumulationError(f"accumulate: all weights are zero: {n} micro-batches. Skip those without tokens, or reset().")
            bound = self.open(rows, n, source.scaled)
            window = self.window
            try:
                if last:
                    self.check_homes()
                total = copied(window.total) if last and limit else window.total  # clipping may raise
                if share:
                    add_map(total, rows, source, share)
                counts = {**window.counts, **{row.number: window.counts.get(row.number, 0) + 1 for row in rows}}
                now = window._replace(total=total, arrived=window.arrived + 1, weight=window.weight + share, counts=counts)
                result = self.result(now) if last else None
            except BaseException:
                self.unbind(bound, was)
                raise
            before(self.done.micro_batch)
            self.window = now
            self.torn.took(now.total, rows)
            self.saw(rows, was)
            if last:
                self.close()
                self.finished = None if here.step else result
            return result

    # ---- by name --------------------------------------------------------------------------------------------------------------------
    def register(self, name: str, shape: Any) -> None:
        """Make a name known to accumulate(). With the Parameter itself in the place of its shape the result also has its id, as
        optimizers need it. A name registered before stays as it is; ShapeMismatch if it has another shape."""
        if not isinstance(name, str) or not name:
            raise AccumulationError(f"register: not a name: {name!r}. Pass the parameter's name, then its shape.")
        given = shape.shape if isinstance(shape, Tensor) else tuple(shape) if isinstance(shape, list | tuple) else (shape,)
        if not all([is_count(n) for n in given]):
            raise AccumulationError(f"register: not a shape: '{name}', {shape!r}. Pass sizes, or the Parameter.")
        given = tuple([int(n) for n in given])
        with self.lock:
            known = self.known.get(name) or self.restored.get(name) or Known(name, given)
            if known.shape != given:
                raise ShapeMismatch(name, known.shape, given)
            if isinstance(shape, Tensor) and not self.stands_for(known, shape.id):
                raise AccumulationError(f"register: another Parameter has this name: '{name}'. Give each its own accumulator or name.")
            self.known[name] = known
            self.restored.pop(name, None)
            if isinstance(shape, Tensor):
                self.bind([Arrived(shape.id, name, shape)])

    def accumulate(self, name: str, gradient: Any) -> None:
        """Add one micro-batch's gradient of a registered name. Raises NoGradients for another, ShapeMismatch, AccumulatorFull."""
        with self.lock:
            rows = self.arrivals({name: gradient})
            count = self.window.counts.get(rows[0].number, 0) + 1
            self.open(rows, self._config.accumulation_steps, None, count)
            window, more = self.window, count > self.window.arrived
            self.torn.check(window.total)
            taken_in(window.total, rows, 1.0)
            self.torn.took(window.total, rows)
            if more:
                before(self.done.micro_batch)
            counts = {**window.counts, rows[0].number: count}
            self.window = window._replace(arrived=max(window.arrived, count), weight=window.weight + more, counts=counts)
            self.saw(rows, window)

    def get_gradients(self) -> GradientMap:
        """The result of what has arrived so far, divided by that many; the window goes on. Where step() has just ended a window, what
        it returned. NoGradients if nothing has arrived."""
        with self.lock:
            window = self.window
            if not window.arrived and self.finished is not None:  # step() has ended the window
                return self.finished
            if not window.arrived:
                raise NoGradients()
            self.check_homes()
            return self.result(window._replace(total=copied(window.total)))

    def flush(self) -> GradientMap | None:
        """End the window early: its result, divided by the micro-batches that arrived. None if nothing has."""
        with self.lock:
            if not self.window.arrived:
                return None
            found = self.get_gradients()
            self.close()
            return found

    def reset(self) -> None:
        """Begin a new window, with nothing in it; what was in it is taken for an update made."""
        with self.lock:
            self.finished = None
            if self.window.arrived:
                self.close()

    # ---- what they share -----------------------------------------------------------------------------------------------------------
    def arrivals(self, grads: Any) -> list[Arrived]:
        """What was handed in, one by one."""
        if isinstance(grads, GradientMap):
            return arrived_in(grads)
        if not isinstance(grads, Mapping):
            kind = type(grads).__name__
            raise DTypeError(f"accumulate: not a map of gradients: {kind}. Pass the map that loss.backward() returned.")
        rows = []
        for name, given in grads.items():
            known = self.known.get(name)
            if known is None:
                raise NoGradients(name)
            g = Tensor.of("accumulate", given, known.device).detach()
            if g.dtype not in FLOATS or g.dtype in HALF:
                g = g.to(float32)
            rows.append(Arrived(known.number, name, g))
        return rows

    def open(self, rows: list[Arrived], n: int, scaled: Any, count: int | None = None) -> list[Bound]:
        """Check that these may come into the window, before anything is changed; `count`: how often the one row has come by name.
        Returns what bind() did."""
        window = self.window
        if rows and len(window.total) and scaled is not window.total.scaled and (scaled is None or window.total.scaled is not EARLIER):
            raise GradientError(
                "accumulate: gradients of a scaled loss and others: they differ in scale. Call unscale() on each map first."
            )
        if window.arrived and here.step != window.step:
            at = f"{window.arrived} of {n} micro-batches are in"
            what = "a window does not begin and end in one call of a captured step"
            raise CaptureError(f"accumulate: {what}: {at}. Capture a step that does a whole window, or accumulate outside of it.")
        if (window.arrived + 1 if count is None else count) > n:
            raise AccumulatorFull(n)
        names = {**self.restored, **self.known}
        for number, name, g in rows:
            stored = window.total._gradients.get(number)
            known = names.get(name)
            shape = stored.shape if stored is not None else known.shape if known is not None and self.stands_for(known, number) else g.shape
            label = Arrived(number, name or window.total.names.get(number, ""), g).label
            if shape != g.shape:
                raise ShapeMismatch(label, shape, g.shape)
            if stored is not None:
                check_device("accumulate", label, stored.device, g)
        bound = self.bind(rows)
        self.finished = None
        if not window.arrived:
            self.window = window._replace(step=here.step)
        return bound

    def saw(self, rows: list[Arrived], was: Window) -> None:
        """Remember what came, and forget what came in the window before."""
        self.sizes = {**(self.sizes if was.arrived else {}), **{row.number: row.gradient.size for row in rows}}

    def stands_for(self, known: Known, number: int) -> bool:
        """Whether a gradient with this id and the name of `known` belongs to it."""
        sums = self.window.total._gradients
        return known.number == number or (not known.bound and not (number in sums and known.number in sums))

    def bind(self, rows: list[Arrived]) -> list[Bound]:
        """Have names that had no id of a Parameter's take those that came with one."""
        bound = []
        for number, name, g in rows:
            known = self.known.get(name) or self.restored.get(name)
            if known is None or known.number == number or not self.stands_for(known, number):
                continue
            total, counts = self.window.total, self.window.counts
            bound.append(Bound(known, known.number, known.number in total._gradients))
            if known.number in total._gradients:
                total._gradients[known.number] = total._gradients[known.number].to(device=g.device)
                if total.mark is not None and total.mark.device is not g.device:
                    total.mark = mark_of(kept_by(total.mark), g.device)
                total.rename(known.number, number)
            if number in total:
                total.names[number] = name
            self.window = self.window._replace(counts={number if key == known.number else key: n for key, n in counts.items()})
            if known.number in self.sizes:
                self.sizes[number] = self.sizes.pop(known.number)
            known.number, known.bound, known.device = number, True, g.device
        return bound

    def unbind(self, bound: list[Bound], was: Window) -> None:
        """After a failure: names and the window as they were before bind()."""
        for known, number, held in reversed(bound):
            if held:
                was.total.rename(known.number, number)
            if known.number in self.sizes:
                self.sizes[number] = self.sizes.pop(known.number)
            known.number, known.bound, known.device = number, False, None
        self.window = was

    def check_homes(self) -> None:
        """Raise AccumulationError while the sums of a restored state have not found all their parameters."""
        homeless = [name for name, known in {**self.restored, **self.known}.items() if known.homeless and not known.bound]
        if homeless:
            what = f"restored gradients met no parameter: {', '.join(homeless)}"
            raise AccumulationError(f"accumulate: {what}. Use load_state_dict(state, model), or register(name, parameter).")

    def result(self, window: Window) -> GradientMap:
        """The window's sum divided and clipped, in its own memory."""
        if self._config.normalize and window.weight != 1:
            window.total.scale_(1.0 / window.weight if window.weight else 0.0)
        clip_grad_norm(window.total, self._config.max_grad_norm) if self._config.max_grad_norm else None
        return window.total

    def close(self) -> None:
        """Begin a new window."""
        before(self.done.update)
        self.window = Window(GradientMap())
        self.restored = {}

    # ---- state: plain data ------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to go on inside a window, by parameter names. StateError for a parameter without a name."""
        with self.lock:
            window = self.window
            names = {known.number: name for name, known in {**self.restored, **self.known}.items()}
            found = {number: names.get(number) or window.total.names.get(number, "") for number in window.counts}
            if "" in found.values() or len(set(found.values())) < len(found):
                twice = f"{len(found)} gradients, {len(set(found.values()) - {''})} names"
                raise StateError(f"GradientAccumulator: each parameter needs a name of its own: {twice}. Put them into one ParameterDict.")
            sums = {found[number]: g.numpy().copy() for number, g in window.total._gradients.items()}
            counts = {found[number]: count for number, count in window.counts.items()}
            free = [name for name, known in self.known.items() if not (known.bound or known.homeless)]  # with no id to find again
            return {
                "accumulation_steps": self._config.accumulation_steps, "micro_batches": window.arrived, "weight": window.weight,
                "total_micro_batches": self.done.micro_batches, "total_updates": self.done.updates,
                "registered": {name: list(known.shape) for name, known in self.known.items()}, "counts": counts, "sums": sums,
                "parameters": [name for name in {**self.restored, **self.known, **sums} if name not in free],
                "keep": None if (mark := window.total.mark) is None else kept_by(mark), "scaled": window.total.scaled is not None,
            }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any], params: Any = None) -> None:
        """Restore state_dict(); a failure changes nothing (StateError). Sums find their parameters by name: at once among `params`
        (a model, a ParameterDict), else when gradients of these names come."""
        with self.lock:
            state = checked_state(state, self._config.accumulation_steps)
            there = {} if params is None else named("GradientAccumulator", params)
            shapes = {**{name: g.shape for name, g in state["sums"].items()}, **state["registered"]}
            for name, shape in shapes.items():
                p = there.get(name)
                if params is not None and p is None and name not in state["registered"]:
                    raise StateError(f"GradientAccumulator: no such parameter: '{name}'. Restore into the same model.")
                if p is not None and p.shape != shape:
                    raise StateError(f"GradientAccumulator: shape differs for '{name}': state {shape}, model {p.shape}. Restore the same.")
            ids_there = {name: p.id for name, p in there.items()}
            known = {n: Known(n, shape, ids_there.get(n, 0), n in state["parameters"]) for n, shape in shapes.items()}
            total = GradientMap()
            for name, array in state["sums"].items():
                number = known[name].number
                total._gradients[number] = tensor(array, device=there[name].device if name in there else None)
                total.names[number] = name
            total.mark = None if state["keep"] is None else mark_of(state["keep"], next(iter(total._gradients.values())).device)
            total.scaled = EARLIER if state["scaled"] else None
            counts = {known[name].number: count for name, count in state["counts"].items() if name in known}
            self.sizes = {k.number: math.prod(k.shape) for k in known.values()}
            self.known = {name: known[name] for name in state["registered"]}
            self.restored = {name: k for name, k in known.items() if name not in self.known}
            self.window = Window(total, state["micro_batches"], state["weight"], counts, here.step)
            self.done.restore((state["total_micro_batches"], state["total_updates"]))

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: by names, since ids differ elsewhere."""
        return {"config": self._config, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["config"])  # type: ignore[misc]
        self.load_state_dict(state["state"])
