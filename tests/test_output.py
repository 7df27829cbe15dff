"""Output that goes nowhere: closed, full, in ASCII, or into a pipe whose reader has gone; in every command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from train_tools import fresh, posix, prepare

from flamepy.command import cli

ROOT = Path(__file__).parent.parent
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
SHORT = ["--steps", "2", "--device", "plain"]  # what is written is the same, without a second of reading kernels
COMMANDS = {
    "flamepy": [""],
    "flamepy --help": ["--help"],
    "flamepy train --help": ["train", "--help"],
    "flamepy version": ["version"],
    "flamepy doctor": ["doctor"],
    "flamepy cache": ["cache", "ls"],
    "flamepy sample": ["sample", "run", "--tokens", "3"],
    "flamepy train": ["train", *fresh(*SHORT, "--out", "new")],
    "flamepy bench": ["bench", "--help"],
}
pytestmark = posix


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run in it."""
    folder = tmp_path_factory.mktemp("output")
    with pytest.MonkeyPatch.context() as patch:
        prepare(folder, patch)
        assert cli.run(["train", *fresh(*SHORT, "--out", "run")]) == 0
    return folder


def shell(folder, command, redirection, **environment):
    """(exit code, output, errors) of `python -m flamepy COMMAND REDIRECTION`."""
    words = " ".join(f"'{word}'" for word in COMMANDS[command] if word)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{sys.executable}' -m flamepy {words} {redirection}"],
        cwd=folder, env={**ENV, **environment}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def named(command):
    return command.removesuffix(" --help")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_output_is_refused_at_once(folder, command):
    code, _, err = shell(folder, command, ">&-")
    assert (code, err) == (2, f"{named(command)}: the output is closed. Send it to a file, or to /dev/null.\n")
    assert not (folder / "new").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_output_is_one_line(folder, command):
    code, _, err = shell(folder, command, ">/dev/full")
    assert code == 2 and err.count("\n") == 1, err
    assert err.startswith(f"{named(command)}: cannot write to the output: No space left on device. ")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_gone_is_no_news(folder, command):
    shutil.rmtree(folder / "new", ignore_errors=True)
    assert shell(folder, command, "| true", PYTHONUNBUFFERED="1") == (141, "", "")


def test_a_warmup_nobody_reads_says_so_by_its_exit_code(capsys, monkeypatch):
    from flamepy.command import warmup

    class Gone:
        encoding = "utf-8"

        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

        flush = isatty = fileno = lambda self: False

    monkeypatch.setattr(warmup, "rehearse", lambda job, display: None)
    monkeypatch.setattr(warmup.sample, "generate", lambda *_: iter(()))
    monkeypatch.setattr(sys, "stdout", Gone())
    assert cli.run(["warmup"]) == 141


@pytest.mark.parametrize(
    ("setting", "shown"),
    [({"PYTHONIOENCODING": "ascii"}, b"caf?"), ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "caf\xe9".encode())],
)
def test_no_output_fails_for_what_its_encoding_lacks(folder, setting, shown):
    """A path is shown by its own bytes where it was read so; any other character as a question mark."""
    command = [sys.executable, "-m", "flamepy", "train", *fresh(*SHORT, "--out", "caf\xe9")]
    place = folder / "_".join(setting)
    place.mkdir()
    for file in ("text.txt", "often.toml"):
        (place / file).write_bytes((folder / file).read_bytes())
    done = subprocess.run(command, cwd=place, env={**ENV, **setting}, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"finished  2 steps" in done.stdout and shown in done.stdout
    for words in (["cache", "ls"], ["sample", "caf\xe9", "--tokens", "3", "--prompt", "\xe9"], ["sample", "\xe9"]):
        done = subprocess.run(
            [sys.executable, "-m", "flamepy", *words], cwd=place, env={**ENV, **setting}, capture_output=True, timeout=120, check=False
        )
        assert done.returncode == (2 if words == ["sample", "\xe9"] else 0) and b"Traceback" not in done.stderr, done.stderr
        assert done.stderr.count(b"\n") <= 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_errors_that_nobody_sees_keep_their_exit_code(folder):
    for redirection in ("2>&-", "2>/dev/full"):
        command = f"'{sys.executable}' -m flamepy train --width 0 {redirection}"
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=ENV, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (2, "")


def test_the_benchmarks_of_a_checkout_treat_their_output_alike(folder):
    for redirection, code, lines in ((">&-", 2, 1), ("| true", 141, 0)):
        command = f"set -o pipefail; '{sys.executable}' -m bench --help {redirection}"
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=ENV, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (code, lines), done.stderr
