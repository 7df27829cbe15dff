"""Words that are one machine instruction: LLVM's own functions, and the choice without a branch.

Each works in either precision and is given no fast-math flag but those named here.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def common(args: Any) -> Any:
    """The type numbers are brought to before an instruction: the widest float among them, if there is one."""
    floats = [kind for kind in args if isinstance(kind, types.Float)]
    return max(floats or args, key=lambda kind: kind.bitwidth)


def instruction(name: str, arity: int, flags: tuple[str, ...] = ()) -> Any:
    """LLVM's floating-point instruction `name` as something jitted code can call."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = values[0].type
        function = builder.module.declare_intrinsic(name, [kind], ir.FunctionType(kind, [kind] * arity))
        return builder.call(function, values, fastmath=flags)

    def call1(typing: Any, a: Any) -> Any:
        return (a(a), code) if isinstance(a, types.Float) else None

    def call2(typing: Any, a: Any, b: Any) -> Any:
        kind = common((a, b))
        return (kind(kind, kind), code) if isinstance(kind, types.Float) else None

    return intrinsic(call1 if arity == 1 else call2)


@intrinsic
def select(typing: Any, cond: Any, a: Any, b: Any) -> Any:
    """a if cond else b, never a branch: LLVM moves costly work into branches, and those don't vectorise."""
    kind = a if a == b else common((a, b))

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.select(*values)

    return kind(types.boolean, kind, kind), code


@intrinsic
def plus(typing: Any, a: Any, b: Any) -> Any:
    """a + b as a step of a sum whose order is free, so that it can go over the lanes of vectors: what `total += x` in a loop becomes
    (compiler.py). No other addition may be reordered: (x - top) - log(sum) is not x - (top + log(sum))."""
    signature = typing.resolve_function_type(operator.iadd, (types.unliteral(a), types.unliteral(b)), {})

    def code(context: Any, builder: Any, given: Any, values: Any) -> Any:
        if not isinstance(signature.return_type, types.Float):
            return context.get_function(operator.iadd, signature)(builder, values)
        numbers = [context.cast(builder, v, kind, signature.return_type) for v, kind in zip(values, signature.args, strict=True)]
        return builder.fadd(*numbers, flags=("reassoc", "contract", "nsz"))

    return signature, code


absolute = instruction("llvm.fabs", 1)
# nnan makes a row maximum vectorise; its price: with a NaN among the numbers the result is undefined.
fmax = instruction("llvm.maxnum", 2, ("nnan", "nsz"))
