"""Batched searches on a GPU: while a batch is searched, the rows of the batch before are copied to the sink.

A batch that takes too many relaxations is given up; the processors search its sources and all later ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms import dijkstra
from engine.graph.ordering import hops_of
from engine.graph.potentials import find_potentials, reduced_weights
from engine.model.backend import Arcs, Array
from engine.model.device_layout import form_of
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.progress import Monitor
from engine.model.rows import RowFacts, Sink
from engine.planning.cost import batch_rows
from engine.rows.summary import Summary
from storage.graph.graph import Graph

if TYPE_CHECKING:
    from engine.devices.cuda.search import DeviceSearch

Indices = npt.NDArray[np.int64]

#: What the planner calls the algorithms that run here.
ALGORITHMS: Final = ("bellman-ford", "bfs", "johnson")


def run(
    graph: Graph,
    plan: Plan,
    sources: Indices | None,
    sink: Sink,
    monitor: Monitor,
    *,
    memory: int | None = None,
    summary: Summary | None = None,
    arcs: Arcs | None = None,
) -> Summary:
    """Carry out ``plan``, whose device is ``cuda``.

    Args:
        graph: the graph.
        plan: the plan.
        sources: vertex indices of the rows, shape (rows,); None for all vertices.
        sink: takes the rows.
        monitor: gets progress and is asked whether to stop.
        memory: limit of device memory in bytes; None for all that is free.
        summary: gathers the facts of the rows; None for a new one.
        arcs: the arcs to search, those of the graph or reduced ones; None to make them from the graph.

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

    rows = np.arange(graph.n) if sources is None else sources
    summary = summary or Summary(rows, graph.n, integral=graph.integral)
    kind = WORK_TYPES[plan.dtype]
    arcs = arcs or _arcs(graph, plan, monitor)
    form = form_of(unit=plan.algorithm == "bfs", hops=hops_of(graph), n=graph.n, arcs=graph.arcs)
    monitor.begin("search", len(rows), "rows")
    with device_search(arcs, kind, form, rows, outlet=Outlet(sink, plan.threads), memory=memory) as search:
        done = _batches(search, summary, monitor)
    if done < len(rows):
        rest = rows[done:]
        _on_processors(graph, arcs, plan, rest, _Below(sink, summary, rest, done), monitor)
    return summary


def _arcs(graph: Graph, plan: Plan, monitor: Monitor) -> Arcs:
    if plan.algorithm != "johnson":
        return Arcs(graph.indptr, graph.heads, graph.weights)
    monitor.begin("potentials", graph.arcs, "arcs")
    h = find_potentials(graph, monitor)
    monitor.step(graph.arcs)
    return Arcs(graph.indptr, graph.heads, reduced_weights(graph, h), h)


def _batches(search: DeviceSearch, summary: Summary, monitor: Monitor) -> int:
    """Search until all rows are done or a batch is given up; return the number of rows that are done and written."""
    leaving, done = None, 0
    for rows in search.batches:
        search.begin(rows)
        if leaving is not None:
            search.send(leaving)
        facts = search.finish()
        if facts is None:
            leaving = None
            break
        summary.add(rows.start, facts, search.histogram)
        leaving, done = search.leave(), rows.stop
        monitor.step(len(rows))
    if leaving is not None:
        search.send(leaving)
    search.written()
    return done


def _on_processors(  # noqa: PLR0917
    graph: Graph, arcs: Arcs, plan: Plan, rest: Indices, sink: _Below, monitor: Monitor
) -> None:
    """Search the sources ``rest`` one by one on the processors."""
    from engine.devices.cpu.backend import CpuBackend

    kind, unit = WORK_TYPES[plan.dtype], plan.algorithm == "bfs"
    backend = CpuBackend(plan.threads)
    try:
        batch = batch_rows(graph.n, len(rest), kind.itemsize, threads=plan.threads)
        dijkstra.run(backend, graph, rest, kind.dtype, sink, monitor, batch, arcs=arcs, unit=unit)
    finally:
        backend.shutdown()


class _Below:
    """A sink for the rows of ``sources``, which begin at row ``first`` of another sink."""

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
