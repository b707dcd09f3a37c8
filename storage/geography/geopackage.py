"""Reads points from GeoPackages, and writes features into them, with GDAL by way of pyogrio (extra ``geopackage``)."""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from storage.errors import InvalidRequest, NotFound, StorageFailed
from storage.geography.coordinates import LONLAT

if TYPE_CHECKING:
    import polars as pl

#: The ending of the files.
GEOPACKAGE: Final = ".gpkg"
#: Longitude and latitude as a GeoPackage names them; the order of its coordinates is always x, y.
_DEGREES: Final = "EPSG:4326"
_LONLAT: Final = (_DEGREES, "OGC:CRS84", "EPSG:4979")
_DRIVER: Final = "GPKG"
#: The version that is written: nothing of a later one is needed, and older programs warn of those.
_VERSION: Final = {"VERSION": "1.2"}
#: Types of geometry, as pyogrio names them, of layers that may hold points.
_POINTS: Final = ("Point", "Point Z", "Point M", "Point ZM", "2.5D Point", "Unknown")
#: What the tables of a GeoPackage say of the system of coordinates of a layer.
_SYSTEM: Final = (
    "SELECT g.table_name, g.column_name, s.organization, s.organization_coordsys_id, s.definition "
    "FROM gpkg_geometry_columns g JOIN gpkg_spatial_ref_sys s USING (srs_id)"
)
#: From this number on, floats do not hold all whole numbers.
_EXACT: Final = 2.0**53
#: Columns of every GeoPackage that pyogrio writes.
_KEY, _SHAPE = "fid", "geom"


class Layer(NamedTuple):
    """A layer of points.

    Attributes:
        table: its columns, without the geometry.
        geometry: each point as well-known binary, null where there is none.
        system: ``lonlat`` or ``plane``; None if the file does not say it.
    """

    table: pl.DataFrame
    geometry: pl.Series
    system: str | None


def check_geopackage() -> None:
    """Raise InvalidRequest if the package that reads and writes GeoPackages is not installed."""
    if importlib.util.find_spec("pyogrio") is None:
        raise InvalidRequest(
            "GeoPackages are read and written with pyogrio, which is not installed: pip install 'apsp[geopackage]'",
            field="format",
        )


def read_layer(path: Path) -> Layer:
    """Read the layer of points of a GeoPackage: the only one, or of several the one called ``nodes``, as OSMnx has it.

    Args:
        path: the file.

    Raises:
        NotFound: there is no such file.
        InvalidRequest: pyogrio is not installed, the file is no GeoPackage, or none of its layers can be chosen.
    """
    import polars as pl

    check_geopackage()
    import pyogrio

    try:
        with path.open("rb"):
            pass
        with _silently():
            name = _layer(path, pyogrio.list_layers(path))
            about, _, geometry, fields = pyogrio.raw.read(path, layer=name, datetime_as_string=True)
            column, system = _system(path, name)
            query = f"SELECT count({_quoted(column)}) FROM {_quoted(name)}"  # noqa: S608 - both are quoted
            [[there]] = _select(path, query)
    except OSError as error:
        raise NotFound(f"cannot open {path}: {error.strerror or error}") from error
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, UnicodeDecodeError) as error:
        reason = str(error).partition(";")[0]
        raise InvalidRequest(f"{path} cannot be read as a GeoPackage: {reason}", field="nodes") from error
    points = pl.Series("geometry", list(geometry), dtype=pl.Binary)
    if points.count() != there:  # GDAL says nothing of geometry that it does not understand
        message = f"{path}: {there - points.count():,} of {there:,} geometries in layer {name} are damaged"
        raise InvalidRequest(message, field="nodes")
    columns = [
        _column(path, field, values, whole=kind.startswith("OFTInteger"))
        for field, values, kind in zip(about["fields"], fields, about["ogr_types"], strict=True)
    ]
    return Layer(pl.DataFrame(columns), points, system)


def _column(path: Path, name: str, values: np.ndarray[Any, Any], *, whole: bool) -> pl.Series:
    """Return a column; whole numbers of which some are missing, which pyogrio makes floats, are whole numbers again."""
    import polars as pl

    if values.dtype == object:
        return pl.Series(name, list(values), strict=False)
    column = pl.Series(name, values)
    if not (whole and values.dtype.kind == "f"):
        return column
    if np.nanmax(np.abs(values), initial=0) >= _EXACT:
        raise InvalidRequest(
            f"{path}: column {name!r} has missing values and numbers of 2^53 or more, which are then not read exactly; "
            "fill in the missing ones, or make it text",
            field="nodes",
        )
    return column.fill_nan(None).cast(pl.Int64)


