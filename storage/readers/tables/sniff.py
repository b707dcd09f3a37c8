"""What the first lines of an edge list say about the rest: separator, header, columns, numbers or names."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from storage.errors import InvalidGraph
from storage.graph.cleaning import is_label
from storage.readers import fields
from storage.readers.fields import BLANKS, is_missing, is_number, is_whole, shown
from storage.readers.parsed import ReadOptions
from storage.readers.tables.choose import Columns, choose, listed
from storage.readers.tables.ends import looks_like_names, names_ends
from storage.readers.tables.remarks import Remarks, read_remarks
from storage.readers.tables.table import Layout, is_comment

__all__ = ["COMMENTS", "Sniffed", "listed", "names_ends", "no_banner", "sniff"]

COMMENTS = "#%"
#: A field in quotes begins so where blanks separate.
_QUOTE = re.compile(r'(?:^|[ \t])"')
#: A number in whatever notation: no name of a column.
_DIGITS = re.compile(r"[+-]?[0-9][0-9.,']*+")
#: Signs that begin comments of other programs; no name of a column.
_MARK = re.compile(r"[!$&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]+")
#: A number with a decimal comma.
_DECIMAL = re.compile(r"[+-]?[0-9]++,[0-9]++")
_ROWS = 1000


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
        kind_name: its name.
        first: line of the first row.
        header: the first row names the columns.
        remarks: what the comments say.
    """

    layout: Layout
    skip: int
    weight_name: str | None
    counts: tuple[int, int, int] | None
    notes: tuple[str, ...]
    kind: int | None = None
    kind_name: str = ""
    first: int = 1
    header: bool = False
    remarks: Remarks = field(default_factory=Remarks)


def sniff(head: list[str], options: ReadOptions, separator: str | None = None) -> Sniffed:
    """Look at the first lines; ``separator`` is what the file itself says.

    Raises InvalidGraph if they are no edge list, InvalidRequest if the weight is not there.
    """
    lines = [
        (i, text)
        for i, text in enumerate(head, 1)
        if text.strip(BLANKS) and not is_comment(text.strip(BLANKS), COMMENTS)
    ]
    if not lines:
        raise InvalidGraph("there is no edge in the file: only comments and empty lines")
    lines = lines[:_ROWS]
    separator = separator or separator_of([text for _, text in lines])
    quoted = separator is not None or any(_QUOTE.search(text) for _, text in lines)
    rows = [fields.split(text.strip(BLANKS), separator, quoted, i) for i, text in lines]
    widths = Counter(len(row) for row in rows)
    width = max(widths, key=lambda size: (widths[size], size))
    options.limits.check_columns(width, next(i for (i, _), row in zip(lines, rows, strict=True) if len(row) == width))
    counts = _counts(rows, width, lines[0][0])
    # Elsewhere 1,008 may as well be a thousand and eight: refused by the row parser.
    decimal_comma = separator == ";" and any("," in field and is_number(field, True) for row in rows for field in row)
    remarks = read_remarks(head, lines[0][0], separator, width, options)
    _refuse_marks(rows, lines[0])
    header = None if counts else _header(rows, width, lines[0], remarks.names is not None)
    names = remarks.names if header is None else header
    body = rows[1:] if counts or header is not None else rows
    if header is None and counts is None:
        _check_first(rows[0], width, lines[0])
    body = [row for row in body if len(row) == width] or [[""] * width]
    columns = choose(names, body, width, _as_remarked(options, remarks), remarks)
    ends = [names[c] if names else "" for c in (columns.source, columns.target)]
    if header is None and width == 2:
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
    skip = lines[0][0] if counts or header is not None else 0
    weight_name = None
    if columns.weight is not None:
        weight_name = names[columns.weight] if names else str(columns.weight + 1)
    kind_name = names[columns.kind] if names and columns.kind is not None else ""
    return Sniffed(
        *(layout, skip, weight_name, counts, columns.notes, columns.kind, kind_name, lines[0][0]),
        header=header is not None,
        remarks=remarks,
    )


def _as_remarked(options: ReadOptions, remarks: Remarks) -> ReadOptions:
    """The caller's wishes, and that of a file which says that it has no weights."""
    return replace(options, unweighted=True) if remarks.unweighted else options


def _mostly_whole(body: list[list[str]], columns: Columns) -> bool:
    good = sum(is_whole(row[columns.source]) and is_whole(row[columns.target]) for row in body)
    return 2 * good > len(body)


