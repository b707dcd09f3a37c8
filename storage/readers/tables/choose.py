"""Chooses which columns of an edge list are read: by the caller's choice, else by column names, else by position."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from storage.errors import InvalidRequest
from storage.graph.cleaning import is_label
from storage.readers.fields import is_missing, is_number, is_whole, shown
from storage.readers.lengths import (
    FIRST_DATE,
    dates_refused,
    is_measure,
    is_moment,
    is_similarity,
    is_time,
    named_lengths,
    plain,
    similarity_refused,
    unnamed_refused,
)
from storage.readers.parsed import ReadOptions
from storage.readers.tables.directions import KINDS, YES, kinds_of
from storage.readers.tables.ends import (
    are_reversed,
    asked,
    find_ends,
    given_column,
    is_no_vertex,
    is_row_number,
    is_series,
    refuse_both_ways,
    refuse_twins,
)
from storage.readers.tables.remarks import Remarks

#: Matches numbers with separators between thousands, such as ``1,000``; the row parser refuses them.
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:[.,'][0-9]{3})++(?:[.,][0-9]++)?")
#: Matches fields with a sign before or instead of a number: ``$5``, ``w=5``, ``=``.
_DRESSED = re.compile(r"(?:\w{1,20}+\s?[=:]|[^\w\s.+-])\s?[+-]?[0-9.]|[=:@$€£]$")
#: Matches a date in eight digits, such as 20240131.
_DAY = re.compile(r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])")
#: The days 2000-01-01 and 2050-01-01 as Excel's day numbers.
_EXCEL_2000, _EXCEL_2050 = 36526, 54789
_NUMBERED = 8
#: If fewer rows than this were sampled, they are taken to be all rows of the file.
_FEW = 500


@dataclass(frozen=True)
class Columns:
    """Positions of the columns that are read, and notes for the receipt; ``kind`` says which edges are directed."""

    source: int
    target: int
    weight: int | None
    notes: tuple[str, ...] = ()
    kind: int | None = None


def choose(
    names: list[str] | None, body: list[list[str]], width: int, options: ReadOptions, remarks: Remarks
) -> Columns:
    """Return the columns of source, target and weight: by the caller's choice, else by name, else by position."""
    wanted = given_column(options.column, names, width, "weight" if options.length_of is None else "length_of")
    kind = _kind(names, body)
    if names is not None and (found := _series(names, body, options)) is not None:
        return found
    source, target, notes = _ends(names, body, width, (wanted, kind), options)
    asked_for = options.told or options.source or options.target or remarks.bipartite
    if not asked_for and (names is None or None in find_ends(names, None, None)):
        _refuse_values(body, (source, target))
        if names is None and wanted is None and not options.unweighted:
            _refuse_times(body)
    numbering = [0] if notes else []
    if wanted in (source, target):
        raise InvalidRequest(f"column {options.column!r} holds vertices, not weights", field="weight")
    if wanted is None and not options.unweighted:
        rest = [i for i in range(width) if i not in (source, target, kind)]
        wanted = _default_weight(names, body, rest, (source, target), remarks)
        if wanted is None and width > len(notes) + 2:
            notes = (*notes, "no column of weights was found, so every arc weighs 1")
    if names is not None and options.directed is None and kind is None:
        refuse_both_ways(names, body, (source, target, wanted))
    if names is not None:
        refuse_twins(names, (source, target, wanted), (options.source, options.target, options.column))
    used = (source, target, wanted, kind, *numbering)
    left = [(names[i] if names else "") or str(i + 1) for i in range(width) if i not in used]
    if left:
        notes = (*notes, f"not read: {listed('column', left)}")
    return Columns(source, target, wanted, notes, kind)


def _series(names: list[str], body: list[list[str]], options: ReadOptions) -> Columns | None:
    """Return the columns by position if the header only numbers them (``V1, V2, V3`` or ``a, b, c``); else None."""
    named = [i for i, name in enumerate(names) if _is_named(name)]
    wished = options.column or options.source or options.target
    if wished or len(named) != 3 or not is_series([names[i] for i in named]) or not _holds_numbers(body, named[2]):
        return None
    if _dates(body, named[2], whole=True):
        raise dates_refused(named[2] + 1)
    weight = None if options.unweighted else named[2]
    listing = ", ".join(names[i] for i in named)
    note = f"{listing} are no names of columns: the first two are taken for the vertices, the third for the length"
    return Columns(named[0], named[1], weight, (note,))


