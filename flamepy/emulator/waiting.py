"""What a loop that does not end waits for: the load or the atomic that its condition comes from."""

from __future__ import annotations

from .entry import Entry
from .flow import STRONG, Block, components, head, touched


def asks(entry: Entry, blocks: list[Block], at: int) -> tuple[int, bool]:
    """(the instruction that reads what the loop around a block waits for, whether it is a plain read); -1 if there is none. A loop that
    reads nothing, but whose condition was read before, waits for that: the compiler has taken the read out."""
    if not 0 <= at < len(blocks):
        return -1, False
    loop = around(blocks, at)
    inside = [k for b in loop for k in range(blocks[b].first, blocks[b].last)]
    reads = [k for k in inside if is_read(entry, k)]
    if not reads and condition(entry, blocks, at) < 0:
        before = [b.last - 1 for b in blocks if set(b.next()) & set(loop)]
        guarded = [k for k in (*inside, *before) if entry.instructions[k].guard and head(entry.instructions[k]) == "bra"]
        reads = sources(entry, [k for k in guarded if k in inside] or guarded)
    plain = [k for k in reads if head(entry.instructions[k]) != "atom" and not STRONG & set(entry.instructions[k].opcode.split("."))]
    writes = any(head(entry.instructions[k]) in ("st", "red") for k in inside)
    if len(plain) == len(reads) and (not plain or writes):  # a loop that works
        return -1, False
    return (plain if len(plain) == len(reads) else [k for k in reads if k not in plain])[0], len(plain) == len(reads)


def condition(entry: Entry, blocks: list[Block], at: int) -> int:
    """The branch that leaves the loop around a block, where that depends on what the loop itself computes; -1 if there is none."""
    if not 0 <= at < len(blocks):
        return -1
    loop = around(blocks, at)
    made = {name for b in loop for k in range(blocks[b].first, blocks[b].last) for name in touched(entry, entry.instructions[k])[0]}
    for b in loop:
        last = entry.instructions[blocks[b].last - 1]
        if last.guard and head(last) == "bra" and set(blocks[b].next()) - set(loop) and last.guard.lstrip("!") in made:
            return blocks[b].last - 1
    return -1


def around(blocks: list[Block], at: int) -> list[int]:
    """The blocks of the loop around a block."""
    return next(c for c in components([b.next() for b in blocks], set(range(len(blocks))), at) if at in c)


def is_read(entry: Entry, k: int) -> bool:
    """A load or an atomic of memory that other threads may write."""
    i = entry.instructions[k]
    return head(i) == "atom" or (head(i) == "ld" and not {"param", "local", "const"} & set(i.opcode.split(".")))


def sources(entry: Entry, ends: list[int]) -> list[int]:
    """The reads from which the conditions of these branches come."""
    makers: dict[str, list[int]] = {}
    for k, i in enumerate(entry.instructions):
        for name in touched(entry, i)[0]:
            makers.setdefault(name, []).append(k)
    found, seen, names = [], set(), {n for k in ends for n in touched(entry, entry.instructions[k])[1]}
    while names:
        name = names.pop()
        seen.add(name)
        for k in makers.get(name, []):
            if is_read(entry, k):
                found.append(k)
            else:
                names |= set(touched(entry, entry.instructions[k])[1]) - seen
    return sorted(found)
