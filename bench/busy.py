"""Did other programs disturb a measurement? How much of the processor they had meanwhile, and how far its calls lie apart.

Linux counts what every core did. Elsewhere only the spread of the calls can tell. A busy row is shown and marked, never judged.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

OTHERS = 0.1  # cores that other programs keep from a quiet machine
SPREAD = 1.5  # median / minimum of the calls
STAT = Path("/proc/stat")
WORK = (1, 2, 3, 6, 7, 8)  # of a line of /proc/stat: user, nice, system, interrupts (two), stolen by other virtual machines


def other_seconds() -> float | None:
    """What everyone but this process has had, so far, of the cores this process may use; None where the system does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    own = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    try:
        lines = [line.split() for line in STAT.read_text().splitlines()]
        ticks = sum(int(fields[i]) for fields in lines if fields[:1] and fields[0] in own for i in WORK)
    except (OSError, ValueError, IndexError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def disturbed(others: float | None, least: float, median: float) -> bool:
    """others: cores that other programs had; least, median: seconds (or any unit) of the fastest and the middle call."""
    return (others or 0.0) > OTHERS or median > SPREAD * least
