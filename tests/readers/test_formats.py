"""Each format by small files: what it means, its variants, and what is refused by line or field."""

from __future__ import annotations

import gzip
import io
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from storage.errors import ApspError, InvalidGraph, InvalidRequest, LimitExceeded, NegativeCycle
from storage.graph.graph import Graph, Receipt
from storage.readers import FORMATS, ReadLimits, read_graph
from storage.readers.named import NO_DIRECTION


def read(tmp_path: Path, content: str | bytes, name: str = "g.txt", **options: object) -> tuple[Graph, Receipt]:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_graph(path, **options)  # type: ignore[arg-type]


def arcs_of(graph: Graph) -> list[tuple[object, object, float]]:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = graph.labels.tolist()
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return [(names[u], names[v], w) for u, v, w in rows]


def refused(tmp_path: Path, content: str | bytes, message: str, name: str = "g.txt", **options: object) -> None:
    with pytest.raises(ApspError) as caught:
        read(tmp_path, content, name, **options)
    assert isinstance(caught.value, InvalidGraph | InvalidRequest)
    assert message in str(caught.value)


# ---------------------------------------------------------------- DIMACS


def test_pace_is_undirected_and_unweighted(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, "c x\np tw 4 2\n1 2\nc y\n2 3\n")
    assert (graph.n, graph.m, graph.directed, graph.weighted) == (4, 2, False, False)
    refused(tmp_path, "p tw 4 2\n1 2\n2 5\n", "line 3: vertex 5 is outside 1 .. 4")


def test_dimacs_negative_weights_and_many_comments(tmp_path: Path) -> None:
    comments = "c padding padding padding\n" * 4000
    graph, _ = read(tmp_path, f"{comments}p sp 2 1\n{comments}a 1 2 -7\n{comments}")
    assert arcs_of(graph) == [(1, 2, -7)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p sp 3 1\nb 1 2 3\n", "line 2: expected a line that starts with 'a'"),
        ("p sp 3\na 1 2 3\n", "line 1: expected 'p sp VERTICES ARCS'"),
        ("p sp x 1\na 1 2 3\n", "line 1: p 'x' is not a whole number"),
        ("p sp -3 1\na 1 2 3\n", "line 1: a count below zero"),
        ("p sp 50000000 1\na 1 2 3\n", "line 1: 50,000,000 vertices are declared, but only 1 arc follow"),
        ("p sp 3 2\na 1 2 3\na 1 2 9007199254740994\n", "line 3: weight 9007199254740994 is beyond 2^53"),
    ],
)
def test_dimacs_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message, "g.gr", format="dimacs")


def test_dimacs_unweighted(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, "p sp 2 1\na 1 2 9\n", unweighted=True)
    assert (graph.weighted, graph.weights.tolist()) == (False, [1])


# ---------------------------------------------------------------- Matrix Market

MM = "%%MatrixMarket matrix"


def test_matrix_market_coordinate(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, f"{MM} coordinate real general\n% c\n\n3 3 3\n1 2 0\n2 1 1.5\n3 3 2\n")
    assert arcs_of(graph) == [(1, 2, 0), (2, 1, 1.5)]
    graph, _ = read(tmp_path, f"{MM} coordinate integer symmetric\n3 3 1\n3 1 -4\n")
    assert arcs_of(graph) == [(1, 3, -4), (3, 1, -4)]
    assert read(tmp_path, f"{MM} coordinate pattern symmetric\n3 3 1\n3 1\n", directed=True)[0].m == 1
    assert read(tmp_path, f"{MM} coordinate pattern general\n3 3 1\n3 1\n", directed=False)[0].arcs == 2


