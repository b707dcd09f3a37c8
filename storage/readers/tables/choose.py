"""Which columns of an edge list are read as what: by their names, else by their place, the caller's wish first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.cleaning import is_label
from storage.readers.fields import is_missing, is_number, is_whole, shown
from storage.readers.lengths import (
    FIRST_DATE,
    dates_refused,
    is_measure,
    is_similarity,
    is_time,
    named_lengths,
    plain,
    similarity_refused,
    unnamed_refused,
)
from storage.readers.parsed import ReadOptions
from storage.readers.tables.ends import are_reversed, asked, find_ends, is_no_vertex, is_row_number
from storage.readers.tables.remarks import Remarks

__all__ = ["Columns", "choose", "choose_by_name", "direction_of", "kinds_of", "listed"]

#: Values of Gephi's column ``Type`` and whether they mean directed.
KINDS: Final = MappingProxyType({"directed": True, "undirected": False})
#: Values of a column ``directed``.
_YES: Final = MappingProxyType({**KINDS, "true": True, "yes": True, "1": True, "false": False, "no": False, "0": False})
#: Numbers with signs for thousands, which the row parser refuses.
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:[.,'][0-9]{3})++(?:[.,][0-9]++)?")
_NUMBERED = 8


@dataclass(frozen=True)
class Columns:
    """Positions of the columns that are read, and what the receipt says about the choice."""

    source: int
    target: int
    weight: int | None
    notes: tuple[str, ...] = ()
    kind: int | None = None


def choose(
    names: list[str] | None, body: list[list[str]], width: int, options: ReadOptions, remarks: Remarks
) -> Columns:
    """Source, target and weight columns: by name, else by position, the caller's wish first."""
    wanted = _wanted(options.column, names, width, "weight" if options.length_of is None else "length_of")
    kind = _kind(names, body)
    source, target, notes = _ends(names, body, width, (wanted, kind), options)
    numbering = [0] if notes else []
    if wanted in (source, target):
        raise InvalidRequest(f"column {options.column!r} holds vertices, not weights", field="weight")
    if wanted is None and not options.unweighted:
        rest = [i for i in range(width) if i not in (source, target, kind)]
        wanted = _default_weight(names, body, rest, max(source, target), remarks)
        if wanted is None and width > len(notes) + 2:
            notes = (*notes, "no column of weights was found, so every arc weighs 1")
    used = (source, target, wanted, kind, *numbering)
    left = [(names[i] if names else "") or str(i + 1) for i in range(width) if i not in used]
    if left:
        notes = (*notes, f"not read: {listed('column', left)}")
    return Columns(source, target, wanted, notes, kind)


