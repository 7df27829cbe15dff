"""The emulated device: loads PTX, launches kernels, tells what is wrong in them.

machine = Machine(Memory())
kernel = machine.load(ptx)["name"]
machine.launch(kernel, grid=4, block=256, arguments=(x, y, n))
"""

from __future__ import annotations

import ctypes
import math
import pickle
import struct
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import EmulationError
from . import (  # noqa: F401  (they fill HANDLERS)
    host,
    lanes_arithmetic,
    lanes_convert,
    lanes_logic,
    lanes_memory,
    lanes_move,
    lanes_tensor,
    lanes_warp,
    layout,
    ptx,
    report,
    runtime,
)
from .count import Counts
from .entry import Entry, Instruction, place_all
from .flow import WATCHED, Block, blocks_of, comes_by, head, meets, orders_some
from .lanes import Lanes
from .layout import ALLOCATED, GLOBAL, GROUP, LANES, LAST_PHASE, LOCAL, SHARED, SPACES
from .memory import Memory

FORMATS = {"u8": "B", "s8": "b", "b8": "B", "u16": "H", "s16": "h", "b16": "H", "u32": "I", "s32": "i", "b32": "I"}
FORMATS |= {"u64": "Q", "s64": "q", "b64": "Q", "f32": "f", "f64": "d"}
ORDERS = {"all": 0, "first": 1, "last": 2, "chance": 3}
SHARED_LIMIT = 232_448  # bytes of shared memory that a block can have at most
STATIC_LIMIT = 48 << 10  # of these, what a kernel may declare
MOST = (1 << 31) - 1, 65535, 65535  # blocks of a launch in each dimension
RED_ZONE = 128  # between arrays in shared memory: a multiple of the banks
KEPT = 16  # sizes of launches whose arrays a kernel keeps
BUDGET = 100_000  # basic blocks until Python looks for Ctrl-C
ROOM = 1 << 25  # for the phases of a launch, at least


