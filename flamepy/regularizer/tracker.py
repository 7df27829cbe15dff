"""GradientTracker: which loss term moves a tensor, or the parameters, and when to ask.

    tracker = GradientTracker(every=100, spike_ratio=2.0)
    if tracker.should_track(step, loss):
        print(tracker.parameter_report({"data": data, "l2": penalty}, model.params))

Its methods that compute may be called on the class too, where nobody is subscribed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import update_wrapper
from operator import index
from time import perf_counter
from typing import Any

from ..autograd import is_grad_enabled
from ..dtypes import checked_number, is_count, is_number
from ..errors import DTypeError, warn
from ..tensors import Tensor
from .evaluation import evaluate, norm_of, reason_of
from .events import Callback, Events
from .pipeline import BASE, ENDINGS, Pipeline
from .report import ParameterReport, report


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
