"""Writes features into GeoPackages with pyogrio (extra ``geopackage``), a binding to GDAL.

``storage.geography.layers`` reads GeoPackages.
"""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from storage.errors import InvalidRequest, StorageFailed

if TYPE_CHECKING:
    import polars as pl

#: Ending of the file names of GeoPackages.
GEOPACKAGE: Final = ".gpkg"
#: The system of longitude and latitude; a GeoPackage always stores the longitude (x) before the latitude (y).
_DEGREES: Final = "EPSG:4326"
_DRIVER: Final = "GPKG"
#: The version of GeoPackage that is written.  Later versions add nothing that apsp needs, and older programs warn when
#: they open a file of a later version.
_VERSION: Final = {"VERSION": "1.2"}
#: Names of the columns of the key and of the geometry, unless the table itself has a column of the same name.
_KEY, _SHAPE = "fid", "geom"


def check_geopackage() -> None:
    """Raise InvalidRequest if the package that writes GeoPackages is not installed."""
    if importlib.util.find_spec("pyogrio") is None:
        raise InvalidRequest(
            "GeoPackages are written with pyogrio, which is not installed: pip install 'apsp[geopackage]'",
            field="format",
        )


class LayerForm(NamedTuple):
    """The properties of a layer that is written.

    Attributes:
        name: the name of the layer.
        geometry: the column of the tables that holds well-known binary.
        kind: ``Point`` or ``LineString``.
        geographic: whether coordinates are longitude and latitude; if not, their system is unknown.
        description: a sentence about the layer, which programs show; None if there is none.
    """

    name: str
    geometry: str
    kind: str
    geographic: bool
    description: str | None = None


def write_layer(tables: Iterator[pl.DataFrame], file: Path | io.BytesIO, form: LayerForm) -> None:
    """Write tables, one after the other, as one layer.

    Args:
        tables: the tables, which all have the same columns.
        file: a path at which there is no file yet, or a buffer, into which only one table can be written.
        form: the properties of the layer.

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
        layer_options={} if append else {**_free_names(columns.columns), **_described(form)},
        dataset_options={} if append else _VERSION,
    )


def _described(form: LayerForm) -> dict[str, str]:
    return {} if form.description is None else {"DESCRIPTION": form.description}


def _free_names(columns: list[str]) -> dict[str, str]:
    """Return layer options that name the key column and the geometry column; no other column has these names."""
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
    """Return a column of text or bytes as an array with dtype object, even if the column is empty."""
    return np.array([*column.to_list(), None], object)[:-1]


def _values(column: pl.Series) -> np.ndarray[Any, Any]:
    """Return a column in the form that pyogrio takes: nulls become zeros, which a separate mask marks."""
    import polars as pl

    if column.dtype == pl.String:
        return _objects(column)
    if column.dtype.is_integer():
        return column.fill_null(0).cast(pl.Int64).to_numpy()
    return column.fill_null(0).to_numpy()


def _silently() -> warnings.catch_warnings[None]:
    """Suppress warnings that the name of a staged file does not end in .gpkg, and that a layer has no named system."""
    return warnings.catch_warnings(action="ignore")
