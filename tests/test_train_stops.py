"""Runs that are stopped: signals, kill -9, a reader that goes away, a full disk, a second process.

Whatever happens, resuming gives what one go would have given.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from train_tools import begin, contents, end, flamepy, fresh, posix, prepare, rows, train, wait_for_step

SLOW = "stopping when this is done and saved; again: quit at once\n"  # said unless it is done at once
ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)


# ---- signals, kill, full disks -------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_and_stops_and_nothing_is_lost(capsys, number, code):
    Path("often.toml").write_text("save_every = 100000\nvalidate_every = 100000\nvalidation_batches = 2\nsample_tokens = 20\n")
    process = begin(*fresh("--steps", "100000", "--out", "run"))
    wait_for_step("run", 5, process)
    process.send_signal(number)
    done, out, err = end(process)
    assert done == code and err in ("", SLOW)
    step = int(re.search(rf"stopped   {number.name}: after step ([\d,]+) of 100,000", out)[1].replace(",", ""))
    assert rows("run")[-1]["step"] == step
    assert Path("run/checkpoints/last").read_text() == f"step-{step:08d}\n"
    assert flamepy(capsys, "train", "--resume", "run", "--stop-after", step + 3)[0] == 0
    assert train(capsys, "--steps", "100000", "--stop-after", step + 3, "--out", "whole")[0] == 0
    assert contents("run")["metrics.jsonl"] == contents("whole")["metrics.jsonl"]
    last = f"checkpoints/step-{step + 3:08d}/tensors.safetensors"
    assert contents("run")[last] == contents("whole")[last]


@posix
def test_a_signal_while_preparing_ends_at_once_and_leaves_nothing():
    process = begin("--data", "-", "--out", "run", stdin=subprocess.PIPE)
    process.stdin.write("text" * 100_000)  # more than a pipe holds: written when it reads, and then it waits for more
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    code, _out, err = end(process)
    assert code == 130 and "interrupted before training began" in err and not Path("run").exists()


@posix
def test_the_second_signal_ends_at_once():
    slow = "import flamepy.train.gpt_job as j, time; j.GptJob.loss = lambda self, x, y: time.sleep(60)\n"
    slow += f"import sys, flamepy.command.cli; sys.exit(flamepy.command.cli.run({['train', *fresh('--out', 'run')]!r}))"
    process = subprocess.Popen([sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not Path("run/checkpoints/last").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None  # it would finish the step first
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, _out, err = end(process)
    assert code == 130 and time.monotonic() - started < 5
    here = Path.cwd() / "run"
    first, second = err.splitlines()
    assert first == SLOW.rstrip()
    assert second == (
        f"flamepy train: quit at once; the checkpoint of step 0 is in {here}/checkpoints. Go on with: flamepy train --resume {here}"
    )


# LLVM at work, as the main thread sees it: no line of Python runs before it is done.
COMPILING = """
import ctypes, sys, time
from pathlib import Path
import flamepy.command.cli
sleep = ctypes.CDLL(None).usleep

from flamepy.backend.cpu import device
real = device.bind

def slow(loop, formula, dtype, dialect):
    Path(f"kernel-{loop.__name__}").touch()
    end = time.monotonic() + 1.5
    while (left := end - time.monotonic()) > 0:
        sleep(int(left * 1e6))
    return real(loop, formula, dtype, dialect)

device.bind = slow
sys.exit(flamepy.command.cli.run(sys.argv[1:]))
"""


def compiling(*args):
    """A run that has begun to compile its first step."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMPILING, "train", *fresh(*args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (Path("run/checkpoints/last").exists() and list(Path().glob("kernel-*"))) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    return process


@posix
def test_while_a_kernel_is_compiled_the_answer_comes_at_once_and_the_step_is_not_finished(capsys):
    process = compiling("--steps", "6", "--out", "run")
    begun = set(Path().glob("kernel-*"))
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    line = process.stderr.readline()
    answered = time.monotonic() - started
    code, out, err = end(process)
    assert (code, line, err) == (130, "stopping after this kernel; again: quit at once\n", "")
    assert answered < 0.3
    assert "stopped   SIGINT: after step 0 of 6; the checkpoint is saved\ngo on     flamepy train --resume " in out
    assert Path("run/checkpoints/last").read_text() == "step-00000000\n" and not Path("run/metrics.jsonl").exists()
    assert set(Path().glob("kernel-*")) == begun  # the others of the step were not
    assert flamepy(capsys, "train", "--resume", "run")[0] == 0
    assert train(capsys, "--steps", "6", "--out", "whole")[0] == 0
    assert contents("run") == contents("whole")


@posix
def test_while_a_kernel_is_compiled_the_second_signal_ends_at_once():
    process = compiling("--out", "run")
    process.send_signal(signal.SIGINT)
    process.stderr.readline()
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, _out, err = end(process)
    assert code == 130 and time.monotonic() - started < 1
    assert "quit at once; the checkpoint of step 0 is in " in err and err.endswith(f"--resume {Path.cwd()}/run\n")


