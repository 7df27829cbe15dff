"""Losses over rows of logits: cross-entropy in one pass, its gradient, what it keeps, which ids and probabilities it refuses.

Oracles are NumPy in float64 and finite differences. Kernels are called with 1, 2 and 5 workers and must give the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from devices import CPU_ONLY
from error_text import raises
from rows_tools import F32, F64, Array, close, draw, ids_of, launches, leaf, same_for_any_workers

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.backend.cpu.device import loop_named
from flamepy.backend.cpu.runtime.compiler import DIALECT
from flamepy.backend.formula.bind import bind
from flamepy.engine.backward import Cotangents
from flamepy.ops import loss_bodies

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def launched() -> Iterator[list[str]]:
    with launches() as names:
        yield names


# ---- cross-entropy -----------------------------------------------------------------------------------------------------------
def distribution(x: Array, ids: Array, ignore: int, smoothing: float) -> tuple[Array, Array, Array]:
    """(log-probabilities, target distribution, which rows count) of logits (rows, classes)."""
    x = x.astype(F64)
    logp = x - x.max(1, keepdims=True)
    logp = logp - np.log(np.exp(logp).sum(1, keepdims=True))
    keep = ids != ignore
    target = np.full_like(x, smoothing / max(1, x.shape[1]))
    target[np.arange(len(ids))[keep], ids[keep]] += 1 - smoothing
    return logp, target * keep[:, None], keep


def cross_entropy_oracle(x: Array, ids: Array, reduction: str, ignore: int, smoothing: float) -> tuple[Any, Array]:
    """Loss and its gradient for a cotangent of ones."""
    logp, target, keep = distribution(x, ids, ignore, smoothing)
    each = -(target * np.where(keep[:, None], logp, 0)).sum(1)
    dx = np.exp(logp) * keep[:, None] - target
    if reduction == "mean":
        with np.errstate(all="ignore"):
            return each.sum() / keep.sum(), dx / max(1, keep.sum())
    return (each if reduction == "none" else each.sum()), dx


SIZES = [(1, 1), (1, 7), (5, 2), (6, 4), (40, 16), (3, 17), (3, 65), (300, 65), (70, 257), (2, 4099), (0, 3)]
OPTIONS = list(itertools.product(("mean", "sum", "none"), (-100, 1), (0.0, 0.15)))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_cross_entropy_and_its_gradient(size: tuple[int, int], dtype: Any) -> None:
    x = 3 * draw(*size, dtype=dtype)
    for reduction, ignore, smoothing in OPTIONS:
        if ignore >= size[1]:
            ignore = 0
        ids = ids_of(size[1], size[0])
        p = leaf(x)
        loss = F.cross_entropy(p, ids, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction)
        want, dx = cross_entropy_oracle(x, ids, reduction, ignore, smoothing)
        tolerance = 2e-6 if dtype == F32 else 1e-12
        np.testing.assert_allclose(loss.numpy(), want, tolerance * 5, tolerance * 5)
        ones = None if loss.size == 1 else fp.ones(*loss.shape, dtype=dtype)
        close(loss.backward(ones)[p], dx, tolerance)
        with fp.no_grad():  # the kernel that keeps no gradient gives the same bits
            again = F.cross_entropy(p, ids, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction)
        assert np.array_equal(again.numpy(), loss.numpy(), equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_under_another_cotangent(reduction: str) -> None:
    x, ids = draw(9, 5), ids_of(5, 9)
    p = leaf(x)
    g = draw(9, seed=1) if reduction == "none" else np.asarray(-2.5)
    grads = F.cross_entropy(p, ids, reduction=reduction, ignore_index=2).backward(fp.tensor(g))
    close(grads[p], cross_entropy_oracle(x, ids, reduction, 2, 0.0)[1] * (g[:, None] if g.ndim else g))
    scaled = (F.cross_entropy(p, ids, ignore_index=2) * 3.0).backward()
    close(scaled[p], 3 * cross_entropy_oracle(x, ids, "mean", 2, 0.0)[1])


@pytest.mark.parametrize("smoothing", [0.0, 0.15])
@pytest.mark.parametrize("size", [(2, 2), (5, 3), (2, 300), (0, 3)], ids=str)
def test_class_weights_and_what_they_do_to_gradients(size: tuple[int, int], smoothing: float) -> None:
    """Beside the oracle: weights that are tracked, of which the loss is made by other ops, and 16-bit logits."""
    (rows, classes), z = size, 0.1
    x, ids, w = 3 * draw(*size), ids_of(classes, rows), 0.1 + draw(classes, seed=1) ** 2
    logp, target, keep = distribution(x, ids, 0, smoothing)
    lse, own = x.max(1) + np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)), (w[ids] * keep if rows else np.zeros(0))
    each = -(target * w * logp).sum(1) + z * own * lse**2
    dx = np.exp(logp) * ((target * w).sum(1) + 2 * z * own * lse)[:, None] - target * w
    for reduction in ("mean", "sum", "none"):
        with np.errstate(all="ignore"):
            divisor = own.sum() if reduction == "mean" else 1.0
            want = each if reduction == "none" else each.sum() / divisor
            options: Any = {"ignore_index": 0, "label_smoothing": smoothing, "z_loss": z, "reduction": reduction}
            p, q = leaf(x), fp.tensor(w, requires_grad=True)
            for weight in (w, q):
                loss = F.cross_entropy(p, ids, weight, **options)
                close(loss, want, 1e-12)
                close((loss * 1.5).sum().backward()[p], 1.5 * dx / divisor if own.any() else 0 * dx, 1e-12)
            for dtype in (fp.float32, fp.bfloat16):
                r = fp.tensor(x).to(dtype).requires_grad_()
                loss = F.cross_entropy(r, ids, w, **options)
                close(loss, want, 2e-6 if dtype == fp.float32 else 3e-2)
                close(loss.sum().backward()[r], dx / divisor if own.any() else 0 * dx, 2e-6 if dtype == fp.float32 else 5e-2)
    if classes == 3 and rows:
        assert fp.gradcheck(lambda x, w: F.cross_entropy(x, ids, w, **options | {"reduction": "mean"}), (p, q))
        assert fp.gradcheck(lambda x, w: F.nll_loss(x, ids, w, ignore_index=0), (p, q))
        assert fp.gradcheck(lambda x, w: F.multi_margin_loss(x, ids, p=2, weight=w), (p, q))


def test_cross_entropy_of_pictures_and_of_one_row() -> None:
    x, ids = draw(2, 5, 3, 4), ids_of(5, 2, 3, 4)
    flat = np.moveaxis(x, 1, -1).reshape(-1, 5)
    want, dx = cross_entropy_oracle(flat, ids.reshape(-1), "none", -100, 0.1)
    p = leaf(x)
    loss = F.cross_entropy(p, ids, reduction="none", label_smoothing=0.1)
    assert loss.shape == (2, 3, 4)
    close(loss, want.reshape(2, 3, 4))
    close(loss.sum().backward()[p], np.moveaxis(dx.reshape(2, 3, 4, 5), -1, 1))
    q = leaf(x[0, :, 0, 0])
    loss = F.cross_entropy(q, 3, reduction="none")
    assert loss.shape == ()
    close(loss.backward()[q], cross_entropy_oracle(q.numpy()[None], np.array([3]), "sum", -100, 0.0)[1][0])


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("size", [(2, 3, 3, 7), (1, 5, 13, 31), (2, 40, 16)], ids=str)
def test_cross_entropy_of_images_that_stay_as_they_lie(size: tuple[int, ...], dtype: Any) -> None:
    """With a gradient and without, and replayed, the loss has the same bits. An ignored pixel may hold anything."""
    n, classes, *area = size
    x, ids, w = 3 * draw(*size, dtype=dtype), ids_of(classes, n, *area), (0.1 + draw(classes, seed=1) ** 2).astype(dtype)
    ids.reshape(-1)[:3] = -1, 0, classes - 1
    flat, line, tolerance = np.moveaxis(x, 1, -1).reshape(-1, classes).astype(F64), ids.reshape(-1), 3e-6 if dtype == F32 else 1e-12
    lse = np.log(np.exp(flat).sum(1))
    x.reshape(n, classes, -1)[0, :, 0] = np.nan
    for (reduction, ignore, smoothing), (weight, z) in itertools.product([(r, -1, s) for r, _, s in OPTIONS[::2]], ((None, 0.0), (w, 0.1))):
        logp, target, keep = distribution(flat, line, ignore, smoothing)
        target, own = target * (1 if weight is None else weight), keep * (1.0 if weight is None else weight.astype(F64)[line])
        divisor = own.sum() if reduction == "mean" else 1.0
        each = (-(target * logp).sum(1) + z * own * lse**2) / divisor
        dx = (np.exp(logp) * (target.sum(1) + 2 * z * own * lse)[:, None] - target) / divisor
        options: Any = {"ignore_index": ignore, "label_smoothing": smoothing, "z_loss": z, "reduction": reduction}
        p, g = leaf(x), draw(n, *area, seed=2, dtype=dtype) if reduction == "none" else np.ones((), dtype)
        loss = F.cross_entropy(p, ids, weight, **options)
        close(loss, each.reshape(ids.shape) if reduction == "none" else each.sum(), tolerance * 5)
        got = loss.backward(fp.tensor(g))[p].numpy()
        close(np.moveaxis(got, 1, -1), dx.reshape(n, *area, classes) * g[..., None], tolerance * 5)
        assert untracked(p, ids, weight, **options).numpy().tobytes() == loss.numpy().tobytes()
    captured = fp.capture(lambda x: F.cross_entropy(x, ids, weight, **options).backward(fp.tensor(g))[x])
    for _ in range(3):
        assert captured(p).numpy().tobytes() == got.tobytes()


def test_the_second_derivative_at_images() -> None:
    """The oracle is the Hessian times a vector: p * (v - sum(p * v)) at each pixel."""
    x, v, ids = draw(2, 3, 4, 5), draw(2, 3, 4, 5, seed=1), ids_of(3, 2, 4, 5)
    p, y = leaf(x), np.exp(x) / np.exp(x).sum(1, keepdims=True)
    share = 1 / (40 - (ids == 1).sum()) * (ids != 1)[:, None]
    g = F.cross_entropy(p, ids, ignore_index=1, label_smoothing=0.1).backward(create_graph=True)[p]
    close((g * v).sum().backward()[p], share * y * (v - (y * v).sum(1, keepdims=True)), 1e-10)
    w = np.array([0.5, 2.0, 1.0])
    for reduction in ("none", "mean"):
        assert fp.gradcheck(lambda x: F.cross_entropy(x, ids, w, label_smoothing=0.1, z_loss=0.1, reduction=reduction), (p,))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("size", [(2, 3, 3, 7), (1, 5, 13, 31), (2, 300, 16)], ids=str)
def test_nll_loss_of_images_that_stay_as_they_lie(size: tuple[int, ...], dtype: Any) -> None:
    n, classes, *area = size
    x, ids, w = draw(*size, dtype=dtype), ids_of(classes, n, *area), (0.1 + draw(classes, seed=1) ** 2).astype(dtype)
    ids.reshape(-1)[:3] = -1, 0, classes - 1
    x.reshape(n, classes, -1)[0, :, 0] = np.nan
    hot = np.moveaxis(np.arange(classes) == ids[..., None], -1, 1)
    for reduction, weight in itertools.product(("mean", "sum", "none"), (None, w)):
        counts = hot * (np.ones(classes) if weight is None else w.astype(F64)).reshape(-1, *[1] * len(area))
        counts /= counts.sum() if reduction == "mean" else 1
        p, g = leaf(x), draw(n, *area, seed=2, dtype=dtype) if reduction == "none" else np.ones((), dtype)
        loss = F.nll_loss(p, ids, weight, ignore_index=-1, reduction=reduction)
        each = -np.where(hot, x, 0) * counts
        close(loss, each.sum(1) if reduction == "none" else each.sum(), 1e-5 if dtype == F32 else 1e-12)
        got = loss.backward(fp.tensor(g))[p].numpy()
        close(got, -counts * (g[:, None] if g.ndim else g), 1e-6)
    captured = fp.capture(lambda x: F.nll_loss(x, ids, w, ignore_index=-1, reduction="none").backward(fp.tensor(g))[x])
    for _ in range(3):
        assert captured(p).numpy().tobytes() == got.tobytes()


def test_derivatives_of_nll_loss_at_images() -> None:
    ids, p, v = ids_of(3, 2, 4, 5), leaf(draw(2, 3, 4, 5)), fp.tensor(draw(2, 3, 4, 5, seed=1))
    for reduction in ("none", "mean"):
        assert fp.gradcheck(lambda x: F.nll_loss(x * v, ids, np.array([0.5, 2.0, 1.0]), ignore_index=1, reduction=reduction), (p,))
        assert fp.gradcheck(lambda x: F.nll_loss(x * x, ids, ignore_index=1, reduction=reduction), (p,), order=2)


@CPU_ONLY  # counts the CPU's launches
def test_images_are_not_turned_for_their_loss(launched: list[str]) -> None:
    p, ids = leaf(draw(2, 3, 4, 5, dtype=F32)), fp.tensor(ids_of(3, 2, 4, 5))
    for op in (F.cross_entropy, F.nll_loss):
        launched.clear()
        loss = op(p, ids)
        assert launched == ["check_pieces", "beside", "batch_loss"]
    launched.clear()
    loss.backward()
    assert launched == ["beside"]


def test_all_ignored() -> None:
    p = leaf(draw(4, 3))
    ids = np.full(4, -100)
    loss = F.cross_entropy(p, ids)
    assert np.isnan(loss.item()) and not loss.backward()[p].numpy().any()
    loss = F.cross_entropy(p, ids, reduction="sum")
    assert loss.item() == 0.0 and not loss.backward()[p].numpy().any()
    for op in (F.cross_entropy, F.nll_loss):
        for weight, again in (([0.5, 2.0, 1.0], False), ([0.5, 2.0, 1.0], True), (None, True)):
            loss = op(p, ids, None if weight is None else leaf(np.array(weight)).detach())
            assert np.isnan(loss.item()) and not loss.backward(create_graph=again)[p].numpy().any()
    q = leaf(np.full((4, 3), np.nan))
    loss = F.cross_entropy(q, ids, np.ones(3), label_smoothing=0.1, z_loss=0.1)
    assert not loss.backward()[q].numpy().any()
    assert np.isnan(F.nll_loss(p, ids).item()) and F.nll_loss(p, ids, reduction="sum").item() == 0.0
    none = leaf(np.zeros((3, 0)))
    assert F.cross_entropy(none, ids[:3], reduction="none").tolist() == [0.0] * 3
    assert F.nll_loss(none, ids[:3], reduction="none").tolist() == [0.0] * 3


def test_extreme_logits() -> None:
    x = np.array([[1e30, -1e30, 0.0], [-np.inf, 0.0, 1.0], [88.0, 89.0, 90.0], [-1e4, -1e4, -1e4]], F32)
    p = leaf(x)
    loss = F.cross_entropy(p, np.array([0, 2, 1, 1]), reduction="none")
    np.testing.assert_allclose(loss.numpy(), [0.0, 0.3132617, 1.4076059, np.log(3)], 1e-6)
    assert np.isfinite(loss.sum().backward()[p].numpy()).all()
    assert np.isinf(F.cross_entropy(p, np.array([1, 0, 1, 1]), reduction="none").numpy()[1])
    x[0, 1] = np.nan
    assert np.isnan(F.cross_entropy(fp.tensor(x), np.array([0, 2, 1, 1])).item())


def test_sixteen_bits_are_computed_in_float32() -> None:
    x, ids = draw(64, 7, dtype=F32), ids_of(7, 64)
    for dtype in (fp.float16, fp.bfloat16):
        p = fp.tensor(x).to(dtype).requires_grad_()
        loss = F.cross_entropy(p, ids)
        want, dx = cross_entropy_oracle(p.numpy().astype(F32), ids, "mean", -100, 0.0)
        assert loss.dtype == fp.float32 and abs(loss.item() - want) < 1e-6 * want
        close(loss.backward()[p], dx, 1e-6)
        many = fp.tensor(np.full((70000, 1), -0.5, F32)).to(dtype)  # more rows than float16 can count
        assert abs(float(F.nll_loss(many, np.zeros(70000, int)).numpy()) - 0.5) < 1e-2 or dtype == fp.float16


@CPU_ONLY  # counts the CPU's launches
def test_cross_entropy_goes_over_the_logits_once(launched: list[str]) -> None:
    for classes, loop in ((4, "rows_together"), (24, "rows_together"), (40, "row")):
        p, ids = leaf(draw(6, classes, dtype=F32)), fp.tensor(ids_of(classes, 6))
        launched.clear()
        loss = F.cross_entropy(p, ids)
        assert launched == ["check_pieces", loop, "batch_loss"]
        launched.clear()
        grads = loss.backward()
        assert not launched  # the cotangent is a 1 that was made before
        assert grads[p].shape == (6, classes)


def test_a_row_of_few_classes_does_not_depend_on_the_others() -> None:
    x, ids = 9 * draw(40, 10, dtype=F32), ids_of(10, 40)
    x[17, 3], ids[5], x[5] = np.nan, -100, np.nan  # a row that is ignored may hold anything
    p = leaf(x)
    together = F.cross_entropy(p, ids, reduction="none", label_smoothing=0.1)
    dx = together.sum().backward()[p].numpy()
    assert np.isnan(dx[17]).all() and not dx[5].any() and together.numpy()[5] == 0
    for r in range(40):
        q = leaf(x[r : r + 1])
        alone = F.cross_entropy(q, ids[r : r + 1], reduction="none", label_smoothing=0.1)
        assert alone.numpy().tobytes() == together.numpy()[r : r + 1].tobytes()
        assert np.array_equal(alone.sum().backward()[q].numpy()[0], dx[r], equal_nan=True)


def test_without_a_gradient_nothing_is_kept_for_it() -> None:
    big = fp.tensor(draw(512, 512, dtype=F32))
    where = big.device
    ids = fp.tensor(ids_of(512, 512))
    for call in (lambda: F.cross_entropy(big, ids), lambda: untracked(leaf(big.numpy()), ids)):
        call()
        before = where.memory()["current"]
        kept = call()
        assert where.memory()["current"] - before < big.size
        del kept


def untracked(x: Any, *args: Any, **options: Any) -> Any:
    with fp.no_grad():
        return F.cross_entropy(x, *args, **options)


def test_a_second_backward_gives_the_same_gradient() -> None:
    p, ids = leaf(draw(6, 4)), ids_of(4, 6)
    loss = F.cross_entropy(p, ids)
    first = loss.backward(retain_graph=True)
    want = first[p].numpy().copy()
    fp.clip_grad_norm(first, 1e-3)  # edits the gradients in the map, not what the loss keeps
    close(loss.backward(retain_graph=True)[p], want)
    close(loss.backward()[p], want)


def test_cross_entropy_gradcheck() -> None:
    ids = np.array([0, 2, 1, 1, 3])
    for reduction, ignore, smoothing in OPTIONS:
        assert fp.gradcheck(
            lambda x: F.cross_entropy(x, ids, reduction=reduction, ignore_index=ignore, label_smoothing=smoothing), (leaf(draw(5, 4)),)
        )
        assert fp.gradcheck(lambda x: F.nll_loss(x, ids, reduction=reduction, ignore_index=ignore), (leaf(draw(5, 4)),))


def test_probabilities_are_targets() -> None:
    torch = pytest.importorskip("torch")
    x, t = draw(3, 4).astype(F64), np.random.default_rng(1).dirichlet(np.ones(4), 3)
    want = torch.nn.functional.cross_entropy(torch.tensor(x), torch.tensor(t), label_smoothing=0.1)
    np.testing.assert_allclose(F.cross_entropy(fp.tensor(x), t, label_smoothing=0.1).item(), want.item(), 1e-12)
    with raises(fp.DTypeError, "cross_entropy: two different float types"):
        F.cross_entropy(fp.tensor(x.astype(F32)), t)
    with raises(ValueError, "cross_entropy: no ids to ignore among probabilities: ignore_index=2"):
        F.cross_entropy(fp.tensor(x), t, ignore_index=2)


def test_class_ids_are_checked_and_named() -> None:
    x = fp.zeros(2, 4, 3)
    for loss in (F.cross_entropy, F.nll_loss):
        ids = np.array([[0, 1, -100], [2, 4, 9]])
        with raises(fp.IndexOutOfRange, loss.__name__, "class id out of range: 4 at position (1, 1)", "Use 0 to 3, or ignore_index=-100"):
            loss(x, ids).item()
        with raises(fp.IndexOutOfRange, "-1 at position (0, 1)"):
            loss(x, np.array([[0, -1, 0], [7, 0, 0]])).item()
        with raises(fp.IndexOutOfRange, "7 at position ()"):
            loss(x[0, :, 0], 7).item()
        with raises(fp.DTypeError, "class ids are not integer: float32"):
            loss(x, [[0.0]])
        with raises(ValueError, loss.__name__, "unknown reduction: 'max'"):
            loss(x, ids * 0, reduction="max")
        for no_id in (1.5, None):  # int() would make class 1 of the first
            with raises(fp.DTypeError, loss.__name__, f"ignore_index is no class id: {no_id}"):
                loss(x, ids * 0, ignore_index=no_id)
        assert loss(x, ids * 0 + 9, ignore_index=9, reduction="sum").item() == 0


@pytest.mark.parametrize("classes", [10, 23, 67])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_cross_entropy_kernel_has_the_same_bits_for_any_workers(dtype: Any, classes: int) -> None:
    n, few = 301, classes < 24
    x, ids, found = draw(n, classes, dtype=dtype).reshape(-1), ids_of(classes, n), np.array([-1, 0, n])
    outs = [np.full(n, np.nan, dtype), np.full(n * classes, np.nan, dtype)]
    args = (x, ids, found, draw(classes, seed=2, dtype=dtype) ** 2, dtype.type(0.1), dtype.type(0.01), 3, True, n, classes)
    plain: Any = loss_bodies.cross_entropy_row.together if few else loss_bodies.cross_entropy_row  # type: ignore[attr-defined]
    loss, _ = same_for_any_workers("rows_together" if few else "row", plain, dtype, outs, *args)
    (total,) = same_for_any_workers("batch_loss", None, dtype, [np.full(1, np.nan, dtype)], loss, found, True)
    np.testing.assert_allclose(total[0], loss.mean(), 1e-6)
    plain(0, *outs, *args)  # the body is plain Python too
    np.testing.assert_allclose(outs[0][0], loss[0], 1e-5)


def test_a_large_batch_is_added_accurately() -> None:
    each = np.random.default_rng(0).random(1 << 20).astype(F32)
    out = np.zeros(1, F32)
    bind(loop_named("batch_loss"), None, F32, DIALECT)(1, out, each, np.array([-1, 0, each.size]), True)
    assert abs(out[0] / each.astype(F64).mean() - 1) < 1e-6


def test_probabilities_are_checked_in_replays() -> None:
    target = fp.tensor(np.array([0.0, 1.0], F32))
    captured = fp.capture(lambda x: F.binary_cross_entropy(x, target))
    for _ in range(3):
        assert captured(fp.tensor([0.25, 0.5])).item() == F.binary_cross_entropy(fp.tensor([0.25, 0.5]), target).item()
    with raises(ValueError, "binary_cross_entropy: no probability: element (1,)", "Use binary_cross_entropy_with_logits"):
        captured(fp.tensor([0.25, 1.5])).item()
    with raises(ValueError, "no probability: element (1,)"):
        F.binary_cross_entropy(fp.tensor([0.25, float("nan")]), target).item()


@pytest.mark.parametrize("dtype", [fp.float64, fp.float32, fp.bfloat16], ids=str)
@pytest.mark.parametrize(("reduction", "weighted"), [("mean", False), ("none", False), ("mean", True), ("none", True)])
def test_the_second_and_third_derivative_of_cross_entropy(dtype: Any, reduction: str, weighted: bool) -> None:
    """Products with the Hessian of a classifier, as in MAML (Finn et al. 2017, arXiv:1703.03400). Oracle: PyTorch in float64."""
    torch = pytest.importorskip("torch")
    x, w0, v, c = draw(6, 5), draw(5, 4, seed=1), draw(5, 4, seed=2), draw(6, seed=3)
    ids = np.array([0, 3, -100, 1, 1, 2])
    found = []
    for lib, functional in ((fp, F), (torch, torch.nn.functional)):
        x_, w, v_, c_ = (lib.tensor(a.astype(F64), dtype=lib.float64) for a in (x, w0, v, c))
        if lib is fp and dtype != fp.float64:
            x_, w, v_, c_ = (a.to(fp.float32) for a in (x_, w, v_, c_))
        w.requires_grad_()
        z = x_ @ w
        z = z.to(dtype) if lib is fp else z
        weight = lib.tensor([0.5, 0.0, 2.0, 1.5], dtype=z.dtype) if weighted else None
        loss = functional.cross_entropy(z, lib.tensor(ids), weight, label_smoothing=0.1, reduction=reduction)
        y = (loss * c_).sum() if reduction == "none" else loss
        for _ in range(2):
            g = y.backward(create_graph=True)[w] if lib is fp else torch.autograd.grad(y, w, create_graph=True)[0]
            y = (g * v_).sum()
        found.append([a.detach().numpy() for a in (g, y.backward()[w] if lib is fp else torch.autograd.grad(y, w)[0])])
    for ours, theirs in zip(*found, strict=True):
        tolerance = {fp.float64: 1e-10, fp.float32: 4e-5 if weighted else 1e-5}.get(dtype, 2e-2)
        np.testing.assert_allclose(ours, theirs, tolerance, tolerance * np.abs(theirs).max())


def bfloat_head(device: Any, what: str, narrow: bool) -> list[np.ndarray]:
    """The loss and the gradients of a bfloat16 layer whose logits are used as `what` says; not `narrow`: cotangents are all float32."""
    rng = np.random.default_rng(3)
    h = fp.tensor(rng.standard_normal((2, 6, 5)), dtype="bfloat16", device=device, requires_grad=what != "frozen")
    w, b = (fp.tensor(rng.standard_normal(s), dtype="bfloat16", device=device, requires_grad=True) for s in ((9, 5), (9,)))
    ids = fp.tensor(rng.integers(0, 9, (2, 6)), device=device)
    seen: list[Any] = []
    dtypes = []
    with pytest.MonkeyPatch.context() as patch:
        ask = Cotangents.narrow
        patch.setattr(Cotangents, "narrow", lambda self, entry: narrow and (dtypes.append(ask(self, entry)) or dtypes[-1]))
        y = F.linear(h, w, None if what == "no bias" else b)
        if what == "hook":
            y.register_hook(lambda g: seen.append(g) or g * 2)
        logits = y.reshape(12, 9) if what == "flat" else y
        loss = F.cross_entropy(logits, ids.reshape(12) if what == "flat" else ids, label_smoothing=0.1 if what == "smoothed" else 0.0)
        loss = loss + y.to("float32").square().mean() if what == "used twice" else loss
        grads = loss.backward(retain_graph=what == "twice")
        grads = loss.backward() if what == "twice" else grads
    if narrow:
        assert any(dtypes) == (what not in ("frozen", "hook", "used twice")), (what, dtypes)
    return [loss.to("float32").numpy(), *[grads[t].to("float32").numpy() for t in (h, w, b) if t in grads]]


@pytest.mark.parametrize("what", ["usual", "flat", "no bias", "smoothed", "frozen", "hook", "used twice", "twice"])
def test_a_layer_that_rounds_its_cotangent_gets_it_rounded(what):
    """The same bits, in a third of the bytes."""
    for got, want in zip(bfloat_head("plain", what, True), bfloat_head("plain", what, False), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_sure_class_keeps_its_gradient_in_bfloat16():
    """p - 1 of a p near 1: what is left is rounded once."""
    h = fp.tensor([[1.0]], dtype="bfloat16", device="plain", requires_grad=True)
    w = fp.tensor([[8.0], [0.0]], dtype="bfloat16", device="plain")
    grads = F.cross_entropy(F.linear(h, w), fp.tensor([0], device="plain")).backward()
    assert grads[h].item() == pytest.approx(-8 / (1 + np.exp(8.0)), rel=1e-2)