def test_matrix_market_array(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, f"{MM} array real general\n2 2\n9\n0\n1.5\n7\n")
    assert arcs_of(graph) == [(1, 2, 1.5)]
    graph, _ = read(tmp_path, f"{MM} array integer symmetric\n3 3\n0\n1\n2\n0\n3\n0\n")
    assert arcs_of(graph) == [(1, 2, 1), (1, 3, 2), (2, 1, 1), (2, 3, 3), (3, 1, 2), (3, 2, 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vector coordinate real general\n1 1 0\n", "line 1: expected '%%MatrixMarket matrix"),
        ("matrix list real general\n1 1 0\n", "line 1: unknown form 'list'"),
        ("matrix coordinate real hermitian\n1 1 0\n", "line 1: a hermitian matrix"),
        ("matrix array pattern general\n1 1\n", "line 1: an array of type pattern"),
        ("matrix coordinate real general\n% c\n", "size line is missing"),
        ("matrix coordinate real general\n3 3\n", "line 2: the size line must hold 3 numbers"),
        ("matrix coordinate real general\n3 3 -1\n", "line 2: a size below zero"),
        ("matrix coordinate real general\n3 3 1\n1 4 2\n", "line 3: vertex 4 is outside 1 .. 3 (line 2 declares 3)"),
        ("matrix coordinate integer general\n3 3 1\n1 3 2.5\n", "line 3: weight '2.5' is not a whole number"),
        ("matrix array real general\n2 2\n1\n2\n3\n", "line 2: the size line declares 2 x 2, so 4 entries"),
        ("matrix array real general\n2 2\n1\n2\n3\n4\n5\n", "line 2: the size line declares 2 x 2, so 4 entries"),
        ("matrix array real general\n2 2\n1\nx\n3\n4\n", "line 4: weight 'x' is not a number"),
        ("matrix array real general\n9000000 9000000\n1\n", "line 2: 81,000,000,000,000 arcs are more than"),
    ],
)
def test_matrix_market_refuses(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises((InvalidGraph, LimitExceeded)) as caught:
        read(tmp_path, f"%%MatrixMarket {text}")
    assert message in str(caught.value)


# ---------------------------------------------------------------- METIS


@pytest.mark.parametrize(
    ("header", "lines"),
    [
        ("3 2", ["2", "1 3", "2"]),
        ("3 2 0", ["2", "1 3", "2"]),
        ("3 2 000", ["2", "1 3", "2"]),
        ("3 2 1", ["2 5", "1 5 3 6", "2 6"]),
        ("3 2 001", ["2 5", "1 5 3 6", "2 6"]),
        ("3 2 10", ["9 2", "9 1 3", "9 2"]),
        ("3 2 11", ["9 2 5", "9 1 5 3 6", "9 2 6"]),
        ("3 2 011 2", ["9 8 2 5", "9 8 1 5 3 6", "9 8 2 6"]),
        ("3 2 100", ["7 2", "7 1 3", "7 2"]),
        ("3 2 110 1", ["7 9 2", "7 9 1 3", "7 9 2"]),
        ("3 2 111 3", ["7 9 9 9 2 5", "7 9 9 9 1 5 3 6", "7 9 9 9 2 6"]),
    ],
)
def test_metis_flags(tmp_path: Path, header: str, lines: list[str]) -> None:
    text = "% comment\n" + "\n".join([header, lines[0], "% another", *lines[1:]]) + "\n"
    graph, _ = read(tmp_path, text, "g.graph")
    a, b = (5, 6) if graph.weighted else (1, 1)
    assert arcs_of(graph) == [(1, 2, a), (2, 1, a), (2, 3, b), (3, 2, b)]
    assert graph.weighted == (header.split()[2].endswith("1") if " " in header[3:] else False)


def test_metis_isolated_vertices_are_empty_lines(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, "5 1\n\n3\n \t2\n\n\n\n", "g.graph")
    assert (graph.n, graph.m, receipt.parallel_arcs) == (5, 1, 0)
    assert arcs_of(graph) == [(2, 3, 1), (3, 2, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3 2\n2\n1 3\n", "line 1: declares 3 vertices, but 2 lines follow"),
        ("3 2\n2\n1 3\n2\n1\n", "line 5: more lines than the 3 vertices"),
        ("3 3\n2\n1 3\n2\n", "line 1: declares 3 edges, so 6 neighbours, the file has 4"),
        ("3 2\n2\n% c\n1 4\n2\n", "line 4: neighbour 4 is outside 1 .. 3"),
        ("3 2\n2\n1 0\n2\n", "line 3: neighbour 0 is outside 1 .. 3"),
        ("3 2 1\n2 5\n1 5 3\n2 6\n", "line 3: vertex 2 has 3 numbers"),
        ("3 2 011 2\n9 8 2 5\n9\n9 8 2 6\n", "line 3: vertex 2 has 1 numbers"),
        ("3 2\n2\n1 x\n2\n", "line 3: vertex 'x' is not a number"),
        ("3 2 1\n2 5\n1 5 3 y\n2 6\n", "line 3: number 'y' is not a number"),
        ("3 2\n2\n1 3\n1\n", "vertex 2 lists 3 as a neighbour, but 3 does not list 2"),
        ("2 1 1\n2 5\n1 6\n", "edge 1 - 2 has two weights, 5 and 6"),
        ("3 2 7\n2\n1 3\n2\n", "line 1: expected 'n m [fmt [ncon]]'"),
        ("3 2 1 1 1\n2\n1 3\n2\n", "line 1: expected 'n m [fmt [ncon]]'"),
    ],
)
def test_metis_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message, "g.graph", format="metis")


