"""Averages of parameters over training: EMA and SWA to evaluate and save with, Lookahead to train with.

    ema = EMA(model, decay=0.999)
    ... optimizer.step(grads); ema.update()
    with ema.applied():                      # the model's parameters are the averages here
        validate(model)

An average lies beside its parameters: one piece of memory for each packed span, else for each parameter, float32 for 16-bit ones. An
update is one launch for each. Its share is filled in by the host before a launch, so a captured step may update averages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backend.base import Buffer
from ..bus import before, changed, outside
from ..core.words import select
from ..dtypes import FLOATS, computed, is_count, is_number
from ..engine.spans import Piece, spans_of
from ..errors import StateError, warn
from ..parameter import Parameter, named
from ..tensors import Tensor
from .around import Around

exchanged: dict[int, str] = {}  # parameters, by id, that are averages now, and whose


def toward_y(a, x, share):
    """a moved towards x by a share; x itself for 1, a itself where they are equal."""
    return select(share < 0.5, a + share * (x - a), x - (x - a) * (1.0 - share))


class Region(Piece):
    """Parameters in one piece of memory, and their average in the same layout."""

    def __init__(self, buffer: Buffer, params: list[Parameter]):
        super().__init__(buffer, params)
        self.average = buffer.device.stream.copied(buffer, computed(buffer.dtype))

    def move(self, share: Any) -> None:
        """Take the average towards the parameters by what share() gives, now and in each replay."""
        device, dtype, x = self.average.device, self.average.dtype, self.buffer
        if not x.size:
            return
        number = device.empty(1, dtype)
        device.stream.before(share, number)
        number = device.withheld(number)
        shape = (x.size,)
        device.launch("broadcast", toward_y, (self.average,), (self.average, x, number), (shape, (shape, shape, (1,))), dtype)
        self.average.wrote("an update of the average")

    def write(self, numbers: Buffer, by: str) -> None:
        """Overwrite the parameters, wherever they are by now."""
        if self.stays():
            self.buffer.device.stream.copy(self.buffer, numbers)
            self.buffer.wrote(by)
            return
        for i, p in enumerate(self.params):
            p.device.stream.copy(p.buffer, numbers.part(*self.segments[i]))
            p.buffer.wrote(by)


def regions_of(params: list[Parameter]) -> list[Region]:
    """One for each span that holds nothing else, one for each other parameter."""
    found: list[Region] = []
    for span, ps in spans_of(params):
        whole = sum([p.size for p in ps]) == span.size
        found += [Region(span, ps)] if whole else [Region(p.buffer, [p]) for p in ps]
    return found


class Averaged:
    """Base of EMA and SWA. `params`: a Module, a ParameterDict or a list of Parameters; `updates`: how many were made."""

    name = "average"

    def __init__(self, params: Any):
        self.params = named(self.name, params)
        if not self.params:
            raise StateError(f"{self.name}: no parameters: an empty {type(params).__name__}. Pass a model.")
        self.updates = 0
        self.regions = regions_of(list(self.params.values()))

    def share(self) -> float:
        """How far this update goes towards the parameters."""
        raise NotImplementedError

    def update(self) -> None:
        """Take the parameters as they are now into the average."""
        self.arrange()
        before(self.begin)
        for region in self.regions:
            region.move(self.shares)

    def begin(self) -> None:
        self.check_outside("update()")  # in each replay, too
        self.updates += 1

    def shares(self) -> list[float]:
        return [self.share()]

    def saved(self) -> int:
        """For a replay that fails; see engine/capture."""
        return self.updates

    def restore(self, updates: int) -> None:
        self.updates = updates

    def check_outside(self, what: str) -> None:
        now = next((exchanged[p.id] for p in self.params.values() if p.id in exchanged), None)
        if now is not None:
            raise StateError(f"{self.name}: {what} inside {now}.applied(): the parameters are averages. Leave the block first.")

    def arrange(self) -> None:
        """Follow parameters that were packed since."""
        if all([region.stays() for region in self.regions]):
            return
        rows = self.rows()
        for region in self.regions:
            region.average.retired = f"a change of where {self.name}'s parameters are"
        changed(self)
        self.regions = regions_of(list(self.params.values()))
        self.put(rows)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """In the block the parameters are the averages; afterwards, whatever happened, what they were. Writing into them in the block
        (a training step, load_state_dict()) is lost and raises StateError at its end. Ask an optimizer of 16-bit parameters for its
        state_dict() outside: it follows what is written into them."""
        self.check_outside("applied()")
        if gone := [p.label for p in self.params.values() if p.replaced]:
            advice = "What took its place is not averaged: make the average afterwards"
            warn(f"{self.name}: a parameter was replaced in its model: {gone[0]}. {advice}.")
        self.arrange()
        kept = [(region, region.buffer.device.stream.copied(region.buffer)) for region in self.regions]
        for region in self.regions:
            region.write(region.average, f"{self.name}.applied()")
        versions = [(p, p.buffer, p.buffer.version) for p in self.params.values()]
        exchanged.update({p.id: self.name for p in self.params.values()})
        try:
            yield
            written = [p for p, buffer, version in versions if p.buffer.version != (version if p.buffer is buffer else 0)]
            texts = [f"'{p.label}' by {p.buffer.last_write}" for p in written[:1]]
        finally:
            for p in self.params.values():
                del exchanged[p.id]
            for region, numbers in kept:
                region.write(numbers, f"the end of {self.name}.applied()")
        if texts:
            raise StateError(
                f"{self.name}: parameters were written inside applied(): {texts[0]}. It is undone: train outside of the block."
            )

    # ---- state --------------------------------------------------------------------------------------------------------------------
    def rows(self) -> dict[str, np.ndarray]:
        """Copies of the averages by name."""
        places = [(p, region.part(region.average, i)) for region in self.regions for i, p in enumerate(region.params)]
        found = {p.id: part.numpy().copy() for p, part in places}
        return {name: found[p.id] for name, p in self.params.items()}

    def put(self, rows: dict[str, Any]) -> None:
        """Overwrite the averages by name."""
        names = {p.id: name for name, p in self.params.items()}
        for region in self.regions:
            for i, p in enumerate(region.params):
                array = np.asarray(rows[names[p.id]], region.average.dtype)
                Tensor.of(self.name, array, p.device).copied_into(region.part(region.average, i).buffer)

    def state_dict(self) -> dict[str, Any]:
        """Plain data: {"kind": "EMA", "updates": int, "average": {name: array}}."""
        return {"kind": self.name, "updates": self.updates, "average": self.rows()}

    def checked_state(self, state: Any) -> dict[str, Any]:
        """A state that fits these parameters. Raises StateError."""
        if not isinstance(state, dict) or set(state) != {"kind", "updates", "average"} or state["kind"] != self.name:
            what = state.get("kind", sorted(state)) if isinstance(state, dict) else type(state).__name__
            raise StateError(f"{self.name}: not its state: {what}. Restore what its state_dict() returned.")
        n, rows = state["updates"], state["average"]
        if not is_count(n):
            raise StateError(f"{self.name}: not a count of updates: {n!r}. Restore what state_dict() returned.")
        wrong = sorted(set(rows) ^ set(self.params)) if isinstance(rows, dict) else f"a {type(rows).__name__}"
        if wrong:
            raise StateError(f"{self.name}: parameter names mismatch: {wrong}. Restore the same model.")
        for name, p in self.params.items():
            try:
                array = np.asarray(rows[name])
            except ValueError:  # lists of uneven length
                array = np.asarray(None)
            if array.shape != p.shape or array.dtype not in FLOATS:
                differ = f"state {array.shape} of {array.dtype}, model {p.shape}"
                raise StateError(f"{self.name}: shape mismatch for '{name}': {differ}. Restore the same model.")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(). Names and shapes are checked first; a failure changes nothing (StateError)."""
        self.check_outside("load_state_dict()")
        state = self.checked_state(state)
        self.arrange()
        self.put(state["average"])
        self.updates = int(state["updates"])

    def __getstate__(self) -> dict[str, Any]:
        self.check_outside("pickle or copy")
        return {**{key: value for key, value in vars(self).items() if key != "regions"}, "rows": self.rows()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({key: value for key, value in state.items() if key != "rows"})
        self.regions = regions_of(list(self.params.values()))
        self.put(state["rows"])

    def __repr__(self) -> str:
        return f"{self.name}({len(self.params)} parameters, {self.updates} updates)"


class EMA(Averaged):
    """Exponential moving average: average = decay * average + (1 - decay) * parameters, beginning with what they are now.

    warmup: in update t = 0, 1, ... the decay is at most (1 + t) / (10 + t), so that the beginning is forgotten sooner."""

    name = "EMA"

    def __init__(self, params: Any, decay: float = 0.999, warmup: bool = False):
        if not is_number(decay) or not 0 <= float(decay) < 1:
            raise ValueError(f"EMA: decay out of range: {decay!r:.40}. Use a number in [0, 1), 0.999.")
        self.decay, self.warmup = float(decay), bool(warmup)
        super().__init__(params)

    def share(self) -> float:
        t = self.updates
        return 1.0 - (min(self.decay, t / (9.0 + t)) if self.warmup else self.decay)


class SWA(Averaged):
    """Equal average of the parameters at each update (Izmailov et al. 2018, arXiv:1803.05407)."""

    name = "SWA"

    def share(self) -> float:
        return 1.0 / self.updates


class Slow(Averaged):
    """Lookahead's slow weights."""

    name = "Lookahead"
    alpha = 0.5

    def share(self) -> float:
        return self.alpha


class Lookahead(Around):
    """An optimizer around an optimizer: after every k steps the parameters go back to alpha of the way that they went since the last
    time (Zhang et al. 2019, arXiv:1907.08610). Make it when the model has the parameters to begin with; steps that update nothing don't
    count."""

    name = "Lookahead"

    def __init__(self, optimizer: Any, k: int = 5, alpha: float = 0.5):
        if not is_count(k, 1):
            raise ValueError(f"Lookahead: k is no count of steps: {k!r}. Use an int, 1 or more.")
        if not is_number(alpha) or not 0 < float(alpha) <= 1:
            raise ValueError(f"Lookahead: alpha out of range: {alpha!r}. Use a number in (0, 1].")
        self.take(optimizer)
        self.k, self.steps = int(k), 0
        self.slow = Slow(optimizer.params)
        self.slow.alpha = float(alpha)

    def step(self, grads: Any = None) -> Any:
        """A step of the optimizer, and every k-th time one of the slow weights. Returns what the optimizer's step does."""
        outside(f"Lookahead: every k-th step does more: k is {self.k}. Capture what comes before the step, or don't capture.")
        versions = [p.buffer.version for p in self.params]
        done = self.optimizer.step(grads)
        if versions != [p.buffer.version for p in self.params]:
            self.steps += 1
            if self.steps % self.k == 0:
                self.slow.update()
                for region in self.slow.regions:
                    region.write(region.average, "Lookahead.step")
        return done

    def state_dict(self) -> dict[str, Any]:
        """Plain data: the optimizer's, the slow weights', and the number of steps."""
        return {"optimizer": self.optimizer.state_dict(), "slow": self.slow.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(); a failure changes nothing (StateError)."""
        n: Any = state.get("steps") if isinstance(state, dict) and set(state) == {"optimizer", "slow", "steps"} else None
        if not is_count(n):
            what = sorted(state) if isinstance(state, dict) else type(state).__name__
            raise StateError(f"Lookahead: not its state: {what}. Restore what its state_dict() returned.")
        self.slow.checked_state(state["slow"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.slow.load_state_dict(state["slow"])
        self.steps = int(n)

    def __repr__(self) -> str:
        return f"Lookahead(k={self.k}, alpha={self.slow.alpha}) of {self.optimizer!r}"
