"""Computes the tables of a prepared graph: lengths from all vertices to the parts above them, and from there back.

Both come from one elimination, which finds the lengths from each part to its border and from the border to the part.
``engine.algorithms.part_lengths`` extends the lengths to the border to all parts above.  This module extends the
lengths from the border in the same order, transposed: these are the tables of the reversed graph.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from engine.algorithms.part_lengths import SMALL, find_lengths
from engine.algorithms.products import multiply
from engine.graph.partition import Lengths, Parts
from engine.model.backend import Array
from engine.model.dtypes import WorkType, settle
from engine.model.progress import Monitor
from storage.graph.graph import Graph

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend


def find_tables(
    backend: CpuBackend, graph: Graph, parts: Parts, kind: WorkType, *, nonnegative: bool, monitor: Monitor
) -> tuple[Array, Array | None]:
    """Find the tables of both directions.

    With negative arcs, entries that are no distances are set to exactly *unreachable*, so that the sum of two entries
    shows whether a pair is unreachable.

    Args:
        backend: relaxes and closes blocks.
        graph: the graph; negative arcs are allowed for integers, negative cycles are not.
        parts: the parts of the graph.
        kind: the working type.
        nonnegative: promises that no arc is negative.
        monitor: receives the progress, in updates.

    Returns:
        The tables of all parts, as in ``Lengths.flat``, of the graph and of the reversed graph; the second is None if
        the graph is undirected, as both are then the same.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    forward = find_lengths(backend, graph, parts, kind, nonnegative=nonnegative, monitor=monitor)
    backward = None
    if graph.directed:
        backward = _reversed(backend, parts, forward, kind, nonnegative=nonnegative, monitor=monitor)
    if not nonnegative:  # without negative arcs, settling would remove large distances that are right
        settle(forward.flat)
        if backward is not None:
            settle(backward)
    return forward.flat, backward


def _reversed(
    backend: CpuBackend, parts: Parts, lengths: Lengths, kind: WorkType, *, nonnegative: bool, monitor: Monitor
) -> Array:
    """Return the tables of the reversed graph, flat."""
    updates, owner = parts.updates()[1], parts.owner()
    monitor.begin("prepare backward", int(updates.sum()), "updates")
    flat: Array = np.full_like(lengths.flat, kind.sentinel())
    sizes, widths = parts.sizes, parts.widths()
    begins = np.cumsum(sizes * widths) - sizes * widths
    tables = [
        flat[begin : begin + size * wide].reshape(size, wide)
        for begin, size, wide in zip(begins.tolist(), sizes.tolist(), widths.tolist(), strict=True)
    ]
    for i in range(parts.count - 1, -1, -1):
        size, wide = tables[i].shape
        border = parts.border(i)
        tables[i][:, :size] = lengths.tables[i][:, :size].T
        if len(border):
            beyond = np.full((len(border), wide - size), kind.sentinel(), kind.dtype)
            cuts = [0, *(np.flatnonzero(np.diff(owner[border])) + 1).tolist(), len(border)]
            for first, last in itertools.pairwise(cuts):
                above = owner[border[first]]
                known = tables[above][border[first:last] - parts.starts[above]]
                beyond[first:last, beyond.shape[1] - known.shape[1] :] = known
            own, down = tables[i][:, size:], np.ascontiguousarray(lengths.across[i].T)
            if own.size * len(border) <= SMALL:
                backend.relax(own, down, beyond, nonnegative=nonnegative)
                monitor.step(int(updates[i]))
            else:  # the product reports its own progress, so that a request to stop is noticed inside a large part
                multiply(backend, own, down, beyond, nonnegative=nonnegative, monitor=monitor)
        else:
            monitor.step(int(updates[i]))
    return flat
