"""Attention by cuDNN, played by a stand-in: which calls it gets, that it is taken only where it agrees, and what is remembered."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cudnn_standin import Cudnn
from devices import emulated_gpu

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.backend.cuda.attention import cudnn
from flamepy.core import device as seam
from flamepy.engine import kept

SHAPE = 2, 2, 16, 16  # batch, heads, rows, width


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Callable[..., Cudnn]]:
    """Gives the emulated GPU a stand-in; what is chosen is kept in a file of the test's own."""
    device: Any = emulated_gpu()
    monkeypatch.setitem(seam._devices, "cuda", device)

    def forget() -> None:
        """Plans of calls hold on to the kernels that were chosen."""
        kept._specs.clear()
        for each in kept.forgetting:
            each()

    def install(**options: Any) -> Cudnn:
        forget()
        played = Cudnn(device.driver, **options)
        found = cudnn.Library(played, device.driver)
        found.file = tmp_path / "chosen.json"
        monkeypatch.setattr(device.driver, "cudnn", found, raising=False)
        return played

    yield install
    forget()


def operands(dtype: str = "bfloat16", shape: tuple[int, ...] = SHAPE) -> list[Any]:
    """q, k and v as a model has them: views of one product, (batch, rows, 3 * heads * width)."""
    batch, heads, rows, width = shape
    draw = np.random.default_rng(2).standard_normal((batch, rows, 3 * heads * width)).astype("f4")
    qkv = fp.tensor(draw, device="cuda").to(getattr(fp, dtype))
    qkv.requires_grad = True
    parts = qkv.split(heads * width, axis=-1)
    return [qkv, *[p.reshape((batch, rows, heads, width)).permute((0, 2, 1, 3)) for p in parts]]


def attended(dtype: str, causal: bool, **more: Any) -> list[np.ndarray]:
    """Result and gradient."""
    qkv, q, k, v = operands(dtype, **more)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    g = (y.to(fp.float32) * fp.tensor(np.arange(y.size, dtype="f4").reshape(y.shape) / y.size, device="cuda")).sum().backward()[qkv]
    return [t.to(fp.float32).numpy() for t in (y, g)]


@pytest.mark.parametrize("dtype, causal", [("bfloat16", True), ("float16", False)])
def test_it_is_taken_where_it_agrees_and_gives_what_torch_gives(library, dtype, causal):
    torch = pytest.importorskip("torch")
    played = library()
    got = attended(dtype, causal)
    once = ["sdpa", *(["sdpa_backward"] if dtype == "bfloat16" else [])]  # float16 has no room for small gradients
    assert played.executed == [what for what in once for _ in range(2)]  # one to compare, one for the result
    assert played.streams == [fp.device("cuda").driver.handle]  # type: ignore[attr-defined]
    batch, heads, rows, width = SHAPE
    qkv = torch.tensor(operands(dtype)[0].to(fp.float32).numpy(), requires_grad=True)
    q, k, v = (p.reshape(batch, rows, heads, width).transpose(1, 2) for p in qkv.split(heads * width, -1))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    (y * (torch.arange(y.numel()).reshape(y.shape) / y.numel())).sum().backward()
    for a, b in zip(got, (y.detach().numpy(), qkv.grad.numpy()), strict=True):
        assert np.abs(a - b).max() <= 2.0**-6 * np.abs(b).max()
    again = attended(dtype, causal)
    assert played.executed[2 * len(once) :] == once
    assert all((a == b).all() for a, b in zip(again, got, strict=True))


def test_a_wrong_one_is_refused_aloud_and_not_asked_again(library):
    library(refuses=True)
    right = attended("bfloat16", True)
    fp.device("cuda").driver.cudnn.file.unlink()  # type: ignore[attr-defined]
    played = library(off=1.25)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = attended("bfloat16", True)
    texts = [str(w.message) for w in caught]
    for text, name in zip(texts, ("attention", "attention's backward"), strict=True):
        assert text.startswith(f"cudnn: not used for {name} of (2, 2, 16, 16, 16, 16): it is 2.5e-01 apart from our own kernels")
    assert all((a == b).all() for a, b in zip(got, right, strict=True)) and played.executed
    later = library(off=1.25)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attended("bfloat16", True)
    assert not later.executed


def test_sizes_it_does_not_know_go_to_our_own_kernels_quietly(library):
    played = library(refuses=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attended("bfloat16", False)
    assert not played.executed


@pytest.mark.parametrize("dtype, shape", [("float32", SHAPE), ("bfloat16", (1, 2, 5, 12))])
def test_other_operands_are_not_offered(library, dtype, shape):
    played = library()
    attended(dtype, True, shape=shape)
    _, q, k, v = operands()
    F.scaled_dot_product_attention(q, k, v, attn_mask=fp.zeros((16, 16), device="cuda")).numpy()
    assert not played.executed


def test_a_captured_step_takes_it(library):
    played = library()
    weight = fp.Parameter(operands()[0].detach().to(fp.float32))

    def step(x: Any) -> Any:
        parts = (weight * x).to(fp.bfloat16).split(32, axis=-1)
        q, k, v = (p.reshape((2, 16, 2, 16)).permute((0, 2, 1, 3)) for p in parts)
        loss = F.scaled_dot_product_attention(q, k, v, is_causal=True).to(fp.float32).sum()
        return loss, loss.backward()[weight]

    captured, x = fp.capture(step), fp.ones((2, 16, 96), device="cuda")
    found = [[t.numpy() for t in captured(x)] for _ in range(4)]
    assert captured.program is not None
    assert all((a == b).all() for other in found[1:] for a, b in zip(other, found[0], strict=True))
    assert len(played.executed) == 10


@pytest.mark.parametrize("number", [0.0, float("nan")])
def test_operands_that_say_nothing_decide_nothing(library, number):
    """A wrong library agrees on zeros, a right one on no NaN: neither is remembered."""
    played = library(off=1.25)
    _, q, k, v = operands()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.scaled_dot_product_attention(q, k, v * number).numpy()
    assert played.executed and not emulated_gpu().driver.cudnn.choices()
