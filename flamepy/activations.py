"""Where activations are between forward and backward: which blocks are checkpointed, which have theirs in the host's memory.

y = fp.checkpoint_sequential(model.blocks, None, x, every=2)
y = fp.offload(block, y)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import Any

import numpy as np

from .autograd import is_grad_enabled
from .backend.base import Buffer
from .bus import outside
from .core.op import over
from .core.tape import TapeEntry
from .dtypes import check_function, is_count
from .engine.entries import observers, set_observers
from .errors import DTypeError
from .gradient_checkpointing import Segment, checkpoint
from .tensors import Tensor

HOSTS = ("cpu", "plain")  # devices whose memory is the host's


# ---- which blocks are checkpointed ----------------------------------------------------------------------------------------------------
class Kept:
    """Counts the bytes that new entries save, beside leaves."""

    def __init__(self) -> None:
        self.bytes, self.known = 0, set[int]()
        self.buffers: list[Buffer] = []  # alive, so that an id is one buffer's

    def add(self, entry: TapeEntry) -> None:
        leaves = {id(node.buffer) for node in entry.inputs if isinstance(node, Tensor)}
        for buffer in entry.values:
            if isinstance(buffer, Buffer) and id(buffer) not in self.known | leaves:
                self.known.add(id(buffer))
                self.buffers.append(buffer)
                self.bytes += buffer.size * buffer.dtype.itemsize


def checkpoint_sequential(
    blocks: Iterable[Callable[..., Any]], segments: int | None, x: Any, *, every: int | None = None, keep_bytes: int | None = None,
    keep: Any = (),
) -> Any:  # fmt: skip
    """blocks[-1](... blocks[0](x)) with some blocks checkpointed: less memory for a second forward pass of these. The bits are the same.

    One of three says which. segments=n: as in PyTorch, the blocks in n runs of equal length, each one checkpoint but for the last, which
    backward reaches at once. every=k: each k-th block. keep_bytes=n: blocks keep what they save as long as that is n bytes at most
    together, the others are checkpointed. keep: as checkpoint() takes it. Raises DTypeError, ValueError unless it is one of them, or for
    no count.
    """
    listed = list(blocks) if hasattr(blocks, "__iter__") else []
    for block in listed:
        check_function("checkpoint_sequential", "a block", block)
    given = {"segments": segments, "every": every, "keep_bytes": keep_bytes}
    chosen = {key: value for key, value in given.items() if value is not None}
    if not listed or len(chosen) != 1:
        what = f"{len(listed)} blocks, {', '.join(chosen) or 'no policy'}"
        raise ValueError(
            f"checkpoint_sequential: not blocks and one policy: {what}. Pass (blocks, n, x), or None with every=, keep_bytes=."
        )
    ((policy, count),) = chosen.items()
    if not is_count(count, 0 if policy == "keep_bytes" else 1):
        raise DTypeError(f"checkpoint_sequential: {policy} is no count: {count!r}. Use a whole number.")
    if policy == "segments":
        size = max(1, len(listed) // int(count))
        starts = list(range(0, size * min(int(count), len(listed)), size))
        runs = [listed[a:b] for a, b in zip(starts, [*starts[1:], len(listed)], strict=True)]
        for run in runs[:-1]:
            x = checkpoint(lambda t, run=run: in_order(run, t), x, keep=keep)
        return in_order(runs[-1], x)
    if policy == "every":
        for i, block in enumerate(listed, 1):
            x = checkpoint(block, x, keep=keep) if i % int(count) == 0 else block(x)
        return x
    return within(listed, x, int(count), keep)


def in_order(blocks: Sequence[Callable[..., Any]], x: Any) -> Any:
    for block in blocks:
        x = block(x)
    return x


def within(blocks: Sequence[Callable[..., Any]], x: Any, most: int, keep: Any) -> Any:
    """Blocks that keep at most so many bytes; the first of which it is more is the last that keeps its own."""
    kept = Kept()
    for block in blocks:
        if kept.bytes >= most:
            x = checkpoint(block, x, keep=keep)
            continue
        before = observers.entries, observers.reader
        set_observers((kept.add, *observers.entries), observers.reader)
        try:
            x = block(x)
        finally:
            set_observers(*before)
    return x


# ---- in the host's memory --------------------------------------------------------------------------------------------------------------
class Away(Segment):
    """One block whose saved values are in the host's memory until backward reaches it."""

    def __init__(self) -> None:
        self.entries: list[TapeEntry] = []
        self.host: dict[int, tuple[Any, np.ndarray]] = {}  # by the id of a buffer: its device, its numbers
        self.places: dict[int, list[Any]] = {}  # by serial: the key of each value, None for one that stayed
        self.lent: dict[int, tuple[Any, Any, Any]] = {}
        self.reads, self.given, self.lock = {}, [], RLock()
        self.run: Any = None

    def add(self, entry: TapeEntry) -> None:
        self.entries.append(entry)

    def send(self, results: Sequence[Tensor]) -> None:
        """Take what was saved to the host, but for leaves and what the block gives."""
        stay = {id(t.buffer) for t in results}
        going: dict[int, Buffer] = {}
        for entry in self.entries:
            leaves = {id(node.buffer) for node in entry.inputs if isinstance(node, Tensor)} | stay
            keys = [self.key_of(v, leaves) for v in entry.values]
            going |= {key: v for key, v in zip(keys, entry.values, strict=True) if key is not None}
            self.places[entry.serial] = keys
        self.host = {key: (b, np.array(over(b, (b.size,)).numpy())) for key, b in going.items()}
        self.host = {key: (b.device, numbers) for key, (b, numbers) in self.host.items()}
        for entry in self.entries:
            keys = self.places[entry.serial]
            if any([key is not None for key in keys]):
                entry.values = [v if key is None else None for v, key in zip(entry.values, keys, strict=True)]
                entry.segment = self  # type: ignore[attr-defined]
        self.entries = [entry for entry in self.entries if entry.segment is self]  # type: ignore[attr-defined]

    def key_of(self, value: Any, leaves: set[int]) -> int | None:
        away = isinstance(value, Buffer) and id(value) not in leaves and value.device.name not in HOSTS and value.size
        return id(value) if away else None

    def check(self) -> None:
        """What went away cannot be overwritten."""

    def fill(self, entry: TapeEntry) -> None:
        """Bring the block's values back, unless another thread has done so."""
        with self.lock:
            if not self.entries or entry.serial in self.lent:
                return
            back = {key: device.direct.upload(numbers) for key, (device, numbers) in self.host.items()}
            for e in self.entries:
                if e.freed is None and e.serial not in self.lent:
                    self.lent[e.serial] = e.call, e.values, e.versions
                    keys = self.places[e.serial]
                    e.values = [v if key is None else back[key] for v, key in zip(e.values, keys, strict=True)]
                    e.versions = [getattr(v, "version", None) for v in e.values]

    def settle(self) -> None:
        super().settle()
        if not self.entries:
            self.host = {}


def offload(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs), recorded with its saved activations in the host's memory; backward copies them back, the whole block's at once.

    For blocks on a GPU: on the CPU, whose memory is the host's, and where nothing is recorded, it simply runs. Parameters and what the
    block gives stay. Inside checkpoint(), which keeps nothing, it runs, too. Not inside a captured step: a replay goes through no host.
    """
    check_function("offload", "fn", fn)
    if not is_grad_enabled() or any([isinstance(getattr(o, "__self__", None), Segment) for o in observers.entries]):
        return fn(*args, **kwargs)
    away, before = Away(), (observers.entries, observers.reader)
    set_observers((away.add, *observers.entries), observers.reader)
    try:
        y = fn(*args, **kwargs)
    finally:
        set_observers(*before)
    if any([b.device.name not in HOSTS for entry in away.entries for b in entry.values if isinstance(b, Buffer)]):
        outside("offload: a replay goes through no host: a block inside a captured step. Use checkpoint() there.")
        away.send([t for t in (y if isinstance(y, tuple | list) else (y,)) if isinstance(t, Tensor)])
    return y
