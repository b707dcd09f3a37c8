"""Joins coordinates to the vertices of a graph: from a table of nodes, or from the attributes of nodes in a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest, NotFound
from storage.geography.coordinates import LONLAT, PLANE, Coordinates, check_numbers, wrong_degrees
from storage.geography.tables import PointTable, beyond_floats, read_points

#: Most vertices that a note names.
_NAMED: Final = 3
#: Names of a system of coordinates in graph files that mean longitude and latitude.
_DEGREES: Final = re.compile(r"epsg:4326|ogc:crs84|wgs ?84", re.IGNORECASE)
_PAIRS: Final = (("lon", "lat"), ("lng", "lat"), ("longitude", "latitude"), ("x", "y"))


def read_nodes(path: Path, labels: npt.NDArray[Any], system: str | None) -> tuple[Coordinates, list[str]]:
    """Read a table of nodes and give each vertex its coordinates.

    Args:
        path: the table, see ``docs/coordinates.md``.
        labels: labels of the vertices, ascending, shape (n,).
        system: ``lonlat`` or ``plane``; None to take it from the file or the names of the columns.

    Returns:
        The coordinates, and notes about vertices without coordinates and rows that are no vertex.

    Raises:
        NotFound: the file does not exist, or none of its rows is a vertex.
        InvalidRequest: ``read_points`` refuses the table, the table has no column of ids or has an id twice, or
            ``system`` contradicts the file.
    """
    table = read_points(path, first_is_id=True)
    if table.ids is None:
        raise InvalidRequest(f"{path} has no column of ids, such as id", field="nodes")
    return join_nodes(table, labels, system)


def join_nodes(table: PointTable, labels: npt.NDArray[Any], system: str | None) -> tuple[Coordinates, list[str]]:
    """Give each vertex the coordinates of its row in a table with ids.

    ``table`` is the table of nodes; other arguments, returned values and errors are those of :func:`read_nodes`.
    """
    found, notes = _matched(table, labels)
    geographic, about = _system(table, system)
    notes += about
    check_numbers(table.x, table.y, geographic, table.where)
    rows = np.flatnonzero(found >= 0)
    x, y = np.full(len(labels), np.nan), np.full(len(labels), np.nan)
    x[found[rows]], y[found[rows]] = table.x[rows], table.y[rows]
    columns = {name: _spread(column[rows], found[rows], len(labels)) for name, column in table.columns.items()}
    coordinates = Coordinates(x, y, geographic, columns)
    if len(labels) and not coordinates.there.any():
        raise InvalidRequest(f"{table.path}: no vertex has coordinates in it, every one is empty", field="nodes")
    return coordinates, [*notes, *missing_note(coordinates, labels)]


def missing_note(coordinates: Coordinates, labels: npt.NDArray[Any]) -> list[str]:
    """Return a list with a note about the vertices without coordinates; an empty list if all have coordinates."""
    missing = np.flatnonzero(~coordinates.there)
    return [f"vertices without coordinates: {_some(labels[missing[:_NAMED]], len(missing))}"] if len(missing) else []


def _some(names: Iterable[object], count: int) -> str:
    more = ", …" if count > _NAMED else ""
    return f"{count:,} ({', '.join(map(str, names))}{more})"


def _matched(table: PointTable, labels: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the vertex index of each row, -1 for rows that are no vertex, and notes about such rows."""
    assert table.ids is not None
    known = {str(label): index for index, label in enumerate(labels.tolist())}
    found, seen = np.full(len(table.ids), -1, np.int64), dict[str, int]()
    for row, text in enumerate(table.ids):
        name = text if text in known else text.strip()  # " a" may be another vertex than "a"
        if not name:
            raise InvalidRequest(f"{table.where(row)}: the id is empty", field="nodes")
        if name in seen:
            message = f"{table.where(row)}: {name!r} stands also in {table.where(seen[name]).rpartition(', ')[2]}"
            raise InvalidRequest(f"{message}; each vertex may have one row", field="nodes")
        seen[name] = row
        found[row] = known.get(name, -1)
    strangers = np.flatnonzero(found < 0)
    if len(labels) and len(strangers) == len(found):
        first = f"; its first id is {table.ids[0]!r}" if len(found) else ""
        raise NotFound(
            f"{table.path}: none of its {len(found):,} ids is a vertex; the graph's first is {labels[0]!s}{first}"
        )
    names = [table.ids[row] for row in strangers[:_NAMED].tolist()]
    return found, [f"rows of {table.path.name} that are no vertex: {_some(names, len(strangers))}"] if names else []


