"""Square matrices of lengths as text, with names in the first row and column, in the first row only, or without any.

Row i, column j is the arc i -> j.  As in dense NumPy files, 0 off the diagonal is no arc; so is an empty entry, ``NA``
or ``inf``.  A file that has both zeros and empty entries off the diagonal is refused: one of the two may well mean an
arc of length 0.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray
from storage.readers import fields
from storage.readers.columns import ArcColumns
from storage.readers.fields import is_number, is_whole, shown
from storage.readers.lengths import is_similarity, named_length
from storage.readers.names import order_names
from storage.readers.numbers import parse_numbers
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Block, Source
from storage.readers.tables.no_lengths import refuse_diagonal, refuse_totals
from storage.readers.tables.sniff import COMMENTS, names_ends
from storage.readers.tables.table import is_comment

#: What stands for no arc, as programs write it.
_WORDS: Final = ("na", "n/a", "#n/a", "nan", "null", "none", "nil", "inf", "+inf", "infinity", "-", "?", ".", "∞", "")
_NONE: Final = frozenset(form for word in _WORDS for form in (word, word.upper(), word.capitalize(), "NaN", "<NA>"))
#: Rows looked at to tell a matrix from an edge list.
_ROWS: Final = 50
_BYTES: Final = 1 << 20

Row = tuple[int, list[str]]


@dataclass(frozen=True)
class Shape:
    """How a matrix is written.

    Attributes:
        n: rows and columns.
        separator: one character, or None for runs of blanks.
        names: of the columns, None without a header.
        row_names: the first field of each row names it.
        skip: lines up to the header.
        trailing: every row ends in a separator.
    """

    n: int
    separator: str | None
    names: list[str] | None
    row_names: bool
    skip: int
    trailing: bool = False


def is_matrix(source: Source, options: ReadOptions) -> bool:
    """Whether a file that might be an edge list is a matrix.

    Raises InvalidGraph where it may as well be either, and where its rows have other names than its columns.
    """
    sample = _first_rows(source)
    if _labelled(sample) is not None:
        return True
    if options.column or options.source or options.target or len(sample.rows) < 3:
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
    if empty and (shape.n > 3 or shape.names):
        return True
    # Three rows of blanks and numbers are what examples of edge lists look like.
    written = shape.names is not None and shape.separator is not None
    if (shape.n < 4 and not empty and not written) or (shape.names and names_ends(shape.names, letters=True)):
        return False
    message = f"{shape.n} rows of {shape.n} numbers may be a matrix or an edge list"
    raise InvalidGraph(f"{message}: say --format matrix or --format edges", line=body[0][0], field="format")


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a matrix; errors as ``read_graph``."""
    options.refuse_weight("matrix")
    sample = _first_rows(source)
    if not sample.rows:
        raise InvalidGraph("the file has no rows of a matrix")
    # Who says that it is one hears of the row at fault, not that it is none.
    few = FirstRows(sample.rows[:3], sample.separator, sample.trailing)
    numbered = _numbered(sample)
    if numbered is not None and _count(source, numbered) != numbered.n:
        numbered = None
    shape = _labelled(sample) or numbered or _bare(sample) or _bare(few)
    if shape is None:
        raise InvalidGraph("the rows do not form a square matrix of numbers", line=sample.rows[0][0], field="row")
    options.limits.check_vertices(shape.n)
    options.limits.check_arcs(shape.n * shape.n)
    return _Matrix(shape, options).read(source)


@dataclass(frozen=True)
class FirstRows:
    """Some rows from the top, and how they are written; fields as in ``Shape``."""

    rows: list[Row]
    separator: str | None
    trailing: bool = False


def _first_rows(source: Source) -> FirstRows:
    """Some rows from the top; none where they are too wide for a matrix within the limits."""
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
        return FirstRows([], separator)  # quotes that do not match: the reader of edge lists names the line
    trailing = len(rows) > 1 and separator is not None and all(len(row) > 1 and not row[-1] for _, row in rows)
    return FirstRows([(number, row[:-1]) for number, row in rows] if trailing else rows, separator, trailing)


def _lines(block: Block, most: int) -> list[tuple[int, str]]:
    """The first lines of a block that are neither empty nor comments, with their numbers; some megabytes at most."""
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


