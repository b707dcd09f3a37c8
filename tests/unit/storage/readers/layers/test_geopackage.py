"""GeoPackages of edges: which layer is taken, the layer of nodes, and files as OSMnx writes them."""

from __future__ import annotations

import contextlib
import gzip
import random
import sqlite3
from contextlib import closing

import pytest

from storage.errors import ApspError, InvalidGraph, InvalidRequest, LimitExceeded
from storage.graph.graph import graph_digest
from storage.readers import ReadLimits, read_graph
from tests.layers import line, multi, point, write_gpkg

PLACES = {17: (24.94, 60.17), 42: (24.95, 60.17), 99: (24.95, 60.18), 5: (0.0, 0.0)}
#: As ``osmnx.io.save_graph_geopackage(directed=True)`` writes them: a street that is not one-way has two rows.
ROWS = [(17, 42, False, 556.5), (42, 17, False, 556.5), (42, 99, True, 1112.0), (99, 17, True, 1300.25)]


def osmnx(path):
    """Layers ``nodes`` and ``edges``."""
    shapes = [point(*place) for place in PLACES.values()]
    xs, ys = zip(*PLACES.values(), strict=True)
    write_gpkg(path, "nodes", shapes, "Point", osmid=list(PLACES), y=ys, x=xs, street_count=[3, 2, 2, 0])
    u, v, one_way, length = zip(*ROWS, strict=True)
    lines = [line(PLACES[a], PLACES[b]) for a, b in zip(u, v, strict=True)]
    return write_gpkg(
        path, "edges", lines, u=u, v=v, key=[0] * 4, osmid=["1", "1", "[2, 3]", "4"], oneway=one_way,
        lanes=["2", "2", None, "1"], length=length, maxspeed=["40"] * 4,
    )  # fmt: skip


def test_a_network_of_osmnx(tmp_path):
    graph, receipt = read_graph(osmnx(tmp_path / "x.gpkg"))
    assert graph.labels.tolist() == [17, 42, 99]
    assert (graph.directed, graph.m, receipt.format, receipt.weight_column) == (True, 4, "gpkg", "length")
    assert graph.weights.tolist() == [556.5, 556.5, 1112.0, 1300.25]
    assert graph.coordinates.system == "lonlat"
    assert (
        list(zip(graph.coordinates.x.tolist(), graph.coordinates.y.tolist(), strict=True)) == list(PLACES.values())[:3]
    )
    assert graph.coordinates.columns["street_count"].tolist() == [3, 2, 2]
    notes = " / ".join(receipt.notes)
    assert "rows of layer nodes that are no vertex: 1 (5)" in notes
    assert "the way back is a row of its own" in notes
    assert "not read: columns key, osmid, lanes, maxspeed" in notes


def test_an_undirected_network_of_osmnx(tmp_path):
    """Each street is one row; where ``u`` and ``v`` are exchanged, ``from`` and ``to`` have the direction."""
    path = tmp_path / "x.gpkg"
    u, v, a, b = [17, 42, 17], [42, 99, 99], [17, 42, 99], [42, 99, 17]
    lines = [line(PLACES[first], PLACES[last]) for first, last in zip(a, b, strict=True)]
    fields = {"u": u, "v": v, "oneway": [False, True, True], "osmid": [1, 2, 3], "length": [1.0, 2.0, 3.0]}
    graph, _ = read_graph(write_gpkg(path, "edges", lines, **fields, **{"from": a, "to": b}))
    tails = [17, 42, 42, 99]
    heads = [42, 17, 99, 17]
    found = graph.labels[graph.heads].tolist()
    assert (graph.labels.tolist(), found, graph.weights.tolist()) == ([17, 42, 99], [42, 17, 99, 17], [1, 1, 2, 3])
    assert [graph.indptr.tolist(), heads] == [[0, 1, 3, 4], found]
    assert len(tails) == graph.m


def test_compressed_and_under_any_name(tmp_path):
    data = osmnx(tmp_path / "x.gpkg").read_bytes()
    (tmp_path / "upload.gz").write_bytes(gzip.compress(data))
    (tmp_path / "upload").write_bytes(data)
    read = [read_graph(tmp_path / name)[0] for name in ("x.gpkg", "upload.gz", "upload")]
    assert len({graph_digest(graph) for graph in read}) == 1


