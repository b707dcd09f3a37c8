"""Solves a graph into an array in memory, if the array fits there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.api.planning import make_plan
from engine.api.solve import Outcome
from engine.api.solve import solve as solve_into
from engine.graph.profile import GraphProfile
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options, changed, given_options, over_workers, refuse_also
from engine.model.progress import Monitor
from engine.model.rows import ArraySink
from engine.model.system import available_memory, resident_bytes
from engine.rows.floats import FloatSink
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import Graph
from storage.semirings import MIN_PLUS

#: Bytes of a number in the widest type that a result can have.
_WIDEST = 8


def solve(
    graph: Graph, options: Options | None = None, *, monitor: Monitor | None = None
) -> tuple[npt.NDArray[np.floating], Outcome]:
    """Plan and solve into an array in memory; for matrices that do not fit use ``solve_to_store``.

    Args:
        graph: as from ``read_graph`` or ``build_graph``.
        options: the options; None for all distances, with all of this machine's resources.  Their ``memory`` is the
            budget for the array and the work together.
        monitor: receives progress, and is asked whether to stop.

    Returns:
        The distances, shape (sources, targets), in the unit of the weights, +inf where there is no path.  Rows and
        columns are in the order of ``options``, or else of ``graph.labels``.  The type is float64 for whole weights,
        whose sums are exact, else the plan's type.  For a semiring other than min-plus, values have the plan's type,
        and ``storage.semirings`` says which value stands for no path.  Also the outcome: the plan that was followed,
        the seconds of each phase, and a summary.

    Raises:
        DoesNotFit: the array and the work need more memory than there is.
        InvalidRequest: the options contradict each other or the graph, or ask for workers.
        NegativeCycle: the graph has a negative cycle; the error names it.
        Cancelled: the monitor asked to stop.
    """
    profile, options = GraphProfile.of(graph), given_options(options)
    refuse_also(options, "a solve into memory", "use solve_to_store")
    if over_workers(options):
        raise InvalidRequest("workers solve into a store, not into memory: use solve_to_store", field="executor")
    # not ``replace``, which checks all options a second time
    plan = make_plan(profile, changed(options, memory=_beside_the_array(graph, options)))
    if plan.semiring != MIN_PLUS:
        sink = ArraySink(plan.shape, plan.dtype)
        outcome = solve_into(profile, plan, options, sink, monitor)
        return sink.array, outcome  # type: ignore[return-value]  # values of reachability are integers
    kind = WORK_TYPES[plan.dtype]
    distances: npt.NDArray[np.floating] = np.empty(plan.shape, np.float64 if kind.integer else kind.dtype)
    outcome = solve_into(profile, plan, options, FloatSink(distances, kind.unreachable), monitor)
    return distances, outcome


def _beside_the_array(graph: Graph, options: Options) -> int | None:
    """Return the bytes of memory that the array leaves for the work; raise DoesNotFit if it leaves none."""
    rows, columns = (graph.n if side is None else len(side) for side in (options.sources, options.targets))
    size, free = rows * columns * _WIDEST, available_memory() + resident_bytes()
    there = free if options.memory is None else min(options.memory, free)
    if size >= there:
        raise DoesNotFit(
            f"an array of {rows:,} x {columns:,} distances needs {size} bytes of memory, and {there} may be used; "
            "ask for fewer sources or targets, or use solve_to_store",
            resource="memory",
            needed=size,
            available=there,
        )
    return there - size
