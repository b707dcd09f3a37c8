"""Lists of vertices in files and on standard input: every name means its vertex, whatever program wrote the file."""

from __future__ import annotations

import csv
import io

import numpy as np
import polars as pl
import pytest

from service.cli.vertex_lists import selected_names, selected_vertices
from storage.errors import NotFound
from storage.graph.graph import build_graph


def graph_of(labels):
    return build_graph([0], [1], [1.0], labels=labels, directed=True)[0]


NUMBERS = graph_of(np.array([7, 17, 42, 99], np.int64))
TEXTS = graph_of(np.array(sorted([" a", "a", "017", "17", "b, c", 'x"y', "é", "l\u2028m", "l", "m"]), "T"))


def written(path, names, newline="\n", encoding="utf-8"):
    """Write a name a line, in a ``.csv`` file with quotes, and return the argument that means the file."""
    text = io.StringIO(newline="")
    if path.suffix == ".csv":
        csv.writer(text, lineterminator=newline, quoting=csv.QUOTE_ALL).writerows([name] for name in names)
    else:
        text.write(newline.join(names))
    path.write_bytes(text.getvalue().encode(encoding))
    return f"@{path}"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("ending", [".csv", ".txt"])
@pytest.mark.parametrize("graph", [NUMBERS, TEXTS], ids=["numbers", "texts"])
def test_every_line_is_its_vertex(tmp_path, graph, ending, newline, encoding):
    order = np.random.default_rng(4).permutation(graph.n).tolist()
    names = [str(graph.labels[index]) for index in order]
    text = written(tmp_path / f"list{ending}", names, newline, encoding)
    assert selected_vertices(text, graph, "--sources") == tuple(order)
    assert selected_names(text, "--sources") == names


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_breaks_between_quotes_are_parts_of_a_name(tmp_path, newline):
    """Whatever breaks the lines of the file, and where another vertex differs only in its line breaks."""
    names = sorted(["", "\n", "\r", "\r\n", "a\nb", "a\rb", "a\r\nb", "a\r\rb", "a b"])
    graph = graph_of(np.array(names, "T"))
    order = np.random.default_rng(5).permutation(graph.n).tolist()
    text = written(tmp_path / "list.csv", [names[index] for index in order], newline)
    assert selected_vertices(text, graph, "--sources") == tuple(order)
    assert selected_names(text, "--sources") == [names[index] for index in order]


@pytest.mark.parametrize("ending", [".csv", ".txt"])
def test_blanks_around_a_name_without_quotes_tell_vertices_apart(tmp_path, ending):
    """Most programs, as this one, write such names without quotes."""
    graph = graph_of(np.array(sorted(["a", " a", "  a", "a ", " a ", "b"]), "T"))
    order = np.random.default_rng(6).permutation(graph.n).tolist()
    path, names = tmp_path / f"list{ending}", [str(graph.labels[index]) for index in order]
    frame = pl.DataFrame({"vertex": names, "x": 1} if ending == ".csv" else {"vertex": names})
    frame.write_csv(path, include_header=ending == ".csv")
    assert selected_vertices(f"@{path}", graph, "--sources") == tuple(order)
    assert selected_names(f"@{path}", "--sources")[ending == ".csv" :] == names
    path.write_text(" b\n  b \nb\n")
    assert selected_vertices(f"@{path}", graph, "--sources") == (5,)


def test_a_name_that_is_empty_or_blank_is_one_between_quotes(tmp_path):
    graph = graph_of(np.array(["", " ", "a", "b"], "T"))
    path = tmp_path / "list.csv"
    path.write_text('a,1\n\n"",2\n,3\n  \n " ",4\nb\n')
    assert selected_vertices(f"@{path}", graph, "--sources") == (2, 0, 1, 3)
    assert selected_names(f"@{path}", "--sources") == ["a", "", " ", "b"]
    path.write_text('"x\ny"\n""\n')
    assert selected_names(f"@{path}", "--sources") == ["x\ny", ""]


def test_a_mark_of_byte_order_on_standard_input_is_no_part_of_a_name(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufeff17\n42\n"))
    assert selected_vertices("-", NUMBERS, "--sources") == (1, 2)


@pytest.mark.parametrize("first", ["8", "017", "17.0", "-7", "1e2", str(2**64)])
def test_a_number_above_numbers_is_no_header(tmp_path, first):
    text = written(tmp_path / "list.csv", [first, "42"])
    with pytest.raises(NotFound, match="line 1: no vertex"):
        selected_vertices(text, NUMBERS, "--sources")


def test_a_word_above_vertices_is_a_header(tmp_path, capsys):
    for graph in (NUMBERS, TEXTS):
        text = written(tmp_path / "list.csv", ["vertex", "17"])
        assert [str(graph.labels[index]) for index in selected_vertices(text, graph, "--sources")] == ["17"]
        assert "'vertex', the first line of" in capsys.readouterr().err
