"""`flamepy kernel NAME`: formula, loop, machine code on the CPU and for CUDA, what a run counts; wrong names get near ones."""

from __future__ import annotations

import re

import pytest

import flamepy as fp
from flamepy.backend.cpu.runtime import looking
from flamepy.command import kernel
from flamepy.command.cli import run


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    code = run(["kernel", *args])
    out, err = capsys.readouterr()
    return code, out + err


def test_on_the_cpu(capsys):
    code, text = shown(capsys, "tanh", "--run", "40000")
    assert code == 0 and text.startswith("tanh on this processor: 2 kernels for 40,000 elements, forward and backward\n")
    assert "def tanh_y(x):" in text and "def map1(" in text and re.search(r"^define ", text, re.M) and re.search(r"\bretq?\b", text)
    assert re.search(r"^ +\d+ +of them compute several floats at once$", text, re.M)
    assert re.search(r"fastest of 5 runs: [\d.]+ us, [\d.]+ GB/s \(320,000 bytes in its buffers\)", text)  # 40,000 read, 40,000 written


def test_optimizers_and_clips_have_no_way_back(capsys):
    for name in ("AdamW", "clip_grad_value"):
        code, text = shown(capsys, name)
        assert code == 0 and re.match(rf"{name.lower()} on this processor: \d kernels? for 65,536 elements\n", text)


def test_what_is_watched_has_memory_of_its_own(capsys):
    """Pools were found by size and type alone: after the command, buffers of these sizes named the watched device as theirs."""
    assert shown(capsys, "tanh", "--run", "41")[0] == 0
    x = fp.zeros(41)
    assert x.buffer.device is fp.device("cpu") and (x.reshape((41, 1)) + x.reshape((41, 1))).device is fp.device("cpu")


def test_figures_are_counted_of_x86_and_of_arm():
    x86 = "f:\n\tvmovss\t(%rdi), %xmm0\n\tvfmadd231ps\t%ymm1, %ymm2, %ymm3\n\tmulpd\t%xmm1, %xmm2\n\tjne\t.L1\n\tretq\n\t.long\t1"
    neon = "f:\n\tldr\tq0, [x0]\n\tfmla\tv0.4s, v1.4s, v2.s[0]\n\tfcmp\ts0, s1\n\tfcvtzs\tw0, d0\n\tb.ne\t.L1\n\tb\t.L2\n\tret"
    sve = "\tfmad\tz0.s, p0/m, z1.s, z2.s\n\tfcvtn\tv0.4h, v0.4s\n\tfmadd\ts0, s1, s2, s3\n\tbl\tsinf"
    for text, instructions, packed, scalar in ((x86, 5, 2, 1), (neon, 7, 1, 2), (sve, 4, 2, 1)):
        assert looking.tally(text) == {"instructions": instructions, "packed": packed, "scalar": scalar}


def test_for_cuda(capsys):
    pytest.importorskip("numba_cuda")
    code, text = shown(capsys, "square", "--device", "cuda", "--run", "4096", "--arch", "sm_80")
    assert code == 0 and text.startswith("square on sm_80: 2 kernels for 4,096 elements, forward and backward\n")
    for words in (
        "def square_y(x):",
        "def map_runs(out, *c):",
        ".target sm_80",
        "EXIT",
        "0  bytes of registers spilled",
        "out: float32[:]",
    ):
        assert words in text
    assert shown(capsys, "square", "--device", "cuda", "--run", "4096", "--arch", "sm_80") == (code, text)  # and again, in one process
    runs = re.findall(r"global transactions +([\d,]+)  100.0% of the bytes moved are used", text)
    assert runs == ["1,024", "1,536", "2,560"]  # sectors of 32 bytes: one array read, one written; two and one; all


def test_capitals_do_not_count_and_types_have_short_names(capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(kernel, "on_cpu", lambda name, n, dtype, arch: seen.append((name, dtype)) or iter(()))
    assert [shown(capsys, *args) for args in (["AdamW", "--dtype", "BF16"], ["GELU", "--dtype", "fp64"], ["gelu"])] == [(0, "")] * 3
    assert seen == [("adamw", "bfloat16"), ("gelu", "float64"), ("gelu", "float32")]


def test_every_name_is_an_example_that_runs(capsys):
    """On the device that computes with NumPy; --list prints them."""
    from flamepy.backend.base import device
    from flamepy.cuda.examples import names, prepared

    code, text = shown(capsys, "--list")
    assert code == 0 and text.split() == names() and {"gelu", "softmax", "layer_norm", "linear", "adamw", "clip_grad_norm"} <= set(names())
    for name in names():
        prepared(name, 130, "float32", device("plain"))()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["gelo"], "no kernel of this name: 'gelo'. Did you mean gelu"),
        (["GELO"], "no kernel of this name: 'GELO'. Did you mean gelu"),
        (["xyzzy"], "no kernel of this name: 'xyzzy'. flamepy kernel --list prints all."),
        ([], "no name given. Name an op or an optimizer"),
        (["gelu", "--run", "0"], "--run must be at least 1: 0."),
        (["gelu", "--run", str(1 << 55)], "not enough memory. Give --run fewer elements"),
        (["gelu", "--dtype", "int64"], "gelu: no kernel for int64: it is converted to float32 first. Use float32."),
        (["sum", "--device", "cuda", "--dtype", "int32"], "sum: no kernel for int32: it is converted to int64 first. Use int64."),
        (["gelu", "--device", "cuda", "--arch", "hopper"], "no such architecture: 'hopper'. Use sm_80"),
        (["gelu", "--device", "cuda", "--arch", "sm_70"], "no such architecture: 'sm_70'. Use sm_80"),
    ],
)
def test_what_is_wrong_is_said(capsys, args, words):
    code, text = shown(capsys, *args)
    assert code == 2 and text.startswith("flamepy kernel: ") and words in text and text.count("\n") == 1