def _system(table: PointTable, system: str | None) -> tuple[bool, list[str]]:
    """Return whether the coordinates are degrees, and a list with a note if their system had to be assumed."""
    if table.system is not None and system not in (None, table.system):
        raise InvalidRequest(
            f"{table.path} says that its coordinates are {table.system}, and --coordinates {system} was given",
            field="coordinates",
        )
    decided = table.system or system
    return decided == LONLAT, [] if decided else [assumed_plane(table.x, table.y)]


def assumed_plane(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> str:
    """Return the note that coordinates called x and y, without a known system, are taken for those of a plane."""
    within = bool(np.nanmax(np.abs(x), initial=0) <= 180 and np.nanmax(np.abs(y), initial=0) <= 90)
    hint = "; if they are degrees, say --coordinates lonlat" if within else ""
    return f"coordinates called x and y are taken for those of a plane{hint}"


def _spread(values: npt.NDArray[Any], places: npt.NDArray[np.int64], n: int) -> npt.NDArray[Any]:
    """Return a column with an entry for each of ``n`` vertices: ``values`` at ``places``, else NaN or empty texts."""
    if values.dtype.kind == "i" and len(values) < n and beyond_floats(values):
        values = values.astype(np.dtypes.StringDType())
    if values.dtype.kind == "T":
        texts = np.full(n, "", np.dtypes.StringDType())
        texts[places] = values
        return texts
    spread = np.full(n, np.nan) if values.dtype.kind == "f" or len(values) < n else np.zeros(n, np.int64)
    spread[places] = values
    return spread


class VertexCoordinates:
    """Collects coordinates from the attributes of nodes (GraphML, JSON and others).

    Attributes called x and y need not be coordinates, so a pair that cannot be coordinates is noted, not refused.
    """

    def __init__(self, system: str | None) -> None:
        """Begin without coordinates; ``system`` is the system of x and y if the caller names it, else None."""
        self._asked = system
        self._found: dict[str, dict[str, tuple[float, float]]] = {}
        self._wrong: str | None = None

    def add(self, vertex: str, attributes: Mapping[str, tuple[str, int]]) -> set[str]:
        """Add a vertex, whose ``attributes`` are pairs (value, line of the file) by name; return the names of the
        attributes that are coordinates.
        """
        used: set[str] = set()
        names = {name.lower(): name for name in attributes}
        for first, second in _PAIRS:
            if first not in names or second not in names or used & {names[first], names[second]}:
                continue
            pair = attributes[names[first]], attributes[names[second]]
            try:
                x, y = (float(token.strip().strip('"')) for token, _ in pair)
            except ValueError:
                x = y = float("nan")
            wrong = None if np.isfinite([x, y]).all() else f"{pair[0][0]!r}, {pair[1][0]!r} are no numbers"
            if wrong is None and first != "x":
                wrong = wrong_degrees(x, y)
            if wrong is not None:
                self._wrong = self._wrong or f"line {pair[0][1]}: vertex {vertex}: {wrong}"
                continue
            used |= {names[first], names[second]}
            self._found.setdefault("lonlat" if first != "x" else "xy", {})[vertex] = (x, y)
        return used

    def finish(self, labels: npt.NDArray[Any], declared: str | None = None) -> tuple[Coordinates | None, list[str]]:
        """Return the coordinates of all vertices in the order of their labels, and notes.

        Args:
            labels: the ids of the vertices, shape (n,).
            declared: the system of coordinates that the file names, such as ``epsg:4326``; None if it names none.
        """
        if self._wrong is not None:
            return None, [f"coordinates are not kept: {self._wrong}"]
        kind = max(self._found, key=lambda name: (len(self._found[name]), name == "lonlat"), default=None)
        if kind is None:
            return None, []
        values = self._found[kind]
        degrees = kind == "lonlat" or (self._asked or (LONLAT if _DEGREES.search(declared or "") else PLANE)) == LONLAT
        pairs = np.array([values.get(str(label), (np.nan, np.nan)) for label in labels.tolist()]).reshape(-1, 2)
        found = Coordinates(pairs[:, 0].copy(), pairs[:, 1].copy(), degrees)
        for row in np.flatnonzero(degrees & ((np.abs(found.x) > 180) | (np.abs(found.y) > 90)))[:1].tolist():
            wrong = wrong_degrees(found.x[row], found.y[row])
            return None, [f"coordinates are not kept: vertex {labels[row]}: {wrong}"]
        notes = missing_note(found, labels)
        if kind == "xy" and self._asked is None and declared is None:
            notes.append(assumed_plane(found.x, found.y))
        return found, notes
