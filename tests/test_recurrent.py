"""RNN, GRU and LSTM beside PyTorch's, with its weights; what their numbers must not depend on; what they refuse."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from devices import default_device

import flamepy as fp
from flamepy import nn

torch = pytest.importorskip("torch")
KINDS = ("LSTM", "GRU", "RNN")
OPTIONS = (
    {}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}, {"num_layers": 3, "batch_first": True},
)  # fmt: skip


def pair(kind: str, dtype: str, **options: Any) -> tuple[Any, Any]:
    """(PyTorch's layer, ours with its weights)."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(5, 7, **options, dtype=getattr(torch, dtype))
    ours = getattr(nn, kind)(5, 7, **options, dtype=dtype)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def states(kind: str, found: Any) -> list[Any]:
    return list(found) if kind == "LSTM" else [found]


def compared(kind: str, theirs: Any, ours: Any, lengths: Any = None, tolerance: float = 2e-5) -> None:
    """Results and all gradients, from a state that is not zero."""
    theirs.zero_grad()
    rng = np.random.default_rng(1)
    dtype = next(theirs.parameters()).detach().numpy().dtype
    batch_first, directions = theirs.batch_first, 1 + theirs.bidirectional
    x = rng.normal(size=(3, 6, 5) if batch_first else (6, 3, 5)).astype(dtype)
    widths = [theirs.proj_size or 7, 7][: 1 + (kind == "LSTM")]
    start = [rng.normal(size=(theirs.num_layers * directions, 3, width)).astype(dtype) for width in widths]
    tx, ts = torch.tensor(x, requires_grad=True), [torch.tensor(s, requires_grad=True) for s in start]
    fx, fs = fp.tensor(x, requires_grad=True), [fp.tensor(s, requires_grad=True) for s in start]
    given = tx
    if lengths is not None:
        given = torch.nn.utils.rnn.pack_padded_sequence(tx, torch.tensor(lengths), batch_first=batch_first, enforce_sorted=False)
    y, after = theirs(given, tuple(ts) if kind == "LSTM" else ts[0])
    if lengths is not None:
        y = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=batch_first, total_length=6)[0]
    z, later = ours(fx, tuple(fs) if kind == "LSTM" else fs[0], lengths=lengths)
    pairs = [(z, y), *zip(states(kind, later), states(kind, after), strict=True)]
    loss, total = 0, 0
    for a, b in pairs:
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), tolerance, tolerance)
        g = rng.normal(size=a.shape).astype(dtype)
        loss, total = loss + (a * g).sum(), total + (b * torch.tensor(g)).sum()
    total.backward()
    grads = loss.backward()
    np.testing.assert_allclose(grads[fx].numpy(), tx.grad.numpy(), tolerance, tolerance)
    for a, b in zip(fs, ts, strict=True):
        np.testing.assert_allclose(grads[a].numpy(), b.grad.numpy(), tolerance, tolerance)
    for name, p in theirs.named_parameters():
        np.testing.assert_allclose(grads[name].numpy(), p.grad.numpy(), tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_same_numbers_as_pytorch(kind: str, options: dict[str, Any], device: str) -> None:
    if device == "cuda" and options:
        pytest.skip("one of each kind: an emulated GPU takes long")
    for dtype, tolerance in (("float32", 2e-5), ("float64", 1e-11)):
        if device == "cuda" and dtype == "float64":
            continue
        theirs, ours = pair(kind, dtype, **options)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        compared(kind, theirs, ours, tolerance=tolerance)
        compared(kind, theirs, ours, [6, 1, 4], tolerance)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}])