def _layer(path: Path, layers: Any) -> str:
    """Return the name of the layer of points; ``layers`` has rows of names and types of geometry."""
    points = [name for name, kind in layers if kind in _POINTS]
    if len(points) > 1 and "nodes" in points:
        return "nodes"
    if len(points) != 1:
        there = ", ".join(f"{name} ({kind or 'no geometry'})" for name, kind in layers) or "none"
        wanted = "one layer of points, or one of them called nodes"
        raise InvalidRequest(f"{path}: the file should have {wanted}; its layers are: {there}", field="nodes")
    return str(points[0])


def _system(path: Path, layer: str) -> tuple[str, str | None]:
    """Return the column of the geometry of a layer, and what the file says of its coordinates."""
    for name, column, organization, code, definition in zip(*_select(path, _SYSTEM), strict=True):
        if name == layer:
            if f"{organization}:{code}".upper() in _LONLAT:
                return column, LONLAT
            return column, "plane" if str(definition).upper().startswith(("PROJCS", "PROJCRS")) else None
    raise InvalidRequest(f"{path}: the tables of the GeoPackage do not describe its layer {layer}", field="nodes")


def _select(path: Path, query: str) -> list[Any]:
    """Return the columns that a query finds."""
    import pyogrio

    return list(pyogrio.raw.read(path, sql=query, read_geometry=False)[3])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class LayerForm(NamedTuple):
    """What a layer is that is written.

    Attributes:
        name: its name.
        geometry: the column of the tables that holds well-known binary.
        kind: ``Point`` or ``LineString``.
        geographic: whether coordinates are longitude and latitude; else their system is not known.
    """

    name: str
    geometry: str
    kind: str
    geographic: bool


def write_layer(tables: Iterator[pl.DataFrame], file: Path | io.BytesIO, form: LayerForm) -> None:
    """Write tables, one after the other, as one layer.

    Args:
        tables: with the same columns each.
        file: the path, at which there is nothing yet, or a buffer, which takes one table.
        form: what the layer is.

    Raises:
        InvalidRequest: pyogrio is not installed, or two columns differ only in case, which SQL cannot tell apart.
        StorageFailed: the file cannot be written.
    """
    check_geopackage()
    import pyogrio

    try:
        for i, table in enumerate(tables):
            with _silently():
                _write(table, file, form, append=i > 0)
    except (OSError, pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError) as error:
        where = "the GeoPackage" if isinstance(file, io.BytesIO) else file
        raise StorageFailed(f"cannot write {where}: {error}") from error


def _write(table: pl.DataFrame, file: Path | io.BytesIO, form: LayerForm, *, append: bool) -> None:
    import pyogrio

    columns = table.drop(form.geometry)
    pyogrio.raw.write(
        file,
        _objects(table[form.geometry]),
        [_values(column) for column in columns],
        columns.columns,
        field_mask=[column.is_null().to_numpy() if column.null_count() else None for column in columns],
        layer=form.name,
        driver=_DRIVER,
        geometry_type=form.kind,
        crs=_DEGREES if form.geographic else None,
        append=append,
        layer_options={} if append else _free_names(columns.columns),
        dataset_options={} if append else _VERSION,
    )


def _free_names(columns: list[str]) -> dict[str, str]:
    """Return names of the key and the geometry that no column has, as options of the layer."""
    taken: dict[str, str] = {}
    for name in columns:
        if name.lower() in taken:
            message = f"columns {taken[name.lower()]!r} and {name!r} have one name in a GeoPackage; write .parquet"
            raise InvalidRequest(message, field="format")
        taken[name.lower()] = name
    return {
        option: next(free for k in count() if (free := name + "_" * k) not in taken)
        for option, name in (("FID", _KEY), ("GEOMETRY_NAME", _SHAPE))
    }


def _objects(column: pl.Series) -> np.ndarray[Any, Any]:
    """Return a column of text or bytes as an array of objects, of which an empty one is one, too."""
    return np.array([*column.to_list(), None], object)[:-1]


def _values(column: pl.Series) -> np.ndarray[Any, Any]:
    """Return a column as pyogrio takes it: nulls are zeros that a mask covers."""
    import polars as pl

    if column.dtype == pl.String:
        return _objects(column)
    if column.dtype.is_integer():
        return column.fill_null(0).cast(pl.Int64).to_numpy()
    return column.fill_null(0).to_numpy()


def _silently() -> warnings.catch_warnings[None]:
    """Leave out warnings: a file that is not in its place yet has another ending, and a plane may have no name."""
    return warnings.catch_warnings(action="ignore")
