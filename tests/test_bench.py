"""The benchmarks: their arithmetic, and that a speed is never shown for a wrong answer.

Oracles: NumPy's percentiles, PyTorch and JAX (when installed) for the oracle's own training steps. Nothing here judges a speed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp
from flamepy.command.cli import benchmarks, run

command = benchmarks()
PACKAGE = command.__package__
NAMES = ("contenders", "harness", "kernels", "networks", "oracle", "report", "step", "targets", "work", "worker")
contenders, harness, kernels, networks, oracle, report, step, targets, work, worker = (import_module(f"{PACKAGE}.{n}") for n in NAMES)
ROOT = Path(__file__).parent.parent
KEYS = {
    "suite",
    "work",
    "mode",
    "contender",
    "ours_ms",
    "theirs_ms",
    "ratio",
    "commit",
    "cpu",
    "threads",
    "versions",
    "date",
    "first_call_s",
}
MORE = {f"{side}_{name}" for side in ("ours", "theirs") for name in ("min_ms", "median_ms", "p90_ms", "peak_mb")} | {
    "gflops",
    "gbs",
    "percent",
}
ABOUT = {"commit": "abc", "cpu": "a CPU", "threads": 2, "load": 0.0, "versions": {}, "date": "today"}


def timing(ms: float, peak: float | None = None):
    return harness.Timing(ms, ms * 1.1, ms * 1.2, 10, 0.5, peak, 0.0)


def outcome(name="softmax", ours=1.0, suite="kernels", **theirs):
    """As if measured: `ours` and e.g. torch=2.0 in milliseconds."""
    item = import_module(f"{PACKAGE}.{suite}").WORKS[name]
    timings = {("flamepy", mode): timing(ours, 100.0) for mode in item.modes}
    timings |= {(c.replace("_", "-"), ""): timing(ms, 90.0) for c, ms in theirs.items()}
    return harness.Outcome(suite, item, "flamepy", timings, harness.Ceilings(200.0, 50.0))


# ---- arithmetic ----------------------------------------------------------------------------------------------------------------
@given(st.lists(st.floats(1e-7, 10), min_size=1, max_size=60), st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_statistics_are_numpys(seconds, per):
    half = len(seconds) // 2
    got = harness.summary([worker.Turn(part, 0.5, 0.1) for part in (seconds[:half], seconds[half:])], per, worker.Built(0.25, [], 7.0, 1))
    ms = np.array(seconds) * 1e3 / per
    np.testing.assert_allclose([got.min, got.median, got.p90], [ms.min(), np.median(ms), np.percentile(ms, 90)], rtol=1e-12)
    assert (got.samples, got.first_call_s, got.peak_mb, got.others) == (len(seconds), 0.25, 7.0, 0.2)


def test_percent_is_of_the_slower_ceiling():
    ceilings = harness.Ceilings(flops=200.0, copy=50.0)
    assert harness.percent(work.Work("w", flops=2e9, nbytes=1e6), 20.0, ceilings) == pytest.approx(50)  # 10 ms at 200 GFLOP/s
    assert harness.percent(work.Work("w", flops=1.0, nbytes=1e9), 40.0, ceilings) == pytest.approx(50)  # 20 ms at 50 GB/s
    assert harness.percent(work.Work("w", flops=2e9, per=10), 2.0, ceilings) == pytest.approx(50)
    assert harness.percent(work.Work("w"), 1.0, ceilings) is None


def test_lines_have_their_keys_and_the_ratio_is_ours_by_theirs():
    lines = report.lines_of(outcome("gpt-b", 3.0, "step", torch=4.0, jax=6.0), ABOUT)
    assert [(line["mode"], line["contender"], line["ratio"]) for line in lines] == [
        ("eager", "torch", 0.75), ("eager", "jax", 0.5), ("replay", "torch", 0.75), ("replay", "jax", 0.5),
    ]  # fmt: skip
    for line in lines:
        assert set(line) >= KEYS | MORE
        assert json.loads(json.dumps(line)) == line
        assert line["gflops"] == pytest.approx(step.WORKS["gpt-b"].flops / 3e6)
    alone = report.lines_of(outcome("gpt-b", 3.0, "step"), ABOUT)
    assert [(line["contender"], line["theirs_ms"], line["ratio"]) for line in alone] == [(None, None, None)] * 2
    assert set(alone[0]) == set(lines[0])


def test_every_target_is_of_a_work_that_exists():
    for suite, name, mode, contender in (*targets.RATIOS, *targets.MEMORY):
        module = import_module(f"{PACKAGE}.{suite}")
        assert mode in module.WORKS[name].modes and contender in module.AGAINST
    for suite, name, mode in targets.PERCENT:
        assert mode in import_module(f"{PACKAGE}.{suite}").WORKS[name].modes
    assert all(suite in work.SUITES for suite in targets.MILLISECONDS)


def test_help_names_every_suite():
    assert all(f"\n  {suite} " in import_module(f"{PACKAGE}.command").HELP for suite in work.SUITES)


# ---- no speed for a wrong answer -------------------------------------------------------------------------------------------------
class Seat:
    """A contender that gives `value` and takes a millisecond."""

    def __init__(self, value):
        self.value, self.closed = value, False

    def build(self, name, mode):
        if isinstance(self.value, Exception):
            raise self.value
        return worker.Built(0.1, [np.asarray(self.value)], 1.0, 1)

    def block(self):
        return worker.Turn([1e-3], 0.15, 0.0)

    def close(self):
        self.closed = True


def plan(values, notes, suite="kernels"):
    """A plan whose contenders give these values; the ceilings' process is one of them."""
    seats = []

    def place(suite, contender, threads):
        seats.append(Seat(values.get(contender, 0.0)))
        return seats[-1]

    return harness.Plan(suite, ["torch", "jax"], ["eager"], 2, 2, notes.append, lambda text: None, place), seats


