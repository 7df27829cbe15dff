"""How tensors go through pickle and copy.deepcopy: their numbers as a NumPy array, the name of their device, their id (ids.py).

Everything else that can be pickled is made of tensors: a ParameterDict that was packed packs again, an optimizer keeps its moments as
arrays, a GradientMap its keys as the Keys of ids.py. Hooks and attributes that users gave a tensor go along. What has a tape cannot.
A dictionary of a user's follows the copies if its keys are the parameters themselves; ids in it stay numbers. This is for users' own
pickling, e.g. to send a model to another process; flamepy's own files hold no pickle.
"""

from __future__ import annotations

import copy
import copyreg
from typing import Any

import numpy as np

from . import ids
from .backend.base import Device
from .bus import changed
from .core import ids as next_ids
from .core.custom import Custom
from .core.door import Door
from .core.errors import GradientError
from .dtypes import DTYPES

OWN = frozenset(
    ("buffer", "spec", "id", "entry", "slot", "unit", "broken", "no_pair", "replaced", "held")
)  # made anew, or of no use elsewhere
DTYPE: dict[Any, Any] = {dtype: dtype for dtype in DTYPES}  # an unpickled dtype is equal to ours, but another object


copyreg.pickle(Custom, lambda op: op.body.__name__)  # type: ignore[arg-type]  # the op that has this name in its module


def attributes(name: str, t: Any) -> dict[str, Any]:
    """What a leaf has beside its numbers. Raises GradientError for a tensor that is no leaf."""
    if t.entry is not None:
        raise GradientError(f"{name}: only leaves can be copied: made by '{t.entry.op.title}'. Use detach().")
    return {key: value for key, value in vars(t).items() if key not in OWN}


def reduced(t: Any) -> tuple:
    """What Tensor.__reduce_ex__ returns: a call of made(), and the attributes."""
    state = attributes("pickle", t)
    for hook in t.hooks or ():
        name = getattr(hook, "__qualname__", "")
        if "<" in name:
            label = t.name or f"tensor {t.id}"
            raise GradientError(f"pickle: a hook cannot be pickled: {name} of {label}. Remove it, or use a function of a module.")
    return made, (type(t), t.numpy(), t.device, t.requires_grad, ids.key_of(t.id) if can_be_key(t) else None), state


def can_be_key(t: Any) -> bool:
    """Whether a GradientMap may have a gradient of this leaf."""
    return t.requires_grad or hasattr(t, "set_grad")


def made(cls: Any, array: np.ndarray, device: Device, requires_grad: bool, key: Any) -> Any:
    """A leaf with these numbers. `key`: what its id is in the pickle; None: it gets a new one."""
    array = array.view(DTYPE[array.dtype])
    t = cls.__new__(cls)
    t.buffer, t.spec = device.upload(array), Door.spec(array.shape, array.dtype, device, requires_grad)
    t.id = next_ids.next_id() if key is None else key.of_tensor(t)
    changed(t)
    return t


def shallow(t: Any) -> Any:
    """What Tensor.__copy__ returns: itself for the result of an op, which nobody changes; of a leaf another one."""
    if t.entry is not None:
        return t
    make, arguments, state = reduced(t)
    twin = make(*arguments)
    vars(twin).update(state)
    return twin


def copied(t: Any, memo: dict[int, Any]) -> Any:
    """What Tensor.__deepcopy__ returns."""
    state = attributes("deepcopy", t)
    twin = memo[id(t)] = t.__class__.__new__(t.__class__)
    twin.buffer, twin.spec, twin.id = t.detach().clone().buffer, t.spec, next_ids.next_id()
    if can_be_key(t):
        arrived: Any = copy.deepcopy(ids.key_of(t.id), memo)
        arrived.take(twin.id)
    vars(twin).update(copy.deepcopy(state, memo))
    changed(twin)
    return twin
