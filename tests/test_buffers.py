"""Buffers of modules: in the state, not trained, written in place in memory of their own."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import nn


def given():
    return fp.tensor(np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3), device="plain")


class Scaled(nn.Module):
    def __init__(self):
        self.layer = nn.Linear(3, 2, device="plain")
        self.register_buffer("scale", fp.tensor([2.0, 3.0], device="plain"))
        self.register_buffer("seen", [7], persistent=False)
        self.register_buffer("nothing", None)

    def forward(self, x):
        return self.layer(x) * self.scale


def test_buffers_are_in_the_state_and_are_not_trained():
    m = nn.Sequential(Scaled())
    m.last = m(given())  # a result that somebody keeps is no buffer
    assert list(m.state_dict()) == ["0.layer.weight", "0.layer.bias", "0.scale"] == [*m.params, "0.scale"]
    assert [n for n, _ in m.named_buffers()] == ["0.scale", "0.seen"] and m.buffers()[0] is m[0].scale
    other = nn.Sequential(Scaled())
    state = {**m.state_dict(), "0.scale": np.array([5.0, 6.0])}
    other.load_state_dict(state)
    assert other[0].scale.tolist() == [5, 6] and other[0].scale.dtype == fp.float32 and other[0].scale.device == "plain"
    assert np.allclose(other(given()).numpy(), m(given()).numpy() / [2, 3] * [5, 6])
    before = other.state_dict()
    for change, error, words in (
        ({"0.scale": np.ones(3)}, fp.ShapeError, "'0.scale'"), ({"more": np.ones(1)}, fp.StateError, "unknown ['more']"),
        ({"0.layer.weight": np.ones(3)}, fp.ShapeError, "'0.layer.weight'"),
    ):  # fmt: skip
        with raises(error, "load_state_dict: ", words):
            other.load_state_dict({**m.state_dict(), "0.scale": np.zeros(2), **change})
        assert all(np.array_equal(v, before[n]) for n, v in other.state_dict().items())
    del state["0.scale"]
    with raises(fp.StateError, "missing ['0.scale']"):
        other.load_state_dict(state)
    other.load_state_dict(state, strict=False)
    for twin in (copy.deepcopy(other), pickle.loads(pickle.dumps(nn.Sequential(nn.Flatten())))):
        twin.register_buffer("late", np.ones(2))
        assert twin.named_buffers()[0][0] == "late" and not hasattr(other, "late")


def test_what_is_no_buffer_is_refused():
    m = Scaled()
    for name, value, words in (
        ("scale", [1.0], "not a free name"),
        ("forward", [1.0], "not a free name"),
        ("a.b", [1.0], "not a free name"),
    ):
        with raises(fp.StateError, "register_buffer: ", words):
            m.register_buffer(name, value)
    with raises(fp.StateError, "register_buffer: it requires grad"):
        m.register_buffer("w", fp.Parameter(np.ones(2)))
    with raises(fp.DTypeError, "Scaled: a list in the place of a buffer: attribute 'scale'"):
        m.scale = [1.0, 2.0]
    m.scale = fp.ones(2, device="plain")
    assert m.state_dict()["scale"].tolist() == [1, 1]
    m.scale = None
    assert "scale" not in m.state_dict()


def test_a_name_is_a_buffer_until_it_is_deleted_or_a_parameter():
    m = nn.Sequential(nn.Linear(3, 4, device="plain"))
    m.register_buffer("b", [1.0])
    del m.b
    assert m.buffers() == [] and "b" not in m.state_dict()
    m.b = [1.0]  # the name is free
    del m.b
    m.register_buffer("b", [1.0])
    m.b = fp.Parameter([2.0])
    assert m.buffers() == [] and m.named_parameters()[0][0] == "b" and m.state_dict()["b"].tolist() == [2]


def test_a_buffer_is_written_in_place_in_memory_of_its_own():
    m, zeros = Scaled(), fp.zeros(2, device="plain")
    seen = zeros.detach()
    m.scale = zeros
    held = m.scale
    m.scale.set_data([4, 5])
    assert m.scale is held is zeros and held.tolist() == [4, 5] and seen.tolist() == [0, 0] and type(seen) is fp.Tensor
    m.load_state_dict({**m.state_dict(), "scale": np.ones(2)})
    assert m.scale is held and held.tolist() == [1, 1]
    with raises(fp.ShapeError, "set_data: shape differs for scale: expected (2,), got (3,)"):
        m.scale.set_data(np.ones(3))
    loss = m(given()).sum()
    m.scale.set_data([0, 0])
    with raises(fp.VersionError, "written by set_data of scale"):
        loss.backward()
    twin = copy.deepcopy(m)
    twin.scale.set_data([7, 7])
    assert m.scale.tolist() == [0, 0] and twin.scale.tolist() == [7, 7]
    with pytest.raises(AttributeError, match="no such name: 'set_data'"):
        seen.set_data([1, 1])
    m.scale = m.layer(given())[0]  # with a tape: backward() may need it
    assert type(m.scale) is fp.Tensor and m.scale.requires_grad
