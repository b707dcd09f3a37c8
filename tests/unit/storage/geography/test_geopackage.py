"""GeoPackages: layers of points from other programs, and layers that are written in pieces."""

from __future__ import annotations

import importlib.util
import io
import random
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pyogrio
import pytest

from storage.errors import InvalidRequest, NotFound, StorageFailed
from storage.geography.geopackage import LayerForm, read_layer, write_layer
from storage.geography.tables import has_points, read_points

FLAT = [bytes([1]) + struct.pack("<I2d", 1, 24.5, 60.25), bytes([1]) + struct.pack("<I2d", 1, 1.5, 2.5), None]
HIGH = [
    bytes([1]) + struct.pack("<I3d", 1001, 24.5, 60.25, 8),
    bytes([1]) + struct.pack("<I3d", 1001, 1.5, 2.5, 9),
    None,
]
LINES = [bytes([1]) + struct.pack("<II4d", 2, 2, 0, 0, 1, 1)] * 3
DEGREES, PLANE = (LayerForm("d", "geometry", "Point", geographic) for geographic in (True, False))
SHAPES = {"Point": FLAT, "Point Z": HIGH, "LineString": LINES}


def made(path: Path, layer: str = "stops", kind: str = "Point", crs: str | None = "EPSG:4326", **fields) -> Path:
    """A layer as another program writes it."""
    columns = fields or {"stop_id": np.array([7, 8, 9]), "name": np.array(["Mill", None, "Ferry"], object)}
    pyogrio.raw.write(
        path, np.array(SHAPES[kind], object), list(columns.values()), list(columns), geometry_type=kind, crs=crs,
        layer=layer, driver="GPKG",
    )  # fmt: skip
    return path


@pytest.mark.parametrize(("crs", "system"), [("EPSG:4326", "lonlat"), ("EPSG:3067", "plane"), ("EPSG:4258", None)])
def test_read(tmp_path, crs, system):
    file = made(tmp_path / "stops.gpkg", kind="Point Z", crs=crs)
    assert has_points(file)
    table = read_points(file)
    np.testing.assert_array_equal(table.x, [24.5, 1.5, np.nan])
    np.testing.assert_array_equal(table.y, [60.25, 2.5, np.nan])
    assert (list(table.ids), table.system) == (["7", "8", "9"], system)
    assert table.columns["name"].tolist() == ["Mill", "", "Ferry"]


def test_columns_of_other_types(tmp_path):
    days = np.array(["2026-01-01", "2026-01-02", "NaT"], "datetime64[D]")
    file = made(tmp_path / "x.gpkg", id=np.array(["a", "b", "c"], object), day=days, beds=np.array([1.5, np.nan, 2]))
    table = read_points(file)
    assert table.columns["day"].tolist() == ["2026-01-01", "2026-01-02", ""]
    np.testing.assert_array_equal(table.columns["beds"], [1.5, np.nan, 2])


def with_gaps(path: Path, name: str, numbers: list[int]) -> Path:
    """A layer with a column of whole numbers, the second of which is missing."""
    mask = np.array([False, True, False])
    pyogrio.raw.write(
        path, np.array(FLAT, object), [np.array(numbers)], [name], field_mask=[mask], geometry_type="Point",
        crs="EPSG:4326", layer="stops", driver="GPKG",
    )  # fmt: skip
    return path


def test_whole_numbers_stay_whole_where_some_are_missing(tmp_path):
    assert list(read_points(with_gaps(tmp_path / "ids.gpkg", "osmid", [7, 8, 2**53 - 1])).ids) == [
        "7",
        "",
        str(2**53 - 1),
    ]
    read = read_layer(with_gaps(tmp_path / "beds.gpkg", "beds", [1, 2, -3])).table
    assert (read["beds"].to_list(), read["beds"].dtype) == ([1, None, -3], pl.Int64)
    with pytest.raises(InvalidRequest, match=r"column 'osmid' has missing values and numbers of 2\^53 or more"):
        read_points(with_gaps(tmp_path / "long.gpkg", "osmid", [7, 8, 2**53 + 1]))
    whole = made(tmp_path / "whole.gpkg", osmid=np.array([2**53 + 1, 2**62 + 1, -(2**53) - 1]))
    assert list(read_points(whole).ids) == [str(2**53 + 1), str(2**62 + 1), str(-(2**53) - 1)]


def test_the_layer_of_points_is_chosen(tmp_path):
    """OSMnx saves ``nodes`` and ``edges``."""
    file = made(made(tmp_path / "x.gpkg", "edges", "LineString"), "nodes")
    assert read_layer(file).table["stop_id"].to_list() == [7, 8, 9]
    made(file, "more")
    assert read_layer(file).table.height == 3
    both = made(made(tmp_path / "y.gpkg", "homes"), "schools")
    with pytest.raises(InvalidRequest, match=r"one of them called nodes; its layers are: homes \(Point\), schools"):
        read_layer(both)
    lines = made(tmp_path / "z.gpkg", "ways", "LineString")
    with pytest.raises(InvalidRequest, match=r"its layers are: ways \(LineString\)"):
        read_layer(lines)


def test_damaged_files_are_told(tmp_path):
    with pytest.raises(NotFound, match="cannot open"):
        read_layer(tmp_path / "none.gpkg")
    (tmp_path / "text.gpkg").write_text("id,lon,lat\n")
    with pytest.raises(InvalidRequest, match="cannot be read as a GeoPackage"):
        read_layer(tmp_path / "text.gpkg")
    whole = made(tmp_path / "whole.gpkg").read_bytes()
    for length in (0, 100, 4096, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        file = tmp_path / f"{length}.gpkg"
        file.write_bytes(whole[:length])
        with pytest.raises(InvalidRequest, match=r"cannot be read as a GeoPackage|layers are"):
            read_layer(file)
    with closing(sqlite3.connect(tmp_path / "whole.gpkg")) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE stops SET geom = x'0000' WHERE geom IS NOT NULL")
        database.commit()
    with pytest.raises(InvalidRequest, match="2 of 2 geometries in layer stops are damaged"):
        read_points(tmp_path / "whole.gpkg")


@pytest.mark.parametrize("seed", range(4))
def test_files_with_wrong_bytes_are_read_or_refused(tmp_path, seed):
    whole, rng = made(tmp_path / "whole.gpkg").read_bytes(), random.Random(seed)
    used = [place for place, byte in enumerate(whole) if byte]
    refused = 0
    for k in range(50):
        data, file = bytearray(whole), tmp_path / f"{k}.gpkg"
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.choice(used)] = rng.randrange(256)
        file.write_bytes(data)
        try:
            read_points(file)
        except InvalidRequest:
            refused += 1
    assert refused > 25


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
