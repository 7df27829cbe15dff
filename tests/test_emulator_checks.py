"""Every fault that the emulator has to find: planted in a small kernel, told with the threads and the address, and only there."""

from __future__ import annotations

import _thread
import mmap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_text import raises

pytest.importorskip("llvmlite", reason="the emulator compiles with llvmlite")
from ptx_tools import Device, entry

from flamepy.core.errors import DeviceError
from flamepy.emulator import EmulationError, machine

MINE = "ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;"  # x + 4 tid
SHARED = ".shared .align 4 .b8 tile[256]; mov.u32 %r2, tile; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3;"  # tile + 4 tid
BACK = "sub.u32 %r5, 252, %r3; add.u32 %r5, %r2, %r5;"  # tile + 4 (63 - tid)


@pytest.fixture
def device() -> Device:
    return Device()


def run(device: Device, body: str, grid: Any = 1, block: Any = 64, numbers: int = 64, **options: Any) -> np.ndarray:
    """A kernel with one array x, of which all are written."""
    x = device.array(np.arange(numbers, dtype=np.uint32))
    device.run(entry("k", "u64 x", body), grid, block, x, **options)
    return device.memory.read(x, numbers, np.uint32)


# ---- addresses -----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "access", ["ld.global.u32 %r2, [%rd3];", "st.global.u32 [%rd3], %r1;", "red.global.add.u32 [%rd3], 1;", "ld.u32 %r2, [%rd3];"]
)
@pytest.mark.parametrize("threads", [64, 61])
def test_out_of_bounds(device: Device, access: str, threads: int) -> None:
    first = device.array(np.zeros(60, "u4"))
    device.array(np.zeros(64, "u4"))
    with raises(
        EmulationError,
        "k: ",
        "out of bounds: 4 bytes",
        hex(first + 240),
        f"0 bytes past the end of the 240 bytes at {first:#x}",
        "thread 60 of block 0",
    ):
        device.run(entry("k", "u64 x", MINE + access), 1, threads, first)
    with raises(EmulationError, "which is no device address"):
        device.run(entry("k", "u64 x", MINE + access), 1, 1, np.zeros(4).ctypes.data)


def test_before_the_beginning_and_after_free(device: Device) -> None:
    x = device.array(np.zeros(64, "u4"))
    with raises(EmulationError, "4 bytes before the 256 bytes", "PTX line"):
        device.run(entry("k", "u64 x", MINE + "ld.global.u32 %r2, [%rd3+-4];"), 1, 64, x)
    device.memory.free(x)
    with raises(EmulationError, "out of bounds"):
        device.run(entry("k", "u64 x", MINE + "ld.global.u32 %r2, [%rd3];"), 1, 64, x)
    with raises(DeviceError, "free: "):
        device.memory.free(x)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells how much memory a process has")
def test_what_is_freed_is_given_back(device: Device) -> None:
    before, size = resident(), 1 << 25
    blocks = [device.memory.allocate(size) for _ in range(2)]
    for x in blocks:
        device.memory.fill(x, 1, size)
        assert resident() - before > size
        device.memory.free(x)
    assert resident() - before < size // 4
    x = blocks[0]  # the one that was freed last is kept back
    assert device.memory.allocate(size) == x and not device.memory.is_written(x, 1)


def test_misaligned(device: Device) -> None:
    for access, size in (
        ("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3];", 16),
        ("st.global.v2.f32 [%rd3], {%f1, %f1};", 8),
        ("ld.global.u64 %rd4, [%rd3];", 8),
    ):
        with raises(EmulationError, f"misaligned access: {size} bytes", "thread 1 of block 0", f"multiple of {size}"):
            run(device, MINE + access, numbers=80)
    with raises(EmulationError, "misaligned access: 4 bytes", "shared memory at byte 1, 1 bytes into tile"):
        run(device, MINE + SHARED + "st.shared.u32 [%r4+1], %r1;", block=8)


