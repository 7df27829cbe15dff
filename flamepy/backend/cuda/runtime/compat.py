"""The one door to numba-cuda: its compiler without a driver, on every NumPy, for whatever GPU is asked for.

numba-cuda registers an overload for np.row_stack, which NumPy 2.5 removed: the name is lent to it while it is imported. What NumPy
deprecates in its code is not said, or a process that makes errors of warnings could not import it. Device functions ask the driver which
GPU is there; target() answers for it, so kernels are compiled where no GPU is, and remembers which types operators have, a third of a
kernel's time. Numba's own old copy of numba.cuda is refused. Nothing else imports numba.cuda: other files take its names from here.
"""

from __future__ import annotations

import gc
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np

from ....core.errors import DeviceError

EXTRA = f"pip install 'flamepy[{'cuda-emulator' if os.environ.get('FLAMEPY_CUDA') == 'emulator' else 'cuda'}]'"


@contextmanager
def newer_numpy() -> Iterator[None]:
    missing = not hasattr(np, "row_stack")
    if missing:
        np.row_stack = np.vstack  # type: ignore[attr-defined]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        if missing:
            del np.row_stack  # type: ignore[attr-defined]


@contextmanager
def libraries() -> Iterator[None]:
    """Around what loads NVIDIA's libraries: tells how to get one that is missing."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ in ("nvvmError", "nvJitLinkError"):
            text = " ".join(str(error).split())[:400]
            advice = "Name another architecture" if "UNRECOGNIZED_ARCH" in text else "Write it otherwise"
            raise DeviceError(f"cuda: NVIDIA's compiler refuses the kernel: {text}. {advice}.") from error
        if type(error).__name__ not in ("DynamicLibNotFoundError", "NvvmSupportError"):
            raise
        raise DeviceError(f"cuda: a library is not installed: {str(error).splitlines()[0]}. Use {EXTRA}.") from error


NAMES = "cgutils", "debuginfo", "dispatcher", "libdevice", "lowering", "types", "np.arrayobj", "np.numpy_support", "nvvmutils"

with newer_numpy(), libraries():
    try:
        from numba import cuda

        if getattr(cuda, "implementation", "Built-in") != "NVIDIA":
            raise ImportError
        import_module("numba.cuda.np.arrayobj")  # registers the overloads
        from numba.core.errors import NumbaError as HostError
        from numba.cuda.core.errors import NumbaError, TypingError
        from numba.cuda.core.imputils import RefType, iternext_impl
        from numba.cuda.cpython.numbers import registry as numbers
        from numba.cuda.cpython.rangeobj import registry as ranges
        from numba.cuda.cudadecl import registry as typing
        from numba.cuda.cudadrv.nvvm import NVVM
        from numba.cuda.cudaimpl import registry as lowering
        from numba.cuda.datamodel.models import StructModel
        from numba.cuda.extending import intrinsic
        from numba.cuda.models import register_model
        from numba.cuda.typing.templates import AbstractTemplate, AttributeTemplate, signature

        modules: list[Any] = [import_module(f"numba.cuda.{name}") for name in NAMES]
    except ImportError:
        raise DeviceError(f"cuda: a package is not installed: numba-cuda. Use {EXTRA}.") from None

__all__ = [
    "PROBLEMS", "AbstractTemplate", "AttributeTemplate", "NumbaError", "RefType", "StructModel", "TypingError", "arrayobj", "cgutils",
    "cuda", "device_function", "intrinsic", "iternext_impl", "libdevice", "libraries", "literal", "lowering", "numbers", "nvvm_layout",
    "nvvmutils", "ranges", "register_model", "signature", "target", "types", "typing", "word",
]  # fmt: skip

PROBLEMS = NumbaError, HostError  # what its compiler raises
NUMBA = tuple(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (numba, modules[0]))  # where its files are
numba_cuda: Any = cuda  # what these export is put together at run time
cgutils, debuginfo, dispatcher, libdevice, lowerers, types, arrayobj, numpy_support, nvvmutils = modules


def nvvm_layout() -> str:
    """How NVVM lays out numbers in memory, in LLVM's words."""
    return str(NVVM().data_layout)


