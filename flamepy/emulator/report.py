"""What went wrong, in words: kernel, line of Python, block and thread, address, and the allocation nearest to it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import EmulationError
from . import layout, waiting
from .layout import DEVICE_BASE, GLOBAL, LOCAL, LOCAL_WINDOW, SHARED, SHARED_WINDOW

SPACE = {GLOBAL: "global", SHARED: "shared", LOCAL: "local"}


class Fault:
    """The words that the runtime left, read."""

    def __init__(self, launch: Any) -> None:
        words = [int(w) for w in launch.words[:8]]
        self.launch, self.entry = launch, launch.kernel.entry
        self.code, self.at, self.thread, self.address, self.detail, self.other_at, self.other_thread, _ = words
        self.block = int(launch.words[layout.BLOCK_NOW])

    def line(self, at: int) -> str:
        if not 0 <= at < min(len(self.entry.instructions), layout.R_INSTRUCTIONS):  # the last number stands for all behind it
            return "a line that is not known"
        return self.entry.places(self.entry.instructions[at])

    def line_of_block(self, block: int) -> str:
        """The line of a block's last instruction: a barrier, or a branch."""
        blocks = self.launch.kernel.blocks
        return self.line(blocks[block].last - 1) if 0 <= block < len(blocks) else "a line that is not known"

    def instruction(self) -> str:
        at = self.at
        return str(self.entry.instructions[at]) if 0 <= at < len(self.entry.instructions) else "?"

    def who(self, thread: int, block: int | None = None) -> str:
        return f"thread {shape(thread, self.launch.block)} of block {shape(self.block if block is None else block, self.launch.grid)}"

    def where(self) -> str:
        """An address, and what lies near it."""
        address = self.address
        space = SHARED if SHARED_WINDOW <= address < LOCAL_WINDOW else (LOCAL if address >= LOCAL_WINDOW else GLOBAL)
        if space == GLOBAL and address < DEVICE_BASE:
            space = self.space_named()
        if space == GLOBAL:
            return f"global address {address:#x}{self.launch.machine.memory.nearest(address)}"
        offset = address & (SHARED_WINDOW - 1)
        if space == LOCAL and (found := self.local_array(offset)):
            return found
        variables = self.entry.shared if space == SHARED else self.entry.local
        return f"{SPACE[space]} memory at byte {offset}{near(variables, offset, self.launch, space)}"

    def local_array(self, offset: int) -> str:
        """What a watched local array is (../watch.py), and how far from it the address lies."""
        words, size = self.launch.words[layout.SPACES + layout.GROUP * LOCAL :], self.launch.kernel.local_bytes
        if not any(i.opcode == "own.local" for i in self.entry.instructions) or not 0 <= offset < size:
            return ""
        states = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(int(words[layout.STATE]) + self.thread * size))
        mine = np.flatnonzero(np.diff(states & layout.ALLOCATED, prepend=0, append=0).astype(bool)).reshape(-1, 2).tolist()
        start, end = min(mine, key=lambda run: max(run[0] - offset, offset - run[1] + 1))
        if start <= offset < end:
            return f"local memory, {offset - start} bytes into an array of {end - start} bytes"
        where = f"{offset - end} bytes past the end" if offset >= end else f"{start - offset} bytes before the beginning"
        return f"local memory, {where} of an array of {end - start} bytes"

    def space_named(self) -> int:
        parts = self.instruction().replace("::", ".").split()
        opcode = next((p for p in parts if "." in p and not p.startswith("@")), "")
        if opcode.startswith(("ldmatrix", "cp.async", "wgmma")) and self.address < DEVICE_BASE:
            return SHARED
        return next((k for k, name in SPACE.items() if f".{name}" in opcode), GLOBAL)


def near(variables: list[Any], offset: int, launch: Any, space: int) -> str:
    for v in variables:
        if v.offset <= offset < v.offset + v.size:
            return f", {offset - v.offset} bytes into {v.name} ({v.size} bytes)"
    if space == SHARED and launch.dynamic and launch.dynamic_at <= offset < launch.dynamic_at + launch.dynamic:
        return f", {offset - launch.dynamic_at} bytes into the {launch.dynamic} bytes that the launch gave"
    if space == SHARED and launch.kernel.entry.dynamic and offset >= launch.dynamic_at:
        return f", {offset - launch.dynamic_at} bytes into what the launch says how long it is: {launch.dynamic} bytes (shared=)"
    past = [(offset - v.offset - v.size, v) for v in variables if offset >= v.offset + v.size]
    if past:
        distance, v = min(past, key=lambda p: p[0])
        return f", {distance} bytes past the end of {v.name} ({v.size} bytes)"
    return ", which nothing was given"


