"""The words formulas are written in, for ops of your own: `from flamepy.words import exp, select`. See `flamepy.pointwise`.

Each is a plain function on Python numbers; a formula that uses it is compiled with a fast version for each dtype. The bodies of
`flamepy.rowwise` also use lane, lanes, all_sum, all_max, barrier, and for long rows long_sum, long_sums, run_at.
"""

from .backend.formula.row_words import all_max as all_max
from .backend.formula.row_words import all_sum as all_sum
from .backend.formula.row_words import barrier as barrier
from .backend.formula.row_words import lane as lane
from .backend.formula.row_words import lanes as lanes
from .backend.formula.row_words import long_sum as long_sum
from .backend.formula.row_words import long_sums as long_sums
from .backend.formula.row_words import run_at as run_at
from .backend.formula.words import *  # noqa: F403
from .core.words import *  # noqa: F403
