"""New weights for some arcs of a prepared graph: only the parts that they may change are computed again.

The elimination of a part depends on its arcs and on the parts below it.  So the parts that hold changed arcs, and all
parts above these, are eliminated again.  Their tables are extended again, from the top down.  The table of any other
part is extended again only if the line of a vertex of its border has changed.  The code is the same as that which
prepares a whole graph, and adds in the same order, so both give the same tables to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.algorithms.both_ways import FoundTables, extend_backward
from engine.algorithms.eliminated import Indices, Mask, PartRecorder, tables_of
from engine.algorithms.part_lengths import PartWork
from engine.graph.partition import Parts
from engine.model.backend import Array


@dataclass(frozen=True, eq=False)
class Touched:
    """The parts whose tables have changed.

    Attributes:
        eliminated: mask of the parts that were eliminated again, shape (parts,).
        forward: mask of the parts whose tables have changed, shape (parts,).
        backward: mask of the parts whose tables of the reversed graph have changed, shape (parts,); all False for an
            undirected graph.
    """

    eliminated: Mask
    forward: Mask
    backward: Mask


def change_tables(work: PartWork, tables: FoundTables, holds: Mask) -> Touched:
    """Change the tables of a graph without negative arcs to those of new weights, in place.

    Args:
        work: the graph with its new weights, of which none is negative, and its parts.
        tables: the tables for the old weights, none of which was negative; the new weights have the same type.
        holds: mask of the parts that hold changed arcs, shape (parts,); an arc belongs to the part of its tail or of
            its head, whichever is eliminated first.

    Returns:
        The parts that were eliminated again, and those whose tables changed.

    Raises:
        Cancelled: the monitor asked to stop; the tables are then a mixture of both weightings and must be discarded.
    """
    parts = work.parts
    again, owner = _and_above(parts, holds), parts.owner()
    flats = [tables.forward] if tables.backward is None else [tables.forward, tables.backward]
    views = [tables_of(parts, flat) for flat in flats]
    before = [{i: table[i].copy() for i in np.flatnonzero(again).tolist()} for table in views]
    updates = parts.updates()
    work.monitor.begin("prepare", int(updates[0].sum()), "updates")
    work.eliminate(tables.forward, tables.eliminated, again, PartRecorder())

    def forward(i: int) -> None:
        work.extend(views[0], i, tables.eliminated.up(i), owner)

    def backward(i: int) -> None:
        extend_backward(work, views[1], views[0], tables.eliminated, (i, owner))

    work.monitor.begin("extend", len(views) * int(updates[1].sum()), "updates")
    touched = [_down(parts, again, views[0], before[0], forward)]
    if len(views) > 1:
        touched.append(_down(parts, again, views[1], before[1], backward))
    return Touched(again, touched[0], touched[-1] if len(views) > 1 else np.zeros(parts.count, np.bool_))


def _and_above(parts: Parts, holds: Mask) -> Mask:
    """Return the mask of the parts in the mask ``holds`` and of all parts above them."""
    again = holds.copy()
    for i in np.flatnonzero(holds).tolist():
        above = int(parts.parents[i])
        while above >= 0 and not again[above]:
            again[above] = True
            above = int(parts.parents[above])
    return again


def _down(
    parts: Parts, again: Mask, tables: list[Array], before: dict[int, Array], extend: Callable[[int], None]
) -> Mask:
    """Extend the tables that may have changed, from the top down, and return the mask of those that have changed.

    The border of a part lies in its parent and in the parent's border.  So the table of a part can change only if the
    table of its parent was extended again.
    """
    order = np.argsort(parts.parents, kind="stable")
    begin = np.searchsorted(parts.parents[order], np.arange(parts.count + 1))
    differs, lines = np.zeros(parts.count, np.bool_), np.zeros(int(parts.starts[-1]), np.bool_)
    waiting = np.flatnonzero(again & (parts.parents < 0)).tolist()
    while waiting:
        i = waiting.pop()
        old = before.pop(i) if again[i] else tables[i].copy()
        extend(i)
        changed = (_bits(tables[i]) != _bits(old)).any(axis=1)
        lines[parts.starts[i] : parts.starts[i + 1]] = changed
        differs[i] = changed.any()
        children: Indices = order[begin[i] : begin[i + 1]]
        waiting += [c for c in children.tolist() if again[c] or lines[parts.border(c)].any()]
    return differs


def _bits(table: Array) -> npt.NDArray[np.generic]:
    """Return the bits of the entries as integers, so that entries are compared bit for bit."""
    return table.view(f"u{table.dtype.itemsize}")
