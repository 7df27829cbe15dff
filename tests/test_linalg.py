"""flamepy.linalg beside its oracle lines: errors, singular matrices, captured steps, examples."""

from __future__ import annotations

import doctest
import subprocess
import sys

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import linalg  # type: ignore[attr-defined]
from flamepy.linalg import factors, norms, solving

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(0)
A = RNG.standard_normal((2, 3, 3))


@pytest.mark.parametrize("module", [solving, factors, norms])
def test_examples(module):
    found = [t for t in doctest.DocTestFinder(exclude_empty=True).find(module, globs={"fp": fp}) if t.examples]
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found and not sum([runner.run(t).failed for t in found])


def test_it_is_imported_when_it_is_asked_for():
    code = "import sys, flamepy; assert 'flamepy.linalg' not in sys.modules; assert flamepy.linalg.inv and 'linalg' in dir(flamepy)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_lapack_refuses():
    singular, indefinite = fp.tensor([[1.0, 2.0], [2.0, 4.0]]), fp.tensor([[1.0, 2.0], [2.0, 1.0]])
    for kind in (linalg.LinAlgError, np.linalg.LinAlgError, RuntimeError, ValueError, fp.FlameError):
        with raises(kind, "inv: ", "(2, 2)"):
            linalg.inv(singular)
        with raises(kind, "cholesky: "):
            linalg.cholesky(indefinite).numpy()
        with raises(kind, "solve: "):
            linalg.solve(singular, fp.ones(2))


SQUARE = ["inv", "det", "slogdet", "cholesky", "eigh", "eigvalsh"]


@pytest.mark.parametrize("name", [*SQUARE, "qr", "svd", "svdvals", "pinv", "cond", "matrix_rank"])
def test_what_is_no_matrix_is_refused(name):
    f = getattr(linalg, name)
    with raises(fp.ShapeError, f"{name}: needs a matrix: shape (3,)"):
        f(fp.ones(3))
    with raises(fp.DTypeError, f"{name}: needs floats: int64"):
        f(fp.tensor([[1, 0], [0, 1]]))
    with raises(fp.DTypeError, f"{name}: LAPACK has no such type: bfloat16"):
        f(fp.ones((2, 2)).to(fp.bfloat16))
    if name in SQUARE:
        with raises(fp.ShapeError, f"{name}: needs square matrices: shape (2, 3)"):
            f(fp.ones(2, 3))


def test_what_does_not_fit_is_refused():
    a = fp.tensor(A)
    for call, kind, text in (
        (lambda: linalg.solve(a, fp.tensor(A[:, :2])), fp.ShapeError, "sizes differ"),
        (lambda: linalg.solve(fp.tensor(np.eye(3)[None].repeat(3, 0)), fp.tensor(np.eye(3))), fp.ShapeError, "a vector for each"),
        (lambda: linalg.qr(a, "full"), ValueError, "unknown mode"), (lambda: linalg.eigh(a, "X"), ValueError, "unknown triangle"),
        (lambda: linalg.matrix_norm(a, 3), ValueError, "no such norm"), (lambda: linalg.vector_norm(a, "fro"), ValueError, "no such norm"),
        (lambda: linalg.norm(a, 2), fp.ShapeError, "takes a vector or"), (lambda: linalg.matrix_norm(a, axis=(0,)), fp.ShapeError, "axes"),
        (lambda: linalg.lstsq(a[0], fp.ones(2).to(fp.float64)), fp.ShapeError, "sizes differ"),
        (lambda: linalg.matrix_power(a, 1.5), fp.DTypeError, "no whole number"),
    ):  # fmt: skip
        with raises(kind, text):
            call()


def test_vectors_for_each_matrix():
    b = RNG.standard_normal((2, 3))
    got = linalg.solve(fp.tensor(A), fp.tensor(b)).numpy()
    np.testing.assert_allclose(got, np.linalg.solve(A, b[..., None])[..., 0], rtol=1e-9)


def test_the_gradient_of_a_determinant_that_is_zero():
    x = fp.tensor(np.array([[1.0, 2.0], [2.0, 4.0]]), requires_grad=True)
    np.testing.assert_allclose(linalg.det(x).backward()[x].numpy(), [[4.0, -2.0], [-2.0, 1.0]], atol=1e-12)


