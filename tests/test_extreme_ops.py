"""Every smooth op at every magnitude: scales, offsets, constants, signed zeros, denormal numbers, infinities and NaN in float32.

The oracle is PyTorch in float64 on the same numbers, rounded to float32. An error is measured against the largest number of its row
of the exact result, or the scale of the terms that cancel there (FLOORS); it may be 4 epsilons of float32 for a result, 16 for a
gradient. Where the exact result is infinite or NaN, so must ours be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F

torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")
TF = torch.nn.functional
pytestmark = pytest.mark.usefixtures("device")

Array = np.ndarray
EPSILON, TINY = 2.0**-23, 2.0**-126
SIZES = (1e-30, 1e-8, 1.0, 1e4, 1e8, 1e19, 1e30)
COLUMNS = (1, 2, 63, 64, 65)


def pairs(names: str, ours: Any, theirs: Any) -> dict[str, tuple[Callable, Callable]]:
    return {name: (getattr(ours, name), getattr(theirs, name)) for name in names.split()}


def along(name: str, axis: int, **more: Any) -> tuple[Callable, Callable]:
    return lambda x: getattr(fp, name)(x, axis=axis), lambda x: getattr(torch, name)(x, dim=axis, **more)


def ids(rows: int) -> Array:
    return np.zeros(rows, np.int64)


def layer_norm(x: Any) -> Any:
    """PyTorch's own loses a constant row's gradient."""
    d = x - x.mean(1, keepdim=True)
    return d / torch.sqrt((d * d).mean(1, keepdim=True) + 1e-5)


def logsumexp(x: Any) -> Any:
    """PyTorch's own gradient, exp(x - result), is wrong where x is large."""
    top = x.detach().amax(1, keepdim=True)
    return torch.log(torch.exp(x - top).sum(1)) + top[:, 0]


ONE: dict[str, tuple[Callable, Callable]] = {
    **pairs("neg exp log sqrt rsqrt reciprocal square tanh sigmoid erf relu", fp, torch),
    **pairs("leaky_relu elu gelu silu softplus", F, TF),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda x: TF.gelu(x, approximate="tanh")),
    "clamp": (lambda x: fp.clamp(x, -1.0, 2.0), lambda x: torch.clamp(x, -1.0, 2.0)),
    **{f"{name} {axis}": along(name, axis) for name in ("sum", "mean", "softmax", "log_softmax") for axis in (0, 1)},
    **{f"{name} {axis}": along(name, axis, correction=0) for name in ("var", "std") for axis in (0, 1)},
    "logsumexp": (lambda x: fp.logsumexp(x, axis=1), logsumexp),
    "layer_norm": (F.layer_norm, layer_norm),
    "rms_norm": (F.rms_norm, lambda x: TF.rms_norm(x, x.shape[-1:], eps=1e-5)),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, ids(x.shape[0]), reduction="none"),
        lambda x: TF.cross_entropy(x, torch.tensor(ids(x.shape[0])), reduction="none"),
    ),
}
TWO = {
    **pairs("add sub mul div maximum minimum", fp, torch),
    **{
        name: (partial(ours, reduction="none"), partial(theirs, reduction="none"))
        for name, (ours, theirs) in pairs("mse_loss l1_loss smooth_l1_loss huber_loss", F, TF).items()
    },
}


def magnitudes(axis: int) -> Callable[[Array], tuple[Any, Any]]:
    return lambda x: (abs(x).sum(axis=axis), TINY)


def slope(x: Array) -> tuple[Any, Any]:
    """A norm's results lie around 1; its gradient is made of numbers around 1 / sqrt(mean square + eps) that may cancel."""
    return np.minimum(1.0, 316 * abs(x).max()), 16 / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5)


def spread(x: Array) -> tuple[Any, Any]:
    """A float32 mean is off by an epsilon of the numbers: the same for the gradient, its square for the variance."""
    return (EPSILON * abs(x).max()) ** 2, EPSILON * abs(x).max() / EPSILON / x.size


