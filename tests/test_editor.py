"""What someone sees who opens flamepy in an editor: types, completion, refused typos, and help texts that are true.

The stubs are those that tools/make_stubs.py writes; a script that mypy reads from outside the repository finds the types in them;
every example in a help text is run, and what it prints compared.
"""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.core.custom import custom
from flamepy.core.op import HOMES, PUBLIC, REGISTRY
from flamepy.core.pointwise import Pointwise, pointwise
from flamepy.words import exp

ROOT = Path(__file__).parent.parent


def maker() -> Any:
    spec = importlib.util.spec_from_file_location("make_stubs", ROOT / "tools" / "make_stubs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- stubs ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", sorted(str(p.relative_to(ROOT)) for p in (ROOT / "flamepy").rglob("*.pyi")))
def test_stubs_are_what_the_script_writes(path):
    assert (ROOT / path).read_text() == maker().STUBS[path](), f"{path} is out of date. Run: python tools/make_stubs.py"


IN_CLASS = "clone", "pad", "repeat"  # methods that stand in the class itself


def test_every_public_op_is_in_the_stubs():
    package, functional = (ROOT / "flamepy/__init__.pyi").read_text(), (ROOT / "flamepy/nn/functional.pyi").read_text()
    methods = (ROOT / "flamepy/methods.pyi").read_text()
    for name in PUBLIC:
        assert (f" import {name} as {name}\n" in package) == (HOMES[name] != "functional"), name
        assert (f" import {name} as {name}\n" in functional) == (HOMES[name] != "flamepy"), name
        assert (f"def {name}(" in methods) == (HOMES[name] != "functional" and name not in IN_CLASS), name
    conversions = {
        "__dir__",
        "__format__",
        "__round__",
        "__bool__",
        "__doc__",
        "__float__",
        "__hash__",
        "__index__",
        "__init__",
        "__int__",
        "__reduce_ex__",
        "__repr__",
    }
    operators = set(vars(fp.Tensor)) & {*dir(int), "__matmul__", "__rmatmul__", "__getitem__"} - conversions
    assert set(re.findall(r"def (__\w+__)\(", methods)) == operators


def test_each_stub_names_the_place_where_the_op_is_written():
    text = (ROOT / "flamepy/ops/__init__.pyi").read_text()
    places = re.findall(r"^# (flamepy/\S+): (\"?\w+\"?)\n(?:@overload\n)?def (\w+)\(", text, re.M)
    assert {name for *_, name in places} == set(PUBLIC)
    for path, function, _ in places:
        assert re.search(rf"^ *def {function}\(|^[^#]*\(\s*{function},", (ROOT / path).read_text(), re.M), (path, function)


# ---- types that a user's script sees ---------------------------------------------------------------------------------------------
GOOD = """
import numpy as np
import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

x, w, one = fp.randn(4, 3), fp.Parameter.randn((2, 3)), np.ones(3, np.float32)
layer = nn.Linear(3, 2)
optimizer = fp.AdamW(layer, lr=1e-3, groups={"*.bias": {"weight_decay": 0}})
rate = fp.schedules.warmup_cosine(1e-3, warmup=10, n=100)

def step(x: fp.Tensor) -> tuple[fp.Tensor, float]:
    loss: fp.Tensor = layer(x).square().mean()
    grads = loss.backward()
    norm = fp.clip_grad_norm(grads, 1.0)
    optimizer.lr = rate(0)
    optimizer.step(grads)
    return loss, norm

class Net(nn.Module):
    def __init__(self) -> None:
        self.hidden = nn.Linear(3, 3)

    def forward(self, x: fp.Tensor) -> fp.Tensor:
        return F.relu(self.hidden(x))

replay = fp.capture(step)
grads = (x * w[0]).sum().backward()
"""
REVEALED = {
    "Tensor": """x|x + 1|2.0 * x|x - one|x @ w.T|w * 2|-x|abs(x)|x > 0|x == x|~(x > 0)|x[0]|x[:, None]|x.mT
        x.tanh()|x.sum(axis=0, keepdims=True)|x.sum(dim=0)|x.max(1)|x.reshape(2, -1)|x.reshape((2, 6))|x.where(x, 0.0)
        fp.exp(one)|fp.exp(1.0)|fp.exp([1.0, 2.0])|fp.abs(x)
        fp.where(x > 0, x, 0.0)|fp.cat([x, x], axis=1)|fp.eq(x, 1)|fp.cast(x, fp.int64)|fp.clamp(x, 0)|F.linear(x, w, activation="relu")
        F.softmax(x, axis=0)|F.max_pool2d(x, 2)|F.layer_norm(x, w[0])|F.cross_entropy(x, [0, 1, 2, 0], reduction="sum")|fp.ops.exp(x)
        grads[w]|x.detach()|fp.zeros(2, 3)|fp.Tensor.randn((2, 3))|next(iter(x))|replay(x)[0]|fp.elu(x, alpha=2.0)|x.to(fp.float64)""",
    "list[Tensor]": "fp.split(x, 2)|x.chunk(2)",
    "Tensor | None": "grads.get(w)|w.grad",
    "Parameter": "w|layer.weight",
    "GradientMap": "grads|x.backward()",
    "float": "rate(0)|optimizer.lr|replay(x)[1]",
    "tuple[int, ...]": "x.shape",
    "ParameterDict": "Net().params|Net().params.pack()",
    "AdamW": "optimizer",
    "Captured[tuple[Tensor, float]]": "replay",
}  # fmt: skip
WRONG = {
    "fp.expp(x)": '"expp"', "x.tahn()": '"tahn"', "F.linaer(x, x)": '"linaer"', "fp.softmax(x, axes=0)": '"axes"', "fp.exp('one')": '"str"',
    "fp.elu(x, slope=1.0)": '"slope"', "x.sum(axis='rows')": '"str"', "F.linear(x)": '"weight"', "fp.exp(x=x)": '"x"',
    "fp.randn(2, dtyp=None)": '"dtyp"', "x.backwards()": '"backwards"', "F.max_pool2d(x)": '"kernel_size"', "x + 'one'": '"str"',
    "fp.Adamm(layer)": '"Adamm"', "fp.mse_loss(x, x, 'sum')": "positional", "fp.schedules.cosin(1.0, 2)": '"cosin"',
}  # fmt: skip


