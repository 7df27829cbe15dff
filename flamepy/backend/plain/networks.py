"""The kernels of networks: linear layers, attention, convolution, pooling, as whole NumPy arrays with the axes they have on paper.

Attention makes the matrix of all scores; a convolution lays the windows of the images out as columns (im2col) and multiplies. Each
gradient stands below its function.
"""

import numpy as np

from ...core import philox
from ...core.formula import ON_ARRAYS, typed
from ...core.kernels import drawn, kernel, matrix, places, total_of
from .rows import put


# ---- linear layers, dropout, masks -----------------------------------------------------------------------------------------------
@kernel
def linear(F, outs, ins, consts):
    """y = F(z) + residual with z = x (rows, k) @ w.T + bias; flip: x @ w. kept: z, or with keeps_result F(z). w is rounded to `reads`."""
    (y, kept), (x, w, bias, residual), (rows, n, k, flip, keeps_result, reads) = outs, ins, consts
    z = matrix(x, 0, rows, k, False) @ matrix(as_read(w, reads), 0, k, n, not flip)
    if bias is not None:
        z = z + bias
    z = z.reshape(-1)
    result = z if F is None else F(z)
    put(kept, result if keeps_result else z, False)
    y[...] = result if residual is None else result + residual


@kernel
def linear_dx(F, outs, ins, consts):
    """dz (rows, n_out) = F(g, kept), the activation's derivative (without one g), and dx = dz @ w (n_out, n_in). `reads`: see linear()."""
    (dx, dz), (g, kept, w), (rows, n_out, n_in, reads) = outs, ins, consts
    dz[...] = as_read(g if F is None else F(g, kept), reads)
    dx[...] = (dz.reshape(rows, n_out) @ as_read(w, reads).reshape(n_out, n_in)).reshape(-1)


def as_read(x, reads):
    """x as a product reads it that takes operands of this type."""
    return x.astype(reads, copy=False).astype(x.dtype, copy=False)


@kernel
def linear_dw(F, outs, ins, consts):
    """dw (n_out, n_in) = g.T @ x, db = column sums of g; add_w, add_b: on top of what is there."""
    (dw, db), (g, x), (rows, n_out, n_in, add_w, add_b) = outs, ins, consts
    put(dw, (matrix(g, 0, n_out, rows, True) @ x.reshape(rows, n_in)).reshape(-1), add_w)
    put(db, total_of(g.reshape(rows, n_out), 0), add_b)


@kernel
def philox_dropout(F, outs, ins, consts):
    """mask: which elements are kept, each with probability 1 - p; out = x * scale where kept, else 0."""
    (out, mask), (x, key), (p, scale) = outs, ins, consts
    words = drawn(philox.words_at, out, 4, x.dtype, key)
    mask[...] = typed(philox.unit24, x.dtype, ON_ARRAYS)(words) >= p
    out[...] = np.where(mask, x * scale, 0)


@kernel
def surround(F, outs, ins, consts):
    """y = x read along each axis at `front` places from one on by a step, then at the first `many`, then at more by another step."""
    (y,), (x,), (axes,) = outs, ins, consts
    at = np.zeros((), np.int64)
    for size, many, front, first, step, after, by, stride in axes:
        i = np.arange(size) - front
        own = np.where(i < 0, first + (i + front) * step, np.where(i < many, i, after + (i - many) * by))
        at = at[..., None] + own * stride
    y[...] = x[at.reshape(-1)]


