"""Pickle, copy.deepcopy and other processes: what comes back is the same, what cannot go is refused in one line.

Oracles: the numbers before; a run in one process, bit for bit; ids and gradients known by hand (the loss is a weighted sum, so each
gradient is its weight). A worker is a spawned process; what needs a fork runs in a process of its own.
"""

from __future__ import annotations

import copy
import inspect
import io
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import flamepy as fp
from flamepy import errors, ids, nn
from flamepy.core.op import PUBLIC

DTYPES = [fp.float32, fp.float64, fp.float16, fp.bfloat16, fp.int32, fp.int64, fp.bool_]
WAYS = [*(lambda x, p=p: pickle.loads(pickle.dumps(x, p)) for p in range(2, 6)), copy.deepcopy]


@pytest.fixture(scope="module")
def worker():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda f, *args: pool.submit(f, *args).result(timeout=120)


def through(x):
    return pickle.loads(pickle.dumps(x))


class Net(nn.Module):
    """A user's module: two layers with one weight, an op as an attribute, a constant tensor."""

    def __init__(self, act=fp.tanh):
        self.first, self.second, self.act = nn.Linear(4, 4), nn.Linear(4, 4), act
        self.second.weight = self.first.weight
        self.drop, self.scale = nn.Dropout(0.25), fp.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x):
        return self.second(self.drop(self.act(self.first(x)))) * self.scale


def doubled(g):
    return g * 2.0


# ---- one process ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("device", ["cpu", "plain"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_keeps_everything_but_its_id(way, device, dtype):
    for data in ([[1, 0, 3], [4, 5, 6]], 1, np.zeros((0, 2))):
        t = fp.tensor(data, dtype=dtype, device=device, requires_grad=dtype in (fp.float32, fp.bfloat16))
        t.name = "t"
        back = way(t)
        assert (back.dtype, back.shape, back.device, back.name, back.requires_grad) == (dtype, t.shape, device, "t", t.requires_grad)
        assert back.dtype is t.dtype and back.numpy().tobytes() == t.numpy().tobytes() and back.id != t.id
        assert back.buffer is not t.buffer


def test_only_numbers_are_in_the_pickle():
    packed = fp.ParameterDict({"a": fp.Parameter.ones(2), "b": fp.Parameter.zeros(1000)}).pack()
    for p in (packed["a"], fp.ones(2, device="plain")):
        written = pickle.dumps(p)
        assert b"Buffer" not in written and b"Stream" not in written and len(written) < 600
    parts = []
    back = pickle.loads(pickle.dumps(packed["b"], 5, buffer_callback=parts.append), buffers=parts)
    assert [part.raw().nbytes for part in parts] == [4000] and back.shape == (1000,)


@pytest.mark.parametrize("way", WAYS)
def test_a_parameter_keeps_name_gradient_and_what_users_gave_it(way):
    class_ = type(fp.Parameter.ones(1))
    p, frozen = fp.Parameter([1.0, 2.0]), fp.Parameter(fp.tensor([3.0], dtype=fp.float16), requires_grad=False)
    p.name, p.no_decay = "w", True
    p.set_grad([5.0, 6.0])
    p.register_hook(doubled)
    q, other, again = way((p, frozen, p))
    assert type(q) is class_ and again is q and (q.name, q.no_decay, q.grad.tolist()) == ("w", True, [5.0, 6.0])
    assert not other.requires_grad and other.dtype == fp.float16 and other.grad is None
    assert (q * 3.0).sum().backward()[q].tolist() == [6.0, 6.0]
    q.set_data([0.0, 0.0])
    assert p.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("way", WAYS)
