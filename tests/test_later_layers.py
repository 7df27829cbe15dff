"""Layers that are put into a model after its optimizer was made: told once, unless somebody trains them."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import flamepy as fp
from flamepy import nn

MAKE: dict[str, Callable[[Any], Any]] = {
    "model": fp.AdamW, "by name": lambda m: fp.ByName(m, {"*": (fp.SGD, {"lr": 0.1})}), "params": lambda m: fp.AdamW(m.params),
}  # fmt: skip


def messages(optimizers: list[Any], model: Any, change: Callable[[], Any], way: str = "map", pack: bool = False) -> list[str]:
    """What is told in six steps, with a change after the second."""
    model.params.pack() if pack else None

    def step(x: Any) -> Any:
        loss = (model(x) ** 2).sum()
        grads = loss.backward()
        for o in optimizers:
            if way == ".grad":
                model.params.set_grads(grads)
            o.step(None if way == ".grad" else grads)
        return loss

    run = fp.capture(step) if way == "captured" else step
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(6):
            if i == 2:
                change()
            run(fp.ones(1, 2))
    return [str(w.message) for w in told]


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("make, way", [("model", "map"), ("model", ".grad"), ("model", "captured"), ("by name", "map"), ("params", "map")])
def test_a_layer_put_in_later_is_told_once(make, way, pack):
    m = nn.Sequential(nn.Linear(2, 2))
    told = messages([MAKE[make](m)], m, lambda: m.append(nn.Linear(2, 2)), way, pack)
    assert len(told) == 1 and "a parameter was put into its model later: 1.weight. It is not trained" in told[0], told


def test_a_parameter_where_there_was_none_is_told():
    m = nn.Sequential(nn.Linear(2, 2, bias=False))
    told = messages([fp.SGD(m, lr=0.1)], m, lambda: setattr(m[0], "bias", fp.Parameter(np.ones(2, "f4"))))
    assert len(told) == 1 and "later: 0.bias. " in told[0], told


def test_what_somebody_trains_or_nobody_should_is_not_told():
    def case(make: Callable[[Any], list[Any]], change: Callable[[Any, list[Any]], Any]) -> None:
        m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        optimizers = make(m)
        assert messages(optimizers, m, lambda: change(m, optimizers)) == []

    def frozen(m: Any, _: Any) -> None:
        m.append(nn.Linear(2, 2))
        m.freeze("2.*")

    def other_optimizer(m: Any, optimizers: list[Any]) -> None:
        m.append(nn.Linear(2, 2))
        optimizers.append(fp.SGD(m[2], lr=0.1))

    def group(m: Any, optimizers: list[Any]) -> None:
        m.append(nn.Linear(2, 2))
        optimizers[0].add_param_group({"params": m[2].parameters()})

    def nothing(*_: Any) -> None:
        pass

    def append(m: Any, _: Any) -> None:
        m.append(nn.Linear(2, 2))

    def two(m: Any) -> list[Any]:
        return [fp.SGD(m[0], lr=0.1), fp.Adam(m[1])]

    def whole(m: Any) -> list[Any]:
        return [fp.SGD(m, lr=0.1)]

    for change in (frozen, other_optimizer, group, nothing):
        case(whole, change)
    case(two, nothing)
    case(two, append)  # into neither of the parts
    case(lambda m: [fp.SGD(m[0], lr=0.1)], nothing)
    case(lambda m: [fp.SGD(m.parameters(), lr=0.1)], append)
    case(lambda m: copy.deepcopy([fp.SGD(m, lr=0.1)]) and [fp.SGD(m[1], lr=0.1)], nothing)


def test_it_is_told_when_a_frozen_layer_is_unfrozen_and_the_model_is_not_kept_alive():
    m = nn.Sequential(nn.Linear(2, 2))
    o = fp.SGD(m, lr=0.1)
    m.append(nn.Linear(2, 2))
    m.freeze("1.*")
    told = messages([o], m, partial(m.unfreeze, "1.weight"))
    assert len(told) == 1 and told[0].startswith("SGD: a parameter was put into its model later: 1.weight.")
    seen = weakref.ref(m)
    del m
    gc.collect()
    assert seen() is None and o.params
