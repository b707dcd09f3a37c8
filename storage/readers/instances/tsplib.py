"""TSPLIB files (Reinelt, 1991) with an explicit matrix: every entry off the diagonal is an edge, even an entry 0."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.columns import ArcColumns
from storage.readers.left_out import LeftOut
from storage.readers.numbers import MatrixEntries, parse_numbers
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Block, Source

#: Maps each EDGE_WEIGHT_FORMAT to the converter of its entries.  A matrix written as a triangle is symmetric, so the
#: columns of one triangle are read as the rows of the other triangle.
_FORMS: dict[str, Callable[[int], MatrixEntries]] = {
    "FULL_MATRIX": lambda n: MatrixEntries.full(n, zeros=True),
    "UPPER_ROW": lambda n: MatrixEntries.upper(n, diagonal=False, zeros=True),
    "LOWER_ROW": lambda n: MatrixEntries.lower(n, diagonal=False, zeros=True),
    "UPPER_DIAG_ROW": lambda n: MatrixEntries.upper(n, diagonal=True, zeros=True),
    "LOWER_DIAG_ROW": lambda n: MatrixEntries.lower(n, diagonal=True, zeros=True),
    "UPPER_COL": lambda n: MatrixEntries.lower(n, diagonal=False, zeros=True),
    "LOWER_COL": lambda n: MatrixEntries.upper(n, diagonal=False, zeros=True),
    "UPPER_DIAG_COL": lambda n: MatrixEntries.lower(n, diagonal=True, zeros=True),
    "LOWER_DIAG_COL": lambda n: MatrixEntries.upper(n, diagonal=True, zeros=True),
}
#: The keys that decide what the numbers mean; a file that gives two values for one of them is refused.
_MEANT = ("TYPE", "DIMENSION", "EDGE_WEIGHT_TYPE", "EDGE_WEIGHT_FORMAT")
_WORD = re.compile(rb"(?m)^[ \t]*+[A-Z_]{3}")
_OTHER = re.compile(rb"(?m)^[ \t]*+([A-Z_]{1,40}_SECTION)\b")
_SECTION = re.compile(rb"(?m)^[ \t]*+EDGE_WEIGHT_SECTION[ \t]*+:?[ \t]*+\n")


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a TSPLIB file; raises the errors of ``read_graph``."""
    options.refuse_weight("TSPLIB")
    keys = _keys(source.head)
    n, form, line = _check(keys, options)
    columns = ArcColumns(options.limits, weighted=not options.unweighted)
    matrix = _FORMS[form](n)
    others = LeftOut("sections")
    for block in _section(source, others):
        values = parse_numbers(block.data, block.line)
        if matrix.at + len(values) > matrix.total:
            raise InvalidGraph(
                f"more than the {matrix.total} entries of a {form} of dimension {n}", line=line, field="DIMENSION"
            )
        matrix.append_to(columns, values)
    if matrix.at != matrix.total:
        raise InvalidGraph(
            f"a {form} of dimension {n} has {matrix.total} entries, the file has {matrix.at}",
            line=line,
            field="DIMENSION",
        )
    labels = np.arange(1, n + 1, dtype=np.int64)
    entries = len(columns)
    directed = keys["TYPE"][0] == "ATSP"
    return Parsed(columns.take(), labels, directed=directed, entries=entries, notes=others.notes())


def _keys(head: list[str]) -> dict[str, tuple[str, int]]:
    keys = {"TYPE": ("TSP", 0)}
    for number, text in enumerate(head, 1):
        key, colon, value = text.partition(":")
        if key.strip() == "EDGE_WEIGHT_SECTION":
            break
        if colon and value.split():
            # The type may be followed by a remark: 'TSP (M.~Hofmeister)'.
            name, word = key.strip(), value.split()[0].upper()
            if name in _MEANT and name in keys and keys[name][0] != word and keys[name][1]:
                raise InvalidGraph(f"{name} stands also on line {keys[name][1]}", line=number, field=name)
            keys[name] = word, number
    return keys


def _check(keys: dict[str, tuple[str, int]], options: ReadOptions) -> tuple[int, str, int]:
    """Check the keys; return the dimension, the EDGE_WEIGHT_FORMAT and the line number of the dimension."""
    for key in ("DIMENSION", "EDGE_WEIGHT_TYPE"):
        if key not in keys:
            raise InvalidGraph(f"{key} is missing", field=key)
    kind, line = keys["TYPE"]
    if kind not in ("TSP", "ATSP"):
        raise InvalidGraph(f"TYPE {kind} is no plain graph; TSP and ATSP are read", line=line, field="TYPE")
    weights, line = keys["EDGE_WEIGHT_TYPE"]
    if weights != "EXPLICIT":
        raise InvalidGraph(
            f"EDGE_WEIGHT_TYPE {weights} gives coordinates, not a graph; only EXPLICIT is read",
            line=line,
            field="EDGE_WEIGHT_TYPE",
        )
    form, line = keys.get("EDGE_WEIGHT_FORMAT", ("FULL_MATRIX", 0))
    if form not in _FORMS:
        raise InvalidGraph(f"unknown EDGE_WEIGHT_FORMAT {form}", line=line, field="EDGE_WEIGHT_FORMAT")
    dimension, line = keys["DIMENSION"]
    n = fields.whole(dimension, line, "DIMENSION")
    if n < 0:
        raise InvalidGraph(f"a dimension of {n} is out of range", line=line, field="DIMENSION")
    options.limits.check_vertices(n, line)
    options.limits.check_arcs(n * n if form == "FULL_MATRIX" else n * (n - 1) // 2, line)
    return n, form, line


def _section(source: Source, others: LeftOut) -> Iterator[Block]:
    """Yield the text between EDGE_WEIGHT_SECTION and the next keyword; record the names of other sections in
    ``others``.
    """
    inside = ended = False
    for block in source.blocks():
        data, line = block.data, block.line
        names = {name.decode() for name in _OTHER.findall(data)}
        others.add(sorted(names - {"EDGE_WEIGHT_SECTION"}))
        if ended:
            continue
        if not inside:
            begin = _SECTION.search(data)
            if begin is None:
                continue
            line += data.count(b"\n", 0, begin.end())
            data, inside = data[begin.end() :], True
        end = _WORD.search(data)
        yield Block(data if end is None else data[: end.start()], line)
        ended = end is not None
