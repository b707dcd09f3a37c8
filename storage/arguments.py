"""Checks the arguments of Python functions: types first, then bounds; each message names the argument.

Without these checks, a thread count of 1.5 or a limit of ``"10"`` would cause an error far from the call, and a flag of
``"no"`` would count as true.  The checks accept NumPy's numbers and return plain Python values.
This module imports nothing that takes long to import.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Collection, Mapping
from numbers import Real
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from storage.errors import InvalidRequest, NotFound
from storage.number_texts import TOO_SMALL, vanishes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Most characters of a value that messages show.
_SHOWN = 80
#: Largest absolute value of a label that is a number; labels of graphs are far smaller.  Messages shorten numbers of
#: this size or more.
_HUGE = 1 << 100


def shown(value: object) -> str:
    """Return a value as messages show it, with its type."""
    try:
        text = repr(value).replace("\n", " ")
    except ValueError:  # Python does not print an int of thousands of digits
        text = "a number"
    return f"{text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'} ({type(value).__name__})"


def check_whole(field: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return ``value`` as an int.

    Args:
        field: name of the argument.
        value: the value; an int of Python or NumPy, but no bool.
        least, most: the least and the greatest value that are allowed; None for no bound.

    Raises:
        InvalidRequest: ``value`` is no whole number, or out of bounds.
    """
    if _is_flag(value):
        raise InvalidRequest(f"{field} must be a whole number, found {shown(value)}", field=field)
    try:
        found = operator.index(value)
    except TypeError:
        raise InvalidRequest(f"{field} must be a whole number, found {shown(value)}", field=field) from None
    if (least is not None and found < least) or (most is not None and found > most):
        span = f"from {least or 0} to {most:,}" if most is not None else f"at least {least}"
        told = found if abs(found) < _HUGE else shown(found)
        raise InvalidRequest(f"{field} must be {span}, found {told}", field=field)
    return found


def check_number(field: str, value: Any) -> float:
    """Return ``value`` as an int or a float; infinities and NaN pass, because the caller checks the bounds.

    Args:
        field: name of the argument.
        value: the value; a number of Python or NumPy, but no bool.

    Raises:
        InvalidRequest: ``value`` is no real number, or too large for a float, or so small that a float takes it for 0.
    """
    if _is_flag(value) or not isinstance(value, Real):
        raise InvalidRequest(f"{field} must be a number, found {shown(value)}", field=field)
    try:
        as_float = float(value)
    except OverflowError:
        message = f"{field} must be a number that a float can hold, found {shown(value)}"
        raise InvalidRequest(message, field=field) from None
    if as_float == 0 and value != 0:
        raise InvalidRequest(f"{field} {TOO_SMALL}, found {shown(value)}: give 0 if that is meant", field=field)
    return int(value) if hasattr(value, "__index__") else as_float


def check_distance(field: str, value: Any) -> float:
    """Return ``value`` as a distance of at least 0.

    Raises:
        InvalidRequest: ``value`` is no number, negative, infinite or NaN.
    """
    found = check_number(field, value)
    if not 0 <= found < math.inf:
        raise InvalidRequest(f"{field} must be a distance of at least 0, found {found}", field=field)
    return found


def check_choice(field: str, value: Any, choices: Collection[str]) -> None:
    """Check that a value is one of some names.

    Args:
        field: name of the argument.
        value: the value.
        choices: the allowed names.

    Raises:
        InvalidRequest: ``value`` is none of these names.
    """
    if not isinstance(value, str) or value not in choices:
        raise InvalidRequest(f"{field} {value!r} is unknown; use {', '.join(choices)}", field=field)


def check_flags(**given: object) -> None:
    """Check arguments that are either true or false.

    Args:
        given: the values by the names of the arguments.

    Raises:
        InvalidRequest: an argument is no bool.
    """
    for field, value in given.items():
        if not _is_flag(value):
            raise InvalidRequest(f"{field} must be True or False, found {shown(value)}", field=field)


