"""The oracle of what walks along positions: recurrent layers, step after step, row after row; rotary embedding, number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import Case, R, case


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def lstm_step(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray, u: np.ndarray, b: Any = 0.0, d: Any = 0.0) -> tuple:
    i, f, g, o = np.split(w @ x + b + u @ h + d, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(x: np.ndarray, h: np.ndarray, w: np.ndarray, u: np.ndarray, b: Any = 0.0, d: Any = 0.0) -> tuple:
    (r, z, n), (hr, hz, hn) = np.split(w @ x + b, 3), np.split(u @ h + d, 3)
    z = sigmoid(z + hz)
    return ((1 - z) * np.tanh(n + sigmoid(r + hr) * hn) + z * h,)


def rnn_step(x: np.ndarray, h: np.ndarray, w: np.ndarray, u: np.ndarray, b: Any = 0.0, d: Any = 0.0, nonlinearity: str = "tanh") -> tuple:
    z = w @ x + b + u @ h + d
    return (np.tanh(z) if nonlinearity == "tanh" else np.maximum(z, 0),)


def over_time(step: Any, states: int, x: np.ndarray, weights: Any, start: Any, lengths: Any, reverse: bool, **options: Any) -> tuple:
    steps, batch, units = *x.shape[:2], weights[1].shape[1]
    y, last = np.zeros((steps, batch, units)), [np.zeros((batch, units)) for _ in range(states)]
    for row in range(batch):
        state = [s[row] for s in start] or [np.zeros(units)] * states
        times = range(steps if lengths is None else lengths[row])
        for t in reversed(times) if reverse else times:
            state = step(x[t, row], *state, *weights, **options)
            y[t, row] = state[0]
        for found, s in zip(last, state, strict=True):
            found[row] = s
    return (y, *last)


def oracle(step: Any, states: int) -> Any:
    def fn(x: np.ndarray, *rest: np.ndarray, lengths: Any = None, reverse: bool = False, **options: Any) -> tuple:
        return over_time(step, states, x, rest[:4], rest[4:], lengths, reverse, **options)

    return fn


def shapes(gates: int, states: int, steps: int, batch: int, n_in: int, units: int) -> tuple:
    wide = gates * units
    return ((steps, batch, n_in), (wide, n_in), (wide, units), (wide,), (wide,), *[(batch, units)] * states)


WAYS = [{}, {"reverse": True}, {"lengths": [2, 3]}, {"lengths": [0, 2], "reverse": True}]


def line(step: Any, gates: int, states: int, also: Any = ()) -> Case:
    full = shapes(gates, states, 3, 2, 3, 2)
    return case(
        oracle(step, states), *[R] * len(full), shapes=[full], attrs=WAYS, second=False,
        also=[(full[:5], (), {}), (full[:3], (), {"lengths": [1, 3]}), (shapes(gates, states, 2, 1, 1, 5)[:3], (), {}),
              (shapes(gates, states, 0, 2, 2, 2), (), {}), (shapes(gates, states, 2, 0, 2, 2), (), {}), *also],
    )  # fmt: skip


def rope(x: np.ndarray, positions: Any = None, base: float = 10000.0, scale: float = 1.0, offset: int = 0, width: Any = None,
         interleaved: bool = False, axis: int = -2) -> np.ndarray:  # fmt: skip
    y, width, axis = x.copy(), width or x.shape[-1], axis % x.ndim
    for at in np.ndindex(*x.shape[:-1]):
        p = (
            at[axis]
            if positions is None
            else np.asarray(positions)[at[axis]]
            if np.ndim(positions) == 1
            else (np.broadcast_to(positions, x.shape[:-1])[at])
        )
        for i in range(width // 2):
            angle = (p + offset) / scale * base ** (-2 * i / width)
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + width // 2)
            y[(*at, a)] = x[(*at, a)] * np.cos(angle) - x[(*at, b)] * np.sin(angle)
            y[(*at, b)] = x[(*at, a)] * np.sin(angle) + x[(*at, b)] * np.cos(angle)
    return y


CELL = ((2, 3), (2, 2))
RECURRENT = {
    "lstm": line(lstm_step, 4, 2),
    "gru": line(gru_step, 3, 1),
    "rnn": line(rnn_step, 1, 1, [(shapes(1, 1, 3, 2, 3, 2), (), {"nonlinearity": "relu"})]),
    "lstm_cell": case(lambda *xs: tuple(np.stack([lstm_step(*row, *xs[3:]) for row in zip(*xs[:3], strict=True)], 1)),
                      *[R] * 7, shapes=[(*CELL, (2, 2), (8, 3), (8, 2), (8,), (8,)), (*CELL, (2, 2), (8, 3), (8, 2))]),
    "gru_cell": case(lambda *xs: np.stack([gru_step(*row, *xs[2:])[0] for row in zip(*xs[:2], strict=True)]),
                     *[R] * 6, shapes=[(*CELL, (6, 3), (6, 2), (6,), (6,)), (*CELL, (6, 3), (6, 2))]),
    "rnn_cell": case(lambda *xs, **a: np.stack([rnn_step(*row, *xs[2:], **a)[0] for row in zip(*xs[:2], strict=True)]),
                     *[R] * 6, shapes=[(*CELL, (2, 3), (2, 2), (2,), (2,)), (*CELL, (2, 3), (2, 2))],
                     attrs=[{}, {"nonlinearity": "relu"}]),
    "rope": case(rope, shapes=[((2, 3, 2, 4),)], also=[(((0, 4),), (), {}), (((5, 2),), (), {})], attrs=[
        {}, {"interleaved": True}, {"axis": 1, "offset": 7, "base": 100.0}, {"width": 2, "scale": 2.0},
        {"positions": [5, 1]}, {"positions": [3, 0, 4], "axis": 1, "interleaved": True, "offset": 2},
        {"positions": np.array([[[0], [1], [2]], [[7], [3], [5]]])}]),
}  # fmt: skip
INTERNAL_OF_POSITIONS = {"recurrent": "lstm", "rotated": "rope", "turned": "rope", "turned_back": "rope"}