def test_memory_that_nobody_wrote(device: Device) -> None:
    x = device.empty(64)
    device.memory.write(x, np.zeros(63, "f4"))
    with raises(
        EmulationError, "read of memory that nothing has written", "thread 63 of block 0", f"252 bytes into the 256 bytes at {x:#x}"
    ):
        device.run(entry("k", "u64 x", MINE + "ld.global.u32 %r2, [%rd3];"), 1, 64, x)
    with raises(EmulationError, "nothing has written", "shared memory at byte 0, 0 bytes into tile (256 bytes)", "thread 0 of block 0"):
        run(device, MINE + SHARED + "ld.shared.u32 %r6, [%r4];")
    with raises(EmulationError, "nothing has written", "local memory at byte 4"):
        run(device, MINE + ".local .align 4 .b8 depot[16]; mov.u64 %rd4, depot; st.local.u32 [%rd4], %r1; ld.local.u32 %r2, [%rd4+4];")
    written = "setp.eq.u32 %p1, %r60, 0; @%p1 bra DONE; ld.shared.u32 %r6, [%r4]; DONE: st.shared.u32 [%r4], %r1;"
    with raises(EmulationError, "nothing has written", "block 1"):  # each block begins with a shared memory of its own
        run(
            device, MINE + SHARED + "mov.u32 %r60, %ctaid.x; xor.b32 %r60, %r60, 1; sub.u32 %r60, 1, %r60;" + written, grid=2, order="first"
        )


def test_an_address_as_far_as_there_are_any(device: Device) -> None:
    for access in ("ld.shared.u32 %r2, [%rd4];", "st.shared.u32 [%rd4], %r1;", "ld.global.u32 %r2, [%rd4];"):
        with raises(EmulationError, "out of bounds: 4 bytes"):
            run(device, MINE + f"mov.u64 %rd4, 0x7FFFFFFFFFFFFFFC; {access}", count=True)


def test_shared_and_local_memory_have_ends(device: Device) -> None:
    with raises(
        EmulationError, "write out of bounds", "shared memory at byte 256, 0 bytes past the end of tile (256 bytes)", "thread 64 of block 0"
    ):
        run(device, MINE + SHARED + "st.shared.u32 [%r4], %r1;", block=65)
    two = (
        ".shared .align 4 .b8 tile[256]; .shared .align 4 .b8 other[256]; mov.u32 %r5, other; mov.u32 %r2, tile; st.shared.u32 [%r5], %r5;"
    )
    with raises(EmulationError, "past the end of tile"):
        run(device, MINE + two + "st.shared.u32 [%r2+256], %r1;", block=1)
    with raises(EmulationError, "local memory at byte 16"):
        run(device, MINE + ".local .align 4 .b8 depot[16]; mov.u64 %rd4, depot; st.local.u32 [%rd4+16], %r1;")
    with raises(EmulationError, "too much shared memory: 300,000 bytes"):
        device.run(entry("k", "u64 x", "ret;"), 1, 1, 0, shared=300_000)


# ---- races ---------------------------------------------------------------------------------------------------------------------------
TURN = MINE + SHARED + BACK


@pytest.mark.parametrize("order", ["all", "first", "last"])
def test_missing_barrier(device: Device, order: str) -> None:
    """Neighbouring warps exchange by shared memory; written before, so that the only fault is the race."""
    fill = "st.shared.u32 [%r4], %r1; bar.sync 0;"
    good = TURN + fill + "st.shared.u32 [%r4], %r3; bar.sync 0; ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd3], %r6;"
    np.testing.assert_array_equal(run(device, good, order=order), 252 - 4 * np.arange(64))
    with raises(EmulationError, "race: thread", "with no barrier between", "bytes into tile", "cuda.syncthreads()") as caught:
        run(device, good.replace("%r3; bar.sync 0;", "%r3;"), order=order)
    text = str(caught.value)
    one, other = (int(w.split()[0]) for w in text.split("thread ")[1:3])
    assert one // 32 != other // 32 and one + other == 63, text


