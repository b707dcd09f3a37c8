"""Reversed arcs, for searches that begin at the targets where there are fewer targets than sources.

d(u, v) along the arcs is d(v, u) along the reversed arcs, so one search a target finds the rectangle transposed.  Sums
of floats then begin at the target: their last bits may differ from those of searches from the source.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.model.backend import Arcs
from storage.graph.cleaning import FEW_ARCS


def reverse(arcs: Arcs) -> Arcs:
    """Return the reversed arcs.

    Potentials change their sign: the reduced weight w + h[u] - h[v] is w - h'[u] + h'[v] with h' = -h.
    """
    n = len(arcs.indptr) - 1
    potentials = None if arcs.potentials is None else np.negative(arcs.potentials)
    if len(arcs.heads) <= FEW_ARCS:
        order = np.argsort(arcs.heads, kind="stable")
        into = np.zeros(n + 1, np.int64)
        np.cumsum(np.bincount(arcs.heads, minlength=n), out=into[1:])
        tails = np.repeat(np.arange(n, dtype=np.int32), np.diff(arcs.indptr))
        return Arcs(into, tails[order], arcs.weights[order], potentials)
    from scipy.sparse import csr_array

    # SciPy transposes positions, not weights, so that int64 weights stay exact
    backward = csr_array((np.arange(len(arcs.heads)), arcs.heads, arcs.indptr), shape=(n, n)).T.tocsr()
    indptr: npt.NDArray[np.int64] = backward.indptr.astype(np.int64, copy=False)
    return Arcs(indptr, backward.indices.astype(np.int32, copy=False), arcs.weights[backward.data], potentials)
