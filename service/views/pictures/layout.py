"""Places the vertices of a small graph without coordinates in a plane, so that its network can be drawn.

Two vertices lie as far apart as the path between them is long, as nearly as a plane allows: the method is stress
majorization (Gansner, Koren and North 2004), which starts from classical scaling (Torgerson 1952).  Directions of arcs
do not count.  Each weakly connected component is placed by itself, and the components lie side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.geography.coordinates import Coordinates

if TYPE_CHECKING:
    from storage.graph.graph import Graph

Floats = npt.NDArray[np.float64]

#: Name of the coordinate system of the places computed here; ``storage.geography`` has names for the other systems.
LAYOUT: Final = "layout"
#: Most vertices of a graph that is laid out: time and memory grow with the square of this number.
MOST: Final = 1_000
#: Most steps of the majorization, and the relative decrease of the stress in a step below which the steps end.
_STEPS: Final = 60
_GAIN: Final = 3e-4
#: Least distance between two vertices, as a share of the greatest.  The pull between nearer vertices, 1 / distance^2,
#: would outweigh that of all other vertices.
_NEAREST: Final = 1e-3
#: Standard deviation of the random shifts of the starting places, as a share of the greatest distance.  Without shifts,
#: vertices on one line, or at one place, would stay there.
_ASIDE: Final = 1e-3


def has_layout(n: int, arcs: int) -> bool:
    """Return whether a graph of ``n`` vertices without coordinates is small enough to be placed, and has arcs."""
    return arcs > 0 and n <= MOST


def find_places(graph: Graph) -> Coordinates:
    """Return coordinates for the vertices of a graph of at most ``MOST`` vertices; every call returns the same ones.

    If a weight is not above 0, every arc counts 1.
    """
    from scipy.sparse import csgraph, csr_array

    weights = graph.weights.astype(np.float64)
    # the weights are divided by the greatest, so that their sums do not overflow
    weights = weights / weights.max() if bool((weights > 0).all()) else np.ones_like(weights)
    arcs = csr_array((weights, graph.heads, graph.indptr), shape=(graph.n, graph.n))
    apart = csgraph.dijkstra(arcs, directed=False)
    count, part = csgraph.connected_components(arcs, directed=False)
    members = sorted((np.flatnonzero(part == k) for k in range(count)), key=lambda some: (-len(some), int(some[0])))
    drawn = [_rotated(_placed(apart[np.ix_(some, some)])) for some in members]
    corners = _corners([np.ptp(each, axis=0) for each in drawn], gap=float(weights.mean()))
    found = np.empty((graph.n, 2))
    for some, spots, corner in zip(members, drawn, corners, strict=True):
        found[some] = spots - spots.min(axis=0) + corner
    return Coordinates(found[:, 0].copy(), found[:, 1].copy(), geographic=False)


def _placed(apart: Floats) -> Floats:
    """Return places for k vertices, shape (k, 2), from the finite distances between them, shape (k, k)."""
    from scipy.linalg import cho_factor, cho_solve

    k = len(apart)
    if k == 1:
        return np.zeros((1, 2))
    size = float(apart.max())
    wanted = np.maximum(apart / size, _NEAREST)
    np.fill_diagonal(wanted, 0)
    spots = _scaled(wanted) + np.random.default_rng(0).normal(scale=_ASIDE, size=(k, 2))
    far = wanted + np.eye(k)  # ones on the diagonal, where distances are 0, avoid a division by 0
    pull = far**-2 * (1 - np.eye(k))
    # the Laplacian alone is singular, because it does not determine the mean of the places; adding 1/k fixes the mean
    solved = cho_factor(np.diag(pull.sum(axis=1)) - pull + 1 / k)
    before = np.inf
    for _ in range(_STEPS):
        now = np.maximum(_between(spots), 1e-12)
        stress = float((pull * (now - wanted) ** 2).sum())
        if stress >= before * (1 - _GAIN):
            break
        before, push = stress, pull * wanted / now
        spots = np.asarray(cho_solve(solved, push.sum(axis=1)[:, None] * spots - push @ spots))
    return np.asarray(spots * size, np.float64)


def _scaled(apart: Floats) -> Floats:
    """Return the places of classical scaling, shape (k, 2)."""
    from scipy.linalg import eigh

    square, k = apart**2, len(apart)
    centred = -0.5 * (square - square.mean(axis=0) - square.mean(axis=1)[:, None] + square.mean())
    values, vectors = eigh(centred, subset_by_index=[k - 2, k - 1])
    top = vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0))
    # the sign of an eigenvector is arbitrary, so the entry farthest from 0 is made positive
    signs = np.sign(top[np.abs(top).argmax(axis=0), [0, 1]])
    return np.asarray(top * np.where(signs == 0, 1, signs))


def _between(spots: Floats) -> Floats:
    """Return the distances between places, shape (k, k)."""
    x, y = spots.T
    found: Floats = np.sqrt((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2)
    return found


def _rotated(spots: Floats) -> Floats:
    """Return the places rotated so that the network is widest from left to right."""
    centred = spots - spots.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return centred if len(spots) < 3 else np.asarray(centred @ axes.T, np.float64)


def _corners(sizes: list[Any], gap: float) -> list[tuple[float, float]]:
    """Return the lower left corners of boxes of some ``sizes`` in rows, with ``gap`` between them.

    The first box begins the first row, and rows are about as wide as the total height of all rows.
    """
    boxes = [(float(wide) + gap, float(high) + gap) for wide, high in sizes]
    across = max(boxes[0][0], float(np.sqrt(sum(wide * high for wide, high in boxes)))) + gap
    corners, x, y, tallest = [], 0.0, 0.0, 0.0
    for wide, high in boxes:
        if x > 0 and x + wide > across:
            x, y, tallest = 0.0, y - tallest, 0.0
        corners.append((x, y - high))
        x, tallest = x + wide, max(tallest, high)
    return corners
