"""All-pairs shortest paths over small separators: nested parts that are joined only through their borders.

The boundary algorithm (Djidjev, Thulasidasan, Chapuis, Andonov and Lavenier, "Efficient multi-GPU computation of
all-pairs shortest paths", 2014) with its recursion carried to the end, as in supernodal Floyd-Warshall (Sao, Kannan,
Gera and Vuduc, "A supernodal all-pairs shortest path algorithm", 2020), and with rows that come out one batch after the
other, as in PHAST (Delling, Goldberg, Nowatzyk and Werneck 2011).  Three steps, all of them relax and close:

1. From the first part to the last: close the part, carry it to its border, and join the vertices of the border by the
   paths through it, which belong to the part above then.
2. From the last part to the first: how far it is from each vertex of the part to all parts above.
3. For some sources at a time, from the last part to the first: D[sources, part] is what step 2 knew, or
   D[sources, border] (x) the lengths from the border to the part.

Step 3 makes n times the updates of one row, a border for each vertex: some tens of n^2 where separators are small.
Steps 1 and 2 are small beside it.  The matrix itself is never held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.algorithms import dijkstra
from engine.algorithms.part_lengths import find_lengths
from engine.graph.partition import CPU_GRAIN, DEVICE_GRAIN, Grain, Lengths, Parts, find_parts
from engine.graph.potentials import Relaxed, for_products, is_nonnegative
from engine.model.backend import Arcs, Array, Backend
from engine.model.dtypes import WORK_TYPES, WorkType, work_type
from engine.model.plan import Plan
from engine.model.progress import Monitor
from engine.model.rows import Sink
from engine.rows.summary import Summary
from storage.graph.graph import Graph

if TYPE_CHECKING:
    from engine.devices.cpu.sweep import Sweeper
    from engine.devices.cuda.sweep import DeviceSweep

Positions = npt.NDArray[np.int64] | npt.NDArray[np.int32]


def _partition(graph: Graph, grain: Grain, kind: WorkType, monitor: Monitor) -> tuple[Parts, Relaxed]:
    """Return the parts, and the graph in the form in which products relax it.

    Raises:
        NegativeCycle: looked for only where weights are reduced by potentials.
        Cancelled: the monitor asked to stop.
    """
    monitor.begin("partition", graph.arcs, "arcs")
    parts = find_parts(graph, grain, graph.n**2)
    assert parts is not None  # there cannot be more entries than that
    monitor.step(graph.arcs)
    return parts, for_products(graph, kind, monitor)


def run(  # noqa: PLR0917 - the signature that all searching algorithms share
    backend: Backend,
    graph: Graph,
    sources: npt.NDArray[np.int64],
    dtype: npt.DTypeLike,
    sink: Sink,
    monitor: Monitor,
    batch_rows: int,
) -> None:
    """Find the distances from some sources; arcs may be negative.

    Args:
        backend: relaxes and closes blocks.
        graph: the graph.
        sources: vertex indices, shape (rows,).
        dtype: the working type.
        sink: receives the rows.
        monitor: receives the progress.
        batch_rows: most rows of a batch.

    Raises:
        NegativeCycle: before any row is written; looked for only where weights are reduced by potentials.
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    parts, relaxed = _partition(graph, CPU_GRAIN, work_type(dtype), monitor)
    graph = relaxed.graph
    sweeper = _sweeper(backend, graph, parts, dtype, monitor)
    try:
        arcs = Arcs(graph.indptr, graph.heads, graph.weights, relaxed.potentials)
        dijkstra.run(sweeper, graph, sources, dtype, sink, monitor, batch_rows, arcs=arcs)
    finally:
        sweeper.shutdown()


