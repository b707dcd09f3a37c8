"""Digraphs of "Algorithms", 4th edition (Sedgewick and Wayne): ``n``, ``m``, then ``u v [w]``, vertices from 0."""

from __future__ import annotations

import numpy as np

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.limits import check_plausible
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source
from storage.readers.tables.table import ArcTable, Layout


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read the file; raises the errors of ``read_graph``."""
    options.refuse_weight("algs4")
    (n, n_line), (m, m_line), width = _header(source)
    options.limits.check_vertices(n, n_line)
    options.limits.check_arcs(m, m_line)
    weight = 2 if width == 3 and not options.unweighted else None
    layout = Layout(width, weight=weight, comments="", first=0, last=n - 1, declared=f"line {n_line} declares {n}")
    table = ArcTable(layout, options.limits)
    for block in source.body(m_line):
        table.feed(block)
    entries = len(table)
    if entries != m:
        raise InvalidGraph(f"declares {m} arcs, the file has {entries}", line=m_line, field="arcs")
    check_plausible(n, entries, n_line)
    return Parsed(table.columns.take(), np.arange(n, dtype=np.int64), directed=True, entries=entries)


def _header(source: Source) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Return the counts of vertices and arcs, each with its line number, and the number of fields of the first arc (3
    if there is none).
    """
    rows = [(line, text.split()) for line, text in enumerate(source.head, 1) if text.strip()]
    if len(rows) < 2:
        raise InvalidGraph("expected a line with the number of vertices and one with the number of arcs")
    counts = []
    for line, words in rows[:2]:
        if len(words) != 1:
            raise InvalidGraph(f"expected one count, found {fields.shown(' '.join(words))}", line=line)
        count = fields.whole(words[0], line, "count")
        if count < 0:
            raise InvalidGraph(f"a count below zero: {count}", line=line, field="count")
        counts.append((count, line))
    width = len(rows[2][1]) if len(rows) > 2 else 3
    if width not in (2, 3):
        raise InvalidGraph(f"expected 'u v' or 'u v weight', found {width} fields", line=rows[2][0], field="row")
    return counts[0], counts[1], width
