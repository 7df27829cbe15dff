"""Layers: modules that hold parameters and call ops. `flamepy.nn.functional` has the same without parameters.

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = nn.Linear(784, 64), nn.Linear(64, 10)
        def forward(self, x):
            return self.out(F.relu(self.hidden(x)))

Names, arguments and first numbers are PyTorch's. A layer is sugar: whatever it does, its forward() is a few calls of ops.
"""

from typing import TYPE_CHECKING

from ..advice import missing_in as _missing_in
from ..parameter import Parameter as Parameter  # PyTorch has it here
from . import functional as functional
from . import init as init
from . import utils as utils
from .activation import GELU as GELU
from .activation import ReLU as ReLU
from .activation import Sigmoid as Sigmoid
from .activation import SiLU as SiLU
from .activation import Tanh as Tanh
from .attention import MultiHeadAttention as MultiHeadAttention
from .attention import RotaryEmbedding as RotaryEmbedding
from .attention import TransformerBlock as TransformerBlock
from .augment import CutMix as CutMix
from .augment import DropBlock2d as DropBlock2d
from .augment import MixUp as MixUp
from .augment import StochasticDepth as StochasticDepth
from .channel_norms import BatchNorm1d as BatchNorm1d
from .channel_norms import BatchNorm2d as BatchNorm2d
from .channel_norms import BatchNorm3d as BatchNorm3d
from .channel_norms import GroupNorm as GroupNorm
from .channel_norms import InstanceNorm1d as InstanceNorm1d
from .channel_norms import InstanceNorm2d as InstanceNorm2d
from .channel_norms import InstanceNorm3d as InstanceNorm3d
from .channel_norms import LocalResponseNorm as LocalResponseNorm
from .containers import ModuleDict as ModuleDict
from .containers import ModuleList as ModuleList
from .containers import Sequential as Sequential
from .conv import Conv1d as Conv1d
from .conv import Conv2d as Conv2d
from .conv import Conv3d as Conv3d
from .conv import ConvTranspose1d as ConvTranspose1d
from .conv import ConvTranspose2d as ConvTranspose2d
from .conv import ConvTranspose3d as ConvTranspose3d
from .dropping import AlphaDropout as AlphaDropout
from .dropping import Dropout as Dropout
from .dropping import Dropout1d as Dropout1d
from .dropping import Dropout2d as Dropout2d
from .dropping import Dropout3d as Dropout3d
from .dropping import FeatureAlphaDropout as FeatureAlphaDropout
from .linear import Bilinear as Bilinear
from .linear import Embedding as Embedding
from .linear import Flatten as Flatten
from .linear import Identity as Identity
from .linear import Linear as Linear
from .linear import Unflatten as Unflatten
from .loss import BCELoss as BCELoss
from .loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from .loss import CosineEmbeddingLoss as CosineEmbeddingLoss
from .loss import CosineSimilarity as CosineSimilarity
from .loss import CrossEntropyLoss as CrossEntropyLoss
from .loss import CTCLoss as CTCLoss
from .loss import GaussianNLLLoss as GaussianNLLLoss
from .loss import HingeEmbeddingLoss as HingeEmbeddingLoss
from .loss import HuberLoss as HuberLoss
from .loss import KLDivLoss as KLDivLoss
from .loss import L1Loss as L1Loss
from .loss import MarginRankingLoss as MarginRankingLoss
from .loss import MSELoss as MSELoss
from .loss import MultiLabelMarginLoss as MultiLabelMarginLoss
from .loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from .loss import MultiMarginLoss as MultiMarginLoss
from .loss import NLLLoss as NLLLoss
from .loss import PairwiseDistance as PairwiseDistance
from .loss import PoissonNLLLoss as PoissonNLLLoss
from .loss import SmoothL1Loss as SmoothL1Loss
from .loss import SoftMarginLoss as SoftMarginLoss
from .loss import TripletMarginLoss as TripletMarginLoss
from .loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from .low_rank import LoRA as LoRA
from .low_rank import lora as lora
from .low_rank import lora_parameters as lora_parameters
from .low_rank import lora_state as lora_state
from .low_rank import merge_lora as merge_lora
from .module import Module as Module
from .more_activations import CELU as CELU
from .more_activations import ELU as ELU
from .more_activations import GEGLU as GEGLU
from .more_activations import GLU as GLU
from .more_activations import SELU as SELU
from .more_activations import Hardshrink as Hardshrink
from .more_activations import Hardsigmoid as Hardsigmoid
from .more_activations import Hardswish as Hardswish
from .more_activations import Hardtanh as Hardtanh
from .more_activations import LeakyReLU as LeakyReLU
from .more_activations import LogSigmoid as LogSigmoid
from .more_activations import LogSoftmax as LogSoftmax
from .more_activations import Mish as Mish
from .more_activations import PReLU as PReLU
from .more_activations import ReGLU as ReGLU
from .more_activations import ReLU6 as ReLU6
from .more_activations import RReLU as RReLU
from .more_activations import Softmax as Softmax
from .more_activations import Softmax2d as Softmax2d
from .more_activations import Softmin as Softmin
from .more_activations import Softplus as Softplus
from .more_activations import Softshrink as Softshrink
from .more_activations import Softsign as Softsign
from .more_activations import SwiGLU as SwiGLU
from .more_activations import Tanhshrink as Tanhshrink
from .more_activations import Threshold as Threshold
from .names import from_torch as from_torch
from .names import from_torch_names as from_torch_names
from .norm import LayerNorm as LayerNorm
from .norm import RMSNorm as RMSNorm
from .padding import CircularPad1d as CircularPad1d
from .padding import CircularPad2d as CircularPad2d
from .padding import CircularPad3d as CircularPad3d
from .padding import ConstantPad1d as ConstantPad1d
from .padding import ConstantPad2d as ConstantPad2d
from .padding import ConstantPad3d as ConstantPad3d
from .padding import ReflectionPad1d as ReflectionPad1d
from .padding import ReflectionPad2d as ReflectionPad2d
from .padding import ReflectionPad3d as ReflectionPad3d
from .padding import ReplicationPad1d as ReplicationPad1d
from .padding import ReplicationPad2d as ReplicationPad2d
from .padding import ReplicationPad3d as ReplicationPad3d
from .padding import ZeroPad1d as ZeroPad1d
from .padding import ZeroPad2d as ZeroPad2d
from .padding import ZeroPad3d as ZeroPad3d
from .pools import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from .pools import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from .pools import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from .pools import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from .pools import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from .pools import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from .pools import AvgPool1d as AvgPool1d
from .pools import AvgPool2d as AvgPool2d
from .pools import AvgPool3d as AvgPool3d
from .pools import LPPool1d as LPPool1d
from .pools import LPPool2d as LPPool2d
from .pools import LPPool3d as LPPool3d
from .pools import MaxPool1d as MaxPool1d
from .pools import MaxPool2d as MaxPool2d
from .pools import MaxPool3d as MaxPool3d
from .pools import MaxUnpool1d as MaxUnpool1d
from .pools import MaxUnpool2d as MaxUnpool2d
from .pools import MaxUnpool3d as MaxUnpool3d
from .recurrent import GRU as GRU
from .recurrent import LSTM as LSTM
from .recurrent import RNN as RNN
from .recurrent import GRUCell as GRUCell
from .recurrent import LSTMCell as LSTMCell
from .recurrent import RNNCell as RNNCell
from .resampling import ChannelShuffle as ChannelShuffle
from .resampling import Fold as Fold
from .resampling import PixelShuffle as PixelShuffle
from .resampling import PixelUnshuffle as PixelUnshuffle
from .resampling import Unfold as Unfold
from .resampling import Upsample as Upsample
from .resampling import UpsamplingBilinear2d as UpsamplingBilinear2d
from .resampling import UpsamplingNearest2d as UpsamplingNearest2d
from .transformer import MultiheadAttention as MultiheadAttention
from .transformer import Transformer as Transformer
from .transformer import TransformerDecoder as TransformerDecoder
from .transformer import TransformerDecoderLayer as TransformerDecoderLayer
from .transformer import TransformerEncoder as TransformerEncoder
from .transformer import TransformerEncoderLayer as TransformerEncoderLayer

if not TYPE_CHECKING:
    __getattr__ = _missing_in("nn", globals())
