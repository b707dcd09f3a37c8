"""METIS graph files (Karypis and Kumar, METIS manual 5.1, section 4.1.1): adjacency lists, undirected, from 1.

The header is ``n m [fmt [ncon]]``; the digits of ``fmt`` say whether the file has vertex sizes, ``ncon`` weights of
each vertex, and edge weights.  An empty line is an isolated vertex.  Only edge weights are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray, IntArray
from storage.readers import fields
from storage.readers.columns import ArcColumns
from storage.readers.numbers import parse_numbers
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Block, Source
from storage.readers.tables.text_rows import strip_comments

#: Maximum number of adjacency lists that are read to recognise the format.
_LISTS = 200


@dataclass(frozen=True)
class MetisHeader:
    """The counts of the header; ``before`` is how many numbers precede the neighbours in a line, ``step`` how many
    numbers each neighbour has (1, or 2 with edge weights).
    """

    n: int
    m: int
    before: int
    step: int
    line: int


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read a METIS file; ``read_graph`` checks that both ends list each edge.  Raises the errors of ``read_graph``."""
    options.refuse_weight("METIS")
    header = _header(source.head)
    options.limits.check_vertices(header.n, header.line)
    options.limits.check_arcs(2 * header.m, header.line)
    columns = ArcColumns(options.limits, header.step == 2 and not options.unweighted)
    reader = _Lists(header, columns)
    for block in source.body(header.line):
        reader.feed(block)
    if reader.vertices != header.n:
        raise InvalidGraph(
            f"declares {header.n} vertices, but {reader.vertices} lines follow", line=header.line, field="header"
        )
    entries = len(columns)
    if entries not in (2 * header.m, 2 * header.m - reader.loops):
        raise InvalidGraph(
            f"declares {header.m} edges, so {2 * header.m} neighbours, the file has {entries}",
            line=header.line,
            field="header",
        )
    labels = np.arange(1, header.n + 1, dtype=np.int64)
    notes = ["not read: sizes and weights of vertices"] if header.before else []
    return Parsed(columns.take(), labels, directed=False, entries=entries, base=1, mirrored=True, notes=notes)


