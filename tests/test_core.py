"""core/ alone: its folder, copied to where nothing else of flamepy is, has a device that takes formulas, ops, a tape and a way back."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import flamepy

CODE = """
import sys
import numpy as np
from core import plain
from core.backward import backward
from core.device import device
from core.op import PUBLIC
from core.ops import matrices, pointwise
from core.spec import Spec
from core.tensor import Tensor
from core.words import exp

F4 = np.dtype("f4")

def swish_y(x, beta):
    return x / (1.0 + exp(-beta * x))

numbers = np.linspace(-2, 2, 6, dtype=F4)
here = device()
x, y = here.upload(numbers), here.empty(6, F4)
here.launch("map", swish_y, (y,), (x,), (F4.type(0.5),), F4)
assert here.download(y).dtype == F4 and np.allclose(here.download(y), numbers / (1 + np.exp(-0.5 * numbers)))

here.copy(x, here.upload(np.array([4.0, 5.0, 6.0, 7.0, 8.0, 9.0])))
x.wrote("copy")
assert here.download(x).tolist()[3:] == [7.0, 8.0, 9.0] and x.version == 1 and x.last_write == "copy" and y.version == 0

def tensor(numbers, tracked=False):
    return Tensor(here.upload(numbers), Spec(numbers.shape, numbers.dtype, here, tracked))

a, b = np.linspace(-1, 1, 3, dtype=F4).reshape(1, 3), np.linspace(0, 1, 3, dtype=F4).reshape(3, 1)
x, w = tensor(a, True), tensor(b, True)
grads = backward(PUBLIC["tanh"](PUBLIC["matmul"](x, w)))
slope = 1 - np.tanh(a @ b) ** 2
for leaf, expected in ((x, slope @ b.T), (w, a.T @ slope)):
    assert np.allclose(here.download(grads[leaf].buffer).reshape(leaf.shape), expected, atol=1e-6)
print(here, type(here).__module__, sorted(m for m in sys.modules if m.partition(".")[0] in ("flamepy", "numba", "ml_dtypes")))
"""


def test_core_computes_where_nothing_else_of_flamepy_is(tmp_path: Path) -> None:
    shutil.copytree(Path(flamepy.__file__).parent / "core", tmp_path / "core", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "plain core.plain []\n"), done.stderr


def test_core_knows_whose_line_it_is_in_a_package_without_a_file(tmp_path: Path) -> None:
    """As when all of flamepy but core is deleted: then `flamepy` is a mere folder."""
    shutil.copytree(Path(flamepy.__file__).parent / "core", tmp_path / "flamepy" / "core", ignore=shutil.ignore_patterns("__pycache__"))
    code = f"""
import sys, types
sys.modules["flamepy"] = types.ModuleType("flamepy")
sys.modules["flamepy"].__path__ = [{str(tmp_path / "flamepy")!r}]
import flamepy.core.evening as fp

def called(x):
    return x.tanh()

print(fp.tape(called(fp.tensor([1.0], requires_grad=True)))[0].where.rpartition(":")[2])
"""
    (tmp_path / "lesson.py").write_text(code)
    done = subprocess.run([sys.executable, "lesson.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr


ALONE = """
import core.evening as fp

x = fp.tensor([1.0, 2.0, 3.0], requires_grad=True)
grads = (x * x).sum().backward()
for wrong in (lambda: grads.__setitem__(x, fp.tensor([1.0])), lambda: fp.tensor([2**40], dtype="int32")):
    try:
        wrong()
    except fp.FlameError as error:
        print(type(error).__name__, str(error).split(":")[0])
"""


def test_core_alone_refuses_a_gradient_of_another_shape_and_a_number_that_does_not_fit(tmp_path: Path) -> None:
    shutil.copytree(Path(flamepy.__file__).parent / "core", tmp_path / "core", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "ShapeError insert\nNumberTooLarge tensor\n"), done.stderr
