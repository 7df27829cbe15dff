"""What a call costs beside its arithmetic, guarded without a clock: Python calls and bytes counted, blocks of memory followed.

Times are in `python -m bench dispatch`; they vary with the machine.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from thread_tools import at_once

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.backend.base import Buffer
from flamepy.backend.cpu import device as cpu_device
from flamepy.backend.cpu.runtime import memory
from flamepy.backend.cpu.runtime.memory import APART, allocator
from flamepy.backend.recorder import Recorder, divert
from flamepy.core import op as base
from flamepy.core.op import HOMES, PUBLIC
from flamepy.engine import kept, plan
from flamepy.engine.plan import every

CPU = fp.device("cpu")
MASK = fp.tensor(np.ones((4, 4), dtype=bool))


def leaf(*shape: int) -> fp.Tensor:
    return fp.tensor(np.linspace(0.5, 1.5, int(np.prod(shape))).astype("f4").reshape(shape), requires_grad=True)


def calls(action: Callable[[], Any], times: int = 20) -> float:
    """Calls of Python functions and kernels that one run of `action` makes, its own not counted."""
    for _ in range(5):  # kernels are bound, plans made, their machine code found
        action()
    found: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found[frame.f_code.co_qualname] += 1

    gc.disable()
    sys.setprofile(note)
    try:
        for _ in range(times):
            action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return sum(found.values()) / times - 1


# The bounds are what was counted when this was written, the call of `forward` included. A call costs 40 to 150 ns.
@pytest.mark.engine
@pytest.mark.parametrize(
    ("forward", "most"),
    [
        (lambda a, b: a + b, 10),
        (lambda a, b: a * b, 11),
        (lambda a, b: a.tanh(), 10),
        (lambda a, b: a * 2.0, 11),
        (lambda a, b: 1.0 - a, 14),
        (lambda a, b: a > b, 13),
        (lambda a, b: a + b[0], 39),
        (lambda a, b: a.clone(), 11),
        (lambda a, b: a.sum(), 10),
        (lambda a, b: a @ b, 14),
        (lambda a, b: fp.cat([a, b], -1), 14),
        (lambda a, b: a.clamp(-1.0, 2), 18),
        (lambda a, b: F.leaky_relu(a), 15),
        (lambda a, b: fp.where(MASK, a, 0.0), 15),
    ],
    ids=[
        "add",
        "mul",
        "tanh",
        "mul-number",
        "number-sub",
        "gt",
        "index-and-broadcast",
        "clone",
        "sum",
        "matmul",
        "cat",
        "clamp",
        "leaky_relu",
        "where",
    ],
)
def test_a_tracked_op_makes_few_calls(forward: Callable[..., Any], most: int) -> None:
    a, b = leaf(4, 4), leaf(4, 4)
    assert calls(lambda: forward(a, b)) <= most


@pytest.mark.engine
def test_an_untracked_op_makes_fewer() -> None:
    a = fp.ones(16)
    assert calls(lambda: a + a) <= 8


@pytest.mark.engine
def test_a_broadcasting_op_finds_its_plan_with_one_look() -> None:
    a, row = leaf(4, 4), leaf(4)
    assert calls(lambda: a + row) <= 9


@pytest.mark.engine
@pytest.mark.parametrize(
    ("step", "most"),
    [(lambda x, b: x.tanh(), 23), (lambda x, b: x * b, 23), (lambda x, b: x + b, 16), (lambda x, b: x * 2.0, 26)],
    ids=["tanh", "mul", "add", "mul-number"],
)
def test_forward_and_backward_of_an_op_make_few_calls(step: Callable[..., Any], most: int) -> None:
    a, b, seed = leaf(16), leaf(16).detach(), leaf(16).detach()

    def chain(length: int) -> None:
        x = a
        for _ in range(length):
            x = step(x, b)
        x.backward(gradient=seed)

    assert (calls(lambda: chain(21)) - calls(lambda: chain(1))) / 20 <= most + 1  # and the call of `step`


@pytest.mark.parametrize("given", [list, tuple, iter, lambda xs: dict(enumerate(xs)).values(), lambda xs: (x for x in xs)])
def test_cat_takes_whatever_gives_tensors_the_first_time_and_later(given: Callable[..., Any]) -> None:
    xs = [fp.ones(2), fp.zeros(3)]
    for _ in range(3):
        assert fp.cat(given(xs)).tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.engine
def test_a_backward_that_comes_again_runs_as_it_was_recorded() -> None:
    """Also through a forward call that came once, which has no plan."""
    x, w, g = leaf(5, 7), leaf(7), leaf(5, 7).detach()
    y = F.layer_norm(x, (7,), w, w)
    maps = [y.backward(g, retain_graph=True) for _ in range(4)]
    assert all(found[t].tolist() == maps[0][t].tolist() for found in maps for t in (x, w))
    half = y.backward(g * 0.5, retain_graph=True)  # other numbers, the same plan
    np.testing.assert_array_equal(half[x].numpy(), 0.5 * maps[0][x].numpy())
    assert calls(lambda: y.backward(g, retain_graph=True)) <= 53


@pytest.mark.engine
@pytest.mark.parametrize(
    ("step", "most"),
    [
        (lambda x, w: F.avg_pool3d(x, 2), 45),
        (lambda x, w: F.adaptive_avg_pool2d(x[0], 2), 55),
        (F.conv3d, 95),
    ],
)
def test_pools_and_convolutions_of_volumes_make_few_calls(step: Callable[..., Any], most: int) -> None:
    """Tables that a rule reads do not keep it from being planned; few numbers are pooled along all axes at once."""
    x, w = leaf(1, 1, 2, 2, 4), leaf(1, 1, 1, 2, 2)
    g = fp.ones(step(x, w).shape)

    def run() -> None:
        step(x, w).backward(g)

    for _ in range(4):
        run()
    assert calls(run) <= most


def test_tensor_methods_of_ops_are_plain_functions() -> None:
    for name in PUBLIC:
        if HOMES[name] != "functional" and hasattr(fp, name):
            assert isinstance(getattr(fp.Tensor, name), FunctionType), name
    x = leaf(3)
    assert x.leaky_relu(0.5).tolist() == F.leaky_relu(x, 0.5).tolist() and x.sum(axis=0, keepdims=True).shape == (1,)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x.tanh(1), "tanh: too many arguments: 2. Takes x."),
        (lambda x: x.add(), "add: wrong number of inputs: 1. Expected a, b."),
        (lambda x: fp.add(x, x, x), "add: too many arguments: 3. Takes a, b."),
        (lambda x: fp.mul(x, x, alpha=2), "mul: unknown option: alpha=2. Known: none."),
        (lambda x: x.leaky_relu(0.1, 0.2), "leaky_relu: too many arguments: 3. Takes x, negative_slope."),
        (lambda x: fp.softmax(x, 0, None, 1), "softmax: too many arguments: 4. Takes x, axis, dtype."),
        (lambda x: x.softmax(rows=1), "softmax: unknown option: rows=1. Known: x, axis, dtype."),
    ],
)
def test_the_short_way_refuses_like_the_long_one(call: Callable[..., Any], text: str) -> None:
    with pytest.raises(TypeError) as error:
        call(leaf(3))
    assert str(error.value) == text


class Counting(Recorder):
    """A stream in the place of the device's own: it must see every launch."""

    def run(self, kernel: Any, outs: Any, ins: Any, consts: Any) -> None:
        assert all(isinstance(b, Buffer) for b in outs)
        super().run(kernel, outs, ins, consts)


