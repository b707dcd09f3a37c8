"""Reads tables of points: CSV, Parquet, GeoParquet, GeoJSON and GeoPackage.  Columns are recognized by their names."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest, NotFound
from storage.files.csv_rows import TEXTS, place_of, read_rows
from storage.geography.coordinates import LONLAT, check_numbers
from storage.geography.geopackage import GEOPACKAGE

if TYPE_CHECKING:
    import polars as pl

    from storage.geography.layers import PointLayer

Floats = npt.NDArray[np.float64]

#: Usual names of columns, in lower case, by the kind of their content.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("id", "node", "vertex", "node_id", "vertex_id", "osmid", "osm_id", "stop_id", "zone", "zone_id", "label"),
    "lon": ("lon", "lng", "long", "longitude", "stop_lon"),
    "lat": ("lat", "latitude", "stop_lat"),
    "x": ("x", "easting", "x_coord", "xcoord"),
    "y": ("y", "northing", "y_coord", "ycoord"),
    "name": ("name", "title", "stop_name"),
}
#: Endings of the files that are read as tables of points.
TABLES: Final = (".csv", ".tsv", ".parquet", ".geoparquet", ".geojson", GEOPACKAGE)
#: A column of this name, which holds geometries as text, is left out: the columns of coordinates hold the same points.
GEOMETRY: Final = "geometry"
#: Whole numbers up to this one are exact in float64, and larger whole numbers are never rounded to one of them.
MAX_WHOLE: Final = 2**53 - 1
_GEOGRAPHIC: Final = {("OGC", "CRS84"), ("EPSG", "4326"), ("EPSG", "4979")}


@dataclass(frozen=True, eq=False)
class PointTable:
    """Rows of a table, each a point.

    Attributes:
        path: the file; for the points of a request, a name for messages.
        ids: the ids as texts, as they stand in the file, shape (k,); None without a column of ids.
        x, y: coordinates, float64, shape (k,), NaN where they are missing.
        system: ``lonlat`` if the names of columns or the file say so, ``plane`` if the file says so; None if the
            columns are called x and y and nothing else is known.
        columns: all other columns by name, in the order of the file; the column of names is always called ``name``.
    """

    path: Path
    ids: Sequence[str] | None
    x: Floats
    y: Floats
    system: str | None
    columns: Mapping[str, npt.NDArray[Any]]

    def where(self, row: int) -> str:
        """Return a text for messages that says where a row is in the file."""
        return _where(self.path, row)


def _where(path: Path, row: int) -> str:
    separator = _header(path)[1] if path.suffix.lower() in TEXTS and path.is_file() else ","
    return f"{path}, {place_of(path, row, separator)}"


def has_points(path: Path) -> bool:
    """Return whether a file is a table of points, by its columns or, for GeoJSON and GeoPackage, by its ending alone;
    False for a file that cannot be read.

    Raises:
        InvalidRequest: two columns have names of the same coordinate, or the metadata of GeoParquet are not understood.
    """
    if path.suffix.lower() not in TABLES:
        return False
    if path.suffix.lower() in (".geojson", GEOPACKAGE):
        return True
    try:
        if path.suffix.lower() in TEXTS:
            return _pair(_header(path)[0]) is not None
        import polars as pl

        names = list(pl.read_parquet_schema(path))
        return _pair(names) is not None or _geometry(path) is not None
    except (OSError, UnicodeDecodeError):
        return False
    except Exception as error:
        if type(error).__module__.startswith("polars"):
            return False
        raise


def read_points(path: Path, *, first_is_id: bool = False) -> PointTable:
    """Read a table of points.

    Args:
        path: CSV, TSV, Parquet, GeoParquet, GeoJSON or GeoPackage.
        first_is_id: whether the first column is taken for the ids if no column has a usual name of ids.

    Raises:
        NotFound: there is no such file.
        InvalidRequest: there are no columns of coordinates, or two for the same coordinate; a coordinate is no number,
            or out of range; or the ending of the file is unknown.
    """
    if path.suffix.lower() not in TABLES:
        raise InvalidRequest(f"{path} must end in {', '.join(TABLES)}, which says its format", field="nodes")
    return _table(path, *_frame(path), first_is_id=first_is_id)


def layer_points(name: str, layer: PointLayer) -> PointTable:
    """Return a layer of a GeoPackage as a table of points.  Raises InvalidRequest as :func:`read_points` does.

    Args:
        name: the name of the layer, for messages.
        layer: the columns of the layer.
    """
    path = Path(f"layer {name}")
    return _table(path, layer.table, (*_from_wkb(path, layer.geometry), layer.system))


def _table(
    path: Path,
    frame: pl.DataFrame,
    geometry: tuple[Floats, Floats, str | None] | None,
    *,
    first_is_id: bool = False,
) -> PointTable:
    """Return the points of a frame.

    Args:
        path: the file, for messages.
        frame: the table without its column of geometries.
        geometry: x, y and the reference system of these geometries; None to take coordinates from two columns.
        first_is_id: whether the first column holds identifiers.

    Raises:
        InvalidRequest: as in :func:`read_points`.
    """
    names = frame.columns
    found = _pair(names) if geometry is None else None
    if found is None and geometry is None:
        raise InvalidRequest(
            f"{path} has no columns of coordinates, which are called lon and lat or x and y; there are "
            f"{', '.join(names)}",
            field="nodes",
        )
    if found is not None:
        x, y = (_numbers(path, frame[name]) for name in found[:2])
        system, used = found[2], set(found[:2])
    else:
        assert geometry is not None
        (x, y, system), used = geometry, set((_pair(names) or ())[:2])  # OSMnx writes x and y beside the geometry
    id_column = _one(names, "id") or (names[0] if first_is_id and names and names[0] not in used else None)
    name_column = _one(names, "name")
    ids = None if id_column is None else _texts(frame[id_column])
    columns = {
        "name" if name == name_column else name: _column(frame[name], text=name == name_column)
        for name in names
        if name != id_column and name not in used and name.lower() != GEOMETRY
    }
    table = PointTable(path, ids, x, y, system, columns)
    check_numbers(x, y, system == LONLAT, table.where)
    return table


def _one(names: Sequence[str], kind: str) -> str | None:
    """Return the name of the column that holds ``kind``, such as ``lon``; None without such a column.

    Raises:
        InvalidRequest: several columns have a usual name of ``kind``.
    """
    usual = _NAMES[kind]
    found = {name: usual.index(word) for name in names if (word := name.strip().lower()) in usual}
    if kind in ("id", "name") and len(set(found.values())) == len(found):  # take the name that ``usual`` lists first
        return min(found, key=found.__getitem__, default=None)
    if len(found) > 1:
        raise InvalidRequest(f"two columns may be the {kind}: {' and '.join(found)}; leave one out", field="nodes")
    return next(iter(found), None)


def _pair(names: Sequence[str]) -> tuple[str, str, str | None] | None:
    """Return the names of the two columns of coordinates, and their system (None for x and y); None without columns."""
    for first, second, system in (("lon", "lat", LONLAT), ("x", "y", None)):
        x, y = _one(names, first), _one(names, second)
        if x is not None and y is not None:
            return x, y, system
    return None


def _header(path: Path) -> tuple[list[str], str]:
    """Return the names of the columns of a text table, and the separator.  Raises OSError, UnicodeDecodeError."""
    with path.open(encoding="utf-8-sig") as file:
        line = next((line for line in file if line.strip()), "")
    separator = _separator(line)
    return [cell.strip() for row in csv.reader([line], delimiter=separator) for cell in row], separator


def _refuse_twins(path: Path, names: Sequence[str]) -> None:
    """Refuse two columns of ids, names or coordinates that have the same name: the reader would rename the second."""
    for name in names:
        if names.count(name) > 1 and any(name.lower() in usual for usual in _NAMES.values()):
            raise InvalidRequest(f"{path}: two columns are called {name}; leave one out", field="nodes")


def _separator(line: str) -> str:
    """Return the separator of the columns of a table: the most frequent of tab, semicolon and comma."""
    return max(",;\t", key=line.count)


def _frame(path: Path) -> tuple[pl.DataFrame, tuple[Floats, Floats, str | None] | None]:
    """Return a table without its geometry column, and x, y and system of that column; None without such a column."""
    import polars as pl

    ending = path.suffix.lower()
    if ending == GEOPACKAGE:
        from storage.geography.layers import read_points_of  # loads SQLite, which no other table needs

        layer = read_points_of(path)
        return layer.table, (*_from_wkb(path, layer.geometry), layer.system)
    try:
        if ending == ".geojson":
            return _geojson(path)
        if ending in TEXTS:
            names, separator = _header(path)
            _refuse_twins(path, names)
            return read_rows(path, separator), None
        with path.open("rb"):
            pass
        frame = pl.read_parquet(path)
        column = _geometry(path)
    except OSError as error:
        raise NotFound(f"cannot open {path}: {error.strerror or error}") from error
    except (pl.exceptions.PolarsError, UnicodeError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidRequest(f"{path} cannot be read as a table: {reason}", field="nodes") from error
    if column is None:
        return frame, None
    name, system = column
    x, y = _from_wkb(path, frame[name])
    return frame.drop(name), (x, y, system)


def _geometry(path: Path) -> tuple[str, str | None] | None:
    """Return the primary column of a GeoParquet file, and its system of coordinates; None for plain Parquet."""
    import polars as pl

    text = pl.read_parquet_metadata(path).get("geo")
    if text is None:
        return None
    try:
        about = json.loads(text)
        name = about["primary_column"]
        column = about["columns"][name]
        encoding, crs = column["encoding"], column.get("crs", "default")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(f"{path}: its metadata are no GeoParquet ({error!r})", field="nodes") from error
    if encoding != "WKB":
        raise InvalidRequest(f"{path}: geometry encoded as {encoding!r} is not read, WKB is", field="nodes")
    if crs == "default":  # the standard says: longitude and latitude
        return name, LONLAT
    known = crs.get("id", {}) if isinstance(crs, dict) else {}
    geographic = (str(known.get("authority", "")).upper(), str(known.get("code", ""))) in _GEOGRAPHIC
    projected = isinstance(crs, dict) and crs.get("type") == "ProjectedCRS"
    return name, LONLAT if geographic else "plane" if projected else None


def _from_wkb(path: Path, column: pl.Series) -> tuple[Floats, Floats]:
    """Return the coordinates of a column of points in well-known binary."""
    x, y = np.full(len(column), np.nan), np.full(len(column), np.nan)
    for row, data in enumerate(column.to_list()):
        if data is None:
            continue
        held = data if isinstance(data, bytes) else b""
        order = "<" if held[:1] == b"\x01" else ">"
        kind = int(np.frombuffer(held, f"{order}u4", 1, 1)[0]) if len(held) >= 5 else 0
        at = 9 if kind & 0x20000000 else 5  # skip the code of the system of coordinates, if there is one
        # the geometry type of a point is 1 in WKB; Z and M add 1,000 or 2,000 (ISO), or set high bits (EWKB)
        if (kind & 0x1FFFFFFF) % 1000 != 1 or len(held) < at + 16:
            raise InvalidRequest(f"{path}, row {row + 1}: the geometry is no point", field="nodes")
        x[row], y[row] = np.frombuffer(held, f"{order}f8", 2, at)
    return x, y


def _geojson(path: Path) -> tuple[pl.DataFrame, tuple[Floats, Floats, str | None]]:
    """Return the properties of a GeoJSON file of points, and their coordinates (RFC 7946: longitude, latitude)."""
    import polars as pl

    try:
        features = json.loads(path.read_text(encoding="utf-8-sig"))["features"]
        rows, x, y = [], np.full(len(features), np.nan), np.full(len(features), np.nan)
        for row, feature in enumerate(features):
            geometry = feature["geometry"]
            if geometry is not None:
                if geometry["type"] != "Point":
                    raise InvalidRequest(f"{path}, feature {row + 1} is a {geometry['type']}, no Point", field="nodes")
                x[row], y[row] = (float(value) for value in geometry["coordinates"][:2])
            own = {"id": feature["id"]} if "id" in feature else {}
            properties = {**own, **(feature.get("properties") or {})}
            rows.append({name: _as_text(name, value) for name, value in properties.items()})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidRequest(f"{path} is no GeoJSON FeatureCollection ({error!r})", field="nodes") from error
    return pl.DataFrame(rows, infer_schema_length=None, strict=False), (x, y, LONLAT)


def _as_text(name: str, value: object) -> object:
    """Return a number in a column of ids or names as text, and any other value unchanged.  Otherwise a whole number
    would become a float if the column also holds a float.
    """
    called = name.strip().lower() in (*_NAMES["id"], *_NAMES["name"])
    return str(value) if called and isinstance(value, int | float) and not isinstance(value, bool) else value


def _numbers(path: Path, column: pl.Series) -> Floats:
    """Return a column of coordinates as floats, with NaN for empty entries; raise InvalidRequest if others are no
    finite numbers.
    """
    import polars as pl

    if column.dtype == pl.String():
        texts = column.str.strip_chars().replace("", None)
        numbers = texts.cast(pl.Float64(), strict=False)
        wrong = np.flatnonzero(((numbers.is_null() | ~numbers.is_finite()) & texts.is_not_null()).fill_null(True))
        if len(wrong):
            row = int(wrong[0])
            raise InvalidRequest(
                f"{_where(path, row)}: {column.name} is {texts[row]!r}, which is no coordinate; "
                "leave it empty where there is none",
                field="nodes",
            )
    elif column.dtype.is_numeric():
        numbers = column.cast(pl.Float64())
    else:
        raise InvalidRequest(f"{path}: the column {column.name!r} holds no numbers ({column.dtype})", field="nodes")
    return np.array(numbers.fill_null(np.nan).to_numpy(), np.float64)


def _texts(column: pl.Series) -> list[str]:
    """Return the values of a column of any type as texts; missing values and bytes become empty texts."""
    import polars as pl

    if column.dtype.is_nested() or column.dtype in (pl.Binary(), pl.Duration()):
        return ["" if value is None or isinstance(value, bytes) else str(value) for value in column.to_list()]
    return [text or "" for text in column.cast(pl.String()).to_list()]


def _column(column: pl.Series, *, text: bool) -> npt.NDArray[Any]:
    """Return a column that holds no coordinates as int64, float64 or text; missing values become NaN or empty texts.

    Args:
        column: the column as it was read.
        text: whether all values become texts, numbers too, as in a column of names.
    """
    import polars as pl

    if text:
        return np.array([name.strip() for name in _texts(column)], np.dtypes.StringDType())
    numbers = _plain_numbers(column) if column.dtype == pl.String() else column
    if numbers.dtype.is_integer():
        whole = numbers.cast(pl.Int64(), strict=False)
        if not whole.null_count():
            return whole.to_numpy().copy()
        exact = whole.null_count() == numbers.null_count() and not beyond_floats(whole.drop_nulls().to_numpy())
        numbers = numbers if exact else numbers.cast(pl.String())
    if numbers.dtype.is_numeric():
        return np.array(numbers.cast(pl.Float64()).fill_null(np.nan).to_numpy(), np.float64)
    return np.array(_texts(numbers), np.dtypes.StringDType())


def beyond_floats(values: npt.NDArray[Any]) -> bool:
    """Return whether any of ``values`` (whole numbers, shape (k,)) is too large to be exact as a float."""
    return bool(((values > MAX_WHOLE) | (values < -MAX_WHOLE)).any())


def _plain_numbers(column: pl.Series) -> pl.Series:
    """Return a column of texts as numbers if no text changes by that, else unchanged: 007 is a code, not 7."""
    import polars as pl

    whole = column.cast(pl.Int64(), strict=False)
    if len(column) and not whole.null_count() and (whole.cast(pl.String()) == column).all():
        return whole
    real = column.cast(pl.Float64(), strict=False)
    if column.is_null().all() or (real.is_null() != column.is_null()).any() or not real.is_finite().all():
        return column
    large = column.str.contains(r"^[+-]?\d+$") & (real.abs() > MAX_WHOLE)
    return column if (column.str.contains(r"^-?0\d") | large).any() else real
