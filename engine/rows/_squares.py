"""Transposes squares of 16 lines of 16 numbers, which are then stored as rows (``engine.rows._lane_vectors``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from llvmlite import ir

if TYPE_CHECKING:
    from engine.rows._lane_vectors import Step

#: The number of sources side by side, which is the number of int32 in a cache line.
LANES: Final = 16


def aligned_to(vector: Any) -> int:
    """Return the alignment of vectors of a type, in bytes: their size, and at most a cache line."""
    bits = 64 if isinstance(vector.element, ir.DoubleType) else vector.element.width
    return int(min(64, vector.count * bits // 8))


def transposed(build: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of a square of 16 vectors: each step swaps one binary digit of row and column."""
    rows = list(rows)
    for digit in (1, 2, 4, 8):
        upper = [j ^ digit ^ LANES if j & digit else j for j in range(LANES)]
        lower = [j + LANES if j & digit else j ^ digit for j in range(LANES)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), places) for places in (upper, lower)]
        for k in range(LANES):
            if not k & digit:
                pair = rows[k], rows[k | digit]
                rows[k], rows[k | digit] = (build.shuffle_vector(*pair, mask) for mask in masks)
    return rows


def give_rows(step: Step, square: list[Any], places: Sequence[Any], out: tuple[Any, Any, Any]) -> None:
    """Store 16 lines of 16 sums: those of lane j in the row ``places[j]``.

    Args:
        step: the step.
        square: the lines.
        places: the rows of the results, one for each lane.
        out: the array of the results, of shape (rows, quantities, columns), the quantity, and the first column.
    """
    build, (results, k, first) = step.build, out
    for place, line in zip(places, transposed(build, square), strict=True):
        row = build.add(build.mul(place, step.extent(results, 1)), k)
        at = step.at(results.data, build.mul(row, step.extent(results, 2)), first)
        build.store(line, build.bitcast(at, line.type.as_pointer()), align=aligned_to(line.type) // LANES)
