"""Attaching the engine: all that it puts into the door. FLAMEPY_ENGINE=core leaves the planner out: ops then run as core has them.

16-bit forms stay, without which there are no 16-bit ops, and so does the engine's backward, which checkpointing, packing and loss scaling
are made with, and what capture hears of numbers and knows tensors by.
"""

import os
from typing import Any

from ..core.call import Call
from ..core.door import Door
from .backward import backward
from .forms import saves
from .half import on_halves
from .kept import number, spec_of

Door.form, Door.saves, Door.backward = staticmethod(on_halves), staticmethod(saves), staticmethod(backward)
Door.number, Door.spec = staticmethod(number), staticmethod(spec_of)
unplanned: Any = Call
unplanned.guarded = None
if os.environ.get("FLAMEPY_ENGINE", "") != "core":  # calls are planned once, and so are backward rules
    from . import callers, plan, rules

    Door.caller, Door.composed = staticmethod(callers.caller), staticmethod(callers.composed)
    Door.call, Door.rule = staticmethod(plan.call), staticmethod(rules.vjp)
    unplanned.run, unplanned.backwards, unplanned.any_size, unplanned.lets_go = None, None, False, ()
    unplanned.writes_into = unplanned.asks_narrow = unplanned.spreads = False
