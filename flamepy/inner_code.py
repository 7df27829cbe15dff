"""How functions are compiled that nothing but other compiled functions call, such as the loops, formulas and words of a kernel.

Numba optimises each function it compiles and makes machine code of it, then does both again for whatever calls it. A kernel is made
of some ten functions, so all but the kernel itself are only typed and lowered to LLVM's language here: LLVM works once, on the
whole kernel. That takes a third off the time to compile the kernels of a GPT step, and three quarters off the emulator's runtime.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code that is linked into a kernel's, and neither optimised nor loaded by itself."""

    def _optimize_final_module(self) -> None: ...

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(NativeLowering):  # type: ignore[misc]
    """Lowers a function into an InnerLibrary, to be inlined always or never; Numba's dispatcher gets an entry that is there to be looked
    up by, not called. Functions that take functions are inlined: a call would hold an address, and the kernel could not be cached."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        state.flags.forceinline = state.flags.forceinline or any(isinstance(kind, types.Dispatcher) for kind in state.args)
        super().run_pass(state)
        done = state["cr"]
        if not state.flags.forceinline:
            state.library.get_function(done.fndesc.llvm_func_name).add_function_attribute("noinline")
        entry = _dynfunc.make_function(done.fndesc.lookup_module(), done.fndesc.qualname, "", 0, done.env, (state.library,))
        state.targetctx.insert_user_function(entry, done.fndesc, [state.library])
        state["cr"] = done._replace(cfunc=entry)
        return True


class InnerCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's passes, but for the last one."""

    lowering: Any = InnerLowering

    def define_pipelines(self) -> list[Any]:
        builder = DefaultPassBuilder.define_nopython_pipeline(self.state)
        builder.passes = [(self.lowering if step is NativeLowering else step, why) for step, why in builder.passes]
        self.add_passes(builder)
        builder.finalize()
        return [builder]

    def add_passes(self, builder: Any) -> None: ...
