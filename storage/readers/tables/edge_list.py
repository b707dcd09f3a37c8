"""Edge lists: rows of source, target and perhaps a weight, with or without names for the columns.

The first lines decide the separator, the header row, the columns and whether vertices are numbers or names;
``ArcTable`` then parses the rows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray, ArcList, is_label
from storage.readers import fields
from storage.readers.fields import TextVertex
from storage.readers.limits import check_plausible
from storage.readers.named import NO_DIRECTION
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import FIRST_LINE, Source
from storage.readers.tables.directions import kinds_of
from storage.readers.tables.doubtful import DoubtfulRows, PaddedNames
from storage.readers.tables.header import no_banner
from storage.readers.tables.no_lengths import refuse_last_row
from storage.readers.tables.remarks import Remarks
from storage.readers.tables.sniff import COMMENTS, Sniffed, sniff
from storage.readers.tables.table import ArcTable
from storage.readers.tables.text_rows import is_comment

#: Matches SNAP's comment with the numbers of vertices and edges.
_SNAP = re.compile(r"#\s*+Nodes:\s*+([0-9]{1,18})\s++Edges:\s*+([0-9]{1,18})", re.IGNORECASE)
#: A first line 'n m' that may be an arc is taken for counts if at least this many rows follow.  If fewer rows follow,
#: the file is refused, and the caller must decide.
_FEW = 32


@dataclass(frozen=True)
class _Declared:
    """Numbers of vertices (n) and rows (m) that the file states, and the line that states them.  If ``exact``, wrong
    counts are an error.
    """

    n: int
    m: int
    line: int
    exact: bool


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read an edge list; raises the errors of ``read_graph``."""
    if source.head_is_cut:
        raise InvalidGraph(f"a row of more than {FIRST_LINE:,} bytes: this is no edge list", line=1, field="row")
    sniffed = sniff(source.head, options, source.separator)
    layout = replace(sniffed.layout, quantities=_together(source, options, sniffed))
    sniffed = replace(sniffed, layout=layout)
    try:
        parsed = _read(source, options, sniffed)
    except TextVertex as found:
        if sniffed.layout.text:
            raise
        # A name occurs after numeric labels: read the file again with all labels as names.
        parsed = _read(source, options, replace(sniffed, layout=replace(sniffed.layout, text=True)))
        parsed.notes.append(f"the vertices are names because of {found}")
    if options.directed is None and sniffed.kind is None and sniffed.remarks.directed is None:
        parsed.notes.append(NO_DIRECTION)
    if options.length_of is not None:
        parsed.length_of = options.length_of.text
    return parsed


def _together(source: Source, options: ReadOptions, sniffed: Sniffed) -> dict[str, int]:
    """Return the positions of the columns of ``also`` with which all else is read as it is with the weight."""

    def find(as_weight: ReadOptions) -> int | None:
        other = sniff(source.head, as_weight, source.separator)
        layout = replace(other.layout, weight=sniffed.layout.weight, formula=sniffed.layout.formula)
        same = replace(other, layout=layout, weight_name=sniffed.weight_name, notes=sniffed.notes) == sniffed
        return other.layout.weight if same else None

    return options.read_together(find)


@dataclass(frozen=True)
class _Rows:
    """The rows of a file without their numbers; ``names`` are the vertices if these are names."""

    source: Source
    options: ReadOptions
    sniffed: Sniffed
    padded: PaddedNames
    names: AnyArray | None
    directed: bool
    notes: list[str]


def _read(source: Source, options: ReadOptions, sniffed: Sniffed) -> Parsed:
    directed, notes = _direction(source, options, sniffed)
    table, padded, doubtful, others = _fed(source, sniffed, options)
    if len(table) == 0:
        raise InvalidGraph("there is no edge in the file: only comments, empty lines or a header")
    arcs = table.columns.take()
    names = None if table.labels is None else table.labels.finish(arcs)
    rows = _Rows(source, options, sniffed, padded, names, directed, notes)
    parsed = _checked(rows, arcs, doubtful)
    for column, values in arcs.quantities.items():
        _checked(rows, ArcList(arcs.tails, arcs.heads, values), others[column])
    return parsed