class Kernel:
    """A compiled kernel: machine code of its blocks, and the tables that the runtime walks through. That is kept on disk; loaded() does the
    rest. The PTX is read again only where something in it is wrong, or counted."""

    def __init__(self, entry: Entry, variables: dict[str, int], apart: bool) -> None:
        """`variables`: numbers of those of the module."""
        self.name, self.entry_name, self.apart = entry.name, entry.name, apart
        self.shared_bytes, self.local_bytes = placed(entry)
        self.arrays, self.dynamic = [(v.offset, v.size) for v in entry.shared], bool(entry.dynamic)
        blocks = (lanes := Lanes(entry, variables, apart)).blocks
        self.code, self.called = host.compiled(lanes.write()), sorted(lanes.called)
        self.kinds = np.array([b.kind | layout.COLLECTIVE * b.collective for b in blocks], np.int32)
        self.targets, self.falls = (np.array([getattr(b, name) for b in blocks], np.int32) for name in ("target", "fall"))
        places = [entry.instructions[b.last - 1] for b in blocks]
        numbers: dict[Any, int] = {}  # of lines of Python; 0 if one is not known
        self.lines = np.array([i.line and numbers.setdefault((i.file, i.line, i.called), len(numbers) + 1) for i in places], np.int32)
        self.meets = np.array(meetings([entry.instructions[b.first] for b in blocks]), np.int32)
        self.warp_bytes = -(-lanes.bytes // 64) * 64
        self.loose = any(orders_some(i) for i in entry.instructions)
        self.watched = any(head(i) in WATCHED for i in entry.instructions)
        self.format = [(p.offset, p.size, FORMATS.get(p.type, "") if p.size == ptx.SIZES[p.type] else "") for p in entry.parameters]
        self.parameter_bytes = max((offset + size for offset, size, _ in self.format), default=0)

    def loaded(self, text: str, variables: np.ndarray) -> Kernel:
        """Ready to run. `text`: the PTX of the module, `variables`: where its variables are."""
        self.text, self.variables = text, variables
        for name in self.called:
            runtime.symbol(name)
        self.native = host.Loaded(self.code, len(self.kinds))
        self.launches: dict[tuple, Launch] = {}
        self.packers: dict[tuple[type, ...], struct.Struct | None] = {}
        return self

    @cached_property
    def entry(self) -> Entry:
        entry = ptx.read(self.text).entries[self.entry_name]
        placed(entry)
        return entry

    @cached_property
    def blocks(self) -> list[Block]:
        return blocks_of(self.entry, self.apart)

    @cached_property
    def copied(self) -> bool:
        """Whether a line where lanes meet stands at several places: they may come from two branches."""
        keys = [(i.opcode, i.file, i.line, i.called) for i in self.entry.instructions if i.line and meets(i)]
        return len(set(keys)) < len(keys)

    def pack(self, arguments: Sequence[Any]) -> np.ndarray:
        """Arguments as the kernel's parameter block: numbers by their declared types, or bytes."""
        if len(arguments) != len(self.format):
            raise EmulationError(
                f"{self.name}: wrong number of arguments: {len(arguments)}, not {len(self.format)}. Pass one for each parameter."
            )
        types = tuple(map(type, arguments))
        try:
            packer = self.packers[types]
        except KeyError:
            packer = self.packers[types] = self.packer(types)
        block = bytearray(self.parameter_bytes)
        try:
            packer.pack_into(block, 0, *arguments)  # type: ignore[union-attr]
        except (AttributeError, struct.error):  # no packer, or a number that does not fit its letter
            for k, (value, (offset, size, letter)) in enumerate(zip(arguments, self.format, strict=True)):
                block[offset : offset + size] = self.packed(k, value, size, letter)
        return np.frombuffer(block, np.uint8)

    def packer(self, types: Sequence[type]) -> struct.Struct | None:
        """What packs arguments of these types at once; None where one of them is no number of a size that its parameter has."""
        text, end = "<", 0
        for kind, (offset, size, letter) in zip(types, self.format, strict=True):
            if issubclass(kind, np.generic):
                found = np.dtype(kind).str[1:]
                code = {"f4": "f", "f8": "d", "i4": "i", "i8": "q", "u4": "I", "u8": "Q", "i1": "b", "u1": "B", "b1": "?"}.get(found, "")
            elif kind is float:
                code = "f" if size == 4 else "d"
            else:
                code = (
                    "" if not issubclass(kind, int) else letter if letter in ("f", "d") else {1: "B", 2: "H", 4: "I", 8: "Q"}.get(size, "")
                )
            if not code or struct.calcsize(code) != size:
                return None
            text, end = f"{text}{offset - end}x{code}", offset + size
        return struct.Struct(text)

    def packed(self, k: int, value: Any, size: int, letter: str) -> bytes:
        if isinstance(value, np.generic):
            raw = value.tobytes()
        elif isinstance(value, (bytes, bytearray)):
            raw = bytes(value)
        elif isinstance(value, float):
            raw = struct.pack("<f" if size == 4 else "<d", value)
        else:
            raw = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            if letter in ("f", "d"):
                raw = struct.pack("<" + letter, float(value))
        if len(raw) != size:
            kind = self.entry.parameters[k].type
            raise EmulationError(f"{self.name}: argument {k} has {len(raw)} bytes: {value!r}, for .{kind} with {size}. Convert it.")
        return raw


def placed(entry: Entry) -> tuple[int, int]:
    """Give the arrays of a kernel their places. Returns the bytes of shared memory, and of each thread's local memory."""
    return place_all(entry.shared, RED_ZONE), -(-place_all(entry.local) // 16) * 16


def meetings(first: list[Instruction]) -> list[int]:
    """For each block, of which this is the `first` instruction, a number of what lanes do together in it, and of the line of that; 0 if
    they do not meet."""
    keys = [(i.opcode, i.file, i.line, i.called) if i.line and meets(i) else None for i in first]
    numbers = {key: k for k, key in enumerate(dict.fromkeys([None, *keys]))}
    return [numbers[key] for key in keys]


def three(size: Any) -> tuple[int, int, int]:
    """A size in three dimensions; zeros where it is none."""
    if type(size) is tuple and len(size) == 3 and type(size[0]) is type(size[1]) is type(size[2]) is int:
        return size
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(s, (int, np.integer)) and not isinstance(s, bool) for s in sizes):
        return 0, 0, 0
    return tuple(int(s) for s in (*sizes, 1, 1)[:3])  # type: ignore[return-value]


def size_of(name: str, grid: Any, block: Any, shared: Any) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
    """A launch's size, if a GPU would take it: blocks, threads of one, bytes of shared memory that the launch gives."""
    blocks, threads = three(grid), three(block)
    if min(*blocks, *threads) < 1 or math.prod(threads) > 1024 or threads[2] > 64:
        raise EmulationError(f"{name}: not a size of a launch: grid {grid}, block {block}. Blocks: 1 or more, of 1 to 1,024 threads.")
    if any(b > most for b, most in zip(blocks, MOST, strict=True)):
        raise EmulationError(f"{name}: not a size of a launch: grid {grid}. A grid has at most {MOST} blocks in its dimensions.")
    if not isinstance(shared, (int, np.integer)) or shared < 0:
        raise EmulationError(f"{name}: not a size of shared memory: {shared!r}. Give a number of bytes.")
    return blocks, threads, int(shared)


class Machine:
    """A device with this memory. `folder`: where compiled kernels are kept. `limit`: basic blocks that a warp may run."""

    def __init__(self, memory: Memory, folder: str | Path | None = None, limit: int = 20_000_000) -> None:
        self.memory, self.limit = memory, limit
        self.folder = Path(folder) / f"emulator-{runtime.sources()}" if folder else None
        self.phase = self.turns = 0  # turns: how often phases began again, and all records with them
        self.launches = 0
        self.pool = np.zeros((layout.POOL_CELLS, 2), np.int64)  # takes memory where it is used
        self.turn = threading.Lock()

    def load(self, text: str, apart: bool = False) -> dict[str, Kernel]:
        """Compile every entry of a PTX text; `apart`: so that lanes that meet in two copies of a line do so (runtime_meetings.py)."""

        def made() -> bytes:
            module = ptx.read(text)
            numbers = {v.name: k for k, v in enumerate(module.variables)}
            return pickle.dumps((module.variables, [Kernel(entry, numbers, apart) for entry in module.entries.values()]))

        variables, kernels = pickle.loads(host.made_once(self.folder, (text, str(apart)), made))
        addresses = []
        for variable in variables:
            address = self.memory.allocate(variable.size) if not variable.name.startswith("_ZN08NumbaEnv") else 0
            if address:
                self.memory.write(address, variable.data.ljust(variable.size, b"\0"))
            addresses.append(address)
        table = np.array([*addresses, 0], np.int64)
        return {kernel.name: kernel.loaded(text, table) for kernel in kernels}

    def launch(
        self,
        kernel: Kernel,
        grid: Any,
        block: Any,
        arguments: Sequence[Any],
        shared: int = 0,
        order: str = "all",
        count: bool = False,
        races: bool = True,
    ) -> Counts | None:
        """Run a kernel to its end; what it did, if it is to `count` that, or if it is watched. order: warps in turns ("all"), or each as
        far as it gets, from the first or from the last, or by chance, always the same, while one after the other is held back for long. One
        launch at a time, as in one stream, whichever threads they come from: the records of accesses are those of all. races: whether it
        is watched for them, which takes most of its time."""
        self.memory.check_process()
        key = (self, *size_of(kernel.name, grid, block, shared))
        with self.turn:
            if self.phase + 4 * math.prod(key[1]) > LAST_PHASE - ROOM:
                self.memory.forget()
                self.phase, self.turns = 0, self.turns + 1
            launch = kernel.launches.pop(key, None)
            if launch is None or launch.turns != self.turns:
                launch = Launch(self, kernel, *key[1:])
            launch.begin(arguments, order, count, races)
            counts = launch.run()
            if len(kernel.launches) < KEPT:  # not after an error
                kernel.launches[key] = launch
        return counts


class Launch:
    """Everything that the runtime needs for launches of one size, in arrays that stay."""

    def __init__(self, machine: Machine, kernel: Kernel, grid: tuple, block: tuple, shared: int) -> None:
        self.machine, self.kernel, self.grid, self.block, self.dynamic = machine, kernel, grid, block, shared
        self.turns, self.threads = machine.turns, block[0] * block[1] * block[2]
        self.blocks = grid[0] * grid[1] * grid[2]
        self.dynamic_at = kernel.shared_bytes
        if kernel.dynamic and kernel.shared_bytes:
            self.dynamic_at = -(-(kernel.shared_bytes + RED_ZONE) // 128) * 128
        self.shared_size = self.dynamic_at + shared
        declared = sum(length for _, length in kernel.arrays)
        if declared > STATIC_LIMIT:
            raise EmulationError(
                f"{kernel.name}: too much shared memory: it declares {declared:,} bytes. A kernel may declare {STATIC_LIMIT:,}; "
                "for more, declare cuda.shared.array(0, ...) and give the bytes in the launch."
            )
        if self.shared_size > SHARED_LIMIT:
            raise EmulationError(
                f"{kernel.name}: too much shared memory: {self.shared_size:,} bytes. A block has at most {SHARED_LIMIT:,}."
            )
        self.words = np.zeros(layout.LAUNCH_WORDS, np.int64)
        self.kept: list[np.ndarray] = []
        self.fill()
        self.spaces()
        self.warps()

    def array(self, size: int, dtype: Any = np.uint8) -> np.ndarray:
        """Zeros, aligned to 64 bytes."""
        kind = np.dtype(dtype)
        raw = np.zeros(size * kind.itemsize + 64, np.uint8)
        self.kept.append(raw)
        skip = -raw.ctypes.data % 64
        return raw[skip : skip + size * kind.itemsize].view(kind)

    def fill(self) -> None:
        words, kernel = self.words, self.kernel
        self.parameters = self.array(kernel.parameter_bytes)
        self.runs = self.array(2 * len(kernel.kinds), np.int64)
        self.counted = self.array(layout.COUNTERS, np.int64)
        self.starts = self.array(self.blocks + 1, np.int32)
        many = self.blocks * self.threads
        self.published = self.array(2 * kernel.loose * (many + self.blocks), np.int64)  # phases only grow: it is never emptied
        if kernel.loose and many <= layout.ROW_MOST:
            words[layout.ROWS] = self.array(layout.ROW_COUNT * (many + 1), np.int64).ctypes.data  # takes memory where it is used
        tables = {
            "PARAMETERS": self.parameters, "RUNS": self.runs, "COUNTED": self.counted, "STARTS": self.starts, "TABLE": kernel.native.table,
            "KINDS": kernel.kinds, "TARGETS": kernel.targets, "FALLS": kernel.falls, "LINES": kernel.lines, "VARIABLES": kernel.variables,
            "MEETS": kernel.meets, "PUBLISHED": self.published,
        }  # fmt: skip
        for name, array in tables.items():
            words[getattr(layout, name)] = array.ctypes.data
        words[layout.GRID : layout.GRID + 3], words[layout.BLOCK : layout.BLOCK + 3] = self.grid, self.block
        words[layout.THREADS], words[layout.BLOCKS], words[layout.WARPS] = self.threads, self.blocks, -(-self.threads // LANES)
        words[layout.LIMIT], words[layout.PARTED], words[layout.LOOSE] = self.machine.limit, kernel.apart, kernel.loose
        words[layout.POOL] = self.machine.pool.ctypes.data
        self.address = words.ctypes.data

    def begin(self, arguments: Sequence[Any], order: str, count: bool, races: bool) -> None:
        """Set what differs from launch to launch."""
        machine, words = self.machine, self.words
        self.parameters[:] = self.kernel.pack(arguments)
        self.runs[:] = self.counted[:] = self.starts[:] = 0
        words[: layout.WARP_NOW + 1] = 0
        words[layout.STARTED] = words[layout.STEPS] = words[layout.ATOMIC_SEEN] = words[layout.NARROW] = words[layout.IDLE] = 0
        words[layout.FENCE_SEEN] = words[layout.POOL_USED] = words[layout.TURNS] = 0
        words[layout.ORDER], words[layout.COUNTING], words[layout.WATCHING] = ORDERS[order], count, races
        words[layout.SLICE] = 64 if order == "all" else 1 << 16
        words[layout.BLOCK_NOW] = self.blocks - 1 if order == "last" else 0
        words[layout.PHASE] = machine.phase
        device = SPACES + GROUP * GLOBAL
        words[device + layout.TOP], words[device + layout.FIRST] = machine.memory.top, machine.phase + 1
        if count:
            machine.memory.states[: machine.memory.top] &= np.uint8(0xFF & ~(layout.READ_NOW | layout.WRITTEN_NOW))

    def spaces(self) -> None:
        """Global, shared and local memory: bytes, states, records."""
        memory, words, kernel = self.machine.memory, self.words, self.kernel
        group = lambda space: words[SPACES + GROUP * space : SPACES + GROUP * (space + 1)]
        group(GLOBAL)[:] = memory.addresses[0], memory.top, memory.addresses[1], 0, *memory.addresses[2:]
        size = -(-self.shared_size // 128) * 128
        state = self.array(size + 64)
        for offset, length in kernel.arrays:
            state[offset : offset + length] = ALLOCATED
        state[self.dynamic_at : self.dynamic_at + self.dynamic] = ALLOCATED
        words[layout.SHARED_STATE] = state.ctypes.data
        data, states = self.array(size + 64), self.array(size + 64)
        records = [self.array(k * size // 4 + 64, np.int64).ctypes.data for k in (1, 1, 1, 1, 1, 8)]
        group(SHARED)[:] = data.ctypes.data, self.shared_size, states.ctypes.data, 0, *records
        local, states = self.array(kernel.local_bytes * self.threads), self.array(kernel.local_bytes * self.threads)
        group(LOCAL)[:] = local.ctypes.data, kernel.local_bytes, states.ctypes.data, *[0] * 7

    def warps(self) -> None:
        """The warps' states: what stays the same from block to block."""
        words, count, size = self.words, int(self.words[layout.WARPS]), self.kernel.warp_bytes
        whole = self.array(count * size).reshape(count, size)
        words[layout.WARP_BASE], words[layout.WARP_BYTES] = whole.ctypes.data, size
        thread = np.arange(count * LANES, dtype=np.int32).reshape(count, LANES)
        x, y = self.block[0], self.block[1]
        for k, vector in enumerate((thread % x, thread // x % y, thread // (x * y))):
            whole[:, layout.TID + 128 * k : layout.TID + 128 * k + 128] = np.ascontiguousarray(vector).view(np.uint8)
        own = np.zeros((count, 64), np.int64)
        own[:, layout.LAUNCH], own[:, layout.INDEX] = words.ctypes.data, np.arange(count)
        own[:, layout.FIRST_THREAD] = np.arange(count) * LANES
        own[:, layout.W_PARAMETERS], own[:, layout.DYNAMIC] = self.parameters.ctypes.data, self.dynamic_at
        own[:, layout.GIVEN] = self.dynamic
        own[:, layout.NTID : layout.NTID + 3], own[:, layout.NCTAID : layout.NCTAID + 3] = self.block, self.grid
        whole[:, :512] = own.view(np.uint8)

    def left_behind(self) -> bool:
        """Whether, after an error, lanes of the warp that made it wait for others that do not come to their line any more."""
        at, thread = (int(self.words[k]) for k in (layout.AT, layout.THREAD))
        warp = int(self.words[layout.WARP_BASE] + (thread // LANES) * self.words[layout.WARP_BYTES])
        held = ctypes.c_int64.from_address(warp + 8 * layout.HELD).value
        if not held:
            return False
        lane = (held & -held).bit_length() - 1
        line = self.kernel.meets[ctypes.c_int32.from_address(warp + layout.LANE_PC + 4 * lane).value]
        return not any(comes_by(self.kernel.blocks, at, b) for b in np.flatnonzero(self.kernel.meets == line).tolist())

    def run(self) -> Counts | None:
        machine, words, go = self.machine, self.words, runtime.runner()
        machine.launches += 1
        status = 1
        try:
            while status == 1:  # Ctrl-C is heard in between
                words[layout.BUDGET] = BUDGET
                status = go(self.address)
                if words[layout.PHASE] > LAST_PHASE and status < 2:
                    many = f"{int(words[layout.PHASE]) - machine.phase:,}"
                    raise EmulationError(
                        f"{report.short(self.kernel.name)}: too many barriers and fences: {many}. Launch fewer blocks at once."
                    )
        finally:
            machine.phase = int(words[layout.PHASE])
        if status:
            raise report.error(self)
        return Counts.of(self) if words[layout.COUNTING] or self.kernel.watched else None
