"""The decorator of all kernels for processors: compiled by numba once per machine, then loaded in milliseconds.

numba's own cache first loads all modules that compiling could need, including SciPy, which takes a hundred times as
long as loading a kernel.  This module first looks for a compiled kernel, and prepares the compiler only if there is
none (decision 107).  Each compiled *form* of a kernel, for one signature, has its own file, whose name is a hash of
everything on which the form depends.  So processes may compile at the same time, and after an edit of a kernel no
outdated form of its callers is loaded (decision 115).  Kernels that were compiled into the program's own folder, as
when a container image is built, are also found by users who cannot write there.  If no folder can be written, kernels
are compiled in each process.

This module replaces undocumented parts of numba.  With an untested or changed version of numba,
``numba.njit(cache=True)`` is used instead; kernels then load more slowly.

Kernels are compiled for exactly this processor, or for the level of x86-64 processors that ``APSP_CPU_LEVEL`` names:
``x86-64-v3``, ``x86-64-v4``, or ``auto`` for the highest level of this processor.  A container image has kernels for
the levels v3 and v4 (decision 116).

A caller can receive the progress of compiling, or can refuse to wait for it (``engine.model.progress``).  If plain
Python takes less time for some work than compiling would, ``engine.graph.kernels.plain`` runs the kernel without
compiling it.
"""

# numba's own classes have no types
# mypy: disable-error-code="no-untyped-call, attr-defined"

from __future__ import annotations

import contextlib
import gc
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
from types import CodeType
from typing import Any, Final

import numba
import numpy as np

from engine.graph.kernels.indices import FROM_START, checked, leave_out_tests
from engine.graph.kernels.loading import defined, is_known, know_runtime, rebuilt
from engine.model.progress import WAITING, NotCompiledError, compilation, note_not_kept
from engine.model.system import rare_collections, signals_postponed

#: Folder, next to the source file of a kernel, in which numba keeps the compiled kernel if it can write there.
BESIDE: Final = "__pycache__"
#: The version of the format of kernel files.  It is a part of their hashed names, so programs with another version
#: never read or replace these files.
FORM: Final = 2
#: Options of kernels that numba does not know.
_OWN_OPTIONS: Final = ("borrows", "from_start")
#: The time when this module was imported, before any module that defines kernels, in seconds since 1970.
_BEGUN: Final = time.time()
#: The kernels that have been defined, by module and name.
KERNELS: Final[dict[tuple[str, str], CompiledKernel]] = {}


def _own_cache() -> bool:
    try:
        return is_known() and not numba.config.DISABLE_JIT
    except Exception:  # inspecting a changed library may raise any exception
        return False


#: Whether this module saves and loads kernels; if not, numba does.
OWN_CACHE: Final = _own_cache()


