"""The ledger: what it says of each parameter, its spikes, its file, its picture.

Oracles: NumPy in float64 on copies of weights and gradients; GradientNormTracker for spikes.
"""

import json

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import nn
from flamepy.gradients.norm import ClipResult
from flamepy.train import Ledger
from flamepy.train.ledger_file import draw, picture


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.second(nn.functional.relu(self.first(x)))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("captured", [False, True])
def test_numbers_of_each_parameter(tmp_path, packed, captured):
    fp.manual_seed(4)
    net = Net()
    if packed:
        net.params.pack()
    optimizer = fp.AdamW(net, lr=0.05)
    ledger = Ledger(tmp_path / "ledger.jsonl", net, every=2)
    names = [name for name, _ in net.named_parameters()]

    def learn(x):
        grads = net(x).square().sum().backward()
        zeros, norm = ledger.zeros(grads), fp.clip_grad_norm(grads, 0.5)
        optimizer.step(grads)
        return norm, zeros

    step = fp.capture(learn) if captured else learn
    wanted = []
    for i in range(1, 7):
        x = np.random.default_rng(i).normal(size=(5, 3)).astype("f4")
        x[:, 1] = 0.0  # a column of the gradient of first.weight is 0
        before = {name: p.numpy().astype(float) for name, p in net.named_parameters()}
        g = net(fp.tensor(x)).square().sum().backward()
        grads = [g.get(p).numpy().astype(float) if p in g else None for _, p in net.named_parameters()]
        ledger.before(i)
        ledger.record(i, *step(fp.tensor(x)))
        after = {name: p.numpy().astype(float) for name, p in net.named_parameters()}
        wanted.append(
            (grads, [np.linalg.norm(after[n] - before[n]) / np.linalg.norm(before[n]) if before[n].any() else np.nan for n in names])
        )
    sheet = Ledger(tmp_path / "ledger.jsonl", net).sheet()
    assert sheet.names == names and sheet.steps.tolist() == [1, 2, 4, 6]
    for row, i in enumerate(sheet.steps):
        grads, ratios = wanted[i - 1]
        norms = np.array([np.nan if g is None else np.linalg.norm(g) for g in grads])
        total = np.sqrt(np.nansum(norms**2))
        np.testing.assert_allclose(sheet.total[row], total, rtol=1e-5)
        np.testing.assert_allclose(sheet.norms[row], norms, rtol=6e-4)  # four digits are kept
        np.testing.assert_allclose(sheet.shares[row][norms > 0], (norms / total)[norms > 0] ** 2, rtol=2e-3)
        np.testing.assert_allclose(sheet.ratios[row], ratios, rtol=6e-4)
        zeros = [np.nan if g is None else (g == 0).mean() for g in grads]
        np.testing.assert_allclose(sheet.zeros[row], zeros, rtol=6e-4)
        assert sheet.zeros[row][0] >= 1 / 3 and sheet.missing[row].tolist() == [g is None for g in grads]
    ledger.close()


def result(ledger, total, norms):
    ids = [p.id for p in ledger.params.values()]
    return ClipResult(np.array([total, 1.0, 1.0, 1.0, *norms]), ids, {})


def params():
    return [fp.Parameter(np.ones(3, "f4")), fp.Parameter(np.ones(2, "f4"))]


def ledger_of(path, **options):
    d = fp.ParameterDict()
    for name, p in zip("wb", params(), strict=True):
        d.insert(name, p)
    return Ledger(path, d, **options)


def test_spikes_are_those_of_the_tracker(tmp_path):
    rng = np.random.default_rng(0)
    ledger = ledger_of(tmp_path / "a.jsonl", every=1000, window=20, z=3.0)
    trackers = {name: fp.GradientNormTracker(21) for name in "wb*"}  # the newest is in its window
    past = {name: [] for name in "wb*"}
    lines = {}
    for step in range(1, 301):
        numbers = dict(zip("wb*", rng.lognormal(0, 0.4, 3).tolist(), strict=True))
        if step % 50 == 0:
            numbers["w"] = 30.0
        if step == 120:
            numbers["b"] = float("inf")
        ledger.record(step, result(ledger, numbers["*"], [numbers["w"], numbers["b"]]))
        if step == 170:  # in a run that goes on
            state, ledger = ledger.state_dict(), ledger_of(tmp_path / "a.jsonl", every=1000, window=20, z=3.0)
            ledger.load_state_dict(state)
        wanted = []
        for name, value in numbers.items():
            before = np.array([x for x in past[name][-20:] if np.isfinite(x)])
            past[name].append(value)
            trackers[name].record(value)
            if len(before) >= 10 and not value <= before.mean() + 3.0 * before.std():
                wanted.append(name)
            assert len(before) < 10 or (name in wanted) == trackers[name].spike(3.0), step
        if wanted or step == 1:
            lines[step] = wanted
    sheet = ledger.sheet()
    assert dict(zip(sheet.steps.tolist(), sheet.spikes, strict=True)) == lines and {50, 100, 120, 300} <= set(lines)
    ledger.close()


