"""A vertex is its name: no two spellings become one vertex, and what is printed finds what was written."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from storage.errors import InvalidGraph, NotFound
from storage.graph.cleaning import is_label
from storage.graph.graph import Graph, build_graph, index_of
from storage.readers import read_graph
from storage.readers.tables.csv_columns import may_have_other_spellings


def read(tmp_path: Path, text: str, name: str = "g.csv", **options: object) -> Graph:
    path = tmp_path / name
    path.write_text(text)
    return read_graph(path, **options)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("2139,02138,5\n02138,2138,3\n2140,2138,1\n", ["02138", "2138", "2139", "2140"]),
        ("02138,2139,5\n2139,2140,3\n", ["02138", "2139", "2140"]),
        ("2139,2140,5\n2139,02138,3\n", ["02138", "2139", "2140"]),
        ("02138 2139\n2139 2140\n", ["02138", "2139", "2140"]),
        ("source,target\n9,0777\n0,1\n1,2\n", ["0", "0777", "1", "2", "9"]),
        ("1,2,5\n+1,2,6\n", ["+1", "1", "2"]),
        ("0,2,5\n-0,2,6\n", ["-0", "0", "2"]),
        ("1,2,5\n1,9223372036854775808,6\n", ["1", "2", "9223372036854775808"]),
        ("1,2,5\n1,-9223372036854775809,6\n", ["-9223372036854775809", "1", "2"]),
        ('"007","7",5\n"7","8",6\n', ["007", "7", "8"]),
        ("-5,5,1\n-5,0,2\n", [-5, 0, 5]),
        ("1,20,0.05\n20,300,1e+05\n", [1, 20, 300]),
        ("1,2,+5\n2,3,-0\n", [1, 2, 3]),
        ("1 2 05\n2 3 006\n", [1, 2, 3]),
        ("a,1.0,5\na,1,6\n1,a,6\n", ["1", "1.0", "a"]),
        ("a,1e3,5\na,1000,6\n1000,a,6\n", ["1000", "1e3", "a"]),
        ("a\u00a0b,1,5\na b,1,6\n1,a b,6\n", ["1", "a b", "a\u00a0b"]),
        ("a\tb,1,5\na b,1,6\n1,a b,6\n", ["1", "a\tb", "a b"]),
        ("a,\tb;1;5\na, b;1;6\n1;a, b;6\n", ["1", "a,\tb", "a, b"]),
        ("٣,3,5\n3,4,6\n", ["3", "4", "٣"]),
    ],
)
def test_no_two_spellings_become_one_vertex(tmp_path: Path, text: str, labels: list[object]) -> None:
    graph = read(tmp_path, text)
    assert graph.labels.tolist() == labels
    assert [index_of(graph, str(label)) for label in labels] == list(range(len(labels)))


def test_the_receipt_says_why_numbers_are_names(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("1,2,5\n2,007,3\n")
    (note,) = read_graph(path, directed=True)[1].notes
    assert note == "the vertices are names because of line 2: vertex '007' is written with a leading zero"


@pytest.mark.parametrize("text", ["1,2,5\n2.0,3,6\n", "1,2,5\n1e3,3,6\n", "1.5,2,5\n2,3,6\n"])
def test_numbers_that_are_not_whole_are_no_vertices(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidGraph, match="is not a whole number"):
        read(tmp_path, text)


def test_a_late_leading_zero_makes_all_vertices_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from storage.readers import source

    monkeypatch.setattr(source, "BLOCK", 512)
    graph = read(tmp_path, "".join(f"{i},{i + 1},2\n" for i in range(3000)) + "0000,1,2\n")
    assert graph.n == 3002
    assert "0000" in graph.labels.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_as_many_vertices_as_spellings(tmp_path: Path, seed: int) -> None:
    """Random spellings in random separators; what is in the graph is what a set of strings says."""
    draw = random.Random(seed)
    names = [draw.choice(["", "", "", "0", "+", "-", "00"]) + str(draw.choice([0, 1, 7, 10, 2**63])) for _ in range(40)]
    gap = draw.choice([",", ";", "\t", " "])
    rows = [(draw.choice(names), draw.choice(names)) for _ in range(30)]
    rows = [("x", "y"), *((u, v) for u, v in rows)] if draw.random() < 0.3 else rows
    text = gap.join(["source", "target", "weight"]) + "\n" + "".join(f"{u}{gap}{v}{gap}5\n" for u, v in rows)
    wanted = {name for row in rows for name in row}
    assert {str(label) for label in read(tmp_path, text).labels} == wanted, (seed, text)


def test_formats_that_count_their_vertices_take_numbers_for_what_they_mean(tmp_path: Path) -> None:
    assert read(tmp_path, "p sp 2 1\na 01 +2 3\n", "g.gr").labels.tolist() == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "a 01 2 5\na 1 3 5\n",
        "graph [ node [ id 1 ] node [ id 01 ] edge [ source 1 target 01 ] ]\n",
        "graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target +2 ] ]\n",
        "<NUMBER OF NODES> 2\n<END OF METADATA>\n~ init_node term_node length ;\n01 2 3 ;\n",
    ],
)
def test_formats_whose_names_are_numbers_refuse_other_spellings(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidGraph, match=r"line \d: vertex '[+0]\d' is written with a"):
        read(tmp_path, text, "g.txt")


def test_graphml_keeps_the_spelling_of_ids(tmp_path: Path) -> None:
    nodes = '<node id="007"/><node id="8"/>'
    text = f'<graphml><graph edgedefault="directed">{nodes}<edge source="007" target="8"/></graph></graphml>'
    assert read(tmp_path, text).labels.tolist() == ["007", "8"]


def test_parquet_keeps_the_spelling_of_text(tmp_path: Path) -> None:
    pl.DataFrame({"source": ["02138", "2138"], "target": ["2138", "1"]}).write_parquet(tmp_path / "g.parquet")
    assert read_graph(tmp_path / "g.parquet")[0].labels.tolist() == ["02138", "1", "2138"]


@pytest.mark.parametrize("column", [0, 1])
def test_build_graph_refuses_labels_beyond_int64(column: int) -> None:
    ends = [[2**63 + 5], [1]]
    with pytest.raises(InvalidGraph, match="9223372036854775813 is beyond the range of int64"):
        build_graph(ends[column], ends[1 - column], [1], directed=True)
    with pytest.raises(InvalidGraph, match="is beyond the range of int64"):
        build_graph([0], [1], [1], labels=np.array([1, 2**63], np.uint64), directed=True)
    assert build_graph(np.array([7], np.uint64), [1], [1], directed=True)[0].labels.tolist() == [1, 7]


def test_build_graph_refuses_fractions_as_labels() -> None:
    with pytest.raises(InvalidGraph, match="labels are whole numbers or text, not float64"):
        build_graph([0], [1], [1], labels=[1.0, 10.0], directed=True)


@pytest.mark.parametrize("name", ["02138", "+2138", "2138.0", "٢", "-0", str(2**63)])
def test_a_vertex_is_found_by_its_one_spelling(name: str) -> None:
    graph, _ = build_graph([2138, 0], [1, 2], [1, 1], directed=True)
    with pytest.raises(NotFound, match="no vertex"):
        index_of(graph, name)


def test_what_counts_as_a_number() -> None:
    assert all(map(is_label, ["0", "7", "-7", "10", str(2**63 - 1), str(-(2**63))]))
    odd = ["", "-", "00", "-0", "+1", "01", "1.0", "1e3", " 1", "1 ", "1\n", "٣", str(2**63), "1" * 5000]
    assert not any(map(is_label, odd))


def test_blocks_with_other_spellings_are_noticed() -> None:
    plain = ["1 2 5\n", "10,20,0.05\n", "100;200;1.005\n", "-5 -10 3\n", "0 0 0\n"]
    odd = ["01 2 5\n", "1 02 5\n", "+1 2 5\n", "-0 2 5\n", '"01",2,5\n', "1,-02,5\n"]
    assert not any(may_have_other_spellings(text.encode()) for text in plain)
    assert all(may_have_other_spellings(text.encode()) for text in odd)


def test_a_count_above_names_is_no_arc(tmp_path: Path) -> None:
    rows = "".join(f"v{i} v{i + 1}\n" for i in range(40))
    assert read(tmp_path, f"41 39\n{rows}", "g.txt").n == 43
    assert read(tmp_path, f"source target\n41 40\n{rows}", "g.txt").n == 43
    with pytest.raises(InvalidGraph, match="'41 40' counts the 40 rows below"):
        read(tmp_path, f"41 40\n{rows}", "g.txt")


def test_a_declared_count_holds_for_names_too(tmp_path: Path) -> None:
    assert read(tmp_path, "3 2\n02138 2139 5\n2139 2140 3\n", "g.txt").n == 3
    with pytest.raises(
        InvalidGraph, match="line 1: declares 4 vertices and 2 edges, but 2 edges follow, of 3 vertices"
    ):
        read(tmp_path, "4 2\n02138 2139 5\n2139 2140 3\n", "g.txt")
