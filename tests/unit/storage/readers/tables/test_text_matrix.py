"""Square matrices as text: told from edge lists, read as pandas, NumPy, R and spreadsheets write them, or refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from storage.errors import InvalidGraph, InvalidRequest, LimitExceeded, NegativeCycle
from storage.graph.graph import Graph, Receipt
from storage.readers import ReadLimits, read_graph


def read(tmp_path: Path, text: str, **options: object) -> tuple[Graph, Receipt]:
    path = tmp_path / "graph.csv"
    path.write_text(text)
    return read_graph(path, **options)  # type: ignore[arg-type]


def dense(graph: Graph) -> np.ndarray:
    found = np.zeros((graph.n, graph.n))
    found[np.repeat(np.arange(graph.n), np.diff(graph.indptr)), graph.heads] = graph.weights
    return found


def sample(n: int, seed: int, fractions: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = rng.integers(1, 100, (n, n)).astype(float) * (rng.random((n, n)) < 0.6)
    np.fill_diagonal(found, 0)
    found[0, 1] = found[1, 0] = 7  # entries on both sides of the diagonal
    return np.where(found > 0, found + 0.5, 0) if fractions else found


NAMES = ["oslo", "bergen", "a, b", 'say "x"', "é", "z"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("fractions", [False, True])
def test_pandas_writes_names_in_first_row_and_column(tmp_path: Path, separator: str, fractions: bool) -> None:
    weights = sample(6, 1, fractions)
    frame = pd.DataFrame(weights, index=NAMES, columns=NAMES)
    if not fractions:
        frame = frame.astype(int)
    order = np.argsort(NAMES)
    text = frame.to_csv(sep=separator)
    for written in (text, text.replace(separator, f"corner{separator}", 1) if text.startswith(separator) else text):
        graph, receipt = read(tmp_path, written)
        assert receipt.format == "matrix"
        assert graph.labels.tolist() == sorted(NAMES)
        np.testing.assert_array_equal(dense(graph), weights[np.ix_(order, order)])
    assert "names in first row and column" in receipt.notes[0]
    zeros = int((weights == 0).sum()) - 6
    assert receipt.notes[1] == f"entries of 0 are no arcs: {zeros} off the diagonal"


def test_rows_in_another_order_than_columns(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, ",a,b,c\nc,1,2,0\na,0,3,4\nb,5,0,6\n")
    np.testing.assert_array_equal(dense(graph), [[0, 3, 4], [5, 0, 6], [1, 2, 0]])


def test_r_leaves_the_corner_out(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, '"a" "b" "c"\n"a" 0 1 2\n"b" 3 0 4\n"c" 5 6 0\n'.replace('"', ""))
    assert receipt.format == "matrix"
    np.testing.assert_array_equal(dense(graph), [[0, 1, 2], [3, 0, 4], [5, 6, 0]])


def test_names_that_are_numbers(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, ",10,9,200\n10,0,1,2\n9,3,0,4\n200,5,6,0\n")
    assert receipt.format == "matrix"
    assert graph.labels.tolist() == [9, 10, 200]
    np.testing.assert_array_equal(dense(graph), [[0, 3, 4], [1, 0, 2], [6, 5, 0]])
    graph, _ = read(tmp_path, ",10,09\n10,0,1\n09,3,0\n")
    assert graph.labels.tolist() == ["09", "10"]


def test_numpy_writes_no_names(tmp_path: Path) -> None:
    weights = sample(7, 2, fractions=True)
    for separator in (",", " ", "\t", ";"):
        np.savetxt(tmp_path / "m.txt", weights, delimiter=separator)
        graph, receipt = read_graph(tmp_path / "m.txt")
        assert receipt.format == "matrix"
        assert graph.labels.tolist() == list(range(7))
        np.testing.assert_array_equal(dense(graph), weights)


def test_a_header_without_row_names(tmp_path: Path) -> None:
    weights = sample(5, 3)
    graph, receipt = read(tmp_path, pd.DataFrame(weights, columns=list("vwxyz")).to_csv(index=False))
    assert receipt.format == "matrix"
    assert graph.labels.tolist() == list("vwxyz")
    np.testing.assert_array_equal(dense(graph), weights)


@pytest.mark.parametrize("gap", ["", "NA", "NaN", "nan", "inf", "-", "null", "Inf"])
def test_empty_entries_are_no_arcs(tmp_path: Path, gap: str) -> None:
    graph, receipt = read(tmp_path, f",a,b,c\na,0,2,{gap}\nb,{gap},,4\nc,5,{gap},\n")
    np.testing.assert_array_equal(dense(graph), [[0, 2, 0], [0, 0, 4], [5, 0, 0]])
    assert receipt.notes[1:] == ("entries that are empty or infinite are no arcs: 3 off the diagonal",)


def test_zeros_beside_empty_entries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidGraph, match="0 stands off the diagonal, and on line 2 one is empty") as caught:
        read(tmp_path, ",a,b,c\na,0,2,\nb,1,0,4\nc,0,5,0\n")
    assert caught.value.line == 4


def test_half_a_matrix_is_refused_until_one_says_which(tmp_path: Path) -> None:
    text = ",a,b,c\na,0,1,2\nb,,0,3\nc,,,0\n"
    with pytest.raises(InvalidGraph, match="only above the diagonal: say --undirected"):
        read(tmp_path, text)
    assert read(tmp_path, text, directed=True)[0].arcs == 3
    np.testing.assert_array_equal(dense(read(tmp_path, text, directed=False)[0]), [[0, 1, 2], [1, 0, 3], [2, 3, 0]])


def test_decimal_commas_of_spreadsheets(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, ";a;b;c\na;0;1,5;2\nb;3;0;4\nc;5;6,25;0\n")
    np.testing.assert_array_equal(dense(graph), [[0, 1.5, 2], [3, 0, 4], [5, 6.25, 0]])


def test_rows_that_end_in_a_separator(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, ";a;b;c;\na;0;1;2;\nb;3;0;4;\nc;5;6;0;\n")
    np.testing.assert_array_equal(dense(graph), [[0, 1, 2], [3, 0, 4], [5, 6, 0]])


def test_a_header_of_all_letters(tmp_path: Path) -> None:
    weights = sample(26, 9)
    letters = [chr(97 + i) for i in range(26)]
    graph, receipt = read(tmp_path, pd.DataFrame(weights, columns=letters).to_csv(index=False))
    assert receipt.format == "matrix"
    np.testing.assert_array_equal(dense(graph), weights)


def test_comments_blank_lines_and_crlf(tmp_path: Path) -> None:
    text = "# km\r\n,a,b\r\n\r\na,0,1\r\n# b\r\nb,2,0\r\n"
    np.testing.assert_array_equal(dense(read(tmp_path, text)[0]), [[0, 1], [2, 0]])


def test_a_matrix_wider_than_the_first_look(tmp_path: Path) -> None:
    weights = sample(400, 5)
    names = [f"a rather long name of a vertex, number {i:04d}" * 6 for i in range(400)]
    path = tmp_path / "wide.csv"
    pd.DataFrame(weights, index=names, columns=names).to_csv(path)
    assert len(path.read_text().split("\n")[0]) > 100_000
    graph, receipt = read_graph(path)
    assert receipt.format == "matrix"
    np.testing.assert_array_equal(dense(graph), weights)


def test_diagonals(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, ",a,b\na,5,1\nb,2,0\n")
    assert (graph.arcs, receipt.self_loops) == (2, 1)
    with pytest.raises(NegativeCycle):
        read(tmp_path, ",a,b\na,-5,1\nb,2,0\n")


def test_whole_numbers_stay_exact_and_weights_can_be_ignored(tmp_path: Path) -> None:
    big = 2**53 - 1
    graph, _ = read(tmp_path, f",a,b\na,0,{big}\nb,2,0\n")
    assert (graph.integral, graph.weights.max()) == (True, big)
    graph, _ = read(tmp_path, ",a,b\na,0,9\nb,2,0\n", unweighted=True)
    assert (graph.weighted, graph.weights.tolist()) == (False, [1, 1])


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (",a,b\na,0,1\nc,2,0\n", 3, "row 'c' is no column"),
        (",a,b,c\na,0,1,2\nb,2,0,3\n", None, "3 columns, but 2 rows"),
        (",a,b\na,0,1\nb,2,0\na,2,0\n", 4, "stands also on line 2"),
        (",a,b,c\n" + "a,0,1,2\nb,1,0,2\n" * 1 + "c,1,2\n", 4, "expected 4 fields, found 3"),
        (",a,b,c\na,0,1,2\nb,1,0,-inf\nc,1,2,0\n", 3, "is not a length"),
        (",a,b,c\na,0,1,9007199254740993\nb,1,0,1\nc,1,2,0\n", 2, "beyond 2\\^53"),
        ("km,a,b,c\na,0,1,2\nb,1,x,2\nc,1,2,0\n", 3, "'x' is not a number"),
        ("km,a,b,c\na,0,1,2\nd,1,0,2\nc,1,2,0\n", 3, "row 'd' is no column"),
        (",to,fro\nx,1,2\ny,3,4\n", 2, "row 'x' is no column"),
        ("0,1,2\n1,0,3\n2,3,0\n", 1, "3 rows of 3 numbers may be a matrix or an edge list"),
        ("1,2,5,9\n2,3,6,9\n3,4,7,9\n4,1,8,9\n", 1, "4 rows of 4 numbers may be"),
    ],
)
def test_what_is_no_matrix_is_refused(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    with pytest.raises(InvalidGraph, match=said) as caught:
        read(tmp_path, text, format="matrix" if "fields" in said or "length" in said or "53" in said else None)
    assert caught.value.line == line


@pytest.mark.parametrize("names", [("0", "1", "2"), ("7", "-3", "40"), ("b", "a", "5")])
@pytest.mark.parametrize("gap", ["", "9"])
def test_a_word_before_numbers_that_name_the_columns(tmp_path: Path, names: tuple[str, ...], gap: str) -> None:
    """So ``apsp export --wide`` writes its table; without the option it might be an edge list with row numbers."""
    x, y, z = names
    text = f"source,{x},{y},{z}\n{x},0,5,8\n{y},{gap},0,3\n{z},4,9,0\n"
    graph = read(tmp_path, text, format="matrix")[0]
    labels = [str(label) for label in graph.labels]
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr)).tolist()
    rows = zip(tails, graph.heads.tolist(), graph.weights.tolist(), strict=True)
    found = {(labels[u], labels[v]): w for u, v, w in rows}
    wanted = {(x, y): 5, (x, z): 8, (y, z): 3, (z, x): 4, (z, y): 9} | ({(y, x): 9} if gap else {})
    assert found == wanted
    if "a" not in names:
        with pytest.raises(InvalidGraph):
            read(tmp_path, text)


def test_a_format_settles_what_is_ambiguous(tmp_path: Path) -> None:
    text = "0,1,2\n1,0,3\n2,3,0\n"
    assert read(tmp_path, text, format="matrix")[0].arcs == 6
    assert read(tmp_path, text, format="edges")[0].arcs == 3
    assert read(tmp_path, text, weight="3")[1].format == "edges"


@pytest.mark.parametrize(
    "text",
    [
        "1,2,5\n2,3,6\n3,1,7\n",
        "from,to,km\na,b,1\nb,c,2\nc,a,3\n",
        "u,v,w,x\n1,2,3,4\n2,3,4,5\n3,1,5,6\n4,1,1,1\n",
        "1 2\n2 3\n",
        ",source,target,weight\n0,1,2,5\n1,2,3,6\n",
        "1,2,5,9\n2,3,6,9\n3,4,7,9\n",
    ],
)
def test_edge_lists_stay_edge_lists(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text)[1].format == "edges"


def test_the_unnamed_index_of_a_table_is_no_vertex(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, ",a,b,km\n0,11,12,5\n1,12,13,6\n")
    assert graph.labels.tolist() == [11, 12, 13]
    assert "not read: column 1" in receipt.notes


def test_options_of_edge_lists_are_refused(tmp_path: Path) -> None:
    for option in ({"weight": "a"}, {"length_of": "1 / a"}, {"source": "a"}):
        with pytest.raises(InvalidRequest, match="matrix files"):
            read(tmp_path, ",a,b\na,0,1\nb,2,0\n", **option)


def test_limits(tmp_path: Path) -> None:
    text = ",a,b,c\na,0,1,2\nb,3,0,4\nc,5,6,0\n"
    with pytest.raises(LimitExceeded):
        read(tmp_path, text, limits=ReadLimits(max_arcs=8))
    with pytest.raises(LimitExceeded):
        read(tmp_path, text, limits=ReadLimits(max_vertices=2))


def test_one_line_of_millions_of_commas_is_not_split(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "wide.csv"
    path.write_text("," * 4_000_000 + "\n" + "," * 4_000_000 + "\n1,2\n")
    from storage.readers.parsed import ReadOptions
    from storage.readers.source import Source
    from storage.readers.tables.matrix_shape import is_matrix

    source = Source(path, ReadLimits())
    tracemalloc.start()
    assert not is_matrix(source, ReadOptions())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6  # two million fields alone would take more than 100 MB as a list of strings


def test_spreadsheets_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for name, member in (("m.xlsx", "[Content_Types].xml"), ("m.ods", "mimetype")):
        path = tmp_path / name
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, "application/vnd.oasis.opendocument.spreadsheet")
        with pytest.raises(InvalidGraph, match="save the sheet as CSV"):
            read_graph(path)
    (tmp_path / "m.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100)
    with pytest.raises(InvalidGraph, match="save the sheet as CSV"):
        read_graph(tmp_path / "m.xls")


def test_three_rows_of_an_edge_list_are_no_matrix_of_two(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("a,b,1\nb,c,1\nb,-,1\n")
    graph, receipt = read_graph(path)
    assert (receipt.format, graph.labels.tolist()) == ("edges", ["-", "a", "b", "c"])
