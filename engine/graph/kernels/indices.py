"""Leaves out the tests by which numba counts negative indices from the end of an array.

numba tests every index that is a variable of a signed type.  In loops that read many arrays this takes a quarter of the
time, because each test needs the size of the array and registers for it (decision 286).
"""

# numba's own classes have no types
# mypy: disable-error-code="no-untyped-call, attr-defined"

from __future__ import annotations

import inspect
import os
from functools import cache
from typing import Any, Final

#: Module and name of the kernels whose variables never count from the end.
FROM_START: Final[set[tuple[str, str]]] = set()
#: The variable of the environment with which these kernels raise IndexError if an index is negative.
CHECKED: Final = "APSP_CHECKED_INDICES"


def checked() -> bool:
    """Return whether kernels check what they promise."""
    return bool(os.environ.get(CHECKED))


@cache
def leave_out_tests() -> None:
    """Make numba leave out the tests in the kernels of ``FROM_START``; an unknown version of numba keeps them."""
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.np import arrayobj

    numbas: Any = arrayobj.fix_integer_index
    if tuple(inspect.signature(numbas).parameters) != ("context", "builder", "idxty", "idx", "size"):
        return

    def fixed(context: Any, builder: Any, idxty: Any, idx: Any, size: Any) -> Any:
        function: Any = getattr(context, "fndesc", None)
        ours = function is not None and (function.modname, function.qualname) in FROM_START
        if not (ours and idxty.signed) or isinstance(idx, ir.Constant):  # a constant, such as -1, costs nothing
            return numbas(context, builder, idxty, idx, size)
        index = context.cast(builder, idx, idxty, types.intp)
        if checked():
            below = builder.icmp_signed("<", index, ir.Constant(index.type, 0))
            with cgutils.if_unlikely(builder, below):
                message = f"an index in {function.qualname} is negative"
                context.call_conv.return_user_exc(builder, IndexError, (message,))
        return index

    arrayobj.fix_integer_index = fixed
