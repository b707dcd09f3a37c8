"""Finds names of vertices that are like a typed text.  Imports NumPy, so import it only when needed."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from storage.graph.inputs import search_text

if TYPE_CHECKING:
    from storage.matrix.sealed import SealedResult

Labels = npt.NDArray[np.generic]

#: the most names that are searched one by one for a text anywhere in them; names after these are found only by their
#: beginning
_COMPARED: Final = 200_000
#: the most digits of a label that is a whole number (int64)
_DIGITS: Final = 19


def ascending_names(matrix: SealedResult, side: Literal["source", "target"]) -> Labels:
    """Return the names of the sources or targets of a result in ascending order, whatever the order of its rows and
    columns.
    """
    vertices, labels = (
        (matrix.sources, matrix.source_labels) if side == "source" else (matrix.targets, matrix.target_labels)
    )
    return labels if np.all(vertices[:-1] < vertices[1:]) else matrix.labels[np.sort(vertices)]


def like_names(labels: Labels, typed: str, most: int) -> list[str]:
    """Return names that begin with a typed text, then names that contain it in upper or lower case.

    Args:
        labels: ascending names of vertices, shape (n,), numbers or text.
        typed: the typed text.
        most: most names to return.
    """
    wanted = typed.strip()
    if not wanted or not len(labels):
        return []
    if labels.dtype.kind in "iu":
        return _numbers(labels, wanted, most)
    found = _beginning(labels, wanted, most)
    folded = wanted.casefold()
    if len(found) < most:
        others = [name for name in map(str, labels[:_COMPARED]) if folded in name.casefold() and name not in found]
        others.sort(key=lambda name: not name.casefold().startswith(folded))
        found += others[: most - len(found)]
    return found


def similar_names(labels: Labels, typed: str, most: int) -> list[str]:
    """Return the names that are most like a name that does not exist: those that have the longest prefix in common with
    it.

    Args:
        labels: ascending names of vertices, shape (n,), numbers or text.
        typed: the name that does not exist.
        most: most names to return.
    """
    wanted = typed.strip()[:100]
    for length in range(len(wanted), 0, -1):
        found = like_names(labels, wanted[:length], 8 * most)
        if found:
            return sorted(found, key=lambda name: -difflib.SequenceMatcher(None, wanted, name).ratio())[:most]
    return []


def _numbers(labels: Labels, wanted: str, most: int) -> list[str]:
    """Return the labels whose digits begin with ``wanted``, the shortest first."""
    if not (wanted.isascii() and wanted.isdigit()):
        return []
    found: list[str] = []
    first = int(wanted)
    for more in range(_DIGITS - len(wanted) + 1):
        low, high = first * 10**more, (first + 1) * 10**more
        if low > int(labels[-1]) or len(found) >= most or (more and not first):
            break
        begin = int(np.searchsorted(labels, np.int64(low)))
        end = int(np.searchsorted(labels, np.int64(high))) if high < 2**63 else len(labels)
        some: Any = labels[begin : min(end, begin + most - len(found))]
        found += map(str, some.tolist())
    return found


def _beginning(labels: Labels, wanted: str, most: int) -> list[str]:
    at = search_text(labels, wanted)
    found = [str(name) for name in labels[at : at + most]]
    return [name for name in found if name.startswith(wanted)]
