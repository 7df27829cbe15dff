"""Pipeline: a base loss and weighted terms, added up, with the norm of the gradient that each sends to the input.

The input is whatever tensor compute() is given, most often the output of a model. Norms are of the unweighted terms; the total's is
that of the weighted sum. They cost one backward for each term, from the term to the input and not further. Who has subscribed is told:

    gradient.computed {total_norm, pipeline_size}      gradient.failed {duration, reason}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any, NamedTuple

from ..autograd import is_grad_enabled, no_grad
from ..bus import changed, here, seen
from ..creation import full
from ..dtypes import checked_dict
from ..engine.capture.reach import look
from ..errors import StateError, warn
from ..tensors import Tensor
from .paths import Cut, Evaluation, Takes, added, evaluate, norm_of, reason_of, takes, wide

BASE = "base_loss"
ENDINGS = ("", "_weighted", "_grad_norm", "_grad_norm_error")
Callback = Callable[[str, dict[str, Any]], Any]


class Events:
    """The callbacks of one object. Telling must not stop a training step: what a callback raises becomes a FlameWarning."""

    def __init__(self) -> None:
        self.callbacks: list[list[Callback]] = []

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Have `callback(event, details)` called; returns a function that ends it. Raises TypeError for what cannot be called."""
        if not callable(callback):
            raise TypeError(f"subscribe: not a function: {type(callback).__name__}. Pass callback(event, details).")
        kept = [callback]  # an object of its own: one function may be subscribed twice
        self.callbacks = [*self.callbacks, kept]  # a new list: somebody may be going through the old one

        def end() -> None:
            self.callbacks = [c for c in self.callbacks if c is not kept]

        return end

    def tell(self, event: str, **details: Any) -> None:
        for (callback,) in self.callbacks:
            try:
                callback(event, dict(details))
            except Exception as error:
                what = f"subscribe: a callback failed: {event}: {type(error).__name__}: {error}. The step goes on without it."
                warn(what)

    def computed(self, total_norm: Any, size: int) -> None:
        """Tell of a norm; not while a step is recorded, when it is not known."""
        if isinstance(total_norm, float):
            self.tell("gradient.computed", total_norm=total_norm, pipeline_size=size)

    def failed(self, began: float, reason: str) -> None:
        """Tell of a failure; `began`: what perf_counter() said then."""
        self.tell("gradient.failed", duration=perf_counter() - began, reason=reason)


class Term(NamedTuple):
    """One term; `takes`: what of extra_args. Replaced, not changed: who computes has a list of his own."""

    name: str
    fn: Callable[..., Any]
    weight: float
    enabled: bool
    takes: Takes