def shape(index: int, sizes: tuple) -> str:
    """A thread or block by its coordinates, as many as the launch has."""
    x, y, z = index % sizes[0], index // sizes[0] % sizes[1], index // (sizes[0] * sizes[1])
    return f"({x}, {y}, {z})" if sizes[2] > 1 else (f"({x}, {y})" if sizes[1] > 1 else str(x))


def lanes_of(mask: int) -> str:
    found = [str(k) for k in range(32) if mask >> k & 1]
    return ", ".join(found) if len(found) < 9 else f"{', '.join(found[:8])} and {len(found) - 8} more"


def wrong_access(what: str, cure: str) -> Callable[[Fault], str]:
    """The words for an access that was not done: what it was, how many bytes, where and by whom, and what to do."""
    return lambda f: f"{what}: {f.detail} bytes at {f.where()}, by {f.who(f.thread)}, {f.line(f.at)}. {cure.format(f.detail)}"


def bounds(f: Fault) -> str:
    what = "write" if f.other_thread else "read"
    return wrong_access(f"{what} out of bounds", "Check the index and the guard before it.")(f)


def index(f: Fault) -> str:
    return (
        f"index out of bounds: {f.detail} on axis {f.other_at}, which has {f.other_thread} elements, of the array at {f.where()}, "
        f"by {f.who(f.thread)}, {f.line(f.at)}. Check the index and the guard before it."
    )


alignment = wrong_access("misaligned access", "The address has to be a multiple of {}: pad the rows, or use narrower accesses.")
read_only = wrong_access("write into an array that is read-only", "Leave it out, or give an array that may be written.")
unwritten = wrong_access("read of memory that nothing has written", "Write it before, or leave the read out.")
copying = wrong_access("access to memory that cp.async still writes", "Wait for the copy (cp.async.wait_group) and pass a barrier before.")


def race(f: Fault) -> str:
    phase = f.detail >> 8
    starts = np.asarray(f.launch.starts[: f.launch.blocks])
    block = f.block
    began = int(starts[f.block])
    if phase < began:
        earlier = np.flatnonzero((starts > 0) & (starts <= phase))
        block = int(earlier[np.argmax(starts[earlier])]) if earlier.size else f.block
    now = "writes" if f.detail & 1 else "reads"
    before = "read" if f.code == layout.READ_RACE else "wrote"
    if block != f.block:
        cure = "Blocks are not ordered within a launch: use atomics, or a second launch."
    elif f.thread >> 5 == f.other_thread >> 5:
        wide = ", or cuda.syncthreads() where other warps share it" if f.launch.threads > 32 else ""
        cure = f"Put cuda.syncwarp() between them (lanes of a warp are not in step){wide}."
    else:
        cure = "Put cuda.syncthreads() between them."
    return (
        f"race: {f.who(f.thread)} {now} at {f.line(f.at)} what {f.who(f.other_thread, block)} {before} at {f.line(f.other_at)}, "
        f"with no barrier between: {f.where()}. {cure}"
    )


def trap(f: Fault) -> str:
    return f"trap: {f.who(f.thread)} gave up, by raise, assert or trap, {f.line(f.at)}. Look at the check before it."


def lane(f: Fault) -> str:
    return (
        f"shuffle from a lane that takes no part: lane {f.address}, by {f.who(f.thread)}, {f.line(f.at)}; "
        f"here are lanes {lanes_of(f.detail)}. Let all lanes that are read from come to the shuffle."
    )


def mask(f: Fault) -> str:
    shown, missing = f"{f.address & 0xFFFFFFFF:#010x}", f.address & ~f.detail
    if not missing:
        return (
            f"a warp's mask leaves out a lane that is here: mask {shown}, by {f.who(f.thread)}, {f.line(f.at)}; "
            "the thread itself is not in its mask. Name every lane that comes to it."
        )
    return (
        f"a warp's mask names lanes that are not here: mask {shown}, by {f.who(f.thread)}, {f.line(f.at)}; "
        f"missing are lanes {lanes_of(missing)}. Let all named lanes come to it, or name fewer."
    )