def test_a_packed_dictionary_is_packed_again(way):
    params = fp.ParameterDict({"a": fp.Parameter([1.0, 2.0]), "b": fp.Parameter([3.0]), "c": fp.Parameter(np.ones(2))})
    loose = way(params)
    assert [p.buffer.root for p in loose.parameters()] == [None] * 3
    fp.ParameterDict({"b": params["b"], "a": params["a"], "c": params["c"]}).pack()  # in another order of memory
    for name in "abc":
        params[name].name = name
    back = way(params)
    assert list(back) == ["a", "b", "c"] and [p.name for p in back.parameters()] == ["a", "b", "c"]
    assert back["a"].buffer.root is back["b"].buffer.root and back["c"].buffer.root is not back["a"].buffer.root
    assert back["b"].buffer.start == 0 and back["a"].buffer.root.data.tolist() == [3.0, 1.0, 2.0]
    assert back["a"].buffer.root is not params["a"].buffer.root


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_module_keeps_its_ties_and_its_training_mode(way, packed):
    model = nn.Sequential(Net().eval(), nn.GELU("tanh"), nn.LayerNorm(4))
    if packed:
        model.params.pack()
    back = way(model)
    assert [n for n, _ in back.named_parameters()] == [n for n, _ in model.named_parameters()] and repr(back) == repr(model)
    assert back[0].second.weight is back[0].first.weight and back[0].act is fp.tanh and not back[0].training and back[2].training
    x = fp.randn(3, 4)
    assert back(x).numpy().tobytes() == model(x).numpy().tobytes()
    assert all((p.buffer.root is not None) is packed for p in back.parameters())
    assert not {p.id for p in back.parameters()} & {p.id for p in model.parameters()}


OPTIMIZERS = [
    lambda model: fp.SGD(model, lr=0.1, momentum=0.9, groups={"*bias": {"lr": 0.01}}),
    lambda model: fp.Adam(model.parameters(), lr=0.1, weight_decay=0.1),
    lambda model: fp.AdamW(model, lr=0.1, order="flame", groups={"weight": {"weight_decay": 0.0}}),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [fp.float32, fp.bfloat16], ids=str)
def test_an_optimizer_goes_on_with_the_parameters_it_shares(way, make, dtype):
    model = nn.Linear(4, 4, dtype=dtype)
    model.named_parameters()
    optimizer = make(model)
    x = fp.randn(3, 4)

    def steps(model, optimizer, n):
        for _ in range(n):
            optimizer.step(model(x.to(dtype)).square().mean().backward())

    steps(model, optimizer, 2)
    mine, back = way((model, optimizer))
    assert [id(p) for p in back.params] == [id(p) for p in mine.parameters()] and type(back) is type(optimizer)
    optimizer.lr = back.lr = 0.05
    steps(model, optimizer, 3)
    steps(mine, back, 3)
    for p, q in zip(model.parameters(), mine.parameters(), strict=True):
        assert p.numpy().tobytes() == q.numpy().tobytes()
    left, right = optimizer.state_dict(), back.state_dict()
    assert left["groups"] == right["groups"] and {r["step"] for r in right["state"].values()} == {5}


def test_an_optimizer_that_waits_for_its_parameters_waits_on():
    p = fp.Parameter([1.0])
    p.name = "w"
    known = fp.Adam([p], lr=0.5)
    known.step([(p.id, p, fp.tensor([1.0]))])
    waiting = fp.Adam(fp.AdamConfig(lr=0.5))
    waiting.load_state_dict(known.state_dict())
    for optimizer in (through(waiting), copy.deepcopy(waiting)):
        q = through(p)
        optimizer.step([(q.id, q, fp.tensor([1.0]))])
        assert optimizer.state_dict()["state"]["w"]["step"] == 2


def test_maps_devices_configs_and_functions():
    p, q = fp.Parameter([1.0, 2.0]), fp.Parameter([[3.0]])
    p.name = "p"
    grads = ((p * 3.0).sum() + q.sum() * 40.0).backward()
    fp.clip_grad_norm(grads, 4.0)  # 4 / (norm + 1e-6)
    for back in (through(grads), copy.deepcopy(grads)):
        scale = 4.0 / (np.sqrt(9.0 + 9.0 + 1600.0) + 1e-6)
        np.testing.assert_allclose(back[p].numpy(), [3.0 * scale, 3.0 * scale], 1e-6)
        np.testing.assert_allclose(back[q].numpy(), [[40.0 * scale]], 1e-6)
        assert list(back) == list(grads) and "'p'" in repr(back)
        back.scale_(0.0)
        assert grads[q].item() > 3.0
    assert through(fp.device("plain")) is fp.device("plain") and through(fp.AdamConfig(lr=0.5)) == fp.AdamConfig(lr=0.5)
    assert [name for name, function in PUBLIC.items() if through(function) is not function] == []


