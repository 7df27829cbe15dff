"""`flamepy doctor` and `flamepy cache`: what they find, and the remedy for each problem."""

import io
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from flamepy.backend.cpu.bf16 import tiles
from flamepy.backend.cpu.runtime import findings, peak, processor
from flamepy.command import cache as kernel_cache
from flamepy.command import cli
from flamepy.train import display

ROOT = Path(__file__).resolve().parent.parent


def call(*args, **environment):
    command = [sys.executable, "-W", "error", "-m", "flamepy", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment})


def test_a_report_of_everything():
    done = call("doctor", COLUMNS="80")
    assert done.stderr == ""
    assert [line for line in done.stdout.splitlines() if len(line) > 80 and os.sep not in line] == []
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert all(f"\n  {re.match('[a-z-]+', name)[0]} " in done.stdout for name in dependencies)
    for word in ("versions", "python", "numpy", "numba", "llvmlite", "flamepy", "threads", "processors", "quota", "helper threads",
                 "empty launch", "processor time", "GFLOP/s of one core", "bfloat16",
                 "kernels", "exp", "tanh", "precision", "kernel cache", "free disk", "GPU"):  # fmt: skip
        assert word in " ".join(done.stdout.split()), word
    assert (done.returncode == 0) == ("no problems found" in done.stdout)


def test_problems_have_remedies_and_exit_code_1():
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    done = call("doctor", NUMBA_NUM_THREADS=str(count + 3), NUMBA_OPT="0", NUMBA_LOOP_VECTORIZE="0")
    assert done.returncode == 1, done.stderr
    for line in (f"more than the {count} processors", f"remedy: export NUMBA_NUM_THREADS={count}", "remedy: unset NUMBA_OPT"):
        assert line in done.stdout
    assert "problem: exp: scalar" in done.stdout


def test_products_are_named_and_measured():
    """Speeds are what they are, but of a peak and no more: a clock may rise meanwhile, by less than a half."""
    *rows, (label, value, remedy) = findings.products(seconds=0.005)
    assert (label, value, remedy) == ("bfloat16", tiles.fact(), "")
    for (label, value, remedy), dtype in zip(rows, (np.float32, np.float64), strict=True):
        own = processor.tile(np.dtype(dtype).itemsize)
        assert (label, remedy) == (np.dtype(dtype).name, "")
        assert f"(tiles of {own.rows} rows x {own.across} vectors of {own.lanes} numbers, " in value
        got, most = map(int, re.match(r"a product of 512 x 512 reaches (\d+) of (\d+) GFLOP/s of one core ", value).groups())
        assert 0 < got < 1.5 * most


@pytest.mark.parametrize("size", [4, 8])
def test_chains_end_where_arithmetic_says(size):
    """z, z / 2 + 1, ... from 0, 1, 2, ...: exact numbers, for three rounds."""
    run, flops = peak.chains(size, rounds=3)
    start = np.arange(flops / 6)
    np.testing.assert_array_equal(run(), start / 8 + 1.75)
    assert start.size == np.prod(processor.tile(size))


def test_exp_and_tanh_are_vectorised_here():
    for formula in (findings.exp_y, findings.tanh_y):
        assert findings.vector_lanes(findings.assembly(formula)) >= 4


@pytest.mark.parametrize(
    "line, lanes",
    [
        ("\tvfmadd213ps\t%zmm1, %zmm2, %zmm3", 16),
        ("\tvmulps\t%ymm1, %ymm2, %ymm3", 8),
        ("\tmulps\t%xmm1, %xmm2", 4),
        ("\tfmla\tv0.4s, v1.4s, v2.4s", 4),
        ("\tfmla\tz23.s, p1/m, z21.s, z24.s", 4),
        ("\tfmad\tz0.s, p0/m, z1.s, z2.s\n\tbl\texpf", 1),
        ("\tvmulss\t%xmm1, %xmm2, %xmm3", 1),
        ("\tvmulps\t%ymm1, %ymm2, %ymm3\n\tmovabsq\t$expf, %rax", 1),
    ],
)
def test_vector_lanes(line, lanes):
    assert findings.vector_lanes(line) == lanes


