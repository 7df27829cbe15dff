"""Windows and macOS, as far as Linux can play them: see elsewhere.py. Whether the library itself works there, only such a machine can tell.

Oracle: the same training here, bit for bit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = Path(__file__).resolve().parent

TRAIN = """
import sys
import numpy as np
import flamepy as fp
from flamepy.train import Trainer

rng = np.random.default_rng(0)
x, y = rng.standard_normal((40, 4)).astype("f4"), rng.standard_normal((40, 3)).astype("f4")
data = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 40, 8)]

def run(folder, steps, resume=False):
    fp.manual_seed(0)
    model = fp.nn.Sequential(fp.nn.Linear(4, 8), fp.nn.Tanh(), fp.nn.Linear(8, 3))
    loss = lambda x, y: ((model(x) - y) ** 2).mean()
    Trainer(model, loss, data, folder=folder, resume=resume, steps=10, **OPTIONS).run(steps)
    return model

def own_loop():
    fp.manual_seed(1)
    model = fp.nn.Linear(4, 3)
    optimizer = fp.AdamW(model.parameters(), lr=1e-2)
    for n, batch in enumerate(data):
        optimizer.step(((model(fp.tensor(batch[0])) - batch[1]) ** 2).mean().backward())
        fp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "state.safetensors")
    model.load_state_dict(fp.load("state.safetensors")["model"])
    return model

OPTIONS = dict(save_every=2, keep=2, quiet=True)
whole = run("whole", None)
run("parts", 5)
parts = run("parts", None, resume=True)
alone = own_loop()
for model in (whole, parts, alone):
    print([p.numpy().tobytes().hex() for p in model.parameters()])
"""

DOCTOR = "import sys; from flamepy.command.cli import main; sys.argv = ['flamepy', 'doctor']; sys.exit(main())"


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script" / "script.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def ran(tmp_path: Path, text: str, system: str | None, name: str = "", check: bool = True) -> str:
    folder = tmp_path / (name or system or "here")
    folder.mkdir()
    words = [sys.executable, "-W", "error::ResourceWarning"] + ([str(TESTS / "elsewhere.py"), system] if system else [])
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "cp1252", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [*words, str(script(tmp_path, text))], cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0 or not (check or done.stderr), done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


linux = pytest.mark.skipif(sys.platform != "linux", reason="this plays another system on Linux")


@linux
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_it_trains_saves_and_resumes_with_the_same_bits(system: str, tmp_path: Path) -> None:
    there, here = ran(tmp_path, TRAIN, system).splitlines()[-3:], ran(tmp_path, TRAIN, None).splitlines()[-3:]
    assert there == here and there[0] == there[1]
    names = list((tmp_path / system).rglob("*"))
    assert any(p.name == "last" for p in names) and not any(p.name.startswith(".tmp-") for p in names)
    lowered = [str(p.relative_to(tmp_path)).lower() for p in names]
    assert len(set(lowered)) == len(lowered)  # also where names differ by more than case
    assert not any(PureWindowsPath(p.name).is_reserved() for p in names)
    for p in names:
        if p.suffix in (".jsonl", ".toml", ".json"):
            assert b"\r" not in p.read_bytes()


@linux
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_doctor_says_what_is_there(system: str, tmp_path: Path) -> None:
    out = ran(tmp_path, DOCTOR, system, check=False)
    assert {"win32": "Windows AMD64", "darwin": "Darwin arm64"}[system] in out, out
    assert "beside the thread that calls" in out and "quota" in out and "no tiles" in out


TYPED = """
from pathlib import PureWindowsPath
import flamepy.command.doctor as doctor
from flamepy.backend.cpu.runtime import settings
from flamepy.train.files import quoted

doctor.CHECKS = {"cpu": lambda: [doctor.Finding("threads", "7", settings.to_set("NUMBA_NUM_THREADS", 2)),
                                 doctor.Finding("NUMBA_OPT", "0", settings.to_unset("NUMBA_OPT"))]}
doctor.command()
for path in (r"C:\\Users\\Ann\\runs\\gpt-1", r"C:\\Users\\Ann Lee\\runs\\gpt-1"):
    print(quoted(PureWindowsPath(path)))
"""


@linux
def test_what_is_to_be_typed_is_right_there(tmp_path: Path) -> None:
    """cmd and PowerShell know no export, no unset and no words in single quotes."""
    out = ran(tmp_path, TYPED, "win32").splitlines()
    assert [line for line in out if "remedy" in line] == [
        "  remedy: set NUMBA_NUM_THREADS=2 (in PowerShell: $env:NUMBA_NUM_THREADS = '2')",
        "  remedy: set NUMBA_OPT= (in PowerShell: $env:NUMBA_OPT = '')",
    ]
    assert out[-2:] == [r"C:\Users\Ann\runs\gpt-1", r'"C:\Users\Ann Lee\runs\gpt-1"']
    out = ran(tmp_path, TYPED, "darwin").splitlines()
    assert [line for line in out if "remedy" in line] == ["  remedy: export NUMBA_NUM_THREADS=2", "  remedy: unset NUMBA_OPT"]


def test_a_process_is_not_this_system_by_chance(tmp_path: Path) -> None:
    """The play itself: what it hides is hidden, what it refuses is refused."""
    text = """
import os, signal
assert not hasattr(os, "fork") and not hasattr(os, "register_at_fork") and not hasattr(signal, "SIGHUP")
try:
    import fcntl
except ImportError:
    print("no fcntl")
with open("open", "wb") as file:
    for act, *given in ((os.unlink, "open"), (os.replace, "open", "other"), (os.open, ".", os.O_RDONLY), (open, "a:b", "w")):
        try:
            act(*given)
        except OSError as error:
            print(type(error).__name__)
"""
    if sys.platform == "linux":
        assert ran(tmp_path, text, "win32").split() == ["no", "fcntl", *["PermissionError"] * 3, "OSError"]
