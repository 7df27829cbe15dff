"""Ops of a user's own: pointwise, rowwise and custom, as they are written in a module, in a notebook and in other processes.

Oracles: the same formulas in NumPy and finite differences (gradcheck). A notebook is code that is executed without a file.
"""

from __future__ import annotations

import gc
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from fork_tools import forks

import flamepy as fp
from flamepy.core.pointwise import Pointwise
from flamepy.words import all_sum, cos, exp, lane, lanes, real, select, sin, sqrt

SCALE = 1.5
HALF = np.float64(0.5)


def scaled(x):
    return x * SCALE * HALF


def bump_y(x, width=1.0):
    """sin(0.75 x) exp(-x^2 / width), and 0 on the left."""
    return select(x > 0.0, sin(scaled(x)) * exp(-x * x / width), 0.0)


def bump_dx(g, x, y, width):
    return g * (select(x > 0.0, SCALE * HALF * cos(scaled(x)) * exp(-x * x / width), 0.0) - 2.0 * x / width * y)


def blend_y(a, b, w):
    return w * a + (1.0 - w) * b


def blend_da(g, w):
    return g * w


def blend_db(g, w):
    return g * (1.0 - w)


def blend_dw(g, a, b):
    return g * (a - b)


def unit_row(r, y, norm, x, eps, rows, cols):
    """x / (|x| + eps)."""
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    total = 0.0
    for j in range(lane(), cols, lanes()):
        total += x[j] * x[j]
    norm[r] = sqrt(all_sum(total)) + eps
    for j in range(lane(), cols, lanes()):
        y[j] = x[j] / norm[r]


def unit_dx_row(r, dx, g, y, norm, eps, rows, cols):
    dx, g, y = dx[r * cols : r * cols + cols], g[r * cols : r * cols + cols], y[r * cols : r * cols + cols]
    dot = 0.0
    for j in range(lane(), cols, lanes()):
        dot += g[j] * y[j]
    dot = all_sum(dot) * norm[r] / (norm[r] - eps)
    for j in range(lane(), cols, lanes()):
        dx[j] = (g[j] - y[j] * dot) / norm[r]


def power_mean_row(r, y, x, p, rows, cols):
    total = 0.0
    for j in range(lane(), cols, lanes()):
        value = x[r * cols + j]
        for _ in range(1, p):
            value = value * x[r * cols + j]
        total += value
    y[r] = all_sum(total) / real(cols)


def power_mean_dx_row(r, dx, g, x, p, rows, cols):
    for j in range(lane(), cols, lanes()):
        value = g[r] * real(p) / real(cols)
        for _ in range(1, p):
            value = value * x[r * cols + j]
        dx[r * cols + j] = value


bump = fp.pointwise("bump", bump_y, bump_dx)
blend = fp.pointwise("blend", blend_y, blend_da, blend_db, blend_dw)
unit = fp.rowwise("unit", unit_row, unit_dx_row, eps=1e-6)
power_mean = fp.rowwise("power_mean", power_mean_row, power_mean_dx_row, reduces=True, axis=0, p=3)


@fp.custom
def cube(x, scale=1.0):
    """scale * x^3, in ops."""
    return x * x * x * (scale * SCALE)


@cube.backward
def cube_dx(g, x, scale):
    return g * x * x * (3.0 * scale * SCALE)


cube.differentiable()

OPS = {
    "bump": (lambda x: bump(x, width=2.0), lambda x: np.where(x > 0, np.sin(0.75 * x) * np.exp(-x * x / 2.0), 0)),
    "blend": (lambda x: blend(x, x[:1], 0.25), lambda x: 0.25 * x + 0.75 * x[:1]),
    "unit": (lambda x: unit(x, 1, eps=0.5), lambda x: x / (np.sqrt((x * x).sum(1, keepdims=True)) + 0.5)),
    "unit-last": (unit, lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True))),
    "mean": (power_mean, lambda x: (x**3).mean(0)),
    "mean-1": (lambda x: power_mean(x, axis=1, p=2), lambda x: (x**2).mean(1)),
    "mean-2": (lambda x: power_mean(x, axis=-1, p=1), lambda x: x.mean(-1)),
    "cube": (lambda x: cube(x, scale=2.0), lambda x: 3.0 * x**3),
}