@pytest.mark.parametrize("kind", [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)])
def test_errors_come_back_with_text_and_values(kind):
    special = {"ShapeMismatch": ("w", (2,), (3, 4)), "NoGradients": ("w",), "AccumulatorFull": (4,)}
    values = special.get(kind.__name__, ("op: wrong: 1. Do.",))
    error = kind(*values)
    error.add_note("a note")
    for way in WAYS:
        back = way(error)
        assert type(back) is kind and str(back) == str(error) and back.args == error.args and vars(back) == vars(error)


def test_what_cannot_go_is_refused_in_one_line():
    w = fp.Parameter([1.0])
    w.name = "w"
    y, hooked, engine = w * 2.0, fp.Parameter([1.0]), fp.AutogradEngine()
    hooked.register_hook(lambda g: g)
    cases = [
        (y, fp.GradientError, "only leaves.*'mul'.*detach"), (hooked, fp.GradientError, "hook.*<lambda>.*Remove it"),
        (fp.capture(doubled), fp.CaptureError, "captured step.*doubled"), (fp.tape(y), fp.GradientError, "tape.*'mul'.*test_pickle"),
        ({"map": (w * w).sum().backward(create_graph=True)}, fp.GradientError, "only leaves"),
    ]  # fmt: skip
    for thing, error, text in cases:
        with pytest.raises(error, match=text) as raised:
            pickle.dumps(thing)
        assert "\n" not in str(raised.value) and str(raised.value).startswith("pickle: ")
    with pytest.raises(fp.GradientError, match="deepcopy: only leaves"):
        copy.deepcopy(y)
    with engine.record(), pytest.raises(fp.GradientError, match="recording"):
        pickle.dumps(engine)
    assert through(engine).tape_len() == 0
    with engine.record():
        w * 3.0
    with pytest.raises(fp.GradientError, match="tape"):
        pickle.dumps(engine)


# ---- other processes -------------------------------------------------------------------------------------------------------------
def train(model, optimizer, rng, steps):
    """Some steps; data and dropout follow from the state of the generator."""
    fp.set_rng_state(rng)
    for _ in range(steps):
        x = fp.randn(8, 4)
        grads = nn.functional.mse_loss(model(x), x.square()).backward()
        fp.clip_grad_norm(grads, 0.5)
        optimizer.step(grads)
    return model, optimizer, fp.get_rng_state()


@pytest.mark.parametrize("packed", [False, True])
def test_training_goes_on_in_another_process_bit_for_bit(worker, packed):
    def fresh():
        fp.manual_seed(7)
        model = Net()
        if packed:
            model.params.pack()
        return model, fp.AdamW(model, lr=0.01), fp.get_rng_state()

    whole, optimizer, rng = train(*fresh(), 10)
    model, other, end = worker(train, *train(*fresh(), 5), 5)
    assert end == rng
    for p, q in zip(whole.parameters(), model.parameters(), strict=True):
        assert p.numpy().tobytes() == q.numpy().tobytes() and p.name == q.name
    for name, row in optimizer.state_dict()["state"].items():
        assert all(np.array_equal(value, other.state_dict()["state"][name][key]) for key, value in row.items())


def gradients(params, weights):
    """The map of a loss whose gradients are the weights, and the ids that the parameters have here."""
    loss = sum((p * w).sum() for p, w in zip(params, weights, strict=True))
    return loss.backward(), [p.id for p in params], fp.ones(1).id


