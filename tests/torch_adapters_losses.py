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


def tracks_weight(*xs: Any, weight: Any = None, **options: Any) -> bool:
    """PyTorch itself has no gradient for it."""
    return weight is not None and weight.requires_grad


def differ(x: Any, target: Any, **options: Any) -> bool:
    return bool(x.shape != target.shape)


def ctc(x: Any, *args: Any, **options: Any) -> Any:
    """PyTorch's gradient is that of what log_softmax got, although it says that it is that of log_probs."""
    return F.ctc_loss(F.log_softmax(x, -1), *args, **options)


for name, call, more in (
    # PyTorch's gradient in float32 is off by 1e-4: float64 is compared.
    ("ctc_loss", ctc, {"edge": lambda x: (x.new_zeros(()) + x.itemsize) == 4}),
    ("soft_margin_loss", F.soft_margin_loss, {"fixed": (1,)}),
    ("multilabel_soft_margin_loss", F.multilabel_soft_margin_loss, {"fixed": (1,)}),
    ("triplet_margin_with_distance_loss", triplet, {}),
    ("multi_margin_loss", F.multi_margin_loss, {"random": tracks_weight}),
    ("hinge_embedding_loss", F.hinge_embedding_loss, {"refuses": differ}),
):
    ROWS[f"nn.functional.{name}"] = name, call, more
