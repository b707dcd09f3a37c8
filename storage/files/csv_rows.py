"""Reads the rows of a CSV file as texts, without empty rows, and finds the line on which a row begins."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars as pl

#: Endings of text files, in which messages name a row by its line.
TEXTS: Final = (".csv", ".tsv")
#: If two columns have the same name, polars appends this text and a number to the name of the second one.
_RENAMED: Final = "_duplicated_"


def read_rows(path: Path, separator: str = ",") -> pl.DataFrame:
    """Return the rows below the header, all columns as texts.  Rows without any entry, which spreadsheets often write
    at the end, are left out.

    Args:
        path: the file.
        separator: what separates the columns.

    Raises:
        OSError: the file cannot be read.
        polars.exceptions.PolarsError: the file is no table.
    """
    import polars as pl

    frame = pl.read_csv(path, infer_schema=False, separator=separator)
    # polars leaves doubled quotes in the names of a header as they are, and undoubles those in entries
    frame = frame.rename({name: name.replace('""', '"') for name in frame.columns if '""' in name})
    return frame.filter(pl.any_horizontal(pl.all().str.strip_chars().fill_null("") != ""))


def repeated_name(path: Path, columns: Sequence[str]) -> str | None:
    """Return a name, not empty, that two columns of a CSV file share; None if there is no such name.

    Args:
        path: the file, whose first line has the names.
        columns: the names of its columns as polars returns them; polars renames the second of two equal names.
    """
    if not any(_RENAMED in name for name in columns):
        return None
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        names = next(csv.reader(file), [])
    return next((name for name in names if name and names.count(name) > 1), None)


def place_of(path: Path, row: int, separator: str = ",") -> str:
    """Return where a row is, for messages: ``line 7`` in a text file, which is read again to count its lines; in other
    files ``row 6``.

    Args:
        path: the file.
        row: number of the row, from 0, without the header and the rows that ``read_rows`` leaves out.
        separator: what separates the columns of a text file.
    """
    if path.suffix.lower() in TEXTS:
        line = _line_of(path, row, separator)
        if line is not None:
            return f"line {line}"
    return f"row {row + 1}"


def _line_of(path: Path, row: int, separator: str) -> int | None:
    """Return the line on which a row begins, from 1; None if the file has no such row.

    A quoted entry may go over several lines, so lines are counted as the rows are parsed.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            rows, at, begins = csv.reader(file, delimiter=separator), -1, 1
            for entries in rows:
                if any(entry.strip() for entry in entries):
                    if at == row:
                        return begins
                    at += 1
                begins = rows.line_num + 1
    except (OSError, csv.Error):  # the file is gone, or an entry is longer than Python's parser takes
        return None
    return None
