"""Code for a processor that is not here: what LLVM makes for 64-bit ARM of what micro.py, blocks.py, halves.py and pool.py emit.

What the code must be follows from the instruction set: `fmla` on four float32 or two float64, 32 vector registers, one instruction between
float16 and float32, and loads and stores that other threads see in any order but for those with a say in it (`ldar`, `stlr`, `casal`, ...).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir
from numba import types
from numba.core.ccallback import CFunc

from flamepy.backend.cpu.bf16 import blocks
from flamepy.backend.cpu.products import micro
from flamepy.backend.cpu.runtime import halves, pool, processor, rooms, walk
from flamepy.backend.cpu.runtime.processor import Tile

TRIPLE = "aarch64-linux-gnu"
PROCESSORS = pytest.mark.parametrize("cpu", ["generic", "cortex-a72", "neoverse-n1", "neoverse-v1", "neoverse-v2", "apple-m1"])


@pytest.fixture(scope="module")
def target() -> Any:
    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        return llvm.Target.from_triple(TRIPLE)
    except RuntimeError:
        pytest.skip("this llvmlite makes no code for ARM")


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What processor.py asks is answered as on ARM."""
    monkeypatch.setattr(processor, "features", lambda: frozenset(["neon"]))
    monkeypatch.setattr(processor.binding, "get_process_triple", lambda: TRIPLE)


def tile_of(itemsize: int) -> Tile:
    return processor.tile.__wrapped__(itemsize)  # type: ignore[no-any-return]


def function(arguments: list[Any], emit: Callable[..., Any], result: Any = None) -> str:
    """A module with one function, whose body emit(builder, *arguments) writes."""
    module = ir.Module()
    module.triple = TRIPLE
    made = ir.Function(module, ir.FunctionType(result or ir.VoidType(), arguments), "f")
    builder = ir.IRBuilder(made.append_basic_block())
    found = emit(builder, *made.args)
    builder.ret_void() if result is None else builder.ret(found)
    return str(module)


def tile_function(itemsize: int, tile: Tile, apart: bool) -> str:
    """A function that is one register tile."""
    number = ir.FloatType() if itemsize == 4 else ir.DoubleType()

    def emit(
        builder: Any, c: Any, ldc: Any, a: Any, row: Any, step: Any, b: Any, deep: Any, k: Any, cols: Any, alpha: Any, add: Any
    ) -> None:
        v, one = micro.Vectors(builder, itemsize, tile.lanes), micro.word(itemsize)
        sums = micro.emit_sums(v, tile, a, *((row, one) if apart else (one, step)), b, deep, k)
        sums = [[builder.fmul(total, v.spread(alpha)) for total in own] for own in sums]
        micro.emit_stores(v, sums, c, ldc, cols, add, masked=True)

    return function([*[micro.WORD] * 9, number, ir.IntType(1)], emit)


def assembly(target: Any, text: str, cpu: str) -> str:
    machine = target.create_target_machine(cpu=cpu, opt=3)
    module = llvm.parse_assembly(text)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(module, passes)
    return machine.emit_assembly(module)  # type: ignore[no-any-return]


def instructions(text: str) -> list[str]:
    lines = [line.split("//")[0].strip() for line in text.splitlines() if line.startswith("\t")]
    return [line for line in lines if line and not line.startswith(".")]


def innermost(text: str) -> list[str]:
    """The instructions of the one loop that multiplies and holds no other, from its label to the jump back there."""
    labels = re.split(r"^(\.L\w+):", text, flags=re.M)
    loops = []
    for label, body in zip(labels[1::2], labels[2::2], strict=True):
        lines = instructions(body)
        ends = [i for i, line in enumerate(lines) if re.match(rf"(b\.|cbn?z|tbn?z).*{re.escape(label)}$", line)]
        loops += [lines[: ends[0]]] if ends and any(line.startswith("fmla") for line in lines) else []
    (loop,) = loops
    return loop


def spilled(loop: list[str]) -> list[str]:
    return [line for line in loop if line.startswith("st") or re.search(r"\bsp\b", line)]


