"""What the compiler makes of loops and formulas: cached on disk, vectorised, no float64 in float32 code, the same bits always."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from machine_code import packed
from numba.core import codegen
from numba.core.caching import NullCache

import flamepy as fp
from flamepy.backend.cpu.conv.pooling import larger
from flamepy.backend.cpu.device import COSTLY_SHARE, FAMILIES, GRAIN, CpuStream, loop_named
from flamepy.backend.cpu.runtime import compiler
from flamepy.backend.cpu.runtime.memory import APART
from flamepy.backend.formula.bind import bind, digest, on_compile, reached, typed
from flamepy.core.op import REGISTRY
from flamepy.core.pointwise import Pointwise
from flamepy.engine.named_map import add_y
from flamepy.gradients import edits as gradient_transforms
from flamepy.ops import rows

F4 = np.dtype("float32")
WAVES = {"sin", "cos"}  # count quarter turns in float64


def body(llvm: str) -> str:
    """The kernel's own function: what Numba puts around it unboxes Python floats as doubles."""
    parts = re.findall(r"^define [^\n]*@\"?_ZN.*?^}", llvm, re.S | re.M)
    own = [p for p in parts if "cpython" not in p.split("\n")[0]]
    assert own, "no function of this kernel"
    return "\n".join(own)


def in_float64(llvm: str) -> set[str]:
    """What a kernel does with float64: names of LLVM's instructions."""
    return set(re.findall(r"^\s*(?:%\S+ = )?(?:tail )?(\w+).*\bdouble\b", body(llvm), re.M))


def only_sums(llvm: str) -> bool:
    """Whether float64 is only what sums of runs are added up in, one at a time (row_words.py)."""
    return in_float64(llvm) <= {"phi", "fpext", "fadd", "fptrunc"} and "x double>" not in body(llvm)


def compiled(loop: str, formula, *args):
    # A fresh compilation: code loaded from the disk cache keeps no assembly.
    function = typed(loop_named(loop), F4, compiler.DIALECT, True, formula)
    kernel = compiler.jit_alone(function)
    kernel((0, 1), *args)
    signature = kernel.signatures[0]
    return kernel.inspect_llvm(signature), kernel.inspect_asm(signature)


def inputs(n: int) -> list[np.ndarray]:
    return [np.linspace(0.1, 0.9, 1024, dtype=F4) for _ in range(n)]


WHOLE = {"whole_power", "div_trunc_whole", "bits_and", "bits_or", "bits_xor", "bits_not", "bits_left", "bits_right"}  # of integers
FORMULAS = [
    (op.name, f, len(names))
    for op in REGISTRY.values()
    if isinstance(op, Pointwise) and not op.masks and not op.attributes and op.out is None and op.name not in WHOLE
    for f, names in [(op.formula, op.inputs), *[(r, n) for r, n in zip(op.rule, op.names, strict=True) if r and len(n) > 1]]
]


@pytest.mark.parametrize(("name", "formula", "n"), FORMULAS, ids=[f"{n}-{f.__name__}" for n, f, _ in FORMULAS])
def test_float32_formulas_hold_no_float64_and_vectorise(name, formula, n):
    llvm, assembly = compiled(f"map{n}", formula, np.empty(1024, F4), *inputs(n))
    words = {name}.union(*[f.__code__.co_names for f in reached(formula)])
    assert WAVES & words or not in_float64(llvm)
    assert packed("arithmetic", assembly) or packed("moves", assembly), "no packed float32 instruction"


@pytest.mark.parametrize("row", [rows.softmax_row, rows.softmax_dx_row])
def test_row_bodies_vectorise(row):
    n = 2 if row is rows.softmax_row else 3
    llvm, assembly = compiled("row", row, *[np.zeros(4096, F4) for _ in range(n)], 16, 256)
    assert only_sums(llvm)
    assert packed("steps", assembly) > 4


def test_maxima_along_rows_and_down_columns_vectorise():
    llvm, assembly = compiled("fold_max", None, np.zeros(64, F4), np.zeros(4096, F4), 64, 64, 1, 64, 1, F4.type(1))
    assert packed("extremes", assembly) > 8 and not in_float64(llvm)
    assert re.search(r"llvm.maximum.v\d+f32", llvm), "no vectors down columns"