def softmax_of(name):
    (x,), _ = kernels.data(name)
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_who_disagrees_is_named_and_not_timed():
    name, notes = "softmax@128x128", []
    y = softmax_of(name)
    with (made := plan({"flamepy": y, "torch": y * 1.01, "jax": y}, notes))[0] as p:
        found = harness.measure(p, kernels.WORKS[name])
    assert set(found.timings) == {("flamepy", "eager"), ("jax", "")} and not found.wrong
    assert len(notes) == 1 and notes[0].startswith(f"{name}: torch: outputs differ, so no speed is shown: ")
    assert all(seat.closed for seat in made[1])
    lines = report.lines_of(found, ABOUT)
    assert [line["contender"] for line in lines] == ["jax"] and lines[0]["ours_ms"] == 1.0


@pytest.mark.parametrize("bad", [0.99, np.nan, worker.Failed("flamepy: ShapeError: no")])
def test_without_a_right_answer_of_ours_nothing_is_timed(bad):
    name, notes = "softmax@128x128", []
    y = softmax_of(name)
    value = bad if isinstance(bad, Exception) else y * bad
    with plan({"flamepy": value, "torch": y, "jax": y}, notes)[0] as p:
        found = harness.measure(p, kernels.WORKS[name])
    assert found.timings == {} and found.wrong and report.lines_of(found, ABOUT) == []
    assert len(notes) == 1 and name in notes[0]


def test_differences():
    work.close([np.ones(3), 2.0], [np.ones(3), 2.0 + 1e-6], 1e-5)
    for got, expected in (([1.0], [1.1]), ([np.nan], [1.0]), ([np.ones(2)], [np.ones(3)]), ([1.0], [1.0, 2.0]), ([np.inf], [1.0])):
        with pytest.raises(work.Disagree):
            work.close(got, expected, 1e-5)
    work.close([1.1, 1.0], [1.0, 1.0], (0.2, 1e-5))


def test_a_wrong_gradient_is_found():
    name = "layer-norm-backward@128x128"
    grads = worker.Server("kernels", "flamepy").build(name, "eager").outputs
    kernels.verify(name, grads)
    for i in range(3):
        wrong = [g.copy() for g in grads]
        wrong[i].flat[7] += 0.05 * np.abs(wrong[i]).max()
        with pytest.raises(work.Disagree):
            kernels.verify(name, wrong)


# ---- the oracle's training steps -------------------------------------------------------------------------------------------------
SMALL = {
    "gpt": networks.Gpt(1, 2, 16, 8, 3, vocabulary=11),
    "lstm": networks.Lstm(2, 4, 6, 5, 3, 11),
    "resnet": networks.ResNet(4, 3, stages=2, size=8),
    "u-net": networks.UNet(4, 2, size=8),
    "cnn": networks.Row((("conv", 1, 4), ("relu",), ("pool",), ("flatten",), ("linear", 64, 10)), (1, 8, 8), 6),
}


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("who", ["flamepy", "torch", "jax"])
def test_training_steps_agree_with_the_oracle(who, kind):
    if who != "flamepy":
        pytest.importorskip(who)
    if who == "jax" and kind in ("resnet", "u-net"):
        pytest.skip("written for modules: JAX has no part in it")
    shape = SMALL[kind]
    make = {"flamepy": lambda: step.flamepy_step(shape, "eager"), "torch": lambda: contenders.torch_step(shape),
            "jax": lambda: contenders.jax_step(shape)}[who]  # fmt: skip
    run_step = make()
    got = np.array([[float(value) for value in run_step()] for _ in range(4)]).T
    np.testing.assert_allclose(got, oracle.first_steps(shape, 4), rtol=1e-5)


