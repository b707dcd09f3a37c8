"""Reads the points of requests, snaps them to the vertices nearest to them, and describes them in answers.

Importing it loads NumPy.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest
from storage.geography.coordinates import LONLAT
from storage.geography.snapping import SnappedPoints, VertexFinder, snap_table
from storage.geography.tables import PointTable

if TYPE_CHECKING:
    from service.jobs.results import Label, ResultReader
    from storage.geography.coordinates import Coordinates

#: A point of a request: ``lon`` and ``lat``, or ``x`` and ``y``; ``id`` and ``name`` may be absent.
Point = Mapping[str, Any]
#: Advice in messages about graphs without coordinates.
_REMEDY: Final = "a service keeps those that stand in the uploaded file ({0}); name vertices in place of points"
_SUCH_AS: Final = "GraphML, JSON, GEXF or GML with lon and lat, or an extract of OpenStreetMap"
_NUMBER: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_PAIR: Final = re.compile(rf"({_NUMBER}),({_NUMBER})", re.ASCII)


def read_point(text: str, field: str) -> Point:
    """Return the point that a query parameter names: ``24.94,60.17``, longitude before latitude, or x before y.

    Args:
        text: the value of the parameter.
        field: name of the parameter, for errors.

    Raises:
        InvalidRequest: the text is not two numbers with a comma between them.
    """
    found = _PAIR.fullmatch(text)
    if found is None:
        message = f"{field} takes two numbers with a comma, longitude,latitude (x,y in a plane), found {text[:100]!r}"
        raise InvalidRequest(message, field=field)
    return {"x": float(found[1]), "y": float(found[2])}


def point_table(points: Sequence[Point], field: str, *, keyed: bool = False) -> PointTable:
    """Return the points of a request as a table.

    Args:
        points: see ``Point``; x and y are read in the system of the graph.
        field: the part of the request that holds them, for messages.
        keyed: whether points are identified by their ids, which must then differ; else by their numbers in the list.

    Raises:
        InvalidRequest: some have lon and lat, and others x and y.
    """
    degrees = ["lon" in point for point in points]
    if any(degrees) and not all(degrees):
        row = degrees.index(not degrees[0])
        message = f"{field}: point 1 has {_axes(points[0])}, and point {row + 1} has {_axes(points[row])}"
        raise InvalidRequest(f"{message}; all take one of the two", field=field)
    x, y = ("lon", "lat") if any(degrees) else ("x", "y")
    columns = {}
    if any(point.get("name") for point in points):
        columns["name"] = np.array([point.get("name") or "" for point in points], np.dtypes.StringDType())
    ids = None
    if keyed and any(point.get("id") is not None for point in points):
        ids = ["" if point.get("id") is None else str(point["id"]) for point in points]
    return PointTable(
        Path(field),
        ids,
        np.array([point[x] for point in points], np.float64),
        np.array([point[y] for point in points], np.float64),
        LONLAT if any(degrees) else None,
        columns,
    )


def _axes(point: Point) -> str:
    return "lon and lat" if "lon" in point else "x and y"


def snap_points(
    points: Sequence[Point], finder: VertexFinder | None, field: str, limit: float | None, *, keyed: bool = False
) -> SnappedPoints:
    """Snap the points of a request to the vertices nearest to them, by the rules for tables of points.

    Args:
        points: points of the request, see ``Point``.
        field: the part of the request that holds them, for messages.
        keyed: whether points are identified by their ids, see :func:`point_table`.
        finder: finds the vertex nearest to a point; None if the graph has no coordinates.
        limit: the farthest that a point may be from its vertex; None for no limit.

    Raises:
        InvalidRequest: :func:`point_table` or ``storage.geography.snapping.snap_table`` refuses the points, or a point
            is farther than ``limit`` from its vertex.
    """
    table = point_table(points, field, keyed=keyed)
    found = snap_table(table, finder, _REMEDY.format(_SUCH_AS), field)
    found.check_limit(limit, "snap_limit")
    return found


def told_points(points: Sequence[Point], snapped: SnappedPoints, label: Callable[[int], Label]) -> list[dict[str, Any]]:
    """Return the members of an answer about points: their coordinates, nearest vertices, and how far these are.

    Args:
        points: the points of the request.
        snapped: the result of :func:`snap_points` for these points.
        label: returns the name of a vertex.
    """
    x, y = ("lon", "lat") if snapped.geographic else ("x", "y")
    numbers = (snapped.x, snapped.y, snapped.vertices, snapped.distances, snapped.far)
    return [
        {
            **{name: point[name] for name in ("id", "name") if point.get(name) is not None},
            x: east, y: north, "vertex": label(vertex), "snap": distance, "far": far,
        }
        for point, east, north, vertex, distance, far in zip(points, *(a.tolist() for a in numbers), strict=True)
    ]  # fmt: skip


class PointSnapper:
    """Snaps points to the vertices of one result; its index of vertices is made once, and is kept with the result.

    Args:
        coordinates: returns the coordinates of the vertices; None if the graph has none.
    """

    def __init__(self, coordinates: Callable[[], Coordinates | None]) -> None:
        self._coordinates, self._lock = coordinates, threading.Lock()
        self._made: tuple[VertexFinder | None] | None = None

    @property
    def finder(self) -> VertexFinder | None:
        """The finder of vertices near points; None if the graph has no coordinates."""
        with self._lock:
            if self._made is None:
                placed = self._coordinates()
                self._made = (None if placed is None else VertexFinder(placed),)
        return self._made[0]


def vertices_of(
    opened: ResultReader, asked: Sequence[Label | Point], field: str, limit: float | None
) -> tuple[npt.NDArray[np.int64], list[dict[str, Any]]]:
    """Return the vertices that a list of vertices and points means, and the members of the answer about the points.

    Args:
        opened: the open result.
        asked: names of vertices, and points.
        field: the part of the request that holds them, for errors.
        limit: the farthest that a point may be from its vertex; None for no limit.

    Returns:
        Vertex indices, shape (k,); and for each point an object for the answer, whose ``place`` is the position of the
        point in ``asked``, from 0.

    Raises:
        NotFound: there is no such vertex.
        InvalidRequest: :func:`snap_points` refuses the points.
    """
    places = [place for place, one in enumerate(asked) if isinstance(one, Mapping)]
    if not places:
        return opened.vertices([one for one in asked if not isinstance(one, Mapping)]), []
    points = [one for one in asked if isinstance(one, Mapping)]
    snapped = snap_points(points, opened.snapper.finder, field, limit)
    found = np.zeros(len(asked), np.int64)
    named = np.ones(len(asked), bool)
    named[places] = False
    found[named] = opened.vertices([one for one in asked if not isinstance(one, Mapping)])
    found[places] = snapped.vertices
    told = told_points(points, snapped, opened.label)
    return found, [{"place": place, **one} for place, one in zip(places, told, strict=True)]


def ends_of(opened: ResultReader, asked: Mapping[str, Any], *sides: str) -> tuple[list[Label], dict[str, Any]]:
    """Return the vertices that the parameters of a question mean, and the members of the answer about points.

    Args:
        opened: the open result.
        asked: the parameters: ``snap_limit``, and for each side a vertex (such as ``source``) and a point
            (``source_point``).
        sides: the sides to read: ``source``, ``target``, or both.

    Returns:
        A name of a vertex for each side, and members of the answer such as ``source_point``.

    Raises:
        InvalidRequest: a side has neither vertex nor point, or both, or :func:`snap_points` refuses a point.
    """
    found: list[Label] = []
    members: dict[str, Any] = {}
    for side in sides:
        field = f"{side}_point"
        name, text = asked[side], asked[field]
        if (name is None) == (text is None):
            both = f"{side} and {field} are both given" if text is not None else f"neither {side} nor {field} is given"
            raise InvalidRequest(f"{both}: name a vertex, or give a point as {field}=LONGITUDE,LATITUDE", field=side)
        if text is None:
            found.append(name)
            continue
        point = read_point(text, field)
        snapped = snap_points([point], opened.snapper.finder, field, asked["snap_limit"])
        [members[field]] = told_points([point], snapped, opened.label)
        found.append(members[field]["vertex"])
    check_limit_is_used(asked["snap_limit"], bool(members))
    return found, members


def check_limit_is_used(limit: float | None, points: bool) -> None:
    """Raise InvalidRequest for a limit in a question without points, because the limit would change nothing."""
    if limit is not None and not points:
        raise InvalidRequest(f"snap_limit {limit:g} is for points, and no point is given", field="snap_limit")
