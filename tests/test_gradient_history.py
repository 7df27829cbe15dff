"""GradientNormTracker: a window of norms, its statistics and verdicts, against NumPy and the contract."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from error_text import raises
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp

SPECIAL = st.sampled_from([0.0, math.nan, math.inf])
NORMS = st.lists(st.one_of(st.floats(1e-30, 1e30), SPECIAL), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(NORMS, st.integers(1, 12), st.floats(0, 1))
def test_statistics_are_those_of_numpy(norms, window, share):
    """Over the finite norms among the last `window`."""
    tracker = fp.GradientNormTracker(window)
    averages = [tracker.record(norm) for norm in norms]
    kept = np.array([x for x in norms[-window:] if math.isfinite(x)])
    if not kept.size:
        assert math.isnan(tracker.moving_average) and math.isnan(tracker.std) and math.isnan(tracker.quantile(share))
        return
    scale = kept.max() or 1.0  # squares of the largest are near the end of float64
    assert averages[-1] == tracker.moving_average == pytest.approx(kept.mean(), rel=1e-12)
    assert tracker.std / scale == pytest.approx((kept / scale).std(), rel=1e-9, abs=1e-12)
    assert tracker.quantile(share) == pytest.approx(np.quantile(kept, share), rel=1e-12, abs=1e-300)
    assert (tracker.min, tracker.max, tracker.steps) == (kept.min(), kept.max(), len(norms))


@pytest.mark.parametrize("last, healthy", [(1.0, True), (1e-7, False), (1.1e-7, True), (1e3, False), (999.0, True), (0.0, False),
                                           (math.nan, False), (math.inf, False)])  # fmt: skip
def test_verdicts(last, healthy):
    tracker = fp.GradientNormTracker(3)
    assert not tracker.healthy and not tracker.exploding(1.0) and not tracker.vanishing(1.0) and not tracker.spike()
    tracker.record(5.0)
    tracker.record(last)
    assert tracker.healthy is healthy
    assert tracker.exploding(2.0) is (not last <= 2.0) and tracker.vanishing(2.0) is (last < 2.0)  # no number: it explodes
    assert not tracker.exploding(last) or math.isnan(last)


def test_spikes():
    tracker = fp.GradientNormTracker(50)
    rng = np.random.default_rng(0)
    for norm in rng.normal(10.0, 1.0, 40):
        tracker.record(norm)
        assert not tracker.spike(z=6.0)
    for norm, spike in ((17.5, True), (10.0, False), (math.nan, True), (2.0, False)):
        tracker.record(norm)
        assert tracker.spike(z=6.0) is spike


def test_state():
    tracker = fp.GradientNormTracker(4)
    for norm in (1.0, 2.0, 3.0, 4.0, 5.0):
        tracker.record(norm)
    other = fp.GradientNormTracker(4)
    other.load_state_dict(copy.deepcopy(tracker.state_dict()))
    assert other.record(6.0) == tracker.record(6.0) == 4.5 and other.steps == 6
    for wrong in ({}, None, {"window": 5, "norms": [], "steps": 0}, {"window": 4, "norms": "x", "steps": 0}):
        with raises(fp.StateError, "GradientNormTracker", "not a state of a window of 4"):
            other.load_state_dict(wrong)
    assert other.state_dict() == tracker.state_dict()
    for window in (0, -1, 2.5, True):
        with raises(ValueError, "GradientNormTracker", window):
            fp.GradientNormTracker(window)
    with raises(ValueError, "GradientNormTracker", "negative"):
        tracker.record(-1.0)
