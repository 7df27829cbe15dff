"""How one loop becomes a kernel that runs on one thread or on many, with the same machine code and so the same bits.

A loop's first argument, `part`, is (worker, workers): it does its share of the work, `tasks(part, n)` or `elements(part, n)`.
The kernel around it, run(workers, *args), calls the loop once for each worker, on the threads of pool.py; or it only writes the launch
down, for the list of a recorded step (pool.note). Numba's own `prange` would compile the body a second time (4 times slower to
compile, and sums contracted differently); here all ways call one function, which is never inlined: inlined twice, it could be
compiled in two ways.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .halves import in_kernel

PART = types.UniTuple(types.int64, 2)
NEIGHBOURS = 64  # neighbouring elements stay with one worker: whole vectors, the same for any number of workers


def tasks(part, n):
    """The task numbers of this worker, out of n: neighbours stay together."""
    return range(n * part[0] // part[1], n * (part[0] + 1) // part[1])


def elements(part, n):
    """The element numbers of this worker, out of n, as unsigned numbers: no check for negative ones keeps the loop vectorised."""
    runs = (n + NEIGHBOURS - 1) // NEIGHBOURS
    return range(types.uint64(runs * part[0] // part[1] * NEIGHBOURS), types.uint64(min(n, runs * (part[0] + 1) // part[1] * NEIGHBOURS)))


FEW = 4  # with so many strips for each worker, workers share out rows


def many(part, strips):
    """Whether a worker has rows of all panels; else it has panels."""
    return strips >= FEW * part[1]


def strips_of(part, panel, down, across):
    """The first and last of `down` strips that this worker has in a panel, one of `across`."""
    mine = tasks(part, down * across)
    if many(part, down):
        return (mine.start - panel + across - 1) // across, (mine.stop - panel + across - 1) // across
    return max(0, mine.start - panel * down), min(down, mine.stop - panel * down)


def LOOP(*args: Any) -> Any:
    """Stands where bind() puts the jitted loop."""
    raise NotImplementedError


def run(workers, *args):
    """The kernel: LOOP((worker, workers), *args) for each worker."""
    spread(LOOP, workers, args)


@intrinsic
def spread(typing: Any, loop: Any, workers: Any, args: Any) -> Any:
    """Call loop((worker, workers), *args) once for each worker: here if there is one, else on the thread pool."""
    dtype = loop.dispatcher.py_func.dtype
    given = (PART, *[in_kernel(kind, dtype) for kind in args.types])
    loop.get_call_type(typing, given, {})
    _, folded = loop.dispatcher._compiler.fold_argument_types(given, {})

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        compiled = loop.dispatcher.overloads[tuple(folded)]
        context.active_code_library.add_linking_library(compiled.library)
        packed = [values[1], *cgutils.unpack_tuple(builder, values[2])]
        struct = ir.LiteralStructType([v.type for v in packed])
        data = cgutils.alloca_once(builder, struct)
        for n, value in enumerate(packed):
            builder.store(value, cgutils.gep_inbounds(builder, data, 0, n))
        task = task_function(context, builder, compiled, folded, struct)
        launch(builder, task, values[1], data, context.get_abi_sizeof(struct))
        return context.get_dummy_value()

    return types.void(loop, types.int64, args), code


SIZE = ir.IntType(64)
BYTES = ir.IntType(8).as_pointer()
TASK = ir.FunctionType(ir.VoidType(), [BYTES, SIZE])


def task_function(context: Any, builder: Any, compiled: Any, folded: Any, struct: Any) -> Any:
    """A function as the pool calls it, task(data, worker): data points to (workers, arguments of the loop ...)."""
    function = ir.Function(builder.module, TASK, name=builder.function.name + ".task")
    function.linkage = "internal"
    b = ir.IRBuilder(function.append_basic_block())
    data = b.bitcast(function.args[0], struct.as_pointer())
    workers, *args = [b.load(cgutils.gep_inbounds(b, data, 0, n)) for n in range(len(struct.elements))]
    values = [cgutils.pack_array(b, [function.args[1], workers]), *args]
    if isinstance(folded[-1], types.BaseTuple):  # the loop takes *c: its last argument is a tuple
        fixed = len(folded) - 1
        values = [*values[:fixed], context.make_tuple(b, folded[-1], values[fixed:])]
    callee = context.declare_function(b.module, compiled.fndesc)
    context.call_conv.call_function(b, callee, types.none, folded, values)
    b.ret_void()
    return function


def launch(builder: Any, task: Any, workers: Any, data: Any, size: int) -> None:
    """Call `task` here when there is one worker, else hand it to the pool (pool.launch)."""
    data = builder.bitcast(data, BYTES)
    kind = ir.FunctionType(ir.VoidType(), [TASK.as_pointer(), BYTES, SIZE, SIZE])
    pool = cgutils.get_or_insert_function(builder.module, kind, "flamepy_launch")
    with builder.if_else(builder.icmp_signed("!=", workers, ir.Constant(SIZE, 1))) as (handed, alone):
        with handed:
            builder.call(pool, [task, data, workers, ir.Constant(SIZE, size)])
        with alone:
            builder.call(task, [data, ir.Constant(SIZE, 0)])
