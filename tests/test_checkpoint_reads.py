"""What a checkpointed block reads: if any of it was overwritten before backward, the block must not run again with other numbers.

The block is y = sum_i x * s_i, where each s_i comes in by another way and is worked on by other ops, most of them off the tape. Oracle:
the gradient of sum(y) is sum_i s_i, in NumPy, as long as nobody writes; where somebody does, VersionError, exactly if a source was hit.
Numbers of Python's must be the same both times, too; the oracle is the block without checkpoint().
"""

from __future__ import annotations

import gc
import re
import threading
import weakref

import numpy as np
import pytest
from error_text import raises
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp
from flamepy.backend.base import Buffer

DEVICE = "plain"


def parameter(value, frozen=False, dtype="float32"):
    return fp.Parameter(fp.tensor([value, value + 1.0], dtype=getattr(fp, dtype), device=DEVICE), requires_grad=not frozen)


class Box:
    """Something of a user's that holds a tensor."""

    def __init__(self, tensor):
        self.inside = {"deep": [(tensor,)]}


@fp.custom
def doubled(x):
    return x + x


# How a parameter gets into the block: (what to pass or close over, made outside; how the block makes a factor of it).
WAYS = {
    "itself": (lambda p: p, lambda s: s),
    "detached outside": (lambda p: p.detach(), lambda s: s),
    "detached inside": (lambda p: p, lambda s: s.detach()),
    "a view": (lambda p: p.detach().reshape(1, 2), lambda s: s.reshape(2)),
    "under no_grad": (lambda p: p, lambda s: fp.no_grad()(lambda: s * 2.0 * 0.5)()),
    "cast": (lambda p: p, lambda s: s.detach().to(fp.float64).to(fp.float32)),
    "a user's op": (lambda p: p.detach(), lambda s: doubled(s) * 0.5),
    "on the host": (lambda p: p, lambda s: fp.tensor(s.numpy(), device=DEVICE)),
    "element by element": (lambda p: p, lambda s: fp.tensor([float(s[0]), s.tolist()[1]], device=DEVICE)),
    "as an index": (lambda p: p.detach(), lambda s: fp.arange(40, dtype=fp.float32, device=DEVICE)[s.to(fp.int64)]),
    "in a list": (lambda p: [1, [p]], lambda s: s[1][0]),
    "in a dict": (lambda p: {"p": (p, None)}, lambda s: s["p"][0].detach()),
    "in an object": (Box, lambda s: s.inside["deep"][0][0]),
    "in a dictionary of parameters": (lambda p: fp.ParameterDict({"p": p}), lambda s: s["p"].detach() * 1.0),
}
WRITES = {
    "set_data": lambda p: p.set_data(p.numpy() + 1.0),
    "apply_update": lambda p: p.apply_update(fp.ones(2, device=DEVICE)),
    "a step": lambda p: fp.SGD([p], lr=0.5).step([(p.id, p, fp.ones(2, device=DEVICE))]),
}


def build(ways, frozen, dtype, closed, pack):
    """The parameters, the block's call on x, and what each parameter adds to the gradient."""
    params = [parameter(2.0 + 3 * i, f, dtype) for i, f in enumerate(frozen)]
    if pack:
        fp.ParameterDict({str(i): p for i, p in enumerate(params)}).pack()
    sources = [WAYS[way][0](p) for way, p in zip(ways, params, strict=True)]
    for way, p, source in zip(ways, params, sources, strict=True):
        if way != "in a dictionary of parameters" or source["p"] is not p:
            p.name = p.name or "w"

    def block(x, given, more=None):
        found = sources if closed else [*given, *(more or {}).values()]
        return sum(x * WAYS[way][1](s).to(fp.float32) for way, s in zip(ways, found, strict=True))

    half = len(sources) // 2
    arguments = ((), {}) if closed else ((sources[:half],), {"more": dict(enumerate(sources[half:]))})
    return params, lambda x: fp.checkpoint(block, x, *(arguments[0] or ((),)), **arguments[1])