def test_vectors_of_full_matrices_have_no_gradient():
    x = fp.tensor(RNG.standard_normal((3, 2)), requires_grad=True)
    assert linalg.svd(x.detach())[0].shape == (3, 3) and linalg.qr(x.detach(), "complete")[0].shape == (3, 3)
    assert linalg.qr(x, "r").shape == (2, 2) and linalg.lstsq(x, x)[1].shape == (2,)
    for f in (linalg.svd, lambda x: linalg.qr(x, "complete")):
        with pytest.raises(fp.GradientError, match="no derivative"):
            f(x)


def test_norms_are_zero_without_a_gradient():
    x = fp.zeros((3,), requires_grad=True)
    for ord in (0.5, 1, 2, 3, float("inf")):
        y = linalg.vector_norm(x, ord)
        assert y.item() == 0.0 and not np.isnan(y.backward()[x].numpy()).any()


def test_captured_on_the_host_and_refused_on_a_gpu(device):
    def step(x):
        s = x @ x.mT + fp.tensor(np.eye(3))
        w, v = linalg.eigh(s)
        loss = linalg.slogdet(s)[1].sum() + (linalg.solve(s, x) ** 2).sum() + (w * v.square().sum(axis=1)).sum() + linalg.det(x).sum()
        return loss, loss.backward()[x]

    run = fp.capture(step)
    if device == "cuda":
        x = fp.tensor(A, requires_grad=True)
        run(x)
        with pytest.raises(fp.CaptureError):
            run(x)
        return
    for n in range(6):
        x = fp.tensor(A + 0.1 * n, requires_grad=True)
        (loss, g), (want, dx) = run(x), step(x)
        assert loss.item() == want.item() and (g.numpy() == dx.numpy()).all()


@pytest.mark.parametrize("options", [{}, {"atol": 0.05}, {"rtol": 1e-2}, {"atol": 0.02, "rtol": 1e-1}, {"atol": 9.0}])
@pytest.mark.parametrize("hermitian", [False, True])
def test_what_pinv_counts_as_zero(options, hermitian):
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.normal(size=(2, 4, 4)))[0] for _ in range(2))
    s = np.array([[5.0, -1.0, 0.3, 0.01], [500.0, 10.0, -3.0, 0.03]])  # all but the least, or the two least, or none
    v = u if hermitian else v
    zero = np.abs(s) <= np.maximum(options.get("atol", 0.0), options.get("rtol", 0.0 if options else 1e-12) * s[:, :1])
    want = (v * np.where(zero, 0.0, 1.0 / s)[:, None]) @ u.mT
    x = fp.tensor((u * s[:, None]) @ v.mT, device="plain", requires_grad=True)
    np.testing.assert_allclose(fp.linalg.pinv(x, hermitian=hermitian, **options).numpy(), want, rtol=1e-9, atol=1e-10)
    if hermitian and not options:  # of the lower triangle alone
        y = fp.linalg.pinv(fp.tril(x.detach()), hermitian=True)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-9, atol=1e-10)
        z = fp.tensor(np.eye(3) + rng.normal(size=(3, 3)) / 9, device="plain", requires_grad=True)
        assert fp.gradcheck(lambda z: fp.linalg.pinv(z + z.mT, hermitian=True), (z,))
    with pytest.raises(fp.ShapeError, match="pinv"):
        fp.linalg.pinv(fp.ones(2, 3, device="plain"), hermitian=True)


def test_matrix_rank_counts_what_is_larger_than_both_limits() -> None:
    u = np.random.default_rng(0).normal(size=(3, 2, 4, 2))
    a = u @ u.swapaxes(-1, -2)
    x = fp.tensor(a, device="plain")
    for sign, hermitian in ((1, False), (1, True), (-1, True)):
        rank = lambda sign=sign, hermitian=hermitian, **k: fp.linalg.matrix_rank(x * sign, hermitian=hermitian, **k).tolist()
        assert rank() == np.linalg.matrix_rank(a).tolist() and rank(atol=1e9) == np.zeros((3, 2)).tolist()
        assert rank(atol=3.0) == np.linalg.matrix_rank(a, 3.0).tolist()
        assert rank(rtol=0.5) == np.linalg.matrix_rank(a, rtol=0.5).tolist()
    assert fp.linalg.matrix_rank(fp.zeros(2, 0, 0, device="plain"), hermitian=True).tolist() == [0, 0]
    with raises(fp.DTypeError, "matrix_rank: hermitian is no yes or no"):
        fp.linalg.matrix_rank(x, hermitian="no")


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize(("n", "m"), [(3, 2), (40, 24)])  # by the kernel, by LAPACK
def test_triangles_of_every_kind(upper, left, unit, n, m, device):
    if device == "cuda" and n > 3:
        return
    a = RNG.standard_normal((2, n, n)) / n + 2.0 * np.eye(n)
    b = RNG.standard_normal((3, 1, n, m) if left else (3, 1, m, n))
    t = np.triu(a, int(unit)) if upper else np.tril(a, -int(unit))
    t = t + unit * np.eye(n)
    a[..., t[0] == 0.0] = np.nan  # nobody reads it
    got = linalg.solve_triangular(fp.tensor(a), fp.tensor(b), upper=upper, left=left, unitriangular=unit).numpy()
    np.testing.assert_allclose(t @ got if left else got @ t, np.broadcast_to(b, got.shape), atol=1e-9)
    if unit:
        return
    a[1, 1, 1] = 0.0
    with raises(linalg.LinAlgError, "solve_triangular: Singular matrix", f"{(2, n, n)}"):
        linalg.solve_triangular(fp.tensor(a), fp.tensor(b[0, 0]), upper=upper, left=left).numpy()