@pytest.mark.parametrize("seed", range(3))
def test_files_with_wrong_bytes_are_read_or_refused(tmp_path, seed):
    """Errors that no reader foresaw fail this test."""
    data, rng = osmnx(tmp_path / "x.gpkg").read_bytes(), random.Random(seed)
    used = [place for place, byte in enumerate(data) if byte]
    for k in range(25):
        wrong = bytearray(data)
        for _ in range(rng.choice([1, 2, 8])):
            wrong[rng.choice(used)] = rng.randrange(256)
        (tmp_path / f"{k}").write_bytes(wrong[: rng.choice([len(wrong), rng.randrange(100, len(wrong))])])
        with contextlib.suppress(ApspError):
            read_graph(tmp_path / f"{k}")


def test_which_layer_is_taken(tmp_path):
    path = write_gpkg(tmp_path / "x.gpkg", "streets", [line((0, 0), (0, 1))])
    write_gpkg(path, "stops", [point(0, 0)], "Point", name=["a"])
    graph, receipt = read_graph(path)
    assert graph.n == 2
    assert "layers that are not read: stops (point)" in receipt.notes
    write_gpkg(path, "rails", [line((0, 0), (0, 1))])
    with pytest.raises(
        InvalidGraph, match=r"streets \(linestring\), stops \(point\), rails \(linestring\), and several"
    ):
        read_graph(path)
    write_gpkg(path, "Edges", [multi(line((0, 0), (0, 1))), multi(line((0, 1), (0, 2)))], "MultiLineString")
    graph, receipt = read_graph(path)
    assert graph.n == 3
    assert "layers that are not read: streets (linestring), stops (point), rails (linestring)" in receipt.notes


def test_layers_without_lines(tmp_path):
    path = write_gpkg(tmp_path / "x.gpkg", "links", None, None, None, a_node=[1, 2], b_node=[2, 3], cost=[5.5, 6])
    graph, receipt = read_graph(path)
    assert (graph.labels.tolist(), graph.weights.tolist(), graph.coordinates) == ([1, 2, 3], [5.5, 6], None)
    assert receipt.weight_column == "cost"
    with pytest.raises(InvalidRequest, match="layer links has no lines to be measured"):
        read_graph(path, weight="metres")
    points = write_gpkg(tmp_path / "y.gpkg", "stops", [point(0, 0)], "Point", name=["a"])
    with pytest.raises(InvalidGraph, match=r"stops \(point\), and none has lines"):
        read_graph(points)


def test_nodes_that_do_not_fit(tmp_path):
    path = write_gpkg(tmp_path / "x.gpkg", "nodes", [point(0, 0)], "Point", osmid=[1000])
    write_gpkg(path, "edges", [line((0, 0), (0, 1))], u=[1], v=[2], length=[7])
    graph, receipt = read_graph(path)
    assert graph.coordinates.y.tolist() == [0, 1]
    assert any("layer nodes is not read: layer nodes: none of its 1 ids is a vertex" in note for note in receipt.notes)


def test_empty_ids_are_named_with_their_row(tmp_path):
    path = write_gpkg(tmp_path / "x.gpkg", "edges", [line((0, 0), (0, 1))] * 2, u=[1, None], v=[2, 3], length=[7, 8])
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET sql = replace(sql, '\"u\" REAL', '\"u\" INTEGER')")
        database.commit()
    with pytest.raises(InvalidGraph, match=r"layer edges, row 2 \(fid 2\): column 'u' is empty"):
        read_graph(path)


def test_limits(tmp_path):
    path = osmnx(tmp_path / "x.gpkg")
    with pytest.raises(LimitExceeded, match="4 arcs are more than the 3 allowed"):
        read_graph(path, limits=ReadLimits(max_arcs=3))
    with pytest.raises(LimitExceeded, match="3 vertices are more than the 2 allowed"):
        read_graph(path, limits=ReadLimits(max_vertices=2))


def test_databases_that_are_no_geopackage(tmp_path):
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("CREATE TABLE edges (u, v)")
    with pytest.raises(InvalidGraph, match="a database of SQLite, but no whole GeoPackage"):
        read_graph(tmp_path / "x.db")