@pytest.mark.parametrize("few", [0, 1 << 18])  # sorted by scipy.sparse, and without it
def test_metis_names_the_end_that_is_missing_or_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("storage.graph.cleaning.FEW_ARCS", few)
    right = "4 3 1\n2 5 4 8\n1 5 3 7\n2 7\n1 8\n"
    assert arcs_of(read(tmp_path, right, "g.graph")[0])[:2] == [(1, 2, 5), (1, 4, 8)]
    refused(
        tmp_path, right.replace("4 8", "3 8", 1), "vertex 1 lists 3 as a neighbour, but 3", "g.graph", format="metis"
    )
    refused(tmp_path, right.replace("\n1 8", "\n1 9"), "edge 1 - 4 has two weights, 8 and 9", "g.graph", format="metis")
    refused(tmp_path, right.replace("3 7\n", "3 6\n"), "edge 2 - 3 has two weights, 6 and 7", "g.graph", format="metis")


def test_metis_read_as_directed_may_be_one_sided(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, "3 1\n2 3\n\n\n", "g.graph", directed=True)
    assert arcs_of(graph) == [(1, 2, 1), (1, 3, 1)]


# ---------------------------------------------------------------- GML

GML = """Creator "a ] b"
graph [
  directed 1
  # a comment
  node [ id 10 label "ten [" graphics [ x 1.0 [ y 2 ] ] ]
  node [ id -2 ]
  node [ id 7 ]
  edge [ source 10 target -2 value 2.5 label "two
lines" ]
  edge [ source -2 target 10 value 3 ]
]
"""


def test_gml(tmp_path: Path) -> None:
    text = GML.replace("x 1.0 [ y 2 ]", "x 1.0 c [ y 2 ]")
    graph, receipt = read(tmp_path, text)
    assert (receipt.format, receipt.weight_column) == ("gml", "value")
    assert arcs_of(graph) == [(-2, 10, 3), (10, -2, 2.5)]
    assert graph.labels.tolist() == [-2, 7, 10]
    assert graph.directed
    assert not read(tmp_path, text.replace("directed 1", ""))[0].directed
    assert not read(tmp_path, text, unweighted=True)[0].weighted


def test_gml_weight_by_name(tmp_path: Path) -> None:
    text = "graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 km 4 weight 9 ] ]"
    assert read(tmp_path, text)[0].weights.tolist() == [9, 9]
    assert read(tmp_path, text, weight="km")[1].weight_column == "km"
    refused(tmp_path, text, "edges have no attribute 'miles'; they have km, weight", weight="miles")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph [ node [ id 1 ] edge [ source 1 target 2 ] ]", "line 1: there is no node 2"),
        ("graph [ node [ id 1 ]\n node [ id 1 ] ]", "line 2: node 1 stands also on line 1"),
        ("graph [ node [ label 1 ] ]", "line 1: a node without id"),
        ("graph [ node [ id 1 ]\n edge [ source 1 ] ]", "line 2: an edge without target"),
        ("graph [ node [ id 1.5 ] ]", "vertex '1.5' is not a whole number"),
        ("graph [ node [ id 1 ]", "'graph' does not end"),
        ('graph [ node [ id 1 label "x ] ]\n', "line 1: a string that does not end"),
        ("graph [ node 5 ]", "expected '[' after 'node'"),
        (
            "graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 weight 1 ]\nedge [ source 2 target 1 ] ]",
            "line 2: an edge without 'weight'",
        ),
        (
            "graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ]\nedge [ source 2 target 1 weight 1 ] ]",
            "line 2: an edge with 'weight', while the first has no weight",
        ),
        (
            "graph [ node [ id 1 ] node [ id 2 ]\nedge [ source 1 target 2 weight nan ] ]",
            "line 2: weight 'nan' is not a number",
        ),
        ("graph [ x " + "[ x " * 200 + " ]", "nested deeper"),
    ],
)
def test_gml_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message, format="gml", weight=None)


# ---------------------------------------------------------------- GraphML

GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="edge" attr.name="weight" attr.type="double"><default>4.0</default></key>
  <key id="d1" for="node" attr.name="weight" attr.type="double"/>
  <graph id="G" edgedefault="undirected">
    <node id="n0"><data key="d1">9</data></node>
    <node id="n1"/><node id="n2"/><node id="n10"/>
    <edge source="n0" target="n1"><data key="d0">1.5</data></edge>
    <edge source="n1" target="n2"/>
  </graph>
