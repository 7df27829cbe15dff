"""What people met who came from PyTorch and NumPy with scripts of their own: it works as there, or the error says what to type.

Oracles: NumPy, Python. Read next: test_habits.py.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from error_text import raises

import flamepy as fp

pytestmark = pytest.mark.usefixtures("plain")
X = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)


def test_matplotlib_draws_what_has_a_tape():
    from matplotlib.figure import Figure

    x = fp.tensor(X[0], requires_grad=True)
    y = x * 2.0
    axes = Figure().subplots()
    (line,) = axes.plot(x, y)
    axes.scatter(x, y)
    axes.imshow(fp.Parameter(X) * 1.0)
    assert line.get_xydata().tolist() == [[v, 2 * v] for v in X[0].tolist()]
    assert copy.copy(y) is y and copy.copy(y).sum().backward()[x].tolist() == [2, 2, 2]
    twin = copy.copy(x)
    assert twin is not x and twin.requires_grad and twin.tolist() == x.tolist()
    with raises(fp.GradientError, "deepcopy: only leaves can be copied: made by 'mul'. Use detach()"):
        copy.deepcopy(y)


def test_truth_and_in_are_numpys():
    t = fp.tensor(X)
    for call in (lambda: bool(t), lambda: not t, lambda: t and t, lambda: t in [fp.zeros(2, 3)], lambda: bool(fp.zeros(0))):
        with raises(fp.ShapeError, "bool: the truth of a tensor needs one element: shape (", "x.numpy().any() or .all()", "x is t"):
            call()
    assert t in [t] and bool(fp.tensor([[2]])) and not fp.tensor(0.0)
    for value in (X[0, 1], 5.0, X[1], [9, 9, 9], np.nan, fp.tensor(X[1, 2])):
        assert (value in t) is bool((X == np.asarray(value)).any())
    assert None not in t and True in fp.tensor([False, True]) and 2 not in fp.zeros(0)
    look = fp.capture(lambda x: x * (2.0 if 1.0 in x else 3.0))
    look(t)
    with raises(fp.CaptureError, "reads a number on the host while it is recorded: __contains__()"):
        look(t)
