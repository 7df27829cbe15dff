"""Small PTX texts for the emulator's tests: a kernel that does some instructions on every lane, on arrays of any type."""

from __future__ import annotations

from typing import Any

import numpy as np

from flamepy.emulator import Machine, Memory

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
# PTX type -> register type, what a load is called, bytes
TYPES = {
    "u8": ("b16", "u8", 1), "s8": ("b16", "s8", 1), "u16": ("b16", "u16", 2), "s16": ("b16", "s16", 2), "b16": ("b16", "b16", 2),
    "u32": ("b32", "u32", 4), "s32": ("b32", "s32", 4), "b32": ("b32", "b32", 4), "u64": ("b64", "u64", 8), "s64": ("b64", "s64", 8),
    "b64": ("b64", "b64", 8), "f32": ("f32", "f32", 4), "f64": ("f64", "f64", 8),
}  # fmt: skip
DTYPES = {"b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "f32": np.float32, "f64": np.float64}
REGISTERS = ".reg .pred %p<16>; .reg .b16 %h<32>; .reg .b32 %r<64>; .reg .f32 %f<32>; .reg .b64 %rd<32>; .reg .f64 %fd<16>;"


def dtype_of(name: str) -> Any:
    return DTYPES.get(name) or np.dtype({"s": "int", "u": "uint"}[name[0]] + name[1:])


def entry(name: str, parameters: str, body: str, outside: str = "") -> str:
    """A kernel: parameters like "u64 x, u32 n"; registers %p, %h, %r, %f, %rd, %fd are declared."""
    declared = ", ".join(f".param .{kind} {name}" for kind, name in (p.split() for p in parameters.split(",") if p.strip()))
    return f"{HEAD}{outside}\n.visible .entry {name}({declared})\n{{\n{REGISTERS}\n{body}\nret;\n}}\n"


def lanewise(body: str, out: str, *inputs: str) -> str:
    """Each thread loads %a, %b, %c, runs the body, stores %d."""
    lines = [".reg .pred %q;", ".reg .u64 %base, %at; mov.u32 %r60, %tid.x;"]
    for letter, kind in zip("abc", inputs, strict=False):
        register, load, size = TYPES[kind]
        lines.append(
            f".reg .{register} %{letter}; ld.param.u64 %base, [{letter}]; mul.wide.u32 %at, %r60, {size}; add.u64 %at, %base, %at;"
        )
        lines.append(f"ld.global.{load} %{letter}, [%at];")
    register, store, size = TYPES[out]
    lines.append(f".reg .{register} %d;")
    lines.append(body)
    lines.append(f"ld.param.u64 %base, [d]; mul.wide.u32 %at, %r60, {size}; add.u64 %at, %base, %at; st.global.{store} [%at], %d;")
    names = ", ".join(f"u64 {letter}" for letter in [*"abc"[: len(inputs)], "d"])
    return entry("k", names, "\n".join(lines))


class Device:
    """A machine with a few words for tests."""

    def __init__(self, **options: Any) -> None:
        self.memory = Memory(1 << 30)
        self.machine = Machine(self.memory, **options)

    def array(self, values: Any, dtype: Any = None) -> int:
        values = np.ascontiguousarray(values, dtype)
        address = self.memory.allocate(values.nbytes)
        self.memory.write(address, values)
        return address

    def empty(self, count: int, dtype: Any = np.float32) -> int:
        return self.memory.allocate(count * np.dtype(dtype).itemsize)

    def run(self, text: str, grid: Any, block: Any, *arguments: Any, **options: Any) -> Any:
        (kernel,) = self.machine.load(text).values()
        return self.machine.launch(kernel, grid, block, arguments, **options)

    def lanewise(self, body: str, out: str, **inputs: np.ndarray) -> np.ndarray:
        """What the body makes of arrays: `lanewise("add.s32 %d, %a, %b;", "s32", s32=(x, y))`, or type=array for each."""
        kinds, arrays = [], []
        for kind, given in inputs.items():
            for array in given if isinstance(given, tuple) else (given,):
                kinds.append(kind)
                arrays.append(np.ascontiguousarray(array, dtype_of(kind)))
        count = len(arrays[0])
        result = self.empty(count, dtype_of(out))
        self.run(lanewise(body, out, *kinds), 1, count, *(self.array(a) for a in arrays), result)
        return self.memory.read(result, count, dtype_of(out))
