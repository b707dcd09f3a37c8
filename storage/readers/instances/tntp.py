"""Link tables of TransportationNetworks (``_net.tntp``): ``<KEY> value`` lines, then named columns.

Vertices below FIRST THRU NODE are zone centroids: paths begin and end there, but pass through one only if the caller
allows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.cleaning import ArcList, IntArray
from storage.number_texts import is_digits
from storage.readers import fields
from storage.readers.limits import check_plausible
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source
from storage.readers.tables.sniff import listed
from storage.readers.tables.table import ArcTable, Layout

_USUAL = ["init_node", "term_node", "capacity", "length", "free_flow_time", "b", "power", "speed", "toll", "link_type"]
_FIRST = "FIRST THRU NODE"
_KEY = re.compile(r"<([A-Z ]++)>\s*+(\S++)?")


@dataclass(frozen=True)
class _Header:
    """The lines above the first link: counts with their line numbers, column names, and the number of these lines
    (``skip``); also the number (``width``) and the separator of the fields of each link.

    With tabs, a field may be empty.  A leading tab makes the first field empty; ``shift`` is then 1, else 0.
    """

    counts: dict[str, tuple[int, int]]
    names: list[str]
    skip: int
    width: int
    shift: int
    separator: str | None


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a link table; the weight is the column ``length`` unless the options name another column.  Raises the errors
    of ``read_graph``.
    """
    header = _header(source.head)
    weight = _weight(header, options)
    table = ArcTable(_layout(header, weight, options), options.limits)
    for block in source.body(header.skip):
        table.feed(block)
    entries = len(table)
    if not entries:
        raise InvalidGraph("there is no link in the file: only metadata")
    links, line = header.counts.get("NUMBER OF LINKS", (entries, 0))
    if links != entries:
        raise InvalidGraph(f"declares {links} links, the file has {entries}", line=line, field="NUMBER OF LINKS")
    arcs = table.columns.take()
    labels, notes = _labels(header, arcs, options)
    name = None if weight is None else header.names[weight]
    left = [column for i, column in enumerate(header.names) if i > 1 and i != weight]
    if left:
        notes.append(f"not read: {listed('column', left)}")
    first = None if options.centroids_through else _first_through(header, arcs, labels)
    formula = None if options.length_of is None else options.length_of.text
    return Parsed(
        *(arcs, labels),
        directed=True,
        entries=entries,
        base=1,
        weight_column=name,
        length_of=formula,
        first_through=first,
        notes=notes,
    )


def _header(head: list[str]) -> _Header:
    counts: dict[str, tuple[int, int]] = {}
    names: list[str] = []
    skip = 0
    for number, text in enumerate(head, 1):
        words = text.replace(";", " ").split()
        if key := _KEY.match(text.strip()):
            if key[1] in ("NUMBER OF NODES", "NUMBER OF LINKS", "NUMBER OF ZONES", _FIRST):
                counts[key[1]] = fields.whole(key[2] or "", number, key[1]), number
            skip = number
        elif text.lstrip().startswith("~"):
            names = [word.lower() for word in text.replace(";", " ").replace("~", " ").split()]
            skip = number
        elif words:
            return _Header(counts, names or _USUAL, skip, *_fields(head[number - 1 :]))
    raise InvalidGraph("there is no link in the file: only metadata")


def _fields(rows: list[str]) -> tuple[int, int, str | None]:
    """Return the number of fields of a row, the position of the first field in use (1 after a leading tab, else 0), and
    the separator: a tab if all rows have the same number of tabs, else None for blanks.
    """
    rows = [row.replace(";", " ").rstrip(" ") for row in rows if row.strip()]
    tabs = {row.count("\t") for row in rows}
    if len(tabs) == 1 and min(tabs) > 1:
        # Blanks may precede a leading tab, so they are removed before the test for it.
        return min(tabs) + 1, int(rows[0].lstrip(" ").startswith("\t")), "\t"
    return len(rows[0].split()), 0, None


def _layout(header: _Header, weight: int | None, options: ReadOptions) -> Layout:
    shift, further = header.shift, options.read_together(lambda as_weight: _weight(header, as_weight))
    return Layout(
        header.width,
        shift,
        shift + 1,
        None if weight is None else shift + weight,
        separator=header.separator,
        comments="~<",
        blanks=";",
        formula=options.length_of,
        quantities={column: shift + position for column, position in further.items()},
    )


def _weight(header: _Header, options: ReadOptions) -> int | None:
    if options.unweighted:
        return None
    wanted = (options.column or "length").lower()
    if wanted in header.names:
        column = header.names.index(wanted)
    elif is_digits(wanted) and 1 <= int(wanted) <= len(header.names):
        column = int(wanted) - 1
    else:
        kind = InvalidGraph if options.column is None else InvalidRequest
        raise kind(f"there is no column {wanted!r}; there are {', '.join(header.names)}", field="weight")
    if options.column is None and column + header.shift >= header.width:
        raise InvalidGraph(f"links have {header.width} fields, none of them {wanted!r}", line=header.skip + 1)
    if column < 2 or column + header.shift >= header.width:
        raise InvalidRequest(f"column {wanted!r} holds no weights", field="weight")
    return column


def _first_through(header: _Header, arcs: ArcList, labels: IntArray | None) -> int:
    """Return the first vertex that paths may pass through (FIRST THRU NODE); raise an error if it lies beyond the last
    vertex.
    """
    first, line = header.counts.get(_FIRST, (1, 0))
    last = max(int(arcs.tails.max()), int(arcs.heads.max())) if labels is None else len(labels)
    if first > last + 1:
        raise InvalidGraph(
            f"{_FIRST} is {first}, but the vertices end at {last}; --centroids-through ignores it",
            line=line,
            field=_FIRST,
        )
    return first


def _labels(header: _Header, arcs: ArcList, options: ReadOptions) -> tuple[IntArray | None, list[str]]:
    """Return the declared labels 1 .. n, and notes.  If the links use other numbers (as the network of Munich does),
    return None instead of labels: the vertices are then the numbers that occur.
    """
    n, line = header.counts.get("NUMBER OF NODES", (0, 0))
    options.limits.check_vertices(n, line)
    low = min(int(arcs.tails.min()), int(arcs.heads.min()))
    high = max(int(arcs.tails.max()), int(arcs.heads.max()))
    if low >= 1 and high <= n:
        check_plausible(n, len(arcs.tails), line)
        return np.arange(1, n + 1, dtype=np.int64), []
    return None, [f"vertices are numbered {low} .. {high}, not 1 .. {n}: only those that occur are taken"]
