"""Coordinates joined to vertices: from a table of nodes and from attributes of graph files."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pytest

from storage.errors import InvalidRequest, NotFound
from storage.readers import read_graph

EDGES = "from,to,minutes\nb,a,1\nb,c,2\n"


def read(tmp_path, nodes, edges=EDGES, **options):
    (tmp_path / "edges.csv").write_text(edges)
    (tmp_path / "nodes.csv").write_text(nodes)
    return read_graph(tmp_path / "edges.csv", nodes=tmp_path / "nodes.csv", **options)


def test_a_table_gives_each_vertex_its_coordinates(tmp_path):
    graph, receipt = read(tmp_path, "id,lon,lat,name,beds\nc,3,30,Mill,5\na,1,10,,7\nq,9,9,x,1\n", unit="min")
    placed = graph.coordinates
    assert (placed.geographic, graph.unit) == (True, "min")
    np.testing.assert_array_equal(placed.x, [1, np.nan, 3])
    np.testing.assert_array_equal(placed.y, [10, np.nan, 30])
    assert placed.names.tolist() == ["", "", "Mill"]
    np.testing.assert_array_equal(placed.columns["beds"], [7, np.nan, 5])
    assert "rows of nodes.csv that are no vertex: 1 (q)" in receipt.notes
    assert "vertices without coordinates: 1 (b)" in receipt.notes


def test_white_space_is_part_of_an_id_that_a_vertex_has(tmp_path):
    links = [{"source": name, "target": "b", "weight": 1} for name in ("a", " a", "\u00a0a")]
    edges = json.dumps(
        {"directed": True, "nodes": [{"id": name} for name in ("a", " a", "\u00a0a", "b")], "links": links}
    )
    placed = read(tmp_path, 'id,lon,lat\n" a",1,10\n"b ",2,20\n', edges, format="json")[0].coordinates
    np.testing.assert_array_equal(placed.x, [1, np.nan, 2, np.nan])
    placed = read(tmp_path, 'id,lon,lat\n"\u00a0a",1,10\n a,2,20\na,3,30\n', edges, format="json")[0].coordinates
    np.testing.assert_array_equal(placed.x, [2, 3, np.nan, 1])
    with pytest.raises(InvalidRequest, match="line 3: 'b' stands also in line 2"):
        read(tmp_path, "id,lon,lat\nb,1,10\nb ,2,20\n", edges, format="json")


def test_whole_numbers_of_other_columns_are_not_rounded_where_a_vertex_has_no_row(tmp_path):
    placed = read(tmp_path, f"id,lon,lat,way,name\nc,3,30,{2**53 + 1},7\na,1,10,5,8\n")[0].coordinates
    assert placed.columns["way"].tolist() == ["5", "", str(2**53 + 1)]
    assert placed.names.tolist() == ["8", "", "7"]


def test_x_and_y_are_a_plane_unless_somebody_says_otherwise(tmp_path):
    nodes = "id,x,y\na,1,10\nb,2,20\nc,3,30\n"
    graph, receipt = read(tmp_path, nodes)
    assert not graph.coordinates.geographic
    assert any("plane; if they are degrees, say --coordinates lonlat" in note for note in receipt.notes)
    assert read(tmp_path, nodes, coordinates="lonlat")[0].coordinates.geographic
    with pytest.raises(InvalidRequest, match="line 4: longitude 300"):
        read(tmp_path, nodes.replace("c,3", "c,300"), coordinates="lonlat")
    with pytest.raises(InvalidRequest, match="'utm' is unknown; use lonlat, plane"):
        read(tmp_path, nodes, coordinates="utm")
    with pytest.raises(InvalidRequest, match="says that its coordinates are lonlat"):
        read(tmp_path, "id,lon,lat\na,1,10\n", coordinates="plane")


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        ("id,lon,lat\na,1,10\nb,2,20\na,3,30\n", InvalidRequest, "line 4: 'a' stands also in line 2"),
        ("id,lon,lat\na,1,10\n,2,20\n", InvalidRequest, "line 3: the id is empty"),
        ("id,lon,lat\nx,1,10\ny,2,20\n", NotFound, "none of its 2 ids is a vertex"),
        ("lon,lat\n1,10\n", InvalidRequest, "no column of ids"),
        ("id,lon,lat\na,,\nb,,\n", InvalidRequest, "no vertex has coordinates"),
    ],
)
def test_what_cannot_be_joined_is_refused(tmp_path, nodes, error, message):
    with pytest.raises(error, match=message):
        read(tmp_path, nodes)


def test_a_unit_needs_weights(tmp_path):
    (tmp_path / "edges.csv").write_text("from,to\na,b\n")
    with pytest.raises(InvalidRequest, match="every arc counts 1"):
        read_graph(tmp_path / "edges.csv", unit="min")


def city(crs=None, **more):
    graph = nx.MultiDiGraph(**({} if crs is None else {"crs": crs}))
    for name, x, y in ((30, 24.5, 60.0), (4, 25.0, 60.25), (101, 24.75, 60.5)):
        graph.add_node(name, x=x, y=y, street="Lane 7", **more)
    graph.add_edge(30, 4, length=10.5)
    graph.add_edge(4, 101, length=20.0)
    return graph


@pytest.mark.parametrize(("crs", "geographic"), [("epsg:4326", True), ("EPSG:32635", False), (None, False)])
def test_graphml_of_osmnx(tmp_path, crs, geographic):
    nx.write_graphml(city(crs), tmp_path / "city.graphml")
    graph, receipt = read_graph(tmp_path / "city.graphml")
    assert graph.labels.tolist() == [4, 30, 101]
    assert graph.coordinates.geographic is geographic
    assert graph.coordinates.x.tolist() == [25.0, 24.5, 24.75]
    assert graph.coordinates.y.tolist() == [60.25, 60.0, 60.5]
    told = [note for note in receipt.notes if "not read" in note]
    assert told == ["not read: attributes of vertices and of the graph 'street'"]
    assert any("--coordinates lonlat" in note for note in receipt.notes) is (crs is None)


def test_a_system_for_what_has_none_or_another_is_refused(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    with pytest.raises(InvalidRequest, match="--coordinates plane has no meaning here: the file has no coordinates"):
        read_graph(tmp_path / "edges.csv", coordinates="plane")
    nx.write_graphml(city("EPSG:32635", lon=1.5, lat=2.5), tmp_path / "city.graphml")
    with pytest.raises(InvalidRequest, match="the file says that its coordinates are lonlat"):
        read_graph(tmp_path / "city.graphml", coordinates="plane")


def test_lon_and_lat_go_before_x_and_y(tmp_path):
    nx.write_graphml(city("EPSG:32635", lon=1.5, lat=2.5), tmp_path / "city.graphml")
    graph, _ = read_graph(tmp_path / "city.graphml")
    assert graph.coordinates.geographic
    assert graph.coordinates.x.tolist() == [1.5] * 3


def test_vertices_named_by_an_attribute_keep_their_own_coordinates(tmp_path):
    graph = city("epsg:4326")
    for vertex, name in ((30, "b"), (4, "c"), (101, "a")):
        graph.nodes[vertex]["name"] = name
    nx.write_graphml(graph, tmp_path / "city.graphml")
    found, _ = read_graph(tmp_path / "city.graphml", labels="name")
    assert found.labels.tolist() == ["a", "b", "c"]
    assert found.coordinates.x.tolist() == [24.75, 24.5, 25.0]


def test_attributes_that_are_no_places_are_told_and_not_refused(tmp_path):
    graph = city("epsg:4326")
    graph.nodes[4]["y"] = 95.0
    nx.write_graphml(graph, tmp_path / "city.graphml")
    found, receipt = read_graph(tmp_path / "city.graphml")
    assert found.coordinates is None
    assert any("coordinates are not kept: vertex 4: latitude 95" in note for note in receipt.notes)
    data = nx.node_link_data(city(), edges="links")
    data["nodes"][1]["x"] = "left"
    (tmp_path / "city.json").write_text(json.dumps(data))
    found, receipt = read_graph(tmp_path / "city.json")
    assert found.coordinates is None
    assert any("coordinates are not kept" in note and "left" in note for note in receipt.notes)


def test_json_of_networkx(tmp_path):
    (tmp_path / "city.json").write_text(json.dumps(nx.node_link_data(city(), edges="links")))
    graph, _ = read_graph(tmp_path / "city.json", coordinates="lonlat")
    assert graph.coordinates.geographic
    assert graph.coordinates.x.tolist() == [25.0, 24.5, 24.75]


def test_a_table_replaces_what_the_file_says(tmp_path):
    nx.write_graphml(city("epsg:4326"), tmp_path / "city.graphml")
    (tmp_path / "nodes.csv").write_text("id,x,y\n4,1,2\n30,3,4\n101,5,6\n")
    graph, _ = read_graph(tmp_path / "city.graphml", nodes=tmp_path / "nodes.csv")
    assert not graph.coordinates.geographic
    assert graph.coordinates.x.tolist() == [1, 3, 5]
