"""The list of kernels that solves on processors use, with the types of their arguments, so that they can be compiled
ahead.

``kernels.jsonl`` beside this module holds a line for each form of a kernel: module, name, types, processor seconds of
its compilation, and the uses that need it, such as ``dijkstra uint16``.  ``python -m benchmarks.kernel_list`` writes it
from small solves, and a test checks that it is up to date.  A form that is not in the list is compiled when it is first
called.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from engine.model.progress import compilations

#: The word before the layout of an array type (C, F or A) if the array is read-only.
READONLY: Final = "readonly "
#: The use of the kernels of planning, which any solve may need.
PLANNING: Final = "plan"
FILE: Final = Path(__file__).with_name("kernels.jsonl")
#: For each kernel, the argument types of the forms that this process has found compiled.
_FOUND: Final[WeakKeyDictionary[Any, set[str]]] = WeakKeyDictionary()
#: Uses whose kernels were all compiled when this process looked.
_COMPLETE: Final = set[str]()
#: For each other use, what this process found when it last looked: the number of compilations so far, the time in
#: seconds, and the kernels that were missing.
_MISSING: Final = dict[str, tuple[int, float, list["ListedKernel"]]]()
#: Seconds after which a process looks again for missing kernels, because another process may have compiled them.
LOOK_AGAIN: Final = 5.0


@dataclass(frozen=True)
class ListedKernel:
    """One form of a kernel.

    Attributes:
        module: the module that defines the kernel.
        name: the name of the kernel in that module.
        types: the types of its arguments as JSON text, see :func:`types_text`.
        seconds: processor seconds that compiling it took when the list was written.
        uses: the solves that need it: ``plan``, or an algorithm and a type, and perhaps further options.
    """

    module: str
    name: str
    types: str
    seconds: float
    uses: tuple[str, ...]

    def line(self) -> str:
        """Return the kernel as a line of the file."""
        types = json.loads(self.types)
        fields = {"module": self.module, "name": self.name, "types": types, "seconds": self.seconds, "uses": self.uses}
        return json.dumps(fields)

    @classmethod
    def of_line(cls, line: str) -> ListedKernel:
        """Return the kernel of a line of the file."""
        fields = json.loads(line)
        return cls(
            fields["module"], fields["name"], json.dumps(fields["types"]), fields["seconds"], tuple(fields["uses"])
        )

    def is_ready(self) -> bool:
        """Return whether the kernel is compiled for this processor and from the current source.

        If the form was found once, this process does not check again, because a check takes a tenth of a millisecond.

        Raises:
            KeyError: there is no such kernel.
        """
        kernel = _kernel(self)
        found = _FOUND.setdefault(kernel, set())
        if self.types not in found and kernel.holds(signature_of(self.types)):
            found.add(self.types)
        return self.types in found

    def compile(self) -> None:
        """Compile the kernel and store the result, without running it.

        Raises:
            KeyError: there is no such kernel.
            Exception: an error of numba, because the types do not suit the kernel.
        """
        _kernel(self).dispatcher.compile(signature_of(self.types))


def _kernel(listed: ListedKernel) -> Any:
    from engine.graph.kernels import KERNELS

    found = KERNELS.get((listed.module, listed.name))
    if found is not None:
        return found
    importlib.import_module(listed.module)
    return KERNELS[listed.module, listed.name]


@cache
def listed_kernels() -> tuple[ListedKernel, ...]:
    """Return all kernels of ``kernels.jsonl``."""
    return tuple(ListedKernel.of_line(line) for line in FILE.read_text().splitlines())


def missing(kernels: Iterable[ListedKernel]) -> list[ListedKernel]:
    """Return those of ``kernels`` that are not compiled; none if numba's own cache is in use."""
    from engine.graph.kernels import OWN_CACHE

    found = []
    for listed in kernels if OWN_CACHE else ():
        try:
            if not listed.is_ready():
                found.append(listed)
        except (KeyError, ImportError):  # the list names a kernel that no longer exists
            continue
    return found


def missing_for(use: str) -> list[ListedKernel]:
    """Return the kernels of one use that are not compiled.

    Looking takes as long as planning, and kernels of a use that no solve has called yet may be missing for ever.  So
    the answer is cached: an empty answer for ever, any other answer for ``LOOK_AGAIN`` seconds, or until this process
    compiles some kernel.
    """
    if use in _COMPLETE:
        return []
    count, now = compilations(), time.monotonic()
    before, when, found = _MISSING.get(use, (-1, 0.0, []))
    if before != count or now - when > LOOK_AGAIN:
        found = missing(used_by(use))
        _MISSING[use] = count, now, found
    if not found:
        _COMPLETE.add(use)
    return list(found)


def used_by(*uses: str) -> list[ListedKernel]:
    """Return the kernels that one of ``uses`` needs."""
    return list(_used_by(uses))


@cache
def _used_by(uses: tuple[str, ...]) -> tuple[ListedKernel, ...]:
    return tuple(listed for listed in listed_kernels() if not set(uses).isdisjoint(listed.uses))


def types_text(types: Iterable[Any]) -> str:
    """Return numba's types of arguments as JSON: an array becomes ``C2 int64``, a tuple a list, any other type its
    name.

    Args:
        types: numba's types, one for each argument.

    Raises:
        ValueError: a type that no listed kernel has.
    """
    return json.dumps([_written(one) for one in types])


def _written(one: Any) -> object:
    from numba.core import types

    if isinstance(one, types.Array):
        return f"{'' if one.mutable else READONLY}{one.layout}{one.ndim} {one.dtype}"
    if isinstance(one, (types.UniTuple, types.Tuple)):
        return [_written(inner) for inner in one.types]
    if isinstance(one, (types.Number, types.Boolean, types.NoneType)):
        return str(one)
    raise ValueError(f"no kernel is listed with an argument of type {one!r}")


def signature_of(text: str) -> tuple[Any, ...]:
    """Return numba's types from the text that :func:`types_text` returned."""
    return tuple(_read(one) for one in json.loads(text))


def _read(one: Any) -> Any:
    from numba.core import types

    if isinstance(one, list):
        return types.Tuple([_read(inner) for inner in one])
    layout, _, dtype = one.removeprefix(READONLY).rpartition(" ")
    kind = types.none if dtype == "none" else types.boolean if dtype == "bool" else getattr(types, dtype)
    return types.Array(kind, int(layout[1:]), layout[0], readonly=one.startswith(READONLY)) if layout else kind
