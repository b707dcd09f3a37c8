"""The summary of a prepared graph: of all its rows, or of some evenly spaced rows."""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np

from engine.api.from_tables.bands import reduce_bands
from engine.api.prepared_matrix import PreparedMatrix
from engine.graph.selection import Rectangle
from engine.model.progress import Monitor, given_monitor
from engine.rows.summary import SummarySink
from storage.errors import InvalidRequest

#: If no number of rows is given, rows with about this many entries are computed, which takes a tenth of a second.
_ENTRIES: Final = 1 << 24
#: Number of rows from which the time of a summary of all rows is predicted.
_TIMED: Final = 64
#: Facts that follow only from all rows; a summary of some rows leaves them out.
_OF_ALL: Final = ("diameter", "radius", "diameter_pair", "center", "central_sources", "central_reach")


def summarize(matrix: PreparedMatrix, rows: int | None = None, monitor: Monitor | None = None) -> dict[str, Any]:
    """Compute rows of a prepared graph and return their summary.

    Args:
        matrix: the prepared graph.
        rows: the number of rows, evenly spaced over the vertices; None for rows with about 2^24 entries in all, but at
            least 64 rows, and at most all.
        monitor: receives progress, and is asked whether to stop.

    Returns:
        From all rows: the summary that a solve stores, with the same numbers.  From some rows: the summary without
        diameter, radius and centre.  Then ``sources`` is the number of these rows, ``pairs``, ``reached``, ``sum``,
        ``mean`` and ``histogram`` describe their distances, and ``sampled`` is true.

    Raises:
        InvalidRequest: the number of rows is below 1.
        Cancelled: the monitor asked to stop.
        StorageFailed, DoesNotFit: the tables cannot be read.
    """
    if rows is not None and rows < 1:
        raise InvalidRequest(f"a summary is of at least one row, and {rows} were asked for", field="rows")
    n, monitor = matrix.n, given_monitor(monitor)
    count = min(n, max(64, _ENTRIES // max(1, n)) if rows is None else rows)
    sources = np.arange(count) * n // max(1, count)
    whole = np.array_equal(sources, np.arange(n))
    taken = RowsSummary(matrix, sources)
    monitor.begin("summary", count, "rows")
    reduce_bands(matrix, Rectangle(n, sources, None, None), taken.gather, monitor)
    return taken.facts(whole=whole)


def summary_seconds(matrix: PreparedMatrix) -> float:
    """Predict the processor seconds that a summary of all rows takes, from the time of some rows.

    These rows are computed twice, and the second time is measured, because the first one includes loading kernels and
    reading tables.  For a small graph 0 is returned.

    Args:
        matrix: the prepared graph; nothing else may run in this process meanwhile, because its whole processor time
            is measured.

    Raises:
        StorageFailed, DoesNotFit: the tables cannot be read.
    """
    n = matrix.n
    if n * n <= _ENTRIES:
        return 0.0
    sources, began = np.arange(_TIMED) * n // _TIMED, 0.0
    for _ in range(2):
        began = time.process_time()
        reduce_bands(matrix, Rectangle(n, sources, None, None), RowsSummary(matrix, sources).gather, Monitor())
    return (time.process_time() - began) * n / _TIMED


class RowsSummary:
    """Gathers the summary of rows of a prepared graph; several threads may add rows at the same time.

    Args:
        matrix: the prepared graph.
        sources: the vertex of each row.
    """

    def __init__(self, matrix: PreparedMatrix, sources: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        integral = bool(matrix.graph().integral)
        self._labels = matrix.labels
        self._sink = SummarySink(_Nowhere(), sources, matrix.n, integral=integral)
        self.gather = self._sink.gather

    def facts(self, *, whole: bool) -> dict[str, Any]:
        """Return the summary; ``whole`` says whether all rows were added."""
        found = self._sink.summary(self._labels)
        return found if whole else {**{k: v for k, v in found.items() if k not in _OF_ALL}, "sampled": True}


class _Nowhere:
    """A sink that discards all rows."""

    tile = (64, 64)

    def write(self, row: int, column: int, block: object) -> None:
        """Discard the rows."""
