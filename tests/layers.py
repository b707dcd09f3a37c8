"""Layers of lines and points as GDAL writes them into GeoPackages, and GeoParquet, for tests."""

from __future__ import annotations

import json
import math
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyogrio

Point = Sequence[float]


def line(*points: Point, thousands: int = 0) -> bytes:
    """A LineString; ``thousands`` is 1000 for heights, 2000 for measures."""
    body = b"".join(struct.pack(f"<{len(point)}d", *point) for point in points)
    return b"\x01" + struct.pack("<II", 2 + thousands, len(points)) + body


def multi(*lines: bytes) -> bytes:
    """A MultiLineString."""
    return b"\x01" + struct.pack("<II", 5, len(lines)) + b"".join(lines)


def point(x: float, y: float) -> bytes:
    """A Point."""
    return b"\x01" + struct.pack("<I2d", 1, x, y)


def column(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Values as pyogrio takes them: text as objects, missing numbers as NaN."""
    if any(isinstance(value, str) for value in values):
        return np.array([*values, None], object)[:-1]
    return np.array([math.nan if value is None else value for value in values])


def write_gpkg(
    path: Path,
    layer: str,
    geometry: Sequence[bytes | None] | None,
    kind: str | None = "LineString",
    crs: str | None = "EPSG:4326",
    **fields: Sequence[Any],
) -> Path:
    """Add a layer to a GeoPackage."""
    shapes = None if geometry is None else np.array([*geometry, None], object)[:-1]
    values = [column(value) for value in fields.values()]
    with warnings.catch_warnings(action="ignore"):  # a layer without a system of coordinates
        pyogrio.raw.write(path, shapes, values, list(fields), geometry_type=kind, crs=crs, layer=layer, driver="GPKG")
    return path


def write_geoparquet(
    path: Path,
    geometry: Sequence[bytes | None],
    crs: Any = "default",
    kinds: Sequence[str] = (),
    *,
    extended: bool = False,
    **fields: Sequence[Any],
) -> Path:
    """Write a GeoParquet file; ``crs`` is PROJJSON, None, or left out for longitude and latitude.

    Where ``extended``, the geometry also has the extension type of Arrow that GeoPandas gives it since version 1.
    """
    about: dict[str, Any] = {"encoding": "WKB", "geometry_types": list(kinds)}
    if crs != "default":
        about["crs"] = crs
    geo = json.dumps({"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": about}})
    shapes = pl.Series(geometry, dtype=pl.Binary)
    if extended:
        shapes = shapes.ext.to(pl.Extension("geoarrow.wkb", pl.Binary(), '{"crs": "EPSG:4326"}'))
    frame = pl.DataFrame({**fields, "geometry": shapes})
    frame.write_parquet(path, metadata={"geo": geo})
    assert isinstance(pl.read_parquet_schema(path)["geometry"], pl.BaseExtension) == extended
    return path