def _checked(rows: _Rows, arcs: ArcList, doubtful: DoubtfulRows) -> Parsed:
    """Return the arcs with all that the receipt says.  Raises InvalidGraph if the rows may not mean these arcs."""
    sniffed, options, names, entries = rows.sniffed, rows.options, rows.names, len(arcs.tails)
    notes = [*rows.notes, *sniffed.notes, *doubtful.notes(), *_note_square(entries, sniffed, options)]
    if names is not None:
        doubtful.commented.refuse_signs(names)
        rows.padded.refuse_others(rows.source.body(sniffed.skip))
        if sniffed.counts is not None:
            _check_counts(sniffed.counts, len(names), entries)
        elif not sniffed.header and sniffed.layout.width == 2:
            _refuse_count(str(names[arcs.tails[0]]), str(names[arcs.heads[0]]), entries - 1, sniffed.first)
        _check_kinds(arcs, sniffed.remarks)
        _refuse_all_pairs(arcs)
        refuse_last_row(arcs, names)
        _refuse_second_header(arcs, names, sniffed)
        return Parsed(arcs, names, rows.directed, entries, weight_column=sniffed.weight_name, notes=notes)
    if not sniffed.header and _is_size_line(arcs, sniffed.first):
        lines = enumerate(map(str.strip, rows.source.head), 1)
        raise next(no_banner(text, at) for at, text in lines if text and not is_comment(text, COMMENTS))
    labels = None
    counts = _declared(rows.source.head, sniffed)
    if counts is not None:
        labels = _declared_labels(counts, arcs, notes, options)
    elif not sniffed.header and sniffed.layout.width == 2 and (counts := _first_row(arcs, sniffed.first)):
        labels = _declared_labels(counts, arcs, notes, options)
        entries -= 1
    _check_kinds(arcs, sniffed.remarks)
    _refuse_all_pairs(arcs)
    _refuse_end(arcs)
    base = 0 if labels is None or not len(labels) else int(labels[0])
    return Parsed(arcs, labels, rows.directed, entries, base=base, weight_column=sniffed.weight_name, notes=notes)


def _fed(
    source: Source, sniffed: Sniffed, options: ReadOptions
) -> tuple[ArcTable, PaddedNames, DoubtfulRows, dict[str, DoubtfulRows]]:
    """Read all rows into a table; also return the checker of names, and those of the weight and of each quantity."""
    layout, header = sniffed.layout, sniffed.header
    table, padded, doubtful = ArcTable(layout, options.limits), PaddedNames(layout), DoubtfulRows(layout, header)
    others = {name: DoubtfulRows(replace(layout, weight=at), header) for name, at in layout.quantities.items()}
    for block in source.body(sniffed.skip):
        for rows in (doubtful, *others.values()):
            rows.look(block)
        table.feed(block)
        padded.look(block)
    return table, padded, doubtful, others


def _note_square(entries: int, sniffed: Sniffed, options: ReadOptions) -> list[str]:
    """Return a note if the file has only three rows of three numbers, which are read as edges but may be a 3 × 3
    matrix.
    """
    if options.told or options.column or options.source or options.target or options.unweighted:
        return []
    layout = sniffed.layout
    bare = not sniffed.header and sniffed.remarks.names is None and not layout.text and sniffed.counts is None
    if not bare or (entries, layout.width) != (3, 3):
        return []
    return ["3 rows of 3 numbers are read as edges; --format matrix reads them as a matrix"]


def _direction(source: Source, options: ReadOptions, sniffed: Sniffed) -> tuple[bool, list[str]]:
    """Return whether the edges are directed, by the options or else by the file, and notes for the receipt."""
    stated, notes = sniffed.remarks.directed, sniffed.remarks.notes(options)
    if options.directed is not None:
        return options.directed, notes
    if sniffed.kind is None:
        return stated is not False, notes
    directed = _directed(source, sniffed)
    kind = "directed" if directed else "undirected"
    if stated is not None and stated != directed:
        raise InvalidGraph(
            f"{notes[0]}, column {sniffed.kind_name!r} that they are {kind}; say which with --directed or --undirected",
            field="directed",
        )
    return directed, [f"column {sniffed.kind_name!r}: all edges are {kind}"]


