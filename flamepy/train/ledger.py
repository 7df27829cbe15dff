"""The ledger: what every parameter's gradient and update look like over the steps, one line of JSON at a time.

    ledger = Ledger("ledger.jsonl", model)
    for step in range(1, 1001):
        grads = loss(...).backward()
        zeros, norm = ledger.zeros(grads), fp.clip_grad_norm(grads, 1.0)
        ledger.before(step)
        optimizer.step(grads)
        ledger.record(step, norm, zeros)
    ledger.draw("ledger.png")

Norms come with clipping and cost nothing; zeros() is one pass over the gradients and may stand in a captured step; before() and record()
measure the update of every k-th step, outside of it. Every step is looked at: a spike has a line of its own. close() when all is done.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..backend.base import Buffer, device
from ..backend.formula.clip import NORMS
from ..core.errors import DTypeError, StateError
from ..core.words import select
from ..dtypes import checked_steps, computed, float64
from ..gradients.norm import ClipResult, norms_in, places_of, result_of
from ..parameter import named
from .ledger_file import LedgerFile, Sheet, draw

ALL = "*"  # in the place of a name: all gradients together
WARMUP = 10  # steps that must have been seen before one can be a spike


def is_zero(x):
    return select(x == 0.0, 1.0, 0.0)


def moved(now, then):
    return now - then


def zeros_in(grads: Any) -> Any:
    """See Ledger.zeros()."""
    places = places_of("Ledger.zeros", grads)
    on = places.buffers[0].device if places.buffers else device()
    return result_of(places, norms_in(on, places.buffers, places.segments, is_zero, 1.0))


class Ledger:
    """Notes of each parameter: norm of its gradient, update divided by weights, share of zeros in the gradient, or that it has none.

    `params`: a model, a ParameterDict or a list. A line is written every `every` steps, and at spikes: norms more than `z` standard
    deviations above the mean of the last `window`. A file that is there is gone on with, from the step that is recorded next; InputError
    if it is of other parameters. `norm` in record() is what clip_grad_norm() or grad_norm() returned.
    """

    def __init__(self, path: str | os.PathLike[str], params: Any, every: int = 10, window: int = 100, z: float = 4.0):
        self.every, self.window = checked_steps("Ledger", "every", every), checked_steps("Ledger", "window", window)
        if not z > 0:
            raise ValueError(f"Ledger: z must be positive: {z}. Use how many standard deviations are a spike.")
        self.params = named("Ledger", params)
        self.file = LedgerFile(Path(path), list(self.params))
        self.z = float(z)
        self.past = np.empty((0, len(self.params) + 1))  # norms of the last steps, of all together last; NaN for a missing gradient
        self.sizes = np.array([p.size for p in self.params.values()])
        self.weights: list[Update] = []
        self.order: tuple[Any, np.ndarray] = (None, np.empty(0, int))
        self.pending: list[tuple[int, ClipResult, Any]] = []  # steps that are yet to be looked at: all at once costs half

    def due(self, step: int) -> bool:
        """Whether this step is measured in full; steps count from 1."""
        return step % self.every == 0 or step == 1

    def zeros(self, grads: Any) -> Any:
        """How many elements of each gradient are 0: a ClipResult whose norms are the counts. May be called in a captured step."""
        return zeros_in(grads)

    def before(self, step: int) -> None:
        """Remember the weights, if the update that comes is to be measured."""
        self.weights = [Update(home, list(places)) for home, places in self.homes()] if self.due(step) else []

    def homes(self) -> list[tuple[Buffer, list[tuple[int, int, int]]]]:
        """Each piece of memory with parameters in it, and where: (number of the parameter, start, size)."""
        found: dict[int, tuple[Buffer, list[tuple[int, int, int]]]] = {}
        for i, p in enumerate(self.params.values()):
            home = p.buffer.root or p.buffer
            found.setdefault(id(home), (home, []))[1].append((i, p.buffer.start if p.buffer is not home else 0, p.size))
        return list(found.values())

    def __repr__(self) -> str:
        return f"Ledger({self.file.path}, {len(self.params)} parameters, every={self.every}, window={self.window}, z={self.z:g})"

    def record(self, step: int, norm: ClipResult, zeros: Any = None) -> None:
        """Take note of a finished step. Its line, and those of spikes before it, are written when it is measured in full."""
        if not isinstance(norm, ClipResult):
            raise DTypeError(f"Ledger: not what clip_grad_norm() returned: {type(norm).__name__}. Pass its result, which knows each norm.")
        if not self.file.begun:
            self.file.begin(step)
        self.pending.append((step, norm, zeros))
        if self.due(step):
            self.flush(self.ratios())
        self.weights = []

    def flush(self, ratios: np.ndarray | None = None) -> None:
        """Look at the steps since the last line; `ratios`: of the newest."""
        pending, self.pending = self.pending, []
        for step, norm, zeros in pending:
            norms = self.by_parameter(norm)
            spikes = self.spiking(np.append(norms, float(norm)))
            if self.due(step) or spikes:
                shares = None if zeros is None else self.by_parameter(zeros) / np.maximum(self.sizes, 1)
                self.file.add(step, float(norm), norms, ratios if step == pending[-1][0] else None, shares, spikes)

    def by_parameter(self, result: ClipResult) -> np.ndarray:
        """The numbers that a result has by name, in the order of the parameters; NaN for those it lacks."""
        if result.ids is not self.order[0]:  # a replayed step has the same list each time
            where = {number: i for i, number in enumerate(result.ids)}
            self.order = result.ids, np.array([where.get(p.id, -1) for p in self.params.values()], int)
        numbers, order = np.append(result.numbers[NORMS:], math.nan), self.order[1]
        return numbers[order]  # -1: the NaN at the end

    def ratios(self) -> np.ndarray | None:
        """How far each parameter moved, divided by how large it was; NaN where it was 0."""
        if not self.weights:
            return None
        found = np.full(len(self.params), math.nan)
        for update in self.weights:
            found[[i for i, _, _ in update.places]] = update.ratios()
        return found

    def spiking(self, norms: np.ndarray) -> list[str]:
        """Which norms of this step are spikes beside those of the steps before; takes them into the window."""
        past, finite = self.past, np.isfinite(self.past)
        if finite.all():  # as good as always
            count, kept = np.full(norms.size, len(past)), past
        else:
            count, kept = finite.sum(0), np.where(finite, past, 0.0)
        mean = kept.sum(0) / np.maximum(count, 1)
        away = kept - mean if kept is past else np.where(finite, kept - mean, 0.0)
        std = np.sqrt(np.einsum("ij,ij->j", away, away) / np.maximum(count, 1))
        broken = ~np.isfinite(norms) & np.append(self.order[1] >= 0, True)
        high = (count >= min(WARMUP, self.window)) & (norms > mean + self.z * std)
        self.past = np.concatenate([past[-self.window + 1 :] if self.window > 1 else past[:0], norms[None]])
        names = [*self.params, ALL]
        return [names[i] for i in np.flatnonzero(high | broken)]

    # ---- files, state --------------------------------------------------------------------------------------------------------------
    def sheet(self) -> Sheet:
        """What the file says, as arrays."""
        self.flush()
        return self.file.sheet()

    def draw(self, path: str | os.PathLike[str], title: str = "") -> None:
        """A picture (PNG) of the file: parameters by steps."""
        draw(self.sheet(), Path(path), title)

    def close(self) -> None:
        self.flush()
        self.file.close()

    def state_dict(self) -> dict[str, Any]:
        self.flush()
        return {"parameters": list(self.params), "past": self.past.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(). Raises StateError for what it did not return, and changes nothing then."""
        past = np.asarray(state.get("past")) if isinstance(state, dict) else np.empty(0)
        if past.dtype != float64 or past.shape[1:] != (len(self.params) + 1,) or state["parameters"] != list(self.params):
            raise StateError(f"Ledger: not its state: {past.shape} of {past.dtype}. Restore the ledger of the same parameters.")
        self.past, self.pending = np.array(past)[-self.window :], []


class Update:
    """One piece of memory before a step, and how far its parameters moved since. `places`: (number, start, size) of each."""

    def __init__(self, home: Buffer, places: list[tuple[int, int, int]]):
        self.home, self.places = home, places
        self.then = home.device.stream.copied(home, computed(home.dtype))
        self.sizes = self.norms()

    def norms(self) -> np.ndarray:
        """Of what `then` holds for each parameter."""
        device, segments = self.then.device, tuple([(start, size) for _, start, size in self.places])
        return np.array(device.download(norms_in(device, [self.then], (segments,)))[NORMS:])

    def ratios(self) -> np.ndarray:
        self.then.device.launch("map", moved, (self.then,), (self.home, self.then), (), self.then.dtype)
        return np.divide(self.norms(), self.sizes, out=np.full(len(self.places), math.nan), where=self.sizes > 0)