def _ends(
    names: list[str] | None,
    body: list[list[str]],
    width: int,
    taken: tuple[int | None, int | None],
    options: ReadOptions,
) -> tuple[int, int, tuple[str, ...]]:
    """Return the columns of source and target, and a note if a column that merely counts the rows is skipped."""
    source, target = (given_column(name, names, width, side) for name, side in
                      ((options.source, "source"), (options.target, "target")))  # fmt: skip
    if source is not None and source == target:
        raise InvalidRequest(f"column {options.target!r} cannot be both ends of an arc", field="target")
    if names is not None and (source is None or target is None):
        source, target = find_ends(names, source, target)
    if source is not None and target is not None:
        return source, target, ()
    free = [i for i in range(width) if i not in (*taken, source, target)]
    missing = (source is None) + (target is None)
    if len(free) < missing:
        raise InvalidRequest(f"column {options.column!r} leaves no two columns for vertices", field="weight")
    if names is not None:
        left = _by_place(names, body, free, missing)
        return (left.pop(0) if source is None else source), (left[-1] if target is None else target), ()
    notes: tuple[str, ...] = ()
    if missing == 2 and _numbered(body, width):
        free = free[1:]
        notes = ("column 1 numbers the edges; the vertices are columns 2 and 3",)
    elif missing == 2:
        _refuse_row_numbers(body, free)
    elif len(free) > 1:
        raise InvalidRequest("the file has no header row, so say both --from COLUMN and --to COLUMN", field="source")
    return (free.pop(0) if source is None else source), (free[0] if target is None else target), notes


def _by_place(names: list[str], body: list[list[str]], free: list[int], missing: int) -> list[int]:
    """Return the columns of the ``missing`` (1 or 2) ends of edges if the names of all other columns are recognised."""
    left = [i for i in free if _is_named(names[i]) and not (_holds_numbers(body, i) and is_measure(names[i]))]
    if missing == 2 and left and are_reversed(names[left[0]], names[left[-1]]):
        raise asked(names, "the order of these says the opposite of their names")
    measured = any(is_measure(names[i]) for i in range(len(names)) if i not in left)
    if missing == 2 and measured and _are_x_and_y(names, body, left):
        return left
    odd = next((names[i] for i in left if is_no_vertex(names[i])), None)
    if odd is not None:
        raise asked(names, f"{odd!r} does not read like a column of vertices")
    if len(left) > missing:
        others = listed("column", [names[i] for i in left[missing:]])
        raise asked(names, f"no name says it; if the first are the vertices, {others} has no meaning that is known")
    if len(left) < missing:
        raise asked(names, "too few of these read like columns of vertices")
    return left


def _are_x_and_y(names: list[str], body: list[list[str]], left: list[int]) -> bool:
    """Return whether columns ``x`` and ``y`` hold the ends of arcs and no coordinates: their values have no
    fractions.
    """
    cells = [row[i] for row in body for i in left]
    return [plain(names[i]) for i in left] == ["x", "y"] and all(is_whole(f) or not is_number(f, True) for f in cells)


def _refuse_row_numbers(body: list[list[str]], free: list[int]) -> None:
    """Refuse rows that begin with 0, 1, 2 ... and continue with two whole numbers and a fourth field, or with two
    names.
    """
    if free[:3] != [0, 1, 2] or len(body) < 2 or not all(is_label(row[0]) for row in body):
        return
    first = int(body[0][0])
    if first not in (0, 1) or any(int(row[0]) != first + i for i, row in enumerate(body)):
        return
    numbers = len(body[0]) > 3 and all(is_label(f) for row in body for f in row[1:3])
    numbers = numbers and all(is_number(row[3], True) for row in body)
    # If column 1 begins at 1 and column 2 is always larger by one, the rows may be arcs of a path: 1 2, 2 3, 3 4.
    numbers = numbers and (first == 0 or any(int(row[1]) != int(row[0]) + 1 for row in body))
    if numbers or not any(is_number(f, True) or is_missing(f) for row in body for f in row[1:3]):
        raise InvalidRequest(
            f"column 1 counts the rows ({first}, {first + 1}, ...), so it may be no vertex: say --from 2 --to 3 if it "
            "merely numbers them, or --from 1 --to 2",
            field="source",
        )


