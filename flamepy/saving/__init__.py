"""save() and load(): a state, nested as it is, in one safetensors file; no pickle.

    flamepy.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "last.safetensors")
    state = flamepy.load("last.safetensors")

The arrays are the file's tensors. A tensor's name is the keys that lead to it joined by dots, as "model.0.weight"; an item of a list
has the number of its place as key. What is not an array stands as JSON in the metadata, under "state", with the form of the
whole; "sha256" there is that of the file, with 64 zeros in its own place. A file without "state" is another library's: load() gives
its tensors by name.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from itertools import chain
from pathlib import Path
from typing import Any

from ..core.errors import StateError
from ..disk import TEMPORARY, put_file, sweep_dead
from . import tensor_file
from .plain import Listed, rebuilt, taken_apart

FORMAT = "flamepy-1"
ZEROS, MARK = b"0" * 64, b'"sha256":"'


def save(state: Any, path: str | os.PathLike[str]) -> None:
    """Write a state into one safetensors file, whole or not at all: a file that was there stays until the new one is on disk.

    `state`: a dict of arrays, Tensors, PyTorch's tensors, ints, floats, strings, bools, None, and lists, tuples and dicts of these, as
    state_dict() of models and optimizers gives it. Arrays keep their dtype (16-bit floats too) and are written one after the other.
    Raises StateError for what cannot be saved and for a place that cannot be written, DTypeError for complex numbers and the like.
    """
    if not isinstance(state, dict):
        advice = "Pass its state_dict()" if hasattr(state, "state_dict") else 'Pass save({"x": ...}, path)'
        raise StateError(f"save: not a dict: {type(state).__name__}. {advice}.")
    arrays: dict[str, Listed] = {}
    metadata = {"format": FORMAT, "sha256": ZEROS.decode(), "state": taken_apart(state, arrays)}
    place = placed(path)
    digest, pieces = hashlib.sha256(), tensor_file.pieces(arrays, metadata)  # type: ignore[arg-type]
    header = next(pieces)
    at = bytes(header).index(MARK) + len(MARK)
    hashed = tensor_file.hashed(chain((header,), pieces), digest)
    try:
        mark = hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16]  # of the file: its name may leave no room for more
        sweep_dead(place.parent, f"{mark}-*")
        put_file(place, place.with_name(f"{TEMPORARY}{mark}-{secrets.token_hex(8)}"), hashed, lambda: (at, digest.hexdigest().encode()))
    except OSError as error:
        reason = error.strerror or str(error)
        advice = "Make the folder first" if isinstance(error, FileNotFoundError) else "Make room, or choose another place"
        raise StateError(f"save: cannot write: {place}: {reason}. {advice}; what was there before is untouched.") from error


def placed(path: Any) -> Path:
    """Where to write: the file a link leads to. StateError for what is there and no file."""
    try:
        place = Path(os.path.realpath(os.fsdecode(os.fspath(path))))
        there = os.stat(place)
    except FileNotFoundError:
        return place
    except (TypeError, ValueError) as error:
        raise StateError(f"save: not a path: {path!r}. Use save(state, path) with a string or Path.") from error
    except OSError as error:
        raise StateError(f"save: cannot write: {path}: {error.strerror}. Choose another place.") from error
    if not stat.S_ISREG(there.st_mode):
        kind = "a folder" if stat.S_ISDIR(there.st_mode) else "no regular file"
        raise StateError(f"save: there is {kind} in this place: {path}. Choose the name of a file.")
    return place


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What save() wrote, nested as it was, with NumPy arrays of their own memory; tuples are tuples again.

    Also reads other libraries' safetensors files: a dict of arrays by name. Raises StateError for a file that is missing, cut,
    damaged or something else.
    """
    try:
        place = os.fsdecode(os.fspath(path))
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise StateError(f"load: not a file: {path}. Pass the path that was given to save().")
        file = open(place, "rb")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise StateError(f"load: cannot read: {path}: {error.strerror}. Check the path.") from error
    except (TypeError, ValueError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"load: not a path: {path!r}. Use load(path) with a string or Path.") from error
    with file:
        try:
            return read(file, os.fstat(file.fileno()).st_size)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            what = " ".join(str(error).split())[:300] or type(error).__name__
            file.seek(0)
            zipped = file.read(4) == b"PK\x03\x04"
            advice = "PyTorch's own files have to be written with safetensors.torch.save_file" if zipped else "Take another copy"
            raise StateError(f"load: damaged, or no safetensors file: {path}: {what}. {advice}.") from error


def read(file: Any, size: int) -> dict[str, Any]:
    """The state in an open file of `size` bytes. ValueError and the like where it is damaged."""
    text = tensor_file.header_of(file, size)
    size -= 8 + len(text)
    found, metadata = tensor_file.places(text, size)
    digest = hashlib.sha256(len(text).to_bytes(8, "little"))
    expected = metadata.get("sha256")
    if expected is not None:
        at = text.index(MARK) + len(MARK)
        digest.update(text[:at] + ZEROS + text[at + len(ZEROS) :])
    arrays = tensor_file.stream(file, found, size, digest)
    ours = metadata.get("format") == FORMAT
    if (ours or expected is not None) and digest.hexdigest() != expected:
        raise ValueError(f"SHA-256 is {digest.hexdigest()[:12]}..., expected {str(expected)[:12]}...")
    return rebuilt(metadata["state"], arrays) if ours else arrays
