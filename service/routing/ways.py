"""Computes the metres along fastest ways, for results whose distances are times."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.api.routes import rounding
from storage.errors import InvalidRequest, LimitExceeded, StorageFailed
from storage.geography.coordinates import crow_distances
from storage.matrix.sealed import SealedResult

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Most vertices that the searches of one request may visit, all sources together.
MOST_VISITED: Final = 50_000_000


class FastestWays:
    """Searches the graph of a result again, from each source of a request.

    Tables of a result hold its distances only.  One search from a source gives a fastest way to every target, and the
    straight lines between the vertices of this way are summed.

    Args:
        matrix: the open result, whose graph has longitudes and latitudes.

    Raises:
        InvalidRequest: a plain search would find other paths: weights are negative, some vertices are terminals, or
            hops are limited.
    """

    def __init__(self, matrix: SealedResult) -> None:
        graph, found = matrix.graph(), matrix.coordinates
        assert found is not None
        what = "weights below 0" if graph.arcs and graph.weights.min() < 0 else ""
        what = what or ("terminals" if graph.terminals else "")
        what = what or ("a limit of hops" if matrix.attributes.get("max_hops") else "")
        if what:
            raise InvalidRequest(
                f"this network has times and {what}: metres along its fastest ways are not told; ask for durations",
                field="options",
            )
        self._x, self._y, self._shown = found.x, found.y, found.there
        self._dtype, self._whole = matrix.dtype, matrix.attributes.get("cutoff") is None
        weights = graph.weights.astype(np.float64)
        self._arcs = csr_array((weights, graph.heads, graph.indptr), shape=(graph.n, graph.n))

    def check(self, sources: int) -> None:
        """Raise LimitExceeded if a request has so many sources that searching takes too long."""
        n = self._arcs.shape[0]
        if sources * n > MOST_VISITED:
            most = max(1, MOST_VISITED // n)
            raise LimitExceeded(
                f"metres along the fastest ways from {sources:,} places take a search each through {n:,} vertices; at "
                f"most {most:,} places a request: split it, or ask OSRM's table for annotations=duration",
                limit=most, requested=sources, setting="coordinates",
            )  # fmt: skip

    def metres(self, source: int, targets: Indices, times: Floats) -> Floats:
        """Return the metres of a fastest way to each target, +inf where there is none.

        Args:
            source: vertex index.
            targets: vertex indices, shape (k,).
            times: the distances from the source to the targets in the result, shape (k,), +inf where there is no way.

        Raises:
            StorageFailed: the search finds times that differ from ``times``.
        """
        lengths, before = dijkstra(self._arcs, indices=source, return_predecessors=True)
        self._compare(lengths[targets], times)
        found = np.where(np.isfinite(times), 0.0, np.inf)
        # all ways are followed back to the source at the same time; ``last`` is, for each way, the vertex with
        # coordinates that was passed last
        last, at = targets.copy(), targets.copy()
        moving = np.flatnonzero(np.isfinite(times) & (targets != source))
        while len(moving):
            at[moving] = before[at[moving]]
            there = moving[self._shown[at[moving]]]
            a, b = at[there], last[there]
            found[there] += crow_distances(self._x[a], self._y[a], self._x[b], self._y[b], geographic=True)
            last[there] = a
            moving = moving[at[moving] != source]
        return found

    def _compare(self, again: Floats, times: Floats) -> None:
        there, known = np.isfinite(times), np.isfinite(again)
        if not self._whole:  # the search also finds ways beyond the cutoff, which the table leaves out
            known &= there
        off = np.zeros(len(times))
        off[there] = np.abs(again[there] - times[there])
        allowed = np.zeros(len(times))
        if self._dtype.kind == "f":
            allowed[there] = rounding(self._arcs.shape[0], times[there], self._dtype)
        if not np.array_equal(known, there) or (off > allowed).any():
            raise StorageFailed("the graph of the result has other times than its table; check it with apsp verify")
