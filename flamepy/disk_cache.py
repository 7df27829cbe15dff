"""Numba's disk cache, made safe against damaged files: whatever a crash or a full disk has left is compiled again and replaced.

Numba trusts its files. An empty or cut one raises from inside its loader, and machine code with a wrong byte in it makes LLVM
abort the process. Here each file begins with a digest of its name and contents, and is read only if that fits.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache

from .errors import FlameWarning

DIGEST = 32  # bytes
_warned = False


class Damaged(Exception):
    """A file whose contents are not what was written; args: its path."""


class CheckedFile(IndexDataCacheFile):
    """One kernel's index and data files, each with its digest in front."""

    def _dump(self, obj: Any) -> bytes:
        return bytes(super()._dump(obj))

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self.write(self._index_path, self._dump((self._version, self._source_stamp, overloads)))

    def _save_data(self, name: str, data: Any) -> None:
        self.write(self._data_path(name), self._dump(data))

    def _load_index(self) -> dict[Any, str]:
        try:
            version, stamp, overloads = self.read(self._index_path)
        except FileNotFoundError:
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _load_data(self, name: str) -> Any:
        return self.read(self._data_path(name))

    def write(self, path: str, data: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(digest(path, data) + data)

    def read(self, path: str) -> Any:
        raw = Path(path).read_bytes()
        if raw[:DIGEST] != digest(path, raw[DIGEST:]):
            raise Damaged(path)
        return pickle.loads(raw[DIGEST:])


def digest(path: str, data: bytes) -> bytes:
    """Of a file: its name too, so that another kernel's file in its place is found out."""
    return hashlib.sha256(Path(path).name.encode() + data).digest()


class DiskCache(FunctionCache):
    """What a dispatcher gets instead of Numba's own cache. Numba has a folder for each folder of source files; here all share one."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        old, self._cache_path = self._cache_file, self._impl_class(cache_of).locator.get_cache_path()
        self._cache_file = CheckedFile(self._cache_path, self._impl.filename_base, old._source_stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Damaged as error:
            warn_once(f"damaged file: {error}. Its kernel is compiled again and the file replaced.")
        except (ImportError, AttributeError):  # it names a module or function that another version of flamepy had
            pass
        self.save(self._cache_file.flush)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        self.save(lambda: super(DiskCache, self).save_overload(sig, data))

    def save(self, action: Any) -> None:
        """A file that cannot be written costs the next process a compilation, not this one its run."""
        try:
            action()
        except OSError as error:
            warn_once(f"cannot write: {self._cache_path}: {error.strerror}. Make room there, or set NUMBA_CACHE_DIR to another folder.")


class NamedCache(DiskCache):
    """For a function whose name says what it was made of: what its closure holds has another identity in each process."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple()


def cache_of(function: Any, kind: type[DiskCache] = DiskCache) -> Any:
    """The disk cache of a function; where no folder can be written to, as in a read-only container, one that keeps nothing."""
    try:
        return kind(function)
    except RuntimeError:
        warn_once(f"no folder can be written to, so every process compiles its kernels again (seconds to a minute). {REMEDY}")
        return NullCache()


REMEDY = "Set NUMBA_CACHE_DIR to a folder that can be written to."


def warn_once(text: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"kernel cache: {text}", FlameWarning, stacklevel=2)
