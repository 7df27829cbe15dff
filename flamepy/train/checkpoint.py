"""Checkpoints: everything a run needs to go on, on disk, so that no crash can spoil it.

    checkpoints/
      step-00000500/  tensors.safetensors   the arrays of a TrainState: parameters, optimizer moments ...
                      state.json            the rest of it; step, configuration, schedule, data, versions, SHA-256
      last            the name of the newest good one
      best            the name of the one with the lowest validation loss, in runs that stop when it does not fall any more

A checkpoint is written into a temporary folder, made durable, renamed, made durable again; only then does `last` point to
it, and only then are old ones removed. Whenever the process dies, `last` names a whole checkpoint. Parameters are not copied
in memory to be saved. (`flamepy.checkpoint`, which saves memory in backward, is something else.)
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..disk import TEMPORARY, sync_folder, write_file
from ..saving import tensor_file
from .config import one_line
from .files import quoted, replace_file, writing
from .problems import InputError

FORMAT = "flamepy-checkpoint-2"
TENSORS, STATE, LAST, BEST = "tensors.safetensors", "state.json", "last", "best"


@dataclass(frozen=True)
class Checkpoint:
    """One loaded checkpoint: read-only arrays by name, mapped from the file, and the facts of state.json."""

    path: Path
    tensors: dict[str, np.ndarray]
    facts: dict[str, Any]

    @property
    def step(self) -> int:
        return self.facts["step"]


def folder_name(step: int) -> str:
    return f"step-{step:08d}"


def save(folder: Path, tensors: Mapping[str, np.ndarray], facts: dict[str, Any], keep: int, best: int | None = None) -> Path:
    """Write one checkpoint into `folder`, point `last` to it, and remove all but the newest `keep` and that of step `best`."""
    name = folder_name(facts["step"])
    final, temporary = folder / name, folder / (TEMPORARY + name)
    with writing(final):
        try:
            folder.mkdir(exist_ok=True)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            digest = hashlib.sha256()
            write_file(temporary / TENSORS, tensor_file.hashed(tensor_file.pieces(tensors, {"format": FORMAT}), digest))
            facts = {"format": FORMAT, **facts, "tensors": {"file": TENSORS, "sha256": digest.hexdigest()}}
            write_file(temporary / STATE, [(json.dumps(facts, indent=1) + "\n").encode()])
            sync_folder(temporary)
            if final.exists():  # left by a process that died before it could point `last` to it
                remove(final)
            os.rename(temporary, final)
            sync_folder(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    replace_file(folder / LAST, (name + "\n").encode())
    chosen = "" if best is None else folder_name(best)
    if chosen and (folder / chosen).is_dir():
        replace_file(folder / BEST, (chosen + "\n").encode())
    prune(folder, name, keep, chosen)
    return final


def remove(path: Path) -> None:
    """Remove a checkpoint. It is renamed first: a half-removed folder must not look like one."""
    old = path.with_name(TEMPORARY + "old-" + path.name)
    shutil.rmtree(old, ignore_errors=True)
    os.rename(path, old)
    shutil.rmtree(old, ignore_errors=True)


def prune(folder: Path, newest: str, keep: int, best: str = "") -> None:
    """Remove old checkpoints but the best. One from beyond `newest` belongs to a future that is being computed anew: it goes first."""
    names = sorted(p.name for p in folder.glob("step-*"))
    kept = [name for name in names if name <= newest][-keep:]
    for name in names:
        if name not in (*kept, best):
            with contextlib.suppress(OSError):
                remove(folder / name)


def load(folder: Path, pointer: str = LAST) -> Checkpoint | None:
    """The checkpoint that `last` (or `best`) points to; None when there is none yet; InputError when it is damaged or foreign."""
    try:
        name = (folder / pointer).read_text("ascii").strip()
    except FileNotFoundError:
        if pointer == BEST:
            return None
        if any(p.name != folder_name(0) for p in folder.glob("step-*")):  # a process can die between its first checkpoint and `last`
            raise InputError(f"the last checkpoint is not known: {folder / LAST} is missing. {advice(folder, '')}") from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {folder / pointer}: {one_line(error)}. {advice(folder, '')}") from error
    path = folder / name
    if not re.fullmatch(r"step-\d{8,12}", name) or not path.is_dir():
        raise InputError(f"the {pointer} checkpoint is missing: {folder / pointer} names {name[:40]!r}. {advice(folder, name)}")
    try:
        facts = json.loads((path / STATE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"the checkpoint is damaged: {path / STATE}: {one_line(error)}. {advice(folder, name)}") from error
    if isinstance(facts, dict) and facts.get("format") == "flamepy-checkpoint-1":
        raise InputError(f"the checkpoint is of an earlier flamepy: {path / STATE} has format 1, this one {FORMAT[-1]}. Start a new run.")
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or type(facts.get("step")) is not int:
        raise InputError(f"not a flamepy checkpoint: {path / STATE} lacks format {FORMAT!r}. {advice(folder, name)}")
    if folder_name(facts["step"]) != name:
        raise InputError(f"the checkpoint is damaged: {path / STATE} says step {facts['step']}. {advice(folder, name)}")
    return Checkpoint(path, tensors_of(path / TENSORS, facts, advice(folder, name)), facts)


def tensors_of(file: Path, facts: dict[str, Any], what_to_do: str) -> dict[str, np.ndarray]:
    """The arrays in `file`, after its SHA-256 was checked."""
    tensors = facts.get("tensors")
    expected = tensors.get("sha256") if isinstance(tensors, dict) else None
    try:
        return tensor_file.read(file, str(expected))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise MemoryError(f"no room to map {file}") from error
        raise InputError(f"the checkpoint is damaged: {file}: {one_line(error)}. {what_to_do}") from error


def advice(folder: Path, bad: str) -> str:
    """How to go back to an earlier checkpoint, or start again."""
    others = sorted(p.name for p in folder.glob("step-*") if p.name != bad)
    if others:
        return f"Go back to the checkpoint before: echo {others[-1]} > {quoted(folder / LAST)}"
    return "There is no other checkpoint: start a new run."
