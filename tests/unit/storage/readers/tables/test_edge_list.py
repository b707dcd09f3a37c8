"""Edge lists: separators, headers, columns, names, declared counts, and errors by line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.graph import Graph, Receipt
from storage.readers import read_graph
from storage.readers.named import NO_DIRECTION

Arcs = list[tuple[object, object, float]]


def read(tmp_path: Path, text: str, name: str = "g.txt", **options: object) -> tuple[Graph, Receipt]:
    path = tmp_path / name
    path.write_text(text, newline="")
    return read_graph(path, **options)  # type: ignore[arg-type]


def arcs_of(graph: Graph) -> Arcs:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = graph.labels.tolist()
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return [(names[u], names[v], w) for u, v, w in rows]


TWO: Arcs = [(1, 2, 5), (2, 3, 6)]
HALF: Arcs = [(1, 2, 5.5), (2, 3, 6)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 2\n2 3\n", [(1, 2, 1), (2, 3, 1)]),
        ("1 2 5\n2 3 6\n", TWO),
        ("1\t2\t5\n2\t3\t6\n", TWO),
        ("  1   2\t 5 \n2 3 6", TWO),
        ("1,2,5\n2,3,6\n", TWO),
        ("1, 2, 5\n2 ,3 ,6\n", TWO),
        ("1;2;5,5\n2;3;6\n", HALF),
        ("1 2 5.5\n2 3 6\n", HALF),
        ("1 2 55e-1\n2 3 +6\n", HALF),
        ("1 2 .5\n2 3 6.\n", [(1, 2, 0.5), (2, 3, 6)]),
        ('"1","2","5"\n"2","3","6"\n', TWO),
        ("# c\n% c\n\n1 2 5\n# c\n\n2 3 6\n%\n", TWO),
        ("from,to,weight\n1,2,5\n2,3,6\n", TWO),
        ("weight;source;target\n5;1;2\n6;2;3\n", TWO),
        ("u v w\n1 2 5\n2 3 6\n", TWO),
        ("FromNodeId\tToNodeId\tLength_M\n1\t2\t5\n2\t3\t6\n", TWO),
        ("id,from_osmid,to_osmid,name,length\n9,1,2,x,5\n8,2,3,y,6\n", TWO),
        ("alpha,beta,km\n1,2,5\n2,3,6\n", TWO),
        ("1 2 5 road\n2 3 6 path\n", TWO),
        ("1,2,5,\n2,3,6,\n", TWO),
        ("A B 5\nB C 6\n", [("A", "B", 5), ("B", "C", 6)]),
        ("A,B\nB,C\n", [("A", "B", 1), ("B", "C", 1)]),
        ('"B, c","B,c",5\n"B,c","d\t,e",6\n', [("B, c", "B,c", 5), ("B,c", "d\t,e", 6)]),
        ('" a ",b,5\n"b","c ",6\n', [("a", "b", 5), ("b", "c", 6)]),
        ("New York\tBoston\t5\nBoston\tLa Paz\t6\n", [("Boston", "La Paz", 6), ("New York", "Boston", 5)]),
        ('"a,b",c,5\n"d ""e""",c,6\n', [("a,b", "c", 5), ('d "e"', "c", 6)]),
        ("src,dst,km\nÅ,ß,5\nß,日本,6\n", [("Å", "ß", 5), ("ß", "日本", 6)]),
        ("-1 -9223372036854775808 5\n9223372036854775807 -1 6\n", [(-1, -(2**63), 5), (2**63 - 1, -1, 6)]),
    ],
)
def test_forms(tmp_path: Path, text: str, expected: Arcs) -> None:
    graph, receipt = read(tmp_path, text)
    assert receipt.format == "edges"
    assert sorted(arcs_of(graph), key=str) == sorted(expected, key=str)
    assert graph.directed


