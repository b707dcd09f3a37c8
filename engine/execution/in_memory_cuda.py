"""Solving in a GPU's memory: the host sends the arcs and receives facts and rows; it never holds the matrix."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.algorithms import partitioned
from engine.execution import search_cuda
from engine.graph.potentials import find_potentials, for_products
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.progress import Monitor
from engine.model.rows import Sink
from engine.planning.cost_squaring import Schedule
from engine.rows.summary import Summary
from storage.errors import SolveFailed
from storage.graph.graph import Graph


def run(
    graph: Graph,
    plan: Plan,
    sources: npt.NDArray[np.int64] | None,
    sink: Sink,
    monitor: Monitor,
    *,
    memory: int | None = None,
) -> Summary:
    """Carry out ``plan``, whose device is ``cuda``.

    Args:
        graph: the graph.
        plan: the plan.
        sources: vertex indices of the rows, shape (rows,); None for all vertices.
        sink: takes the rows.
        monitor: gets progress and is asked whether to stop.
        memory: limit of device memory in bytes; None for all that is free.

    Returns:
        The summary of all rows.

    Raises:
        Cancelled: the monitor asked to stop; what the sink holds is then incomplete.
        NegativeCycle: the graph has a negative cycle, and the plan was made without looking for one.
        DoesNotFit: less device memory is free than when the plan was made.
        SolveFailed: the device failed.
    """
    rows = np.arange(graph.n) if sources is None else sources
    if plan.algorithm == "partitioned":
        return partitioned.run_on_device(graph, plan, rows, sink, monitor, memory)
    if plan.algorithm in search_cuda.ALGORITHMS:
        return search_cuda.run(graph, plan, sources, sink, monitor, memory=memory)
    from engine.devices.cuda.matrix import device_matrix
    from engine.devices.cuda.outgoing import Outlet

    n, kind, symmetric = graph.n, WORK_TYPES[plan.dtype], not graph.directed
    summary = Summary(rows, n, integral=graph.integral)
    relaxed = for_products(graph, kind, monitor, plan.max_hops)
    with device_matrix(n, kind, nonnegative=relaxed.nonnegative, symmetric=symmetric, memory=memory) as matrix:
        matrix.open(Outlet(sink, plan.threads), len(rows))
        matrix.fill(relaxed.graph, monitor)
        if plan.algorithm == "repeated-squaring":
            schedule = Schedule.of(n, len(rows), plan.max_hops, symmetric=symmetric)
            matrix.power(schedule.hops, monitor, rows=sources, by_rows=schedule.by_rows, total=schedule.updates)
        else:
            matrix.close(monitor, recursive=plan.algorithm == "recursive-floyd-warshall")
        if matrix.found_negative():
            _explain(graph)
        if relaxed.potentials is not None:
            matrix.restore(relaxed.potentials, rows)
        summary.add(0, matrix.facts(rows), lambda width, counts: matrix.histogram(rows, width, counts))
        matrix.write(rows, monitor)
    return summary


def _explain(graph: Graph) -> None:
    """Raise NegativeCycle, which names the cycle, after the GPU has found a vertex at less than zero from itself."""
    find_potentials(graph)
    raise SolveFailed("the GPU found a vertex at less than zero from itself, and the graph has no negative cycle")
