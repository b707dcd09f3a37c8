"""Tables of points: names of columns decide, and what is no point is refused with its line."""

from __future__ import annotations

import json
import struct
from datetime import time, timedelta

import numpy as np
import polars as pl
import pytest

from storage.errors import InvalidRequest, NotFound
from storage.geography.tables import has_points, read_points

CRS = {"type": "ProjectedCRS", "id": {"authority": "EPSG", "code": 3067}}


def wkb(x: float, y: float, order: str = "<", kind: int = 1) -> bytes:
    return bytes([order == "<"]) + struct.pack(f"{order}I2d", kind, x, y)


def geoparquet(path, points, **column):
    about = {"encoding": "WKB", "geometry_types": ["Point"], **column}
    geo = {"version": "1.1.0", "primary_column": "spot", "columns": {"spot": about}}
    frame = pl.DataFrame({"osmid": list(range(1, len(points) + 1)), "spot": points})
    frame.write_parquet(path, metadata={"geo": json.dumps(geo)})
    return path


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("id,lon,lat,name\n7,24.5,60.25,Mill\n9,,,\n", "lonlat"),
        ("stop_name;stop_id;stop_lat;stop_lon\nMill;7;60.25;24.5\n;9;;\n", "lonlat"),
        ("osmid\tY\tX\tname\n7\t60.25\t24.5\tMill\n9\t\t\t\n", None),
        ("\ufeffLongitude,Latitude,x,y,id,Title\n24.5,60.25,1,2,7,Mill\n,,1,2,9,\n", "lonlat"),
    ],
)
def test_csv(tmp_path, text, system):
    file = tmp_path / "points.csv"
    file.write_text(text, encoding="utf-8")
    table = read_points(file)
    assert (list(table.ids), table.system) == (["7", "9"], system)
    np.testing.assert_array_equal(table.x, [24.5, np.nan])
    np.testing.assert_array_equal(table.y, [60.25, np.nan])
    assert table.columns["name"].tolist() == ["Mill", ""]
    assert has_points(file)


def test_columns_of_numbers_are_numbers_unless_that_changes_their_text(tmp_path):
    file = tmp_path / "points.csv"
    file.write_text("id,x,y,beds,share,code\n7,1,2,12,0.5,007\n9,1,3,3,,8\n")
    kinds = {name: column.dtype.kind for name, column in read_points(file).columns.items()}
    assert kinds == {"beds": "i", "share": "f", "code": "T"}


NAMED = pl.DataFrame({"id": [1, 2, 3], "x": [0.0, 1, 2], "y": [0.0, 1, 2]})


@pytest.mark.parametrize(
    "names", [["10", "", "7"], ["1.50", "2", "1e3"], ["12345678901234567890", "1", ""], ["", "", ""], ["+5", "-0", "0"]]
)
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".geojson"])
def test_names_that_look_like_numbers_stay_as_they_are_written(tmp_path, names, ending):
    file = tmp_path / f"points{ending}"
    frame = NAMED.with_columns(pl.Series("name", names))
    if ending == ".parquet":
        frame.write_parquet(file)
    elif ending == ".geojson":
        spots = [{"type": "Point", "coordinates": [0, 0]}] * 3
        features = [{"geometry": spot, "properties": {"name": name}} for spot, name in zip(spots, names, strict=True)]
        file.write_text(json.dumps({"features": features}))
    else:
        frame.write_csv(file, separator="," if ending == ".csv" else "\t")
    assert read_points(file).columns["name"].tolist() == names


@pytest.mark.parametrize("numbers", [[10, None, 7], [2**63 + 1, 2, None], [2**53 + 1, None, 0]])
@pytest.mark.parametrize("ending", [".parquet", ".geojson"])
def test_names_and_ids_that_are_whole_numbers_are_their_digits(tmp_path, numbers, ending):
    file = tmp_path / f"points{ending}"
    wanted = ["" if number is None else str(number) for number in numbers]
    if ending == ".parquet":
        names = pl.Series("name", numbers, pl.UInt64)
        NAMED.with_columns(names, id=names).write_parquet(file)
    else:
        floats = {"geometry": None, "properties": {"name": 0.5, "id": 0.25}}  # its columns would be floats
        some = [{"geometry": None, "properties": {"name": number, "id": number}} for number in numbers]
        file.write_text(json.dumps({"features": [*some, floats]}))
        wanted += ["0.5"]
    table = read_points(file)
    assert table.columns["name"].tolist() == wanted
    assert list(table.ids[:3]) == wanted[:3]


