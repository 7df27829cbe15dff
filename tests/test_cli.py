"""The command line as a user meets it: help, one-line errors, exit codes. No training here; see test_train_runs.py."""

import ast
import os
import platform
import re
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest

import flamepy
from flamepy.backend.base import BACKENDS
from flamepy.command import cli
from flamepy.train.config import DigitsConfig, GptConfig, settings


def call(*args, **options):
    return subprocess.run([sys.executable, "-m", "flamepy", *args], capture_output=True, text=True, timeout=120, check=False, **options)


def run(capsys, *args):
    code = cli.run(list(args))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help_names_every_option_and_every_job(capsys):
    code, out, _ = run(capsys, "train", "--help")
    assert code == 0
    options = "data steps stop-after batch context layers heads width lr seed device out resume config preset"
    for word in (*[f"--{o}" for o in options.split()], "train digits", "Data:", "Model:", "Training:", "Run:"):
        assert word in out, word
    assert f"Where to train: {', '.join(BACKENDS)}." in out
    assert [re.search(rf"--no-{name}\b[^\[]*\[(on|off)\]", out)[1] for name in ("capture", "ledger")] == ["on", "off"]
    assert run(capsys, "train", "gpt", "-h")[1] == out
    code, out, _ = run(capsys, "train", "digits", "--help")
    assert code == 0 and "--model [mlp|cnn|both]" in out and "MNIST" in out
    code, out, _ = run(capsys, "sample", "--help")
    assert code == 0 and all(f"--{o}" in out for o in ("prompt", "temperature", "top-k", "seed", "tokens"))
    code, out, _ = run(capsys, "--help")
    assert code == 0 and all(c in out for c in ("train", "sample", "doctor", "warmup", "cache", "version"))


def test_warnings_are_lines_of_the_command(capsys, monkeypatch):
    """They showed a line of click's, the only one outside of flamepy."""
    text = "kernels are compiled for this processor, each once: the first calls wait for it."
    shown = warnings.showwarning
    monkeypatch.setattr(cli, "benchmarks", lambda: warnings.warn_explicit(text, flamepy.FlameWarning, "core.py", 911))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.raises(AttributeError):  # it gave no benchmarks
            cli.run(["bench", "step"])
        assert capsys.readouterr().err == f"flamepy bench: {text}\n"
    assert warnings.showwarning is shown


def test_without_a_command_the_help_is_shown(capsys):
    code, out, err = run(capsys)
    assert code == 2 and "Usage: flamepy" in out + err


@pytest.mark.parametrize(
    "args, start",
    [
        (["train", "--widht", "3"], "flamepy train: no such option: '--widht'. Did you mean --width? See flamepy train --help."),
        (["train", "--nonsense"], "flamepy train: no such option: '--nonsense'. See flamepy train --help."),
        (
            ["train", "--dropout", "0.1"],
            "flamepy train: no such option: '--dropout'. dropout is set in a file: --config FILE, with a line ",
        ),
        (["train", "--weight-decay=1"], "flamepy train: no such option: '--weight-decay'. weight_decay is set in a file: --config FILE, "),
        (["train", "digits", "--shfit", "1"], "flamepy train: no such option: '--shfit'. shift is set in a file: --config FILE, with a "),
        (["sample", "run", "--tempreature", "1"], "flamepy sample: no such option: '--tempreature'. Did you mean --temperature? See "),
        (["smaple", "run"], "flamepy: no such command: 'smaple'. Did you mean sample? See flamepy --help."),
        (["cache", "cler"], "flamepy cache: no such command: 'cler'. Did you mean clear? See flamepy cache --help."),
        (["cache", "fill"], "flamepy cache: no such command: 'fill'. Use ls, clear. See flamepy cache --help."),
        (["train", "digit"], "flamepy train: no such job: 'digit'. Did you mean digits? See flamepy train --help."),
        (["--verison"], "flamepy: no such option: '--verison'. Did you mean --version? See flamepy --help."),
        (["train", "--width", "wide"], "flamepy train: invalid value for '--width': 'wide' is not a valid integer."),
        (["train", "--width", "0"], "flamepy train: width must be at least 1: 0."),
        (["train", "--width", "100", "--heads", "3"], "flamepy train: width must be divisible by heads: width 100, heads 3."),
        (["train", "--context", "0"], "flamepy train: context must be at least 1: 0."),
        (["train", "--batch", "-1"], "flamepy train: batch must be at least 1: -1."),
        (["train", "--lr", "nan"], "flamepy train: lr must be a finite number: nan."),
        (["train", "--steps", "0"], "flamepy train: steps must be at least 1: 0."),
        (["train", "--seed", "-1"], "flamepy train: seed must be at least 0: -1."),
        (["train", "--stop-after", "0"], "flamepy train: --stop-after must be at least 1: 0."),
        (["train", "--width", "1000000", "--layers", "1000"], "flamepy train: not enough memory for the model: about "),
        (["train", "--device", "cuda"], "flamepy train: cannot use --device cuda: "),
        (["train", "--device", "toaster"], "flamepy train: cannot use --device toaster: "),
        (["train", "--data", "nope.txt"], "flamepy train: no such file or folder: "),
        (["train", "--data", "."], "flamepy train: no text file in the folder: "),
        (["train", "--config", "nope.toml"], "flamepy train: cannot read the config file: nope.toml: No such file"),
        (["train", "--preset", "huge"], "flamepy train: invalid value for '--preset': 'huge'"),
        (["train", "--resume", "nope"], "flamepy train: no such run folder: "),
        (["train", "--resume", "."], "flamepy train: not a run folder: "),
        (["train", "--resume", ".", "--out", "x"], "flamepy train: --out does not go with --resume: x."),
        (["train", "book.txt"], "flamepy train: no such job: 'book.txt'. Use gpt or digits; give a text with --data."),
        (["train", "--steps", "3", "digits"], "flamepy train: got unexpected extra argument (digits)."),
        (["train", "--compute", "fp64"], "flamepy train: invalid value for '--compute': 'fp64' is not one of 'float32', 'bfloat16', "),
        (["train", "digits", "--model", "rnn"], "flamepy train: invalid value for '--model'"),
        (["train", "digits", "--data", "nope"], "flamepy train: no such file or folder: "),
        (["sample"], "flamepy sample: missing argument 'RUN'."),
        (["sample", "nope"], "flamepy sample: no such run folder: "),
        (["sample", "nope", "--temperature", "-1"], "flamepy sample: --temperature must be at least 0: -1.0."),
        (["sample", "nope", "--temperature", "nan"], "flamepy sample: --temperature must be a finite number: nan."),
        (["sample", "nope", "--temperature", "-inf"], "flamepy sample: --temperature must be a finite number: -inf."),
        (["sample", "nope", "--seed", "-1"], "flamepy sample: --seed must be at least 0: -1."),
        (["sample", "nope", "--seed", "9" * 30], "flamepy sample: --seed must be at most 9,223,372,036,854,775,807: 999"),
        (["train", "--seed", "9" * 30], "flamepy train: seed must be at most 9,223,372,036,854,775,807: 999"),
        (["sample", "nope", "--top-k", "-1"], "flamepy sample: --top-k must be at least 0: -1."),
        (["nonsense"], "flamepy: no such command: 'nonsense'. Use train, sample, "),
    ],
)
def test_unusable_input_is_one_line_and_exit_code_2(capsys, tmp_path, monkeypatch, args, start):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith(start), err
    assert err.count("\n") == 1 and err.rstrip()[-1] in ".?"
    assert os.listdir(tmp_path) == []  # nothing half-written


