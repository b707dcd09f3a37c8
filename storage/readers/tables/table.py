"""Parses arcs that are written as rows of fields; most formats use this parser.

A block is parsed in three steps: a few replacements in the whole buffer bring every row into the form ``field SEPARATOR
field ...``; polars parses the columns; counts of separators and lines prove that no row was skipped.  If a step fails,
the block is read again line by line, which either accepts unusual rows or names the wrong line.  Small files are read
line by line from the start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import EXACT, AnyArray
from storage.readers import fields
from storage.readers.columns import ArcColumns, TextLabels
from storage.readers.formula import Formula
from storage.readers.limits import ReadLimits
from storage.readers.source import BLOCK, Block
from storage.readers.tables.csv_columns import (
    as_numbers,
    even,
    may_have_other_spellings,
    may_have_vanished,
    read_csv,
    with_points,
)
from storage.readers.tables.text_rows import blanks_in_quotes, is_comment, normalise, strip_comments, tabs_in_fields

if TYPE_CHECKING:
    import polars as pl

#: Tails, heads and weights of arcs, and their quantities by name.
Arcs = tuple[AnyArray, AnyArray, AnyArray | None, Mapping[str, AnyArray]]
#: Source, target and weight (None if no weight is read) of a row, and all its fields.
Row = tuple[str, str, int | float | None, list[str]]

#: Files of up to this number of bytes are read line by line.
FEW_BYTES = 1 << 18

#: Matches the beginning of a field in quotes, in files whose fields are separated by blanks, but not in comments.
_QUOTE = re.compile(rb'(?m)^(?![ \t]*+[#%])(?:[^"\n]*+[ \t])?"')
#: Matches a comment after the fields of a row.
_BEHIND = re.compile(rb"(?<![ \t])[ \t]++#[^\n]*+")


@dataclass(frozen=True)
class Layout:
    """Describes how the rows of a file are written.

    Attributes:
        width: number of fields in each row, including ``mark``.
        source, target, weight: positions of the fields from 0; if weight is None, no weight is read.
        separator: the separator of fields: one character, or None for runs of blanks.
        mark: a word that starts every row (``a`` in DIMACS); empty if there is none.
        comments: characters that start a comment line.
        blanks: further characters that count as blanks (``;`` in TNTP).
        quoted: whether fields may be in double quotes.
        decimal_comma: whether weights have decimal commas, as in 1,5.
        text: whether vertices are names.
        integer: whether weights must be whole numbers.
        infinite: whether a weight of +inf is allowed; it means no arc.
        first, last: the smallest and the largest number that a vertex may have; None if every whole number is a label.
        declared: the place where the file declares ``last``, for messages.
        names: names of the columns of source and target, for messages; empty without a header.
        formula: computes lengths from the weights; None keeps the weights.
        behind: whether the text after a blank and ``#`` in a row is a comment.
        decimals: whether vertices may be written as decimals of a whole value, ``1.0``.
        quantities: positions of further columns by name, which are written like weights; ``formula`` ignores them.
    """

    width: int
    source: int = 0
    target: int = 1
    weight: int | None = 2
    separator: str | None = None
    mark: str = ""
    comments: str = "#%"
    blanks: str = ""
    quoted: bool = False
    decimal_comma: bool = False
    text: bool = False
    integer: bool = False
    infinite: bool = True
    first: int | None = None
    last: int | None = None
    declared: str = ""
    names: tuple[str, str] = ("", "")
    formula: Formula | None = None
    behind: bool = False
    decimals: bool = False
    quantities: Mapping[str, int] = field(default_factory=dict)


class ArcTable:
    """Reads blocks of rows into ``columns``; after the last block, ``labels`` has the names (None if vertices are
    numbers).
    """

    def __init__(self, layout: Layout, limits: ReadLimits) -> None:
        limits.check_columns(layout.width)
        self.layout = layout
        self.columns = ArcColumns(limits, layout.weight is not None, layout.quantities)
        self.labels = TextLabels() if layout.text else None
        self._limits = limits
        weight = [] if layout.weight is None else [layout.weight]
        self._numbers = sorted({*weight, *layout.quantities.values()})
        self._fractions: set[int] = set()  # positions of the columns that are known to have fractions
        self._by_columns = False

    def __len__(self) -> int:
        return len(self.columns)

    def feed(self, block: Block) -> None:
        """Read a block.  Raises InvalidGraph, which names the first wrong line; LimitExceeded for too many arcs."""
        if len(block.data) > 2 * BLOCK:
            _refuse_long_rows(block)
        if self.layout.behind:
            block = replace(block, data=_BEHIND.sub(b"", block.data))
        if self.labels is not None and self.layout.separator is None and not self.layout.quoted:
            _refuse_late_quotes(block)
        # Python reads a small file in less time than the import of polars takes.
        self._by_columns = self._by_columns or len(block.data) > FEW_BYTES
        arcs = self._parse_columns(block.data) if self._by_columns else None
        tails, heads, weights, quantities = self._parse_lines(block) if arcs is None else arcs
        if self.layout.formula is not None and weights is not None:
            weights = self._lengths(self.layout.formula, weights, block)
        self.columns.append(tails, heads, weights, quantities)
        if self.labels is not None:
            self._limits.check_vertices(len(self.labels))

    def _lengths(self, formula: Formula, values: AnyArray, block: Block) -> AnyArray:
        """Apply the formula to a column.  Raises InvalidGraph, which names the first line for which the result is not
        finite.
        """
        lengths = formula(values)
        wrong = np.flatnonzero(~np.isfinite(lengths))
        if not len(wrong):
            return lengths
        rows = (n for n, raw in enumerate(block.data.split(b"\n"), block.line) if self.row(raw, n) is not None)
        line = next(islice(rows, int(wrong[0]), None))
        raise InvalidGraph(f"{formula.text} is {lengths[wrong[0]]}, which is no length", line=line, field="length_of")

    def _parse_columns(self, data: bytes) -> Arcs | None:
        """Parse whole columns at once; return None if the block must be read line by line."""
        layout = self.layout
        data = strip_comments(data, layout.comments)
        if layout.text and layout.separator not in (None, "\t") and tabs_in_fields(data, layout.separator):
            return None
        quotes = layout.quoted and b'"' in data
        if quotes and blanks_in_quotes(data, layout.separator or " "):
            return None
        data = normalise(data, layout.separator, layout.blanks)
        rows = data.count(b"\n")
        if rows == 0:
            none = np.empty(0, np.int32)
            return none, none, none, dict.fromkeys(layout.quantities, none)
        if layout.mark:
            longer = len(data) + 1
            data = (b"\n" + data).replace(b"\n%s " % layout.mark.encode(), b"\n")[1:]
            if longer - 1 - len(data) != rows * (len(layout.mark) + 1):
                return None
        width = layout.width - bool(layout.mark)
        separator = layout.separator or " "
        plain = b"".join(data.split(b'"')[::2]) if quotes else data
        # polars fills short rows with nulls and drops excess fields without an error, so the separators are counted.
        if not even(plain, separator, width, rows):
            return None
        frame = self._parse_frame(data, separator, width, quotes)
        if frame is None or frame.height != rows or any(column.null_count() for column in frame):
            return None
        return self._arrays(frame, data)

    def _parse_frame(self, data: bytes, separator: str, width: int, quotes: bool) -> pl.DataFrame | None:
        """Return source, target and all columns of numbers, each named by its position in the rows of the file."""
        import polars as pl

        layout, ends, numbers = self.layout, [self.layout.source, self.layout.target], self._numbers
        first = int(bool(layout.mark))
        # Vertices named by numbers are parsed as text if a number may have two spellings: 07 and 7 are two names.
        as_text = layout.text or (layout.first is None and may_have_other_spellings(data))
        kinds: dict[int, pl.DataType] = dict.fromkeys(range(first, first + width), pl.String())
        if not as_text:
            kinds.update(dict.fromkeys(ends, pl.Int64()))

        def parse(columns: list[int], whole: set[int]) -> pl.DataFrame | None:
            # With decimal commas, weights are parsed as text: polars would also accept 1.234, which may mean 1234.
            if not layout.decimal_comma:
                kinds.update({i: pl.Int64() if i in whole else pl.Float64() for i in numbers})
            places = sorted(i - first for i in columns)
            return read_csv(data, {str(i): kind for i, kind in kinds.items()}, places, separator, quotes)

        whole = {*numbers} - self._fractions
        frame = parse([*ends, *numbers], whole)
        if frame is None and not (layout.integer or layout.decimal_comma):
            fractions = whole if len(whole) == 1 else {i for i in whole if parse([i], whole) is None}
            frame = parse([*ends, *numbers], whole - fractions) if fractions else None
            if frame is not None:
                self._fractions |= fractions
        if frame is None:
            return None
        frame = frame.select(str(i) for i in [*ends, *numbers])
        if layout.decimal_comma and numbers:
            frame = with_points(frame)
        return frame if frame is None or layout.text or not as_text else as_numbers(frame)

    def _arrays(self, frame: pl.DataFrame, data: bytes) -> Arcs | None:
        layout = self.layout
        numbers: dict[int | None, AnyArray] = {}
        for position in self._numbers:
            numbers[position] = values = frame.get_column(str(position)).to_numpy()
            # NaN fails this comparison, too.  For whole numbers beyond 2^53, the line parser examines the text.
            if not (values.min() > -EXACT and values.max() < EXACT) or may_have_vanished(values, data):
                return None
        further = {name: numbers[position] for name, position in layout.quantities.items()}
        weights = numbers.get(layout.weight)
        if self.labels is not None:
            ends = frame.to_series(0), frame.to_series(1)
            # an empty field in quotes is no null, so it would be the name of a vertex
            if any((side == "").any() for side in ends):
                return None
            return self.labels.encode(ends[0]), self.labels.encode(ends[1]), weights, further
        tails, heads = frame.to_series(0).to_numpy(), frame.to_series(1).to_numpy()
        low, high = min(tails.min(), heads.min()), max(tails.max(), heads.max())
        if (layout.first is not None and low < layout.first) or (layout.last is not None and high > layout.last):
            return None
        return tails, heads, weights, further

    def _parse_lines(self, block: Block) -> Arcs:
        """Parse line by line.  Raises InvalidGraph for the first wrong line."""
        layout = self.layout
        tails: list[int] = []
        heads: list[int] = []
        weights: list[int | float] = []
        quantities: dict[str, list[int | float]] = {name: [] for name in layout.quantities}
        names: list[str] = []
        known: dict[str, int] = {}  # a cache of parsed vertices: most occur in several rows
        for number, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            row = self.row(raw, number)
            if row is None:
                continue
            source, target, weight, tokens = row
            for name, position in layout.quantities.items():
                quantities[name].append(self._weight(tokens[position], number))
            if layout.text:
                names += [source, target]
            else:
                for token, column, ends in ((source, 0, tails), (target, 1, heads)):
                    if token not in known:
                        known[token] = self._vertex(token, number, layout.names[column])
                    ends.append(known[token])
            if weight is not None:
                weights.append(weight)
        lengths, further = _as_array(weights), {name: _as_array(values) for name, values in quantities.items()}
        if self.labels is not None:
            codes = self.labels.encode(names)
            return codes[::2], codes[1::2], lengths, further
        return np.array(tails, np.int64), np.array(heads, np.int64), lengths, further

    def row(self, raw: bytes, number: int) -> Row | None:
        """Return one line as a row; None for a comment or an empty line."""
        layout = self.layout
        text = self._decode(raw, number)
        for blank in layout.blanks:
            text = text.replace(blank, " ")
        # between tabs that separate fields there is a row, whose entries are missing
        blank = " " if layout.separator == "\t" else fields.BLANKS
        if not text.strip(blank) or is_comment(text.lstrip(fields.BLANKS), layout.comments):
            return None
        row = fields.split(text, layout.separator, layout.quoted, number)
        if layout.mark and row[0] != layout.mark:
            raise InvalidGraph(
                f"expected a line that starts with {layout.mark!r}, found {fields.shown(text)}", line=number
            )
        if len(row) != layout.width:
            raise InvalidGraph(
                f"expected {layout.width} fields, found {len(row)}: {fields.shown(text)}", line=number, field="row"
            )
        weight = None
        if layout.weight is not None:
            weight = self._weight(row[layout.weight], number)
        source, target = row[layout.source], row[layout.target]
        if layout.text and not (source and target):
            raise InvalidGraph(f"the vertex is missing: {fields.shown(text)}", line=number, field="vertex")
        return source, target, weight, row

    def _weight(self, token: str, number: int) -> int | float:
        layout = self.layout
        weight = fields.weight(token, number, integer=layout.integer, decimal_comma=layout.decimal_comma)
        if weight == float("inf") and not layout.infinite:
            raise InvalidGraph("weight inf is not allowed in this format", line=number, field="weight")
        return weight

    def _decode(self, raw: bytes, number: int) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            text = raw.decode("latin-1")
            if is_comment(text.lstrip(fields.BLANKS), self.layout.comments):
                return text
            raise InvalidGraph(f"not valid UTF-8: {fields.shown(text)}", line=number) from None

    def _vertex(self, token: str, number: int, column: str) -> int:
        layout = self.layout
        if layout.decimals and not fields.is_whole(token) and fields.is_number(token):
            token = _as_whole(token)
        read = fields.label if layout.first is None else fields.vertex
        value = read(token, number, column)
        if layout.first is not None and value < layout.first:
            raise InvalidGraph(f"vertex {value}: vertices count from {layout.first}", line=number, field="vertex")
        if layout.last is not None and value > layout.last:
            span = f"{layout.first} .. {layout.last}"
            raise InvalidGraph(f"vertex {value} is outside {span} ({layout.declared})", line=number, field="vertex")
        return value


def _as_array(numbers: list[int | float]) -> AnyArray:
    """Return numbers as int64, or as float64 if there is a fraction."""
    return np.array(numbers, np.float64 if any(isinstance(number, float) for number in numbers) else np.int64)


def _as_whole(token: str) -> str:
    """Return ``1`` for ``1.0``; return fractions, and numbers that float64 would round, unchanged, so that the caller
    refuses them.
    """
    value = float(token)
    return str(int(value)) if abs(value) < EXACT and value.is_integer() else token


def _refuse_long_rows(block: Block) -> None:
    """Refuse a row that is too long, before it is split into fields."""
    for number, row in enumerate(block.data.split(b"\n"), block.line):
        if len(row) > fields.LONGEST_ROW:
            raise InvalidGraph(f"a row of more than {fields.LONGEST_ROW:,} bytes", line=number, field="row")


def _refuse_late_quotes(block: Block) -> None:
    """Refuse a name in quotes after many names without quotes, because the same name would become two vertices."""
    found = _QUOTE.search(block.data) if b'"' in block.data else None
    if found is not None:
        line = block.line + block.data.count(b"\n", 0, found.end())
        raise InvalidGraph("a field in quotes, while the rows before have none: quote all or none", line=line)
