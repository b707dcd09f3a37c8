"""Reads numbers that are not arranged in rows, and matrices written entry after entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import EXACT, AnyArray, IntArray
from storage.readers import fields
from storage.readers.columns import ArcColumns
from storage.readers.tables import table
from storage.readers.tables.csv_columns import may_have_vanished
from storage.readers.tables.text_rows import normalise, strip_comments


def parse_numbers(data: bytes, line: int, comments: str = "", *, what: str = "weight") -> AnyArray:
    """Return all numbers of a text, separated by blanks and line ends, as int64, or as float64 if one has a fraction.

    ``what`` names the numbers in messages; if it is "vertex", they must be whole.  Raises InvalidGraph, which names the
    line of the first word that is no number.
    """
    if len(data) <= table.FEW_BYTES:
        return _parse_words(data, line, comments, what)
    import polars as pl

    words = normalise(strip_comments(data, comments).replace(b"\n", b" "), None).strip(b" \n").replace(b" ", b"\n")
    if not words:
        return np.empty(0, np.int64)
    count = words.count(b"\n") + 1
    for kind in (pl.Int64(),) if what == "vertex" else (pl.Int64(), pl.Float64()):
        try:
            column = pl.read_csv(words, has_header=False, quote_char=None, schema={"0": kind}).to_series(0)
        except pl.exceptions.PolarsError:
            continue
        values: AnyArray = column.to_numpy()
        whole = len(values) == count and column.null_count() == 0
        if whole and values.min() > -EXACT and values.max() < EXACT and not may_have_vanished(values, words):
            return values
    return _parse_words(data, line, comments, what)


def _parse_words(data: bytes, line: int, comments: str, what: str) -> AnyArray:
    out: list[int | float] = []
    for number, raw in enumerate(data.split(b"\n"), line):
        text = raw.decode("latin-1").strip(fields.BLANKS)
        if text and text[0] not in comments:
            out += [_number(token, number, what) for token in fields.words(text)]
    return np.array(out, np.float64 if any(isinstance(v, float) for v in out) else np.int64)


def _number(token: str, line: int, what: str) -> int | float:
    return fields.vertex(token, line) if what == "vertex" else fields.weight(token, line, field=what)


@dataclass
class MatrixEntries:
    """Converts the entries of a matrix, in the order of the file, to arcs ``row -> column``, counted from 0.

    Attributes:
        first: for each row, the column of its first entry in the file.
        starts: for each row, the number of entries before it; the last element is the number of all entries.
        zeros: whether an entry of 0 is an arc of length zero (as in TSPLIB); otherwise it is no arc.
        loops: whether an entry on the diagonal is a self loop; otherwise it is ignored (as in TSPLIB).
    """

    first: IntArray
    starts: IntArray
    zeros: bool
    at: int = 0
    loops: bool = False

    @classmethod
    def full(cls, n: int, *, zeros: bool) -> MatrixEntries:
        """Return the converter for a full n × n matrix, whose rows are written one after the other."""
        return cls(np.zeros(n, np.int64), np.arange(n + 1, dtype=np.int64) * n, zeros)

    @classmethod
    def upper(cls, n: int, *, diagonal: bool, zeros: bool) -> MatrixEntries:
        """Return the converter for the rows of an upper triangle, with or without the diagonal."""
        first = np.arange(n, dtype=np.int64) + (not diagonal)
        return cls(first, np.concatenate([[0], np.cumsum(n - first)]), zeros)

    @classmethod
    def lower(cls, n: int, *, diagonal: bool, zeros: bool) -> MatrixEntries:
        """Return the converter for the rows of a lower triangle, with or without the diagonal."""
        lengths = np.arange(n, dtype=np.int64) + diagonal
        return cls(np.zeros(n, np.int64), np.concatenate([[0], np.cumsum(lengths)]), zeros)

    @property
    def total(self) -> int:
        """The number of entries of the whole matrix."""
        return int(self.starts[-1]) if len(self.starts) else 0

    def append_to(self, columns: ArcColumns, values: AnyArray, *, transpose: bool = False) -> None:
        """Add the arcs of the next ``values`` to ``columns``.  Raises InvalidGraph if there are too many values."""
        if self.at + len(values) > self.total:
            raise InvalidGraph(f"the matrix has {self.total} entries, more follow", field="matrix")
        at = np.arange(self.at, self.at + len(values), dtype=np.int64)
        self.at += len(values)
        rows = np.searchsorted(self.starts, at, side="right") - 1
        heads = self.first[rows] + at - self.starts[rows]
        keep = (rows != heads) | self.loops
        if not self.zeros:
            keep &= values != 0
        rows, heads, values = rows[keep], heads[keep], values[keep]
        columns.append(*((heads, rows) if transpose else (rows, heads)), values)
