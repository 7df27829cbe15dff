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

    def call3(typing: Any, a: Any, b: Any, c: Any) -> Any:
        kind = common((a, b, c))
        return (kind(kind, kind, kind), code) if isinstance(kind, types.Float) else None

    return intrinsic((call1, call2, call3)[arity - 1])


@intrinsic
def select(typing: Any, cond: Any, a: Any, b: Any) -> Any:
    """a if cond else b, never a branch: LLVM moves costly work into branches, and those don't vectorise."""
    kind = a if a == b else common((a, b))

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.select(*values)

    return kind(types.boolean, kind, kind), code


def free(meant: Any, name: str) -> Any:
    """A step of a sum or product whose order is free, so that it can go over the lanes of vectors: what `total += x` or `total *= x` in a
    loop becomes (compiler.py). Nothing else may be reordered: (x - top) - log(sum) is not x - (top + log(sum))."""

    def step(typing: Any, a: Any, b: Any) -> Any:
        signature = typing.resolve_function_type(meant, (types.unliteral(a), types.unliteral(b)), {})

        def code(context: Any, builder: Any, given: Any, values: Any) -> Any:
            if not isinstance(signature.return_type, types.Float):
                return context.get_function(meant, signature)(builder, values)
            numbers = [context.cast(builder, v, kind, signature.return_type) for v, kind in zip(values, signature.args, strict=True)]
            return getattr(builder, name)(*numbers, flags=("reassoc", "contract", "nsz"))

        return signature, code

    return intrinsic(step)


FREE = {operator.iadd: free(operator.iadd, "fadd"), operator.imul: free(operator.imul, "fmul")}
absolute = instruction("llvm.fabs", 1)
# nnan makes a row maximum vectorise; its price: with a NaN among the numbers the result is undefined.
fmax = instruction("llvm.maxnum", 2, ("nnan", "nsz"))
