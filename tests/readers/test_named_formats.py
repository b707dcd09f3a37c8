"""Formats that name their vertices (GEXF, Pajek, JSON, lists): variants, and what is refused by line or element."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.errors import ApspError, InvalidGraph, InvalidRequest, LimitExceeded
from storage.graph.graph import Graph, Receipt
from storage.readers import ReadLimits, read_graph
from storage.readers.named import NamedGraph
from storage.readers.networks.json_walk import VALUE, Walker
from storage.readers.parsed import ReadOptions


def read(tmp_path: Path, content: str, name: str = "g.txt", **options: Any) -> tuple[Graph, Receipt]:
    path = tmp_path / name
    path.write_text(content)
    return read_graph(path, **options)


def arcs_of(graph: Graph) -> list[tuple[object, object, float]]:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = graph.labels.tolist()
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return [(names[u], names[v], w) for u, v, w in rows]


def refused(tmp_path: Path, content: str, message: str, **options: Any) -> None:
    with pytest.raises(ApspError) as caught:
        read(tmp_path, content, **options)
    assert isinstance(caught.value, InvalidGraph | InvalidRequest)
    assert message in str(caught.value)


# ---------------------------------------------------------------- GEXF

NODES = '<node id="a"/><node id="b"/>'


def gexf(body: str, graph: str = "", root: str = "") -> str:
    return f'<gexf version="1.3"{root}>\n<graph{graph}>\n{body}\n</graph>\n</gexf>\n'


def test_gexf_defaults_of_the_format(tmp_path: Path) -> None:
    edges = '<edges><edge source="a" target="b"/><edge source="b" target="b"/></edges>'
    graph, receipt = read(tmp_path, gexf(f"<nodes>{NODES}</nodes>{edges}"))
    assert (graph.directed, graph.weighted, receipt.self_loops) == (False, False, 1)
    assert arcs_of(graph) == [("a", "b", 1), ("b", "a", 1)]
    assert receipt.notes == ()


def test_gexf_weight_is_an_attribute_of_the_edge_or_one_that_is_asked_for(tmp_path: Path) -> None:
    attributes = '<attributes class="edge"><attribute id="7" title="km" type="double"><default>4</default></attribute>'
    edges = (
        '<edges><edge source="a" target="b" weight="2"><attvalues><attvalue for="7" value="1.5"/></attvalues></edge>'
        '<edge source="b" target="a"/></edges>'
    )
    text = gexf(f"{attributes}</attributes><nodes>{NODES}</nodes>{edges}", ' defaultedgetype="directed"')
    graph, receipt = read(tmp_path, text)
    assert (receipt.weight_column, arcs_of(graph)) == ("weight", [("a", "b", 2), ("b", "a", 1)])
    assert "not read: attributes of edges 'km'" in receipt.notes
    graph, receipt = read(tmp_path, text, weight="km")
    assert (receipt.weight_column, arcs_of(graph)) == ("km", [("a", "b", 1.5), ("b", "a", 4)])
    refused(tmp_path, text, "'speed'", weight="speed")


def test_gexf_a_length_beside_a_weight_that_comes_late_is_refused(tmp_path: Path) -> None:
    attributes = '<attributes class="edge"><attribute id="7" title="km" type="double"/></attributes>'
    km = '<attvalues><attvalue for="7" value="1.5"/></attvalues>'
    edges = f'<edge source="a" target="b">{km}</edge><edge source="b" target="a" weight="2">{km}</edge>'
    refused(tmp_path, gexf(f"{attributes}{NODES}{edges}"), "say which with --weight")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (gexf(f"{NODES}<edge source='a' target='c'/>"), "line 3: there is no node 'c'"),
        (gexf(f"{NODES}<edge source='a'/>"), "line 3: <edge> without 'target'"),
        (gexf(f"{NODES}<node id='a'/>"), "line 3: node 'a' stands twice"),
        (gexf("<node/>"), "line 3: <node> without 'id'"),
        (gexf(f"{NODES}<edge source='a' target='b' weight='x'/>"), "line 3: weight 'x' is not a number"),
        (gexf(f"{NODES}<edge source='a' target='b' weight='NaN'/>"), "line 3: weight 'NaN' is not a number"),
        (gexf(f"{NODES}<edge source='a' target='b' type='both'/>"), "line 3: an edge of type 'both'"),
        (gexf(NODES, " defaultedgetype='x'"), "line 2: defaultedgetype 'x' is unknown"),
        (gexf(NODES, " mode='dynamic'"), "changes with time"),
        (gexf("<node id='a' start='2001'/>"), "line 3: a node with 'start': a graph that changes with time"),
        (gexf(f"{NODES}<edge source='a' target='b'><spells><spell start='1'/></spells></edge>"), "changes with time"),
        (gexf("<node id='a'><nodes><node id='b'/></nodes></node>"), "line 3: <nodes> inside of a node: a hierarchical"),
        (gexf("<node id='a' pid='b'/><node id='b'/>"), "line 3: a node with a parent"),
        (gexf("<node id='a'><attvalues><attvalue for='3' value='1'/></attvalues></node>"), "no attribute '3' of class"),
        (gexf("<circle/>"), "line 3: unknown element <circle>"),
        ("<gexf><graph/><graph/></gexf>", "a second graph in one file"),
        ("<gexf/>", "there is no <graph>"),
        ("<gexf><graph>", "line 1: not well-formed XML"),
        ("<?xml version='1.0' encoding='utf-99'?><gexf/>", "line 1: XML in the encoding 'utf-99' is not read"),
        ("<!DOCTYPE gexf [<!ENTITY x 'y'>]><gexf><graph>&x;</graph></gexf>", "XML entities are refused"),
    ],
)
def test_gexf_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message)


def test_xml_of_one_kind_is_not_read_as_the_other(tmp_path: Path) -> None:
    refused(tmp_path, gexf(NODES), "<graph> stands inside <gexf>", format="graphml")
    refused(tmp_path, "<graphml><graph edgedefault='directed'/></graphml>", "the root is <graphml>", format="gexf")


# ---------------------------------------------------------------- Pajek


def test_pajek_sections(tmp_path: Path) -> None:
    text = '% by hand\n*Network x\n*Vertices 4\n2 "B [x]" 0.1 0.2 box ic Red\n*Arcs\n1 2 3 w 2 c Blue\n'
    graph, receipt = read(tmp_path, f"{text}*Arcslist\n2 3 4\n")
    assert arcs_of(graph) == [(1, 2, 3), (2, 3, 1), (2, 4, 1)]
    assert receipt.notes == (
        "edges without weight, which take the format's default of 1: 2",
        "not read: attributes of vertices 'label'",
        "not read: coordinates and shapes of vertices",
        "not read: line parameters 'w', 'c'",
    )
    graph, _ = read(tmp_path, "*vertices 3\n*edgeslist\n1 2 3\n")
    assert (graph.directed, graph.weighted, graph.m) == (False, False, 2)
    graph, _ = read(tmp_path, "*Vertices 2\n*Matrix\n9 2.5\n0\n0\n")
    assert (graph.directed, arcs_of(graph)) == (True, [(1, 2, 2.5)])


def test_pajek_arcs_and_edges_together(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, "*Vertices 3\n*Arcs\n1 2 3\n*Edges\n2 3 4\n")
    assert arcs_of(graph) == [(1, 2, 3), (2, 3, 4), (3, 2, 4)]
    assert "undirected edges among directed ones, each of which became two arcs: 1" in receipt.notes
    assert read(tmp_path, "*Vertices 3\n*Arcs\n1 2 3\n*Edges\n2 3 4\n", directed=False)[0].arcs == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("*Vertices 2\n*Arcs\n1 3 2\n", "line 3: vertex 3 is outside 1 .. 2 (line 1 declares 2)"),
        ("*Vertices 2\n*Arcs\n1\n", "line 3: expected 'u v [value]'"),
        ("*Vertices 2\n*Arcs\n1 2 x\n", "line 3: weight 'x' is not a number"),
        ("*Vertices 2\n*Arcs\n1 2 1 c\n", "line 3: expected pairs of a parameter and its value"),
        ("*Vertices 2\n*Arcs\n1 2 1 [3-5]\n", "line 3: a line with times"),
        ('*Vertices 2\n1 "a" [1-3]\n', "line 2: a vertex with times"),
        ("*Vertices 2\n1 a\n1 b\n", "line 3: vertex 1 stands also on line 2"),
        ("*Vertices 2 1\n", "line 1: a two-mode network"),
        ("*Vertices\n", "line 1: expected '*Vertices NUMBER'"),
        ("*Vertices -2\n", "line 1: a count below zero"),
        ("*Vertices 2\n*Vertices 2\n", "line 2: a second *Vertices"),
        ("*Network x\n*Arcs\n1 2\n", "line 2: *Arcs stands before *Vertices"),
        ("*Network x\n1 2\n", "line 2: expected a line that starts with '*'"),
        ("*Network x\n", "there is no *Vertices"),
        ("*Vertices 2\n*Partition y\n", "line 2: the section '*Partition' is not read"),
        ('*Vertices 2\n*Arcs :1 "a"\n1 2\n*Arcs :2 "b"\n2 1\n', "line 4: relations :1 and :2"),
        ("*Vertices 2\n*Arcslist\n1\n", "line 3: a list of neighbours with one vertex only"),
        ("*Vertices 2\n*Matrix\n0 1\n1\n", "*Matrix ends in row 2 of 2"),
        ("*Vertices 2\n*Matrix\n0 1\n1 0 0\n", "line 4: more than 2 rows of 2"),
        ("*Vertices 130000000\n*Arcs\n1 2\n", "130,000,000 vertices are declared, but only 1 arc follow"),
    ],
)
def test_pajek_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message)


# ---------------------------------------------------------------- JSON


def links(*edges: object, **members: object) -> str:
    nodes = [{"id": "a"}, {"id": "b"}]
    return json.dumps({"directed": True, "nodes": nodes, "links": edges, **members})


def test_json_members_in_any_order_and_notes(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "links": [{"source": 2, "target": 1, "km": 3.5, "name": "x"}],
            "nodes": [{"id": 1, "x": 4}, {"id": 2}],
            "graph": {"crs": "epsg:4326"},
            "author": [1, {"deep": []}],
        },
        indent=1,
    )
    graph, receipt = read(tmp_path, text)
    assert (graph.directed, arcs_of(graph)) == (False, [(1, 2, 3.5), (2, 1, 3.5)])
    assert receipt.weight_column == "km"
    assert receipt.notes == (
        "not read: attributes of edges 'name'",
        "not read: attributes of vertices 'x'",
        "'directed' is missing: taken as undirected, as NetworkX does; --directed for the other",
        "not read: attributes of the graph 'crs'",
        "not read: members of the file 'author'",
    )


def test_json_numbers_keep_their_digits(tmp_path: Path) -> None:
    text = '{"directed": true, "nodes": [{"id": %d}, {"id": 1}], "links": [{"source": 1, "target": %d, "weight": %s}]}'
    graph, _ = read(tmp_path, text % (2**62 + 1, 2**62 + 1, "9007199254740991"))
    assert arcs_of(graph) == [(1, 2**62 + 1, 2**53 - 1)]
    refused(tmp_path, text % (2, 2, "9007199254740993"), "links[0]: weight 9007199254740993 is beyond 2^53")
    refused(tmp_path, text % (2, 2, "1e999"), "links[0]: weight '1e999' is beyond float64")
    refused(tmp_path, text % (2, 2, "9" * 5000), "is beyond float64")
    refused(
        tmp_path, text % (2, 2, "-1e-400"), "links[0]: weight '-1e-400' is so small that float64 would take it for 0"
    )
    assert read(tmp_path, text % (2, 2, "Infinity"))[1].infinite_arcs == 1


def test_json_adjacency_lists_undirected_edges_at_both_ends(tmp_path: Path) -> None:
    lists = {"nodes": [{"id": 1}, {"id": 2}], "adjacency": [[{"id": 2, "weight": 3}], [{"id": 1, "weight": 3}]]}
    assert arcs_of(read(tmp_path, json.dumps({"directed": False, **lists}))[0]) == [(1, 2, 3), (2, 1, 3)]
    assert read(tmp_path, json.dumps({"directed": True, **lists}))[0].m == 2
    assert read(tmp_path, json.dumps({"directed": True, **lists}), directed=False)[0].m == 1
    lists["adjacency"] = [[{"id": 2, "weight": 3}], []]
    refused(tmp_path, json.dumps({"directed": False, **lists}), "does not list")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[1, 2], [2, 3]]\n", "line 1: the file holds no JSON object; read are"),
        ("{}", "the members are nothing; read are"),
        ('{"nodes": []}', "the members are 'nodes'; read are"),
        ('{"links": []}', "the members are 'links'; read are"),
        ('{"id": 1, "children": []}', "the members are 'id', 'children'; read are"),
        ('{"nodes": [], "links": [], "edges": []}', "the members are 'nodes', 'links', 'edges'; read are"),
        ('{"nodes": {"a": {}}, "links": []}', "line 1: 'nodes' is no list"),
        ('{"graph": {"nodes": {}, "edges": []}}', "JSON Graph Format"),
        ('{"elements": 5}', "line 1: 'elements' is no object of 'nodes' and 'edges'"),
        ('{"elements": {"nodes": [{"id": 1}]}}', "line 1: nodes[0]: an element without 'data'"),
        ('{"directed": 1, "nodes": [], "links": []}', "line 1: 'directed' is neither true nor false"),
        ('{"nodes": [],\n "nodes": []}', "line 2: the member 'nodes' stands twice in one object"),
        (links({"source": "a", "target": "b", "weight": 1})[:-1], "line 1: not well-formed JSON: expected '}'"),
        (links() + "{}", "line 1: not well-formed JSON: text after the end"),
        (links({"source": "a", "target": "c"}), "line 1: there is no node 'c'"),
        (links({"source": "a"}), "line 1: links[0]: an edge without 'target'"),
        (links({"source": "a", "target": 1}), "1 and '1' are two nodes"),
        (links({"source": "a", "target": ["b"]}), "line 1: links[0]: an id is text or a whole number, found '[...]'"),
        (links({"source": "a", "target": 0.5}), "an id is text or a whole number, found '0.5'"),
        (links({"source": "a", "target": True}), "an id is text or a whole number, found 'true'"),
        (links({"source": "a", "target": "b", "weight": None}), "links[0]: the weight is missing ('null')"),
        (links({"source": "a", "target": "b", "weight": [1]}), "links[0]: weight '[...]' is not a number"),
        (
            links({"source": "a", "target": "b"}, {"source": "a", "target": "b", "weight": 1}),
            "line 1: links[1]: an edge",
        ),
        (links(3), "line 1: links[0]: expected an object, found '3'"),
        (links(nodes=[{"id": "a"}, {"id": "a"}]), "line 1: nodes[1]: node 'a' stands twice"),
        (links(nodes=[{"name": "a"}]), "line 1: nodes[0]: a node without 'id'"),
        (links(nodes=[{"id": "\ud800"}]), "half a character"),
        ('{"nodes": [{"id": 1, "x": 1, "x": 2}], "links": []}', "line 1: the member 'x' stands twice in one object"),
        ('{"nodes": [{"id": 1},\n{"id": 01}], "links": []}', "line 2: not well-formed JSON"),
        ('{"nodes": [{"id": 1}], "adjacency": [[], []]}', "'adjacency' has more lists than the 1 'nodes' before it"),
        ('{"nodes": [{"id": 1}, {"id": 2}], "adjacency": [[]]}', "'adjacency' has 1 lists for 2 'nodes'"),
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + ', "nodes": []}', "line 1: JSON nested too deeply"),
        ('{"x": "' + "x" * (2 * VALUE) + '"}', "line 1: a value of more than 1 MiB of JSON"),
    ],
)
def test_json_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_json_comes_in_pieces(size: int) -> None:
    text = '{"a": [12345, "x\\u00e9y", {"b": [true, null, -1.5e-7]}],\n "c": {}, "d": 678}'
    walker = Walker(text[i : i + size] for i in range(0, len(text), size))
    found: dict[str, Any] = {}
    for key in walker.members():
        found[key] = [walker.value() for _ in walker.items()] if key == "a" else walker.value()
    walker.end()
    assert found == {"a": ["12345", "xéy", {"b": [True, None, "-1.5e-7"]}], "c": {}, "d": "678"}
    assert walker.line == 2


def test_json_is_decoded_in_time_that_grows_with_it() -> None:
    """A value that begins in one piece and ends in another is tried again, on twice as much text each time."""
    decoded = []

    class Counting(Walker):
        def __init__(self, text: str) -> None:
            super().__init__(text[i : i + 64] for i in range(0, len(text), 64))
            plain = self._decode
            self._decode = lambda held, at: decoded.append(len(held) - at) or plain(held, at)

    for size in (1000, 2000, 4000, 8000):
        decoded.clear()
        text = json.dumps(["x" * size] * 3)
        walker = Counting(text)
        assert sum(len(walker.value()) for _ in walker.items()) == 3 * size
        assert sum(decoded) < 12 * len(text)


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize(
    ("row", "weight"),
    [
        ("1 2 {'weight': 1.5}", 1.5),
        ('1 2 {"weight": 3, }', 3),
        ("1 2 {'weight': np.float64(2.5), 'x': [1, (2, {'y': 3})], 'z': None}", 2.5),
        ("1 2 {'name': 'it\\'s {', 'weight': -1e-05}", -1e-05),
        ("1\t2\t{'weight': 1}", 1),
        ("1,2,{'weight': 1}", 1),
    ],
)
def test_an_edge_list_with_dictionaries(row: str, weight: float, tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, f"# x\n{row}\n")
    assert (receipt.format, arcs_of(graph)) == ("nx-edgelist", [(1, 2, weight)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 {'weight': 1}\n2 3\n", "line 2: expected 'u v {attributes}', found '2 3'"),
        ("1 2 {'weight': 1}\n2 3 {}\n", "line 2: an edge without 'weight', its weight"),
        ("1 2 {}\n2 3 {'weight': 1}\n", "line 2: an edge with 'weight', while the first has no weight"),
        ("1 2 {'weight': 1 'x': 2}\n", "line 1: \"{'weight': 1 'x': 2}\" is no dictionary"),
        ("1 2 {'weight': 1}}\n", "is no dictionary"),
        ("1 2 {'weight': f(1)}\n", "is no dictionary"),
        ("1 2 {'weight': [1, (2], 3)}\n", "is no dictionary"),
        ("1 2 {'weight': <object>}\n", "is no dictionary"),
        ("1 2 {'weight: 1}\n", "is no dictionary"),
        ("1 2 {'weight': 1, 'weight': 2}\n", "line 1: the attribute 'weight' stands twice"),
        ("1 2 {'weight': " + "[" * 1000 + "]" * 1000 + "}\n", "is no dictionary"),
        ("1 2 3 {'weight': 1}\n", "line 1: expected 'u v {attributes}'"),
        ("1 2 {'weight': 'far'}\n", "line 1: weight 'far' is not a number"),
        ("1 2 {'weight': None}\n", "line 1: the weight is missing"),
        ("1 2 {'weight': nan}\n", "line 1: weight 'nan' is not a number"),
    ],
)
def test_an_edge_list_with_dictionaries_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message)


HEAD = "#write.py\n# GMT Sun Nov 22 14:00:00 2026\n# name\n"


def test_adjacency_lists_are_told_by_the_time_in_their_head(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, f"{HEAD}0 1 2\n1 2 0\n2\n")
    assert (receipt.format, graph.weighted, graph.m) == ("adjlist", False, 4)
    assert read(tmp_path, "0 1 2\n1 2 0\n")[1].format == "edges"
    assert read(tmp_path, "0 1 2\n1 2 0\n2\n", format="adjlist")[0].m == 4
    graph, receipt = read(tmp_path, f"{HEAD}0 2\n1 {{'weight': 5}}\n2 {{'weight': 1}}\n1 0\n2 0\n")
    assert (receipt.format, arcs_of(graph)) == ("multiline-adjlist", [(0, 1, 5), (0, 2, 1)])
    refused(tmp_path, f"{HEAD}0 0\n1 0\n", "say --format adjlist or --format multiline-adjlist")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 2\n1 {}\n", "line 1: 1 of the neighbours of '0' are missing"),
        ("0 x\n1 {}\n", "line 1: degree 'x' is not a whole number"),
        ("0 -1\n", "line 1: a degree below zero"),
        ("0 1 2\n1 {}\n", "line 1: expected 'u degree'"),
        ("0 1\n1 2 {}\n", "line 2: expected 'v' or 'v {attributes}'"),
        ("# x\n", "there is no vertex in the file"),
    ],
)
def test_a_multiline_adjacency_list_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message, format="multiline-adjlist")


def test_an_adjacency_list_refuses(tmp_path: Path) -> None:
    refused(tmp_path, "1 2 # three\n", "line 1: a comment behind a list", format="adjlist")
    refused(tmp_path, "1\n2\n", "there is no edge in the file", format="adjlist")
    refused(tmp_path, "1 2\n", "no weight columns", format="adjlist", weight="3")


# ---------------------------------------------------------------- SIF


@pytest.mark.parametrize(
    "text",
    [
        "a pp b\n",
        "a pp b c\nb pd c\n",
        "YAL001C\tpd\tYBR123W\nYBR123W\tpd\tYAL001C\n",
        "a likes b\nb hates c\nc likes a\n",
        "1 pp 2\n2 pp 3\n",
    ],
)
def test_sif_is_told_by_its_relations(text: str, tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, text)
    assert receipt.format == "sif"
    assert not {"pp", "pd", "likes", "hates"} & set(map(str, graph.labels.tolist()))


@pytest.mark.parametrize(
    "text",
    ["a likes b\n", "a pp 7\nb pp 8\n", "1 apple 3\n3 pear 1\n1 apple 1\n", "a hub old\nb hub new\n"],
)
def test_what_may_be_sif_or_an_edge_list_is_refused_with_both_names(text: str, tmp_path: Path) -> None:
    refused(tmp_path, text, "--format sif")
    refused(tmp_path, text, "--format edges")
    assert read(tmp_path, text, name="g.sif")[1].format == "sif"
    assert read(tmp_path, text, format="edges")[1].format == "edges"


@pytest.mark.parametrize(
    "text",
    [
        "a b 3\nb c 4\n",
        "a b road\nb c road\nc a path\n",
        "source target kind\na b x\nb c y\n",
        "1 2 road\n2 3 path\n",
        "a hub 7\nb hub 8\n",
        "u1 milk bought\nu2 tea bought\nu3 jam bought\n",
    ],
)
def test_edge_lists_with_a_third_column_stay_edge_lists(text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text)[1].format == "edges"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a pp b\nc pp\n", "line 2: expected 'source relation target ...', or a vertex alone"),
        ("a\tpp\tb\n\tpp\td\n", "line 2: expected 'source relation target ...'"),
        ("a 3 b\n", "line 1: the relation '3' is a number: this may be an edge list"),
        ("a\nb\n", "there is no edge in the file"),
    ],
)
def test_sif_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message, format="sif")


# ---------------------------------------------------------------- all of them


def test_limits_hold_while_vertices_and_edges_come() -> None:
    graph = NamedGraph(ReadOptions(limits=ReadLimits(max_vertices=2, max_arcs=2)), listed=False)
    graph.edge("a", "b", 1)
    with pytest.raises(LimitExceeded, match="line 2: 3 vertices"):
        graph.edge("a", "c", 2)
    graph = NamedGraph(ReadOptions(limits=ReadLimits(max_vertices=2, max_arcs=2)), listed=False)
    graph.edge("a", "b", 1)
    graph.edge("a", "b", 2)
    with pytest.raises(LimitExceeded, match="line 3: 3 arcs"):
        graph.edge("a", "b", 3)


def test_a_file_may_invent_names_without_end(tmp_path: Path) -> None:
    """The receipt names twenty of them."""
    nodes = [{"id": i, f"x{i}": 0} for i in range(1000)]
    notes = read(tmp_path, json.dumps({"directed": True, "nodes": nodes, "links": [{"source": 0, "target": 1}]}))[
        1
    ].notes
    assert len(notes) == 1
    assert notes[0].endswith("'x19' and others")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("gexf", gexf("<node id='1' label='b'/><node id='2' label='a'/><edge source='1' target='2' weight='3'/>")),
        ("pajek", '*Vertices 2\n1 "b"\n2 a\n*Edges\n1 2 3\n'),
        (
            "json",
            '{"nodes": [{"id": 1, "label": "b"}, {"id": 2, "label": "a"}],'
            ' "links": [{"source": 1, "target": 2, "weight": 3}]}',
        ),
    ],
)
def test_labels_instead_of_ids(form: str, text: str, tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, text, labels="label", directed=True)
    assert receipt.format == form
    assert arcs_of(graph) == [("b", "a", 3)]
    assert "the vertices are named by their attribute 'label'" in receipt.notes
    twice = text.replace("b'", "a'").replace('"b"', '"a"')
    refused(tmp_path, twice, "label 'a' stands also on line", labels="label")
    without = text.replace(" label='a'", "").replace(', "label": "a"', "").replace("2 a", "2")
    refused(tmp_path, without, "vertex 2 has no 'label'", labels="label")
    refused(tmp_path, text, "vertices have no attribute 'x'", labels="x")


def test_formulas_over_attributes(tmp_path: Path) -> None:
    text = links({"source": "a", "target": "b", "score": 0.75})
    refused(tmp_path, text, "'score' reads like a similarity")
    assert arcs_of(read(tmp_path, text, length_of="1 - score")[0]) == [("a", "b", 0.25)]
    assert arcs_of(read(tmp_path, "1 2 {'score': 0.75}\n", length_of="1 - score")[0]) == [(1, 2, 0.25)]
    assert arcs_of(read(tmp_path, text, unweighted=True)[0]) == [("a", "b", 1)]
