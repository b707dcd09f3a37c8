"""Files as other programs write them: read as the graph that was meant, or refused with a sentence."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest
import scipy.io
import scipy.sparse

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.graph import Graph
from storage.readers import read_graph
from storage.readers.named import NO_DIRECTION

Arcs = dict[tuple[object, object], float]


def arcs_of(graph: Graph) -> Arcs:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = graph.labels.tolist()
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return {(names[u], names[v]): w for u, v, w in rows}


def meant(graph: nx.Graph[Any], names: dict[Any, Any] | None = None, weighted: bool = True) -> Arcs:
    """Arcs of a NetworkX graph with the smallest weight of parallel ones; vertices renamed by ``names``."""
    arcs: Arcs = {}
    for u, v, weight in nx.DiGraph(graph).edges(data="weight", default=1) if not graph.is_multigraph() else both(graph):
        if u != v:
            ends = (names[u], names[v]) if names else (u, v)
            arcs[ends] = min(arcs.get(ends, np.inf), weight if weighted else 1)
    return arcs


def both(graph: nx.Graph[Any]) -> list[tuple[Any, Any, float]]:
    rows = list(graph.edges(data="weight", default=1))
    return rows if graph.is_directed() else rows + [(v, u, w) for u, v, w in rows]


def friends() -> nx.Graph[str]:
    """Undirected, names, fractions; attributes that mean nothing for distances."""
    graph: nx.Graph[str] = nx.Graph(name="friends", year=1999)
    rows = [("Ada", "Bob", 3), ("Bob", "Eve", 0.5), ("Eve", "Zoë", 2.25), ("Ada", "Zoë", 9)]
    graph.add_weighted_edges_from(rows)
    graph.nodes["Ada"]["group"] = 4
    graph.edges["Ada", "Bob"]["kind"] = "old"
    return graph


def roads() -> nx.DiGraph[int]:
    """Directed, whole numbers in another order than they first occur; not symmetric, one self loop."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_weighted_edges_from([(10, 2, 7), (2, 3, 1), (3, 10, 2), (2, 10, 30), (10, 10, 1)])
    return graph


def parallel() -> nx.MultiDiGraph[int]:
    graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    graph.add_weighted_edges_from([(1, 2, 5), (1, 2, 3), (2, 3, 4)])
    return graph


def parallel_undirected() -> nx.MultiGraph[int]:
    return nx.MultiGraph(parallel())


def by_order(graph: nx.Graph[Any], first: int) -> dict[Any, Any]:
    return {node: first + i for i, node in enumerate(graph)}


def nx_file(write: Callable[..., None], **options: Any) -> Callable[[nx.Graph[Any]], bytes]:
    def make(graph: nx.Graph[Any]) -> bytes:
        out = io.BytesIO()
        write(graph, out, **options)
        return out.getvalue()

    return make


def nx_json(data: Callable[..., Any], **options: Any) -> Callable[[nx.Graph[Any]], bytes]:
    return lambda graph: json.dumps(data(graph, **options)).encode()


#: Writers that keep vertices' names, directions and weights.
FULL: dict[str, Callable[[nx.Graph[Any]], bytes]] = {
    "g.graphml": nx_file(nx.write_graphml_xml),
    "g.gexf": nx_file(nx.write_gexf),
    "g11.gexf": nx_file(nx.write_gexf, version="1.1draft"),
    "links.json": nx_json(nx.node_link_data, edges="links"),
    "edges.json": nx_json(nx.node_link_data, edges="edges"),
    "adjacency.json": nx_json(nx.adjacency_data),
    "g.cyjs": nx_json(nx.cytoscape_data),
}
#: Writers that do not say whether edges are directed.
LISTS: dict[str, Callable[[nx.Graph[Any]], bytes]] = {
    "g.edgelist": nx_file(nx.write_edgelist),
    "comma.edgelist": nx_file(nx.write_edgelist, delimiter=","),
    "tab.edgelist": nx_file(nx.write_edgelist, delimiter="\t"),
    "weighted.txt": nx_file(nx.write_weighted_edgelist),
    "weighted.csv": nx_file(nx.write_weighted_edgelist, delimiter=","),
    "multiline.txt": nx_file(nx.write_multiline_adjlist),
}


