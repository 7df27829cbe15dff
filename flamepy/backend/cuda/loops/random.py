"""Random numbers from counters: uniform, normal, dropout. The mathematics is in core/philox.py.

A thread makes one block of four 32-bit words, which only (seed, stream, step, its number) decide, and the numbers of it: four, or two in
float64. The ten rounds are written here with 32-bit integers and products of 64 bits; everything else is the CPU's.
"""

from ....core.philox import KEY_STEP_0, KEY_STEP_1, SINGLE, STEP_24, STEP_53, between, gauss, unit53, whole63
from ....core.words import EPS, real, select
from ..runtime.compat import types
from ..runtime.family import THREADS, blocks, kernel, launcher
from .vectors import aligned, put4, store2, take4
from .words import block, thread


# ---- words -----------------------------------------------------------------------------------------------------------------------------
def mixed(c0, c1, c2, c3, k0, k1):
    """One round: two products, whose high and low halves change places."""
    p, q = types.uint64(c0) * types.uint64(0xD2511F53), types.uint64(c2) * types.uint64(0xCD9E8D57)
    high_p, high_q = types.uint32(p >> types.uint64(32)), types.uint32(q >> types.uint64(32))
    return types.uint32(high_q ^ c1 ^ k0), types.uint32(q), types.uint32(high_p ^ c3 ^ k1), types.uint32(p)


def four_words(number, key):
    """The four words of a block."""
    seed, stream, step, number = types.uint64(key[0]), types.uint32(key[1]), types.uint32(key[2]), types.uint64(number)
    k0, k1 = types.uint32(seed), types.uint32(seed >> types.uint64(32))
    a, b, c, d = types.uint32(number), types.uint32(number >> types.uint64(32)), stream, step
    for _ in range(10):
        a, b, c, d = mixed(a, b, c, d, k0, k1)
        k0, k1 = types.uint32(k0 + types.uint32(KEY_STEP_0)), types.uint32(k1 + types.uint32(KEY_STEP_1))
    return a, b, c, d


def unit(word):
    """A number in [0, 1) from 24 bits."""
    return real(types.int32(word >> types.uint32(8))) * STEP_24


def wide_unit(a, b):
    """The same from 53 bits."""
    return unit53(types.int64(a), types.int64(b))


def uniforms(number, key):
    a, b, c, d = four_words(number, key)
    if EPS > SINGLE:
        return unit(a), unit(b), unit(c), unit(d)
    return wide_unit(a, b), wide_unit(c, d), 0.0, 0.0


def normals(number, key):
    a, b, c, d = four_words(number, key)
    if EPS > SINGLE:
        x, y = gauss(unit(a) + STEP_24, unit(b))
        z, w = gauss(unit(c) + STEP_24, unit(d))
        return x, y, z, w
    x, y = gauss(wide_unit(a, b) + STEP_53, wide_unit(c, d))
    return x, y, 0.0, 0.0


# ---- memory ------------------------------------------------------------------------------------------------------------------------------
def served():
    """Numbers that a block of words serves."""
    return 4 if EPS > SINGLE else 2


def put(out, i, a, b, c, d):
    """A thread's numbers from element i on; there may be fewer left."""
    if EPS > SINGLE:
        put_four(out, i, a, b, c, d)
    elif i + 2 <= out.size and aligned(out, 2):
        store2(out, i, (a, b))
    else:
        out[i] = a
        if i + 1 < out.size:
            out[i + 1] = b


def put_four(out, i, a, b, c, d):
    put4(out, i, (a, b, c, d), out.size - i, i + 4 <= out.size and aligned(out, 4))


def get_four(x, i):
    """x from element i on, the last one again where there are fewer left."""
    return take4(x, i, x.size - i, i + 4 <= x.size and aligned(x, 4))


