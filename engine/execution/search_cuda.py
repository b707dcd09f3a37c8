"""Batched searches on a GPU: while a batch is searched, the rows of the previous batch are copied to the sink.

If a batch takes too many relaxations, it is given up, and the processors search its sources and all later ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms import dijkstra
from engine.algorithms.context import SolveContext
from engine.algorithms.dijkstra import RowSearch
from engine.graph.selection import Rectangle
from engine.model.backend import Arcs, Array
from engine.model.device_layout import form_of
from engine.model.progress import Monitor
from engine.model.rows import RowFacts, Sink
from engine.planning.cost import batch_rows
from engine.rows.summary import Summary

if TYPE_CHECKING:
    from engine.devices.cuda.search import DeviceSearch

Indices = npt.NDArray[np.int64]

#: The names of the algorithms that run here.
ALGORITHMS: Final = ("bellman-ford", "bfs", "johnson")


def run(context: SolveContext, summary: Summary | None = None) -> Summary:
    """Search whole rows on the GPU.

    Args:
        context: the solve; its sink takes whole rows.
        summary: gathers facts of the rows, such as the largest distance; None for a new summary.

    Returns:
        The summary of all rows.

    Raises:
        Cancelled: the monitor asked to stop; what the sink holds is then incomplete.
        NegativeCycle: the graph has a negative cycle, and the plan was made without looking for one.
        DoesNotFit: less device memory is free than when the plan was made.
        SolveFailed: the device failed.
    """
    from engine.devices.cuda.outgoing import Outlet
    from engine.devices.cuda.search import device_search

    profile, plan, rows = context.profile, context.plan, context.rectangle.rows
    summary = summary or Summary(rows, profile.graph.n, integral=profile.graph.integral)
    arcs = profile.reweighted(context.monitor).arcs
    form = form_of(unit=plan.algorithm == "bfs", hops=profile.hops, n=profile.graph.n, arcs=profile.graph.arcs)
    context.monitor.begin("search", len(rows), "rows")
    outlet, memory = Outlet(context.sink, plan.threads), context.options.device_memory
    with device_search(arcs, context.kind, form, rows, outlet=outlet, memory=memory) as search:
        done = _batches(search, summary, context.monitor, counted=context.facts)
    if done < len(rows):
        _on_processors(context, arcs, done, summary)
    return summary


def _batches(search: DeviceSearch, summary: Summary, monitor: Monitor, *, counted: bool) -> int:
    """Search until all rows are done or a batch is given up; return the number of rows that are done and written.

    The histogram of distances is counted only if ``counted``.
    """
    leaving, done = None, 0
    for rows in search.batches:
        search.begin(rows)
        if leaving is not None:
            search.send(leaving)
        facts = search.finish()
        if facts is None:
            leaving = None
            break
        summary.add(rows.start, facts, search.histogram if counted else None)
        leaving, done = search.leave(), rows.stop
        monitor.step(len(rows))
    if leaving is not None:
        search.send(leaving)
    search.written()
    return done


def _on_processors(context: SolveContext, arcs: Arcs, done: int, summary: Summary) -> None:
    """Search the remaining sources, from row ``done`` on, one by one on the processors."""
    from engine.devices.cpu.backend import CpuBackend

    plan, kind, n = context.plan, context.kind, context.rectangle.n
    rest = context.rectangle.rows[done:]
    backend = CpuBackend(plan.threads)
    try:
        batch = batch_rows(n, len(rest), kind.itemsize, threads=plan.threads)
        sink, wanted = _Below(context.sink, summary, rest, done), Rectangle(n, rest, None, None)
        unit = plan.algorithm == "bfs"
        dijkstra.run(backend, RowSearch(arcs, wanted, kind.dtype, sink, context.monitor, batch, unit))
    finally:
        backend.shutdown()


class _Below:
    """A sink for the rows of ``sources``; it writes them to another sink, from row ``first`` on."""

    def __init__(self, sink: Sink, summary: Summary, sources: Indices, first: int) -> None:
        self.tile = sink.tile
        self._sink, self._summary, self._sources, self._first = sink, summary, sources, first

    def write(self, row: int, column: int, block: Array) -> None:
        """Gather the facts of whole rows, then write them to the other sink.

        Args:
            row: the first row of the block, counted from ``first``.
            column: the first column.
            block: distances, shape (rows, n).
        """
        from engine.devices.cpu.row_facts import count_rows, row_facts

        sources = self._sources[row : row + block.shape[0]]

        def count(width: float, counts: npt.NDArray[np.int64]) -> int:
            return count_rows(block, sources, width, counts)

        self._summary.add(self._first + row, RowFacts(*row_facts(block, sources)), count)
        self._sink.write(self._first + row, column, block)
