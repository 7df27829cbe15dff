"""Products by cuBLASLt, played by a stand-in that checks every argument: which ends are the library's, what is left to kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from devices import cuda_device, emulated_gpu
from error_text import raises
from test_cuda_products import GELU, close, launch, normal, up, wide

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.backend.cuda.products import blas
from flamepy.backend.run import Step
from flamepy.dtypes import bfloat16, float32, float64
from flamepy.errors import EmulationError
from flamepy.ops.products import follower

from flamepy.backend.cuda.runtime import build  # isort: skip
from cublas_standin import Standin  # isort: skip
from flamepy.backend.cuda.runtime.stream import CudaStream


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """The emulated GPU with a library of products, whose choices are kept in a folder of the test."""
    device = emulated_gpu()
    monkeypatch.setattr(build, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(device.driver, "blas", blas.Blas(Standin(device.driver), device.driver))
    return device


@pytest.fixture
def precise() -> Iterator[None]:
    before = fp.get_float32_matmul_precision()
    yield
    fp.set_float32_matmul_precision(before)


def made(gpu: Any) -> list[str]:
    """How the products since the last look ended."""
    log = gpu.driver.blas.lib.log
    found = log[:]
    log.clear()
    return found


def linear(gpu: Any, rows: int, n: int, k: int, dtype: np.dtype, out: Any = None, bias: bool = True, at: int = 0) -> None:
    out = out or dtype
    x, w, b = normal(rows * k, dtype), normal(n * k, dtype), normal(n, out) if bias else None
    (y, _) = launch(gpu, "linear", ((rows * n, out), None), (x, w, b, None), (rows, n, k, False, False, dtype), at=at)
    close(y, wide(x, rows, k) @ wide(w, n, k).T + (0 if b is None else wide(b, n)), k)


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16], ids=str)
def test_product_and_bias_are_one_launch(gpu: Any, dtype: np.dtype) -> None:
    before = gpu.launched
    for rows, n, k in ((1, 1, 1), (5, 7, 3), (64, 65, 33)):
        linear(gpu, rows, n, k, dtype)
    linear(gpu, 5, 7, 3, dtype, bias=False)
    assert gpu.launched - before == 4
    assert made(gpu) == ["bias", "bias", "bias", ""]


def test_operands_at_odd_places(gpu: Any) -> None:
    """The library is told how its operands are aligned, and the stand-in holds it to that."""
    linear(gpu, 5, 8, 16, bfloat16, at=1)
    linear(gpu, 5, 8, 16, bfloat16, at=0)
    linear(gpu, 5, 8, 16, bfloat16, at=4)
    assert len(made(gpu)) == 3


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_stacks(gpu: Any, ta: bool, tb: bool) -> None:
    m, n, k = 5, 3, 4
    a, b = normal(2 * m * k, float32), normal(3 * n * k, float32)
    a_at, b_at = tuple(m * k * i for i in (0, 0, 0, 1, 1, 1)), tuple(n * k * i for i in (0, 1, 2, 0, 1, 2))
    (c,) = launch(gpu, "matmul", ((6 * m * n, float32),), (a, b), (a_at, b_at, m, n, k, ta, tb))
    left = wide(a, 2, k, m).swapaxes(1, 2) if ta else wide(a, 2, m, k)
    right = wide(b, 3, n, k).swapaxes(1, 2) if tb else wide(b, 3, k, n)
    close(c, left[:, None] @ right[None], k)
    assert made(gpu) == ["", ""]


def gelu(z: np.ndarray) -> np.ndarray:
    return 0.5 * z * (1 + np.tanh(GELU * (z + 0.044715 * z**3)))


@pytest.mark.parametrize("keeps", [False, True])
def test_gelu_is_the_librarys_where_it_is_the_same(gpu: Any, keeps: bool) -> None:
    """Its tanh form, of 16-bit results; where it has no algorithm, and for other activations, a kernel follows the product."""
    for n, act, function, ends in ((8, "gelu_tanh", gelu, "gelu"), (7, "gelu_tanh", gelu, "gelu"), (8, "tanh", np.tanh, "")):
        x, w, bias = normal(6 * 16, bfloat16), normal(n * 16, bfloat16), normal(n, bfloat16)
        kept, consts = (6 * n, bfloat16) if keeps else None, (6, n, 16, False, False, bfloat16)
        y, z = launch(gpu, "linear", ((6 * n, bfloat16), kept), (x, w, bias, None), consts, follower(act).formula)
        want = wide(x, 6, 16) @ wide(w, n, 16).T + wide(bias, n)
        close(y, function(want), roundings=3 if not ends or (n == 7 and keeps) else 1)
        if keeps:
            close(z, want)
        whole = ends and (n == 8 or not keeps)
        assert made(gpu) == [f"{ends}{'_aux' if keeps else ''}_bias" if whole else "bias"]


def test_gelu_in_float32_is_a_kernels(gpu: Any) -> None:
    """The library's own is not as exact as float32."""
    x, w, residual = normal(6 * 16, float32), normal(8 * 16, float32), normal(48, float32)
    outs, consts = ((48, float32), (48, float32)), (6, 8, 16, False, False, float32)
    y, z = launch(gpu, "linear", outs, (x, w, None, residual), consts, follower("gelu_tanh").formula)
    want = wide(x, 6, 16) @ wide(w, 8, 16).T
    close(z, want, 16)
    close(y, gelu(want) + wide(residual, 6, 8), 16)
    assert made(gpu) == [""]