def test_what_rounding_may_move_is_computed_not_chosen(monkeypatch):
    """Beyond the tolerance results may be as far away as the oracle's own are with first weights that are hardly others."""
    monkeypatch.setitem(step.SHAPES, "small", SMALL["resnet"])
    right, (_, far) = step.expected("small"), step.movable("small")
    assert 0 < far < 1e-2
    monkeypatch.setattr(step, "TOLERANCE", far / 10)
    step.agree("small", [right[0], right[1] * (1 + far / 2)], right)
    with pytest.raises(work.Disagree):
        step.agree("small", [right[0], right[1] * (1 + far * 2)], right)


def test_a_tiny_step_from_end_to_end():
    """flamepy alone, in this process: checked, timed, told."""
    notes = []
    place = lambda suite, contender, threads: worker.Server(suite, contender)
    with harness.Plan("step", [], ["eager", "replay"], 1, 2, notes.append, lambda text: None, place) as p:
        found = harness.measure(p, step.WORKS["mlp-tiny"])
    assert notes == [] and not found.wrong
    lines = report.lines_of(found, report.facts(1))
    assert [line["mode"] for line in lines] == ["eager", "replay"] and set(lines[0]) >= KEYS | MORE
    for line in lines:
        assert 0 < line["ours_ms"] == line["ours_min_ms"] <= line["ours_median_ms"] <= line["ours_p90_ms"]
        assert line["busy"] or line["percent"] > 0


def test_every_ceiling_is_one_that_is_measured():
    for suite in map(work.suite_of, work.SUITES):
        measured = work.suite_of(getattr(suite, "CONTROL", "control")).WORKS
        assert {w.ceiling for w in suite.WORKS.values()} <= set(measured), suite


def test_lines_of_a_gpu_name_it(monkeypatch):
    monkeypatch.setattr(fp, "device", lambda name: SimpleNamespace(driver=SimpleNamespace(name="H100")))
    assert work.suite_of("gpu").about() == {"cpu": f"H100, {report.processor()}"}


def test_what_attention_and_convolution_on_a_gpu_are_compared_with_is_pytorchs():
    torch = pytest.importorskip("torch")
    from_gpu, gpu_networks = (import_module(f"{PACKAGE}.{n}") for n in ("gpu_works", "gpu_networks"))

    class OnTheHost(from_gpu.Sides):
        def __init__(self):
            self.lib, self.F, self.ours, self.oracle = torch, torch.nn.functional, False, False

        def put(self, array, dtype="float32", tracked=False):
            return torch.from_numpy(np.ascontiguousarray(array)).to(torch.float64).requires_grad_(tracked)

    exact = {"dtype": "float32", "tolerance": 1e-12}
    for one in gpu_networks.NETWORKS.values():
        small = {"images": 4, "channels": 3, "side": 5} if hasattr(one, "images") else {"shape": (2, 2, 12, 4)}
        tried = one._replace(**small, **exact)
        sides = OnTheHost()
        work.close(tried.shown(sides, tried.prepare(sides)()), tried.expected(), tried.tolerance)


def test_kernels_are_chosen_for_a_work_and_no_plan_keeps_those_before():
    gpu_works, plan = import_module(f"{PACKAGE}.gpu_works"), import_module("flamepy.engine.plan")
    driver = SimpleNamespace(wgmma=False, blas="cuBLASLt")
    sides = gpu_works.Sides("flamepy")
    sides.lib = SimpleNamespace(device=lambda name: SimpleNamespace(driver=driver))
    for _ in range(4):
        fp.exp(fp.ones((3, 5)))
    assert any(calls for plans in plan.every() for calls in plans.calls)
    sides.choose(own=True, groups=True)
    assert driver.wgmma and driver.blas is None and not any(calls for plans in plan.every() for calls in plans.calls)
    sides.choose(own=False, groups=False)
    assert not driver.wgmma and not hasattr(driver, "blas")  # it is looked for again


