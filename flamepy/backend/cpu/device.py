"""The CPU: buffers are aligned NumPy arrays, kernels are Numba dispatchers, freed blocks are kept for the next launch.

A launcher (beside its loops, in one file a family) turns what an op says into launches: which loops, in how many tasks, with what
scratch. A kernel runs on one thread or on all of them (parallel.py), as the number of elements says. Loops split work by sizes only,
never by the number of threads: same sizes, same bits. Numba is imported at the first launch, not at `import flamepy`, and threads
start at the first parallel one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from struct import Struct, error
from typing import Any

import numpy as np

from ...core.errors import DeviceError, DTypeError
from ...core.formula import globals_of
from ...dtypes import FULL, HALF, INTEGERS, bfloat16, bool_, computed, float16, float64, int64
from ..base import Buffer, Chain, Copied, Device, Kernel
from ..formula.bind import bind, making_kernel, reached
from ..host import FEW, HostStream
from ..run import Action, OnArrays, Required, Run, Spot, Step
from .runtime import chain, family, memory, settings
from .runtime.memory import ALIGN, APART, WHOLE, allocator, stored
from .runtime.settings import threads

# Elements of work below which one thread is faster than waking the others. Measured: 21,000 for an addition, 2,600 for gelu, 4,000 for
# a softmax; so a formula with a costly word takes COSTLY_SHARE times fewer.
GRAIN = 16384
COSTLY_SHARE = 4
COSTLY = {
    "bell", "cos", "erf", "exp", "exp2", "exp_down", "expm1", "log", "log10", "log1p", "log2", "normal_tail", "pow", "sin", "tanh",
}  # fmt: skip
MOVES = frozenset(
    ("strided_get", "strided_put", "surround", "take_rows", "take_along", "put_along", "tri")
)  # launches that move numbers without looking at them
FAMILIES = (
    "loops.channels", "loops.remainders",
    "loops.maps", "loops.broadcast", "loops.reduce", "loops.rows", "loops.index", "loops.spans", "loops.random", "loops.scan",
    "loops.order", "products.matmul", "attention.attention", "conv.conv", "conv.pooling", "conv.tables", "conv.grids", "recurrent",
)  # fmt: skip


class CpuKernel:
    """One loop bound to one formula and dtype, compiled at its first launch; `wide`: runs on all threads."""

    __slots__ = ("bind", "call", "codes", "dtype", "formula", "loop", "ways", "wide")
    ways: tuple[CpuKernel, CpuKernel, int]  # see kernels_of()

    def __init__(self, bind: Callable[[], Any], wide: bool, loop: Any = None, formula: Callable | None = None, dtype: Any = None):
        self.bind, self.wide, self.loop, self.formula, self.dtype = bind, wide, loop, formula, dtype
        self.call: Callable[..., None] = self.first
        self.codes: dict[Any, Any] = {}

    def __repr__(self) -> str:
        names = [f.__name__ for f in (self.loop, self.formula) if f is not None]
        return f"<kernel {' '.join(names)}{', on all threads' if self.wide else ''}>"

    def first(self, *arguments: Any) -> None:
        settings.check()
        from numba.core.errors import NumbaError

        try:
            with making_kernel():
                self.call = self.bind()
                self.call(*arguments)
        except NumbaError:
            self.call = self.first
            name = getattr(self.formula or self.loop, "__name__", "kernel")
            raise DeviceError(
                f"{name}: cannot be compiled for the CPU: {self}. Use numbers, the words of flamepy.words and row[i] alone, no lists, "
                'dicts or texts; device="plain" runs any Python.'
            ) from None

    def code(self, *arguments: Any) -> Any:
        """The machine code for arguments of these types, as (workers, arguments): `call` asks Numba for the type of each one, each time."""
        key = tuple([(a.dtype, a.ndim) if type(a) is np.ndarray else type(a) for a in arguments])
        found = self.codes.get(key)
        if found is None:
            import numba

            bound, kinds = self.bind(), (numba.int64, numba.typeof(arguments))
            bound.compile(kinds)  # it has been, where the launch was run before
            found = self.codes[key] = bound.overloads[kinds].entry_point
        return found


MOST = 128  # pools kept
PASSING = 4096  # numbers that are gone when a planned call ends are no buffer: making one takes 0.2 us. More are counted as memory in use


class Makers(dict[tuple[int, np.dtype], Callable[[], Buffer]]):
    """By size and type what makes such buffers, from their pool."""

    def __init__(self, device: Device):
        self.device = device

    def __missing__(self, key: tuple[int, np.dtype]) -> Callable[[], Buffer]:
        if len(self) >= MOST:  # sizes may change for ever
            self.clear()
        return self.setdefault(key, memory.maker(memory.pool_of(*key, self.device)))


class CpuStream(HostStream):
    """Runs each launch at once, on one thread or on all of them."""

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        return self.device.makers[size, dtype]()  # type: ignore[attr-defined, no-any-return]

    def writer(self, out: Buffer, values: Callable[[], Sequence[Any]]) -> Callable[[], None]:
        if out.dtype not in FULL:
            return super().writer(out, values)
        pack, memory, write = Struct(f"{out.size}{out.dtype.char}").pack_into, memoryview(out.data), self.device.write

        def fill() -> None:
            found = values()
            try:
                pack(memory, 0, *found)  # in half the time of NumPy
            except (OverflowError, error):  # infinite in float32
                write(out, found)

        return fill

    def taker(self, x: Buffer) -> Callable[[], Buffer]:
        if x.size > FEW:
            return super().taker(x)
        make, data = self.device.makers[x.size, x.dtype], x.data  # type: ignore[attr-defined]

        def take() -> Buffer:
            copy = make()
            copy.data[...] = data
            return copy

        return take

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        arguments = [b.data if isinstance(b, Buffer) else b for b in (*outs, *ins)]
        kernel.call(threads() if kernel.wide else 1, *arguments, *map(chain.known, consts))

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        if not isinstance(check, Required) or not check.holds(buffers):
            check(*buffers)

    def prepare(self, fresh: Sequence[tuple[int, np.dtype]], steps: Sequence[Any], inputs: Sequence[bool], wanted: Any = None) -> Chain:
        slow, device = super().prepare(fresh, steps, inputs), self.device
        steps = [written(s, fresh, len(inputs)) for s in steps]
        if None in steps:
            return slow
        passing = [wanted is not None and i not in wanted and f[0] <= PASSING for i, f in enumerate(fresh, len(inputs))]
        makers = [memory.pool_of(*f, device) if p else device.makers[f] for f, p in zip(fresh, passing, strict=True)]  # type: ignore[attr-defined]
        return chain.launches(self, slow, makers, steps, inputs) if steps or fresh else lambda memory: None

    def prepare_any_size(self, fresh: Sequence[np.dtype], steps: Sequence[Step], inputs: Sequence[bool]) -> Chain:
        return chain.any_size(self, super().prepare_any_size(fresh, steps, inputs), fresh, steps, inputs)

    def program(self, steps: Sequence[Step | Action]) -> Run:
        return import_module(".runtime.walk", __package__).CpuRun(steps)  # type: ignore[no-any-return]


def written(s: Any, fresh: Sequence[tuple[int, np.dtype]], given: int) -> Any:
    """A planned call's step as a launch of whole buffers: so is what fills a new one with whole numbers of the host, as places in the
    random numbers are, and what is computed on arrays of the host. What is required of a new whole number stays as it is. None for
    anything else."""
    if not isinstance(s, Action):
        parts = [a for group in s[1:] for a in group if type(a) is Spot and a.size >= 0]
        return s if not parts else bits_written(s, fresh, given) if parts == [*s.outs] else None
    if isinstance(s.act, OnArrays) and all([type(b) is Spot and b.size < 0 for b in s.buffers]):
        return Step(s.act.on_arrays, s.buffers, (), ())
    spot = s.buffers[0] if s.buffers else None
    if type(spot) is not Spot or spot.size >= 0 or spot.number < given or fresh[spot.number - given][1] != int64:
        return None
    if not s.early:
        return s if isinstance(s.act, Required) and len(s.buffers) == 1 else None
    pack, act = Struct(f"{fresh[spot.number - given][0]}q").pack_into, s.act
    return Step(lambda data: pack(data, 0, *act()), s.buffers, (), ())


def bits_written(s: Step, fresh: Sequence[tuple[int, np.dtype]], given: int) -> Any:
    """The same for a step that copies a few numbers as they are to a new buffer of another type."""
    out = s.outs[0]
    size, dtype = fresh[out.number - given] if out.number >= given else (0, out.dtype)
    fits = out.offset == 0 < size <= FEW and size * dtype.itemsize == out.size * out.dtype.itemsize
    if not fits or getattr(s.kernel, "formula", None) is not copying().same:
        return None
    return Step(lambda y, x: y.view(x.dtype).__setitem__(..., x), (Spot(out.number),), s.ins, ())


class CpuDevice(Device):
    """`device("cpu")`."""

    align = ALIGN
    samples = beside = hands_out = True
    gap = APART  # as far apart as the allocator's blocks, or kernels could take other paths

    def __init__(self) -> None:
        super().__init__("cpu", CpuStream())
        self.kernels: dict[tuple[Any, ...], tuple[CpuKernel, CpuKernel, int]] = {}
        self.launches: dict[tuple[str, Callable | None, np.dtype], tuple[Callable[..., None], family.Go]] = {}
        self.makers = Makers(self)

    def launch(
        self, name: str, formula: Callable | None, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any],
        dtype: np.dtype,
    ) -> None:  # fmt: skip
        if name in MOVES and ins[0].dtype == outs[0].dtype in HALF:  # type: ignore[union-attr]
            dtype = WHOLE
        try:
            launcher, go = self.launches[name, formula, dtype]
        except KeyError:
            if name not in launchers():
                raise DeviceError(f"cpu: no such launch: '{name}'. This backend has {', '.join(sorted(launchers()))}.") from None
            launcher, go = self.launches[name, formula, dtype] = launchers()[name], family.Go(self, formula, dtype)
        launcher(go, outs, ins, *consts)

    def kernel(self, loop: Any, formula: Callable | None, dtype: np.dtype, work: int) -> CpuKernel:
        """The loop with the formula, to be run on one thread or on all, as the elements of work say."""
        narrow, wide, grain = self.kernels_of(loop, formula, dtype)
        return wide if work >= grain else narrow

    def kernels_of(self, loop: Any, formula: Callable | None, dtype: np.dtype) -> tuple[CpuKernel, CpuKernel, int]:
        """The loop with the formula for one thread, for all, and from how many elements of work on all are used."""
        key = (loop, formula, dtype)
        found = self.kernels.get(key)
        if found is None:
            bound = binder(loop, formula, dtype)
            grain = GRAIN // COSTLY_SHARE if is_costly(formula) else GRAIN
            found = CpuKernel(bound, False, *key), CpuKernel(bound, True, *key), grain
            found[0].ways = found[1].ways = found
            found = self.kernels.setdefault(key, found)  # the same for all threads: captured steps tell kernels apart
        return found

    def suited(self, kernel: Any, size: int) -> Any:
        narrow, wide, grain = kernel.ways
        return wide if size >= grain else narrow

    def copied(self, s: Step) -> Copied | None:
        return import_module(".loops.index", __package__).copied(s)  # type: ignore[no-any-return]

    def rewritten(self, s: Step, places: Sequence[int], lies: tuple[int, ...]) -> Step | None:
        if len(lies) == 2:
            return import_module(".products.matmul", __package__).turned(s, places, lies)  # type: ignore[no-any-return]
        return import_module(".loops.broadcast", __package__).rewritten(self, s, places, *lies)  # type: ignore[no-any-return]

    def copier(self, out: Buffer, x: Buffer) -> Kernel:
        loops, dtype = copying(), computed(x.dtype)
        if x.dtype == out.dtype in HALF:
            dtype = WHOLE
        formula = loops.nonzero if out.dtype == bool_ else loops.odd if (x.dtype, out.dtype) == (float64, float16) else loops.same
        if out.dtype in INTEGERS and out.dtype.itemsize <= 2:  # in any other kernel 16 bits are floats
            dtype, formula = WHOLE, loops.same if x.dtype in INTEGERS or x.dtype == bool_ else loops.through_int64
        return self.kernel(loops.map1, formula, dtype, out.size)

    def write(self, buffer: Buffer, values: Sequence[Any]) -> None:
        buffer.data[:] = values

    def slot(self, root: Buffer, offset: int, size: int, dtype: np.dtype) -> Buffer:
        if root.root is not None:
            root, offset = root.root, root.offset + offset
        whole = root.dtype
        if dtype is whole or dtype == whole:
            first = offset // whole.itemsize
            return Buffer(root.data[first : first + size], size, dtype, self, root, offset)
        data = root.data.view(np.uint8)[offset : offset + size * dtype.itemsize].view(stored(dtype))
        return Buffer(data, size, dtype, self, root, offset)

    def trim(self) -> None:
        allocator.release()

    def memory(self) -> dict[str, int]:
        return {key: getattr(allocator, key) for key in ("current", "peak", "cached", "limit", "returned")}

    def dlpack(self, buffer: Buffer, shape: Sequence[int]) -> Any:
        if buffer.dtype.kind == "V":
            raise DTypeError(f"dlpack: NumPy cannot export {buffer.dtype}. Cast with .to(flamepy.float32).")
        return buffer.data.view(buffer.dtype).reshape(shape)

    def cache_folder(self) -> Path:
        settings.check()
        return import_module(".runtime.compiler", __package__).cache_folder()  # type: ignore[no-any-return]

    def why_widened(self, dtype: np.dtype) -> str:
        if dtype != bfloat16:
            return ""
        settings.check()
        tiles = import_module(".bf16.tiles", __package__)
        return tiles.why_not_amx() if tiles.route() == tiles.FMA else ""

    def findings(self) -> Iterator[tuple[str, str, str]]:
        return import_module(".runtime.findings", __package__).findings()  # type: ignore[no-any-return]


def open(rest: str) -> CpuDevice:
    """The one CPU device; an index behind the name is refused unless it is 0."""
    if rest not in ("", "0"):
        raise DeviceError(f"device: there is one CPU device: 'cpu:{rest}'. Use 'cpu'.")
    return CpuDevice()


@cache
def launchers() -> dict[str, Callable[..., None]]:
    """Every launcher, from all families."""
    settings.check()
    for name in FAMILIES:
        import_module("." + name, __package__)
    return family.LAUNCHERS


def loop_named(name: str) -> Any:
    """A loop by its name."""
    launchers()
    return family.LOOPS[name]


@cache
def copying() -> Any:
    """The loops that copy. Every argument and result of a replay is copied, so the import is looked up once."""
    settings.check()
    return import_module(".loops.maps", __package__)


@cache
def is_costly(formula: Callable | None) -> bool:
    """Whether a number of it takes several times as long as an addition."""
    return formula is not None and any([COSTLY & globals_of(f.__code__) for f in reached(formula)])


def binder(loop: Any, formula: Callable | None, dtype: np.dtype) -> Callable[[], Any]:
    """What binds `loop` for `dtype` when asked; raises DTypeError at once for a type no kernel is made for."""
    if dtype not in FULL and dtype not in INTEGERS and dtype.kind != "b" and dtype != WHOLE:
        raise DTypeError(f"{loop.__name__}: no kernel for this type: {dtype}. Cast to float32 or float64.")

    @cache
    def bound() -> Any:
        from .runtime.compiler import DIALECT

        return bind(loop, formula, dtype, DIALECT)  # type: ignore[arg-type]

    return bound
