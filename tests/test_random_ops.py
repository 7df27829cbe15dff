"""Whole numbers, permutations, choices and distributions: the same numbers on every device, anew in each replay, again in a checkpoint."""

from __future__ import annotations

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F

DRAWS = {
    "randint": lambda g, d: fp.randint(-3, 9, (2, 3), generator=g, device=d),
    "randperm": lambda g, d: fp.randperm(9, generator=g, device=d),
    "permutation": lambda g, d: fp.permutation(fp.tensor([[1.0], [2.0], [3.0]], device=d), generator=g),
    "bernoulli": lambda g, d: fp.bernoulli(fp.full((6,), 0.5, device=d), generator=g),
    "categorical": lambda g, d: fp.categorical(fp.zeros(4, 3, device=d), generator=g),
    "multinomial": lambda g, d: fp.multinomial(fp.tensor([0.1, 0.2, 0.7], device=d), 2, generator=g),
    "with replacement": lambda g, d: fp.multinomial(fp.tensor([[0.1, 0.2, 0.7]], device=d), 5, True, generator=g),
    "normal": lambda g, d: fp.normal(1.0, 2.0, (3,), generator=g, device=d),
    "exponential": lambda g, d: fp.exponential(2.0, (3,), generator=g, device=d),
    "rand": lambda g, d: fp.rand(3, generator=g, device=d),
    "randn": lambda g, d: fp.randn(3, generator=g, device=d),
    "uniform": lambda g, d: fp.uniform((3,), 1.0, 2.0, generator=g, device=d),
    "dropout": lambda g, d: F.dropout(fp.ones(20, device=d), generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_generator_goes_on_and_goes_back(name):
    g = fp.Generator(5)
    first, state, other = DRAWS[name](g, "plain").numpy(), g.get_state(), [DRAWS[name](g, "plain").numpy() for _ in range(4)]
    assert any(not np.array_equal(first, x) for x in other)
    g.set_state(state)
    assert all(np.array_equal(DRAWS[name](g, "plain").numpy(), x) for x in other)
    assert np.array_equal(DRAWS[name](g.manual_seed(5), "plain").numpy(), first) and g.initial_seed() == 5


@pytest.mark.parametrize("name", DRAWS)
def test_devices_draw_the_same(name):
    plain, cpu = (DRAWS[name](fp.Generator(7), device).numpy() for device in ("plain", "cpu"))
    assert plain.dtype == cpu.dtype
    np.testing.assert_allclose(plain, cpu, 1e-5)


def test_the_thread_has_its_own_numbers():
    fp.manual_seed(3)
    before, g = fp.get_rng_state(), fp.Generator(3)
    fp.rand(4, generator=g)
    assert fp.get_rng_state() == before and g.get_state()["stream"] == 1


def test_shares_are_as_asked_for():
    fp.manual_seed(0)
    many, p = 20000, np.array([0.1, 0.2, 0.7])
    found = {
        "categorical": fp.categorical(fp.tensor(np.tile(np.log(p), (many, 1)), device="plain")).numpy(),
        "first of two": fp.multinomial(fp.tensor(np.tile(p, (many, 1)), device="plain"), 2).numpy()[:, 0],
        "replaced": fp.multinomial(fp.tensor(p * 5, device="plain"), many, replacement=True).numpy(),
    }
    for name, ids in found.items():
        np.testing.assert_allclose(np.bincount(ids, minlength=3) / many, p, atol=0.015, err_msg=name)
    whole = fp.randint(10, (many,), device="plain").numpy()
    assert np.abs(np.bincount(whole) / many - 0.1).max() < 0.01 and (whole.min(), whole.max()) == (0, 9)
    assert sorted(fp.randperm(50).tolist()) == list(range(50)) and fp.randperm(3, dtype=fp.int32).dtype == fp.int32
    two = fp.multinomial(fp.ones(5, device="plain"), 5).tolist()
    assert sorted(two) == [0, 1, 2, 3, 4]
    assert abs(fp.exponential(2.0, (many,), device="plain").numpy().mean() - 2) < 0.1


def test_gradients_reach_the_parameters_of_a_distribution():
    mean, std = (fp.tensor([1.0, 2.0], requires_grad=True, device="plain") for _ in range(2))
    g = fp.Generator(1)
    grads = fp.normal(mean, std, generator=g).sum().backward()
    noise = fp.normal(0.0, 1.0, (2,), generator=g.manual_seed(1), device="plain").numpy()
    p = fp.full((3,), 0.5, requires_grad=True, device="plain")
    assert fp.bernoulli(p).sum().backward()[p].tolist() == [0, 0, 0] and not fp.multinomial(p, 2).requires_grad
    assert np.array_equal(grads[mean].numpy(), [1, 1]) and np.allclose(grads[std].numpy(), noise)


def test_replays_draw_anew():
    g, x = fp.Generator(2), fp.ones(4, device="plain")
    eager = [
        ((x * fp.rand(4, generator=g, device="plain")).numpy(), fp.randint(99, (3,), generator=g, device="plain").numpy()) for _ in range(7)
    ]
    step = fp.capture(lambda x: (x * fp.rand(4, generator=g, device="plain"), fp.randint(99, (3,), generator=g, device="plain")))
    g.manual_seed(2)
    for a, b in eager:
        y, n = step(x)
        assert np.array_equal(y.numpy(), a) and np.array_equal(n.numpy(), b)


def test_a_checkpoint_draws_again():
    g, w = fp.Generator(2), fp.ones(50, requires_grad=True, device="plain")

    def block(x):
        return F.dropout(x, 0.5, generator=g) * fp.rand(50, generator=g, device="plain")

    found = []
    for run in (block, lambda x: fp.checkpoint(block, x)):
        g.manual_seed(2)
        found.append((run(w * 1).sum().backward()[w].numpy(), g.get_state()))
    assert np.array_equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fp.randint(3, 3, (2,)), "randint: no numbers to choose from: 3 up to 3"),
        (lambda: fp.randint(3, (2, -1)), "randint: "),
        (lambda: fp.randperm(-1), "randperm: below 0"),
        (lambda: fp.bernoulli([0.5, 1.5]).numpy(), r"bernoulli: no probability: element \(1,\) is not from 0 to 1"),
        (lambda: fp.normal(1.0, 2.0), "normal: no size"),
        (lambda: fp.normal(1.0, -2.0, (2,)), "normal: std is below 0"),
        (lambda: fp.multinomial([1.0, 2.0], 3), "multinomial: cannot draw 3 from"),
        (lambda: fp.multinomial([1.0, -2.0], 1).numpy(), "multinomial: no probability"),
        (lambda: fp.multinomial([1.0, np.inf], 2, True).numpy(), r"multinomial: no probability: element \(1,\)"),
        (lambda: fp.multinomial(np.full(2, 1e308), 2, True).numpy(), r"multinomial: no probability: element \(0,\)"),
        (lambda: fp.Generator(1).set_state({}), "Generator.set_state: not a state"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_multinomial_refuses_rows_that_cannot_give_as_many() -> None:
    with raises(ValueError, "multinomial: too few that can be drawn: 0 above 0 in row (0,), 1 needed"):
        fp.multinomial(fp.tensor([0.0, 0.0], device="plain"), 1)
    with raises(ValueError, "multinomial: too few that can be drawn: 1 above 0 in row (1,), 2 needed"):
        fp.multinomial(fp.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], device="plain"), 2)
    assert fp.multinomial(fp.tensor([0.0, 1.0], device="plain"), 3, replacement=True).tolist() == [1, 1, 1]