def check_texts(**given: object) -> None:
    """Check arguments that are texts, or None.

    Args:
        given: the values by the names of the arguments.

    Raises:
        InvalidRequest: an argument is neither a text nor None.
    """
    for field, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(f"{field} must be a text, found {shown(value)}", field=field)


def check_paths(**given: object) -> None:
    """Check arguments that are paths, or None.

    Args:
        given: the values by the names of the arguments.

    Raises:
        InvalidRequest: an argument is no path, is empty, or holds a null character.
    """
    for field, value in given.items():
        if value is None:
            continue
        if not isinstance(value, str | os.PathLike):
            raise InvalidRequest(f"{field} must be a path, found {shown(value)}", field=field)
        text = os.fspath(value)
        if not isinstance(text, str) or not text or "\0" in text:
            raise InvalidRequest(f"{field} must be a path, found {shown(value)}", field=field)


def check_label(field: str, value: Any) -> str | int:
    """Return ``value`` as the label of a vertex.

    Args:
        field: name of the argument.
        value: the value: a text, or a whole number of Python or NumPy, but no bool.

    Raises:
        InvalidRequest: ``value`` is something else.
    """
    if isinstance(value, str):
        return value
    try:
        return check_whole(field, value, -_HUGE, _HUGE)
    except InvalidRequest:
        message = f"{field} must be the label of a vertex, a whole number or a text, found {shown(value)}"
        raise InvalidRequest(message, field=field) from None


def check_given_paths(**given: object) -> None:
    """Check arguments that are paths and may not be None.

    Args:
        given: the values by the names of the arguments.

    Raises:
        InvalidRequest: an argument is None, or :func:`check_paths` refuses it.
    """
    for field, value in given.items():
        if value is None:
            raise InvalidRequest(f"{field} must be a path, found None", field=field)
    check_paths(**given)


