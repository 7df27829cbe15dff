"""GradientTracker: which loss term moves a tensor, or the parameters, and when to ask; and the report on parameters.

    tracker = GradientTracker(every=100, spike_ratio=2.0)
    if tracker.should_track(step, loss):
        print(tracker.parameter_report({"data": data, "l2": penalty}, model.params))

Its methods that compute may be called on the class too, where nobody is subscribed. In a report a term's share is its norm divided by
the sum of all terms' norms: between 0 and 1, together 1. The cosine of two terms says whether they pull one way (1) or against each other
(-1). Products are summed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from itertools import combinations
from operator import index
from time import perf_counter
from typing import Any, NamedTuple

from ..autograd import is_grad_enabled, no_grad
from ..dtypes import checked_number, float64, is_count, is_number
from ..errors import DTypeError, warn
from ..gradient import GradientMap
from ..tensors import Tensor
from .paths import evaluate, norm_of, reason_of
from .pipeline import BASE, ENDINGS, Callback, Events, Pipeline
from .terms import parameters_of


class Shares(NamedTuple):
    """The terms at one parameter, or at all of them together: by name, None for a term that failed.

    `cosines` are by pair of names, None where one of the two has norm 0 (no direction). `total` is the norm of the sum of all terms
    that did not fail.
    """

    norms: dict[str, float | None]
    shares: dict[str, float | None]
    cosines: dict[tuple[str, str], float | None]
    total: float

    @property
    def dominant(self) -> str | None:
        """The term with the largest share; None where no gradient arrives, or where norms are not finite: then shares are NaN."""
        known = {name: share for name, share in self.shares.items() if share is not None and share > 0}
        return max(known, key=lambda name: known[name]) if known else None


class ParameterReport(dict[str, Shares]):
    """Shares by name of parameter; `joint` are those over all of them together, with one norm and cosine over all gradients."""

    joint: Shares

    @property
    def dominant(self) -> str | None:
        """The term with the largest share of the joint norm."""
        return self.joint.dominant

    def __repr__(self) -> str:
        terms = list(self.joint.norms)
        width = max([len(name) for name in (*self, "together")])
        rows = [" ".join([" " * width, *[f"{t:>9}" for t in terms], f"{'norm':>9}"])]
        for name, row in (*self.items(), ("together", self.joint)):
            shares = ["failed" if share is None else f"{share:.1%}" for share in row.shares.values()]
            rows.append(
                " ".join([f"{name:{width}}", *[f"{s:>{max(9, len(t))}}" for s, t in zip(shares, terms, strict=True)], f"{row.total:9.3g}"])
            )
        known = [f"cos({a}, {b}) = {cosine:.2f}" for (a, b), cosine in self.joint.cosines.items() if cosine is not None]
        return "\n".join([*rows, *([", ".join(known)] if known else [])])


Products = dict[tuple[int, int], float]


def products_of(maps: Sequence[Any], keys: Iterable[Any]) -> dict[Any, Products]:
    """For each key the products of the gradients in the maps, (i, j) with i <= j, in float64; none where one of the two has no entry."""
    found: dict[Any, Products] = {}
    with no_grad():
        for key in keys:
            gradients = [(i, g.detach().to(float64)) for i, m in enumerate(maps) if m is not None and (g := m.get(key)) is not None]
            found[key] = {(i, j): (a * b).sum().item() for n, (i, a) in enumerate(gradients) for j, b in gradients[n:]}
    return found


def shares_of(names: Sequence[str], failed: Mapping[str, str], products: Products) -> Shares:
    norms = [None if name in failed else math.sqrt(products.get((i, i), 0.0)) for i, name in enumerate(names)]
    known = [n for n in norms if n is not None]
    whole = math.fsum(known) if all(map(math.isfinite, known)) else math.nan
    shares = [None if n is None else n / whole if whole else 0.0 for n in norms]
    cosines: dict[tuple[str, str], float | None] = {}
    for i, j in combinations(range(len(names)), 2):
        a, b = norms[i], norms[j]
        cosines[names[i], names[j]] = products.get((i, j), 0.0) / a / b if a and b else None
    total = math.fsum([p if i == j else 2 * p for (i, j), p in products.items()]) if whole == whole else math.nan
    return Shares(
        dict(zip(names, norms, strict=True)),
        dict(zip(names, shares, strict=True)),
        cosines,
        math.sqrt(max(total, 0.0)) if total == total else total,
    )


def report(losses: Mapping[str, Any], params: Any) -> tuple[ParameterReport, dict[str, str]]:
    """The report, and why terms failed, by name."""
    if not isinstance(losses, Mapping):
        raise DTypeError(f"parameter_report: no dict of losses: {type(losses).__name__}. Pass {{name: loss}}.")
    found = parameters_of("parameter_report", params)
    if not losses or not found:
        raise ValueError(
            f"parameter_report: nothing to report on: {len(losses)} losses, {len(found)} parameters. Pass at least one of each."
        )
    maps: list[GradientMap | None] = []
    failed: dict[str, str] = {}
    for name, loss in losses.items():
        try:
            maps.append(loss.backward(retain_graph=True))
        except Exception as error:
            failed[name] = reason_of(error)
            maps.append(None)
    names = list(losses)
    products = products_of(maps, found)
    rows = ParameterReport()
    for p in found:
        rows[p.label if p.label not in rows else f"{p.label} ({p.id})"] = shares_of(names, failed, products[p])
    together: Products = {}
    for one in products.values():
        for pair, value in one.items():
            together[pair] = together.get(pair, 0.0) + value
    rows.joint = shares_of(names, failed, together)
    return rows, failed


class Either:
    """A method that may be called on the class too: `self` is None then."""

    def __init__(self, method: Callable[..., Any]):
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, owner: Any, kind: Any) -> Callable[..., Any]:
        def bound(*args: Any, **options: Any) -> Any:
            return self.method(owner, *args, **options)

        return update_wrapper(bound, self.method)


class GradientTracker:
    """`every`: track each so many steps; `spike_ratio`: and where the loss rose above so many times the last one (None: don't look)."""

    def __init__(self, every: int = 100, spike_ratio: float | None = 2.0):
        if not is_number(every) or float(every) < 1 or float(every) % 1:
            raise ValueError(f"GradientTracker: every must be a whole number, at least 1: {every}. Use 1 for each step.")
        if spike_ratio is not None and not (is_number(spike_ratio) and spike_ratio > 1):
            raise ValueError(f"GradientTracker: spike_ratio must be more than 1: {spike_ratio}. Use 2.0, or None for off.")
        self.every, self.spike_ratio = int(every), spike_ratio
        self.last: float | None = None  # the last finite loss
        self._events = Events()

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Have `callback(event, details)` called for what this tracker computes; returns a function that ends it."""
        return self._events.subscribe(callback)

    def should_track(self, step: int, loss: Any = None) -> bool:
        """Whether to track this step: a multiple of `every`, a loss that is not finite, or one that has spiked.

        A spike is a rise above the last finite loss by more than (spike_ratio - 1) of its size: above spike_ratio times a positive one.
        """
        if not is_count(step):
            raise DTypeError(f"should_track: step is no whole number: {step!r}. Count finished steps from 0.")
        due = index(step) % self.every == 0
        if loss is None:
            return due
        loss = checked_number("should_track", "the loss", loss)
        if not math.isfinite(loss):
            return True
        last, self.last = self.last, loss
        spiked = self.spike_ratio is not None and last is not None and loss - last > (self.spike_ratio - 1) * abs(last)
        return due or spiked

    def __repr__(self) -> str:
        return f"GradientTracker(every={self.every}, spike_ratio={self.spike_ratio})"

    @Either
    def compute_grad_norm(self, fn: Callable[[Any], Any], tensor: Any) -> float | None:
        """The L2 norm of d fn(tensor) / d tensor, summed in float64; 0.0 for a function that never uses its input.

        None with a FlameWarning where there is none: fn raises, or returns more than one number, or uses the tensor and cuts the path to
        it (detach, argmax, NumPy, no_grad). The tensor may be a leaf, an op's result or untracked; it and its tape are left as they are.
        """
        began = perf_counter()
        try:
            x = Tensor.of("compute_grad_norm", tensor)
            norm = norm_of(evaluate(fn, x, {}, True, is_grad_enabled()).gradient())
        except Exception as error:
            reason = reason_of(error)
            if self is not None:
                self._events.failed(began, reason)
            warn(f"compute_grad_norm: no norm, so None: {reason}")
            return None
        if self is not None:
            self._events.computed(norm, 1)
        return norm

    @Either
    def pipeline_grad_norms(self, pipeline: Pipeline, tensor: Any) -> dict[str, Any]:
        """The norms of the pipeline's terms at a tensor, and of its base loss, as compute() has them: `{name}_grad_norm`, and for a
        failure None and `{name}_grad_norm_error`. Both this and the next tell the pipeline's subscribers, as compute() does."""
        found = norms(pipeline, tensor)
        keys = [f"{name}{ending}" for name in (BASE, *pipeline) for ending in ENDINGS[2:]]
        return {key: found[key] for key in keys if key in found}

    @Either
    def total_grad_norm(self, pipeline: Pipeline, tensor: Any) -> float | None:
        """The norm of the gradient of the pipeline's weighted sum at a tensor, base loss included; None for a failure."""
        return norms(pipeline, tensor)["total_grad_norm"]  # type: ignore[no-any-return]

    @Either
    def parameter_report(self, losses: Mapping[str, Any], params: Any) -> ParameterReport:
        """Each loss term's share of the norm of each parameter's gradient, and the cosines between terms; print it, or see ParameterReport.

        `losses`: {name: scalar Tensor}, weighted as they are in the total; `params`: a ParameterDict, a module, a Parameter or a list.
        One backward for each term, which keeps the tape: backward() on the total works before and after. A term whose backward fails, or
        which is on no tape, has None for its numbers, and subscribers are told; the others are computed.
        Raises TypeError for what is no Parameter, ValueError where there are no terms or no parameters.
        """
        began = perf_counter()
        found, failures = report(losses, params)
        if self is not None:
            for name, reason in failures.items():
                self._events.failed(began, f"term '{name}': {reason}")
            if len(failures) < len(losses):
                self._events.computed(found.joint.total, len(losses))
        return found


def norms(pipeline: Any, tensor: Any) -> dict[str, Any]:
    """The metrics of a pipeline at a tensor, with norms."""
    if not isinstance(pipeline, Pipeline):
        raise DTypeError(f"GradientTracker: not a Pipeline: {type(pipeline).__name__}. Pass a Pipeline, then the tensor.")
    return pipeline.compute(tensor, track_grad_norms=True)[1]
