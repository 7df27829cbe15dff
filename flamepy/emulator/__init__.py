"""An NVIDIA device without the device: runs PTX kernels on the CPU, strictly.

    memory = Memory()
    kernel = Machine(memory).load(ptx)["saxpy"]

Every access is checked (bounds, alignment, memory never written, races), and barriers, shuffles and masks too.
"""

from ..errors import EmulationError
from .count import Counts
from .machine import Kernel, Machine
from .memory import Memory

__all__ = ["Counts", "EmulationError", "Kernel", "Machine", "Memory"]
