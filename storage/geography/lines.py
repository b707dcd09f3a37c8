"""Decodes lines in well-known binary, as GeoParquet and GeoPackages hold them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidGraph
from storage.geography.coordinates import Floats, crow_distances, wrong_degrees

_LINE: Final = 2
_MULTI_LINE: Final = 5
_KINDS: Final = {
    1: "Point", 2: "LineString", 3: "Polygon", 4: "MultiPoint", 5: "MultiLineString", 6: "MultiPolygon",
    7: "GeometryCollection", 8: "CircularString", 9: "CompoundCurve", 10: "CurvePolygon", 11: "MultiCurve",
}  # fmt: skip
#: Bits that PostGIS sets in the kind of a geometry that has heights, measures, or the code of its coordinate system.
_HEIGHT_BIT, _MEASURE_BIT, _SYSTEM_BIT = 0x80000000, 0x40000000, 0x20000000


@dataclass(frozen=True, eq=False)
class Lines:
    """Several lines, stored one after the other.

    Attributes:
        x, y: coordinates of the points of all lines, shape (p,).
        z: heights of the points, shape (p,); NaN where a line has no heights.
        starts: index of the first point of each line, followed by the number of all points, shape (k + 1,).
        measured: how many lines have measures (M); the measures are left out.
    """

    x: Floats
    y: Floats
    z: Floats
    starts: npt.NDArray[np.int64]
    measured: int

    @property
    def first(self) -> npt.NDArray[np.int64]:
        """The index of the first point of each line, shape (k,)."""
        return self.starts[:-1]

    @property
    def last(self) -> npt.NDArray[np.int64]:
        """The index of the last point of each line, shape (k,)."""
        return self.starts[1:] - 1

    def lengths(self, *, geographic: bool) -> Floats:
        """Return the length of each line, shape (k,), in metres if ``geographic``, else in units of the plane."""
        steps = crow_distances(self.x[:-1], self.y[:-1], self.x[1:], self.y[1:], geographic)
        steps[self.starts[1:-1] - 1] = 0.0  # a step from the end of a line to the start of the next is in no line
        # Each line is summed separately: differences of a cumulative sum would have rounding errors of other lines.
        return np.add.reduceat(np.append(steps, 0.0), self.first) if len(self.first) else np.zeros(0)


def kind_of(data: bytes) -> str:
    """Return the name of the kind of a geometry, such as ``LineString``."""
    kind = _header(data)[1]
    return _KINDS.get(kind, f"geometry of kind {kind}")


def read_lines(geometry: Sequence[bytes | None], where: Callable[[int], str]) -> Lines:
    """Decode lines.  A MultiLineString of one part is decoded as a line.

    Args:
        geometry: well-known binary, shape (k,).
        where: returns the place of a row in the file, for messages; rows are numbered from 0.

    Raises:
        InvalidGraph: a geometry is missing, empty, damaged, no line, or has several parts; a coordinate is not finite.
    """
    pieces: list[npt.NDArray[Any]] = []
    starts, measured = np.zeros(len(geometry) + 1, np.int64), 0
    for row, data in enumerate(geometry):
        if not data:
            raise _refused(where(row), "there is no geometry; delete the row, or draw its line")
        try:
            points, has_measure = _points(data)
        except (struct.error, ValueError):
            raise _refused(where(row), "the geometry is damaged") from None
        except _OddError as error:
            raise _refused(where(row), str(error)) from None
        pieces.append(points)
        measured += has_measure
        starts[row + 1] = starts[row] + len(points)
    points = np.concatenate(pieces) if pieces else np.zeros((0, 3))
    x, y, z = (np.ascontiguousarray(points[:, k]) + 0.0 for k in range(3))  # -0.0 becomes 0.0
    lines = Lines(x, y, z, starts, measured)
    wrong = np.flatnonzero(~(np.isfinite(lines.x) & np.isfinite(lines.y)))
    if len(wrong):
        raise _refused(_where(lines, int(wrong[0]), where), "a coordinate is not finite")
    return lines


def check_degrees(lines: Lines, where: Callable[[int], str]) -> None:
    """Raise InvalidGraph if a longitude or a latitude is out of range; ``where`` returns the place of a row."""
    for point in np.flatnonzero((np.abs(lines.x) > 180) | (np.abs(lines.y) > 90))[:1].tolist():
        raise _refused(_where(lines, point, where), str(wrong_degrees(lines.x[point], lines.y[point])))


def _where(lines: Lines, point: int, where: Callable[[int], str]) -> str:
    return where(int(np.searchsorted(lines.starts, point, side="right")) - 1)


def _refused(place: str, why: str) -> InvalidGraph:
    return InvalidGraph(f"{place}: {why}", field="geometry")


class _OddError(Exception):
    """Raised for a geometry that can be decoded, but is not a single line, so it cannot be an edge."""


def _header(data: bytes, at: int = 0) -> tuple[str, int, int, bool, int]:
    """Return the byte order, the kind of geometry, how many numbers a point has, whether the last of these numbers is a
    measure, and the offset of the content.
    """
    order = "<" if data[at] == 1 else ">"
    (code,) = struct.unpack_from(f"{order}I", data, at + 1)
    plain = code & 0x1FFFFFFF
    height = bool(code & _HEIGHT_BIT) or plain // 1000 in (1, 3)
    measure = bool(code & _MEASURE_BIT) or plain // 1000 in (2, 3)
    begin = at + (9 if code & _SYSTEM_BIT else 5)
    return order, plain % 1000, 2 + height + measure, measure, begin


def _points(data: bytes) -> tuple[npt.NDArray[Any], bool]:
    """Return the points of a line with their heights, shape (p, 3), and whether it has measures."""
    order, kind, width, measure, at = _header(data)
    if kind == _MULTI_LINE:
        (parts,) = struct.unpack_from(f"{order}I", data, at)
        if parts > 1:
            raise _OddError(
                f"a MultiLineString of {parts} parts is no edge; make its parts lines of their own "
                "(QGIS: Multipart to singleparts)"
            )
        if parts == 1:
            order, kind, width, measure, at = _header(data, at + 4)
    if kind not in (_LINE, _MULTI_LINE):
        raise _OddError(f"a {_KINDS.get(kind, f'geometry of kind {kind}')} is no line")
    count = 0 if kind == _MULTI_LINE else struct.unpack_from(f"{order}I", data, at)[0]
    if count == 0:
        raise _OddError("the line is empty; delete the row, or draw its line")
    if count == 1:
        raise _OddError("the line has one point only")
    numbers = np.frombuffer(data, f"{order}f8", count * width, at + 4).reshape(count, width)
    heights = numbers[:, 2] if width - measure == 3 else np.full(count, np.nan)
    return np.column_stack((numbers[:, :2], heights)).astype(np.float64), measure