def test_most_remainders_and_largest_of_windows_vectorise():
    """Of quotients that are not too large, and of windows whose places nobody asks for."""
    llvm, assembly = compiled("map_remainder", REGISTRY["remainder"].formula, np.empty(4096, F4), *inputs(2))
    assert packed("products", assembly) and not in_float64(llvm)
    for step in (1, 2, 5, 8):
        sizes = np.array([4, 1, 1, 1024, 1, 1, max(2, step), 1, 1, step, 0, 0, 0, 1, 1, 1, 1, 1, 1024 // step - 1])
        llvm, assembly = compiled("along_axis", larger, np.empty(4 * int(sizes[-1]), F4), np.ones(4096, F4), sizes, 2, 1, F4.type(1))
        assert packed("arithmetic", assembly) and not in_float64(llvm)


def test_in_place_loops_vectorise_and_are_used(monkeypatch):
    """Where an output is also an input, the overlap check of map1 and map2 would choose scalar code."""
    for n, formula in ((1, gradient_transforms.repaired_y), (2, add_y)):
        llvm, assembly = compiled(f"edit{n}", formula, np.ones(4096, F4), *inputs(n - 1))
        assert not in_float64(llvm) and packed("arithmetic", assembly)
    p = fp.Parameter(np.ones(8, "f4"))
    grads, other = [(p * 2.0).sum().backward() for _ in range(2)]
    run_it, kernels = CpuStream.run, []
    monkeypatch.setattr(CpuStream, "run", lambda self, kernel, *rest: (kernels.append(kernel), run_it(self, kernel, *rest)))
    grads.merge(other).scale_(0.5)
    assert [k.loop.__name__ for k in kernels] == ["edit2", "edit1"] and grads[p].tolist() == [2.0] * 8


def run(code: str, **env: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_second_process_compiles_nothing():
    code = """
import flamepy as fp, flamepy.backend.formula.bind as t
from flamepy.backend.cpu.products import gemm as products
made = []
t.on_compile(lambda name, seconds: made.append(name))
x = fp.randn(64, 512, requires_grad=True)
((x.gelu() @ fp.ones(512, 64)).softmax().sum(axis=0) * 2).mean().backward()
print(len(made), [function.cache_hits for function in products.kept])
"""
    run(code)
    assert run(code).strip() == "0 [1, 1]"


def test_import_is_light(tmp_path):
    """Without Numba, and in the processor time that NumPy takes, half as much again at most, where both are compiled, as pip leaves them; a
    busy machine is asked again, for it can only add."""
    code = """
import time, sys
a = time.process_time(); import numpy; b = time.process_time(); import flamepy; c = time.process_time()
print((c - b) / (b - a), 'numba' in sys.modules)
"""
    found = [run(code, PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=str(tmp_path)).split() for _ in range(8)]
    assert any(float(ratio) < 1.5 for ratio, numba in found if numba == "False")


def test_compiling_is_announced(monkeypatch):
    monkeypatch.setattr(compiler, "cache_of", lambda function: NullCache())

    def double_y(x):
        return x + x

    seen = []
    remove = on_compile(lambda name, seconds: seen.append((name, seconds > 0)))
    try:
        kernel = bind(loop_named("map1"), double_y, F4, compiler.DIALECT)
        out = np.empty(4, F4)
        kernel(1, out, np.ones(4, F4))
    finally:
        remove()
    assert out.tolist() == [2.0] * 4
    assert any("map1_double_y_float32_" in name and positive for name, positive in seen)


def test_an_edited_formula_gets_another_name(tmp_path):
    file = tmp_path / "f.py"
    file.write_text("def f(x):\n    return x\n")
    first = digest((str(file),), [])
    other = tmp_path / "g.py"
    other.write_text("def f(x):\n    return -x\n")
    assert first != digest((str(other),), [])


def test_an_edited_helper_in_another_file_gets_another_name(tmp_path, monkeypatch):
    """A formula whose helper is imported from elsewhere: the kernel's name, and so its place in the cache, follows that file too."""
    monkeypatch.syspath_prepend(tmp_path)
    names = set()
    for i, body in enumerate(("return x", "return -x")):
        (tmp_path / f"helper{i}.py").write_text(f"def helper(x):\n    {body}\n")
        (tmp_path / "formula.py").write_text(f"from helper{i} import helper\ndef formula(x):\n    return helper(x)\n")
        scope: dict = {}
        exec(compile((tmp_path / "formula.py").read_text(), "formula.py", "exec"), scope)
        kernel = bind(loop_named("map1"), scope["formula"], F4, compiler.DIALECT)
        names.add(kernel.py_func.__name__)
        out = np.empty(1, F4)
        kernel(1, out, np.ones(1, F4))
        assert out[0] == (1, -1)[i]
    assert len(names) == 2


def test_every_file_of_words_is_part_of_each_digest():
    """Files of loops and their helpers are found by what a loop reaches; words are jitted functions, so their files are listed."""
    folder = Path(compiler.__file__).parents[1]
    files = {".".join(p.relative_to(folder).with_suffix("").parts): str(p) for p in folder.rglob("*.py") if p.name != "__init__.py"}
    runtime = {"family", "memory", "chain", "findings", "settings", "looking", "pool", "walk", "patience"}
    plain_python = {"device", *(f"runtime.{name}" for name in runtime)}
    reached = {
        *FAMILIES, "loops.along", "loops.runs", "products.finish", "attention.rows",
        *(f"conv.{name}" for name in ("depthwise", "line_conv", "listed_conv", "windows")),
        *(f"bf16.{name}" for name in ("bfloat", "attention", "conv", "matmul")),
    }  # fmt: skip
    # Functions of C, with digests of their own.
    by_name = {
        *(f"bf16.{name}" for name in ("blocks", "lower", "panels", "tiles")),
        *(f"products.{name}" for name in ("half_products", "micro", "packing", "switch")),
        *(f"runtime.{name}" for name in ("peak", "processor", "rooms")),
    }
    assert reached | by_name | plain_python <= files.keys()
    assert {files[name] for name in files.keys() - reached - by_name - plain_python} <= set(compiler.SOURCES)


def test_two_processes_fill_an_empty_cache_at_once(tmp_path):
    code = """
import flamepy as fp, flamepy.backend.formula.bind as t
made = []
t.on_compile(lambda name, seconds: made.append(name))
x = fp.tensor([[0.5, -1.0], [2.0, 3.0]], requires_grad=True)
print(x.exp().sin().sum().backward()[x].numpy().tobytes().hex(), len(made))
"""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first = [process.communicate(timeout=300)[0].split() for process in both]
    assert all(process.returncode == 0 for process in both)
    again = run(code, NUMBA_CACHE_DIR=str(tmp_path)).split()
    assert first[0][0] == first[1][0] == again[0]
    assert int(first[0][1]) + int(first[1][1]) > 3 and again[1] == "0"  # what one has compiled the other may find


def test_kernels_compiled_in_different_processes_are_not_mixed_up(tmp_path):
    """Each of three processes compiles one op; a fourth loads all three. The loops have one name, and all but tanh come from the disk."""
    code = "import flamepy as fp; x = fp.tensor([0.5]); print(*[round(getattr(x, name)().item(), 4) for name in {names}])"
    names = ["sin", "cos", "exp", "tanh"]
    for name in names[:3]:
        run(code.format(names=[name]), NUMBA_CACHE_DIR=str(tmp_path))
    found = run(code.format(names=names), NUMBA_CACHE_DIR=str(tmp_path)).split()
    assert found == ["0.4794", "0.8776", "1.6487", "0.4621"]


def test_only_the_kernel_itself_becomes_machine_code(monkeypatch):
    fp.ones(2).exp()  # compiles the thread pool
    monkeypatch.setattr(compiler, "cache_of", lambda function: NullCache())
    x = np.ones(4, F4)
    bind(loop_named("map1"), REGISTRY["exp"].formula, F4, compiler.DIALECT)(1, np.empty_like(x), x)  # what Numba compiles once a process
    made = []
    whole = codegen.JITCodeLibrary._finalize_specific
    monkeypatch.setattr(codegen.JITCodeLibrary, "_finalize_specific", lambda self: (made.append(self.name), whole(self)))
    kernel = bind(loop_named("map1"), REGISTRY["tanh"].formula, F4, compiler.DIALECT)
    kernel(1, np.empty_like(x), x)
    assert len(made) == 1 and made[0].startswith("map1_tanh_y_float32")


def test_sums_keep_their_digits_without_avx(tmp_path):
    """Vectors of four numbers add up half as many at once; the runs that they add up are shorter."""
    code = """
import numpy as np, flamepy as fp
x = np.full((40, 3000), np.float32(0.1))
got = fp.tensor(x).sum(axis=1).numpy().astype(float), fp.tensor(x).softmax().sum(axis=1).numpy().astype(float)
print(max(abs(got[0] / (3000 * float(x[0, 0])) - 1)), max(abs(got[1] - 1)))
"""
    found = run(code, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="", NUMBA_CACHE_DIR=str(tmp_path)).split()
    assert all(float(error) <= 3e-7 for error in found), found


def test_formulas_run_without_numba():
    assert REGISTRY["tanh"].rule[0](1.0, 0.5) == 0.75
    assert REGISTRY["clip"].formula(3.0, 0.0, 1.0) == 1.0


STEP = """
import flamepy as fp, numba, hashlib
import flamepy.nn.functional as F
import flamepy.backend.cpu.device as cpu
numba.set_num_threads(THREADS)
cpu.GRAIN = GRAIN
fp.manual_seed(1)
x, w, v = (fp.randn(*s, requires_grad=True) for s in ((600, 300), (300, 300), (300, 70)))
h = F.dropout(F.gelu(F.layer_norm(x @ w)), 0.1)
loss = F.cross_entropy(h @ v, [i % 70 for i in range(600)])
loss = loss + x.sum(axis=0).square().mean() + w.var() + v.std(axis=1).max()
grads = loss.backward()
fp.clip_grad_norm(grads, 0.1)
print(hashlib.sha256(b''.join(grads[t].numpy().tobytes() for t in (x, w, v)) + loss.numpy().tobytes()).hexdigest())
"""


def test_same_bits_run_to_run_for_one_and_two_threads_serial_and_parallel():
    """GRAIN 1: every launch is parallel; 10^12: none is."""
    ways = [("1", "16384"), ("2", "16384"), ("2", "16384"), ("2", "1"), ("2", "10**12")]
    results = [run(STEP.replace("THREADS", n).replace("= GRAIN", "= " + grain), NUMBA_NUM_THREADS="2") for n, grain in ways]
    assert len(set(results)) == 1


def test_costly_formulas_go_parallel_earlier():
    add, gelu, row = REGISTRY["add"].formula, REGISTRY["gelu_erf"].formula, rows.softmax_row
    for loop, formula, grain in (("map2", add, GRAIN), ("map1", gelu, GRAIN // COSTLY_SHARE), ("row", row, GRAIN // COSTLY_SHARE)):
        wide = [fp.device("cpu").kernel(loop_named(loop), formula, F4, work).wide for work in (grain - 1, grain)]
        assert wide == [False, True]


def test_results_do_not_depend_on_addresses():
    """LLVM checks at run time whether arrays are close; blocks are kept so far apart that it always finds the same answer.

    Within some 350 bytes behind the cotangent, this bias gradient had other last bits.
    """
    kernel = bind(loop_named("linear_dw"), None, F4, compiler.DIALECT)
    draw = np.random.default_rng(0).standard_normal
    memory = np.zeros(1 << 16, F4)
    g, x = memory[16384:16704], draw(192).astype(F4)
    g[:] = draw(320)
    found = set()
    for distance in range(-8192, 8192, 16):
        start = 16384 + distance
        if -20 - APART // 4 < distance < 320 + APART // 4:
            continue
        db = memory[start : start + 20]
        kernel(1, np.empty(240, F4), db, g, x, 16, 20, 12, True, False, False)
        found.add(db.tobytes())
    assert len(found) == 1


def test_a_view_keeps_its_memory():
    v = (fp.ones(1000) * 3).numpy()
    fp.zeros(1000)
    assert v.tolist() == [3.0] * 1000
    with pytest.raises(ValueError, match="read-only"):
        v[0] = 1
