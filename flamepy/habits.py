"""Other libraries' habits: `dim`, `keepdim` and the like are taken for `axis` and `keepdims`, by ops and by functions composed of them;
x.size(); add(alpha=)."""

from __future__ import annotations

import functools
import sys
from typing import Any

from .core.door import Door
from .core.dtypes import check_flag
from .core.errors import DTypeError, IndexOutOfRange
from .core.op import SCALARS
from .core.spec import Spec
from .core.tensor import Tensor, attach
from .dtypes import is_number

ALIASES = {"dim": "axis", "keepdim": "keepdims"}  # as PyTorch calls them
SPELT = {  # the same and less frequent ones: what each may stand for
    **{new: (old,) for new, old in ALIASES.items()}, "dims": ("axis", "axes"), "start_dim": ("start_axis",), "end_dim": ("end_axis",),
    "dim0": ("axis0",), "dim1": ("axis1",), "dim2": ("axis2",), "shifts": ("shift",), "diagonal": ("k",), "offset": ("k",),
    "unbiased": ("correction",), "chunks": ("pieces",), "split_size": ("sizes",), "split_size_or_sections": ("sizes",),
    "query": ("q",), "key": ("k",), "value": ("v",),
}  # fmt: skip
IGNORED = {"out", "dtype"}  # numpy.sum(x) passes them to x.sum(), None where its caller gave none
SCALED = {"add", "sub"}  # ops that take PyTorch's alpha=, which the second input is multiplied by


def spoken(op: Any, args: tuple, options: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Arguments of an op, options by the names that it has for them; without those that say nothing to an op that could take them by
    name."""
    found = {}
    if op.name in SCALED and len(args) == 2:
        for key in options.keys() - {"alpha"}:
            raise TypeError(f"{op.name}: unknown option: {key}={options[key]!r}. Known: alpha.")
        alpha = options["alpha"]
        if not is_number(alpha):
            raise DTypeError(f"{op.name}: alpha is no number: {alpha!r}. Use a float or an int.")
        a, b = args
        if not isinstance(b, SCALARS):
            b = Tensor.of(op.name, b, a.device if isinstance(a, Tensor) else None)
        args, options = (a, b * alpha), {}
    for key, value in options.items():
        own = next((name for name in SPELT.get(key, ()) if name in op.attributes and key not in op.attributes), key)
        if own in op.attributes or own in op.named or value is not None or key not in IGNORED or not op.named:
            if own in found:
                raise given_twice(op.name, own, options)
            found[own] = value
    return args, found


def composed(name: str, function: Any) -> Any:
    """A function composed of ops that takes these names, too, if it has what they stand for; what is yes or no has to be that."""
    code, defaults = function.__code__, function.__defaults__ or ()
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    own = {new: old for new, olds in SPELT.items() for old in olds if old in taken and new not in taken}
    flags = [(i, taken[i], d) for i, d in enumerate(defaults, code.co_argcount - len(defaults)) if type(d) is bool]
    flags += [(sys.maxsize, key, d) for key, d in (function.__kwdefaults__ or {}).items() if type(d) is bool]  # never by position
    if not own and not flags:
        return function

    first = min([i for i, _, _ in flags], default=sys.maxsize)

    @functools.wraps(function)
    def renaming(*args: Any, **options: Any) -> Any:
        if not options and len(args) <= first:
            return function(*args)
        if options:
            given, options = options, {}
            for key, value in given.items():
                if value is not None or key not in IGNORED:
                    if (known := own.get(key, key)) in options:
                        raise given_twice(name, known, given)
                    options[known] = value
        for i, key, default in flags:
            value = args[i] if i < len(args) else options.get(key, default)
            if type(value) is not bool and (value is not None or default):
                check_flag(name, key, value)
        return function(*args, **options)

    return called(renaming, name)


def called(function: Any, name: str) -> Any:
    """The function, under the name that errors and tracebacks are to call it by."""
    function.__code__ = function.__code__.replace(co_name=name)
    return function


def given_twice(name: str, key: str, given: dict[str, Any]) -> TypeError:
    """The error for an option that has a value under two names."""
    return TypeError(f"{name}: {key} is given twice: {', '.join([f'{k}={v!r}' for k, v in given.items()])}. Give it once.")


Door.spoken, Door.composed = staticmethod(spoken), staticmethod(composed)


class Count(int):
    """How many elements a tensor has. Called, as PyTorch's x.size(), it gives the shape, or the size of one axis."""

    axes: tuple[int, ...]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """For NumPy an int like any other: a subclass would make float64 of float32."""
        return getattr(ufunc, method)(*[int(x) if type(x) is Count else x for x in inputs], **options)

    def __call__(self, dim: int | None = None) -> Any:
        if dim is None:
            return self.axes
        try:
            return self.axes[dim]
        except IndexError:
            raise IndexOutOfRange(f"size: no such axis: {dim}, shape {self.axes}. Use 0 to {len(self.axes) - 1}.") from None


class Counted:
    """What specs have for x.size."""

    @property
    def count(self: Any) -> Count:
        found = Count(self.size)
        found.axes = self.shape
        return found


attach(Counted, to=Spec)
