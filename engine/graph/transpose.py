"""Searches from the targets: with fewer targets than sources, one search a target over the arcs turned round.

d(u, v) along the arcs is d(v, u) along the arcs turned round, so the rectangle comes out transposed.  Sums of floats
then begin at the target: their last bits may differ from those of searches from the source.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from engine.model.backend import Arcs


def turn(arcs: Arcs) -> Arcs:
    """The arcs turned round; potentials change their sign with it: w + h[u] - h[v] = w - h'[u] + h'[v] with h' = -h."""
    n = len(arcs.indptr) - 1
    # positions, not weights, are turned round: SciPy would drop nothing, but int64 weights must stay exact
    turned = csr_array((np.arange(len(arcs.heads)), arcs.heads, arcs.indptr), shape=(n, n)).T.tocsr()
    indptr: npt.NDArray[np.int64] = turned.indptr.astype(np.int64, copy=False)
    potentials = None if arcs.potentials is None else np.negative(arcs.potentials)
    return Arcs(indptr, turned.indices.astype(np.int32, copy=False), arcs.weights[turned.data], potentials)
