"""What the first lines of an edge list say about the rest: separator, header, columns, numbers or names."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from storage.errors import InvalidGraph, InvalidRequest
from storage.readers import fields
from storage.readers.fields import is_number, is_whole, shown
from storage.readers.parsed import Options
from storage.readers.table import Layout, is_comment

COMMENTS = "#%"
#: Column names, without blanks, underscores and endings such as "id"; earlier weight names win.
_SOURCES = frozenset({"from", "source", "src", "u", "tail", "start", "init", "origin", "orig", "i", "node1"})
_TARGETS = frozenset({"to", "target", "tgt", "dst", "dest", "destination", "v", "head", "end", "term", "j", "node2"})
WEIGHT_NAMES = (
    "weight",
    "w",
    "wt",
    "length",
    "len",
    "distance",
    "dist",
    "cost",
    "value",
    "km",
    "metres",
    "meters",
    "time",
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
    """

    layout: Layout
    skip: int
    weight_name: str | None
    counts: tuple[int, int, int] | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Columns:
    source: int
    target: int
    weight: int | None
    notes: tuple[str, ...] = ()


def sniff(head: list[str], options: Options) -> Sniffed:
    """Look at the first lines.  InvalidGraph if they are no edge list, InvalidRequest if the weight is not there."""
    lines = [(i, text) for i, text in enumerate(head, 1) if text.strip() and not is_comment(text.strip(), COMMENTS)]
    if not lines:
        raise InvalidGraph("there is no edge in the file: only comments and empty lines")
    lines = lines[:_ROWS]
    separator = _separator([text for _, text in lines])
    quoted = separator is not None
    rows = [fields.split(text.strip(), separator, quoted, i) for i, text in lines]
    widths = Counter(len(row) for row in rows)
    width = max(widths, key=lambda size: (widths[size], size))
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
    return Sniffed(layout, skip, weight_name, counts, columns.notes)


def _mostly_whole(body: list[list[str]], columns: _Columns) -> bool:
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
    # Single letters are names of columns only above numbers: they may well be vertices.
    known = {_plain(name) for name in first if len(name) > 1}
    if known & _SOURCES and known & _TARGETS:
        return first
    rest = [row for row in rows[1:] if len(row) == width]
    numbers = any(all(is_number(row[c], decimal_comma) for row in rest) for c in range(width))
    return first if rest and numbers else None


def _plain(name: str) -> str:
    """A column name without case, blanks and endings: ``from_osmid`` and ``FromNodeId`` are ``from``."""
    word = re.sub(r"[^a-z0-9]", "", name.lower())
    return _ENDINGS.sub("", word) or word


def _choose(names: list[str] | None, body: list[list[str]], width: int, options: Options, comma: bool) -> _Columns:
    """Source, target and weight columns: by name, else by position, the caller's wish first."""
    plain = [_plain(name) for name in names or []]
    source = next((i for i, name in enumerate(plain) if name in _SOURCES), None)
    target = next((i for i, name in enumerate(plain) if name in _TARGETS and i != source), None)
    wanted = None if options.weight is None else _wanted(options.weight, names, width)
    notes: tuple[str, ...] = ()
    if source is None or target is None:
        free = [i for i in range(width) if i != wanted]
        if names is None and _numbered(body, width):
            free = free[1:]
            notes = ("column 1 numbers the edges; the vertices are columns 2 and 3",)
        if len(free) < 2:
            raise InvalidRequest(f"column {options.weight!r} leaves no two columns for vertices", field="weight")
        source, target = free[0], free[1]
    if wanted in (source, target):
        raise InvalidRequest(f"column {options.weight!r} holds vertices, not weights", field="weight")
    if wanted is not None or options.unweighted:
        return _Columns(source, target, wanted, notes)
    weight = _default_weight(plain, body, (source, target), comma)
    if weight is None and width > len(notes) + 2:
        notes = (*notes, "no column of weights was found, so every arc weighs 1")
    return _Columns(source, target, weight, notes)


def choose_by_name(names: list[str], numeric: list[bool], options: Options) -> tuple[int, int, int | None]:
    """Source, target and weight columns of a table with named, typed columns; the rules of edge lists."""
    body = [["0" if number else "x" for number in numeric]]
    columns = _choose(names, body, len(names), options, comma=False)
    return columns.source, columns.target, columns.weight


def _wanted(weight: str, names: list[str] | None, width: int) -> int:
    lower = [name.lower() for name in names or []]
    if weight.lower() in lower:
        return lower.index(weight.lower())
    if is_whole(weight) and weight.isdigit():
        if 1 <= int(weight) <= width:
            return int(weight) - 1
        raise InvalidRequest(f"there is no column {weight}: the rows have {width}", field="weight")
    have = f"the header has {', '.join(names)}" if names else "the file has no header row, so give the column's number"
    raise InvalidRequest(f"there is no column {weight!r}: {have}", field="weight")


def _default_weight(plain: list[str], body: list[list[str]], ends: tuple[int, int], comma: bool) -> int | None:
    named = [plain.index(name) for name in WEIGHT_NAMES if name in plain and plain.index(name) not in ends]
    lengths = [i for i, name in enumerate(plain) if name.startswith(("weight", "length", "distance", "cost"))]
    for i in [*named, *lengths]:
        if i not in ends:
            return i
    third = next((i for i in range(max(ends), len(body[0])) if i not in ends), None)
    if third is None:
        third = next((i for i in range(len(body[0])) if i not in ends), None)
    if third is None:
        return None
    numbers = sum(is_number(row[third], comma) for row in body)
    # A few gaps do not make a weight column something else: the row parser names their lines.
    return third if 2 * numbers > len(body) else None


def _numbered(body: list[list[str]], width: int) -> bool:
    """Whether column 1 merely counts the rows: id, u, v, fraction (the road networks of F. Li are written so)."""
    if width != 4 or len(body) < _NUMBERED or not all(is_whole(f) for row in body for f in row[:3]):
        return False
    first = int(body[0][0])
    counts = first in (0, 1) and all(int(row[0]) == first + i for i, row in enumerate(body))
    return counts and all(is_number(row[3]) for row in body) and any(not is_whole(row[3]) for row in body)


def _check_zeros(body: list[list[str]], columns: _Columns, line: int) -> None:
    """A first row such as ``6301 0777`` is no arc but a damaged count."""
    odd = [bool(re.fullmatch(r"0[0-9]+", row[c])) for row in body for c in (columns.source, columns.target)]
    if len(odd) > 2 and any(odd[:2]) and not any(odd[2:]):
        raise InvalidGraph(
            f"{shown(' '.join(body[0]))} has a number with a leading zero, unlike all rows below: "
            "this looks like a damaged count of vertices and arcs",
            line=line,
            field="vertex",
        )
