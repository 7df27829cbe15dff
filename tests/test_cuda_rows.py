"""Rows on the emulated GPU against PyTorch in float64: softmax, norms and cross-entropy, forward and backward, in every type and shape.

Shapes: rows that some lanes share element by element, rows near in which lanes take neighbours at once, rows that do not fit into shared
memory. Buffers begin at odd places. Then NaN and infinities, no rows, the same bits twice, and what the machine code reads and writes.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from cuda_tools import TARGETS, check_code, for_gpu, machine_code, needs_nvdisasm, up
from devices import emulated_gpu
from elf_tools import listings

from flamepy.cuda.kernels import LINE, nvdisasm
from flamepy.dtypes import bfloat16, computed, float16, float32, float64
from flamepy.ops import loss_bodies, norm_bodies, rows

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
torch = pytest.importorskip("torch")

LEAST = {bfloat16: 6e-3, float16: 8e-4, float32: 2e-6, float64: 1e-13}
FAR = {2: 25009, 4: 12507, 8: 6253}  # numbers of a row that is not near, by their bytes


def draw(seed: int, *shape: int, dtype: Any = float64) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def run(body: Any, outs: Any, ins: Any, consts: Any, wide: Any, at: int = 0, name: str = "row") -> list[Any]:
    """What the outs, each (size, dtype) or None, hold after a launch; all buffers begin `at` elements into others."""
    gpu = emulated_gpu()
    made = [None if o is None else up(gpu, np.full(o[0], 7, np.float32).astype(o[1]), at) for o in outs]
    gpu.launch(name, body, made, [up(gpu, x, at) for x in ins], consts, wide)
    return [None if b is None else np.array(gpu.download(b)) for b in made]


def close(found: Any, exact: Any, dtype: Any, terms: float = 0.0) -> None:
    """Within rounding of the largest number, or of the terms that it is a difference of."""
    exact = np.asarray(exact, float64).reshape(-1)
    least = LEAST[dtype] * max(terms, np.abs(exact).max(initial=0))
    np.testing.assert_allclose(np.asarray(found, float64), exact, LEAST[dtype], least)


def leaf(x: np.ndarray) -> Any:
    return torch.tensor(x.astype(float64), requires_grad=True)


# ---- softmax ----------------------------------------------------------------------------------------------------------------------------
SOFT = {"softmax": (rows.softmax_row, rows.softmax_dx_row), "log_softmax": (rows.log_softmax_row, rows.log_softmax_dx_row)}
CASES = [
    ("softmax", float32, 1, 0), ("softmax", float32, 16, 1), ("softmax", bfloat16, 37, 1), ("softmax", float16, 1001, 3),
    ("softmax", float32, 600, 1), ("softmax", bfloat16, FAR[2], 1), ("softmax", float64, FAR[8], 1), ("log_softmax", float32, FAR[4], 0),
    ("log_softmax", bfloat16, 1025, 1), ("log_softmax", float64, 37, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "cols", "at"), CASES, ids=str)
def test_softmax_and_its_gradient(name: str, dtype: Any, cols: int, at: int) -> None:
    many, wide = 3 if cols > 2000 else 11, computed(dtype)
    x, g = 3 * draw(0, many, cols, dtype=dtype), draw(1, many, cols, dtype=wide)
    (body, dx_body), t = SOFT[name], leaf(x)
    if dtype in (bfloat16, float16) and name == "softmax":
        body = rows.half_softmax_row
    y = getattr(torch, name)(t, -1)
    y.backward(torch.tensor(g.astype(float64)))
    (found,) = run(body, [(x.size, dtype)], [x], (many, cols), wide, at)
    close(found, y.detach().numpy(), dtype)
    (dx,) = run(dx_body, [(x.size, wide)], [g, y.detach().numpy().astype(dtype)], (many, cols), wide, at)
    close(dx, t.grad.numpy(), dtype)


# ---- cross-entropy ----------------------------------------------------------------------------------------------------------------------
LOSSES = [
    (bfloat16, 1, 0), (bfloat16, 37, 1), (bfloat16, 1001, 0), (float16, FAR[2], 1), (bfloat16, 50257, 0), (float32, 600, 1),
    (float32, FAR[4], 1), (float64, 37, 0),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "cols", "at"), LOSSES, ids=str)
@pytest.mark.parametrize(("mean", "smoothing"), [(True, 0.0), (False, 0.1)], ids=["mean", "none, smoothed"])
def test_cross_entropy_and_its_gradient(dtype: Any, cols: int, at: int, mean: bool, smoothing: float) -> None:
    many, wide = 3 if cols > 2000 else 11, computed(dtype)
    x, ids = 3 * draw(2, many, cols, dtype=dtype), np.random.default_rng(cols).integers(0, cols, many)
    ids[1] = -100
    t, weight = leaf(x), None if mean else 1 + draw(11, cols, dtype=wide) ** 2
    given = None if mean else torch.tensor(weight.astype(float64))
    losses = torch.nn.functional.cross_entropy(t, torch.tensor(ids), given, reduction="none", label_smoothing=smoothing)
    g = np.full(1, 0.75, wide) if mean else draw(3, many, dtype=wide)
    losses.backward(torch.tensor(np.broadcast_to(g / (many - 1 if mean else 1), many).astype(float64)))
    small, size, found, one = wide.type(smoothing), x.size, np.array([-1, 0, many - 1]), (many, wide)
    if wide == dtype:
        consts = small, wide.type(0), -100, mean, many, cols
        loss, dx = run(loss_bodies.cross_entropy_row, [one, (size, wide)], [x, ids, found, weight], consts, wide, at)
        dx = dx.reshape(many, cols) * g[:, None]
    else:
        consts = small, wide.type(0), -100, many, cols
        loss, kept = run(loss_bodies.half_cross_entropy_row, [one, (2 * many, wide)], [x, ids, weight], consts, wide, at)
        consts = small, wide.type(0), -100, mean, not mean, many, cols
        (dx,) = run(loss_bodies.half_cross_entropy_dx_row, [(size, wide)], [g, x, ids, found, kept, weight], consts, wide, at)
    close(loss, losses.detach().numpy(), wide)
    close(dx.reshape(-1), t.grad.numpy(), wide, np.abs(g).max() / (many - 1 if mean else 1))


# ---- norms ------------------------------------------------------------------------------------------------------------------------------
NORMS = [
    ("layer", float32, 37, 1), ("layer", bfloat16, 1001, 0), ("layer", float32, FAR[4], 0), ("layer", float64, 600, 1),
    ("rms", float16, 600, 1), ("rms", float32, 5, 0), ("rms", bfloat16, FAR[2], 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "cols", "at"), NORMS, ids=str)
def test_norms_and_their_gradients(name: str, dtype: Any, cols: int, at: int) -> None:
    many, wide, layer = 3 if cols > 2000 else 37, computed(dtype), name == "layer"
    x, w, b, g = draw(4, many, cols, dtype=dtype), draw(5, cols, dtype=dtype), draw(6, cols, dtype=dtype), draw(7, many, cols, dtype=wide)
    t, u, v = leaf(x), leaf(w), leaf(b)
    if layer:
        y = torch.nn.functional.layer_norm(t, (cols,), u, v, 1e-5)
    else:
        y = torch.nn.functional.rms_norm(t, (cols,), u, 1e-5)
    y.backward(torch.tensor(g.astype(float64)))
    eps, size = wide.type(1e-5), x.size
    if layer:
        outs, ins, body = [(size, dtype), (2 * many, wide), (many, wide)], [x, w, b], norm_bodies.layer_norm_row
    else:
        outs, ins, body = [(size, dtype), (many, wide)], [x, w], norm_bodies.rms_norm_row
    found, *kept = run(body, outs, ins, (eps, many, cols), wide, at)
    close(found, y.detach().numpy(), dtype)
    ins, outs = [g, None, x, w, *(kept if layer else [None, *kept])], [(size, wide), (cols, wide), (cols, wide) if layer else None]
    dx, dw, db = run(norm_bodies.norm_dx_row, outs, ins, (2 if layer else 1, False, False, many, cols), wide, at, "row_sums")
    close(dx, t.grad.numpy(), dtype)
    close(dw, u.grad.numpy(), dtype)
    assert not layer or close(db, v.grad.numpy(), dtype) is None


@pytest.mark.parametrize(("dtype", "cols"), [(float32, 600), (bfloat16, 1001), (float32, FAR[4])], ids=str)
def test_a_residual_and_its_norm(dtype: Any, cols: int) -> None:
    x, residual, w = draw(8, 3, cols, dtype=dtype), draw(9, 3, cols, dtype=dtype), draw(10, cols, dtype=dtype)
    s = (x.astype(float64) + residual.astype(float64)).astype(dtype)
    body = norm_bodies.residual_norm_row if dtype == float32 else norm_bodies.half_residual_norm_row
    outs = [(x.size, dtype), (x.size, dtype), (6, float32), (3, float32)]
    sums, y, _, _ = run(body, outs, [x, residual, w, None], (float32.type(1e-5), 3, cols), float32)
    np.testing.assert_array_equal(sums, s.reshape(-1))
    exact = torch.nn.functional.layer_norm(leaf(x) + leaf(residual), (cols,), leaf(w), None, 1e-5)
    close(y, exact.detach().numpy(), dtype)


# ---- at the edge ------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cols", [37, 600, FAR[4]])
def test_rows_with_nan_and_infinities(cols: int) -> None:
    x = draw(11, 6, cols, dtype=float32)
    lowest = np.finfo(np.float32).min
    x[0, cols // 2], x[1, 1], x[2, ::2], x[3], x[4] = np.nan, np.inf, -np.inf, -np.inf, lowest
    exact = torch.softmax(torch.tensor(x.astype(float64)), -1).numpy()
    exact[4] = 1 / cols
    (found,) = run(rows.softmax_row, [(x.size, float32)], [x], (6, cols), float32)
    found = found.reshape(x.shape)
    assert np.isnan(found[[0, 1, 3]]).all() and (found[2, ::2] == 0).all()
    close(found[[2, 4, 5]].reshape(-1), exact[[2, 4, 5]], float32)
    ids = np.zeros(6, np.int64) + 1
    ins, consts = [x, ids, np.array([-1, 0, 6]), None], (float32.type(0), float32.type(0), -100, True, 6, cols)
    loss, _ = run(loss_bodies.cross_entropy_row, [(6, float32), None], ins, consts, float32)
    assert np.isnan(loss[[0, 1, 3]]).all()
    close(loss[[2, 4, 5]], -np.log(exact[[2, 4, 5], 1]), float32)


def test_no_rows_and_rows_of_one() -> None:
    gpu = emulated_gpu()
    before = gpu.launched
    dw = up(gpu, np.full(5, 7, np.float32))
    none = gpu.empty(0, float32)
    gpu.launch(
        "row_sums", norm_bodies.norm_dx_row, (none, dw, None), (none, None, none, none, None, none), (1, False, False, 0, 5), float32
    )
    assert gpu.launched == before + 1 and not gpu.download(dw).any()
    x = draw(12, 9, 1, dtype=float32)
    (found,) = run(rows.softmax_row, [(9, float32)], [x], (9, 1), float32)
    np.testing.assert_array_equal(found, 1)


@pytest.mark.parametrize("cols", [600, FAR[4]])
def test_the_same_bits_each_time(cols: int) -> None:
    x = draw(13, 5, cols, dtype=float32)
    first, again = (run(rows.softmax_row, [(x.size, float32)], [x], (5, cols), float32)[0] for _ in range(2))
    assert first.tobytes() == again.tobytes()


# ---- machine code -----------------------------------------------------------------------------------------------------------------------
def test_the_machine_code_of_many_kernels_is_read_at_once() -> None:
    """As it would be kernel by kernel, calls of slow paths too."""
    needs_nvdisasm()
    gpu = emulated_gpu()
    for dtype in (float32, float64):
        run(rows.softmax_row, [(37, dtype)], [draw(14, 1, 37, dtype=dtype)], (1, 37), dtype)
    made = [k.binary(kinds) for k in gpu.kernels.values() if k.formula is rows.softmax_row for kinds in k.variants]
    for cc in TARGETS[:2]:
        cubins = [for_gpu(binary, cc).cubin()[0] for binary in made[-2:]]
        many, alone = ([instructions_of(text) for text in texts] for texts in (listings(cubins), map(nvdisasm, cubins)))
        assert many == alone
        assert "CALL" in str(alone)


def instructions_of(text: str) -> list[str]:
    """Labels have other numbers in each file."""
    return [re.sub(r"\.L_x_\d+", ".L", line) for line in text.splitlines() if LINE.match(line) and not line.startswith(".L")]


def test_machine_code() -> None:
    gpu, far = emulated_gpu(), "far_row_512_of_512_wide_"
    for case in (("softmax", bfloat16, FAR[2], 1), ("softmax", float64, FAR[8], 1)):
        test_softmax_and_its_gradient(*case)
    test_cross_entropy_and_its_gradient(float16, FAR[2], 1, False, 0.1)
    test_norms_and_their_gradients("rms", bfloat16, FAR[2], 0)
    check_code(gpu, {far + "half_cross": "LDG", far + "softmax_": "LDG", far + "rms": "LDG"})
    for name, log, text in machine_code(gpu, (far + "half_cross", far + "softmax_")):
        assert int(re.search(r"Used (\d+) registers", log)[1]) <= (128 if "float64" in name else 64), name
        assert re.search(r"LDG\.E\.128" if "dx" not in name else r"LDG\.E\.64.*\n(.*\n)*.*STG\.E\.128|LDG\.E\.128", text), name
