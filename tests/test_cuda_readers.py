"""A word that many read: a writer has to be in order with each of them, whoever came first, in between or last.

Oracles: NumPy and the PTX ISA (bar.sync, bar.warp.sync).
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, float32, int8
from ptx_tools import Device, entry
from test_cuda_orders import START, run

import flamepy as fp
from flamepy.cuda.placing import machine
from flamepy.emulator import EmulationError
from flamepy.emulator.layout import LAST_PHASE

emulate = fp.cuda.emulate
# All warps read one word; warps meet the last one, which writes it: `all of them` (a count), or without one (its number).
READ = (
    START
    + """setp.eq.u32 %p4, %r1, 0; @%p4 st.shared.u32 [%r2], 7; bar.sync 0; ld.shared.u32 %r6, [%r2]; st.global.u32 [%rd3], %r6;
MEET setp.eq.u32 %p5, %r1, LAST; @%p5 st.shared.u32 [%r2], %r1;"""
)


@pytest.mark.parametrize("order", ["all", "first", "last"])
@pytest.mark.parametrize("warps", [3, 4, 6])
def test_who_meets_all_readers_but_one_is_not_in_order_with_that_one(order: str, warps: int) -> None:
    body = READ.replace("LAST", str(32 * warps - 32))
    np.testing.assert_array_equal(run(body.replace("MEET", f"bar.sync 1, {32 * warps};"), 32 * warps, order), 7)
    for missing in range(warps - 1):
        with raises(EmulationError, f"race: thread {32 * warps - 32} of block 0 writes", f"what thread {32 * missing} of block 0 read"):
            run(body.replace("MEET", f"setp.ne.u32 %p6, %r9, {missing}; @%p6 bar.sync 1, {32 * warps - 32};"), 32 * warps, order)


def met_by_all_but_one(y, x, who, before):
    one, t = cuda.shared.array(1, float32), cuda.threadIdx.x
    if t == 1:
        one[0] = x[0]
    if not before:
        cuda.syncwarp()
    elif t != who:
        cuda.syncwarp(0xFFFFFFFF - (1 << who))
    y[t] = one[0]
    if before:
        cuda.syncwarp()
    elif t != who:
        cuda.syncwarp(0xFFFFFFFF - (1 << who))
    if t == 1:
        one[0] = x[1]


def bytes_by_all_but_one(y, x, who, before):
    many, t = cuda.shared.array(4, int8), cuda.threadIdx.x
    if t < 4:
        many[t] = x[t]
    cuda.syncwarp()
    y[t] = many[t & 3]
    if t != who:
        cuda.syncwarp(0xFFFFFFFF - (1 << who))
    if t == 1:
        many[who & 3] = x[1]


@pytest.mark.parametrize("who", [0, 2, 7, 30, 31])
def test_a_lane_in_the_middle_of_a_broadcast_is_a_reader(who: int) -> None:
    x, y = np.arange(1, 9, dtype="f4"), np.zeros(32, "f4")
    emulate(met_by_all_but_one, 1, 32, y, x, 32, 0)  # nobody is left out
    assert (y == 1).all()
    with raises(fp.EmulationError, "race: thread 1 of block 0 writes", f"what thread {who} of block 0 read"):
        emulate(met_by_all_but_one, 1, 32, y, x, who, 0)
    with raises(fp.EmulationError, f"race: thread {who} of block 0 reads", "what thread 1 of block 0 wrote"):
        emulate(met_by_all_but_one, 1, 32, y, x, who, 1)
    with raises(fp.EmulationError, "race: thread 1 of block 0 writes", f"what thread {who} of block 0 read"):
        emulate(bytes_by_all_but_one, 1, 32, y.astype("i1"), x.astype("i1"), who, 0)


def writes_what_two_read(y, x, ready, who):
    b = cuda.blockIdx.x
    if b < 2:
        y[b] = x[0]
        if b != who:
            cuda.threadfence()
        cuda.atomic.add(ready, 0, 1)
    elif b == 2:
        while cuda.atomic.add(ready, 0, 0) < 2:
            pass
        cuda.threadfence()
        x[0] = 5


@pytest.mark.parametrize("who", [2, 0, 1])
@pytest.mark.parametrize("phase", [LAST_PHASE, LAST_PHASE >> 1], ids=["begins again", "far on"])
def test_a_reader_of_an_earlier_block_counts_whenever_the_launch_comes(phase: int, who: int) -> None:
    """Phases are numbered through all launches of a process: what is kept for each block is not found by them."""
    y, x, ready = np.zeros(2, "f4"), np.ones(1, "f4"), np.zeros(1, "i4")
    machine().memory.forget()
    machine().phase = phase
    if who == 2:
        emulate(writes_what_two_read, 64, 1, y, x, ready, who)
        assert y.tolist() == [1, 1] and x == 5
    else:
        with raises(fp.EmulationError, "race: thread 0 of block 2 writes", f"what thread 0 of block {who} read", "which is x[0]"):
            emulate(writes_what_two_read, 64, 1, y, x, ready, who)


# Lane 3 reads a word, all lanes meet, lane 5 reads less of it; another warp touches the rest.
LESS = (
    START
    + """setp.eq.u32 %p4, %r1, 0; @%p4 st.shared.u32 [%r2], 7; bar.sync 0; setp.eq.u32 %p5, %r1, 3; @%p5 ld.shared.u32 %r6, [%r2];
