"""Ctrl-C while the modules of the `flamepy` command are imported: the process ends, without a traceback.

Imported before anything else. A program that imports flamepy keeps its own Ctrl-C, and once the command runs signals.py has it.
"""

from __future__ import annotations

import os
import signal
import sys


def is_command() -> bool:
    """Whether this process is `flamepy ...`, `python -m flamepy ...` or `python -m bench ...`."""
    name, words = os.path.basename(sys.argv[0] if sys.argv else ""), sys.orig_argv
    if name in ("-m", "__main__.py"):  # the first while the module is looked for
        return "-m" in words[:-1] and words[words.index("-m") + 1] in ("flamepy", "bench")
    return name in ("flamepy", "flamepy.exe")


if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
