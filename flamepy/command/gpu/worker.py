"""Processes that use the GPU for `flamepy doctor --gpu`: a kernel that crashes, hangs or ruins its context takes only its process along.

    python -m flamepy.command.gpu.worker costs     does one task, tells its result as the last line, JSON
    python -m flamepy.command.gpu.worker cases     does cases as they are asked for, one line of JSON each

crew.py is the side that asks.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from ...core.errors import DeviceError
from .crew import Answer, brief


def serve() -> None:
    """Answer lines {"case", "dtype"} until there are no more."""
    from . import agreement

    for line in sys.stdin:
        asked = json.loads(line)
        started = time.perf_counter()
        try:
            answer = agreement.compared(asked["case"], asked["dtype"])
        except Exception as error:
            answer = {"ok": False, "error": brief(error), "fatal": isinstance(error, DeviceError)}
        tell({**asked, **answer, "seconds": round(time.perf_counter() - started, 3)})
    tell(coverage())


def coverage() -> Answer:
    """Which launches this process made, and how many kernels it has compiled."""
    from ...backend.base import device
    from ...backend.cuda.device import launchers

    gpu: Any = device("cuda")
    variants = sum(len(k.variants) for k in gpu.kernels.values())
    return {"reached": sorted({key[0] for key in gpu.launches}), "launchers": sorted(launchers()), "variants": variants}


def tell(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)


def main(task: str) -> None:
    if task == "cases":
        serve()
        return
    from . import tasks

    try:
        answer = {"ok": True, **tasks.TASKS[task]()}
    except Exception as error:
        answer = {"ok": False, "error": brief(error)}
    tell(answer)


if __name__ == "__main__":
    main(sys.argv[1])