shfl.sync.idx.b32 %r7, %r1, 0, 31, -1; setp.eq.u32 %p6, %r1, 5; @%p6 LATER; setp.eq.u32 %p7, %r1, 32; @%p7 OTHER;
st.global.u32 [%rd3], %r1;"""
)


@pytest.mark.parametrize("order", ["all", "first"])
@pytest.mark.parametrize(
    ("later", "other"),
    [("ld.shared.u8 %r8, [%r2]", "st.shared.u8 [%r2+2], %r1"), ("ld.volatile.shared.u32 %r8, [%r2]", "atom.shared.add.u32 %r8, [%r2], 1")],
    ids=["bytes", "atomics"],
)
def test_who_reads_less_of_a_word_does_not_stand_for_who_read_more(order: str, later: str, other: str) -> None:
    with raises(EmulationError, "race: thread 32 of block 0 writes", "what thread 3 of block 0 read"):
        run(LESS.replace("LATER", later).replace("OTHER", other), 64, order)


# Block 0 reads a word, and less of it after a barrier; block 1 writes the rest.
LATER = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 32, %r1; ld.param.u64 %rd1, [x]; setp.eq.u32 %p1, %r3, 1;
@%p1 ld.global.u32 %r4, [%rd1]; bar.sync 0; setp.eq.u32 %p2, %r3, 2; @%p2 ld.global.u8 %r5, [%rd1];
setp.eq.u32 %p3, %r3, 35; @%p3 st.global.u8 [%rd1+2], %r1;"""


def test_nor_does_it_after_a_barrier_for_other_blocks() -> None:
    device = Device()
    with raises(EmulationError, "race: thread 3 of block 1 writes", "what thread 1 of block 0 read"):
        device.run(entry("k", "u64 x", LATER), 2, 32, device.array(np.ones(1, "u4")))


def one_byte_of_another_block(y, many):
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    if t == b:
        many[b] = t
    cuda.syncthreads()
    if b == 1 and t == 2:
        y[0] = many[0]


def asked_after_a_barrier(y, x):
    """Block 0 reads plainly, and after a barrier by an atomic of another thread; block 1 writes by one."""
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    if b == 0 and t == 1:
        y[0] = x[0]
    cuda.syncthreads()
    if t == 2:
        cuda.atomic.add(x, 0, b)


def test_an_atomic_after_a_barrier_does_not_stand_for_a_plain_read() -> None:
    with raises(fp.EmulationError, "race: thread 2 of block 1 writes", "what thread 1 of block 0 read", "which is x[0]"):
        emulate(asked_after_a_barrier, 2, 32, np.zeros(1, "i4"), np.zeros(1, "i4"))


def test_a_barrier_between_bytes_of_one_block_orders_none_of_another() -> None:
    with raises(fp.EmulationError, "race: thread 2 of block 1 reads", "what thread 0 of block 0 wrote", "which is many[0]"):
        emulate(one_byte_of_another_block, 2, 32, np.zeros(1, "i1"), np.zeros(4, "i1"))


# Lane 3 writes and ends; the others of its warp meet.
ENDS = (
    START
    + """setp.eq.u32 %p4, %r1, 3; @%p4 st.shared.u32 [%r2], 7; @%p4 exit; bar.warp.sync MASK;
setp.eq.u32 %p5, %r1, 4; @%p5 ld.shared.u32 %r6, [%r2]; @%p5 st.global.u32 [%rd3], %r6;"""
)


def test_who_has_ended_is_in_order_with_those_that_name_it() -> None:
    assert run(ENDS.replace("MASK", "-1"), 32, "all")[4] == 7
    with raises(EmulationError, "race: thread 4 of block 0 reads", "what thread 3 of block 0 wrote"):
        run(ENDS.replace("MASK", "0xFFFFFFF7"), 32, "all")
