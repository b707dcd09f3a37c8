"""Refuses printed output and unsupported formats that would otherwise be taken for edge lists.

Each rule is about the syntax of most rows, never about single names: a name may hold brackets, colons and arrows. The
rules are skipped with ``--format``, so that names of any form can be read.
"""

from __future__ import annotations

import re
from typing import Final

from storage.errors import InvalidGraph
from storage.readers.fields import is_number, is_whole, shown, split
from storage.readers.tables.sniff import names_ends, separator_of

#: Maximum number of rows that are checked.
_ROWS: Final = 1000
#: Patterns of rows, what such rows are, and advice for messages.  Patterns are applied to lines stripped of blanks.
_FORMS: Final = (
    (
        re.compile(r"^\(\s*+[0-9]++\s*+,\s*+[0-9]++\s*+\)\s++\S++$"),
        "a sparse matrix as SciPy and MATLAB print it",
        "save it as Matrix Market (scipy.io.mmwrite), or as rows 'row column value'",
    ),
    (
        re.compile(r"^[^\s:,;]++\s?:(\s|$)"),
        "an adjacency list with colons",
        "write one arc a row, or one list of neighbours a row without the colon (--format adjlist)",
    ),
    (
        re.compile(r"^[^\s,:]++(?:[ \t]++[^\s,:]++[,:][0-9.]++)++$"),
        "neighbours with lengths behind commas or colons",
        "write one arc a row, 'source target weight'",
    ),
    (re.compile(r"^(?:<|_:|@prefix|\w*+:\w).*\s\.$"), "triples of RDF", "write source and target of each arc"),
    (
        re.compile(r"^[\s|:]*+([\u2500-\u257f]|\+--|L--|L->|\+->)"),
        "a graph or a table drawn with lines",
        "write one arc a row, or save the table as CSV",
    ),
    (re.compile(r"^\|.*\|$"), "a table of Markdown", "save it as CSV"),
)
#: A line that consists of drawing signs only, as below the header of a printed table.
_RULE: Final = re.compile(r"(?=.*-{3})[\s|+:=-]++")
#: A field that consists of signs only, such as an arrow between two vertices.
_SIGN: Final = re.compile(r"[-=~<>|.:&→←↔⇒⇐⇔—–]{1,4}")
#: Two vertices joined by one sign in a field, followed by a number: ``A-B 3``.
_JOINED: Final = re.compile(r"[^\s:/|~–—-]++(-{1,2}|[:/|~–—])[^\s:/|~–—-]++")
_TIGHT: Final = re.compile(r"[^\s<>-]++\s?(<?->|=>|→|⇒|↔)\s?\S")
_OPEN, _CLOSE = "([{", ")]}"

Rows = list[tuple[int, list[str]]]


def refuse_lookalikes(lines: list[str]) -> None:
    """Raise InvalidGraph if most of ``lines``, stripped of blanks, have a syntax that is not that of an edge list."""
    _refuse_tgf(lines)
    body = [(at, line) for at, line in enumerate(lines, 1) if line and line[0] not in "#%"][:_ROWS]
    if not body:
        return
    for at, line in body[:10]:
        if _RULE.fullmatch(line):
            raise _refusal(at, line, "a table drawn with lines", "save it as CSV")
    for form, what, advice in _FORMS:
        _refuse_most([(at, line, form.match(line) is not None) for at, line in body], what, advice)
    _refuse_most(
        [(at, line, _wrapped(line)) for at, line in body],
        "lists or tuples of Python",
        "write the fields of each row without brackets and quotes",
    )
    rows = _rows([(at, line) for at, line in body if '"' not in line])  # names in quotes may hold any sign
    _refuse_dimacs(rows)
    _refuse_signs(rows, dict(body))
    _refuse_brackets(rows, dict(body))


def _refusal(at: int, line: str, what: str, advice: str) -> InvalidGraph:
    message = f"{shown(line)} looks like {what}, which is not read: {advice}"
    return InvalidGraph(f"{message}; if these are names, say --format edges", line=at, field="format")


def _refuse_most(found: list[tuple[int, str, bool]], what: str, advice: str) -> None:
    """Refuse the file if more than half of the lines ``found`` are marked as wrong; the message names the first marked
    line.
    """
    marked = [(at, line) for at, line, wrong in found if wrong]
    if 2 * len(marked) > len(found):
        raise _refusal(*marked[0], what, advice)


def _rows(body: list[tuple[int, str]]) -> Rows:
    """Return the fields of lines as the reader of edge lists separates them; lines with unbalanced quotes are left
    out.
    """
    body = [(at, line.rstrip(" ;,")) for at, line in body]
    if not body:
        return []
    separator = separator_of([line for _, line in body])
    found = []
    for at, line in body:
        try:
            found.append((at, split(line, separator, True, at)))
        except InvalidGraph:
            continue
    return [(at, row) for at, row in found if row]


