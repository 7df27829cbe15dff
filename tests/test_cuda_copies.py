"""Copies in the background (cp.async): a pipeline of two buffers that is right, and its twins, each with one fault.

Oracles: NumPy and the PTX ISA (cp.async, cp.async.commit_group, cp.async.wait_group).
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from ptx_tools import Device, entry

from flamepy.emulator import EmulationError

# Each thread copies its number of the next tile while all add up what another thread has copied of this one.
PIPELINE = """.shared .align 16 .b8 tile[512]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;
ld.param.u64 %rd1, [x]; cvt.u64.u32 %rd2, %r2; add.u64 %rd3, %rd1, %rd2; mov.u32 %r7, 0; mov.u32 %r8, 0;
cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.commit_group;
LOOP: add.u32 %r9, %r7, 1; setp.lt.u32 %p1, %r9, 4; and.b32 %r10, %r9, 1; mad.lo.u32 %r10, %r10, 256, %r4;
mul.wide.u32 %rd4, %r9, 256; add.u64 %rd4, %rd3, %rd4; @%p1 cp.async.ca.shared.global [%r10], [%rd4], 4; cp.async.commit_group;
cp.async.wait_group 1; bar.sync 0;
and.b32 %r11, %r7, 1; mad.lo.u32 %r11, %r11, 256, %r3; sub.u32 %r12, 252, %r2; add.u32 %r11, %r11, %r12; ld.shared.u32 %r13, [%r11];
add.u32 %r8, %r8, %r13; bar.sync 0;
add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 4; @%p2 bra LOOP;
ld.param.u64 %rd5, [y]; add.u64 %rd6, %rd5, %rd2; st.global.u32 [%rd6], %r8;"""
TWINS = {  # what is right, what is not, and its kind; what another thread copies may not be there at all
    "nobody waits for the others' copies": ("wait_group 1; bar.sync 0;", "wait_group 1;", "race or uninitialised"),
    "a buffer is filled while others read it": ("%r8, %r13; bar.sync 0;", "%r8, %r13;", "race"),
    "the copy is not waited for": ("wait_group 1;", "wait_group 2;", "race"),
    "copies are in no group": ("[%rd4], 4; cp.async.commit_group;", "[%rd4], 4;", "race"),
    "a row too many": ("mul.wide.u32 %rd4, %r9, 256", "mul.wide.u32 %rd4, %r9, 512", "out of bounds"),
    "from an odd address": ("add.u64 %rd3, %rd1, %rd2;", "add.u64 %rd3, %rd1, %rd2; add.u64 %rd3, %rd3, 2;", "misaligned"),
}


def sums(body: str, order: str) -> np.ndarray:
    device = Device()
    (kernel,) = device.machine.load(entry("k", "u64 x, u64 y", body)).values()
    x, y = device.array(np.arange(256, dtype=np.uint32) ** 2), device.memory.allocate(256)
    device.machine.launch(kernel, 1, 64, [x, y], order=order)
    return device.memory.read(y, 64, np.uint32)


@pytest.mark.parametrize("order", ["all", "first", "last", "chance"])
def test_a_pipeline_of_two_buffers(order: str) -> None:
    want = (np.arange(256, dtype=np.uint32) ** 2).reshape(4, 64).sum(0)[::-1]
    np.testing.assert_array_equal(sums(PIPELINE, order), want)
    for what, (right, wrong, kind) in TWINS.items():
        assert PIPELINE.count(right) == 1, what
        with pytest.raises(EmulationError) as error:
            sums(PIPELINE.replace(right, wrong), order)
        assert error.value.kind in kind.split(" or "), (what, str(error.value))


def test_no_more_is_copied_than_there_is_room_for() -> None:
    """How many bytes are read is a number without a sign."""
    head, end = PIPELINE.split("LOOP:")[0], "cp.async.wait_all; ld.shared.u32 %r8, [%r4]; ld.param.u64 %rd5, [y]; add.u64 %rd6, %rd5, %rd2;"
    right = head.replace("], 4;", "], 4, %r9;").replace("cp.async.ca", "mov.u32 %r9, -1; cp.async.ca")
    np.testing.assert_array_equal(sums(f"{right} {end} st.global.u32 [%rd6], %r8;", "all"), np.arange(64) ** 2)
