"""Reversed arcs, for searches that begin at the targets where there are fewer targets than sources.

d(u, v) along the arcs is d(v, u) along the reversed arcs, so one search a target finds the rectangle transposed.  Sums
of floats then begin at the target: their last bits may differ from those of searches from the source.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.model.backend import Arcs


def reverse(arcs: Arcs) -> Arcs:
    """Return the reversed arcs.

    Potentials change their sign: the reduced weight w + h[u] - h[v] is w - h'[u] + h'[v] with h' = -h.
    """
    from scipy.sparse import csr_array

    n = len(arcs.indptr) - 1
    # SciPy transposes positions, not weights, so that int64 weights stay exact
    backward = csr_array((np.arange(len(arcs.heads)), arcs.heads, arcs.indptr), shape=(n, n)).T.tocsr()
    indptr: npt.NDArray[np.int64] = backward.indptr.astype(np.int64, copy=False)
    potentials = None if arcs.potentials is None else np.negative(arcs.potentials)
    return Arcs(indptr, backward.indices.astype(np.int32, copy=False), arcs.weights[backward.data], potentials)
