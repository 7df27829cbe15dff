"""`python -m bench step|dispatch`."""

from __future__ import annotations

import sys

from . import dispatch, step

SUITES = {"step": step.main, "dispatch": dispatch.main}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in SUITES:
        sys.exit(f"bench: which suite? {' '.join(sys.argv[1:]) or 'none given'}. Use one of: {', '.join(SUITES)}.")
    SUITES[sys.argv[1]]()
