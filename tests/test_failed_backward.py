"""A backward that fails changes nothing: whatever of the user's raises in it, the next one gives the right gradients.

Oracle: the gradients of a run in which nothing raises, bit for bit. What may raise: hooks of tensors and leaves, rules and kernels of
users' ops, blocks that run again, who watches results; at every place where it may, one after the other.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thread_tools import at_once

import flamepy as fp
from flamepy.bus import heard
from flamepy.core.door import Door
from flamepy.core.modes import thread
from flamepy.engine.entries import observers
from flamepy.train.nonfinite import on_result

DEVICE = "plain"
X = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(2, 3)


class Trap:
    """Raises at its n-th turn while it is armed."""

    def __init__(self):
        self.left, self.error = -1, ValueError

    def __call__(self, *_):
        self.left -= 1
        if self.left == 0:
            fp.rand(3)  # random numbers are drawn and lost
            raise self.error("trap")


trap = Trap()


@fp.custom
def tripled(x):
    return x * 3.0


@tripled.backward
def tripled_dx(g):
    trap()
    return g * 3.0


tripled.differentiable()
PIECES = {
    "tanh": lambda h, w: h.tanh(),
    "weight": lambda h, w: h * w,
    "dropout": lambda h, w: fp.nn.functional.dropout(h, 0.3),
    "a user's op": lambda h, w: tripled(h),
    "a hook": lambda h, w: hooked(h * 0.5),
    "two ways": lambda h, w: h.exp() * h.detach() + h,
    "two results": lambda h, w: fp.cat(list(fp.split(h * w, 1, 0)), 0),
    "a retained gradient": lambda h, w: retained(h * 1.5),
    "a block": lambda h, w: fp.checkpoint(lambda t: inside(fp.nn.functional.dropout(t * w, 0.2).tanh()), h),
    "a block with all in it": lambda h, w: fp.checkpoint(lambda t: hooked(fp.checkpoint(tripled, inside(t.sigmoid())) * w), h),
}


def hooked(h):
    h.register_hook(trap)
    return h


def retained(h):
    h.retain_grad()
    return h


def inside(h):
    """In a block: raises when it runs again, not when it runs first."""
    trap()
    return h


def graph(pieces, leaf_hook, device=DEVICE):
    fp.manual_seed(3)
    w = fp.Parameter(fp.tensor([0.5, -0.25, 2.0], device=device))
    x = fp.tensor(X, device=device, requires_grad=True)
    h = x * 1.0
    for piece in pieces:
        h = PIECES[piece](h, w)
    if leaf_hook:
        w.register_hook(trap)
    return h.square().sum(), [w, x]


def state(engine):
    modes = thread.modes
    told = observers.entries, observers.reader, heard[:], len(engine.tape)
    return modes.recording, modes.creating_graph, modes.strict, fp.get_rng_state(), told


def tried(loss, n, error, **options):
    """A backward in which the n-th place raises; None if it did."""
    trap.left, trap.error = n, error
    try:
        return loss.backward(**options)
    except error:
        return None
    finally:
        trap.left = -1


def bits(grads):
    """The gradients in the order of a map, which is the same in every run."""
    return [(g.shape, g.numpy().tobytes()) for _, g in grads.items()]


ERRORS = st.sampled_from([ValueError, KeyboardInterrupt, MemoryError])
GRAPHS = st.lists(st.sampled_from(sorted(PIECES)), min_size=1, max_size=5)


@settings(max_examples=150, deadline=None)
@given(pieces=GRAPHS, leaf_hook=st.booleans(), error=ERRORS, retain=st.booleans(), first=st.integers(1, 4))
def test_whatever_raises_the_next_backward_is_right(pieces, leaf_hook, error, retain, first):
    """The first place raises, then the second, and so on; what is left when none does is a backward as if nothing had been."""
    wanted = bits(graph(pieces, leaf_hook)[0].backward())
    loss, _ = graph(pieces, leaf_hook)
    shown, engine, n = repr(fp.tape(loss)), fp.AutogradEngine(), first
    with engine.record():
        before = state(engine)
        while (grads := tried(loss, n, error, retain_graph=retain)) is None:
            assert state(engine) == before and repr(fp.tape(loss)) == shown
            n += 1
    assert bits(grads) == wanted and (not retain or bits(loss.backward()) == wanted)


@pytest.mark.parametrize("graph_too", [False, True])
@settings(max_examples=80, deadline=None)
@given(pieces=GRAPHS, leaf_hook=st.booleans(), n=st.integers(1, 5), error=ERRORS)
def test_one_failure_then_the_last_backward(graph_too, pieces, leaf_hook, n, error):
    """With create_graph too: then the gradients' own gradients are compared as well."""

    def all_of(loss, leaves):
        grads = loss.backward(create_graph=graph_too)
        found = [grads[t].numpy().tobytes() for t in leaves if t in grads]
        if graph_too:
            second = sum((grads[t] * grads[t]).sum() for t in leaves if t in grads).backward()
            found += [second[t].numpy().tobytes() for t in leaves if t in second]
        return found

    pieces = [p for p in pieces if p != "dropout"] if graph_too else pieces
    wanted = all_of(*graph(pieces, leaf_hook))
    loss, leaves = graph(pieces, leaf_hook)
    engine = fp.AutogradEngine()
    with engine.record():
        before = state(engine)
        if tried(loss, n, error, create_graph=graph_too) is None:
            assert state(engine) == before
            assert all_of(loss, leaves) == wanted
            if not graph_too:
                with pytest.raises(fp.GradientError, match="already freed: first backward"):
                    loss.backward()


