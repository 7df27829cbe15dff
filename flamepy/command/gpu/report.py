"""`flamepy doctor --gpu`: the truth about flamepy on this GPU, in under five minutes: a table for people, one JSON file for a report.

What is found wrong is a problem and makes the exit code 1. Nothing stops the rest: each part runs in processes of its own. With
FLAMEPY_CUDA=emulator a smaller round runs without a GPU. A report of a GPU in bench/results/gpu-*.json is what `flamepy doctor` goes by.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...backend.cpu.runtime.settings import to_set
from ...train.files import replace_file
from ...train.lines import amount, say, whole
from ...train.problems import InputError, meant
from .crew import Answer, Crew, begin, finish

PACKAGE = Path(__file__).parents[2]
PLACES = (PACKAGE.parent / "bench" / "results", PACKAGE / "bench" / "results")  # in a checkout, installed
MINUTES = 4.5
PATIENCE, SLOW_PATIENCE = 60.0, 240.0
WORKERS = 12
EQUAL_STEPS, EARLY, LATE = 5, 2e-6, 2e-3  # how far losses may be from the CPU's, relative: in the first steps, in all
FIGURES = {
    "op_us": "an op, 1024 numbers", "recorded_op_us": "the same, recorded", "launch_us": "a launch", "graph_us": "a kernel in a CUDA graph",
    "item_us": "two ops, their number read", "number_us": "a number read", "copy_gbs": "copy", "add_gbs": "x + x", "gelu_gbs": "gelu",
    "softmax_gbs": "softmax, rows of 1024",
    "layer_norm_gbs": "layer norm, rows of 1024", "sum_gbs": "sum", "bf16_tflops": "product, bf16, 8192",
    "tf32_tflops": "product, tf32, 4096", "float32_tflops": "product, float32, 4096",
}  # fmt: skip
UNITS = {"us": "us", "gbs": "GB/s", "tflops": "TFLOP/s"}


class Report:
    """What was found so far: `found` becomes the file, which is written anew after each part."""

    def __init__(self, file: Path | None):
        from ... import __version__

        self.file, self.started = file, time.monotonic()
        self.emulated = os.environ.get("FLAMEPY_CUDA") == "emulator"
        self.problems: list[str] = []
        self.found: dict[str, Any] = {
            "flamepy": __version__, "commit": commit(), "emulated": self.emulated, "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}", "cores": os.cpu_count(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "complete": False,
        }  # fmt: skip

    def keep(self, name: str, value: Any) -> None:
        self.found[name] = value
        self.found |= {"problems": self.problems, "seconds": round(time.monotonic() - self.started, 1)}
        if self.file is not None:
            replace_file(self.file, (json.dumps(self.found, indent=1) + "\n").encode())

    def problem(self, text: str) -> None:
        self.problems.append(text)
        say(f"  PROBLEM  {text}")

    def task(self, name: str, seconds: float) -> Answer:
        """A task in a process of its own, whose failure is a problem."""
        return self.judged(name, finish(begin(name), seconds))

    def judged(self, name: str, answer: Answer) -> Answer:
        if not answer["ok"]:
            self.problem(f"{name}: {answer['error']}")
        self.keep(name.replace(" ", "_"), answer)
        return answer


def row(label: str, value: str) -> None:
    say(f"  {label:<26}  {value}")


def commit() -> str:
    """The checkout's commit, with -dirty when files differ from it; empty where there is none."""
    if not (PACKAGE.parent / ".git").exists():
        return ""
    return said("git", "-C", str(PACKAGE.parent), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")


def said(*command: str) -> str:
    """What another program writes; nothing where there is none."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


# ---- the parts --------------------------------------------------------------------------------------------------------------------
def command(file: Path | None = None, cases: str = "") -> int:
    """All parts; 1 if something is wrong. `cases`: only those whose names begin so."""
    from .agreement import CASES

    if not any([name.lower().startswith(cases.lower()) for name in CASES]):
        raise InputError(f"no case has such a name: --cases {cases}. {meant(cases, CASES, 'an op or an optimizer, such as gelu')}")
    report = Report(file)
    if not there(report):
        return 1
    if not report.emulated:
        figures(report)
    slow = report.emulated
    on_cpu = begin("losses cpu", NUMBA_NUM_THREADS="2") if slow else begin("losses cpu")
    try:
        agreement(report, cases)
        report.task("wrong ids", SLOW_PATIENCE if slow else PATIENCE)
        training(report, on_cpu, 2 * SLOW_PATIENCE)
    finally:
        on_cpu.kill()
    return summary(report)


def there(report: Report) -> bool:
    """Versions, and whether there is a GPU that runs a kernel."""
    say("device" + " (emulated: a smaller round, and no speeds)" * report.emulated)
    query = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit"
    report.keep("nvidia_smi", said("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"))
    found = report.task("facts", SLOW_PATIENCE)
    for name, number in found.get("packages", {}).items():
        row(name, number)
    if report.found["nvidia_smi"]:
        row("nvidia-smi", report.found["nvidia_smi"])
    if not found["ok"]:
        say(f"\nno GPU can be used here: {found['error']}")
        emulated = whole(to_set("FLAMEPY_CUDA", "emulator"))
        say(f'  remedy: an NVIDIA GPU and pip install "flamepy[cuda]"; to check without one, on an emulated GPU: {emulated}')
        return False
    for label, value, _ in found["findings"]:
        row(label, value)
    took = (f"{found[f'{step}_ms']:.{digits}f} ms" for step, digits in (("compile", 0), ("link", 0), ("load", 1)))
    row("a new kernel", "compiled in {}, linked in {}, loaded in {}".format(*took))
    return True


def figures(report: Report) -> None:
    """What things cost. Measured before anything else runs."""
    say("what things cost, and the highest speeds")
    for task in ("costs", "ceilings"):
        found = report.task(task, 90)
        for name, title in FIGURES.items():
            if isinstance(value := found.get(name), float):
                row(title, f"{value:,.{2 if value < 100 else 0}f} {UNITS[name.rpartition('_')[2]]}")
            elif isinstance(value, str):
                report.problem(f"{title}: {value}")


def agreement(report: Report, cases: str) -> None:
    """Every op, optimizer, norm and clip on the GPU and beside it."""
    from .agreement import BRIEF, CASES

    chosen = [name for name in (BRIEF if report.emulated and not cases else CASES) if name.lower().startswith(cases.lower())]
    asked: list[Answer] = [
        {"case": name, "dtype": dtype} for dtype in ("float32", "bfloat16", "float16", "float64") for name in chosen
        if dtype in (CASES[name].dtypes[:1] if report.emulated else CASES[name].dtypes)
    ]  # fmt: skip
    say(f"agreement with the plain device: {len(asked)} cases")

    def told(answer: Answer) -> None:
        if not answer["ok"]:
            what = answer.get("error") or "off by {forward:.1e} forward, {backward:.1e} backward; {allowed:.0e} is allowed".format(**answer)
            report.problem(f"{answer['case']} {answer['dtype']}: {what}")

    workers = min(WORKERS, max(1, (os.cpu_count() or 2) - 2)) if not report.emulated else os.cpu_count() or 1
    deadline = report.started + 60 * (MINUTES - 1) if not report.emulated else float("inf")
    crew = Crew(asked, workers, SLOW_PATIENCE if report.emulated else PATIENCE, deadline, told)
    for line in tables(crew.answers):
        say(line)
    missing = sorted(crew.launchers - crew.reached)
    row("kinds of launches made", f"{len(crew.reached)} of {len(crew.launchers)}" + (f"; missing: {', '.join(missing)}" if missing else ""))
    row("kernels compiled or loaded", f"{crew.variants} in {workers} processes")
    answers = sorted(crew.answers, key=lambda a: (a["dtype"], a["case"]))
    report.keep("agreement", {"cases": answers, "not_reached": missing, "agree": sum(a["ok"] for a in answers), "of": len(answers)})


def tables(answers: list[Answer]) -> Iterator[str]:
    """How many agree, and the largest difference, by dtype."""
    for dtype in dict.fromkeys(a["dtype"] for a in answers):
        mine = [a for a in answers if a["dtype"] == dtype]
        good = [a for a in mine if a["ok"]]
        worst = max(good, key=lambda a: max(a["forward"], a["backward"]), default=None)
        most = "" if worst is None else f"; largest relative difference {max(worst['forward'], worst['backward']):.1e} ({worst['case']})"
        yield f"  {dtype:<26}  {len(good)} of {len(mine)} agree{most}"


def training(report: Report, on_cpu: Any, seconds: float) -> None:
    """The GPT of `flamepy train`: losses beside the CPU's, replayed steps beside others, memory."""
    say("training a GPT")
    found = {name: report.task(name, seconds) for name in ("losses cuda", "losses replay")}
    cpu, eager, replay = report.judged("losses cpu", finish(on_cpu, seconds)), found["losses cuda"], found["losses replay"]
    for name, one in (("CPU, replayed", cpu), ("GPU", eager), ("GPU, replayed", replay)):
        if one["ok"]:
            memory = one["memory"]
            more = f", {one['launched']:,} launches" * bool(one["launched"])
            row(name, f"loss {one['losses'][0]:.4f} -> {one['losses'][-1]:.4f}, {one['step_ms']:.2f} ms a step, "
                      f"{amount(memory['peak'])} at most{more} ({one['settings']})")  # fmt: skip
    if eager["ok"] and cpu["ok"]:
        apart = [abs(a - b) / abs(b) for a, b in zip(eager["losses"], cpu["losses"], strict=True)]
        first, most = max(apart[:EQUAL_STEPS]), max(apart)
        row("GPU and CPU", f"losses differ by {first:.1e} in the first {len(apart[:EQUAL_STEPS])} steps, {most:.1e} in all {len(apart)}")
        report.keep("losses_apart", {"first": first, "all": most})
        if not (first <= EARLY and most <= LATE):
            report.problem(
                f"losses of the GPT differ from the CPU's by {first:.1e} in the first {EQUAL_STEPS} steps, {most:.1e} in all "
                f"({EARLY:.0e} and {LATE:.0e} is allowed)"
            )
    if eager["ok"] and replay["ok"]:
        same = eager["losses"] == replay["losses"] and eager["norms"] == replay["norms"]
        row("replayed and eager steps", "the same bits" if same else "different bits")
        if not same:
            report.problem("replayed steps of the GPT give different bits than eager ones")
    for name, one in found.items():
        if one["ok"] and one["grown_bytes"] > 0:
            report.problem(f"{name}: memory in use grew by {one['grown_bytes']:,} bytes between step 4 and the last")
        if one["ok"] and not one["launched"]:
            report.problem(f"{name}: nothing was launched on the GPU")


def summary(report: Report) -> int:
    report.keep("complete", True)
    took = report.found["seconds"]
    say("")
    for text in report.problems:
        say(f"problem: {text}")
    kind = "emulated GPU" if report.emulated else "GPU"
    count = len(report.problems)
    say(f"{kind}: {f'{count} problem' + 's' * (count != 1) if count else 'no problems'} found in {took:.0f} s")
    if report.file is not None:
        say(f"written  {whole(report.file)}")
    return 1 if count else 0


# ---- what is known ----------------------------------------------------------------------------------------------------------------
def hardware() -> str:
    """What reports of real GPUs say of this flamepy's kernels, in one sentence."""
    for file in sorted((f for place in PLACES if place.is_dir() for f in place.glob("gpu-*.json")), reverse=True):
        try:
            found = json.loads(file.read_text())
            agree, name = found["agreement"], str(found["facts"]["findings"][0][1]).partition(",")[0]
            if not found["emulated"] and agree["of"]:
                return f"checked on {name}, {found['date'][:10]}: {agree['agree']} of {agree['of']} cases agree ({file.name})"
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue
    return "checked in emulation, not yet on hardware"


if __name__ == "__main__":
    sys.exit(command(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
