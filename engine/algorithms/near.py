"""Finds the targets near each source: those within a cutoff, or the nearest ones, as sparse rows.

Dijkstra's search (Dijkstra 1959) settles vertices in the order of their distances, so it can end at the cutoff, or with
the last target wanted.  Its cost and the size of the result depend on the number of vertices that it reaches; no row of
all vertices is made.  Threads take pieces of the sources and keep the entries that they find.  The first pieces are a
sample from all sources, which predicts the size of the whole result.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.arcs import FAR, prepare
from engine.devices.cpu.heap import search_packed, search_wide
from engine.devices.cpu.team import Team
from engine.graph.kernels import njit
from engine.graph.selection import Rectangle
from engine.model.backend import Arcs
from engine.model.decimals import limit_on_paper
from engine.model.progress import Monitor
from storage.pairs.spilling import PairSpill

Array = npt.NDArray[np.generic]
Indices = npt.NDArray[np.int64]
Found = tuple[Indices, npt.NDArray[np.int32], Array]

#: Sources that a thread takes at once.
PIECE: Final = 64
#: Number of pieces that are searched first; the size of the result is predicted from them.
SAMPLED: Final = 16
#: If too many entries are in memory, a thread waits until another thread has finished an earlier piece, because entries
#: are written in order.  The waiting thread checks again after this number of seconds.
WAIT: Final = 0.002
#: Least number of entries in a thread's buffer.
BUFFER: Final = 1 << 16
#: Bytes of memory that an entry (a vertex and a length) takes: 12 in a thread's buffer, and 12 in the finished arrays.
ENTRY_BYTES: Final = 24
#: Bytes of a thread's work space for each vertex: distance, heap, place in the heap, order of discovery, and the
#: buffer.
SPACE_BYTES: Final = 40


@dataclass(frozen=True)
class NearWanted:
    """Which targets are wanted for each source: the limits of their distance and number.

    Attributes:
        rectangle: sources and targets, as vertices of the graph that is searched.
        vertices: int64, shape (columns,): the vertex of the caller's graph for each target.
        names: int64, shape (rows,): the vertex of the caller's graph for each source.
        cutoff: the largest distance wanted; None for no limit.
        nearest: the number of targets wanted for each source; None for all.
    """

    rectangle: Rectangle
    vertices: Indices
    names: Indices
    cutoff: float | None
    nearest: int | None


@njit(nogil=True, cache=True)
def _gather(dist, seen, source, wants, most, index, lengths):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """Write the vertices and lengths that a search found, and return their number; -1 if ``index`` is too short."""
    wanted, vertices, numbers = wants
    count = 0
    for v in seen:
        count += wanted[v] and vertices[v] != source
    keep = min(most, count) if most > 0 else count
    if keep > len(index):
        return -1
    found = np.empty(count, np.int32)
    count = 0
    for v in seen:
        if wanted[v] and vertices[v] != source:
            found[count] = vertices[v]
            count += 1
    found.sort()
    if most > 0:
        far = np.empty(count, dist.dtype)
        for i in range(count):
            far[i] = dist[numbers[found[i]]]
        found = found[np.argsort(far, kind="mergesort")[:keep]]
    for i in range(keep):
        index[i] = found[i]
        lengths[i] = dist[numbers[found[i]]]
    return keep


@njit(nogil=True, cache=True)
def _near_packed(arcs, wants, most, rows, space, out, bits):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """Search from the sources in ``rows`` until the buffers in ``out`` are full; return the number of rows written."""
    indptr, heads, weights, far = arcs
    counts, index, lengths = out
    dist, seen, heap, place = space
    at = 0
    for i in range(len(rows[0])):
        left = _left(wants, most, rows[1][i])
        count = search_packed(indptr, heads, weights, rows[0][i], dist, seen, wants[0][0], left, heap, place, bits)
        kept = _gather(dist, seen[:count], rows[1][i], wants[0], most, index[at:], lengths[at:])
        dist[seen[:count]] = far
        if kept < 0:
            return i
        counts[i] = kept
        at += kept
    return len(rows[0])


@njit(nogil=True, cache=True)
def _near_wide(arcs, wants, most, rows, space, out, keys):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """Search as :func:`_near_packed` does, for graphs where a heap key cannot hold both a distance and a vertex."""
    indptr, heads, weights, far = arcs
    counts, index, lengths = out
    dist, seen, heap, place = space
    at = 0
    for i in range(len(rows[0])):
        left = _left(wants, most, rows[1][i])
        count = search_wide(indptr, heads, weights, rows[0][i], dist, seen, wants[0][0], left, keys, heap, place)
        kept = _gather(dist, seen[:count], rows[1][i], wants[0], most, index[at:], lengths[at:])
        dist[seen[:count]] = far
        if kept < 0:
            return i
        counts[i] = kept
        at += kept
    return len(rows[0])


@njit(nogil=True, cache=True)
def _left(wants, most, source):  # type: ignore[no-untyped-def]
    """Return the number of targets after which the search from ``source`` ends; the source counts if it is a target."""
    (wanted, _, numbers), all_wanted = wants
    if most == 0:
        return all_wanted
    own = numbers[source]
    return most + (1 if own >= 0 and wanted[own] else 0)


class NearSearches:
    """The searches of one request.

    Args:
        arcs: the arcs; no weight is negative.
        wanted: the sources, the targets, and the limits of distance and number.
        n: the number of vertices of the caller's graph.
    """

    def __init__(self, arcs: Arcs, wanted: NearWanted, n: int) -> None:
        self._ready, self._most = prepare(arcs), wanted.nearest or 0
        ready, rectangle = self._ready, wanted.rectangle
        size = len(ready.rank)
        self._kind = np.dtype(np.float64 if ready.weights.dtype.kind == "f" else np.int64)
        cutoff = None if wanted.cutoff is None else limit_on_paper(wanted.cutoff, arcs.weights, n)
        self._far = np.array([_first_beyond(cutoff, self._kind)], self._kind)[0]
        columns = ready.rank[rectangle.columns]
        mask, vertices = np.zeros(size, np.bool_), np.zeros(size, np.int32)
        mask[columns], vertices[columns] = True, wanted.vertices
        numbers = np.full(n, -1, np.int32)
        numbers[wanted.vertices] = columns
        left = len(columns) if rectangle.targets is not None and len(columns) < size else 0
        self._wants = (mask, vertices, numbers), np.int64(left)
        self._starts, self._names = ready.rank[rectangle.rows].astype(np.int64), wanted.names
        self.pieces = range(0, len(self._names), PIECE)
        self.found: dict[int, list[Found]] = {}
        self.entries = self.rows = 0
        self._counts, self._spilled = np.zeros(len(wanted.names), np.int64), 0
        self._spill: PairSpill | None = None
        self._most_held = self._searching = self._largest = 0
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """The number of sources."""
        return len(self._names)

    @property
    def held(self) -> int:
        """The number of entries in memory."""
        return self.entries - (0 if self._spill is None else self._spill.entries)

    @property
    def expected(self) -> int:
        """The number of entries in memory once the pieces that threads are searching now are finished: a prediction.

        It takes each of these pieces to have as many entries as the largest piece so far.
        """
        return self.held + self._searching * self._largest

    @property
    def spills(self) -> bool:
        """Whether entries are written to files instead of being kept in memory."""
        return self._spill is not None

    def begin_spilling(self, folder: Path, likely: int, most: int) -> None:
        """Write all entries to files, in the order of the pieces, beginning now; several threads may call this.

        Args:
            folder: a folder on the disk on which the files are made.
            likely: the predicted number of entries.
            most: if more entries than this are in memory, threads wait until earlier pieces are written.

        Raises:
            DoesNotFit: the disk has too little free space.
            StorageFailed: the disk has failed.
        """
        with self._lock:
            if self._spill is None:
                self._spill, self._most_held = PairSpill(folder, self._kind, likely), most
                self._drain()

    def close(self) -> None:
        """Close the files for writing; the result can still read them."""
        if self._spill is not None:
            self._spill.discard()

    def _too_far(self) -> bool:
        """Return whether a thread must wait because too many entries are in memory, or will be; the caller holds the
        lock.

        Entries are written in order, so they wait for earlier pieces, which other threads are searching.  If no thread
        is searching, this thread will search the earliest missing piece, so it must not wait.
        """
        return self._spill is not None and self.expected > self._most_held and self._searching > 0

    def _drain(self) -> None:
        """Write finished pieces in order, up to the first piece that is not finished; the caller holds the lock."""
        while self._spill is not None and self._spilled in self.found:
            first = self._spilled
            for counts, index, lengths in self.found.pop(self._spilled):
                self._counts[first : first + len(counts)] = counts
                first += len(counts)
                self._spill.append(index, lengths)
            self._spilled += PIECE

    def predicted(self) -> float:
        """Predict the number of entries of the result from the sampled pieces; the prediction tends to be too low.

        The prediction for a piece is the mean of the sample less twice its standard error.  So no result that might fit
        in memory is refused before the search; a result that does not fit is refused during the search.
        """
        counts = np.array([sum(len(part[1]) for part in parts) for parts in self.found.values()], np.float64)
        error = counts.std(ddof=1) / math.sqrt(len(counts)) if len(counts) > 1 else 0.0
        return max(0.0, float(counts.mean() - 2 * error)) * len(self.pieces) if len(counts) else 0.0

    def sample(self) -> list[int]:
        """Return the pieces to sample, which are spread over all sources; a piece is named by its first source."""
        count = min(SAMPLED, len(self.pieces))
        return [self.pieces[(2 * i + 1) * len(self.pieces) // (2 * count)] for i in range(count)]

    def run(self, team: Team, pieces: Sequence[int], monitor: Monitor, check: Callable[[int], None]) -> None:
        """Search from the sources of some pieces, with all threads.

        Args:
            team: the threads.
            pieces: the first source of each piece.
            monitor: receives the progress in rows.
            check: called by any thread after each piece, with the number of entries found so far; an exception that it
                raises ends the run.

        Raises:
            Cancelled: the monitor asked to stop.
        """
        waiting, stopped = iter(pieces), threading.Event()
        told = self.rows

        def work(worker: int) -> None:
            nonlocal told
            space = self._space()
            try:
                while not stopped.is_set():
                    with self._lock:
                        wait = self._too_far()
                        piece = None if wait else next(waiting, None)
                        self._searching += piece is not None
                    if wait:
                        time.sleep(WAIT)
                        continue
                    if piece is None:
                        break
                    found = self._search(piece, space)
                    entries = sum(len(index) for _, index, _ in found)
                    with self._lock:
                        self.found[piece] = found
                        self.rows += sum(len(counts) for counts, _, _ in found)
                        self.entries += entries
                        self._largest = max(self._largest, entries)
                        self._searching -= 1
                        self._drain()
                    check(self.entries)
                    if worker == 0:  # only the calling thread calls the monitor
                        told, since = self.rows, told
                        monitor.step(told - since)
            except BaseException:
                stopped.set()
                raise

        team.run(work, most=len(pieces))
        monitor.step(self.rows - told)

    def result(self) -> Found:
        """Return three arrays in the layout of sparse rows: ``indptr``, and the vertex and the length of each entry."""
        parts = [part for piece in sorted(self.found) for part in self.found[piece]]
        self.found.clear()
        indptr = np.zeros(len(self._names) + 1, np.int64)
        if self._spill is not None:
            np.cumsum(self._counts, out=indptr[1:])
            return indptr, *self._spill.result()
        np.cumsum(np.concatenate([np.empty(0, np.int64), *(part[0] for part in parts)]), out=indptr[1:])
        index = np.concatenate([np.empty(0, np.int32), *(part[1] for part in parts)])
        longest = max((part[2].max(initial=0) for part in parts), default=0)
        kind = np.dtype(np.int32) if self._kind.kind == "i" and longest < 2**31 else self._kind
        lengths = np.empty(len(index), kind)
        for (_, _, values), last in zip(parts, itertools.accumulate(len(part[1]) for part in parts), strict=True):
            lengths[last - len(values) : last] = values
        return indptr, index, lengths

    def _space(self) -> tuple[Any, ...]:
        size, packed = len(self._ready.rank), self._ready.bits > 0
        entries = max(BUFFER, size)
        buffers = np.empty(PIECE, np.int64), np.empty(entries, np.int32), np.empty(entries, self._kind)
        keys = np.empty(0 if packed else size, self._kind)
        heap = np.empty(size, np.int64 if packed else np.int32)
        labels = np.full(size, self._far, self._kind), np.empty(size, np.int32), heap, np.full(size, -1, np.int32)
        return labels, buffers, keys

    def _search(self, first: int, space: tuple[Any, ...]) -> list[Found]:
        ready, (labels, buffers, keys) = self._ready, space
        last, found = min(first + PIECE, len(self._names)), []
        arcs = ready.indptr, ready.heads, ready.weights, self._far
        while first < last:
            rows = self._starts[first:last], self._names[first:last]
            common = arcs, self._wants, self._most, rows, labels, buffers
            done = _near_packed(*common, ready.bits) if ready.bits else _near_wide(*common, keys)
            counts, index, lengths = buffers
            size = int(counts[:done].sum())
            found.append((counts[:done].copy(), index[:size].copy(), lengths[:size].copy()))
            first += done
        return found


def _first_beyond(cutoff: float | None, kind: np.dtype[Any]) -> float:
    """Return the smallest number of the type ``kind`` that is larger than the cutoff."""
    if kind.kind == "f":
        return math.inf if cutoff is None else float(np.nextafter(cutoff, math.inf))
    return FAR if cutoff is None or cutoff >= FAR else math.floor(cutoff) + 1