@pytest.mark.parametrize("device", ["cpu", "plain"])
@pytest.mark.parametrize("op", OPS)
def test_values_and_gradients(op, device):
    call, oracle = OPS[op]
    numbers = np.random.default_rng(0).standard_normal((3, 4, 5))
    for _ in range(3):  # as it is, planned, from the plan
        x = fp.tensor(numbers, device=device, requires_grad=True)
        np.testing.assert_allclose(call(x).numpy(), oracle(numbers), 1e-6, 1e-6)
        single = call(x.detach().to(fp.float32))
        assert single.dtype == fp.float32 and single.device == device
        np.testing.assert_allclose(single.numpy(), oracle(numbers), 2e-5, 2e-5)
    assert fp.gradcheck(call, (x,))
    assert call(x.detach().to(fp.bfloat16)).dtype == fp.bfloat16


@pytest.mark.parametrize("device", ["cpu", "plain"])
@pytest.mark.parametrize("op", ["bump", "blend", "cube"])
def test_second_derivatives(op, device):
    x = fp.tensor(np.random.default_rng(1).uniform(0.2, 2.0, (2, 3)), device=device, requires_grad=True)
    first = lambda x: OPS[op][0](x).square().sum().backward(create_graph=True)[x]
    analytic = first(x).sum().backward()[x].numpy()
    numeric = np.zeros((2, 3))
    for at in np.ndindex(2, 3):
        step = np.zeros((2, 3))
        step[at] = 1e-6
        high, low = (first(fp.tensor(x.numpy() + s, requires_grad=True, device=device)).sum().item() for s in (step, -step))
        numeric[at] = (high - low) / 2e-6
    np.testing.assert_allclose(analytic, numeric, 1e-6, 1e-7)


def test_a_rowwise_op_says_that_it_has_no_second_derivative_and_what_does_not_fit():
    x = fp.ones(2, 3, requires_grad=True)
    with pytest.raises(fp.GradientError, match=r"unit: no second derivative.*test_user_ops"):
        unit(x).sum().backward(create_graph=True)
    with pytest.raises(fp.ShapeError, match=r"power_mean: rows without elements: shape \(3, 0, 2\)"):
        power_mean(fp.zeros(3, 0, 2), axis=1)
    with pytest.raises(IndexError, match="unit: axis out of range: 2"):
        unit(x, axis=2)
    with pytest.raises(TypeError, match=r"power_mean: not a int: p=1\.5"):
        power_mean(x, p=1.5)
    with pytest.raises(TypeError, match="unit: unknown option: width=2"):
        unit(x, width=2)
    assert unit(fp.zeros(0, 3)).shape == (0, 3) and power_mean(fp.zeros(0, 3), axis=1).shape == (0,)
    assert power_mean(fp.tensor(2.0), axis=0).item() == 8.0 and power_mean([1, 2, 3]).item() == 12.0
    only_forward = fp.rowwise("only_forward", power_mean_row, reduces=True, p=2)
    with pytest.raises(fp.GradientError, match="only_forward: no derivative"):
        only_forward(x)


def test_an_op_looks_like_a_function_and_can_be_pickled():
    assert bump.__name__ == "bump" and bump.__doc__.startswith(bump_y.__doc__) and "eps=1e-06" in str(unit.__signature__)
    for op in (bump, blend, unit, power_mean, cube):
        assert pickle.loads(pickle.dumps(op)) is op
    assert [entry.op.name for entry in fp.tape(cube(unit(bump(fp.ones(2, requires_grad=True)))))] == ["bump", "unit", "cube"]


