"""flamepy.nn.functional: every op that belongs to networks, without parameters. Conventionally imported as F.

An op names its home where it is defined, so nothing is listed here; editors read functional.pyi, which tools/make_stubs.py writes.
"""

from .. import ops as ops  # importing them registers them
from ..advice import missing_in as _missing_in
from ..core.op import HOMES, PUBLIC

globals().update({name: function for name, function in PUBLIC.items() if HOMES[name] in ("functional", "both")})
pad = ops.pads.flat_pad  # as PyTorch's; flamepy.pad() is NumPy's
__getattr__ = _missing_in("functional", globals())
