"""All-pairs shortest paths over small separators: a tree of parts, each joined to the rest of the graph by its border.

This is the boundary algorithm (Djidjev, Thulasidasan, Chapuis, Andonov and Lavenier, "Efficient multi-GPU computation
of all-pairs shortest paths", 2014) with full recursion, as in supernodal Floyd-Warshall (Sao, Kannan, Gera and Vuduc,
"A supernodal all-pairs shortest path algorithm", 2020).  It computes rows one batch after the other, as PHAST does
(Delling, Goldberg, Nowatzyk and Werneck 2011).  Three steps, all of which consist of relax and close:

1. From the first part to the last: close the part, find the lengths to and from its border, and add the paths through
   the part to the lengths between the vertices of the border.  The part above is then closed with these lengths.
2. From the last part to the first: find the lengths from each vertex of the part to all parts above.
3. For some sources at a time, from the last part to the first: D[sources, part] is the minimum of the lengths that
   step 2 found and of D[sources, border] (x) the lengths from the border to the part; (x) is the min-plus product.

In step 3 every entry of the matrix takes as many updates as the border of its column's part has vertices: some tens of
n^2 updates in all if separators are small.  Steps 1 and 2 take far fewer.  The whole matrix is never in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.algorithms import dijkstra
from engine.algorithms.context import SolveContext
from engine.algorithms.dijkstra import RowSearch, seconds_alone
from engine.algorithms.part_lengths import find_lengths
from engine.graph.partition import CPU_GRAIN, DEVICE_GRAIN, Grain, Lengths, Parts
from engine.graph.potentials import Potentials
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.dtypes import WorkType
from engine.model.progress import Monitor
from engine.model.rows import Sink
from engine.rows.summary import Summary

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend
    from engine.devices.cpu.sweep import Sweeper
    from engine.devices.cuda.sweep import DeviceSweep


def _partition(context: SolveContext, grain: Grain) -> tuple[Parts, GraphProfile]:
    """Return the parts and the graph; if weights are floats of both signs, the graph has reduced weights.

    Raises:
        NegativeCycle: there is a negative cycle; this is checked only if weights are reduced by potentials.
        Cancelled: the monitor asked to stop.
    """
    profile, monitor = context.profile, context.monitor
    monitor.begin("partition", profile.graph.arcs, "arcs")
    parts = profile.parts(grain)
    monitor.step(profile.graph.arcs)
    return parts, profile.for_products(context.kind, monitor)


def run(context: SolveContext, backend: CpuBackend) -> None:
    """Find whole rows of distances; arcs may be negative.

    Args:
        context: the solve; its sink takes whole rows.
        backend: relaxes and closes blocks.

    Raises:
        NegativeCycle: before any row is written; this is checked only if weights are reduced by potentials.
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    parts, relaxed = _partition(context, CPU_GRAIN)
    sweeper = sweeper_of(backend, relaxed, parts, context.kind, context.monitor)
    whole = Rectangle(context.rectangle.n, context.rectangle.sources, None, None)
    try:
        dtype, batch, alone = context.kind.dtype, context.plan.batch, seconds_alone(context.plan, "sweep")
        search = RowSearch(relaxed.arcs, whole, dtype, context.sink, context.monitor, batch, seconds=alone)
        dijkstra.run(sweeper, search)
    finally:
        sweeper.shutdown()


