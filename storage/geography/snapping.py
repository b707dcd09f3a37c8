"""Takes points to the vertices nearest to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest
from storage.geography.coordinates import LONLAT, Coordinates, arc_metres, check_numbers, unit_vectors
from storage.geography.tables import PointTable, read_points

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Points with longitude and latitude that are farther from their vertex than this, in metres, are named in a note.
FAR: Final = 1000.0
_NAMED: Final = 3


@dataclass(frozen=True, eq=False)
class SnappedPoints:
    """Points, each with the vertex nearest to it.

    Attributes:
        path: the file that they come from.
        ids: their ids, else their names, else the numbers of their rows from 1; all different, shape (k,).
        names: their names, empty where there is none, shape (k,); None without a column of names.
        x, y: where they are, float64, shape (k,).
        vertices: the vertex index of each, shape (k,).
        distances: how far that vertex is, float64, shape (k,): metres on a sphere for longitude and latitude, else in
            units of the plane.
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
        """What people call the points: their names, else their ids, shape (k,)."""
        if self.names is None:
            return self.ids
        return [name or key for name, key in zip(self.names, self.ids, strict=True)]

    def note(self) -> str:
        """Return a note that says how far the points are from their vertices, and names those that are far."""
        unit = " m" if self.geographic else ""
        kind = "great-circle distance" if self.geographic else "distance in the plane"
        text = (
            f"{len(self.ids):,} points of {self.path.name} were taken to {len(np.unique(self.vertices)):,} vertices, "
            f"{self.distances.max():,.0f}{unit} away at most ({kind}; half of them within "
            f"{np.median(self.distances):,.0f}{unit})"
        )
        far = np.flatnonzero(self.distances > FAR) if self.geographic else np.zeros(0, np.int64)
        if not len(far):
            return text
        far = far[np.argsort(-self.distances[far], kind="stable")]
        return f"{text}; FAR, more than {FAR:,.0f} m: {self._named(far)}"

    def _named(self, rows: Indices) -> str:
        unit, titles = " m" if self.geographic else "", self.titles
        some = [f"{titles[row]} ({self.distances[row]:,.0f}{unit})" for row in rows[:_NAMED].tolist()]
        return f"{len(rows):,}, {', '.join(some)}{', …' if len(rows) > _NAMED else ''}"

    def check_limit(self, limit: float | None) -> None:
        """Refuse points that are farther than ``limit`` from their vertex.  Raises InvalidRequest."""
        if limit is None:
            return
        if not limit >= 0:
            raise InvalidRequest(f"--snap-limit takes a distance from 0, found {limit:g}", field="snap_limit")
        far = np.flatnonzero(self.distances > limit)
        if len(far):
            far = far[np.argsort(-self.distances[far], kind="stable")]
            raise InvalidRequest(
                f"{self.path}: points farther than {limit:g} from every vertex: {self._named(far)}; leave them out, or "
                "raise --snap-limit",
                field="snap_limit",
            )


def snap_file(path: Path, coordinates: Coordinates | None) -> SnappedPoints:
    """Read a table of points and take each to the vertex nearest to it.

    Args:
        path: the table, see ``docs/coordinates.md``; columns x and y are read in the system of the graph.
        coordinates: of the vertices; None if the graph has none.

    Raises:
        NotFound: there is no such file.
        InvalidRequest: as ``read_points``; the graph has no coordinates, or those of another system; a point without
            coordinates, an id twice, or no points.
    """
    table = read_points(path)
    if coordinates is None:
        raise InvalidRequest(
            f"{path} holds points, and the graph has no coordinates: give them with --nodes TABLE when it is read, "
            "or a list of vertices in place of the points",
            field="points",
        )
    if table.system is not None and (table.system == LONLAT) != coordinates.geographic:
        raise InvalidRequest(
            f"{path} has {table.system} coordinates, and the graph has {coordinates.system} coordinates", field="points"
        )
    if not len(table.x):
        raise InvalidRequest(f"{path} holds no points", field="points")
    check_numbers(table.x, table.y, coordinates.geographic, table.where)
    missing = np.flatnonzero(np.isnan(table.x))
    if len(missing):
        raise InvalidRequest(f"{table.where(int(missing[0]))}: the point has no coordinates", field="points")
    names = _names(table)
    vertices, distances = nearest_vertices(coordinates, table.x, table.y)
    ids = _ids(table, names)
    return SnappedPoints(path, ids, names, table.x, table.y, vertices, distances, coordinates.geographic)


def _names(table: PointTable) -> list[str] | None:
    column = table.columns.get("name")
    return None if column is None else [str(value) for value in column.tolist()]


def _ids(table: PointTable, names: list[str] | None) -> list[str]:
    """Return the ids, which are all different: the column, else the names if they are, else the numbers of rows."""
    if table.ids is None:
        if names is not None and all(names) and len(set(names)) == len(names):
            return names
        return [str(row + 1) for row in range(len(table.x))]
    seen: dict[str, int] = {}
    for row, name in enumerate(table.ids):
        if not name:
            raise InvalidRequest(f"{table.where(row)}: the id is empty", field="points")
        if name in seen:
            other = table.where(seen[name]).rpartition(", ")[2]
            raise InvalidRequest(f"{table.where(row)}: {name!r} stands also in {other}", field="points")
        seen[name] = row
    return list(table.ids)


def nearest_vertices(coordinates: Coordinates, x: Floats, y: Floats) -> tuple[Indices, Floats]:
    """Return the vertex nearest to each point, and how far it is.

    Args:
        coordinates: of the vertices; those without any are left out.
        x, y: the points, in the same system, shape (k,).

    Returns:
        Vertex indices, and distances in metres (great circles) or units of the plane, shape (k,) each.

    Raises:
        InvalidRequest: no vertex has coordinates.
    """
    from scipy.spatial import KDTree

    known = np.flatnonzero(coordinates.there)
    if not len(known):
        raise InvalidRequest("no vertex has coordinates, so points have no nearest one", field="points")
    of: Any = unit_vectors if coordinates.geographic else (lambda a, b: np.stack([a, b], axis=-1))
    found, places = KDTree(of(coordinates.x[known], coordinates.y[known])).query(of(x, y))
    distances = arc_metres(found) if coordinates.geographic else np.asarray(found, np.float64)
    return known[places].astype(np.int64), distances