@kernel
def tri(F, outs, ins, consts):
    """y = x on or above (upper), or on or below, a diagonal of each matrix, 0 elsewhere."""
    (y,), (x,), (rows, cols, diagonal, upper) = outs, ins, consts
    right = np.arange(cols) - np.arange(rows)[:, None]
    keep = right >= diagonal if upper else right <= diagonal
    y[...] = np.where(keep, x.reshape(x.size // max(keep.size, 1), rows, cols), 0).reshape(-1)


# ---- attention -----------------------------------------------------------------------------------------------------------------
# Operands stay where they are: the layout holds (start, stride along batch, head, row) of q, k, v and y, then of a mask also the
# stride along columns.


@kernel
def attention(F, outs, ins, consts):
    """y = softmax(scale q k^T + mask) v; kept: the largest score and 1 / sum(exp(score - largest)). A row without keys: all 0."""
    (y, kept), (q, k, v, mask), (layout, sizes, scale, is_causal) = outs, ins, consts
    at = lying(layout, sizes)
    s = scores(q[at[0]], k[at[1]], mask, layout, sizes, scale, is_causal)
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(top == -np.inf, 0, top)
    e = np.exp(s - top)
    total = e.sum(axis=-1, keepdims=True, dtype=np.float64)
    share = np.where(total == 0, 0, 1 / total).astype(y.dtype)
    y[at[3]] = (e @ v[at[2]]) * share
    kept[...] = np.concatenate([top.reshape(-1), share.reshape(-1)])


@kernel
def attention_dx(F, outs, ins, consts):
    """Gradients from g, that of y. dq lies as q, dk as k, dv as v, g as y; dmask is contiguous."""
    (dq, dk, dv, dmask), (g, y, kept, q, k, v, mask), (layout, sizes, scale, is_causal) = outs, ins, consts
    at = lying(layout, sizes)
    q, k, v, g, y = q[at[0]], k[at[1]], v[at[2]], g[at[3]], y[at[3]]
    top, share = kept.reshape(2, *sizes[:3], 1)
    p = np.exp(scores(q, k, mask, layout, sizes, scale, is_causal) - top) * share
    ds = p * (g @ v.swapaxes(2, 3) - (g * y).sum(axis=-1, keepdims=True))
    dq[at[0]] = scale * (ds @ k)
    dk[at[1]] = scale * (ds.swapaxes(2, 3) @ q)
    dv[at[2]] = p.swapaxes(2, 3) @ g
    put(dmask, ds.reshape(-1), False)


def lying(layout, sizes):
    """Where the elements of q, k, v and y lie, each in an array of shape (batch, heads, rows or keys, width)."""
    batch, heads, rows, keys, d, dv = sizes
    shapes = (rows, d), (keys, d), (keys, dv), (rows, dv)
    return [places((batch, heads, *shape), (*layout[4 * i + 1 : 4 * i + 4], 1), layout[4 * i]) for i, shape in enumerate(shapes)]


def scores(q, k, mask, layout, sizes, scale, is_causal):
    """scale q k^T + mask, and -inf where a row may not look: at keys after it if is_causal."""
    found = scale * (q @ k.swapaxes(2, 3))
    if mask is not None:
        found = found + mask[places(sizes[:4], layout[17:21], layout[16])]
    _, _, rows, keys = found.shape
    return np.where(np.tri(rows, keys, dtype=bool), found, -np.inf) if is_causal else found


# ---- convolution and pooling -----------------------------------------------------------------------------------------------------
# `window` is (height, width, steps down and across, padding down and across, dilation down and across, rows, columns of the result).


def taps(window):
    """For each place in the window, left to right and down: which rows and columns of the padded image it sees."""
    kh, kw, sh, sw, _, _, dh, dw, rows, columns = window
    for i in range(kh):
        for j in range(kw):
            yield slice(i * dh, i * dh + rows * sh, sh), slice(j * dw, j * dw + columns * sw, sw)


def windows(x, window, padding=0):
    """(..., taps, rows, columns): what each tap sees of images (..., height, width), with `padding` around them."""
    around = [(0, 0)] * (x.ndim - 2) + [(p, p) for p in window[4:6]]
    padded = np.pad(x, around, constant_values=padding)
    return np.stack([padded[..., down, across] for down, across in taps(window)], axis=-3)


def images(columns, window, h, w):
    """The reverse: each number added to the pixel it came from."""
    ph, pw = window[4:6]
    padded = np.zeros((*columns.shape[:-3], h + 2 * ph, w + 2 * pw), columns.dtype)
    for tap, (down, across) in enumerate(taps(window)):
        padded[..., down, across] += columns[..., tap, :, :]
    return padded[..., ph : ph + h, pw : pw + w]


def conv_shapes(sizes):
    """(x's shape, columns', the weight's, y's, the window): a convolution as matrix products, one for each image and group."""
    n, c, h, w, o, groups, kh, kw = sizes[:8]
    depth, area = c // groups * kh * kw, sizes[14] * sizes[15]
    return (n, c, h, w), (n, groups, depth, area), (groups, o // groups, depth), (n, groups, o // groups, area), sizes[6:]


@kernel
def conv2d(F, outs, ins, consts):
    """y (n, o, rows, columns) = w (o, c / groups, kh, kw) applied to every window of x (n, c, h, w), + b."""
    (y,), (x, w, b), (sizes,) = outs, ins, consts
    shape, columns, weight, _, window = conv_shapes(sizes)
    product = w.reshape(weight) @ windows(x.reshape(shape), window).reshape(columns)
    y[...] = (product if b is None else product + b.reshape(*weight[:2], 1)).reshape(-1)


@kernel
def conv2d_dx(F, outs, ins, consts):
    (dx,), (g, w), (sizes,) = outs, ins, consts
    shape, _, weight, result, window = conv_shapes(sizes)
    columns = w.reshape(weight).swapaxes(1, 2) @ g.reshape(result)
    kh, kw, *_, rows, across = window
    dx[...] = images(columns.reshape(*shape[:2], kh * kw, rows, across), window, *shape[2:]).reshape(-1)


@kernel
def conv2d_dw(F, outs, ins, consts):
    (dw, db), (g, x), (sizes,) = outs, ins, consts
    shape, columns, _, result, window = conv_shapes(sizes)
    g, x = g.reshape(result), windows(x.reshape(shape), window).reshape(columns)
    put(dw, total_of(g @ x.swapaxes(2, 3), 0).reshape(-1), False)
    put(db, total_of(g, (0, 3)).reshape(-1), False)


def taps_of(sizes, axis):
    """(windows, taps): where each tap of each window of an axis looks, -1 for nowhere. max_pool() says what the sizes are."""
    n, k, step, before, gap, count = sizes[1 + axis :: 3]
    windows = np.arange(count)
    if step == 0:
        first, end = windows * n // count, -(-(windows + 1) * n // count)
        places = first[:, None] + np.arange(max(end - first, default=0))
        return np.where(places < end[:, None], places, -1)
    places = windows[:, None] * step - before + np.arange(k) * gap
    return np.where((places >= 0) & (places < n), places, -1)


@kernel
def max_pool(F, outs, ins, consts):
    """The largest number of each window and its index in the volume; the last NaN wins, else the first largest. Either may be None.

    Of three axes each: planes; their lengths, windows, steps (0: windows that share the axis evenly), padding, dilation, how many windows.
    """
    (positions, y), (x,), (sizes,) = outs, ins, consts
    d, h, w = (taps_of(sizes, axis) for axis in range(3))
    at = (d[:, None, None, :, None, None] * sizes[2] + h[:, None, None, :, None]) * sizes[3] + w[:, None, None, :]
    there = (d >= 0)[:, None, None, :, None, None] & (h >= 0)[:, None, None, :, None] & (w >= 0)[:, None, None, :]
    at, there = at.reshape(*sizes[16:], -1), there.reshape(*sizes[16:], -1)
    seen = x.reshape(sizes[0], sizes[1] * sizes[2] * sizes[3])[:, np.where(there, at, 0)]
    nan = np.isnan(seen) & there
    largest = (seen == np.where(there, seen, seen.dtype.type(lowest(seen.dtype))).max(axis=-1, keepdims=True)) & there
    last = nan.shape[-1] - 1 - nan[..., ::-1].argmax(axis=-1)
    tap = np.where(nan.any(axis=-1), last, largest.argmax(axis=-1))[..., None]
    put(y, np.take_along_axis(seen, tap, -1).reshape(-1), False)
    put(positions, np.take_along_axis(np.broadcast_to(at, seen.shape), tap, -1).reshape(-1), False)


def lowest(dtype):
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


@kernel
def max_values(F, outs, ins, consts):
    max_pool(F, (None, *outs), ins, consts)


@kernel
def max_pool_dx(F, outs, ins, consts):
    """Each cotangent goes to the place that won."""
    (dx,), (g, positions), (sizes,) = outs, ins, consts
    plane = np.repeat(np.arange(sizes[0]), sizes[16] * sizes[17] * sizes[18])
    dx[...] = 0
    np.add.at(dx, plane * (sizes[1] * sizes[2] * sizes[3]) + positions, g)


@kernel
def avg_pool2d(F, outs, ins, consts):
    """The mean of each window; padding counts as zeros."""
    (y,), (x,), (sizes,) = outs, ins, consts
    y[...] = total_of(windows(x.reshape(sizes[:3]), (*sizes[3:9], 1, 1, *sizes[9:])), 1).reshape(-1) / (sizes[3] * sizes[4])


@kernel
def mixed(F, outs, ins, consts):
    """y[o, j, i] = the sum over t of weights[t] * x[o, columns[t], i], t from starts[j] to starts[j + 1]."""
    (y,), (x, starts, columns, weights), (n, rows, inner) = outs, ins, consts
    y = y.reshape(-1, rows, inner)
    x = x.reshape(len(y), n, inner)
    for j in range(rows):
        own = slice(starts[j], starts[j + 1])
        y[:, j] = total_of(weights[own, None] * x[:, columns[own]], 1)
