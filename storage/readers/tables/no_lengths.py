"""Square matrices of numbers that are no lengths: similarities, and rows and columns of sums."""

from __future__ import annotations

from typing import Final

import numpy as np

from storage.errors import InvalidGraph
from storage.graph.cleaning import ArcList
from storage.readers.fields import shown

#: Names of rows that hold sums.
_TOTALS: Final = frozenset({"total", "totals", "grand total", "sum", "sums", "all", "overall", "gesamt", "summe"})


def refuse_diagonal(arcs: ArcList, n: int) -> None:
    """Refuse one number all along the diagonal: correlations and the like, of which the largest is nearest."""
    if n < 2 or arcs.weights is None:
        return
    diagonal = arcs.weights[arcs.tails == arcs.heads]
    if len(diagonal) == n and (diagonal == diagonal[0]).all():
        raise InvalidGraph(
            f"every entry of the diagonal is {diagonal[0]:g}, but the distance of a vertex to itself is 0 or empty: if "
            "these are correlations or other similarities, make lengths of them first (1 - x, say); --unweighted "
            "counts arcs",
            field="matrix",
        )


def refuse_totals(arcs: ArcList, names: list[str]) -> None:
    """Refuse a row and a column of sums, which would be a vertex next to all others."""
    for at, name in enumerate(names):
        if name.strip().lower() not in _TOTALS or arcs.weights is None:
            continue
        inner = arcs.tails != at
        sums = np.bincount(arcs.heads[inner], arcs.weights[inner], len(names))
        row = np.bincount(arcs.heads[~inner], arcs.weights[~inner], len(names))
        if row.any() and np.allclose(np.delete(row, at), np.delete(sums, at), rtol=0.01):
            message = f"row {shown(name)} holds the sums of the others, and is no vertex: leave row and column out"
            raise InvalidGraph(message, field="row")