</graphml>
"""


def test_graphml(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, GRAPHML, "g.graphml")
    assert (receipt.format, receipt.weight_column) == ("graphml", "weight")
    assert arcs_of(graph) == [("n0", "n1", 1.5), ("n1", "n0", 1.5), ("n1", "n2", 4), ("n2", "n1", 4)]
    assert graph.labels.tolist() == ["n0", "n1", "n10", "n2"]
    assert read(tmp_path, GRAPHML, directed=True)[0].m == 2
    numbers, _ = read(tmp_path, GRAPHML.replace('"n', '"'))
    assert numbers.labels.tolist() == [0, 1, 2, 10]


def test_graphml_in_utf_16_and_compressed(tmp_path: Path) -> None:
    wide = GRAPHML.replace("UTF-8", "UTF-16").encode("utf-16")
    assert read(tmp_path, wide, "g.xml")[0].m == 2
    assert read(tmp_path, gzip.compress(GRAPHML.encode()), "g.xml.gz")[0].m == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('target="n2"', 'target="n3"', "line 9: there is no node 'n3'"),
        ('<node id="n1"/>', '<node id="n0"/>', "line 7: node 'n0' stands twice"),
        ('<node id="n1"/>', "<node/>", "line 7: <node> without 'id'"),
        ("</edge>", "", "line 9: <edge> stands inside <edge>"),
        ("</graphml>", "", "not well-formed"),
        ("1.5", "x", "line 8: weight 'x' is not a number"),
        ('target="n2"/>', 'target="n2" directed="perhaps"/>', "line 9: directed='perhaps' is unknown"),
        ("undirected", "sideways", "line 5: edgedefault 'sideways' is unknown"),
        ("</graph>", '</graph><graph edgedefault="directed"/>', "a second graph"),
    ],
)
def test_graphml_refuses(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GRAPHML
    refused(tmp_path, GRAPHML.replace(old, new), message, "g.graphml")


@pytest.mark.parametrize(
    "entity",
    ['<!ENTITY a "aaaa">', '<!ENTITY a SYSTEM "file:///etc/passwd">', '<!ENTITY % a SYSTEM "http://127.0.0.1/x">%a;'],
)
def test_graphml_refuses_entities(tmp_path: Path, entity: str) -> None:
    text = GRAPHML.replace("<graphml ", f"<!DOCTYPE graphml [{entity}]>\n<graphml ")
    refused(tmp_path, text, "XML entities are refused", "g.graphml")


# ---------------------------------------------------------------- TNTP

TNTP = """<NUMBER OF ZONES> 2\t\t
<NUMBER OF NODES> 4
<FIRST THRU NODE> 3
<NUMBER OF LINKS> 3
<ORIGINAL HEADER>~ \tInit node \tTerm node ;
<END OF METADATA>