def check_names(field: str, value: Any) -> tuple[str, ...]:
    """Return a sequence of names as a tuple.

    Args:
        field: name of the argument.
        value: the value: a list or tuple of texts; a single text is refused, although it is a sequence of letters.

    Raises:
        InvalidRequest: ``value`` is something else.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise InvalidRequest(f"{field} must be a list of names, found {shown(value)}", field=field)
    return tuple(value)


def check_indices(field: str, value: Any) -> tuple[int, ...]:
    """Return a sequence of vertex indices as a tuple of ints.

    Args:
        field: name of the argument.
        value: the value: a tuple, list or range of whole numbers, or an array of integers of one dimension; a series
            of pandas or polars is such an array.

    Raises:
        InvalidRequest: ``value`` is something else, or has masked entries.
    """
    if type(value) is tuple and set(map(type, value)) <= {int}:
        return value
    listed = value
    if hasattr(value, "__array__"):
        found = unmasked(field, value)
        listed = found.tolist() if found.ndim == 1 else None
    if not isinstance(listed, tuple | list | range):
        raise InvalidRequest(f"{field} must be a list of vertex indices, found {shown(value)}", field=field)
    return tuple(check_whole(field, index) for index in listed)


def unmasked(field: str, values: Any) -> npt.NDArray[Any]:
    """Return an array, or what NumPy can convert to an array, as a plain array; refuse masked entries.

    A conversion by NumPy would drop the mask of a masked array, so that masked entries would count.

    Args:
        field: name of the argument.
        values: the array, list or the like.

    Raises:
        InvalidRequest: entries are masked, or NumPy cannot convert the values.
    """
    import numpy as np

    if np.ma.is_masked(values):
        hidden = int(np.ma.getmaskarray(values).sum())
        raise InvalidRequest(f"{field} has {hidden} masked entries; leave them out, or fill them", field=field)
    try:
        return np.asarray(values)
    except (RuntimeError, TypeError) as error:  # sparse arrays, and arrays in the memory of a GPU
        raise InvalidRequest(f"{field} cannot become an array of NumPy: {error}", field=field) from error


def as_float64(field: str, values: Any) -> npt.NDArray[np.float64]:
    """Return numbers as a new array of float64.

    Args:
        field: name of the argument.
        values: an array or list of numbers of any kind, or of texts of numbers.

    Raises:
        InvalidRequest: a number is not 0, but so small that float64 takes it for 0.
        ValueError, TypeError, OverflowError: an entry is no number, or too large.
    """
    import numpy as np

    found = np.array(values, np.float64)
    kind = getattr(values, "dtype", None)
    if kind is not None and kind.kind in "biuf" and kind.itemsize <= found.itemsize:
        return found
    for at in np.flatnonzero(found == 0).tolist():
        one = values[at]
        if vanishes(one.strip(), 0.0) if isinstance(one, str) else one != 0:
            raise InvalidRequest(
                f"entry {at + 1} of {field} {TOO_SMALL}, found {shown(one)}: give all of them in a smaller unit, or "
                "give 0",
                field=field,
            )
    return found


def check_index_array(field: str, value: Any, n: int) -> npt.NDArray[np.int64]:
    """Return the vertex indices of a query as an array.  It may be empty, and a vertex may occur several times.

    Args:
        field: name of the argument.
        value: the value: a list, tuple, range or array of whole numbers, of one dimension.
        n: the number of vertices.

    Returns:
        The indices, int64, shape (k,); ``value`` itself if it is such an array.

    Raises:
        InvalidRequest: ``value`` is something else; floats are not rounded, and bools are not taken for numbers.
        NotFound: an index is not from 0 to n - 1; negative indices do not count from the end.
    """
    import numpy as np

    listed = isinstance(value, list | tuple | range)
    try:
        found = unmasked(field, value) if listed or hasattr(value, "__array__") else np.zeros((0, 0))
    except ValueError:  # NumPy refuses nested lists of different lengths
        found = np.zeros((0, 0))
    whole = found.dtype.kind in "iu" or (found.dtype.kind == "O" and all(type(one) is int for one in found.flat))
    if listed and whole:  # NumPy turns bools in a list of numbers into numbers
        whole = all(kind is not bool and issubclass(kind, (int, np.integer)) for kind in set(map(type, value)))
    if found.ndim != 1 or not (whole or not found.size):
        raise InvalidRequest(f"{field} must be a list of vertex indices, found {shown(value)}", field=field)
    if found.size and not 0 <= found.min() <= found.max() < n:
        wrong = int(found[(found < 0) | (found >= n)][0])
        told = wrong if abs(wrong) < _HUGE else shown(wrong)
        raise NotFound(f"vertex index {told} does not exist; the graph has {n} vertices")
    return found.astype(np.int64, copy=False)


def check_declared(given: Mapping[str, object], kinds: Mapping[str, Any]) -> None:
    """Check options whose types are declared.

    Args:
        given: the options by name.
        kinds: the declared type of each option: a text, a path, a flag, or names out of a ``Literal``; a type may also
            allow None.  Options of other types are not checked here.

    Raises:
        InvalidRequest: the value of an option is not of its declared type.
    """
    for field, value in given.items():
        kind = kinds.get(field)
        leaves = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        if value is None and NoneType in leaves:
            continue
        named = [name for leaf in leaves if get_origin(leaf) is Literal for name in get_args(leaf)]
        if named:
            check_choice(field, value, named)
        elif bool in leaves:
            check_flags(**{field: value})
        elif Path in leaves:
            check_paths(**{field: value})
        elif str in leaves and not isinstance(value, str):
            raise InvalidRequest(f"{field} must be a text, found {shown(value)}", field=field)


def _is_flag(value: object) -> bool:
    """Return whether a value is a bool, of Python or NumPy."""
    return isinstance(value, bool) or (getattr(value, "shape", None) == () and getattr(value, "dtype", None) == "bool")
