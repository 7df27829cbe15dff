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

SAID = ("torch.qr is deprecated", "Using padding='same'", "reduction. 'mean' divides", ".*is deprecated. Use .nn.functional.interpolate")
pytestmark = [pytest.mark.filterwarnings(f"ignore:{said}:UserWarning") for said in SAID]
ALL = os.environ.get("FLAMEPY_ALL_SAMPLES") == "1"
LIMIT, REFUSED_LIMIT, REFERENCE_LIMIT = 40, 10, 12
# torch.testing's defaults are (1e-7, 1e-7) and (1.3e-6, 1e-5). float64 is held tighter; float32 gets ten times the
# relative slack because both sides round and neither sums in the order of the other.
TOLERANCE = {"float64": (1e-9, 1e-11), "float32": (1.3e-5, 1e-5), "rough": (5e-3, 1e-3)}
REFUSALS = (fp.errors.FlameError, TypeError, ValueError, NotImplementedError)
Counts = dict[str, int]
results: dict[tuple[str, str], Counts] = {}


def entries(name: str) -> list[Any]:
    return [info for info in database.op_db if info.name == name]


def draw(info: Any, dtype: Any) -> list[Any]:
    """The sample inputs of one entry, the same ones in every run."""
    torch.manual_seed(0)
    tracked = info.supports_autograd
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
    rtol, atol = TOLERANCE[dtype]
    assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: shape {ours.shape}, PyTorch's is {tuple(theirs.shape)}"
    expected = theirs.detach().resolve_neg().numpy(force=True)
    assert ours.dtype == expected.dtype, f"{what}: dtype {ours.dtype}, PyTorch's is {expected.dtype}"
    found, expected = np.where(ignore, 0, ours.numpy()), np.where(ignore, 0, expected)
    # The rounding error of a sum follows the size of its terms; the largest finite result stands in for them.
    atol *= max(1.0, np.abs(expected, where=np.isfinite(expected), out=np.zeros(expected.shape)).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol, atol, equal_nan=True, err_msg=what)


def compare(info: Any, row: Row, sample: Any, dtype: str) -> str:
    """'equal', 'refused' or 'skipped'; raises AssertionError on a mismatch."""
    if row.random(sample.input, *sample.args, **sample.kwargs):
        return "skipped"
    if is_foreign(sample):
        return "skipped"
    theirs = aslist(info(sample.input, *sample.args, **sample.kwargs))
    pairs: list[tuple[Any, Any]] = []
    x, args, kwargs = (translate(v, pairs) for v in (sample.input, sample.args, sample.kwargs))
    if not pairs or not all(isinstance(t, torch.Tensor) for t in theirs):
        return "skipped"  # numbers alone, or an operator PyTorch declines
    args = tuple(a.detach() if i in row.fixed else a for i, a in enumerate(args, start=1))
    may_refuse = row.refuses(sample.input, *sample.args, **sample.kwargs) or mixes_floats(pairs)
    try:
        ours = aslist(row.call(x, *args, **kwargs))
    except REFUSALS as error:
        if may_refuse:
            return "refused"
        raise AssertionError(f"refused: {type(error).__name__}: {error}") from error
    assert len(ours) == len(theirs), f"{len(ours)} results, PyTorch has {len(theirs)}"
    edge = row.edge(sample.input).numpy() if row.edge else False
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        close(a, b, dtype, f"result {i}", edge)
    fixed = {id(a) for i, a in enumerate(sample.args, start=1) if i in row.fixed}
    gradients(ours, theirs, [p for p in pairs if id(p[0]) not in fixed], edge, dtype in row.rough)
    return "equal"


def mixes_floats(pairs: list[tuple[Any, Any]]) -> bool:
    """flamepy never mixes two float types in silence."""
    return len({t.dtype for t, _ in pairs if t.is_floating_point()}) > 1


def is_foreign(sample: Any) -> bool:
    """Complex numbers, and 16-bit floats, whose gradients are float32 here."""
    given = (sample.input, *sample.args)
    types = [v.dtype for v in given if isinstance(v, torch.Tensor)]
    return any(isinstance(v, complex) for v in given) or any(t.is_complex or t == torch.bfloat16 for t in types)


def gradients(ours: list[Any], theirs: list[Any], pairs: list[tuple[Any, Any]], edge: Any, rough: bool) -> None:
    """The same random cotangents pulled back by both."""
    leaves = [(t, x) for t, x in pairs if t.requires_grad]
    tracked = [i for i, t in enumerate(theirs) if t.requires_grad]
    if not leaves or not tracked:
        return
    made = [torch.randn(theirs[i].shape, dtype=theirs[i].dtype) for i in tracked]
    expected = torch.autograd.grad([theirs[i] for i in tracked], [t for t, _ in leaves], made, allow_unused=True)
    if len(tracked) == 1:
        found = ours[tracked[0]].backward(gradient=fp.tensor(made[0].numpy()))
    else:
        parts = [(ours[i] * fp.tensor(g.numpy())).sum() for i, g in zip(tracked, made, strict=True)]
        loss = sum(parts[1:], start=parts[0])
        found = loss.backward()
    for n, ((t, x), dx) in enumerate(zip(leaves, expected, strict=True)):
        dx = torch.zeros_like(t) if dx is None else dx
        mine = found.get(x)
        mine = fp.zeros_like(x) if mine is None else mine
        close(
            mine,
            dx,
            "rough" if rough else str(np.dtype(x.dtype)),
            f"gradient {n} {tuple(t.shape)}",
            at_nan(t, leaves) & np.isnan(mine.numpy()) | edge,
        )


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
    row, counts, wrong = ADAPTERS[name], {"equal": 0, "refused": 0, "skipped": 0}, []
    found = entries(name)
    assert found, f"'{name}' is not in PyTorch's database"
    for info in found:
        for sample in choose(draw(info, getattr(torch, dtype)), row):
            try:
                counts[compare(info, row, sample, dtype)] += 1
            except Exception as error:
                wrong.append(f"{describe(sample)}\n    {type(error).__name__}: {str(error).strip()}")
    results[name, dtype] = {"samples": sum(counts.values()) + len(wrong), "wrong": len(wrong), **counts}
    assert not wrong, f"{name}: {len(wrong)} mismatches\n" + "\n".join(wrong[:6])


@pytest.mark.parametrize("op", sorted({row.op for row in ADAPTERS.values()}))
def test_each_op_was_compared(op: str) -> None:
    """No op may pass because everything was refused. Runs after the comparisons of the same session."""
    ran = {key: counts for key, counts in results.items() if ADAPTERS[key[0]].op == op}
    if not ran:
        pytest.skip("the comparisons were not selected in this run")
    for dtype in {d for _, d in ran}:
        assert sum(c["equal"] for (_, d), c in ran.items() if d == dtype), f"{op}: no {dtype} sample was compared"


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints the table when the last test here is done."""
    yield
    lines = [f"\n{'entry':<52}{'op':<34}{'dtype':<9}samples  equal  refused  skipped  wrong"]
    for (name, dtype), c in results.items():
        lines.append(
            f"{name:<52}{ADAPTERS[name].op:<34}{dtype:<9}{c['samples']:>7}{c['equal']:>7}{c['refused']:>9}{c['skipped']:>9}{c['wrong']:>7}"
        )
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n".join(lines))