def test_write_after_read_without_a_barrier(device: Device) -> None:
    """The second warp reads, the first one writes there. Whichever comes first in the emulator, both orders may happen."""
    body = (
        TURN
        + """setp.gt.u32 %p1, %r1, 31; st.shared.u32 [%r4], %r1; bar.sync 0;
        @%p1 ld.shared.u32 %r6, [%r5];
        BARRIER
        @!%p1 st.shared.u32 [%r4], %r3; bar.sync 0;"""
    )
    for order, words in (("first", (" reads at ", " wrote at ")), ("last", (" writes at ", " read at "))):
        run(device, body.replace("BARRIER", "bar.sync 0;"), order=order)
        with raises(EmulationError, "race: thread", "PTX line 9", "PTX line 11", *words):
            run(device, body.replace("BARRIER", ""), order=order)


def test_lanes_of_one_warp_are_not_in_step(device: Device) -> None:
    neighbour = "xor.b32 %r6, %r4, 4; st.shared.u32 [%r4], %r1; SYNC ld.shared.u32 %r7, [%r6]; st.global.u32 [%rd3], %r7;"
    for sync in ("bar.warp.sync -1;", "bar.sync 0;"):
        np.testing.assert_array_equal(run(device, TURN + neighbour.replace("SYNC", sync), block=32)[:32], np.arange(32) ^ 1)
    ask = "setp.eq.u32 %p1, %r1, %r1;"  # CUDA: votes and shuffles "do not imply a memory barrier"
    for sync in ("", ask + "vote.sync.ballot.b32 %r8, %p1, -1;", "shfl.sync.bfly.b32 %r8, %r1, 1, 31, -1;"):
        with raises(EmulationError, "race: thread", "cuda.syncwarp()"):
            run(device, TURN + neighbour.replace("SYNC", sync), block=32)


def test_runs_of_32_bytes(device: Device) -> None:
    body = """ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 32; add.u64 %rd3, %rd1, %rd2; setp.lt.u32 %p1, %r1, 32;
        setp.eq.u32 %p2, %r1, 32; mov.u64 %rd4, 1; @!%p1 bra OTHER; ALL bra.uni DONE; OTHER: @%p2 FEW DONE:"""
    read, write = "ld.global.v4.u64 {%rd5, %rd6, %rd7, %rd8}, [%rd3];", "st.global.v4.u64 [%rd3], {%rd4, %rd4, %rd4, %rd4};"
    run(device, body.replace("ALL", read).replace("FEW", "ld.global.u32 %r2, [%rd1+600];"), numbers=256)
    for all_, one in ((read, "st.global.u32 [%rd1+600], %r1;"), (write, "ld.global.u32 %r2, [%rd1+600];")):
        with raises(EmulationError, "race: thread 32 of block 0", "what thread 18 of block 0"):
            run(device, body.replace("ALL", all_).replace("FEW", one), numbers=256)


def test_a_line_beyond_those_that_records_tell(device: Device) -> None:
    with raises(EmulationError, "out of bounds", "a line that is not known"):
        run(device, MINE + "add.u32 %r2, %r1, 1;" * 8200 + "st.global.u32 [%rd3+9999], %r2;")


def test_one_instruction_writes_one_place(device: Device) -> None:
    run(device, MINE + "mov.u32 %r2, 5; st.global.u32 [%rd1], %r2;", block=32)  # the same value: no race
    with raises(EmulationError, "race: thread 1 of block 0 writes", "what thread 0 of block 0 wrote"):
        run(device, MINE + "st.global.u32 [%rd1], %r1;", block=32)


def test_bytes_of_one_word_are_apart(device: Device) -> None:
    half = "mul.wide.u32 %rd2, %r1, 2; add.u64 %rd3, %rd1, %rd2; cvt.u16.u32 %h1, %r1; st.global.u16 [%rd3], %h1;"
    np.testing.assert_array_equal(run(device, MINE + half).view("u2")[:64], np.arange(64))
    with raises(EmulationError, "race: "):
        run(device, MINE + half + "ld.global.u16 %h2, [%rd1+2];")


