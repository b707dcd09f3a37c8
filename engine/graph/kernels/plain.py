"""Runs kernels that are not compiled as plain Python, where that takes less time than compiling them would."""

from __future__ import annotations

import time
from types import FunctionType
from typing import Any, Final

from engine.model.progress import WAITING, NotCompiledError, only_ready

#: Up to this number of vertices and arcs, plain Python walks over a graph in less time than compiling a kernel takes
#: (decision 120).
PLAIN: Final = 50_000
#: Such a kernel is compiled once plain Python has run for ENOUGH seconds in its place; _SPENT holds these seconds.
ENOUGH: Final = 1.0
_SPENT: Final[dict[Any, float]] = {}


def call(kernel: Any, *inputs: Any, work: int) -> Any:
    """Call a kernel; if it is not compiled and there is little work, run its Python source instead.

    It is compiled after all once its source has run for ``ENOUGH`` seconds: about as long as compiling takes.

    Args:
        kernel: made by :func:`njit`; it must be deterministic, and kernels that it calls must call no further kernels.
        inputs: the arguments of the kernel.
        work: the number of vertices and arcs that the kernel visits.

    Returns:
        The result of the kernel, which is the same in both cases.
    """
    if work <= PLAIN and (WAITING.refuse or _SPENT.get(kernel, 0.0) < ENOUGH):
        try:
            with only_ready():
                return kernel(*inputs)
        except NotCompiledError:
            began = time.perf_counter()
            try:
                return as_written(kernel)(*inputs)
            finally:
                _SPENT[kernel] = _SPENT.get(kernel, 0.0) + time.perf_counter() - began
    return kernel(*inputs)


def as_written(kernel: Any) -> Any:
    """Return the Python function of a kernel, changed to call the Python functions of other kernels.

    Args:
        kernel: made by :func:`njit`.
    """
    function = kernel.py_func
    scope = {name: getattr(value, "py_func", value) for name, value in function.__globals__.items()}
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