# ---- in a notebook ---------------------------------------------------------------------------------------------------------------
CELL = """
from flamepy import pointwise, rowwise, custom
from flamepy.words import exp as word
K = 2.0
def gain_y(x, shift=0.0):
    return K * x + shift
def gain_dx(g):
    return g * K
def double_row(r, y, x, rows, cols):
    for j in range(cols):
        y[r * cols + j] = x[r * cols + j] * K
def named_y(x):
    return word(x)
gain = pointwise("gain", gain_y, gain_dx)
double = rowwise("double", double_row)
named = pointwise("named", named_y)
@custom
def plus(x):
    return x + K
"""


@pytest.mark.parametrize("device", ["cpu", "plain"])
def test_a_cell_runs_again_and_numbers_are_taken_at_the_definition(device):
    cell: dict = {"__name__": "__main__"}
    x = fp.tensor([0.0, 1.0], device=device, requires_grad=True)
    for k, word, values in (("2.0", "exp", [1.0, math.e]), ("3.0", "cos", [1.0, math.cos(1.0)])):
        exec(CELL.replace("2.0", k).replace("import exp", "import " + word), cell)
        for _ in range(3):
            assert cell["gain"](x, shift=0.5).tolist() == [0.5, float(k) + 0.5]
        cell["K"] = 100.0  # changed after the definition: compiled functions keep theirs, a custom op reads it each time
        for _ in range(3):
            assert cell["gain"](x).sum().backward()[x].tolist() == [float(k)] * 2
            assert cell["gain"](x).sum().backward(create_graph=True)[x].tolist() == [float(k)] * 2
            assert cell["double"](x.detach()).tolist() == [0.0, float(k)]
            assert cell["plus"](x.detach()).tolist() == [100.0, 101.0]
            np.testing.assert_allclose(cell["named"](x.detach()).numpy(), values, 1e-6)
        old = cell["gain"]
    assert old(x).tolist() == [0.0, 3.0]
    gc.collect()  # those that were defined before are gone
    assert sum(type(x) is Pointwise and x.name == "gain" for x in gc.get_objects()) == 1


CACHED = """
import sys
import flamepy as fp
from flamepy.backend.formula.bind import on_compile
seen = []
on_compile(lambda name, seconds: seen.append(name))
{code}
x = fp.tensor([1.0, 2.0])
print(gain(x).tolist(), double(x).tolist(), sum("gain" in n or "double" in n for n in seen))
"""


@pytest.fixture(scope="module")
def process():
    with forks() as run:
        yield run


@pytest.mark.parametrize("file", [True, False])
def test_kernels_are_kept_on_disk_for_the_next_process(tmp_path, monkeypatch, process, file):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    code = CACHED.format(code=CELL)

    def run(code):
        if file:
            (tmp_path / "mine.py").write_text(code)
            done = subprocess.run([sys.executable, str(tmp_path / "mine.py")], capture_output=True, text=True, check=False)
            status, out, err = done.returncode, done.stdout, done.stderr
        else:
            status, out, err = process(code, tmp_path, tmp_path / "cache")
        assert status == 0, err
        return out.strip()

    assert run(code) == "[2.0, 4.0] [2.0, 4.0] 2"
    assert run("# another line\n" + code) == "[2.0, 4.0] [2.0, 4.0] 0"
    assert run(code.replace("K = 2.0", "K = 3.0")) == "[3.0, 6.0] [3.0, 6.0] 2"


MODULE = "import flamepy as fp\nprint('imported')\ndef twice_y(x):\n    return x + x\ntwice = fp.pointwise('twice', twice_y)\n"


def test_a_kernel_on_disk_does_not_need_the_module_it_was_made_in(tmp_path, process):
    """Another module with the same formula takes it; the first may be gone, or be a script that nobody wants to run again."""
    for name in ("first", "second", "third"):
        (tmp_path / f"{name}.py").write_text(MODULE)
        code = f"import {name}, flamepy as fp; print({name}.twice(fp.ones(2)).tolist())"
        assert process(code, tmp_path, tmp_path / "cache") == (0, "imported\n[2.0, 2.0]\n", "")
        (tmp_path / "first.py").unlink(missing_ok=name != "first")