def test_races_between_blocks(device: Device) -> None:
    cell = MINE + "mov.u32 %r9, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;"
    with raises(EmulationError, "thread 0 of block 1 writes", "thread 0 of block 0 wrote", "Blocks are not ordered"):
        run(device, cell + "st.global.u32 [%rd3], %r9;", grid=2, order="first")
    with raises(EmulationError, "race: thread 0 of block 1 reads", "block 0 wrote"):
        run(device, cell + "setp.eq.u32 %p2, %r9, 0; @%p2 st.global.u32 [%rd3], %r9; @!%p2 ld.global.u32 %r8, [%rd3];", grid=2)
    with raises(EmulationError, "race: ", "read"):
        run(device, cell + "setp.eq.u32 %p2, %r9, 1; @%p2 st.global.u32 [%rd3], %r9; @!%p2 ld.global.u32 %r8, [%rd3];", grid=2)
    run(device, cell + "red.global.add.u32 [%rd3], 1;", grid=4)  # atomics among themselves
    with raises(EmulationError, "race: "):
        run(device, cell + "red.global.add.u32 [%rd3], 1; ld.global.u32 %r8, [%rd3];", grid=2)
    for _ in range(3):  # launches are ordered
        run(device, cell + "st.global.u32 [%rd3+4], %r9;", grid=1)


def test_the_last_block_may_read_what_the_others_have_published(device: Device) -> None:
    """Partial results, a fence, a counter: the block that comes last adds them up."""
    body = (
        MINE
        + """mov.u32 %r9, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret; mul.wide.u32 %rd4, %r9, 4; add.u64 %rd5, %rd1, %rd4;
        add.u32 %r8, %r9, 10; st.global.u32 [%rd5+16], %r8; FENCE atom.global.add.u32 %r7, [%rd1], 1; setp.ne.u32 %p2, %r7, 3; @%p2 ret;
        ld.global.u32 %r2, [%rd1+16]; ld.global.u32 %r3, [%rd1+20]; ld.global.u32 %r4, [%rd1+24]; ld.global.u32 %r5, [%rd1+28];
        add.u32 %r2, %r2, %r3; add.u32 %r4, %r4, %r5; add.u32 %r2, %r2, %r4; st.global.u32 [%rd1+4], %r2;"""
    )
    for fence in ("membar.gl;", "fence.acq_rel.gpu;"):
        assert run(device, body.replace("FENCE", fence), grid=4)[1] == 46
    with raises(EmulationError, "race: "):
        run(device, body.replace("FENCE", ""), grid=4)


# ---- barriers and masks --------------------------------------------------------------------------------------------------------------
def test_deadlocks(device: Device) -> None:
    early = MINE + "setp.gt.u32 %p1, %r1, 40; @%p1 ret; bar.sync 0;"
    with raises(EmulationError, "deadlock: thread 0 of block 0 waits", "thread 41 has ended"):
        run(device, early)
    apart = MINE + "setp.gt.u32 %p1, %r1, 15; @%p1 bra ELSE; bar.sync 0; bra.uni DONE; ELSE: bar.sync 0; DONE:"
    with raises(EmulationError, "threads of one block wait at different barriers"):
        run(device, apart)
    with raises(EmulationError, "deadlock: "):
        run(device, MINE + "setp.gt.u32 %p1, %r1, 31; @%p1 bra ELSE; bar.sync 1; bra.uni DONE; ELSE: bar.sync 2; DONE:")


