"""Small files as students, spreadsheets, R and Python write them: right or refused, and none silently different."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.io import mmwrite

from storage.errors import InvalidGraph, InvalidRequest
from storage.readers import read_graph

Arcs = dict[tuple[Any, Any], float]
PAIRS = "1 2\n2 3\n3 4\n"
ROWS = "1 2 5\n2 3 4\n3 4 7\n"
NAMES = "Bonn,Jena,5\nJena,Kiel,4\nKiel,Ulm,7\n"
ONES: Arcs = {(1, 2): 1, (2, 3): 1, (3, 4): 1}
LENGTHS: Arcs = {(1, 2): 5, (2, 3): 4, (3, 4): 7}
TOWNS: Arcs = {("Bonn", "Jena"): 5, ("Jena", "Kiel"): 4, ("Kiel", "Ulm"): 7}
SQUARE = "0 1 2 3\n1 0 4 5\n2 4 0 6\n3 5 6 0\n"
CELLS: Arcs = {
    (i, j): float(cell)
    for i, row in enumerate(SQUARE.splitlines())
    for j, cell in enumerate(row.split())
    if cell != "0"
}


def both(arcs: Arcs) -> Arcs:
    return arcs | {(v, u): w for (u, v), w in arcs.items()}


def arcs_of(tmp_path: Path, content: str | bytes, name: str = "g.txt", **options: Any) -> tuple[Arcs, str]:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    graph, receipt = read_graph(path, **options)
    labels = graph.labels.tolist()
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr)).tolist()
    found = {(labels[u], labels[v]): w for u, v, w in zip(tails, graph.heads, graph.weights.tolist(), strict=True)}
    assert graph.n == len(labels)
    return found, "; ".join(receipt.notes)


REFUSED: dict[str, tuple[str, str]] = {
    # -------- the first row is no arc
    "a title": (f"Undirected graph\n{PAIRS}", "begin it with #"),
    "a title of two words": (f"My towns\n{PAIRS}", "begin it with #"),
    "a long title": (f"Towns of the north and roads\n{PAIRS}", "begin it with #"),
    "a title above lengths": (f"weighted graph G\n{ROWS}", "begin it with #"),
    "names of counts": (f"vertices edges\n4 3\n{PAIRS}", "leave out a row of counts"),
    "a count with its name": (f"VERTICES 4\n{PAIRS}", "leave it out if it counts"),
    "a count n": (f"n 4\n{PAIRS}", "leave it out if it counts"),
    "two counts": (f"n 4\nm 3\n{PAIRS}", "leave it out if it counts"),
    "a count above names": ("nodes 4\nA B\nB C\nC D\n", "leave it out if it counts"),
    "a stacked table of pandas": ("level_0,level_1,0\n1,2,3.5\n2,3,4.5\n", "is not like the rows below"),
    "a stacked table of names": ("level_0,level_1,0\nAda,Bob,3.5\nBob,Eve,4.5\n", "is not like the rows below"),
    "numbers of columns": ("0,1,2\n5,6,1.5\n6,7,2.5\n", "number the columns"),
    "unknown names of columns": ("boss,helper\nAda,Bob\nBob,Eve\nEve,Ada\n", "may name the columns or be an arc"),
    "one known name of a column": ("node,cluster\nAda,x\nBob,x\nEve,y\n", "say --from COLUMN and --to COLUMN"),
    # -------- words that say what a row is
    "edge": ("edge 1 2 5\nedge 2 3 4\n", "say --from 2 --to 3"),
    "l of polylines": ("l 1 2\nl 2 3\n", "say --from 2 --to 3"),
    "edge and names": ("edge Ada Bob 5\nedge Bob Eve 4\n", "say --from 2 --to 3"),
    "sentences": ("from A to B 3\nfrom B to C 4\n", "say --from 2 --to 3"),
    "numbers of edges": ("e1 Ada Bob\ne2 Bob Eve\n", "say --from 2 --to 3"),
    "numbers of edges and lengths": ("e1 Ada Bob 5\ne2 Bob Eve 6\n", "--from and --to"),
    "kinds of roads before lengths": ("1 2 road 5\n2 3 path 6\n", "say --weight 4"),
    # -------- vertices and their values
    "heights": ("Bonn 60\nJena 140\nKiel 5\n", "vertices and their values"),
    "places": ("Bonn 50.7 7.1\nJena 50.9 11.6\n", "vertices and their values"),
    "towns and inhabitants": ("city,population\nBonn,330000\nJena,110000\n", "vertices and their values"),
    "numbers and their names": ("1,Bonn\n2,Jena\n", "vertices and their values"),
    "ends in one word": ("AB 3\nBC 4\n", "vertices and their values"),
    # -------- ends in one field
    **{f"joined by {sign}": (f"A{sign}B 3\nB{sign}C 4\n", "two vertices in one field")
       for sign in ("-", "--", ":", "/")},
    "joined, between commas": ("A-B,3\nB-C,4\n", "two vertices in one field"),
    # -------- lengths with something
    "lengths with their name": ("A B w=3\nB C w=4\n", "which is no number"),
    "lengths with a currency": ("A,B,$3\nB,C,$4\n", "which is no number"),
    "equations": ("A B = 3\nB C = 4\n", "which is no number"),
    "lengths behind commas": ("1\t2,7\t3,9\n2\t1,7\t3,10\n", "neighbours with lengths"),
    # -------- programs
    "a dict on one line": ("graph = {'A': ['B', 'C'], 'B': ['C']}\n", "a program"),
    "a dict of dicts": ("G = {'A': {'B': 1}, 'B': {'C': 2}}\n", "a program"),
    "imports": ("import networkx as nx\nG = nx.Graph()\n", "a program"),
    "igraph in R": ("IGRAPH 1a2b UNW- 3 2 --\n+ edges:\n[1] a--b b--c\n", "what R prints"),
    # -------- last rows
    "zeros at the end": (f"{ROWS}0 0 0\n", "the last row holds nothing but 0"),
    "minus ones at the end": (f"{PAIRS}-1 -1\n", "the last row holds nothing but -1"),
    "a sum at the end": ("from,to,km\nA,B,5\nB,C,4\nTotal,2,9\n", "the last row begins with 'Total'"),
    "end": (f"{ROWS}END 0 0\n", "the last row begins with 'END'"),
    # -------- columns
    "an empty cell between tabs": ("a\tb\t3\nb\t\t4\nb\tc\t5\n", "the vertex is missing"),
    "dates as days": ("source,target,time\n1,2,20240101\n2,3,20240102\n", "are dates"),
    "dates of Excel": ("source,target,time\n1,2,44197.5\n2,3,44198.25\n", "are dates"),
    "years": ("source,target,time\n1,2,2015\n2,3,2016\n", "are dates"),
    "days without a header": ("1 2 20240101\n2 3 20240102\n", "read like dates"),
    "times before the vertices": ("time,source,target\n1,5,6\n2,6,7\n", "stands before the vertices"),
    # -------- directions
    "two-way roads": (f"# all roads are two-way\n{ROWS}", "say --undirected or --directed"),
    "bidirectional": (f"# edges are bidirectional\n{ROWS}", "say --undirected or --directed"),
    "not necessarily": (f"# not necessarily directed\n{ROWS}", "say --undirected or --directed"),
    "denied": (f"# weighted=True, directed=False\n{ROWS}", "say --undirected or --directed"),
    "denied in one word": (f"# isDirected: false\n{ROWS}", "say --undirected or --directed"),
    "a question": (f"# undirected?\n{ROWS}", "say --undirected or --directed"),
    # -------- matrices
    "three rows below u, v, w": ("u,v,w\n0,1,5\n1,0,2\n2,1,0\n", "may be a matrix or an edge list"),
    "two rows": ("0 5\n5 0\n", "may be a matrix or an edge list"),
    "two rows of fractions": ("0 3.5\n3.5 0\n", "may be a matrix or an edge list"),
    "three rows with a full diagonal": ("5 1 2\n1 5 3\n2 3 5\n", "may be a matrix or an edge list"),
    "rows of MATLAB": ("0 1 2 3;\n1 0 4 5;\n2 4 0 6;\n3 5 6 0;\n", "leave out the semicolons"),
    "words above a matrix": (f"# A B C D\n{SQUARE}", "may name the 4 columns"),
    "an undirected matrix that is none": (f"# undirected\n{SQUARE.replace('1 0 4', '9 0 4')}", "1 and 9 between"),
    "one half of a matrix": ("0 3 5 2\n0 0 4 1\n0 0 0 6\n0 0 0 0\n", "only above the diagonal, and none elsewhere"),
    "a size above a matrix": (f"4\n{SQUARE}", "leave it out if it counts vertices or rows"),
    **{f"{sign} for no arc": (f"0 3 {sign} 5\n3 0 4 {sign}\n{sign} 4 0 2\n5 {sign} 2 0\n", "may stand for no arc")
       for sign in ("-1", "999", "9999", "1000000", "2147483647", "1e+308")},
    # -------- rows of another kind
    "types below a header": ("source,target\nid,id\n1,2\n2,3\n", "says types or units"),
    "a header among the rows": ("from,to\nAda,Bob\nfrom,to\nBob,Eve\n", "stands among the rows again"),
    "numbers above w": ("2020,2021,w\n1,2,3\n2,3,4\n", "is not like the rows below"),
    "comments behind semicolons": ("1 2 3 ; x\n2 3 4 ; y\n", "between several signs"),
    "a blank before the length": ("A,B 3\nB,C 4\n", "between blanks and commas"),
    "a comma before the length": ("A;B,3\nB;C,4\n", "between several signs"),
    "true and false": ("A B true\nB C false\n", "which is no number"),
    "times before pairs": ("10 1 2\n20 2 3\n30 3 4\n", "may be a time"),
    # -------- columns of directions
    "one-way or not": ("from,to,km,oneway\n1,2,3,yes\n2,3,4,no\n", "says that some rows are arcs both ways"),
    "OSMnx, undirected": (
        "u,v,key,osmid,oneway,length,from,to\n1,2,0,9,True,5,2,1\n2,3,0,9,False,4,2,3\n",
        "says that some rows are arcs both ways",
    ),
    "two-way or not": ("from,to,km,bidirectional\n1,2,3,1\n2,3,4,0\n", "says that some rows are arcs both ways"),
    "pgRouting": ("id,source,target,cost,reverse_cost\n1,5,6,3,4\n2,6,7,5,-1\n", "'reverse_cost' says that some"),
    "many numbers": ("q1 s1 98.5 100 1 0\nq2 s1 90.5 100 1 0\n", "none has a name"),
    "RDF": ("_:a <http://x/r> _:b .\n_:b <http://x/r> _:c .\n", "triples of RDF"),
    "a matrix row by row": ("A,A,0\nA,B,5\nA,C,0\nB,A,5\nB,B,0\nB,C,4\nC,A,0\nC,B,4\nC,C,0\n", "list every pair"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    content, words = REFUSED[name]
    with pytest.raises((InvalidGraph, InvalidRequest)) as caught:
        arcs_of(tmp_path, content)
    assert words in str(caught.value)


READ: dict[str, tuple[str, dict[str, Any], Arcs]] = {
    # -------- what the refusals advise
    "edge, as asked": ("edge 1 2 5\nedge 2 3 4\nedge 3 4 7\n", {"source": "2", "target": "3", "weight": "4"}, LENGTHS),
    "two kinds of vertices, as asked": ("Ada 1\nBob 2\n", {"source": "1", "target": "2"},
                                        {("Ada", "1"): 1, ("Bob", "2"): 1}),
    "two kinds of vertices, as edges": ("Ada 1\nBob 2\n", {"format": "edges"}, {("Ada", "1"): 1, ("Bob", "2"): 1}),
    "two rows, as a matrix": ("0 3.5\n3.5 0\n", {"format": "matrix"}, {(0, 1): 3.5, (1, 0): 3.5}),
    "two rows, both ways the same": ("0 1\n1 0\n", {}, {(0, 1): 1, (1, 0): 1}),
    "dates, as asked": ("1 2 20240101\n", {"weight": "3"}, {(1, 2): 20240101}),
    # -------- names of columns
    **{f"{first} and {second}": (f"{first};{second};{length}\n{NAMES.replace(',', ';')}", {}, TOWNS)
       for first, second, length in (
           ("Von", "Nach", "Entfernung"), ("Quelle", "Ziel", "Gewicht"), ("Start", "Ziel", "Dauer"),
           ("Knoten1", "Knoten2", "Länge"), ("Stadt A", "Stadt B", "km"), ("départ", "arrivée", "durée"),
           ("source", "cible", "poids"), ("origine", "destination", "longueur"), ("origen", "destino", "distancia"),
           ("desde", "hasta", "tiempo"), ("parent", "child", "cost"), ("x", "y", "weight"), ("a", "b", "c"),
           ("V1", "V2", "V3"), ("A_NODE", "B_NODE", "DISTANCE"), ("departure", "arrival", "minutes"))},
    **{f"{first}, {second} above names": (f"{first},{second}\nAda,Bob\nBob,Eve\n", {},
                                          {("Ada", "Bob"): 1, ("Bob", "Eve"): 1})
       for first, second in (("parent", "child"), ("follower", "followee"), ('"V1"', '"V2"'), ("citing", "cited"))},
    "three rows below a, b, c": (f"a,b,c\n{ROWS.replace(' ', ',')}", {}, LENGTHS),
    "links of models of traffic": ("Link ID,A Node,B Node,Length\n9,1,2,5\n8,2,3,4\n7,3,4,7\n", {}, LENGTHS),
    "V1 to V3 beside numbers of rows": ('"","V1","V2","V3"\n"1",1,2,5\n"2",2,3,4\n"3",3,4,7\n"4",1,2,8\n', {},
                                         LENGTHS),
    # -------- tables that are printed
    "printed by pandas": ("  source target  weight\n0   Ada    Bob       3\n1   Bob    Eve       4\n", {},
                          {("Ada", "Bob"): 3, ("Bob", "Eve"): 4}),
    "printed by pandas, as asked": ("     p    q  s\n0  Ada  Bob  3\n1  Bob  Eve  4\n",
                                    {"source": "p", "target": "q", "weight": "s"},
                                    {("Ada", "Bob"): 3, ("Bob", "Eve"): 4}),
    "printed by R": ("  from to weight\n1    1  2      5\n2    2  3      4\n3    3  4      7\n", {}, LENGTHS),
    "empty cells between tabs": ("source\ttarget\tlabel\tweight\n1\t2\t\t5\n2\t3\t\t4\n3\t4\tx\t7\n", {}, LENGTHS),
    # -------- rows
    "semicolons at the ends": ("1 2 5;\n2 3 4;\n3 4 7;\n", {}, LENGTHS),
    "commas, semicolons at the ends": ("1,2,5;\n2,3,4;\n3,4,7;\n", {}, LENGTHS),
    "comments behind rows": ("1 2 5 # first\n2 3 4\n3 4 7 # last one\n", {}, LENGTHS),
    "comments behind rows, commas": ("u,v,w\n1,2,5 # first\n2,3,4\n3,4,7\n", {}, LENGTHS),
    "names with a sign": ("a,b #1,5\nb #1,c #2,6\n", {}, {("a", "b #1"): 5, ("b #1", "c #2"): 6}),
    "decimals as vertices": ("1.0 2.0 5\n2.0 3.0 4\n3.0 4.0 7\n", {}, LENGTHS),
    "decimals in one column": ("source,target,km\n1,2.0,5\n2,3.0,4\n3,4.0,7\n", {}, LENGTHS),
    # -------- directions
    **{comment: (f"# {comment}\n{ROWS}", {}, both(LENGTHS))
       for comment in ("an undirected weighted graph", "This is an undirected graph.", "the edges are not directed",
                       "simple undirected graph of four towns", "non-directed graph", "edges are undirected")},
    "directed": (f"# this graph is directed\n{ROWS}", {}, LENGTHS),
    # -------- matrices
    "names in a comment": ("#A,B,C,D\n" + SQUARE.replace(" ", ","), {},
                           {("ABCD"[i], "ABCD"[j]): w for (i, j), w in CELLS.items()}),
    "an undirected matrix": (f"# undirected\n{SQUARE}", {}, CELLS),
    "one half of an undirected matrix": ("% sym\n0 1 2 3\n0 0 4 5\n0 0 0 6\n0 0 0 0\n", {}, CELLS),
    "a full half, as asked": ("0 3 5\n0 0 4\n0 0 0\n", {"format": "matrix", "directed": True},
                              {(0, 1): 3, (0, 2): 5, (1, 2): 4}),
    "nines that are lengths": ("0 999 950 5\n999 0 4 2\n950 4 0 2\n5 2 2 0\n", {},
                               {(i, j): w for (u, v), w in {(0, 1): 999, (0, 2): 950, (0, 3): 5, (1, 2): 4, (1, 3): 2,
                                                            (2, 3): 2}.items() for i, j in ((u, v), (v, u))}),
    "times before pairs, as asked": ("10 1 2\n20 2 3\n30 3 4\n",
                                     {"source": "2", "target": "3", "unweighted": True}, ONES),
    # -------- columns of directions
    "one-way, all of them": ("from,to,km,oneway\n1,2,5,yes\n2,3,4,yes\n3,4,7,yes\n", {}, LENGTHS),
    "OSMnx": ("u,v,key,osmid,oneway,length\n1,2,0,9,True,5\n2,3,0,9,False,4\n3,4,0,9,True,7\n", {}, LENGTHS),
    "one-way or not, as asked": ("from,to,km,oneway\n1,2,5,yes\n2,3,4,no\n3,4,7,no\n", {"directed": True}, LENGTHS),
    # -------- SIF
    "columns of SIF": ("A pp B\nB pp C\n", {"source": "1", "target": "3"}, {("A", "B"): 1, ("B", "C"): 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_read(name: str, tmp_path: Path) -> None:
    content, options, expected = READ[name]
    assert arcs_of(tmp_path, content, **options)[0] == expected


@pytest.mark.parametrize(
    "name",
    ["source_length", "target_length", "alignment_length", "read_length", "gene_length", "wave_length", "max_m_s",
     "mean_km_h", "flow_h", "node_distance_from_source"],
)  # fmt: skip
def test_columns_of_other_measures_are_no_lengths(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="not named like a length"):
        arcs_of(tmp_path, f"source,target,{name}\n1,2,5\n2,3,4\n")


@pytest.mark.parametrize(
    "name", ["cable_length", "edge_len_m", "shape_length", "min_length", "cost_usd", "bond_length"]
)
def test_lengths_of_edges_are_lengths(name: str, tmp_path: Path) -> None:
    assert arcs_of(tmp_path, f"source,target,{name}\n1,2,5\n2,3,4\n3,4,7\n")[0] == LENGTHS


def test_choices_are_told(tmp_path: Path) -> None:
    assert "a, b, c are no names of columns" in arcs_of(tmp_path, f"a,b,c\n{ROWS.replace(' ', ',')}")[1]
    assert "what follows # in a row is a comment, first on line 2" in arcs_of(tmp_path, "1 2\n2 3 # x\n")[1]
    assert "written as decimals: '1.0'" in arcs_of(tmp_path, "1.0 2.0\n2.0 3.0\n")[1]


# ---------------------------------------------------------------- correlations are no lengths in any format

CORRELATIONS = np.corrcoef(np.random.default_rng(1).random((5, 20)))
WRITE: dict[str, Callable[[Any, Any], object]] = {
    "c.npy": np.save,
    "c.npz": lambda out, matrix: sparse.save_npz(out, sparse.csr_array(matrix)),
    "array.mtx": mmwrite,
    "coordinate.mtx": lambda out, matrix: mmwrite(out, sparse.coo_array(matrix)),
}


@pytest.mark.parametrize("name", WRITE)
def test_correlations_are_refused(name: str, tmp_path: Path) -> None:
    out = io.BytesIO()
    WRITE[name](out, np.abs(CORRELATIONS))
    with pytest.raises(InvalidGraph, match="every entry of the diagonal is 1"):
        arcs_of(tmp_path, out.getvalue(), name)
    assert len(arcs_of(tmp_path, out.getvalue(), name, unweighted=True)[0]) == 20
    out = io.BytesIO()
    WRITE[name](out, np.abs(1 - CORRELATIONS).round(6))
    assert len(arcs_of(tmp_path, out.getvalue(), name)[0]) == 20


@pytest.mark.parametrize("name", WRITE)
def test_loops_of_an_adjacency_are_dropped_as_ever(name: str, tmp_path: Path) -> None:
    out = io.BytesIO()
    WRITE[name](out, np.ones((3, 3)))
    assert len(arcs_of(tmp_path, out.getvalue(), name)[0]) == 6


# ---------------------------------------------------------------- JSON of programs in browsers


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("directed", {("a", "b"): 3, ("b", "c"): 4}),
        ("undirected", both({("a", "b"): 3, ("b", "c"): 4})),
        ("mixed", {("a", "b"): 3, ("b", "c"): 4, ("c", "b"): 4}),
        (None, {("a", "b"): 3, ("b", "c"): 4, ("c", "b"): 4}),
    ],
)
def test_graphology(kind: str | None, expected: Arcs, tmp_path: Path) -> None:
    edges: list[dict[str, Any]] = [
        {"key": "e0", "source": "a", "target": "b", "attributes": {"weight": 3}},
        {"key": "e1", "source": "b", "target": "c", "attributes": {"weight": 4}},
    ]
    if kind in ("mixed", None):
        edges[1]["undirected"] = True
    document: dict[str, Any] = {
        "attributes": {"name": "g"},
        "nodes": [{"key": key, "attributes": {"x": 1}} for key in "abc"],
        "edges": edges,
    }
    if kind is not None:
        document["options"] = {"type": kind, "multi": False, "allowSelfLoops": True}
    assert arcs_of(tmp_path, json.dumps(document))[0] == expected


def test_flat_elements_of_cytoscape(tmp_path: Path) -> None:
    elements = [
        {"data": {"id": "a"}},
        {"data": {"id": "ab", "source": "a", "target": "b", "weight": 3}},
        {"group": "nodes", "data": {"id": "b"}},
    ]
    assert arcs_of(tmp_path, json.dumps({"elements": elements}))[0] == both({("a", "b"): 3})
    with pytest.raises(InvalidGraph, match="only one of 'source' and 'target'"):
        arcs_of(tmp_path, json.dumps({"elements": [{"data": {"id": "a", "source": "b"}}]}))
    with pytest.raises(InvalidGraph, match="an edge without 'source'"):
        arcs_of(tmp_path, json.dumps({"elements": [{"group": "edges", "data": {"id": "a"}}]}))
    with pytest.raises(InvalidGraph, match="say the opposite"):
        arcs_of(tmp_path, json.dumps({"directed": False, "options": {"type": "directed"}, "nodes": [], "edges": []}))
    with pytest.raises(InvalidGraph, match="a node without 'key'"):
        arcs_of(tmp_path, json.dumps({"nodes": [{"key": "a"}, {"id": "b"}], "edges": []}))
