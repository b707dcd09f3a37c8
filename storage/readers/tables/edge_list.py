"""Edge lists: rows of source, target and perhaps a weight, with or without names for the columns.

The first lines tell the separator, the header row, the columns and whether vertices are numbers or names; the rows
themselves go through ``ArcTable``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray, ArcList, is_label
from storage.readers import fields
from storage.readers.fields import TextVertex
from storage.readers.limits import check_plausible
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import FIRST_LINE, Source
from storage.readers.tables.sniff import COMMENTS, KINDS, Sniffed, no_banner, sniff
from storage.readers.tables.table import ArcTable, is_comment

#: SNAP writes the counts into a comment.
_SNAP = re.compile(r"#\s*+Nodes:\s*+([0-9]{1,18})\s++Edges:\s*+([0-9]{1,18})", re.IGNORECASE)
#: An 'n m' line that looks like an arc itself is believed only above this many rows.
_FEW = 32


@dataclass(frozen=True)
class _Declared:
    """A count of vertices and rows that the file states; ``exact`` ones must be true."""

    n: int
    m: int
    line: int
    exact: bool


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read an edge list; errors as ``read_graph``."""
    if source.head_is_cut:
        raise InvalidGraph(f"a row of more than {FIRST_LINE:,} bytes: this is no edge list", line=1, field="row")
    sniffed = sniff(source.head, options)
    try:
        parsed = _read(source, options, sniffed)
    except TextVertex as found:
        if sniffed.layout.text:
            raise
        # Names may come after numbers: then all labels are names.
        parsed = _read(source, options, replace(sniffed, layout=replace(sniffed.layout, text=True)))
        parsed.notes.append(f"the vertices are names because of {found}")
    if options.length_of is not None:
        parsed.length_of = options.length_of.text
    return parsed


def _read(source: Source, options: ReadOptions, sniffed: Sniffed) -> Parsed:
    directed = True if sniffed.kind is None or options.directed is not None else _directed(source, sniffed)
    table = ArcTable(sniffed.layout, options.limits)
    for block in source.body(sniffed.skip):
        table.feed(block)
    entries = len(table)
    if entries == 0:
        raise InvalidGraph("there is no edge in the file: only comments, empty lines or a header")
    arcs = table.columns.take()
    notes = list(sniffed.notes)
    if sniffed.kind is not None and options.directed is None:
        notes.insert(0, f"column 'Type': all edges are {'directed' if directed else 'undirected'}")
    if table.labels is not None:
        names = table.labels.finish(arcs)
        if sniffed.counts is not None:
            _check_counts(sniffed.counts, len(names), entries)
        elif sniffed.skip == 0 and sniffed.layout.weight is None:
            _refuse_count(str(names[arcs.tails[0]]), str(names[arcs.heads[0]]), entries - 1)
        return Parsed(arcs, names, directed, entries, weight_column=sniffed.weight_name, notes=notes)
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
    return Parsed(arcs, labels, directed, entries, base=base, weight_column=sniffed.weight_name, notes=notes)


def _directed(source: Source, sniffed: Sniffed) -> bool:
    """What the column ``Type`` says of all edges."""
    layout = sniffed.layout
    found: bool | None = None
    for block in source.body(sniffed.skip):
        for line, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            text = raw.decode("utf-8", "replace")
            row = fields.split(text, layout.separator, layout.quoted, line)
            if not text.strip() or is_comment(text.lstrip(), layout.comments) or len(row) != layout.width:
                continue
            kind = row[sniffed.kind or 0].lower()
            if kind not in KINDS:
                raise InvalidGraph(f"Type {fields.shown(kind)} is not read", line=line, field="Type")
            if found not in (None, KINDS[kind]):
                raise InvalidGraph(
                    "edges both directed and undirected; say which with --directed or --undirected",
                    line=line,
                    field="Type",
                )
            found = KINDS[kind]
    return found is not False


def _check_counts(counts: tuple[int, int, int], vertices: int, rows: int) -> None:
    """Refuse a first line ``n m`` that is not true of rows between names."""
    n, m, line = counts
    if (n, m) != (vertices, rows):
        raise InvalidGraph(
            f"declares {n} vertices and {m} edges, but {rows} edges follow, of {vertices} vertices with names",
            line=line,
            field="header",
        )


def _refuse_count(first: str, second: str, rest: int) -> None:
    """Refuse a first row ``n m`` before m rows of names: as an arc it would add two vertices."""
    if rest >= _FEW and is_label(first) and second == str(rest):
        raise InvalidGraph(
            f"'{first} {second}' counts the {rest} rows below, whose vertices are names: leave it out, or, if it is an "
            "arc, name the columns in a first row 'source target'",
            field="header",
        )


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


def _declared_labels(counts: _Declared, arcs: ArcList, notes: list[str], options: ReadOptions) -> AnyArray | None:
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
