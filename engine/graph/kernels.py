"""The decorator of all kernels for processors: compiled by numba once a machine, then loaded in milliseconds.

numba's own cache first prepares everything that a compiler could need, SciPy included, which takes a hundred times as
long as loading a kernel.  Here a kernel is looked for first, and the compiler is prepared only where one is missing
(decision 107).  Each compiled form has a file of its own, named by all that it depends on, so that any number of
processes may compile at once, and an edit of one kernel leaves no old form of another that calls it (decision 115).
A kernel that somebody who may write there compiled beside the program, as the build of an image does, is found from a
program that may not.  Where no folder can be written, kernels are compiled in each process.

This replaces parts of numba that are not documented.  A version of numba that was not tested, or in which one of them
has another form, gets ``numba.njit(cache=True)`` in their place: slower to load, otherwise the same.

Kernels are compiled for exactly this processor, or, where ``APSP_CPU_LEVEL`` says so, for the level that it has in
common with others (``x86-64-v3``, ``x86-64-v4``; ``auto`` for the highest): an image is built with both, so that its
kernels suit wherever it runs (decision 116).

Who waits for a compilation can be told of it, or have it refused (``engine.model.progress``).  What takes Python itself
less time than the compiler is called by :func:`call`, which compiles nothing.
"""

# numba's own classes have no types
# mypy: disable-error-code="no-untyped-call, attr-defined"

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import pickle
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import numba

from engine.model.progress import WAITING, NotCompiledError, only_ready
from engine.model.system import signals_postponed

#: Folder beside a kernel's file in which numba keeps it where it may write there.
BESIDE: Final = "__pycache__"
#: Vertices and arcs up to which Python walks over a graph sooner than a kernel for that is compiled (decision 120).
PLAIN: Final = 50_000
#: The last version of numba whose undocumented parts were compared with this module.
TESTED: Final = (0, 68)
#: Those parts, and the parameters of the functions among them.
PARTS: Final = {
    "core.caching.CompileResultCacheImpl": ("py_func",),
    "core.caching._CacheLocator.get_cache_path": ("self",),
    "core.compiler.CompileResult._reduce": ("self",),
    "core.compiler.CompileResult._rebuild": (
        *("target_context", "libdata", "fndesc", "env", "signature", "objectmode", "lifted", "typeann", "reload_init"),
        "referenced_envs",
    ),
    "core.serialize.dumps": ("obj",),
    "core.environment.Environment._memo": None,
    "core.environment.lookup_environment": ("env_name",),
    "core.environment._rebuild_env": ("modname", "consts", "env_name"),
    "core.runtime.rtsys.initialize": ("ctx",),
    "core.dispatcher.Dispatcher.compile": ("self", "sig"),
    "core.dispatcher.Dispatcher._compilation_chain_init_hook": ("self",),
    "core.codegen.CPUCodegen.magic_tuple": ("self",),
}

#: When this module was imported, before any module that defines kernels: seconds since 1970.
_BEGUN: Final = time.time()
#: The kernels that have been defined, by module and name.
KERNELS: Final[dict[tuple[str, str], CompiledKernel]] = {}


