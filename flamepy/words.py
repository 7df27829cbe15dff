"""The words formulas are written in, for ops of your own: `from flamepy.words import exp, select`. See `flamepy.pointwise`.

Each is a plain function on Python numbers; a formula that uses it is compiled with a fast version for each dtype. Read next:
backend/formula/words.py.
"""

from .backend.formula.words import *  # noqa: F403
