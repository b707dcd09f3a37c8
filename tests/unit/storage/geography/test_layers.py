"""GeoPackages that are read: layers of points from other programs, damaged files, and files of strangers."""

from __future__ import annotations

import random
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pyogrio
import pytest

from storage.errors import InvalidRequest, LimitExceeded, NotFound
from storage.geography.layers import opened, read_points_of
from storage.geography.tables import has_points, read_points
from storage.readers.limits import HARMLESS_BYTES, ReadLimits

FLAT = [bytes([1]) + struct.pack("<I2d", 1, 24.5, 60.25), bytes([1]) + struct.pack("<I2d", 1, 1.5, 2.5), None]
HIGH = [
    bytes([1]) + struct.pack("<I3d", 1001, 24.5, 60.25, 8),
    bytes([1]) + struct.pack("<I3d", 1001, 1.5, 2.5, 9),
    None,
]
LINES = [bytes([1]) + struct.pack("<II4d", 2, 2, 0, 0, 1, 1)] * 3
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
    read = read_points_of(with_gaps(tmp_path / "beds.gpkg", "beds", [1, 2, -3])).table
    assert (read["beds"].to_list(), read["beds"].dtype) == ([1, None, -3], pl.Int64)
    long = read_points(with_gaps(tmp_path / "long.gpkg", "osmid", [7, 8, 2**53 + 1]))
    assert list(long.ids) == ["7", "", str(2**53 + 1)]
    whole = made(tmp_path / "whole.gpkg", osmid=np.array([2**53 + 1, 2**62 + 1, -(2**53) - 1]))
    assert list(read_points(whole).ids) == [str(2**53 + 1), str(2**62 + 1), str(-(2**53) - 1)]


def test_the_layer_of_points_is_chosen(tmp_path):
    """OSMnx saves ``nodes`` and ``edges``."""
    file = made(made(tmp_path / "x.gpkg", "edges", "LineString"), "nodes")
    assert read_points_of(file).table["stop_id"].to_list() == [7, 8, 9]
    made(file, "more")
    assert read_points_of(file).table.height == 3
    both = made(made(tmp_path / "y.gpkg", "homes"), "schools")
    with pytest.raises(InvalidRequest, match=r"one of them called nodes; its layers are: homes \(point\), schools"):
        read_points_of(both)
    lines = made(tmp_path / "z.gpkg", "ways", "LineString")
    with pytest.raises(InvalidRequest, match=r"its layers are: ways \(linestring\)"):
        read_points_of(lines)


def test_damaged_files_are_told(tmp_path):
    with pytest.raises(NotFound, match="cannot open"):
        read_points_of(tmp_path / "none.gpkg")
    (tmp_path / "text.gpkg").write_text("id,lon,lat\n")
    with pytest.raises(InvalidRequest, match="cannot be read as a GeoPackage"):
        read_points_of(tmp_path / "text.gpkg")
    whole = made(tmp_path / "whole.gpkg").read_bytes()
    for length in (0, 100, 4096, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        file = tmp_path / f"{length}.gpkg"
        file.write_bytes(whole[:length])
        with pytest.raises(InvalidRequest, match=r"cannot be read as a GeoPackage|layers are"):
            read_points_of(file)
    with closing(sqlite3.connect(tmp_path / "whole.gpkg")) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE stops SET geom = x'0000' WHERE geom IS NOT NULL")
        database.commit()
    with pytest.raises(InvalidRequest, match="layer stops, row 1: the geometry is damaged"):
        read_points(tmp_path / "whole.gpkg")


@pytest.mark.parametrize("seed", range(4))
def test_files_with_wrong_bytes_are_read_or_refused(tmp_path, seed):
    """The format has no checksums, so a wrong byte of a value is read; nothing but refusals and values may come."""
    whole, rng = made(tmp_path / "whole.gpkg").read_bytes(), random.Random(seed)
    used = [place for place, byte in enumerate(whole) if byte]
    refused = same = 0
    for k in range(50):
        data, file = bytearray(whole), tmp_path / f"{k}.gpkg"
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.choice(used)] = rng.randrange(256)
        file.write_bytes(data)
        try:
            table = read_points(file)
        except InvalidRequest:
            refused += 1
            continue
        same += table.x[:2].tolist() == [24.5, 1.5] and list(table.ids) == ["7", "8", "9"]
    assert refused > 3
    assert refused + same >= 48


