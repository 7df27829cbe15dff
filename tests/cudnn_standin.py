"""Plays cuDNN's Python package on the emulated GPU: graphs of attention, described as the real ones are and computed by NumPy.

What it demands is what https://docs.nvidia.com/deeplearning/cudnn/frontend says: each tensor with shape, strides and type, an output
declared as one, the steps from validate() to build_plans() in their order.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

TYPES = {"HALF": np.float16, "BFLOAT16": ml_dtypes.bfloat16, "FLOAT": np.float32}
STEPS = ["validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans"]


class NotSupported(RuntimeError):
    pass


class Tensor:
    def __init__(self, kind: str):
        self.kind, self.dim, self.stride, self.output = kind, (), (), False

    def set_output(self, yes: bool) -> Tensor:
        self.output = yes
        return self

    def set_dim(self, dim: Any) -> Tensor:
        self.dim = tuple(dim)
        return self

    def set_stride(self, stride: Any) -> Tensor:
        self.stride = tuple(stride)
        return self

    def set_data_type(self, kind: str) -> Tensor:
        self.kind = kind
        return self


class Cudnn:
    """The package. `off`: what results are multiplied with; `refuses`: whether no size is supported."""

    data_type = SimpleNamespace(**{name: name for name in TYPES})
    heur_mode = SimpleNamespace(A="A")
    cudnnGraphNotSupportedError = NotSupported

    def __init__(self, driver: Any, off: float = 1.0, refuses: bool = False):
        self.driver, self.memory, self.off, self.refuses = driver, driver.memory, off, refuses
        self.executed: list[str] = []
        self.streams: list[Any] = []

    def create_handle(self) -> str:
        return "handle"

    def set_stream(self, handle: str, stream: int) -> None:
        assert handle == "handle"
        self.streams.append(stream)

    def backend_version(self) -> int:
        return 91400

    def pygraph(self, **options: Any) -> Graph:
        assert options.pop("handle") == "handle"
        assert options["intermediate_data_type"] == options["compute_data_type"] == "FLOAT"
        return Graph(self, options["io_data_type"])


class Graph:
    def __init__(self, library: Cudnn, kind: str):
        self.library, self.kind, self.done = library, kind, 0
        self.asked: dict[str, Any] = {}
        self.results: list[Tensor] = []

    def tensor(self, name: str, dim: Any, stride: Any, data_type: str) -> Tensor:
        assert len(dim) == len(stride) == 4 and stride[3] == 1
        return Tensor(data_type).set_dim(dim).set_stride(stride)

    def sdpa(self, **asked: Any) -> Any:
        return self.ask("sdpa", asked, 2)

    def sdpa_backward(self, **asked: Any) -> Any:
        assert asked["use_deterministic_algorithm"]
        return self.ask("sdpa_backward", asked, 3)

    def ask(self, what: str, asked: Any, results: int) -> Any:
        self.what, self.asked = what, asked
        self.results = [Tensor(self.kind) for _ in range(results)]
        return self.results

    def __getattr__(self, name: str) -> Any:
        if name not in STEPS:
            raise AttributeError(name)

        def step(*_: Any) -> None:
            assert name == STEPS[self.done]
            assert all(t.output and len(t.dim) == 4 for t in self.results)
            self.done += 1
            if name == "check_support" and self.library.refuses:
                raise NotSupported("no engine")

        return step

    def get_workspace_size(self) -> int:
        assert self.done == len(STEPS)
        return 64

    # ---- memory ----
    def places(self, t: Tensor, address: int) -> Any:
        """(index, address) of each row."""
        size = np.dtype(TYPES[t.kind]).itemsize
        for at in np.ndindex(t.dim[:3]):
            yield at, address + size * sum(i * step for i, step in zip(at, t.stride, strict=False))

    def read(self, t: Tensor, address: int) -> np.ndarray:
        found, nbytes = np.empty(t.dim, TYPES[t.kind]), t.dim[3] * np.dtype(TYPES[t.kind]).itemsize
        for at, place in self.places(t, address):
            found[at] = np.frombuffer(bytes(self.library.memory.read(place, nbytes)), TYPES[t.kind])
        return found.astype(np.float64)

    def write(self, t: Tensor, address: int, values: np.ndarray) -> None:
        for at, place in self.places(t, address):
            self.library.memory.write(place, values[at].astype(TYPES[t.kind]).view(np.uint8))

    def execute(self, given: dict[Tensor, int], workspace: int, handle: str) -> None:
        assert handle == "handle" and workspace
        self.library.driver.enqueue(partial(self.compute, dict(given)))

    def compute(self, given: dict[Tensor, int]) -> None:
        self.library.executed.append(self.what)
        a = {name: self.read(t, given[t]) for name, t in self.asked.items() if isinstance(t, Tensor)}
        scores = self.asked["attn_scale"] * a["q"] @ a["k"].swapaxes(2, 3)
        if self.asked["use_causal_mask"]:
            scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
        if self.what == "sdpa":
            stats = np.log(np.exp(scores).sum(-1, keepdims=True))
            found = [np.exp(scores - stats) @ a["v"], stats]
        else:
            p = np.exp(scores - a["stats"])
            ds = p * (a["dO"] @ a["v"].swapaxes(2, 3) - (a["dO"] * a["o"]).sum(-1, keepdims=True)) * self.asked["attn_scale"]
            found = [ds @ a["k"], ds.swapaxes(2, 3) @ a["q"], p.swapaxes(2, 3) @ a["dO"]]
        for t, values in zip(self.results, found, strict=True):
            self.write(t, given[t], values * (self.library.off if t.dim[3] > 1 else 1.0))
