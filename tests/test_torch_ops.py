"""An outside judge: PyTorch's own operator database, run against flamepy, forward and gradients.

PyTorch tests its operators with a list of sample inputs for each (odd shapes, broadcasting, every option). Each sample
is given to both libraries in float32 and float64; results must agree, and so must the gradients of every input under
a random cotangent. An option flamepy lacks must be refused with an error, and only where the adapter's row expects it.
Prints samples, equal, refused for each entry. FLAMEPY_ALL_SAMPLES=1 runs every sample and all of PyTorch's larger
reference inputs (NaN, infinities, big shapes); the default is at most 40 samples an entry and 12 small reference inputs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")
database = pytest.importorskip("torch.testing._internal.common_methods_invocations", reason="needs `expecttest`")

from torch_adapters import ADAPTERS, Row  # noqa: E402

import flamepy as fp  # noqa: E402

SAID = (  # regular expressions, in which a colon would end the text
    ".* is deprecated", "Using padding='same'", "reduction. 'mean' divides", "linear_cross_entropy. ``options`` ignored",
    "dropout2d. Received a 3D input",
)  # fmt: skip
pytestmark = [pytest.mark.filterwarnings(f"ignore:{said}:UserWarning") for said in SAID]
ALL = os.environ.get("FLAMEPY_ALL_SAMPLES") == "1"
LIMIT, REFUSED_LIMIT, REFERENCE_LIMIT = 40, 10, 12
# torch.testing's defaults are (1e-7, 1e-7) and (1.3e-6, 1e-5). float64 is held tighter; float32 gets ten times the
# relative slack because both sides round and neither sums in the order of the other.
TOLERANCE = {"float64": (1e-9, 1e-11), "float32": (1.3e-5, 1e-5), "rough": (5e-3, 1e-3), "half": (2e-2, 2e-2)}
HALF = (torch.float16, torch.bfloat16)
REFUSALS = (fp.errors.FlameError, TypeError, ValueError, NotImplementedError)
SKIPPED = ("drawn", "complex", "declined", "numbers")  # at random; complex numbers; PyTorch has no answer; no tensor among them
Counts = dict[str, int]
results: dict[tuple[str, str], Counts] = {}


def entries(name: str, dtype: Any = torch.float32) -> list[Any]:
    """The entries of that name, of those with variants the ones that take the type."""
    return [info for info in database.op_db if info.name == name and dtype in info.supported_dtypes("cpu")]


def drawn_in(name: str, dtype: str) -> Any:
    """That type, or one of integers for what has no floats."""
    if entries(name):
        return getattr(torch, dtype)
    return torch.int32 if dtype == "float32" and entries(name, torch.int32) else torch.int64


def draw(info: Any, dtype: Any) -> list[Any]:
    """The sample inputs of one entry, the same ones in every run."""
    torch.manual_seed(0)
    tracked = info.supports_autograd and dtype.is_floating_point
    samples = [sample.transform(leaf) for sample in info.sample_inputs("cpu", dtype, requires_grad=tracked)]
    if info.reference_inputs_func is not None:  # drawn untracked: some ask for gradients of integers
        more = list(info.reference_inputs("cpu", dtype))
        more = more if ALL else thin([s for s in more if small(s)], REFERENCE_LIMIT)
        samples += [s.transform(lambda v: tracked_leaf(v) if tracked else leaf(v)) for s in more]
    return samples


def small(sample: Any) -> bool:
    """Large inputs make each op compile its parallel kernels as well: minutes in a first run, left to FLAMEPY_ALL_SAMPLES."""
    return not isinstance(sample.input, torch.Tensor) or sample.input.numel() <= 1000


def leaf(value: Any) -> Any:
    """A tensor of its own with the same numbers."""
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def tracked_leaf(value: Any) -> Any:
    value = leaf(value)
    return value.requires_grad_() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def choose(samples: list[Any], row: Row) -> list[Any]:
    """At most LIMIT comparable samples and a few that may be refused, spread over the list."""
    if ALL:
        return samples
    refusable = [s for s in samples if row.refuses(s.input, *s.args, **s.kwargs)]
    chosen = {id(s) for s in refusable}
    comparable = [s for s in samples if id(s) not in chosen]
    return thin(comparable, LIMIT) + thin(refusable, REFUSED_LIMIT)


def thin(items: list[Any], limit: int) -> list[Any]:
    return [items[i * len(items) // limit] for i in range(limit)] if len(items) > limit else items


def translate(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """PyTorch's tensors as flamepy's, at any depth; each (theirs, ours) is appended to pairs."""
    if isinstance(value, torch.Tensor):
        ours = fp.tensor(value.detach().clone(), requires_grad=value.requires_grad)
        pairs.append((value, ours))
        return ours
    if isinstance(value, (list, tuple)):
        items = [translate(v, pairs) for v in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {k: translate(v, pairs) for k, v in value.items()}
    return value


def aslist(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def close(ours: Any, theirs: Any, dtype: str, what: str, ignore: Any = False) -> None:
    if not isinstance(theirs, torch.Tensor):  # a truth or a number
        assert (ours, type(ours)) == (theirs, type(theirs)) or (ours != ours and theirs != theirs), f"{what}: {ours}, PyTorch's is {theirs}"
        return
    rtol, atol = TOLERANCE[dtype]
    assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: shape {ours.shape}, PyTorch's is {tuple(theirs.shape)}"
    expected = numbers(theirs)
    assert str(ours.dtype) == str(theirs.dtype)[6:], f"{what}: dtype {ours.dtype}, PyTorch's is {theirs.dtype}"
    found, expected = np.where(ignore, 0, numbers(ours)), np.where(ignore, 0, expected)
    np.testing.assert_allclose(found, expected, rtol, slack(expected, atol), equal_nan=True, err_msg=what)


def numbers(value: Any) -> Any:
    """Its elements as an array."""
    if not isinstance(value, torch.Tensor):
        return value.numpy().astype("float32") if value.dtype == fp.bfloat16 else value.numpy()
    value = value.detach().resolve_neg()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy(force=True)


def slack(expected: Any, atol: float) -> float:
    """The rounding error of a sum follows the size of its terms; the largest finite result stands in for them."""
    size = np.abs(np.where(np.isfinite(expected), expected, 0).astype("float64"))
    return float(atol * max(1.0, size.max(initial=0.0)))


def compare(info: Any, row: Row, sample: Any, dtype: str) -> str:
    """'equal', 'refused', or why it cannot be compared; raises AssertionError on a mismatch."""
    if row.random(sample.input, *sample.args, **sample.kwargs):
        return "drawn"
    if is_complex(sample):
        return "complex"
    for i in row.fixed:
        if isinstance(i, str):
            sample.kwargs = {k: v.detach() if k == i and isinstance(v, torch.Tensor) else v for k, v in sample.kwargs.items()}
        elif i <= len(sample.args):
            sample.args = (*sample.args[: i - 1], sample.args[i - 1].detach(), *sample.args[i:])
    theirs = aslist(row.seen(info(sample.input, *sample.args, **sample.kwargs)))
    if any(t is NotImplemented for t in theirs):
        return "declined"  # by PyTorch
    pairs: list[tuple[Any, Any]] = []
    x, args, kwargs = (translate(v, pairs) for v in (sample.input, sample.args, sample.kwargs))
    may_refuse = row.refuses(sample.input, *sample.args, **sample.kwargs) or mixes_floats(pairs)
    try:
        ours = aslist(row.seen(row.call(x, *args, **kwargs)))
    except REFUSALS as error:
        if may_refuse:
            return "refused"
        raise AssertionError(f"refused: {type(error).__name__}: {error}") from error
    if not pairs and not any(isinstance(v, fp.Tensor) for v in ours):
        return "numbers"  # Python's own arithmetic
    assert len(ours) == len(theirs), f"{len(ours)} results, PyTorch has {len(theirs)}"
    leaves = [(t, x) for t, x in pairs if t.requires_grad]
    made = [torch.randn(t.shape, dtype=t.dtype) if is_tracked(t) else None for t in theirs]
    edge = row.edge(sample.input).numpy() if row.edge else False
    rough = "half" if any(t.dtype in HALF for t, _ in pairs) else "rough" if dtype in row.rough else dtype
    slopes = pulled_back(theirs, [t for t, _ in leaves], made)
    checks = [(f"result {i}", a, b, dtype, edge) for i, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    if slopes:
        for (t, _), mine, dx in zip(leaves, gradients(ours, [x for _, x in leaves], made), slopes, strict=True):
            nan = at_nan(t, leaves) & np.isnan(mine.numpy())
            dx = dx.float() if dx.dtype in HALF else dx  # float32 here
            checks.append((f"gradient {len(checks) - len(ours)} {tuple(t.shape)}", mine, dx, rough, nan | edge))
    for n, (what, mine, other, kind, ignore) in enumerate(checks):
        try:
            close(mine, other, kind, what, ignore)
        except AssertionError:
            if dtype != "float32" or not as_near(mine, other, exact(info, row, sample, made)[n], ignore):
                raise
    return "equal"


def is_tracked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def exact(info: Any, row: Row, sample: Any, made: list[Any]) -> list[Any]:
    """PyTorch's results and gradients for the same numbers in float64."""
    leaves: list[Any] = []

    def wide(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return torch.float64 if value == torch.float32 else value
        value = leaf(value).double().requires_grad_(value.requires_grad) if value.dtype == torch.float32 else leaf(value)
        leaves.extend([value] if value.requires_grad else [])
        return value

    sample = sample.transform(wide)
    found = aslist(row.seen(info(sample.input, *sample.args, **sample.kwargs)))
    slopes = pulled_back(found, leaves, [g if g is None else g.double() for g in made])
    return [*found, *slopes]


def as_near(ours: Any, theirs: Any, exact: Any, ignore: Any) -> bool:
    """Whether two float32 results that differ do so by rounding: flamepy's is as near to the float64 one as PyTorch's is."""
    rtol, atol = TOLERANCE["float32"]
    if ours.dtype != "float32" or tuple(ours.shape) != tuple(theirs.shape):
        return False
    a, b, c = (np.where(ignore, 0, numbers(v).astype("float64")) for v in (ours, theirs, exact))
    same = (a == c.astype("float32")) | np.isnan(a) & np.isnan(c)
    with np.errstate(invalid="ignore"):
        return bool(np.all(same | (np.abs(a - c) <= slack(c, atol) + rtol * np.abs(c) + 2 * np.abs(b - c))))


def mixes_floats(pairs: list[tuple[Any, Any]]) -> bool:
    """flamepy never mixes two float types in silence."""
    return len({t.dtype for t, _ in pairs if t.is_floating_point()}) > 1


def is_complex(sample: Any) -> bool:
    given = (sample.input, *sample.args, *sample.kwargs.values())
    return any(isinstance(v, complex) or (isinstance(v, torch.Tensor) and v.is_complex()) for v in given)


def pulled_back(results: list[Any], leaves: list[Any], made: list[Any]) -> list[Any]:
    """PyTorch's gradients of the leaves, from cotangents; none where it has none."""
    tracked = [(t, g) for t, g in zip(results, made, strict=True) if g is not None]
    if not leaves or not tracked:
        return []
    try:
        found = torch.autograd.grad([t for t, _ in tracked], leaves, [g for _, g in tracked], allow_unused=True)
    except RuntimeError:
        return []
    return [torch.zeros_like(t) if dx is None else dx for t, dx in zip(leaves, found, strict=True)]


def gradients(results: list[Any], leaves: list[Any], made: list[Any]) -> list[Any]:
    """flamepy's, from the same cotangents."""
    tracked = [(x, fp.tensor(g)) for x, g in zip(results, made, strict=True) if g is not None]
    if len(tracked) == 1:
        found = tracked[0][0].backward(gradient=tracked[0][1])
    else:
        parts = [(x * g).sum() for x, g in tracked]
        found = sum(parts[1:], start=parts[0]).backward()
    mine = [found.get(x) for x in leaves]
    return [fp.zeros_like(x) if dx is None else dx for x, dx in zip(leaves, mine, strict=True)]


def at_nan(leaf: Any, leaves: list[tuple[Any, Any]]) -> Any:
    """Where an input is NaN: there a gradient may be NaN, also where PyTorch's is finite (it says sgn(NaN) = 0)."""
    nan = [torch.isnan(t.detach()) for t, _ in leaves if t.shape == leaf.shape]
    return torch.stack(nan).any(0).numpy()


def describe(sample: Any) -> str:
    def short(v: Any) -> str:
        if isinstance(v, torch.Tensor):
            return f"{str(v.dtype)[6:]}{list(v.shape)}"
        return "(" + ", ".join(map(short, v)) + ")" if isinstance(v, (list, tuple)) else repr(v)

    return ", ".join([short(sample.input), *map(short, sample.args), *(f"{k}={short(v)}" for k, v in sample.kwargs.items())])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_agrees_with_torch(name: str, dtype: str) -> None:
    row, counts, wrong = ADAPTERS[name], dict.fromkeys(("equal", "refused", *SKIPPED), 0), []
    drawn = drawn_in(name, dtype)
    found = entries(name, drawn)
    assert found, f"'{name}' is not in PyTorch's database"
    for info in found:
        for sample in choose(draw(info, drawn), row):
            try:
                counts[compare(info, row, sample, dtype)] += 1
            except Exception as error:
                wrong.append(f"{describe(sample)}\n    {type(error).__name__}: {str(error).strip()}")
    results[name, dtype] = {"wrong": len(wrong), **counts}
    assert not wrong, f"{name}: {len(wrong)} mismatches\n" + "\n".join(wrong[:6])


@pytest.mark.parametrize("op", sorted({row.op for row in ADAPTERS.values()}))
def test_each_op_was_compared(op: str) -> None:
    """No op may pass because everything was refused. Runs after the comparisons of the same session."""
    ran = {key: counts for key, counts in results.items() if ADAPTERS[key[0]].op == op}
    if not ran:
        pytest.skip("the comparisons were not selected in this run")
    for dtype in {d for _, d in ran}:
        assert sum(c["equal"] for (_, d), c in ran.items() if d == dtype), f"{op}: no {dtype} sample was compared"


def test_figures() -> None:
    """At least 220 entries, none of them wrong, and at most 3 % of the samples refused. Runs after the comparisons of the same session."""
    compared = {name for (name, _), c in results.items() if c["equal"]}
    if len({name for name, _ in results}) < len(ADAPTERS):
        pytest.skip("not all comparisons were selected in this run")
    total = totals()
    assert len(compared) >= 220
    assert total["wrong"] == 0
    assert total["refused"] <= 0.03 * (total["equal"] + total["refused"])


def totals() -> Counts:
    return {key: sum(c[key] for c in results.values()) for key in ("equal", "refused", "wrong", *SKIPPED)}


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints the table when the last test here is done."""
    yield
    lines = [f"\n{'entry':<52}{'op':<34}{'dtype':<9}  equal  refused  skipped  wrong"]
    for (name, dtype), c in results.items():
        skipped = sum(c[reason] for reason in SKIPPED)
        lines.append(f"{name:<52}{ADAPTERS[name].op:<34}{dtype:<9}{c['equal']:>7}{c['refused']:>9}{skipped:>9}{c['wrong']:>7}")
    c = totals()
    asked = c["equal"] + c["refused"]
    lines.append(
        f"{len({n for n, _ in results})} entries: {c['equal']} samples equal, {c['wrong']} wrong, {c['refused']} refused "
        f"({100 * c['refused'] / max(asked, 1):.2f} %); not compared: " + ", ".join(f"{c[reason]} {reason}" for reason in SKIPPED)
    )
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n".join(lines))