def separator_of(lines: list[str]) -> str | None:
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
    if not everywhere(","):
        return None
    _refuse_decimal_commas(sample)
    return ","


def _refuse_decimal_commas(sample: list[str]) -> None:
    """Refuse ``1 2 3,5`` and ``1 2, 3``: blanks separate fields, and commas would make vertices such as ``1 2``."""
    words = [[word.strip(",") for word in line.split()] for line in sample]
    decimal = all(
        len(row) > 1
        and any(_DECIMAL.fullmatch(word) for word in row)
        and all("," not in word or _DECIMAL.fullmatch(word) for word in row)
        for row in words
    )
    ends = [[part.split() for part in line.split(",")[:2]] for line in sample]
    lists = sum(any(len(part) > 1 and all(map(is_number, part)) for part in parts) for parts in ends)
    if decimal or 2 * lists > len(sample):
        raise InvalidGraph(
            f"{shown(sample[0])} has fields between blanks and commas: separate all of them by tabs or semicolons, and "
            "write points for decimal commas",
            field="row",
        )


def _blanks_suffice(sample: list[str]) -> bool:
    """Whether every field is a number if the lines are split at blanks."""
    even = len({len(line.split()) for line in sample[:2]}) == 1
    return even and all(is_number(field) for line in sample[1:] or sample for field in line.split())


def _counts(rows: list[list[str]], width: int, line: int) -> tuple[int, int, int] | None:
    """A first line ``n m`` before wider rows."""
    first = rows[0]
    if len(rows) > 1 and width > 2 and len(first) == 2 and all(is_whole(f) and int(f) >= 0 for f in first):
        _refuse_sized_matrix(rows, width, line)
        return int(first[0]), int(first[1]), line
    return None


def _refuse_sized_matrix(rows: list[list[str]], width: int, line: int) -> None:
    """Refuse ``n n`` above n rows of n fields, unless they are three that can be arcs: they may be a matrix."""
    body = rows[1:]
    if rows[0] != [str(width)] * 2 or len(body) != width or any(len(row) != width for row in body):
        return
    if width > 3 or all(row[i] in ("0", "0.0") for i, row in enumerate(body)):
        raise InvalidGraph(
            f"'{width} {width}' above {width} rows of {width} fields may be the size of a matrix: leave it out, "
            "and say --format matrix or --format edges",
            line=line,
            field="format",
        )


def _refuse_marks(rows: list[list[str]], line: tuple[int, str]) -> None:
    """Refuse a first row that begins with a sign of its own: a comment of another kind, or a printed prompt."""
    number, text = line
    if (
        _MARK.fullmatch(rows[0][0])
        and not text.lstrip().startswith('"')
        and len(rows) > 1
        and not any(_MARK.fullmatch(row[0]) for row in rows[1:])
    ):
        raise InvalidGraph(
            f"{shown(text)} begins with {shown(rows[0][0])}: comments begin with # or %; leave this line out, or, "
            "if it is an arc, add a first row 'source target' or 'source target weight'",
            line=number,
        )


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


def _header(rows: list[list[str]], width: int, line: tuple[int, str], commented: bool) -> list[str] | None:
    """The first row as names, if it is one: known names, or words above a column of numbers.

    ``commented``: a comment names the columns already.  InvalidGraph for words that may be names or an arc.
    """
    first = [field.strip('"') for field in rows[0]]
    rest = [row for row in rows[1:] if len(row) == width]
    if len(first) != width or looks_like_names(first, rest):
        return first if len(first) == width else None
    empty = [c for c, name in enumerate(first) if not name and c > 0 and any(row[c] for row in rest)]
    if commented or not rest or empty or any(_is_value(field) for field in first):
        return None
    shares = [sum(is_number(row[c], True) for row in rest) / len(rest) for c in range(width)]
    if 1 in shares:
        return first
    letters = names_ends(first, letters=True) and not any(field in first for row in rest for field in row)
    if letters or max(shares) > 0.5:
        raise InvalidGraph(
            f"{shown(line[1])} may name the columns or be an arc: name the ends in a first row 'source' and 'target', "
            "above it if it is an arc",
            line=line[0],
            field="header",
        )
    return None


def _is_value(field: str) -> bool:
    """Whether a field of the first row is a value, and no name of a column."""
    return is_number(field) or bool(_DIGITS.fullmatch(field)) or (bool(field) and is_missing(field))


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