def refuse_recursion(lowerer: Any, function: Any, expression: Any, signature: Any) -> None:
    name, line = lowerer.fndesc.qualname, lowerer.loc
    raise DeviceError(
        f"{name}: cannot be compiled for CUDA: {name}() calls itself, {line.filename}:{line.line}: Numba compiles no recursion for GPUs. "
        "Write a loop."
    )


lowerers.Lower._lower_call_RecursiveCall = refuse_recursion


class Text:
    """What is kept of a device function's module: its text. The functions are named as those that are linked are."""

    functions = ()

    def __init__(self, module: Any) -> None:
        for function in module.functions:
            if not function.is_declaration:
                function.linkage = "linkonce_odr"
        self.text = str(module)

    def __str__(self) -> str:
        return self.text


def lean(lines: bool, function: Any, *args: Any, **options: Any) -> Any:
    """compile_cuda(), for device functions, which Numba keeps for ever: without what only their own compilation needed, 10 MB a kernel.
    `lines`: with those of users' functions; in Numba's own nobody looks for a fault."""
    options["lineinfo"] = lines and not function.__code__.co_filename.startswith(NUMBA)
    result = compile_cuda(function, *args, **options)
    result.library._module = Text(result.library._module)
    for holder in (result.fndesc, result.type_annotation):
        holder.typemap, holder.calltypes = {}, {}
    result.type_annotation.blocks = {}
    return result


@contextmanager
def target(cc: tuple[int, ...], lines: bool = False) -> Iterator[None]:
    """While this is open, device functions are compiled for a GPU of this compute capability, and know their own `lines`; by one thread at
    a time, for what is put in place here is the process's, as Numba compiles under a lock of its own.
    The garbage collector waits: it would look again and again at what is all in use, for a sixth of the time. Lines are noted, not the
    values of variables: where a loop is unrolled, NVVM 13 makes a symbol of these that it refuses itself."""
    with alone:
        asked, collects, noted = dispatcher.get_current_device, gc.isenabled(), debuginfo.CUDADIBuilder.update_variable
        dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=cc)
        debuginfo.CUDADIBuilder.update_variable = lambda *args, **options: None
        types.Function.get_call_type, dispatcher.compile_cuda = remembered, partial(lean, lines)
        gc.disable()
        try:
            with libraries():
                yield
        finally:
            dispatcher.get_current_device, types.Function.get_call_type = asked, resolve
            debuginfo.CUDADIBuilder.update_variable = noted
            dispatcher.compile_cuda = compile_cuda
            if collects:
                gc.enable()


alone = threading.RLock()
resolve, compile_cuda = types.Function.get_call_type, dispatcher.compile_cuda
known: dict[Any, Any] = {}
MOST = 20_000  # that are known: some 16 of each kernel


def remembered(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """resolve(), which tries all that is registered for an operator or a function of Numba's wherever a kernel uses it. A function for
    which more is registered later is another one."""
    key = context, function, tuple(args), tuple(dict(kws).items())
    found = known.get(key)
    if found is None:
        if len(known) >= MOST:
            known.clear()
        found = known[key] = resolve(function, context, args, kws)
    return found


def device_function(function: Any, **flags: Any) -> Any:
    """A function that kernels call; LLVM puts it into them."""
    return numba_cuda.jit(device=True, forceinline=True, **flags)(function)


def word(signature_of: Callable[..., Any]) -> Callable[[Any], Any]:
    """A word for kernels: signature_of() gives its signature for the types of its arguments; the decorated function emits it and returns a
    value, a list where the result is a tuple, None where there is none."""

    def made(emit: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            found = emit(context, builder, signature, values)
            if isinstance(found, list):
                return context.make_tuple(builder, signature.return_type, found)
            return context.get_dummy_value() if found is None else found

        @wraps(emit)
        def definition(typing: Any, *kinds: Any) -> Any:
            return signature_of(*kinds), code

        typing = inspect.Parameter("typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        definition.__signature__ = inspect.Signature([typing, *inspect.signature(signature_of).parameters.values()])  # type: ignore[attr-defined]
        return intrinsic(definition)

    return made


def literal(kind: Any) -> Any:
    """The type of an argument that must be a constant: Numba asks again with the number."""
    if not isinstance(kind, types.IntegerLiteral):
        raise TypingError(f"a constant is needed here, not {kind}")
    return kind
