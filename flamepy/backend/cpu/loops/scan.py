"""Scans: each number along an axis is made of what came before it, (p, q) = F(p, q, a, b), and q is kept.

A line is gone through by one worker, or where lines lie side by side a block of them together; so the bits do not depend on threads.
"""

import numpy as np

from ....dtypes import float64
from ...base import Buffer
from ...formula.row_words import wide
from ..runtime.family import launcher, loop
from ..runtime.parallel import tasks
from ..runtime.workspace import COLUMNS, block_space
from .maps import F, at
from .runs import copy_run, fill_run


@loop
def scan_lines(part, out, a, b, n, inner, reverse, p, q):
    """(p, q) = F(p, q, a[t, i], b[t, i]), out[t, i] = q for each line t; b None: i. Four lines at once: each step waits for the last.
    inner: how many lines lie side by side, None for one."""
    lines = out.size // n
    fours, even = (lines + 3) // 4, inner is None or inner % 4 == 0
    for k in tasks(part, fours):
        t = fours - 1 - k if reverse else k  # what is read backwards is fetched ahead backwards
        if even and 4 * t + 4 <= lines:
            scan_four(out, a, b, begin(4 * t, n, inner), n, inner, reverse, p, q, F)
        else:
            for line in range(4 * t, min(4 * t + 4, lines)):
                scan_line(out, a, b, begin(line, n, inner), n, inner, reverse, p, q, F)


def begin(line, n, inner):
    return line * n if inner is None else line // inner * inner * n + line % inner


def scan_four(out, a, b, first, n, inner, reverse, p, q, f):
    r, s, t, u, v, w = p, q, p, q, p, q
    step = np.uintp(n if inner is None else 1)
    for k in range(n):
        i = n - 1 - k if reverse else k
        j = np.uintp(first + (i if inner is None else i * inner))
        p, q = f(p, q, at(a, j), second(b, j, i))
        r, s = f(r, s, at(a, j + step), second(b, j + step, i))
        t, u = f(t, u, at(a, j + step + step), second(b, j + step + step, i))
        v, w = f(v, w, at(a, j + step + step + step), second(b, j + step + step + step, i))
        out[j], out[j + step], out[j + step + step], out[j + step + step + step] = q, s, u, w


def scan_line(out, a, b, first, n, inner, reverse, p, q, f):
    for k in range(n):
        i = n - 1 - k if reverse else k
        j = np.uintp(first + (i if inner is None else i * inner))
        p, q = f(p, q, at(a, j), second(b, j, i))
        out[j] = q


