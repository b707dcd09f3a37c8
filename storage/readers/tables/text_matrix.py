"""Square matrices of lengths as text, with names in the first row and column, in the first row only, or without any.

Row i, column j is the arc i -> j.  Off the diagonal, 0 is no arc, as in dense NumPy files; an empty entry, ``NA`` and
``inf`` are no arcs either.  A file that has both zeros and empty entries off the diagonal is refused, because its zeros
may mean arcs of length 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray
from storage.readers import fields
from storage.readers.columns import ArcColumns
from storage.readers.fields import shown
from storage.readers.names import order_names
from storage.readers.numbers import parse_numbers
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Block, Source
from storage.readers.tables.doubtful import DecimalMarks
from storage.readers.tables.matrix_shape import NO_ARC, Shape, find_shape
from storage.readers.tables.no_lengths import (
    refuse_diagonal,
    refuse_signs_of_nothing,
    refuse_totals,
    refuse_triangle,
)
from storage.readers.tables.remarks import Remarks, stated_direction
from storage.readers.tables.sniff import COMMENTS
from storage.readers.tables.text_rows import is_comment


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a matrix; raises the errors of ``read_graph``."""
    options.refuse_weight("matrix")
    shape, first = find_shape(source)
    options.limits.check_vertices(shape.n)
    options.limits.check_arcs(shape.n * shape.n)
    parsed = _Matrix(shape, options).read(source)
    stated, line = stated_direction(source.head, first, options)
    if stated is not None:
        parsed.notes += Remarks(stated, line).notes(options)
    if options.directed is None and stated is None:
        parsed.notes += refuse_triangle(parsed.arcs, shape.n)
    if stated is False and options.directed is None:
        _check_symmetric(parsed, line)
        parsed.directed = False
    return parsed


def _check_symmetric(parsed: Parsed, line: int) -> None:
    """Refuse a matrix that a comment calls undirected if the lengths of u -> v and v -> u differ."""
    arcs = parsed.arcs
    if arcs.weights is None:
        return
    lengths = dict(zip(zip(arcs.tails.tolist(), arcs.heads.tolist(), strict=True), arcs.weights.tolist(), strict=True))
    for (tail, head), length in lengths.items():
        if lengths.get((head, tail), length) != length:
            raise InvalidGraph(
                f"line {line} says that the edges are undirected, but the matrix has {length:g} and "
                f"{lengths[head, tail]:g} between the same vertices: say --undirected (the smaller) or --directed",
                field="matrix",
            )


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
        self._marks, self._marking = DecimalMarks(), True

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
            refuse_signs_of_nothing(arcs)
        if shape.names is not None:
            labels, place = order_names(shape.names)
            arcs.tails, arcs.heads = place[arcs.tails], place[arcs.heads]
        notes = [*self._notes(), *self._marks.notes()]
        return Parsed(arcs, labels, directed=True, entries=shape.n * shape.n, notes=notes)

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
        """Return the entries of a row, and store the name of the row; return None for a comment or an empty line."""
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
        """Join the entries by blanks; a missing entry becomes 0.  The columns of missing entries are appended to
        ``empty`` as one list.
        """
        absent = [i for i, cell in enumerate(cells) if cell in NO_ARC]
        for i in absent:
            cells[i] = "0"
        empty.append(absent)
        text = " ".join(cells)
        if len(text.split()) != len(cells):
            wrong = next(cell for cell in cells if len(cell.split()) != 1)
            raise InvalidGraph(f"weight {shown(wrong)} is not a number", line=number, field="weight")
        if self._shape.separator != ";":
            return text
        # If semicolons separate the entries, a comma is a decimal comma.
        self._marking = self._marking and self._marks.look(cells, number)
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
