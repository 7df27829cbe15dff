"""How a kernel and the functions inside it are compiled: which sums may be reordered, whose the code is, how wide its vectors are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from llvmlite.binding import Linkage, Target, get_process_triple
from numba.core import ir
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.typed_passes import NativeLowering
from numba.core.untyped_passes import IRProcessing
from numba.extending import intrinsic

from ....inner_code import InnerCompiler
from . import processor
from .instructions import FREE


@register_pass(mutates_CFG=False, analysis_only=False)
class FreeSums(FunctionPass):  # type: ignore[misc]
    """Makes of each `total += x` and `total *= x` a step of a sum or product whose order is free."""

    _name = "free_sums"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        blocks = state.func_ir.blocks.values()
        for block in blocks:
            found = []
            for line in block.body:
                value = line.value if isinstance(line, ir.Assign) else None
                if isinstance(value, ir.Expr) and value.op == "inplace_binop" and value.fn in FREE:
                    word = block.scope.redefine("$step", line.loc)
                    found.append(ir.Assign(ir.Global("step", FREE[value.fn], line.loc), word, line.loc))
                    line = ir.Assign(ir.Expr.call(word, (value.lhs, value.rhs), (), line.loc), line.target, line.loc)
                found.append(line)
            block.body = found
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A kernel's code. What was linked into it is its own: kernels that come from the disk cache were compiled in different processes,
    and of two functions with one name the linker would keep the first."""

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.linkage = "internal"
        with whole_vectors(self._codegen):
            super()._optimize_final_module()


@contextmanager
def whole_vectors(codegen: Any) -> Iterator[None]:
    """LLVM takes half of the 512-bit vectors that a newer Intel processor has, so as not to lower its clock, unless told otherwise. Only
    the passes that vectorise are told, and only for kernels: Numba's own code stays as it is. Numba compiles under a lock."""
    usual = codegen._tm
    if processor.cpu_name() in processor.WHOLE_VECTORS and "avx512f" in processor.features():
        options = {"cpu": processor.cpu_name(), "opt": 3, "features": codegen._tm_features + ",-prefer-256-bit"}
        codegen._tm = Target.from_triple(get_process_triple()).create_target_machine(**options)
    try:
        yield
    finally:
        codegen._tm = usual


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(NativeLowering):  # type: ignore[misc]
    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()  # so that the disk cache can keep it
        return bool(super().run_pass(state))


class KernelCompiler(InnerCompiler):
    lowering = KernelLowering


class LoopCompiler(InnerCompiler):
    """For loops and row bodies: what they add up may be reordered."""

    def add_passes(self, builder: Any) -> None:
        builder.add_pass_after(FreeSums, IRProcessing)


class AloneCompiler(LoopCompiler):
    """For a loop that somebody looks at without its kernel."""

    lowering = KernelLowering


# How every function of a kernel is compiled. _nrt=False: no reference counting. Kernels allocate nothing, and counting every slice of
# a row, atomically and in one cache line, made two workers slower than one (layer norm of 4096 x 256: 415 us with one, 708 with two;
# without 304 and 156).
ALWAYS: Any = {"error_model": "numpy", "_nrt": False}
KERNEL: Any = {**ALWAYS, "pipeline_class": KernelCompiler}
# What only kernels call needs no entry for Python (calling it from there crashes) and none for C. forceinline is LLVM's: a formula of
# several words exceeds its limit, and a call left in a loop stops it from vectorising.
INNER: Any = {**ALWAYS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": True, "pipeline_class": InnerCompiler}


def word(result: Any, *kinds: Any) -> Callable[[Any], Any]:
    """A word for compiled code, of these types: the function below it, (builder, *values), emits it and returns a value, None where the
    result is void."""

    def made(emit: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            found = emit(builder, *values)
            return context.get_dummy_value() if found is None else found

        @wraps(emit)  # Numba reads the arguments' names there
        def definition(typing: Any, *given: Any) -> Any:
            return result(*kinds), code

        return intrinsic(definition)

    return made
