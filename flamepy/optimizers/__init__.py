"""Optimizers. Read sgd.py and adam.py for the arithmetic, base.py for options and the step, ../engine/spans.py for an update of packed
memory at once; by_name.py uses several optimizers together.
"""

from .adafactor import Adafactor as Adafactor
from .adagrad import Adadelta as Adadelta
from .adagrad import Adagrad as Adagrad
from .adam import Adam as Adam
from .adam import AdamConfig as AdamConfig
from .adam import AdamW as AdamW
from .adamp import AdamP as AdamP
from .around import SAM as SAM
from .base import Optimizer as Optimizer
from .by_name import ByName as ByName
from .lamb import LAMB as LAMB
from .lamb import LARS as LARS
from .lbfgs import LBFGS as LBFGS
from .lion import Lion as Lion
from .muon import Muon as Muon
from .prodigy import Prodigy as Prodigy
from .radam import AdaBelief as AdaBelief
from .radam import Adamax as Adamax
from .radam import NAdam as NAdam
from .radam import RAdam as RAdam
from .rmsprop import RMSprop as RMSprop
from .schedule_free import AdamWScheduleFree as AdamWScheduleFree
from .schedule_free import SGDScheduleFree as SGDScheduleFree
from .sgd import SGD as SGD
from .sgd import SGDConfig as SGDConfig
from .sophia import Sophia as Sophia
from .sophia import gauss_newton_bartlett as gauss_newton_bartlett
from .sophia import hutchinson as hutchinson
