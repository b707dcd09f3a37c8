"""Solving in a GPU's memory: the host sends the arcs and receives facts and rows; it never holds the matrix.

Each function that runs an algorithm takes a context whose sink takes whole rows.  It raises *Cancelled* if the monitor
asked to stop (what the sink holds is then incomplete), *NegativeCycle* if the graph has a negative cycle and the plan
was made without looking for one, *DoesNotFit* if less device memory is free than when the plan was made, and
*SolveFailed* if the device failed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from engine.algorithms import partitioned
from engine.algorithms.context import SolveContext
from engine.execution import search_cuda
from engine.graph.profile import GraphProfile
from engine.planning.cost_squaring import Schedule
from engine.rows.summary import Summary
from storage.errors import SolveFailed


def run_dense(context: SolveContext) -> Summary:
    """Run Floyd-Warshall or repeated squaring on the whole matrix on the GPU; return the summary of all rows."""
    from engine.devices.cuda.matrix import device_matrix
    from engine.devices.cuda.outgoing import Outlet

    plan, monitor, kind, wanted = context.plan, context.monitor, context.kind, context.rectangle
    n, rows, graph, memory = wanted.n, wanted.rows, context.profile.graph, context.options.device_memory
    summary, symmetric = Summary(rows, n, integral=graph.integral), not graph.directed
    relaxed = context.profile.for_products(kind, monitor, plan.max_hops)
    with device_matrix(n, kind, nonnegative=relaxed.nonnegative, symmetric=symmetric, memory=memory) as matrix:
        matrix.open(Outlet(context.sink, plan.threads), len(rows))
        matrix.fill(relaxed.graph, monitor)
        if plan.algorithm == "repeated-squaring":
            schedule = Schedule.of(n, len(rows), plan.max_hops, symmetric=symmetric)
            by_rows, total = schedule.by_rows, schedule.updates
            matrix.power(schedule.hops, monitor, rows=wanted.sources, by_rows=by_rows, total=total)
        else:
            matrix.close(monitor, recursive=plan.algorithm == "recursive-floyd-warshall")
        if matrix.found_negative():
            _explain(context.profile)
        if relaxed.reduced_by is not None:
            matrix.restore(relaxed.reduced_by, rows)
        count = partial(matrix.histogram, rows) if context.facts else None
        summary.add(0, matrix.facts(rows), count)
        matrix.write(rows, monitor)
    return summary


def _explain(profile: GraphProfile) -> None:
    """Raise NegativeCycle with the cycle, after the GPU has found a negative distance from a vertex to itself."""
    _ = profile.potentials
    raise SolveFailed("the GPU found a negative distance of a vertex to itself, but the graph has no negative cycle")


#: The function that runs each algorithm of ``engine.model.algorithms`` on a GPU.
ON_DEVICE: Final[dict[str, Callable[[SolveContext], Summary]]] = {
    "recursive-floyd-warshall": run_dense,
    "blocked-floyd-warshall": run_dense,
    "repeated-squaring": run_dense,
    "partitioned": partitioned.run_on_device,
    **dict.fromkeys(search_cuda.ALGORITHMS, search_cuda.run),
}
