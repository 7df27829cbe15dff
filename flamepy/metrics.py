"""How good predictions are, over any number of batches: what is kept are counts (of ROCAUC the scores themselves), so the result is that
of all samples at once and not a mean of means.

    accuracy = fp.metrics.Accuracy()
    for x, y in batches:
        accuracy.update(model(x), y)        # tensors of any device, arrays or lists; nothing is recorded
    print(accuracy.compute())

Classes lie along the last axis of scores. A metric reads on the host: update it outside of captured steps, with what these return.
"""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np

from .core.errors import DTypeError, IndexOutOfRange, ShapeError, StateError
from .core.tensor import Tensor
from .dtypes import HALF, is_count, is_number

AVERAGES = ("micro", "macro", "weighted", "none")


class Metric:
    """Base of all. `kept`: the names of what is accumulated, which state_dict() holds."""

    kept: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.reset()

    @property
    def name(self) -> str:
        return type(self).__name__

    def reset(self) -> None:
        """Forget all that was seen."""
        raise NotImplementedError

    def compute(self) -> Any:
        """The result of all that was seen since the last reset(). Raises StateError if that was nothing."""
        raise NotImplementedError

    def merge(self, other: Any) -> None:
        """Take in what another metric of this kind and these options has seen, or its state_dict(), such as another process's; a failure
        changes nothing (StateError)."""
        theirs = copy.copy(self)
        theirs.load_state_dict(other.state_dict() if isinstance(other, Metric) else other)
        for key in self.kept:
            mine, more = getattr(self, key), getattr(theirs, key)
            setattr(self, key, np.concatenate([mine, more]) if np.ndim(mine) == 1 else mine + more)

    def options(self) -> dict[str, Any]:
        """What it was made with."""
        return {key: value for key, value in vars(self).items() if key not in self.kept}

    def nothing(self, what: str = "samples") -> StateError:
        return StateError(f"{self.name}: nothing to compute from: no {what} so far. Call update() first.")

    # ---- state -----------------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Plain data: {"kind", its options, what is accumulated}."""
        values = {key: getattr(self, key) for key in self.kept}
        return {"kind": self.name, **self.options(), **{k: v.copy() if isinstance(v, np.ndarray) else v for k, v in values.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict() of a metric of this kind and these options; a failure changes nothing (StateError)."""
        mine = self.state_dict()
        if not isinstance(state, dict) or set(state) != set(mine) or any([state[k] != mine[k] for k in ("kind", *self.options())]):
            what = {k: v for k, v in state.items() if k not in self.kept} if isinstance(state, dict) else type(state).__name__
            raise StateError(f"{self.name}: not the state of such a metric: {what}. Restore what state_dict() of one like this returned.")
        found = {key: self.restored(key, state[key], mine[key]) for key in self.kept}
        for key, value in found.items():
            setattr(self, key, value)

    def restored(self, key: str, value: Any, mine: Any) -> Any:
        """A value of a state, of the type that it has here."""
        array = np.asarray(value)
        own = np.asarray(mine)
        if array.dtype.kind not in "iuf" or array.ndim != own.ndim or (array.shape != own.shape and own.ndim != 1):
            raise StateError(f"{self.name}: {key} does not fit: {array.dtype} of shape {array.shape}. Restore what state_dict() returned.")
        return array.astype(own.dtype) if isinstance(mine, np.ndarray) else type(mine)(array.item())

    def __repr__(self) -> str:
        return f"{self.name}({', '.join([f'{key}={value!r}' for key, value in self.options().items()])})"


# ---- what update() is given ------------------------------------------------------------------------------------------------------------
def array_of(name: str, what: str, x: Any) -> np.ndarray:
    """Numbers on the host; 16-bit floats as float32."""
    if isinstance(x, Tensor):
        return np.asarray(x.detach().numpy(), np.float32) if x.dtype in HALF else np.asarray(x.detach().numpy())
    found = np.asarray(x)
    if found.dtype.kind not in "biuf":
        raise DTypeError(f"{name}.update: {what} are no numbers: {found.dtype}. Pass a tensor or an array.")
    return found


def classes_of(name: str, ids: Any, count: int | None, what: str = "labels") -> np.ndarray:
    """Class ids, flat."""
    found = array_of(name, what, ids)
    if found.dtype.kind not in "iub":
        raise DTypeError(f"{name}.update: {what} are no class ids: {found.dtype}. Pass integers.")
    found = found.astype(np.int64).reshape(-1)
    if count is not None and (wrong := found[(found < 0) | (found >= count)]).size:
        raise IndexOutOfRange(f"{name}.update: {what} out of range: {wrong[0]}, there are {count} classes. Use 0 to {count - 1}.")
    return found


def predictions(name: str, scores: Any, labels: Any, count: int | None = None, ignore: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(predicted ids or rows of scores, labels) of those that are not ignored: scores have one axis more than labels, of the classes."""
    given, ids = array_of(name, "predictions", scores), array_of(name, "labels", labels)
    if given.shape[: ids.ndim] != ids.shape or given.ndim - ids.ndim not in (0, 1):
        raise ShapeError(
            f"{name}.update: shapes do not fit: {given.shape} and labels {ids.shape}. Pass scores (..., classes) or ids (...)."
        )
    rows = given.reshape(-1, given.shape[-1]) if given.ndim > ids.ndim else classes_of(name, given, count, "predictions")
    keep = slice(None) if ignore is None else ids.reshape(-1) != ignore
    classes = given.shape[-1] if given.ndim > ids.ndim else count
    if given.ndim > ids.ndim and count is not None and classes != count:
        raise ShapeError(f"{name}.update: scores of other classes: {classes}, the metric has {count}. Pass (..., {count}).")
    return rows[keep], classes_of(name, ids.reshape(-1)[keep], classes)


def best(rows: np.ndarray) -> np.ndarray:
    """Predicted ids; of equal scores the first one's. A NaN is chosen, as argmax does."""
    return rows.argmax(axis=1) if rows.ndim > 1 else rows  # type: ignore[no-any-return]


# ---- how many are right -----------------------------------------------------------------------------------------------------------------
class Accuracy(Metric):
    """The share of samples whose class is among the top_k highest scores, by default the highest; of equal scores the first counts.
    update(scores (..., classes) or ids (...), labels)."""

    kept = ("right", "count")

    def __init__(self, top_k: int = 1, ignore_index: int | None = None):
        if not is_count(top_k, 1):
            raise ValueError(f"{self.name}: top_k is no count: {top_k!r}. Use an int, 1 or more.")
        self.top_k, self.ignore_index = int(top_k), ignore_index
        super().__init__()

    def reset(self) -> None:
        self.right = self.count = 0

    def update(self, scores: Any, labels: Any) -> None:
        """Take a batch in. Raises ShapeError, DTypeError, IndexOutOfRange before anything is changed."""
        rows, ids = predictions(self.name, scores, labels, None, self.ignore_index)
        if rows.ndim == 1:
            if self.top_k > 1:
                raise ShapeError(f"{self.name}.update: ids where scores are needed: top_k is {self.top_k}. Pass scores (..., classes).")
            right = rows == ids
        else:
            own = np.take_along_axis(rows, ids[:, None], axis=1)
            before = (rows == own) & (np.arange(rows.shape[1]) < ids[:, None])
            right = ((rows > own) | before | np.isnan(rows)).sum(axis=1) < self.top_k
            right &= ~np.isnan(own[:, 0])
        self.right, self.count = self.right + int(right.sum()), self.count + len(ids)

    def compute(self) -> float:
        if not self.count:
            raise self.nothing()
        return self.right / self.count


class TopKAccuracy(Accuracy):
    """The share of samples whose class is among the k highest scores: Accuracy(top_k=k)."""

    def __init__(self, k: int = 5, ignore_index: int | None = None):
        super().__init__(k, ignore_index)


class ConfusionMatrix(Metric):
    """How often a class (row) was predicted as each (column): int64, (num_classes, num_classes).
    update(scores (..., classes) or ids (...), labels (...))."""

    kept = ("matrix",)

    def __init__(self, num_classes: int, ignore_index: int | None = None):
        if not is_count(num_classes, 1):
            raise ValueError(f"{self.name}: num_classes is no count: {num_classes!r}. Use an int, 1 or more.")
        self.num_classes, self.ignore_index = int(num_classes), ignore_index
        super().__init__()

    def reset(self) -> None:
        self.matrix = np.zeros((self.num_classes, self.num_classes), np.int64)

    def update(self, scores: Any, labels: Any) -> None:
        """Take a batch in. Raises ShapeError, DTypeError, IndexOutOfRange before anything is changed."""
        rows, ids = predictions(self.name, scores, labels, self.num_classes, self.ignore_index)
        counts = np.bincount(ids * self.num_classes + best(rows), minlength=self.num_classes**2)
        self.matrix = self.matrix + counts.reshape(self.num_classes, self.num_classes)

    def restored(self, key: str, value: Any, mine: Any) -> Any:
        found = super().restored(key, value, mine)
        if found.shape != mine.shape or (found < 0).any():
            raise StateError(f"{self.name}: {key} does not fit: shape {found.shape}. Restore what state_dict() returned.")
        return found

    def compute(self) -> Any:
        return self.matrix.copy()


class Scores(ConfusionMatrix):
    """Base of Precision, Recall and F1. `average`: "micro" over all samples, "macro" the mean over the classes that occur, in labels or
    predictions, "weighted" that by how often a class is a label, "none" one number for each class. A share of nothing is 0."""

    def __init__(self, num_classes: int, average: str = "macro", ignore_index: int | None = None):
        if average not in AVERAGES:
            raise ValueError(f"{self.name}: unknown average: {average!r}. Use one of {', '.join(AVERAGES)}.")
        self.average = average
        super().__init__(num_classes, ignore_index)

    def share(self, right: Any, predicted: Any, labelled: Any) -> Any:
        """The score from how many were right, predicted and labelled."""
        raise NotImplementedError

    def compute(self) -> Any:
        right, predicted, labelled = np.diag(self.matrix), self.matrix.sum(axis=0), self.matrix.sum(axis=1)
        if not labelled.sum():
            raise self.nothing()
        if self.average == "micro":
            return float(self.share(right.sum(), predicted.sum(), labelled.sum()))
        each = self.share(right, predicted, labelled)
        if self.average == "none":
            return each
        weights = labelled if self.average == "weighted" else (predicted + labelled > 0)
        return float((each * weights).sum() / weights.sum())


def part(of: Any, whole: Any) -> Any:
    return np.divide(of, np.maximum(whole, 1), dtype=np.float64)


class Precision(Scores):
    """Of those predicted as a class, the share that is of it."""

    def share(self, right: Any, predicted: Any, labelled: Any) -> Any:
        return part(right, predicted)


class Recall(Scores):
    """Of those that are of a class, the share predicted as it."""

    def share(self, right: Any, predicted: Any, labelled: Any) -> Any:
        return part(right, labelled)


class F1(Scores):
    """The harmonic mean of precision and recall."""

    def share(self, right: Any, predicted: Any, labelled: Any) -> Any:
        return part(2 * right, predicted + labelled)


# ---- by scores, and by losses ------------------------------------------------------------------------------------------------------------
class ROCAUC(Metric):
    """The area under the ROC curve: how probably a sample of class 1 has a higher score than one of class 0, ties counted half.

    update(scores (...), labels (...) of 0 and 1). With num_classes the scores are (..., classes) and labels ids: "ovr" is the mean of the
    areas of each class against the rest, "ovo" that of all pairs of classes, each in both directions (Hand & Till 2001). average: "macro",
    "weighted" by how often a class, or pair, occurs, or "none" for one number each, of "ovr". It is exact, and keeps all scores."""

    kept = ("scores", "labels")

    def __init__(self, num_classes: int | None = None, multi_class: str = "ovr", average: str = "macro"):
        if num_classes is not None and not is_count(num_classes, 2):
            raise ValueError(f"{self.name}: num_classes is no count: {num_classes!r}. Use an int, 2 or more, or None for one score.")
        if multi_class not in ("ovr", "ovo") or average not in AVERAGES[1 : 4 if multi_class == "ovr" else 3]:
            known = "'ovr' or 'ovo', and 'macro', 'weighted' or, of 'ovr', 'none'"
            raise ValueError(f"{self.name}: unknown multi_class or average: {multi_class!r}, {average!r}. Use {known}.")
        self.num_classes, self.multi_class, self.average = num_classes, multi_class, average
        super().__init__()

    def reset(self) -> None:
        self.scores, self.labels = np.zeros(0, np.float64), np.zeros(0, np.int64)

    def update(self, scores: Any, labels: Any) -> None:
        """Take a batch in. Raises ShapeError, DTypeError, IndexOutOfRange, ValueError for NaN, before anything is changed."""
        x, ids, count = array_of(self.name, "scores", scores), array_of(self.name, "labels", labels), self.num_classes
        if x.shape != (ids.shape if count is None else (*ids.shape, count)):
            advice = "Pass the scores of class 1 alone, or give num_classes." if count is None else f"Pass scores (..., {count})."
            raise ShapeError(f"{self.name}.update: shapes differ: scores {x.shape}, labels {ids.shape}. {advice}")
        if np.isnan(x.astype(np.float64)).any():
            raise ValueError(f"{self.name}.update: a score has no order: NaN among {x.size}. Look at the model's numbers first.")
        ids = classes_of(self.name, ids, count or 2)
        self.scores = np.concatenate([self.scores, x.astype(np.float64).reshape(-1)])
        self.labels = np.concatenate([self.labels, ids])

    def compute(self) -> Any:
        if self.num_classes is None:
            return self.area(self.scores, self.labels == 1)
        scores, counts = self.scores.reshape(-1, self.num_classes), np.bincount(self.labels, minlength=self.num_classes)
        if self.multi_class == "ovr":
            found, weights = [self.area(column, self.labels == c) for c, column in enumerate(scores.T)], counts
        else:
            pairs = list(itertools.combinations(range(self.num_classes), 2))
            found, weights = [0.5 * (self.between(scores, a, b) + self.between(scores, b, a)) for a, b in pairs], counts[pairs].sum(axis=1)
        return np.array(found) if self.average == "none" else float(np.average(found, weights=weights if self.average[0] == "w" else None))

    def between(self, scores: np.ndarray, a: int, b: int) -> float:
        """The area of class a's scores, of the samples of two classes."""
        of_both = (self.labels == a) | (self.labels == b)
        return self.area(scores[of_both, a], self.labels[of_both] == a)

    def area(self, scores: np.ndarray, labels: np.ndarray) -> float:
        ones = int(labels.sum())
        zeros = labels.size - ones
        if not ones or not zeros:
            raise self.nothing("samples of both classes" if self.num_classes is None else "samples of every class")
        _, at, counts = np.unique(scores, return_inverse=True, return_counts=True)
        of_one = np.bincount(at, weights=labels, minlength=len(counts))
        of_zero = counts - of_one
        below = np.cumsum(of_zero) - of_zero
        return float((of_one * (below + 0.5 * of_zero)).sum() / (ones * zeros))


class Mean(Metric):
    """A weighted mean, such as that of losses by how many samples they are of. Mean(). update(value, weight=1); values may be arrays."""

    kept = ("total", "weight")

    def reset(self) -> None:
        self.total = self.weight = 0.0

    def update(self, value: Any, weight: float = 1.0) -> None:
        """Take numbers in, each with this weight. Raises ValueError for a weight below 0."""
        if not is_number(weight) or not 0.0 <= float(weight) < math.inf:
            raise ValueError(f"{self.name}.update: weight out of range: {weight!r}. Use a number, 0 or more.")
        values = array_of(self.name, "values", value).astype(np.float64).reshape(-1)
        if not weight:  # such as the loss of no tokens, which is NaN
            return
        self.total += math.fsum(values) * float(weight)
        self.weight += values.size * float(weight)

    def compute(self) -> float:
        if not self.weight:
            raise self.nothing("numbers")
        return self.total / self.weight


class Perplexity(Mean):
    """exp of the mean cross-entropy of all tokens.
    update(scores (..., classes), ids (...)), or update_loss(mean loss, number of tokens) with a loss that is there already."""

    def __init__(self, ignore_index: int | None = -100):
        self.ignore_index = ignore_index
        super().__init__()

    def update(self, scores: Any, labels: Any) -> None:  # type: ignore[override]
        """Take a batch in. Raises ShapeError, DTypeError, IndexOutOfRange before anything is changed."""
        rows, ids = predictions(self.name, scores, labels, None, self.ignore_index)
        if rows.ndim == 1:
            raise ShapeError(f"{self.name}.update: ids where scores are needed: shape {rows.shape}. Pass scores (..., classes).")
        wide = rows.astype(np.float64)
        top = wide.max(axis=1, keepdims=True, initial=-math.inf)
        losses = np.log(np.exp(wide - top).sum(axis=1)) + top[:, 0] - np.take_along_axis(wide, ids[:, None], axis=1)[:, 0]
        super().update(losses)

    def update_loss(self, loss: Any, tokens: int) -> None:
        """Take in the mean loss of so many tokens."""
        super().update(loss, tokens)

    def compute(self) -> float:
        mean = super().compute()
        return math.inf if mean > 700.0 else math.exp(mean)