@loop
def scan_sums(part, out, b, n, reverse, q):
    """scan_lines() of sums: four numbers are added up before they wait for what comes before them."""
    step = np.uintp(-1 if reverse else 1)
    for t in tasks(part, out.size // n):
        i, total = np.uintp(t * n + n - 1 if reverse else t * n), q
        for _ in range(n // 4):
            c = i + step + step
            one, three = wide(b[i]), wide(b[c])
            two = one + wide(b[i + step])
            out[i], out[i + step], out[c] = total + one, total + two, total + (two + three)
            total += two + (three + wide(b[c + step]))
            out[c + step] = total
            i = c + step + step
        for _ in range(n % 4):
            total += wide(b[i])
            out[i] = total
            i += step


@loop
def scan_places(part, out, x, n, p, q):
    """scan_lines() for an F that keeps the number p and its place q, or takes the next ones: a stretch that has none to take is filled, one
    that takes all counts. In others each number is joined with the one before it, then with the one two before it, four, and so on."""
    space = block_space(x)
    v, w, i, j = space[:ROOM], space[ROOM : 2 * ROOM], space[2 * ROOM : 3 * ROOM], space[3 * ROOM : 4 * ROOM]
    fill_run(space[: 2 * ROOM], p)  # the numbers before a stretch: F takes what follows them
    for t in tasks(part, out.size // n):
        last, place = p, q
        for lo in range(0, n, STRETCH):
            hi = min(n, lo + STRETCH)
            own, run = out[t * n + lo : t * n + hi], x[t * n + lo : t * n + hi]
            many = taken(last, run, F)
            if many == 0:
                fill_run(own, place)
            elif many == own.size and rising(run, F):
                for k in range(own.size):
                    own[k] = lo + k
                last, place = run[own.size - 1], hi - 1
            else:
                copy_run(v[STRETCH : STRETCH + own.size], run)
                for k in range(STRETCH):
                    i[STRETCH + k] = k + 1  # in x's type, for vectors of as many numbers; 0 is what came before the stretch
                v[STRETCH], i[STRETCH] = F(last, i.dtype.type(0), run[0], i.dtype.type(1))
                for step in (1, 4, 16):
                    join_run(w[STRETCH:], j[STRETCH:], v, i, step, F)
                    join_run(v[STRETCH:], i[STRETCH:], w, j, 2 * step, F)
                put_places(own, i[STRETCH:], lo - 1, place)
                last, place = v[STRETCH + own.size - 1], own[own.size - 1]


def join_run(to, places, v, i, step, f):
    a, b, first, second = v[STRETCH - step :], v[STRETCH:], i[STRETCH - step :], i[STRETCH:]
    for k in range(STRETCH):
        to[k], places[k] = f(a[k], first[k], b[k], second[k])


def put_places(out, i, first, place):
    for k in range(out.size):
        out[k] = first + np.int32(i[k]) if i[k] > 0 else place


def taken(v, run, f):
    many = 0
    for j in range(run.size):
        many += f(v, 0, run[j], 1)[1]
    return many


def rising(run, f):
    """Whether each number of a run is taken after the one before it."""
    many, after = 1, run[1:]
    for j in range(after.size):
        many += f(run[j], 0, after[j], 1)[1]
    return many == run.size


def second(b, at_i, i):
    if b is None:
        return i
    return at(b, at_i)


@loop
def scan_columns(part, out, ps, qs, a, b, n, inner, reverse, p, q):
    """The same for lines whose numbers are `inner` apart; ps and qs hold p and q of each."""
    blocks = (inner + COLUMNS - 1) // COLUMNS
    for t in tasks(part, ps.size // inner * blocks):
        o, lo = t // blocks, t % blocks * COLUMNS
        hi = min(inner, lo + COLUMNS)
        mine, own = ps[o * inner + lo : o * inner + hi], qs[o * inner + lo : o * inner + hi]
        fill_run(mine, p)
        fill_run(own, q)
        for k in range(n):
            i = n - 1 - k if reverse else k
            start = (o * n + i) * inner + lo
            scan_row(out[start : start + hi - lo], mine, own, a, b, start, i, F)


def scan_row(out, ps, qs, a, b, start, i, f):
    for j in range(np.uintp(out.size)):
        p, q = f(ps[j], qs[j], at(a, start + j), second(b, start + j, i))
        ps[j], qs[j] = p, q
        out[j] = q


# ---- launchers ----
STRETCH, TOGETHER = 64, 4  # numbers of a line looked at together; lines that scan_lines() does at once, whatever the numbers are
ROOM = 2 * STRETCH  # a stretch, and room for the numbers before it
FEW = 16  # lines side by side that are faster in columns
LONG = 320  # numbers of a line that are faster by stretches than four lines at once, if they have 4 bytes at most


@launcher
def scan(go, outs, ins, outer, n, inner, reverse, p, q):
    if inner == 1 and ins[1] is None and (outer < TOGETHER or (n >= LONG and go.dtype.itemsize <= 4)):
        go(scan_places, outs, ins[:1], (n, p, q))
    elif inner == 1 and outer < TOGETHER and not isinstance(ins[0], Buffer) and go.dtype != float64:
        go(scan_sums, outs, ins[1:], (n, bool(reverse), q))
    elif inner == 1 or (inner < FEW and (n <= STRETCH or inner % 4 == 0)):
        go(scan_lines, outs, ins, (n, None if inner == 1 else inner, bool(reverse), p, q))
    else:
        held = go.empty(outer * inner, p.dtype), go.empty(outer * inner, q.dtype)
        go(scan_columns, (*outs, *held), ins, (n, inner, bool(reverse), p, q))