def test_a_residual_is_added_by_the_library(gpu: Any) -> None:
    x, w, bias, residual = normal(6 * 16, float32), normal(8 * 16, float32), normal(8, float32), normal(48, float32)
    (y, _) = launch(gpu, "linear", ((48, float32), None), (x, w, bias, residual), (6, 8, 16, False, False, float32))
    close(y, wide(x, 6, 16) @ wide(w, 8, 16).T + wide(bias, 8) + wide(residual, 6, 8), 16)
    assert made(gpu) == ["bias"]


@pytest.mark.parametrize(("add_w", "add_b", "ends"), [(False, False, "sums"), (True, False, "sums"), (True, True, "")])
def test_gradients_of_the_weights(gpu: Any, add_w: bool, add_b: bool, ends: str) -> None:
    """On top of what is there: by the library; the bias's are sums of the same launch, unless they are added to what is there."""
    g, x, dw, db = normal(30 * 9, bfloat16), normal(30 * 8, bfloat16), normal(72, float32), normal(9, float32)
    got_w, got_b = launch(gpu, "linear_dw", (dw, db), (g, x), (30, 9, 8, add_w, add_b))
    close(got_w, wide(g, 30, 9).T @ wide(x, 30, 8) + add_w * wide(dw, 9, 8), 30)
    close(got_b, wide(g, 30, 9).sum(0) + add_b * wide(db, 9), 30)
    assert made(gpu) == [ends]


def test_what_the_library_cannot_do_is_done_by_kernels(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.driver, "blas", blas.Blas(Standin(gpu.driver, ("bias", "sums")), gpu.driver))
    linear(gpu, 5, 7, 3, float32)
    g, x = normal(30 * 9, bfloat16), normal(30 * 8, bfloat16)
    got_w, got_b = launch(gpu, "linear_dw", ((72, float32), (9, float32)), (g, x), (30, 9, 8, False, False))
    close(got_w, wide(g, 30, 9).T @ wide(x, 30, 8), 30)
    close(got_b, wide(g, 30, 9).sum(0), 30)
    x, w, bias = normal(18, float32), normal(21, float32), normal(7, float32)
    y, z = launch(gpu, "linear", ((42, float32),) * 2, (x, w, bias, None), (6, 7, 3, False, False, float32), follower("tanh").formula)
    want = wide(x, 6, 3) @ wide(w, 7, 3).T + wide(bias, 7)
    close(z, want, 3)
    close(y, np.tanh(want), 3)
    assert made(gpu) == ["", "", ""]
    monkeypatch.setattr(gpu.driver, "blas", blas.Blas(Standin(gpu.driver, ("", "bias", "sums")), gpu.driver))
    linear(gpu, 6, 7, 3, float32)
    assert made(gpu) == []


def test_sums_of_nothing_are_left_to_kernels(gpu: Any) -> None:
    linear(gpu, 3, 4, 0, float32)
    assert made(gpu) == []


def test_precision_of_float32(gpu: Any, precise: None) -> None:
    """Ten bits of each operand under "high" and "medium", all of them else; each call looks."""
    x, w = normal(8 * 16, float32), normal(8 * 16, float32)
    exact = wide(x, 8, 16) @ wide(w, 8, 16).T
    errors = []
    for level in ("highest", "high", "medium", "highest"):
        fp.set_float32_matmul_precision(level)
        (y, _) = launch(gpu, "linear", ((64, float32), None), (x, w, None, None), (8, 8, 16, False, False, float32))
        errors.append(np.abs(y - exact.reshape(-1)).max() / np.abs(exact).max())
    assert errors[0] < 2.0**-21
    assert errors[0] == errors[3]
    assert 2.0**-16 < errors[1] < 2.0**-9
    assert errors[1] == errors[2]