@pytest.mark.parametrize("kind, command", [(GptConfig, ["train"]), (DigitsConfig, ["train", "digits"])])
def test_help_names_every_setting(capsys, kind, command):
    code, out, _ = run(capsys, *command, "--help")
    options, only_config = out.split("Only in a file given with --config")
    assert code == 0 and settings(kind)
    for name, field in settings(kind).items():
        if "section" in field.metadata:
            assert re.search(rf"^  --{name}\b", options, re.M), name
        else:
            assert re.search(rf"^  {name} .*\n?.*\[{re.escape(str(field.default))}\]$", only_config, re.M), name


WORDS = {
    "kernel cache": "kept on disk|compile cache|disk cache",
    "run folder": "folder (that )?flamepy train wrote|holds a run|run directory|in this folder",
    "checkpoint": "saved file|snapshot|go back to the one|beyond that",
    "validation loss": "val loss",
    "text": "corpus|dataset",
    "step": "iteration|epoch",
    "not enough memory": "fit into memory|out of memory",
    "no such ...": "unknown|jobs are|known settings",
}


PACKAGE = Path(flamepy.__file__).parent
SPEAKING = [p.relative_to(PACKAGE).as_posix() for folder in ("command", "train") for p in sorted((PACKAGE / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", SPEAKING)
def test_one_word_for_one_thing(path):
    tree = ast.parse((PACKAGE / path).read_text())
    kinds = (
        ast.Module | ast.ClassDef if path == "command/cli.py" else ast.Module | ast.ClassDef | ast.FunctionDef
    )  # there they are help texts
    heads = [node.body[0] for node in ast.walk(tree) if isinstance(node, kinds)]
    docstrings = {id(head.value) for head in heads if isinstance(head, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            for word, others in WORDS.items():
                found = re.search(rf"\b({others})\b", " ".join(node.value.split()), re.I)
                assert not found, f"{path}:{node.lineno}: {found[0] if found else ''}: say {word}"


def test_version_and_module(capsys):
    code, out, _ = run(capsys, "--version")
    found = re.fullmatch(r"flamepy (\S+) \(python (\S+), numpy (\S+), numba (\S+)\) in (.+)\n", out)
    assert code == 0 and found is not None, out
    place = str(Path(flamepy.__file__).parent)
    assert found.groups() == (flamepy.__version__, platform.python_version(), version("numpy"), version("numba"), place)
    assert run(capsys, "version") == (0, out, "")
    done = call("version")
    assert (done.returncode, done.stdout) == (0, out)


def test_help_is_quick_and_imports_no_numba():
    code = "import sys, flamepy.command.cli; flamepy.command.cli.run(['train', '--help']); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.endswith("False\n"), done.stderr


@pytest.mark.skipif(os.name != "posix", reason="a folder that is in use stays there")
def test_in_a_folder_that_is_gone(capsys, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, _, err = run(capsys, "train", "--resume", "x")
    assert (code, err) == (2, "flamepy train: the folder in which this runs is gone. Change to another one.\n")
