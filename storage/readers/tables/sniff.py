"""Decides from the first lines of an edge list how to read it: separator, header, columns, numbers or names."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from storage.errors import InvalidGraph
from storage.graph.cleaning import is_label
from storage.readers import fields
from storage.readers.fields import BLANKS, is_number, is_whole, shown
from storage.readers.parsed import ReadOptions
from storage.readers.tables.choose import Columns, choose, listed
from storage.readers.tables.ends import names_ends
from storage.readers.tables.header import find_header, refuse_first_row, refuse_marks, refuse_types
from storage.readers.tables.remarks import Remarks, read_remarks
from storage.readers.tables.table import Layout
from storage.readers.tables.text_rows import is_comment

__all__ = ["COMMENTS", "Sniffed", "listed", "names_ends", "sniff"]

COMMENTS = "#%"
#: Matches the beginning of a field in quotes, in files whose fields are separated by blanks.
_QUOTE = re.compile(r'(?:^|[ \t])"')
#: Matches a comment after the fields of a row.
_BEHIND = re.compile(r"(?<=[^ \t])[ \t]++#.*+")
#: Matches a number with a decimal comma.
_DECIMAL = re.compile(r"[+-]?[0-9]++,[0-9]++")
_ROWS = 1000


@dataclass(frozen=True)
class Sniffed:
    """Describes how to read the file.

    Attributes:
        layout: how the rows are written.
        skip: number of lines before the first row.
        weight_name: the name of the weight's column in the receipt.
        counts: the numbers of vertices and edges in a first line ``n m``, and its line number; None without such a
            line.
        notes: remarks for the receipt.
        kind: position of the column that says for each edge whether it is directed, as Gephi writes it.
        kind_name: the name of the column ``kind``.
        first: line number of the first row.
        header: whether the first row names the columns.
        remarks: statements in the comments.
    """

    layout: Layout
    skip: int
    weight_name: str | None
    counts: tuple[int, int, int] | None
    notes: tuple[str, ...]
    kind: int | None = None
    kind_name: str = ""
    first: int = 1
    header: bool = False
    remarks: Remarks = field(default_factory=Remarks)


def sniff(head: list[str], options: ReadOptions, separator: str | None = None) -> Sniffed:
    """Decide from the first lines how to read the file; ``separator`` is the one that a first line such as ``sep=;``
    declares.

    Raises InvalidGraph if the lines are no edge list, InvalidRequest if the column of the weight does not exist.
    """
    lines, rows, width, separator, quoted, written = _sample(head, options, separator)
    counts = _counts(rows, width, lines[0][0])
    # Decimal commas are read only if semicolons separate fields.  Otherwise 1,008 may mean 1008, so the row parser
    # refuses it.
    decimal_comma = separator == ";" and any("," in field and is_number(field, True) for row in rows for field in row)
    remarks = read_remarks(head, lines[0][0], separator, width, options)
    refuse_marks(rows, lines[0])
    header = None if counts else find_header(rows, width, lines[0], remarks.names is not None)
    names = remarks.names if header is None else header
    body = rows[1:] if counts or header is not None else rows
    if names is None and counts is None:
        refuse_first_row(rows, width, lines[0], options)
    elif header is not None and len(lines) > 1:
        refuse_types([row for row in rows[1:] if len(row) == width], lines[1])
    if written.ended and header is None:
        _refuse_ended_matrix(rows, width, lines[0][0])
    body = [row for row in body if len(row) == width] or [[""] * width]
    columns = choose(names, body, width, _as_remarked(options, remarks), remarks)
    if header is None and width == 2:
        _check_zeros(body, columns, lines[0][0])
    decimals, more = _decimals(body, columns)
    layout = Layout(
        width,
        columns.source,
        columns.target,
        columns.weight,
        separator=separator,
        comments=COMMENTS,
        quoted=quoted,
        decimal_comma=decimal_comma,
        names=(names[columns.source], names[columns.target]) if names else ("", ""),
        formula=options.length_of,
        blanks=";" if written.ended else "",
        behind=written.behind,
        decimals=decimals,
        text=_has_names(body, columns),
    )
    skip = lines[0][0] if counts or header is not None else 0
    weight_name = None
    if columns.weight is not None:
        weight_name = names[columns.weight] if names else str(columns.weight + 1)
    kind_name = names[columns.kind] if names and columns.kind is not None else ""
    notes = (*columns.notes, *written.notes, *more)
    return Sniffed(
        *(layout, skip, weight_name, counts, notes, columns.kind, kind_name, lines[0][0]),
        header=header is not None,
        remarks=remarks,
    )


class _Sample(NamedTuple):
    """The first rows: text and line number of each, the fields of each, the most common number of fields, and how rows
    are written.
    """

    lines: list[tuple[int, str]]
    rows: list[list[str]]
    width: int
    separator: str | None
    quoted: bool
    written: _Written


def _sample(head: list[str], options: ReadOptions, separator: str | None) -> _Sample:
    """Split the first rows into fields.  Raises InvalidGraph if there are no rows."""
    lines = [
        (i, text)
        for i, text in enumerate(head, 1)
        if text.strip(BLANKS) and not is_comment(text.strip(BLANKS), COMMENTS)
    ]
    if not lines:
        raise InvalidGraph("there is no edge in the file: only comments and empty lines")
    lines, written = _bared(lines[:_ROWS])
    separator = separator or separator_of([text for _, text in lines])
    quoted = separator is not None or any(_QUOTE.search(text) for _, text in lines)
    edge = " " if separator == "\t" else BLANKS
    rows = [fields.split(text.strip(edge), separator, quoted, i) for i, text in lines]
    widths = Counter(len(row) for row in rows)
    width = max(widths, key=lambda size: (widths[size], size))
    options.limits.check_columns(width, next(i for (i, _), row in zip(lines, rows, strict=True) if len(row) == width))
    return _Sample(lines, rows, width, separator, quoted, written)


class _Written(NamedTuple):
    """Whether rows end in a semicolon, whether comments follow the fields of rows, and notes for the receipt."""

    ended: bool
    behind: bool
    notes: tuple[str, ...]


def _bared(lines: list[tuple[int, str]]) -> tuple[list[tuple[int, str]], _Written]:
    """Remove comments behind the fields of rows, and semicolons at their ends; also return which of them there were."""
    notes: tuple[str, ...] = ()
    cut = [_BEHIND.sub("", text) for _, text in lines]
    commented = [(line, text) for (line, text), bare in zip(lines, cut, strict=True) if text != bare]
    behind = bool(commented) and _are_rows([text for _, text in lines], cut)
    if behind:
        notes = (f"what follows # in a row is a comment, first on line {commented[0][0]}: {shown(commented[0][1])}",)
        lines = [(line, text) for (line, _), text in zip(lines, cut, strict=True)]
    texts = [text.rstrip(BLANKS) for _, text in lines]
    ended = texts[-1].endswith(";") and all(text.endswith(";") for text in texts[1:])
    ended = ended and all(text.count(";") <= 1 for text in texts) and (";" not in texts[0] or texts[0][-1] == ";")
    if ended:
        lines = [(line, text.rstrip(";" + BLANKS)) for (line, _), text in zip(lines, texts, strict=True)]
    return lines, _Written(ended, behind, notes)


def _are_rows(texts: list[str], cut: list[str]) -> bool:
    """Return whether the text after ``#`` is a comment and no part of a name: lines have equal numbers of fields only
    without it.
    """
    if any('"' in text for text in texts):
        return False
    separator = separator_of(cut)
    rows = [fields.split(text.strip(BLANKS), separator, False, 1) for text in cut]
    width = len(rows[-1])
    if width < 2 or any(len(row) != width for row in (rows if cut[0] != texts[0] else rows[1:])):
        return False
    if separator is None:
        return True
    # If another separator than blanks is used, a blank and a # may be part of a name, so the last field must be a
    # number.
    return all(is_number(row[-1]) for row in rows[1:] or rows)


def _refuse_ended_matrix(rows: list[list[str]], width: int, line: int) -> None:
    """Refuse n rows of n numbers that end in semicolons, because MATLAB writes matrices in this way."""
    square = len(rows) == width >= 2 and all(len(row) == width and all(map(is_number, row)) for row in rows)
    if square and (width > 3 or all(float(row[i]) == 0 for i, row in enumerate(rows))):
        raise InvalidGraph(
            f"{width} rows of {width} numbers may be a matrix or an edge list: leave out the semicolons at their ends, "
            "and say --format matrix or --format edges",
            line=line,
            field="format",
        )


def _decimals(body: list[list[str]], columns: Columns) -> tuple[bool, tuple[str, ...]]:
    """Return whether vertices are whole numbers written as decimals such as ``1.0``, and a note about that."""
    pair = [[row[c] for row in body] for c in (columns.source, columns.target)]
    odd = next((column[0] for column in pair if not any(map(is_whole, column))), None)
    even = all(is_number(token) and float(token).is_integer() for column in pair for token in column)
    if odd is None or not even or any(0 < sum(map(is_whole, column)) < len(column) for column in pair):
        return False, ()
    return True, (f"vertices are whole numbers, written as decimals: {shown(odd)}",)


def _as_remarked(options: ReadOptions, remarks: Remarks) -> ReadOptions:
    """Return the options, with ``unweighted`` set if the file says that it has no weights."""
    return replace(options, unweighted=True) if remarks.unweighted else options


def _has_names(body: list[list[str]], columns: Columns) -> bool:
    """Return whether vertices are names.

    Numbers with a fraction are not taken for names, and neither is a single vertex of another form among whole numbers:
    the row parser refuses these, and names the line.
    """
    if all(is_number(row[c]) for row in body for c in (columns.source, columns.target)):
        return False
    whole = sum(is_whole(row[columns.source]) and is_whole(row[columns.target]) for row in body)
    return 2 * whole <= len(body)


def separator_of(lines: list[str]) -> str | None:
    """Return the separator: semicolon, tab or comma if nearly all lines have it, else None for runs of blanks."""
    sample = lines[:100]
    few = len(sample) // 10

    def everywhere(sign: str) -> bool:
        return sum(sign not in line for line in sample) <= few and sign in sample[-1] + sample[0]

    if everywhere(";"):
        _refuse_mixed(sample, ";")
        return ";"
    if everywhere("\t"):
        if _has_gaps(sample):
            return "\t"
        inner = any(" " in field.strip() for line in sample for field in line.strip().split("\t"))
        even = len({line.count("\t") for line in sample}) == 1
        return "\t" if inner and even and not _blanks_suffice(sample) else None
    if not everywhere(","):
        return None
    _refuse_mixed(sample, ",")
    return ","


def _has_gaps(sample: list[str]) -> bool:
    """Return whether all lines have the same number of tabs and some have empty fields, so that each tab is a
    separator.
    """
    rows = [line.strip(" \n").split("\t") for line in sample]
    if len({len(row) for row in rows}) > 1:
        return False
    return any(len({not field.strip() for field in column}) > 1 for column in zip(*rows, strict=True))


def _refuse_mixed(sample: list[str], separator: str) -> None:
    """Refuse rows such as ``1 2 3,5``, ``1 2, 3`` and ``A,B 3``, in which blanks also separate fields: otherwise ``1
    2`` would become one vertex.
    """
    words = [[word.strip(",") for word in line.split()] for line in sample]
    decimal = separator == "," and all(
        len(row) > 1
        and any(_DECIMAL.fullmatch(word) for word in row)
        and all("," not in word or _DECIMAL.fullmatch(word) for word in row)
        for row in words
    )
    rows = [line.strip(BLANKS).rstrip(separator).split(separator) for line in sample]
    lists = sum(any(len(part.split()) > 1 and all(map(is_number, part.split())) for part in row[:2]) for row in rows)
    behind = len(rows) > 1 and all(len(row) == 2 and _ends_in_number(row[1]) for row in rows)
    if decimal or 2 * lists > len(sample) or behind:
        raise InvalidGraph(
            f"{shown(sample[0])} has fields between {'blanks and commas' if separator == ',' else 'several signs'}: "
            "separate all of them by tabs or semicolons, and write points for decimal commas",
            field="row",
        )


def _ends_in_number(field: str) -> bool:
    """Return whether a field is a name followed by a number after a blank or a comma."""
    parts = field.replace(",", " ").split()
    return len(parts) > 1 and is_number(parts[-1]) and not is_number(parts[0])


def _blanks_suffice(sample: list[str]) -> bool:
    """Return whether splitting the lines at blanks suffices to make every field a number."""
    even = len({len(line.split()) for line in sample[:2]}) == 1
    return even and all(is_number(field) for line in sample[1:] or sample for field in line.split())


def _counts(rows: list[list[str]], width: int, line: int) -> tuple[int, int, int] | None:
    """Return n, m and the line number of a first line ``n m`` above wider rows; None without such a line."""
    first = rows[0]
    if len(rows) > 1 and width > 2 and len(first) == 2 and all(is_whole(f) and int(f) >= 0 for f in first):
        _refuse_sized_matrix(rows, width, line)
        return int(first[0]), int(first[1]), line
    return None


def _refuse_sized_matrix(rows: list[list[str]], width: int, line: int) -> None:
    """Refuse a first line ``n n`` above n rows of n fields, which may be a matrix; three rows that can be arcs are
    accepted.
    """
    body = rows[1:]
    if rows[0] != [str(width)] * 2 or len(body) != width or any(len(row) != width for row in body):
        return
    if width > 3 or all(row[i] in ("0", "0.0") for i, row in enumerate(body)):
        raise InvalidGraph(
            f"'{width} {width}' above {width} rows of {width} fields may be the size of a matrix: leave it out, "
            "and say --format matrix or --format edges",
            line=line,
            field="format",
        )


def _check_zeros(body: list[list[str]], columns: Columns, line: int) -> None:
    """Refuse a first row such as ``6301 0777`` above vertices up to 6301: such a row is a damaged count."""
    ends = [[row[c] for c in (columns.source, columns.target)] for row in body]
    (n, m), rest = ends[0], [vertex for pair in ends[1:] for vertex in pair]
    if not rest or not is_label(n) or not is_whole(m) or is_label(m) or not all(map(is_label, rest)):
        return
    if int(n) >= max(map(int, rest)):
        raise InvalidGraph(
            f"{shown(' '.join(body[0]))} has a number with a leading zero, and no row below has: this looks like a "
            "damaged count of vertices and arcs; if it is an arc, add a first row 'source target'",
            line=line,
            field="vertex",
        )