@pytest.mark.parametrize("make", [friends, roads, parallel, parallel_undirected])
@pytest.mark.parametrize("name", FULL)
def test_what_networkx_writes_whole(name: str, make: Callable[[], nx.Graph[Any]], tmp_path: Path) -> None:
    source = make()
    path = tmp_path / name
    path.write_bytes(FULL[name](source))
    graph, receipt = read_graph(path)
    assert graph.directed == source.is_directed()
    assert arcs_of(graph) == meant(source), receipt
    # The name of the file is not what tells.
    other = path.rename(tmp_path / "file")
    assert read_graph(other)[0].labels.tolist() == sorted(source)


@pytest.mark.parametrize("make", [friends, roads, parallel])
@pytest.mark.parametrize("name", LISTS)
def test_what_networkx_writes_as_lists(name: str, make: Callable[[], nx.Graph[Any]], tmp_path: Path) -> None:
    source = make()
    path = tmp_path / name
    path.write_bytes(LISTS[name](source))
    graph, receipt = read_graph(path, directed=source.is_directed())
    assert arcs_of(graph) == meant(source), receipt
    if "weighted" not in name:
        assert "the file does not say whether its edges are directed" in str(receipt.notes)


@pytest.mark.parametrize("make", [friends, roads])
@pytest.mark.parametrize(
    "write", [nx_file(nx.write_adjlist), nx_file(nx.write_edgelist, data=False)], ids=["adjlist", "plain"]
)
def test_what_networkx_writes_without_weights(
    write: Callable[[nx.Graph[Any]], bytes], make: Callable[[], nx.Graph[Any]], tmp_path: Path
) -> None:
    source = make()
    path = tmp_path / "file"
    path.write_bytes(write(source))
    graph, _ = read_graph(path, directed=source.is_directed())
    assert not graph.weighted
    assert arcs_of(graph) == meant(source, weighted=False)


@pytest.mark.filterwarnings("ignore:Node attribute group is not processed")
@pytest.mark.parametrize("make", [friends, roads])
@pytest.mark.parametrize(("write", "first"), [(nx_file(nx.write_gml), 0), (nx_file(nx.write_pajek), 1)])
def test_what_networkx_numbers(
    write: Callable[[nx.Graph[Any]], bytes], first: int, make: Callable[[], nx.Graph[Any]], tmp_path: Path
) -> None:
    source = make()
    path = tmp_path / "file"
    path.write_bytes(write(source))
    graph, receipt = read_graph(path)
    assert graph.directed == source.is_directed()
    assert arcs_of(graph) == meant(source, by_order(source, first))
    assert "not read: attributes of vertices 'label'" in " ".join(receipt.notes)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (nx_file(nx.write_graph6)(nx.path_graph(3)), "graph6"),
        (nx_file(nx.write_sparse6)(nx.path_graph(3)), "sparse6"),
        (nx_json(lambda graph: nx.tree_data(graph, 0))(nx.path_graph(3, create_using=nx.DiGraph)), "'children'"),
        (b"graph [\n  node [\n    id 0\n  ]\n  edge [\n    source 0\n    target 1\n  ]\n]\n", "there is no node 1"),
    ],
)
def test_what_networkx_writes_and_is_not_read(content: bytes, words: str, tmp_path: Path) -> None:
    refused(tmp_path, content, words)


def refused(tmp_path: Path, content: bytes, words: str, name: str = "file") -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises((InvalidGraph, InvalidRequest)) as caught:
        read_graph(path)
    assert words in str(caught.value)


# ---------------------------------------------------------------- matrices and tables