def sweeper_of(backend: CpuBackend, relaxed: GraphProfile, parts: Parts, kind: WorkType, monitor: Monitor) -> Sweeper:
    """Run steps 1 and 2 on the processors, and return the object that computes rows from their results (step 3).

    Args:
        backend: relaxes and closes blocks.
        relaxed: the graph; floats of both signs must already be reduced by potentials.
        parts: the parts of the graph.
        kind: the working type.
        monitor: receives the progress, in updates.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    from engine.devices.cpu.sweep import Sweeper

    nonnegative = relaxed.nonnegative
    lengths = find_lengths(backend, relaxed.graph, parts, kind, nonnegative=nonnegative, monitor=monitor)
    return Sweeper(parts, lengths, nonnegative=nonnegative, owner=backend)


def run_on_device(context: SolveContext) -> Summary:
    """Find whole rows of distances on the GPU, which is initialised while the processors run steps 1 and 2.

    Raises:
        DoesNotFit: less device memory was free than when the plan was made.
        SolveFailed: the device failed.
        NegativeCycle: the graph has a negative cycle; this is checked only if weights are reduced by potentials.
        Cancelled: the monitor asked to stop.
    """
    from engine.devices.cpu.backend import CpuBackend
    from engine.devices.cuda.sweep import device_sweep

    kind, monitor, threads, sources = context.kind, context.monitor, context.plan.threads, context.rectangle.rows
    summary = Summary(sources, context.rectangle.n, integral=context.profile.graph.integral)
    parts, relaxed = _partition(context, DEVICE_GRAIN)
    nonnegative, memory, backend = relaxed.nonnegative, context.options.device_memory, CpuBackend(threads)
    try:
        with device_sweep(
            parts, kind, sources, context.sink, threads=threads, nonnegative=nonnegative, memory=memory
        ) as sweep:
            lengths = find_lengths(backend, relaxed.graph, parts, kind, nonnegative=nonnegative, monitor=monitor)
            monitor.begin("search", len(sources), "rows")
            sweep.load(lengths, relaxed.reduced_by)
            _sweep(sweep, summary, monitor, counted=context.facts)
    finally:
        backend.shutdown()
    return summary


@dataclass(frozen=True)
class PreparedParts:
    """The results of steps 1 and 2, with parts of a size that suits a GPU.  The GPU computes rows from them (step 3).

    Attributes:
        parts: the parts.
        lengths: lengths inside parts and to the parts above.
        kind: the working type.
        nonnegative: whether no arc is negative.
        potentials: shape (n,), the potentials by which the lengths are reduced; None if they are not reduced.
    """

    parts: Parts
    lengths: Lengths
    kind: WorkType
    nonnegative: bool
    potentials: Potentials | None


def prepare(relaxed: GraphProfile, kind: WorkType, threads: int, monitor: Monitor) -> PreparedParts:
    """Run steps 1 and 2 on the processors, for rows that a GPU then computes (step 3).

    Args:
        relaxed: the graph; floats of both signs must already be reduced by potentials.
        kind: the working type.
        threads: number of threads.
        monitor: receives the progress, in updates.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    from engine.devices.cpu.backend import CpuBackend

    parts, nonnegative, backend = relaxed.parts(DEVICE_GRAIN), relaxed.nonnegative, CpuBackend(threads)
    try:
        lengths = find_lengths(backend, relaxed.graph, parts, kind, nonnegative=nonnegative, monitor=monitor)
    finally:
        backend.shutdown()
    return PreparedParts(parts, lengths, kind, nonnegative, relaxed.reduced_by)


def rows_on_device(  # noqa: PLR0917
    ready: PreparedParts,
    sources: npt.NDArray[np.int64],
    sink: Sink,
    summary: Summary,
    monitor: Monitor,
    threads: int,
) -> None:
    """Run step 3 on the GPU for the rows of some sources.

    Args:
        ready: the results of steps 1 and 2.
        sources: vertex indices, shape (rows,).
        sink: receives the rows.
        summary: receives the facts of the rows.
        monitor: receives the progress, in rows.
        threads: number of threads that write.

    Raises:
        DoesNotFit: the free device memory is too small.
        SolveFailed: the device failed.
        Cancelled: the monitor asked to stop.
    """
    from engine.devices.cuda.sweep import device_sweep

    with device_sweep(ready.parts, ready.kind, sources, sink, threads=threads, nonnegative=ready.nonnegative) as sweep:
        sweep.load(ready.lengths, ready.potentials)
        _sweep(sweep, summary, monitor, counted=True)


def _sweep(sweep: DeviceSweep, summary: Summary, monitor: Monitor, *, counted: bool) -> None:
    """Compute rows batch by batch; the rows of a batch are copied to the host while the next batch is computed.

    The histogram of distances is counted only if ``counted``.
    """
    leaving = None
    for rows in sweep.batches():
        sweep.begin(rows)
        if leaving is not None:
            sweep.send(leaving)
        summary.add(rows.start, sweep.finish(), sweep.histogram if counted else None)
        leaving = sweep.leave()
        monitor.step(len(rows))
    if leaving is not None:
        sweep.send(leaving)
    sweep.written()
