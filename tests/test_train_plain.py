"""`flamepy train --device plain`: the whole run in NumPy. Oracle: the same run on the CPU."""

import subprocess
import sys

import numpy as np
import pytest
from train_tools import contents, flamepy, fresh, prepare, rows, train

PLAIN = ("--device", "plain", "--steps", "5", "--out")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)


def close(run, other, first=0):
    """Losses, norms and validation of two runs from step `first` on."""
    mine, theirs = rows(run)[first:], rows(other)[first:]
    assert [row.keys() for row in mine] == [row.keys() for row in theirs] and "val_loss" in mine[-1]
    for row, want in zip(mine, theirs, strict=True):
        assert np.isfinite([*row.values()]).all()
        np.testing.assert_allclose([*row.values()], [*want.values()], rtol=1e-4)


def test_it_trains_validates_and_writes_as_on_the_cpu_without_numba(tmp_path, capsys):
    imported = "[m for m in ('numba', 'llvmlite') if m in sys.modules]"
    code = f"import sys; from flamepy.command import cli; print(cli.run(sys.argv[1:]), {imported})"
    command = [sys.executable, "-c", code, "train", *fresh(*PLAIN, "plain")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n0 []\n") and "device plain" in done.stdout and not done.stderr
    assert train(capsys, "--steps", "5", "--out", "cpu")[0] == 0
    close("plain", "cpu")
    assert len((tmp_path / "plain" / "sample.txt").read_text()) > 5
    code, out, err = flamepy(capsys, "sample", "plain", "--tokens", "10")
    assert code == 0 and len(out) > 5 and not err


def test_a_stopped_run_goes_on_bit_for_bit(capsys):
    assert train(capsys, *PLAIN, "whole")[0] == 0
    assert train(capsys, *PLAIN, "parts", "--stop-after", "3")[0] == 0
    assert flamepy(capsys, "train", "--resume", "parts")[0] == 0
    assert contents("parts") == contents("whole")
    assert train(capsys, *PLAIN, "eager", "--no-capture")[0] == 0
    assert rows("eager") == rows("whole")


def test_a_run_moves_from_one_device_to_the_other(tmp_path, capsys):
    assert train(capsys, "--steps", "5", "--out", "cpu")[0] == 0
    for first, then in (("cpu", "plain"), ("plain", "cpu")):
        out = f"{first} {then}"
        assert train(capsys, "--steps", "5", "--device", first, "--out", out, "--stop-after", "3")[0] == 0
        assert flamepy(capsys, "train", "--resume", out, "--device", then)[0] == 0
        assert f'device = "{then}"' in (tmp_path / out / "config.toml").read_text()
        close(out, "cpu")


def test_digits_too(capsys):
    pytest.importorskip("sklearn")
    for device in ("plain", "cpu"):
        command = ["--steps", "2", "--batch", "4", "--width", "8", "--model", "cnn", "--device", device, "--out", device]
        assert flamepy(capsys, "train", "digits", *command)[0] == 0
    close("plain", "cpu")