def njit(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator that makes a function a kernel.

    Args:
        options: the options of ``numba.njit``; ``cache`` is always on.  ``borrows`` may be added; it says that the
            kernel works in the arrays of its caller: it neither makes nor returns an array, nor calls a kernel that
            returns one.  No references to arrays are counted then, which takes as long as short searches.
            ``from_start`` may be added, too; it says that no variable with which the kernel indexes an array is ever
            negative (constants may be).  No code counts indices from the end then.
    """
    options.pop("cache", None)
    return (lambda function: CompiledKernel(function, options).dispatcher) if OWN_CACHE else _by_numba(options)


def _by_numba(options: dict[str, Any]) -> Callable[[Any], Any]:
    for name in _OWN_OPTIONS:
        options.pop(name, None)

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder can be written
            return numba.njit(**options)(function)

    return decorate


class CompiledKernel:
    """A kernel: a function, numba's dispatcher for it, and the files of its compiled forms.

    It also serves as the cache of the dispatcher.

    Args:
        function: the kernel's Python function.
        options: the options of ``numba.njit``.
    """

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        self.function = function
        self.name = (function.__module__, function.__qualname__)
        # no C code calls kernels, and a wrapper for such calls takes some 3 % of the time of a compilation
        # a kernel without this choice would take that of the kernel for which it is first compiled
        counts = {"_nrt": not options.get("borrows", False)}
        given = {name: value for name, value in options.items() if name not in _OWN_OPTIONS}
        if options.get("from_start"):
            FROM_START.add(self.name)
        self.dispatcher = numba.njit(**{"no_cfunc_wrapper": True, **counts, **given})(function)
        plain = {name: sorted(value) if isinstance(value, set) else value for name, value in options.items()}
        self._options = repr(sorted((name, repr(value)) for name, value in plain.items()))
        self._compile = self._returning_none(self.dispatcher.compile) if not counts["_nrt"] else self.dispatcher.compile
        self._folders: tuple[Path, ...] | None = None
        self._writes = False
        self.dispatcher._cache = self
        self.dispatcher.compile = self.compile
        self._call_template = self.dispatcher.get_call_template
        self.dispatcher.get_call_template = self.call_template
        # skip numba's hook that imports extensions of other packages, because no kernel takes types that they define
        self.dispatcher._compilation_chain_init_hook = lambda: None
        KERNELS[self.name] = self

    def _returning_none(self, compiling: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return ``compiling`` with an error for kernels that return an array: no reference to it would be counted, so
        its memory would be given back while the caller still uses it.
        """

        def compiled(signature: Any) -> Any:
            found = compiling(signature)
            for form in self.dispatcher.overloads.values():
                if "array" in str(form.signature.return_type).lower():
                    raise TypeError(f"{self.name[1]} borrows its arrays, so it may not return one")
            return found

        return compiled

    def compile(self, signature: Any) -> Any:
        """Load or compile the form for a signature; ``engine.model.progress`` says whether to wait for the compiler.

        Args:
            signature: numba's types of the arguments.

        Raises:
            NotCompiledError: the form would have to be compiled, and the caller refuses to wait.
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
        with compilation(name), signals_postponed(), rare_collections():
            try:
                return self._compile(signature)
            finally:
                # Errors in numba and their frames refer to each other, and the frames to those of all callers, whose
                # graphs and matrices would stay in memory until Python's next collection.  All of these objects are
                # new, so a collection of the two young generations finds them.
                gc.collect(1)

    def call_template(self, inputs: Any, named: dict[str, Any]) -> Any:
        """Return numba's description of the form that another kernel calls, after compiling it.

        numba has a separate type for each constant.  If a loop variable begins as the constant 0 and is passed to a
        kernel, numba would compile two forms of that kernel, one of them for the type of this 0, which never runs.  So
        each constant is given the type of a variable; no kernel needs the value of a constant at compile time.

        Args:
            inputs: numba's types of the positional arguments.
            named: numba's types of the keyword arguments, by name.
        """
        plain = numba.types.unliteral
        return self._call_template([plain(kind) for kind in inputs], {name: plain(named[name]) for name in named})

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
        """Load and return a compiled form; None if it was never compiled, or its file is damaged.

        Args:
            signature: numba's types of the arguments.
            target: numba's description of the machine.
        """
        know_runtime()
        name, key = self._file(signature, target)
        for folder in self._places():
            with contextlib.suppress(Exception):  # damaged files raise any exception; the kernel is then compiled again
                checked = (folder / name).read_bytes()
                if hashlib.sha256(checked[32:]).digest() != checked[:32]:
                    continue
                found, form, names = _Unpickler(io.BytesIO(checked[32:])).load()
                if found == key:
                    return rebuilt(target, form, names)
        leave_out_tests()  # numba compiles it next
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Save a compiled form; if no folder can be written, it is not saved, and no error is raised.

        Args:
            signature: numba's types of the arguments.
            compiled: the result of numba's compiler.
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
        with contextlib.suppress(OSError):  # for example, the disk is full
            form = serialize.dumps((key, compiled._reduce(), defined(compiled.library._get_module_for_linking())))
            _replace(places[0] / name, hashlib.sha256(form).digest() + form)

    def _places(self) -> tuple[Path, ...]:
        """Return the folders in which to look for files; the first one can be written unless none of them can."""
        if self._folders is None:
            beside = Path(inspect.getfile(self.function)).absolute().parent / BESIDE
            try:
                own = Path(_locating()(self.function).locator.get_cache_path())
                self._folders, self._writes = tuple(dict.fromkeys((own, beside))), True
            except (RuntimeError, OSError):
                self._folders = (beside,)
                note_not_kept()
        return self._folders

    def _file(self, signature: Any, target: Any) -> tuple[str, tuple[Any, ...]]:
        """Return the file name of a form, and the key whose hash is in this name."""
        python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        # a kernel may also contain the code of others that are checked
        stamp = (FORM, numba.__version__, python, self._options, _stamp(self.function), *(["checked"] * checked()))
        key = (*self.name, signature, target.codegen().magic_tuple(), stamp)
        text = repr(key)
        name = "{}.{}".format(self.name[0].rpartition(".")[2], re.sub(r"\W+", "_", self.name[1]))
        return f"{name}.{python}.{hashlib.sha256(text.encode()).hexdigest()[:24]}.nbc", key

    @property
    def cache_path(self) -> str | None:
        """The folder to which new forms are written; None if no folder can be written."""
        places = self._places()
        return str(places[0]) if self._writes else None

    def enable(self) -> None:
        """Do nothing, because the files are always used."""

    disable = flush = enable


def _locating() -> Any:
    """Return numba's class that finds the folder of a kernel, without the user's caches if the user has no home.

    numba would then make a folder called ``~`` wherever the program runs, and the next process would not find it.
    """
    from numba.core.caching import CompileResultCacheImpl
    from numba.misc.appdirs import AppDirs

    if Path(AppDirs(appname="numba", appauthor=False).user_cache_dir).is_absolute():
        return CompileResultCacheImpl
    below_home = ("UserWideCacheLocator", "ZipCacheLocator")
    others = [one for one in CompileResultCacheImpl._locator_classes if not one.__name__.endswith(below_home)]
    return type("HomelessCacheImpl", (CompileResultCacheImpl,), {"_locator_classes": others})


def is_loaded(package: str) -> bool:
    """Return whether a kernel of ``package`` is loaded in this process."""
    return any(name.startswith(package) and one.dispatcher.overloads for (name, _), one in KERNELS.items())


def _replace(path: Path, content: bytes) -> None:
    """Write a file atomically: other processes see either the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _stamp(function: Any) -> str:
    """Return a hash of the sources and constants of a function and of all functions that it calls."""
    digest, seen, waiting = hashlib.sha256(), set[int](), [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        digest.update(_hashed(inspect.getfile(one)))
        for name, value in _read(one):
            called = getattr(value, "py_func", None) or getattr(value, "_defn", value)
            if inspect.isclass(called) and _is_own(called):  # the methods of a class are in its file
                digest.update(_hashed(inspect.getfile(called)))
            elif inspect.isfunction(called) and _is_own(called):
                waiting.append(called)
            else:
                digest.update(f"{name}={_constant(value)}".encode())
    return digest.hexdigest()


def _is_own(part: Any) -> bool:
    """Return whether ``part`` can change while the version of numba, which the key contains, stays the same."""
    return str(part.__module__).partition(".")[0] not in ("builtins", "llvmlite", "numba", "numpy")


def _read(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the globals and outer variables that a function reads, in ascending order of names."""
    names, codes = set[str](), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes.extend(inner for inner in code.co_consts if isinstance(inner, CodeType))
    yield from ((name, function.__globals__[name]) for name in sorted(names & function.__globals__.keys()))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the outer variable is not assigned yet
            yield name, cell.cell_contents


def _constant(value: Any) -> str:
    """Return the text of a constant; for any other object its type and name, because its text may contain a path."""
    if isinstance(value, np.ndarray):  # hash the entries, because NumPy shortens the text of a long array
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, (int, float, str, bytes, tuple, frozenset, np.generic)):
        return repr(value)
    return f"{type(value).__name__} {getattr(value, '__name__', '')}"


@cache
def _hashed(path: str) -> bytes:
    content = Path(path).read_bytes()
    # a file that changed after this program began may differ from the imported module, so it gets a random hash; no
    # later process loads a form that is saved with that hash
    return uuid.uuid4().bytes if Path(path).stat().st_ctime > _BEGUN else hashlib.sha256(content).digest()


class _Unpickler(pickle.Unpickler):
    """Loads pickled kernels without importing the numba modules whose functions the kernels call."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the object to which a name in the pickle refers.

        Args:
            module: the module of the object.
            name: its name in the module.
        """
        if (module, name) == ("numba.core.environment", "_rebuild_env"):
            return _environment
        return super().find_class(module, name)


def _environment(module: str, constants: Any, name: str) -> Any:
    """Return numba's environment of a function: its constants, and no globals except the name of its module.

    Compiled kernels never read other globals.

    Args:
        module: the module in which the function was defined.
        constants: the constants to which the compiled form refers.
        name: name of the environment.
    """
    from numba.core import environment

    if (known := environment.lookup_environment(name)) is not None:
        return known
    made = environment.Environment({"__name__": module})
    made.consts[:] = constants
    made.env_name = name
    environment.Environment._memo[name] = made
    return made
