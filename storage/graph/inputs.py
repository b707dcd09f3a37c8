"""Converts arrays and lists of tails, heads and labels to int64 or text arrays, and finds labels similar to a name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from storage.arguments import unmasked
from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.cleaning import AnyArray, IntArray
from storage.options import Option

#: To suggest a known name in place of an unknown one, at most this number of known names with the same first letter are
#: compared with it, and at most this number with that letter in the other case.
_COMPARED = 2_000


class ArcOptions(TypedDict, total=False):
    """Optional arguments of :func:`build_graph`, whose docstring describes them."""

    mirrored: Annotated[bool, Option("Both arcs of each edge are there.", default=False)]
    quantities: Annotated[Mapping[str, npt.ArrayLike] | None, Option("Further numbers of the arcs.")]
    parallel: Annotated[Literal["least", "greatest"] | None, Option("Which of parallel arcs stays; else the least.")]


def keeps_greatest(parallel: str | None) -> bool:
    """Return whether the greatest of parallel arcs is kept.  Raises InvalidRequest for an unknown word."""
    if parallel not in (None, "least", "greatest"):
        raise InvalidRequest(f"parallel {parallel!r} is unknown; use least, greatest", field="parallel")
    return parallel == "greatest"


def whole_array(values: npt.ArrayLike, name: str) -> AnyArray:
    """Return a list of whole numbers, named ``name`` in messages, as int32 or int64.  Raises InvalidGraph."""
    array = _unboxed(values, name)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidGraph(f"{name} must be a list of whole numbers, not {_form(array)}", field=name)
    return array if array.dtype in (np.int32, np.int64) else _as_int64(array, name)


def _form(array: npt.NDArray[Any]) -> str:
    """Return the type of an array, and its number of axes if that is not 1, for messages."""
    return str(array.dtype) if array.ndim == 1 else f"{array.dtype} of {array.ndim} axes"


def _unboxed(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Return ``values`` as an array, in which Python's ints have become int64, and Python's texts ``StringDType``.

    Without this function, NumPy would convert a list such as ``[1, 2**63]`` to floats, and would not convert the
    elements of an object array.

    Raises:
        InvalidGraph: a whole number is beyond int64, or numbers and texts are mixed.
    """
    array = unmasked(name, values)
    boxed = array.dtype.kind == "O" or (array.dtype.kind in "fU" and isinstance(values, list | tuple))
    if array.ndim != 1 or not boxed:
        return array
    objects = values if isinstance(values, list | tuple) else array.tolist()
    if all(isinstance(value, str) for value in objects):
        return as_texts(array, name)
    if any(isinstance(value, bool) or not isinstance(value, int | np.integer) for value in objects):
        if array.dtype.kind == "f":
            return array
        kinds = ", ".join(sorted({type(value).__name__ for value in objects}))
        raise InvalidGraph(f"{name} are either all whole numbers or all text, found {kinds}", field=name)
    wrong = next((value for value in objects if not -(2**63) <= value < 2**63), None)
    if wrong is not None:
        raise InvalidGraph(f"{name}: {wrong} is beyond the range of int64; use text labels", field=name)
    return np.array(objects, np.int64)


def as_texts(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Return an array of texts, named ``name`` in messages, as ``StringDType``.

    Raises:
        InvalidGraph: a text contains a lone surrogate (half a character), which cannot be encoded in a file.
    """
    try:
        return array.astype(np.dtypes.StringDType())
    except (TypeError, UnicodeError):
        wrong = [text for text in array.tolist() if any("\ud800" <= letter <= "\udfff" for letter in str(text))]
        if not wrong:
            raise
        raise InvalidGraph(f"{name}: {wrong[0]!r} holds half a character", field=name) from None


def _as_int64(array: AnyArray, name: str) -> IntArray:
    """Return integers as int64; raise InvalidGraph for unsigned integers that int64 does not hold."""
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise InvalidGraph(f"{name}: {array.max()} is beyond the range of int64; use text labels", field=name)
    return array.astype(np.int64)


def label_array(labels: npt.ArrayLike) -> AnyArray:
    """Return labels, which must ascend strictly, as int64 or ``StringDType``."""
    array = _unboxed(labels, "labels")
    if array.dtype.kind == "u":
        array = _as_int64(array, "labels")
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iUT"):
        raise InvalidGraph(f"labels are whole numbers or text, not {_form(array)}", field="labels")
    array = array.astype(np.int64) if array.dtype.kind in "iu" or array.size == 0 else as_texts(array, "labels")
    if len(array) > 1 and not bool(np.all(array[1:] > array[:-1])):
        raise InvalidGraph("labels must ascend strictly", field="labels")
    return array


def search_text(labels: AnyArray, name: str) -> int:
    """Return the position of the first of the ascending ``labels`` that is not below ``name``, by binary search.

    ``numpy.searchsorted`` fails on some arrays of ``StringDType`` with a MemoryError.
    """
    low, high = 0, len(labels)
    while low < high:
        middle = (low + high) // 2
        if str(labels[middle]) < name:
            low = middle + 1
        else:
            high = middle
    return low


def similar_label(labels: AnyArray, name: str) -> str | None:
    """Return the label that is most similar to ``name``; None if no label is similar.  Some labels that begin with the
    same character are compared.  Capital and small letters count as equal.
    """
    alike: dict[str, str] = {}
    for begin in dict.fromkeys((name[:1], name[:1].upper(), name[:1].lower()) if name else ()):
        first = search_text(labels, begin)
        for text in map(str, labels[first : first + _COMPARED]):
            if text.startswith(begin):
                alike.setdefault(text.casefold(), text)
    return next((alike[near] for near in difflib.get_close_matches(name.casefold(), alike, n=1)), None)