def is_known(version: str = numba.__version__) -> bool:
    """Return whether numba has the parts that this module replaces, in the form that it knows.

    Args:
        version: that of numba.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) > TESTED:
        return False
    from numba.core import caching, codegen, compiler, dispatcher, environment, runtime, serialize  # noqa: F401

    for path, parameters in PARTS.items():
        part: Any = numba
        for name in path.split("."):
            part = getattr(part, name, None)
        if part is None or (parameters is not None and tuple(inspect.signature(part).parameters) != parameters):
            return False
    return True


def _own_cache() -> bool:
    try:
        return is_known() and not numba.config.DISABLE_JIT
    except Exception:  # whatever a changed library does when it is looked at
        return False


#: Whether kernels are kept and loaded by this module; otherwise by numba.
OWN_CACHE: Final = _own_cache()


def njit(**options: Any) -> Callable[[Any], Any]:
    """Return the decorator of a kernel.

    Args:
        options: those of ``numba.njit``; ``cache`` is always on.
    """
    options.pop("cache", None)
    return (lambda function: CompiledKernel(function, options).dispatcher) if OWN_CACHE else _by_numba(options)


def _by_numba(options: dict[str, Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder can be written
            return numba.njit(**options)(function)

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


class CompiledKernel:
    """A function, numba's dispatcher of it, and the files of its compiled forms.  It is the dispatcher's cache.

    Args:
        function: the kernel's Python function.
        options: those of ``numba.njit``.

    Attributes:
        found: the forms that were found compiled, by their types as the list of kernels writes them.
    """

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        self.function = function
        self.found: set[str] = set()
        self.name = (function.__module__, function.__qualname__)
        self.dispatcher = numba.njit(**options)(function)
        plain = {name: sorted(value) if isinstance(value, set) else value for name, value in options.items()}
        self._options = repr(sorted((name, repr(value)) for name, value in plain.items()))
        self._compile = self.dispatcher.compile
        self._folders: tuple[Path, ...] | None = None
        self._writes = False
        self.dispatcher._cache = self
        self.dispatcher.compile = self.compile
        # extensions of other packages define types that no kernel takes
        self.dispatcher._compilation_chain_init_hook = lambda: None
        KERNELS[self.name] = self

    def compile(self, signature: Any) -> Any:
        """Load or compile the form for a signature, as the caller wants it (``engine.model.progress``).

        Args:
            signature: numba's types of the arguments.

        Raises:
            NotCompiledError: it would have to be compiled, and the caller does not want to wait.
        """
        if not WAITING.compiling and WAITING.asked is not None:
            WAITING.asked(self.name, signature)
        if WAITING.compiling:
            return self._compile(signature)
        if self.holds(signature):
            with signals_postponed():
                return self._compile(signature)
        name = self.function.__name__
        if WAITING.refuse:
            raise NotCompiledError(f"{name} is not compiled")
        with contextlib.nullcontext() if WAITING.announce is None else WAITING.announce(name):
            WAITING.compiling = True
            try:
                with signals_postponed():
                    return self._compile(signature)
            finally:
                WAITING.compiling = False

    def holds(self, signature: Any) -> bool:
        """Return whether the form for a signature is loaded or can be loaded.

        Args:
            signature: numba's types of the arguments.
        """
        if signature in self.dispatcher.overloads:
            return True
        name, _ = self._file(signature, self.dispatcher.targetctx)
        return any((folder / name).exists() for folder in self._places())

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Load a form; None where it was never compiled, or its file is damaged.

        Args:
            signature: numba's types of the arguments.
            target: numba's description of the machine.
        """
        from numba.core import compiler
        from numba.core.runtime import rtsys

        rtsys.initialize(target)
        name, key = self._file(signature, target)
        for folder in self._places():
            with contextlib.suppress(Exception):  # whatever a file can hold: the kernel is compiled again then
                checked = (folder / name).read_bytes()
                if hashlib.sha256(checked[32:]).digest() != checked[:32]:
                    continue
                found, form = _Unpickler(io.BytesIO(checked[32:])).load()
                if found == key:
                    return compiler.CompileResult._rebuild(target, *form)
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a form that was compiled, where a folder can be written; the solve goes on in any case.

        Args:
            signature: numba's types of the arguments.
            compiled: what numba compiled.
        """
        from numba.core import serialize

        places = self._places()
        if (
            not self._writes
            or compiled.library.has_dynamic_globals
            or any(not one.can_cache for one in compiled.lifted)
        ):
            return
        name, key = self._file(signature, self.dispatcher.targetctx)
        with contextlib.suppress(OSError):  # a full disk, above all
            form = serialize.dumps((key, compiled._reduce()))
            _replace(places[0] / name, hashlib.sha256(form).digest() + form)

    def _places(self) -> tuple[Path, ...]:
        """Return the folders of the files: the first one can be written, if any can."""
        if self._folders is None:
            from numba.core import caching

            beside = Path(inspect.getfile(self.function)).absolute().parent / BESIDE
            try:
                own = Path(caching.CompileResultCacheImpl(self.function).locator.get_cache_path())
                self._folders, self._writes = tuple(dict.fromkeys((own, beside))), True
            except (RuntimeError, OSError):
                self._folders = (beside,)
        return self._folders

    def _file(self, signature: Any, target: Any) -> tuple[str, tuple[Any, ...]]:
        """Return the name of the file of a form, and what it stands for."""
        python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        stamp = (numba.__version__, python, self._options, _stamp(self.function))
        key = (*self.name, signature, target.codegen().magic_tuple(), stamp)
        text = repr(key)
        name = "{}.{}".format(self.name[0].rpartition(".")[2], re.sub(r"\W+", "_", self.name[1]))
        return f"{name}.{python}.{hashlib.sha256(text.encode()).hexdigest()[:24]}.nbc", key

    @property
    def cache_path(self) -> str | None:
        """The folder that new forms are written to; None where none can be written."""
        places = self._places()
        return str(places[0]) if self._writes else None

    def enable(self) -> None:
        """Do nothing: the files are always used."""

    disable = flush = enable


def is_loaded(package: str) -> bool:
    """Return whether a kernel of ``package`` is loaded in this process."""
    return any(name.startswith(package) and one.dispatcher.overloads for (name, _), one in KERNELS.items())


def _replace(path: Path, content: bytes) -> None:
    """Write a file that others see as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _stamp(function: Any) -> str:
    """Return a hash of the sources and constants of a function and of all that it calls."""
    digest, seen = hashlib.sha256(), set[int]()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        digest.update(_hashed(inspect.getfile(one)))
        for name, value in _read(one):
            called = getattr(value, "py_func", None) or getattr(value, "_defn", value)
            if inspect.isclass(called) and _is_own(called):
                digest.update(_hashed(inspect.getfile(called)))  # its methods are in the same file
            elif inspect.isfunction(called) and _is_own(called):
                waiting.append(called)
            else:
                digest.update(f"{name}={_constant(value)}".encode())
    return digest.hexdigest()


def _is_own(part: Any) -> bool:
    """Return whether ``part`` may change while numba, whose version is in the key, stays the same."""
    return str(part.__module__).partition(".")[0] not in ("builtins", "llvmlite", "numba", "numpy")


def _read(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the globals and the outer variables that a function reads, ascending."""
    names, codes = set[str](), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes.extend(inner for inner in code.co_consts if isinstance(inner, CodeType))
    yield from ((name, function.__globals__[name]) for name in sorted(names & function.__globals__.keys()))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            yield name, cell.cell_contents


def _constant(value: Any) -> str:
    """Return a text of a constant; of other objects their type and name, for their text may hold an address."""
    if isinstance(value, (int, float, str, bytes, tuple, frozenset)) or hasattr(value, "dtype"):
        return repr(value)
    return f"{type(value).__name__} {getattr(value, '__name__', '')}"


@cache
def _hashed(path: str) -> bytes:
    content = Path(path).read_bytes()
    # what was imported from a file before it changed must not be kept as what the new file says
    return uuid.uuid4().bytes if Path(path).stat().st_ctime > _BEGUN else hashlib.sha256(content).digest()


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
    from numba.core import environment

    known = environment.lookup_environment(name)
    if known is not None:
        return known
    made = environment.Environment({"__name__": module})
    made.consts[:] = constants
    made.env_name = name
    environment.Environment._memo[name] = made
    return made