def test_a_users_script_sees_types(tmp_path):
    pytest.importorskip("mypy")
    expressions = [(e.strip(), kind) for kind, text in REVEALED.items() for e in re.split(r"\||\n", text) if e.strip()]
    lines = [*GOOD.splitlines(), *[f"reveal_type({e})" for e, _ in expressions], *WRONG]
    (tmp_path / "script.py").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "script.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}  # there mypy finds what is installed, and asks for py.typed
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    said: dict[int, str] = {}
    for number, text in re.findall(r"^script\.py:(\d+): (.*)$", done.stdout, re.M):
        said[int(number)] = said.get(int(number), "") + re.sub(r"\b(?:flamepy|numpy)(?:\.\w+)*\.(?=[A-Z])", "", text) + "\n"
    assert done.stdout.count("script.py:"), done.stdout + done.stderr
    first = len(GOOD.splitlines()) + 1
    assert not [text for number, text in said.items() if number < first]
    for i, (expression, kind) in enumerate(expressions):
        assert said.get(first + i, "").strip() == f'note: Revealed type is "{kind}"', expression
    for i, (wrong, word) in enumerate(WRONG.items()):
        text = said.get(first + len(expressions) + i, "")
        assert "error: " in text and word in text, f"{wrong}: {text}"


# ---- help ----------------------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_help_says_shapes_and_an_example_that_is_true(name):
    text = pydoc.render_doc(PUBLIC[name], renderer=pydoc.plaintext)
    own = PUBLIC[name].__name__  # some are other names of one op
    assert f"\n{own}(" in text and "Shapes" in text
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(PUBLIC[name].__doc__), {"fp": fp, "F": F}, name, None, None)
    assert test.examples and all(e.want and f"{own}(" in e.source for e in test.examples)
    report: list[str] = []
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)


POINTWISE = sorted(name for name, f in PUBLIC.items() if isinstance(getattr(f, "op", None), Pointwise))


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", POINTWISE)
def test_help_of_a_pointwise_op_says_types_that_are_true(name):
    """What it says of bools and integers, against what comes back."""
    f = PUBLIC[name]
    n, masks = len(f.op.inputs), f.op.masks
    says = re.search(r"^Types: .*$", f.__doc__, re.M).group()
    for data in (np.array([True]), np.array([2], np.int64), np.array([2.0], np.float64)):
        found = f(*[fp.tensor([True])] * masks, *[fp.tensor(data)] * (n - masks)).dtype
        kind = data.dtype.kind
        if "The result is bool" in says:
            assert found == fp.bool_
        elif kind == "f" or "floats, integers and bools" in says:
            assert found == data.dtype
        elif "integers and bools are computed in float32" in says:
            assert found == fp.float32
        else:
            assert "floats and integers; bools are computed in int64" in says and found == fp.int64


def test_help_of_a_pointwise_op_quotes_its_formulas():
    assert "Formula: y = tanh(x)\nDerivative from g, the cotangent of y: dx = g * (1.0 - y * y)\n" in fp.tanh.__doc__
    assert "dx = s = " not in fp.silu.__doc__ and "s = sigmoid(x); dx = g * s * (1.0 + x * (1.0 - s))" in fp.silu.__doc__
    assert "Formula: y = abs(x)\n" in fp.abs.__doc__ and "Derivative: none" in fp.lt.__doc__
    assert "dx = 0\n" in fp.floor.__doc__


@pytest.fixture
def registry():
    """The ops as they were: other tests look at all there are."""
    ops = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(ops)


def test_help_of_an_op_of_ones_own(registry):
    def double_exp(x, scale=1.0):
        """Twice exp(x)."""
        return 2.0 * exp(scale * x)  # a remark

    def double_exp_dx(g, y, scale):
        return g * y * scale

    own = pointwise("editor_double_exp", double_exp, double_exp_dx)
    assert own.__doc__.startswith("Twice exp(x).\n\nShapes: any") and ">>>" not in own.__doc__
    assert "Formula: y = 2.0 * exp(scale * x)\nDerivative from g, the cotangent of y: dx = g * y * scale\n" in own.__doc__
    assert str(inspect.signature(own)) == "(x, /, scale=1.0)"

    @custom(name="editor_same")
    def same(x):
        return x

    assert same.function.__doc__ == "editor_same\n\nTypes: floats; integers and bools are computed in float32."
