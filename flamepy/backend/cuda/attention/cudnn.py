"""Attention by NVIDIA's cuDNN, where its Python package is installed (extra `cudnn`) and it is the faster one.

At the first call with sizes it takes, both kernels run on the operands given: where the results agree, the faster one is taken from then on
and remembered on disk, as with matrix products (blas.py); where they don't, a warning says so and our own stays. Taken are 16-bit operands
without a mask, at addresses and strides of whole 16 bytes. `kept` gets the logarithm of each row's sum in the place of the largest score
and 1 in that of 1 / sum, which our backward reads the same way. Backward is the deterministic one.

The graphs are those of https://docs.nvidia.com/deeplearning/cudnn/frontend (operations: attention).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from ....core.words import log
from ....dtypes import float16, float32
from ....errors import FlameWarning
from ...base import Buffer
from ..runtime import build
from ..runtime.chain import HostCall

WHOLE = 8  # numbers of 16 bits that an address and each stride must be a multiple of
AGREE = {True: 2.0**-8, False: 2.0**-5}  # for float16, bfloat16: differences by the largest number, of two ways that round p and ds apart


class Undecided(Exception):
    """Results that say nothing: zeros, or numbers that are not finite."""


class Problem(NamedTuple):
    backward: bool
    dtype: np.dtype
    strides: tuple[tuple[int, ...], ...]  # of q, k, v, y along batch, head, row
    sizes: tuple[int, ...]
    scale: float
    is_causal: bool


def lse_y(largest, share):
    """log(sum(exp(score))) of a row."""
    return largest - log(share)


def launch(go: Any, outs: Sequence[Any], ins: Sequence[Any], places: Any, own: Callable[..., None], backward: bool) -> None:
    """Forward: outs (y, kept), ins (q, k, v, mask). Backward: outs (dq, dk, dv, dmask), ins (g, y, kept, q, k, v, mask). places: layout,
    sizes, scale, is_causal. own(outs, ins, *places): what our kernels do."""
    layout, sizes, scale, is_causal = places
    library = go.device.driver.cudnn
    strides = tuple([tuple(layout[i + 1 : i + 4]) for i in (0, 4, 8, 12)])
    problem = Problem(backward, ins[-2].dtype, strides, tuple(sizes), scale, is_causal)
    starts = [layout[i] for i in (0, 4, 8, 12)]
    call = None
    if library is not None and ins[-1] is None and library.takes(problem, starts, outs, ins):
        call = library.chosen(go, problem, outs, ins, starts, lambda outs: own(outs, ins, *places))
    if call is None:
        own(outs, ins, *places)
    else:
        call(go, outs, ins)


def distinct(buffers: Sequence[Any]) -> list[Any]:
    """Each buffer once."""
    return list({id(b): b for b in buffers if b is not None}.values())


def like(device: Any, outs: Sequence[Any], dtype: np.dtype | None = None) -> dict[int, Any]:
    """By id a buffer of the same size for each, of its type or of `dtype`; itself if it has that."""
    return {id(None): None} | {id(b): b if b.dtype == dtype else device.empty(b.size, dtype or b.dtype) for b in distinct(outs)}


class Library(build.Chooser):
    """cuDNN for one GPU."""

    def __init__(self, module: Any, driver: Any):
        self.module, self.driver = module, driver
        self.handle = module.create_handle()
        module.set_stream(handle=self.handle, stream=driver.handle)
        self.version = module.backend_version()
        self.calls: dict[Any, Call | None] = {}
        self.file = build.cache_folder() / f"attention-{driver.name}-{self.version}.json".replace(" ", "_")

    def takes(self, problem: Problem, starts: Sequence[int], outs: Sequence[Any], ins: Sequence[Any]) -> bool:
        batch, heads, rows, keys, d, e = problem.sizes
        whole = [d, e, *starts, *[stride for each in problem.strides for stride in each]]
        square = rows == keys or not problem.is_causal  # for others, what causal means is a matter of taste
        if problem.backward:
            size = sum([b.size for b in distinct(outs[:3])])
            same = ins[1].dtype == problem.dtype and size == batch * heads * (rows * d + keys * (d + e))
        else:
            same = outs[0].dtype == problem.dtype
        return same and square and all(problem.sizes) and not any([n % WHOLE for n in whole]) and max(d, e) <= 128

    def chosen(self, go: Any, problem: Problem, outs: Sequence[Any], ins: Sequence[Any], starts: Any, own: Any) -> Call | None:
        """What enqueues it; None where our own kernels are to be taken."""
        key = problem, tuple(starts)
        if key not in self.calls:
            if self.driver.capturing:
                return None
            with go.device.stream.aside():
                try:
                    self.calls[key] = self.compared(go, problem, outs, ins, starts, own)
                except Undecided:
                    return None
        return self.calls[key]

    def compared(self, go: Any, problem: Problem, outs: Sequence[Any], ins: Sequence[Any], starts: Any, own: Any) -> Call | None:
        known = self.choices().get(str(problem))
        if known == "own":
            return None
        try:
            call = Call(self, problem, starts)
            if known is None:
                ours, theirs = ([by[id(b)] for b in outs] for by in (like(go.device, outs), like(go.device, outs)))
                own(ours)
                call(go, theirs, ins)
                known = self.judged(go, problem, ours, theirs, own, lambda: call(go, theirs, ins))
        except Undecided:
            raise
        except self.module.cudnnGraphNotSupportedError:  # it has no kernel for these sizes
            self.choose(problem, "own")
            return None
        except Exception as error:  # whatever another release of the library raises
            self.refused(problem, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
            return None
        if known != "own":
            self.choose(problem, "cudnn")
        return call if known == "cudnn" else None

    def judged(self, go: Any, problem: Problem, ours: Sequence[Any], theirs: Sequence[Any], own: Any, call: Any) -> str:
        """Which is to be taken, by results, then by time."""
        for a, b in zip(ours[: 3 if problem.backward else 1], theirs, strict=False):
            x, y = (go.device.download(found).astype(np.float64) for found in (a, b))
            if not (np.isfinite(x).all() and x.any()):
                raise Undecided
            apart = float(np.abs(x - y).max()) / max(float(np.abs(x).max()), 1e-30)
            if not apart <= AGREE[problem.dtype == float16]:
                self.refused(problem, f"it is {apart:.1e} apart from our own kernels")
                return "own"
        if not hasattr(self.driver, "timed"):
            return "cudnn"
        faster = self.driver.timed(call) < self.driver.timed(lambda: own(ours))
        if not faster:
            self.choose(problem, "own")
        return "cudnn" if faster else "own"

    def refused(self, problem: Problem, why: str) -> None:
        self.choose(problem, "own")
        name = "attention's backward" if problem.backward else "attention"
        text = f"cudnn: not used for {name} of {problem.sizes}: {why}. Our own kernels do it; or pip uninstall nvidia-cudnn-frontend."
        warnings.warn(text, FlameWarning, stacklevel=2)


class Call:
    """One problem, planned, for whatever addresses."""

    def __init__(self, library: Library, problem: Problem, starts: Sequence[int]):
        self.library, self.problem = library, problem
        self.starts = [start * problem.dtype.itemsize for start in starts]
        module = library.module
        kinds = module.data_type
        self.kind, number = kinds.HALF if problem.dtype == float16 else kinds.BFLOAT16, kinds.FLOAT
        self.graph = graph = module.pygraph(
            io_data_type=self.kind, intermediate_data_type=number, compute_data_type=number, handle=library.handle
        )
        batch, heads, rows, keys, d, e = problem.sizes
        self.shapes = [(batch, heads, rows, d), (batch, heads, keys, d), (batch, heads, keys, e), (batch, heads, rows, e)]
        q, k, v = [self.tensor(name, i) for i, name in enumerate("qkv")]
        sums = (batch, heads, rows, 1), (heads * rows, rows, 1, 1)
        more = {"attn_scale": problem.scale, "use_causal_mask": problem.is_causal}
        if problem.backward:
            o, g = self.tensor("o", 3), self.tensor("g", 3)
            stats = graph.tensor(name="stats", dim=sums[0], stride=sums[1], data_type=number)
            found = graph.sdpa_backward(
                name="attention_dx", q=q, k=k, v=v, o=o, dO=g, stats=stats, use_deterministic_algorithm=True, **more
            )
            self.tensors = [q, k, v, o, g, stats, *[self.result(x, i) for i, x in enumerate(found)]]
        else:
            o, stats = graph.sdpa(name="attention", q=q, k=k, v=v, generate_stats=True, **more)
            stats.set_output(True).set_dim(sums[0]).set_stride(sums[1]).set_data_type(number)
            self.tensors = [q, k, v, self.result(o, 3), stats]
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([module.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        self.room = max(1, graph.get_workspace_size())
        self.host = HostCall(self.execute)

    def tensor(self, name: str, i: int) -> Any:
        return self.graph.tensor(name=name, dim=self.shapes[i], stride=(*self.problem.strides[i], 1), data_type=self.kind)

    def result(self, x: Any, i: int) -> Any:
        return x.set_output(True).set_dim(self.shapes[i]).set_stride((*self.problem.strides[i], 1))

    def __call__(self, go: Any, outs: Sequence[Any], ins: Sequence[Any]) -> None:
        device, rows = go.device, self.problem.sizes[0] * self.problem.sizes[1] * self.problem.sizes[2]
        kept = ins[2] if self.problem.backward else outs[1]
        first, second = [device.slot(kept, i * kept.dtype.itemsize, rows, kept.dtype) for i in (0, rows)]
        room = device.empty(self.room, np.dtype("uint8"))
        if self.problem.backward:
            g, y, _, q, k, v, _ = ins
            stats = device.empty(rows, float32)
            device.launch("map", lse_y, (stats,), (first, second), (), float32)
            narrow = like(device, outs[:3], self.problem.dtype)
            g16 = g if g.dtype == self.problem.dtype else device.empty(g.size, self.problem.dtype)
            if g16 is not g:
                device.stream.copy(g16, g)
            device.stream.run(self.host, (*[narrow[id(b)] for b in outs[:3]], room), (q, k, v, y, g16, stats), ())
            for b in distinct(outs[:3]):
                if narrow[id(b)] is not b:
                    device.stream.copy(b, narrow[id(b)])
        else:
            device.launch("fill", None, (second,), (), (np.float32(1),), float32)
            device.stream.run(self.host, (outs[0], first, room), ins[:3], ())

    def execute(self, outs: Sequence[Buffer], ins: Sequence[Buffer], consts: Sequence[Any]) -> None:
        self.library.driver.enter()
        q, k, v, y = self.starts
        offsets = [q, k, v, y, y, 0, q, k, v] if self.problem.backward else [q, k, v, y, 0]
        given = [b.data + at for b, at in zip((*ins, *outs[:-1]), offsets, strict=True)]
        self.graph.execute(dict(zip(self.tensors, given, strict=True)), outs[-1].data, handle=self.library.handle)


def opened(driver: Any) -> Library | None:
    """The library for this GPU; None if it isn't there."""
    try:
        return Library(import_module("cudnn"), driver)
    except (ImportError, RuntimeError, OSError):
        return None


def finding(library: Library | None) -> tuple[str, str, str]:
    """What `flamepy doctor` says of it."""
    if library is None:
        return "attention", "by flamepy's own kernels, as cuDNN's Python package is not installed", ""
    return "attention", f"by cuDNN {library.version} or flamepy's own kernels, whichever is faster for the sizes", ""
