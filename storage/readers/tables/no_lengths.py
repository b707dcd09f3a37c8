"""Refuses values that are no lengths: similarities, sums, numbers that stand for "no arc", and rows that mark the
end.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import AnyArray, ArcList
from storage.readers.fields import shown

#: Relative rounding error: a computed correlation of a variable with itself is 1 within this error.
_ROUNDING: Final = 1e-9
#: Names of rows that hold sums.
_TOTALS: Final = frozenset({"total", "totals", "grand total", "sum", "sums", "all", "overall", "gesamt", "summe"})
#: Words that begin the last row of a list or of a table.
_ENDS: Final = frozenset({"end", "eof", "stop", "average", "mean", "mittelwert", *_TOTALS})


def refuse_diagonal(arcs: ArcList, n: int) -> None:
    """Refuse a matrix whose diagonal entries are all the same number: its entries are similarities, not lengths."""
    diagonal = _diagonal(arcs, n)
    if diagonal is not None and np.allclose(diagonal, diagonal[0], rtol=_ROUNDING):
        raise _no_lengths(f"every entry of the diagonal is {diagonal[0]:g}")


def refuse_correlations(arcs: ArcList, n: int) -> None:
    """Refuse a stored matrix whose diagonal is all ones and whose other entries are fractions between -1 and 1."""
    diagonal = _diagonal(arcs, n)
    if diagonal is None or arcs.weights is None or not np.allclose(diagonal, 1, rtol=_ROUNDING):
        return
    others = arcs.weights[arcs.tails != arcs.heads]
    if (np.abs(others) <= 1).all() and (others % 1 != 0).any():
        raise _no_lengths("every entry of the diagonal is 1, and the others lie between -1 and 1")


def refuse_signs_of_nothing(arcs: ArcList) -> None:
    """Refuse a matrix in which some entries are -1, or a number such as 9999 far above all other entries: these may
    mean no arc.
    """
    if arcs.weights is None:
        return
    values, counts = np.unique(arcs.weights[arcs.tails != arcs.heads], return_counts=True)
    if len(values) < 3:
        return
    if values[0] == -1 and counts[0] > 1 and values[1] > 0:
        found = values[0]
    elif counts[-1] > 1 and _stands_for_nothing(float(values[-1])) and values[-1] >= 10 * values[-2] > 0:
        found = values[-1]
    else:
        return
    raise InvalidGraph(
        f"some entries are {found:.16g}, which may stand for no arc: write inf or leave them empty in that case, or "
        "write the arcs as an edge list if it is a length",
        field="matrix",
    )


def _stands_for_nothing(value: float) -> bool:
    """Return whether ``value`` is a number that programs use for infinity: nines, powers of ten, the largest number of
    a type.
    """
    if value in (2.0**15 - 1, 2.0**31 - 1, 2.0**30, float(0x3F3F3F3F)) or value >= 1e30:
        return True
    digits = f"{value:.0f}" if value < 1e15 else f"{value:.14e}".partition("e")[0].replace(".", "")
    return value >= 999 and value % 1 == 0 and (set(digits) == {"9"} or (value >= 1e5 and set(digits[1:]) == {"0"}))


def refuse_triangle(arcs: ArcList, n: int) -> list[str]:
    """Refuse a matrix with one full and one empty triangle: its entries are distances that hold in both directions.

    Returns:
        A note if one triangle is empty and the other one is only partly filled, because its arcs may then be directed;
        else an empty list.
    """
    side = _only_side(arcs)
    if side is not None and n > 2 and np.count_nonzero(arcs.tails != arcs.heads) == n * (n - 1) // 2:
        raise InvalidGraph(
            f"there are entries only {side} the diagonal, and none elsewhere: say --undirected if they are edges, "
            "both ways, or --directed",
            field="matrix",
        )
    return note_triangle(arcs, n)


def note_triangle(arcs: ArcList, n: int) -> list[str]:
    """Return a note if all entries of a matrix of three vertices or more stand on one side of its diagonal."""
    side = _only_side(arcs)
    if side is None or n < 3:
        return []
    return [
        f"there are entries only {side} the diagonal, which are read as directed arcs; --undirected reads both ways"
    ]


def _only_side(arcs: ArcList) -> str | None:
    """Return the side of the diagonal that holds all entries, ``above`` or ``below``; None if both or neither do."""
    finite = True if arcs.weights is None else arcs.weights != np.inf
    step = np.sign(np.subtract(arcs.heads, arcs.tails, dtype=np.int64)) * finite
    above, below = bool((step > 0).any()), bool((step < 0).any())
    return None if above == below else "above" if above else "below"


def _diagonal(arcs: ArcList, n: int) -> AnyArray | None:
    """Return the entries of the diagonal if no entry is missing or zero, else None."""
    if n < 2 or arcs.weights is None:
        return None
    diagonal = arcs.weights[arcs.tails == arcs.heads]
    return diagonal if len(diagonal) == n and (diagonal != 0).all() else None


def _no_lengths(what: str) -> InvalidGraph:
    return InvalidGraph(
        f"{what}, but the distance of a vertex to itself is 0 or empty: if these are correlations or other "
        "similarities, make lengths of them first (1 - x, say); --unweighted counts arcs",
        field="matrix",
    )


def refuse_totals(arcs: ArcList, names: list[str]) -> None:
    """Refuse a row and a column of sums, which would become a vertex adjacent to all other vertices."""
    for at, name in enumerate(names):
        if name.strip().lower() not in _TOTALS or arcs.weights is None:
            continue
        inner = arcs.tails != at
        sums = np.bincount(arcs.heads[inner], arcs.weights[inner], len(names))
        row = np.bincount(arcs.heads[~inner], arcs.weights[~inner], len(names))
        if row.any() and np.allclose(np.delete(row, at), np.delete(sums, at), rtol=0.01):
            message = f"row {shown(name)} holds the sums of the others, and is no vertex: leave row and column out"
            raise InvalidGraph(message, field="row")


def refuse_last_row(arcs: ArcList, names: AnyArray) -> None:
    """Refuse a word such as ``Total`` or ``end`` at the beginning of the last row of an edge list, if no other row has
    it as a vertex.
    """
    end = int(arcs.tails[-1])
    word = str(names[end])
    if word.strip(":").lower() in _ENDS and not ((arcs.tails[:-1] == end) | (arcs.heads[:-1] == end)).any():
        message = f"the last row begins with {shown(word)}, no vertex of another row: leave it out if it is no arc"
        raise InvalidGraph(message, field="row")
