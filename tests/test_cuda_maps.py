"""Maps, moves and random numbers on the emulated GPU: sizes beside a block's, buffers that begin anywhere, types that are mixed, against
NumPy; and the machine code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_tools import FLOAT64, LOCAL, instructions, launch, listings, up
from devices import emulated_gpu

from flamepy.core import philox
from flamepy.core.words import cos, select, sin
from flamepy.dtypes import bfloat16, bool_, computed, float16, float32, float64, int32, int64

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")

from flamepy.backend.cuda.loops import maps, moves

rng = np.random.default_rng(5)


def twice_y(x, y, k):
    return x + x * k - y


def kept_y(m, x, k):
    return select(m, x, k)


def sin_y(x):
    return sin(x)


def cos_y(x):
    return cos(x)


def draw(size: int, dtype: np.dtype) -> np.ndarray:
    if dtype == bool_:
        return rng.random(size) > 0.5
    return rng.integers(-64, 64, size).astype(dtype)  # whole numbers: sums of a few are exact in every type


def run(formula: Any, out: np.dtype, ins: Any, dtype: np.dtype, at: int = 0, shapes: Any = (), consts: Any = ()) -> np.ndarray:
    """A formula on arrays and numbers, over as many elements as the first array or the common one of `shapes` have."""
    gpu = emulated_gpu()
    size = int(np.prod(shapes[0])) if shapes else next(x.size for x in ins if x.ndim)
    y = up(gpu, np.zeros(size, np.float32).astype(out), at)
    given = [up(gpu, x, at) if x.ndim else x for x in ins]
    gpu.launch("broadcast" if shapes else "map", formula, (y,), given, (*shapes, *consts), dtype)
    return np.array(gpu.download(y))


# ---- maps -------------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("at", [0, 1, 4], ids=lambda at: f"from {at}")
@pytest.mark.parametrize("dtype", [float32, float64, bfloat16, int32], ids=str)
def test_maps_of_every_size_and_place(dtype: np.dtype, at: int) -> None:
    wide = computed(dtype)
    for size in (1, 255, 2048, 4096 + 257, 8192 + 2049):
        x, y = draw(size, dtype), draw(size, dtype)
        want = (x.astype(float64) * 3 - y.astype(float64)).astype(dtype)
        np.testing.assert_array_equal(run(twice_y, dtype, [x, y], wide, at, consts=[wide.type(2)]), want)


def test_types_are_mixed() -> None:
    mask, x = draw(3000, bool_), draw(3000, bfloat16)
    want = np.where(mask, x.astype(float32), 7)
    for out in (float32, bfloat16, float64, int64, bool_):
        found = run(kept_y, out, [mask, x, np.float32(7)], float32, 0)
        np.testing.assert_array_equal(found, want.astype(out) if out != bool_ else want != 0)


def test_a_result_takes_the_place_of_an_input() -> None:
    gpu, x, y = emulated_gpu(), draw(5000, float32), draw(5000, float32)
    place = gpu.upload(x)
    gpu.launch("map", twice_y, (place,), (place, gpu.upload(y)), (np.float32(2),), float32)
    np.testing.assert_array_equal(gpu.download(place), 3 * x - y)


@pytest.mark.parametrize(
    ("a", "b"),
    [(float64, float16), (float64, bfloat16), (float32, float16), (float32, int32), (float64, int64), (int64, float32), (int64, bool_),
     (bool_, bfloat16), (float16, bool_), (bfloat16, bfloat16)],
    ids=str,
)  # fmt: skip
def test_copies_convert_as_numpy_does(a: np.dtype, b: np.dtype) -> None:
    ties = np.array(
        [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 2.0**-25, 1.1 * 2.0**-25, 65519, 65520]
    )
    edges = np.array([0.0, -0.0, 0.5, -1.7, 2.0**31 - 1, 2.0**53 + 2, 1e300, -1e300, np.inf, -np.inf, np.nan])
    with np.errstate(all="ignore"):
        x = np.concatenate([draw(2100, float64), ties, -ties, edges] if a.kind in "fV" else [draw(2100, a)]).astype(a)
        if b.kind == "i":
            x = x[abs(x.astype(float64)) < 2.0 ** (8 * b.itemsize - 1)]  # what others become is the processor's choice
        want = x.astype(b) if b != bool_ else x != 0
    gpu = emulated_gpu()
    for at in (0, 1):
        y = up(gpu, np.zeros(x.size, bool).astype(b), at)
        gpu.stream.copy(y, up(gpu, x, at))
        np.testing.assert_array_equal(np.array(gpu.download(y)).astype(float64), want.astype(float64))


@pytest.mark.parametrize("wide", [False, True], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("at", [0, 1], ids=lambda at: f"from {at}")
def test_broadcasting(wide: bool, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "is_wide", lambda *buffers: wide)
    shapes = [((40, 24), (24,)), ((40, 24), (40, 1)), ((5, 7), (7,)), ((2, 5, 3, 8), (5, 1, 8)), ((1, 30, 1), (33, 1, 12)), ((), (50,))]
    for a, b in shapes:
        x, y = draw(int(np.prod(a)), float32), draw(int(np.prod(b)), float32)
        want = np.add(3 * x.reshape(a), -y.reshape(b))
        found = run(twice_y, float32, [np.atleast_1d(x), np.atleast_1d(y)], float32, at, (want.shape, (a, b)), [np.float32(2)])
        np.testing.assert_array_equal(found, want.reshape(-1))


def test_sines_and_cosines_of_huge_numbers() -> None:
    x = np.concatenate([np.exp(rng.uniform(-20, 88, 500)), [0, 1e22, 105615, 105616, 3e38, np.pi * 1e5]]).astype(float32)
    x = np.concatenate([x, -x])
    for formula, exact in ((sin_y, np.sin), (cos_y, np.cos)):
        found = run(formula, float32, [x], float32)
        assert (abs(found - exact(x.astype(float64))) <= 2 * np.spacing(abs(exact(x.astype(float64))).astype(float32))).all()
    # 1e22: Ng, Argument reduction for huge arguments (1992); the other one is the number of float64 next to a multiple of pi / 2
    x = np.array([1e22, 6381956970095103.0 * 2.0**797, -0.0, np.inf, np.nan])
    np.testing.assert_allclose(run(sin_y, float64, [x], float64), [-0.8522008497671888, 1, 0, np.nan, np.nan], 4e-16)
    np.testing.assert_allclose(run(cos_y, float64, [x], float64), [0.5232147853951389, -4.6871659242546277e-19, 1, np.nan, np.nan], 4e-16)
    assert np.signbit(run(sin_y, float64, [x], float64)[2])


# ---- moves ------------------------------------------------------------------------------------------------------------------------------
VIEWS = [  # shape of what is read, a view of it
    ((80, 65), lambda a: a.T), ((3, 64, 66), lambda a: a.transpose(0, 2, 1)), ((9, 3, 2, 10), lambda a: a.T),
    ((2, 3, 8, 16), lambda a: a.transpose(0, 2, 1, 3)), ((10, 24), lambda a: a[2:8, 8:16]), ((10, 24), lambda a: a[::-2, 3:10]),
    ((10, 24), lambda a: a[:, ::-1]), ((4, 8), lambda a: np.broadcast_to(a[:, None, :1], (4, 3, 8))), ((7,), lambda a: a[::3]),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [float64, bfloat16, bool_], ids=str)
def test_strided_copies(dtype: np.dtype) -> None:
    for n, (shape, view) in enumerate(VIEWS):
        x = draw(int(np.prod(shape)), dtype)
        whole = x.reshape(shape)
        part = view(whole)
        base = (part.__array_interface__["data"][0] - x.__array_interface__["data"][0]) // dtype.itemsize
        strides = tuple([s // dtype.itemsize for s in part.strides])
        for at in (0, 1):
            (y,) = launch(emulated_gpu(), "strided_get", [(part.size, dtype)], [x], (part.shape, strides, base), at)
            np.testing.assert_array_equal(y, part.reshape(-1), str(n))
        if 0 in strides:
            continue
        gpu, put = emulated_gpu(), draw(part.size, dtype)
        to = gpu.upload(x.copy())
        gpu.launch("strided_put", None, (to,), (gpu.upload(put),), (part.shape, strides, base), computed(dtype))
        part[...] = put.reshape(part.shape)
        np.testing.assert_array_equal(gpu.download(to), x, str(n))


@pytest.mark.parametrize("inner", [1, 6, 8])
def test_rows_taken_and_added(inner: int) -> None:
    """Ids of more than 16 bits, in many tiles, one of them in half of the places; wrong ones do no harm."""
    rows, n = 70_000, 5000
    ids = np.where(rng.random(n) < 0.5, 7, rng.integers(0, rows, n))
    ids[:3] = -4, rows + 9, rows - 1
    right = np.clip(ids, 0, rows - 1)
    table, g = draw(rows * inner, float32).reshape(rows, inner), draw(n * inner, float32).reshape(n, inner)
    (found,) = launch(emulated_gpu(), "take_rows", [(n * inner, float32)], [table, ids], (inner,), at=inner % 4 and 1)
    np.testing.assert_array_equal(found.reshape(n, inner), table[right])
    for add in (False, True):
        want = np.full((rows, inner), 7.0 * add)
        np.add.at(want, right, g)
        (found,) = launch(emulated_gpu(), "add_rows", [(rows * inner, float32)], [g, ids], (inner, add))
        np.testing.assert_array_equal(found.reshape(rows, inner), want)


def test_numbers_along_an_axis() -> None:
    x, g = draw(2 * 4 * 3, float32).reshape(2, 4, 3), draw(2 * 5 * 3, float32).reshape(2, 5, 3)
    ids = rng.integers(-4, 4, g.shape)
    (found,) = launch(emulated_gpu(), "take_along", [(g.size, float32)], [x, ids], (4, 5, 3))
    np.testing.assert_array_equal(found.reshape(g.shape), np.take_along_axis(x, ids, 1))
    for add in (False, True):
        want = np.full(x.shape, 7.0 * add)
        np.add.at(want, (np.arange(2)[:, None, None], ids, np.arange(3)), g)
        (found,) = launch(emulated_gpu(), "add_along", [(x.size, float32)], [g, ids], (4, 5, 3, add))
        np.testing.assert_array_equal(found.reshape(x.shape), want)
    put = x.copy()
    for j in range(5):  # of several the last one counts
        np.put_along_axis(put, ids[:, j : j + 1], g[:, j : j + 1], 1)
    (found,) = launch(emulated_gpu(), "put_along", [(x.size, float32)], [x, g, ids], (4, 5, 3, 0))
    np.testing.assert_array_equal(found.reshape(x.shape), put)
    for order in (1, -1):
        want, before = x.copy(), np.empty_like(g)
        for j in range(5)[::order]:
            before[:, j : j + 1] = now = np.take_along_axis(want, ids[:, j : j + 1], 1)
            np.put_along_axis(want, ids[:, j : j + 1], now * g[:, j : j + 1] + g[:, j : j + 1], 1)
        found = launch(emulated_gpu(), "recur_along", [(x.size, float32), (g.size, float32)], [x, g, g, ids], (4, 5, 3, order < 0))
        np.testing.assert_allclose(found[0].reshape(x.shape), want, rtol=1e-6)
        np.testing.assert_allclose(found[1].reshape(g.shape), before, rtol=1e-6)
    assert not launch(emulated_gpu(), "add_along", [(x.size, float32)], [g[:0], ids[:0]], (4, 0, 3, False))[0].any()


def test_added_rows_are_the_same_in_any_order_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, ids, g = emulated_gpu(), rng.integers(0, 40, 900), rng.standard_normal(900 * 3).astype(float32)
    found = []
    for order in ("all", "last"):
        monkeypatch.setattr(gpu.driver, "order", order)  # type: ignore[attr-defined]
        found.append(launch(gpu, "add_rows", [(120, float32)], [g, ids], (3, False))[0].tobytes())
    assert found[0] == found[1]


def test_ids_are_looked_at_in_parts() -> None:
    ids = rng.integers(0, 50, moves.LOOK + 5000)
    counted = int((ids != 3).sum())
    for wrong, want in (({}, [-1, 0, counted]), ({moves.LOOK + 40: 50, moves.LOOK + 4999: -1}, [moves.LOOK + 40, 50, None])):
        for at, value in wrong.items():
            ids[at] = value
        for part in (ids, ids[moves.LOOK :]):
            (found,) = launch(emulated_gpu(), "check_ids", [(3, int64)], [part], (0, 50, True, 3))
            first = want[0] - (part is not ids) * moves.LOOK if want[0] >= 0 else -1
            np.testing.assert_array_equal(found, [first, want[1], (part != 3).sum()])


# ---- random numbers ----------------------------------------------------------------------------------------------------------------------
def filled(name: str, size: int, dtype: np.dtype, ins: Any, numbers: Any, at: int) -> np.ndarray:
    """Sevens, after a launch that fills or changes them."""
    gpu = emulated_gpu()
    y = up(gpu, np.full(size, 7, dtype), at)
    gpu.launch(name, None, (y,), [gpu.upload(x) for x in ins], numbers, dtype)
    return np.array(gpu.download(y))


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_random_numbers_are_those_of_their_counters(dtype: np.dtype) -> None:
    key = np.array([0x123456789ABCDEF, 7, 3], np.int64)
    lanes = 4 if dtype == float32 else 2
    for size, at in ((1, 0), (1030, 0), (1031, 1)):
        words = np.array([philox.words_at(b, *key.tolist()) for b in range(-(-size // lanes))], np.uint64)
        unit = words / 2**32
        if dtype == float64:
            unit = ((words[:, ::2] >> 5) * 2.0**26 + (words[:, 1::2] >> 6)) * 2.0**-53
        else:
            unit = (words >> 8) * 2.0**-24
        found = filled("philox_uniform", size, dtype, [key], [dtype.type(0), dtype.type(1)], at)
        np.testing.assert_array_equal(found, unit.reshape(-1)[:size])
        radius = np.sqrt(-2 * np.log(unit[:, ::2] + 2.0 ** (-24 if dtype == float32 else -53)))
        turn = 2 * np.pi * unit[:, 1::2]
        want = np.stack([radius * np.cos(turn), radius * np.sin(turn)], 2).reshape(-1)[:size]
        found = filled("philox_normal", size, dtype, [key], [dtype.type(1), dtype.type(2)], at)
        np.testing.assert_allclose(found, 1 + 2 * want, 0, 4e-6 if dtype == float32 else 1e-14)
        for start in (0, 5):
            found = filled("philox_add", max(1, size - start), dtype, [key, np.array([0.5])], [start if size > start else 0], at)
            wanted = want[start:] if size > start else want
            np.testing.assert_allclose(found, 7 + 0.5 * wanted, 0, 4e-6 if dtype == float32 else 1e-14)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_dropout_masks_are_the_same_in_every_type(dtype: np.dtype) -> None:
    key, size = np.array([5, 1, 2], np.int64), 2051
    kept = np.array([philox.words_at(b, *key.tolist()) for b in range(513)]).reshape(-1)[:size] >> 8 >= 0.25 * 2**24
    for at in (0, 1):
        x = draw(size, dtype)
        y, mask = launch(emulated_gpu(), "philox_dropout", [(size, dtype), (size, bool_)], [x, key], (np.float32(0.25), np.float32(2)), at)
        np.testing.assert_array_equal(mask, kept)
        np.testing.assert_array_equal(y, np.where(kept, x * dtype.type(2), 0))


# ---- machine code ----------------------------------------------------------------------------------------------------------------------
SPREAD = ("int32", 9), bfloat16, None, bfloat16, "boolean", "float32"
CODE = [  # kernel, formula, dtype, kinds of its arguments
    (maps.map_runs, twice_y, float32, (float32, float32, float32, "float32")),
    (maps.map_runs, twice_y, float32, (bfloat16, bfloat16, bfloat16, "float32")),
    (maps.map_runs, kept_y, float32, (float32, bool_, float32, "float32")), (maps.map_runs, sin_y, float32, (float32, float32)),
    (maps.spread_runs, twice_y, float32, (bfloat16, *SPREAD)),
    (moves.put_runs, None, np.dtype("uint16"), (np.dtype("uint16"), ("int32", 7), np.dtype("uint16"))),
]  # fmt: skip


@pytest.mark.parametrize(("function", "formula", "dtype", "kinds"), CODE, ids=lambda x: getattr(x, "__name__", ""))
def test_memory_is_read_and_written_16_bytes_at_a_time(function: Any, formula: Any, dtype: Any, kinds: Any) -> None:
    binary = emulated_gpu().kernel(function, formula, dtype, formula is None).binary(kinds)  # type: ignore[attr-defined]
    ((log, text),) = listings([binary])
    assert "LDG.E.128" in text
    assert "STG.E.128" in text
    assert "0 bytes spill stores" in log
    assert not instructions(text) & ({*LOCAL, "CALL"} | FLOAT64)
