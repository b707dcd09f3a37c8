"""Searches on a GPU, batched: label correcting (Bellman 1958; Ford 1956) from many sources at once, or breadth first.

The device relaxes an arc for a whole block of sources at once (``engine/kernels/search.cu``); with arcs that all weigh
1 it searches breadth first, one bit a source (``hops.cu``).  Graphs of few hops are swept over by the whole device;
in others each thread block keeps lists of the vertices to look at.
"""

from __future__ import annotations

from typing import Final

from engine.model.device_layout import Form
from engine.model.dtypes import WorkType

#: Hops from a vertex of highest degree up to which the whole device sweeps.
SHALLOW: Final = 40
#: The same for breadth-first searches, whose steps are counted in 8 bits.
STEPS: Final = 120
#: Vertices, those that only gather included, up to which a thread block keeps lists: it marks them in shared memory,
#: three bits each, of which the smallest chip (7.5) gives a block 64 KiB.
LISTED: Final = 170_000
#: Weights up to which labels of an int32 matrix are held in 16 bits at first.
NARROW: Final = 4096
#: Times over the arcs that a block of sources may take before it is given up: a sweep counts as one; lists count
#: vertices looked at.
SWEEPS: Final = 24
LOOKS: Final = 1024


def form_of(*, unit: bool, hops: int, n: int, arcs: int) -> Form:
    """How to search a graph whose hub lies ``hops`` arcs from the vertex farthest from it."""
    if unit and hops <= STEPS:
        return Form("hops", 255)
    if hops <= SHALLOW or n + arcs // 32 > LISTED:
        return Form("sweep", SWEEPS * (hops + 8))
    return Form("lists", LOOKS)


def narrow_first(kind: WorkType, heaviest: float) -> bool:
    """Whether labels of 16 bits are tried for a matrix of type ``kind``."""
    return kind.name == "int32" and heaviest <= NARROW
