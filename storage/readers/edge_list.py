"""Edge lists: rows of source, target and perhaps a weight, with or without names for the columns.

The first lines tell the separator, the header row, the columns and whether vertices are numbers or names; the rows
themselves go through ``ArcTable``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from storage.cleaning import AnyArray, ArcList
from storage.errors import InvalidGraph
from storage.readers.fields import TextVertex
from storage.readers.limits import check_plausible
from storage.readers.parsed import Options, Parsed
from storage.readers.sniff import COMMENTS, Sniffed, no_banner, sniff
from storage.readers.source import Source
from storage.readers.table import ArcTable, is_comment

#: SNAP writes the counts into a comment.
_SNAP = re.compile(r"#\s*Nodes:\s*(\d{1,18})\s+Edges:\s*(\d{1,18})\s*", re.IGNORECASE)
#: An 'n m' line that looks like an arc itself is believed only above this many rows.
_FEW = 32


@dataclass(frozen=True)
class _Declared:
    """A count of vertices and rows that the file states; ``exact`` ones must be true."""

    n: int
    m: int
    line: int
    exact: bool


def read(source: Source, options: Options) -> Parsed:
    """Read an edge list; errors as ``read_graph``."""
    sniffed = sniff(source.head, options)
    try:
        return _read(source, options, sniffed)
    except TextVertex as found:
        if sniffed.layout.text:
            raise
        # Names may come after numbers: then all labels are names.
        parsed = _read(source, options, replace(sniffed, layout=replace(sniffed.layout, text=True)))
        parsed.notes.append(f"the vertices are names because of {found}")
        return parsed


def _read(source: Source, options: Options, sniffed: Sniffed) -> Parsed:
    table = ArcTable(sniffed.layout, options.limits)
    for block in source.body(sniffed.skip):
        table.feed(block)
    entries = len(table)
    if entries == 0:
        raise InvalidGraph("there is no edge in the file: only comments, empty lines or a header")
    arcs = table.columns.take()
    notes = list(sniffed.notes)
    if table.labels is not None:
        return Parsed(arcs, table.labels.finish(arcs), True, entries, weight_column=sniffed.weight_name, notes=notes)
    if sniffed.skip == 0 and _is_size_line(arcs):
        lines = enumerate(map(str.strip, source.head), 1)
        raise next(no_banner(text, at) for at, text in lines if text and not is_comment(text, COMMENTS))
    labels = None
    counts = _declared(source.head, sniffed)
    if counts is not None:
        labels = _declared_labels(counts, arcs, notes, options)
    elif sniffed.layout.weight is None and (counts := _first_row(arcs)) is not None:
        labels = _declared_labels(counts, arcs, notes, options)
        entries -= 1
    base = 0 if labels is None or not len(labels) else int(labels[0])
    return Parsed(arcs, labels, True, entries, base=base, weight_column=sniffed.weight_name, notes=notes)


def _is_size_line(arcs: ArcList) -> bool:
    """Whether the first row is no arc but ``n n m``: m rows follow, all vertices lie within 1 .. n."""
    rest = len(arcs.tails) - 1
    if rest < _FEW or arcs.weights is None or arcs.tails[0] != arcs.heads[0] or arcs.weights[0] != rest:
        return False
    low = min(int(arcs.tails[1:].min()), int(arcs.heads[1:].min()))
    high = max(int(arcs.tails[1:].max()), int(arcs.heads[1:].max()))
    return low >= 1 and high <= int(arcs.tails[0])


def _declared(head: list[str], sniffed: Sniffed) -> _Declared | None:
    if sniffed.counts is not None:
        n, m, line = sniffed.counts
        return _Declared(n, m, line, exact=True)
    for number, text in enumerate(head[: sniffed.skip + 50], 1):
        if found := _SNAP.fullmatch(text.strip()):
            return _Declared(int(found[1]), int(found[2]), number, exact=False)
    return None


def _declared_labels(counts: _Declared, arcs: ArcList, notes: list[str], options: Options) -> AnyArray | None:
    """The vertices that a count stands for: 0 .. n - 1 or 1 .. n; None if it merely counts those that occur."""
    rows = len(arcs.tails)
    low = min(int(arcs.tails.min()), int(arcs.heads.min()))
    high = max(int(arcs.tails.max()), int(arcs.heads.max()))
    first = 0 if low == 0 else 1
    fits = counts.m == rows and low >= 0 and high < counts.n + first
    if fits:
        options.limits.check_vertices(counts.n, counts.line)
        check_plausible(counts.n, rows, counts.line)
        notes.append(f"line {counts.line} declares {counts.n} vertices: {first} .. {counts.n + first - 1}")
        return np.arange(first, counts.n + first, dtype=np.int64)
    if counts.exact:
        raise InvalidGraph(
            f"declares {counts.n} vertices and {counts.m} edges, but {rows} edges follow, of vertices {low} .. {high}",
            line=counts.line,
            field="header",
        )
    return None


def _first_row(arcs: ArcList) -> _Declared | None:
    """Take the first row for a count ``n m`` if it is exactly that: m rows follow, all vertices lie within n."""
    n, m = int(arcs.tails[0]), int(arcs.heads[0])
    rest = len(arcs.tails) - 1
    if m != rest or rest < _FEW or n < 1:
        return None
    low = min(int(arcs.tails[1:].min()), int(arcs.heads[1:].min()))
    high = max(int(arcs.tails[1:].max()), int(arcs.heads[1:].max()))
    if low < 0 or high >= n + (low > 0):
        return None
    arcs.tails, arcs.heads = arcs.tails[1:], arcs.heads[1:]
    return _Declared(n, m, 1, exact=True)
