"""Right or refused, none silent: text of other programs that would pass for an odd edge list, matrix or network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.graph import Graph
from storage.readers import read_graph

Arcs = dict[tuple[object, object], float]


def arcs_of(graph: Graph) -> Arcs:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = graph.labels.tolist()
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return {(names[u], names[v]): w for u, v, w in rows}


def read(tmp_path: Path, content: str | bytes, name: str = "file", **options: Any) -> tuple[Graph, Any]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_graph(path, **options)


def both(arcs: Arcs) -> Arcs:
    return arcs | {(v, u): w for (u, v), w in arcs.items()}


def network_text(graph: nx.Graph[Any], ascii_only: bool) -> str:
    return "\n".join(nx.generate_network_text(graph, ascii_only=ascii_only)) + "\n"


#: Content and the words of the refusal.
REFUSED: dict[str, tuple[str, str]] = {
    # brackets
    "MATLAB": ("   (2,1)        1\n   (3,1)        4\n   (1,2)        5\n", "SciPy and MATLAB print it"),
    "MATLAB with its name": ("A =\n\n   (2,1)        1\n   (3,1)        4\n", "SciPy and MATLAB print it"),
    "MATLAB fractions": ("(2,1)        0.5000\n(3,1)        4.0000\n", "SciPy and MATLAB print it"),
    "SciPy before 1.13": ("  (0, 1)\t5\n  (1, 2)\t3\n  (2, 0)\t7\n", "SciPy and MATLAB print it"),
    "SciPy": (
        "<Compressed Sparse Row sparse array of dtype 'int64'\n\twith 2 stored elements and shape (3, 3)>\n"
        "  Coords\tValues\n  (0, 1)\t5\n  (1, 2)\t3\n",
        "a sparse matrix as SciPy prints it",
    ),
    "SciPy without its head": ("  Coords\tValues\n  (0, 1)\t5\n  (1, 2)\t3\n", "SciPy and MATLAB print it"),
    "tuples of names": ("('a', 'b', 5)\n('b', 'c', 3)\n", "lists or tuples of Python"),
    "tuples of numbers": ("(1, 2)\n(2, 3)\n", "lists or tuples of Python"),
    "tuples with commas": ("(1, 2, 5),\n(2, 3, 4),\n", "lists or tuples of Python"),
    "lists": ("[1, 2, 3]\n[2, 3, 4]\n", "the file holds no JSON object"),
    "a list of tuples": ("[(1, 2), (2, 3)]\n", "the file holds no JSON object"),
    "numpy's print": ("[[0 5 0]\n [0 0 3]\n [7 0 0]]\n", "the file holds no JSON object"),
    "vertices that are tuples": ("(0, 0) (0, 1) 5\n(0, 1) (1, 1) 3\n", "values in brackets"),
    "vertices that are tuples, with commas": ("(0, 0),(0, 1),5\n(0, 1),(1, 1),3\n", "values in brackets"),
    "a dictionary": ("{0: [1, 2], 1: [2]}\n", "not well-formed JSON"),
    # adjacency with colons
    "colons": ("0: 1 2\n1: 2 0\n2: 0 1\n", "an adjacency list with colons"),
    "colons, names": ("a: b c\nb: c a\n", "an adjacency list with colons"),
    "colons, one neighbour": ("0: 1\n1: 2\n", "an adjacency list with colons"),
    "colons apart": ("0 : 1 2\n1 : 2 0\n", "an adjacency list with colons"),
    "colons and commas": ("0: 1, 2\n1: 2, 0\n", "an adjacency list with colons"),
    "colons, uneven": ("0: 1 2\n1: 2\n2: 0 1 3\n3:\n", "an adjacency list with colons"),
    # pictures and tables
    "network text": (network_text(nx.path_graph(4), False), "drawn with lines"),
    "network text, directed": (network_text(nx.path_graph(4, nx.DiGraph), False), "drawn with lines"),
    "network text in ASCII": (network_text(nx.path_graph(4), True), "drawn with lines"),
    "polars' print": (str(pl.DataFrame({"source": [1, 2], "target": [2, 3], "km": [5, 6]})), "drawn with lines"),
    "psql": (" source | target | km \n--------+--------+----\n a | b | 5\n b | c | 4\n", "drawn with lines"),
    "MySQL": ("+---+---+\n| a | b |\n+---+---+\n| 1 | 2 |\n| 2 | 3 |\n+---+---+\n", "drawn with lines"),
    "Markdown": ("| source | target |\n|:--|--:|\n| a | b |\n| b | c |\n", "a table of Markdown"),
    "Markdown without a line": ("| a | b | 5 |\n| b | c | 4 |\n", "a table of Markdown"),
    "LaTeX": ("\\begin{tabular}{llr}\na & b & 5 \\\\\n\\end{tabular}\n", "LaTeX"),
    # signs between vertices
    "arrows": ("a -> b\nb -> c\n", "has the sign '->'"),
    "arrows and lengths": ("a -> b 5\nb -> c 3\n", "has the sign '->'"),
    "arrows and semicolons": ("a -> b;\nb -> c;\n", "has the sign '->'"),
    "the body of DOT": ("a -- b [weight=5]\nb -- c [weight=3]\n", "has the sign '--'"),
    "the body of DOT, directed": ("a -> b [weight=5];\nb -> c [weight=3];\n", "has the sign '->'"),
    "arrows between commas": ("a,->,b\nb,->,c\n", "has the sign '->'"),
    "dashes": ("a -- b 5\nb -- c 4\n", "has the sign '--'"),
    "bars": ("a | b | 5\nb | c | 3\n", "has the sign '|'"),
    "bars without blanks": ("a|b|5\nb|c|3\n", "at least two fields"),
    "tight arrows": ("a->b\nb->c\n", "arcs with arrows"),
    "tight arrows and lengths": ("a->b 5\nb->c 4\n", "arcs with arrows"),
    "tight arrows between commas": ("a->b,5\nb->c,4\n", "arcs with arrows"),
    # relations and names with blanks
    "names with blanks": ("New York London 5\nLos Angeles Paris 7\n", "ends in a number"),
    "a relation and a number": ("TP53 activates MDM2 0.9\nMDM2 inhibits TP53 0.8\n", "ends in a number"),
    "triples": ("TP53,activates,MDM2\nMDM2,inhibits,TP53\n", "--from 1 --to 3, or --from 1 --to 2"),
    "triples, semicolons": ("TP53;activates;MDM2\nMDM2;inhibits;TP53\n", "--from 1 --to 3"),
    "triples with a number": ("TP53,activates,MDM2,0.9\nMDM2,inhibits,TP53,0.8\n", "--from 1 --to 3"),
    "triples of two kinds": ("aspirin,binds,COX1\nibuprofen,binds,COX2\n", "--from 1 --to 3"),
    # other formats
    "TGF": ("1 a\n2 b\n#\n1 2 5\n", "Trivial Graph Format"),
    "TGF without labels": ("1\n2\n#\n1 2 5\n", "Trivial Graph Format"),
    "TGF without lengths": ("1 a\n2 b\n3 c\n#\n1 2\n2 3\n", "Trivial Graph Format"),
    "TGF with words": ("1 January\n2 March\n3 April\n#\n1 2 X\n2 3 Y\n", "Trivial Graph Format"),
    "DIMACS edges": ("e 1 2\ne 2 3\ne 3 1\n", "the body of a DIMACS file"),
    "DIMACS edges and vertices": ("n 1 1\ne 1 2\ne 2 3\n", "the body of a DIMACS file"),
    "DIMACS edges below comments": ("c a comment\ne 1 2\ne 2 3\n", "the body of a DIMACS file"),
    "gSpan": ("t # 0\nv 0 1\nv 1 1\ne 0 1 2\n", "the body of a DIMACS file"),
    "DIMACS with an arc too short": ("a 1 2\na 2 3\n", "expected 4 fields"),
    "PBBS": ("AdjacencyGraph\n3\n3\n0\n1\n2\n1\n2\n0\n", "a graph of PBBS or Ligra"),
    "PBBS, weighted": ("WeightedAdjacencyGraph\n3\n3\n0\n1\n2\n1\n2\n0\n5\n6\n7\n", "a graph of PBBS or Ligra"),
    "PBBS, edges": ("WeightedEdgeArray\n0 1 5\n1 2 5\n", "a graph of PBBS or Ligra"),
    "DOT below a comment": ("// c\ndigraph {\n a -> b\n}\n", "Graphviz DOT"),
    "DOT below comments": ("// a\n// b\ngraph\n{\n a -- b;\n}\n", "Graphviz DOT"),
    "DOT below a long comment": ("/* c\n more */\ndigraph {\n a -> b\n}\n", "Graphviz DOT"),
    "DOT below a line of the preprocessor": ("# 1 x\ndigraph {\n a -> b\n}\n", "Graphviz DOT"),
    "DOT with its brace below": ("digraph G\n{\n a -> b\n}\n", "Graphviz DOT"),
    "METIS or edges": ("4 4\n2 4\n1 3\n2 4\n1 3\n", "--format metis or --format edges"),
    "METIS or edges, isolated": ("5 3\n2 3\n1 3\n1 2\n\n\n", "--format metis or --format edges"),
    "METIS or edges, sizes": ("4 4 010\n1 2 4\n1 1 3\n2 2 4\n1 1 3\n", "--format metis or --format edges"),
    "TNTP without a vertex to pass": (
        "<NUMBER OF NODES> 3\n<FIRST THRU NODE> 5\n<NUMBER OF LINKS> 2\n<END OF METADATA>\n"
        "~ init_node term_node length ;\n1 2 3 ;\n2 3 4;\n",
        "FIRST THRU NODE is 5, but the vertices end at 3",
    ),
    # numbers and signs
    "points beside commas": ("a;b;1.234\nb;c;0,5\n", "'1.234' has a point"),
    "points and commas in one": ("a;b;1.234,5\nb;c;0,5\n", "'1.234,5' has a point"),
    "thousands": ("a;b;1.234.567\nb;c;2.345.678\n", "is not a number"),
    "a matrix of points and commas": (";a;b\na;0;1.234\nb;0,5;0\n", "one of them may mark thousands"),
    "only comments": ("#1 #2 5\n#2 #3 4\n", "only comments and empty lines"),
    "names like comments": ("a #1 5\n#1 b 4\nb c 3\n", "names begin so"),
    "names like comments, commas": ("a,#1,5\n#1,b,4\nb,c,3\n", "names begin so"),
    "quotes after a thousand rows": ("a b 5\n" * 1200 + '"b" c 4\n', "line 1201: a field in quotes"),
    # matrices
    "a matrix of three": ("0,1,2\n1,2,3\n4,1,6\n7,8,1\n", "3 rows of 3 numbers may be"),
    "a matrix of three, names": ("x1,x2,x3\n1,2,3\n4,1,6\n7,8,1\n", "3 rows of 3 numbers may be"),
    "a matrix of four": ("0,1,2,3\n1,2,3,4\n4,1,6,5\n7,8,1,6\n3,4,5,1\n", "4 rows of 4 numbers may be"),
    "names of rows only": ("a,0,1,2\nb,3,0,4\nc,5,6,0\n", "a matrix whose rows are named"),
    "numbers of rows only": ("0,0,1,2\n1,3,0,4\n2,5,6,0\n", "a matrix whose rows are named"),
    "numbers of rows only, from 1": ("1 0 1 2\n2 3 0 4\n3 5 6 0\n", "a matrix whose rows are named"),
    "correlations": (",a,b,c\na,1,.5,.2\nb,.5,1,.1\nc,.2,.1,1\n", "every entry of the diagonal is 1"),
    "correlations, bare": (
        "\n".join(",".join("1" if i == j else "0.5" for j in range(60)) for i in range(60)) + "\n",
        "every entry of the diagonal is 1",
    ),
    "percentages of likeness": (",a,b\na,100,50\nb,50,100\n", "every entry of the diagonal is 100"),
    "sums": (",a,b,Total\na,0,1,1\nb,2,0,2\nTotal,2,1,3\n", "row 'Total' holds the sums"),
    "sums of pandas' crosstab": ("to,a,b,All\na,0,1.5,1.5\nb,2,0,2\nAll,2,1.5,3.5\n", "row 'All' holds the sums"),
    "a row of sums": (",a,b\na,0,1\nb,2,0\nTotal,2,1\n", "row 'Total' is no column"),
    "a column of sums": (",a,b,Total\na,0,1,1\nb,2,0,2\n", "not square"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    content, words = REFUSED[name]
    with pytest.raises((InvalidGraph, InvalidRequest)) as caught:
        read(tmp_path, content)
    assert words in str(caught.value)


SQUARE: Arcs = {(0, 1): 2, (0, 2): 3, (1, 0): 4, (1, 2): 6, (2, 0): 7, (2, 1): 8}
CHAIN = {("a", "b"): 5, ("b", "c"): 4}
RING: Arcs = {(1, 2): 5, (1, 3): 1, (2, 3): 4}

#: Content; format; whether directed; arcs.
READ: dict[str, tuple[str, str, bool, Arcs]] = {
    "numbers of columns": ("0,1,2\n0,2,3\n4,0,6\n7,8,0\n", "matrix", True, SQUARE),
    "numbers of columns, blanks": (" 0  1  2\n 0  2  3\n 4  0  6\n 7  8  0\n", "matrix", True, SQUARE),
    "numbers of columns from 1": (
        "1;2;3\n;2;3\n4;;6\n7;8;\n",
        "matrix",
        True,
        {(u + 1, v + 1): w for (u, v), w in SQUARE.items()},  # type: ignore[operator]
    ),
    "names of columns": (
        "x,y,z\n0,2,3\n4,0,6\n7,8,0\n",
        "matrix",
        True,
        {("xyz"[u], "xyz"[v]): w for (u, v), w in SQUARE.items()},  # type: ignore[index]
    ),
    "R's quotes": ('"A" "B"\n"A" 0 1\n"B" 3 0\n', "matrix", True, {("A", "B"): 1, ("B", "A"): 3}),
    "R's quotes on rows only": ('A B\n"A" 0 1\n"B" 3 0\n', "matrix", True, {("A", "B"): 1, ("B", "A"): 3}),
    "R's quotes around blanks": (
        '"A 1" "B 2"\n"A 1" 0 1\n"B 2" 3 0\n',
        "matrix",
        True,
        {("A 1", "B 2"): 1, ("B 2", "A 1"): 3},
    ),
    "quotes here and there": ('a "b" 5\n"b" c 4\n', "edges", True, CHAIN),
    "quotes in the second field": ('a "b" 5\nb "c" 4\n', "edges", True, CHAIN),
    "Excel's first line": ("sep=;\na;b;5\nb;c;4\n", "edges", True, CHAIN),
    "Excel's first line and names": ("sep=;\r\nsource;target;weight\r\na;b;5\r\nb;c;4\r\n", "edges", True, CHAIN),
    "Excel's first line, comma": ("SEP=,\nsource,target,weight\na,b,5\nb,c,4\n", "edges", True, CHAIN),
    "Excel's first line in quotes": ('"sep=;"\nsource;target;weight\na;b;5\nb;c;4\n', "edges", True, CHAIN),
    "Excel's first line decides": (
        "sep=,\nsource,target,weight\na;1,b;1,5\n",
        "edges",
        True,
        {("a;1", "b;1"): 5},
    ),
    "Excel's first line, a matrix": ("sep=;\n;a;b\na;0;1,5\nb;2;0\n", "matrix", True, {("a", "b"): 1.5, ("b", "a"): 2}),
    "decimal commas from the first row": (
        "a;b;1,234\nb;c;2,345\n",
        "edges",
        True,
        {("a", "b"): 1.234, ("b", "c"): 2.345},
    ),
    "METIS with sizes and lengths": (
        "3 2 011\n1 2 5\n1 1 5 3 4\n1 2 4\n",
        "metis",
        False,
        both({(1, 2): 5, (2, 3): 4}),
    ),
    "METIS with lengths": ("3 2 001\n2 5\n1 5 3 4\n2 4\n", "metis", False, both({(1, 2): 5, (2, 3): 4})),
    "METIS, regular, with lengths": ("3 3 1\n2 5 3 1\n1 5 3 4\n1 1 2 4\n", "metis", False, both(RING)),
    "METIS, regular": (
        "4 6\n2 3 4\n1 3 4\n1 2 4\n1 2 3\n",
        "metis",
        False,
        {(u, v): 1 for u in range(1, 5) for v in range(1, 5) if u != v},
    ),
    "a count and as many edges": (
        "# Nodes: 4 Edges: 4\n1 2\n2 3\n3 4\n4 1\n",
        "edges",
        True,
        {(1, 2): 1, (2, 3): 1, (3, 4): 1, (4, 1): 1},
    ),
    # names that look like syntax
    "brackets in names": (
        "HLA-A(2) HLA-B(7) 5\nHLA-B(7) C 4\n",
        "edges",
        True,
        {("HLA-A(2)", "HLA-B(7)"): 5, ("HLA-B(7)", "C"): 4},
    ),
    "brackets around beginnings": (
        "(R)-limonene,(S)-carvone(+),5\n(S)-carvone(+),x,4\n",
        "edges",
        True,
        {("(R)-limonene", "(S)-carvone(+)"): 5, ("(S)-carvone(+)", "x"): 4},
    ),
    "bins of pandas": (
        "(0, 10]\t(10, 20]\t5\n(10, 20]\t(20, 30]\t4\n",
        "edges",
        True,
        {("(0, 10]", "(10, 20]"): 5, ("(10, 20]", "(20, 30]"): 4},
    ),
    "one name with half a bracket": (
        "a (b 5\nb c 4\nc d 3\n",
        "edges",
        True,
        {("a", "(b"): 5, ("b", "c"): 4, ("c", "d"): 3},
    ),
    "colons in names": ("GO:1 GO:2 5\nGO:2 GO:3 4\n", "edges", True, {("GO:1", "GO:2"): 5, ("GO:2", "GO:3"): 4}),
    "a vertex that is a dash": ("a,b,1\nb,c,1\nb,-,1\n", "edges", True, {("a", "b"): 1, ("b", "c"): 1, ("b", "-"): 1}),
    "arrows in names": ("A>G C>T 5\nC>T x->y 4\n", "edges", True, {("A>G", "C>T"): 5, ("C>T", "x->y"): 4}),
    "a star of e": ("e x 2\ne y 3\n", "edges", True, {("e", "x"): 2, ("e", "y"): 3}),
    "kinds of edges": (
        "a,b,friend\nb,c,friend\nc,a,foe\n",
        "edges",
        True,
        {("a", "b"): 1, ("b", "c"): 1, ("c", "a"): 1},
    ),
    "a comment between rows": ("1 2\n#\n3 4\n", "edges", True, {(1, 2): 1, (3, 4): 1}),
    "a vertex called Total": (",a,Total\na,0,3\nTotal,2,0\n", "matrix", True, {("a", "Total"): 3, ("Total", "a"): 2}),
}


@pytest.mark.parametrize("name", READ)
def test_read(name: str, tmp_path: Path) -> None:
    content, form, directed, arcs = READ[name]
    graph, receipt = read(tmp_path, content)
    assert receipt.format == form
    assert graph.directed == directed
    assert arcs_of(graph) == arcs


@pytest.mark.parametrize(
    ("content", "options", "arcs"),
    [
        ("a -> b 5\nb -> c 4\n", {"format": "edges", "source": "1", "target": "3"}, CHAIN),
        ("a -> b\nb -> c\n", {"format": "sif"}, {("a", "b"): 1, ("b", "c"): 1}),
        ("p,likes,q\nq,likes,p\n", {"source": "1", "target": "3"}, {("p", "q"): 1, ("q", "p"): 1}),
        ("4 4\n2 4\n1 3\n2 4\n1 3\n", {"format": "metis"}, both({(1, 2): 1, (2, 3): 1, (3, 4): 1, (1, 4): 1})),
        ("a: b\nb: a:\n", {"format": "edges"}, {("a:", "b"): 1, ("b:", "a:"): 1}),
        (",a,b\na,1,1\nb,1,1\n", {"unweighted": True}, {("a", "b"): 1, ("b", "a"): 1}),
        (
            "x1,x2,x3\n1,2,3\n4,1,6\n7,8,1\n",
            {"source": "1", "target": "2", "weight": "3"},
            {(1, 2): 3, (4, 1): 6, (7, 8): 1},
        ),
    ],
)
def test_what_the_refusals_offer_helps(content: str, options: dict[str, Any], arcs: Arcs, tmp_path: Path) -> None:
    assert arcs_of(read(tmp_path, content, **options)[0]) == arcs


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a -- b 5\nb -- c 4\n", "has the sign '--'"),
        ("a | b | 5\nb | c | 3\n", "has the sign '|'"),
        ("New York London 5\nLos Angeles Paris 7\n", "ends in a number"),
        ("a b 5\nb c 4\n", "ends in a number"),
        ("TP53,activates,MDM2\nMDM2,inhibits,TP53\n", "no edge in the file"),
    ],
)
def test_a_name_that_ends_in_sif_is_no_licence(content: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidGraph) as caught:
        read(tmp_path, content, "graph.sif")
    assert words in str(caught.value)


def test_rows_that_are_comments_are_named(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, "# a b 1\na,b,5\n#b,c,4\n# c,d,4\n# checked by hand, 2020\nc,a,3\n")
    assert graph.arcs == 2
    assert receipt.notes[0] == "comments that have the fields of an arc: 2, the first on line 3: '#b,c,4'"


@pytest.mark.parametrize("header", ["from,to,km\n", "# from,to,km\n", "# roads of 1999\n\n", ""])
@pytest.mark.parametrize("above", ["", "# by hand\n"])
@pytest.mark.parametrize("rows", ["%p,b,5\nb,%p,4\n", "%p,b,5\n%p,c,4\nb,%p,4\n", "b,%p,4\n%p,b,5\n"])
def test_arcs_of_a_vertex_that_begins_like_a_comment_are_not_lost(
    header: str, above: str, rows: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidGraph, match=r"'%p,b,5' begins like a comment, but vertex '%p' shows"):
        read(tmp_path, header + above + rows)
    graph, _ = read(tmp_path, header + above + re.sub("(?m)^%p", '"%p"', rows))
    assert graph.arcs == rows.count("\n")


@pytest.mark.parametrize("sign", [",", ";"])
@pytest.mark.parametrize("rows", [500, 0])
@pytest.mark.parametrize(("one", "other"), [('"a "', '"a"'), ('"a "', "a "), ('" a"', '"a "'), ('"a\t"', "a")])
def test_names_that_differ_in_blanks_only_are_not_one_vertex(
    sign: str, rows: int, one: str, other: str, tmp_path: Path
) -> None:
    many = "".join(f"from{i},to{i},1\n" for i in range(rows))
    for first, second in ((one, other), (other, one)):
        content = f"from,to,km\n{first},b,5\n{many * 10}b,{second},4\n".replace(",", sign)
        with pytest.raises(InvalidGraph, match="in blanks only, so these may be two vertices"):
            read(tmp_path, content)
    graph, _ = read(tmp_path, f"from,to,km\n{one},b,5\nb, {one},4\n{many}".replace(",", sign))
    assert "a" in graph.labels.tolist()
    assert graph.arcs == rows + 2


def test_comments_that_name_columns_or_say_something_are_no_arcs(tmp_path: Path) -> None:
    for content in ("# from,to\na,#1\nb,a\n", "# my graph\na #1\n", "# from,to,km\na,#1,4\n"):
        graph, _ = read(tmp_path, content, "graph.csv", directed=True)
        assert "#1" in graph.labels.tolist()


@pytest.mark.parametrize("columns", [["c0", "c1", "c2"], ["0", "1", "2"], ["oslo", "rome", "bonn"]])
@pytest.mark.parametrize("diagonal", [0, 1])
def test_a_matrix_as_parquet_is_refused(columns: list[str], diagonal: int, tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    frame = pl.DataFrame([[diagonal, 2, 3], [4, diagonal, 6], [7, 8, diagonal]], schema=columns, orient="row")
    for table in (frame, frame.with_columns(pl.Series("__index_level_0__", columns))):
        table.write_parquet(path)
        with pytest.raises(InvalidGraph, match="may be a matrix"):
            read_graph(path)
        assert read_graph(path, source=columns[0], target=columns[1], weight=columns[2])[0].arcs == 3
    frame.rename({columns[0]: "from", columns[1]: "to"}).write_parquet(path)
    assert read_graph(path, weight=columns[2])[0].arcs == 3


def link(**members: object) -> dict[str, object]:
    return {"source": "a", "target": "b", **members}


NODES = [{"id": "a"}, {"id": "b"}, {"id": "c"}]
SECOND = {"source": "b", "target": "c"}

#: Links; members of the file; what they become, or the words of the refusal.
JSON: dict[str, tuple[list[dict[str, object]], dict[str, object], tuple[bool, Arcs] | str]] = {
    "D3's value": ([link(value=8)], {}, "'value' in JSON mostly counts"),
    "a weight beside a value": ([link(value=8, weight=2)], {}, (False, both({("a", "b"): 2}))),
    "graphology": ([link(attributes={"weight": 7})], {}, (False, both({("a", "b"): 7}))),
    "two weights": ([link(weight=1, attributes={"weight": 7})], {}, "in its 'attributes', too"),
    "all edges directed": ([link(directed=True)], {}, (True, {("a", "b"): 1})),
    "all edges undirected": ([link(undirected=True)], {"directed": True}, (False, both({("a", "b"): 1}))),
    "mixed": (
        [link(directed=True), SECOND | {"directed": False}],
        {},
        (True, {("a", "b"): 1} | both({("b", "c"): 1})),
    ),
    "mixed in a directed graph": (
        [link(), SECOND | {"directed": False}],
        {"directed": True},
        (True, {("a", "b"): 1} | both({("b", "c"): 1})),
    ),
    "against the graph": ([link(directed=True)], {"directed": False}, "--directed or --undirected"),
    "said by some": ([link(directed=True), SECOND], {}, "some edges say"),
    "said in words": ([link(directed="yes")], {}, "'directed' of this edge is not understood"),
}


@pytest.mark.parametrize("name", JSON)
def test_json_of_other_programs(name: str, tmp_path: Path) -> None:
    links, members, expected = JSON[name]
    content = json.dumps({**members, "nodes": NODES, "links": links})
    if isinstance(expected, str):
        with pytest.raises((InvalidGraph, InvalidRequest)) as caught:
            read(tmp_path, content)
        assert expected in str(caught.value)
        return
    graph, _ = read(tmp_path, content)
    assert (graph.directed, arcs_of(graph)) == expected


def test_the_value_of_d3_is_read_on_request(tmp_path: Path) -> None:
    content = json.dumps({"nodes": NODES, "links": [link(value=8)]})
    assert arcs_of(read(tmp_path, content, weight="value")[0]) == both({("a", "b"): 8})
    assert arcs_of(read(tmp_path, content, length_of="1 / value")[0]) == both({("a", "b"): 0.125})
    assert arcs_of(read(tmp_path, content, unweighted=True)[0]) == both({("a", "b"): 1})


MIXED = {
    "graphml": '<graphml><key id="w" for="edge" attr.name="weight"/><graph edgedefault="%s"><node id="a"/>'
    '<node id="b"/><node id="c"/><edge source="a" target="b" directed="true"><data key="w">5</data></edge>'
    '<edge source="b" target="c" directed="false"><data key="w">4</data></edge></graph></graphml>',
    "gml": "graph [ directed %s node [ id 1 ] node [ id 2 ] node [ id 3 ] "
    "edge [ source 1 target 2 directed 1 weight 5 ] edge [ source 2 target 3 directed 0 weight 4 ] ]",
}


@pytest.mark.parametrize("form", MIXED)
@pytest.mark.parametrize("default", [False, True])
def test_undirected_edges_among_directed_ones_become_two_arcs(form: str, default: bool, tmp_path: Path) -> None:
    word = {"graphml": ("undirected", "directed"), "gml": ("0", "1")}[form][default]
    a, b, c = ("a", "b", "c") if form == "graphml" else (1, 2, 3)
    graph, receipt = read(tmp_path, MIXED[form] % word)
    assert graph.directed
    assert arcs_of(graph) == {(a, b): 5, (b, c): 4, (c, b): 4}
    assert "undirected edges among directed ones, each of which became two arcs: 1" in receipt.notes
    assert arcs_of(read(tmp_path, MIXED[form] % word, directed=False)[0]) == both({(a, b): 5, (b, c): 4})
    assert arcs_of(read(tmp_path, MIXED[form] % word, directed=True)[0]) == {(a, b): 5, (b, c): 4}
