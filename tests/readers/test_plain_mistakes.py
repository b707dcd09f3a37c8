"""Files as people write them by hand: right or refused, and none silently different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage.errors import InvalidGraph, InvalidRequest
from storage.readers import read_graph

Arcs = dict[tuple[Any, Any], float]
ROWS = "1 2 7\n2 3 4\n3 4 2\n4 5 1\n5 6 3\n6 1 9\n1 4 2\n2 5 6\n"

REFUSED = {
    "decimal commas between blanks": ("1 2 3,5\n2 3 4,5\n", "between blanks and commas"),
    "decimal commas, names": ("A B 3,5\nB C 1,25\n", "between blanks and commas"),
    "thousands between blanks": ("10 20 1,500\n20 30 2,100\n", "between blanks and commas"),
    "a comma and a blank": ("1 2, 3\n2 3, 4\n", "between blanks and commas"),
    "slashes": ("// my graph\n1 2 3\n2 3 4\n", "comments begin with # or %"),
    "slashes and names": ("// u v\n1 2 3\n2 3 4\n", "comments begin with # or %"),
    "dashes": ("-- my graph\n1 2 3\n2 3 4\n", "comments begin with # or %"),
    "counts and a start": (f"6 8 1\n{ROWS}", "it may count them"),
    "a matrix below its size": ("4 4\n0 1 0 1\n1 0 1 0\n0 1 0 1\n1 0 1 0\n", "may be the size of a matrix"),
    "three rows below their size": ("3 3\n0 1 2\n1 0 3\n2 3 0\n", "may be the size of a matrix"),
    "fractions of seconds": ("SOURCE,TARGET,TIME\n6,2,1289241911.7\n6,5,1289241941.5\n", "are dates"),
    "fractions as names of a matrix": (",3.5,8.1\n3.5,,2.5\n8.1,2.5,\n", "is no column"),
    "units": ("A B 1km\nB C 2km\n", "which is no number"),
    "times of day": ("A B 10:30\nB C 11:00\n", "which is no number"),
    "shares": ("1 2 50%\n2 3 20%\n", "which is no number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    content, words = REFUSED[name]
    path = tmp_path / "g.txt"
    path.write_text(content)
    with pytest.raises((InvalidGraph, InvalidRequest)) as caught:
        read_graph(path)
    assert words in str(caught.value)


MATRIX = {(1, 2): 3, (1, 3): 8, (1, 4): 4, (2, 3): 2, (2, 4): 1, (3, 4): 7}
BOTH = {(u - 1, v - 1): w for (a, b), w in MATRIX.items() for u, v in ((a, b), (b, a))}

READ: dict[str, tuple[str, dict[str, Any], Arcs]] = {
    **{
        f"symmetric, {sign} for no arc": (f"{sign} 3 8 4\n3 {sign} 2 1\n8 2 {sign} 7\n4 1 7 {sign}\n", {}, BOTH)
        for sign in ("-", "NA", ".", "∞", "inf")
    },
    "a named matrix, - for no arc": (
        "  A B C D\nA 0 - 5 -\nB - 0 1 2\nC - 1 0 -\nD - 2 - 0\n",
        {},
        {("A", "C"): 5, ("B", "C"): 1, ("B", "D"): 2, ("C", "B"): 1, ("D", "B"): 2},
    ),
    "row numbers that are named": ("0 a b\n1 b c\n2 c d\n", {"source": "2", "target": "3"},
                                   {("a", "b"): 1, ("b", "c"): 1, ("c", "d"): 1}),
    "prose with commas": ("# weights in km, rounded, checked\n1,2,3\n2,3,4\n", {}, {(1, 2): 3, (2, 3): 4}),
    "a list of words": ("# Berlin, roads, simplified\n1,2,3\n2,3,4\n", {}, {(1, 2): 3, (2, 3): 4}),
    "prose": ("# distances in km\n1 2 3\n2 3 4\n", {}, {(1, 2): 3, (2, 3): 4}),
    "a comment of two words": ("# edge weight\n1 2\n2 3\n", {}, {(1, 2): 1, (2, 3): 1}),
    "blanks in names between tabs": ("From Node\tTo Node\tLength (m)\n1\t2\t10.5\n2\t3\t4\n", {},
                                     {(1, 2): 10.5, (2, 3): 4}),
    "Gephi without a weight": ("Source,Target,Type,Id,Label,timeset\n1,2,Directed,0,,\n2,3,Directed,1,,\n", {},
                               {(1, 2): 1, (2, 3): 1}),
    "numbers of rows beside the ends": ("id,from,to\n0,5,6\n1,6,7\n", {}, {(5, 6): 1, (6, 7): 1}),
    "names with commas and blanks": ("Ada Lovelace, Bob Dylan, 5\nBob Dylan, Eve, 7\n", {},
                                     {("Ada Lovelace", "Bob Dylan"): 5, ("Bob Dylan", "Eve"): 7}),
    "streets": ("Route 66,Main St,5\nMain St,Elm St,7\n", {}, {("Route 66", "Main St"): 5, ("Main St", "Elm St"): 7}),
    "signs as vertices": ("+ - 5\n- * 7\n", {"format": "edges"}, {("+", "-"): 5, ("-", "*"): 7}),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_read(name: str, tmp_path: Path) -> None:
    content, options, arcs = READ[name]
    path = tmp_path / "g.txt"
    path.write_text(content)
    graph, _ = read_graph(path, **options)
    labels = graph.labels.tolist()
    tails = [u for u in range(graph.n) for _ in range(graph.indptr[u], graph.indptr[u + 1])]
    found = {(labels[u], labels[v]): w for u, v, w in zip(tails, graph.heads, graph.weights.tolist(), strict=True)}
    assert found == arcs
    assert graph.n == len({vertex for arc in arcs for vertex in arc})


def test_the_export_of_string_is_asked_for_its_score(tmp_path: Path) -> None:
    path = tmp_path / "string.tsv"
    header = "#node1\tnode2\tnode1_string_id\tnode2_string_id\tcombined_score\n"
    path.write_text(f"{header}ARF5\tSPTBN2\t9606.A\t9606.B\t0.909\nARF5\tKIF13B\t9606.A\t9606.C\t0.91\n")
    with pytest.raises(InvalidRequest, match="combined_score"):
        read_graph(path)


def test_the_line_is_named_and_the_advice_helps(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text(f"# an exercise\n6 8 1\n{ROWS}")
    with pytest.raises(InvalidGraph, match="line 2: the first row begins with '6 8'"):
        read_graph(path)
    path.write_text("* A 5\nA B 3\n")
    with pytest.raises(InvalidGraph, match="add a first row 'source target' or 'source target weight'"):
        read_graph(path)
    path.write_text("source target weight\n* A 5\nA B 3\n")
    assert read_graph(path)[0].labels.tolist() == ["*", "A", "B"]