def _wrapped(line: str) -> bool:
    """Return whether a line is enclosed in one pair of brackets, with a comma inside."""
    line = line.rstrip(" ,;")
    if line[:1] not in ("(", "[") or "," not in line:
        return False
    depth = 0
    for at, sign in enumerate(line):
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if depth == 0:
            return at == len(line) - 1
    return False


def _refuse_brackets(rows: Rows, lines: dict[int, str]) -> None:
    """Refuse fields with only one bracket of a pair: the text was split at the wrong separator."""
    odd = [
        (at, lines[at], any(sum(map(field.count, _OPEN)) != sum(map(field.count, _CLOSE)) for field in row))
        for at, row in rows
    ]
    _refuse_most(odd, "values in brackets", "write the fields of each row without brackets")


def _refuse_signs(rows: Rows, lines: dict[int, str]) -> None:
    """Refuse arrows, dashes and bars between fields, as in Graphviz, printed edges and tables of databases."""
    signs = [(at, row) for at, row in rows if len(row) > 2 and _SIGN.fullmatch(row[1]) and not _is_entries(row[1:])]
    if 2 * len(signs) > len(rows):
        at, row = signs[0]
        raise InvalidGraph(
            f"{shown(lines[at])} has the sign {shown(row[1])} where a vertex or a relation is expected: leave the "
            "signs out; or say --format edges --from 1 --to 3, or, if it is the name of a relation, --format sif",
            line=at,
            field="format",
        )
    tight = [
        (at, lines[at], bool(_TIGHT.match(row[0])) and (len(row) == 1 or (len(row) == 2 and is_number(row[1]))))
        for at, row in rows
    ]
    _refuse_most(tight, "arcs with arrows", "write source and target as two fields")
    joined = [_JOINED.fullmatch(row[0]) for _, row in rows if len(row) == 2 and is_number(row[1])]
    between = {found and found[1] for found in joined}
    if rows and len(joined) == len(rows) and len(between) == 1 and None not in between:
        at = rows[0][0]
        raise _refusal(at, lines[at], "two vertices in one field and a length", "write source and target as two fields")


def _is_entries(fields: list[str]) -> bool:
    """Return whether fields are the entries of a row of a matrix, with ``-`` for no arc."""
    return len(fields) > 2 and all(field == "-" or is_number(field) for field in fields)


def _refuse_dimacs(rows: Rows) -> None:
    """Refuse rows ``e 1 2``: edges of a DIMACS colouring file or a gSpan file without its first lines."""
    words = {row[0] for _, row in rows}
    edges = [(at, row) for at, row in rows if row[0] == "e"]
    if edges and words <= set("cdelnptvx") and all(len(row) > 2 and all(map(is_whole, row[1:])) for _, row in edges):
        at, row = edges[0]
        what = "the body of a DIMACS file of another kind than 'p sp' (graph colouring), or of gSpan"
        raise _refusal(at, " ".join(row), what, "leave out the lines that are no edges, and the letters")


def _refuse_tgf(lines: list[str]) -> None:
    """Refuse the Trivial Graph Format: ``id label`` rows, a line ``#``, then arcs between those ids."""
    if "#" not in lines:
        return
    at = lines.index("#")
    ids = [line.split()[0] for line in lines[:at] if line]
    ends = [line.split() for line in lines[at + 1 :] if line]
    if not ids or not ends or len(set(ids)) < len(ids):
        return
    if all(len(row) > 1 and {row[0], row[1]} <= set(ids) for row in ends):
        raise InvalidGraph(
            "this looks like the Trivial Graph Format (vertices, a line '#', arcs), which is not read: leave out the "
            "lines up to '#', or, if all lines are arcs, say --format edges",
            line=at + 1,
            field="format",
        )


def refuse_triples(lines: list[str]) -> None:
    """Refuse rows ``source,relation,target`` with commas or semicolons: read as edges, their relations would become
    vertices.

    Also raises InvalidGraph if the second column may be a relation or a vertex.
    """
    body = [(at, line) for at, line in enumerate(lines, 1) if line and line[0] not in "#%"][:_ROWS]
    if not body or not all("," in line or ";" in line for _, line in body):
        return
    rows = [(at, row) for at, row in _rows(body) if len(row) > 1]
    if not rows or min(len(row) for _, row in rows) < 3 or names_ends(rows[0][1]):
        return
    first, second, third = ({row[i] for _, row in rows} for i in range(3))
    if any(map(is_number, second | third)) or second & (first | third):
        return
    few, kinds = 2 * len(second) <= len(rows), 2 * len(third) <= len(rows)
    if kinds and not few and not third & first:
        return
    at, row = rows[0]
    raise InvalidGraph(
        f"{shown(','.join(row))} may be a source, a relation and a target, or a source, a target and what the edge is: "
        "say --from 1 --to 3, or --from 1 --to 2",
        line=at,
        field="format",
    )
