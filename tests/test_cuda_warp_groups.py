"""Attention forward by wgmma on the emulated GPU, where it is asked for: numbers, what a warp group forgets, counts, machine code."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_tools import by_ptxas, close, gpu_like, launch, listings
from test_cuda_attention import LEAST, draw, exact, run

from flamepy.backend.cuda.attention import warp_groups
from flamepy.dtypes import bfloat16, float16, float32
from flamepy.errors import EmulationError
from flamepy.ops.attention import apart

CASES = [  # keys of a tile, dtype, (batch, heads, rows, keys, width of q, of v), is_causal, scale
    (128, bfloat16, (1, 2, 150, 300, 64, 64), True, 0.3), (128, float16, (1, 1, 130, 290, 48, 64), False, 0.3),
    (128, bfloat16, (1, 1, 200, 200, 128, 120), True, 0.3), (128, bfloat16, (1, 1, 70, 20, 8, 128), False, -0.3),
    (128, bfloat16, (1, 1, 300, 300, 64, 64), True, 0.3), (64, bfloat16, (1, 1, 300, 290, 64, 64), True, 0.3),
    (64, float16, (1, 1, 40, 200, 64, 33), False, 0.0), (128, bfloat16, (1, 1, 3, 1, 64, 64), True, 0.3),
]  # fmt: skip


@pytest.fixture
def asked() -> tuple[Any, list[Any]]:
    """(a GPU for which it is asked, the kernels it loads)."""
    gpu, binaries = gpu_like((9, 0))
    gpu.driver.wgmma = True
    return gpu, binaries


def forward(gpu: Any, arrays: list[Any], scale: float, is_causal: bool, at: int = 0) -> list[Any]:
    """y and what is kept."""
    layout, sizes = apart(arrays[0].shape, arrays[2].shape, None)
    rows = sizes[0] * sizes[1] * sizes[2]
    outs = (rows * sizes[5], arrays[0].dtype), (2 * rows, float32)
    return launch(gpu, "attention", outs, [*arrays, None], (layout, sizes, np.float32(scale), is_causal), at)


@pytest.mark.parametrize(("keys", "dtype", "sizes", "is_causal", "scale"), CASES, ids=str)
def test_forward(asked: Any, monkeypatch: Any, keys: int, dtype: Any, sizes: Any, is_causal: bool, scale: float) -> None:
    """Sizes beside a tile's; at odd places the bits are the same."""
    monkeypatch.setattr(warp_groups, "KEYS", keys)
    (gpu, binaries), (arrays, _, g) = asked, draw(sizes, dtype, None)
    even, odd = (forward(gpu, arrays, scale, is_causal, at) for at in (0, 1))
    close(even[0], exact(arrays, None, scale, is_causal, g)[0], LEAST[dtype])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(even, odd, strict=True))
    s = scale * np.einsum("bhrd,bhkd->bhrk", *[a.astype(np.float64) for a in arrays[:2]])
    s = np.where(np.tril(np.ones(s.shape[2:])) > 0, s, -np.inf) if is_causal else s
    top, share = np.split(even[1].astype(np.float64), 2)
    close(top - np.log(share), np.log(np.exp(s).sum(-1)), 1e-4)
    assert len(binaries) == 1 and "wgmma" in binaries[0].ptx


def test_gradients_by_mma_take_what_it_keeps(asked: Any) -> None:
    arrays, _, g = draw((1, 1, 70, 90, 128, 128), bfloat16, None)
    y, grads = exact(arrays, None, 0.3, True, g)
    for mine, theirs in zip(run(asked[0], arrays, None, g, 0.3, True), [y, *grads[:3]], strict=False):
        close(mine, theirs, LEAST[bfloat16])
    assert "wgmma" in asked[1][0].ptx and not any("wgmma" in b.ptx for b in asked[1][1:])


