"""RNN, GRU and LSTM: layers over time, in one or both directions, and their single steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..core.errors import ShapeError
from ..dtypes import as_dtype
from ..errors import warn
from ..ops.recurrent import CELLS, lengths_of, over_time, rnn_kind, together
from ..parameter import Parameter
from ..tensors import Tensor
from . import functional as F
from .compute import linear_in
from .dropping import Dropout
from .linear import flags, size
from .module import Module

PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def add_weights(
    layer: Module, suffix: str, gates: int, n_in: int, units: int, bias: bool, device: Any, dtype: Any, projected: int = 0
) -> None:  # fmt: skip
    """Put the four parameters of a layer into it, uniform in +-1 / sqrt(units); with a projection five."""
    bound, wide = units**-0.5, gates * units
    shapes = {part: (wide, *n) for part, n in zip(PARTS, ((n_in,), (projected or units,), (), ()), strict=True)}
    for part, shape in (shapes | ({"weight_hr": (projected, units)} if projected else {})).items():
        made = bias or part.startswith("weight")
        value = Parameter.uniform(shape, -bound, bound, dtype=dtype, device=device) if made else None
        setattr(layer, part + suffix, value)


class Recurrent(Module):
    """What RNN, GRU and LSTM have in common: layers, directions, dropout between layers, lengths."""

    cell = ""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        name = type(self).__name__
        flags(name, bias=bias, batch_first=batch_first, bidirectional=bidirectional)
        self.input_size, self.hidden_size = size(name, "input_size", input_size), size(name, "hidden_size", hidden_size, 1)
        self.proj_size = size(name, "proj_size", proj_size)
        if self.proj_size and (self.cell != "lstm" or self.proj_size >= self.hidden_size):
            raise ValueError(f"{name}: no projection: proj_size={proj_size!r}. Below hidden_size an LSTM has one; else use a Linear.")
        self.num_layers, self.batch_first, self.bidirectional = size(name, "num_layers", num_layers, 1), batch_first, bidirectional
        self.dropout = Dropout(dropout).p
        if self.dropout and self.num_layers == 1:
            warn(f"{name}: dropout acts between layers, and there is one: dropout={dropout}. Use num_layers=2 or more, or nn.Dropout.")
        dtype = None if dtype is None else as_dtype(dtype)
        for n in range(self.num_layers):
            for suffix in self.suffixes(n):
                n_in = input_size if n == 0 else (proj_size or hidden_size) * (1 + bool(bidirectional))
                add_weights(self, suffix, CELLS[self.cell].gates, n_in, hidden_size, bias, device, dtype, self.proj_size)

    def suffixes(self, n: int) -> list[str]:
        """What the names of layer n's parameters end in, a direction each."""
        return [f"_l{n}", f"_l{n}_reverse"][: 1 + bool(self.bidirectional)]

    def forward(self, x: Any, hx: Any = None, *, lengths: Any = None) -> Any:
        """x (T, B, input_size), with batch_first (B, T, input_size), or (T, input_size) -> (y, state): y is like x but hidden_size wide
        (twice that in two directions), the state after each row's last step (layers * directions, B, hidden_size); an LSTM's is (h, c).
        With a proj_size (Sak et al. 2014, arXiv:1402.1128) that is the width of y and h.
        hx: the state before, zeros if not given. `lengths` (B,): how many steps each row has, in any order, in place of PyTorch's packed
        sequences: y is 0 beyond, and the reverse direction begins at each row's end. Raises ShapeError, IndexOutOfRange."""
        name, x = type(self).__name__, Tensor.of(type(self).__name__, x, self.weight_hh_l0.device)  # type: ignore[attr-defined]
        single = x.ndim == 2
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            wanted = "(B, T, input_size)" if self.batch_first else "(T, B, input_size)"
            raise ShapeError(f"{name}: x has another shape: {x.shape}, input_size {self.input_size}. Use {wanted}.")
        if single and lengths is not None:
            raise ShapeError(f"{name}: lengths for one row: x is {x.shape}. Leave them out, and pass the steps that count.")
        x = ops.unsqueeze(x, 1) if single else ops.transpose(x, 0, 1) if self.batch_first else x
        y, found = x, []
        starts = self.starts(name, hx, x.shape[1], single)
        for n in range(self.num_layers):
            if n and self.dropout and self.training:
                y = F.dropout(y, self.dropout, True)
            parts = [self.direction(name, y, suffix, next(starts), lengths) for suffix in self.suffixes(n)]
            y = parts[0][0] if len(parts) == 1 else ops.cat([part[0] for part in parts], -1)
            found += parts
        states = [ops.stack([part[i] for part in found]) for i in range(1, len(found[0]))]
        y = ops.squeeze(y, 1) if single else ops.transpose(y, 0, 1) if self.batch_first else y
        states = [ops.squeeze(s, 1) for s in states] if single else states
        return y, states[0] if len(states) == 1 else tuple(states)

    def direction(self, name: str, x: Any, suffix: str, state: Any, lengths: Any) -> Any:
        """One layer in one direction."""
        w_ih, w_hh, b_ih, b_hh = (getattr(self, part + suffix) for part in PARTS)
        _, *state = together(name, w_hh, *state)
        gates, reverse = linear_in(self.compute_dtype, x, w_ih, b_ih), suffix.endswith("_reverse")
        if not self.proj_size:
            return over_time(name, self.cell, gates, w_hh, b_hh, state, lengths, reverse)
        w_hr, (h0, c0), none = getattr(self, "weight_hr" + suffix), state, None
        if h0 is not None:  # what it gives the first step's gates comes with x, for it has no form before its projection
            many = lengths_of(name, np.full(x.shape[1], len(x)) if lengths is None else lengths, gates)
            first = Tensor.of(name, np.arange(len(x))[:, None], x.device) == (many - 1 if reverse else many * 0)
            none = ops.filled(c0.shape, 0.0, c0.dtype, c0.device)
            gates = gates + ops.where(ops.unsqueeze(first, 2), F.linear(h0, w_hh), 0.0)
        y, h, c = over_time(name, self.cell, gates, w_hh @ w_hr, b_hh, (none, c0), lengths, reverse)
        y, h = F.linear(y, w_hr), F.linear(h, w_hr)
        return y, h if h0 is None else ops.where(ops.unsqueeze(many > 0, 1), h, h0), c

    def starts(self, name: str, hx: Any, batch: int, single: bool) -> Any:
        """The state each layer and direction begins with: (h,), or (h, c)."""
        count, total = 1 + (self.cell == "lstm"), self.num_layers * (1 + bool(self.bidirectional))
        if hx is None:
            return iter([(None,) * count] * total)
        given = tuple(hx) if count == 2 and isinstance(hx, tuple | list) else (hx,)
        if len(given) != count:
            wanted = "(h, c)" if count == 2 else "h alone"
            raise ShapeError(f"{name}: the state is not {wanted}: {type(hx).__name__}. Pass what a call returned.")
        found = [Tensor.of(name, s, self.weight_hh_l0.device) for s in given]  # type: ignore[attr-defined]
        for s, units in zip(found, (self.proj_size or self.hidden_size, self.hidden_size), strict=False):
            shape = (total, units) if single else (total, batch, units)
            if s.shape != shape:
                raise ShapeError(f"{name}: the state has another shape: {s.shape}. Use {shape}, (layers * directions, batch, hidden_size).")
        found = [ops.unsqueeze(s, 1) for s in found] if single else found
        return iter([tuple([s[i] for s in found]) for i in range(total)])

    def extra(self) -> str:
        shown = {"num_layers": 1, "batch_first": False, "dropout": 0.0, "bidirectional": False, "proj_size": 0}
        options = [f"{name}={getattr(self, name)}" for name, usual in shown.items() if getattr(self, name) != usual]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *options])


