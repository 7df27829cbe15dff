"""Functions made of ops whose calls are written out as routes: what a call gives, records and refuses is what the function itself would."""

from __future__ import annotations

import _thread
import sys
import threading
import time

import numpy as np
import pytest
from devices import default_device
from flow_tools import count

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.core.errors import IndexOutOfRange, VersionError
from flamepy.engine.routes import routed
from flamepy.train.nonfinite import on_result

OFTEN = 6  # calls: more than it takes until there is a route


def x(tracked: bool = True) -> fp.Tensor:
    return fp.tensor(np.linspace(0.5, 1.5, 16, dtype=np.float32).reshape(4, 4), device="plain", requires_grad=tracked)


def ids(*numbers: int) -> fp.Tensor:
    return fp.tensor(list(numbers), device="plain")


@pytest.mark.parametrize(
    "call",
    [
        lambda a: fp.gather(a, 1, ids(0, 1, 2, 3).reshape(4, 1)), lambda a: F.nll_loss(a, ids(0, 1, 2, 3)), lambda a: fp.chunk(a, 2, 1),
        lambda a: a[1:3, ::2], lambda a: a.T, lambda a: fp.prod(a, 1), fp.nansum, lambda a: fp.argsort(a, 1),
        lambda a: F.embedding(ids(3, 3, 0), a), lambda a: fp.vdot(a.reshape(-1), a.reshape(-1)), F.normalize,
        fp.std_mean, lambda a: fp.stack([a, a * 2], 1), lambda a: F.interpolate(a.reshape(1, 1, 4, 4), scale_factor=2),
        lambda a: fp.quantile(a * 2, 0.3, 1), fp.median, lambda a: a[1:], lambda a: a[:, -1], F.leaky_relu, lambda a: F.softplus(a, 2.0),
        lambda a: fp.index_put(a, (ids(1, 1),), a[:2] * 2, accumulate=True), lambda a: fp.one_hot(ids(2, 0), 3), fp.isnan,
    ],
)  # fmt: skip
def test_every_call_gives_and_records_the_same(call) -> None:
    def look() -> tuple:
        leaf = x()
        y = call(leaf)
        first = y[0] if isinstance(y, tuple | list) else y
        tape = [(e.op.title, list(e.saved), e.where) for e in fp.tape(first)] if first.requires_grad else [first.origin()]
        gradient = first.sum().backward()[leaf].numpy().tobytes() if first.requires_grad else b""
        return type(y), [t.numpy().tobytes() for t in (y if isinstance(y, tuple | list) else [y])], tape, gradient

    assert len({repr(look()) for _ in range(OFTEN)}) == 1
    with fp.no_grad():
        assert len({repr(call(x())) for _ in range(OFTEN)}) == 1


def test_an_option_is_told_from_arguments_that_spell_it() -> None:
    pick = routed(lambda a, *rest, axis=None: a * 2.0 if axis is None else a * 3.0)
    a = x()
    for _ in range(OFTEN):
        assert np.array_equal(pick(a, "axis", 1).numpy(), a.numpy() * 2)
    for _ in range(OFTEN):
        assert np.array_equal(pick(a, axis=1).numpy(), a.numpy() * 3)


