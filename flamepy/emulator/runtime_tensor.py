"""Tensor core products, matrix loads, and copies that go on in the background.

A product is added up in float64 and rounded once: the device's own order of additions is not documented.
"""

from . import layout
from .runtime_barriers import warp_at
from .runtime_bytes import record_read, record_write
from .runtime_check import check, group_of
from .runtime_numbers import bfloat_value, float_of_bits, half_bits, half_value
from .runtime_warp import everyone
from .runtime_words import (
    copy_bytes,
    fail,
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

BF16, F16, TF32 = range(3)
HELD = 2  # beside 0 and 1, how a left factor lies in shared memory


@inlined
def part(address, kind):
    """One factor of a product."""
    if kind == BF16:
        return float(bfloat_value(peek16(address)))
    if kind == F16:
        return float(half_value(peek16(address)))
    return float(float_of_bits(peek32(address) & ~0x1FFF))


@plain
def unpack(warp, depth, kind):
    """The two factors from the lanes' registers to TILE: a[row, k] and b[k, column]."""
    a, b = warp + layout.TILE, warp + layout.TILE + 8 * 256
    pairs = 1 if kind == TF32 else 2
    for lane in range(32):
        row, column = lane >> 2, lane & 3
        for k in range(0, depth, 4 * pairs):
            register = k // (4 * pairs)
            for half in range(pairs):
                at = k + pairs * column + half
                for low in range(2):
                    source = warp + layout.VALUES + 256 * (2 * register + low) + 4 * lane + 2 * half
                    poke_double(a + 8 * ((row + 8 * low) * 16 + at), part(source, kind))
                source = warp + layout.VALUES + 256 * (4 + register) + 4 * lane + 2 * half
                poke_double(b + 8 * (at * 8 + row), part(source, kind))


@plain
def product(warp, depth, kind, narrow):
    """mma.sync m16n8k8 and m16n8k16: factors in slots 0..3 and 4, 5, what is added in 8..11, the result to 12..15."""
    unpack(warp, depth, kind)
    a, b, c = warp + layout.TILE, warp + layout.TILE + 8 * 256, warp + layout.TILE + 8 * (256 + 128)
    for row in range(16):
        for column in range(8):
            poke_double(c + 8 * (row * 8 + column), 0.0)
        for k in range(depth):
            factor = peek_double(a + 8 * (row * 16 + k))
            for column in range(8):
                at = c + 8 * (row * 8 + column)
                poke_double(at, peek_double(at) + factor * peek_double(b + 8 * (k * 8 + column)))
    for lane in range(32):
        for k in range(4):
            total = peek_double(c + 8 * (((lane >> 2) + 8 * (k >> 1)) * 8 + 2 * (lane & 3) + (k & 1)))
            if narrow:
                at = warp + layout.VALUES + 256 * (8 + (k >> 1)) + 4 * lane + 2 * (k & 1)
                poke16(at + 1024, half_bits(total + half_value(peek16(at))))
            else:
                at = warp + layout.VALUES + 256 * (8 + k) + 4 * lane
                poke_float(at + 1024, total + peek_float(at))


@plain
def in_step(warp, active, instruction):
    """All lanes are here, and the four warps of a group do the same instructions of wgmma, in one order (.aligned)."""
    everyone(warp, active, instruction)
    launch, thread, many = word(warp, layout.LAUNCH), word(warp, layout.FIRST_THREAD), word(warp, layout.GROUP_STEPS) + 1
    set_word(warp, layout.GROUP_STEPS, many)
    at = warp_at(launch, word(warp, layout.INDEX) & ~3) + layout.GROUP_WORK + 8 * (many & 255)
    done = peek64(at)
    if done >> 32 != many:
        poke64(at, many << 32 | thread << 16 | instruction)
    elif done & 0xFFFF != instruction:
        fail(launch, layout.STRAY, instruction, thread, 0, 0, done & 0xFFFF, done >> 16 & 0xFFFF)


@plain
def group_product(warp, count, kind, a_turned, b_turned, adds, instruction):
    """wgmma m64nNk16, of a warp's 16 rows: descriptors in slots 0 and 4, `count` sums of each lane in SUMS; a_turned = HELD: the left
    factor is in registers, slots 0..3."""
    a, b = warp + layout.TILE, warp + layout.TILE + 8 * 256
    if a_turned == HELD:
        unpack(warp, 16, kind)
    for row in range(16 if a_turned != HELD else 0):
        if not factors(warp, a + 8 * 16 * row, 0, 16 * (word(warp, layout.INDEX) & 3) + row, a_turned, kind, instruction):
            return
    for column in range(2 * count):
        if not factors(warp, b, 4, column, b_turned, kind, instruction):
            return
        for row in range(16):
            total = 0.0
            for k in range(16):
                total += peek_double(a + 8 * (16 * row + k)) * peek_double(b + 8 * k)
            number, lane = 4 * (column >> 3) + 2 * (row >> 3) + (column & 1), 4 * (row & 7) + (column >> 1 & 3)
            at = warp + layout.SUMS + 128 * number + 4 * lane
            poke_float(at, total + (peek_float(at) if adds >> lane & 1 else 0.0))


@plain
def factors(warp, to, which, line, turned, kind, instruction):
    """16 numbers of a row, or column, from where a descriptor says: tiles of 8 rows of 128 bytes whose pieces of 16 change places."""
    launch, thread = word(warp, layout.LAUNCH), word(warp, layout.FIRST_THREAD)
    group, descriptor = group_of(launch, layout.SHARED), peek64(warp + layout.VALUES + 256 * which)
    start, lead, stride = (descriptor & 0x3FFF) << 4, descriptor >> 12 & 0x3FFF0, descriptor >> 28 & 0x3FFF0
    if descriptor >> 62 & 3 != 1 or descriptor >> 49 & 7 != 0:
        fail(launch, layout.ALIGNMENT, instruction, thread, start, 1024, layout.SHARED, 0)
        return False
    for k in range(16):
        if turned:
            at = start + lead * (line >> 6) + stride * (k >> 3) + 128 * (k & 7) + 2 * (line & 63)
        else:
            at = start + stride * (line >> 3) + 128 * (line & 7) + 2 * k
        at ^= at >> 3 & 0x70
        if check(launch, group, layout.SHARED, at, 2, thread, instruction, 0, at) < 0:
            return False
        record_read(launch, warp, group, at, 2, thread, 1, instruction, 0, at)
        poke_double(to + 8 * k, part(word(group, layout.HOST) + at, kind))
    return True


@plain
def load_matrices(warp, count, transposed, instruction):
    """ldmatrix: lane 8 i + r gives the address of row r of matrix i (8 numbers of 16 bits); registers to slots 0..3."""
    launch = word(warp, layout.LAUNCH)
    group = group_of(launch, layout.SHARED)
    first = word(warp, layout.FIRST_THREAD)
    for lane in range(8 * count):
        address = peek64(warp + layout.ADDRESSES + 8 * lane)
        if check(launch, group, layout.SHARED, address, 16, first + lane, instruction, 0, address) < 0:
            return
    for matrix in range(count):
        for lane in range(32):
            to = warp + layout.VALUES + 256 * matrix + 4 * lane
            if transposed:
                for half in range(2):
                    at = row_of(warp, matrix, 2 * (lane & 3) + half) + 2 * (lane >> 2)
                    record_read(launch, warp, group, at, 2, first + lane, 1 << lane, instruction, 0, at)
                    poke16(to + 2 * half, peek16(word(group, layout.HOST) + at))
            else:
                at = row_of(warp, matrix, lane >> 2) + 4 * (lane & 3)
                record_read(launch, warp, group, at, 4, first + lane, 1 << lane, instruction, 0, at)
                poke32(to, peek32(word(group, layout.HOST) + at))


@inlined
def row_of(warp, matrix, row):
    return peek64(warp + layout.ADDRESSES + 8 * (8 * matrix + row))


@plain
def copy_later(warp, mask, size, instruction):
    """cp.async: to ADDRESSES, from slot 0, as many bytes as slot 1 says (the rest is zero). Done by copy_now."""
    launch = word(warp, layout.LAUNCH)
    shared, device, watching = group_of(launch, layout.SHARED), group_of(launch, layout.GLOBAL), word(launch, layout.WATCHING)
    for lane in range(32):
        if mask >> lane & 1:
            to, source = peek64(warp + layout.ADDRESSES + 8 * lane), peek64(warp + layout.VALUES + 8 * lane)
            wanted = min(peek32(warp + layout.VALUES + 256 + 4 * lane) & layout.FULL, size)
            thread = word(warp, layout.FIRST_THREAD) + lane
            if check(launch, shared, layout.SHARED, to, size, thread, instruction, 1, to) < 0:
                return
            if wanted > 0:
                offset = check(launch, device, layout.GLOBAL, source - (1 << 52), wanted, thread, instruction, 0, source)
                if offset < 0:
                    return
                if watching:
                    record_read(launch, warp, device, offset, wanted, thread, 1 << lane, instruction, 0, source)
            if watching:  # from now on, not only when it is waited for
                record_write(launch, warp, shared, to, size, thread, instruction, 0, 0, to)
            count = word(warp, layout.ASYNC_COUNT)
            if count == layout.ASYNC_ENTRIES:
                fail(launch, layout.TOO_MANY, instruction, thread, to, count, 0, 0)
                return
            entry = warp + layout.ASYNC + count * layout.ASYNC_BYTES
            set_word(entry, 0, to)
            set_word(entry, 1, source)
            set_word(entry, 2, size)
            set_word(entry, 3, wanted)
            set_word(entry, 4, word(warp, layout.ASYNC_GROUP))
            set_word(entry, 5, instruction | lane << 32)
            set_word(warp, layout.ASYNC_COUNT, count + 1)
            for at in range(word(shared, layout.STATE) + to, word(shared, layout.STATE) + to + size, 4):
                poke32(at, peek32(at) | layout.COPYING * 0x01010101)


@plain
def copy_now(warp, mask, pending):
    """cp.async.wait_group: all copies of these lanes but those of the `pending` latest groups (all: -1) are there."""
    launch = word(warp, layout.LAUNCH)
    shared, device = group_of(launch, layout.SHARED), group_of(launch, layout.GLOBAL)
    set_word(launch, layout.CHANGED, 1)
    kept = 0
    for index in range(word(warp, layout.ASYNC_COUNT)):
        entry = warp + layout.ASYNC + index * layout.ASYNC_BYTES
        lane, done = word(entry, 5) >> 32, word(entry, 4) < word(warp, layout.ASYNC_GROUP) - pending
        if mask >> lane & 1 and (done or pending < 0):
            to, size, wanted = word(entry, 0), word(entry, 2), word(entry, 3)
            instruction, thread = word(entry, 5) & 0xFFFFFFFF, word(warp, layout.FIRST_THREAD) + lane
            if word(launch, layout.WATCHING):
                record_write(launch, warp, shared, to, size, thread, instruction, 0, 0, to)
            host, source = word(shared, layout.HOST) + to, word(device, layout.HOST) + word(entry, 1) - (1 << 52)
            for k in range(0, size, 4):
                poke32(host + k, peek32(source + k) if k + 4 <= wanted else 0)
                poke32(word(shared, layout.STATE) + to + k, (layout.ALLOCATED | layout.WRITTEN) * 0x01010101)
            if wanted & 3:
                copy_bytes(host, source, wanted)
        else:
            if kept != index:
                copy_bytes(warp + layout.ASYNC + kept * layout.ASYNC_BYTES, entry, layout.ASYNC_BYTES)
            kept += 1
    set_word(warp, layout.ASYNC_COUNT, kept)
