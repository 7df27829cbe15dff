# Written by tools/make_stubs.py, not by hand.
# fmt: off
from ..ops import avg_pool2d as avg_pool2d
from ..ops import binary_cross_entropy as binary_cross_entropy
from ..ops import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from ..ops import conv2d as conv2d
from ..ops import cross_entropy as cross_entropy
from ..ops import drop_block2d as drop_block2d
from ..ops import dropout as dropout
from ..ops import elu as elu
from ..ops import embedding as embedding
from ..ops import gelu as gelu
from ..ops import gru as gru
from ..ops import gru_cell as gru_cell
from ..ops import huber_loss as huber_loss
from ..ops import l1_loss as l1_loss
from ..ops import layer_norm as layer_norm
from ..ops import leaky_relu as leaky_relu
from ..ops import linear as linear
from ..ops import log_softmax as log_softmax
from ..ops import lstm as lstm
from ..ops import lstm_cell as lstm_cell
from ..ops import max_pool2d as max_pool2d
from ..ops import mse_loss as mse_loss
from ..ops import nll_loss as nll_loss
from ..ops import one_hot as one_hot
from ..ops import relu as relu
from ..ops import rms_norm as rms_norm
from ..ops import rnn as rnn
from ..ops import rnn_cell as rnn_cell
from ..ops import scaled_dot_product_attention as scaled_dot_product_attention
from ..ops import sigmoid as sigmoid
from ..ops import silu as silu
from ..ops import smooth_l1_loss as smooth_l1_loss
from ..ops import softmax as softmax
from ..ops import softplus as softplus
from ..ops import stochastic_depth as stochastic_depth
from ..ops import tanh as tanh
from ..ops.pads import flat_pad

pad = flat_pad