def broken_y(x):
    return x * 2.0


def broken_dx(g):
    return [g, g][0] * 2.0


def test_a_kernel_that_cannot_be_compiled_fails_and_leaves_the_graph():
    broken = fp.pointwise("broken_rule", broken_y, broken_dx)
    w = fp.Parameter([0.5, 1.0])
    h = (w * w).tanh()
    loss = (broken(h) * h).sum()
    for _ in range(2):
        with pytest.raises(fp.DeviceError, match="cannot be compiled"):
            loss.backward()
    other = h.sum()
    wanted = 2.0 * w.numpy() * (1.0 - np.tanh(w.numpy().astype("f8") ** 2) ** 2)
    np.testing.assert_allclose(other.backward()[w].numpy(), wanted, rtol=1e-5)


def test_who_watches_results_may_raise():
    """At the first result, the second, and so on: by the last one a backward has let go of much."""
    w = fp.Parameter(fp.tensor(np.linspace(-1.0, 1.0, 211), dtype=fp.float32, device=DEVICE))  # of a size for which no rule is planned yet
    loss = ((w * w).sum() * w.tanh()).sum()
    w8 = w.numpy().astype("f8")
    wanted = 2.0 * w8 * np.tanh(w8).sum() + (w8 @ w8) * (1.0 - np.tanh(w8) ** 2)
    left = failures = 0

    def watcher(name, y):
        nonlocal left
        left -= 1
        if left == 0:
            raise ValueError(name)

    while left <= 0:
        left = failures + 1
        with on_result(watcher):
            try:
                grads = loss.backward()
            except ValueError:
                failures += 1
    assert failures > 3
    np.testing.assert_allclose(grads[w].numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_a_hook_that_writes_or_runs_backward_itself_is_told():
    """What a hook takes away is missed at once, and the backward it ran in changes nothing more."""
    for act, text in (
        (lambda w, inner: w.set_data([5.0, 5.0, 5.0]), "was overwritten"),
        (lambda w, inner: inner.backward(), "already freed: first backward"),
    ):
        w = fp.Parameter(fp.tensor([1.0, 2.0, 3.0], device=DEVICE))
        h = w * w
        inner, y = h.square().sum(), h.exp()
        y.register_hook(lambda g: act(w, inner) and None)
        with pytest.raises(fp.GradientError, match=text):
            y.sum().backward()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_between_flamepys_own_rules_an_error_says_who_took_the_values(error, monkeypatch):
    loss, _ = graph(["tanh", "weight"], False)
    stopped, real = fp.tape(loss)[1], Door.rule

    def stop(entry, gs, cotangents):
        if entry is stopped:
            raise error
        return real(entry, gs, cotangents)

    monkeypatch.setattr(Door, "rule", staticmethod(stop))
    with pytest.raises(error):
        loss.backward()
    monkeypatch.undo()
    text = rf"are gone: the backward at .*test_failed_backward\.py:\d+ .*{error.__name__} broke it off.*forward"
    with pytest.raises(fp.GradientError, match=text):
        loss.backward()


def test_another_thread_may_try_again():
    wanted = bits(graph(["a block", "a hook", "a user's op"], True)[0].backward())
    loss, _ = graph(["a block", "a hook", "a user's op"], True)
    assert tried(loss, 2, ValueError) is None
    found = []
    worker = threading.Thread(target=lambda: found.append(loss.backward()))
    worker.start()
    worker.join()
    assert bits(found[0]) == wanted


def test_threads_may_go_back_through_one_block_at_once():
    """Each with retain_graph: the block runs again for one of them, and serves all."""
    wanted, found = bits(graph(["a block"], False)[0].backward()), []
    for _ in range(60):
        loss, _ = graph(["a block"], False)
        at_once(lambda loss=loss: found.append(bits(loss.backward(retain_graph=True))))
    assert found == [wanted] * 240


@pytest.mark.parametrize("checkpointed", [False, True])
def test_values_still_go_on_the_way(checkpointed):
    """The memory of a backward is what it was: each layer's values go before the next one's are needed."""
    device, size, depth = fp.device(DEVICE), 50_000, 12

    def block(h):
        for _ in range(4):
            h = h.tanh()
        return h

    def peak(watched):
        h = fp.ones(size, device=DEVICE, requires_grad=True) * 1.0
        for _ in range(depth):
            h = fp.checkpoint(block, h) if checkpointed else block(h)
        loss = h.sum()
        if watched:
            loss.register_hook(lambda g: None)
        before = device.memory()["current"]
        device.peak = before
        loss.backward()
        return (device.peak - before) / (4 * size), (device.current - before) / (4 * size)

    for watched in (False, True):  # the hook is the first thing a backward comes to: nothing has to be kept
        top, end = peak(watched)
        assert top <= (4 + 4 if checkpointed else 4), top
        assert end < 0