# ---- kernels -------------------------------------------------------------------------------------------------------------------------
@kernel
def uniform(out, key, low, high):
    """Numbers in [low, high)."""
    number = block() * THREADS + thread()
    i = number * served()
    if i < out.size:
        bottom, top = real(low), real(high)
        a, b, c, d = uniforms(number, key)
        put(out, i, between(a, bottom, top), between(b, bottom, top), between(c, bottom, top), between(d, bottom, top))


@kernel
def normal(out, key, mean, std):
    """Normal numbers of that mean and standard deviation."""
    number = block() * THREADS + thread()
    i = number * served()
    if i < out.size:
        centre, width = real(mean), real(std)
        a, b, c, d = normals(number, key)
        put(out, i, centre + width * a, centre + width * b, centre + width * c, centre + width * d)


@kernel
def whole(out, key, low, many):
    """Whole numbers from low on, of so many."""
    number = types.int64(block()) * THREADS + thread()
    i = 2 * number
    if i < out.size:
        a, b, c, d = four_words(number, key)
        out[i] = low + whole63(types.int64(a), types.int64(b)) % many
        if i + 1 < out.size:
            out[i + 1] = low + whole63(types.int64(c), types.int64(d)) % many


@kernel
def add_normal(x, key, width, start):
    """x += width[0] * normal numbers, those from number `start` of the stream on."""
    number, skip = block() * THREADS + thread(), start % served()
    i = number * served() - skip
    if i < x.size:
        scale = real(width[0])
        a, b, c, d = normals(number + start // served(), key)
        if EPS > SINGLE and skip == 0:
            e, f, g, h = get_four(x, i)
            put(x, i, e + scale * a, f + scale * b, g + scale * c, h + scale * d)
        else:  # the sums stand outside of branches, so that they are rounded as above
            e, f = near(x, i) + scale * a, near(x, i + 1) + scale * b
            put_one(x, i, e)
            put_one(x, i + 1, f)
            if EPS > SINGLE:
                g, h = near(x, i + 2) + scale * c, near(x, i + 3) + scale * d
                put_one(x, i + 2, g)
                put_one(x, i + 3, h)


def near(x, i):
    """x at i, or its first or last element."""
    return x[min(max(i, 0), x.size - 1)]


def put_one(x, i, value):
    if i >= 0 and i < x.size:
        x[i] = value


@kernel
def drop(out, mask, x, key, p, scale):
    """mask = whether an element is kept (with probability 1 - p); out = x * scale where kept, else 0."""
    number = block() * THREADS + thread()
    i = number * 4
    if i < out.size:
        limit, factor = real(p), real(scale)
        a, b, c, d = four_words(number, key)
        ka, kb, kc, kd = unit(a) >= limit, unit(b) >= limit, unit(c) >= limit, unit(d) >= limit
        e, f, g, h = get_four(x, i)
        put_four(mask, i, ka, kb, kc, kd)
        put_four(out, i, select(ka, e * factor, 0.0), select(kb, f * factor, 0.0), select(kc, g * factor, 0.0), select(kd, h * factor, 0.0))


# ---- launchers ----------------------------------------------------------------------------------------------------------------------
def grid(out, numbers=0):
    """Blocks for threads of so many numbers each."""
    return blocks(out.size, THREADS * (numbers or (2 if out.dtype.itemsize == 8 else 4)))


@launcher
def philox_uniform(go, outs, ins, low, high):
    go(uniform, outs, ins, (low, high), grid=grid(outs[0]))


@launcher
def philox_normal(go, outs, ins, mean, std):
    go(normal, outs, ins, (mean, std), grid=grid(outs[0]))


@launcher
def philox_whole(go, outs, ins, low, many):
    go(whole, outs, ins, (low, many), grid=blocks(outs[0].size, 2 * THREADS))


@launcher
def philox_add(go, outs, ins, start):
    go(add_normal, outs, ins, (start,), grid=blocks(outs[0].size + 3, THREADS * (2 if outs[0].dtype.itemsize == 8 else 4)))


@launcher
def philox_dropout(go, outs, ins, p, scale):
    go(drop, outs, ins, (p, scale), grid=grid(outs[0], 4))
