"""Fills the dense weight matrix that Floyd-Warshall and squaring start from, and writes finished matrices to a sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.graph.potentials import Potentials
from engine.model.dtypes import WorkType
from engine.model.progress import Monitor
from engine.model.rows import FactSink, Sink
from storage.graph.graph import Graph
from storage.threads import in_threads

Array = npt.NDArray[np.generic]

#: Number of entries that a thread fills at a time.
_PIECE = 1 << 20
#: Number of entries of the rows whose facts are gathered at once.
_GATHERED = 1 << 23


def weight_matrix(graph: Graph, kind: WorkType, monitor: Monitor, threads: int = 1, out: Array | None = None) -> Array:
    """Return the weight matrix W, shape (n, n): 0 on the diagonal, the weights of arcs, *unreachable* elsewhere.

    Args:
        graph: the graph.
        kind: the working type.
        monitor: receives the progress, in rows.
        threads: number of threads that fill the matrix.
        out: shape (n, n), receives the matrix; None for new memory.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    monitor.begin("ingest", graph.n, "rows")
    matrix = np.empty((graph.n, graph.n), kind.dtype) if out is None else out
    rows = max(1, _PIECE // max(1, graph.n))

    def fill(first: int) -> int:
        part = matrix[first : first + rows]
        fill_weights(graph, kind, first, part)
        return len(part)

    in_threads(threads, fill, range(0, graph.n, rows), told=monitor.step, name="apsp-fill")
    return matrix


def fill_weights(graph: Graph, kind: WorkType, first: int, out: Array) -> None:
    """Fill rows of the weight matrix W.  Several threads may fill different rows at the same time.

    Args:
        graph: the graph.
        kind: the working type.
        first: number of the first row.
        out: shape (rows, n), receives rows ``first``, ``first`` + 1, ...
    """
    from engine.rows._weights import scatter

    # a weight that is larger than every distance may not fit the type; as *unreachable* it changes no distance
    most = np.float64(np.inf) if not kind.integer else np.int64(kind.unreachable)
    scatter((graph.indptr, graph.heads, graph.weights), first, (kind.sentinel(), most), out)


@dataclass(frozen=True)
class ClosedRows:
    """A finished matrix in memory whose rows are to be sent to a sink.

    Attributes:
        matrix: shape (n, n), or only the rows wanted, in any memory order; in the working type.
        rows: vertex indices of the rows wanted; None for all.
        picked: whether ``matrix`` holds only the rows wanted.
        potentials: shape (n,), h: the entries are reduced lengths d + h[source] - h[target], and h[source] - h[target]
            is subtracted in float64.  None if the entries are distances.
    """

    matrix: Array
    rows: npt.NDArray[np.int64] | None = None
    picked: bool = False
    potentials: Potentials | None = None


def write_rows(
    closed: ClosedRows, sink: Sink, monitor: Monitor, threads: int, before: Callable[[int, int], None] | None = None
) -> None:
    """Send rows of a matrix to ``sink``, band by band, from several threads.

    If the matrix is the array of the sink itself, only the facts of its rows are gathered.

    Args:
        closed: the matrix, and which rows of it are wanted.
        sink: receives the rows.
        monitor: receives the progress, in rows.
        threads: number of threads that write.
        before: called with the first row and one past the last row of a band, by the thread that then sends the band.
    """
    matrix, potentials = closed.matrix, closed.potentials
    sources = np.arange(len(matrix)) if closed.rows is None else closed.rows
    band = sink.tile[0]
    in_place = sink if isinstance(sink, FactSink) and sink.place is matrix else None
    # nothing is written, so bands may be higher: two per thread, but none so large that progress is rarely reported
    if in_place is not None:
        band = max(band, min(-(-len(sources) // (2 * threads)), _GATHERED // max(1, matrix.shape[1])))
    monitor.begin("write", len(sources), "rows")

    def write(first: int) -> int:
        some = sources[first : first + band]
        if before is not None:
            before(first, first + len(some))
        if in_place is not None:
            in_place.gather(first, matrix[first : first + len(some)])
            return len(some)
        block: Array = matrix[first : first + len(some)] if closed.picked or closed.rows is None else matrix[some]
        if potentials is not None:
            block = (block.astype(np.float64) + (potentials - potentials[some, None])).astype(matrix.dtype)
        sink.write(first, 0, np.ascontiguousarray(block))
        return len(some)

    in_threads(threads, write, range(0, len(sources), band), told=monitor.step, name="apsp-write")