@pytest.mark.parametrize(
    ("step", "launches"),
    [
        (lambda a, b, row: a + b, 1),
        (lambda a, b, row: a.tanh(), 1),
        (lambda a, b, row: 3.0 - a, 1),
        (lambda a, b, row: a * row, 1),
        (lambda a, b, row: fp.where(a > b, a, 0.0), 2),
        (lambda a, b, row: (a * b).backward(gradient=b.detach()), 3),
        (lambda a, b, row: (-a.tanh()).backward(gradient=b.detach()), 4),
    ],
)
def test_every_launch_goes_through_the_stream(step: Callable[..., Any], launches: int) -> None:
    """The first time, when it is planned, and as planned."""
    a, b, row = leaf(4, 4), leaf(4, 4), leaf(4)
    for _ in range(4):
        with divert(CPU, Counting()) as recorder:
            step(a, b, row)
        assert len(recorder.steps) == launches
    assert CPU.stream is CPU.direct


def test_numbers_keep_their_sign_and_type() -> None:
    x = fp.tensor([1.0, -1.0])
    for value in (0.0, -0.0, 0, False):
        assert np.signbit((x * value).numpy()).tolist() == np.signbit(np.float32([1, -1]) * np.float32(value)).tolist()
    wide = fp.tensor(np.ones(1))
    assert (wide * 0.1).item() == 0.1 and (x * 0.1).dtype == fp.float32
    assert np.isnan((x + float("nan")).numpy()).all()