def test_names_may_come_after_numbers(tmp_path: Path) -> None:
    text = "".join(f"{i} {i + 1} 2\n" for i in range(1500)) + "1500 x17 2\n"
    graph, receipt = read(tmp_path, text)
    assert graph.n == 1502
    assert graph.labels.tolist() == sorted([str(i) for i in range(1501)] + ["x17"])
    assert receipt.notes[:1] == ("the vertices are names because of line 1501: vertex 'x17' is not a number",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 5\n2 3 x\n4 5 6\n", "line 2: weight 'x' is not a number"),
        ("1 2 5\n2 3 \n4 5 6\n", "line 2: expected 3 fields, found 2"),
        ("1 2 5\n2 3 1 7\n4 5 6\n", "line 2: expected 3 fields, found 4"),
        ("from,to,weight,name\n2,3,5,y\n3,4,6\n1,2,1,008,x\n", "line 3: expected 4 fields, found 3"),
        ("from,to,weight,name\n2,3,5,y\n1,2,1,008,x\n3,4,6\n", "line 3: expected 4 fields, found 5"),
        ('"a","b",5,x\n"b","c",6,y\n"c","d",7\n', "line 3: expected 4 fields, found 3"),
        ("1,2,5\n2,3,\n3,4,5\n", "line 2: the weight is missing"),
        ("1,2,5\n2,,4\n3,4,5\n", "line 2: the vertex is missing"),
        ("a,b,5\n,c,4\nd,e,5\n", "line 2: the vertex is missing"),
        ("1 2 5\n2 3 nan\n", "line 2: weight 'nan'"),
        ("1 2 5\n2 3 -inf\n", "line 2: weight '-inf'"),
        ("1 2 5\n2 3 1e309\n", "line 2: weight '1e309' is beyond float64"),
        ("1 2 5\n2 3 1e-400\n", "line 2: weight '1e-400' is so small that float64 would take it for 0: give all"),
        ("1 2 5\n\n# x\n2 3 9007199254740993\n", "line 4: weight 9007199254740993 is beyond 2^53"),
        ("1 2 5.5\n2 3 9007199254740993\n", "line 2: weight 9007199254740993 is beyond 2^53"),
        ("1 2 5\n2 3 -9223372036854775808\n", "line 2: weight -9223372036854775808 is beyond 2^53"),
        ("1 2 5\n2 3.0 6\n3 4 5\n", "line 2: vertex '3.0' is not a whole number"),
        ("1 2 5\n2 3 1,5\n3 4 5\n", "line 2: weight '1,5' is not a number"),
        ('"a",b,5\n"c,b,5\nd,e,6\n', "line 2: the quotes do not match"),
        ("# nothing\n\n", "only comments"),
        ("from,to,weight\n", "no edge in the file"),
        ("\n \n", "only blanks"),
        ("7\n8\n9\n", "line 1: an edge needs at least two fields"),
        ("39 39 3\n1 2\n2 3\n3 4\n", "line 1: '39 39 3' looks like the size line"),
        (
            "# c\n50 50 40\n" + "".join(f"{i} {i + 1} 5\n" for i in range(1, 41)),
            "line 2: '50 50 40' looks like",
        ),
        ("9 0777\n0 1\n1 2\n2 3\n", "line 1: '9 0777' has a number with a leading zero"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidGraph) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_late_error_has_the_right_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from storage.readers import source

    monkeypatch.setattr(source, "BLOCK", 256)
    rows = [f"{i} {i + 1} 2\r" for i in range(5000)]
    rows[4321] = "1 2 zwei\r\n"
    with pytest.raises(InvalidGraph, match=r"^line 4322: weight 'zwei'"):
        read(tmp_path, "".join(rows))


def test_the_weight_column(tmp_path: Path) -> None:
    text = "from,to,length,minutes\n1,2,5,50\n2,3,6,60\n"
    assert read(tmp_path, text)[1].weight_column == "length"
    for option in ("minutes", "Minutes", "4"):
        graph, receipt = read(tmp_path, text, weight=option)
        assert arcs_of(graph) == [(1, 2, 50), (2, 3, 60)]
        assert receipt.weight_column == "minutes"
    graph, receipt = read(tmp_path, text, unweighted=True)
    assert (graph.weighted, receipt.weight_column, graph.weights.tolist()) == (False, None, [1, 1])


def test_the_weight_column_by_number_without_header(tmp_path: Path) -> None:
    text = "5 1 2\n6 2 3\n"
    graph, receipt = read(tmp_path, text, weight="1")
    assert arcs_of(graph) == TWO
    assert receipt.weight_column == "1"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("1 2 5\n", {"weight": "length"}, "no header row"),
        ("1 2 5\n", {"weight": "4"}, "there is no column 4"),
        ("1 2 5\n", {"weight": "0"}, "there is no column 0"),
        ("from,to,km\n1,2,5\n", {"weight": "minutes"}, "the header has from, to, km"),
        ("from,to,km\n1,2,5\n", {"weight": "to"}, "holds vertices"),
        ("1 2\n", {"weight": "2"}, "leaves no two columns"),
        ("1 2 5\n", {"weight": "3", "unweighted": True}, "exclude each other"),
        ("1 2 5\n", {"format": "csv"}, "unknown format 'csv'; known are dimacs, edges"),
    ],
)
def test_wishes_that_make_no_sense(tmp_path: Path, text: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(tmp_path, text, **options)
    assert message in str(caught.value)
    assert caught.value.field in ("weight", "format")


def test_a_text_column_is_no_weight(tmp_path: Path) -> None:
    with pytest.raises(InvalidGraph, match="line 1: weight 'road' is not a number"):
        read(tmp_path, "1 2 road\n2 3 path\n", weight="3")


def test_a_column_that_is_no_weight_is_mentioned(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, "1 2 road\n2 3 path\n")
    assert not graph.weighted
    assert receipt.notes == (
        "no column of weights was found, so every arc weighs 1",
        "not read: column 3",
        NO_DIRECTION,
    )
    assert read(tmp_path, "1 2\n2 3\n")[1].notes == (NO_DIRECTION,)


@pytest.mark.parametrize("text", ["1.5 2.5\n3.5 4.5\n", "1e5 2 3\n2 3 4\n"])
def test_fractions_are_no_vertices(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidGraph, match=r"line 1: vertex .* is not a whole number"):
        read(tmp_path, text)


def test_infinite_weights_are_no_arcs(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, "1 2 5\n2 3 inf\n3 4 +Infinity\n4 1 7\n")
    assert (graph.n, graph.m, receipt.infinite_arcs) == (4, 2, 2)
    assert graph.integral


def test_undirected_on_request(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, "1 2 5\n2 1 3\n2 3 6\n", directed=False)
    assert (graph.directed, graph.m, receipt.parallel_arcs) == (False, 2, 1)
    assert arcs_of(graph) == [(1, 2, 3), (2, 1, 3), (2, 3, 6), (3, 2, 6)]


def test_a_first_line_of_counts_before_wider_rows(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, "6 2\n0 1 5\n1 2 6\n")
    assert graph.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert (graph.m, receipt.entries) == (2, 2)
    assert read(tmp_path, "6 2\n1 2 5\n2 6 6\n")[0].labels.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("first", ["6 3", "2 2", "1 1"])
def test_wrong_counts_are_refused(tmp_path: Path, first: str) -> None:
    with pytest.raises(InvalidGraph, match="line 1: declares"):
        read(tmp_path, f"{first}\n0 1 5\n1 2 6\n")


def test_a_first_line_of_counts_before_pairs(tmp_path: Path) -> None:
    pairs = "".join(f"{i} {i + 1}\n" for i in range(40))
    graph, receipt = read(tmp_path, f"50 40\n{pairs}")
    assert (graph.n, graph.m, receipt.entries) == (50, 40, 40)
    assert read(tmp_path, f"50 39\n{pairs}")[0].n == 42


def test_few_pairs_below_what_may_count_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidGraph, match="line 1: '3 2' may count vertices and the 2 rows below, or be an arc"):
        read(tmp_path, "3 2\n2 1\n1 3\n")
    graph, _ = read(tmp_path, "source target\n3 2\n2 1\n1 3\n")
    assert arcs_of(graph) == [(1, 3, 1), (2, 1, 1), (3, 2, 1)]
    graph, _ = read(tmp_path, "# Nodes: 3 Edges: 2\n2 1\n1 3\n")
    assert arcs_of(graph) == [(1, 3, 1), (2, 1, 1)]


def test_counts_in_a_snap_comment(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, "# Nodes: 5 Edges: 2\n0 1\n1 2\n")
    assert graph.n == 5
    assert read(tmp_path, "# Nodes: 3 Edges: 2\n0 1\n1 7\n")[0].labels.tolist() == [0, 1, 7]


def test_a_count_of_vertices_that_nothing_stands_behind(tmp_path: Path) -> None:
    with pytest.raises(InvalidGraph, match="only 2 arcs follow"):
        read(tmp_path, "100000000 2\n0 1 5\n1 2 6\n")


def test_edge_numbers_in_front(tmp_path: Path) -> None:
    text = "".join(f"{i} {i * 3} {i * 3 + 1} {i}.5\n" for i in range(10))
    graph, receipt = read(tmp_path, text)
    assert arcs_of(graph)[1] == (3, 4, 1.5)
    assert "column 1 numbers the edges" in receipt.notes[0]


def test_names_sort_by_code_point(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, "z,é\né,A\nA,a\na,𝒳\n𝒳,\uffee\n")
    assert graph.labels.tolist() == sorted(["z", "é", "A", "a", "𝒳", "\uffee"])