@pytest.mark.engine
def test_a_call_that_lapack_serves_is_written_out(device):
    if device != "cpu":
        return
    x = fp.tensor(A, requires_grad=True)
    for _ in range(3):
        loss = linalg.cholesky(x @ x.mT + fp.tensor(np.eye(3))).sum() + linalg.svd(x)[1].sum() + linalg.det(x).sum()
    calls = [e.call for e in fp.tape(loss) if e.op.title in ("cholesky", "svd", "det")]
    assert [call.run.__code__.co_filename.rpartition("/")[2] for call in calls] == ["chains.py"] * 3


def test_least_squares_of_stacks_that_broadcast():
    a, b = [fp.tensor(RNG.standard_normal(shape), requires_grad=True) for shape in ((2, 1, 4, 2), (3, 4, 2))]
    x, residuals, rank, _ = linalg.lstsq(a, b)
    want = [np.linalg.lstsq(a.numpy()[i, 0], b.numpy()[j], None) for i in range(2) for j in range(3)]
    for got, i in ((x, 0), (residuals, 1)):
        np.testing.assert_allclose(got.numpy(), np.reshape([w[i] for w in want], got.shape), rtol=1e-9)
    assert rank.tolist() == [[2], [2]] and rank.dtype == fp.int64 and not rank.requires_grad
    assert fp.gradcheck(lambda a, b: linalg.lstsq(a, b)[0].sum() + (linalg.lstsq(a, b)[3] ** 3).sum(), (a, b))
    assert linalg.lstsq(fp.ones(3, 0), fp.ones(3, 2))[0].shape == (0, 2)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 3, 5), (1, 1), (0, 3), (2, 3, 0), (20, 16)])  # the last one by LAPACK
def test_small_factors_are_those_of_lapack(shape, device):
    if device == "cuda" and shape == (20, 16):
        return
    x = RNG.standard_normal(shape)
    some = [x, np.zeros(shape), np.triu(x), 1e200 * x, 1e-200 * x, np.where(x > 1.5, np.nan, x)]
    for y in some[: 1 if device == "cuda" else None]:
        scale = np.abs(y).max(initial=0.0) if np.isfinite(y).all() else 1.0
        for got, want, size in zip(linalg.qr(fp.tensor(y)), np.linalg.qr(y), (1.0, scale or 1.0), strict=True):
            np.testing.assert_allclose(got.numpy() / size, want / size, atol=1e-12)


def test_roots_of_small_and_large_matrices_are_lapacks():
    for n in (0, 1, 5, 16, 17):
        a = RNG.standard_normal((2, n, n))
        a = a @ a.mT + n * np.eye(n)
        want, lower = np.linalg.cholesky(a), np.where(np.tri(n, dtype=bool), a, np.nan)
        np.testing.assert_allclose(linalg.cholesky(fp.tensor(lower)).numpy(), want, rtol=1e-9, atol=1e-12)
        for wrong in (-1.0, 0.0, -np.inf) if n else ():
            a[1, -1, -1] = wrong
            with raises(linalg.LinAlgError, "cholesky: Matrix is not positive definite", f"{(2, n, n)}"):
                linalg.cholesky(fp.tensor(a)).numpy()
        if n:
            a[1, -1, -1] = np.nan  # goes on, as in NumPy
            np.testing.assert_array_equal(np.isnan(linalg.cholesky(fp.tensor(a)).numpy()), np.isnan(np.linalg.cholesky(a)))
