"""Files as people write them by hand: right or refused, and none silently different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from storage.errors import InvalidGraph, InvalidRequest
from storage.readers import read_graph
from storage.readers.named import NO_DIRECTION

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
    "points of thousands": ("A;B;1.200\nB;C;950\n", "line 1: 1.200 may be 1200 or 1.2, beside whole numbers"),
    "commas of thousands": ("A;B;950\nB;C;1,250\n", "line 2: 1,250 may be 1250 or 1.25, beside whole numbers"),
    "points of thousands in a matrix": (";A;B;C\nA;;1.200;3\nB;1.200;;2\nC;3;2;\n", "line 2: 1.200 may be 1200"),
    "a name with and without quotes": ("'A','B',1\nB,A,2\n", "vertex 'A' stands with and without single quotes"),
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


POINT = "the point in numbers such as 1.200 is read as decimal point, not as mark of thousands"
COMMA = "the comma in numbers such as 1,200 is read as decimal comma, not as mark of thousands"
QUOTES = "single quotes are kept as part of the names that they enclose, such as 'A'"
ROWS_OF_THREE = "3 rows of 3 numbers are read as edges; --format matrix reads them as a matrix"

NOTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "three decimals": ("A;B;1.200\nB;C;2.300\n", {}, POINT),
    "three decimals behind a comma": ("A;B;1,200\nB;C;2,300\n", {}, COMMA),
    "three decimals below a header": ("source;target;weight\nA;B;1.200\nB;C;2.300\n", {}, POINT),
    "three decimals in a matrix": (";A;B;C\nA;0;1.200;3.100\nB;1.200;0;2.500\nC;3.100;2.500;0\n", {}, POINT),
    "names in single quotes": ("'A','B',1\n'B','C',2\n", {}, QUOTES),
    "names in single quotes between blanks": ("'A' 'B' 1\n'B' 'C' 2\n", {}, QUOTES),
    "names of a matrix in single quotes": (",'A','B'\n'A',0,1\n'B',1,0\n", {}, QUOTES),
    "three rows that may be a matrix": ("3 1 2\n1 4 5\n2 5 6\n", {}, ROWS_OF_THREE),
    "some entries above the diagonal": ("0 3 5 2\n0 0 0 1\n0 0 0 6\n0 0 0 0\n", {},
        "there are entries only above the diagonal, which are read as directed arcs; --undirected reads both ways"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTED)
def test_noted(name: str, tmp_path: Path) -> None:
    content, options, note = NOTED[name]
    path = tmp_path / "g.txt"
    path.write_text(content)
    assert note in read_graph(path, **options)[1].notes


PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "other decimals": ("A;B;1.200\nB;C;2.35\n", {}),
    "decimals below one": ("A;B;1.200\nB;C;0.300\n", {}),
    "thousands without a mark": ("A;B;1.200\nB;C;1500\n", {}),
    "commas between fields": ("A,B,1.200\nB,C,2\n", {}),
    "apostrophes in names": ("O'Hara,B's,1\nB's,C,2\n", {}),
    "three rows, as asked": ("3 1 2\n1 4 5\n2 5 6\n", {"format": "edges"}),
    "three rows, a column as asked": ("3 1 2\n1 4 5\n2 5 6\n", {"weight": "3"}),
    "three rows below a header": ("source,target,weight\n3,1,2\n1,4,5\n2,5,6\n", {}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_nothing_is_noted_where_there_is_no_doubt(name: str, tmp_path: Path) -> None:
    content, options = PLAIN[name]
    path = tmp_path / "g.txt"
    path.write_text(content)
    assert read_graph(path, **options)[1].notes in ((), (NO_DIRECTION,))


def test_a_mark_of_thousands_far_below_is_found(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text("".join(f"a{i};b{i};{i % 999 + 1}\n" for i in range(50_000)) + "A;B;1.200\n")
    with pytest.raises(InvalidGraph, match=r"line 50001: 1\.200 may be 1200"):
        read_graph(path)


def triangle(n: int, missing: float, *, below: bool = False, gap: bool = False) -> np.ndarray[Any, Any]:
    """A matrix with entries on one side of its diagonal, all or (``gap``) all but one."""
    matrix = np.where(np.triu(np.ones((n, n)), 1) > 0, 2.5, missing)
    if gap:
        matrix[0, n - 1] = missing
    return matrix.T if below else matrix


@pytest.mark.parametrize("missing", [0.0, np.inf])
@pytest.mark.parametrize("below", [False, True])
def test_one_triangle_of_an_array_is_refused_or_noted(missing: float, below: bool, tmp_path: Path) -> None:
    path, side = tmp_path / "g.npy", "below" if below else "above"
    np.save(path, triangle(4, missing, below=below))
    with pytest.raises(InvalidGraph, match=f"only {side} the diagonal, and none elsewhere: say --undirected"):
        read_graph(path)
    assert read_graph(path, directed=True)[0].arcs == 6
    assert read_graph(path, directed=False)[0].arcs == 12
    for name, save in (("gap.npy", np.save), ("full.npz", None), ("gap.mtx", None)):
        matrix = triangle(4, missing, below=below, gap=name.startswith("gap"))
        if save is not None:
            save(tmp_path / name, matrix)
        elif name.endswith("npz"):
            scipy.sparse.save_npz(tmp_path / name, scipy.sparse.csr_array(matrix))
        else:
            scipy.io.mmwrite(tmp_path / name, scipy.sparse.coo_array(matrix), symmetry="general")
        notes = read_graph(tmp_path / name)[1].notes
        assert any(note.startswith(f"there are entries only {side} the diagonal") for note in notes), name
        assert read_graph(tmp_path / name, directed=True)[1].notes == ()


def test_entries_on_both_sides_are_not_noted(tmp_path: Path) -> None:
    matrix = triangle(4, 0.0)
    matrix[3, 0] = 1.0
    np.save(tmp_path / "g.npy", matrix)
    scipy.sparse.save_npz(tmp_path / "g.npz", scipy.sparse.csr_array(matrix))
    assert read_graph(tmp_path / "g.npy")[1].notes == read_graph(tmp_path / "g.npz")[1].notes == ()


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
