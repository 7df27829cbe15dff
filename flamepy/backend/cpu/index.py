"""Moving elements: strided copies, and rows picked or added by index.

Tensors are always contiguous, so a transpose, a slice or a broadcast is a strided read into new memory, and its backward a
strided write. `table` holds k sizes then k strides of the strided side, for all dimensions but the last (inner, step).

FLAME counterpart: `flame_core::tensor` narrow/permute/index_select. Read next: spans.py.
"""

from __future__ import annotations

from functools import lru_cache

from ...dtypes import FULL, float32, float64, int32, int64
from .blas import copy_matrix
from .broadcast import offset
from .family import launcher, loop, table
from .parallel import tasks
from .runs import add_run, copy_run, fill_run, put_run

LENGTH = 4096  # elements of a run that one task moves
NEAR = 16  # rows added one after the other in their own type, at most
SIDE, WIDTH = 64, 256  # rows and columns of the tile of a turned matrix that one task makes


@loop
def strided_get(part, out, x, table, k, inner, step, base):
    """out[r, j] = x[base + offset(r) + j * step]."""
    blocks = (inner + LENGTH - 1) // LENGTH
    for t in tasks(part, out.size // inner * blocks):
        r, low = t // blocks, t % blocks * LENGTH
        start = base + offset(table, k, 0, r) + low * step
        line = out[r * inner + low : r * inner + min(inner, low + LENGTH)]
        if step == 1:
            copy_run(line, x[start : start + line.size])
        elif step == 0:
            fill_run(line, x[start])
        else:
            for j in range(line.size):
                line[j] = x[start + j * step]


@loop
def strided_turn(part, out, x, table, k, m, n, step, base):
    """out[r, i, j] = x[base + offset(r) + i + j * step] for i < m <= step and j < n: each r is a matrix turned."""
    down, across = (m + SIDE - 1) // SIDE, (n + WIDTH - 1) // WIDTH
    for t in tasks(part, out.size // (m * n) * down * across):
        r, i, j = t // (down * across), t % (down * across) // across * SIDE, t % across * WIDTH
        start = base + offset(table, k, 0, r) + i + j * step
        copy_matrix(True, min(WIDTH, n - j), min(SIDE, m - i), x, start, step, out, (r * m + i) * n + j, n)


@loop
def strided_put(part, out, x, table, k, inner, step, base):
    """out[base + offset(r) + j * step] = x[r, j]; the places written must be distinct."""
    for r in tasks(part, x.size // inner):
        start = base + offset(table, k, 0, r)
        line = x[r * inner : r * inner + inner]
        if step == 1:
            copy_run(out[start : start + inner], line)
        else:
            for j in range(inner):
                out[start + j * step] = line[j]


@loop
def take_rows(part, out, x, index, inner):
    """out[r, :] = x[index[r], :]."""
    last = x.size // inner - 1
    for r in tasks(part, index.size):
        start = within(index[r], last) * inner
        copy_run(out[r * inner : r * inner + inner], x[start : start + inner])


@loop
def add_rows(part, out, far, times, x, index, slots, hot, inner, block, group, deals, add):
    """out[index[r], :] += x[r, :], rows in order, from zeros unless `add`.

    Task t has a block of columns of every deals-th group of 2**group rows of out; deals is a power of two. hot_rows() says which rows
    are named often: of these, every NEAR added go to a row of `far`, float64; `times` counts them.
    """
    blocks = (inner + block - 1) // block
    rows = out.size // inner
    for t in tasks(part, deals * blocks):
        deal = t // blocks
        lo = t % blocks * block
        hi = min(inner, lo + block)
        if not add:
            clear(out, rows, inner, lo, hi, group, deals, deal)
        own = times[t % blocks * hot.size : t % blocks * hot.size + hot.size]
        for s in range(hot.size):
            if hot[s] >= 0 and (hot[s] >> group) & (deals - 1) == deal:
                own[s] = 0
                fill_run(far[s * inner + lo : s * inner + hi], 0)
        for i in range(index.size):
            r = within(index[i], rows - 1)
            if (r >> group) & (deals - 1) == deal:
                line = out[r * inner + lo : r * inner + hi]
                add_run(line, x[i * inner + lo : i * inner + hi])
                s = -1 - slots[r] if hot.size else -1
                if s >= 0:
                    own[s] += 1
                    if own[s] % NEAR == 0:
                        add_run(far[s * inner + lo : s * inner + hi], line)
                        fill_run(line, 0)
        for s in range(hot.size):
            if hot[s] >= 0 and (hot[s] >> group) & (deals - 1) == deal:
                add_run(out[hot[s] * inner + lo : hot[s] * inner + hi], far[s * inner + lo : s * inner + hi])


@loop
def add_far(part, out, far, x, index, inner, add):
    """The same for short rows: all of it is added up in `far`, float64, by one worker."""
    if part[0] == 0:
        fill_run(far, 0)
        for i in range(index.size):
            r = within(index[i], far.size // inner - 1)
            for j in range(inner):
                far[r * inner + j] += x[i * inner + j]
        put_run(out, far, add)


def clear(out, rows, inner, lo, hi, group, deals, deal):
    """Zeros where one task of add_rows() adds."""
    for first in range(deal << group, rows, deals << group):
        last = min(rows, first + (1 << group))
        if hi - lo == inner:
            fill_run(out[first * inner : last * inner], 0)
        else:
            for r in range(first, last):
                fill_run(out[r * inner + lo : r * inner + hi], 0)


@loop
def hot_rows(part, slots, hot, index):
    """Of the rows that index names more than NEAR times, `hot` has the numbers, then -1, and slots[r] is -1 - the place of r in it; of the
    other rows that it names, slots[r] is how often."""
    if part[0] == 0:
        last = slots.size - 1
        for i in range(index.size):
            slots[within(index[i], last)] = 0
        for i in range(index.size):
            slots[within(index[i], last)] += 1
        fill_run(hot, -1)
        found = 0
        for i in range(index.size):
            r = within(index[i], last)
            if slots[r] > NEAR:
                slots[r] = -1 - found
                hot[found] = r
                found += 1


# ---- integer indices: found out and computed without the host ----


@loop
def check_ids(part, found, ids, low, high, ignores, ignore):
    """found = (position of the first id outside [low, high) or -1, that id, number of ids that are not `ignore`)."""
    if part[0] == 0:
        outside, ignored = 0, 0
        for i in range(ids.size):
            skip = ignores & (ids[i] == ignore)
            ignored += skip
            outside += ((ids[i] < low) | (ids[i] >= high)) & (not skip)
        found[0] = -1
        found[1] = 0
        found[2] = ids.size - ignored
        if outside:
            i = 0
            while (ignores and ids[i] == ignore) or low <= ids[i] < high:
                i += 1
            found[0] = i
            found[1] = ids[i]


@loop
def place_ids(part, out, ids, table, k, n, step):
    """out[p] = (where position p begins, by the k sizes and strides in table) + step * id; negative ids count from the end."""
    for p in tasks(part, out.size):
        i = ids[p % ids.size]
        out[p] = offset(table, k, 0, p) + step * within(i + n if i < 0 else i, n - 1)


def within(i, last):
    """i, or the nearest of 0 to last: an id outside is refused when check_ids() is looked at, and must do no harm until then."""
    return min(max(i, 0), last)


# ---- launchers ----
SHORT = 8  # below so many numbers a row, all are added up in float64
PIECE = 1 << 19  # bytes of the rows one task adds into: they stay in a core's own cache
COLUMNS = 64  # columns one task adds, where there are too few rows to share


@lru_cache(4096)
def walk(sizes, strides):
    """(table, k, inner, step) of a strided walk; neighbouring dimensions are merged where strides allow."""
    dims: list[tuple[int, int]] = []
    for n, s in zip(sizes, strides, strict=True):
        if n == 1:
            continue
        if dims and dims[-1][1] == n * s:
            dims[-1] = (dims[-1][0] * n, s)
        else:
            dims.append((n, s))
    *outer, (inner, step) = dims or [(1, 1)]
    return tuple([n for n, _ in outer] + [s for _, s in outer]), len(outer), inner, step


@launcher(name="strided_get")
def get_launcher(go, outs, ins, sizes, strides, base):
    """A walk through matrices (m, n) stored as (n, m) with rows `step` apart turns them by tiles."""
    found, k, n, step = walk(sizes, strides)
    if go.dtype not in FULL or not k or found[2 * k - 1] != 1 or not 1 < found[k - 1] <= step:
        go(strided_get, outs, ins, (table(found), k, n, step, base))
    else:
        outer = (*found[: k - 1], *found[k : 2 * k - 1])
        go(strided_turn, outs, ins, (table(outer), k - 1, found[k - 1], n, step, base))


@launcher(name="strided_put")
def put_launcher(go, outs, ins, sizes, strides, base):
    found, *rest = walk(sizes, strides)
    go(strided_put, outs, ins, (table(found), *rest, base), work=ins[0].size)


@launcher(name="take_rows")
def take_launcher(go, outs, ins, inner):
    go(take_rows, outs, ins, (inner,))


@launcher(name="add_rows")
def add_launcher(go, outs, ins, inner, add):
    """A task has some rows of y, in groups of 8 dealt out in turn (ids near each other are often equally frequent), or some columns, and
    goes through all of the index: every element is added up in the order of the index, whoever does it."""
    (y,), (x, index) = outs, ins
    if not y.size:
        return
    pieces = min(y.size * y.dtype.itemsize // PIECE, inner // 6)  # going through the index costs as much as adding a few columns
    want = min(max(pieces, min(inner // 16, 8)), y.size // inner // 16)
    deals = 1 << max(0, want.bit_length() - 1)
    group, block = 3 if deals > 1 else 62, inner if deals > 2 else COLUMNS
    if go.dtype == float32 and inner < SHORT and index.size > NEAR and deals == 1:
        go(add_far, (y, go.empty(y.size, float64)), ins, (inner, add), work=1)
        return
    rows = y.size // inner
    most = min(rows, index.size // (NEAR + 1)) if go.dtype == float32 else 0  # rows that can be named often
    far, times, hot = go.empty(most * inner, float64), go.empty(most * -(-inner // block), int64), go.empty(most, int64)
    slots = go.empty(rows if most else 0, int32)
    if most:
        go(hot_rows, (slots, hot), (index,), work=1, dtype=int64)
    consts = (inner, block, group, deals, add)
    go(add_rows, (y, far, times), (x, index, slots, hot), consts, work=x.size + (0 if add else y.size))


@launcher(name="check_ids")
def check_launcher(go, outs, ins, *consts):
    go(check_ids, outs, ins, consts)


@launcher(name="place_ids")
def place_launcher(go, outs, ins, sizes, strides, n, step):
    go(place_ids, outs, (*ins, table((*sizes, *strides))), (len(sizes), n, step))
