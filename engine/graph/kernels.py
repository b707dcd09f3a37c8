"""The decorator of all kernels for processors: compiled by numba once a machine, then loaded in milliseconds.

numba's own cache first prepares everything that a compiler could need, SciPy included, which takes a hundred times as
long as loading a kernel.  Here a kernel is looked for first, and the compiler is prepared only where one is missing
(decision 107).  A kernel that somebody who may write there compiled beside the program, as the build of an image does,
is found from a program that may not.

Who waits for a compilation can be told of it, or have it refused (``engine.model.progress``).  What takes Python itself
less time than the compiler is called by :func:`call`, which compiles nothing.
"""

# numba's own classes have no types
# mypy: disable-error-code="no-untyped-call, attr-defined"

from __future__ import annotations

import contextlib
import io
import os
import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import numba
from numba.core import caching, environment
from numba.core.runtime import rtsys

from engine.model.progress import WAITING, NotCompiledError, only_ready

#: Folder beside a kernel's file in which numba keeps it where it may write there.
BESIDE = "__pycache__"
#: Vertices and arcs up to which Python walks over a graph sooner than a kernel for that is compiled (decision 120).
PLAIN: Final = 50_000


def njit(**options: Any) -> Callable[[Any], Any]:
    """Return the decorator of a kernel.

    Args:
        options: those of ``numba.njit``; ``cache`` is always on.
    """
    options.pop("cache", None)

    def decorate(function: Any) -> Any:
        dispatcher = numba.njit(**options)(function)
        compile_it = dispatcher.compile
        cache = dispatcher._cache = _KernelCache(function)

        def compile_or_load(signature: Any) -> Any:
            if WAITING.compiling or cache.holds(signature, dispatcher):
                return compile_it(signature)
            if WAITING.refuse:
                raise NotCompiledError(f"{function.__name__} is not compiled")
            with contextlib.nullcontext() if WAITING.announce is None else WAITING.announce(function.__name__):
                WAITING.compiling = True
                try:
                    return compile_it(signature)
                finally:
                    WAITING.compiling = False

        dispatcher.compile = compile_or_load
        # extensions of other packages define types that no kernel takes
        dispatcher._compilation_chain_init_hook = _nothing
        return dispatcher

    return decorate


def call(kernel: Any, *inputs: Any, work: int) -> Any:
    """Call a kernel; where it was never compiled and there is little work, Python runs it as it is written.

    Args:
        kernel: made by :func:`njit`; it must be deterministic, and call no kernel but such that call no further ones.
        inputs: its arguments.
        work: vertices and arcs that it visits.

    Returns:
        What the kernel returns, the same either way.
    """
    if work <= PLAIN:
        try:
            with only_ready():
                return kernel(*inputs)
        except NotCompiledError:
            return as_written(kernel)(*inputs)
    return kernel(*inputs)


def as_written(kernel: Any) -> Any:
    """Return the Python function of a kernel, which calls those of other kernels.

    Args:
        kernel: made by :func:`njit`.
    """
    function = kernel.py_func
    scope = {name: getattr(value, "py_func", value) for name, value in function.__globals__.items()}
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)


def _nothing() -> None:
    """Do nothing."""


class _KernelCache(caching.FunctionCache):
    """Loads kernels without preparing the compiler; looks for its files at the first call only.

    Args:
        function: the kernel's Python function.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._opened = False
        self._shipped: _Files | None = None

    def _open(self) -> None:
        """Find the files, which asks the file system whether it may write there."""
        if not self._opened:
            super().__init__(self._function)
            files = self._cache_file
            self._cache_file = _Files(files._cache_path, self._impl.filename_base, files._source_stamp)
            beside = os.path.join(os.path.dirname(self._impl.locator._py_file), BESIDE)  # noqa: PTH118, PTH120
            if beside != self._cache_path:
                self._shipped = _Files(beside, self._impl.filename_base, files._source_stamp)
            self._opened = True

    def holds(self, signature: Any, dispatcher: Any) -> bool:
        """Return whether the kernel is loaded or can be loaded.

        Args:
            signature: numba's types of the arguments.
            dispatcher: the kernel.
        """
        if signature in dispatcher.overloads:
            return True
        self._open()
        key = self._index_key(signature, dispatcher.targetctx.codegen())
        return any(key in files.load_index() for files in (self._cache_file, self._shipped) if files is not None)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel; None where it was never compiled.

        Args:
            sig: numba's types of the arguments.
            target_context: numba's description of the machine.
        """
        self._open()
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            if found is None and self._shipped is not None:
                data = self._shipped.load(self._index_key(sig, target_context.codegen()))
                found = None if data is None else self._impl.rebuild(target_context, data)
            return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled.

        Args:
            sig: numba's types of the arguments.
            data: what numba compiled.
        """
        self._open()
        super().save_overload(sig, data)


class _Files(caching.IndexDataCacheFile):
    """The files of one kernel in numba's own format."""

    def load_index(self) -> Any:
        """Return the names of the files by key; empty where there are none."""
        with contextlib.suppress(OSError):
            return self._load_index()
        return {}

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # noqa: PTH123 - numba's path, a string
            return _Unpickler(io.BytesIO(file.read())).load()


class _Unpickler(pickle.Unpickler):
    """Rebuilds kernels without importing the modules of numba whose functions they call."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name in the pickle stands for.

        Args:
            module: its module.
            name: its name there.
        """
        if (module, name) == ("numba.core.environment", "_rebuild_env"):
            return _environment
        return super().find_class(module, name)


def _environment(module: str, constants: Any, name: str) -> Any:
    """Return the environment of a function: its constants, and of its globals only the name, which kernels never read.

    Args:
        module: where the function was defined.
        constants: what its compiled form refers to.
        name: name of the environment.
    """
    known = environment.lookup_environment(name)
    if known is not None:
        return known
    made = environment.Environment({"__name__": module})
    made.consts[:] = constants
    made.env_name = name
    environment.Environment._memo[name] = made
    return made
