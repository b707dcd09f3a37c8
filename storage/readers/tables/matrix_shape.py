"""Decides whether a file is a square matrix of numbers or an edge list, and finds out how the matrix is written."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Final

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.fields import is_number, is_whole, shown
from storage.readers.lengths import is_similarity, named_length
from storage.readers.parsed import ReadOptions
from storage.readers.source import Block, Source
from storage.readers.tables.ends import is_series
from storage.readers.tables.remarks import names_in_comment
from storage.readers.tables.sniff import COMMENTS, names_ends
from storage.readers.tables.text_rows import is_comment

#: Words by which programs write that there is no arc.
_WORDS: Final = ("na", "n/a", "#n/a", "nan", "null", "none", "nil", "inf", "+inf", "infinity", "-", "?", ".", "∞", "")
NO_ARC: Final = frozenset(form for word in _WORDS for form in (word, word.upper(), word.capitalize(), "NaN", "<NA>"))
#: Maximum number of rows that are read to tell a matrix from an edge list.
_ROWS: Final = 50
_BYTES: Final = 1 << 20

Row = tuple[int, list[str]]


@dataclass(frozen=True)
class Shape:
    """Describes how a matrix is written.

    Attributes:
        n: number of rows and of columns.
        separator: the separator of entries: one character, or None for runs of blanks.
        names: names of the columns; None without a header.
        row_names: whether the first field of each row is the name of the row.
        skip: number of lines up to and including the header.
        trailing: whether every row ends in a separator.
    """

    n: int
    separator: str | None
    names: list[str] | None
    row_names: bool
    skip: int
    trailing: bool = False


def is_matrix(source: Source, options: ReadOptions) -> bool:
    """Return whether a file is a matrix rather than an edge list.

    Raises InvalidGraph if the file may be a matrix or an edge list, or if the names of rows and columns differ.
    """
    sample = _first_rows(source)
    if _labelled(sample) is not None:
        return True
    if options.column or options.source or options.target:
        return False
    if len(sample.rows) < 3:
        _refuse_two_rows(sample.rows)
        return False
    _refuse_rectangle(sample.rows)
    _refuse_row_names(source, sample)
    shapes = [shape for shape in (_numbered(sample), _bare(sample)) if shape is not None]
    shape = next((shape for shape in shapes if _count(source, shape) == shape.n), None)
    if shape is None or (shape.names and names_columns(shape.names)):
        return False
    body = sample.rows[1:] if shape.names else sample.rows
    if shape.n > _ROWS:
        return True
    empty = all(_is_zero(row[i]) for i, (_, row) in enumerate(body[: shape.n]))
    if _is_edge_list(shape, [row for _, row in body], empty):
        return False
    columns = shape.names is not None and shape.n < 6 and names_ends(shape.names, letters=True)
    if empty and (shape.n > 3 or shape.names) and not columns:
        return True
    message = f"{shape.n} rows of {shape.n} numbers may be a matrix or an edge list"
    raise InvalidGraph(f"{message}: say --format matrix or --format edges", line=body[0][0], field="format")


def _is_edge_list(shape: Shape, rows: list[list[str]], empty: bool) -> bool:
    """Return whether n rows of n numbers are arcs rather than a matrix; ``empty`` says whether no entry of the diagonal
    is an arc.

    Three rows that begin with two whole numbers are often a small example of an edge list.
    """
    if empty:
        return False
    if shape.names is not None and names_ends(shape.names, letters=True):
        return True
    if shape.n > 3:
        return False
    named = shape.names is not None and shape.separator is not None
    diagonal = len({row[i] for i, row in enumerate(rows)}) == 1
    if named:
        whole = all(is_whole(cell) for row in rows for cell in row[:2])
        return whole and not diagonal and not all(map(is_whole, shape.names or []))
    return not (diagonal and all(rows[i][j] == rows[j][i] for i in range(shape.n) for j in range(i)))


def _refuse_two_rows(rows: list[Row]) -> None:
    """Refuse two rows of two numbers with zeros on the diagonal, unless edges and matrix give the same graph."""
    cells = [row for _, row in rows]
    if len(cells) != 2 or any(len(row) != 2 or not all(map(_is_entry, row)) for row in cells):
        return
    if _is_zero(cells[0][0]) and _is_zero(cells[1][1]) and cells != [["0", "1"], ["1", "0"]]:
        raise InvalidGraph(
            "2 rows of 2 numbers may be a matrix or an edge list: say --format matrix or --format edges",
            line=rows[0][0],
            field="format",
        )


def find_shape(source: Source) -> tuple[Shape, int]:
    """Return how a matrix is written, and the line of its first row, for a file that the caller has declared to be a
    matrix.

    Raises InvalidGraph if the first rows cannot belong to a matrix; errors in later rows are found by the reader.
    """
    sample = _first_rows(source)
    if not sample.rows:
        raise InvalidGraph("the file has no rows of a matrix")
    few = FirstRows(sample.rows[:3], sample.separator, sample.trailing)
    numbered = _numbered(sample)
    if numbered is not None and _count(source, numbered) != numbered.n:
        numbered = None
    first = sample.rows[0][0]
    shape = _labelled(sample, told=True) or numbered or _bare(sample, 2) or _bare(few, 2)
    if shape is None:
        raise InvalidGraph("the rows do not form a square matrix of numbers", line=first, field="row")
    return (shape if shape.names is not None else _with_names_of_comment(shape, source.head, first)), first


def _with_names_of_comment(shape: Shape, head: list[str], first: int) -> Shape:
    """Return the shape with names of columns from a comment above the rows, as ``numpy.savetxt`` writes them.

    Raises InvalidGraph if the words of the comment are separated by blanks, because they may be prose.
    """
    found = names_in_comment(head, first, shape.separator, shape.n)
    if found is None:
        return shape
    if shape.separator is None:
        raise InvalidGraph(
            f"the {shape.n} words {shown(' '.join(found[0]))} may name the {shape.n} columns: leave out the # if they "
            "do, or the line if they do not",
            line=found[1],
            field="header",
        )
    return replace(shape, names=found[0])


@dataclass(frozen=True)
class FirstRows:
    """The first rows with their line numbers.  ``separator`` separates fields (None for blanks), and with ``trailing``
    every row ends in a separator.
    """

    rows: list[Row]
    separator: str | None
    trailing: bool = False


def _first_rows(source: Source) -> FirstRows:
    """Return the first rows; an empty list if they are too wide for a matrix within the limits."""
    lines: list[tuple[int, str]] = []
    with contextlib.closing(source.blocks()) as blocks:
        for block in blocks:
            lines += _lines(block, _ROWS + 1 - len(lines))
            if len(lines) > 2:
                break
    body = [text for _, text in lines[1:]] or [text for _, text in lines]
    separator = source.separator or next((sign for sign in ";\t," if all(sign in text for text in body)), None)
    widest = math.isqrt(source.limits.max_arcs) + 2
    if any(text.count(separator or " ") > widest for _, text in lines):
        return FirstRows([], separator)
    try:
        rows = [(number, fields.split(text, separator, True, number)) for number, text in lines]
    except InvalidGraph:
        return FirstRows([], separator)  # the quotes do not match; the reader of edge lists names the line
    trailing = len(rows) > 1 and separator is not None and all(len(row) > 1 and not row[-1] for _, row in rows)
    return FirstRows([(number, row[:-1]) for number, row in rows] if trailing else rows, separator, trailing)


def _lines(block: Block, most: int) -> list[tuple[int, str]]:
    """Return the first lines of a block with their numbers, without empty lines and comments: at most ``most`` lines,
    and only up to a limit of bytes.
    """
    found: list[tuple[int, str]] = []
    size = 0
    for number, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
        text = raw.decode("utf-8", "replace")
        if text.strip() and not is_comment(text.lstrip(), COMMENTS):
            found.append((number, text))
            size += len(text)
        if len(found) >= most or (size > _BYTES and len(found) > 2):
            break
    return found


def _labelled(sample: FirstRows, told: bool = False) -> Shape | None:
    """Return the shape of a matrix whose first row and first column name the same vertices, or None.

    Only if the user has declared the file to be a matrix (``told``), the header may be a word followed by numbers that
    name the columns: pandas numbers the columns of an edge list in the same way.  Only names decide here.  If some
    names differ, or some entries are no numbers, the reader raises the error later.
    """
    rows = sample.rows
    if len(rows) < 3:
        return None
    (line, head), body = rows[0], [row for _, row in rows[1:]]
    width = max(map(len, body))
    corner, names = (head[0], head[1:]) if len(head) == width else ("", head)
    if len(names) != width - 1 or width < 3 or (corner and is_number(corner)):
        return None
    if len(head) < width and any(map(is_number, names)):
        return None  # the first row holds counts, or is too short
    named = not corner or (told and not _is_entry(corner))
    if all(map(_is_entry, names)) and not (named and all(map(is_whole, names))):
        return None  # these are entries, not names: the first row and column of a symmetric matrix are equal, too
    known, tails = set(names), {row[0] for row in body}
    if corner and width == 3 and len(tails) < len(body):
        return None  # rows of an edge list, in which a vertex may occur twice; a matrix names each row once
    if len(known) < len(names) or "" in known or 2 * sum(row[0] in known for row in body) < len(body):
        return None
    entries = [_is_entry(cell) for row in body for cell in row[1:]]
    if all(entries) or (2 * sum(entries) > len(entries) and len(body) >= min(len(names), _ROWS)):
        return Shape(len(names), sample.separator, names, True, line, sample.trailing)
    return None


def _bare(sample: FirstRows, least: int = 3) -> Shape | None:
    """Return the shape if all rows have the same number of numbers (at least ``least``), perhaps below a header of
    names; else None.
    """
    rows = sample.rows
    width, head = len(rows[-1][1]), rows[0][1]
    named = len(head) == width and not any(is_number(cell) or cell in NO_ARC for cell in head)
    body = rows[1:] if named else rows
    if width < least or any(len(row) != width or not all(map(_is_entry, row)) for _, row in body):
        return None
    return Shape(width, sample.separator, head if named else None, False, rows[0][0] if named else 0, sample.trailing)


def _numbered(sample: FirstRows) -> Shape | None:
    """Return the shape of a matrix below a header that numbers the columns, 0 .. n - 1 or 1 .. n, as pandas writes it;
    else None.
    """
    (line, head), body = sample.rows[0], FirstRows(sample.rows[1:], sample.separator, sample.trailing)
    width = len(head)
    if head not in ([str(i) for i in range(width)], [str(i + 1) for i in range(width)]) or not body.rows:
        return None
    bare = _bare(body)
    if bare is None or bare.names is not None or bare.n != width:
        return None
    return Shape(width, sample.separator, head, False, line, sample.trailing)


def _refuse_row_names(source: Source, sample: FirstRows) -> None:
    """Refuse n rows of n + 1 fields that each begin with a name or number of the row, without a header that names the
    columns.

    If they were read as an edge list, the names of rows would be vertices, and the first entries their neighbours.
    """
    rows = sample.rows
    n = len(rows[0][1]) - 1
    if n < 3 or any(len(row) != n + 1 or not all(map(_is_entry, row[1:])) for _, row in rows):
        return
    names = [row[0] for _, row in rows]
    counts = [[str(i + first) for i in range(len(rows))] for first in (0, 1)]
    named = not any(map(_is_entry, names)) and len(set(names)) == len(names)
    # Three rows that begin with their own numbers may be a small edge list, so these are refused only with a diagonal
    # of zeros.
    numbered = names in counts and (n > 3 or all(_is_zero(row[i + 1]) for i, (_, row) in enumerate(rows[:n])))
    if (named or numbered) and _count(source, Shape(n, sample.separator, None, True, 0)) == n:
        raise InvalidGraph(
            f"{n} rows of {n + 1} fields may be a matrix whose rows are named, or an edge list: add a first row with "
            "the names of the columns, or say --format edges",
            line=rows[0][0],
            field="format",
        )


def _is_entry(cell: str) -> bool:
    return cell in NO_ARC or is_number(cell, decimal_comma=True)


def _is_zero(cell: str) -> bool:
    return cell in NO_ARC or float(cell.replace(",", ".")) == 0


def names_columns(names: list[str]) -> bool:
    """Return whether a header names the columns of an edge list; single letters do not count, because they may be
    vertices.
    """
    words = [name for name in names if len(name) > 1]
    return names_ends(words) or named_length(words) is not None or any(map(is_similarity, words))


def _refuse_rectangle(rows: list[Row]) -> None:
    """Refuse a table with an empty corner whose rows have other names than its columns."""
    (_, head), body = rows[0], rows[1:]
    if head[0] or len(head) < 3 or not all(head[1:]) or names_columns(head[1:]):
        return
    if is_series(head[1:]) and len(body) >= len(head):
        return
    if all(len(row) == len(head) and all(_is_entry(cell) for cell in row[1:]) for _, row in body):
        line, name = next(
            ((number, row[0]) for number, row in body if row[0] not in head[1:]), (body[0][0], body[0][1][0])
        )
        raise InvalidGraph(
            f"row {shown(name)} is no column, so this is no square matrix; if it is an edge list, name its columns "
            "with --from and --to",
            line=line,
            field="row",
        )


def _count(source: Source, shape: Shape) -> int:
    """Count the rows below the header, stopping at the end of a block once there are more rows than columns."""
    count = 0
    with contextlib.closing(source.blocks()) as blocks:
        for block in blocks:
            lines = enumerate(block.data.decode("utf-8", "replace").split("\n"), block.line)
            body = (text.strip() for number, text in lines if number > shape.skip)
            count += sum(bool(text) and not is_comment(text, COMMENTS) for text in body)
            if count > shape.n:
                break
    return count
