"""Random kernels: the emulator finds a race where there is one, and none where there is none.

Each thread does what its row of a table says, and writes down when. The oracle goes through that in order with a vector clock for each
thread (Mattern, 1989): what a barrier orders, or a fence and an atomic that another thread sees. First exactly, then as one who is told too
much: what a lane hears, its warp has heard (runtime_heard.py keeps rows for warps). The emulator's first race is neither before nor behind.
"""

from __future__ import annotations

import platform
import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from ptx_tools import Device, entry

from flamepy.emulator import EmulationError

ROUNDS, MOST = 6, 48  # how often lanes of a warp meet; ops of a thread
ACCESS = {"ld1": "ld.SPACE.u8 %r5", "ld4": "ld.SPACE.u32 %r5", "ask": "atom.SPACE.add.u32 %r5", "tell": "atom.SPACE.add.u32 %r5"}
AFTER = {"ask": ", 0", "tell": ", 1", "st1": ", %r4", "st4": ", %r4"}
KINDS = {f"{kind} {k}": text for k in range(ROUNDS)[::-1] for kind, text in (
    ("warp", "bar.warp.sync %r4; LOG"), ("shfl", "shfl.sync.idx.b32 %r5, %r1, %r6, 31, %r4; LOG"),
)}  # fmt: skip
KINDS |= {"bar 0": "bar.sync 0; LOG", "bar 1": "bar.sync 1, 64; LOG", "arrive": "LOG bar.arrive 1, 64;", "fence": "LOG membar.gl;"}
for kind in (*ACCESS, "st1", "st4"):
    for space in ("global", "shared"):
        what = (ACCESS.get(kind) or f"st.SPACE.u{8 * int(kind[2])}") + (" [%rd4]" if kind[:2] == "st" else ", [%rd4]") + AFTER.get(kind, "")
        KINDS[f"{kind} {space}"] = f"LOG {what.replace('SPACE', space)};"
BODY = """.shared .align 16 .b8 tile[64]; ld.param.u64 %rd1, [table]; ld.param.u64 %rd2, [log]; mov.u32 %r1, %tid.x; mov.u32 %r6, %laneid;
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r2, %r2, %r3, %r1; mul.lo.u32 %r2, %r2, MOST; mul.wide.u32 %rd3, %r2, 16;
add.u64 %rd1, %rd1, %rd3; mul.wide.u32 %rd3, %r2, 8; add.u64 %rd2, %rd2, %rd3; mov.u32 %r7, tile; mad.lo.u32 %r7, %r1, 4, %r7;
mov.u32 %r8, 0; setp.lt.u32 %p1, %r1, 16; @%p1 st.shared.u32 [%r7], %r8; bar.sync 0;
LOOP: ld.global.v2.u32 {%r3, %r4}, [%rd1]; ld.global.u64 %rd4, [%rd1+8]; add.u64 %rd1, %rd1, 16; setp.eq.u32 %p2, %r3, 99; @%p2 exit;
TABLE: .branchtargets NAMES; brx.idx %r3, TABLE;
""".replace("MOST", str(MOST)).replace("NAMES", ", ".join(f"OP{k}" for k in range(len(KINDS))))
LOG = "mov.u64 %rd9, %clock64; st.global.u64 [%rd2], %rd9; add.u64 %rd2, %rd2, 8;"
BODY += "\n".join(f"OP{k}: {text.replace('LOG', LOG)} bra LOOP;" for k, text in enumerate(KINDS.values()))


def drawn(rng: random.Random) -> tuple[int, int, list[list[tuple[str, int]]]]:
    """Blocks, warps of a block, and for each thread what it does: a name of KINDS; an offset, a mask, or the number of a barrier."""
    blocks, warps = rng.choice([1, 2]), rng.choice([1, 3])
    ops: list[Any] = [[] for _ in range(32 * warps * blocks)]
    ended, rounds, named = set(), defaultdict(int), set()

    def meet(kind: str, first: int, lanes: list[int], whole: bool) -> None:
        if rounds[first] < ROUNDS:
            mask = 0xFFFFFFFF if whole and len(lanes) > 3 else sum(1 << t % 32 for t in lanes)
            for t in lanes:
                ops[t].append((f"{kind} {rounds[first]}", mask))
            rounds[first] += 1

    for number in range(1, rng.randint(5, 22)):
        block, warp, space = rng.randrange(blocks), rng.randrange(warps), rng.choice(["global", "shared"])
        first = 32 * (warps * block + warp)
        here = [t for t in range(first, first + 32) if t not in ended]
        some = [t for t in (first + 1, first + 5, first + 9) if t in here and rng.random() < 0.7] or here[:1]
        kind = rng.choices(
            ["access", "release", "acquire", "tell", "warp", "shfl", "bar", "arrive", "end"], [3, 3, 3, 0.5, 2, 1, 1, 1, 0.5]
        )[0]
        if kind == "access":
            name = rng.choice(["ld1", "ld4", "st1", "st4"])
            for t in some:
                ops[t].append((f"{name} {space}", 16 + (name[2] == "1") * rng.randrange(4)))
        elif kind in ("release", "acquire", "tell"):
            ops[some[0]] += [("fence", 0)] if kind == "release" else []
            ops[some[0]].append((f"{'ask' if kind == 'acquire' else 'tell'} {space}", 16 if kind == "tell" else 32))
        elif kind in ("warp", "shfl"):
            meet(kind, first, rng.choice([here, some]), rng.random() < 0.7)
        elif kind == "bar" and not ended:
            for t in range(32 * warps * block, 32 * warps * (block + 1)):
                ops[t].append(("bar 0", number))
        elif kind == "arrive" and not ended and warps > 1 and block not in named:
            named.add(block)
            meet("warp", first, here, True)  # a warp comes to it as a whole
            for name, begin in ((rng.choice(["arrive", "bar 1"]), first), ("bar 1", 32 * (warps * block + (warp + 1) % warps))):
                for t in range(begin, begin + 32):
                    ops[t].append((name, number))
        elif kind == "end":
            ended.add(some[0])
    return blocks, warps, ops


