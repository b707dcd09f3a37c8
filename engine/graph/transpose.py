"""Reverses arcs, for searches from the targets if these are fewer than the sources, and for walks against the arcs.

d(u, v) along the arcs is d(v, u) along the reversed arcs, so one search per target finds the transposed rectangle.
Sums of floats then begin at the target, so their last bits may differ from those of searches from the source.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from engine.graph.kernels import njit
from engine.graph.kernels.plain import call
from engine.graph.ordering import fixed
from engine.model.backend import Arcs

Indices = npt.NDArray[np.int64]

#: If a graph has at most this number of arcs, its reversed arcs are cached for later callers; each takes 12 bytes.
KEPT: Final = 2**20


def reverse(arcs: Arcs) -> Arcs:
    """Return the reversed arcs.

    Potentials change their sign: the reduced weight w + h[u] - h[v] is w - h'[u] + h'[v] with h' = -h.
    """
    potentials = None if arcs.potentials is None else np.negative(arcs.potentials)
    into, tails, places = transposed(arcs.indptr, arcs.heads)
    return Arcs(into, tails, arcs.weights[places], potentials)


def incoming(arcs: Arcs) -> tuple[Indices, npt.NDArray[np.int32], Indices]:
    """Return the arcs into each vertex (see :func:`transposed`); ``arcs`` caches them if there are at most ``KEPT``."""
    return arcs.form(_incoming) if len(arcs.heads) <= KEPT or arcs.has(_incoming) else _incoming(arcs)


def keep_incoming(arcs: Arcs, found: tuple[Indices, npt.NDArray[np.int32], Indices]) -> None:
    """Let ``arcs`` cache the arcs into each vertex, which the caller has found."""
    arcs.keep(_incoming, found)


def _incoming(arcs: Arcs) -> tuple[Indices, npt.NDArray[np.int32], Indices]:
    return transposed(arcs.indptr, arcs.heads)


def components(arcs: Arcs) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the strongly connected components (``engine.graph._walks.strong_components``); ``arcs`` caches them."""
    return arcs.form(_components)


def _components(arcs: Arcs) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    # imported here, because ``engine.execution.survey`` infers from this import that the bound's kernels are loaded
    from engine.graph._walks import strong_components

    found: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]] = call(
        strong_components, fixed(arcs.indptr), fixed(arcs.heads), work=len(arcs.indptr) + len(arcs.heads)
    )
    return found


def transposed(indptr: Indices, heads: npt.NDArray[np.int32]) -> tuple[Indices, npt.NDArray[np.int32], Indices]:
    """Return the arcs into each vertex, in O(n + arcs) time.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,): the head of each arc.

    Returns:
        The index at which the arcs into each vertex begin, int64, shape (n + 1,); their tails, int32, ascending for
        each vertex; and the index of each of these arcs in ``heads``, int64.
    """
    found: tuple[Indices, npt.NDArray[np.int32], Indices] = call(
        transpose_arcs, fixed(indptr), fixed(heads), work=len(indptr) + len(heads)
    )
    return found


@njit(nogil=True, cache=True)
def transpose_arcs(indptr, heads):  # type: ignore[no-untyped-def]
    """Compute the result of :func:`transposed`, in a kernel whose compiled form takes read-only arrays."""
    n = len(indptr) - 1
    into = np.zeros(n + 1, np.int64)
    for v in heads:
        into[v + 1] += 1
    for v in range(n):
        into[v + 1] += into[v]
    free = into[:-1].copy()
    tails = np.empty(len(heads), np.int32)
    places = np.empty(len(heads), np.int64)
    for u in range(n):
        for e in range(indptr[u], indptr[u + 1]):
            at = free[heads[e]]
            free[heads[e]] = at + 1
            tails[at] = u
            places[at] = e
    return into, tails, places
