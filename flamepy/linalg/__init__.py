"""flamepy.linalg: factors, inverses, determinants and norms of matrices, by LAPACK as NumPy has it, with derivatives.

float32 and float64, stacks of matrices too. LAPACK runs on the host: from a GPU the numbers travel there and back, which a captured step
may not do; on the CPU it may be captured. Small triangles and QR are kernels of each device. NaN gives NaN as in NumPy, or a LinAlgError.
"""

from __future__ import annotations

from ..ops.contractions import multi_dot as multi_dot
from ..ops.diagonals import diagonal as diagonal
from ..ops.diagonals import trace as trace
from ..ops.vectors import cross as cross
from .factors import cholesky as cholesky
from .factors import eigh as eigh
from .factors import eigvalsh as eigvalsh
from .factors import lstsq as lstsq
from .factors import matrix_rank as matrix_rank
from .factors import pinv as pinv
from .factors import qr as qr
from .factors import svd as svd
from .factors import svdvals as svdvals
from .host import LinAlgError as LinAlgError
from .norms import cond as cond
from .norms import matrix_norm as matrix_norm
from .norms import norm as norm
from .norms import vector_norm as vector_norm
from .solving import det as det
from .solving import inv as inv
from .solving import matrix_power as matrix_power
from .solving import slogdet as slogdet
from .solving import solve as solve
from .solving import solve_triangular as solve_triangular
