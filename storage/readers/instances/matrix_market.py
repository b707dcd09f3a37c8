"""Matrix Market exchange files (Boisvert, Pozo and Remington, NIST, 1996): entry (i, j) is the arc i -> j.

In the coordinate form a stored 0 is an arc of length zero; in the dense array form 0 is no arc.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.columns import ArcColumns
from storage.readers.limits import check_plausible
from storage.readers.numbers import MatrixEntries, parse_numbers
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source
from storage.readers.tables.no_lengths import note_triangle, refuse_correlations
from storage.readers.tables.table import ArcTable, Layout

_BANNER = "'%%MatrixMarket matrix coordinate|array real|integer|pattern general|symmetric'"


@dataclass(frozen=True)
class MatrixMarketHeader:
    """The content of banner and size line.  ``skip`` is the line number of the size line: the entries follow it."""

    dense: bool
    field: str
    symmetric: bool
    n: int
    entries: int
    skip: int


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a Matrix Market file; raises the errors of ``read_graph``."""
    options.refuse_weight("Matrix Market")
    header = _header(source)
    options.limits.check_vertices(header.n, header.skip)
    options.limits.check_arcs(header.entries, header.skip)
    weighted = header.field != "pattern" and not options.unweighted
    if header.dense:
        columns = ArcColumns(options.limits, weighted)
        entries = _read_array(source, header, columns)
    else:
        columns, entries = _read_coordinates(source, header, options, weighted)
    check_plausible(header.n, entries, header.skip)
    labels = np.arange(1, header.n + 1, dtype=np.int64)
    base = 0 if header.dense else 1
    arcs = columns.take()
    refuse_correlations(arcs, header.n)
    notes = note_triangle(arcs, header.n) if options.directed is None and not header.symmetric else []
    return Parsed(arcs, labels, directed=not header.symmetric, entries=entries, base=base, notes=notes)


def _header(source: Source) -> MatrixMarketHeader:
    words = source.head[0].lower().split()
    if not words or words[0] != "%%matrixmarket" or len(words) != 5 or words[1] != "matrix":
        raise InvalidGraph(f"expected {_BANNER}, found {fields.shown(source.head[0])}", line=1, field="banner")
    _, _, form, field, symmetry = words
    if form not in ("coordinate", "array"):
        raise InvalidGraph(f"unknown form {form!r}; expected {_BANNER}", line=1, field="banner")
    if field not in ("real", "integer", "pattern", "double"):
        raise InvalidGraph(f"{field} values are no weights; expected {_BANNER}", line=1, field="banner")
    if symmetry not in ("general", "symmetric"):
        raise InvalidGraph(
            f"a {symmetry} matrix gives arcs of opposite weight, so cycles of length zero or less; expected {_BANNER}",
            line=1,
            field="banner",
        )
    if form == "array" and field == "pattern":
        raise InvalidGraph("an array of type pattern has no entries", line=1, field="banner")
    for line, text in enumerate(source.head[1:], 2):
        if text.strip() and not text.lstrip().startswith("%"):
            n, entries = _size(text.split(), line, form == "array", symmetry == "symmetric")
            return MatrixMarketHeader(form == "array", field, symmetry == "symmetric", n, entries, line)
    raise InvalidGraph("the size line is missing", field="size")


def _size(words: list[str], line: int, dense: bool, symmetric: bool) -> tuple[int, int]:
    wanted = 2 if dense else 3
    if len(words) != wanted:
        raise InvalidGraph(f"the size line must hold {wanted} numbers, found {len(words)}", line=line, field="size")
    sizes = [fields.whole(word, line, "size") for word in words]
    if min(sizes) < 0:
        raise InvalidGraph(f"a size below zero: {' '.join(words)}", line=line, field="size")
    if sizes[0] != sizes[1]:
        raise InvalidGraph(
            f"a graph needs a square matrix, this one is {sizes[0]} x {sizes[1]}", line=line, field="size"
        )
    n = sizes[0]
    return n, sizes[2] if not dense else (n * (n + 1) // 2 if symmetric else n * n)


def _read_coordinates(
    source: Source, header: MatrixMarketHeader, options: ReadOptions, weighted: bool
) -> tuple[ArcColumns, int]:
    layout = Layout(
        2 if header.field == "pattern" else 3,
        weight=2 if weighted else None,
        comments="%",
        integer=header.field == "integer",
        first=1,
        last=header.n,
        declared=f"line {header.skip} declares {header.n}",
    )
    table = ArcTable(layout, options.limits)
    for block in source.body(header.skip):
        table.feed(block)
    if len(table) != header.entries:
        raise InvalidGraph(
            f"the size line declares {header.entries} entries, the file has {len(table)}",
            line=header.skip,
            field="size",
        )
    return table.columns, header.entries


def _read_array(source: Source, header: MatrixMarketHeader, columns: ArcColumns) -> int:
    """Read the entries column by column; a symmetric file lists only the columns of the lower triangle, which equal the
    rows of the upper triangle.
    """
    make = MatrixEntries.upper if header.symmetric else MatrixEntries.full
    matrix = None
    read = 0
    for block in source.body(header.skip):
        values = parse_numbers(block.data, block.line, "%")
        read += len(values)
        if read > header.entries:
            break
        if matrix is None:
            # The matrix is allocated only after entries have been read, so that a false size line allocates nothing.
            check_plausible(header.n, len(values), header.skip)
            matrix = make(header.n, zeros=False, **({"diagonal": True} if header.symmetric else {}))
            matrix.loops = True
        matrix.append_to(columns, values, transpose=not header.symmetric)
    if read != header.entries:
        more = "more" if read > header.entries else str(read)
        raise InvalidGraph(
            f"the size line declares {header.n} x {header.n}, so {header.entries} entries, the file has {more}",
            line=header.skip,
            field="size",
        )
    return read
