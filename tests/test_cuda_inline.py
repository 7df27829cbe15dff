"""PTX that is written into LLVM's code is convergent: LLVM may not move it under a branch that only some lanes of a warp take.

Looked at in what NVVM is given for kernels of each kind: tensor cores, shuffles, copies in the background, conversions.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import flamepy as fp

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from flamepy.backend.cuda.runtime import build
from flamepy.cuda.recording import recorded

CALL = re.compile(r"^.*\bcall\b.*\basm\b.*$", re.M)


def step(device) -> None:
    """A product, an attention and its gradients of 16-bit numbers."""
    x, w = (fp.tensor(np.zeros((64, 64), np.float32), device=device, dtype="bfloat16", requires_grad=True) for _ in "xw")
    q = fp.tensor(np.zeros((1, 1, 64, 64), np.float32), device=device, dtype="bfloat16", requires_grad=True)
    fp.matmul(x, w).sum().backward()
    fp.scaled_dot_product_attention(q, q, q).sum().backward()
    device.synchronize()


def test_every_piece_of_ptx_is_convergent(monkeypatch, tmp_path):
    nvvm = pytest.importorskip("numba.cuda.cudadrv.nvvm")
    given, compile_ir = [], nvvm.compile_ir

    def seen(text, **options):
        given.append(text if isinstance(text, str) else "\n".join(text))
        return compile_ir(text, **options)

    monkeypatch.setattr(nvvm, "compile_ir", seen)
    monkeypatch.setattr(build, "cache_folder", lambda: tmp_path)  # empty: each kernel is compiled
    with recorded((9, 1)) as (device, _):  # a target of no other test, whose kernels are not in memory
        step(device)
    calls = [line for text in given for line in CALL.findall(text)]
    for name in ("mma.sync", "ldmatrix.sync", "shfl.sync", "cp.async", "cvt.rn.bf16"):
        assert any(name in line for line in calls), name
    assert not [line for line in calls if not line.partition(" asm ")[2].rpartition(")")[2].strip().startswith("convergent")]


def test_only_one_file_writes_ptx():
    files = Path(build.__file__).parents[1].rglob("*.py")
    assert [f.name for f in files if re.search(r"InlineAsm|\.asm\(", f.read_text())] == ["inline.py"]