def test_a_captured_product_reads_what_is_there_then(gpu: Any) -> None:
    x, w, bias = normal(6 * 16, bfloat16), normal(8 * 16, bfloat16), normal(8, bfloat16)
    y, buffers = gpu.empty(48, bfloat16), [up(gpu, v) for v in (x, w, bias)]
    consts = (6, 8, 16, False, False, bfloat16)
    linear = lambda: gpu.launch("linear", None, (y, None), (*buffers, None), consts, float32)
    linear()  # asks for memory, which a graph may not
    graph = gpu.driver.capture(linear)
    for _ in range(2):
        x = normal(6 * 16, bfloat16)
        gpu.stream.copy(buffers[0], gpu.upload(x))
        graph()
        close(gpu.download(y), wide(x, 6, 16) @ wide(w, 8, 16).T + wide(bias, 8))


def test_recorded_steps_follow_the_precision(gpu: Any, precise: None) -> None:
    x, w, y = gpu.upload(normal(128, float32)), gpu.upload(normal(128, float32)), gpu.empty(64, float32)
    call = gpu.driver.blas.product(blas.Problem(8, 8, 16, False, True, float32, float32))
    replay = gpu.direct.program([Step(call, (y, None), (x, w, None, None), (0, 0, 0))])
    found = []
    for level in ("highest", "high", "highest"):
        fp.set_float32_matmul_precision(level)
        replay()
        found.append(gpu.download(y).tobytes())
    assert found[0] == found[2] != found[1]


def test_the_fastest_algorithm_is_found_once_and_remembered(gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Timing writes nothing that is added to; another process takes the same without timing, and so does a capture."""
    driver, times = gpu.driver, iter([3.0, 2.0])

    def timed(enqueue: Any) -> float:
        enqueue()
        return next(times)

    monkeypatch.setattr(driver, "timed", timed, raising=False)
    monkeypatch.setattr(blas, "WORTH", 1)
    g, x, dw = normal(30 * 9, float32), normal(30 * 8, float32), normal(72, float32)
    want = wide(g, 30, 9).T @ wide(x, 30, 8) + wide(dw, 9, 8)
    for _ in range(2):  # the second one is another process
        monkeypatch.setattr(driver, "blas", blas.Blas(Standin(driver), driver))
        monkeypatch.setattr(driver, "capturing", True)
        (got, _) = launch(gpu, "linear_dw", (dw, None), (g, x), (30, 9, 8, True, False))
        close(got, want, 30)
        assert len(made(gpu)) == 1
        monkeypatch.setattr(driver, "capturing", False)
        (got, _) = launch(gpu, "linear_dw", (dw, None), (g, x), (30, 9, 8, True, False))
        close(got, want, 30)
    assert next(times, None) is None
    (file,) = tmp_path.glob("products-*.json")
    assert list(json.loads(file.read_text()).values()) == [1]


@pytest.mark.parametrize("text", ["", "[1]", '{"a": "b"}'])
def test_a_damaged_file_of_choices_is_as_none(gpu: Any, text: str) -> None:
    gpu.driver.blas.file.write_text(text)
    assert gpu.driver.blas.choices() == {}


def test_the_stand_in_minds_what_the_library_would(gpu: Any) -> None:
    """Memory beyond an allocation, memory nobody has written, an operand at a worse place than promised."""
    library = gpu.driver.blas
    problem = blas.Problem(4, 8, 8, False, True, float32, float32)
    plan = blas.planned(library, problem, blas.IN32, (256,) * 4)
    assert plan is not None
    made, small, blank = [gpu.upload(normal(64, float32)) for _ in range(3)], gpu.upload(normal(8, float32)), gpu.empty(64, float32)
    a, b, y = [buffer.data for buffer in made]
    with raises(EmulationError, "256"):
        plan(a + 4, b, y, y, 0, 0)
    with raises(fp.errors.DeviceError, "outside"):
        plan(small.data, b, y, y, 0, 0)
    with raises(EmulationError, "nobody has written"):
        plan(blank.data, b, y, y, 0, 0)


def test_what_doctor_says() -> None:
    assert blas.finding(None) == ("products", "by flamepy's own kernels, as cuBLASLt is not installed", "pip install nvidia-cublas")


def test_planned_calls_of_the_library_are_code(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third call on, nothing is looked up: what would resolve the launches one by one is not called."""
    with cuda_device():
        x, w, b = (
            fp.tensor(normal(size, float32).reshape(shape), device="cuda") for size, shape in ((15, (5, 3)), (21, (7, 3)), (7, (7,)))
        )
        first = [F.linear(x, w, b).numpy() for _ in range(3)]
        monkeypatch.setattr(CudaStream, "run", lambda *given: pytest.fail("a planned call took the slow way"))
        before = gpu.launched
        assert all((F.linear(x, w, b).numpy() == y).all() for y in first)
        assert gpu.launched == before + 3
