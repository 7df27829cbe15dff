"""Scratch on a worker's stack, as words: memory for a few numbers that lives while a loop runs.

wide_space(x): COLUMNS numbers of the type that sums of x's are kept in (float64, int64), not initialised
block_space(x): BLOCK numbers of x's type
run_space(x), line_space(x): RUN and LINE numbers of x's type
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from ...formula.row_words import LINE, RUN

COLUMNS = 512  # neighbouring columns folded by one task
SIDE, WIDTH = 32, 128  # rows and columns of a product of bfloat16 or float16 matrices that stays in the nearest cache
BLOCK = SIDE * WIDTH


def wide_space(x):
    """The word in plain Python."""
    return np.empty(COLUMNS, np.float64 if x.dtype.kind == "f" else np.int64)


def block_space(x):
    """The word in plain Python."""
    return np.empty(BLOCK, x.dtype)


def stack_space(numbers: int, wide: bool) -> Any:
    """A word for memory on the stack of the function that calls it, as an array."""

    def space(typing: Any, x: Any) -> Any:
        number = x.dtype if not wide else types.float64 if isinstance(x.dtype, types.Float) else types.int64
        kind = types.Array(number, 1, "C")

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item = context.get_data_type(number)
            with builder.goto_entry_block():  # not cgutils.alloca_once: that fills with zeros
                memory = builder.alloca(ir.ArrayType(item, numbers))
            memory.align = 64
            made = context.make_array(kind)(context, builder)
            size, step = (context.get_constant(types.intp, n) for n in (numbers, context.get_abi_sizeof(item)))
            data = builder.bitcast(memory, made.data.type)
            populate_array(made, data=data, shape=(size,), strides=(step,), itemsize=step, meminfo=None)
            return made._getvalue()

        return kind(x), code

    return intrinsic(space)


WORDS = {
    "block_space": stack_space(BLOCK, False),
    "run_space": stack_space(RUN, False),
    "line_space": stack_space(LINE, False),
    "wide_space": stack_space(COLUMNS, True),
}