def sweeper_of(backend: Backend, graph: Graph, dtype: npt.DTypeLike, monitor: Monitor) -> Sweeper:
    """Make steps 1 and 2 for sweeps of any rows on the processors.

    Args:
        backend: relaxes and closes blocks.
        graph: the graph; floats of both signs must be reduced by potentials before.
        dtype: the working type.
        monitor: receives the progress, in updates.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    parts = find_parts(graph, CPU_GRAIN, graph.n**2)
    assert parts is not None
    return _sweeper(backend, graph, parts, dtype, monitor)


def _sweeper(backend: Backend, graph: Graph, parts: Parts, dtype: npt.DTypeLike, monitor: Monitor) -> Sweeper:
    from engine.devices.cpu.sweep import Sweeper

    nonnegative = is_nonnegative(graph)
    lengths = find_lengths(backend, graph, parts, work_type(dtype), nonnegative=nonnegative, monitor=monitor)
    return Sweeper(parts, lengths, nonnegative=nonnegative, threads=backend.threads)


def run_on_device(  # noqa: PLR0917 - as resident.run
    graph: Graph, plan: Plan, sources: npt.NDArray[np.int64], sink: Sink, monitor: Monitor, memory: int | None
) -> Summary:
    """Find the distances from some sources, with the rows on the GPU, which gets ready while the processors prepare.

    Args:
        graph: the graph.
        plan: the plan.
        sources: vertex indices, shape (rows,).
        sink: receives the rows.
        monitor: receives the progress.
        memory: most bytes of device memory; None for no limit.

    Raises:
        DoesNotFit: less device memory was free than when the plan was made.
        SolveFailed: the device failed.
        NegativeCycle, Cancelled: as :func:`run`.
    """
    from engine.devices.cpu.backend import CpuBackend
    from engine.devices.cuda.sweep import device_sweep

    summary, kind = Summary(sources, graph.n, integral=graph.integral), WORK_TYPES[plan.dtype]
    parts, relaxed = _partition(graph, DEVICE_GRAIN, kind, monitor)
    nonnegative, backend = relaxed.nonnegative, CpuBackend(plan.threads)
    try:
        with device_sweep(
            parts, kind, sources, sink, threads=plan.threads, nonnegative=nonnegative, memory=memory
        ) as sweep:
            lengths = find_lengths(backend, relaxed.graph, parts, kind, nonnegative=nonnegative, monitor=monitor)
            monitor.begin("search", len(sources), "rows")
            sweep.load(lengths, relaxed.potentials)
            _sweep(sweep, summary, monitor)
    finally:
        backend.shutdown()
    return summary


@dataclass(frozen=True)
class PreparedParts:
    """The results of steps 1 and 2 in parts that suit a GPU, for sweeps of some rows at a time.

    Attributes:
        parts: the parts.
        lengths: lengths inside parts and to the parts above.
        kind: the working type.
        nonnegative: no arc is negative.
    """

    parts: Parts
    lengths: Lengths
    kind: WorkType
    nonnegative: bool


def prepare(graph: Graph, kind: WorkType, threads: int, monitor: Monitor) -> PreparedParts:
    """Make steps 1 and 2 on the processors, for sweeps on a GPU.

    Args:
        graph: the graph; floats of both signs must be reduced by potentials before.
        kind: the working type.
        threads: number of threads.
        monitor: receives the progress, in updates.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    from engine.devices.cpu.backend import CpuBackend

    parts, nonnegative = find_parts(graph, DEVICE_GRAIN, graph.n**2), is_nonnegative(graph)
    assert parts is not None
    backend = CpuBackend(threads)
    try:
        lengths = find_lengths(backend, graph, parts, kind, nonnegative=nonnegative, monitor=monitor)
    finally:
        backend.shutdown()
    return PreparedParts(parts, lengths, kind, nonnegative)


def rows_on_device(  # noqa: PLR0917 - as run_on_device
    ready: PreparedParts,
    potentials: Array | None,
    sources: npt.NDArray[np.int64],
    sink: Sink,
    summary: Summary,
    monitor: Monitor,
    threads: int,
) -> None:
    """Make step 3 on the GPU for the rows of some sources.

    Args:
        ready: the results of steps 1 and 2.
        potentials: shape (n,), of reduced weights; None without.
        sources: vertex indices, shape (rows,).
        sink: receives the rows.
        summary: receives the facts of the rows.
        monitor: receives the progress, in rows.
        threads: number of threads that write.

    Raises:
        DoesNotFit, SolveFailed, Cancelled: as :func:`run_on_device`.
    """
    from engine.devices.cuda.sweep import device_sweep

    with device_sweep(ready.parts, ready.kind, sources, sink, threads=threads, nonnegative=ready.nonnegative) as sweep:
        sweep.load(ready.lengths, None if potentials is None else potentials.astype(np.float64))
        _sweep(sweep, summary, monitor)


def _sweep(sweep: DeviceSweep, summary: Summary, monitor: Monitor) -> None:
    """Sweep batch after batch; the rows of a batch are copied to the host while the next one is swept."""
    leaving = None
    for rows in sweep.batches():
        sweep.begin(rows)
        if leaving is not None:
            sweep.send(leaving)
        summary.add(rows.start, sweep.finish(), sweep.histogram)
        leaving = sweep.leave()
        monitor.step(len(rows))
    if leaving is not None:
        sweep.send(leaving)
    sweep.written()
