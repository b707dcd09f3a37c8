"""DIMACS shortest-path files (9th Implementation Challenge, 2006) and two dialects.

A line ``p sp n m`` is followed by lines ``a tail head weight``, with vertices from 1 and whole weights.  In the first
dialect the ``p`` line is missing, and only vertices that arcs name exist.  In the second (PACE 2016), a line ``p tw n
m`` is followed by undirected edges ``u v`` without weights.  ``c`` starts a comment line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storage.errors import InvalidGraph
from storage.readers import fields
from storage.readers.limits import check_plausible
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Block, Source
from storage.readers.tables.table import ArcTable, Layout, Row
from storage.readers.tables.text_rows import is_comment

_OTHERS = {
    "edge": "graph colouring, no weights",
    "col": "graph colouring, no weights",
    "max": "maximum flow",
    "min": "minimum-cost flow",
    "asn": "assignment",
    "cnf": "satisfiability",
}


@dataclass(frozen=True)
class DimacsHeader:
    """The content of the ``p`` line: kind ``sp`` or ``tw``, declared numbers of vertices and arcs, and the line's
    number.
    """

    kind: str
    n: int
    m: int
    line: int


class _DimacsTable(ArcTable):
    """A table that recognises a misplaced ``p`` line when it reads line by line."""

    def __init__(self, layout: Layout, options: ReadOptions, header: DimacsHeader | None) -> None:
        super().__init__(layout, options.limits)
        self._header = header

    def row(self, raw: bytes, number: int) -> Row | None:
        if raw.split()[:1] == [b"p"]:
            why = f"line {self._header.line} has one" if self._header else "arcs stand before it"
            raise InvalidGraph(f"a p line where none may be: {why}", line=number, field="p")
        return super().row(raw, number)


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a DIMACS file; raises the errors of ``read_graph``."""
    options.refuse_weight("DIMACS")
    header: DimacsHeader | None = None
    table: ArcTable | None = None
    for block in source.blocks():
        if table is None:
            header, rest = _find_header(block, header)
            if rest is None:
                continue
            table = _DimacsTable(_layout(header), options, header)
            table.feed(rest)
        else:
            table.feed(block)
        if header is not None:
            options.limits.check_vertices(header.n, header.line)
            options.limits.check_arcs(header.m, header.line)
    return _finish(table or _DimacsTable(_layout(header), options, header), header, options)


def _find_header(block: Block, header: DimacsHeader | None) -> tuple[DimacsHeader | None, Block | None]:
    """Read comments and the ``p`` line; return the header, and the rest of the block from its first arc on (None if the
    block has no arc).
    """
    at = 0
    for number, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
        text = raw.decode("latin-1").strip()
        words = text.split()
        if words and not is_comment(text, "c"):
            if words[0] != "p":
                return header, Block(block.data[at:], number)
            if header is not None:
                raise InvalidGraph(f"a second p line (the first is line {header.line})", line=number, field="p")
            header = _parse_header(words, number)
        at += len(raw) + 1
    return header, None


def _parse_header(words: list[str], number: int) -> DimacsHeader:
    kind = words[1] if len(words) > 1 else ""
    if kind not in ("sp", "tw"):
        about = f" ({_OTHERS[kind]})" if kind in _OTHERS else ""
        raise InvalidGraph(f"'p {kind}' is another DIMACS format{about}; expected 'p sp'", line=number, field="p")
    if len(words) != 4:
        raise InvalidGraph(
            f"expected 'p {kind} VERTICES ARCS', found {fields.shown(' '.join(words))}", line=number, field="p"
        )
    n, m = (fields.whole(word, number, "p") for word in words[2:])
    if n < 0 or m < 0:
        raise InvalidGraph(f"a count below zero: {fields.shown(' '.join(words))}", line=number, field="p")
    return DimacsHeader(kind, n, m, number)


def _layout(header: DimacsHeader | None) -> Layout:
    if header is None:
        return Layout(4, 1, 2, 3, mark="a", comments="c", integer=True, infinite=False)
    declared = f"line {header.line} declares {header.n} vertices"
    if header.kind == "tw":
        return Layout(2, weight=None, comments="c", first=1, last=header.n, declared=declared)
    return Layout(
        4, 1, 2, 3, mark="a", comments="c", integer=True, infinite=False, first=1, last=header.n, declared=declared
    )


def _finish(table: ArcTable, header: DimacsHeader | None, options: ReadOptions) -> Parsed:
    entries = len(table)
    notes = []
    labels = None
    if header is None:
        if entries == 0:
            raise InvalidGraph("no p line and no arc: only comments and empty lines")
        notes.append("no p line: the vertices are those that occur on an arc")
    else:
        options.limits.check_vertices(header.n, header.line)
        options.limits.check_arcs(header.m, header.line)
        if header.m != entries:
            raise InvalidGraph(
                f"the p line declares {header.m} arcs, the file has {entries}", line=header.line, field="p"
            )
        check_plausible(header.n, entries, header.line)
        labels = np.arange(1, header.n + 1, dtype=np.int64)
    arcs = table.columns.take()
    if options.unweighted:
        arcs.weights = None
    return Parsed(arcs, labels, directed=header is None or header.kind == "sp", entries=entries, base=1, notes=notes)
