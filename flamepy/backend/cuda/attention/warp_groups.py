"""Attention forward by wgmma of sm_90a, where four warps multiply as one: no mask, rows of 33 to 64 or of 97 to 128 numbers.

A block has two such groups with 64 rows each. While a group adds P V of a tile, it makes the softmax of the next tile's scores, which are
multiplied just before; so a stage of shared memory holds the values of a tile and the keys of the next. Tiles are panels of 64 columns,
rows of 128 bytes, whose pieces of 16 change places as descriptors say; formulas and what ends a row are tensor_cores.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from ....core.words import INF, real
from ..loops.vectors import aligned
from ..loops.words import barrier, thread
from ..products.fragments import each, folded, mapped, rounded
from ..products.tensor import M16, commit, seen, shared, swizzled, wait
from ..products.tile_words import any_of, piece_from, short
from ..products.tiles import elements, filled
from ..runtime.compat import cuda, literal, types, word
from ..runtime.family import kernel
from ..runtime.inline import run
from ..runtime.span import F32, I64
from .tensor_cores import (
    ALL,
    LOG2E,
    faded,
    following,
    grown,
    inverse,
    keep_row,
    larger,
    longest,
    outgrown,
    plus,
    product,
    put_rows,
    scores,
    shift_of,
    stage_own,
    stage_tile,
    starts,
    vacant,
    weight,
)

THREADS_OF = 256
KEYS = 128  # of a tile; with 64 two blocks with narrow rows are on a multiprocessor
ROWS, N, PANELS = 128, 128, 1  # rows and keys of a tile; panels that a row of q, k, v and y has
WIDE, STEP, DOWN = 64, 128, 32  # of a panel: columns, bytes from row to row, rows that a block copies at once
LINES, TALL, SCORES, SUMS = 2, 1, 64, 32  # as in tensor_cores.py
HALF, PAIR, LAST, ROOMS = 1 << 14, 1 << 15, 1 << 16, 7 << 14  # bytes: keys of a stage, a stage, where the last one begins, all
FAR = ROWS * STEP  # bytes from a panel of the block's rows to the next


def sizes_of(width: int) -> dict[str, int]:
    """The sizes of a kernel for rows of so many columns: one block a multiprocessor has all of its registers, the widest rows most of its
    shared memory."""
    panels = 1 + (width > 64)
    half = KEYS * STEP * panels
    return {
        "N": KEYS, "PANELS": panels, "THREADS_OF": THREADS_OF, "ROWS": ROWS, "WIDE": WIDE, "STEP": STEP, "DOWN": DOWN, "LINES": LINES,
        "TALL": TALL, "SCORES": KEYS // 2, "SUMS": 32 * panels, "HALF": half, "PAIR": 2 * half, "LAST": 4 * half,
        "ROOMS": 6 * half + FAR * panels,
    }  # fmt: skip


def choice(driver: Any, width: int, mask: Any) -> tuple[Any, dict[str, int]] | None:
    """(kernel, its sizes) where it is asked for and takes such rows."""
    takes = mask is None and (32 < width <= 64 or 96 < width <= 128)
    return (attention_groups, sizes_of(width)) if driver.wgmma and driver.cc[:2] == (9, 0) and takes else None


# ---- products ------------------------------------------------------------------------------------------------------------------------
class Product(NamedTuple):
    """acc + left right, of 64 rows; what one lane has of them."""

    many: int  # sums of a lane
    acc: list[Any] | None
    left: Any  # pairs of numbers in registers, or where rows lie in shared memory
    right: Any  # where a tile lies there: columns of the right factor, or, beside a left one in registers, its rows
    deep: int = 0  # how many times 16 numbers of k, where the left factor lies in shared memory


def multiply(builder: Any, x: Any, products: Sequence[Product], pending: int) -> list[Any]:
    """One piece of PTX: each product begins, as a group of its own, and all of them but so many, the last, have ended behind it: sums."""
    code = ["{ .reg .pred no, yes; .reg .b64 a, b; setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0; wgmma.fence.sync.aligned;"]
    total, first, given, before = sum(p.many for p in products), 0, list[Any](), dict[int, Any]()
    for p in products:
        sums, own = [f"${i}" for i in range(first, first + p.many)], factors_of(builder, p)
        factors = [f"${total + len(given) + i}" for i in range(len(own))]
        code += [*steps_of(x, p, sums, factors), "wgmma.commit_group.sync.aligned;"]
        before |= dict(enumerate(p.acc or [], first))
        given, first = given + own, first + p.many
    kinds = ["=f"] * total + ["l" if v.type == I64 else "r" for v in given] + [str(i) for i in before]
    code.append(f"wgmma.wait_group.sync.aligned {pending}; }}")
    return elements(builder, run(builder, ir.LiteralStructType([F32] * total), " ".join(code), ",".join(kinds), [*given, *before.values()]))


def factors_of(builder: Any, p: Product) -> list[Any]:
    """Registers of the left factor, or what wgmma is told of its tile, then of the right one's."""
    held = isinstance(p.left, list)
    tiles = [(p.right, 4 * len(p.left) * STEP)] if held else [(p.left, 16), (p.right, 16)]
    return [*(p.left if held else []), *[swizzled(builder, builder.zext(at, I64), lead) for at, lead in tiles]]


