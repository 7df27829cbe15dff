"""Loops that fill memory with random numbers: uniform, normal, dropout. The mathematics is in core/philox.py.

Each block of four words is a function of the key and the block's number: a task computes the blocks of its part of the output, and
the last elements, fewer than a block serves, are made on their own.
"""

from ....core.philox import SINGLE, between, normals, uniforms, unit24, wholes, words_at
from ....core.philox import philox4x32 as philox4x32  # the tests hold it against the published vectors
from ....core.words import EPS, real, select
from ..runtime.family import loop
from ..runtime.parallel import tasks

BLOCKS = 1024  # Philox blocks computed by one task
# `max(0, ...)` around a task's first block, and a count from 0, show the compiler that no index is negative.
# Otherwise it keeps Python's wrap-around for each element, and the loop doesn't vectorise.


def store(out, block, a, b, c, d):
    if EPS > SINGLE:
        out[4 * block] = a
        out[4 * block + 1] = b
        out[4 * block + 2] = c
        out[4 * block + 3] = d
    else:
        out[2 * block] = a
        out[2 * block + 1] = b


def store_some(out, start, a, b, c):
    """The last elements, fewer than a block."""
    if start < out.size:
        out[start] = a
    if start + 1 < out.size:
        out[start + 1] = b
    if start + 2 < out.size:
        out[start + 2] = c


def fill_blocks(part, out, key, first, second, four):
    """out = four(block, seed, stream, step, first, second) of each block: four numbers, in float64 two."""
    seed, stream, step = key[0], key[1], key[2]
    lanes = 4 if EPS > SINGLE else 2
    full = out.size // lanes
    for t in tasks(part, (full + BLOCKS - 1) // BLOCKS):
        start = max(0, t * BLOCKS)  # see BLOCKS
        for j in range(min(BLOCKS, full - start)):
            a, b, c, d = four(start + j, seed, stream, step, first, second)
            store(out, start + j, a, b, c, d)
    if part[0] == 0:
        a, b, c, d = four(full, seed, stream, step, first, second)
        store_some(out, full * lanes, a, b, c)


def four_uniforms(block, seed, stream, step, low, high):
    a, b, c, d = uniforms(block, seed, stream, step)
    return between(a, low, high), between(b, low, high), between(c, low, high), between(d, low, high)


def four_normals(block, seed, stream, step, mean, std):
    a, b, c, d = normals(block, seed, stream, step)
    return mean + std * a, mean + std * b, mean + std * c, mean + std * d


@loop(launched=True)
def philox_uniform(part, out, key, low, high):
    """out = numbers in [low, high): 24 random bits each in float32, 53 in float64."""
    fill_blocks(part, out, key, real(low), real(high), four_uniforms)


@loop(launched=True)
def philox_normal(part, out, key, mean, std):
    """out = normal numbers of that mean and standard deviation."""
    fill_blocks(part, out, key, real(mean), real(std), four_normals)


@loop(launched=True)
def philox_whole(part, out, key, low, many):
    """out = whole numbers from low on, of so many: 63 random bits each."""
    seed, stream, step = key[0], key[1], key[2]
    blocks = (out.size + 1) // 2
    for t in tasks(part, (blocks + BLOCKS - 1) // BLOCKS):
        for block in range(t * BLOCKS, min(blocks, (t + 1) * BLOCKS)):
            a, b = wholes(block, seed, stream, step)
            out[2 * block] = low + a % many
            if 2 * block + 1 < out.size:
                out[2 * block + 1] = low + b % many


@loop(launched=True)
def philox_add(part, x, key, width, start):
    """x += width[0] * normal numbers, those from number `start` of the stream on."""
    seed, stream, step = key[0], key[1], key[2]
    scale = real(width[0])
    lanes = 4 if EPS > SINGLE else 2
    begin = (start + lanes - 1) // lanes
    head = min(x.size, begin * lanes - start)  # elements that the block before serves
    full = (x.size - head) // lanes
    for t in tasks(part, (full + BLOCKS - 1) // BLOCKS):
        first = max(0, t * BLOCKS)  # see BLOCKS
        for j in range(min(BLOCKS, full - first)):
            at = head + lanes * (first + j)
            a, b, c, d = normals(begin + first + j, seed, stream, step)
            x[at] += scale * a
            x[at + 1] += scale * b
            if EPS > SINGLE:
                x[at + 2] += scale * c
                x[at + 3] += scale * d
    if part[0] == 0:
        add_some(x, 0, head, normals(start // lanes, seed, stream, step), start % lanes, scale)
        done = head + full * lanes
        add_some(x, done, x.size, normals(begin + full, seed, stream, step), 0, scale)


def add_some(x, first, end, drawn, lane, scale):
    """Part of a block's numbers, from that lane on."""
    a, b, c, d = drawn
    for i in range(first, end):
        j = lane + i - first
        x[i] += scale * select(j == 0, a, select(j == 1, b, select(j == 2, c, d)))


@loop(launched=True)
def philox_dropout(part, out, mask, x, key, p, scale):
    """mask = whether an element is kept (with probability 1 - p); out = x * scale where kept, else 0."""
    seed, stream, step = key[0], key[1], key[2]
    limit, factor = real(p), real(scale)
    full = out.size // 4
    for t in tasks(part, (full + BLOCKS - 1) // BLOCKS):
        first = max(0, t * BLOCKS)  # see BLOCKS
        for j in range(min(BLOCKS, full - first)):
            block = first + j
            a, b, c, d = words_at(block, seed, stream, step)
            keep(out, mask, x, 4 * block, a, limit, factor)
            keep(out, mask, x, 4 * block + 1, b, limit, factor)
            keep(out, mask, x, 4 * block + 2, c, limit, factor)
            keep(out, mask, x, 4 * block + 3, d, limit, factor)
    a, b, c, d = words_at(full, seed, stream, step)
    rest = out.size - 4 * full if part[0] == 0 else 0
    if rest > 0:
        keep(out, mask, x, 4 * full, a, limit, factor)
    if rest > 1:
        keep(out, mask, x, 4 * full + 1, b, limit, factor)
    if rest > 2:
        keep(out, mask, x, 4 * full + 2, c, limit, factor)


def keep(out, mask, x, i, word, limit, factor):
    kept = unit24(word) >= limit
    mask[i] = kept
    out[i] = select(kept, x[i] * factor, 0.0)
