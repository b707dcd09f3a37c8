"""Takes points to (snaps them to) the vertices nearest to them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.arguments import shown, unmasked
from storage.counted import counted
from storage.errors import InvalidRequest
from storage.geography.coordinates import LONLAT, PLANE, Coordinates, arc_metres, check_numbers, unit_vectors
from storage.geography.tables import PointTable, read_points

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Distance in metres; a note names the points with longitude and latitude that are farther than this from their vertex.
FAR: Final = 1000.0
_NAMED: Final = 3


@dataclass(frozen=True, eq=False)
class SnappedPoints:
    """Points, each with the vertex nearest to it.

    Attributes:
        path: the file of the points; for the points of a request, a name for messages.
        ids: distinct ids of the points, shape (k,).  Points without ids have their names as ids if each has a name of
            its own, else their row numbers from 1.
        names: names of the points, shape (k,), empty for points without a name; None without a column of names.
        x, y: coordinates of the points, float64, shape (k,).
        vertices: the index of the vertex nearest to each point, shape (k,).
        distances: the distance of each point from that vertex, float64, shape (k,): in metres on a sphere for longitude
            and latitude, else in units of the plane.
        geographic: whether the coordinates are longitude and latitude.
    """

    path: Path
    ids: Sequence[str]
    names: Sequence[str] | None
    x: Floats
    y: Floats
    vertices: Indices
    distances: Floats
    geographic: bool

    @property
    def titles(self) -> Sequence[str]:
        """The name of each point, or its id if it has no name, shape (k,)."""
        if self.names is None:
            return self.ids
        return [name or key for name, key in zip(self.names, self.ids, strict=True)]

    @property
    def far(self) -> npt.NDArray[np.bool_]:
        """Whether each point is farther than ``FAR`` from its vertex, shape (k,); False for points of a plane."""
        return (self.distances > FAR) & self.geographic

    def note(self) -> str:
        """Return a note that says how far the points are from their vertices, and names those that are far."""
        unit = " m" if self.geographic else ""
        kind = "great-circle distance" if self.geographic else "distance in the plane"
        text = (
            f"{counted(len(self.ids), 'points')} of {self.path.name} {'was' if len(self.ids) == 1 else 'were'} taken "
            f"to {counted(len(np.unique(self.vertices)), 'vertices')}, "
            f"{self.distances.max():,.0f}{unit} away at most ({kind}; half of them within "
            f"{np.median(self.distances):,.0f}{unit})"
        )
        far = np.flatnonzero(self.far)
        if not len(far):
            return text
        far = far[np.argsort(-self.distances[far], kind="stable")]
        return f"{text}; FAR, more than {FAR:,.0f} m: {self._named(far)}"

    def _named(self, rows: Indices) -> str:
        unit, titles = " m" if self.geographic else "", self.titles
        some = [f"{titles[row]} ({self.distances[row]:,.0f}{unit})" for row in rows[:_NAMED].tolist()]
        return f"{len(rows):,}, {', '.join(some)}{', …' if len(rows) > _NAMED else ''}"

    def check_limit(self, limit: float | None, option: str = "--snap-limit") -> None:
        """Refuse points that are farther than ``limit`` from their vertex.

        Args:
            limit: metres, or units of the plane; None for no limit.
            option: name of the option that holds the limit, for messages.

        Raises:
            InvalidRequest: a point is farther than the limit, or the limit is negative or NaN.
        """
        if limit is None:
            return
        if not limit >= 0:
            raise InvalidRequest(f"{option} takes a distance from 0, found {limit:g}", field="snap_limit")
        far = np.flatnonzero(self.distances > limit)
        if len(far):
            far = far[np.argsort(-self.distances[far], kind="stable")]
            raise InvalidRequest(
                f"{self.path}: points farther than {limit:g} from every vertex: {self._named(far)}; leave them out, or "
                f"raise {option}",
                field="snap_limit",
            )


def snap_file(path: Path, coordinates: Coordinates | None) -> SnappedPoints:
    """Read a table of points and take each point to the vertex nearest to it.

    Args:
        path: the table, see ``docs/coordinates.md``; columns x and y are read in the system of the graph.
        coordinates: the coordinates of the vertices; None if the graph has none.

    Raises:
        NotFound: there is no such file.
        InvalidRequest: ``read_points`` refuses the table; the graph has no coordinates, or its coordinates have a
            different system than the points; a point has no coordinates, two points have the same id, or there are no
            points.
    """
    return snap_table(read_points(path), None if coordinates is None else VertexFinder(coordinates))


def snap_table(
    table: PointTable,
    finder: VertexFinder | None,
    remedy: str = "give them with --nodes TABLE when it is read, or a list of vertices in place of the points",
    field: str = "points",
) -> SnappedPoints:
    """Take the points of a table, or of a request, to the vertices nearest to them.

    Args:
        table: the points; if their system is None, the system of the graph is assumed.
        finder: finds the vertices of the graph; None if the graph has no coordinates.
        remedy: how a graph without coordinates can get them, for the message.
        field: the argument that holds the points, for errors.

    Raises:
        InvalidRequest: as for :func:`snap_file`.
    """
    path = table.path
    if finder is None:
        raise InvalidRequest(f"{path} holds points, and the graph has no coordinates: {remedy}", field=field)
    geographic = finder.geographic
    if table.system is not None and (table.system == LONLAT) != geographic:
        system = LONLAT if geographic else PLANE
        raise InvalidRequest(
            f"{path} has {table.system} coordinates, and the graph has {system} coordinates", field=field
        )
    if not len(table.x):
        raise InvalidRequest(f"{path} holds no points", field=field)
    check_numbers(table.x, table.y, geographic, table.where, field)
    missing = np.flatnonzero(np.isnan(table.x))
    if len(missing):
        raise InvalidRequest(f"{table.where(int(missing[0]))}: the point has no coordinates", field=field)
    ids, names = ids_and_names(table, field)
    vertices, distances = finder.nearest(table.x, table.y)
    return SnappedPoints(path, ids, names, table.x, table.y, vertices, distances, geographic)


def ids_and_names(table: PointTable, field: str) -> tuple[list[str], list[str] | None]:
    """Return the ids and the names of points, as described in ``SnappedPoints``.

    Args:
        table: the points.
        field: the argument that holds the points, for errors.

    Raises:
        InvalidRequest: an id is empty, or two points have the same id.
    """
    names = _names(table)
    return _ids(table, names, field), names


def _names(table: PointTable) -> list[str] | None:
    column = table.columns.get("name")
    return None if column is None else [str(value) for value in column.tolist()]


def _ids(table: PointTable, names: list[str] | None, field: str) -> list[str]:
    """Return distinct ids: the column of ids, or without it the names if they are distinct, else the row numbers."""
    if table.ids is None:
        if names is not None and all(names) and len(set(names)) == len(names):
            return names
        return [str(row + 1) for row in range(len(table.x))]
    seen: dict[str, int] = {}
    ids = [name.strip() for name in table.ids]
    for row, name in enumerate(ids):
        if not name:
            raise InvalidRequest(f"{table.where(row)}: the id is empty", field=field)
        if name in seen:
            other = table.where(seen[name]).rpartition(", ")[2]
            raise InvalidRequest(f"{table.where(row)}: {name!r} stands also in {other}", field=field)
        seen[name] = row
    return ids


def nearest_vertices(coordinates: Coordinates, x: Floats, y: Floats) -> tuple[Indices, Floats]:
    """Return the vertex nearest to each point, and its distance from the point.

    Of several vertices at one place the first is taken.

    Args:
        coordinates: the coordinates of the vertices; vertices without coordinates are left out.
        x, y: the points, in the system of ``coordinates``, shape (k,).

    Returns:
        Vertex indices, shape (k,), and distances, shape (k,), in metres (great circles) or units of the plane.

    Raises:
        InvalidRequest: no vertex has coordinates.
    """
    if not isinstance(coordinates, Coordinates):
        raise InvalidRequest(
            f"coordinates must be Coordinates, such as a graph's, found {shown(coordinates)}",
            field="coordinates",
        )
    return VertexFinder(coordinates).nearest(*_points(x, y))


def _points(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return points as arrays.  Raises InvalidRequest unless all coordinates are finite and x and y have one length."""
    arrays = []
    for name, values in (("x", x), ("y", y)):
        array = unmasked(name, values)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf") or not np.isfinite(array).all():
            raise InvalidRequest(f"{name} must be a list of finite numbers, found {shown(values)}", field=name)
        arrays.append(array.astype(np.float64))
    if len(arrays[0]) != len(arrays[1]):
        raise InvalidRequest(f"x and y must be as many, found {len(arrays[0])} and {len(arrays[1])}", field="y")
    return arrays[0], arrays[1]