def _directed(source: Source, sniffed: Sniffed) -> bool:
    """Return whether the column of directions (such as ``Type``) says that the edges are directed."""
    layout, known = sniffed.layout, kinds_of(sniffed.kind_name)
    found: bool | None = None
    for block in source.body(sniffed.skip):
        for line, raw in enumerate(block.data.split(b"\n")[:-1], block.line):
            text = raw.decode("utf-8", "replace")
            row = fields.split(text, layout.separator, layout.quoted, line)
            if not text.strip() or is_comment(text.lstrip(), layout.comments) or len(row) != layout.width:
                continue
            kind = row[sniffed.kind or 0].lower()
            if kind not in known:
                raise InvalidGraph(
                    f"{sniffed.kind_name} {fields.shown(kind)} says no direction; say --directed or --undirected",
                    line=line,
                    field=sniffed.kind_name,
                )
            if found not in (None, known[kind]):
                raise InvalidGraph(
                    "edges both directed and undirected; say which with --directed or --undirected",
                    line=line,
                    field=sniffed.kind_name,
                )
            found = known[kind]
    return found is not False


def _check_kinds(arcs: ArcList, remarks: Remarks) -> None:
    """Refuse vertices of two kinds that are numbered separately, because equal numbers would become one vertex."""
    if not remarks.bipartite or not np.isin(arcs.heads, arcs.tails).any():
        return
    raise InvalidGraph(
        "the edges join vertices of two kinds (bip), and both columns number theirs, so that one number means two "
        "vertices: write a letter before the numbers of the second column; if both columns do mean the same vertices, "
        "remove this line",
        line=remarks.line,
        field="vertex",
    )


def _refuse_all_pairs(arcs: ArcList) -> None:
    """Refuse an edge list of all pairs of vertices in which some weights are 0: a 0 may be a length or mean no arc."""
    n = math.isqrt(len(arcs.tails))
    if arcs.weights is None or n < 3 or n * n != len(arcs.tails):
        return
    rows, columns, weights = (part.reshape(n, n) for part in (arcs.tails, arcs.heads, arcs.weights))
    whole = (rows == rows[:, :1]).all() and (columns == columns[0]).all() and (rows[:, 0] == columns[0]).all()
    if whole and (weights.diagonal() == 0).all() and np.count_nonzero(weights) < n * (n - 1):
        raise InvalidGraph(
            f"the rows list every pair of {n} vertices, some of them with 0, which may be no arc or one of length 0: "
            "leave out the rows with 0 in the first case, and those from a vertex to itself in the second",
            field="weight",
        )


def _refuse_second_header(arcs: ArcList, names: AnyArray, sniffed: Sniffed) -> None:
    """Refuse a second header among the rows, as in a file that was made by joining files with headers."""
    header = sniffed.layout.names
    known = [np.flatnonzero(names == name) for name in header] if sniffed.header else []
    if not known or not all(map(len, known)):
        return
    if ((arcs.tails == known[0][0]) & (arcs.heads == known[1][0])).any():
        found = fields.shown(",".join(header))
        raise InvalidGraph(f"the header {found} stands among the rows again: leave it out there", field="row")


def _refuse_end(arcs: ArcList) -> None:
    """Refuse a last row that has only 0 or only -1: in some exercises such a row marks the end; its number would become
    a vertex.
    """
    end = int(arcs.tails[-1])
    same = int(arcs.heads[-1]) == end and (arcs.weights is None or arcs.weights[-1] == end)
    if not same or end not in (0, -1) or len(arcs.tails) < 2:
        return
    if not ((arcs.tails[:-1] == end) | (arcs.heads[:-1] == end)).any():
        message = f"the last row holds nothing but {end}, no vertex of another row: leave it out if it ends the list"
        raise InvalidGraph(message, field="row")