def steps_of(x: Any, p: Product, sums: list[str], factors: list[str]) -> list[str]:
    """A product's instructions, 16 numbers of k each."""
    n, left, code = 2 * p.many, factors[:-1], []
    head = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{M16[x.half]} {{{', '.join(sums)}}}, "
    for k in range(p.deep):
        (panel, within), begins = divmod(k, 4), "no" if k == 0 and p.acc is None else "yes"
        a, b = (panel * far // 16 + 2 * within for far in (FAR, n * STEP))
        code.append(f"add.s64 a, {left[0]}, {a}; add.s64 b, {factors[-1]}, {b}; {head}a, b, {begins}, 1, 1, 0, 0;")
    for k in range(0 if p.deep else len(left) // 4):
        code.append(f"add.s64 b, {factors[-1]}, {128 * k}; {head}{{{', '.join(left[4 * k : 4 * k + 4])}}}, b, yes, 1, 1, 1;")
    return code


def floats(n: int) -> Any:
    return types.UniTuple(types.float32, n)


@word(lambda acc, n, q, k, x: floats(literal(n).literal_value // 2)(acc, n, types.int32, types.int32, x))
def scored(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Products of a group's 64 rows, which begin at an address in shared memory, with n keys; acc: as wide as they are."""
    acc, n, *_, x = sig.args
    return multiply(builder, x, [Product(n.literal_value // 2, None, args[2], args[3], acc.count // 8)], 0)


@word(lambda acc, p, q, k, v, x: floats(2 * p.count + acc.count)(acc, p, types.int32, types.int32, types.int32, x))
def scored_summed(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Those of a tile, and acc + p v of the one before, which goes on: nothing may touch its numbers until settled()."""
    acc, p = (elements(builder, v) for v in args[:2])
    begun = Product(2 * len(p), None, args[2], args[3], len(acc) // 8), Product(len(acc), acc, p, args[4])
    return multiply(builder, sig.args[5], begun, 1)


@word(lambda acc, p, v, x: acc(acc, p, types.int32, x))
def summed(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """acc + p v."""
    acc, p = (elements(builder, v) for v in args[:2])
    return multiply(builder, sig.args[3], [Product(len(acc), acc, p, args[2])], 0)


@word(lambda acc, p, fresh: types.Tuple((acc, fresh))(acc, p, fresh))
def settled(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """(sums of a product that went on, and has ended, fresh): p is held until then, fresh, the next weights, is made before. The assembler
    would make fresh later if two ways had not an end of their own; all warps of a group go the same."""
    acc, p, fresh = (elements(builder, v) for v in args)
    parts, count, code = sig.return_type.types, len(acc + fresh), "wgmma.wait_group.sync.aligned 0;"
    constraints = ",".join(["=f"] * count + ["r"] * len(p) + [str(i) for i in range(count)])
    found = elements(builder, run(builder, ir.LiteralStructType([F32] * count), code, constraints, [*p, *acc, *fresh]))
    return [context.make_tuple(builder, parts[0], found[: len(acc)]), context.make_tuple(builder, parts[1], found[len(acc) :])]


# ---- memory ------------------------------------------------------------------------------------------------------------------------
def piece_of_panel():
    """Where this thread's first piece lies in a panel, in bytes."""
    row = thread() >> 3
    return short(STEP * row + 16 * ((thread() ^ row) & 7))


def bring(to, x, at, step, left, width, fast):
    """Begin to copy a tile of keys, or values, panel by panel."""
    stage_tile(to, x, at, step, left, width, fast)
    if PANELS > 1:
        stage_tile(to + N * STEP, x, at + WIDE, step, left, short(width - WIDE), fast)


def bring_own(to, x, at, step, left, width, fast):
    """The same for the block's rows: with what came before them, a group of copies."""
    stage_own(to, x, at, step, left, width, fast)
    if PANELS > 1:
        stage_own(to + FAR, x, at + WIDE, step, left, short(width - WIDE), fast)
    commit()


def bring_stage(to, k, k_at, v, v_at, layout, at, end, keys, d, e, fast):
    """Values from key `at` on, and the keys N further."""
    if at < end:
        bring(to + HALF, v, v_at, layout[11], keys - at, e, fast)
        if short(at + N) < end:
            bring(to, k, k_at, layout[7], keys - at - N, d, fast)
    commit()


def arrive(behind):
    """What the block has begun to copy is there, for wgmma too, but for so many groups of each thread."""
    wait(behind)
    seen()
    barrier()


# ---- forward -----------------------------------------------------------------------------------------------------------------------
def softened(s, top, total, unit, factor, simple, m_layout, own, at, rows, keys, is_causal):
    """(weights of a tile of products, largest scores, totals, whether sums have to fade, how much)."""
    s = scores(s, unit, simple, None, 0, m_layout, own, at, rows, keys, is_causal)
    fade = filled(LINES, 1.0)
    grows = cuda.any_sync(ALL, any_of(mapped(outgrown, LINES, folded(larger, LINES, s, 1), (top, factor))))
    if grows:
        fresh = mapped(grown, LINES, folded(larger, LINES, s, 4), (top, factor))
        fade = mapped(faded, LINES, top, (fresh,))
        top, total = fresh, mapped(product, LINES, total, (fade,))
    s = mapped(weight, LINES, s, (mapped(shift_of, LINES, top, ()), factor))
    return s, top, mapped(plus, LINES, total, (folded(plus, LINES, s, 1),)), grows, fade


def rested(acc, p, fresh, more, grows, fade, x):
    """(sums of acc + p v, which went on, the next weights as a left factor); more: any flag that all warps of a group have alike."""
    if more:
        acc, fresh = settled(acc, p, fresh)
    else:
        acc, fresh = settled(acc, p, fresh)
    if grows:
        acc = mapped(product, LINES, acc, (fade,))
    return acc, rounded(fresh, x)


@kernel(threads=THREADS_OF)
def attention_groups(y, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, even, is_causal):
    """What attention_mma gives."""
    room, mine, group = short(shared(ROOMS)), piece_of_panel(), short(thread() >> 7)
    pair, first = longest(rows)
    q_at, k_at, v_at, y_at, _ = starts(layout, m_layout, pair, heads)
    fast = even and aligned(q, 8) and aligned(k, 8) and aligned(v, 8)
    k_at, v_at = k_at + piece_from(layout[7], WIDE), v_at + piece_from(layout[11], WIDE)
    end, least = short(min(keys, first + ROWS) if is_causal else keys), short(first + 64 * group)
    last = short(0 if least >= rows else min(keys, least + 64) if is_causal else keys)  # of the keys that the group's rows see
    at, here, own = short(0), room, short(least + 16 * (thread() >> 5 & 3))
    a, unit, simple = short(room + 3 * PAIR + 64 * STEP * group), scale * LOG2E, scale > 0.0
    factor = unit if simple else real(1)
    bring(room + LAST + mine, k, k_at, layout[7], keys, d, fast)  # the first tile's keys, where a later stage will be
    bring_own(room + 3 * PAIR + mine, q, q_at + first * layout[3] + piece_from(layout[3], WIDE), layout[3], rows - first, d, fast)
    for ahead in range(2):
        k_at = k_at + N * layout[7]
        bring_stage(room + ahead * PAIR + mine, k, k_at, v, v_at, layout, short(ahead * N), end, keys, d, e, fast)
        v_at = v_at + N * layout[11]
    arrive(2)
    top, total, acc = filled(LINES, -INF), filled(LINES, 0.0), filled(SUMS, 0.0)
    s = scored(acc, N, a, short(room + LAST), q)
    p, top, total, grows, fade = softened(s, top, total, unit, factor, simple, m_layout, own, at, rows, keys, is_causal)
    p = rounded(p, q)
    while at < end:
        arrive(1)
        k_at, far = k_at + N * layout[7], short(at + 2 * N)
        bring_stage(vacant(room, here) + mine, k, k_at, v, v_at, layout, far, end, keys, d, e, fast)
        v_at, after = v_at + N * layout[11], short(at + N)
        if after < last:
            both = scored_summed(acc, p, a, here, short(here + HALF), q)
            s, acc = both[:SCORES], both[SCORES:]
            fresh, top, total, grows, fade = softened(s, top, total, unit, factor, simple, m_layout, own, after, rows, keys, is_causal)
            acc, p = rested(acc, p, fresh, short(after + N) < last, grows, fade, q)
        elif at < last:
            acc = summed(acc, p, short(here + HALF), q)
        at, here = after, following(room, here)
    share = mapped(inverse, LINES, folded(plus, LINES, total, 4), ())
    each(keep_row, LINES, top, (kept, share, pair * rows + own, rows - own))
    put_rows(y, y_at + own * layout[15], layout[15], rows - own, e, mapped(product, LINES, acc, (share,)), even)