def at_one(x: Array) -> tuple[Any, Any]:
    return TINY, 1.0


# Of an input: the least that the errors of the result and of the gradient are measured against.
FLOORS: dict[str, Callable[[Array], tuple[Any, Any]]] = {
    "sum 0": magnitudes(0), "sum 1": magnitudes(1), "mean 0": magnitudes(0), "mean 1": magnitudes(1),
    "tanh": at_one, "sigmoid": at_one, "gelu tanh": at_one, "softmax 0": at_one, "softmax 1": at_one,
    "var 0": spread, "var 1": spread, "rms_norm": slope, "layer_norm": lambda x: (slope(x)[0], slope(x - x.mean(axis=1, keepdims=True))[1]),
}  # fmt: skip
RESULT, GRADIENT = 4.0, 16.0


def left_out(name: str, size: float) -> bool:
    """Squares of 1e19, and quotients by denormal numbers, may overflow before they are summed or multiplied."""
    return size > 1e18 if name.startswith("var") else 0 < size < TINY if name == "div" else False


def inputs() -> Iterator[tuple[str, Array]]:
    """Rows of every length at every size, and what is special: two rows each."""
    rng = np.random.default_rng(0)
    for cols in COLUMNS:
        for size in SIZES:
            x = rng.standard_normal((2, cols))
            yield f"scale {size:g}, {cols} columns", x * size
            yield f"offset {size:g}, {cols} columns", x + size
            yield f"offset -{size:g}, {cols} columns", x - size
            yield f"constant {size:g}, {cols} columns", np.full((2, cols), size)
    for value in (0.0, -0.0, 1e-40, -1e-40):
        yield f"constant {value}", np.full((2, 65), value)


def specials() -> Iterator[tuple[str, Array]]:
    rng = np.random.default_rng(1)
    for value in (np.inf, -np.inf, np.nan):
        for place in (0, 1, 63, 64):
            x = rng.standard_normal((2, 65))
            x[1, place] = value
            yield f"{value} at {place}", x


def both(ours: Callable, theirs: Callable, arrays: list[Array]) -> list[tuple[Array, Array]]:
    """(got, want) of the result and of each gradient, under a cotangent of random numbers."""
    leaves = [fp.tensor(a, requires_grad=True) for a in arrays]
    exact = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
    y, want = ours(*leaves), theirs(*exact)
    g = np.random.default_rng(2).standard_normal(tuple(want.shape)).astype(np.float32)
    grads = y.backward(fp.tensor(g))
    wanted = torch.autograd.grad(want, exact, torch.tensor(g.astype(np.float64)))
    return [(y.numpy(), want.detach().numpy()), *[(grads[t].numpy(), w.numpy()) for t, w in zip(leaves, wanted, strict=True)]]