def first_race(case: Any, log: np.ndarray, lenient: bool) -> float:
    """The time of the access that is the first in a race; infinite if none is."""
    _, warps, ops = case
    knows = np.zeros((2, len(ops), len(ops)), int)  # of whom who has heard how much: of what it wrote, and of what it read
    fenced, told, released = np.zeros_like(knows), defaultdict(lambda: np.zeros((2, 2, len(ops)), int)), defaultdict(lambda: 0)
    everyone, last, steps, opened = np.arange(len(ops)), defaultdict(dict), defaultdict(list), {}
    knows[:, everyone, everyone] = 1
    for t, i in zip(*np.nonzero(log), strict=True):
        kind, number = ops[t][i]
        if kind[:3] == "bar":
            opened[number] = min(opened.get(number, np.inf), log[t, i] - 0.5)
        else:
            steps[log[t, i]].append((t, kind, number))
    for number, clock in opened.items():
        steps[clock] = [(t, "bar", number) for t, mine in enumerate(ops) if ("bar 0", number) in mine or ("bar 1", number) in mine]
    for clock, step in sorted(steps.items()):
        who, (_, kind, number) = [t for t, _, _ in step], step[0]
        if kind in ("bar", "arrive"):
            told[number] = np.maximum(told[number], [knows[:, who].max(1), fenced[:, who].max(1)])
            if kind == "bar":
                knows[:, who], fenced[:, who] = told[number][0][:, None], told[number][1][:, None]
        elif kind == "fence":
            fenced[:, who] = knows[:, who]
        elif kind[:4] in ("warp", "shfl"):
            for mask in {n for _, _, n in step}:
                members, own = [t for t, _, n in step if n == mask], everyone // 32 == who[0] // 32
                most = knows[:, [t for t in everyone[own] if mask >> t % 32 & 1]].max(1)
                if kind[0] == "s":  # of what was read, in this warp
                    most *= np.array([[False], [True]]) & own
                else:
                    fenced[:, members] = fenced[:, members].max(1)[:, None]
                knows[:, members] = np.maximum(knows[:, members], most[:, None])
        else:
            name, space = kind.split()
            writes, atomic = name in ("st1", "st4", "ask", "tell"), name in ("ask", "tell")
            for t, _, offset in step:
                place = space, t // (32 * warps) if space == "shared" else 0
                if atomic:
                    hears = everyone[everyone // 32 == t // 32] if lenient else [t]
                    knows[:, hears] = np.maximum(knows[:, hears], released[place, offset])
                for byte in range(offset, offset + (1 if name[2] == "1" else 4)):
                    cell = last[place, byte]
                    for (_, wrote, was_atomic), (u, time) in cell.items():
                        if u != t and (wrote or writes) and not (was_atomic and atomic) and knows[int(not wrote), t, u] < time:
                            return clock
                    cell[-1 if writes else t, writes, atomic] = t, knows[0, t, t]  # of writers the last one of either kind is kept
                if name == "tell":
                    released[place, offset] = np.maximum(released[place, offset], fenced[:, t : t + 1])
        knows[:, who, who] += 1
    return np.inf


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the order of accesses is read from a clock of x86-64")
def test_races_are_found_where_they_are_and_nowhere_else() -> None:
    device = Device()
    (kernel,) = device.machine.load(entry("k", "u64 table, u64 log", BODY)).values()
    names, races = list(KINDS), 0
    for seed in range(600):
        rng = random.Random(seed)
        case = blocks, warps, ops = drawn(rng)
        table = np.zeros((len(ops), MOST), [("kind", "u4"), ("value", "u4"), ("address", "u8")])
        table["kind"], data, log = 99, device.array(np.zeros(16, "u4")), device.array(np.zeros((len(ops), MOST), "i8"))
        for t, mine in enumerate(ops):
            for i, (kind, number) in enumerate(mine):
                value = number if kind[:4] in ("warp", "shfl") else 3 * t + i  # no two lanes write the same: that is no race
                table[t, i] = names.index(kind), value, number + data * kind.endswith("global")
        table_at, found = device.array(table), None
        try:
            device.machine.launch(kernel, blocks, 32 * warps, [table_at, log], order=rng.choice(["all", "first", "last", "chance"]))
        except EmulationError as error:
            assert error.kind == "race", (seed, str(error))
            found = error
        times = device.memory.read(log, len(ops) * MOST, np.int64).reshape(len(ops), MOST)
        came = times.max(initial=0) if found else np.inf
        assert first_race(case, times, False) <= came <= first_race(case, times, True), (seed, found)
        races += found is not None
    assert 100 < races < 500