def changed(path: Path, *statements: str) -> Path:
    """The same file without triggers, which need functions of GDAL, and after statements of SQL."""
    with closing(sqlite3.connect(path)) as database:
        triggers = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for statement in (*(f'DROP TRIGGER "{name}"' for (name,) in triggers), *statements):
            database.execute(statement)
        database.commit()
    return path


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["DROP TABLE gpkg_contents"], "no whole GeoPackage: it has no table gpkg_contents"),
        (["DROP TABLE gpkg_spatial_ref_sys"], "it has no table gpkg_spatial_ref_sys"),
        (
            ["ALTER TABLE stops RENAME TO hidden", "CREATE VIEW stops AS SELECT * FROM hidden"],
            "layer stops is a view, which is not read",
        ),
        (
            ["ALTER TABLE gpkg_contents RENAME TO hidden", "CREATE VIEW gpkg_contents AS SELECT * FROM hidden"],
            "no whole GeoPackage: it has no table gpkg_contents",
        ),
        (["DROP TABLE stops"], "layer stops is announced, but has no table"),
        ([f"ALTER TABLE stops ADD COLUMN long TEXT DEFAULT '{'x' * 300_000}'"], "a definition of 300,"),
    ],
)
def test_databases_that_are_no_geopackages_are_refused(tmp_path, statements, why):
    file = made(tmp_path / "x.gpkg")
    changed(file, "PRAGMA legacy_alter_table = ON", *statements)
    with pytest.raises(InvalidRequest, match=f"cannot be read as a GeoPackage: .*{why}"):
        read_points_of(file)


def test_many_layers_are_not_all_named(tmp_path):
    columns = "SELECT 'layer' || i, data_type, 'layer' || i, srs_id FROM gpkg_contents, n"
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {})"
    into = "INSERT INTO gpkg_contents (table_name, data_type, identifier, srs_id)"
    file = changed(made(tmp_path / "x.gpkg", kind="LineString"), f"{numbers.format(20)} {into} {columns}")
    with pytest.raises(InvalidRequest, match=r"layer11 \(no geometry\) and 9 more"):
        read_points_of(file)
    changed(file, "DELETE FROM gpkg_contents WHERE table_name <> 'stops'", f"{numbers.format(1000)} {into} {columns}")
    with pytest.raises(InvalidRequest, match="more than 1,000 layers"):
        read_points_of(file)


def test_changes_that_are_not_in_the_file_yet_are_told(tmp_path):
    file = made(tmp_path / "x.gpkg")
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE more (a)")
        database.commit()
        with pytest.raises(InvalidRequest, match=r"x\.gpkg-wal beside it holds changes"):
            read_points_of(file)
    assert read_points_of(file).table.height == 3


def test_a_default_for_all_rows_is_no_bomb(tmp_path):
    """Rows that are shorter than their table have the default of the rest, and take no bytes of the file for it."""
    file = made(tmp_path / "x.gpkg")
    rows = HARMLESS_BYTES // 100_000 + 1
    changed(
        file,         f"WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n LIMIT {rows}) "
        "INSERT INTO stops (fid, stop_id) SELECT i, i FROM n",
        f"ALTER TABLE stops ADD COLUMN long TEXT DEFAULT '{'x' * 100_000}'",
    )  # fmt: skip
    with opened(file, ReadLimits(max_ratio=2)) as package:
        [layer] = package.layers()
        with pytest.raises(LimitExceeded, match="expand to"):
            package.read(layer, layer.fields)


def test_values_of_other_types_than_declared_are_refused(tmp_path):
    file = changed(made(tmp_path / "x.gpkg"), "UPDATE stops SET stop_id = 'seven' WHERE stop_id = 7")
    with pytest.raises(InvalidRequest, match=r"column 'stop_id' is declared as \w+, but holds other values"):
        read_points_of(file)


def test_names_and_places_of_rows(tmp_path):
    file = made(tmp_path / 'a?b#c d%20".gpkg', layer='st"o"ps')
    with opened(file) as package:
        [layer] = package.layers()
        assert package.check(layer) == 3
        assert package.place(layer, 1) == 'layer st"o"ps, row 2 (fid 2)'
