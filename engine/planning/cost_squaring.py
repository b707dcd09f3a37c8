"""Predicted costs of min-plus powers, on processors and GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model import device_layout
from engine.model.blocks import PACK_BYTES, triangle
from engine.model.plan import Candidate
from engine.planning.constants import SQUARING_EFFICIENCY
from engine.planning.cost import Setting, dense_candidate, device_candidate


def estimate(setting: Setting) -> Candidate:
    """Estimate all powers up to the limit on hops.

    The solve ends earlier if a power equals the previous power, but that cannot be predicted.
    """
    problem = setting.problem
    schedule = Schedule.of(problem.n, problem.rows, problem.max_hops, symmetric=not problem.directed)
    return dense_candidate(
        setting,
        "repeated-squaring",
        updates=schedule.updates,
        workspace=2 * setting.matrix + setting.machine.threads * PACK_BYTES,
        efficiency=SQUARING_EFFICIENCY,
    )


def estimate_device(setting: Setting) -> Candidate:
    """Estimate all powers up to the limit on hops, computed on a GPU."""
    problem = setting.problem
    schedule = Schedule.of(problem.n, problem.rows, problem.max_hops, symmetric=not problem.directed)
    workspace = 2 * device_layout.padded_side(problem.n, setting.kind.itemsize) ** 2 * setting.kind.itemsize
    workspace += device_layout.product_bytes(problem.n, setting.kind.itemsize)
    return device_candidate(setting, "repeated-squaring", updates=schedule.updates, workspace=workspace)


@dataclass(frozen=True)
class Schedule:
    """How powers are multiplied.

    Attributes:
        hops: the power that is computed.
        by_rows: whether the wanted rows are multiplied by the weights again and again, which adds one arc each time.
            Otherwise the matrix is squared, and the bits of ``hops`` say which squares are multiplied.
        updates: updates of the whole solve, if it does not end early at a power that equals the previous power.
    """

    hops: int
    by_rows: bool
    updates: int

    @classmethod
    def of(cls, n: int, rows: int, hops: int | None, *, symmetric: bool) -> Schedule:
        """Choose between rows times weights and squares of the matrix: the way that takes fewer updates.

        Args:
            n: vertices.
            rows: wanted rows.
            hops: the largest number of arcs of a path; None for no limit.
            symmetric: the matrix is symmetric.
        """
        limit = _limit(n, hops)
        squares = power_updates(n, rows, limit, symmetric=symmetric)
        by_rows = row_updates(n, rows, limit)
        if rows < n and by_rows < squares:
            return cls(min(limit, max(1, n - 1)), True, row_updates(n, rows, min(limit, max(1, n - 1))))
        return cls(limit, False, squares)


def _limit(n: int, hops: int | None) -> int:
    """Return the power that is computed for at most ``hops`` arcs.

    From n - 1 on all powers are equal, so any such power is right; the next power of two is the cheapest.
    """
    longest = max(1, n - 1)
    return 1 << (longest - 1).bit_length() if hops is None or hops >= longest else hops


def power_updates(n: int, rows: int, hops: int, *, symmetric: bool = False) -> int:
    """Return the number of updates that it takes to compute rows of a power by the bits of its exponent.

    The matrix is squared for each bit but the highest one, and there is a product for each 1 among these bits.

    Args:
        n: vertices.
        rows: wanted rows.
        hops: the exponent.
        symmetric: the matrix is symmetric.
    """
    square = n * (triangle(n) if symmetric else n * n)
    product = square if rows == n else rows * n * n
    return (hops.bit_length() - 1) * square + (hops.bit_count() - 1) * product


def row_updates(n: int, rows: int, hops: int) -> int:
    """Return the number of updates when ``rows`` rows are multiplied by the weight matrix ``hops - 1`` times.

    Args:
        n: vertices.
        rows: wanted rows.
        hops: the exponent.
    """
    return (hops - 1) * rows * n * n
