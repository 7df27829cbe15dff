"""Arrays by name in one safetensors file, written and read without a second copy of them in memory.

    8 bytes            length of the header, little-endian
    header             JSON: name -> dtype, shape, data_offsets; "__metadata__"; spaces up to a multiple of 8
    data               the elements, array after array, those of wide types first: each stands at a multiple of its size

`pieces` gives the bytes of such a file bit by bit; `read` checks a file's SHA-256, maps it into memory and returns views.

Read next: checkpoint.py.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

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
    """The bytes of the file, at most CHUNK at a time. TypeError for elements that the format does not know."""
    ordered = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    yield memoryview(header({name: arrays[name] for name in ordered}, metadata))
    for name in ordered:
        flat: Any = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        for start in range(0, flat.size, CHUNK):
            yield memoryview(flat[start : start + CHUNK])


def header(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Length and JSON of the header, for data in the order of `arrays`."""
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in arrays.items():
        if array.dtype not in NAMES:
            raise TypeError(f"tensor_file: dtype not supported: '{name}' is {array.dtype}. Use one of {', '.join(map(str, NAMES))}.")
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
        if file.tell() < 8:
            raise ValueError(f"only {file.tell()} bytes")
        content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    return views(content)


def views(content: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays in the bytes of a whole file."""
    begin = 8 + int.from_bytes(content[:8].tobytes(), "little")
    if begin > min(content.size, MOST_HEADER):
        raise ValueError(f"a header of {begin - 8} bytes in a file of {content.size}")
    entries = json.loads(content[8:begin].tobytes())
    if not isinstance(entries, dict):
        raise ValueError("the header is not a JSON object")
    return {name: view(name, entry, content[begin:]) for name, entry in entries.items() if name != "__metadata__"}


def view(name: str, entry: Any, data: np.ndarray) -> np.ndarray:
    """One array: the part of `data` that its entry in the header names."""
    try:
        dtype, shape, (start, end) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, start, end))
        if whole and end <= data.size and end - start == math.prod(shape) * dtype.itemsize:
            return data[start:end].view(dtype).reshape(shape)
    except (LookupError, TypeError, ValueError):
        pass
    raise ValueError(f"the header says nothing usable of '{name}': {entry}")