def test_a_projection_is_pytorchs_too(options: dict[str, Any]) -> None:
    with default_device("plain"):
        theirs, ours = pair("LSTM", "float64", proj_size=3, **options)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        compared("LSTM", theirs, ours, tolerance=1e-11)
        compared("LSTM", theirs, ours, [6, 1, 4], 1e-11)
        x = np.random.default_rng(0).normal(size=(6, 5))
        y, (h, c) = ours(x)
        assert y.shape == (6, 3 * len(h) // ours.num_layers) and h.shape[-1] == 3 and c.shape[-1] == 7
        np.testing.assert_allclose(y.numpy(), theirs(torch.tensor(x))[0].detach().numpy(), 1e-11, 1e-12)
        start = fp.randn(*h.shape[:1], 1, 3, dtype=fp.float64), fp.randn(*c.shape[:1], 1, 7, dtype=fp.float64)
        x = fp.ones((1, 4, 5) if ours.batch_first else (4, 1, 5), dtype=fp.float64)
        y, after = ours(x, start, lengths=[0])
        assert not y.numpy().any() and all((a.numpy() == s.numpy()).all() for a, s in zip(after, start, strict=True))


def test_relu_is_pytorchs_too() -> None:
    compared("RNN", *pair("RNN", "float64", nonlinearity="relu", num_layers=2), tolerance=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_is_one_step(kind: str, device: str) -> None:
    theirs, ours = getattr(torch.nn, kind + "Cell")(5, 7), getattr(nn, kind + "Cell")(5, 7)
    ours.load_state_dict(theirs.state_dict())
    for x in (torch.randn(3, 5), torch.randn(5)):
        y, z = theirs(x), ours(x.numpy())
        z, more = z if kind == "LSTM" else (z, None)
        y, other = y if kind == "LSTM" else (y, None)
        np.testing.assert_allclose(z.numpy(), y.detach().numpy(), 1e-5, 1e-6)
        again = ours(x.numpy(), z if more is None else (z, more))
        expected = theirs(x, y if other is None else (y, other))
        found, wanted = (again, expected) if more is None else (again[0], expected[0])
        np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_first_numbers_are_within_the_bound(kind: str) -> None:
    layer = getattr(nn, kind)(3, 25, num_layers=2)
    for p in layer.parameters():
        assert 0.15 < np.abs(p.numpy()).max() <= 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_neighbours_change_no_bit(kind: str) -> None:
    with default_device("cpu"):
        fp.manual_seed(0)
        layer, x = getattr(nn, kind)(16, 48), fp.randn(20, 21, 16, requires_grad=True)

        def numbers(x: Any) -> list[bytes]:
            y, _ = layer(x)
            grads = (y * y).sum().backward()
            return [t.numpy().tobytes() for t in (y, grads[x], *[grads[p] for p in layer.parameters()])]

        found = []
        for threads in (1, numba.config.NUMBA_NUM_THREADS):
            numba.set_num_threads(threads)
            found.append(numbers(x))
        assert found[0] == found[1]
        alone, _ = layer(x[:, 3:5])
        assert alone.numpy().tobytes() == layer(x)[0][:, 3:5].numpy().tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_captured_and_checkpointed(kind: str, device: str) -> None:
    def trained(step_of: Any) -> list[float]:
        fp.manual_seed(0)
        layer = getattr(nn, kind)(4, 6, num_layers=2, dropout=0.3)
        optimizer = fp.SGD(layer, lr=0.1)

        def step(x: Any, lengths: Any) -> Any:
            y, _ = layer(x, lengths=lengths)
            loss = y.square().mean()
            optimizer.step(loss.backward())
            return loss

        run, rng = step_of(step), np.random.default_rng(0)
        batches = [(rng.normal(size=(5, 3, 4)).astype("float32"), rng.integers(1, 6, 3)) for _ in range(6)]
        return [run(fp.tensor(x), fp.tensor(lengths)).item() for x, lengths in batches]

    assert trained(lambda step: step) == trained(fp.capture)
    layer, x = getattr(nn, kind)(4, 6), fp.randn(5, 3, 4, requires_grad=True)
    found = []
    for run in (layer, lambda x: fp.checkpoint(layer, x)):
        grads = run(x)[0].square().sum().backward()
        found.append([grads[t].numpy().tobytes() for t in (x, *layer.parameters())])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [fp.float16, fp.bfloat16])
def test_sixteen_bits_are_computed_in_float32(kind: str, dtype: Any) -> None:
    fp.manual_seed(0)
    layer, x = getattr(nn, kind)(4, 6), fp.randn(5, 3, 4)
    wide = layer(x)[0].numpy()
    layer.compute_dtype = dtype
    y, _ = layer(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.to(fp.float32).numpy(), wide, 0.02, 0.02)
    layer.compute_dtype = None
    layer.to(dtype)
    x16 = x.to(dtype)
    y, _ = layer(x16)
    grads = y.sum().backward()
    assert y.dtype == dtype
    assert {grads[p].dtype for p in layer.parameters()} == {np.dtype("float32")}


def test_one_row_without_a_batch() -> None:
    for kind in KINDS:
        theirs, ours = pair(kind, "float64", num_layers=2)
        x = torch.randn(6, 5, dtype=torch.float64)
        (y, s), (z, t) = theirs(x), ours(x.numpy())
        for a, b in zip([z, *states(kind, t)], [y, *states(kind, s)], strict=True):
            assert a.shape == tuple(b.shape)
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), 1e-11, 1e-12)
        again, _ = ours(x.numpy(), t)
        np.testing.assert_allclose(again.numpy(), theirs(x, s)[0].detach().numpy(), 1e-11, 1e-12)


