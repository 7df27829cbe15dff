"""Training: Trainer for models of your own, what the `flamepy` command does with its own, TrainState and Ledger for loops of your own.

Reading order: trainer.py, runs.py (a run from beginning to end), loop.py (the training loop), gpt_job.py and gpt.py (the default
job and its model), data.py; then what makes a run trustworthy: state.py, keeping.py, checkpoint.py, run_folder.py, files.py,
signals.py, nonfinite.py; then what a person sees: config.py, display.py, curves.py, ledger.py, sample.py, doctor.py.
"""

from .ledger import Ledger as Ledger
from .state import TrainState as TrainState
from .trainer import Trainer as Trainer