@pytest.mark.parametrize("role", ["id", "name", "further"])
@pytest.mark.parametrize(
    "values",
    [[timedelta(1), None], [b"a", b"\xff"], [[1], [2]], [{"a": 1}, None], [time(1), time(2)], [True, None],
     [None, None], pl.Series([[1], [2]], dtype=pl.Array(pl.Int8, 1))],
)  # fmt: skip
def test_a_column_of_any_type_is_read(tmp_path, role, values):
    frame = pl.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}).with_columns(pl.Series(role, values))
    frame.write_parquet(tmp_path / "points.parquet")
    table = read_points(tmp_path / "points.parquet")
    assert len(table.ids if role == "id" else table.columns[role]) == 2
    assert table.x.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (["9007199254740993", "1", ""], ["9007199254740993", "1", ""]),
        (["9007199254740993", "1", "2"], [2**53 + 1, 1, 2]),
        (["18446744073709551615", "1", "2"], ["18446744073709551615", "1", "2"]),
        (["-9007199254740993", "1.5", "2"], ["-9007199254740993", "1.5", "2"]),
        (["9007199254740991", "1", "2.5"], [2.0**53 - 1, 1.0, 2.5]),
    ],
)
def test_whole_numbers_that_no_float_holds_are_never_rounded(tmp_path, column, wanted):
    file = tmp_path / "points.csv"
    NAMED.with_columns(way=pl.Series(column)).write_csv(file)
    assert read_points(file).columns["way"].tolist() == wanted
    if all(text.lstrip("-").isdigit() for text in column if text):
        numbers = pl.Series([int(text) if text else None for text in column], dtype=pl.Int128)
        NAMED.with_columns(way=numbers.cast(pl.UInt64)).write_parquet(tmp_path / "points.parquet")
        assert read_points(tmp_path / "points.parquet").columns["way"].tolist() == wanted


@pytest.mark.parametrize(
    "header", ["id,lon,lng,lat", "id,lon,lon,lat", "id,lon,lat,LAT", "id,x,easting,y", "ID,id,lon,lat", "id,id,lon,lat",
               "name,Name,lon,lat", "title,title,lon,lat"]
)  # fmt: skip
def test_a_table_with_two_columns_of_a_kind_is_no_list_of_vertices_either(tmp_path, header):
    file = tmp_path / "points.csv"
    file.write_text(f"{header}\n1,2,3,4\n")
    with pytest.raises(InvalidRequest, match=r"two columns .*leave one out"):
        read_points(file) if has_points(file) else pytest.fail("its first column would be read as vertices")


def test_empty_lines_above_the_header_hide_no_coordinates(tmp_path):
    file = tmp_path / "points.csv"
    file.write_text("\n\r\nid;lon;lat\n7;24.5;60.25\n")
    assert has_points(file)
    table = read_points(file)
    assert (list(table.ids), table.x.tolist(), table.y.tolist()) == (["7"], [24.5], [60.25])


@pytest.mark.parametrize(
    ("column", "system"),
    [({}, "lonlat"), ({"crs": CRS}, "plane"), ({"crs": None}, None),
     ({"crs": {"type": "GeographicCRS", "id": {"authority": "EPSG", "code": 4326}}}, "lonlat")],
)  # fmt: skip
def test_geoparquet(tmp_path, column, system):
    points = [wkb(24.5, 60.25), wkb(1.5, 2.5, ">"), None, bytes([1]) + struct.pack("<I3d", 1001, 3, 4, 5)]
    table = read_points(geoparquet(tmp_path / "nodes.parquet", points, **column))
    assert table.x.tolist()[:2] + table.x.tolist()[3:] == [24.5, 1.5, 3.0]
    assert table.y.tolist()[:2] + table.y.tolist()[3:] == [60.25, 2.5, 4.0]
    assert np.isnan(table.x[2])
    assert (list(table.ids), table.system) == (["1", "2", "3", "4"], system)


@pytest.mark.parametrize("size", range(26))
@pytest.mark.parametrize("kind", [1, 1001, 0x20000001, 0xA0000001, 2])
@pytest.mark.parametrize("order", ["<", ">"])
def test_points_that_are_cut_are_refused_with_their_row(tmp_path, size, kind, order):
    system = struct.pack(f"{order}I", 4326) if kind & 0x20000000 else b""
    whole = bytes([order == "<"]) + struct.pack(f"{order}I", kind) + system + struct.pack(f"{order}3d", 3, 4, 5)
    file = geoparquet(tmp_path / "nodes.parquet", [wkb(1, 2), whole[:size]])
    if kind != 2 and size >= 21 + len(system):
        assert (read_points(file).x[1], read_points(file).y[1]) == (3, 4)
        return
    with pytest.raises(InvalidRequest, match="row 2: the geometry is no point"):
        read_points(file)


