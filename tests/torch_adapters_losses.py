"""The losses and similarities of PyTorch's operator database in flamepy's words: see torch_adapters.py, which joins these rows."""

from __future__ import annotations

from typing import Any

import flamepy.nn.functional as F

# By name: the flamepy op, how it is called, and what else a Row has.
SAME = """kl_div poisson_nll_loss gaussian_nll_loss hinge_embedding_loss soft_margin_loss margin_ranking_loss multi_margin_loss
    multilabel_margin_loss multilabel_soft_margin_loss cosine_similarity pairwise_distance triplet_margin_loss
    triplet_margin_with_distance_loss cosine_embedding_loss"""


ROWS: dict[str, tuple[str, Any, dict[str, Any]]] = {f"nn.functional.{name}": (name, getattr(F, name), {}) for name in SAME.split()}


def triplet(*xs: Any, distance_function: Any = None, **options: Any) -> Any:
    """The distance that the samples give is PyTorch's module of the usual one."""
    return F.triplet_margin_with_distance_loss(*xs, **options)


def differ(x: Any, target: Any, **options: Any) -> bool:
    return bool(x.shape != target.shape)


def ctc(x: Any, *args: Any, **options: Any) -> Any:
    """PyTorch's gradient is that of what log_softmax got, although it says that it is that of log_probs."""
    return F.ctc_loss(F.log_softmax(x, -1), *args, **options)


def in_one(x: Any, weight: Any, target: Any, *, options: Any = None, linear_bias: Any = None, **named: Any) -> Any:
    """PyTorch's options say how many rows are done at a time."""
    chunk = None if options is None else options.batch_chunk_size
    return F.linear_cross_entropy(x, weight, target, linear_bias, chunk=chunk, **named)


def wider(x: Any, matrix: Any, target: Any, **options: Any) -> bool:
    """More than one prediction of a row, class probabilities, class weights, or losses of single rows, which flamepy has without chunks."""
    return matrix.ndim > 2 or target.is_floating_point() or options.get("weight") is not None or options.get("reduction") == "none"


for name, call, more in (
    ("linear_cross_entropy", in_one, {"refuses": wider}),
    ("ctc_loss", ctc, {}),
    ("multi_margin_loss", F.multi_margin_loss, {"fixed": ("weight",)}),  # PyTorch has no gradient for it
    ("soft_margin_loss", F.soft_margin_loss, {"fixed": (1,)}),
    ("multilabel_soft_margin_loss", F.multilabel_soft_margin_loss, {"fixed": (1,)}),
    ("triplet_margin_with_distance_loss", triplet, {}),
    ("hinge_embedding_loss", F.hinge_embedding_loss, {"refuses": differ}),
):
    ROWS[f"nn.functional.{name}"] = name, call, more
