"""The register tile on a processor that is not here: LLVM makes code for 64-bit ARM of what micro.py emits.

What the code must be follows from the instruction set: `fmla` on four float32 or two float64, 32 vector registers.
Read next: test_products.py.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from flamepy.backend.cpu import micro, processor
from flamepy.backend.cpu.processor import Tile

TRIPLE = "aarch64-linux-gnu"


@pytest.fixture(scope="module")
def target() -> Any:
    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        return llvm.Target.from_triple(TRIPLE)
    except RuntimeError:
        pytest.skip("this llvmlite makes no code for ARM")


def arm_tile(itemsize: int, monkeypatch: pytest.MonkeyPatch) -> Tile:
    monkeypatch.setattr(processor, "features", lambda: frozenset(["neon"]))
    monkeypatch.setattr(processor.binding, "get_process_triple", lambda: TRIPLE)
    return processor.tile.__wrapped__(itemsize)  # type: ignore[no-any-return]


def emitted(itemsize: int, tile: Tile, apart: bool) -> str:
    """A function that is one register tile."""
    module = ir.Module()
    module.triple = TRIPLE
    number = ir.FloatType() if itemsize == 4 else ir.DoubleType()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [*[micro.WORD] * 9, number, ir.IntType(1)]), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    c, ldc, a, row, step, b, deep, k, cols, alpha, add = function.args
    v, one = micro.Vectors(builder, itemsize, tile.lanes), micro.word(itemsize)
    sums = micro.emit_sums(v, tile, a, *((row, one) if apart else (one, step)), b, deep, k)
    sums = [[builder.fmul(total, v.spread(alpha)) for total in own] for own in sums]
    micro.emit_stores(v, sums, c, ldc, cols, add, masked=True)
    builder.ret_void()
    return str(module)


def innermost(target: Any, text: str) -> list[str]:
    """The instructions of the one loop there is, from its label to the jump back there."""
    machine = target.create_target_machine(cpu="generic", opt=3)
    module = llvm.parse_assembly(text)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(module, passes)
    labels = re.split(r"^(\.L\w+):", machine.emit_assembly(module), flags=re.M)
    loops = []
    for label, body in zip(labels[1::2], labels[2::2], strict=True):
        lines = [line.split("//")[0].strip() for line in body.splitlines()]
        ends = [i for i, line in enumerate(lines) if re.match(rf"(b\.|cbn?z|tbn?z).*{re.escape(label)}$", line)]
        loops += [lines[: ends[0]]] if ends else []
    (loop,) = loops
    return loop


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("rows", [6, 4, 1])
@pytest.mark.parametrize("apart", [True, False])
def test_the_innermost_loop_is_multiply_adds_on_registers(
    itemsize: int, rows: int, apart: bool, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tile = arm_tile(itemsize, monkeypatch)
    assert tile == (16 // itemsize, 6, 4)
    loop = innermost(target, emitted(itemsize, tile._replace(rows=rows), apart))
    kind = {4: "4s", 8: "2d"}[itemsize]
    fused = [line for line in loop if re.match(rf"fmla\tv\d+\.{kind}, ", line)]
    assert len(fused) == rows * tile.across == sum("fm" in line for line in loop)
    assert not [line for line in loop if line.startswith("st") or re.search(r"\bsp\b", line)]  # sums stay in registers


def test_a_tile_of_more_sums_than_registers_would_be_seen(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tile = arm_tile(4, monkeypatch)._replace(rows=9)
    assert [line for line in innermost(target, emitted(4, tile, True)) if re.search(r"\bsp\b", line)]
