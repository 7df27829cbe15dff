"""Images to learn from: scikit-learn's digits, MNIST-format idx files, or an .npz; all end as one Images record.

Three parts: the optimizer sees the training images; the validation images, every tenth of those given for training, tell how well it goes
meanwhile; the test images are looked at once, at the end. scikit-learn's digits come without a test set: it is every fifth image of each
class. The parts are always the same. Pixels are scaled so that the brightest of those given for training is 1.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from .files import given_path
from .problems import InputError

BUNDLED = "digits"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
TENTH = 10
IDX_NAMES = {"x_train": "train-images", "y_train": "train-labels", "x_test": "t10k-images", "y_test": "t10k-labels"}


@dataclass(frozen=True)
class Images:
    """x: (count, channels, height, width) float32; y: class ids, int64."""

    source: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @cached_property
    def sha256(self) -> str:
        state = hashlib.sha256()
        for array in (self.x_train, self.y_train, self.x_validation, self.y_validation, self.x_test, self.y_test):
            state.update(np.ascontiguousarray(array).data)
        return state.hexdigest()

    @property
    def classes(self) -> int:
        return int(self.y_train.max()) + 1


def load_images(source: str) -> Images:
    """The images that `--data` names, or InputError."""
    if source == BUNDLED:
        return bundled()
    path = given_path(source)
    if not path.exists():
        raise InputError(f"no such file or folder: {path}. Check the path given to --data.")
    try:
        arrays = from_idx(path) if path.is_dir() else from_npz(path)
    except OSError as error:
        raise InputError(f"cannot read: {path}: {error.strerror or error}. Check the file and its permissions.") from error
    return prepared(str(path), arrays)


def bundled() -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError(
            'scikit-learn, which brings the digits, is not installed. Run pip install "flamepy[data]", or give --data a '
            "folder of MNIST idx files."
        ) from error
    digits = load_digits()
    test = np.zeros(len(digits.target), bool)
    for label in range(10):
        test[np.flatnonzero(digits.target == label)[::5]] = True
    x, y = digits.images, digits.target
    return prepared(BUNDLED, dict(zip(ARRAYS, (x[~test], y[~test], x[test], y[test]), strict=True)))


def from_idx(folder: Path) -> dict[str, np.ndarray]:
    """The four files of an MNIST folder, compressed or not."""
    arrays = {}
    for name, start in IDX_NAMES.items():
        files = sorted(p for p in folder.iterdir() if p.name.startswith(start) and p.is_file())
        if not files:
            raise InputError(
                f"a file is missing: {folder} has no {start}*. Give --data a folder with {', '.join(IDX_NAMES.values())} (idx, .gz or not)."
            )
        arrays[name] = read_idx(files[0])
    return arrays


def read_idx(path: Path) -> np.ndarray:
    """One idx file of unsigned bytes: zero, zero, type 8, number of sizes, the sizes (big-endian), the bytes."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"the file is damaged: {path}: {error}. Download it again.") from error
    if len(content) < 8 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise InputError(f"not an idx file of bytes: {path} begins with {content[:4].hex(' ') or 'nothing'}. Check the file.")
    sizes = tuple(int(n) for n in np.frombuffer(content, ">u4", content[3], 4))
    start = 4 + 4 * len(sizes)
    if len(content) - start != int(np.prod(sizes, dtype=object)):
        raise InputError(f"the file is damaged: {path}: sizes {sizes}, {len(content) - start:,} bytes. Download it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(sizes)


def from_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        # From memory: np.load leaves a file it cannot read open.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            missing = [name for name in ARRAYS if name not in file]
            if missing:
                raise InputError(f"an array is missing: {path} has no {', '.join(missing)}. Save {', '.join(ARRAYS)} in it.")
            return {name: file[name] for name in ARRAYS}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"not an .npz of plain arrays: {path}: {error}. Save it with numpy.savez.") from error


def prepared(source: str, arrays: dict[str, np.ndarray]) -> Images:
    """Checked, scaled, channels first, in three parts."""
    x_train, x_test = (with_channels(source, name, arrays[name]) for name in ("x_train", "x_test"))
    y_train, y_test = (labels(source, name, arrays[name]) for name in ("y_train", "y_test"))
    for x, y, part in ((x_train, y_train, "train"), (x_test, y_test, "test")):
        if len(x) != len(y) or not len(x):
            raise InputError(f"images and labels do not match: {source}: {len(x)} x_{part}, {len(y)} y_{part}. Check the files.")
    if x_train.shape[1:] != x_test.shape[1:]:
        raise InputError(f"two sizes of images: {source}: {x_train.shape[1:]} and {x_test.shape[1:]}. Make them equal.")
    if y_test.max() > y_train.max():
        raise InputError(f"a class is only in the test set: {source}: {y_test.max()}. Check the labels.")
    top = np.float32(float(np.abs(x_train).max()) or 1.0)
    x_train, held_out = x_train / top, for_validation(source, y_train)
    return Images(source, x_train[~held_out], y_train[~held_out], x_train[held_out], y_train[held_out], x_test / top, y_test)


def for_validation(source: str, y: np.ndarray) -> np.ndarray:
    """Which images do not train but validate: every tenth, class after class; the first of each class always trains."""
    order, chosen = np.argsort(y, kind="stable"), np.zeros(len(y), bool)
    others = order[1:][np.diff(y[order]) == 0]
    if not len(others):
        raise InputError(f"no image is left for validation: {source}: {len(y)} x_train, one of each class. Give more of them.")
    chosen[others[::TENTH]] = True
    return chosen


def with_channels(source: str, name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "fiub" or x.ndim not in (3, 4) or 0 in x.shape:
        raise InputError(f"not images: {source}: {name} is {x.dtype} {x.shape}. Give (count, height, width) numbers.")
    x = x.astype(np.float32)
    if not np.isfinite(x).all():
        raise InputError(f"not finite: {source}: {name} has NaN or infinity. Repair the images.")
    if x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x if x.ndim == 4 else x[:, None])


def labels(source: str, name: str, y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "iu" or y.ndim != 1 or (len(y) and (y.min() < 0 or y.max() > 9999)):
        raise InputError(f"not class ids: {source}: {name} is {y.dtype} {y.shape}. Give whole numbers from 0.")
    return y.astype(np.int64)
