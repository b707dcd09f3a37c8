"""GeoPackages that are written in pieces."""

from __future__ import annotations

import importlib.util
import io
import sqlite3
import struct
from contextlib import closing

import numpy as np
import polars as pl
import pyogrio
import pytest

from storage.errors import InvalidRequest, StorageFailed
from storage.geography.geopackage import LayerForm, write_layer

FLAT = [bytes([1]) + struct.pack("<I2d", 1, 24.5, 60.25), bytes([1]) + struct.pack("<I2d", 1, 1.5, 2.5), None]
DEGREES, PLANE = (LayerForm("d", "geometry", "Point", geographic) for geographic in (True, False))


def frame(rows: range, **more: pl.Series) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "source": pl.Series(list(rows), dtype=pl.Int64),
            "name": [f"n{k}" if k % 3 else None for k in rows],
            "distance": pl.Series([k if k % 2 else None for k in rows], dtype=pl.UInt32),
            **more,
            "geometry": pl.Series([FLAT[0] if k % 5 else None for k in rows], dtype=pl.Binary),
        }
    )


def test_pieces_become_one_layer(tmp_path):
    pieces = [frame(range(4)), frame(range(4, 4)), frame(range(4, 9))]
    write_layer(iter(pieces), tmp_path / ".x.gpkg.1", PLANE)
    (tmp_path / ".x.gpkg.1").rename(tmp_path / "x.gpkg")
    assert [path.name for path in tmp_path.iterdir()] == ["x.gpkg"]
    about, _, geometry, fields = pyogrio.raw.read(tmp_path / "x.gpkg")
    assert about["crs"] is None
    wanted = frame(range(9))
    assert list(geometry) == wanted["geometry"].to_list()
    assert fields[0].tolist() == list(range(9))
    assert fields[1].tolist() == wanted["name"].to_list()
    assert [None if np.isnan(value) else value for value in fields[2]] == wanted["distance"].to_list()
    with closing(sqlite3.connect(tmp_path / "x.gpkg")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA user_version").fetchall() == [(10200,)], "older programs warn of later ones"


def test_columns_called_as_those_of_every_geopackage(tmp_path):
    numbers = pl.Series(range(3), dtype=pl.Float32)
    table = frame(range(3), fid=numbers, geom=numbers + 10, FID_=numbers + 20)
    write_layer(iter([table]), tmp_path / "x.gpkg", DEGREES)
    about, _, _, fields = pyogrio.raw.read(tmp_path / "x.gpkg")
    found = dict(zip(about["fields"], fields, strict=True))
    assert [found[name].tolist() for name in ("fid", "geom", "FID_")] == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]
    twins = frame(range(3), Distance=numbers)
    with pytest.raises(InvalidRequest, match="columns 'distance' and 'Distance' have one name in a GeoPackage"):
        write_layer(iter([twins]), tmp_path / "y.gpkg", DEGREES)


def test_what_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "folder.gpkg").mkdir()
    with pytest.raises(StorageFailed, match="cannot write"):
        write_layer(iter([frame(range(3))]), tmp_path / "folder.gpkg", DEGREES)
    with pytest.raises(StorageFailed, match="cannot write"):
        write_layer(iter([frame(range(3))]), tmp_path / "none" / "x.gpkg", DEGREES)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InvalidRequest, match=r"pip install 'apsp\[geopackage\]'"):
        write_layer(iter([frame(range(3))]), io.BytesIO(), DEGREES)
