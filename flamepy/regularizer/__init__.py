"""Regularizers: terms of a loss, a pipeline that adds them up, and who of them moves the parameters.

    from flamepy import regularizer as reg
    pipeline = reg.Pipeline(base_loss).add("l1", reg.l1, 1e-3).add("entropy", reg.entropy, 0.1)
    total, metrics = pipeline.compute(logits, track_grad_norms=True)

Every term is a plain function of a Tensor and returns a scalar Tensor: use it alone, in a sum of your own, or in a Pipeline.

    terms.py     l1 l2 elastic_net, entropy kl js, norms of weights ...     pipeline.py  Pipeline: terms added up, and their gradients
    tracker.py   GradientTracker: which term moves what                     tasks.py     pcgrad GradNorm: gradients of several tasks in one
    paths.py     the gradient between two tensors, and where a path was cut
"""

from .pipeline import Pipeline as Pipeline
from .tasks import GradNorm as GradNorm
from .tasks import pcgrad as pcgrad
from .terms import consistency as consistency
from .terms import elastic_net as elastic_net
from .terms import entropy as entropy
from .terms import gradient_penalty as gradient_penalty
from .terms import group_lasso as group_lasso
from .terms import js as js
from .terms import kl as kl
from .terms import l1 as l1
from .terms import l2 as l2
from .terms import max_norm as max_norm
from .terms import orthogonality as orthogonality
from .terms import spectral_norm as spectral_norm
from .tracker import GradientTracker as GradientTracker
from .tracker import ParameterReport as ParameterReport
from .tracker import Shares as Shares