def test_scores_that_grow_and_large_ones(asked: Any) -> None:
    """Sums fade while the product before them goes on; in another order of warps nothing changes."""
    arrays, _, g = draw((1, 1, 70, 320, 64, 64), float16, None)
    arrays[0] = np.abs(arrays[0])
    for step in (1.0, 30.0, 3000.0):
        arrays[1] = (0.1 * arrays[1].astype(np.float32) + step / 64 * (np.arange(320) // 64)[:, None]).astype(float16)
        found = forward(asked[0], arrays, 1.0, False)
        close(found[0], exact(arrays, None, 1.0, False, g)[0], LEAST[float16])
    asked[0].driver.order = "last"
    assert [x.tobytes() for x in forward(asked[0], arrays, 1.0, False)] == [x.tobytes() for x in found]


def test_it_is_asked_for() -> None:
    """Without that, with a mask, on another GPU and for other widths mma.sync's kernel is taken, as before."""
    for cc, wgmma, width, mask, takes in (
        ((9, 0), True, 64, None, True), ((9, 0), True, 128, None, True), ((9, 0), False, 64, None, False), ((9, 0), True, 64, 0, False),
        ((10, 0), True, 64, None, False), ((8, 0), True, 64, None, False), ((9, 0), True, 32, None, False), ((9, 0), True, 96, None, False),
    ):  # fmt: skip
        assert (warp_groups.choice(SimpleNamespace(cc=cc, wgmma=wgmma), width, mask) is not None) == takes


@pytest.mark.parametrize(("width", "each"), [(64, 12), (128, 16)])
def test_what_a_tile_takes(asked: Any, width: int, each: int) -> None:
    """128 more keys of 128 rows: wgmma alone multiplies, shared memory is touched by the copies alone, without conflicts."""
    found = []
    for keys in (256, 384):
        arrays, _, _ = draw((1, 1, 128, keys, width, width), bfloat16, None)
        asked[0].driver.counts = counted = []
        forward(asked[0], arrays, 0.1, False)
        found.append(counted[0][1])
    first, second = found
    assert second.instructions["mma"] - first.instructions["mma"] == 8 * each and not second.bank_conflicts and second.transactions == 1.0
    assert second.flops - first.flops > 4 * 128 * 128 * width
    assert second.wavefronts - first.wavefronts == 4 * width * 128 // 128
    assert second.total - first.total < 8 * (430 + 2 * width)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("fence.proxy.async.shared::cta;", "", "Put fence.proxy.async"),
        (r"fence.proxy.async.shared::cta;|cp.async.wait_group \d;", "", "Put fence.proxy.async"),
        ("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;", "wgmma.wait_group 0 behind it"),
        ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group 0 behind it"),
        ("wgmma.fence.sync.aligned;", "", "Put wgmma.fence before it"),
    ],
)  # fmt: skip
def test_what_a_warp_group_forgets(before: str, after: str, said: str) -> None:
    gpu, binaries = gpu_like((9, 0), runs=False)
    gpu.driver.wgmma = True
    forward(gpu, draw((1, 1, 8, 8, 64, 64), bfloat16, None)[0], 1.0, False)
    changed, count = re.subn(before, after, binaries[0].ptx)
    assert count
    with pytest.raises(EmulationError, match=said):
        gpu.driver.machine.load(changed)


def test_warps_of_a_group_that_part(asked: Any) -> None:
    """All four come to one wait, also where the scores of some of them grow; another for one of them is an error."""
    arrays, _, g = draw((1, 1, 64, 320, 64, 64), bfloat16, None)
    arrays[0][..., :16, :], arrays[0][..., 16:, :], arrays[1][...] = 0.0, 1.0, np.arange(320)[:, None] / 8
    close(forward(asked[0], arrays, 1.0, False)[0], exact(arrays, None, 1.0, False, g)[0], LEAST[bfloat16])
    before, wait, after = asked[1][0].ptx.partition("wgmma.wait_group.sync.aligned 0;")
    ask = "{ .reg .pred odd; .reg .b32 id; mov.u32 id, %tid.x; and.b32 id, id, 32; setp.ne.u32 odd, id, 0; @odd bra OTHER;"
    (gpu, _), ptx = gpu_like((9, 0)), f"{before} {ask} {wait} bra.uni MET; OTHER: {wait} MET: }} {after}"
    gpu.driver.wgmma, load = True, gpu.driver.load
    gpu.driver.load = lambda binary: load(binary._replace(ptx=ptx))
    with pytest.raises(EmulationError, match="Let its four warps take one way"):
        forward(gpu, arrays, 1.0, False)


@pytest.mark.parametrize(("width", "keys", "most"), [(64, 128, 200), (128, 128, 232), (64, 64, 128)])
@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=str)
def test_machine_code(monkeypatch: Any, dtype: Any, width: int, keys: int, most: int) -> None:
    """Registers with a margin, or for two blocks; no product waits for another in vain; the softmax is made while one goes on."""
    monkeypatch.setattr(warp_groups, "KEYS", keys)
    gpu, binaries = gpu_like((9, 0), runs=False)
    gpu.driver.wgmma = True
    forward(gpu, draw((1, 1, 8, 8, width, width), dtype, None)[0], 1.0, True)
    ((log, text),) = listings(binaries)
    for said in filter(None, (log, by_ptxas(binaries[0]))):
        assert int(re.search(r"Used (\d+) registers", said)[1]) <= most and "C75" not in said  # type: ignore[index]
        assert re.findall(r"(\d+) bytes spill", said) == ["0", "0"]
    begin = text.index("WARPGROUP.DEPBAR.LE gsb0, 0x1")
    overlapped = text[begin : text.index("WARPGROUP.DEPBAR.LE gsb0, 0x0", begin)]
    assert overlapped.count("MUFU.EX2") >= keys // 2 and "HGMMA" not in overlapped and "HMMA." not in text.replace("HGMMA.", "")
    assert text.count(f"HGMMA.64x{keys}x16.F32") >= width // 16 and not re.search(r"\b(LDL|STL|CALL)\b", text)
