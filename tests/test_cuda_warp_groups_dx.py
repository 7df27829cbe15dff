"""Attention's gradients by wgmma on the emulated GPU, where asked for: numbers, what a warp group forgets, counts, machine code."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from cuda_tools import by_ptxas, close, gpu_like, listings
from test_cuda_attention import LEAST, draw, exact, run

from flamepy.backend.cuda.attention import warp_groups_dx
from flamepy.dtypes import bfloat16
from flamepy.errors import EmulationError

CASES = [  # (batch, heads, rows, keys, width of q, of v), is_causal, scale
    ((1, 2, 150, 300, 64, 64), True, 0.3), ((1, 1, 300, 150, 48, 64), True, 0.3), ((1, 1, 300, 290, 64, 40), False, 0.3),
    ((1, 1, 257, 129, 64, 64), False, -0.3), ((1, 1, 129, 257, 33, 35), True, 0.3), ((1, 1, 64, 64, 64, 64), True, 0.3),
    ((1, 1, 3, 1, 64, 64), True, 0.3), ((1, 1, 1, 70, 64, 64), False, 0.0), ((1, 1, 320, 320, 64, 64), True, 2.0),
]  # fmt: skip


def asking(runs: bool = True) -> tuple[Any, list[Any]]:
    """(a GPU for which it is asked, the kernels it loads)."""
    gpu, binaries = gpu_like((9, 0), runs)
    gpu.driver.wgmma = True
    return gpu, binaries


def own(binaries: list[Any]) -> list[Any]:
    return [b for b in binaries if "attention_groups_d" in b.name]


@pytest.mark.parametrize(("sizes", "is_causal", "scale"), CASES, ids=str)
def test_gradients(sizes: Any, is_causal: bool, scale: float) -> None:
    """Sizes beside a tile's; at odd places and in another order of warps the bits are the same."""
    (gpu, binaries), (arrays, _, g) = asking(), draw(sizes, bfloat16, None)
    found = run(gpu, arrays, None, g, scale, is_causal)
    y, grads = exact(arrays, None, scale, is_causal, g)
    for mine, theirs in zip(found, [y, *grads[:3]], strict=False):
        close(mine, theirs, LEAST[bfloat16])
    gpu.driver.order = "last"
    for again in (run(gpu, arrays, None, g, scale, is_causal), run(gpu, arrays, None, g, scale, is_causal, 1)):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[:4], again[:4], strict=True))
    assert len(own(binaries)) == 2 and all("wgmma" in b.ptx for b in own(binaries))


def test_it_is_asked_for() -> None:
    """Without that, with a mask, on another GPU and for other widths mma.sync's kernels are taken, as before."""
    for cc, wgmma, width, mask, takes in (
        ((9, 0), True, 64, None, True), ((9, 0), True, 128, None, False), ((9, 0), False, 64, None, False), ((9, 0), True, 64, 0, False),
        ((10, 0), True, 64, None, False), ((8, 0), True, 64, None, False), ((9, 0), True, 32, None, False),
    ):  # fmt: skip
        assert (warp_groups_dx.choice(SimpleNamespace(cc=cc, wgmma=wgmma), width, mask) is not None) == takes


def test_what_a_tile_takes() -> None:
    """64 more rows, or keys, for a block of 128: wgmma alone multiplies, shared memory is touched without conflicts."""
    found = []
    for far in (256, 320):
        counts = []
        for rows, keys in ((far, 128), (128, far)):
            (gpu, _), (arrays, _, g) = asking(), draw((1, 1, rows, keys, 64, 64), bfloat16, None)
            gpu.driver.counts = counted = []
            run(gpu, arrays, None, g, 0.1, False)
            counts.append(next(c for name, c in counted if ("dkv" if rows == far else "dq") in name))
        found.append(counts)
    for first, second, products, waves in zip(*found, (4, 3), (128 + 4 + 256, 128), strict=True):  # copies; numbers of rows, and theirs
        assert second.instructions["mma"] - first.instructions["mma"] == 8 * 4 * products and not second.bank_conflicts
        assert second.flops - first.flops > 2 * products * 128 * 64 * 64 and second.transactions == 1.0
        assert second.wavefronts - first.wavefronts == waves and second.total - first.total < 800 * products


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("fence.proxy.async.shared::cta;", "", "Put fence.proxy.async"),
        ("wgmma.wait_group.sync.aligned 3;", "wgmma.wait_group.sync.aligned 4;", "wgmma.wait_group 0 behind it"),
        ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group 0 behind it"),
        ("wgmma.fence.sync.aligned;", "", "Put wgmma.fence before it"),
    ],
)
def test_what_a_warp_group_forgets(before: str, after: str, said: str) -> None:
    gpu, binaries = asking(runs=False)
    arrays, _, g = draw((1, 1, 8, 8, 64, 64), bfloat16, None)
    run(gpu, arrays, None, g, 1.0, False)
    binary = own(binaries)[0]
    assert before in binary.ptx
    with pytest.raises(EmulationError, match=said):
        gpu.driver.machine.load(binary.ptx.replace(before, after))


def test_machine_code() -> None:
    """Registers with a margin; no product waits for another in vain; the weights are made while three go on."""
    gpu, binaries = asking(runs=False)
    arrays, _, g = draw((1, 1, 8, 8, 64, 64), bfloat16, None)
    run(gpu, arrays, None, g, 1.0, True)
    code = listings(own(binaries))
    for binary, (log, text), most, going in zip(own(binaries), code, (232, 176), (3, 2), strict=True):
        for said in filter(None, (log, by_ptxas(binary))):
            assert int(re.search(r"Used (\d+) registers", said)[1]) <= most and "C75" not in said  # type: ignore[index]
            assert re.findall(r"(\d+) bytes spill", said) == ["0", "0"]
        begin = text.index(f"WARPGROUP.DEPBAR.LE gsb0, 0x{going}")
        overlapped = text[begin : text.index("WARPGROUP.DEPBAR.LE gsb0, 0x0", begin)]
        assert overlapped.count("MUFU.EX2") == 32 and "HGMMA" not in overlapped
        assert "HMMA." not in text.replace("HGMMA.", "") and not re.search(r"\b(LDL|STL|CALL)\b", text)
