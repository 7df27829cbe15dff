"""Who counts as overwritten: exactly what somebody wrote, packed or not, by hand, by an optimizer or by a replay.

Oracle: sets. A loss saves some parameters, a write changes some; backward refuses when the two meet, and else gives the gradient
2 p of the numbers the loss saw.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp

NAMES = "abcd"
SOME = st.sets(st.sampled_from(NAMES), min_size=1)


def dictionary(names, device="plain", dtype="float32", pack=True):
    found = fp.ParameterDict()
    for i, name in enumerate(names):
        found.insert(name, fp.Parameter(fp.tensor(np.arange(1.0, 2.0 + i), dtype=dtype, device=device)))
    return found.pack() if pack else found


def squares(params, names):
    """A loss that saves these parameters and has gradient 2 p."""
    return sum(((params[n].to(fp.float32) * params[n].to(fp.float32)).sum() for n in sorted(names)), 0.0)


def by_captured(params, names):
    """What a replay writes; the calls before it write too."""
    optimizer = fp.SGD([params[n] for n in sorted(names)], lr=0.5)

    def step():
        loss = squares(params, names)
        optimizer.step(loss.backward())
        return loss

    replay = fp.capture(step)
    replay()
    replay()
    return replay


WRITES = {
    "set_data": lambda params, names: lambda: [params[n].set_data(params[n].numpy() + 1.0) for n in names],
    "apply_update": lambda params, names: lambda: [params[n].apply_update(np.ones(params[n].shape)) for n in names],
    "update": lambda params, names: lambda: [(params[n].set_grad(np.ones(params[n].shape)), params[n].update(0.5)) for n in names],
    "load_state_dict": lambda params, names: lambda: params.load_state_dict({n: params[n].numpy() + 1.0 for n in names}, strict=False),
    "SGD of all, gradients of some": lambda params, names: partly(fp.SGD(params, lr=0.5), params, names),
    "SGD of some": lambda params, names: partly(fp.SGD([params[n] for n in sorted(names)], lr=0.5), params, names),
    "AdamW of all, gradients of some": lambda params, names: partly(fp.AdamW(params, lr=0.5), params, names),
    "a replay": by_captured,
}


def partly(optimizer, params, names):
    return lambda: optimizer.step(squares(params, names).backward())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("write", WRITES)
@settings(max_examples=12, deadline=None)
@given(saved=SOME, written=SOME, pack=st.booleans())
def test_backward_refuses_exactly_when_a_saved_parameter_was_written(write, dtype, saved, written, pack):
    params = dictionary(NAMES, dtype=getattr(fp, dtype), pack=pack)
    act = WRITES[write](params, written)
    loss = sum(((params[n] * params[n]).to(fp.float32).sum() for n in sorted(saved)), 0.0)
    wanted = {n: 2.0 * params[n].numpy().astype(np.float64) for n in saved}
    act()
    if saved & written:
        with pytest.raises(fp.VersionError, match="backward: a saved value was overwritten") as raised:
            loss.backward()
        assert any(f"({n}, shape" in str(raised.value) for n in saved & written)
    else:
        grads = loss.backward()
        assert all(np.array_equal(grads[params[n]].numpy(), wanted[n]) for n in saved) and len(grads) == len(saved)


def test_a_frozen_parameter_of_a_packed_model_is_not_written_by_a_step_of_the_others():
    params = dictionary(NAMES, device="cpu")
    params.freeze("b")
    x = fp.tensor([3.0, 4.0], requires_grad=True)
    loss = (params["b"] * x).sum()
    fp.SGD(params, lr=0.5).step(squares(params, "acd").backward())
    assert loss.backward()[x].tolist() == [1.0, 2.0]


# ---- packed again ------------------------------------------------------------------------------------------------------------
MAKE = [lambda p: fp.SGD(p, lr=0.1, momentum=0.9), lambda p: fp.AdamW(p, lr=0.1)]


def stepped(optimizer, params, times):
    for _ in range(times):
        grads = squares(params, list(params)).backward()
        fp.clip_grad_norm(grads, 1.0)
        optimizer.step(grads)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("make", MAKE)
@settings(max_examples=8, deadline=None)
@given(first=st.integers(1, 3), between=st.integers(0, 2), stale=st.booleans())
def test_a_dictionary_packs_again_with_what_was_inserted_since(make, dtype, first, between, stale):
    """Packed in two goes, with an optimizer that has state, as never packed: bit for bit."""
    results = []
    for pack in (False, True):
        params = dictionary(NAMES[:first], dtype=getattr(fp, dtype), pack=pack)
        optimizer = make(params)
        stepped(optimizer, params, between)
        old = squares(params, list(params)).backward() if stale else None
        p = fp.Parameter(fp.tensor([5.0, -6.0], dtype=getattr(fp, dtype), device="plain"))
        params.insert("new", p)
        optimizer.adopt(p)
        if pack:
            span, ids = params["a"].buffer.root, [q.id for q in params.parameters()]
            assert params.pack() is params and params.pack() is params
            assert {q.buffer.root for q in params.parameters()} == {p.buffer.root} and p.buffer.root is not span
            assert span.retired == "pack()" and [q.id for q in params.parameters()] == ids
        if old is not None:  # a map from before the move
            optimizer.step(old)
        stepped(optimizer, params, 2)
        rows = {n: {k: np.asarray(v).tobytes() for k, v in row.items()} for n, row in optimizer.state_dict()["state"].items()}
        results.append(({n: q.numpy().tobytes() for n, q in params.named_parameters()}, rows))
    assert results[0] == results[1]


def test_a_captured_step_knows_that_its_span_moved():
    params = dictionary("ab")
    optimizer = fp.AdamW(params, lr=0.1)

    def step():
        loss = squares(params, "ab")
        optimizer.step(loss.backward())
        return loss

    replay = fp.capture(step)
    losses = [replay().item() for _ in range(3)]
    params.insert("c", fp.Parameter(fp.ones(2, device="plain")))
    params.pack()
    before = params.state_dict()
    with pytest.raises(fp.CaptureError, match=r"memory was moved .* by pack\(\)"):
        replay()
    assert all(np.array_equal(before[n], p.numpy()) for n, p in params.named_parameters())
    again = fp.capture(step)
    assert again().item() < losses[-1]


def test_a_span_that_holds_parameters_of_another_dictionary_stays():
    params = dictionary("ab")
    other = fp.ParameterDict({"a": params["a"], "z": fp.Parameter(fp.ones(2, device="plain"))})
    with pytest.raises(fp.StateError, match=r"pack: already packed in another ParameterDict: 'a', beside 'b'.*Pack one"):
        other.pack()
    assert other["z"].buffer.root is None and params["a"].buffer.root is params["b"].buffer.root


def test_a_model_with_a_layer_replaced_packs_again():
    model = fp.nn.Sequential(fp.nn.Linear(2, 3, device="plain"), fp.nn.Linear(3, 2, device="plain"))
    span = model.params.pack()["0.weight"].buffer.root
    setattr(model, "1", fp.nn.Linear(3, 4, device="plain"))
    homes = {p.buffer.root for p in model.params.pack().parameters()}
    assert len(homes) == 1 and not homes & {None, span} and homes.pop().size == 9 + 16
