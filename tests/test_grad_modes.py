"""no_grad() and enable_grad() as decorators of generators: the mode holds while the generator's body runs, and only then. As blocks in
generators and coroutines, which end in any order: afterwards the mode is as it was.

Oracle: PyTorch, which wraps each resume, and what Python says of generators.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from error_text import raises

import flamepy as fp


def follow(api: Any, mode: Any, events: list) -> Any:
    """A generator under `mode` that takes down what it sees; how it is driven decides what that is."""

    @mode()
    def generator(n: int) -> Any:
        try:
            for i in range(n):
                try:
                    got = yield (i, api.is_grad_enabled())
                    events.append(("got", got, api.is_grad_enabled()))
                except KeyError as error:
                    events.append(("caught", error.args, api.is_grad_enabled()))
            return "end"
        finally:
            events.append(("closed", api.is_grad_enabled()))

    return generator


def drive(api: Any, mode: Any) -> list:
    events: list = []
    generator = follow(api, mode, events)
    first = generator(3)
    events.append((generator.__name__, api.is_grad_enabled()))
    events.append((next(first), api.is_grad_enabled()))
    events.append((first.send("a"), api.is_grad_enabled()))
    events.append((first.throw(KeyError("b")), api.is_grad_enabled()))
    try:
        first.send("c")
    except StopIteration as end:
        events.append((end.value, api.is_grad_enabled()))
    second = generator(3)
    next(second)
    second.close()
    third = generator(3)
    next(third)
    with pytest.raises(RuntimeError):
        third.throw(RuntimeError("d"))
    fourth, fifth = generator(2), generator(2)  # in turns
    with api.no_grad():
        events.append((next(fourth), next(fifth), api.is_grad_enabled()))
    events.append((next(fourth), next(fifth), api.is_grad_enabled()))

    fourth.close()
    fifth.close()

    def outer() -> Iterator:
        events.append((yield from generator(1)))

    events.append((list(outer()), api.is_grad_enabled()))
    return events


@pytest.mark.parametrize("mode", ["no_grad", "enable_grad"])
def test_generators_as_in_pytorch(mode: str) -> None:
    torch = pytest.importorskip("torch")
    for outside in (fp.enable_grad, fp.no_grad):
        with outside(), getattr(torch, outside.__name__)():
            ours = drive(fp, getattr(fp, mode))
            assert ours == drive(torch, getattr(torch, mode))
        seen = [event[0][1] for event in ours if isinstance(event[0], tuple)]
        assert len(seen) == 5 and set(seen) == {mode == "enable_grad"}


def test_what_a_generator_computes() -> None:
    x = fp.ones(2, requires_grad=True)

    @fp.no_grad()
    def batches() -> Any:
        for _ in range(2):
            yield x * 2.0

    for y in batches():
        assert not y.requires_grad and (x * 2.0).requires_grad
    with pytest.raises(ZeroDivisionError):
        list(fp.no_grad()(lambda: (yield 1 // 0))())
    assert fp.is_grad_enabled()


@pytest.mark.parametrize("name", ["flamepy", "torch"])
def test_a_decorator_needs_no_parentheses(name: str) -> None:
    api = pytest.importorskip(name)

    @api.no_grad
    def quiet() -> Any:
        """Says what it sees."""
        return api.is_grad_enabled(), loud()

    @api.enable_grad
    def loud() -> Any:
        return api.is_grad_enabled()

    assert quiet() == (False, True) and api.is_grad_enabled() and quiet.__doc__ == "Says what it sees."


def test_coroutines_are_refused() -> None:
    async def waits() -> None:
        pass

    async def yields() -> AsyncIterator[int]:
        yield 1

    for function in (waits, yields):
        with raises(fp.GradientError, "no_grad: a coroutine cannot be decorated", function.__name__):
            fp.no_grad()(function)


# ---- blocks that end in another order than they began ------------------------------------------------------------------------------
async def looking(seconds: float) -> None:
    with fp.no_grad():
        await asyncio.sleep(seconds)
        assert not fp.is_grad_enabled()


async def both() -> None:
    await asyncio.gather(looking(0.002), looking(0.02))


def stopped(mode: Any) -> Iterator[None]:
    with mode:
        yield


def test_coroutines_leave_the_mode_as_it_was() -> None:
    """The one that begins second ends second: what it found at its beginning was the mode of the first."""
    asyncio.run(both())
    assert fp.is_grad_enabled()
    with fp.no_grad():
        asyncio.run(both())
        assert not fp.is_grad_enabled()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_generators_that_stopped_in_a_block_leave_the_mode_as_it_was(order: tuple[int, ...]) -> None:
    """What holds is the newest block that is open; the list of those that are says which."""
    values = [False, True, False]
    generators = [stopped(fp.enable_grad() if value else fp.no_grad()) for value in values]
    for generator in generators:
        next(generator)
    still = dict(enumerate(values))
    for i in order:
        generators[i].close()
        del still[i]
        assert fp.is_grad_enabled() == [True, *still.values()][-1]


def test_a_block_that_ends_in_another_thread_changes_nothing_there() -> None:
    generator = stopped(fp.no_grad())
    thread = threading.Thread(target=next, args=(generator,))
    thread.start()
    thread.join()
    with fp.no_grad():
        generator.close()
        assert not fp.is_grad_enabled()
    assert fp.is_grad_enabled()