def test_training_says_once_that_steps_have_become_slow(monkeypatch):
    now, stream = 0.0, io.StringIO()
    monkeypatch.setattr(display, "time", SimpleNamespace(perf_counter=lambda: now))
    shown = display.PlainDisplay(stream, 1000, "tokens", 1)
    for count, seconds, lines in ((60, 1, 0), (60, 3.9, 0), (9, 100, 0), (60, 4.5, 1), (100, 9, 1)):
        for _ in range(count):
            now += seconds
            shown.step(display.Row(1, 1.0, 1.0, 1e-3, 1.0))
        assert stream.getvalue().count("busy machine: steps take") == lines


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_cgroup_quota(tmp_path):
    assert findings.cgroup_quota(tmp_path) is None
    write(tmp_path, "proc/self/cgroup", "0::/a/b\n")
    assert findings.cgroup_quota(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    assert findings.cgroup_quota(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/a/cpu.max", "150000 100000\n")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "400000 100000\n")
    assert findings.cgroup_quota(tmp_path) == 1.5


def test_cgroup_quota_version_1(tmp_path):
    write(tmp_path, "proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n")
    write(tmp_path, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n")
    write(tmp_path, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n")
    assert findings.cgroup_quota(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n")
    assert findings.cgroup_quota(tmp_path) == 0.5


def test_cache_ls_and_clear_touch_only_kernels(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    name = "parallel.map1_tanh_y_float32_0123456789-40.py311"
    product = "gemm.turn_matrix4_0123456789-40.py311"
    for file in (f"{name}.nbi", f"{name}.1.nbc", f"{product}.nbi"):
        (tmp_path / file).write_bytes(bytes(1000))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_cache, "emulator_folder", lambda: tmp_path / "emulator_1")
    digest, gpus = "0123456789abcdef0123", tmp_path / "flamepy-cuda"
    for file in (f"{digest}.ptx", f"{digest}.cubin", f"{digest}.log", f"{digest}.sass", f"emulator-01/{digest[:16] * 2}.emulated",
                 f".tmp-12-34-{digest}.ptx", "products-H200-13.json", "../emulator_1/runtime_run.run-7.py311.nbi"):  # fmt: skip
        (gpus / file).parent.mkdir(parents=True, exist_ok=True)
        (gpus / file).write_bytes(bytes(1000))
    (gpus / "mine.ptx").write_text("keep me")
    (tmp_path / "loops.cpython-311.pyc").write_text("keep me")
    (tmp_path / "other.f-1.py311.nbi").write_text("somebody else's")
    assert kernel_cache.list_kernels() == 0
    out = capsys.readouterr().out
    assert "2.0 kB  map1_tanh_y float32" in out and "1.0 kB  turn_matrix4\n" in out
    places = [
        f"2 kernels of the CPU: 3 files, 3.0 kB in {tmp_path}", f"code for GPUs: 7 files, 7.0 kB in {gpus}",
        f"the GPU emulator: 1 file, 1.0 kB in {tmp_path / 'emulator_1'}",
    ]  # fmt: skip
    assert all(f"\n{place}\n" in out for place in places)
    assert all(f" {line}\n" in out for line in ("2.0 kB  PTX", "2.0 kB  machine code", "1.0 kB  the emulator's own functions"))
    others, left = ["loops.cpython-311.pyc", "mine.ptx", "other.f-1.py311.nbi"], lambda: [p for p in tmp_path.rglob("*") if p.is_file()]
    for options, told, count in ((["--gpu"], places[1:], 3 + 3), ([], places[:1], 3)):
        assert cli.run(["cache", "clear", *options]) == 0
        out = capsys.readouterr().out
        assert all(f"emptying  {place}\n" in out for place in told) and out.count("emptying") == len(told) + 2 * (not options)
        assert len(left()) == count and "the next run compiles again\n" in out
    assert sorted(p.name for p in left()) == others
    assert cli.run(["cache", "clear", "--cpu"]) == 0
    out = capsys.readouterr().out
    assert out == f"emptying  0 kernels of the CPU: 0 files, 0.0 kB in {tmp_path}\nremoved   nothing: there was nothing\n"


def test_what_is_emptied_is_said_before(tmp_path, monkeypatch, capsys):
    """A file that cannot go: its folder has been named by then."""
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    (tmp_path / "parallel.map1_tanh_y_float32_0123456789-40.py311.nbi").mkdir()
    assert cli.run(["cache", "clear", "--cpu"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("emptying  1 kernel of the CPU: 1 file, ") and "removed" not in out
    assert err.startswith("flamepy cache: cannot remove: ")