class Pipeline:
    """base_loss(x) + sum of weight * term(x). Functions take a Tensor and return a scalar Tensor (or a number)."""

    def __init__(self, base_loss: Callable[..., Any] | None = None):
        if base_loss is not None:
            check_function("Pipeline", base_loss)
        self._base = None if base_loss is None else Term(BASE, base_loss, 1.0, True, takes(base_loss))
        self._terms: dict[str, Term] = {}
        self._events = Events()
        self._made_in = here.step  # a recorded step that makes it anew each time

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made_in": 0}

    # ---- the terms -----------------------------------------------------------------------------------------------------------------
    def add(self, name: str, fn: Callable[..., Any], weight: float = 1.0) -> Pipeline:
        """Add a term; returns the pipeline. Raises StateError for a name that is empty or taken (also by a metric: "base_loss", "total",
        "l1_weighted" beside "l1"), ValueError unless the weight is finite and >= 0, TypeError for what is no function."""
        if not isinstance(name, str) or not name.strip():
            raise StateError(f"add: a term needs a name: {name!r}. Pass a string that is not empty.")
        check_function("add", fn)
        taken = {known + ending for known in (*self._terms, BASE, "total") for ending in ENDINGS}
        if not taken.isdisjoint({name + ending for ending in ENDINGS}):
            raise StateError(f"add: name used twice: '{name}', or one of its metrics is another's. Choose another name.")
        self._set(Term(name, fn, checked_weight("add", name, weight), True, takes(fn)))
        return self

    def remove(self, name: str) -> None:
        """Take a term out. Raises KeyError for a name that is not there, as the two below do."""
        self._term("remove", name)
        self._terms = {key: term for key, term in self._terms.items() if key != name}
        changed(self)

    def enable(self, name: str, flag: bool = True) -> None:
        """Have compute() use a term, or leave it out."""
        self._set(self._term("enable", name)._replace(enabled=bool(flag)))

    def update_weight(self, name: str, weight: float) -> None:
        """Another weight from the next compute() on."""
        term = self._term("update_weight", name)
        self._set(term._replace(weight=checked_weight("update_weight", name, weight)))

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Have `callback(event, details)` called for each compute() that tracks norms; returns a function that ends it."""
        return self._events.subscribe(callback)

    def _term(self, by: str, name: str) -> Term:
        if name not in self._terms:
            raise KeyError(f"{by}: no such term: '{name}'. Use one of: {', '.join(self._terms) or '(none added)'}.")
        return self._terms[name]

    def _set(self, term: Term) -> None:
        self._terms = {**self._terms, term.name: term}  # a new one: another thread may be computing
        changed(self)

    def __len__(self) -> int:
        return len(self._terms)

    def __iter__(self) -> Iterator[str]:
        return iter(self._terms)

    def __contains__(self, name: object) -> bool:
        return name in self._terms

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        rows = [f"{t.weight:g} * {t.name}{'' if t.enabled else ' (off)'}" for t in self._terms.values()]
        return f"Pipeline({' + '.join([BASE] * (self._base is not None) + rows) or 'empty'})"

    # ---- computing -----------------------------------------------------------------------------------------------------------------
    def compute(
        self, x: Any, track_grad_norms: bool = False, extra_args: Mapping[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:  # fmt: skip
        """(total, metrics): the weighted sum as a scalar Tensor to call backward() on, and Python numbers.

        Metrics: for each enabled term `{name}` and `{name}_weighted`; `base_loss`. With track_grad_norms also `{name}_grad_norm`,
        the L2 norm of d term / dx (unweighted), `base_loss_grad_norm`, and `total_grad_norm`, that of the weighted sum.
        A norm is 0.0 for a function that never uses x. Where it uses x, and its path to x was cut (detach, argmax, NumPy, no_grad), or
        its backward raises, the norm is None, `{name}_grad_norm_error` is True, and subscribers are told; the others are still computed.
        So is the total's, as backward() would see it: a term that is cut adds nothing there. It is None where a backward raised,
        or where nothing but terms that are cut uses x.

        `extra_args` reach every function that accepts them by name (or takes **kwargs). Each function is called once. The total does
        not depend on tracking: x may be a leaf, any op's result (the tape behind it is not touched) or untracked; the sum is in float32,
        or float64 if a term is. Under no_grad() the total is untracked, and norms can be had all the same.
        One that no function takes raises TypeError.
        In a captured step metrics can be returned from it, and nothing else; norms are told of at its first, eager call alone.

        What a term raises is passed on, with a note that names it; so is a ShapeError for one that returns more than one number."""
        x = Tensor.of("compute", x)
        terms = [t for t in (self._base, *self._terms.values()) if t is not None and t.enabled]
        given = checked_args([t for t in (self._base, *self._terms.values()) if t is not None], extra_args)
        if here.step != self._made_in:
            seen(self, "terms", self._settings)
            seen(self, "what terms see", Seen([t.fn for t in terms]), True)
        recording = is_grad_enabled()
        found = {t.name: called(t, x, given, track_grad_norms, recording) for t in terms}
        values = [e.value for e in found.values()]
        dtype = wide(values)
        values = [v.to(dtype=dtype, device=x.device) for v in values]
        parts = [v * t.weight if t is not self._base else v for v, t in zip(values, terms, strict=True)]
        total = added([(p, 1.0) for p in parts]) if parts else full((), 0.0, dtype, x.device)
        metrics: dict[str, Any] = {}
        for t, value, part in zip(terms, values, parts, strict=True):
            metrics[t.name] = number(value)
            if t is not self._base:
                metrics[f"{t.name}_weighted"] = number(part)
        if track_grad_norms:
            self._measure(terms, found, metrics)
        return total, metrics  # type: ignore[return-value]

    def _measure(self, terms: list[Term], found: dict[str, Evaluation], metrics: dict[str, Any]) -> None:
        """Put the norms into the metrics."""
        start = perf_counter()
        parts: list[tuple[Tensor, float]] = []
        broken: list[str] = []
        cut: list[str] = []
        for t in terms:
            began = perf_counter()
            try:
                gradient = found[t.name].gradient()
                metrics[f"{t.name}_grad_norm"] = norm_of(gradient)
            except Exception as error:
                (cut if isinstance(error, Cut) else broken).append(t.name)
                fail(metrics, t.name)
                self._events.failed(began, f"term '{t.name}': {reason_of(error)}")
            else:
                if gradient is not None:
                    parts.append((gradient, t.weight))
        if broken or (cut and not parts):
            fail(metrics, "total")
            self._events.failed(start, f"total: it has no gradient without these terms: {', '.join(broken or cut)}.")
            return
        with no_grad():
            total = norm_of(added(parts))
        metrics["total_grad_norm"] = total
        self._events.computed(total, sum([t is not self._base for t in terms]))

    def dominant(self, metrics: Mapping[str, Any]) -> str | None:
        """The term, or "base_loss", whose gradient is the largest in these metrics of compute(): weight times norm, with the weights of
        now; one that is NaN is not known. None where no norm is known and above 0."""
        weights = {BASE: 1.0} | {t.name: t.weight for t in self._terms.values()}
        sizes = {name: weight * (checked_dict("dominant", metrics).get(f"{name}_grad_norm") or 0.0) for name, weight in weights.items()}
        known = {name: size for name, size in sizes.items() if size > 0}
        return max(known, key=lambda name: known[name]) if known else None

    def _settings(self) -> tuple:
        return tuple([(t.name, id(t.fn), t.weight, t.enabled) for t in self._terms.values()])


class Seen:
    """What the functions see from outside (numbers in closures, globals): a replay must see the same. Looked up anew only where a place
    holds another object than before."""

    def __init__(self, functions: list[Callable[..., Any]]):
        self.functions = functions
        self.look()

    def look(self) -> None:
        self.names = [look(fn, {}) for fn in self.functions]
        self.values = tuple([tuple(names.values.items()) for names in self.names])

    def __call__(self) -> tuple:
        if not all([names.as_before() for names in self.names]):
            self.look()
        return self.values


def called(t: Term, x: Tensor, given: Mapping[str, Any], track: bool, recording: bool) -> Evaluation:
    try:
        return evaluate(t.fn, x, t.takes.pick(given), track, recording)
    except Exception as error:
        error.add_note(f"Pipeline: raised by the term '{t.name}'. Mend it, or leave it out with enable('{t.name}', False).")
        raise


def checked_args(terms: list[Term], given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Raise TypeError for what is no dict, and for an option that no function takes: a misspelt one would change nothing."""
    if not isinstance(given, Mapping | None):
        raise TypeError(f"compute: extra_args is no dict: {type(given).__name__}. Pass {{name: value}}.")
    unknown = [name for name in given or () if not any([name == t.takes.first or t.takes.pick({name: None}) for t in terms])]
    if unknown:
        known = sorted({name for t in terms for name in t.takes.names})
        raise TypeError(f"compute: no function takes this of extra_args: {unknown[0]!r}. Known: {', '.join(known) or 'none'}.")
    return given or {}


def number(value: Tensor) -> Any:
    """A scalar Tensor as a Python number, or as what becomes one after a captured step."""
    return value.device.stream.number(value.buffer)


def fail(metrics: dict[str, Any], name: str) -> None:
    metrics[f"{name}_grad_norm"], metrics[f"{name}_grad_norm_error"] = None, True


def check_function(by: str, fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"{by}: not a function: {type(fn).__name__}. Pass a function of a Tensor that returns a scalar.")


def checked_weight(by: str, name: str, weight: Any) -> float:
    if isinstance(weight, str) or not hasattr(weight, "__float__"):
        raise TypeError(f"{by}: the weight is no number: {weight!r} for '{name}'. Pass a float.")
    found = float(weight)
    if not 0.0 <= found < math.inf:
        raise ValueError(f"{by}: the weight must be finite and not negative: {weight} for '{name}'. For the opposite, negate the term.")
    return found
