"""Distances of single pairs of a prepared graph, from its files, for processes that hold no tables in memory.

The result is the same as from ``engine.algorithms.prepared.lines``, but no compiled code is needed: two lines are read,
and NumPy finds the least sum of their entries.  This takes some microseconds, far less than asking another process.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.algorithms.prepared.tables import limits_of, line_ends, parts_of
from engine.graph.selection import first_beyond
from engine.graph.terminals import arrivals
from engine.model.dtypes import work_type
from storage.prepared.line_files import LineFiles
from storage.prepared.reader import PreparedStore

#: Limits of a pair that :meth:`SinglePairs.peek` finds, so that a call takes about 0.1 ms.  _LINE_BYTES: the bytes of
#: the columns that both lines have.  _STEPS: the steps from both parts up the tree to the first part above both.
_LINE_BYTES: Final = 1 << 17
_STEPS: Final = 1 << 9


class SinglePairs:
    """Finds distances of single pairs; safe to use from many threads.

    Args:
        store: the open prepared graph.
        ahead, back: the files of the forward and the backward tables; the same object if the graph is undirected.

    Raises:
        StorageFailed: a file that describes the parts, or the weights, is damaged.
    """

    def __init__(self, store: PreparedStore, ahead: LineFiles, back: LineFiles) -> None:
        parts, n, kind = parts_of(store), store.n, work_type(store.dtype)
        widths, count = parts.widths(), int(store.attributes.get("terminals", 0))
        cutoff = store.attributes["cutoff"]
        beyond = None if cutoff is None else first_beyond(cutoff, store.dtype)
        # the weights are read only for types that allow negative arcs
        nonnegative = kind.largest_signed < 0 or store.least_weight >= 0
        self._limit, self._unreachable = limits_of(kind, beyond, nonnegative=nonnegative)
        self._files = ahead, back
        sources = line_ends(parts, widths, parts.position[:n])
        targets = line_ends(parts, widths, parts.position[arrivals(np.arange(n), n, count)]) if count else sources
        # reading an entry of a memoryview gives a Python number in a third of the time that an entry of an array takes
        self._sources, self._targets = (sources[0].data, sources[1].data), (targets[0].data, targets[1].data)
        self._parents, self._widths = parts.parents.data, widths.data
        self._most = _LINE_BYTES // kind.itemsize

    @classmethod
    def of(cls, store: PreparedStore) -> SinglePairs | None:
        """Make the object for a prepared graph; None if the graph is in the compact form or in an object store.

        Raises:
            StorageFailed: a file that describes the parts, or the weights, is damaged.
        """
        ahead = store.line_files("forward")
        return None if ahead is None else cls(store, ahead, store.line_files("backward") or ahead)

    def read(self, source: int, target: int) -> Any:
        """Return the distance of a pair (vertex indices), a number of the type of the tables.

        Raises:
            StorageFailed: a chunk of the tables is missing or damaged; the message names it.
        """
        shared = self._shared(source, target, len(self._parents))
        if not shared:
            return self._unreachable
        begin, back = self._sources[1][source], self._targets[1][target]
        return self._least(self._files[0].read(begin - shared, begin), self._files[1].read(back - shared, back))

    def peek(self, source: int, target: int) -> Any:
        """Return the distance of a pair as :meth:`read` does, but without waiting for the disk.

        Returns:
            The distance; None if the pair needs :meth:`read`, because a chunk was never checked or the lines are long.

        Raises:
            BlockingIOError: the operating system is reading a line from the disk; try again soon.
        """
        shared = self._shared(source, target, _STEPS)
        if shared is None or shared > self._most:
            return None
        if not shared:
            return self._unreachable
        begin, back = self._sources[1][source], self._targets[1][target]
        there, here = self._files[0].peek(begin - shared, begin), self._files[1].peek(back - shared, back)
        return None if there is None or here is None else self._least(there, here)

    def _shared(self, source: int, target: int, steps: int) -> int | None:
        """Return how many columns the lines of both vertices have in common; they are the last ones of each line.

        Return None if the first part above both is more than ``steps`` steps up the tree.
        """
        one, other, parents = self._sources[0][source], self._targets[0][target], self._parents
        while one != other:
            if one > other:
                one, other = other, one
            one, steps = parents[one], steps - 1
            if one < 0:
                return 0
            if steps < 0:
                return None
        return int(self._widths[one])

    def _least(self, there: Any, back: Any) -> Any:
        best = np.minimum.reduce(there + back)
        return self._unreachable if best > self._limit else best
