"""Op: a formula or a function, its derivative, a name. Read base.py, then pointwise.py, plan.py, rules.py and custom.py."""

from . import rules as rules  # backward rules find their plans
