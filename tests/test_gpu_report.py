"""`flamepy doctor --gpu`: its comparison finds what is wrong, a worker that dies costs one case, and what is said of hardware follows from
the reports that are there. With a GPU (mark `gpu`): all of its agreement, and memory over 1,000 steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import cuda_device

import flamepy as fp
from flamepy.command import cli, doctor
from flamepy.command.gpu import agreement as gpu_agreement
from flamepy.command.gpu import crew
from flamepy.command.gpu import report as gpu_report
from flamepy.command.gpu import tasks as gpu_tasks
from flamepy.core.errors import FlameError


def no_gpu() -> bool:
    try:
        return bool(getattr(fp.device("cuda"), "driver").watches)  # noqa: B009
    except FlameError:
        return True


gpu = [pytest.mark.gpu, pytest.mark.skipif(no_gpu(), reason="no GPU")]


@pytest.mark.parametrize(
    "got, wanted, found",
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([[1.0]], [1.0], np.inf),
        ([1e-5], [0.0], 1e-3),
    ],
)
def test_differences_are_relative_to_the_largest_number(got: Any, wanted: Any, found: float) -> None:
    assert gpu_agreement.difference([np.array(got)], [np.array(wanted)]) == pytest.approx(found)


def test_a_wrong_backward_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same case, but on "the GPU" its gradient is that of another function."""

    def call(w: Any) -> Any:
        x = w.x(3, 5)
        return x * x if w.device == "plain" else x * x.detach()

    monkeypatch.setitem(gpu_agreement.CASES, "bent", gpu_agreement.Case(call))
    with cuda_device():
        found = gpu_agreement.compared("bent", "float32")
    assert not found["ok"] and found["forward"] < 1e-6 and found["backward"] == pytest.approx(0.5)


def test_the_first_task_makes_a_kernel_all_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it fails, no other task is run: the report then says that no GPU can be used."""
    if no_gpu():
        monkeypatch.setenv("FLAMEPY_CUDA", "emulator")
    with cuda_device():
        found = gpu_tasks.facts()
    assert min(found[f"{step}_ms"] for step in ("compile", "link", "load")) > 0 and found["findings"]


def test_a_worker_that_dies_costs_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys, json, os\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if asked['case'] == 'dies': os._exit(7)\n"
        "    print(json.dumps({**asked, 'ok': True, 'forward': 0, 'backward': 0}), flush=True)\n"
        "print(json.dumps({'reached': ['map'], 'launchers': ['map', 'fill'], 'variants': 2}))\n"
    )

    def begin(task: str, **more: str) -> Any:
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    monkeypatch.setattr(crew, "begin", begin)
    asked = [{"case": name, "dtype": "float32"} for name in ("a", "dies", "b", "c")]
    workers = crew.Crew(asked, 1, 30, time.monotonic() + 60, lambda answer: None)
    assert {a["case"]: a["ok"] for a in workers.answers} == {"a": True, "dies": False, "b": True, "c": True}
    assert "ended with code 7" in next(a["error"] for a in workers.answers if not a["ok"])
    assert (workers.reached, workers.launchers) == ({"map"}, {"map", "fill"})


def test_what_is_said_of_hardware_follows_from_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_report, "PLACES", (tmp_path,))
    nothing = "checked in emulation, not yet on hardware"
    assert gpu_report.hardware() == nothing
    report = {
        "emulated": True, "date": "2026-11-22T20:00:00+00:00", "agreement": {"agree": 9, "of": 10},
        "facts": {"findings": [["cuda", "NVIDIA H100 80GB HBM3, compute capability 9.0", ""]]},
    }  # fmt: skip
    file = tmp_path / "gpu-h100.json"
    file.write_text(json.dumps(report))
    assert gpu_report.hardware() == nothing
    file.write_text(json.dumps({**report, "emulated": False}))
    assert gpu_report.hardware() == "checked on NVIDIA H100 80GB HBM3, 2026-11-22: 9 of 10 cases agree (gpu-h100.json)"
    (tmp_path / "gpu-z.json").write_text("{")
    with cuda_device():
        assert any("9 of 10 cases agree" in finding.value for finding in doctor.cuda())


@pytest.mark.skipif(not no_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_what_helps() -> None:
    command = [sys.executable, "-m", "flamepy", "doctor", "--gpu"]
    env = {key: value for key, value in os.environ.items() if key != "FLAMEPY_CUDA"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 1 and "no GPU can be used here" in done.stdout and "export FLAMEPY_CUDA=emulator" in done.stdout


def test_cases_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor", "--gpu", "--cases", "gulu"]) == 2
    assert capsys.readouterr().err == "flamepy doctor: no case has such a name: --cases gulu. Did you mean gelu?\n"


# ---- with a GPU -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name, dtype", [pytest.param(n, d, marks=gpu) for n, case in gpu_agreement.CASES.items() for d in case.dtypes] if not no_gpu() else
    [pytest.param("add", "float32", marks=gpu)],
)  # fmt: skip
def test_the_gpu_agrees_with_the_plain_device(name: str, dtype: str) -> None:
    found = gpu_agreement.compared(name, dtype)
    assert found["ok"], found


@pytest.mark.gpu
@pytest.mark.skipif(no_gpu(), reason="no GPU")
@pytest.mark.parametrize("captured", [False, True])
def test_memory_is_flat_over_1000_steps(captured: bool) -> None:
    device: Any = fp.device("cuda")
    model = fp.nn.Sequential(fp.nn.Linear(64, 128, device="cuda"), fp.nn.GELU(), fp.nn.Linear(128, 10, device="cuda"))
    optimizer = fp.AdamW(model, lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        grads = (loss := fp.cross_entropy(model(x), y)).backward()
        fp.clip_grad_norm(grads, 1.0)
        optimizer.step(grads)
        return loss

    run, held = fp.capture(step) if captured else step, []
    for _ in range(1000):
        run(fp.ones((32, 64), device="cuda"), fp.zeros((32,), dtype="int64", device="cuda")).item()
        held.append((device.memory()["current"], device.allocator.total))
    assert held[-1] == held[50]
