"""What the first lines of an edge list say about the rest: separator, header, columns, numbers or names."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.cleaning import is_label
from storage.readers import fields
from storage.readers.fields import BLANKS, is_number, is_whole, shown
from storage.readers.lengths import is_similarity, named_length, plain, similarity_refused
from storage.readers.parsed import ReadOptions
from storage.readers.tables.table import Layout, is_comment

__all__ = ["COMMENTS", "Columns", "Sniffed", "choose_by_name", "listed", "names_ends", "no_banner", "sniff"]

COMMENTS = "#%"
#: Values of Gephi's column ``Type`` and whether they mean directed.
KINDS = {"directed": True, "undirected": False}
#: Column names, without blanks, underscores and endings such as "id".
_SOURCES = frozenset(
    {"from", "source", "src", "u", "tail", "start", "init", "origin", "orig", "i", "node1", "nodestart"}
)
_TARGETS = frozenset(
    {"to", "target", "tgt", "dst", "dest", "destination", "v", "head", "end", "term", "j", "node2", "nodeend"}
)
_ENDINGS = re.compile(r"(node|vertex|osm|stop|station)?(id|nodeid|index)?$")
_ROWS = 1000
_NUMBERED = 8


@dataclass(frozen=True)
class Sniffed:
    """How to read the file.

    Attributes:
        layout: of the rows.
        skip: lines before the first row.
        weight_name: the weight's column as receipts name it.
        counts: vertices, edges and line of a first line ``n m``.
        notes: for the receipt.
        kind: position of the column that says of each edge whether it is directed, as Gephi writes it.
    """

    layout: Layout
    skip: int
    weight_name: str | None
    counts: tuple[int, int, int] | None
    notes: tuple[str, ...]
    kind: int | None = None


@dataclass(frozen=True)
class Columns:
    """Positions of the columns that are read, and what the receipt says about the choice."""

    source: int
    target: int
    weight: int | None
    notes: tuple[str, ...] = ()
    kind: int | None = None


def sniff(head: list[str], options: ReadOptions) -> Sniffed:
    """Look at the first lines.  InvalidGraph if they are no edge list, InvalidRequest if the weight is not there."""
    lines = [
        (i, text)
        for i, text in enumerate(head, 1)
        if text.strip(BLANKS) and not is_comment(text.strip(BLANKS), COMMENTS)
    ]
    if not lines:
        raise InvalidGraph("there is no edge in the file: only comments and empty lines")
    lines = lines[:_ROWS]
    separator = _separator([text for _, text in lines])
    quoted = separator is not None or any(text.lstrip().startswith('"') for _, text in lines)
    rows = [fields.split(text.strip(BLANKS), separator, quoted, i) for i, text in lines]
    widths = Counter(len(row) for row in rows)
    width = max(widths, key=lambda size: (widths[size], size))
    options.limits.check_columns(width, next(i for (i, _), row in zip(lines, rows, strict=True) if len(row) == width))
    counts = _counts(rows, width, lines[0][0])
    # Elsewhere 1,008 may as well be a thousand and eight: refused by the row parser.
    decimal_comma = separator == ";" and any("," in field and is_number(field, True) for row in rows for field in row)
    body = rows[1:] if counts else rows
    names = None if counts else _header(rows, width, decimal_comma)
    if names is not None:
        body = rows[1:]
    elif counts is None:
        _check_first(rows[0], width, lines[0])
    body = [row for row in body if len(row) == width] or [[""] * width]
    columns = _choose(names, body, width, options, decimal_comma)
    ends = [names[c] if names else "" for c in (columns.source, columns.target)]
    if names is None and width == 2:
        _check_zeros(body, columns, lines[0][0])
    layout = Layout(
        width,
        columns.source,
        columns.target,
        columns.weight,
        separator=separator,
        comments=COMMENTS,
        quoted=quoted,
        decimal_comma=decimal_comma,
        names=(ends[0], ends[1]),
        formula=options.length_of,
        # Fractions make no names: the row parser refuses them.
        text=not all(is_number(row[c]) for row in body for c in (columns.source, columns.target)),
    )
    if layout.text and _mostly_whole(body, columns):
        # One odd vertex among numbers is left to the row parser, which names its line.
        layout = replace(layout, text=False)
    skip = lines[0][0] if counts or names is not None else 0
    weight_name = None
    if columns.weight is not None:
        weight_name = names[columns.weight] if names else str(columns.weight + 1)
    return Sniffed(layout, skip, weight_name, counts, columns.notes, columns.kind)


def _kind(names: list[str] | None, body: list[list[str]]) -> int | None:
    """The column ``Type`` of Gephi."""
    for i, name in enumerate(names or []):
        if name.lower() == "type" and all(row[i].lower() in KINDS for row in body):
            return i
    return None


def _mostly_whole(body: list[list[str]], columns: Columns) -> bool:
    good = sum(is_whole(row[columns.source]) and is_whole(row[columns.target]) for row in body)
    return 2 * good > len(body)


def _separator(lines: list[str]) -> str | None:
    """Semicolon, comma or tab if every line has it; None is any run of blanks."""
    sample = lines[:100]
    few = len(sample) // 10

    def everywhere(sign: str) -> bool:
        return sum(sign not in line for line in sample) <= few and sign in sample[-1] + sample[0]

    if everywhere(";"):
        return ";"
    if everywhere("\t"):
        inner = any(" " in field.strip() for line in sample for field in line.strip().split("\t"))
        even = len({line.count("\t") for line in sample}) == 1
        return "\t" if inner and even and not _blanks_suffice(sample) else None
    return "," if everywhere(",") else None


def _blanks_suffice(sample: list[str]) -> bool:
    """Whether all fields are numbers when every blank separates."""
    return all(is_number(field) for line in sample[1:] or sample for field in line.split())


def _counts(rows: list[list[str]], width: int, line: int) -> tuple[int, int, int] | None:
    """A first line ``n m`` before wider rows."""
    first = rows[0]
    if len(rows) > 1 and width > 2 and len(first) == 2 and all(is_whole(f) and int(f) >= 0 for f in first):
        return int(first[0]), int(first[1]), line
    return None


def _check_first(first: list[str], width: int, line: tuple[int, str]) -> None:
    number, text = line
    if len(first) == 3 and width == 2 and all(is_whole(field) for field in first):
        raise no_banner(text, number)
    if len(first) < 2 or width < 2:
        raise InvalidGraph(f"an edge needs at least two fields, found {shown(text)}", line=number, field="row")


def no_banner(text: str, line: int) -> InvalidGraph:
    """The error for a size line whose banner was lost: without it nobody knows what the entries are."""
    return InvalidGraph(
        f"{shown(text)} looks like the size line of a Matrix Market file, but its %%MatrixMarket line is missing",
        line=line,
    )


def _header(rows: list[list[str]], width: int, decimal_comma: bool) -> list[str] | None:
    """The first row as names, if it is one: known names, or words above a column of numbers."""
    first = [field.strip('"') for field in rows[0]]
    if len(first) != width or any(is_number(field) for field in first):
        return None
    if names_ends(first):
        return first
    rest = [row for row in rows[1:] if len(row) == width]
    numbers = any(all(is_number(row[c], decimal_comma) for row in rest) for c in range(width))
    return first if rest and numbers else None


def names_ends(names: list[str], *, letters: bool = False) -> bool:
    """Whether a row names a source and a target; single letters may well be vertices and count only if asked to."""
    known = {_plain(name) for name in names if letters or len(name) > 1}
    return bool(known & _SOURCES and known & _TARGETS)


def _plain(name: str) -> str:
    """A column name without case, blanks and endings: ``from_osmid`` and ``FromNodeId`` are ``from``."""
    word = plain(name)
    return _ENDINGS.sub("", word) or word


def _choose(names: list[str] | None, body: list[list[str]], width: int, options: ReadOptions, comma: bool) -> Columns:
    """Source, target and weight columns: by name, else by position, the caller's wish first."""
    wanted = _wanted(options.column, names, width, "weight" if options.length_of is None else "length_of")
    source, target, notes = _ends(names, body, width, wanted, options)
    numbering = [0] if notes else []
    if wanted in (source, target):
        raise InvalidRequest(f"column {options.column!r} holds vertices, not weights", field="weight")
    if wanted is None and not options.unweighted:
        wanted = _default_weight(names, body, (source, target), comma)
        if wanted is None and width > len(notes) + 2:
            notes = (*notes, "no column of weights was found, so every arc weighs 1")
    kind = _kind(names, body)
    used = (source, target, wanted, kind, *numbering)
    left = [(names[i] if names else "") or str(i + 1) for i in range(width) if i not in used]
    if left:
        notes = (*notes, f"not read: {listed('column', left)}")
    return Columns(source, target, wanted, notes, kind)


