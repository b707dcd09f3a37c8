"""Decides whether the first row of an edge list is a header with names of columns or an arc, and refuses any other
first row.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from storage.errors import InvalidGraph, InvalidRequest
from storage.readers.fields import is_missing, is_number, is_whole, shown
from storage.readers.parsed import ReadOptions
from storage.readers.tables.ends import is_column, looks_like_names, names_ends

__all__ = ["find_header", "no_banner", "refuse_first_row", "refuse_marks", "refuse_types"]

#: Matches a number in any notation; such a field is no name of a column.
_DIGITS: Final = re.compile(r"[+-]?[0-9][0-9.,']*+")
#: Matches signs that begin comments in files of other programs; such fields are no names of columns.
_MARK: Final = re.compile(r"[!$&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]+")
#: Words that occur in titles, and in rows that count vertices or edges; a header contains them only together with names
#: of source and target columns.
_TITLE: Final = frozenset({"graph", "digraph", "multigraph", "subgraph", "network", "directed", "undirected",
                           "weighted", "unweighted", "vertices", "nodes", "edges", "arcs", "matrix",
                           "list"})  # fmt: skip
_WORD: Final = re.compile(r"[^\W\d]")
#: If at least this many rows are examined below the first row, the first row may be an arc although it shares no vertex
#: with them, because the file may have more rows.
_MANY: Final = 500

Line = tuple[int, str]


def find_header(rows: list[list[str]], width: int, line: Line, commented: bool) -> list[str] | None:
    """Return the names of columns in the first row, if it is a header: it has known names, or words above a column of
    numbers.

    Args:
        rows: the first rows, as fields.
        width: number of fields of most rows.
        line: number and text of the first row.
        commented: whether a comment already names the columns.

    Returns:
        The names, one for each column; None if the first row has no names.

    Raises:
        InvalidGraph: the first row is a title, or has words that may be names of columns or an arc.
    """
    first = [field.strip('"') for field in rows[0]]
    rest = [row for row in rows[1:] if len(row) == width]
    if len(first) == width - 1 and _has_row_names(first, rest):
        return ["", *first]
    if len(first) != width:
        return None
    if any(rest and len(name) > 1 and all(row[c] == name for row in rest) for c, name in enumerate(first)):
        return None  # rows such as "from A to B 5": a word that occurs in every row is no name of a column
    if looks_like_names(first, rest):
        _refuse_title(first, rest, line)
        return first
    empty = [c for c, name in enumerate(first) if not name and c > 0 and any(row[c] for row in rest)]
    if commented or not rest or empty or any(_is_value(field) for field in first):
        return None
    _refuse_title(first, rest, line)
    shares = [sum(is_number(row[c], True) for row in rest) / len(rest) for c in range(width)]
    if 1 in shares:
        return first
    letters = names_ends(first, letters=True) and not any(field in first for row in rest for field in row)
    word = any(is_column(name) for name in first if len(name) > 1) and _shares_nothing(first, rest)
    if letters or word or max(shares) > 0.5 or _is_apart(first, rest):
        raise _asked(line)
    return None


def _asked(line: Line) -> InvalidGraph:
    return InvalidGraph(
        f"{shown(line[1])} may name the columns or be an arc: name the ends in a first row 'source' and 'target', "
        "above it if it is an arc",
        line=line[0],
        field="header",
    )


def _has_row_names(first: list[str], rest: list[list[str]]) -> bool:
    """Return whether rows begin with a number for which the header has no name, as in tables that pandas prints."""
    if not rest or len(first) < 2 or any(_is_value(name) for name in first):
        return False
    numbers = [row[0] for row in rest]
    if not any(numbers == [str(i + begin) for i in range(len(rest))] for begin in (0, 1)):
        return False
    body = [row[1:] for row in rest]
    return looks_like_names(first, body) or any(all(is_number(row[c], True) for row in body) for c in range(len(first)))


def _refuse_title(first: list[str], rest: list[list[str]], line: Line) -> None:
    """Refuse a title such as ``Undirected graph`` or ``vertices edges``: its words do not occur in the rows below."""
    words = [name.lower().strip(".:,;!()") for name in first]
    # Two words separated by a blank may be a title; two words separated by a comma are names of columns.
    two = len(first) == 2 and not re.search(r'[,;\t"]', line[1]) and all(len(word) > 1 for word in words)
    numbers = all(is_number(field) for row in rest for field in row)
    if names_ends(first, letters=True) or not (_TITLE.intersection(words) or (two and numbers)):
        return
    if _shares_nothing(first, rest):
        raise InvalidGraph(
            f"{shown(line[1])} reads like a title: begin it with # if it is one, and leave out a row of counts below "
            "it; if it names the columns, say 'source target' or 'source target weight' instead",
            line=line[0],
            field="header",
        )


def _is_apart(first: list[str], rest: list[list[str]]) -> bool:
    """Return whether the first row has no vertex in common with the rows below, although there are few rows and most of
    the rows below share vertices with each other.

    The answer is False if each vertex of the first row is a single character.
    """
    if len(first) > 3 or not 2 <= len(rest) < _MANY or not any(len(field) > 1 for field in first[:2]):
        return False
    counts = Counter(field for row in rest for field in set(row[:2]))
    shared = sum(any(counts[field] > 1 for field in row[:2]) for row in rest)
    return not any(counts[field] for field in first[:2]) and 10 * shared >= 9 * len(rest)


def _shares_nothing(first: list[str], rest: list[list[str]]) -> bool:
    """Return whether no field of the first row occurs in another row."""
    return {field for row in rest for field in row}.isdisjoint(first)


def _is_value(field: str) -> bool:
    """Return whether a field of the first row is a value, and no name of a column."""
    return is_number(field) or bool(_DIGITS.fullmatch(field)) or (bool(field) and is_missing(field))


def refuse_first_row(rows: list[list[str]], width: int, line: Line, options: ReadOptions) -> None:
    """Refuse a first row that is neither a header nor an arc like the rows below.

    Args:
        rows: the first rows, as fields.
        width: number of fields of most rows.
        line: number and text of the first row.
        options: the caller's options.

    Raises:
        InvalidGraph: the row is a title, has too few fields, counts vertices or edges, or numbers the columns; or it is
            the size line of a Matrix Market file whose banner is missing.
        InvalidRequest: all rows begin with the same word, which may be a vertex or may say what the rows are.
    """
    number, text = line
    first = rows[0]
    if len(first) == 3 and width == 2 and all(is_whole(field) for field in first):
        raise no_banner(text, number)
    if len(first) == 1 < width and is_whole(first[0]):
        message = f"an edge needs at least two fields, found {shown(text)}: leave it out if it counts vertices or rows"
        raise InvalidGraph(message, line=number, field="row")
    if len(first) < 2 or width < 2:
        raise InvalidGraph(f"an edge needs at least two fields, found {shown(text)}", line=number, field="row")
    if len(first) != width and not any(map(is_number, first)):
        raise InvalidGraph(
            f"{shown(text)} has {len(first)} fields, and the rows below have {width}: begin it with # if it is a "
            "title; names of columns are as many as the fields of a row",
            line=number,
            field="row",
        )
    body = [row for row in rows if len(row) == width]
    if len(first) == width:
        _refuse_counts(body, line)
        _refuse_positions(body, line)
        if not (options.source or options.target):
            _refuse_keyword(body)


def _refuse_counts(rows: list[list[str]], line: Line) -> None:
    """Refuse ``VERTICES 4`` and ``4 nodes`` above pairs of numbers, and ``n 4`` above pairs of names."""
    whole = [is_whole(row[0]) and is_whole(row[1]) for row in rows]
    begin = next((i for i, good in enumerate(whole) if good), len(rows))
    numbers = 0 < begin <= 3 and begin < len(rows) and all(whole[begin:])
    first, rest = rows[0], rows[1:]
    mixed = is_whole(first[0]) != is_whole(first[1])
    below = {field for row in rest for field in row}
    names = len(first) == 2 and mixed and below.isdisjoint(first) and not any(map(is_whole, below))
    words = any(_WORD.match(field) for field in first[:2])
    # pandas calls the column of values of a stacked table 0, so a first row of two names and 0 may be a header
    stacked = len(first) == 3 and first[2] == "0" and _is_apart(first, rest)
    if (numbers and words) or names or stacked or _is_odd(first, rest):
        raise InvalidGraph(
            f"{shown(line[1])} is not like the rows below: leave it out if it counts vertices or edges; if it is an "
            "arc, add a first row 'source target' or 'source target weight'",
            line=line[0],
            field="header",
        )


def _is_odd(first: list[str], rest: list[list[str]]) -> bool:
    """Return whether the first row has a word in a column in which all rows below have numbers."""
    return bool(rest) and any(
        _WORD.match(word) and not is_number(word) and not is_missing(word) and all(is_number(row[c]) for row in rest)
        for c, word in enumerate(first)
    )


def refuse_types(rows: list[list[str]], line: Line) -> None:
    """Refuse a row of types, such as ``string,string`` or ``id,id``, between the header and rows of numbers."""
    if len(rows) > 1 and all(_WORD.match(word) for word in rows[0]) and _is_odd(rows[0], rows[1:]):
        raise InvalidGraph(
            f"{shown(line[1])} is not like the rows below: leave it out if it says types or units",
            line=line[0],
            field="row",
        )


def _refuse_keyword(rows: list[list[str]]) -> None:
    """Refuse rows such as ``edge 1 2 5``, which all begin with the same word, followed by two numbers or two names.

    The word may be a vertex with arcs to the vertices that follow it, or may say what the rows are.
    """
    word = rows[0][0]
    if len(rows) < 2 or len(rows[0]) < 3 or is_whole(word) or any(row[0] != word for row in rows):
        return
    second, third = ([row[c] for row in rows] for c in (1, 2))
    numbers = all(map(is_whole, second)) and all(map(is_whole, third))
    names = not any(map(is_number, second)) and not any(is_number(f, True) or is_missing(f) for f in third)
    if numbers or names:
        raise InvalidRequest(
            f"every row begins with {shown(word)}, a vertex or a word for what the row is: say --from 2 --to 3 if it "
            f"is no vertex{' (and --weight 4 for lengths)' if len(rows[0]) > 3 else ''}, or --from 1 --to 2",
            field="source",
        )


def _refuse_positions(rows: list[list[str]], line: Line) -> None:
    """Refuse a first row ``0,1,2`` above rows of another kind: pandas numbers unnamed columns in this way."""
    first, rest = rows[0], rows[1:]
    if not rest or len(first) > 3 or first != [str(i) for i in range(len(first))]:
        return
    names = not any(is_whole(f) for row in rest for f in row[:2])
    fractions = len(first) == 3 and not any(is_whole(row[2]) for row in rest)
    if names or fractions:
        raise InvalidGraph(
            f"{shown(line[1])} may be an arc, or number the columns: leave it out if it numbers them; if it is an arc, "
            "add a first row 'source target' or 'source target weight'",
            line=line[0],
            field="header",
        )


def refuse_marks(rows: list[list[str]], line: Line) -> None:
    """Refuse a first row that begins with an unusual sign: a comment of another kind, or a printed prompt."""
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


def no_banner(text: str, line: int) -> InvalidGraph:
    """Return the error for a Matrix Market size line without the banner line that should precede it."""
    return InvalidGraph(
        f"{shown(text)} looks like the size line of a Matrix Market file, but its %%MatrixMarket line is missing",
        line=line,
    )
