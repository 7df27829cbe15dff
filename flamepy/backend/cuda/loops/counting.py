"""How range() counts in kernels: an index that is compared with the end and added to.

Numba's own way counts how many steps are left beside the index, which costs a division before each loop and four instructions more in each
turn, and leaves its loops as they are. This takes its place for every kernel; it means the same.
"""

from __future__ import annotations

from typing import Any

from ..runtime.compat import RefType, cgutils, iternext_impl, ranges, types


def begin(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    given = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    found = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    found.iter = found.count = cgutils.alloca_once_value(builder, given.start)  # nobody asks for the count
    found.stop, found.step = given.stop, given.step
    return found._getvalue()


@iternext_impl(RefType.BORROWED)
def advance(context: Any, builder: Any, sig: Any, args: Any, result: Any) -> None:
    """The index is told and moved in any case: a choice would stay in the loop."""
    given = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    at = builder.load(given.iter)
    up, down = builder.icmp_signed("<", at, given.stop), builder.icmp_signed(">", at, given.stop)
    result.set_valid(builder.select(builder.icmp_signed(">", given.step, given.step.type(0)), up, down))
    result.yield_(at)
    builder.store(builder.add(at, given.step, flags=["nsw"]), given.iter)


for state in (types.range_state32_type, types.range_state64_type):
    ranges.lower("getiter", state)(begin)
    ranges.lower("iternext", state.iterator_type)(advance)
