"""Which blocks are checkpointed, and activations in the host's memory: the same bits for less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import nn
from flamepy.gradient_checkpointing import Segment

pytestmark = pytest.mark.usefixtures("device")


def blocks_of(n: int = 5) -> nn.ModuleList:
    fp.manual_seed(0)
    return nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.3)) for _ in range(n)])


X = np.sin(np.arange(12.0)).reshape(3, 4).astype("f4")
POLICIES: dict[str, tuple[int | None, dict[str, int], list[int]]] = {  # segments, options, which of five blocks are checkpointed
    "two runs": (2, {}, [0, 1]), "three runs": (3, {}, [0, 1]), "one run": (1, {}, []), "as many": (5, {}, [0, 1, 2, 3]),
    "more": (9, {}, [0, 1, 2, 3]), "every": (None, {"every": 1}, [0, 1, 2, 3, 4]), "second": (None, {"every": 2}, [1, 3]),
    "nothing kept": (None, {"keep_bytes": 0}, [0, 1, 2, 3, 4]), "some kept": (None, {"keep_bytes": 70}, [2, 3, 4]),
    "all kept": (None, {"keep_bytes": 10**6}, []),
}  # fmt: skip


def segment_of(entry: Any) -> Any:
    return entry.segment if isinstance(entry.segment, Segment) else None


@pytest.mark.parametrize("name", POLICIES)
def test_policies_choose_blocks_and_keep_the_bits(name: str) -> None:
    segments, options, chosen = POLICIES[name]
    blocks, found = blocks_of(), []
    for run in (lambda x: fp.checkpoint_sequential(blocks, segments, x, **options), nn.Sequential(*blocks)):
        fp.manual_seed(3)
        x = fp.tensor(X, requires_grad=True)
        y = run(x)
        if not found:
            linear = [e for e in fp.tape(y) if e.op.title == "linear"]
            if name != "some kept":
                assert [i for i, e in enumerate(linear) if segment_of(e)] == chosen
            else:
                assert 0 < len([e for e in linear if segment_of(e)]) < 5
        grads = y.sum().backward()
        found.append([y.numpy().tobytes(), grads[x].numpy().tobytes(), *[grads[p].numpy().tobytes() for p in blocks.parameters()]])
    assert found[0] == found[1]


def test_policies_captured() -> None:
    blocks, found = blocks_of(), []
    step = lambda x: fp.checkpoint_sequential(blocks, None, x, keep_bytes=100).sum().backward()[blocks[0][0].weight]
    for run in (step, fp.capture(step)):
        fp.manual_seed(3)
        found.append([run(fp.tensor(X)).numpy().tobytes() for _ in range(4)])
    assert found[0] == found[1]


class Net(nn.Module):
    """Ops of all kinds: one result and several, attributes, numbers, what draws, what is not recorded."""

    def __init__(self) -> None:
        self.first, self.second, self.norm = nn.Linear(4, 8), nn.Linear(8, 4), nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        h = nn.functional.dropout(self.norm(nn.functional.gelu(self.first(x))), 0.3) * 1.5
        a, v = fp.linalg.eigh(h @ h.T)
        return self.second(h) + a.sum() + v.square().sum() + x.detach().exp()


@pytest.mark.parametrize("keep", ["linear", ("linear", "matmul", "mul", fp.exp), ("eigh", "add", "layer_norm"), (nn.functional.linear,)])
def test_results_of_named_ops_are_kept_and_not_made_again(keep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fp.manual_seed(0)
    net, found, given = Net(), [], []
    result = Segment.result
    monkeypatch.setattr(Segment, "result", lambda *args: given.append(result(*args)) or given[-1])
    for run in (net, lambda x: fp.checkpoint(net, x, keep=keep)):
        for retain in (False, True, True):  # as it is, planned, as planned
            fp.manual_seed(3)
            x = fp.tensor(X, requires_grad=True)
            loss = run(x * 2.0).square().sum()
            grads = [loss.backward(retain_graph=retain), *([loss.backward()] if retain else [])]
            found.append([loss.numpy().tobytes(), *[grads[-1][t].numpy().tobytes() for t in (x, *net.parameters())]])
    assert all(f == found[0] for f in found)
    names = {getattr(k, "__name__", k) for k in ((keep,) if isinstance(keep, str) else keep)} - {"exp"}
    made = [(y[0] if type(y) is tuple else y).entry.op.title for y in given if y is not None]
    assert {m for m in made if made.count(m) % 3 == 0} == names  # in each of three backward passes; exp is not recorded here
    if fp.device().name != "cuda":
        grad = fp.checkpoint(net, x, keep=keep).square().sum().backward(create_graph=True)[x]
        fp.manual_seed(3)
        assert np.isfinite(grad.square().sum().backward()[x].numpy()).all()


def test_kept_results_captured_and_in_16_bits() -> None:
    fp.manual_seed(0)
    on = {"device": "plain"}
    net, found = nn.Sequential(nn.Linear(4, 8, **on), nn.GELU(), nn.LayerNorm(8, **on), nn.Dropout(0.3), nn.Linear(8, 4, **on)), []
    net.compute_dtype = fp.bfloat16
    for kept in (None, ("linear", "matmul", "layer_norm")):
        step = lambda x: (net(x) if kept is None else fp.checkpoint(net, x, keep=kept)).sum().backward()[net[0].weight]
        for run in (step, fp.capture(step)):
            fp.manual_seed(3)
            found.append([run(fp.tensor(X, **on)).numpy().tobytes() for _ in range(4)])
    assert all(f == found[0] for f in found)


def test_a_kept_result_is_of_the_same_call_alone() -> None:
    calls: list[int] = []

    def block(x: Any) -> Any:
        calls.append(1)
        return fp.softmax((x * 1.0).exp(), axis=len(calls) - 1)

    x = fp.tensor(X, requires_grad=True)
    y = fp.checkpoint(block, x, keep=["softmax", "exp"])
    with raises(fp.GradientError, "checkpoint", "the block used another number the second time"):
        y.sum().backward()


def test_what_policies_refuse() -> None:
    blocks, x = blocks_of(2), fp.tensor(X)
    for error, call, word in (
        (ValueError, lambda: fp.checkpoint_sequential(blocks, None, x), "no policy"),
        (ValueError, lambda: fp.checkpoint_sequential([], 1, x), "0"),
        (ValueError, lambda: fp.checkpoint_sequential(blocks, 1, x, every=2), "segments, every"),
        (fp.DTypeError, lambda: fp.checkpoint_sequential(blocks, 0, x), "segments is no count"),
        (fp.DTypeError, lambda: fp.checkpoint_sequential(blocks, None, x, every=1.5), "every is no count"),
        (fp.DTypeError, lambda: fp.checkpoint_sequential([3], 1, x), "a block"),
        (ValueError, lambda: fp.checkpoint_sequential(blocks, None, x, every=1, keep="liner"), "keep names no op: 'liner'"),
        (ValueError, lambda: fp.checkpoint_sequential(blocks, None, x, every=1, keep=[3]), "keep names no op: 3"),
        (ValueError, lambda: fp.checkpoint_sequential(blocks, None, x, every=1, keep="dropout"), "draws random numbers"),
    ):  # fmt: skip
        with raises(error, "checkpoint", word):
            call()


# ---- offload ---------------------------------------------------------------------------------------------------------------------------
def test_offloaded_blocks_have_the_same_bits(device: Any) -> None:
    block, found = blocks_of(1)[0], []
    for run in (lambda x: fp.offload(block, x), block):
        for retain in (False, True):
            fp.manual_seed(3)
            x = fp.tensor(X, requires_grad=True)
            h = run(x * 2.0)
            loss = (h.square() * h).sum()
            grads = [loss.backward(retain_graph=retain)]
            if retain:
                grads.append(loss.backward())
            found.append([grads[-1][t].numpy().tobytes() for t in (x, *block.parameters())])
    assert all(f == found[0] for f in found)
    with pytest.raises(fp.GradientError, match="already freed"):
        loss.backward()
    with fp.no_grad():
        assert not fp.offload(block, x).requires_grad
    y = fp.checkpoint(lambda t: fp.offload(block, t), x)
    assert np.isfinite(y.sum().backward()[x].numpy()).all()
    z = fp.offload(lambda t: (fp.checkpoint(block, t), t * 2.0), x)
    assert np.isfinite((z[0] + z[1]).sum().backward()[x].numpy()).all()
    with raises(fp.DTypeError, "offload"):
        fp.offload(3, x)


def test_offload_frees_the_devices_memory_and_is_nothing_on_the_host(device: Any) -> None:
    x = fp.tensor(X, requires_grad=True)
    y = fp.offload(lambda t: t.exp().sin().tanh(), x)
    away = [e for e in fp.tape(y) if segment_of(e)]
    if fp.device().name in ("cpu", "plain"):
        assert not away
        return
    assert away and all(all(v is None for v in e.values) for e in away if e.op.title == "sin")
    g = y.sum().backward()[x].numpy()
    want = fp.tensor(X, requires_grad=True)
    assert g.tobytes() == want.exp().sin().tanh().sum().backward()[want].numpy().tobytes()
    with raises(fp.CaptureError, "offload"):
        fp.capture(lambda t: fp.offload(lambda s: s.exp().sin(), t * x).sum().backward()[x])(x.detach())
