"""Losses, and distances, as modules: each holds the options of a function of flamepy.nn.functional, and calls it.

Names and options are PyTorch's, without `size_average` and `reduce`, which it has given up. Weights of classes are buffers: state_dict()
has them, to() moves them.
"""

from __future__ import annotations

from typing import Any

from .activation import Options


class Loss(Options):
    """A loss of flamepy.nn.functional with its options."""

    def keep(self, **options: Any) -> None:
        """Hold these. Raises ValueError for a reduction that there is not."""
        known = ("none", "mean", "sum", "batchmean") if self.op == "kl_div" else ("none", "mean", "sum")
        if options.get("reduction", "mean") not in known:
            raise ValueError(f"{type(self).__name__}: unknown reduction: {options['reduction']!r}. Use one of {', '.join(known)}.")
        super().keep(**options)


class Plain(Loss):
    """One whose only option is the reduction."""

    def __init__(self, reduction: str = "mean"):
        self.keep(reduction=reduction)


# ---- classes -------------------------------------------------------------------------------------------------------------------------
class CrossEntropyLoss(Loss, op="cross_entropy"):
    """-log softmax(x)[id]; see functional.cross_entropy."""

    def __init__(
        self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0, z_loss: float = 0.0
    ):  # fmt: skip
        self.keep(weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing, z_loss=z_loss)


class NLLLoss(Loss, op="nll_loss"):
    """-x[id] for log-probabilities; see functional.nll_loss."""

    def __init__(self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean"):
        self.keep(weight=weight, ignore_index=ignore_index, reduction=reduction)


class BCELoss(Loss, op="binary_cross_entropy"):
    """Binary cross-entropy of probabilities; see functional.binary_cross_entropy."""

    def __init__(self, weight: Any = None, *, reduction: str = "mean"):
        self.keep(weight=weight, reduction=reduction)


class BCEWithLogitsLoss(Loss, op="binary_cross_entropy_with_logits"):
    """Binary cross-entropy of sigmoid(x); see functional.binary_cross_entropy_with_logits."""

    def __init__(self, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None):
        self.keep(weight=weight, reduction=reduction, pos_weight=pos_weight)


class MultiMarginLoss(Loss, op="multi_margin_loss"):
    """max(0, margin - x[id] + x[j])^p over the classes; see functional.multi_margin_loss."""

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Any = None, *, reduction: str = "mean"):
        self.keep(p=p, margin=margin, weight=weight, reduction=reduction)


class MultiLabelMarginLoss(Plain, op="multilabel_margin_loss"):
    """Margins between classes that a row has and those that it has not; see functional.multilabel_margin_loss."""


class MultiLabelSoftMarginLoss(Loss, op="multilabel_soft_margin_loss"):
    """Binary cross-entropy averaged over classes; see functional.multilabel_soft_margin_loss."""

    def __init__(self, weight: Any = None, *, reduction: str = "mean"):
        self.keep(weight=weight, reduction=reduction)


class SoftMarginLoss(Plain, op="soft_margin_loss"):
    """log(1 + exp(-t x)); see functional.soft_margin_loss."""


# ---- numbers ---------------------------------------------------------------------------------------------------------------------------
class MSELoss(Plain, op="mse_loss"):
    """(x - target)^2."""


class L1Loss(Plain, op="l1_loss"):
    """|x - target|."""


class SmoothL1Loss(Loss, op="smooth_l1_loss"):
    """|x - target|, quadratic below beta; see functional.smooth_l1_loss."""

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0):
        self.keep(reduction=reduction, beta=beta)


class HuberLoss(Loss, op="huber_loss"):
    """Quadratic up to delta, linear beyond; see functional.huber_loss."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        self.keep(reduction=reduction, delta=delta)


class KLDivLoss(Loss, op="kl_div"):
    """t (log t - x) for log-probabilities x; see functional.kl_div."""

    def __init__(self, *, reduction: str = "mean", log_target: bool = False):
        self.keep(reduction=reduction, log_target=log_target)


class PoissonNLLLoss(Loss, op="poisson_nll_loss"):
    """exp(x) - t x for counts t; see functional.poisson_nll_loss."""

    def __init__(self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"):
        self.keep(log_input=log_input, full=full, eps=eps, reduction=reduction)


class GaussianNLLLoss(Loss, op="gaussian_nll_loss"):
    """0.5 (log var + (x - t)^2 / var); see functional.gaussian_nll_loss."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        self.keep(full=full, eps=eps, reduction=reduction)


class CTCLoss(Loss, op="ctc_loss"):
    """Sequences without alignment; see functional.ctc_loss."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        self.keep(blank=blank, reduction=reduction, zero_infinity=zero_infinity)


# ---- pairs and triples -------------------------------------------------------------------------------------------------------------------
class CosineSimilarity(Options, op="cosine_similarity"):
    """The cosine of the angle between vectors; see functional.cosine_similarity."""

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        self.keep(dim=dim, eps=eps)


class PairwiseDistance(Options, op="pairwise_distance"):
    """The p-norm of x1 - x2 + eps; see functional.pairwise_distance."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        self.keep(p=p, eps=eps, keepdim=keepdim)


class CosineEmbeddingLoss(Loss, op="cosine_embedding_loss"):
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1; see functional.cosine_embedding_loss."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean"):
        self.keep(margin=margin, reduction=reduction)


class MarginRankingLoss(Loss, op="margin_ranking_loss"):
    """max(0, margin - t (x1 - x2)); see functional.margin_ranking_loss."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean"):
        self.keep(margin=margin, reduction=reduction)


class HingeEmbeddingLoss(Loss, op="hinge_embedding_loss"):
    """x where the target is 1, max(0, margin - x) where it is -1; see functional.hinge_embedding_loss."""

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean"):
        self.keep(margin=margin, reduction=reduction)


class TripletMarginLoss(Loss, op="triplet_margin_loss"):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)); see functional.triplet_margin_loss."""

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"):
        self.keep(margin=margin, p=p, eps=eps, swap=swap, reduction=reduction)


class TripletMarginWithDistanceLoss(Loss, op="triplet_margin_with_distance_loss"):
    """The same with a distance of your own; see functional.triplet_margin_with_distance_loss."""

    def __init__(self, *, distance_function: Any = None, margin: float = 1.0, swap: bool = False, reduction: str = "mean"):
        self.keep(distance_function=distance_function, margin=margin, swap=swap, reduction=reduction)
