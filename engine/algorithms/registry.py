"""The functions that run each algorithm on the processors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from engine.algorithms import breadth_first, dijkstra, floyd_warshall, johnson, partitioned, squaring
from engine.algorithms.context import SolveContext
from engine.graph.profile import GraphProfile
from engine.model.backend import Array
from engine.rows.dense import ClosedRows, weight_matrix, write_rows
from engine.rows.pipeline import place_of

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend


def _dense(context: SolveContext, backend: CpuBackend) -> tuple[Array, GraphProfile]:
    """Return the weight matrix and the graph; weights are reduced in both if products need that (decision 006).

    If the sink is an array of the working type for the whole matrix, the weights are written into that array.
    """
    relaxed = context.profile.for_products(context.kind, context.monitor, context.plan.max_hops)
    place = place_of(context.sink, context.kind.dtype) if context.rectangle.sources is None else None
    if relaxed.reduced_by is not None or (place is not None and place.dtype != context.kind.dtype):
        place = None
    return weight_matrix(relaxed.graph, context.kind, context.monitor, backend.threads, place), relaxed


def _floyd_warshall(order: Callable[..., None], context: SolveContext, backend: CpuBackend) -> None:
    matrix, relaxed = _dense(context, backend)
    symmetric, nonnegative = not relaxed.graph.directed, relaxed.nonnegative
    order(backend, matrix, nonnegative=nonnegative, symmetric=symmetric, monitor=context.monitor)
    closed = ClosedRows(matrix, context.rectangle.sources, potentials=relaxed.reduced_by)
    write_rows(closed, context.sink, context.monitor, backend.threads)


def _squaring(context: SolveContext, backend: CpuBackend) -> None:
    (matrix, relaxed), sources = _dense(context, backend), context.rectangle.sources
    result = squaring.power(
        backend,
        matrix,
        context.plan.max_hops,
        rows=sources,
        nonnegative=relaxed.nonnegative,
        symmetric=not relaxed.graph.directed,
        monitor=context.monitor,
    )
    closed = ClosedRows(result, sources, picked=True, potentials=relaxed.reduced_by)
    write_rows(closed, context.sink, context.monitor, backend.threads)


#: The function that runs each algorithm of ``engine.model.algorithms`` on the processors.
ON_PROCESSORS: Final[dict[str, Callable[[SolveContext, CpuBackend], None]]] = {
    "dijkstra": dijkstra.solve,
    "johnson": johnson.solve,
    "bfs": breadth_first.solve,
    "recursive-floyd-warshall": lambda context, backend: _floyd_warshall(floyd_warshall.recursive, context, backend),
    "blocked-floyd-warshall": lambda context, backend: _floyd_warshall(floyd_warshall.blocked, context, backend),
    "repeated-squaring": _squaring,
    "partitioned": partitioned.run,
}
