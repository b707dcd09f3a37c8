"""Computes the tables of a prepared graph: lengths from vertices to the parts above them, and back.

*Parts* are sets of vertices in a tree; the *border* of a part are the vertices of the parts above that it touches.

One elimination serves both directions: it finds the lengths from each part to its border, and from the border to the
part.  ``engine.algorithms.part_lengths`` extends the former, so that they lead to all parts above.  This module
transposes the latter, and extends them in the same way.  The results are the tables of the reversed graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.algorithms.eliminated import Eliminated, PartRecorder, tables_of
from engine.algorithms.elimination import SmallParts, small_parts
from engine.algorithms.part_lengths import PartWork
from engine.model.backend import Array
from engine.model.dtypes import WorkType, settle


@dataclass(frozen=True, eq=False)
class FoundTables:
    """The tables of a prepared graph.

    Attributes:
        forward: the tables of all parts one after the other, as ``Lengths.flat``.
        backward: the tables of the reversed graph; None for an undirected graph, for which they equal ``forward``.
        eliminated: the intermediate results of elimination.  With them, the tables of some parts can be computed again
            without computing those of all other parts.
    """

    forward: Array
    backward: Array | None
    eliminated: Eliminated


def find_tables(work: PartWork, journal: PartRecorder | None = None) -> FoundTables:
    """Find the tables of lengths from vertices to the parts above them, and back.

    With negative arcs, the sum of *unreachable* and a length may differ from *unreachable*.  Such entries are set back
    to exactly *unreachable*, so that the sum of two entries shows whether a pair is unreachable.

    Args:
        work: the graph and its parts; negative arcs are allowed for integers, negative cycles are not.
        journal: restores the parts that an earlier run has computed, and records new ones; None records nothing.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    found = compute_tables(work, journal)
    # without negative arcs, distances may exceed ``largest_signed``, so that ``settle`` would overwrite them
    if not work.nonnegative:
        settle(found.forward)
        if found.backward is not None:
            settle(found.backward)
    return found


def compute_tables(work: PartWork, journal: PartRecorder | None = None) -> FoundTables:
    """Compute the tables of lengths from vertices to the parts above them, and back.

    With negative arcs, entries may hold the sum of *unreachable* and a length; :func:`find_tables` corrects them.

    Args:
        work: the graph and its parts; negative arcs are allowed for integers, negative cycles are not.
        journal: restores the parts that an earlier run has computed, and records those computed here; None records
            nothing.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    journal = journal or PartRecorder()
    forward, found = work.find(journal)
    backward = _reversed(work, forward, found, journal) if work.graph.directed else None
    return FoundTables(forward, backward, found)


def _reversed(work: PartWork, forward: Array, found: Eliminated, journal: PartRecorder) -> Array:
    """Return the tables of the reversed graph as one flat array, computed from the ``forward`` tables."""
    parts = work.parts
    updates, owner = parts.updates()[1], parts.owner()
    work.monitor.begin("prepare backward", int(updates.sum()), "updates")
    flat: Array = np.empty_like(forward)
    journal.begin_backward(flat)
    todo = journal.todo("backward", parts)
    work.monitor.step(int(updates[~todo].sum()))
    tables, others = tables_of(parts, flat), tables_of(parts, forward)
    small = small_parts(parts)
    for i in np.flatnonzero(todo & ~small)[::-1].tolist():
        extend_backward(work, tables, others, found, (i, owner))
        journal.add("backward", np.array([i]))
    few = todo & small
    reversed_found = _reversed_lengths(found, few, work.kind)
    for i in np.flatnonzero(few).tolist():
        _reverse_inside(tables[i], others[i])
    signs: Any = {"nonnegative": work.nonnegative, "directed": True}
    for some in SmallParts(work.backend, reversed_found, few, work.kind, **signs).extend(flat):
        journal.add("backward", some)
        work.monitor.step(int(updates[some].sum()))
    return flat


def extend_backward(
    work: PartWork, tables: list[Array], others: list[Array], found: Eliminated, at: tuple[int, Array]
) -> None:
    """Fill the table of one part for the reversed graph.

    Args:
        work: the graph and its parts.
        tables: the tables of all parts for the reversed graph; those of the parts above are already filled.
        others: the tables of all parts for the graph itself, not reversed.
        found: the results of elimination.
        at: two values: the number of the part to fill; and, for each position, the number of its part.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    i, owner = at
    _reverse_inside(tables[i], others[i])
    work.extend(tables, i, np.ascontiguousarray(found.down(i).T), owner)


def _reverse_inside(table: Array, other: Array) -> None:
    """Fill the first columns of ``table``, which hold the lengths inside a part.

    ``table`` belongs to the reversed graph.  Its first columns are the transposed first columns of ``other``, which is
    the table of the same part for the graph itself.
    """
    size = len(table)
    table[:, :size] = other[:, :size].T


def _reversed_lengths(found: Eliminated, some: npt.NDArray[np.bool_], kind: WorkType) -> Eliminated:
    """Return results of elimination that hold, for ``some`` parts, the reversed graph's lengths to the border."""
    reversed_found = Eliminated.of(found.parts, np.empty(found.across.shape, kind.dtype), found.across, found.rests)
    for i in np.flatnonzero(some).tolist():
        reversed_found.up(i)[...] = found.down(i).T
    return reversed_found
