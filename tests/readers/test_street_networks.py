"""Street networks as OSMnx 2 and momepy write them: the same graph as the one that NetworkX reads, or that was saved.

OSMnx saves GraphML by ``networkx.write_graphml`` after it has made a string of every attribute, and tables of edges by
GeoPandas, from whose header and rows these are copied.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from storage.graph.graph import Graph
from storage.readers import read_graph
from tests.layers import line, write_geoparquet

PLACES = {1001: (24.93, 60.16), 1002: (24.94, 60.165), 1003: (24.95, 60.17), 1004: (24.96, 60.165)}
#: Tail, head, key, length, one-way, reversed: streets both ways, one-way ones, two parallel ones, merged ways.
EDGES = [
    (1001, 1002, 0, 700.25, False, False), (1002, 1001, 0, 700.25, False, True), (1002, 1003, 0, 650.5, True, False),
    (1003, 1004, 0, 800.125, False, "[False, True]"), (1004, 1003, 0, 800.125, False, "[False, True]"),
    (1004, 1001, 0, 2100.0, True, False), (1004, 1001, 1, 2500.5, True, False),
]  # fmt: skip
HEADER = "u,v,key,osmid,highway,oneway,reversed,length,name,speed_kph,travel_time,maxspeed,lanes,geometry"

Lengths = dict[tuple[str, str], float]


def lengths(graph: Graph) -> Lengths:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return {(str(graph.labels[u]), str(graph.labels[v])): w for u, v, w in rows}


def least(graph: Any) -> Lengths:
    """The shortest of parallel edges, in both directions where the graph is undirected."""
    found: Lengths = {}
    for u, v, length in graph.edges(data="length"):
        for ends in [(str(u), str(v))] if graph.is_directed() else [(str(u), str(v)), (str(v), str(u))]:
            found[ends] = min(found.get(ends, np.inf), float(length))
    return found


def network(kind: Any = nx.MultiDiGraph) -> Any:
    graph = kind(crs="epsg:4326", simplified="True", created_with="OSMnx 2.1.1", created_date="2026-01-01 00:00:00")
    for name, (x, y) in PLACES.items():
        graph.add_node(name, y=str(y), x=str(x), street_count="3", **({"highway": "crossing"} if name == 1002 else {}))
    for u, v, key, length, oneway, reversed_ in EDGES:
        if kind is nx.MultiDiGraph or (u, v) not in ((1002, 1001), (1004, 1003)):
            graph.add_edge(
                u, v, key, osmid="[12, 13]", highway="['residential', 'tertiary']", oneway=str(oneway),
                reversed=str(reversed_), length=str(length), speed_kph="40.0", travel_time=str(length / 11),
                geometry="LINESTRING (24.94 60.165, 24.945 60.168, 24.95 60.17)",
            )  # fmt: skip
    return graph


@pytest.mark.parametrize("kind", [nx.MultiDiGraph, nx.MultiGraph])
def test_graphml_of_osmnx_is_what_networkx_reads(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "osmnx.graphml"
    nx.write_graphml(network(kind), path, encoding="utf-8")
    graph, receipt = read_graph(path)
    assert lengths(graph) == least(nx.read_graphml(path)) == least(network(kind))
    assert graph.directed == (kind is nx.MultiDiGraph)
    assert graph.coordinates is not None
    assert graph.coordinates.x.tolist() == [x for x, _ in PLACES.values()]
    assert any("travel_time" in note for note in receipt.notes), "what was left out is said"


def test_osmnx_says_what_its_lengths_measure(tmp_path: Path) -> None:
    path = tmp_path / "osmnx.graphml"
    nx.write_graphml(network(), path, encoding="utf-8")
    assert read_graph(path)[0].unit == "m"
    assert read_graph(path, weight="travel_time")[0].unit == "s"
    assert read_graph(path, weight="speed_kph")[0].unit is None
    assert read_graph(path, length_of="length / 80")[0].unit is None
    assert read_graph(path, unweighted=True)[0].unit is None
    assert read_graph(path, unit="yd")[0].unit == "yd"
    other = tmp_path / "other.graphml"
    other.write_text(path.read_text().replace("OSMnx 2.1.1", "another program"))
    graph, receipt = read_graph(other)
    assert graph.unit is None
    assert any("created_with" in note for note in receipt.notes)


@pytest.mark.parametrize("header", [HEADER, "," + HEADER], ids=["index", "reset index"])
def test_tables_of_edges_of_osmnx(header: str, tmp_path: Path) -> None:
    rows = [header]
    for k, (u, v, key, length, oneway, reversed_) in enumerate(EDGES):
        quoted = f'"{reversed_}"' if "," in str(reversed_) else reversed_
        start = f"{k}," if header[0] == "," else ""
        rows.append(
            f"{start}{u},{v},{key},\"[12, 13]\",\"['residential', 'tertiary']\",{oneway},{quoted},{length},"
            f'"Street, One",40.0,{length / 11},,2,"LINESTRING (24.94 60.165, 24.95 60.17)"'
        )
    path = tmp_path / "edges.csv"
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")
    assert lengths(read_graph(path)[0]) == least(network())


@pytest.mark.parametrize("extended", [False, True])
def test_geoparquet_of_osmnx(extended: bool, tmp_path: Path) -> None:
    columns: dict[str, Any] = dict(zip(("u", "v", "key", "length", "oneway"), zip(*EDGES, strict=True), strict=False))
    columns = {name: list(values) for name, values in columns.items()}
    shapes = [line(PLACES[u], PLACES[v]) for u, v, *_ in EDGES]
    path = write_geoparquet(tmp_path / "edges.parquet", shapes, kinds=("LineString",), extended=extended, **columns)
    graph, _ = read_graph(path)
    assert lengths(graph) == least(network())
    assert graph.coordinates is not None


@pytest.mark.parametrize("extended", [False, True])
def test_geoparquet_of_momepy(extended: bool, tmp_path: Path) -> None:
    """``momepy.nx_to_gdf``: ends by number, and lengths under ``mm_len``."""
    shapes = [line((0, 0), (10, 0)), line((10, 0), (10, 20)), line((10, 20), (0, 0))]
    fields = {"name": ["a", "b", "c"], "mm_len": [10.0, 20.0, 500**0.5], "node_start": [0, 1, 2], "node_end": [1, 2, 0]}
    path = write_geoparquet(tmp_path / "lines.parquet", shapes, crs=None, extended=extended, **fields)
    graph, _ = read_graph(path, directed=False)
    saved = nx.Graph()
    saved.add_weighted_edges_from([(0, 1, 10.0), (1, 2, 20.0), (2, 0, 500**0.5)], weight="length")
    assert lengths(graph) == least(saved)
