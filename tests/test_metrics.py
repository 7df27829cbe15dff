"""Metrics: over batches they are what they are of all samples at once. Oracles: scikit-learn, NumPy."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import metrics as M

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(0)
SCORES = np.round(RNG.normal(size=(60, 4)), 1).astype("f4")  # with ties
IDS = RNG.choice(4, 60, p=[0.5, 0.3, 0.2, 0.0])  # a class that is no label
THREE = SCORES[:, :3]
BINARY, BITS = np.round(RNG.normal(size=80), 1), RNG.integers(0, 2, 80)


def in_batches(metric: Any, x: Any, y: Any, sizes: tuple[int, ...] = (7, 1, 20, 0)) -> Any:
    at = 0
    for n in (*sizes, len(x) - sum(sizes)):
        metric.update(fp.tensor(x[at : at + n]), fp.tensor(y[at : at + n]))
        at += n
    return metric.compute()


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "none"])
@pytest.mark.parametrize("kind", ["Precision", "Recall", "F1"])
def test_scores_against_scikit_learn(kind: str, average: str) -> None:
    sk = pytest.importorskip("sklearn.metrics")
    theirs = {"Precision": sk.precision_score, "Recall": sk.recall_score, "F1": sk.f1_score}[kind]
    predicted = np.where(SCORES.argmax(1) == 3, 1, SCORES.argmax(1))
    for guess in (SCORES, predicted):
        found = in_batches(getattr(M, kind)(4, average), guess, IDS)
        ids = guess.argmax(1) if guess.ndim > 1 else guess
        more = {"labels": range(4)} if average == "none" else {}
        want = theirs(IDS, ids, average=None if average == "none" else average, zero_division=0, **more)
        np.testing.assert_allclose(found, want, rtol=1e-12)


def test_accuracy_confusion_and_auc_against_scikit_learn() -> None:
    sk = pytest.importorskip("sklearn.metrics")
    assert in_batches(M.Accuracy(), SCORES, IDS) == sk.accuracy_score(IDS, SCORES.argmax(1))
    np.testing.assert_array_equal(
        in_batches(M.ConfusionMatrix(4), SCORES, IDS), sk.confusion_matrix(IDS, SCORES.argmax(1), labels=range(4))
    )
    np.testing.assert_allclose(in_batches(M.ROCAUC(), BINARY, BITS), sk.roc_auc_score(BITS, BINARY), rtol=1e-12)
    shares = np.exp(THREE) / np.exp(THREE).sum(axis=1, keepdims=True)
    for kind, average in (("ovr", "macro"), ("ovr", "weighted"), ("ovr", None), ("ovo", "macro"), ("ovo", "weighted")):
        want = sk.roc_auc_score(IDS, shares, multi_class=kind, average=average)
        np.testing.assert_allclose(in_batches(M.ROCAUC(3, kind, average or "none"), shares, IDS), want, rtol=1e-12)
    distinct = SCORES + np.arange(4) * 1e-3
    for k in (1, 2, 3):
        want = sk.top_k_accuracy_score(IDS, distinct, k=k, labels=range(4))
        assert in_batches(M.TopKAccuracy(k), distinct, IDS) == pytest.approx(want)
        assert M.TopKAccuracy(k).top_k == k


def test_ties_nan_and_axes() -> None:
    accuracy = M.Accuracy()
    accuracy.update([[1.0, 1.0], [1.0, 1.0]], [0, 1])
    assert accuracy.compute() == 0.5  # of equal scores the first
    accuracy.reset()
    accuracy.update([[np.nan, 1.0], [2.0, np.nan], [0.0, 1.0]], [0, 0, 1])
    assert accuracy.compute() == 1 / 3
    tokens = M.Accuracy(ignore_index=-1)
    tokens.update(fp.tensor(SCORES.reshape(6, 10, 4)).to(fp.float16), np.where(np.arange(60) % 3, IDS, -1).reshape(6, 10))
    keep = np.arange(60) % 3 > 0
    assert tokens.compute() == (SCORES.astype("f2").argmax(1) == IDS)[keep].mean() and tokens.count == 40


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_perplexity(dtype: str) -> None:
    logits = fp.tensor(SCORES).to(dtype)
    x, ids = logits.to(fp.float64).numpy(), np.where(np.arange(60) % 7, IDS, -100)
    losses = (np.log(np.exp(x).sum(1)) - x[np.arange(60), IDS])[ids >= 0]
    perplexity = M.Perplexity()
    for part in (slice(0, 13), slice(13, 14), slice(14, 60)):
        perplexity.update(logits[part], ids[part])
    np.testing.assert_allclose(perplexity.compute(), np.exp(losses.mean()), rtol=1e-12)
    again = M.Perplexity()
    for part in (losses[:5], losses[5:]):
        again.update_loss(fp.tensor(part.mean()), len(part))
    np.testing.assert_allclose(again.compute(), perplexity.compute(), rtol=1e-12)
    mean = M.Mean()
    mean.update(fp.tensor([1.0, 2.0]))
    mean.update(6.0, weight=2)
    assert mean.compute() == 15 / 4


METRICS: dict[str, tuple[Any, Any, Any]] = {
    "accuracy": (lambda: M.Accuracy(2), SCORES, IDS), "confusion": (lambda: M.ConfusionMatrix(4), SCORES, IDS),
    "f1": (lambda: M.F1(4, "none"), SCORES, IDS), "auc": (M.ROCAUC, BINARY, BITS),
    "aucs": (lambda: M.ROCAUC(3, "ovo", "weighted"), THREE, IDS), "perplexity": (M.Perplexity, SCORES, IDS),
}  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
def test_saved_reset_and_off_the_tape(name: str, tmp_path: Any) -> None:
    make, x, y = METRICS[name]
    metric, restored = make(), make()
    with raises(fp.StateError, f"{metric.name}: nothing to compute") if name != "confusion" else raises(fp.StateError, "kind"):
        metric.compute() if name != "confusion" else metric.load_state_dict({"kind": "other"})
    leaf = fp.tensor(x[:30], requires_grad=True)
    with fp.AutogradEngine().record():
        metric.update(leaf * 1.0, y[:30])
    saved = pickle.loads(pickle.dumps(metric.state_dict()))
    fp.save(saved, tmp_path / "metric.safetensors")
    restored.load_state_dict(fp.load(tmp_path / "metric.safetensors"))
    for one in (metric, restored):
        one.update(x[30:], y[30:])
    whole = make()
    whole.update(x, y)
    np.testing.assert_allclose(metric.compute(), whole.compute(), rtol=1e-14)
    np.testing.assert_array_equal(metric.compute(), restored.compute())
    halves = make(), make()
    for one, part in zip(halves, (slice(0, 30), slice(30, None)), strict=True):
        one.update(x[part], y[part])
    halves[0].merge(halves[1].state_dict())
    np.testing.assert_allclose(halves[0].compute(), whole.compute(), rtol=1e-14)
    halves[0].merge(halves[0])
    np.testing.assert_allclose(halves[0].compute(), whole.compute() * (2 if name == "confusion" else 1), rtol=1e-14)
    with raises(fp.StateError, "not the state of such a metric"):
        halves[0].merge(M.Mean())
    metric.reset()
    assert str(metric.state_dict()) == str(make().state_dict())
    for wrong in (None, {}, {**saved, "kind": "Other"}, {**saved, metric.kept[0]: "x"}, {**saved, metric.kept[0]: np.zeros((3, 3, 3))}):
        with raises(fp.StateError, metric.name):
            restored.load_state_dict(wrong)
    np.testing.assert_allclose(restored.compute(), whole.compute(), rtol=1e-14)
    assert metric.name in repr(metric)


def test_what_metrics_refuse() -> None:
    auc, f1, accuracy = M.ROCAUC(), M.F1(3), M.Accuracy()
    for error, call, word in (
        (fp.ShapeError, lambda: accuracy.update(SCORES, IDS[:5]), "shapes do not fit"),
        (ValueError, lambda: M.Accuracy(0), "top_k"),
        (fp.IndexOutOfRange, lambda: f1.update(SCORES[:, :3], IDS + 1), "out of range: 3"),
        (ValueError, lambda: M.F1(2, "mean"), "average"),
        (fp.ShapeError, lambda: f1.update(SCORES, IDS), "other classes"),
        (fp.DTypeError, lambda: accuracy.update(SCORES, IDS * 1.0), "no class"),
        (fp.DTypeError, lambda: accuracy.update(IDS * 1.0, IDS), "no class ids"),
        (fp.ShapeError, lambda: auc.update(SCORES, IDS), "differ"),
        (fp.IndexOutOfRange, lambda: auc.update(BINARY, BITS * 2), "2"),
        (ValueError, lambda: auc.update([np.nan], [1]), "NaN"),
        (fp.ShapeError, lambda: M.ROCAUC(3).update(SCORES, IDS), "differ"),
        (ValueError, lambda: M.ROCAUC(1), "num_classes"), (ValueError, lambda: M.ROCAUC(4, "ovo", "none"), "unknown multi_class"),
        (ValueError, lambda: M.ConfusionMatrix(0), "num_classes"),
        (ValueError, lambda: M.Mean().update(1.0, -1), "weight"),
        (fp.DTypeError, lambda: accuracy.update(["a"], [1]), "no numbers"),
        (fp.ShapeError, lambda: M.Perplexity().update(IDS, IDS), "scores"),
        (fp.ShapeError, lambda: M.TopKAccuracy(2).update(IDS, IDS), "scores are needed"),
    ):  # fmt: skip
        with raises(error, word):
            call()
    auc.update(BINARY, BITS * 0)
    with raises(fp.StateError, "both classes"):
        auc.compute()
    areas = M.ROCAUC(3)
    areas.update(THREE, IDS % 2)
    with raises(fp.StateError, "every class"):
        areas.compute()


def test_areas_of_classes_are_shares_of_pairs() -> None:
    """By counting pairs of samples, where scikit-learn is not installed."""

    def area(scores: Any, ones: Any) -> float:
        a, b = scores[ones][:, None], scores[~ones]
        return float(((a > b) + 0.5 * (a == b)).mean())

    rest = [area(THREE[:, c], c == IDS) for c in range(3)]
    np.testing.assert_allclose(in_batches(M.ROCAUC(3, average="none"), THREE, IDS), rest, rtol=1e-12)
    np.testing.assert_allclose(in_batches(M.ROCAUC(3), THREE, IDS), np.mean(rest), rtol=1e-12)
    pairs = []
    for a, b in itertools.combinations(range(3), 2):
        both = (a == IDS) | (b == IDS)
        pairs.append(np.mean([area(THREE[both, c], IDS[both] == c) for c in (a, b)]))
    np.testing.assert_allclose(in_batches(M.ROCAUC(3, "ovo"), THREE, IDS), np.mean(pairs), rtol=1e-12)
