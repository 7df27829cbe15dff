"""Scans: each number along an axis is made of what came before it, (p, q) = F(p, q, a, b), and q is kept.

F joins two stretches of a line as it joins a stretch and a number. So a block goes through a long line by tiles: each thread a few
numbers, then threads in pairs. Short lines, and those that lie side by side, have a thread each. The order follows from sizes alone.
"""

from ..products.tensor import divided
from ..runtime.compat import types
from ..runtime.family import THREADS, F, blocks, kernel, launcher
from ..runtime.near import shared_span
from .runs import at
from .words import barrier, block, thread

EACH = 4  # numbers of a thread in a tile
SHORT = 64  # numbers of a line that a thread goes through alone


@kernel
def scan_alone(out, a, b, lines, n, inner, reverse, p, q):
    """out[o, i, j] = q, a thread for each line (o, j)."""
    line = types.int64(block()) * THREADS + thread()
    if line < lines:
        o, j = divided(line, inner)
        for k in range(n):
            i = n - 1 - k if reverse else k
            place = (types.int64(o) * n + i) * inner + j
            p, q = F(p, q, at((a,), place)[0], second(b, place, i))
            out[place] = q


def second(b, place, i):
    if b is None:
        return types.int64(i)
    return at((b,), place)[0]


@kernel
def scan_tiles(out, a, b, n, reverse, p, q):
    """The same for lines of neighbouring numbers, a block for each."""
    first, t = types.int64(block()) * n, thread()
    ps, qs = shared_span(p, 256), shared_span(q, 256)
    for tile in range(0, n, EACH * THREADS):
        own_p, own_q = p, q
        begin = tile + EACH * t
        stop = min(begin + EACH, n)
        for k in range(begin, stop):
            i = n - 1 - k if reverse else k
            x, y = at((a,), first + i)[0], second(b, first + i, i)
            if k == begin:
                own_p, own_q = x, y
            else:
                own_p, own_q = F(own_p, own_q, x, y)
        ps[t], qs[t] = own_p, own_q
        barrier()
        step = 1
        while step < THREADS:
            if t >= step:
                own_p, own_q = F(ps[t - step], qs[t - step], own_p, own_q)
            barrier()
            ps[t], qs[t] = own_p, own_q
            barrier()
            step *= 2
        own_p, own_q = p, q
        if t > 0:
            own_p, own_q = F(p, q, ps[t - 1], qs[t - 1])
        for k in range(begin, stop):
            i = n - 1 - k if reverse else k
            own_p, own_q = F(own_p, own_q, at((a,), first + i)[0], second(b, first + i, i))
            out[first + i] = own_q
        last = (min(n - tile, EACH * THREADS) - 1) // EACH
        p, q = F(p, q, ps[last], qs[last])
        barrier()


@launcher
def scan(go, outs, ins, outer, n, inner, reverse, p, q):
    if inner == 1 and n > SHORT:
        go(scan_tiles, outs, ins, (n, bool(reverse), p, q), grid=outer)
    else:
        lines = outer * inner
        go(scan_alone, outs, ins, (lines, n, inner, bool(reverse), p, q), grid=blocks(lines))
