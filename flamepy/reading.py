"""What other libraries read of a Tensor beside what core/methods.py has: NumPy's functions, DLPack; the habits of PyTorch's users."""

from __future__ import annotations

import sys
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from .advice import ADVICE
from .backend.base import Buffer, Device
from .backend.lending import lend
from .bus import heard
from .core.methods import CoreMethods
from .core.op import PUBLIC
from .core.tape import file_line, user_frame
from .core.tensor import Tensor
from .engine.backward import was_reached
from .errors import DTypeError, ShapeError, warn
from .gradient import GradientMap
from .tensor_grad import TensorGradExt

# NumPy's functions that stand for an operator, with the method that does it; those that have another name here.
OPERATORS = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__", "power": "__rpow__",
    "matmul": "__rmatmul__", "floor_divide": "__rfloordiv__", "remainder": "__rmod__",
    "less": "__gt__", "less_equal": "__ge__", "greater": "__lt__", "greater_equal": "__le__",
    "equal": "__eq__", "not_equal": "__ne__", "bitwise_and": "__rand__", "bitwise_or": "__ror__",
}  # fmt: skip
NAMES = {"subtract": "sub", "multiply": "mul", "divide": "div", "power": "pow", "negative": "neg", "absolute": "abs", "rint": "round"}
_owner = SimpleNamespace(buffer=object())
ALONE = sys.getrefcount(_owner.buffer)  # the count of a buffer that only one tensor holds
hinted: set[str] = set()  # hints that were given in this process, or that nobody needs: each comes once


def hint_at_map(t: Any) -> None:
    """Say once that gradients are in a map, to whoever looks for this tensor's, which backward() has computed, elsewhere."""
    if "grad" not in hinted and was_reached(t):
        hinted.add("grad")
        text = "grad: backward() fills no .grad, it returns the gradients: grads = loss.backward(). Use grads[w] and optimizer.step(grads)."
        warn(text)


# What flamepy's own files use of a Tensor.
INTERNAL = {
    "as_cotangent", "broken", "buffer", "copied_into", "entry", "held", "hooks", "is_parameter", "label", "mark", "no_pair", "replaced",
    "scaled", "put_in", "of", "ones_cotangent", "origin",
    "slot", "spec", "unit", "zero_gradient",
}  # fmt: skip


class StateArray(np.ndarray):
    """A parameter's numbers in a state_dict(): a NumPy array that also answers to a Tensor's names for reading."""

    def numpy(self) -> np.ndarray:
        return self.view(np.ndarray)

    def detach(self) -> StateArray:
        return self

    def clone(self) -> StateArray:
        return self.copy()

    def cpu(self) -> StateArray:
        return self

    def numel(self) -> int:
        return self.size

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        """What is computed from it is a plain array or number."""
        return array[()] if return_scalar else array.view(np.ndarray)


class Readable(TensorGradExt, CoreMethods):
    """The methods of Tensor that hand its numbers to other libraries, and those that PyTorch has beside core's."""

    if TYPE_CHECKING:
        buffer: Buffer
        device: Device

        def backward(self, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False) -> GradientMap: ...

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy arrays leave operators with a Tensor to the Tensor; NumPy's own functions are refused."""
        name = ufunc.__name__
        plain = method == "__call__" and not options
        if plain and name in OPERATORS and inputs[1] is self and not isinstance(inputs[0], Tensor):
            return getattr(self, OPERATORS[name])(inputs[0])
        own = NAMES.get(name, name)
        own = f"fp.{own}(...), or " if plain and own in PUBLIC else ""
        raise DTypeError(f"numpy.{name}: does not take a Tensor: shape {self.shape}. Use {own}t.numpy() for NumPy's.")

    def __dlpack__(self, **options: Any) -> Any:
        """The numbers for another library: the memory itself where no tape, Parameter or other tensor holds it, else a copy, marked as
        read-only, since what others write into it is nothing to anyone here. `copy=False` raises BufferError in place of a copy."""
        heard(None, (self,), None)
        self.device.stream.shared(self.buffer)
        shared = self.requires_grad or hasattr(self, "set_grad") or sys.getrefcount(self.buffer) > ALONE
        if not shared and not weakref.getweakrefcount(self.buffer):
            memory = self.device.dlpack(self.buffer, self.shape)  # which may refuse
            lend(self.buffer, file_line(user_frame()))
            return memory.__dlpack__(**options)
        if options.pop("copy", None) is False:
            raise BufferError(f"dlpack: a tape, a Parameter or another tensor holds the memory: shape {self.shape}. Use detach().clone().")
        copied = self.device.stream.copied(self.buffer)
        array = self.device.dlpack(copied, self.shape)
        if isinstance(array, np.ndarray):
            array.flags.writeable = options.get("max_version") is None  # before DLPack 1.0 nobody could be told
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack(self.buffer, self.shape).__dlpack_device__()  # type: ignore[no-any-return]

    @property
    def __cuda_array_interface__(self) -> Any:
        """What Numba, CuPy and PyTorch read of memory on a GPU. Writes of theirs are not noticed: use DLPack where they write."""
        heard(None, (self,), None)
        self.device.stream.shared(self.buffer)
        return self.device.array_interface(self.buffer, self.shape)

    to_scalar = CoreMethods.item

    def __format__(self, form: str) -> str:
        if form and self.size != 1:
            raise ShapeError(f"format: '{form}' needs one element: shape {self.shape}. Format one of .tolist(), or print it without.")
        return format(self.item(), form) if form else str(self)

    def __round__(self, digits: int | None = None) -> Any:
        if self.size != 1:
            raise ShapeError(f"round: needs one element: shape {self.shape}. Use flamepy.round(x) for each, or numpy.round(x.numpy(), n).")
        return round(self.item(), digits)

    def numel(self) -> int:
        """How many elements: the same as .size."""
        return self.spec.size  # type: ignore[no-any-return]

    def dim(self) -> int:
        """How many axes: the same as .ndim."""
        return len(self.shape)

    @property
    def grad(self) -> Any:
        """None, but for what was set with Parameter.set_grad(): backward() returns its gradients."""
        hint_at_map(self)
        return None

    def __dir__(self) -> list[str]:
        """The names that are public, for completion."""
        known = [n for n in object.__dir__(self) if n not in INTERNAL and (n[0] != "_" or n.startswith("__"))]
        return [n for n in known if n not in ADVICE["Tensor"] or hasattr(type(self), n)]