def test_geometries_that_are_no_bytes_and_deep_geojson_are_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="row 1: the geometry is no point"):
        read_points(geoparquet(tmp_path / "nodes.parquet", [1, 2]))
    (tmp_path / "p.geojson").write_text('{"features":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(InvalidRequest, match="is no GeoJSON"):
        read_points(tmp_path / "p.geojson")


def test_parquet_with_columns_and_geojson(tmp_path):
    pl.DataFrame({"id": ["a", "b"], "lon": [1.0, None], "lat": [2.0, None]}).write_parquet(tmp_path / "p.parquet")
    table = read_points(tmp_path / "p.parquet")
    assert (list(table.ids), table.system, table.x[0]) == (["a", "b"], "lonlat", 1.0)
    feature = {"type": "Feature", "id": 5, "properties": {"name": "Mill"},
               "geometry": {"type": "Point", "coordinates": [24.5, 60.25, 8]}}  # fmt: skip
    (tmp_path / "p.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    table = read_points(tmp_path / "p.geojson")
    assert (list(table.ids), table.x[0], table.y[0], table.columns["name"].tolist()) == (["5"], 24.5, 60.25, ["Mill"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,lon,lat\n1,181,2\n", "line 2: longitude 181 is outside"),
        ("id,lon,lat\n1,2,3\n2,60.1,124.9\n", "line 3: latitude 124.9 is outside -90 .. 90; longitude and"),
        ("id,lon,lat\n1,2,3\n2,east,4\n", "line 3: lon is 'east'"),
        ("id,lon,lat\n1,nan,3\n", "line 2: lon is 'nan'"),
        ("id,x,y\n1,1,inf\n", "line 2: y is 'inf'"),
        ("\n\nid,lon,lat\n1,2,3\n2,east,4\n", "line 5: lon is 'east'"),
        ("id,lon,lat\n1,2,3\n\n,,\n2,east,4\n", "line 5: lon is 'east'"),
        ("id;lon;lat;name\n1;2;3;\"a\nb; c\"\n2;181;4;d\n", "line 4: longitude 181 is outside"),
        ("id,lon,lat\n1,2,\n", "line 2: only one of the two coordinates"),
        ("id,lon,longitude,lat\n1,2,2,3\n", "two columns may be the lon: lon and longitude"),
        ("id,a,b\n1,2,3\n", "no columns of coordinates.*there are id, a, b"),
        ("id,lon,lat\n1,2,3\n2,\"2,5\n", "cannot be read as a table|no coordinate|only one"),
    ],
)  # fmt: skip
def test_what_is_no_point_is_refused(tmp_path, text, message):
    file = tmp_path / "points.csv"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=message):
        read_points(file)


def test_texts_of_geojson_and_parquet_are_on_rows(tmp_path):
    pl.DataFrame({"id": ["a", "b"], "lon": ["1", "east"], "lat": ["1", "2"]}).write_parquet(tmp_path / "p.parquet")
    with pytest.raises(InvalidRequest, match=r"p\.parquet, row 2: lon is 'east'"):
        read_points(tmp_path / "p.parquet")


def test_rows_without_any_entry_are_no_points(tmp_path):
    (tmp_path / "points.csv").write_text("id,lon,lat\n1,2,3\n\n2,4,5\n,,\n\n")
    assert list(read_points(tmp_path / "points.csv").ids) == ["1", "2"]


def test_a_name_that_holds_half_a_character_is_refused(tmp_path):
    feature = {"geometry": None, "properties": {"id": 1, "name": "\ud800"}}
    (tmp_path / "points.geojson").write_text(json.dumps({"features": [feature]}))
    with pytest.raises(InvalidRequest, match="cannot be read as a table"):
        read_points(tmp_path / "points.geojson")


def test_files_that_are_none(tmp_path):
    with pytest.raises(NotFound, match="cannot open"):
        read_points(tmp_path / "none.csv")
    with pytest.raises(InvalidRequest, match="must end in"):
        read_points(tmp_path / "points.xlsx")
    line = bytes([1]) + struct.pack("<II4d", 2, 2, 0, 0, 1, 1)
    with pytest.raises(InvalidRequest, match="row 1: the geometry is no point"):
        read_points(geoparquet(tmp_path / "lines.parquet", [line]))
    (tmp_path / "names.csv").write_text("vertex\nlon\n")
    assert not has_points(tmp_path / "names.csv")
    assert not has_points(tmp_path / "none.csv")
