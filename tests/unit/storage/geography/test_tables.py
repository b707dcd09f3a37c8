"""Tables of points: names of columns decide, and what is no point is refused with its line."""

from __future__ import annotations

import json
import struct

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