def _refuse_times(body: list[list[str]]) -> None:
    """Refuse rows ``t u v``: the first column never decreases and shares no number with the other two columns, which
    share numbers with each other.

    Long files are not refused: ``body`` has only their first rows, and there the sources may differ from all targets
    although the rows are arcs.
    """
    if not 3 <= len(body) < _FEW or len(body[0]) != 3 or not all(is_whole(f) for row in body for f in row):
        return
    first, second, third = ([int(row[i]) for row in body] for i in range(3))
    apart = set(first).isdisjoint(second) and set(first).isdisjoint(third) and not set(second).isdisjoint(third)
    if apart and first == sorted(first) and first[0] < first[-1]:
        raise InvalidRequest(
            "column 1 never falls and holds no vertex of the others, so it may be a time: say --from 2 --to 3 if it "
            "is, or --from 1 --to 2",
            field="source",
        )


def _refuse_values(body: list[list[str]], ends: tuple[int, int]) -> None:
    """Refuse names in one column and numbers in the other: these are vertices with values, such as heights, rather than
    arcs.
    """
    first, second = ([row[i] for row in body] for i in ends)
    for names, values in ((first, second), (second, first)):
        if len(body) > 1 and all(map(is_number, values)) and not any(map(is_number, names)):
            raise InvalidRequest(
                f"one column holds names ({shown(names[0])}), another numbers only ({shown(values[0])}), so these may "
                f"be vertices and their values: say --from {ends[0] + 1} --to {ends[1] + 1} if both are vertices",
                field="source",
            )


def choose_by_name(
    names: list[str], numeric: list[bool], options: ReadOptions, sample: Sequence[Sequence[str]] = ()
) -> Columns:
    """Return the columns of source, target and weight of a table with named, typed columns, by the rules of edge lists.

    ``sample`` has some rows as text.  Its values show whether a column holds dates, or says which edges are directed.
    """
    body = [list(row) for row in sample] or [["0" if number else "x" for number in numeric]]
    return choose(names, body, len(names), options, Remarks())


def _default_weight(
    names: list[str] | None, body: list[list[str]], rest: list[int], ends: tuple[int, int], remarks: Remarks
) -> int | None:
    """Return the column that is named like a length; without column names, the third column if it holds numbers.
    Raises InvalidRequest if there are columns of numbers, but it is uncertain whether any of them is the length.
    """
    first, last = min(ends), max(ends)
    if names is None:
        third = next((i for i in rest if i >= last), None)
        if third is None and any(not _counts_rows(body, i) and _holds_numbers(body, i) for i in rest):
            raise InvalidRequest(
                "numbers stand before the vertices: say --weight NUMBER for their column if they are lengths, else "
                "--unweighted",
                field="weight",
            )
        # A few missing values or decimal commas do not matter here: the row parser refuses values that it cannot read.
        if third is None or not _holds_numbers(body, third):
            _refuse_units(body, third)
            _refuse_other_columns(body, ends, third)
            return None
        if remarks.counted:
            raise remarks.refused(third + 1)
        if _dates(body, third, whole=True):
            raise dates_refused(third + 1)
        others = [i + 1 for i in range(third + 1, len(body[0])) if _holds_numbers(body, i)]
        if len(others) > 2:
            raise InvalidRequest(
                f"columns {third + 1} and {', '.join(map(str, others[:8]))} hold numbers, and none has a name: say "
                "--weight NUMBER for the length, or --unweighted",
                field="weight",
            )
        return third
    numeric = [i for i in rest if _is_named(names[i]) and _holds_numbers(body, i)]
    named = [rest[i] for i in named_lengths([names[i] for i in rest])]
    dates = [i for i in named if is_time(names[i]) and _dates(body, i)]
    dates += [i for i in named if is_moment(names[i]) and i not in dates and (i < first or _days(body, i))]
    lengths = [i for i in named if i not in dates]
    if lengths:
        return next((i for i in lengths if i in numeric), lengths[0])
    for i in (i for i in numeric if is_similarity(names[i])):
        raise similarity_refused(names[i], [_value(row[i]) for row in body])
    numeric = [i for i in numeric if not is_row_number(names[i])]
    if numeric:
        stands = dates and dates[0] < first and not _dates(body, dates[0])
        why = f" (the values of {names[dates[0]]!r} are dates)" if dates else ""
        if stands:
            why = f" ({names[dates[0]]!r} stands before the vertices, so it may say when an edge was there)"
        raise unnamed_refused([names[i] for i in numeric], why)
    return None


def _is_named(name: str) -> bool:
    """Return whether a column has a real name; the columns of row numbers that pandas and R write have none."""
    return (plain(name) not in ("", "unnamed0") or not name.isascii()) and not name.startswith("__index_level_")


def _holds_numbers(body: list[list[str]], column: int) -> bool:
    """Return whether most values that are not missing are numbers, perhaps with a decimal comma."""
    there = [row[column] for row in body if not is_missing(row[column])]
    found = (is_number(token, True) or _THOUSANDS.fullmatch(token) for token in there)
    return 2 * sum(map(bool, found)) > len(there)