def _labelled(sample: FirstRows) -> Shape | None:
    """A matrix whose first row and column name the same vertices; the corner is empty, a word, or left out.

    The names decide.  Single ones that differ, and entries that are no numbers, are for the reader to name.
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
        return None  # a first row of counts, or a short one
    if all(map(_is_entry, names)) and (corner or not all(is_whole(name) for name in names)):
        return None  # an entry in the corner: the first row of a symmetric matrix equals its first column
    known, tails = set(names), {row[0] for row in body}
    if corner and width == 3 and len(tails) < len(body):
        return None  # rows of an edge list: a vertex may have two arcs, a matrix names each row once
    if len(known) < len(names) or "" in known or 2 * sum(row[0] in known for row in body) < len(body):
        return None
    entries = [_is_entry(cell) for row in body for cell in row[1:]]
    if all(entries) or (2 * sum(entries) > len(entries) and len(body) >= min(len(names), _ROWS)):
        return Shape(len(names), sample.separator, names, True, line, sample.trailing)
    return None


def _bare(sample: FirstRows) -> Shape | None:
    """Rows of as many numbers each, perhaps below a row of as many names."""
    rows = sample.rows
    width, head = len(rows[-1][1]), rows[0][1]
    named = len(head) == width and not any(is_number(cell) or cell in _NONE for cell in head)
    body = rows[1:] if named else rows
    if width < 3 or any(len(row) != width or not all(map(_is_entry, row)) for _, row in body):
        return None
    return Shape(width, sample.separator, head if named else None, False, rows[0][0] if named else 0, sample.trailing)


def _numbered(sample: FirstRows) -> Shape | None:
    """Rows of as many numbers each below the numbers of the columns, 0 .. n - 1 or 1 .. n, as pandas writes them."""
    (line, head), body = sample.rows[0], FirstRows(sample.rows[1:], sample.separator, sample.trailing)
    width = len(head)
    if head not in ([str(i) for i in range(width)], [str(i + 1) for i in range(width)]) or not body.rows:
        return None
    bare = _bare(body)
    if bare is None or bare.names is not None or bare.n != width:
        return None
    return Shape(width, sample.separator, head, False, line, sample.trailing)


def _refuse_row_names(source: Source, sample: FirstRows) -> None:
    """Rows that are named or numbered, below no names of columns: n rows of n + 1 fields.

    As an edge list the names of rows would be vertices, and the first entries their neighbours.
    """
    rows = sample.rows
    n = len(rows[0][1]) - 1
    if n < 3 or any(len(row) != n + 1 or not all(map(_is_entry, row[1:])) for _, row in rows):
        return
    names = [row[0] for _, row in rows]
    counts = [[str(i + first) for i in range(len(rows))] for first in (0, 1)]
    named = not any(map(_is_entry, names)) and len(set(names)) == len(names)
    # Three rows that each begin with their number are what examples of edge lists look like, too.
    numbered = names in counts and (n > 3 or all(_is_zero(row[i + 1]) for i, (_, row) in enumerate(rows[:n])))
    if (named or numbered) and _count(source, Shape(n, sample.separator, None, True, 0)) == n:
        raise InvalidGraph(
            f"{n} rows of {n + 1} fields may be a matrix whose rows are named, or an edge list: add a first row with "
            "the names of the columns, or say --format edges",
            line=rows[0][0],
            field="format",
        )


def _is_entry(cell: str) -> bool:
    return cell in _NONE or is_number(cell, decimal_comma=True)


def _is_zero(cell: str) -> bool:
    return cell in _NONE or float(cell.replace(",", ".")) == 0


def names_columns(names: list[str]) -> bool:
    """Whether a header names the columns of an edge list; single letters may as well be vertices."""
    words = [name for name in names if len(name) > 1]
    return names_ends(words) or named_length(words) is not None or any(map(is_similarity, words))


def _refuse_rectangle(rows: list[Row]) -> None:
    """A table with an empty corner whose rows are not named like its columns is neither a matrix nor an edge list."""
    (_, head), body = rows[0], rows[1:]
    if head[0] or len(head) < 3 or not all(head[1:]) or names_columns(head[1:]):
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
    """Rows below the header; counting stops once they are too many."""
    count = 0
    with contextlib.closing(source.blocks()) as blocks:
        for block in blocks:
            lines = enumerate(block.data.decode("utf-8", "replace").split("\n"), block.line)
            body = (text.strip() for number, text in lines if number > shape.skip)
            count += sum(bool(text) and not is_comment(text, COMMENTS) for text in body)
            if count > shape.n:
                break
    return count


class _Matrix:
    """Reads the rows of a matrix into arcs."""

    def __init__(self, shape: Shape, options: ReadOptions) -> None:
        self._shape, self._options = shape, options
        self._columns = ArcColumns(options.limits, weighted=not options.unweighted)
        self._rows: list[int] = []
        self._lines: dict[str, int] = {}
        self._place = {name: i for i, name in enumerate(shape.names or [])}
        self._zero: int | None = None
        self._empty: int | None = None
        self._zeros = self._empties = 0
        self._upper = self._lower = 0
        self._signs: set[str] = set()

    def read(self, source: Source) -> Parsed:
        shape = self._shape
        for block in source.body(shape.skip):
            self._block(block)
        if len(self._rows) != shape.n:
            message = f"{shape.n} columns, but {len(self._rows)} rows: the matrix is not square"
            raise InvalidGraph(message, field="row")
        if self._options.directed is None and self._empties and not (self._upper and self._lower):
            triangle = "above" if self._upper else "below"
            if self._empties >= shape.n * (shape.n - 1) // 2 and (self._upper or self._lower):
                raise InvalidGraph(
                    f"there are entries only {triangle} the diagonal: say --undirected if they are edges, both ways, "
                    "or --directed",
                    field="matrix",
                )
        labels: AnyArray = np.arange(shape.n, dtype=np.int64)
        arcs = self._columns.take()
        if arcs.weights is not None:
            refuse_diagonal(arcs, shape.n)
            refuse_totals(arcs, shape.names or [])
        if shape.names is not None:
            labels, place = order_names(shape.names)
            arcs.tails, arcs.heads = place[arcs.tails], place[arcs.heads]
        return Parsed(arcs, labels, directed=True, entries=shape.n * shape.n, notes=self._notes())

    def _notes(self) -> list[str]:
        named = {
            None: "without names",
            False: "with names in its first row",
            True: "with names in first row and column",
        }
        kind = named[None if self._shape.names is None else self._shape.row_names]
        notes = [f"read as a matrix of {self._shape.n} x {self._shape.n}, {kind}: row i, column j is the arc i -> j"]
        for count, what in ((self._zeros, "of 0"), (self._empties, "that are empty or infinite")):
            if count:
                notes.append(f"entries {what} are no arcs: {count:,} off the diagonal")
        return notes

    def _block(self, block: Block) -> None:
        texts: list[str] = []
        empty: list[list[int]] = []
        numbers: list[int] = []
        for number, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            cells = self._cells(raw, number)
            texts.append("" if cells is None else self._text(cells, number, empty))
            if cells is not None:
                numbers.append(number)
        if not numbers:
            return
        n, first = self._shape.n, len(self._rows) - len(numbers)
        values = parse_numbers(("\n".join(texts) + "\n").encode(), block.line).reshape(len(numbers), n)
        absent = np.zeros(values.shape, np.bool_)
        for row, columns in enumerate(empty):
            absent[row, columns] = True
        rows = np.array(self._rows[first:], np.int64)
        off = rows[:, None] != np.arange(n)
        zero = (values == 0) & ~absent & off
        self._watch(zero, absent & off, numbers)
        keep = ~absent & (values != 0)
        at, heads = np.nonzero(keep)
        tails = rows[at]
        self._upper += int((heads > tails).sum())
        self._lower += int((heads < tails).sum())
        self._columns.append(tails, heads, values[keep])

    def _cells(self, raw: bytes, number: int) -> list[str] | None:
        """The entries of a row, its name taken off and noted; None for a comment or an empty line."""
        shape = self._shape
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise InvalidGraph("not valid UTF-8", line=number) from None
        if not text.strip() or is_comment(text.lstrip(), COMMENTS):
            return None
        cells = fields.split(text, shape.separator, True, number)
        if shape.trailing and not cells[-1]:
            cells.pop()
        if len(cells) != shape.n + shape.row_names:
            wanted = shape.n + shape.row_names
            raise InvalidGraph(f"expected {wanted} fields, found {len(cells)}: {shown(text)}", line=number, field="row")
        if not shape.row_names:
            self._rows.append(len(self._rows))
        else:
            self._name(cells.pop(0), number)
        if len(self._rows) > shape.n:
            raise InvalidGraph(f"more rows than the {shape.n} columns: not a square matrix", line=number, field="row")
        return cells

    def _name(self, name: str, number: int) -> None:
        if name not in self._place:
            raise InvalidGraph(f"row {shown(name)} is no column", line=number, field="row")
        if name in self._lines:
            message = f"row {shown(name)} stands also on line {self._lines[name]}"
            raise InvalidGraph(message, line=number, field="row")
        self._lines[name] = number
        self._rows.append(self._place[name])

    def _text(self, cells: list[str], number: int, empty: list[list[int]]) -> str:
        """The entries as numbers with blanks between them; those that are no arcs are 0 and noted in ``empty``."""
        absent = [i for i, cell in enumerate(cells) if cell in _NONE]
        for i in absent:
            cells[i] = "0"
        empty.append(absent)
        text = " ".join(cells)
        if len(text.split()) != len(cells):
            wrong = next(cell for cell in cells if len(cell.split()) != 1)
            raise InvalidGraph(f"weight {shown(wrong)} is not a number", line=number, field="weight")
        if self._shape.separator != ";":
            return text
        # a comma that does not separate is a decimal one
        self._signs |= {sign for sign in ",." if sign in text}
        if len(self._signs) > 1:
            message = "numbers with a decimal comma and numbers with a point: one of them may mark thousands"
            raise InvalidGraph(message, line=number, field="weight")
        return text.replace(",", ".")

    def _watch(self, zero: AnyArray, absent: AnyArray, numbers: Sequence[int]) -> None:
        """Count zeros and empty entries off the diagonal, and refuse a matrix that has both."""
        for name, where in (("_zero", zero), ("_empty", absent)):
            found = np.flatnonzero(where.any(axis=1))
            if getattr(self, name) is None and len(found):
                setattr(self, name, numbers[int(found[0])])
        self._zeros += int(zero.sum())
        self._empties += int(absent.sum())
        if self._zero is not None and self._empty is not None:
            raise InvalidGraph(
                f"an entry of 0 stands off the diagonal, and on line {self._empty} one is empty or infinite: "
                "write one of the two for no arc, and arcs of length 0 in an edge list",
                line=self._zero,
                field="weight",
            )
