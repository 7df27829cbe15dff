"""TrainState: everything a run needs to go on, as one: parameters, optimizer, accumulator, averages, loader, random state.

    state = TrainState(model=model, optimizer=optimizer, accumulator=accumulator, progress=progress)
    state.save("last.safetensors")          # whole or not at all
    state.load("last.safetensors")          # in another process: all of it, or nothing is changed

A member is anything with state_dict() and load_state_dict(), a dict of plain data (restored in place), a function such as a schedule,
which has no state, or None. The position of this thread's random numbers and the versions are always with them.
"""

from __future__ import annotations

import copy
import os
import platform
from typing import Any

from .. import rng
from ..core.errors import DTypeError, StateError
from ..nn import Module
from ..saving import load, save

RANDOM, VERSIONS = "random", "versions"


class TrainState:
    """A bundle of members by name; see state.py. `members` may be read; they are the objects that were given."""

    def __init__(self, **members: Any):
        for name, member in members.items():
            if name in (RANDOM, VERSIONS):
                raise StateError(f"TrainState: a name that it needs itself: '{name}'. Choose another for this {type(member).__name__}.")
            stateless = member is None or isinstance(member, dict) or (callable(member) and not isinstance(member, type))
            if not (has_state(member) or stateless):
                kind = type(member).__name__
                raise DTypeError(
                    f"TrainState: a member without state_dict() and load_state_dict(): '{name}' is a {kind}. Put it into a dict: progress."
                )
        self.members = members

    def state_dict(self) -> dict[str, Any]:
        """Copies of all states by name, and the position of the random numbers under "random"."""
        return {**{name: kept(member) for name, member in self.members.items()}, RANDOM: rng.get_rng_state()}

    def contents(self) -> dict[str, Any]:
        """The same to be written at once: the numbers of models stand as their own tensors, not as copies."""
        return {**{name: shown(member) for name, member in self.members.items()}, RANDOM: rng.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(), of every member. Names are checked first; when a member refuses its state, or anything else happens on the
        way, all members get back what they had, and StateError names the member."""
        if not isinstance(state, dict):
            raise StateError(f"TrainState: not a state: {type(state).__name__}. Pass what state_dict() returned.")
        wanted = [*self.members, RANDOM]
        missing, unknown = [n for n in wanted if n not in state], [n for n in state if n not in wanted]
        if missing or unknown:
            raise StateError(f"TrainState: members differ: missing {missing}, not here {unknown}. Give it the members that were saved.")
        check_random(state[RANDOM])
        before: list[tuple[Any, Any]] = []
        name = ""
        try:
            for name, member in self.members.items():
                before.append((member, kept(member)))
                put(member, state[name])
        except BaseException as error:
            for member, had in reversed(before):
                put(member, had)
            if not isinstance(error, LookupError | TypeError | AttributeError | ValueError | ArithmeticError | RuntimeError):
                raise
            text = " ".join(str(error).split()) or type(error).__name__
            raise StateError(f"TrainState: '{name}' cannot be restored: {text} Nothing was changed.") from error
        rng.set_rng_state(state[RANDOM])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything into one safetensors file, piece by piece, whole or not at all. Raises StateError where that is impossible."""
        save({**self.contents(), VERSIONS: versions()}, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restore what save() wrote: load_state_dict() of the file. The versions that wrote it may be others."""
        state = load(path)
        if VERSIONS not in state:
            raise StateError(f"TrainState: not written by TrainState.save(): {path} holds {list(state)[:5]}. Use flamepy.load().")
        self.load_state_dict({name: value for name, value in state.items() if name != VERSIONS})

    def __repr__(self) -> str:
        return f"TrainState({', '.join([f'{name}: {type(member).__name__}' for name, member in self.members.items()])})"


def has_state(member: Any) -> bool:
    return hasattr(member, "state_dict") and hasattr(member, "load_state_dict") and not isinstance(member, type)


def kept(member: Any) -> Any:
    """A copy of a member's state; of a function what it says of itself, if that is more than where it lies in memory."""
    if has_state(member):
        return copy.deepcopy(member.state_dict())
    if isinstance(member, dict):
        return copy.deepcopy(member)
    text = repr(member)
    return None if member is None else "" if " at 0x" in text else text


def shown(member: Any) -> Any:
    """The same without a copy of a model's numbers."""
    if isinstance(member, Module) and type(member).state_dict is Module.state_dict:
        return dict([*member.params.named_parameters(), *member.named_buffers(persistent=True)])
    return member.state_dict() if has_state(member) else kept(member)


def put(member: Any, state: Any) -> None:
    """Restore one member."""
    if has_state(member):
        member.load_state_dict(state)
    elif isinstance(member, dict):
        if not isinstance(state, dict):
            raise StateError(f"the state is no dict: {type(state).__name__}.")
        found = copy.deepcopy(state)
        member.clear()
        member.update(found)
    elif kept(member) != state:
        raise StateError(f"another one was saved: {state}, here {kept(member)}.")


def check_random(state: Any) -> None:
    """Raise StateError unless this is a position of random numbers."""
    whole = isinstance(state, dict) and set(state) == {"seed", "stream", "step"}
    if not whole or not all([type(n) is int and 0 <= n < 2**63 for n in state.values()]):
        raise StateError(f"TrainState: no position of random numbers: {RANDOM} is {str(state)[:80]}. Restore what was saved.")


def versions() -> dict[str, str]:
    """What this runs on."""
    from importlib.metadata import version

    from .. import __version__

    return {"flamepy": __version__, "python": platform.python_version(), **{n: version(n) for n in ("numpy", "numba")}}
