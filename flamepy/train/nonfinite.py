"""The hunt for the first NaN or infinity: which op made it, on which line, and which parameter it came through.

Training stops when a loss or a gradient norm is not finite. Only then is the step run again, slowly: every result of the
forward pass is looked at, then every cotangent of the backward pass. The step is deterministic, so the second run shows
what happened in the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..autograd import TapeEntry, tape
from ..core.changes import heard

Parameters = list[tuple[str, Any]]  # (name, parameter)


def finite(t: Any) -> bool:
    return t.dtype.kind != "f" or bool(np.isfinite(t.numpy()).all())


@contextmanager
def on_result(callback: Callable[[str, Any], None]) -> Iterator[None]:
    """Context manager: call `callback(op name, result)` for every op that runs in the block."""

    def watch(op: Any, xs: Sequence[Any], y: Any) -> None:
        for t in y if type(y) is tuple else (y,):
            if op is not None:
                callback(op.title, t)

    heard.append(watch)
    try:
        yield
    finally:
        heard.remove(watch)


def explain(run: Callable[[], Any], parameters: Parameters) -> str:
    """Why the step made a number that is not finite. `run` computes its loss again."""
    broken = [name for name, p in parameters if not finite(p)]
    if broken:
        return f"parameter {some(broken)} was not finite before the step (the update before it was too large)"
    results: list[tuple[str, Any]] = []
    with on_result(lambda name, t: None if finite(t) else results.append((name, t))):
        loss = run()
    names = {p.id: name for name, p in parameters}
    if results:
        op, result = results[0]
        entry = next((e for e in tape(loss) if result.id in e.output_ids), None)
        return f"first made by op '{op}'{place(entry)} in the forward pass{reads(entry, names)}"
    return explain_backward(loss, names)


def explain_backward(loss: Any, names: dict[int, str]) -> str:
    """The op whose backward rule turned a finite cotangent into one that is not."""
    bad: set[int] = set()  # serials of entries, and minus the ids of leaves
    entries = list(reversed(tape(loss)))
    for entry in entries:
        watch = {slot: [lambda g, s=entry.serial: None if finite(g) else bad.add(s)] for slot in range(len(entry.output_ids))}
        entry.hooks = {**(entry.hooks or {}), **watch}
    ways = [(entry, [n.serial if type(n) is TapeEntry else -n.id for n in entry.inputs if n is not None]) for entry in entries]
    grads = loss.backward()
    broken = [name for id, name in names.items() if id in grads and not finite(grads[id])]
    bad.update(-id for id in names if id in grads and not finite(grads[id]))
    culprit = next((e for e, inputs in ways if e.serial not in bad and bad.intersection(inputs)), None)
    op = f"op '{culprit.op.title}'{place(culprit)}" if culprit is not None else "the sum of the gradients"
    return f"first made by {op} in the backward pass, in the gradient of parameter {some(broken) or '(none)'}"


def reads(entry: Any, names: dict[int, str]) -> str:
    """The parameters an entry reads; if it reads none itself, the nearest ones behind it."""
    level = [entry] if entry is not None else []
    while level:
        nodes = [node for e in level for node in e.inputs if node is not None]
        found = [names[n.id] for n in nodes if type(n) is not TapeEntry and n.id in names]
        if found:
            return f", from parameter {some(list(dict.fromkeys(found)))}"
        level = list({n.serial: n for n in nodes if type(n) is TapeEntry}.values())
    return ""


def place(entry: Any) -> str:
    return f" ({entry.where})" if entry is not None else ""


def some(names: list[str], most: int = 3) -> str:
    """The first few names."""
    return ", ".join(f"'{n}'" for n in names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
