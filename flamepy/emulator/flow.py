"""Basic blocks of a kernel, their order, and which registers live from one to the next.

Blocks are numbered so that a loop's blocks stand together, before what follows the loop, and branches before the place where they
meet: a warp that always runs its lowest lanes then meets again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .entry import Entry, Instruction
from .layout import ARRIVE, BRANCH, EXIT, SPLIT, WAIT

LONGEST = 160  # instructions of a block: longer ones compile slowly
NAME = re.compile(r"[%A-Za-z_$][\w$.]*")
TOGETHER = {"shfl", "vote", "match", "redux", "mma", "wgmma", "ldmatrix", "stmatrix"}
WATCHED = {"own", "within", "negative"}  # texts that no GPU takes (../watch.py)
STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}  # accesses that see what other threads do meanwhile


@dataclass
class Block:
    """Instructions that run one after the other, and where they lead."""

    first: int  # index of the first instruction
    last: int  # one past the last one
    kind: int = BRANCH
    target: int = EXIT  # blocks, by their final number
    fall: int = EXIT
    more: list[int] = field(default_factory=list)  # brx
    collective: bool = False  # whether the lanes of a warp do something together in it
    live_in: int = 0
    live_out: int = 0
    reads: int = 0
    writes: int = 0

    def next(self) -> list[int]:
        return [b for b in dict.fromkeys((self.target, self.fall, *self.more)) if b != EXIT]


def head(instruction: Instruction) -> str:
    return instruction.opcode.split(".", 1)[0]


def is_wait(i: Instruction) -> bool:
    return i.opcode.startswith(("bar.", "barrier.")) and ".warp" not in i.opcode


def orders_some(i: Instruction) -> bool:
    """Whether it may order threads of two warps, and is no barrier of the whole block: a fence, a barrier with a number or a count."""
    if (head(i) in ("membar", "fence") and ".proxy" not in i.opcode) or {"release", "acq_rel"} & set(i.opcode.split(".")):
        return True
    return is_wait(i) and (".arrive" in i.opcode or ("0" not in i.operands[:2] or len(i.operands) > 1 + (".red" in i.opcode) * 2))


def is_collective(i: Instruction) -> bool:
    return head(i) in TOGETHER or ".warp" in i.opcode


def meets(i: Instruction) -> bool:
    """Whether lanes wait in it for those that a mask names, who may come to a copy of it elsewhere."""
    return head(i) in ("shfl", "vote", "match", "redux") or ".warp" in i.opcode


def ends(instruction: Instruction) -> bool:
    return head(instruction) in ("bra", "brx", "ret", "exit") or is_wait(instruction)


def tells(i: Instruction) -> bool:
    """Whether other warps may hear by it of what a thread did: these may run before it goes on."""
    return orders_some(i) or head(i) in ("atom", "red")


def blocks_of(entry: Entry, apart: bool = False) -> list[Block]:
    """Cut at labels and ends, connect, and put in order; `apart`: each instruction where lanes meet is a block of its own."""
    count = len(entry.instructions)
    starts = {0, *(at for at in entry.labels.values() if at < count)}
    starts |= {k + 1 for k, i in enumerate(entry.instructions) if (ends(i) or tells(i)) and k + 1 < count}
    if any(head(i) == "atom" or STRONG & set(i.opcode.split(".")) for i in entry.instructions):  # lanes may wait for others of their warp
        starts |= {k for k, i in enumerate(entry.instructions) if is_collective(i)}
    if apart:
        starts |= {k + after for k, i in enumerate(entry.instructions) if meets(i) for after in (0, 1) if k + after < count}
    cuts = []
    for begin, end in zip(bounds := sorted(starts), [*bounds[1:], count], strict=True):
        cuts += [(at, min(at + LONGEST, end)) for at in range(begin, end, LONGEST)]
    blocks = [Block(begin, end) for begin, end in cuts]
    number = {b.first: k for k, b in enumerate(blocks)}
    for block in blocks:
        connect(entry, block, number)
        block.collective = any(is_collective(i) for i in entry.instructions[block.first : block.last])
    return renumbered(blocks)


def connect(entry: Entry, block: Block, number: dict[int, int]) -> None:
    last = entry.instructions[block.last - 1]
    after = number.get(block.last, EXIT)
    to = lambda label: number.get(entry.labels[label], EXIT)
    kind = head(last)
    block.fall = block.target = after
    if kind == "bra":
        block.target = to(last.operands[0])
    elif kind in ("ret", "exit"):
        block.target = EXIT
    elif kind == "brx":
        block.kind, block.more = SPLIT, [to(label) for label in entry.tables[last.operands[1]]]
        block.target = block.more[0]
    elif is_wait(last):
        block.kind = ARRIVE if ".arrive" in last.opcode else WAIT
    if not last.guard and kind in ("bra", "ret", "exit", "brx"):
        block.fall = block.target


def comes_by(blocks: list[Block], at: int, to: int) -> bool:
    """Whether what runs an instruction comes to the end of a block later, without going back in a loop."""
    start = next(k for k, b in enumerate(blocks) if b.first <= at < b.last)
    reached = {start}
    for k in range(start, to):
        if k in reached:
            reached.update(b for b in blocks[k].next() if b > k)
    return to in reached


def renumbered(blocks: list[Block]) -> list[Block]:
    order = ordered([b.next() for b in blocks], list(range(len(blocks))), 0)
    order += [k for k in range(len(blocks)) if k not in set(order)]  # never reached
    place = {old: new for new, old in enumerate(order)} | {EXIT: EXIT}
    for block in blocks:
        block.target, block.fall = place[block.target], place[block.fall]
        block.more = [place[b] for b in block.more]
    return [blocks[k] for k in order]


def ordered(edges: list[list[int]], members: list[int], start: int) -> list[int]:
    """Blocks from `start` so that loops stand together: components in topological order, each ordered without the way back."""
    inside = set(members)
    found: list[int] = []
    for component in components(edges, inside, start):
        if len(component) == 1:
            found += component
            continue
        own = set(component)
        entered = [b for b in component if b == start or any(b in edges[a] for a in inside - own)]
        entry = entered[0] if entered else component[0]
        open_edges = [[b for b in targets if b != entry] if k in own else targets for k, targets in enumerate(edges)]
        found += ordered(open_edges, component, entry)
    return found


def components(edges: list[list[int]], inside: set[int], start: int) -> list[list[int]]:
    """Strongly connected components that `start` reaches, in topological order (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    held: set[int] = set()
    found: list[list[int]] = []
    work = [(start, iter(edges[start]))]
    index[start] = low[start] = 0
    stack.append(start)
    held.add(start)
    while work:
        node, targets = work[-1]
        for target in targets:
            if target not in inside:
                continue
            if target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                held.add(target)
                work.append((target, iter(edges[target])))
                break
            if target in held:
                low[node] = min(low[node], index[target])
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                at = stack.index(node)
                found.append(sorted(stack[at:]))
                held -= set(stack[at:])
                del stack[at:]
    return found[::-1]


STORES = {"st", "red", "bra", "brx", "bar", "barrier", "ret", "exit", "trap", "cp", "membar", "fence", "prefetch", "discard", "nanosleep"}
STORES |= WATCHED


def touched(entry: Entry, instruction: Instruction) -> tuple[list[str], list[str]]:
    """Registers that an instruction writes, and that it reads."""
    known = entry.registers
    names = [[n for n in NAME.findall(o) if n in known] for o in instruction.operands]
    kind = head(instruction)
    results = 0 if kind in STORES and not instruction.opcode.startswith(("bar.red", "barrier.cta.red", "barrier.red")) else 1
    writes = [n for part in names[:results] for n in part]
    reads = [n for part in names[results:] for n in part]
    if instruction.guard or kind == "wgmma":  # its sums are what it adds to
        reads += [instruction.guard.lstrip("!"), *writes] if instruction.guard else writes
    return writes, reads


def find_live(entry: Entry, blocks: list[Block]) -> dict[str, int]:
    """Fill in what each block needs and leaves. Returns each register's bit."""
    bits = {name: 1 << k for k, name in enumerate(entry.registers)}
    for block in blocks:
        for instruction in entry.instructions[block.first : block.last]:
            writes, reads = touched(entry, instruction)
            for name in reads:
                if not bits[name] & block.writes:
                    block.reads |= bits[name]
            for name in writes:
                block.writes |= bits[name]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out = 0
            for k in block.next():
                out |= blocks[k].live_in
            into = block.reads | (out & ~block.writes)
            # Lanes that are not active keep what they had: written partly, a register that lives on is read too.
            if (out, into) != (block.live_out, block.live_in):
                block.live_out, block.live_in, changed = out, into, True
    return bits


def tried(entry: Entry) -> set[int]:
    """Loads of what atom.cas compares afterwards, and finds out if others wrote since: old = x[0]; while cas(x, 0, old, new) != old."""
    makers: dict[str, list[int]] = {}
    for k, i in enumerate(entry.instructions):
        if head(i) in ("mov", "ld"):
            makers.setdefault(i.operands[0], []).append(k)
    names = [i.operands[2] for i in entry.instructions if head(i) == "atom" and ".cas." in i.opcode]
    found, seen = set(), set(names)
    while names:
        for k in makers.get(names.pop(), []):
            i = entry.instructions[k]
            if head(i) == "ld":
                found.add(k)
            elif i.operands[1] not in seen:
                names.append(i.operands[1])
                seen.add(i.operands[1])
    return found
