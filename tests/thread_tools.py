"""What tests of threads share: several at once, switched as often as Python can."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def at_once(work: Callable[[], object], count: int = 4) -> None:
    """Run work() in so many threads, and wait for them."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