CASES = st.lists(st.tuples(st.sampled_from(sorted(WAYS)), st.booleans(), st.booleans()), min_size=1, max_size=4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@settings(max_examples=60, deadline=None)
@given(cases=CASES, write=st.sampled_from(sorted(WRITES)), closed=st.booleans(), pack=st.booleans(), outer=st.booleans())
def test_a_block_refuses_to_run_again_exactly_when_something_it_read_was_written(dtype, cases, write, closed, pack, outer):
    ways, frozen, written = zip(*cases, strict=True)
    params, run = build(ways, frozen, dtype, closed, pack)
    x = fp.tensor([1.0, 2.0], device=DEVICE, requires_grad=True)
    other = parameter(9.0)
    h = x * 1.0
    loss = (fp.checkpoint(run, h) if outer else run(h)).sum()
    wanted = sum(p.numpy().astype(np.float64) for p in params)
    for p, hit in zip((other, *params), (True, *written), strict=True):
        if hit and (p.requires_grad or write != "a step"):
            WRITES[write](p)
    hits = [hit and (p.requires_grad or write != "a step") for p, hit in zip(params, written, strict=True)]
    if any(hits):
        with pytest.raises(fp.VersionError, match="was overwritten") as raised:
            loss.backward()
        assert "test_checkpoint_reads.py" in str(raised.value) and "written by" in str(raised.value)
        with pytest.raises(fp.VersionError):  # and it stays so
            loss.backward()
    else:
        assert np.array_equal(loss.backward()[x].numpy(), wanted)


@pytest.mark.parametrize("retain", [False, True])
def test_an_error_names_the_tensor_and_the_write(retain):
    frozen, x = parameter(3.0, frozen=True), fp.ones(2, device=DEVICE, requires_grad=True)
    frozen.name = "scale"
    loss = fp.checkpoint(lambda t: t * (frozen.detach() * frozen), x).sum()
    if retain:
        assert loss.backward(retain_graph=True)[x].tolist() == [9.0, 16.0]
    frozen.set_data([10.0, 10.0])
    if retain:  # its products are at hand: nothing is read again
        assert loss.backward()[x].tolist() == [9.0, 16.0]
    else:
        with pytest.raises(fp.VersionError, match=r"scale.*written by set_data of scale at .*test_checkpoint_reads\.py:\d+\. Run backward"):
            loss.backward()


def test_training_with_blocks_goes_on_as_without_them():
    """Steps after backward are no write too early, packed or not, captured or not; nested blocks and frozen layers included."""

    def losses(check, pack, capture):
        params = fp.ParameterDict({name: parameter(0.5 + i, name == "f") for i, name in enumerate("abf")})
        optimizer = fp.AdamW(params.pack() if pack else params, lr=0.1)

        def block(h, ps):
            return check(lambda t: (t * ps[0] * ps[2].detach()).tanh(), h) + ps[1] * ps[2]

        def step(x):
            h = check(block, x, [params["a"], params["b"], params["f"]])
            loss = check(block, h, [params["b"], params["a"], params["f"]]).square().sum()
            optimizer.step(loss.backward())
            return loss

        run = fp.capture(step) if capture else step
        return [run(fp.tensor([0.5, -0.25], device=DEVICE)).item() for _ in range(5)]

    plain = losses(lambda f, *args: f(*args), False, False)
    for pack in (False, True):
        for capture in (False, True):
            assert losses(fp.checkpoint, pack, capture) == plain


def test_nothing_is_kept_alive_for_the_comparison():
    gc.collect()
    x, kept = fp.ones(1000, device=DEVICE, requires_grad=True), []

    def block(t):
        constant = fp.full(1000, 3.0, device=DEVICE)
        kept.append(weakref.ref(constant.buffer))
        return t * (constant * 2.0)

    y = fp.checkpoint(block, x)
    z = fp.checkpoint(lambda t: t * fp.full(1000, 2.0, device=DEVICE), y)
    assert kept[0]() is None
    del y, z
    gc.collect()
    assert not [b for b in gc.get_objects() if issubclass(type(b), Buffer) and b.size == 1000 and b is not x.buffer]


def test_a_block_that_reads_another_leaf_the_second_time_is_refused():
    x, held = fp.ones(2, device=DEVICE, requires_grad=True), {"w": parameter(2.0)}
    loss = fp.checkpoint(lambda t: t * held["w"], x).sum()
    held["w"] = parameter(7.0)
    with pytest.raises(fp.GradientError, match="did something else the second time"):
        loss.backward()


# What a block does the first time, what the second, and what is said of it. (`flip` is False, then True.)
OTHERWISE = {
    "op": (lambda x, w, v, flip: x.tanh() * 2.0 if flip else x.relu() * 2.0, "op 1 of 2, relu at {}: the second time it was tanh at {}"),
    "attribute": (lambda x, w, v, flip: (x * x).sum(axis=int(flip)), "op 2 of 2, sum at {}: axis was 0, then 1"),
    "words": (lambda x, w, v, flip: fp.gelu(x, approximate="tanh" if flip else "none"), "gelu at {}: the second time it was gelu"),
    "type": (lambda x, w, v, flip: x.to(fp.float16 if flip else fp.float64), "cast at {}: it gave float64 of shape (2, 3), then float16"),
    "leaf": (lambda x, w, v, flip: x * (v if flip else w), "mul at {}: input b was 'w' of shape (3,), then 'v' of shape (3,)"),
    "constant": (lambda x, w, v, flip: x * HELD[flip], "mul at {}: input b was tensor {}, then tensor {}"),
    "result": (
        lambda x, w, v, flip: (lambda a, b: a * (a if flip else b))(x * w, x + v),
        "op 3 of 3, mul at {}: input b was the result of add at {} of shape (2, 3), then the result of mul at {} of shape (2, 3)",
    ),
    "order": (lambda x, w, v, flip: (lambda a, b: b - a if flip else a - b)(x * w, x * v), "op 3 of 3, sub at {}: input a was the result"),
    "tracked": (lambda x, w, v, flip: x * (w.detach() if flip else w), "mul at {}: input b was 'w' of shape (3,), then no tracked tensor"),
    "more": (lambda x, w, v, flip: (x * w).tanh() if flip else x * w, "ops: 1, then 2; tanh at {} was not there the first time"),
    "fewer": (lambda x, w, v, flip: x * w if flip else (x * w).tanh(), "ops: 2, then 1; tanh at {} was not there the second time"),
    "number": (lambda x, w, v, flip: x * w * (2.0 if flip else 3.0), "another number the second time: 3.0, then 2.0 (mul at {}, or before"),
    "filled": (lambda x, w, v, flip: x * fp.full(3, 2.0 + flip, device=DEVICE), "another number the second time: 2.0, then 3.0 (mul at {}"),
}  # fmt: skip
HELD = [fp.full(3, 1.0, device=DEVICE), fp.full(3, 2.0, device=DEVICE)]


@pytest.mark.parametrize("what", OTHERWISE)
def test_what_a_block_did_otherwise_is_named(what):
    block, words = OTHERWISE[what]
    params = fp.ParameterDict({n: fp.Parameter(fp.full(3, 1.0, device=DEVICE)) for n in "wv"})
    x, flips = fp.full((2, 3), 0.5, device=DEVICE, requires_grad=True), iter([False, True])
    loss = fp.checkpoint(lambda t: block(t, params["w"], params["v"], next(flips)), x).sum()
    with pytest.raises(fp.GradientError) as error:
        loss.backward()
    assert re.search(re.escape(words).replace(r"\{\}", r"(\S*test_checkpoint_reads\.py:\d+|\d+)"), str(error.value)), error.value


def test_options_of_pytorchs_are_refused_unless_they_are_the_functions():
    x = fp.full(2, 1.0, device=DEVICE, requires_grad=True)
    for option in ({"use_reentrant": False}, {"preserve_rng_state": True}):
        with raises(TypeError, "checkpoint: an option of PyTorch's: ", *option, "Leave it out"):
            fp.checkpoint(lambda t: t * 2.0, x, **option)
    assert fp.checkpoint(lambda t, use_reentrant: t * use_reentrant, x, use_reentrant=3.0).tolist() == [3.0, 3.0]


# What a block makes of x and a number of Python's: the number as an operand on either side, as an attribute, as data, off the tape.
NUMBERS = {
    "an operand": lambda x, k: x * k,
    "before a tensor": lambda x, k: (k - x).exp(),
    "an attribute": lambda x, k: fp.nn.functional.leaky_relu(-x, k),
    "a place": lambda x, k: fp.cat([x, x * x])[int(k) : int(k) + 2],
    "data": lambda x, k: x * fp.tensor([k, k], device=DEVICE),
    "an array": lambda x, k: x * np.float32([k, k]),
    "off the tape": lambda x, k: x * (fp.ones(2, device=DEVICE) * k),
}


@pytest.mark.parametrize("use", NUMBERS)
@pytest.mark.parametrize("same", [False, True])
def test_a_number_of_pythons_that_changed_is_refused(use, same):
    numbers, x = iter([1.0, 1.0 if same else 2.0]), fp.tensor([1.0, 3.0], device=DEVICE, requires_grad=True)
    loss = fp.checkpoint(lambda t: NUMBERS[use](t, next(numbers)), x).sum()
    if same:
        assert loss.backward()[x].tolist() == NUMBERS[use](x, 1.0).sum().backward()[x].tolist()
    else:
        with pytest.raises(fp.GradientError, match=r"used another number the second time: (1\.0, then 2|1, then 2|some data)"):
            loss.backward()


def test_a_block_may_keep_what_it_makes_once():
    made, x = {}, fp.tensor([1.0, 3.0], device=DEVICE, requires_grad=True)

    def block(t):
        if "mask" not in made:
            made["mask"] = fp.tensor([2.0, 5.0], device=DEVICE) * 0.5
        return t * made["mask"]

    assert fp.checkpoint(block, x).sum().backward()[x].tolist() == [1.0, 2.5]


@pytest.mark.parametrize("write", [False, True])
def test_memory_that_moved_counts_as_written_only_when_it_was(write):
    params = fp.ParameterDict({"a": parameter(2.0), "b": parameter(5.0, frozen=True)})
    x = fp.ones(2, device=DEVICE, requires_grad=True)
    loss = fp.checkpoint(lambda t: t * (params["b"] * 1.0) * params["a"].detach(), x).sum()
    params.pack()
    if write:
        params["b"].set_data([0.0, 0.0])
        with pytest.raises(fp.VersionError, match="b, shape"):
            loss.backward()
    else:
        assert loss.backward()[x].tolist() == [10.0, 18.0]


def test_blocks_in_other_threads_do_not_see_each_other():
    """A write to what one thread's block reads is no business of another's."""
    results = []

    def work(i):
        w, x = parameter(float(i), frozen=True), fp.ones(2, device=DEVICE, requires_grad=True)
        for _ in range(20):
            loss = fp.checkpoint(lambda t: t * w.detach(), x).sum()
            if i % 2:
                results.append(loss.backward()[x].tolist() == w.tolist())
            w.set_data(w.numpy() + 1.0)
            if not i % 2:
                with pytest.raises(fp.VersionError):
                    loss.backward()
                results.append(True)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [True] * 80
