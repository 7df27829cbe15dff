"""LLVM text to machine code of this processor, kept on disk.

The file's name says what the code was made of: the PTX, LLVM's version, the processor. A file is written whole or not at all, and
one that is damaged is compiled again.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import binding

from ..disk import kept


@functools.cache
def target_machine() -> Any:
    """Compiles quickly: most kernels run for less time than they are compiled, and a block's code is a line of vectors."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu(), features=features(), opt=0, codemodel="jitdefault", jit=True)


def cpu() -> str:
    return str(binding.get_host_cpu_name())


@functools.cache
def features() -> str:
    """The processor's, with its widest vectors: half as many instructions to write."""
    return f"{binding.get_host_cpu_features().flatten()},-prefer-256-bit"


def made_once(folder: Path | None, source: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
    """What make() makes of the source, which is kept in the folder."""
    if not folder:
        return make()
    whole = "\n".join((*source, str(binding.llvm_version_info), cpu(), features()))
    return kept(folder / f"{hashlib.sha256(whole.encode()).hexdigest()[:32]}.emulated", make)


def compiled(text: str) -> bytes:
    machine = target_machine()
    module = binding.parse_assembly(text)
    module.triple = binding.get_process_triple()
    module.data_layout = str(machine.target_data)
    return bytes(machine.emit_object(module))


class Loaded:
    """Machine code in memory, and a table of where each of its `count` blocks is; it stays as long as this object."""

    def __init__(self, code: bytes, count: int) -> None:
        empty = binding.parse_assembly("")
        empty.triple = binding.get_process_triple()
        self.engine = binding.create_mcjit_compiler(empty, binding.Target.from_default_triple().create_target_machine(jit=True))
        self.engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self.engine.finalize_object()
        self.table = np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(self.engine.get_global_value_address("blocks")))
