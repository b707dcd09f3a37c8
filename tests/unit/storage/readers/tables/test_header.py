"""The first row of an edge list."""

from __future__ import annotations

import pytest

from storage.errors import InvalidGraph, InvalidRequest
from storage.readers.parsed import ReadOptions
from storage.readers.tables.header import find_header, refuse_first_row

Rows = list[list[str]]


def rows_of(text: str) -> Rows:
    return [line.split() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("source target km\n1 2 5\n", ["source", "target", "km"]),
        ("Von Nach\nAda Bob\nBob Eve\n", ["Von", "Nach"]),
        ("from to\n0 Ada Bob\n1 Bob Eve\n", ["", "from", "to"]),
        ("p q r\n1 Ada Bob 5\n2 Bob Eve 4\n", ["", "p", "q", "r"]),
        ("V1 V2\nAda Bob\n", ["V1", "V2"]),
        ("V1 V2\nV2 V3\n", None),
        ("1 2 5\n2 3 4\n", None),
        ("Ada Bob 5\nBob Eve 4\n", None),
        ("from A to B\nfrom B to C\n", None),
    ],
)
def test_names_of_columns(text: str, names: list[str] | None) -> None:
    rows = rows_of(text)
    assert find_header(rows, len(rows[-1]), (1, text.splitlines()[0]), commented=False) == names


def test_a_first_row_apart_is_asked_about_in_short_files_only() -> None:
    ring = [[f"v{i}", f"v{(i + 1) % 40}"] for i in range(40)]
    with pytest.raises(InvalidGraph, match="may name the columns or be an arc"):
        find_header([["boss", "helper"], *ring], 2, (1, "boss helper"), commented=False)
    ring = [[f"v{i}", f"v{(i + 1) % 900}"] for i in range(900)]
    assert find_header([["boss", "helper"], *ring], 2, (1, "boss helper"), commented=False) is None


def test_a_word_in_all_rows_is_asked_about_unless_the_columns_are_known() -> None:
    rows = rows_of("edge 1 2 5\nedge 2 3 4\n")
    with pytest.raises(InvalidRequest, match="--from 2 --to 3"):
        refuse_first_row(rows, 4, (1, "edge 1 2 5"), ReadOptions())
    refuse_first_row(rows, 4, (1, "edge 1 2 5"), ReadOptions(source="2", target="3"))
    refuse_first_row(rows_of("hub A 5\nhub B 4\n"), 3, (1, "hub A 5"), ReadOptions())
