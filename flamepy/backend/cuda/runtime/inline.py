"""PTX written into LLVM's code, where Numba has no word for an instruction.

Each piece is marked convergent: LLVM may not move it under a branch that only some lanes of a warp take, since it cannot know that a
product by tensor cores, a shuffle or ldmatrix needs all 32 of them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

VOID = ir.VoidType()


def run(builder: Any, result: Any, code: str, constraints: str, args: list[Any], memory: bool = True, kept: bool = False) -> Any:
    """An instruction, or several. `memory`: it is neither left out nor moved across others that use memory; `kept`: it is not left out,
    but may be moved. Otherwise it only computes its result from its arguments."""
    kind = ir.FunctionType(result, [a.type for a in args])
    marks = [c for c in (constraints, "~{memory}" if memory else "") if c]
    text = ir.InlineAsm(kind, code, ",".join(marks), side_effect=memory or kept)
    return builder.call(text, args, attrs=("convergent",))
