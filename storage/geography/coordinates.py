"""Coordinates, names and other columns of the vertices of a graph, and the files in which they are saved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.arguments import check_index_array
from storage.errors import InvalidRequest

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

#: The systems of coordinates: LONLAT is longitude and latitude in degrees (WGS 84), PLANE a plane in any unit.
LONLAT: Final = "lonlat"
PLANE: Final = "plane"
SYSTEMS: Final = (LONLAT, PLANE)
#: Radius of the sphere on which great-circle distances are measured, in metres: the mean radius of the Earth (IUGG).
EARTH_RADIUS: Final = 6_371_008.8
#: Name of the Zarr group of a store that holds coordinates.  In a saved graph, the names of their files begin with it.
GROUP: Final = "coordinates"


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates of the vertices of a graph.

    Attributes:
        x, y: float64, shape (n,), NaN where a vertex has no coordinates; longitude and latitude in degrees if
            ``geographic``.
        geographic: whether x and y are longitude and latitude (WGS 84); otherwise they are coordinates of a plane.
        columns: other columns of the table of vertices, by name, such as ``name``, each int64, float64 or
            ``StringDType`` of shape (n,).
    """

    x: Floats
    y: Floats
    geographic: bool
    columns: Mapping[str, Array] = field(default_factory=dict)

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """Whether each vertex has coordinates, shape (n,)."""
        return ~np.isnan(self.x)

    @property
    def system(self) -> str:
        """The system of coordinates: ``lonlat`` or ``plane``."""
        return LONLAT if self.geographic else PLANE

    @property
    def names(self) -> Array | None:
        """The names of the vertices, shape (n,), empty for vertices without a name; None without a column ``name``."""
        return self.columns.get("name")

    def taken(self, order: npt.NDArray[np.int64]) -> Coordinates:
        """Return the coordinates of the vertices whose indices are ``order``, in that order."""
        order = check_index_array("order", order, len(self.x))
        columns = {name: column[order] for name, column in self.columns.items()}
        return Coordinates(self.x[order], self.y[order], self.geographic, columns)

    def distances(self, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> Floats:
        """Return straight-line distances, shape (k,), between pairs of vertex indices (:func:`crow_distances`)."""
        first, second = (
            check_index_array(name, ends, len(self.x)) for name, ends in (("first", first), ("second", second))
        )
        if first.shape != second.shape:
            raise InvalidRequest(f"{len(first)} vertices do not pair with {len(second)}", field="second")
        return crow_distances(self.x[first], self.y[first], self.x[second], self.y[second], self.geographic)


def crow_distances(x1: Floats, y1: Floats, x2: Floats, y2: Floats, geographic: bool) -> Floats:
    """Return straight-line distances between pairs of points, shape (k,).

    Args:
        x1, y1, x2, y2: coordinates of the two points of each pair, shape (k,).
        geographic: whether the coordinates are degrees; distances are then great circles, in metres.
    """
    if not geographic:
        return np.hypot(x2 - x1, y2 - y1)
    chord = np.linalg.norm(unit_vectors(x2, y2) - unit_vectors(x1, y1), axis=-1)
    return arc_metres(chord)


def unit_vectors(lon: Floats, lat: Floats) -> Floats:
    """Return points of the unit sphere, shape (k, 3), from degrees, shape (k,)."""
    east, north = np.radians(lon), np.radians(lat)
    return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=-1)


def arc_metres(chord: Floats) -> Floats:
    """Return great-circle distances on the Earth, in metres, from the lengths of chords of the unit sphere."""
    return np.asarray(2 * EARTH_RADIUS * np.arcsin(np.minimum(1.0, np.asarray(chord) / 2)), np.float64)


def wrong_degrees(x: float, y: float) -> str | None:
    """Return a text that says what is wrong with a longitude and a latitude; None if they are valid."""
    if -180 <= x <= 180 and -90 <= y <= 90:
        return None
    hint = "; longitude and latitude may be exchanged" if -90 <= x <= 90 and -180 <= y <= 180 else ""
    if not -180 <= x <= 180:
        return f"longitude {x:g} is outside -180 .. 180{hint}"
    return f"latitude {y:g} is outside -90 .. 90{hint}"