def test_how_to_go_on_is_said_before_the_curves_are_drawn(capsys, monkeypatch):
    monkeypatch.setattr("flamepy.train.writers.draw", lambda *_: print("drawing"))
    code, out, _ = train(capsys, "--steps", "8", "--stop-after", "2", "--out", "run")
    assert code == 0 and out.index("go on     flamepy train --resume ") < out.index("drawing")


@posix
@pytest.mark.parametrize("how", ["module", "script"])
def test_ctrl_c_while_the_modules_are_imported_leaves_no_traceback(tmp_path, how):
    script = tmp_path / "flamepy"
    script.write_text("import sys\nfrom flamepy.command.cli import main\nsys.exit(main())\n")
    words = ["-m", "flamepy"] if how == "module" else [str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-X", "importtime", *words, "version"], stderr=subprocess.PIPE, text=True, env=environment)
    while not process.stderr.readline().endswith("flamepy.core.errors\n"):  # the first of some hundred modules
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    process.wait()
    process.stderr.close()
    assert process.returncode == -signal.SIGINT and "Traceback" not in rest and "KeyboardInterrupt" not in rest


def test_a_program_that_imports_flamepy_keeps_its_ctrl_c():
    code = "import signal, flamepy; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code, "-m", "flamepy"], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "True\n"


@posix
def test_kill_9_at_any_moment_and_resume_equals_one_go(capsys):
    assert train(capsys, "--steps", "60", "--out", "whole")[0] == 0
    process = begin(*fresh("--steps", "60", "--out", "run"))
    for moment in (3, 17, 31, 46):
        wait_for_step("run", moment, process)
        process.kill()
        process.communicate()
        process = begin("--resume", "run")
    assert end(process)[0] == 0
    assert contents("whole") == contents("run")


@posix
def test_a_reader_that_goes_away_stops_the_run_and_saves():
    process = begin(*fresh("--steps", "100000", "--out", "run"))
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=100)
    assert (process.returncode, process.stderr.read()) == (141, "")
    process.stderr.close()
    assert Path("run/checkpoints/last").exists()


@posix
def test_a_full_disk_ends_with_one_line_and_the_previous_checkpoint(capsys):
    assert train(capsys, "--steps", "8", "--stop-after", "4", "--out", "run")[0] == 0
    size = Path("run/checkpoints/step-00000004/tensors.safetensors").stat().st_size
    # No file may grow beyond half a checkpoint: the kernel refuses the write as a full disk would.
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size // 2}))\n"
    code = limit + "import sys, flamepy.command.cli; sys.exit(flamepy.command.cli.run(['train', '--resume', 'run']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(
        r"flamepy train: cannot write: .*: File too large\. .*untouched\. Go on with: flamepy train --resume .*run\n", done.stderr
    )
    assert Path("run/checkpoints/last").read_text() == "step-00000004\n" and not list(Path("run").rglob(".tmp-*"))
    assert train(capsys, "--steps", "8", "--out", "whole")[0] == 0
    assert flamepy(capsys, "train", "--resume", "run")[0] == 0
    assert contents("run") == contents("whole")


SHORT_OF_MEMORY = """
import re, resource, sys
from pathlib import Path
import flamepy.command.cli
from flamepy.optimizers import AdamW

real = AdamW.state_dict

def state_dict(self):
    if self.blocks:  # not at the first checkpoint
        now = int(re.search(r"VmSize:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
        resource.setrlimit(resource.RLIMIT_AS, (now + 2**20, now + 2**20))
    return real(self)

AdamW.state_dict = state_dict
sys.exit(flamepy.command.cli.run(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_memory_for_a_checkpoint_is_one_line_and_the_one_before_is_kept(capsys):
    wide = ["--width", "512", "--steps", "3"]
    command = [sys.executable, "-c", SHORT_OF_MEMORY, "train", *fresh(*wide, "--out", "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert re.fullmatch(
        r"flamepy train: not enough memory after step 1; the last checkpoint is untouched\. Close other programs and go on with: "
        r"flamepy train --resume \S*run, or .*\.\n",
        done.stderr,
    )
    assert Path("run/checkpoints/last").read_text() == "step-00000000\n" and not list(Path("run").rglob(".tmp-*"))
    assert flamepy(capsys, "train", "--resume", "run")[0] == 0
    assert train(capsys, *wide, "--out", "whole")[0] == 0
    assert contents("run") == contents("whole")


def test_two_processes_never_write_into_one_run(capsys):
    process = begin(*fresh("--steps", "100000", "--out", "run"))
    wait_for_step("run", 1, process)
    code, _out, err = flamepy(capsys, "train", "--resume", "run")
    assert code == 2 and "another process is training in this run folder" in err
    process.terminate()
    end(process)
