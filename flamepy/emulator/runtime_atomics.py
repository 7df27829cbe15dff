"""Atomic operations of a warp, lane by lane. Atomics do not race with each other, only with plain accesses."""

from .layout import CHANGED, FIRST_THREAD, GENERIC, HOST, LAUNCH, LOCAL, POLLED, VALUES
from .runtime_bytes import record_write
from .runtime_check import check, copy_number, group_of, offset_of, space_at
from .runtime_numbers import bfloat_bits, bfloat_value, half_bits, half_value
from .runtime_races import acquire, release_word
from .runtime_words import (
    inlined,
    peek16,
    peek32,
    peek64,
    peek_double,
    peek_float,
    plain,
    poke16,
    poke32,
    poke64,
    poke_double,
    poke_float,
    set_word,
    word,
)

KINDS = {name: k for k, name in enumerate(["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"])}
EXCHANGE = KINDS["exch"]
INTEGER, UNSIGNED, FLOAT, HALF, BFLOAT = range(5)


@inlined
def number(address, size, kind):
    """A whole number of 4 or 8 bytes. An unsigned one of 8 bytes is told apart where it matters."""
    if size == 8:
        return peek64(address)
    value = peek32(address)
    return value & 0xFFFFFFFF if kind == UNSIGNED else value + 0 * address


@inlined
def less(a, b, kind):
    return (a ^ (-1 << 63)) < (b ^ (-1 << 63)) if kind == UNSIGNED else a < b


@inlined
def whole(operation, kind, old, b, c):
    """The new value, of every operation on whole numbers."""
    if operation == 0:
        return old + b
    if operation == 1:
        return old if less(old, b, kind) else b
    if operation == 2:
        return b if less(old, b, kind) else old
    if operation == 3:
        return old & b
    if operation == 4:
        return old | b
    if operation == 5:
        return old ^ b
    if operation == 6:
        return b
    if operation == 7:
        return c if old == b else old
    if operation == 8:
        return 0 if not less(old, b, kind) else old + 1
    return b if old == 0 or less(b, old, kind) else old - 1


@plain
def float_at(at, source, size, operation):
    """add of float32 or float64, and min and max, which numbers win against NaN."""
    if size == 4:
        old, b = peek_float(at), peek_float(source)
        poke_float(at, old + b if operation == 0 else (min(old, b) if operation == 1 else max(old, b)))
    else:
        low, high = peek_double(at), peek_double(source)
        poke_double(at, low + high if operation == 0 else (min(low, high) if operation == 1 else max(low, high)))


@plain
def halves_at(at, source, size, kind):
    """add of one or two 16-bit floats."""
    for k in range(0, size, 2):
        if kind == HALF:
            poke16(at + k, half_bits(half_value(peek16(at + k)) + half_value(peek16(source + k))))
        else:
            poke16(at + k, bfloat_bits(bfloat_value(peek16(at + k)) + bfloat_value(peek16(source + k))))


@plain
def update(at, source, other, size, operation, kind):
    if kind >= HALF:
        halves_at(at, source, size, kind)
    elif kind == FLOAT:
        float_at(at, source, size, operation)
    elif size == 2:
        old = peek16(at)
        if operation != 7 or old == peek16(source):
            poke16(at, peek16(other) if operation == 7 else peek16(source))
    else:
        c = number(other, size, kind) if operation == 7 else 0
        new = whole(operation, kind, number(at, size, kind), number(source, size, kind), c)
        if size == 8:
            poke64(at, new)
        else:
            poke32(at, new)


@plain
def atomic(warp, mask, size, operation, kind, instruction, space):
    """atom and red: value in slot 0, the other one of cas in slot 1, what was there before to slot 2."""
    launch = word(warp, LAUNCH)
    set_word(warp, POLLED, 1)
    for lane in range(32):
        if mask >> lane & 1:
            address = peek64(warp + 1280 + 8 * lane)
            where = space_at(space, address)
            group = group_of(launch, where)
            thread = word(warp, FIRST_THREAD) + lane
            offset = offset_of(where, address, space == GENERIC)
            offset = check(launch, group, where, offset, size, thread, instruction, 2, address)
            if offset < 0:
                return
            if where != LOCAL:
                acquire(warp, lane, group, offset)
                record_write(launch, warp, group, offset, size, thread, instruction, 1, 0, address)
            at = word(group, HOST) + offset
            copy_number(warp + VALUES + 512 + size * lane, at, size)
            update(at, warp + VALUES + size * lane, warp + VALUES + 256 + size * lane, size, operation, kind)
            changed = False
            for k in range(0, size, 2):
                changed = changed or peek16(at + k) != peek16(warp + VALUES + 512 + size * lane + k)
            if changed:
                set_word(launch, CHANGED, 1)
            if where != LOCAL and (changed or operation == EXCHANGE):  # who only asks, by add(x, 0, 0) or a cas that fails, tells nothing
                release_word(warp, lane, group, offset)
