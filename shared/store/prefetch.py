"""Asking for memory before it is needed.

A look at one of millions of rows waits for memory a hundred times longer than it computes. A kernel
that knows which rows come next can ask for them while it is busy with the ones before.
"""

from typing import Any, Final

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

AHEAD: Final = 8
"""Rows that are asked for before they are needed: about what is on its way from memory at once."""

_TO_WRITE: Final = 1
_TO_KEEP: Final = 3
_DATA: Final = 1


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_typing: Any, array: Any, index: Any) -> Any:
    """Ask for an element of an array, the first of a row of tables; any index will do.

    Called in kernels only: `prefetch(array, index)`.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        view = context.make_array(array)(context, builder, arguments[0])
        place = context.cast(builder, arguments[1], index, types.intp)
        stride = builder.extract_value(view.strides, 0)
        start = builder.add(builder.ptrtoint(view.data, place.type), builder.mul(place, stride))
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        size = context.get_abi_sizeof(context.get_data_type(array.dtype))
        # An element may lie on two cache lines.
        for offset in {0, size - 1}:
            at = builder.inttoptr(builder.add(start, place.type(offset)), pointer)
            builder.call(function, [at, number(_TO_WRITE), number(_TO_KEEP), number(_DATA)])
        return context.get_dummy_value()

    return types.void(array, index), generate
