"""Arrays by name in one safetensors file, written and read without a second copy of them in memory.

    8 bytes            length of the header, little-endian
    header             JSON: name -> dtype, shape, data_offsets; "__metadata__"; spaces up to a multiple of 8
    data               the elements, array after array, those of wide types first: each stands at a multiple of its size

`pieces` gives the bytes of such a file bit by bit. `read` checks a file's SHA-256, maps it into memory and returns views;
`stream` reads each array into memory of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from ..core.errors import DTypeError

CHUNK = 1 << 20  # bytes that are hashed, then written while they are still in the processor's cache
MOST_HEADER = 100_000_000  # bytes; the format's own limit
DTYPES = {
    "F64": np.dtype(np.float64), "F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype(np.int64), "I32": np.dtype(np.int32), "I16": np.dtype(np.int16), "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64), "U32": np.dtype(np.uint32), "U16": np.dtype(np.uint16), "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def pieces(arrays: Mapping[str, np.ndarray], metadata: dict[str, str]) -> Iterator[memoryview]:
    """The bytes of the file, at most CHUNK at a time. DTypeError for elements that the format does not know.

    Only dtype, shape, itemsize and nbytes are asked of all arrays at once; their elements one after the other.
    """
    ordered = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    yield memoryview(header({name: arrays[name] for name in ordered}, metadata))
    for name in ordered:
        flat: Any = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        for start in range(0, flat.size, CHUNK):
            yield memoryview(flat[start : start + CHUNK])


def hashed(pieces: Iterable[memoryview], digest: Any) -> Iterator[memoryview]:
    """The pieces, each added to `digest` just before it goes on."""
    for piece in pieces:
        digest.update(piece)
        yield piece


def header(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Length and JSON of the header, for data in the order of `arrays`."""
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in arrays.items():
        if array.dtype not in NAMES:
            raise DTypeError(f"save: dtype not supported: '{name}' is {array.dtype}. Use one of {', '.join(map(str, NAMES))}.")
        start, end = end, end + array.nbytes
        entries[name] = {"dtype": NAMES[array.dtype], "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read(path: Path, sha256: str) -> dict[str, np.ndarray]:
    """Read-only views of the arrays in `path`. ValueError when the file is not the one with this hash, or not safetensors.

    The file is read once, bit by bit, for its hash, so that a bad disk is an OSError here and nothing worse later. As long as a
    view lives the file keeps its room on disk, even when it was removed.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise ValueError(f"SHA-256 is {found[:12]}..., expected {sha256[:12]}...")
        if file.tell() < 8:  # an empty file cannot be mapped
            raise ValueError(f"only {file.tell()} bytes")
        content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    return views(content)


class Place(NamedTuple):
    """What the header says of one array; `start` and `end` are bytes behind the header."""

    dtype: np.dtype
    shape: list[int]
    start: int
    end: int


def places(text: bytes, size: int) -> tuple[dict[str, Place], dict[str, Any]]:
    """What a header says of each array, in `size` bytes behind it, and the metadata. ValueError where it says nothing usable."""
    entries = json.loads(text)
    if not isinstance(entries, dict):
        raise ValueError("the header is not a JSON object")
    metadata = entries.pop("__metadata__", None)
    found = {name: place(name, entry, size) for name, entry in entries.items()}
    return found, metadata if isinstance(metadata, dict) else {}


def place(name: str, entry: Any, size: int) -> Place:
    """What an entry of the header says."""
    try:
        dtype, shape, (start, end) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, start, end))
        if whole and end <= size and end - start == math.prod(shape) * dtype.itemsize:
            return Place(dtype, shape, start, end)
    except (LookupError, TypeError, ValueError):
        pass
    raise ValueError(f"the header says nothing usable of '{name}': {entry}")


def header_end(first: bytes, size: int) -> int:
    """Where the header of a file of `size` bytes ends; `first`: its first 8 bytes."""
    if len(first) < 8:
        raise ValueError(f"only {len(first)} bytes")
    begin = 8 + int.from_bytes(first, "little")
    if begin > min(size, MOST_HEADER):
        raise ValueError(f"a header of {begin - 8} bytes in a file of {size}")
    return begin


def views(content: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays in the bytes of a whole file."""
    begin = header_end(content[:8].tobytes(), content.size)
    data = content[begin:]
    found, _ = places(content[8:begin].tobytes(), data.size)
    return {name: data[p.start : p.end].view(p.dtype).reshape(p.shape) for name, p in found.items()}


def header_of(file: BinaryIO, size: int) -> bytes:
    """The text of the header of a file of `size` bytes, read up to there."""
    return file.read(header_end(file.read(8), size) - 8)


def stream(file: BinaryIO, found: dict[str, Place], size: int, digest: Any) -> dict[str, np.ndarray]:
    """The arrays of a file read up to its data, of `size` bytes, each in memory of its own; the data is added to `digest`.

    ValueError unless they lie one behind the other and fill the file.
    """
    arrays: dict[str, Any] = dict.fromkeys(found)
    at = 0
    for name, p in sorted(found.items(), key=lambda item: item[1][2:]):
        if p.start != at:
            raise ValueError(f"'{name}' begins at byte {p.start} of the data, expected {at}")
        at = p.end
        arrays[name] = array = np.empty(p.shape, p.dtype)
        flat: Any = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, CHUNK):
            chunk = memoryview(flat[start : start + CHUNK])
            if file.readinto(chunk) != len(chunk):  # type: ignore[attr-defined]
                raise ValueError(f"the file ends inside '{name}'")
            digest.update(chunk)
    if at != size:
        raise ValueError(f"{size} bytes of data, expected {at}")
    return arrays
