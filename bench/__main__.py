"""`python -m bench SUITE ...` in a checkout is `flamepy bench SUITE ...`, with its one-line errors, signals and exit codes."""

from __future__ import annotations

import sys

from flamepy.command.cli import main

if __name__ == "__main__":
    main(["bench", *sys.argv[1:]])
