"""Rows of separators without an entry are refused with their line, and lines of blanks only are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import InvalidGraph
from storage.readers import read_graph
from storage.readers.tables.table import FEW_BYTES

SMALL, LARGE = 4, FEW_BYTES // 8
#: For each separator of fields the ending of the file, and the form of names: a blank inside makes tabs separators.
SEPARATORS = {",": ("csv", "v{}"), ";": ("csv", "v{}"), "\t": ("tsv", "v {}")}


def rows_of(separator: str, count: int, *, weighted: bool) -> list[str]:
    """A header, and the rows of a path: ``v0,v1,7`` and so on."""
    weight, name = ["7"] if weighted else [], SEPARATORS[separator][1].format
    rows = [separator.join([name(k), name(k + 1), *weight]) for k in range(count)]
    return [separator.join(["from", "to", *(["w"] if weighted else [])]), *rows]


def write(folder: Path, separator: str, rows: list[str]) -> Path:
    file = folder / f"graph.{SEPARATORS[separator][0]}"
    file.write_text("\n".join(rows) + "\n")
    return file


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("entry", ["", " ", '""'])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_row_without_any_entry_is_refused_with_its_line(
    tmp_path: Path, separator: str, entry: str, weighted: bool, place: str, count: int
) -> None:
    rows = rows_of(separator, count, weighted=weighted)
    at = {"first": 1, "middle": len(rows) // 2, "last": len(rows)}[place]
    rows.insert(at, separator.join([entry] * (3 if weighted else 2)))
    with pytest.raises(InvalidGraph, match="is missing") as refused:
        read_graph(write(tmp_path, separator, rows))
    assert refused.value.line == at + 1


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("entry", ["", " ", '""', '" "'])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_row_without_a_name_is_refused_with_its_line(
    tmp_path: Path, separator: str, entry: str, end: int, count: int
) -> None:
    rows = rows_of(separator, count, weighted=True)
    row = [SEPARATORS[separator][1].format(0), SEPARATORS[separator][1].format(3), "7"]
    row[end] = entry
    rows.insert(len(rows) - 1, separator.join(row))
    with pytest.raises(InvalidGraph, match="is missing") as refused:
        read_graph(write(tmp_path, separator, rows))
    assert refused.value.line == len(rows) - 1


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("blank", ["", " ", "     "])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_lines_of_blanks_are_skipped(tmp_path: Path, separator: str, blank: str, count: int) -> None:
    rows = rows_of(separator, count, weighted=True)
    for at in (len(rows), len(rows) // 2, 1, 0):
        rows.insert(at, blank)
    graph, _ = read_graph(write(tmp_path, separator, rows))
    assert (graph.n, graph.arcs) == (count + 1, count)
    assert set(graph.weights.tolist()) == {7}


@pytest.mark.parametrize("blank", ["\t", " \t ", "\t\t"])
@pytest.mark.parametrize("separator", [",", ";", " "])
def test_lines_of_tabs_are_skipped_where_tabs_separate_no_fields(tmp_path: Path, separator: str, blank: str) -> None:
    file = tmp_path / "graph.txt"
    file.write_text("\n".join([separator.join("ab7"), blank, separator.join("bc7"), separator.join("cd7")]) + "\n")
    graph, _ = read_graph(file, unweighted=False)
    assert (graph.n, graph.arcs) == (4, 3)
