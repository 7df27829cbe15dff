"""Where 16-bit floats meet float32: the result is float32, and what the tape keeps of the 16-bit input has 16 bits.

A Python number takes float64 from a tensor beside it, with all its digits. Oracles: the same op on inputs widened by hand; PyTorch for the
two 16-bit types; NumPy for numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F

HALVES = ["float16", "bfloat16"]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


MEETINGS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: b - a,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b * b + 1.0),
    "maximum": fp.maximum,
    "where": lambda a, b: fp.where(a.detach() > b.detach(), a, b),
    "cat": lambda a, b: fp.cat([a, b]),
    "mse": lambda a, b: F.mse_loss(a, b, reduction="none"),
    "broadcast": lambda a, b: a[:1] * b,
}


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", MEETINGS)
def test_16_bits_beside_float32_give_float32(name: str, dtype: str) -> None:
    """The same as if the 16-bit input had been widened by hand: nothing is rounded. What the tape keeps of it has 16 bits."""
    a, b = fp.tensor(draw(6, 5)).to(dtype).requires_grad_(), fp.tensor(draw(6, 5, seed=1)).requires_grad_()
    call = MEETINGS[name]
    for _ in range(3):
        y, wide = call(a, b), call(a.to(fp.float32), b)
        assert y.dtype == fp.float32 and y.numpy().tobytes() == wide.numpy().tobytes()
        g = draw(*y.shape, seed=2)
        mine, theirs = y.backward(gradient=g), wide.backward(gradient=g)
        for leaf in (a, b):
            assert mine[leaf].dtype == fp.float32 and mine[leaf].numpy().tobytes() == theirs[leaf].numpy().tobytes()


def test_16_bits_kept_for_a_product_with_float32_stay_16_bits() -> None:
    a, b = fp.tensor(draw(4)).to(fp.bfloat16).requires_grad_(), fp.tensor(draw(4)).requires_grad_()
    (entry,) = fp.tape(a * b)
    assert entry.saved["a"] is a.buffer


def test_the_two_16_bit_types_meet_in_float32_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = draw(3)
    a, b = fp.tensor(x).to(fp.bfloat16), fp.tensor(x).to(fp.float16)
    theirs = torch.tensor(x).bfloat16() + torch.tensor(x).half()
    assert str(theirs.dtype) == "torch.float32"
    np.testing.assert_array_equal((a + b).numpy(), theirs.numpy())


def test_float64_beside_16_bits_is_still_refused() -> None:
    with pytest.raises(fp.DTypeError, match=r"add: two different float types: bfloat16, float64. Cast one"):
        fp.tensor(draw(3)).to(fp.bfloat16) + fp.tensor(draw(3)).to(fp.float64)


def test_numbers_beside_float64_keep_all_their_digits() -> None:
    a = np.array([0.1, 0.3, 1.0])
    x = fp.tensor(a, requires_grad=True)
    for b in (0.1, np.float64(0.3)):
        np.testing.assert_array_equal(fp.isclose(x, b, rtol=0.0, atol=0.0).numpy(), a == b)
        np.testing.assert_array_equal(fp.isclose(b, x, rtol=0.0, atol=0.0).numpy(), a == b)
        for name in ("dot", "inner", "outer", "kron"):
            y = getattr(fp, name)(x, b)
            np.testing.assert_array_equal(y.numpy(), getattr(np, name)(a, b))
            np.testing.assert_array_equal(y.sum().backward()[x].numpy(), np.full(3, b))
    loss = F.binary_cross_entropy(x, x.detach(), 0.1, reduction="none")
    np.testing.assert_array_equal(loss.numpy(), F.binary_cross_entropy(x, x.detach(), reduction="none").numpy() * 0.1)
    with pytest.raises(fp.DTypeError, match=r"^isclose: two different float types"):
        fp.isclose(x, fp.ones(3))


def test_an_op_of_a_users_gets_its_inputs_as_float32() -> None:
    def scaled_y(a, b):  # type: ignore[no-untyped-def]
        return a * b * 2.0

    def scaled_da(g, b):  # type: ignore[no-untyped-def]
        return g * b * 2.0

    def scaled_db(g, a):  # type: ignore[no-untyped-def]
        return g * a * 2.0

    op = fp.pointwise("scaled_product", scaled_y, scaled_da, scaled_db)
    a, b = fp.tensor(draw(4)).to(fp.bfloat16).requires_grad_(), fp.tensor(draw(4, seed=1)).requires_grad_()
    for _ in range(2):  # defined again, it is the new one that counts
        y = op(a, b)
        np.testing.assert_array_equal(y.numpy(), a.numpy().astype(np.float32) * b.numpy() * 2)
        np.testing.assert_array_equal(y.sum().backward()[b].numpy(), a.numpy().astype(np.float32) * 2)
        op = fp.pointwise("scaled_product", scaled_y, scaled_da, scaled_db)
