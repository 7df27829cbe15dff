"""The tape and the walk back. Read entries.py (what one recorded op keeps), then walk.py."""

from typing import TYPE_CHECKING, Any

from ..advice import missing_in as _missing_in
from .entries import Tape as Tape
from .entries import TapeEntry as TapeEntry
from .entries import tape as tape
from .walk import AutogradContext as AutogradContext
from .walk import AutogradEngine as AutogradEngine
from .walk import backward as backward
from .walk import enable_grad as enable_grad
from .walk import is_grad_enabled as is_grad_enabled
from .walk import no_grad as no_grad
from .walk import strict_mode as strict_mode

Op: Any  # the class of what an entry's `op` is; op/base.py, further right, puts it here

if not TYPE_CHECKING:
    __getattr__ = _missing_in("autograd", globals())