~\tinit_node\tterm_node\tcapacity\tlength\tfree_flow_time\t;
\t1\t2\t100\t5\t0.5\t;
\t2\t3\t100\t6\t\t;
\t3\t1\t100\t7\t0\t;
"""


def test_tntp(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, TNTP)
    assert (receipt.format, receipt.weight_column, graph.n) == ("tntp", "length", 4)
    assert arcs_of(graph) == [(1, 2, 5), (2, 3, 6), (3, 1, 7)]
    assert read(tmp_path, TNTP, weight="3")[1].weight_column == "capacity"
    refused(tmp_path, TNTP, "line 10: the weight is missing", weight="free_flow_time")
    assert read(tmp_path, TNTP.replace("\t\t;", "\t0.25\t;"), weight="free_flow_time")[0].weights.tolist() == [
        0.5,
        0.25,
        0,
    ]
    refused(tmp_path, TNTP, "there is no column 'toll'; there are init_node", weight="toll")
    refused(tmp_path, TNTP, "holds no weights", weight="term_node")
    refused(tmp_path, TNTP.replace("LINKS> 3", "LINKS> 4"), "line 4: declares 4 links, the file has 3")


def test_tntp_with_blanks_and_without_semicolons(tmp_path: Path) -> None:
    text = TNTP.replace("\t6\t\t;", "\t6\t1\t;").replace("\t", " ").replace(";", "")
    assert arcs_of(read(tmp_path, text)[0]) == [(1, 2, 5), (2, 3, 6), (3, 1, 7)]


# ---------------------------------------------------------------- TSPLIB

#: Weights of the edges 1-2, 1-3, 2-3 in every form, the diagonal being 9.
TSPLIB = {
    "FULL_MATRIX": "9 1 2 1 9 3 2 3 9",
    "UPPER_ROW": "1 2 3",
    "LOWER_ROW": "1 2 3",
    "UPPER_DIAG_ROW": "9 1 2 9 3 9",
    "LOWER_DIAG_ROW": "9 1 9 2 3 9",
    "UPPER_COL": "1 2 3",
    "LOWER_COL": "1 2 3",
    "UPPER_DIAG_COL": "9 1 9 2 3 9",
    "LOWER_DIAG_COL": "9 1 2 9 3 9",
}


def tsplib(form: str, body: str, kind: str = "TSP", weights: str = "EXPLICIT", n: str = "3") -> str:
    return (
        f"NAME : x\nTYPE: {kind}\nDIMENSION: {n}\nEDGE_WEIGHT_TYPE: {weights}\nEDGE_WEIGHT_FORMAT: {form}\n"
        f"EDGE_WEIGHT_SECTION\n{body}\nDISPLAY_DATA_SECTION\n1 2 3\nEOF\n"
    )


@pytest.mark.parametrize("form", sorted(TSPLIB))
def test_tsplib_forms(tmp_path: Path, form: str) -> None:
    graph, receipt = read(tmp_path, tsplib(form, TSPLIB[form].replace(" ", "\n", 2)))
    assert receipt.format == "tsplib"
    assert arcs_of(graph) == [(1, 2, 1), (1, 3, 2), (2, 1, 1), (2, 3, 3), (3, 1, 2), (3, 2, 3)]


def test_tsplib_asymmetric_and_zeros(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, tsplib("FULL_MATRIX", "9 0 2 4 9 3 5 6 9", "ATSP"))
    assert graph.directed
    assert arcs_of(graph) == [(1, 2, 0), (1, 3, 2), (2, 1, 4), (2, 3, 3), (3, 1, 5), (3, 2, 6)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (tsplib("UPPER_ROW", "1 2"), "line 3: a UPPER_ROW of dimension 3 has 3 entries, the file has 2"),
        (tsplib("UPPER_ROW", "1 2 3 4"), "line 3: more than the 3 entries"),
        (tsplib("UPPER_ROW", "1\nx 3"), "line 8: weight 'x' is not a number"),
        (tsplib("FUNCTION", "1 2 3"), "line 5: unknown EDGE_WEIGHT_FORMAT FUNCTION"),
        (tsplib("UPPER_ROW", "1 2 3", weights="EUC_2D"), "line 4: EDGE_WEIGHT_TYPE EUC_2D gives coordinates"),
        (tsplib("UPPER_ROW", "1 2 3", kind="CVRP"), "line 2: TYPE CVRP"),
        (tsplib("UPPER_ROW", "1 2 3", n="-1"), "line 3: a dimension of -1"),
        ("NAME: x\nTYPE: TSP\n", "DIMENSION is missing"),
    ],
)
def test_tsplib_refuses(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message)


# ---------------------------------------------------------------- algs4 and RCPSP/max


def test_algs4(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, "\n4\n2\n\n0 1  0.5\n1 3 -2\n")
    assert (receipt.format, graph.n) == ("algs4", 4)
    assert arcs_of(graph) == [(0, 1, 0.5), (1, 3, -2)]
    assert not read(tmp_path, "4\n2\n0 1\n1 3\n")[0].weighted
    refused(tmp_path, "4\n3\n0 1 0.5\n1 3 -2\n", "line 2: declares 3 arcs, the file has 2")
    refused(tmp_path, "4\n2\n0 1 0.5\n1 4 -2\n", "line 4: vertex 4 is outside 0 .. 3 (line 1 declares 4)")
    refused(tmp_path, "-4\n2\n0 1 0.5\n1 4 -2\n", "line 1: a count below zero")


SCH = "1\t5\t0\n0\t1\t1\t1\t[3]\n1\t1\t2\t2\t0\t[4]\t[-5]\n2\t1\t0\n"


def test_rcpsp_max(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, SCH)
    assert receipt.format == "rcpsp-max"
    assert arcs_of(graph) == [(0, 1, -3), (1, 0, 5), (1, 2, -4)]
    refused(tmp_path, SCH.replace("[-5]", "-5"), "line 3: lag '-5' is not written [d]")
    refused(tmp_path, SCH.replace("[-5]", ""), "line 3: 2 successors need 2 lags")
    refused(tmp_path, SCH.replace("\t0\t[4]", "\t3\t[4]"), "line 3: activity 3 is outside 0 .. 2")
    refused(tmp_path, SCH.replace("2\t1\t0\n", ""), "expected 3 activities, found 2")


# ---------------------------------------------------------------- NumPy and SciPy


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def npz(matrix: object) -> bytes:
    out = io.BytesIO()
    scipy.sparse.save_npz(out, matrix)
    return out.getvalue()


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16, np.uint64])
def test_dense(tmp_path: Path, kind: type) -> None:
    graph, receipt = read(tmp_path, npy(np.array([[5, 2, 0], [0, 0, 3], [0, 0, 0]], kind)))
    assert (receipt.format, graph.directed) == ("npy", True)
    assert arcs_of(graph) == [(0, 1, 2), (1, 2, 3)]


def test_dense_infinity_and_order_and_compression(tmp_path: Path) -> None:
    array = np.asfortranarray(np.array([[0, np.inf], [1.5, 0]]))
    graph, _ = read(tmp_path, gzip.compress(npy(array)), "g.npy.gz")
    assert arcs_of(graph) == [(1, 0, 1.5)]
    graph, _ = read(tmp_path, npy(np.array([[True, True], [False, True]])))
    assert (arcs_of(graph), graph.weighted) == ([(0, 1, 1)], False)
    assert read(tmp_path, npy(np.zeros((0, 0))))[0].n == 0


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3)), "shape (2, 3)"),
        (np.zeros(4), "shape (4,)"),
        (np.array([[0, np.nan], [1, 0]]), "row 0, column 1 is nan"),
        (np.array([[0, 1], [-np.inf, 0]]), "row 1, column 0 is -inf"),
        (np.array([[0, 1j], [1, 0]]), "complex128, not numbers"),
        (np.array([["a", "b"], ["c", "d"]]), "not numbers"),
        (np.array([[{}, 1], [2, 3]], object), "object, not numbers"),
        (np.array([[0, 2**63], [1, 0]], np.uint64), "beyond 2^53"),
        (np.array([[0, 2**60], [1, 0]]), "beyond 2^53"),
    ],
)
def test_dense_refuses(tmp_path: Path, array: np.ndarray, message: str) -> None:
    refused(tmp_path, npy(array), message)


def test_dense_header_must_fit_the_file(tmp_path: Path) -> None:
    refused(tmp_path, npy(np.ones((9, 9)))[:-1], "promises 648 bytes")
    refused(tmp_path, npy(np.ones((9, 9))) + b"x", "promises 648 bytes")
    refused(tmp_path, b"\x93NUMPY\x01\x00\x10\x00rubbish", "is no array")


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse(tmp_path: Path, form: str) -> None:
    matrix = scipy.sparse.coo_array(([2.5, 0.0, 4.0], ([0, 1, 2], [1, 2, 2])), shape=(4, 4)).asformat(form)
    graph, receipt = read(tmp_path, npz(matrix), "g.npz")
    assert (receipt.format, graph.n, receipt.self_loops) == ("npz", 4, 1)
    assert arcs_of(graph) == [(0, 1, 2.5), (1, 2, 0)]


def test_sparse_takes_the_minimum_of_repeated_entries(tmp_path: Path) -> None:
    matrix = scipy.sparse.coo_array(([5, 3], ([0, 0], [1, 1])), shape=(2, 2))
    assert arcs_of(read(tmp_path, npz(matrix))[0]) == [(0, 1, 3)]


def test_sparse_of_bool_is_unweighted(tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_array(np.array([[False, True], [False, False]]))
    graph, _ = read(tmp_path, npz(matrix))
    assert (arcs_of(graph), graph.weighted) == ([(0, 1, 1)], False)


def archive(**members: np.ndarray) -> bytes:
    out = io.BytesIO()
    good = {
        "format": np.array(b"csr"),
        "shape": np.array([2, 2]),
        "data": np.array([1.0]),
        "indices": np.array([1]),
        "indptr": np.array([0, 1, 1]),
    }
    np.savez(out, **{k: v for k, v in {**good, **members}.items() if v is not None})
    return out.getvalue()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"indices": np.array([2])}, "column index 2 is outside 0 .. 1"),
        ({"indices": np.array([-1])}, "column index -1 is outside"),
        ({"indices": np.array([1.0])}, "indices must hold whole numbers"),
        ({"indices": np.array([1, 0])}, "1 weights, but 2 column indices"),
        ({"indptr": np.array([0, 1])}, "indptr does not ascend"),
        ({"indptr": np.array([0, 2, 1])}, "indptr does not ascend"),
        ({"shape": np.array([2, 3])}, "shape (2, 3)"),
        ({"data": np.array([1j])}, "not numbers"),
        ({"data": np.array([[1.0]])}, "2 axes"),
        ({"data": np.array([np.nan])}, "weight NaN"),
        ({"data": np.array([{}], object)}, "object, not numbers"),
        ({"format": np.array(b"bsr")}, "save it as csr, csc or coo"),
        ({"indptr": None}, "indptr.npy is missing"),
        ({"format": None}, "no matrix of scipy.sparse.save_npz"),
        ({"shape": np.array([10**8, 10**8])}, "only 1 arc follow"),
    ],
)
def test_sparse_refuses(tmp_path: Path, members: dict[str, np.ndarray], message: str) -> None:
    refused(tmp_path, archive(**members), message, "g.npz")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    good = archive()
    refused(tmp_path, good[: len(good) // 2], "archive is damaged", "g.npz")
    bad = bytearray(good)
    bad[good.index(np.array([1.0]).tobytes())] ^= 1
    refused(tmp_path, bytes(bad), "archive is damaged", "g.npz")


# ---------------------------------------------------------------- Parquet


def parquet(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_parquet(out)
    return out.getvalue()


def test_parquet(tmp_path: Path) -> None:
    content = parquet(pl.DataFrame({"length": [5.5, 6.0], "target": [2, 3], "source": [1, 2**40], "road": ["x", "y"]}))
    graph, receipt = read(tmp_path, content, "g.parquet")
    assert (receipt.format, receipt.weight_column) == ("parquet", "length")
    assert arcs_of(graph) == [(1, 2, 5.5), (2**40, 3, 6)]
    assert read(tmp_path, gzip.compress(content), "g.parquet.gz")[0].m == 2
    assert not read(tmp_path, content, unweighted=True)[0].weighted


def test_parquet_by_position_and_with_names(tmp_path: Path) -> None:
    content = parquet(pl.DataFrame({"one": ["b", "a"], "other": ["a", "ü"], "len": [1, 2], "cost": [3.5, 4.5]}))
    graph, receipt = read(tmp_path, content)
    assert (arcs_of(graph), receipt.weight_column) == ([("a", "ü", 2), ("b", "a", 1)], "len")
    assert read(tmp_path, content, weight="cost")[0].weights.tolist() == [4.5, 3.5]
    assert read(tmp_path, content, weight="4")[0].weights.tolist() == [4.5, 3.5]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"source": [1, None], "target": [2, 3]}, {}, "row 2 of column 'source' is empty"),
        ({"source": [1, 2], "target": [2, 3], "weight": [1.0, None]}, {}, "row 2 of column 'weight' is empty"),
        ({"source": [1, 2], "target": [2, 3], "weight": [1.0, float("nan")]}, {}, "row 2: weight nan"),
        ({"source": [1.5, 2], "target": [2, 3]}, {}, "column 'source' holds Float64"),
        ({"source": [1, 2], "target": [2, 3], "weight": [1, 2**60]}, {}, "beyond 2^53"),
        ({"source": [1, 2], "target": [2, 3], "name": ["a", "b"]}, {"weight": "name"}, "holds String, not weights"),
        ({"source": [1, 2], "target": [2, 3]}, {"weight": "km"}, "the header has source, target"),
        ({"source": [1, 2]}, {}, "needs two columns"),
    ],
)
def test_parquet_refuses(
    tmp_path: Path, columns: dict[str, list[object]], options: dict[str, str], message: str
) -> None:
    refused(tmp_path, parquet(pl.DataFrame(columns, strict=False)), message, "g.parquet", **options)


def test_parquet_weights_of_any_width_and_decimals_keep_their_value(tmp_path: Path) -> None:
    ends = {"source": [1, 2], "target": [2, 3]}
    tenths = pl.Series("weight", [Decimal("1.5"), Decimal("2.25")])
    assert read(tmp_path, parquet(pl.DataFrame({**ends, "weight": tenths})))[0].weights.tolist() == [1.5, 2.25]
    for kind in (pl.Int8, pl.UInt8, pl.Int16, pl.UInt32, pl.UInt64):
        narrow = pl.Series("weight", [3, 100], dtype=kind)
        assert read(tmp_path, parquet(pl.DataFrame({**ends, "weight": narrow})))[0].weights.tolist() == [3, 100]
    for name, frame in {
        "weight": pl.DataFrame({**ends, "weight": pl.Series([1, 2**64 - 3], dtype=pl.UInt64)}),
        "source": pl.DataFrame({**ends, "source": pl.Series([1, 2**63], dtype=pl.UInt64)}),
    }.items():
        refused(tmp_path, parquet(frame), f"in column '{name}' is beyond the range of int64")


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    content = parquet(pl.DataFrame({"source": [1, 2], "target": [2, 3]}))
    refused(tmp_path, content[:-20], "the Parquet file is damaged", "g.parquet")


# ---------------------------------------------------------------- what is left out


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        ("3 2 011 2\n9 8 2 5\n9 8 1 5 3 6\n9 8 2 6\n", ["not read: sizes and weights of vertices"]),
        (
            "Version 1\ngraph [ comment 3 node [ id 1 label a graphics [ x 1 ] ] node [ id 2 ]\n"
            "edge [ source 1 target 2 kind x line [ x 1 ] ] ]\n",
            [
                "not read: attributes of edges 'kind'",
                "no attribute of edges is a usual weight, so every arc weighs 1",
                "not read: lists of edges 'line'",
                "not read: attributes of vertices 'graphics', 'label'",
                "not read: attributes of the graph 'comment'",
            ],
        ),
        (
            "<graphml><key id='c' for='node' attr.name='colour'/><key id='s' for='edge' attr.name='speed'/>"
            "<key id='w' for='edge' attr.name='weight'/><graph edgedefault='directed'><data key='t'>x</data>"
            "<node id='1'><data key='c'>red</data></node><node id='2'/>"
            "<edge source='1' target='2'><data key='w'>1</data><data key='s'>2</data></edge></graph></graphml>",
            [
                "not read: attributes of edges 'speed'",
                "not read: attributes of vertices and of the graph 't', 'colour'",
            ],
        ),
        (
            "<NUMBER OF NODES> 2\n<NUMBER OF LINKS> 1\n<END OF METADATA>\n"
            "~ init_node term_node capacity length toll ;\n1 2 9 3 0 ;\n",
            ["not read: columns capacity, toll"],
        ),
        (
            "TYPE: TSP\nDIMENSION: 2\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\n"
            "EDGE_WEIGHT_SECTION\n0 3\n3 0\nDISPLAY_DATA_SECTION\n1 0 0\n2 1 1\nFIXED_EDGES_SECTION\n1 2\n-1\nEOF\n",
            ["not read: sections 'DISPLAY_DATA_SECTION', 'FIXED_EDGES_SECTION'"],
        ),
        ("source,target,name,weight\n1,2,x,3\n", ["not read: column name", NO_DIRECTION]),
        ("1 2 3 4 x\n2 3 4 5 y\n", ["not read: columns 4, 5", NO_DIRECTION]),
        (
            "1 1 0 0\n0 1 1 1 [0]\n1 1 1 2 [3]\n2 1 0\n0 1 0 0\n1 1 3 1\n2 1 0 0\n",
            ["not read: what follows the lags (durations and resources)"],
        ),
    ],
)
def test_what_is_left_out_is_named_in_the_receipt(content: str, notes: list[str], tmp_path: Path) -> None:
    name = "g.graph" if content.startswith("3 2 011") else "g.txt"
    assert list(read(tmp_path, content, name)[1].notes) == notes


def test_columns_and_members_that_are_left_out_of_binary_files_are_named(tmp_path: Path) -> None:
    frame = pl.DataFrame({"source": [1, 2], "target": [2, 3], "name": ["a", "b"], "weight": [1, 2]})
    assert read(tmp_path, parquet(frame))[1].notes == ("not read: column name", NO_DIRECTION)
    out = io.BytesIO()
    matrix = scipy.sparse.coo_array(([1.5], ([0], [1])), shape=(2, 2))
    np.savez(out, format=b"coo", shape=matrix.shape, data=matrix.data, row=[0], col=[1], names=["a", "b"])
    assert read(tmp_path, out.getvalue())[1].notes == ("not read: members of the archive 'names'",)


def test_a_negative_entry_on_the_diagonal_of_an_array_is_a_negative_cycle(tmp_path: Path) -> None:
    with pytest.raises(NegativeCycle):
        read(tmp_path, f"{MM} array real general\n2 2\n-9\n0\n1.5\n7\n")
    assert read(tmp_path, f"{MM} array real general\n2 2\n9\n0\n1.5\n7\n")[1].self_loops == 2


# ---------------------------------------------------------------- all


WITH_COLUMNS = {
    "edges", "gml", "graphml", "gexf", "pajek", "json", "nx-edgelist", "multiline-adjlist", "tntp", "parquet",
    "osm", "gpkg",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(FORMATS) - WITH_COLUMNS))
def test_formats_without_columns_refuse_a_weight(tmp_path: Path, name: str) -> None:
    refused(tmp_path, "1 2 3\n", "no weight columns to choose from", format=name, weight="x")


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize(
    "content", [b"1 2 3\n2 3 4\n", b"\xff\xfe\x00", b"\x93NUMPY", b"PK\x03\x04rubbish", b"<x", b"[]{}\n"]
)
def test_rubbish_is_refused_in_every_format(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    if name == "edges" and content.startswith(b"1 2 3"):
        assert read_graph(path, format=name)[0].m == 2
        return
    if name == "adjlist" and content.startswith(b"1 2 3"):
        assert read_graph(path, format=name)[0].m == 4
        return
    mode = "walking" if name == "osm" else None
    with pytest.raises((InvalidGraph, LimitExceeded)):
        read_graph(path, format=name, limits=ReadLimits(max_vertices=1000), mode=mode)
