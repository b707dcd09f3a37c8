"""Rows of CSV files and the lines on which they begin, against a list of both."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.files.csv_rows import place_of, read_rows

#: Rows as they are written, and how many lines each takes; the second part of a pair says whether it has an entry.
WRITTEN = [
    ("{i},2,3", True),
    ('"{i}","a, b",3', True),
    ('{i},"two\nlines",3', True),
    ('{i},"a ""quoted""\n\n\nword",', True),
    ("", False),
    ("  ", False),
    (",,", False),
]


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.sampled_from(WRITTEN), min_size=1, max_size=12),
    above=st.integers(0, 2),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
    separator=st.sampled_from([",", ";", "\t"]),
)
def test_a_row_is_on_the_line_on_which_it_begins(tmp_path_factory, rows, above, end, mark, separator):
    lines, expected = [""] * above + ["key,b,c"], {}
    for i, (text, filled) in enumerate(rows):
        if filled:
            expected[str(i)] = len(lines) + 1
        lines += text.replace("{i}", str(i)).replace(",", separator).split("\n")
    lines[above] = separator.join(["key", "b", "c"])
    path = tmp_path_factory.mktemp("rows") / "t.csv"
    path.write_bytes((("\ufeff" if mark else "") + end.join(lines) + end).encode())
    found = read_rows(path, separator)
    assert found["key"].to_list() == list(expected)
    assert [place_of(path, row, separator) for row in range(found.height)] == [f"line {n}" for n in expected.values()]


def test_what_has_no_lines_has_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    assert place_of(tmp_path / "t.parquet", 4) == "row 5"
    assert place_of(path, 4) == "row 5"  # there is no such file
    path.write_text("a,b\n1,2\n")
    assert (place_of(path, 0), place_of(path, 1)) == ("line 2", "row 2")


@pytest.mark.parametrize("header", ["a\n", "a,b\n"])
def test_a_table_without_rows_is_empty(tmp_path: Path, header: str) -> None:
    (tmp_path / "t.csv").write_text(header + "\n\n")
    assert read_rows(tmp_path / "t.csv").height == 0


def test_names_in_the_header_are_read_as_entries_are(tmp_path: Path):
    table = [["place", 'q"t', '"whole"', "a,b", '""'], ["a", 'x"y', '"z"', "1,2", '""']]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows(table)
    frame = read_rows(tmp_path / "t.csv")
    assert [frame.columns, *map(list, frame.rows())] == table
