"""Training: Trainer for models of your own, what the `flamepy` command does with its own, TrainState and Ledger for loops of your own.

Reading order: trainer.py, runs.py (a run from beginning to end), loop.py (the training loop), gpt_job.py and gpt.py (the default
job and its model), data.py; then what makes a run trustworthy: state.py, keeping.py, checkpoint.py, run_folder.py, files.py,
signals.py, nonfinite.py; then what a person sees: config.py, display.py, writers.py, ledger.py, sample.py.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ledger import Ledger as Ledger
    from .state import TrainState as TrainState
    from .trainer import Trainer as Trainer

PUBLIC = {"Ledger": "ledger", "Trainer": "trainer", "TrainState": "state"}  # imported when they are asked for: a tenth of a second


def __dir__() -> list[str]:
    return sorted(PUBLIC)


def __getattr__(name: str) -> object:
    """Only where nothing else has the name."""
    if name not in PUBLIC:
        raise AttributeError(f"train: no such name: '{name}'. Use {', '.join(PUBLIC)}, or import the module.")
    found = getattr(importlib.import_module(f"{__name__}.{PUBLIC[name]}"), name)
    globals()[name] = found
    return found
