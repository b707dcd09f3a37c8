"""Predicted costs of Floyd-Warshall in memory, on processors and GPUs.

There are two orders of its products.  The *recursive* order splits the vertices into halves and closes each half.  The
*blocked* order works in rounds: each closes a pivot block and relaxes the matrix by its panels.
"""

from __future__ import annotations

from functools import lru_cache

from engine.model import device_layout
from engine.model.blocks import GRAIN, LEAF, PACK_BYTES, PIVOT, STRIPE, triangle
from engine.model.plan import Candidate
from engine.planning.constants import BLOCKED_SHARE, CLOSURE_EFFICIENCY, RECURSIVE_SHARE, ROUND_SECONDS
from engine.planning.cost import Setting, dense_candidate, device_candidate


def workspace_bytes(n: int, itemsize: int, threads: int, *, rounds: bool = False) -> int:
    """Return the bytes allocated besides the matrix, the backend's own buffers included.

    Args:
        n: vertices.
        itemsize: bytes of an entry.
        threads: number of threads.
        rounds: True for the blocked order, False for the recursive order.
    """
    stripe = min(STRIPE, n) * (min(PIVOT, n) if rounds else split_point(n))
    panels = 2 * min(PIVOT, n) * n if rounds else 0
    return itemsize * (stripe + panels) + threads * PACK_BYTES


def estimate_recursive(setting: Setting) -> Candidate:
    """Estimate the recursive order, which consists of large products, one after another."""
    n, symmetric = setting.problem.n, not setting.problem.directed
    return dense_candidate(
        setting,
        "recursive-floyd-warshall",
        updates=kleene_updates(n, symmetric=symmetric),
        workspace=workspace_bytes(n, setting.kind.itemsize, setting.machine.threads),
        efficiency=CLOSURE_EFFICIENCY,
    )


def estimate_blocked(setting: Setting) -> Candidate:
    """Estimate the blocked order, which streaming needs; in memory it is a little slower."""
    n, symmetric = setting.problem.n, not setting.problem.directed
    return dense_candidate(
        setting,
        "blocked-floyd-warshall",
        updates=blocked_updates(n, symmetric=symmetric),
        workspace=workspace_bytes(n, setting.kind.itemsize, setting.machine.threads, rounds=True),
        efficiency=BLOCKED_SHARE * CLOSURE_EFFICIENCY,
    )


def device_recursive(setting: Setting) -> Candidate:
    """Estimate the recursive order on a GPU."""
    n, size, symmetric = setting.problem.n, setting.kind.itemsize, not setting.problem.directed
    return device_candidate(
        setting,
        "recursive-floyd-warshall",
        updates=kleene_updates(n, symmetric=symmetric),
        workspace=device_layout.product_bytes(n, size),
        efficiency=RECURSIVE_SHARE,
        least=_least_seconds(n),
    )


def device_blocked(setting: Setting) -> Candidate:
    """Estimate the blocked order on a GPU: small graphs in one launch, larger ones with look-ahead."""
    n, size, symmetric = setting.problem.n, setting.kind.itemsize, not setting.problem.directed
    updates = blocked_updates(n, symmetric=symmetric)
    space, least = device_layout.rounds_bytes(n, size), _least_seconds(n)
    return device_candidate(setting, "blocked-floyd-warshall", updates=updates, workspace=space, least=least)


def _least_seconds(n: int) -> float:
    """Return the least seconds of all rounds on a GPU: each closes a pivot block and relaxes two panels in sequence."""
    return 0.0 if n <= device_layout.SINGLE else -(-n // device_layout.pivot_width(n)) * ROUND_SECONDS


def kleene_updates(n: int, *, symmetric: bool = False) -> int:
    """Return the updates of the recursive order: n^3, and about half of that for a symmetric matrix."""
    return _halved_updates(n, LEAF) if symmetric else n**3


@lru_cache(maxsize=256)
def _halved_updates(n: int, leaf: int) -> int:
    """Return the updates of the recursive order for a symmetric matrix.

    Diagonal blocks of at most ``leaf`` vertices are computed whole; of larger blocks, the entries on and above the
    diagonal.  Results are cached, because the same sizes occur many times.
    """
    if n <= leaf:
        return n**3
    h = split_point(n)
    g = n - h
    halves = _halved_updates(h, leaf) + _halved_updates(g, leaf)
    return halves + h * g * (h + g) + triangle(g) * h + triangle(h) * g


def blocked_updates(n: int, *, symmetric: bool = False) -> int:
    """Return the updates of the blocked order, summed over all rounds."""
    return _all_rounds(n, PIVOT, LEAF if symmetric else 0)


@lru_cache(maxsize=256)
def _all_rounds(n: int, pivot: int, leaf: int) -> int:
    """Return the updates of all rounds; the result is cached, because several estimates need it.

    Args:
        n: vertices.
        pivot: the width of a pivot block.
        leaf: the largest number of vertices of a diagonal block of a symmetric matrix that is computed whole; 0 if the
            matrix is not symmetric.
    """
    return sum(_round_updates(n, min(n, p + pivot) - p, leaf) for p in range(0, n, pivot))


def _round_updates(n: int, width: int, leaf: int) -> int:
    rest = n - width
    if not leaf:
        return width * n**2
    return _halved_updates(width, leaf) + width**2 * rest + width * triangle(rest)


def split_point(n: int) -> int:
    """Return the number of vertices in the first half where the recursion splits ``n`` vertices."""
    return -(-n // (2 * GRAIN)) * GRAIN