def test_a_file_is_gone_on_with_and_damage_costs_its_line(tmp_path):
    path = tmp_path / "a.jsonl"
    whole = ledger_of(path, every=1)
    for step in range(1, 9):
        whole.record(step, result(whole, 5.0, [3.0, 4.0]))
    whole.close()
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    for cut in (
        lines[-1][:20],
        lines[-1][:-1],
        b"",
        b"\xff\x00\n",
        b"[" * 10_000 + b"\n",
        b'{"step": 3, "norm": 1}\n',
        lines[-1].replace(b"3.0", b'"x"'),
    ):
        path.write_bytes(b"".join(lines[:-1]) + cut)
        assert ledger_of(path).sheet().steps.tolist() == ([1, 2, 3, 4, 5, 6, 7])
        again = ledger_of(path, every=1)
        again.record(7, result(again, 5.0, [3.0, 4.0]))  # computed again
        again.record(8, result(again, 5.0, [3.0, 4.0]))
        again.close()
        assert again.sheet().steps.tolist() == list(range(1, 9))
        assert cut not in (b"", lines[-1][:20], lines[-1][:-1]) or path.read_bytes() == content
    np.testing.assert_allclose(again.sheet().shares, [[9 / 25, 16 / 25]] * 8)
    path.write_bytes(b"".join(lines[1:]))  # whose it is, is lost: it is said again
    assert ledger_of(path).sheet().steps.tolist() == list(range(1, 9))
    other = Ledger(path, {"w": 1} and [fp.Parameter(np.ones(3, "f4"))], every=1)
    path.write_bytes(content)
    with raises(ValueError, "Ledger: the file is of other parameters", str(path)):
        other.record(9, result(other, 1.0, [1.0]))
    assert path.read_bytes() == content


def test_state_and_arguments(tmp_path):
    ledger = ledger_of(tmp_path / "a.jsonl", window=5)
    for step in range(1, 9):
        ledger.record(step, result(ledger, 1.0, [1.0, step]))
    other = ledger_of(tmp_path / "b.jsonl", window=5)
    other.load_state_dict(ledger.state_dict())
    assert other.past[:, 1].tolist() == [4, 5, 6, 7, 8]
    for state in ({}, 3, {"parameters": ["w"], "past": np.ones((2, 3))}, {"parameters": ["w", "b"], "past": np.ones((2, 4))}):
        with raises(fp.StateError, "Ledger: not its state"):
            other.load_state_dict(state)
    with raises(ValueError, "Ledger: every must be a number of steps: 0"):
        ledger_of(tmp_path / "c.jsonl", every=0)
    with raises(fp.DTypeError, "Ledger: not what clip_grad_norm() returned: float"):
        ledger.record(9, 3.0)


def test_a_picture_says_what_its_marks_mean(tmp_path):
    ledger = ledger_of(tmp_path / "a.jsonl")
    rows = [{"step": s, "norm": 1.0, "norms": [1.0, 2.0], "zeros": [0.0, 0.5]} | ({"spikes": ["w"]} if s == 5 else {}) for s in (1, 5, 10)]
    rows = [row if row["step"] == 5 else {**row, "ratios": [0.1, 0.2]} for row in rows]  # at a spike alone, updates are not measured
    lines = [json.dumps(row) for row in ({"step": 0, "parameters": ["w", "b"]}, *rows)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    figure = picture(ledger.sheet())
    (legend,) = figure.legends
    assert [text.get_text().partition(":")[0] for text in legend.get_texts()] == ["nothing to draw", "spike"]
    norms, updates, zeros = figure.axes[:3]
    for axes, steps in ((norms, ["1", "5", "10"]), (updates, ["1", "10"]), (zeros, ["1", "5", "10"])):
        assert [label.get_text() for label in axes.get_xticklabels()] == steps and axes.images[0].get_array().shape == (2, len(steps))
    assert norms.lines[0].get_xydata().tolist() == [[1, 0]] and not updates.lines


@pytest.mark.parametrize("value", [None, 0.0, 1e-300, 1e300, float("inf"), float("nan")], ids=str)
def test_pictures_of_odd_numbers(tmp_path, value):
    ledger = ledger_of(tmp_path / "a.jsonl")
    rows = [{"step": 0, "parameters": ["w", "b"]}]
    rows += [{"step": s, "norm": 1.0, "norms": [value, 1.0 if s == 2 else value], "ratios": None, "zeros": [value, 0.5]} for s in (1, 2, 3)]
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({**row, "spikes": ["w", "*", "no"]} if row["step"] else row) + "\n" for row in rows)
    )
    draw(ledger.sheet(), tmp_path / "a.png", "title")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    ledger_of(tmp_path / "none.jsonl").draw(tmp_path / "b.png")
    assert (tmp_path / "b.png").exists()