# ---- memory --------------------------------------------------------------------------------------------------------------
LOOKS = {
    "numpy": lambda t: t.numpy(),
    "slice": lambda t: t.numpy()[2:][1:],
    "other shape": lambda t: t.numpy().reshape(4, 4).T,
    "asarray": np.asarray,
    "memoryview": lambda t: memoryview(t.numpy()),
    "dlpack": np.from_dlpack,
    "bytes": lambda t: np.frombuffer(t.numpy(), np.uint8)[4:],
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_block_somebody_looks_at_is_not_used_again(name: str) -> None:
    t = fp.tensor(np.arange(16, dtype="f4")) * 3
    look = LOOKS[name](t)
    before = np.array(look)
    del t
    results = [fp.full((16,), -1.0) for _ in range(50)]
    assert np.array_equal(np.array(look), before)
    del look, results


def uncounted() -> int:
    """Cached bytes that lie in no pool: of blocks that an interrupt kept from being handed out, in a test before."""
    return int(CPU.memory()["cached"] - sum(len(pool) * pool.nbytes for pool in allocator.pools.values()) - allocator.spare)


def test_a_dropped_block_is_used_again_and_counted() -> None:
    gc.collect()
    CPU.trim()
    before = CPU.memory()
    t = fp.full((1000, 77), 1.0)
    address, taken = t.buffer.data.ctypes.data, t.size * 4
    assert CPU.memory()["current"] - before["current"] == taken
    assert CPU.memory()["peak"] >= before["current"] + taken
    del t
    assert CPU.memory()["current"] == before["current"] and CPU.memory()["cached"] - before["cached"] == taken
    assert fp.full((1000, 77), 2.0).buffer.data.ctypes.data == address
    CPU.trim()
    assert CPU.memory()["cached"] == before["cached"]


def test_a_pool_may_die_before_its_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector finds both at once, in a cycle, and calls one first."""
    monkeypatch.setattr(cpu_device, "MOST", 1)
    gc.collect()
    before, apart = CPU.memory()["current"], uncounted()
    for n in range(90_000, 90_040):
        cycle: list = [fp.zeros(n), fp.zeros(n)]
        cycle.append(cycle)
        fp.zeros(5)  # nobody but the buffers knows the pool now
        del cycle
    gc.collect()
    assert CPU.memory()["current"] == before and uncounted() == apart


def test_a_block_given_away_is_no_longer_counted() -> None:
    gc.collect()
    before = CPU.memory()
    view = fp.full((1000, 78), 1.0).numpy()
    after = CPU.memory()
    assert after["current"] == before["current"] and after["cached"] == before["cached"]
    assert view[3, 5] == 1.0


def test_counts_are_right_with_many_threads() -> None:
    gc.collect()
    before, apart = CPU.memory()["current"], uncounted()

    def work() -> None:
        for n in range(1, 400):
            kept = [CPU.empty(n % 7 + 1, fp.float32) for _ in range(3)]
            del kept

    at_once(work)
    gc.collect()
    assert CPU.memory()["current"] == before
    assert uncounted() == apart and 0 <= allocator.spare <= memory.SPARE


def test_blocks_are_apart() -> None:
    """Where arrays are close, LLVM's check for overlap may choose scalar code, whose last bits differ."""
    for dtype in (fp.float32, fp.float64, fp.bool_):
        for size in (0, 1, 3, 16, 1000):
            data = CPU.empty(size, dtype).data
            start, raw = data.ctypes.data, data.base
            assert start % 64 == 0 and start + data.nbytes + APART <= raw.ctypes.data + raw.nbytes


@pytest.mark.engine
def test_plans_do_not_grow_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a key that comes once cost a plan. Plans in use stay."""
    monkeypatch.setattr(kept, "MOST_NUMBERS", 8)
    monkeypatch.setattr(plan, "MOST", 40)
    monkeypatch.setattr(plan, "ONCE", 40)
    monkeypatch.setattr(cpu_device, "MOST", 30)
    x = fp.ones(5)
    for n in range(1, 80):
        for _ in range(3):
            assert (fp.ones((2, n)) + fp.ones(n)).tolist() == [[2.0] * n] * 2
            x.tanh()
        assert (fp.ones(2) * (n + 0.25)).tolist() == [n + 0.25] * 2
    assert sum(len(calls) for plans in every() for calls in plans.calls) <= 80
    assert all(len(seen) <= 40 for plans in every() for seen in plans.seen)
    assert x.spec in base.REGISTRY["tanh"].plans.calls[1] and len(kept.NUMBERS) <= 8
    assert len(CPU.makers) <= 30


def test_sizes_that_never_come_again_keep_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_device, "MOST", 30)
    apart = uncounted()
    for n in range(70_000, 70_200):
        (fp.ones(n) * 2.0).tanh()
    assert sum(70_000 <= size < 70_200 for _, _, size in allocator.pools) <= 60
    assert uncounted() == apart and 0 < allocator.spare <= memory.SPARE


def test_a_new_shape_at_every_call_makes_no_plan() -> None:
    made = sum(len(calls) for plans in every() for calls in plans.calls)
    for n in range(1000, 1040):
        fp.softmax(fp.ones(n, requires_grad=True) * fp.ones(n)).sum().backward()
    assert sum(len(calls) for plans in every() for calls in plans.calls) <= made + 10


@pytest.mark.engine
def test_a_plan_is_whole_when_other_threads_may_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keep, found = plan.keep, []
    monkeypatch.setattr(
        plan, "keep", lambda op, recording, key, made: (found.append(hasattr(made, "finish")), keep(op, recording, key, made))
    )
    for _ in range(3):
        fp.zeros(11, 13).to(fp.float64)
    assert found and all(found)