def test_a_route_that_nobody_of_python_calls_records_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's line is looked for some frames up, where a thread's own function has none."""
    failed: list = []
    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    a, before = x(), _thread._count()
    for _ in range(OFTEN):
        fp.transpose(a)
    _thread.start_new_thread(fp.transpose, (a,))
    while _thread._count() > before:
        time.sleep(0.001)
    assert not failed


def test_a_tensor_given_twice_and_two_tensors() -> None:
    a, b = x(), x() * 2
    for _ in range(OFTEN):
        assert np.array_equal(fp.outer(a[0], a[0]).numpy(), np.outer(a[0].numpy(), a[0].numpy()))
        assert fp.inner(a, a).numpy().tobytes() == (a @ a.T).numpy().tobytes()
    for _ in range(OFTEN):
        assert fp.inner(a, b).numpy().tobytes() == (a @ b.T).numpy().tobytes()


def test_ids_are_checked_in_every_call() -> None:
    for _ in range(OFTEN):
        assert fp.index_select(x(), 0, ids(1, 3)).shape == (2, 4)
    with pytest.raises(IndexOutOfRange, match="index_select: index out of range: 4 at position"):
        fp.index_select(x(), 0, ids(1, 4))


@pytest.mark.engine
def test_lists_of_numbers_are_uploaded_once_and_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, labels, logs = fp.device("plain").direct, ids(1, 1).reshape(2, 1), x(False).reshape(4, 2, 2) * -1.0
    uploads: list[int] = []
    monkeypatch.setattr(stream, "upload", lambda array, upload=stream.upload: uploads.append(array.size) or upload(array))
    for times in ([4, 4], [1, 2], [4, 4]):
        found = [F.ctc_loss(logs, labels, times, [0, 0], reduction="none").tolist() for _ in range(OFTEN)]
        sums = [-logs.numpy()[:n, i, 0].sum() for i, n in enumerate(times)]
        np.testing.assert_allclose(found, [sums] * OFTEN, 1e-6)
    assert len(uploads) == 2 * 3 * 2


def test_what_draws_or_writes_does_so_in_every_call() -> None:
    fp.manual_seed(1)
    assert len({F.dropout2d(fp.ones(1, 64, 1, 1, device="plain"), 0.5).numpy().tobytes() for _ in range(OFTEN)}) == OFTEN
    norm = fp.nn.BatchNorm1d(4).to("plain")
    means = [norm(x(False) + 1.0) is not None and norm.running_mean.numpy().tobytes() for _ in range(OFTEN)]
    assert len(set(means)) == OFTEN


def test_equal_numbers_of_other_types_are_told_apart() -> None:
    for _ in range(OFTEN):
        assert fp.roll(x(), 1, 0).numpy()[0, 0] == x().numpy()[3, 0]
        assert fp.nansum(x(False), axis=0, keepdims=False).shape == (4,)
        assert fp.nansum(x(False), axis=0, keepdims=True).shape == (1, 4)
    for zero in (0.0, -0.0) * OFTEN:
        assert np.signbit(fp.clamp(x(False) - 9.0, min=zero).numpy()).all() == np.signbit(zero)


@pytest.mark.engine
def test_attributes_in_each_form_are_found_at_once_and_told_apart() -> None:
    a = x(False)
    forms = [
        (lambda: fp.sum(a, 1), a.numpy().sum(1)), (lambda: a.sum(dim=1), a.numpy().sum(1)), (lambda: a.sum(0), a.numpy().sum(0)),
        (lambda: a.sum(1, True), a.numpy().sum(1, keepdims=True)), (lambda: a.sum(axis=None), a.numpy().sum()),
        (lambda: a.sum(dim=(1,)), a.numpy().sum(1)), (lambda: fp.sum(a, np.int64(0)), a.numpy().sum(0)),
    ]  # fmt: skip
    for _ in range(OFTEN):
        assert all([np.allclose(call().numpy(), wanted) and call().shape == wanted.shape for call, wanted in forms])
    assert {(a.spec, 0), (a.spec, 1)} <= fp.sum.op.plans.calls[True].keys()
    for wrong in (True, 1.0, "1"):
        with pytest.raises(TypeError, match="sum: axis"):
            a.sum(wrong)
        with pytest.raises(TypeError, match="sum: axis"):
            a.sum(dim=wrong)
    half = a.to(fp.bfloat16)
    for _ in range(OFTEN):
        assert half.sum(1).dtype == fp.bfloat16
        with fp.autocast(fp.bfloat16):
            assert half.sum(1).dtype == half.sum(dim=1).dtype == fp.float32


@pytest.mark.engine
def test_views_and_slices_of_any_form_are_told_apart() -> None:
    a = x()
    for _ in range(OFTEN):
        assert [a.view(-1).shape, a.reshape(2, -1).shape, a.view(2, 2, 4).shape, a.reshape((8, -1)).shape, a.view(16).shape] == [
            (16,), (2, 8), (2, 2, 4), (8, 2), (16,),
        ]  # fmt: skip
        for key in (slice(1, 3), (slice(None), 1), (slice(None, None, 2), slice(-1, None)), (..., slice(0, 1)), (None, 1), slice(True, 3)):
            assert np.array_equal(a[key].numpy(), a.numpy()[key])
    for key in (slice(1.0, 3), (slice(None), 1.0)):
        with pytest.raises((TypeError, IndexError)):
            a[key]
    assert count(lambda: a.view(-1), {}).calls <= 6


def test_autocast_and_listeners_find_the_function_itself() -> None:
    a, heard = x(), []
    for _ in range(OFTEN):
        assert F.linear(a, a).dtype == fp.bmm(a.reshape(1, 4, 4), a.reshape(1, 4, 4)).dtype == fp.float32
    with fp.autocast(fp.bfloat16):
        assert fp.bmm(a.reshape(1, 4, 4), a.reshape(1, 4, 4)).dtype == fp.bfloat16
    with on_result(lambda name, t: heard.append(name)):
        fp.prod(a, 1)
    assert "prod" in heard


def test_what_was_saved_may_not_be_overwritten() -> None:
    p = fp.Parameter(x(False))
    for _ in range(OFTEN):
        y = fp.prod(p, 1).sum()
        y.backward()
    y = fp.prod(p, 1).sum()
    p.set_data(np.zeros((4, 4), np.float32))
    with pytest.raises(VersionError, match="a saved value was overwritten"):
        y.backward()


def test_a_captured_step_takes_routes() -> None:
    a, index = x(False), ids(2, 0)
    for _ in range(OFTEN):
        fp.index_select(a, 0, index)
    step = fp.capture(lambda t, i: fp.index_select(t, 0, i) * 2.0)
    for k in range(4):
        got = step(a + float(k), ids(k % 4, 1)).numpy()
        assert np.array_equal(got, (a.numpy() + np.float32(k))[[k % 4, 1]] * 2)


DRAWS = [
    lambda: fp.rand(3, 5), lambda: fp.randn((2, 3), dtype=fp.float64), lambda: fp.randint(0, 9, (7,)), lambda: fp.randperm(5),
    lambda: fp.rand(3, device="plain"), lambda: fp.rand_like(x(False)), lambda: F.alpha_dropout(x(), 0.5, True), lambda: fp.rand(0),
    lambda: fp.bernoulli(x(False) / 2), lambda: fp.multinomial(x(False), 2), lambda: fp.dropout(x()), lambda: fp.normal(x(), 2.0),
]  # fmt: skip


def test_draws_take_the_places_that_they_always_took() -> None:
    def drawn() -> list[bytes]:
        fp.manual_seed(7)
        return [t.numpy().tobytes() for _ in range(3) for draw in DRAWS for t in (draw(), draw())]

    first, place = drawn(), fp.get_rng_state()
    assert [drawn() for _ in range(3)] == [first] * 3 and fp.get_rng_state() == place
    with on_result(lambda name, t: None):  # who listens finds the functions themselves
        assert drawn() == first
    source = fp.Generator(3)
    numbers = [fp.bernoulli(x(False) / 2, generator=source).numpy().tobytes() for _ in range(2 * OFTEN)]
    source.manual_seed(3)
    assert numbers == [fp.bernoulli(x(False) / 2, generator=source).numpy().tobytes() for _ in range(2 * OFTEN)] and len(set(numbers)) > 1


def test_a_captured_step_draws_by_routes_what_it_draws_without() -> None:
    def run(a: fp.Tensor) -> list[fp.Tensor]:
        return [fp.bernoulli(a / 2), F.dropout2d(a.reshape(1, 4, 2, 2)), fp.rand_like(a), fp.randperm(4, device="plain")]

    results = []
    for call in (run, fp.capture(run)):
        fp.manual_seed(5)
        results.append([[t.numpy().tobytes() for t in call(x(False) * s)] for s in (1.0, 0.5, 1.0, 0.25, 1.0, 0.5, 1.0)])
    assert results[0] == results[1]


def test_threads_draw_from_their_own_places() -> None:
    for _ in range(OFTEN):
        fp.rand(4), fp.bernoulli(x(False) / 2)
    found: dict[int, list] = {}

    def work(seed: int) -> None:
        fp.manual_seed(seed)
        found[seed] = [fp.rand(4).numpy().tobytes() + fp.bernoulli(x(False) / 2).numpy().tobytes() for _ in range(20)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for seed, numbers in list(found.items()):
        work(seed)
        assert found[seed] == numbers
    assert len({*map(tuple, found.values())}) == 3


def test_what_is_made_without_a_tensor_is_made_where_others_are_now() -> None:
    for name in ("plain", "cpu", "plain"):
        with default_device(name):
            assert {fp.randn(1, 7, device=None).device.name for _ in range(OFTEN)} == {name}
