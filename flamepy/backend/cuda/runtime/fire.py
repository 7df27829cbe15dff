"""A launch as a function of C: what an eager op costs the host is mostly this call, so no line of Python runs in it.

Python's interface for C takes a function of the shape (self, arguments, how many); this one is written in LLVM's language, as there is no
compiler of C where flamepy is installed. It puts a kernel's parameters in order, each a Python int or a NumPy scalar, which hold their
value behind their head, lets other threads run, and calls cuLaunchKernel. Where that says anything but 0 (a thread that has not been told
of the GPU yet, an error) it calls the slow function instead, with the same arguments: that one raises, or does it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import binding

FASTCALL = 0x0080  # METH_FASTCALL
# A table: the kernel, blocks and threads in three directions, bytes of shared memory, the stream, cuLaunchKernel, the slow function.
KERNEL, SHARED, STREAM, CALL, SLOW, LENGTH = 0, 7, 8, 9, 10, 11
MOST = 192  # parameters: more go the slow way
TEXT = """
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyLong_AsVoidPtr(ptr)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare i64 @PyType_GetFlags(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)

define ptr @fire(ptr %self, ptr %arguments, i64 %count) {{
entry:
  %owner = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %table = call ptr @PyLong_AsVoidPtr(ptr %owner)
  %numbers = alloca [{most} x i64]
  %parameters = alloca [{most} x ptr]
{loads}
  %fits = icmp ule i64 %count, {most}
  br i1 %fits, label %next, label %slow
next:
  %i = phi i64 [0, %entry], [%after, %placed]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %launch
look:
  %at = getelementptr ptr, ptr %arguments, i64 %i
  %x = load ptr, ptr %at
  %kind_at = getelementptr i8, ptr %x, i64 {kind}
  %kind = load ptr, ptr %kind_at
  %number = getelementptr i64, ptr %numbers, i64 %i
  %is_int = icmp eq ptr %kind, inttoptr (i64 {int_type} to ptr)
  br i1 %is_int, label %int, label %other
other:
  %flags = call i64 @PyType_GetFlags(ptr %kind)
  %long = and i64 %flags, 16777216 ; Py_TPFLAGS_LONG_SUBCLASS, as a tensor's size has
  %is_long = icmp ne i64 %long, 0
  br i1 %is_long, label %int, label %scalar
int:
  %value = call i64 @PyLong_AsUnsignedLongLongMask(ptr %x)
  store i64 %value, ptr %number
  br label %placed
scalar:
  %inside = getelementptr i8, ptr %x, i64 {head}
  br label %placed
placed:
  %place = phi ptr [%number, %int], [%inside, %scalar]
  %slot = getelementptr ptr, ptr %parameters, i64 %i
  store ptr %place, ptr %slot
  %after = add i64 %i, 1
  br label %next
launch:
  %thread = call ptr @PyEval_SaveThread()
  %code = call i32 %v9(ptr %v0, {sizes}, ptr %v8, ptr %parameters, ptr null)
  call void @PyEval_RestoreThread(ptr %thread)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %done, label %slow
done:
  call void @Py_IncRef(ptr inttoptr (i64 {none} to ptr))
  ret ptr inttoptr (i64 {none} to ptr)
slow:
  %found = call ptr @PyObject_Vectorcall(ptr %v10, ptr %arguments, i64 %count, ptr null)
  ret ptr %found
}}
"""


class Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@cache
def compiled() -> tuple[Any, Method]:
    """(what keeps the machine code, the function as Python knows it)."""
    loads = []
    for i in range(LENGTH):
        kind = "i32" if KERNEL < i <= SHARED else "ptr"
        loads += [f"  %p{i} = getelementptr i64, ptr %table, i64 {i}", f"  %v{i} = load {kind}, ptr %p{i}"]
    sizes = ", ".join([f"i32 %v{i}" for i in range(KERNEL + 1, SHARED + 1)])
    head = object.__basicsize__
    text = TEXT.format(loads="\n".join(loads), sizes=sizes, most=MOST, head=head, kind=head - 8, int_type=id(int), none=id(None))
    for line in text.splitlines():
        if line.startswith("declare"):
            name = line.partition("@")[2].partition("(")[0]
            address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
            binding.add_symbol(name, address)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(text)
    module.verify()
    engine = binding.create_mcjit_compiler(module, binding.Target.from_default_triple().create_target_machine(opt=2))
    engine.finalize_object()
    return engine, Method(b"launch", engine.get_function_address("fire"), FASTCALL, None)


def starter(call: int, kernel: int, grid: tuple[int, ...], threads: int, shared: int, stream: int, slow: Callable[..., None]) -> Any:
    """What launches a kernel, called with its parameters; `call`: the address of cuLaunchKernel."""
    _, method = compiled()
    table = (ctypes.c_int64 * LENGTH)(kernel, *grid, threads, 1, 1, shared, stream, call, id(slow))
    made = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return made(("PyCFunction_NewEx", ctypes.pythonapi))(ctypes.addressof(method), (ctypes.addressof(table), table, slow), None)