def listed(kind: str, names: list[str]) -> str:
    """``columns a, b, c``, of many the first ones."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(name[:60] for name in names[:8])}{more}"


def _ends(
    names: list[str] | None, body: list[list[str]], width: int, wanted: int | None, options: ReadOptions
) -> tuple[int, int, tuple[str, ...]]:
    """The columns of source and target, and a note where one that merely counts the rows is skipped."""
    short = [_plain(name) for name in names or []]
    source, target = (_wanted(name, names, width, side) for name, side in
                      ((options.source, "source"), (options.target, "target")))  # fmt: skip
    if source is not None and source == target:
        raise InvalidRequest(f"column {options.target!r} cannot be both ends of an arc", field="target")
    if source is None:
        source = next((i for i, name in enumerate(short) if name in _SOURCES and i != target), None)
    if target is None:
        target = next((i for i, name in enumerate(short) if name in _TARGETS and i != source), None)
    if source is not None and target is not None:
        return source, target, ()
    notes: tuple[str, ...] = ()
    if options.source is None and options.target is None:
        source = target = None  # one name alone says nothing
    # a column without a name is the row numbers of pandas
    free = [i for i in range(width) if i not in (wanted, source, target) and (names is None or names[i])]
    if names is None and source is None and target is None and _numbered(body, width):
        free = free[1:]
        notes = ("column 1 numbers the edges; the vertices are columns 2 and 3",)
    if len(free) < (source is None) + (target is None):
        raise InvalidRequest(f"column {options.column!r} leaves no two columns for vertices", field="weight")
    if source is None:
        source = free.pop(0)
    return source, free[0] if target is None else target, notes


def choose_by_name(names: list[str], numeric: list[bool], options: ReadOptions) -> Columns:
    """Source, target and weight columns of a table with named, typed columns; the rules of edge lists."""
    body = [["0" if number else "x" for number in numeric]]
    return _choose(names, body, len(names), options, comma=False)


def _wanted(name: str | None, names: list[str] | None, width: int, field: str) -> int | None:
    """The position of a column that the caller named, by name or by number from 1."""
    if name is None:
        return None
    lower = [known.lower() for known in names or []]
    if name.lower() in lower:
        return lower.index(name.lower())
    if is_whole(name) and name.isdigit():
        if 1 <= int(name) <= width:
            return int(name) - 1
        raise InvalidRequest(f"there is no column {name}: the rows have {width}", field=field)
    have = f"the header has {', '.join(names)}" if names else "the file has no header row, so give the column's number"
    raise InvalidRequest(f"there is no column {name!r}: {have}", field=field)


def _default_weight(names: list[str] | None, body: list[list[str]], ends: tuple[int, int], comma: bool) -> int | None:
    """The column named like a length, else the third one if it is numeric; a similarity is refused."""
    width = len(body[0])
    rest = [i for i in range(width) if i not in ends]
    if names:
        found = named_length([names[i] for i in rest])
        if found is not None:
            return rest[found]
        for i in (i for i in rest if is_similarity(names[i]) and _mostly_numbers(body, i, comma)):
            raise similarity_refused(names[i], [_value(row[i], comma) for row in body])
    third = next((i for i in rest if i >= max(ends)), rest[0] if rest else None)
    # A few gaps do not make a weight column something else: the row parser names their lines.
    return third if third is not None and _mostly_numbers(body, third, comma) else None


def _mostly_numbers(body: list[list[str]], column: int, comma: bool) -> bool:
    return 2 * sum(is_number(row[column], comma) for row in body) > len(body)


def _value(token: str, comma: bool) -> float:
    """A number as float, 0 for anything else: only the size of most values matters."""
    return float(token.replace(",", ".") if comma else token) if is_number(token, comma) else 0.0


def _numbered(body: list[list[str]], width: int) -> bool:
    """Whether column 1 merely counts the rows: id, u, v, fraction (the road networks of F. Li are written so)."""
    if width != 4 or len(body) < _NUMBERED or not all(is_whole(f) for row in body for f in row[:3]):
        return False
    first = int(body[0][0])
    counts = first in (0, 1) and all(int(row[0]) == first + i for i, row in enumerate(body))
    return counts and all(is_number(row[3]) for row in body) and any(not is_whole(row[3]) for row in body)


def _check_zeros(body: list[list[str]], columns: Columns, line: int) -> None:
    """A first row such as ``6301 0777``, above vertices of which none is greater than 6301, is a damaged count."""
    ends = [[row[c] for c in (columns.source, columns.target)] for row in body]
    (n, m), rest = ends[0], [vertex for pair in ends[1:] for vertex in pair]
    if not rest or not is_label(n) or not is_whole(m) or is_label(m) or not all(map(is_label, rest)):
        return
    if int(n) >= max(map(int, rest)):
        raise InvalidGraph(
            f"{shown(' '.join(body[0]))} has a number with a leading zero, and no row below has: this looks like a "
            "damaged count of vertices and arcs; if it is an arc, add a first row 'source target'",
            line=line,
            field="vertex",
        )
