"""Regularizers: terms of a loss, a pipeline that adds them up, and who of them moves the parameters.

    from flamepy import regularizer as reg
    pipeline = reg.Pipeline(base_loss).add("l1", reg.l1, 1e-3).add("entropy", reg.entropy, 0.1)
    total, metrics = pipeline.compute(logits, track_grad_norms=True)

Every term is a plain function of a Tensor and returns a scalar Tensor: use it alone, in a sum of your own, or in a Pipeline.

    distributions.py  entropy kl js consistency             matrices.py  norms of weights, max_norm
    penalties.py      l1 l2 elastic_net gradient_penalty    paths.py     the gradient between two tensors, and where a path was cut
    pipeline.py       Pipeline                              tracker.py   GradientTracker
    tasks.py          pcgrad GradNorm: gradients of several tasks in one
"""

from .distributions import consistency as consistency
from .distributions import entropy as entropy
from .distributions import js as js
from .distributions import kl as kl
from .matrices import group_lasso as group_lasso
from .matrices import max_norm as max_norm
from .matrices import orthogonality as orthogonality
from .matrices import spectral_norm as spectral_norm
from .penalties import elastic_net as elastic_net
from .penalties import gradient_penalty as gradient_penalty
from .penalties import l1 as l1
from .penalties import l2 as l2
from .pipeline import Pipeline as Pipeline
from .report import ParameterReport as ParameterReport
from .report import Shares as Shares
from .tasks import GradNorm as GradNorm
from .tasks import pcgrad as pcgrad
from .tracker import GradientTracker as GradientTracker