def _check_counts(counts: tuple[int, int, int], vertices: int, rows: int) -> None:
    """Refuse a first line ``n m`` above rows of names if there are not n vertices and m rows."""
    n, m, line = counts
    if (n, m) != (vertices, rows):
        raise InvalidGraph(
            f"declares {n} vertices and {m} edges, but {rows} edges follow, of {vertices} vertices with names",
            line=line,
            field="header",
        )


def _refuse_count(first: str, second: str, rest: int, line: int) -> None:
    """Refuse a first row ``n m`` above m rows of names: taken for an arc, this row would add two vertices."""
    if rest > 0 and is_label(first) and second == str(rest):
        raise InvalidGraph(
            f"'{first} {second}' counts the {rest} rows below, whose vertices are names: leave it out, or, if it is an "
            "arc, name the columns in a first row 'source target'",
            line=line,
            field="header",
        )


def _is_size_line(arcs: ArcList, line: int) -> bool:
    """Return whether the first row is ``n n m`` and no arc: m rows follow, and all vertices lie within 1 .. n."""
    rest = len(arcs.tails) - 1
    if rest < 1 or arcs.weights is None:
        return False
    if arcs.heads[0] == rest and arcs.tails[0] != rest and 0 <= arcs.weights[0] <= arcs.tails[0]:
        _refuse_start(arcs, rest, line)
    if rest < _FEW or arcs.tails[0] != arcs.heads[0] or arcs.weights[0] != rest:
        return False
    low = min(int(arcs.tails[1:].min()), int(arcs.heads[1:].min()))
    high = max(int(arcs.tails[1:].max()), int(arcs.heads[1:].max()))
    return low >= 1 and high <= int(arcs.tails[0])


def _refuse_start(arcs: ArcList, rest: int, line: int) -> None:
    """Refuse a first row ``n m s`` above m rows whose vertices are at most n: exercises give the counts and a source in
    this way.
    """
    n = int(arcs.tails[0])
    if max(int(arcs.tails[1:].max()), int(arcs.heads[1:].max())) <= n:
        raise InvalidGraph(
            f"the first row begins with '{n} {rest}', and {rest} rows follow whose vertices lie within {n}: it may "
            "count them, or be an arc: leave it out, or name the columns in a first row 'source target weight'",
            line=line,
            field="header",
        )


def _declared(head: list[str], sniffed: Sniffed) -> _Declared | None:
    if sniffed.counts is not None:
        n, m, line = sniffed.counts
        return _Declared(n, m, line, exact=True)
    for number, text in enumerate(head[: sniffed.skip + 50], 1):
        if found := _SNAP.fullmatch(text.strip()):
            return _Declared(int(found[1]), int(found[2]), number, exact=False)
    return None


def _declared_labels(counts: _Declared, arcs: ArcList, notes: list[str], options: ReadOptions) -> AnyArray | None:
    """Return the labels that a count n declares, 0 .. n - 1 or 1 .. n; None if the counts do not fit the rows and need
    not be exact.
    """
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


def _first_row(arcs: ArcList, line: int) -> _Declared | None:
    """If the first row can be counts ``n m`` (m rows follow, and all vertices lie within n), return these counts; else
    None.

    Raises InvalidGraph if fewer than _FEW rows follow, so that the first row may also be an arc.
    """
    n, m = int(arcs.tails[0]), int(arcs.heads[0])
    rest = len(arcs.tails) - 1
    if m != rest or n < 1 or rest < 1:
        return None
    low = min(int(arcs.tails[1:].min()), int(arcs.heads[1:].min()))
    high = max(int(arcs.tails[1:].max()), int(arcs.heads[1:].max()))
    if low < 0 or high >= n + (low > 0):
        return None
    if rest < _FEW:
        raise InvalidGraph(
            f"'{n} {m}' may count vertices and the {m} rows below, or be an arc: write '# Nodes: {n} Edges: {m}' in "
            "its place if it counts, or name the columns in a first row 'source target' above it if it is an arc",
            line=line,
            field="header",
        )
    arcs.tails, arcs.heads = arcs.tails[1:], arcs.heads[1:]
    return _Declared(n, m, line, exact=True)
