"""`flamepy bench products`: each stage is right or refused, beside the ceiling of its own type, on one thread.

Oracle: NumPy in float64. Nothing here judges a speed.
"""

from __future__ import annotations

import json
import os
from importlib import import_module

import numpy as np
import pytest

from flamepy.command.cli import benchmarks, run

command = benchmarks()
control, harness, products, work, worker = (
    import_module(f"{command.__package__}.{name}") for name in ("control", "harness", "products", "work", "worker")
)


TURNED = [f"{stage}-float32@{32 if stage in ('naive', 'rows') else 1024}x384x1536-ta" for stage in products.STAGES]


@pytest.mark.parametrize("name", [*TURNED, "blocks-float64@256x256x256"])
def test_every_stage_of_a_product_is_right_or_refused(name):
    (c,) = worker.Server("products", "flamepy").build(name, "eager").outputs
    products.verify(name, [c])
    a, b = products.data(name)
    assert name.partition("@")[2].removesuffix("-ta") == f"{a.shape[0]}x{a.shape[1]}x{b.shape[1]}"  # what is multiplied, no more
    assert products.WORKS[name].flops == 2 * a.size * b.shape[1] and c.dtype == a.dtype
    c[-1, -1] += 3e-5 * np.abs(c).max() if c.dtype == "f4" else 3e-13 * np.abs(c).max()
    with pytest.raises(work.Disagree):
        products.verify(name, [c])


def test_a_product_is_beside_multiply_adds_of_its_own_type():
    asked = []

    class Seat:
        build, close = (lambda self, name, mode: asked.append(name)), (lambda self: None)

        def block(self):
            return worker.Turn([1e-3], 0.1, 0.0)

    with harness.Plan("products", [], ["eager"], 1, 1, print, print, lambda *who: Seat()) as p:
        found = harness.measure_ceilings(p, products.WORKS["tile-float64@256x256x256"])
    assert asked[0] == "fma-float64" and found.flops == control.WORKS["fma-float64"].flops / 1e-3 / 1e9
    for name in ("fma-float32", "fma-float64"):
        built = worker.Server("control", "numpy").build(name, "eager")
        control.verify(name, built.outputs)
        with pytest.raises(work.Disagree):
            control.verify(name, [built.outputs[0] + 0.01])


def test_others_multiply_beside_whole_products_only():
    class Seat:
        block, close = (lambda self: worker.Turn([1e-3], 0.1, 0.0)), (lambda self: None)

        def build(self, name, mode):
            a, b = products.data(name) if name in products.WORKS else (np.eye(1), np.eye(1))
            return worker.Built(0.1, [a.astype(float) @ b], None, 1)

    for stage, beside in (("tile", set()), ("blocks", {("torch", "")})):
        with harness.Plan("products", ["torch"], ["eager"], 1, 1, pytest.fail, str, lambda *who: Seat()) as p:
            found = harness.measure(p, products.WORKS[f"{stage}-float32@256x256x256"])
        assert set(found.timings) == {("flamepy", "eager")} | beside


def test_stages_of_products_are_drawn_and_are_of_one_thread(capsys, tmp_path, monkeypatch):
    asked = []

    def measure(plan, item):
        asked.append(plan.threads)
        timing = harness.Timing(2.0, 2.1, 2.2, 10, 0.5, None)
        return harness.Outcome(plan.suite, item, "flamepy", {("flamepy", "eager"): timing}, harness.Ceilings(200.0, 50.0))

    monkeypatch.setattr(command, "measure", measure)
    assert run(["bench", "products", "--work", "*x256x256", "--pictures", str(tmp_path), "--json", str(tmp_path / "lines")]) == 0
    lines = [json.loads(text) for text in (tmp_path / "lines").read_text().splitlines()]
    assert asked == [1] * 2 * len(products.STAGES) and {line["threads"] for line in lines} == {1}
    assert {line["percent"] for line in lines} == {100 * line["gflops"] / 200 for line in lines}
    assert sorted(os.listdir(tmp_path)) == ["lines", "stages.png"]
    assert capsys.readouterr().out.splitlines()[0].startswith("products 1/10 naive-float32@32x256x256: flamepy eager 2.00 ms")
