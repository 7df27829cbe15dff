"""Spans on the emulated GPU: norms, clipping and AdamW over many small and few large gradients, packed and loose, against PyTorch; what a
norm that is not finite does; the same bits twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import emulated_gpu

import flamepy as fp
from flamepy.gradient import GradientMap

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
torch = pytest.importorskip("torch")

SIZES = {"many small": [1, 2, 3, 5, 7, 33] * 9, "few large": [40_001, 16_384, 9], "one": [1]}


def arrays(sizes: list[int], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng((seed, len(sizes)))
    return [rng.standard_normal(size).astype(np.float32) for size in sizes]


def parameters(sizes: list[int], packed: bool, dtype: str = "float32") -> list[Any]:
    found = fp.ParameterDict()
    for k, values in enumerate(arrays(sizes, 0)):
        found.insert(f"p{k}", fp.Parameter(fp.tensor(values, device=emulated_gpu()).to(dtype)))
    if packed:
        found.pack()
    return list(found.parameters())


def gradients(params: list[Any], sizes: list[int], seed: int = 1) -> GradientMap:
    grads = GradientMap()
    for p, values in zip(params, arrays(sizes, seed), strict=True):
        grads.insert(p, fp.tensor(values, device=emulated_gpu()))
    return grads


def twins(sizes: list[int], seed: int = 1) -> list[Any]:
    found = [torch.nn.Parameter(torch.tensor(values)) for values in arrays(sizes, 0)]
    for p, values in zip(found, arrays(sizes, seed), strict=True):
        p.grad = torch.tensor(values)
    return found


def exact_norm(sizes: list[int], order: float) -> float:
    return float(np.linalg.norm(np.concatenate(arrays(sizes, 1)).astype(np.float64), order))


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
@pytest.mark.parametrize("name", SIZES)
def test_the_norm_and_clipping(name: str, packed: bool) -> None:
    sizes = SIZES[name]
    params, order = parameters(sizes, packed), 2.0
    for limit in (1e9, 0.5):
        grads, others = gradients(params, sizes), twins(sizes)
        norm = fp.clip_grad_norm(grads, limit, norm_type=order)
        np.testing.assert_allclose(norm, exact_norm(sizes, order), 1e-7)
        torch.nn.utils.clip_grad_norm_(others, limit)
        for p, other in zip(params, others, strict=True):
            np.testing.assert_allclose(grads[p].numpy(), other.grad.numpy(), 1e-6, 1e-9)


@pytest.mark.parametrize("order", [1.0, 3.0, float("inf")])
def test_norms_of_other_orders(order: float) -> None:
    sizes = SIZES["few large"]
    grads = gradients(parameters(sizes, False), sizes)
    np.testing.assert_allclose(fp.clip_grad_norm(grads, 1e9, norm_type=order), exact_norm(sizes, order), 1e-7)


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
@pytest.mark.parametrize("name", SIZES)
def test_clip_then_adamw(name: str, packed: bool) -> None:
    sizes, options = SIZES[name], {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}
    params, others = parameters(sizes, packed), twins(sizes)
    ours, theirs = fp.AdamW(params, **options), torch.optim.AdamW(others, **options)
    for step in range(3):
        grads = gradients(params, sizes, 5 + step)
        for other, values in zip(others, arrays(sizes, 5 + step), strict=True):
            other.grad = torch.tensor(values)
        fp.clip_grad_norm(grads, 0.7)
        torch.nn.utils.clip_grad_norm_(others, 0.7)
        ours.step(grads)
        theirs.step()
    for p, other in zip(params, others, strict=True):
        np.testing.assert_allclose(p.numpy(), other.detach().numpy(), 2e-6, 2e-7)


def test_a_norm_that_is_not_finite_changes_nothing() -> None:
    sizes = SIZES["many small"]
    params = parameters(sizes, True)
    before, optimizer = [p.numpy().copy() for p in params], fp.AdamW(params, lr=0.1)
    grads = gradients(params, sizes)
    grads.insert(params[4], fp.tensor(np.full(sizes[4], np.inf, np.float32), device=emulated_gpu()))
    assert not np.isfinite(fp.clip_grad_norm(grads, 1.0, nonfinite="skip"))
    assert optimizer.step(grads) is False
    assert all((old == p.numpy()).all() for old, p in zip(before, params, strict=True))


@pytest.mark.parametrize("act", ["norm", "update"])
def test_the_same_bits_each_time(act: str) -> None:
    sizes = SIZES["few large"]

    def made() -> bytes:
        params = parameters(sizes, True)
        grads = gradients(params, sizes)
        if act == "norm":
            return np.float64(fp.clip_grad_norm(grads, 0.3)).tobytes()
        fp.AdamW(params, lr=0.01).step(grads)
        return b"".join([p.numpy().tobytes() for p in params])

    assert made() == made()


def test_sixteen_bits_have_float32_masters() -> None:
    sizes = [4097, 3]
    params = parameters(sizes, False, "bfloat16")
    optimizer = fp.AdamW(params, lr=1e-4, weight_decay=0.0)
    start = [p.to("float32").numpy().copy() for p in params]
    for step in range(8):  # steps that 16 bits alone would lose
        optimizer.step(gradients(params, sizes, 20 + step % 2))
    for p, old, values in zip(params, start, arrays(sizes, 20), strict=True):
        t = torch.nn.Parameter(torch.tensor(old))
        theirs = torch.optim.AdamW([t], lr=1e-4, weight_decay=0.0)
        for step in range(8):
            t.grad = torch.tensor(values if step % 2 == 0 else arrays(sizes, 21)[sizes.index(values.size)])
            theirs.step()
        np.testing.assert_allclose(p.to("float32").numpy(), t.detach().numpy(), 2**-8, 1e-6)