def test_frozen_weights_cost_nothing_and_detached_states_too() -> None:
    layer, x = nn.LSTM(4, 6), fp.randn(5, 3, 4, requires_grad=True)
    layer.freeze("weight_hh*")
    (h, c) = layer(x)[1]
    grads = (h.sum() + c.sum()).backward()
    assert "weight_hh_l0" not in grads and "bias_hh_l0" in grads
    grads = layer(x, (h.detach(), c.detach()))[0].sum().backward()
    assert x in grads


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.GRU(4, 6, proj_size=2), ValueError, "proj_size=2"),
        (lambda: nn.LSTM(4, 6, proj_size=6), ValueError, "proj_size=6"),
        (lambda: nn.LSTM(4, 6, proj_size=2)(fp.ones(5, 3, 4), (fp.ones(1, 3, 6),) * 2), fp.errors.ShapeError, r"\(1, 3, 2\)"),
        (lambda: nn.RNN(4, 6, nonlinearity="gelu"), ValueError, "'gelu'"),
        (lambda: nn.GRU(4, 0), fp.errors.ShapeError, "hidden_size"),
        (lambda: nn.LSTM(4, 6)(fp.ones(5, 3, 3)), fp.errors.ShapeError, r"\(5, 3, 3\)"),
        (lambda: nn.LSTM(4, 6)(fp.ones(5, 3, 4), fp.ones(1, 3, 6)), fp.errors.ShapeError, r"\(h, c\)"),
        (lambda: nn.GRU(4, 6)(fp.ones(5, 3, 4), fp.ones(1, 2, 6)), fp.errors.ShapeError, r"\(1, 2, 6\)"),
        (lambda: nn.GRU(4, 6)(fp.ones(5, 3, 4), lengths=[1, 2]), fp.errors.ShapeError, r"\(2,\)"),
        (lambda: nn.GRU(4, 6)(fp.ones(5, 3, 4), lengths=[1, 2, 6]), fp.errors.IndexOutOfRange, "6 at position"),
        (lambda: nn.GRU(4, 6)(fp.ones(5, 3, 4), lengths=[1.0, 2.0, 3.0]), fp.errors.DTypeError, "float32"),
        (lambda: nn.GRU(4, 6)(fp.ones(5, 3, 4, dtype="float64")), fp.errors.DTypeError, "float64"),
        (lambda: nn.LSTMCell(4, 6)(fp.ones(3, 4), fp.ones(3, 6)), fp.errors.ShapeError, r"\(h, c\)"),
        (lambda: nn.functional.lstm(None, None, None), fp.errors.DTypeError, "x=None"),
        (lambda: nn.functional.gru(fp.ones(5, 3, 4), fp.ones(18, 4), fp.ones(18)), fp.errors.ShapeError, r"w_hh \(18,\)"),
        (lambda: nn.functional.lstm(fp.ones(5, 3, 4), fp.ones(24, 4), fp.ones(24, 5)), fp.errors.ShapeError, "w_ih"),
        (lambda: nn.functional.lstm(fp.ones(5, 3, 4), fp.ones(8, 4), fp.ones(8, 2), h0=fp.ones(3, 2)), fp.errors.ShapeError, "c0"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, error: Any, text: str) -> None:
    with default_device("plain"), pytest.raises(error, match=text):
        make()


def test_second_derivatives_are_refused_by_name_and_cells_have_them() -> None:
    x = fp.randn(2, 3, 4, requires_grad=True)
    with pytest.raises(fp.errors.GradientError, match="lstm: no second derivative"):
        nn.LSTM(4, 6)(x)[0].sum().backward(create_graph=True)
    cell = nn.GRUCell(2, 3).to(fp.float64)
    assert fp.gradcheck(cell, (fp.tensor(np.full((2, 2), 0.3), requires_grad=True),), order=2)


def test_dropout_of_a_single_layer_warns() -> None:
    with pytest.warns(fp.FlameWarning, match="dropout acts between layers"):
        nn.LSTM(4, 6, dropout=0.5)