def worst_error(got: Array, want: Array, floor: Any) -> float:
    """The largest error in epsilons of the row's largest exact number, or of `floor`; infinite where one is finite and the other not."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        finite = np.isfinite(rounded)
        if not np.array_equal(got[~finite], rounded[~finite], equal_nan=True):
            return float("inf")
        known = np.where(finite, abs(want), 0)
        size = known.max(axis=-1, keepdims=True, initial=0) if want.ndim > 1 else known
        return float(np.where(finite, abs(got - want) / np.maximum(size, np.maximum(floor, TINY)), 0).max(initial=0)) / EPSILON


def check(name: str, cases: Iterator[tuple[str, Array]]) -> None:
    ours, theirs = ONE.get(name) or TWO[name]
    found = []
    for label, x in cases:
        x = x.astype(np.float32)
        if left_out(name, abs(x).max()):
            continue
        arrays = [x] if name in ONE else [x, x * np.float32(0.5) + x[::-1] * np.float32(0.25)]
        floors = FLOORS.get(name, lambda x: (TINY, TINY))(x.astype(np.float64))
        for i, (got, want) in enumerate(both(ours, theirs, arrays)):
            error = worst_error(got, want, floors[i > 0])
            if not error <= (GRADIENT if i else RESULT):
                found.append((error, label, "gradient" if i else "result"))
    assert not found, (len(found), sorted(found, reverse=True)[:8])


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_op_at_every_magnitude(name: str) -> None:
    check(name, inputs())


# Matters of choice: sign(NaN) is NaN here, a variance with an infinity is NaN. And the formula for logsumexp above does not hold for
# infinities.
CHOICES = (
    "elu",
    "logsumexp",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "var 0",
    "var 1",
    "gelu tanh",
    "layer_norm",
    "rms_norm",
)


@pytest.mark.parametrize("name", [n for n in (*ONE, *TWO) if n not in CHOICES])
def test_infinities_and_nan_wherever_they_stand(name: str) -> None:
    check(name, specials())


NAN_ROWS = {
    **{name: (getattr(fp, name), getattr(torch, f"a{name}")) for name in ("max", "min")},
    "layer_norm": (F.layer_norm, lambda x: TF.layer_norm(x, x.shape[-1:])),
    "clamp": (lambda x: fp.clamp(x, -1.0, 1.0), lambda x: torch.clamp(x, -1.0, 1.0)),
    "maximum": (lambda x: fp.maximum(x, 0.0), lambda x: torch.maximum(x, torch.zeros((), dtype=x.dtype))),
}


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("name", NAN_ROWS)
def test_a_nan_gives_the_gradients_of_pytorch(name: str, dtype: str) -> None:
    """Never a finite gradient where PyTorch's is NaN, also in rows of one number, all NaN, or beside an infinity."""
    ours, theirs = NAN_ROWS[name]
    for row in ([np.nan], [0.5, np.nan], [np.nan, np.nan], [np.nan, np.inf, 2.0]):
        x = fp.tensor(row).to(getattr(fp, dtype)).requires_grad_(True)
        exact = torch.tensor(row, dtype=getattr(torch, dtype), requires_grad=True)
        theirs(exact).sum().backward()
        got = ours(x).sum().backward()[x].to(fp.float64).numpy()
        np.testing.assert_array_equal(got, exact.grad.double().numpy(), f"{name} of {row}")


SECOND = {
    **pairs("elu gelu silu softplus", F, TF),
    "logits": (
        lambda x: F.binary_cross_entropy_with_logits(x, fp.zeros_like(x), reduction="none"),
        lambda x: TF.binary_cross_entropy_with_logits(x, torch.zeros_like(x), reduction="none"),
    ),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_at_zero_and_far_out(name: str) -> None:
    """No infinity that is multiplied by 0, and no kink where the function has none (elu has one)."""
    ours, theirs = SECOND[name]
    x = np.array([-1000, -100, -89, -1, 1, 89, 100, 1000] + [-0.0, 0] * (name != "elu"), np.float32)
    leaf, exact = fp.tensor(x, requires_grad=True), torch.tensor(x.astype(np.float64), requires_grad=True)
    first = ours(leaf).sum().backward(create_graph=True)[leaf]
    (want,) = torch.autograd.grad(theirs(exact).sum(), exact, create_graph=True)
    second = (first * first).sum().backward()[leaf].numpy()
    np.testing.assert_allclose(second, torch.autograd.grad((want * want).sum(), exact)[0].numpy(), 1e-5, 1e-30)


def test_second_derivatives_of_powers_with_numbers() -> None:
    """A condition on a number meets one on a Tensor, and a derivative may be a number."""
    x = fp.tensor(np.array([-1, 0, 0.5, 2], np.float32), requires_grad=True)
    for y, second in ((2.0**x, np.log(2) ** 2 * 2.0 ** x.numpy()), (x**0, np.zeros(4))):
        first = y.sum().backward(create_graph=True)[x]
        np.testing.assert_allclose((first + x).sum().backward()[x].numpy(), second + 1, 1e-6)