# ---- products --------------------------------------------------------------------------------------------------------------------
@PROCESSORS
@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("rows", [6, 4, 1])
@pytest.mark.parametrize("apart", [True, False])
def test_the_innermost_loop_is_multiply_adds_on_registers(itemsize: int, rows: int, apart: bool, cpu: str, target: Any, arm: None) -> None:
    tile = tile_of(itemsize)
    assert tile == (16 // itemsize, 6, 4)
    loop = innermost(assembly(target, tile_function(itemsize, tile._replace(rows=rows), apart), cpu))
    kind = {4: "4s", 8: "2d"}[itemsize]
    fused = [line for line in loop if re.match(rf"fmla\tv\d+\.{kind}, ", line)]
    assert len(fused) == rows * tile.across == sum("fm" in line for line in loop)
    assert not spilled(loop)  # sums stay in registers


def test_a_tile_of_more_sums_than_registers_would_be_seen(target: Any, arm: None) -> None:
    assert spilled(innermost(assembly(target, tile_function(4, tile_of(4)._replace(rows=9), True), "generic")))


@PROCESSORS
def test_bfloat16_is_multiplied_on_registers(cpu: str, target: Any, arm: None) -> None:
    """Eight rows of two vectors, two numbers along k: as many sums as four units with four cycles each have under way."""
    height = blocks.rows_in_registers(4)
    signature, code = blocks.rows_of(blocks.Shape(height, 4, False))._defn(None, *[types.int64] * 8, types.boolean)
    context = SimpleNamespace(get_dummy_value=lambda: None)
    text = function([*[micro.WORD] * 8, ir.IntType(1)], lambda builder, *args: code(context, builder, signature, args))
    loop = innermost(assembly(target, text, cpu))
    assert height == 8 and sum(line.startswith("fmla\tv") for line in loop) == 2 * 2 * height and not spilled(loop)


# ---- float16 ---------------------------------------------------------------------------------------------------------------------
@PROCESSORS
def test_float16_is_left_to_the_processor(cpu: str, target: Any, arm: None) -> None:
    half, single = ir.IntType(16), ir.FloatType()
    for given, change, result in ((half, halves.from_float16, single), (single, halves.to_float16, half)):
        found = instructions(assembly(target, function([given], change, result), cpu))
        assert sum(line.startswith("fcvt\t") for line in found) == 1
        assert all(line.split()[0] in ("fcvt", "fmov", "ret") for line in found)


# ---- threads ---------------------------------------------------------------------------------------------------------------------
def on_arm(made: Any) -> str:
    """What Numba has made for this processor, for ARM: nothing in it but the word `pause` is of one processor."""
    text = re.sub(r"^target (triple|datalayout) = .*$", "", made, flags=re.M)
    text = re.sub(r"^declare .*@llvm\.(x86\.sse2\.pause|aarch64\.hint)\(.*$", "", text, flags=re.M)
    text = re.sub(r"call void @llvm\.(x86\.sse2\.pause|aarch64\.hint)\([^)]*\)", "call void @llvm.aarch64.hint(i32 1)", text)
    return f'target triple = "{TRIPLE}"\n{text}\ndeclare void @llvm.aarch64.hint(i32)\n'


def claim_and_give():
    rooms.give_space(rooms.take_space())


@PROCESSORS
@pytest.mark.parametrize(
    "code, arity",
    [(pool.launch, 4), (pool.help_launches, 1), (walk.run_units, 2), (claim_and_give, 0)],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_threads_meet_in_ordered_words_alone(code: Any, arity: int, cpu: str, target: Any) -> None:
    """Every word that threads share is loaded to acquire and stored to release, or changed in one step that does both. A plain load or
    store would be right on x86, whose processors reorder little, and now and then wrong on ARM."""
    pool.load_launch()
    rooms.load_spaces()
    made = CFunc(code, ((types.int64,) * arity, types.void), {}, dict(pool.ALWAYS))
    made.compile()
    machine = target.create_target_machine(cpu=cpu, opt=3)
    found = instructions(machine.emit_assembly(llvm.parse_assembly(on_arm(made._library.get_llvm_str()))))
    touched = [line for line in found if "[" in line and not re.search(r"\[sp\b|:got", line)]  # not the stack, not names of symbols
    ordered = r"(ldar|ldaxr|stlr|stlur|stlxr|casal|swpal|ldaddal)\t"
    plain = [line for line in touched if not re.match(ordered, line)]
    assert len(touched) - len(plain) >= 2 and len(plain) <= 1
    assert all(re.fullmatch(r"str\txzr, \[x\d+\]", line) for line in plain)  # what a function of Numba's returns: nothing