def npz(graph: nx.Graph[Any]) -> bytes:
    out = io.BytesIO()
    scipy.sparse.save_npz(out, nx.to_scipy_sparse_array(graph, nodelist=sorted(graph)))
    return out.getvalue()


def npy(graph: nx.Graph[Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, nx.to_numpy_array(graph, nodelist=sorted(graph)))
    return out.getvalue()


def mmwrite(graph: nx.Graph[Any]) -> bytes:
    out = io.BytesIO()
    scipy.io.mmwrite(out, nx.to_scipy_sparse_array(graph, nodelist=sorted(graph)), comment="by SciPy")
    return out.getvalue()


@pytest.mark.parametrize("make", [friends, roads])
@pytest.mark.parametrize(("write", "first"), [(npz, 0), (npy, 0), (mmwrite, 1)])
def test_matrices_of_scipy(
    write: Callable[[nx.Graph[Any]], bytes], first: int, make: Callable[[], nx.Graph[Any]], tmp_path: Path
) -> None:
    source = make()
    path = tmp_path / "file"
    path.write_bytes(write(source))
    assert arcs_of(read_graph(path)[0]) == meant(source, {node: first + i for i, node in enumerate(sorted(source))})


ROADS: Arcs = meant(roads())
NAMED: Arcs = {("Ada", "Bob"): 3, ("Bob", "Eve"): 0.5}

TABLES: dict[str, tuple[bytes, Arcs, tuple[str, ...]]] = {
    # polars' write_csv; pandas' to_csv(index=False) writes the same
    "polars": (
        pl.DataFrame({"source": ["Ada", "Bob"], "target": ["Bob", "Eve"], "weight": [3.0, 0.5]}).write_csv().encode(),
        NAMED,
        (NO_DIRECTION,),
    ),
    "pandas with its index": (
        b",source,target,weight\n0,Ada,Bob,3.0\n1,Bob,Eve,0.5\n",
        NAMED,
        ("not read: column 1", NO_DIRECTION),
    ),
    "R": (
        b'"","from","to","weight"\n"1","Ada","Bob",3\n"2","Bob","Eve",0.5\n',
        NAMED,
        ("not read: column 1", NO_DIRECTION),
    ),
    "R without row names": (b'"from","to","weight"\n"Ada","Bob",3\n"Bob","Eve",0.5\n', NAMED, (NO_DIRECTION,)),
    "R's write.table": (b'"from" "to" "weight"\n"Ada" "Bob" 3\n"Bob" "Eve" 0.5\n', NAMED, (NO_DIRECTION,)),
    "Excel in Germany": (
        b"\xef\xbb\xbfSource;Target;Weight\r\nAda;Bob;3\r\nBob;Eve;0,5\r\n",
        NAMED,
        (NO_DIRECTION,),
    ),
    "Excel's Unicode text": (
        "\ufeffSource\tTarget\tWeight\r\nAda\tBob\t3\r\nBob\tEve\t0.5\r\n".encode("utf-16-le"),
        NAMED,
        (NO_DIRECTION,),
    ),
    "SNAP": (
        b"# Directed graph (each unordered pair of nodes is saved once): x.txt\n# Nodes: 3 Edges: 2\n"
        b"# FromNodeId\tToNodeId\n1\t2\n2\t3\n",
        {(1, 2): 1, (2, 3): 1},
        ("line 1 says that the edges are directed", "line 2 declares 3 vertices: 1 .. 3"),
    ),
    "igraph's NCOL": (b"Ada Bob 3\nBob Eve 0.5\n", NAMED, (NO_DIRECTION,)),
    "igraph's edge list": (b"0 1\n1 2\n", {(0, 1): 1, (1, 2): 1}, (NO_DIRECTION,)),
    "KONECT": (
        b"% asym weighted\n% 2 3 3\n1 2 3\n2 3 0.5\n",
        {(1, 2): 3, (2, 3): 0.5},
        ("line 1 says that the edges are directed",),
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_other_programs(name: str, tmp_path: Path) -> None:
    content, arcs, notes = TABLES[name]
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    graph, receipt = read_graph(path)
    assert arcs_of(graph) == arcs
    assert receipt.notes == notes


OSMNX = b"""<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d9" for="edge" attr.name="length" attr.type="string"/>
<key id="d8" for="edge" attr.name="oneway" attr.type="string"/>
<key id="d5" for="node" attr.name="x" attr.type="string"/><key id="d0" for="graph" attr.name="crs" attr.type="string"/>
<graph edgedefault="directed"><data key="d0">epsg:4326</data>
<node id="53"><data key="d5">13.4</data></node><node id="101"/>
<edge source="53" target="101" id="0"><data key="d8">False</data><data key="d9">33.69</data></edge>
<edge source="53" target="101" id="1"><data key="d8">False</data><data key="d9">40.1</data></edge>
<edge source="101" target="53" id="0"><data key="d8">False</data><data key="d9">33.69</data></edge>
</graph></graphml>
"""


def test_a_street_network_of_osmnx_is_measured_in_lengths(tmp_path: Path) -> None:
    path = tmp_path / "g.graphml"
    path.write_bytes(OSMNX)
    graph, receipt = read_graph(path)
    assert arcs_of(graph) == {(53, 101): 33.69, (101, 53): 33.69}
    assert receipt.weight_column == "length"
    assert receipt.notes == (
        "not read: attributes of edges 'oneway'",
        "not read: attributes of vertices and of the graph 'x', 'crs'",
    )


def test_a_table_of_momepy_is_measured_in_lengths(tmp_path: Path) -> None:
    path = tmp_path / "edges.parquet"
    pl.DataFrame(
        {"mm_len": [12.5, 3.0], "node_start": [0, 1], "node_end": [1, 2], "geometry": [b"\x01", b"\x02"]}
    ).write_parquet(path)
    graph, receipt = read_graph(path, weight="mm_len")
    assert arcs_of(graph) == {(0, 1): 12.5, (1, 2): 3}
    assert receipt.notes == ("not read: column geometry", NO_DIRECTION)


STRING = b"protein1 protein2 combined_score\n9606.ENSP1 9606.ENSP2 490\n9606.ENSP2 9606.ENSP3 198\n"


def test_scores_of_string_are_no_lengths(tmp_path: Path) -> None:
    refused(tmp_path, STRING, "'combined_score' reads like a similarity")
    path = tmp_path / "file"
    graph, _ = read_graph(path, length_of="1000 - combined_score")
    assert list(arcs_of(graph).values()) == [510, 802]


GEPHI = "Source,Target,Type,Id,Label,timeset,Weight\n0,1,{},0,,,1.0\n1,2,{},1,,,8.5\n"


def test_a_table_of_gephi_says_whether_it_is_directed(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text(GEPHI.format("Directed", "Directed"))
    graph, receipt = read_graph(path)
    assert graph.directed
    assert arcs_of(graph) == {(0, 1): 1, (1, 2): 8.5}
    assert receipt.notes == ("column 'Type': all edges are directed", "not read: columns Id, Label, timeset")
    path.write_text(GEPHI.format("Undirected", "Undirected"))
    graph, receipt = read_graph(path)
    assert not graph.directed
    assert arcs_of(graph) == {(0, 1): 1, (1, 0): 1, (1, 2): 8.5, (2, 1): 8.5}
    assert arcs_of(read_graph(path, directed=True)[0]) == {(0, 1): 1, (1, 2): 8.5}


@pytest.mark.parametrize("late", [0, 5000])
def test_a_mixed_table_of_gephi_is_refused(late: int, tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text(GEPHI.format("Undirected", "Undirected") + "2,3,Undirected,2,,,1\n" * late + "3,4,Directed,3,,,2\n")
    with pytest.raises(InvalidGraph, match=f"line {late + 4}: .*both directed and undirected.*--directed"):
        read_graph(path)
    assert read_graph(path, directed=False)[0].m == (3 if late == 0 else 4)


# ---------------------------------------------------------------- igraph

IGRAPH_GRAPHML = b"""<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
         xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
<!-- Created by igraph -->
  <key id="v_name" for="node" attr.name="name" attr.type="string"/>
  <key id="e_weight" for="edge" attr.name="weight" attr.type="double"/>
  <graph id="G" edgedefault="undirected">
    <node id="n0"><data key="v_name">Ada</data></node>
    <node id="n1"><data key="v_name">Bob</data></node>
    <edge source="n0" target="n1"><data key="e_weight">3.5</data></edge>
  </graph>
</graphml>
"""
IGRAPH_GML = b"""Creator "igraph version 0.10.4 Sun Nov  1 10:00:00 2026"
Version 1
graph
[
  directed 1
  node
  [
    id 0
    name "Ada"
  ]
  node
  [
    id 1
    name "Bob"
  ]
  edge
  [
    source 0
    target 1
    weight 3.5
  ]
]
"""
IGRAPH_PAJEK = b'*Vertices 3\r\n1 "Ada"\r\n2 "Bob M."\r\n3 "Eve"\r\n*Arcs\r\n1 2 3.5\r\n3 1 1\r\n'
GEPHI_GEXF = b"""<?xml version='1.0' encoding='UTF-8'?>
<gexf xmlns="http://gexf.net/1.3" version="1.3" xmlns:viz="http://gexf.net/1.3/viz"
      xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
      xsi:schemaLocation="http://gexf.net/1.3 http://gexf.net/1.3/gexf.xsd">
  <meta lastmodifieddate="2026-11-01">
    <creator>Gephi 0.10.1</creator>
    <title></title>
    <description></description>
  </meta>
  <graph defaultedgetype="%s" mode="static">
    <attributes class="node" mode="static">
      <attribute id="modularity_class" title="Modularity Class" type="integer"><default>0</default></attribute>
    </attributes>
    <nodes>
      <node id="0" label="Myriel">
        <attvalues><attvalue for="modularity_class" value="0"/></attvalues>
        <viz:size value="22.7"/><viz:position x="-266.8" y="299.7"/><viz:color r="236" g="81" b="72"/>
      </node>
      <node id="1" label="Napoleon"/>
      <node id="2" label="Valjean"/>
    </nodes>
    <edges>
      <edge id="0" source="0" target="1"/>
      <edge id="1" source="1" target="2" weight="8.0" label="old"/>
      %s
    </edges>
  </graph>
</gexf>
"""
CYJS = json.dumps(
    {
        "format_version": "1.0",
        "generated_by": "cytoscape-3.10.1",
        "target_cytoscapejs_version": "~2.1",
        "data": {"shared_name": "x.sif", "name": "x.sif", "SUID": 52, "selected": True},
        "elements": {
            "nodes": [
                {
                    "data": {"id": "61", "shared_name": "Ada", "SUID": 61},
                    "position": {"x": 1, "y": 2},
                    "selected": False,
                },
                {
                    "data": {"id": "62", "shared_name": "Bob", "SUID": 62},
                    "position": {"x": 1, "y": 2},
                    "selected": False,
                },
            ],
            "edges": [
                {
                    "data": {
                        "id": "70",
                        "source": "61",
                        "target": "62",
                        "interaction": "pp",
                        "weight": 3.5,
                        "SUID": 70,
                    },
                    "selected": False,
                }
            ],
        },
    }
).encode()

#: Content; whether directed; arcs; words that the notes must hold.
READ: dict[str, tuple[bytes, bool, Arcs, tuple[str, ...]]] = {
    "igraph GraphML": (IGRAPH_GRAPHML, False, {("n0", "n1"): 3.5, ("n1", "n0"): 3.5}, ("'name'",)),
    "igraph GML": (IGRAPH_GML, True, {(0, 1): 3.5}, ("'name'",)),
    "igraph Pajek": (IGRAPH_PAJEK, True, {(1, 2): 3.5, (3, 1): 1}, ("'label'",)),
    "Gephi GEXF": (
        GEPHI_GEXF % (b"directed", b""),
        True,
        {(0, 1): 1, (1, 2): 8},
        (
            "edges without weight, which take the format's default of 1: 1",
            "'Modularity Class'",
            "'viz:size'",
            "'label'",
        ),
    ),
    "Gephi GEXF, undirected": (
        GEPHI_GEXF % (b"undirected", b""),
        False,
        {(0, 1): 1, (1, 0): 1, (1, 2): 8, (2, 1): 8},
        (),
    ),
    "Gephi GEXF, mixed": (
        GEPHI_GEXF % (b"undirected", b'<edge id="2" source="2" target="0" type="directed" weight="0.5"/>'),
        True,
        {(0, 1): 1, (1, 0): 1, (1, 2): 8, (2, 1): 8, (2, 0): 0.5},
        ("undirected edges among directed ones, each of which became two arcs: 2",),
    ),
    "Gephi Pajek": (
        b'*Vertices 2\n1 "0" 0.1 0.2 0.0\n2 "1" 0.3 0.4 0.0\n*Edges\n1 2 8.0\n',
        False,
        {(1, 2): 8, (2, 1): 8},
        ("coordinates and shapes", "'label'"),
    ),
    "Cytoscape SIF": (
        b"Ada\tpp\tBob M.\tEve\nEve\tpd\tAda\nZ\n",
        True,
        {("Ada", "Bob M."): 1, ("Ada", "Eve"): 1, ("Eve", "Ada"): 1},
        ("not read: the relations 'pp', 'pd'", "does not say whether its edges are directed"),
    ),
    "Cytoscape .cyjs": (
        CYJS,
        False,
        {(61, 62): 3.5, (62, 61): 3.5},
        ("'directed' is missing", "'interaction'", "'position'", "'shared_name'"),
    ),
}


@pytest.mark.parametrize("name", READ)
def test_networks_of_other_programs(name: str, tmp_path: Path) -> None:
    content, directed, arcs, notes = READ[name]
    path = tmp_path / "file"
    path.write_bytes(content)
    graph, receipt = read_graph(path)
    assert graph.directed == directed
    assert arcs_of(graph) == arcs
    for words in notes:
        assert words in " ".join(receipt.notes)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"# Ada\nBob 3\n# Bob\nEve 0.5\n", "LGL of igraph"),
        (b"LEDA.GRAPH\nvoid\nfloat\n-1\n# Vertices\n3\n", "a LEDA graph"),
        (b"/* Created by igraph */\n\ngraph {\n  0;\n  0 -- 1;\n}\n", "Graphviz DOT"),
        (b"nodedef>name VARCHAR,label VARCHAR\n0,Ada\nedgedef>node1 VARCHAR,node2 VARCHAR\n0,1\n", "GDF"),
        (b'<?xml version="1.0"?>\n<graph label="x" xmlns="http://www.cs.rpi.edu/XGMML"></graph>', "root is <graph>"),
        (b'<graph label="x" xmlns="http://www.cs.rpi.edu/XGMML"></graph>', "root is <graph>"),
        (b"<?xml version='1.0' encoding='UTF-8'?>\n<osm version=\"0.6\">\n<node id='1'/></osm>", "needs --mode"),
        (
            b'"SUID","interaction","name","shared name"\n"70","pp","Ada (pp) Bob","Ada (pp) Bob"\n',
            "a table of Cytoscape",
        ),
        (b"p max 3 2\nn 1 s\nn 3 t\na 1 2 3\na 2 3 4\n", "'p max' is another DIMACS format"),
    ],
)
def test_networks_that_are_refused_by_name(content: bytes, words: str, tmp_path: Path) -> None:
    refused(tmp_path, content, words)