def test_masks_and_lanes_of_shuffles(device: Device) -> None:
    half = "setp.gt.u32 %p1, %r1, 15; @%p1 bra DONE; {} DONE:"
    for text in (
        "shfl.sync.down.b32 %r2, %r1, 1, 31, {};",
        "bar.warp.sync {};",
        "vote.sync.ballot.b32 %r2, %p1, {};",
        "redux.sync.add.u32 %r2, %r1, {};",
    ):
        run(device, MINE + half.format(text.format(0xFFFF).replace("31,", "0x101F,")), block=32)
        with raises(EmulationError, "mask names lanes that are not here: mask 0xffffffff", "thread 0 of block 0", "lanes 16, 17"):
            run(device, MINE + half.format(text.format(-1)), block=32)
    with raises(EmulationError, "not in its mask"):
        run(device, MINE + "bar.warp.sync 1;", block=2)
    with raises(EmulationError, "shuffle from a lane that takes no part: lane 16", "thread 0 of block 0"):
        run(device, MINE + "shfl.sync.down.b32 %r2, %r1, 16, 31, -1;", block=16)
    mma = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1,%f2,%f3,%f4}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%f1,%f2,%f3,%f4};"
    with raises(EmulationError, "mask names lanes that are not here", "16, 17"):
        run(device, MINE + mma, block=16)


# ---- ends ----------------------------------------------------------------------------------------------------------------------------
def test_kernels_that_do_not_end() -> None:
    device = Device(limit=20_000)
    with raises(EmulationError, "k: does not end: ", "thread 0 of block 0", "limit"):
        run(device, "LOOP: bra.uni LOOP;")
    with raises(EmulationError, "k: trap: thread 3 of block 0"):
        run(device, MINE + "setp.eq.u32 %p1, %r1, 3; @%p1 trap;")
    spin = (
        MINE + "setp.lt.u32 %p1, %r1, 32; @!%p1 bra SET; WAIT: ld.volatile.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;"
    )
    run(device, spin + "bra.uni DONE; SET: mov.u32 %r3, 1; st.volatile.global.u32 [%rd1], %r3; DONE:")  # one warp waits for the other


def test_more_barriers_than_can_be_told_apart(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than a race that is not found; the next launch begins anew."""
    monkeypatch.setattr(machine, "LAST_PHASE", 20_000)
    monkeypatch.setattr(machine, "ROOM", 100)
    loop = MINE + "mov.u32 %r2, TIMES; LOOP: bar.sync 0; sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra LOOP;"
    for _ in range(2):
        with raises(EmulationError, "k: too many barriers and fences: "):
            run(device, loop.replace("TIMES", "60000"), block=32)
        run(device, loop.replace("TIMES", "19000"), block=32)


def test_ctrl_c_is_heard() -> None:
    device = Device(limit=1 << 60)
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(device, "LOOP: bra.uni LOOP;")
    timer.join()
    assert run(device, MINE + "st.global.u32 [%rd3], %r1;")[5] == 5  # the machine goes on


def test_sizes_and_arguments(device: Device) -> None:
    text = entry(
        "k",
        "u64 x, f32 y, u32 z",
        MINE + "ld.param.f32 %f1, [y]; cvt.rzi.s32.f32 %r2, %f1; ld.param.u32 %r3, [z]; add.s32 %r2, %r2, %r3; st.global.u32 [%rd3], %r2;",
    )
    (kernel,) = device.machine.load(text).values()
    x = device.empty(4, "i4")
    for y, z in ((2.5, -1), (np.float32(2.5), np.int32(-1)), (2, 0xFFFFFFFF)):
        device.machine.launch(kernel, (1, 1, 1), (4,), (x, y, z))
        assert device.memory.read(x, 4, "i4").tolist() == [1] * 4
    with raises(EmulationError, "wrong number of arguments: 2, not 3"):
        device.machine.launch(kernel, 1, 4, (x, 1.0))
    with raises(EmulationError, "argument 1 has 8 bytes"):
        device.machine.launch(kernel, 1, 4, (x, np.float64(1), 2))
    with raises(EmulationError, "not a size of a launch"):
        device.machine.launch(kernel, 1, 1025, (x, 1.0, 2))
    with raises(DeviceError, "read: outside of what is allocated: 20 bytes", "0 bytes into the 16 bytes"):
        device.memory.read(x, 5, "i4")
