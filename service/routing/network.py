"""Answers questions about places (longitude and latitude) from a result, by the vertices nearest to the places."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from service.routing.ways import FastestWays
from storage.errors import InvalidRequest, LimitExceeded
from storage.geography.coordinates import crow_distances
from storage.geography.snapping import VertexFinder
from storage.matrix.sealed import SealedResult

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Seconds in a unit of time, and metres in a unit of length.
SECONDS: Final = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0}
METRES: Final = {"m": 1.0, "metres": 1.0, "meters": 1.0, "km": 1000.0, "mi": 1609.344, "miles": 1609.344, "ft": 0.3048}


@dataclass(frozen=True, eq=False)
class Stops:
    """Places of a request, each snapped to the vertex nearest to it.

    Attributes:
        vertices: vertex indices, shape (k,).
        metres: how far each vertex is from its place, shape (k,).
        lon, lat: degrees of the vertices, shape (k,).
        names: names of the vertices, empty for vertices without a name.
    """

    vertices: Indices
    metres: Floats
    lon: Floats
    lat: Floats
    names: list[str]

    def __len__(self) -> int:
        return len(self.vertices)

    def picked(self, at: Indices) -> Stops:
        """Return the stops at these positions, shape (k,)."""
        names = [self.names[i] for i in at.tolist()]
        return Stops(self.vertices[at], self.metres[at], self.lon[at], self.lat[at], names)


@dataclass(frozen=True, eq=False)
class Leg:
    """A shortest path between two stops.

    Attributes:
        seconds: duration of the path; None if the result has no times.
        metres: length of the path; if the result's distances are times, the sum of straight lines between its vertices.
        vertices: vertex indices of the path, in order.
        lon, lat: degrees of those vertices that have coordinates, in order, shape (k,).
    """

    seconds: float | None
    metres: float
    vertices: list[int]
    lon: Floats
    lat: Floats


class RoutingNetwork:
    """A solved matrix or a prepared graph, which answers in degrees, seconds and metres; safe to use from many threads.

    Args:
        matrix: the open result, of all vertices.
        unit: unit of the distances; None for the unit that the result records.
        speed: kilometres an hour that turn lengths into times; None for no times.
        most: the most entries that a table may have.

    Raises:
        InvalidRequest: the result lacks longitudes and latitudes, some vertices, or a unit of time or length.
    """

    def __init__(self, matrix: SealedResult, *, unit: str | None, speed: float | None, most: int) -> None:
        self._matrix, self._most, self._lock = matrix, most, threading.Lock()
        found = matrix.coordinates
        if found is None or not found.geographic or not found.there.any():
            what = "no coordinates" if found is None else "coordinates of a plane, not longitude and latitude"
            raise InvalidRequest(
                f"{matrix.path} has {what}; read the graph with --nodes TABLE (id, lon, lat), or from a file of "
                "OpenStreetMap or OSMnx, and solve or prepare it again",
                field="store",
            )
        n = len(matrix.labels)
        if matrix.shape != (n, n):
            rows, columns = matrix.shape
            message = f"{matrix.path} has {rows:,} sources and {columns:,} targets of {n:,} vertices"
            raise InvalidRequest(f"{message}; places may lie anywhere, so all vertices are needed", field="store")
        self._coordinates, self._finder = found, VertexFinder(found)
        self._seconds, self._metres = _factors(unit or matrix.unit, speed)

    @property
    def tells_time(self) -> bool:
        """Whether durations are known."""
        return self._seconds is not None

    @property
    def fastest(self) -> bool:
        """Whether paths are the fastest ones; else they are the shortest ones by length."""
        return self._metres is None

    def stops(self, lon: Floats, lat: Floats) -> Stops:
        """Return the stops of k places, whose longitudes and latitudes in degrees have shape (k,)."""
        return self._stops(*self._finder.nearest(lon, lat))

    def nearest(self, lon: float, lat: float, count: int) -> Stops:
        """Return the ``count`` vertices nearest to a place, the nearest first."""
        most = min(count, int(np.count_nonzero(self._coordinates.there)))
        vertices, metres = self._finder.nearest(np.array([lon]), np.array([lat]), most)
        return self._stops(vertices.reshape(-1), metres.reshape(-1))

    def _stops(self, vertices: Indices, metres: Floats) -> Stops:
        there = self._coordinates
        names = there.names
        called = [""] * len(vertices) if names is None else [str(names[vertex]) for vertex in vertices.tolist()]
        return Stops(vertices, metres, there.x[vertices], there.y[vertices], called)

    def table(self, sources: Stops, targets: Stops) -> Floats:
        """Return the distances between stops in the unit of the result, shape (sources, targets), +inf where there is
        no way.

        Raises:
            LimitExceeded: the table is larger than allowed.
        """
        entries = len(sources) * len(targets)
        if entries > self._most:
            raise LimitExceeded(
                f"a table of {len(sources):,} x {len(targets):,} has {entries:,} entries, more than the {self._most:,} "
                "allowed; ask for parts of it, or serve with a larger --max-table",
                limit=self._most, requested=entries, setting="max_table",
            )  # fmt: skip
        rows, at_row = np.unique(sources.vertices, return_inverse=True)
        columns, at_column = np.unique(targets.vertices, return_inverse=True)
        block = self._matrix.block(rows, columns)
        found = block.astype(np.float64)
        found[block == self._matrix.unreachable] = np.inf
        return np.ascontiguousarray(found[np.ix_(at_row, at_column)], np.float64)

    def seconds(self, table: Floats) -> Floats:
        """Return distances of the result as seconds.  Call it only where :attr:`tells_time` is true."""
        assert self._seconds is not None
        return table * self._seconds

    def metres(self, sources: Stops, targets: Stops, table: Floats) -> Floats:
        """Return the metres between stops.

        These are the distances of the result if they are lengths.  If they are times, the straight lines between the
        vertices of each fastest path are summed.

        Args:
            sources, targets: the stops.
            table: what :meth:`table` returns for them.

        Raises:
            InvalidRequest: searching the graph again would find other paths than the result has.
            LimitExceeded: searching the graph from all sources takes too long.
        """
        if self._metres is not None:
            return table * self._metres
        vertices, row = np.unique(sources.vertices, return_inverse=True)
        with self._lock:  # so that only one thread reads the graph from the store
            ways = self._ways
        ways.check(len(vertices))
        found = np.empty(table.shape)
        for number, source in enumerate(vertices.tolist()):
            rows = np.flatnonzero(row == number)
            found[rows] = ways.metres(source, targets.vertices, table[rows[0]])
        return found

    @cached_property
    def _ways(self) -> FastestWays:
        return FastestWays(self._matrix)

    def leg(self, source: int, target: int) -> Leg | None:
        """Return a shortest path between two vertices (indices); None where there is none."""
        with self._lock:  # all threads share one router, which keeps the reversed arcs
            router = self._router
        route = router.route(source, target)
        if route is None:
            return None
        lon, lat = self._coordinates.x[route.vertices], self._coordinates.y[route.vertices]
        shown = ~np.isnan(lon)
        lon, lat = lon[shown], lat[shown]
        straight = float(crow_distances(lon[:-1], lat[:-1], lon[1:], lat[1:], geographic=True).sum())
        return Leg(
            None if self._seconds is None else float(route.length) * self._seconds,
            straight if self._metres is None else float(route.length) * self._metres,
            route.vertices,
            lon,
            lat,
        )

    @cached_property
    def _router(self) -> Any:
        from engine.api.routes import Router

        return Router(self._matrix)


def _factors(unit: str | None, speed: float | None) -> tuple[float | None, float | None]:
    """Return how many seconds, and how many metres, a unit of distance is; None for each that is not known."""
    known = (unit or "").strip()
    if known in SECONDS:
        if speed is not None:
            raise InvalidRequest(f"the distances are times ({known}) already, so --speed has no meaning", field="speed")
        return SECONDS[known], None
    if known in METRES:
        return None if speed is None else METRES[known] * 3.6 / speed, METRES[known]
    found = f"the unit {known!r} is none of time or length" if known else "the result does not say its unit"
    raise InvalidRequest(f"{found}: say --unit {', '.join([*SECONDS, *METRES])}", field="unit")
