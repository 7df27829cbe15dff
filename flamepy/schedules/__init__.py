"""Learning-rate schedules: pure functions of the number of finished steps, so that resuming needs no state.

optimizer = AdamW(model, lr=warmup_cosine(1e-3, warmup=100, n=2000, end=1e-4))
"""

from typing import TYPE_CHECKING

from ..advice import missing_in as _missing_in
from .curves import ReduceOnPlateau as ReduceOnPlateau
from .curves import Schedule as Schedule
from .curves import constant as constant
from .curves import cosine as cosine
from .curves import cosine_restarts as cosine_restarts
from .curves import cyclic as cyclic
from .curves import exponential as exponential
from .curves import linear as linear
from .curves import multistep as multistep
from .curves import noam as noam
from .curves import one_cycle as one_cycle
from .curves import poly as poly
from .curves import product as product
from .curves import sequence as sequence
from .curves import step as step
from .curves import warmdown as warmdown
from .curves import warmup as warmup
from .curves import warmup_cosine as warmup_cosine

if not TYPE_CHECKING:  # type checkers tell misspelt names themselves
    __getattr__ = _missing_in("schedules", globals())
