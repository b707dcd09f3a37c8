"""GeoParquet of lines is read with its geometry, and other GeoParquet as plain tables."""

from __future__ import annotations

import json

import polars as pl
import pytest

from storage.errors import InvalidGraph, LimitExceeded
from storage.readers import ReadLimits, read_graph
from tests.layers import line, point, write_geoparquet

LINES = [line((0, 0), (0, 1)), line((0, 1), (0, 3))]


@pytest.mark.parametrize("kinds", [[], ["LineString"], ["LineString Z"], ["MultiLineString", "LineString"]])
def test_lines(tmp_path, kinds):
    graph, receipt = read_graph(write_geoparquet(tmp_path / "x.parquet", LINES, kinds=kinds))
    assert (graph.n, graph.coordinates.y.tolist(), receipt.format) == (3, [0, 1, 3], "parquet")


@pytest.mark.parametrize("kinds", [[], ["Point"]])
def test_points_are_a_plain_table(tmp_path, kinds):
    path = write_geoparquet(
        tmp_path / "x.parquet", [point(0, 0), point(1, 1)], kinds=kinds, u=[1, 2], v=[2, 3], cost=[4, 5]
    )
    graph, _ = read_graph(path)
    assert (graph.labels.tolist(), graph.coordinates) == ([1, 2, 3], None)


def test_edges_without_any_geometry(tmp_path):
    path = write_geoparquet(tmp_path / "x.parquet", [None, None], kinds=["LineString"], u=[1, 2], v=[2, 3], cost=[4, 5])
    graph, receipt = read_graph(path)
    assert (graph.labels.tolist(), graph.coordinates) == ([1, 2, 3], None)
    assert any("coordinates are not kept: row 1: there is no geometry" in note for note in receipt.notes)


@pytest.mark.parametrize(
    ("geo", "why"),
    [
        ("{", "no GeoParquet"),
        ('{"columns": {}}', "no GeoParquet"),
        (json.dumps({"primary_column": "g", "columns": {"g": []}}), "no GeoParquet"),
        (json.dumps({"primary_column": "g", "columns": {"g": {"encoding": "linestring"}}}), "encoded as 'linestring'"),
    ],
)
def test_metadata_that_are_not_understood(tmp_path, geo, why):
    pl.DataFrame({"u": [1], "v": [2], "g": [b""]}).write_parquet(tmp_path / "x.parquet", metadata={"geo": geo})
    with pytest.raises(InvalidGraph, match=why):
        read_graph(tmp_path / "x.parquet")


def test_one_long_line_for_many_rows_is_no_bomb(tmp_path):
    long = line(*((k / 1000, 0) for k in range(20_000)))
    path = write_geoparquet(tmp_path / "x.parquet", [long] * 500)
    assert path.stat().st_size < 2_000_000
    with pytest.raises(LimitExceeded, match="expand to"):
        read_graph(path, limits=ReadLimits(max_ratio=10))