def may_be_metis(source: Source) -> bool:
    """Return whether rows of whole numbers are adjacency lists below a METIS header, whatever the name of the file.

    Raises InvalidGraph if the rows may also be an edge list.
    """
    rows = [line.split() for line in source.head if line.strip() and not line.lstrip().startswith("%")][: _LISTS + 1]
    try:
        header = _header(source.head)
    except InvalidGraph:
        return False
    lists, n = rows[1:], header.n
    own = [len(row) - header.before for row in lists]
    if not lists or not all(map(fields.is_whole, (word for row in lists for word in row))):
        return False
    if any(size < 0 or size % header.step for size in own):
        return False
    if not all(1 <= int(word) <= n for row in lists for word in row[header.before :: header.step]):
        return False
    if len(set(own)) > 1:
        return len(set(own)) > 2 or len(rows[0]) > 2
    return _all_alike(source, header, own[0] // header.step, len(lists[0]) == len(rows[0]))


def _all_alike(source: Source, header: MetisHeader, degree: int, like_header: bool) -> bool:
    """Return whether lists of equal length fit the counts of the header; raise InvalidGraph if they may also be an edge
    list.
    """
    filled = total = 0
    for block in source.body(header.line):
        lengths = count_words(strip_comments(block.data, "%"))
        filled += int(np.count_nonzero(lengths))
        total += len(lengths)
    if degree == 0 or filled * degree != 2 * header.m or not filled <= header.n <= total:
        return False
    if not like_header:
        return True
    try:
        arcs = read(source, ReadOptions(limits=source.limits)).arcs
    except InvalidGraph:
        return False
    tails, heads = arcs.tails.astype(np.int64), arcs.heads.astype(np.int64)
    there, back = (np.sort(u * (header.n + 1) + v) for u, v in ((tails, heads), (heads, tails)))
    if not np.array_equal(there, back):
        return False
    raise InvalidGraph(
        "rows that all have equally many numbers may be adjacency lists below a header, or an edge list: "
        "say --format metis or --format edges",
        line=header.line,
        field="format",
    )


def _header(head: list[str]) -> MetisHeader:
    for number, text in enumerate(head, 1):
        words = text.split()
        if not words or words[0].startswith("%"):
            continue
        if not 2 <= len(words) <= 4:
            raise InvalidGraph(f"expected 'n m [fmt [ncon]]', found {fields.shown(text)}", line=number, field="header")
        n, m = (fields.whole(word, number, "header") for word in words[:2])
        code = words[2].zfill(3) if len(words) > 2 else "000"
        if n < 0 or m < 0 or len(code) != 3 or set(code) - {"0", "1"}:
            raise InvalidGraph(f"expected 'n m [fmt [ncon]]', found {fields.shown(text)}", line=number, field="header")
        ncon = fields.whole(words[3], number, "ncon") if len(words) > 3 else 1
        if not 0 <= ncon <= 1000:
            raise InvalidGraph(f"ncon {ncon} is out of range", line=number, field="header")
        before = int(code[0]) + (ncon if code[1] == "1" else 0)
        return MetisHeader(n, m, before, 1 + int(code[2]), number)
    raise InvalidGraph("the header 'n m [fmt [ncon]]' is missing")


class _Lists:
    """Reads adjacency lists block by block; ``vertices`` counts the lists read so far, ``loops`` the self loops."""

    def __init__(self, header: MetisHeader, columns: ArcColumns) -> None:
        self.vertices = 0
        self.loops = 0
        self._header = header
        self._columns = columns

    def feed(self, block: Block) -> None:
        """Read the lines of a block; each line is the list of the next vertex."""
        header = self._header
        data = strip_comments(block.data, "%")
        lengths = count_words(data)
        spare = self.vertices + len(lengths) - header.n
        if spare > 0 and not lengths[-spare:].any():
            lengths = lengths[:-spare]
        if self.vertices + len(lengths) > header.n:
            line = self._line(block, header.n - self.vertices)
            raise InvalidGraph(f"more lines than the {header.n} vertices declared", line=line, field="header")
        short = lengths < header.before
        odd = short | ((lengths - header.before) % header.step != 0)
        if odd.any():
            at = int(np.argmax(odd))
            raise InvalidGraph(
                f"vertex {self.vertices + at + 1} has {lengths[at]} numbers: expected {header.before} of its own "
                f"and {header.step} for each neighbour",
                line=self._line(block, at),
                field="neighbours",
            )
        self._append(block, lengths)
        self.vertices += len(lengths)

    def _append(self, block: Block, lengths: IntArray) -> None:
        header = self._header
        values = parse_numbers(
            block.data, block.line, "%", what="number" if header.before or header.step == 2 else "vertex"
        )
        starts = np.concatenate([[0], np.cumsum(lengths)])
        if len(values) != starts[-1]:
            raise InvalidGraph(
                f"{len(values)} numbers, where {starts[-1]} words stand", line=block.line, field="neighbours"
            )
        row = np.repeat(np.arange(len(lengths)), lengths)
        place = np.arange(len(values)) - starts[row] - header.before
        neighbour = (place >= 0) & (place % header.step == 0)
        tails, heads = row[neighbour] + self.vertices + 1, values[neighbour]
        wrong = (heads < 1) | (heads > header.n) | (heads != np.rint(heads))
        if wrong.any():
            at = int(np.argmax(wrong))
            line = self._line(block, int(tails[at]) - self.vertices - 1)
            raise InvalidGraph(f"neighbour {heads[at]} is outside 1 .. {header.n}", line=line, field="neighbours")
        weights: AnyArray | None = None
        if header.step == 2:
            weights = values[np.flatnonzero(neighbour) + 1]
        self.loops += int(np.count_nonzero(tails == heads))
        self._columns.append(tails, heads.astype(np.int64), weights)

    def _line(self, block: Block, row: int) -> int:
        """Return the number of the line that holds the ``row``-th vertex of a block, where comment lines count, too."""
        left = row
        for number, text in enumerate(block.data.split(b"\n"), block.line):
            if not text.lstrip().startswith(b"%"):
                if left == 0:
                    return number
                left -= 1
        return block.line + block.data.count(b"\n") - 1


def count_words(data: bytes) -> IntArray:
    """Return the number of words on each line of ``data``, which ends in a line feed."""
    letters = np.frombuffer(data, np.uint8)
    blank = (letters == 32) | (letters == 9) | (letters == 10)
    begins = ~blank
    begins[1:] &= blank[:-1]
    ends = np.flatnonzero(letters == 10)
    upto = np.cumsum(begins)[ends]
    return np.diff(upto, prepend=0).astype(np.int64)
