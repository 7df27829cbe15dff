"""Ctrl-C anywhere in a replay: the step was made, or it was not, and the next one goes on.

Python looks for signals before the first line of a function and between lines: sys.settrace raises there, each time one place later.
The oracle is the same training in eager, uninterrupted.
"""

import importlib
import sys

import numpy as np
import pytest

import flamepy as fp

PLACES = ("run", "__call__")  # of program.py and walk.py


def training():
    """A step that counts, draws no random numbers, and leaves gradients behind; and what it has come to."""
    w = fp.Parameter(np.ones((3, 2), "f4"))
    o = fp.AdamW([w], lr=fp.schedules.cosine(0.1, 100))

    def step(x):
        w.set_grad((x @ w).square().mean().backward()[w])
        o.step()

    def state():
        row = o.state_dict()["state"].get("0", {"step": 0})
        kept = None if w.grad is None else w.grad.numpy().tolist()
        return w.numpy().tolist(), row["step"], o.lr, kept

    return step, state


def interrupted(call, place):
    """Make the call with a KeyboardInterrupt at the place of this number; whether there is one."""
    at = -1

    def trace(frame, event, _):
        nonlocal at
        if not frame.f_code.co_filename.endswith(("capture/program.py", "cpu/runtime/walk.py")) or frame.f_code.co_name not in PLACES:
            return None
        at += 1
        if at == place:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return at >= place


def test_a_replay_that_is_interrupted_anywhere_was_made_or_was_not():
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("f4")
    eager, state = training()
    states = [state()]
    for _ in range(90):
        eager(x)
        states.append(state())
    step, state = training()
    captured = fp.capture(step)
    for _ in range(3):
        captured(x)
    made = 3
    for place in range(80):
        there = interrupted(lambda: captured(x), place)
        assert state() in states[made : made + 2], f"after an interrupt at place {place}"
        made = states.index(state())
        if not there:
            break
    assert 15 < place < 79 and made > 3, place


@pytest.mark.parametrize("module", ["", ".verify"], ids=["the call is recorded", "its record is checked"])
@pytest.mark.parametrize("name", ["hearing", "divert"])
def test_an_interrupt_just_before_a_recording_ends_leaves_nothing_behind(monkeypatch, name, module):
    """Also while somebody keeps the error, and with it the frames that stopped midway, as a notebook does."""
    module = importlib.import_module(f"flamepy.engine.capture{module}")
    manager, x, kept = getattr(module, name), fp.randn(4), []

    class Interrupted:
        """Its end is struck by Ctrl-C before it does anything."""

        def __init__(self, *args):
            self.inner = manager(*args)

        def __enter__(self):
            return self.inner.__enter__()

        def __exit__(self, *error):
            raise KeyboardInterrupt

    captured = fp.capture(lambda x: x * 2 + 1, verify=1)
    for _ in range(0 if module.__name__.endswith("capture") else 3):
        captured(x)
    monkeypatch.setattr(module, name, Interrupted)
    try:
        captured(x)
    except KeyboardInterrupt as stop:
        kept.append(stop)
    monkeypatch.undo()
    np.testing.assert_array_equal((x * 3).numpy(), x.numpy() * 3)
    for _ in range(4):
        np.testing.assert_array_equal(captured(x).numpy(), x.numpy() * 2 + 1)
    assert len(kept) == 1