# ---- the command -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "args, start",
    [
        ([], "flamepy bench: missing argument 'SUITE"),
        (["steps"], "flamepy bench: no such suite: 'steps'. Did you mean step?"),
        (
            ["all-of-it"],
            "flamepy bench: no such suite: 'all-of-it'. Use kernels, ops, products, dispatch, optim, transforms, step, control, gpu.",
        ),
        (["step", "--work", "gtp-a"], "flamepy bench: no such work in step: 'gtp-a'. Did you mean gpt-a?"),
        (["step", "--work", "zzz"], "flamepy bench: no such work in step: 'zzz'. Use gpt-a, "),
        (["step", "--mode", "repaly"], "flamepy bench: no such mode: 'repaly'. Did you mean replay?"),
        (["step", "--against", "tinygrad"], "flamepy bench: no such contender: 'tinygrad'. Use torch, torch-compile, jax."),
        (["step", "--mode", "lazy"], "flamepy bench: no such mode: 'lazy'. Use eager, replay."),
        (["kernels", "--mode", "replay"], "flamepy bench: nothing to time: "),
        (["step", "--rounds", "0"], "flamepy bench: invalid value for '--rounds'"),
        (["step", "--threads", "0"], "flamepy bench: invalid value for '--threads'"),
        (["step", "--json", "."], "flamepy bench: cannot write --json: .: Is a directory."),
        (["step", "--json", "here/file/x.jsonl"], "flamepy bench: cannot write --json: here/file/x.jsonl: its folder is a file."),
        (["step", "--json", "/proc/nowhere/x.jsonl"], "flamepy bench: cannot write --json: /proc/nowhere/x.jsonl: "),
        (["step", "--json", "here/" + 300 * "x"], f"flamepy bench: cannot write --json: here/{300 * 'x'}: File name too long."),
        (["step", "--pictures", "here/file/x"], "flamepy bench: cannot write --pictures: here/file/x: Not a directory."),
        (["step", "--colour"], "flamepy bench: no such option"),
    ],
)
def test_unusable_input_is_one_line_and_exit_code_2(capsys, tmp_path, monkeypatch, args, start):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "run", lambda *given: pytest.fail("measured first"))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").touch()
    assert run(["bench", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(start), captured.err
    assert captured.err.count("\n") == 1


def test_missing_contenders_are_skipped_with_a_line(monkeypatch):
    notes: list[str] = []
    monkeypatch.setattr(work.importlib.util, "find_spec", lambda name: None if name == "jax" else find_spec("numpy"))
    monkeypatch.setattr(work.shutil, "which", lambda name: None)
    assert harness.present(["torch", "torch-compile", "jax"], notes.append) == ["torch"]
    assert [note.split(":")[0] for note in notes] == ["torch.compile skipped", "JAX jit skipped"]
    assert "C++" in notes[0] and "pip install" in notes[1]


def test_table_json_and_pictures(capsys, tmp_path, monkeypatch):
    """One whole command, its measuring replaced."""
    file, folder = tmp_path / "new" / "lines.jsonl", tmp_path / "pictures"

    def measure(plan, item):
        assert file.parent.is_dir() and folder.is_dir()  # known to be writable before the work begins
        return outcome(item.name, 2.0, plan.suite, torch=1.0)

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "present", lambda against, note: against)
    args = ["bench", "kernels", "--work", "gelu,softmax*", "--against", "torch", "--json", str(file), "--pictures", str(folder)]
    assert run(args) == 0
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    assert [line["work"] for line in lines[:3]] == ["gelu", "softmax", "softmax-backward"] and set(lines[0]) >= KEYS | MORE
    assert os.listdir(file.parent) == ["lines.jsonl"]
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"kernels 1/{len({line['work'] for line in lines})} gelu: flamepy eager 2.00 ms, PyTorch eager 1.00 ms"
    assert "missed 0.30" in out and "targets: 0 of 2 reached" in out and "2.00 ms" in out
    assert "PyTorch eager: median ratio 2.00, worst 2.00 (softmax" in out
    assert sorted(os.listdir(folder)) == ["ratios.png", "roofline.png"]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in folder.iterdir())
    monkeypatch.setattr(command, "measure", lambda plan, item: dataclasses.replace(outcome(item.name), timings={}, wrong=True))
    assert run(["bench", "kernels", "--work", "gelu"]) == 1
    assert capsys.readouterr().out == "kernels 1/1 gelu: not timed\n"


WATCHED = """
import sys
from pathlib import Path
from types import SimpleNamespace
from bench import command, harness
from flamepy.command.cli import run

def measure(plan, item):
    print(Path(sys.argv[1]).read_text().splitlines(), file=sys.stderr)
    return harness.Outcome(plan.suite, item, "flamepy")

command.measure, command.present = measure, lambda against, note: []
run(["bench", "kernels", "--work", "gelu,softmax"])
"""


def test_a_file_gets_a_line_as_each_work_is_done(tmp_path):
    with (tmp_path / "out").open("w") as out:
        args = [sys.executable, "-c", WATCHED, str(tmp_path / "out")]
        done = subprocess.run(args, cwd=ROOT, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=True)
    said = [line for line in done.stderr.splitlines() if not line.startswith("bench: other programs")]
    assert said == ["[]", "['kernels 1/2 gelu: not timed']"]
    assert (tmp_path / "out").read_text().splitlines()[1] == "kernels 2/2 softmax: not timed"
