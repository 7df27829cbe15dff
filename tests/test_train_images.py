"""Digit images: scikit-learn's, idx files, npz; what is refused; batches and shifts."""

import gzip
import sys

import numpy as np
import pytest

from flamepy.train.images import ARRAYS, IDX_NAMES, Images, load_images, prepared
from flamepy.train.problems import InputError

RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 256, (30, 5, 4), dtype=np.uint8)
Y = (np.arange(30) % 10).astype(np.uint8)
PARTS = dict(zip(ARRAYS, (X[:20], Y[:20], X[20:], Y[20:]), strict=True))


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def mnist(folder, compress=False, **changed):
    for name, array in {**PARTS, **changed}.items():
        kind = "idx3" if array.ndim == 3 else "idx1"
        path = folder / f"{IDX_NAMES[name]}-{kind}-ubyte{'.gz' * compress}"
        path.write_bytes(gzip.compress(idx(array)) if compress else idx(array))
    return str(folder)


def refused(source):
    with pytest.raises(InputError) as caught:
        load_images(str(source))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_bundled_digits_have_three_fixed_parts():
    pytest.importorskip("sklearn")
    images = load_images("digits")
    parts = [(getattr(images, f"x_{part}"), getattr(images, f"y_{part}")) for part in ("train", "validation", "test")]
    assert [x.shape for x, _ in parts] == [(1290, 1, 8, 8), (143, 1, 8, 8), (364, 1, 8, 8)]
    assert images.x_train.max() == 1 and images.classes == 10
    for (_, y), least in zip(parts, (125, 13, 35), strict=True):
        assert min(np.bincount(y, minlength=10)) >= least and max(np.bincount(y)) <= 1.1 * min(np.bincount(y)) + 2
    assert images.sha256 == load_images("digits").sha256


@pytest.mark.parametrize("count, classes", [(2, 1), (30, 4), (30, 29), (1000, 10), (1000, 1)])
@pytest.mark.parametrize("order", ["sorted", "in turns", "shuffled"])
def test_every_tenth_image_validates_and_every_class_trains(count, classes, order):
    y = np.arange(count) % classes
    y = {"sorted": np.sort(y), "in turns": y, "shuffled": RANDOM.permutation(y)}[order]
    x = np.arange(count * 4, dtype=float).reshape(count, 2, 2) + 1  # all different
    images = prepared("here", {"x_train": x, "y_train": y, "x_test": x[:1], "y_test": y[:1]})
    held_out = len(images.y_validation)
    assert held_out == -(-(count - classes) // 10) and len(images.y_train) == count - held_out
    assert set(images.y_train) == set(range(classes))
    parts = np.concatenate([images.x_train, images.x_validation])[:, 0, 0, 0], np.concatenate([images.y_train, images.y_validation])
    back = np.argsort(parts[0])
    np.testing.assert_allclose(parts[0][back], x[:, 0, 0] / x.max(), rtol=1e-6)  # each image is in one part, with its label
    assert np.array_equal(parts[1][back], y)
    if count == 1000:
        assert np.ptp(np.bincount(images.y_validation, minlength=classes)) <= 1


def test_an_image_of_each_class_is_too_few(tmp_path):
    np.savez(tmp_path / "d.npz", x_train=X[:4], y_train=np.arange(4), x_test=X[:2], y_test=np.arange(2))
    assert "no image is left for validation: " in refused(tmp_path / "d.npz")


def test_without_scikit_learn_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert 'pip install "flamepy[data]"' in refused("digits")


@pytest.mark.parametrize("compress", [False, True])
def test_idx_folder(tmp_path, compress):
    images = load_images(mnist(tmp_path, compress))
    assert images.x_train.shape == (19, 1, 5, 4) and images.x_train.dtype == np.float32
    assert np.allclose(images.x_test[:, 0] * PARTS["x_train"].max(), X[20:])
    assert np.array_equal(np.sort([*images.y_train, *images.y_validation]), np.sort(Y[:20])) and images.y_train.dtype == np.int64


def test_npz_equals_idx(tmp_path):
    np.savez(tmp_path / "d.npz", **PARTS)
    (tmp_path / "idx").mkdir()
    assert load_images(str(tmp_path / "d.npz")).sha256 == load_images(mnist(tmp_path / "idx")).sha256
    np.savez(tmp_path / "rgb.npz", **{**PARTS, "x_train": RANDOM.random((20, 9, 8, 3)), "x_test": RANDOM.random((10, 9, 8, 3))})
    assert load_images(str(tmp_path / "rgb.npz")).x_train.shape == (19, 3, 9, 8)


def test_what_is_refused(tmp_path):
    assert "no such file" in refused(tmp_path / "nope")
    assert "has no train-images*" in refused(tmp_path)
    source = mnist(tmp_path)
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1])
    assert "damaged" in refused(source)
    labels.write_bytes(b"hello, world")
    assert "not an idx file" in refused(source)
    labels.write_bytes(b"")
    assert "not an idx file" in refused(source)
    labels.unlink()
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(Y[:20]))[:-4])
    assert "damaged" in refused(source)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(b"no gzip")
    assert "damaged" in refused(source)


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"y_train": Y[:19]}, "20 x_train, 19 y_train"),
        ({"x_test": X[20:, :4]}, "two sizes"),
        ({"y_test": np.full(10, 11)}, "only in the test set: "),
        ({"x_train": np.full((20, 5, 4), np.nan)}, "not finite"),
        ({"x_train": X[:20].reshape(20, 20)}, "not images"),
        ({"y_train": Y[:20] - 0.5}, "not class ids"),
        ({"y_train": Y[:20].astype(int) - 1}, "not class ids"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "not images"),
    ],
)
def test_npz_of_other_things(tmp_path, changed, words):
    np.savez(tmp_path / "d.npz", **{**PARTS, **changed})
    assert words in refused(tmp_path / "d.npz")


def test_npz_damaged_foreign_or_pickled(tmp_path):
    file = tmp_path / "d.npz"
    file.write_bytes(b"PK\x03\x04 nothing of the kind")
    assert "not an .npz" in refused(file)
    file.write_bytes(b"plain text")
    assert "not an .npz" in refused(file)
    with file.open("wb") as handle:
        np.save(handle, X)
    assert "not an .npz" in refused(file)
    np.savez(file, **{**PARTS, "y_train": np.array([{}] * 20, dtype=object)})
    assert "not an .npz" in refused(file)
    np.savez(file, x_train=X)
    assert "has no y_train, x_test, y_test" in refused(file)


def test_shifted_batches():
    training_batch = pytest.importorskip("flamepy.train.digits").training_batch
    x = np.zeros((1, 1, 3, 3), np.float32)
    x[0, 0, 1, 1] = 1
    images = Images("t", *(x, np.array([4])) * 3)
    shifted, y = training_batch(images, 0, 0, 200, 1)
    assert shifted.shape == (200, 1, 3, 3) and (y == 4).all() and (shifted.sum((1, 2, 3)) == 1).all()
    assert len(np.unique(shifted, axis=0)) == 9
    assert np.array_equal(training_batch(images, 0, 0, 5, 0)[0], np.repeat(x, 5, 0))
    assert np.array_equal(training_batch(images, 0, 7, 9, 1)[0], training_batch(images, 0, 7, 9, 1)[0])