def check_numbers(x: Floats, y: Floats, geographic: bool, where: Callable[[int], str], field: str = "nodes") -> None:
    """Refuse numbers that cannot be coordinates; NaN stands for a missing coordinate.

    Args:
        x, y: the coordinates, shape (k,).
        geographic: whether the coordinates are degrees.
        where: returns the place of a row in the file, for errors; rows are numbered from 0.
        field: the argument that holds the coordinates, for errors.

    Raises:
        InvalidRequest: a coordinate is infinite or out of range, or a row has only one coordinate.
    """
    lone = np.flatnonzero(np.isnan(x) != np.isnan(y))
    if len(lone):
        raise InvalidRequest(f"{where(int(lone[0]))}: only one of the two coordinates is there", field=field)
    infinite = np.flatnonzero(np.isinf(x) | np.isinf(y))
    if len(infinite):
        raise InvalidRequest(f"{where(int(infinite[0]))}: a coordinate is infinite", field=field)
    if geographic:
        for row in np.flatnonzero((np.abs(x) > 180) | (np.abs(y) > 90))[:1].tolist():
            raise InvalidRequest(f"{where(row)}: {wrong_degrees(x[row], y[row])}", field=field)


def check_system(system: str | None) -> None:
    """Raise InvalidRequest if the system of coordinates is neither ``lonlat`` nor ``plane`` nor None."""
    if system is not None and system not in SYSTEMS:
        raise InvalidRequest(f"coordinates are {' or '.join(SYSTEMS)}, found {system!r}", field="coordinates")


def add_to_digest(digest: hashlib._Hash, coordinates: Coordinates) -> None:
    """Add coordinates and columns to the digest of a graph."""
    head = {"system": coordinates.system, "columns": list(coordinates.columns)}
    digest.update(json.dumps(head, sort_keys=True).encode())
    for column in (coordinates.x, coordinates.y, *coordinates.columns.values()):
        if column.dtype.kind == "T":
            digest.update(json.dumps(column.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(column, column.dtype.newbyteorder("<")).tobytes())


def named_arrays(coordinates: Coordinates) -> Iterator[tuple[str, Array]]:
    """Yield each array with a name for its file.  The arrays of ``columns`` are numbered, because the names of columns
    may contain any characters.
    """
    yield "x", coordinates.x
    yield "y", coordinates.y
    for number, column in enumerate(coordinates.columns.values()):
        yield f"column_{number}", column


def described(coordinates: Coordinates) -> dict[str, object]:
    """Return the description that is stored with the arrays, as JSON types: the system and the names of the columns."""
    return {"system": coordinates.system, "columns": list(coordinates.columns)}


def assembled(about: Mapping[str, Any], read: Callable[[str], Array]) -> Coordinates:
    """Return coordinates from what :func:`described` and :func:`named_arrays` returned.

    Args:
        about: the description that ``described`` returned.
        read: returns an array by the name that ``named_arrays`` gave it.

    Raises:
        ValueError, KeyError: ``about`` is not understood, or the arrays have different lengths.
    """
    if about["system"] not in SYSTEMS:
        raise ValueError(f"a system of coordinates {about['system']!r}")
    x, y = np.asarray(read("x"), np.float64), np.asarray(read("y"), np.float64)
    columns = {str(name): np.asarray(read(f"column_{i}")) for i, name in enumerate(about["columns"])}
    if {len(column) for column in (y, *columns.values())} != {len(x)}:
        raise ValueError("the columns of the coordinates have different lengths")
    return Coordinates(x, y, about["system"] == LONLAT, columns)


def save_arrays(coordinates: Coordinates, folder: Path) -> dict[str, object]:
    """Write npy files into a folder, and return the description that :func:`load_arrays` needs.  Raises OSError."""
    for name, array in named_arrays(coordinates):
        if array.dtype.kind == "T":
            encoded = [str(text).encode() for text in array]
            np.save(folder / f"{GROUP}_{name}_bytes.npy", np.frombuffer(b"".join(encoded), np.uint8))
            np.save(folder / f"{GROUP}_{name}_ends.npy", np.cumsum([len(part) for part in encoded], dtype=np.int64))
        else:
            np.save(folder / f"{GROUP}_{name}.npy", array, allow_pickle=False)
    return described(coordinates)


def load_arrays(about: Mapping[str, Any], folder: Path) -> Coordinates:
    """Read the coordinates that :func:`save_arrays` wrote into a folder; ``about`` is the description that it returned.

    Raises OSError, ValueError, KeyError.
    """

    def read(name: str) -> Array:
        plain = folder / f"{GROUP}_{name}.npy"
        if plain.is_file():
            return np.asarray(np.load(plain, allow_pickle=False))
        raw = np.load(folder / f"{GROUP}_{name}_bytes.npy", allow_pickle=False).tobytes()
        ends = np.load(folder / f"{GROUP}_{name}_ends.npy", allow_pickle=False).tolist()
        texts = [raw[i:j].decode() for i, j in zip([0, *ends[:-1]], ends, strict=True)]
        return np.array(texts, np.dtypes.StringDType())

    return assembled(about, read)