def test_a_map_from_a_worker_fits_the_parameters_here(worker):
    params = [fp.Parameter.ones(2), fp.Parameter.ones((1, 2)), fp.Parameter.ones(())]
    ids = [p.id for p in params]
    for weight in (1.0, 2.0):  # the worker gets them twice
        grads, there, upcoming = worker(gradients, params, [weight, 3.0, 4.0])
        assert [grads[p].numpy().reshape(-1).tolist() for p in params] == [[weight] * 2, [3.0, 3.0], [4.0]] and len(grads) == 3
        assert there == ids and upcoming > max(ids)
    fp.SGD(params, lr=0.5).step(grads)
    assert params[0].tolist() == [0.0, 0.0]
    twins = through(params)
    grads, _, _ = worker(gradients, twins, [1.0, 3.0, 4.0])
    assert [p in grads for p in (*twins, *params)] == [True] * 3 + [False] * 3


def fail(name):
    raise fp.ShapeMismatch(name, (2,), (3,))


def test_an_error_of_a_worker_arrives(worker):
    with pytest.raises(fp.ShapeMismatch, match="'w'") as raised:
        worker(fail, "w")
    assert raised.value.expected == (2,)


TAKEN = """
import pickle, sys
import flamepy as fp
from flamepy.core.ids import next_id
while next_id() < int(sys.argv[1]) - 30:
    pass
own = [fp.tensor([1.0], requires_grad=True) for _ in range(40)]
assert int(sys.argv[1]) in [t.id for t in own]
sent = sys.stdin.buffer.read()
first, second = pickle.loads(sent), pickle.loads(sent)
leaves = [*own, *first, *second]
grads = sum(p * w for p, w in zip(leaves, range(44))).sum().backward()
assert [g.item() for g in map(grads.get, leaves)] == list(range(44)) and len(grads) == 44
assert list(pickle.loads(pickle.dumps(grads))) == list(grads)
assert fp.ones(1).id > max(grads)
for copy in (first, second):
    sys.stdout.buffer.write(pickle.dumps((copy[0] * 5.0 + copy[1] * 6.0).sum().backward()))
"""


def test_ids_that_are_taken_are_not_shared_and_maps_still_go_home():
    a, b = fp.Parameter([1.0]), fp.Parameter([1.0])
    command = [sys.executable, "-c", TAKEN, str(a.id)]
    done = subprocess.run(command, input=pickle.dumps([a, b]), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answers = io.BytesIO(done.stdout)
    for _ in range(2):
        grads = pickle.load(answers)
        assert (grads[a].item(), grads[b].item(), len(grads)) == (5.0, 6.0, 2)


def test_ids_go_on_beyond_a_tensor_from_elsewhere_in_planned_calls_too():
    x = fp.tensor([1.0], device="plain", requires_grad=True)
    for _ in range(4):
        (x * 2.0).backward()  # calls and rules are planned
    taken = ids.new(("elsewhere", fp.ones(1, device="plain").id + 30))  # what an unpickled leaf of another process gets
    made: list[int] = [taken]
    for _ in range(40):
        y = x * 2.0
        made += [y.id, y.backward()[x].id, fp.ones(1, device="plain").id]
    assert len(set(made)) == len(made) == 121


FORKED = """
import multiprocessing
import flamepy as fp

def parameters(n):
    return [fp.Parameter(fp.ones(1, device="plain")) for _ in range(n)]

def work(sent):
    made = parameters(3)
    grads = (old * 2.0 + sent * 3.0 + made[0] * 4.0).sum().backward()
    return made, grads, len(grads)

old, before = parameters(2)
with multiprocessing.get_context("fork").Pool(1) as pool:
    after = parameters(3)  # counted like those made in the worker
    for sent in (after[0], before, after[1]):
        made, grads, count = pool.apply(work, (sent,))
        assert [grads[p].item() for p in (old, sent, made[0])] == [2.0, 3.0, 4.0] and count == len(grads) == 3
        assert len({t.id for t in (old, before, *after, *made)}) == 8
"""


def test_a_forked_worker_counts_for_itself(tmp_path):
    script = tmp_path / "forked.py"
    script.write_text(FORKED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