def _counts_rows(body: list[list[str]], column: int) -> bool:
    """Return whether a column merely numbers the rows, from 0 or from 1."""
    cells = [row[column] for row in body]
    return any(cells == [str(first + i) for i in range(len(cells))] for first in (0, 1))


def _refuse_units(body: list[list[str]], column: int | None) -> None:
    """Refuse a third column in which most values are numbers with other text: ``1km``, ``10:30``, ``$5``, ``w=5``."""
    there = [] if column is None else [row[column] for row in body if not is_missing(row[column])]
    odd = [token for token in there if (token[:1].isdigit() and not is_number(token, True)) or _DRESSED.match(token)]
    if there and all(token.lower() in YES and not token.isdigit() for token in there) and len(body) > 1:
        odd = there  # the column only says whether an edge exists
    if 2 * len(odd) > len(there):
        raise InvalidRequest(
            f"column {(column or 0) + 1} holds {shown(odd[0])}, which is no number: write plain numbers, or say "
            "--unweighted",
            field="weight",
        )


def _refuse_other_columns(body: list[list[str]], ends: tuple[int, int], third: int | None) -> None:
    """Refuse a third column of text if a later column has numbers, or if the third repeats vertices of the second."""
    if third is None or len(body) < 2:
        return
    numbers = next((i for i in range(third + 1, len(body[0])) if _holds_numbers(body, i)), None)
    if numbers is not None and not _dates(body, numbers):
        raise InvalidRequest(
            f"column {third + 1} holds text ({shown(body[0][third])}), and column {numbers + 1} numbers: say --weight "
            f"{numbers + 1} if they are lengths, else --unweighted, and --from and --to for the vertices",
            field="weight",
        )
    first, second, others = ({row[i] for row in body} for i in (*ends, third))
    if len(body) < _FEW and others & second and len(first) == len(body) and first.isdisjoint(second | others):
        raise InvalidRequest(
            f"column {third + 1} holds the same vertices as column {ends[1] + 1}, and column {ends[0] + 1} may name "
            f"the edges: say --from {ends[1] + 1} --to {third + 1} if it does, or --from {ends[0] + 1} "
            f"--to {ends[1] + 1}",
            field="source",
        )


def _dates(body: list[list[str]], column: int, *, whole: bool = False) -> bool:
    """Return whether all values read like seconds since 1970, or like 20240131; with ``whole``, values with fractions
    do not count as dates.
    """
    there = [row[column] for row in body if not is_missing(row[column])]
    if there and all(map(_DAY.fullmatch, there)):
        return True
    large = all(is_number(token) and float(token) >= FIRST_DATE for token in there)
    large = large and not (whole and any(float(token) % 1 for token in there))
    return bool(there) and large


def _days(body: list[list[str]], column: int) -> bool:
    """Return whether all values read like years, or like days since 2000 as Excel numbers them."""
    there = [row[column] for row in body if not is_missing(row[column])]
    if not there or not all(map(is_number, there)):
        return False
    values = [float(token) for token in there]
    years = all(map(is_whole, there)) and all(1900 <= value <= 2100 for value in values)
    return years or all(_EXCEL_2000 <= value < _EXCEL_2050 for value in values)


def _value(token: str) -> float:
    """Return a number as float, 0 for other text; callers only need the magnitude of most values."""
    return float(token.replace(",", ".")) if is_number(token, True) else 0.0


def _numbered(body: list[list[str]], width: int) -> bool:
    """Return whether column 1 only numbers rows of id, u, v and a fraction, as in the road networks of F. Li."""
    if width != 4 or len(body) < _NUMBERED or not all(is_whole(f) for row in body for f in row[:3]):
        return False
    first = int(body[0][0])
    counts = first in (0, 1) and all(int(row[0]) == first + i for i, row in enumerate(body))
    return counts and all(is_number(row[3]) for row in body) and any(not is_whole(row[3]) for row in body)


def _kind(names: list[str] | None, body: list[list[str]]) -> int | None:
    """Return the column ``Type`` of Gephi if it has directions, or a column ``directed`` if it is not empty."""
    for i, name in enumerate(names or []):
        known = kinds_of(name)
        if any(row[i].lower() in known if known is KINDS else not is_missing(row[i]) for row in body if known):
            return i
    return None


def listed(kind: str, names: list[str]) -> str:
    """Return ``columns a, b, c``; only the first ones if there are many."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(name[:60] for name in names[:8])}{more}"