class VertexFinder:
    """Finds the vertices nearest to points; safe to use from many threads.

    Attributes:
        geographic: whether points are longitude and latitude.

    Args:
        coordinates: the coordinates of the vertices; vertices without coordinates are left out.
    """

    def __init__(self, coordinates: Coordinates) -> None:
        self.geographic = coordinates.geographic
        self._coordinates, self._lock = coordinates, threading.Lock()
        self._known = np.flatnonzero(coordinates.there)

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import KDTree

        return KDTree(self._placed(*self._places))

    @property
    def _places(self) -> tuple[Floats, Floats]:
        return self._coordinates.x[self._known], self._coordinates.y[self._known]

    @cached_property
    def _first(self) -> Indices:
        """For each vertex with coordinates, the first vertex at the same place; both are positions in ``_known``."""
        x, y = self._places
        order = np.lexsort((y, x))  # stable: of equal places the first stays first
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (np.diff(x[order]) != 0) | (np.diff(y[order]) != 0)
        first = np.empty(len(order), np.int64)
        first[order] = order[begins][np.cumsum(begins) - 1]
        return first

    def _placed(self, x: Floats, y: Floats) -> Floats:
        return unit_vectors(x, y) if self.geographic else np.stack([x, y], axis=-1)

    def nearest(self, x: Floats, y: Floats, count: int = 1) -> tuple[Indices, Floats]:
        """Return the vertices nearest to each point and their distances, in the units of :func:`nearest_vertices`.

        Of several vertices at one place, the first is taken.  If ``count`` is above 1, vertices at equal distances are
        returned in the order of their indices.

        Args:
            x, y: the points, shape (k,).
            count: number of vertices for each point, at most the number of vertices with coordinates.  Results have
                shape (k, count), or (k,) if ``count`` is 1.
        """
        if not len(self._known):
            raise InvalidRequest("no vertex has coordinates, so points have no nearest one", field="points")
        with self._lock:  # so that only one thread builds the search tree
            tree, first = self._tree, self._first
        found, places = tree.query(self._placed(x, y), k=count)
        if count == 1:
            places = first[places]
        else:
            places = np.take_along_axis(places, np.lexsort((places, found), axis=-1), axis=-1)
        distances = arc_metres(found) if self.geographic else np.asarray(found, np.float64)
        return self._known[places].astype(np.int64), distances
