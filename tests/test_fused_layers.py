"""Layers of nn that take the fused linear form by themselves, and do not where a user's class says something else.

Oracle: the composition of the layers one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from linear_tools import close
from rows_tools import F32, F64, draw, leaf

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

pytestmark = pytest.mark.usefixtures("device")

# ---- what nn makes of it ---------------------------------------------------------------------------------------------------------
LAYERS = [nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Tanh(), nn.Sigmoid()]


def names(y: Any) -> list[str]:
    """The ops that led to y."""
    return [entry.op.name for entry in fp.tape(y)]


@pytest.mark.parametrize("layer", LAYERS, ids=repr)
def test_sequential_joins_a_linear_and_its_activation(layer: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 6, dtype=F64), layer, nn.Linear(6, 6, dtype=F64), layer, layer, nn.Linear(6, 2, dtype=F64))
    x = leaf(draw(3, 4))
    y = model(x)
    assert names(y) == ["linear", "linear", layer.op, "linear"]
    want = x
    for m in model:
        want = m(want)
    close(y, want)
    got, expected = y.sum().backward(), want.sum().backward()
    for p in [x, *model.parameters()]:
        close(got[p], expected[p])


class Doubled(nn.Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 2.0


class Shifted(nn.ReLU):
    def forward(self, x: Any) -> Any:
        return super().forward(x) + 1.0


class Counted(nn.Linear):
    calls = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        Counted.calls += 1
        return super().__call__(*args, **options)


def test_classes_and_methods_of_a_user_are_called() -> None:
    Counted.calls = 0
    x = fp.tensor(draw(3, 4, dtype=F32))
    plain = nn.Linear(4, 4)
    for first, second in [(Doubled(4, 4), nn.ReLU()), (plain, Shifted()), (Counted(4, 4), nn.GELU())]:
        want = second(first(x))
        assert np.array_equal(nn.Sequential(first, second)(x).numpy(), want.numpy())
        close(nn.Sequential(first).add_to(x, x), x + first(x), F32)
    assert Counted.calls == 4
    activation = nn.ReLU()
    activation.forward = lambda x: x * 0.0  # type: ignore[method-assign]
    assert not nn.Sequential(plain, activation)(x).numpy().any()
    patched = nn.Linear(4, 4)
    patched.forward = lambda x: x * 0.0  # type: ignore[method-assign]
    assert not nn.Sequential(patched, nn.ReLU())(x).numpy().any()
    assert np.array_equal(patched.add_to(x, x).numpy(), x.numpy())


def test_add_to_is_addition() -> None:
    x, r = leaf(draw(2, 3, 4, dtype=F32)), leaf(draw(2, 3, 4, seed=1, dtype=F32))
    fused = [nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 9), nn.GELU(), nn.Linear(9, 4)), nn.MultiHeadAttention(4, 2)]
    for layer in [*fused, nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(), nn.ReLU()]:
        y = layer.add_to(r, x)
        assert ("add" in names(y)) == (layer not in fused)
        want = r + layer(x)
        close(y, want, F32)
        got, expected = y.sum().backward(), want.sum().backward()
        for p in [x, r, *layer.parameters()]:
            close(got[p], expected[p], F32)
    close(nn.Linear(4, 4, bias=False).add_to(fp.ones(4), fp.zeros(2, 3, 4)), np.ones((2, 3, 4)))  # a residual that broadcasts


def test_transformer_block_with_other_halves() -> None:
    x = fp.tensor(draw(2, 5, 8, dtype=F32))
    block = nn.TransformerBlock(8, 2, causal=False, dropout=0.5)
    fused = block.eval()(x, is_causal=True)
    h = x + block.attn(block.norm1(x), is_causal=True)
    close(fused, h + block.mlp(block.norm2(h)), F32)
    fp.manual_seed(0)
    dropped = block.train()(x, is_causal=True)
    assert np.abs(dropped.numpy() - fused.numpy()).max() > 0.01
    block.mlp, block.dropout = nn.ReLU(), nn.ReLU()  # type: ignore[assignment]
    h = x + F.relu(block.attn(block.norm1(x)))
    close(block(x), h + F.relu(block.norm2(h)), F32)


def test_a_recorded_step_replays_the_fused_layers() -> None:
    def run(captured: bool) -> list[bytes]:
        fp.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 40), nn.GELU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
        model.params.pack()
        optimizer = fp.SGD(model, lr=0.05)

        def step(x: Any, y: Any) -> Any:
            loss = F.mse_loss(model(x), y)
            optimizer.step(loss.backward())
            return loss

        call = fp.capture(step) if captured else step
        losses = [call(fp.tensor(draw(50, 6, seed=i, dtype=F32)), fp.tensor(draw(50, 1, seed=i, dtype=F32))) for i in range(6)]
        return [loss.numpy().tobytes() for loss in losses] + [a.tobytes() for a in model.state_dict().values()]

    assert run(True) == run(False)