def deadlock(f: Fault) -> str:
    other = f"thread {shape(f.other_thread, f.launch.block)} has ended" if f.other_thread >= 0 else ""
    if f.other_at >= 0:
        other += f"{' and ' if other else ''}others wait at {f.line_of_block(f.other_at)}"
    return (
        f"deadlock: {f.who(f.thread)} waits at the barrier of {f.line_of_block(f.at)}, which not all threads reach: "
        f"{other or 'its count of threads does not fit'}. Let every thread of the block come to the barrier."
    )


def apart(what: str, place: Callable[[Fault, int], str], cure: str) -> Callable[[Fault], str]:
    """The words for threads that should come to one instruction, and are at two."""
    return lambda f: f"{what}: {f.who(f.thread)} at {place(f, f.at)}, {f.who(f.other_thread)} at {place(f, f.other_at)}. {cure}"


diverged = apart("threads of one block wait at different barriers", Fault.line_of_block, "Put one barrier where all threads come by.")
stray = apart("warps of one group do different things by wgmma", Fault.line, "Let its four warps take one way to each instruction.")


def endless(f: Fault) -> str:
    blocks = f.launch.kernel.blocks
    at = f.line(blocks[f.at].first) if 0 <= f.at < len(blocks) else "its end"
    asked, plain = waiting.asks(f.entry, blocks, f.at)
    condition = waiting.condition(f.entry, blocks, f.at)
    named = f"Check the loop's condition at {f.line(condition)}" if condition >= 0 else "Check the loop's condition"
    cure = f"{named}, or raise Machine(limit=)."
    if plain:
        cure = (
            f"It waits for what is read plainly at {f.line(asked)}, which the compiler may read once for all: "
            "read it by an atomic (cuda.atomic.add(flag, 0, 0)), and write it by one."
        )
    elif asked >= 0:
        cure = (
            f"It waits for what is read at {f.line(asked)}, and no thread writes what it waits for. "
            "Blocks run one after the other here: let none wait for a later one."
        )
    return f"does not end: {f.detail:,} steps of one warp, {f.who(f.thread)} is at {at}. {cure}"


def too_many(f: Fault) -> str:
    return f"too many copies wait: {f.detail} cp.async of one warp, {f.line(f.at)}. Wait for some of them."


TEXTS = {
    layout.BOUNDS: bounds, layout.ALIGNMENT: alignment, layout.UNWRITTEN: unwritten, layout.RACE: race, layout.READ_RACE: race,
    layout.TRAP: trap, layout.LANE: lane, layout.MASK: mask, layout.DEADLOCK: deadlock, layout.DIVERGED: diverged, layout.ENDLESS: endless,
    layout.STILL_COPYING: copying, layout.TOO_MANY: too_many, layout.READ_ONLY: read_only, layout.INDEX_FAULT: index, layout.STRAY: stray,
}  # fmt: skip
KINDS = {
    layout.BOUNDS: "out of bounds", layout.ALIGNMENT: "misaligned", layout.UNWRITTEN: "uninitialised", layout.RACE: "race",
    layout.READ_RACE: "race", layout.STILL_COPYING: "race", layout.LANE: "barrier", layout.MASK: "barrier", layout.DEADLOCK: "barrier",
    layout.DIVERGED: "barrier", layout.READ_ONLY: "out of bounds", layout.INDEX_FAULT: "out of bounds", layout.STRAY: "barrier",
}  # fmt: skip


def error(launch: Any) -> EmulationError:
    fault = Fault(launch)
    found = EmulationError(f"{short(launch.kernel.name)}: {TEXTS[fault.code](fault)}")
    found.kind = KINDS.get(fault.code, "")
    return found


def short(name: str) -> str:
    """A kernel's name as its author wrote it, out of the mangled one."""
    from re import match

    text, parts = name, []
    if not text.startswith("_ZN"):
        return text
    text = text[3:]
    while found := match(r"(\d+)", text):
        length = int(found[1])
        parts.append(text[len(found[1]) : len(found[1]) + length])
        text = text[len(found[1]) + length :]
    return parts[-1] if parts else name