class LSTM(Recurrent):
    """Long short-term memory (Hochreiter & Schmidhuber 1997); gates in the order i, f, g, o. Names and first numbers are PyTorch's."""

    cell = "lstm"


class GRU(Recurrent):
    """Gated recurrent units (Cho et al. 2014, arXiv:1406.1078); gates in the order r, z, n, and r multiplies all that h gives n."""

    cell = "gru"


class RNN(Recurrent):
    """h = tanh(W x + b + U h + d), or relu (Elman 1990)."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", *args: Any, **options: Any):
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, num_layers, *args, **options)

    cell = property(lambda self: rnn_kind("RNN", self.nonlinearity))  # type: ignore[assignment]


# ---- single steps -----------------------------------------------------------------------------------------------------------------------
class RecurrentCell(Module):
    """What the cells have in common: their weights, and a state of zeros."""

    cell = ""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None):
        name = type(self).__name__
        flags(name, bias=bias)
        self.input_size, self.hidden_size = size(name, "input_size", input_size), size(name, "hidden_size", hidden_size, 1)
        add_weights(self, "", CELLS[self.cell].gates, input_size, hidden_size, bias, device, dtype)

    def weights(self) -> list[Any]:
        return [getattr(self, part) for part in PARTS]

    def zeros(self, x: Any) -> Any:
        """The state of a row that has seen nothing."""
        w = self.weight_hh  # type: ignore[attr-defined]
        return ops.filled((*Tensor.of(type(self).__name__, x, w.device).shape[:-1], self.hidden_size), 0.0, w.dtype, w.device)

    def extra(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class LSTMCell(RecurrentCell):
    """One step of an LSTM."""

    cell = "lstm"

    def forward(self, x: Any, hx: Any = None) -> Any:
        """x (B, input_size) or (input_size,), hx = (h, c) of the step before, zeros if not given -> (h, c)."""
        if hx is not None and (not isinstance(hx, tuple | list) or len(hx) != 2):
            raise ShapeError(f"LSTMCell: the state is not (h, c): {type(hx).__name__}. Pass what a call returned.")
        h, c = (self.zeros(x), self.zeros(x)) if hx is None else hx
        return F.lstm_cell(x, h, c, *self.weights())


class GRUCell(RecurrentCell):
    """One step of a GRU."""

    cell = "gru"

    def forward(self, x: Any, hx: Any = None) -> Any:
        """x (B, input_size) or (input_size,), hx = h of the step before, zeros if not given -> h."""
        return F.gru_cell(x, self.zeros(x) if hx is None else hx, *self.weights())


class RNNCell(RecurrentCell):
    """One step of an RNN."""

    cell = "rnn_tanh"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None, dtype: Any = None
    ):  # fmt: skip
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype)

    cell = property(lambda self: rnn_kind("RNNCell", self.nonlinearity))  # type: ignore[assignment]

    def forward(self, x: Any, hx: Any = None) -> Any:
        """x (B, input_size) or (input_size,), hx = h of the step before, zeros if not given -> h."""
        return F.rnn_cell(x, self.zeros(x) if hx is None else hx, *self.weights(), nonlinearity=self.nonlinearity)