def _ends(
    names: list[str] | None,
    body: list[list[str]],
    width: int,
    taken: tuple[int | None, int | None],
    options: ReadOptions,
) -> tuple[int, int, tuple[str, ...]]:
    """The columns of source and target, and a note where one that merely counts the rows is skipped."""
    source, target = (_wanted(name, names, width, side) for name, side in
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
    """The ``missing`` ends by their place, where all other columns of the header are understood."""
    left = [i for i in free if _is_named(names[i]) and not (_holds_numbers(body, i) and is_measure(names[i]))]
    if missing == 2 and left and are_reversed(names[left[0]], names[left[-1]]):
        raise asked(names, "the order of these says the opposite of their names")
    odd = next((names[i] for i in left if is_no_vertex(names[i])), None)
    if odd is not None:
        raise asked(names, f"{odd!r} does not read like a column of vertices")
    if len(left) > missing:
        others = listed("column", [names[i] for i in left[missing:]])
        raise asked(names, f"no name says it; if the first are the vertices, {others} has no meaning that is known")
    if len(left) < missing:
        raise asked(names, "too few of these read like columns of vertices")
    return left


def _refuse_row_numbers(body: list[list[str]], free: list[int]) -> None:
    """Refuse rows that begin with 0, 1, 2 ... and go on with two whole numbers and a fourth, or with two names."""
    if free[:3] != [0, 1, 2] or len(body) < 2 or not all(is_label(row[0]) for row in body):
        return
    first = int(body[0][0])
    if first not in (0, 1) or any(int(row[0]) != first + i for i, row in enumerate(body)):
        return
    numbers = len(body[0]) > 3 and all(is_label(f) for row in body for f in row[1:3])
    numbers = numbers and all(is_number(row[3], True) for row in body)
    # From 1 on it may well be a path: 1 2, 2 3, 3 4.
    numbers = numbers and (first == 0 or any(int(row[1]) != int(row[0]) + 1 for row in body))
    if numbers or not any(is_number(f, True) or is_missing(f) for row in body for f in row[1:3]):
        raise InvalidRequest(
            f"column 1 counts the rows ({first}, {first + 1}, ...), so it may be no vertex: say --from 2 --to 3 if it "
            "merely numbers them, or --from 1 --to 2",
            field="source",
        )


def choose_by_name(
    names: list[str], numeric: list[bool], options: ReadOptions, sample: Sequence[Sequence[str]] = ()
) -> Columns:
    """Source, target and weight columns of a table with named, typed columns; the rules of edge lists.

    ``sample`` are some rows as text: values tell dates from lengths, and what a column says of direction.
    """
    body = [list(row) for row in sample] or [["0" if number else "x" for number in numeric]]
    return choose(names, body, len(names), options, Remarks())


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


def _default_weight(
    names: list[str] | None, body: list[list[str]], rest: list[int], last: int, remarks: Remarks
) -> int | None:
    """The column named like a length, or without names the third one if it is numeric; other numbers are refused."""
    if names is None:
        third = next((i for i in rest if i >= last), None)
        if third is None and any(not _counts_rows(body, i) and _holds_numbers(body, i) for i in rest):
            raise InvalidRequest(
                "numbers stand before the vertices: say --weight NUMBER for their column if they are lengths, else "
                "--unweighted",
                field="weight",
            )
        # A few gaps, or commas for points, make it nothing else: the row parser names their lines.
        if third is None or not _holds_numbers(body, third):
            _refuse_units(body, third)
            return None
        if remarks.counted:
            raise remarks.refused(third + 1)
        if _dates(body, third, whole=True):
            raise dates_refused(third + 1)
        return third
    numeric = [i for i in rest if _is_named(names[i]) and _holds_numbers(body, i)]
    named = [rest[i] for i in named_lengths([names[i] for i in rest])]
    dates = [i for i in named if is_time(names[i]) and _dates(body, i)]
    lengths = [i for i in named if i not in dates]
    if lengths:
        return next((i for i in lengths if i in numeric), lengths[0])
    for i in (i for i in numeric if is_similarity(names[i])):
        raise similarity_refused(names[i], [_value(row[i]) for row in body])
    numeric = [i for i in numeric if not is_row_number(names[i])]
    if numeric:
        why = f" (the values of {names[dates[0]]!r} are dates)" if dates else ""
        raise unnamed_refused([names[i] for i in numeric], why)
    return None


def _is_named(name: str) -> bool:
    """Whether a column has a name; the row numbers of pandas and of R have none."""
    return (plain(name) not in ("", "unnamed0") or not name.isascii()) and not name.startswith("__index_level_")


def _holds_numbers(body: list[list[str]], column: int) -> bool:
    """Whether most of what is there is a number, be it written with a comma."""
    there = [row[column] for row in body if not is_missing(row[column])]
    found = (is_number(token, True) or _THOUSANDS.fullmatch(token) for token in there)
    return 2 * sum(map(bool, found)) > len(there)


def _counts_rows(body: list[list[str]], column: int) -> bool:
    """Whether a column merely numbers the rows, from 0 or from 1."""
    cells = [row[column] for row in body]
    return any(cells == [str(first + i) for i in range(len(cells))] for first in (0, 1))


def _refuse_units(body: list[list[str]], column: int | None) -> None:
    """Refuse a third column of which most values begin like numbers and are none: ``1km``, ``10:30``, ``50%``."""
    there = [] if column is None else [row[column] for row in body if not is_missing(row[column])]
    odd = [token for token in there if token[:1].isdigit() and not is_number(token, True)]
    if 2 * len(odd) > len(there):
        raise InvalidRequest(
            f"column {(column or 0) + 1} holds {shown(odd[0])}, which is no number: write plain numbers, or say "
            "--unweighted",
            field="weight",
        )


def _dates(body: list[list[str]], column: int, *, whole: bool = False) -> bool:
    """Whether all values read like seconds since 1970; ``whole``: and are whole numbers."""
    there = [row[column] for row in body if not is_missing(row[column])]
    large = all(is_number(token) and float(token) >= FIRST_DATE for token in there)
    large = large and not (whole and any(float(token) % 1 for token in there))
    return bool(there) and large


def _value(token: str) -> float:
    """A number as float, 0 for anything else: only the size of most values matters."""
    return float(token.replace(",", ".")) if is_number(token, True) else 0.0


def _numbered(body: list[list[str]], width: int) -> bool:
    """Whether column 1 merely counts the rows: id, u, v, fraction (the road networks of F. Li are written so)."""
    if width != 4 or len(body) < _NUMBERED or not all(is_whole(f) for row in body for f in row[:3]):
        return False
    first = int(body[0][0])
    counts = first in (0, 1) and all(int(row[0]) == first + i for i, row in enumerate(body))
    return counts and all(is_number(row[3]) for row in body) and any(not is_whole(row[3]) for row in body)


def _kind(names: list[str] | None, body: list[list[str]]) -> int | None:
    """The column ``Type`` of Gephi, if it says a direction, or one named ``directed``, if it is not empty."""
    for i, name in enumerate(names or []):
        known = kinds_of(name)
        if any(row[i].lower() in known if known is KINDS else not is_missing(row[i]) for row in body if known):
            return i
    return None


def kinds_of(name: str) -> Mapping[str, bool]:
    """Values of a column of this name and whether they mean directed; empty for columns that say no direction."""
    short = plain(name)
    return KINDS if short in ("type", "edgetype") else _YES if short in ("directed", "isdirected") else {}


def direction_of(name: str, values: Iterable[str]) -> bool:
    """What the column ``name`` says of all edges; InvalidGraph if it says both, or nothing."""
    known, found = kinds_of(name), set()
    for value in set(values):
        if value.lower() not in known:
            raise InvalidGraph(f"{name} {shown(value)} says no direction; say --directed or --undirected", field=name)
        found.add(known[value.lower()])
    if len(found) > 1:
        raise InvalidGraph("edges both directed and undirected; say which with --directed or --undirected", field=name)
    return found != {False}


def listed(kind: str, names: list[str]) -> str:
    """``columns a, b, c``, of many the first ones."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(name[:60] for name in names[:8])}{more}"
