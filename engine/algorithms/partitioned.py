"""All-pairs shortest paths over small separators: parts, nested, that meet in their borders only.

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

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms import dijkstra, floyd_warshall
from engine.backends.base import Arcs, Array, Backend
from engine.estimate import BAND_ROWS, DEVICE_LAUNCH, OVERHEAD, Setting, batch_rows, device_write, write_phase
from engine.monitor import Monitor
from engine.parts import CPU_GRAIN, DEVICE_GRAIN, SWEEP_ROWS, Grain, Lengths, Parts, find_parts, sweep_layout
from engine.plan import Candidate, Phase, Plan
from engine.potentials import find_potentials, reduced_weights
from engine.problem import PartsFacts
from engine.summary import Sink, Summary
from engine.types import WORK_TYPES, WorkType, work_type
from storage.graph import Graph

if TYPE_CHECKING:
    from engine.backends.cpu_sweep import Sweeper
    from engine.backends.cuda_sweep import DeviceSweep

Positions = npt.NDArray[np.int64] | npt.NDArray[np.int32]


#: Share of one thread's rate of large products that steps 1 and 2 reach: most products are too small to share.
PREPARED: Final = 0.6
#: Seconds of a thread for each part, whatever its size.
PART_SECONDS: Final = 1.2e-4
#: Share of that rate that sweeps reach.
SWEPT: Final = 0.9
#: Seconds of a thread that an entry of the matrix takes beside its updates: cleared, put in its column.
ENTRY_SECONDS: Final = 1.6e-9


def estimate(setting: Setting) -> Candidate:
    """As many updates as the trial partition says; without one, the graph is one part."""
    problem, machine, size = setting.problem, setting.machine, setting.kind.itemsize
    facts = problem.parts or whole(problem.n)
    rate = setting.rate
    prepare = _prepare(setting, facts)
    updates = problem.rows * facts.sweep
    entries = problem.rows * problem.n
    sweep = Phase("sweep", updates / (rate * SWEPT) + entries * ENTRY_SECONDS / machine.threads, updates=updates)
    write = write_phase(setting)
    batch = batch_rows(problem.n, problem.rows, size, threads=machine.threads, memory=machine.memory)
    rows = 2 * batch + machine.threads * (SWEEP_ROWS + 8)
    return Candidate(
        algorithm="partitioned",
        memory=machine.resident
        + OVERHEAD
        + size * (facts.entries + rows * problem.n)
        + 60 * problem.arcs
        + 40 * problem.n,
        disk=setting.store,
        seconds=prepare.seconds + sweep.seconds + write.seconds,
        phases=(prepare, sweep, write),
        batch=batch,
    )


#: Seconds that a part takes in a batch on the device, launches and waits.
DEVICE_PART: Final = 1.2e-5
#: Share of the rate of large products that products over borders reach there, which are shallow and ragged.
DEVICE_SWEPT: Final = 0.3
#: Seconds until the first rows are swept, beside the products on the processors: arrays of parts packed and sent, the
#: walk through them recorded.  0.04 to 0.06 from 13,000 to 40,000 vertices.
DEVICE_READY: Final = 0.05
#: Seconds that an entry takes there beside its updates: cleared, put in its column, summed up.
DEVICE_ENTRY: Final = 4e-12


def estimate_device(setting: Setting) -> Candidate:
    """Steps 1 and 2 on the processors, the rows on the GPU, which leave while others are swept."""
    problem, machine, size = setting.problem, setting.machine, setting.kind.itemsize
    if machine.cuda is None:
        raise ValueError("the machine has no device")
    facts = problem.device_parts or whole(problem.n)
    layout = sweep_layout(facts, problem.n, problem.rows, size)
    batch = layout.batch(machine.cuda.memory)
    batches = -(-problem.rows // batch)
    prepare = _prepare(setting, facts)
    updates = problem.rows * facts.sweep
    sweep = Phase(
        "sweep",
        DEVICE_LAUNCH
        + DEVICE_READY
        + updates / (machine.cuda.relax_rate[setting.kind.name] * DEVICE_SWEPT)
        + batches * facts.count * DEVICE_PART
        + problem.rows * problem.n * DEVICE_ENTRY,
        updates=updates,
    )
    write = device_write(setting)
    alone = min(sweep.seconds, write.seconds) / max(1, batches)  # one batch; the others overlap
    bands = (machine.threads + 2) * BAND_ROWS * problem.n * size
    return Candidate(
        algorithm="partitioned",
        device="cuda",
        memory=machine.resident + OVERHEAD + 2 * size * facts.entries + bands + 60 * problem.arcs + 40 * problem.n,
        device_memory=layout.bytes(batch),
        disk=setting.store,
        seconds=prepare.seconds + max(sweep.seconds, write.seconds) + alone,
        phases=(prepare, sweep, write),
    )


def _prepare(setting: Setting, facts: PartsFacts) -> Phase:
    """Steps 1 and 2."""
    rate = setting.rate / setting.machine.threads * PREPARED
    seconds = facts.prepare / rate + facts.count * PART_SECONDS
    return Phase("prepare", seconds, updates=facts.prepare)


def whole(n: int) -> PartsFacts:
    """The facts of a graph that is one part, which is Floyd-Warshall."""
    return PartsFacts(count=1, largest=n, border=0, sweep=0, prepare=n**3, entries=2 * n**2, seconds=0.0)


def _nonnegative(graph: Graph) -> bool:
    return graph.arcs == 0 or bool(graph.weights.min() >= 0)


def _partition(graph: Graph, grain: Grain, monitor: Monitor) -> tuple[Parts, Graph, npt.NDArray[np.float64] | None]:
    """The parts, and the graph; floats of both signs are reduced by potentials, which come with it then.

    Raises:
        NegativeCycle: looked for among floats only.
        Cancelled: the monitor asked to stop.
    """
    monitor.begin("partition", graph.arcs, "arcs")
    parts = find_parts(graph, grain, graph.n**2)
    assert parts is not None  # there cannot be more entries than that
    monitor.step(graph.arcs)
    if _nonnegative(graph) or graph.integral:
        return parts, graph, None
    monitor.begin("potentials", graph.arcs, "arcs")
    potentials = find_potentials(graph)
    monitor.step(graph.arcs)
    return parts, replace(graph, weights=reduced_weights(graph, potentials)), potentials


def run(  # noqa: PLR0917 - the signature that all searching algorithms share
    backend: Backend,
    graph: Graph,
    sources: npt.NDArray[np.int64],
    dtype: npt.DTypeLike,
    sink: Sink,
    monitor: Monitor,
    batch_rows: int,
) -> None:
    """As :func:`engine.algorithms.dijkstra.run`, for arcs of any sign.

    Raises:
        NegativeCycle: before any row is written; looked for among floats only.
        Cancelled: as there.
    """
    parts, graph, potentials = _partition(graph, CPU_GRAIN, monitor)
    sweeper = _sweeper(backend, graph, parts, dtype, monitor)
    try:
        arcs = Arcs(graph.indptr, graph.heads, graph.weights, potentials)
        dijkstra.run(sweeper, graph, sources, dtype, sink, monitor, batch_rows, arcs=arcs)
    finally:
        sweeper.shutdown()


def sweeper_of(backend: Backend, graph: Graph, dtype: npt.DTypeLike, monitor: Monitor) -> Sweeper:
    """Steps 1 and 2, whatever the rows; floats of both signs are to be reduced before.  Cancelled."""
    parts = find_parts(graph, CPU_GRAIN, graph.n**2)
    assert parts is not None
    return _sweeper(backend, graph, parts, dtype, monitor)


def _sweeper(backend: Backend, graph: Graph, parts: Parts, dtype: npt.DTypeLike, monitor: Monitor) -> Sweeper:
    from engine.backends.cpu_sweep import Sweeper

    nonnegative = _nonnegative(graph)
    lengths = find_lengths(backend, graph, parts, work_type(dtype), nonnegative=nonnegative, monitor=monitor)
    return Sweeper(parts, lengths, nonnegative=nonnegative, threads=backend.threads)


def run_on_device(  # noqa: PLR0917 - as resident.run
    graph: Graph, plan: Plan, sources: npt.NDArray[np.int64], sink: Sink, monitor: Monitor, memory: int | None
) -> Summary:
    """The same with the rows on the GPU, which gets ready while the processors prepare.

    ``memory`` limits the bytes of device memory.

    Raises:
        DoesNotFit: less device memory was free than when the plan was made.
        SolveFailed: the device failed.
        NegativeCycle, Cancelled: as :func:`run`.
    """
    from engine.backends.cpu import CpuBackend
    from engine.backends.cuda_sweep import device_sweep

    summary, kind = Summary(sources, graph.n, integral=graph.integral), WORK_TYPES[plan.dtype]
    parts, graph, potentials = _partition(graph, DEVICE_GRAIN, monitor)
    nonnegative, backend = _nonnegative(graph), CpuBackend(plan.threads)
    try:
        with device_sweep(
            parts, kind, sources, sink, threads=plan.threads, nonnegative=nonnegative, memory=memory
        ) as sweep:
            lengths = find_lengths(backend, graph, parts, kind, nonnegative=nonnegative, monitor=monitor)
            monitor.begin("search", len(sources), "rows")
            sweep.load(lengths, potentials)
            _sweep(sweep, summary, monitor)
    finally:
        backend.shutdown()
    return summary


@dataclass(frozen=True)
class Prepared:
    """Steps 1 and 2 of a graph in the parts that suit a GPU, for rows that are swept some at a time."""

    parts: Parts
    lengths: Lengths
    kind: WorkType
    nonnegative: bool


def prepare(graph: Graph, kind: WorkType, threads: int, monitor: Monitor) -> Prepared:
    """Steps 1 and 2 on the processors; floats of both signs are to be reduced before.  Cancelled."""
    from engine.backends.cpu import CpuBackend

    parts, nonnegative = find_parts(graph, DEVICE_GRAIN, graph.n**2), _nonnegative(graph)
    assert parts is not None
    backend = CpuBackend(threads)
    try:
        lengths = find_lengths(backend, graph, parts, kind, nonnegative=nonnegative, monitor=monitor)
    finally:
        backend.shutdown()
    return Prepared(parts, lengths, kind, nonnegative)


def rows_on_device(  # noqa: PLR0917 - as run_on_device
    ready: Prepared,
    potentials: Array | None,
    sources: npt.NDArray[np.int64],
    sink: Sink,
    summary: Summary,
    monitor: Monitor,
    threads: int,
) -> None:
    """Step 3 on the GPU for the rows of ``sources``, of which ``summary`` is told.

    Raises:
        DoesNotFit, SolveFailed, Cancelled: as :func:`run_on_device`.
    """
    from engine.backends.cuda_sweep import device_sweep

    with device_sweep(ready.parts, ready.kind, sources, sink, threads=threads, nonnegative=ready.nonnegative) as sweep:
        sweep.load(ready.lengths, None if potentials is None else potentials.astype(np.float64))
        _sweep(sweep, summary, monitor)


def _sweep(sweep: DeviceSweep, summary: Summary, monitor: Monitor) -> None:
    """Batch after batch; the rows of one leave while the next one is swept."""
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


def find_lengths(
    backend: Backend, graph: Graph, parts: Parts, kind: WorkType, *, nonnegative: bool, monitor: Monitor
) -> Lengths:
    """Steps 1 and 2.  Negative arcs are allowed for integers, negative cycles are not.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    monitor.begin("prepare", int(sum(part.sum() for part in parts.updates())), "updates")
    sizes, widths = parts.sizes, parts.widths()
    flat: Array = np.full(int(sizes @ widths), kind.sentinel(), kind.dtype)
    begin = np.concatenate(([0], np.cumsum(sizes * widths)))
    tables = [flat[begin[i] : begin[i + 1]].reshape(sizes[i], widths[i]) for i in range(parts.count)]
    step = _Step(backend, graph, parts, kind, nonnegative, monitor)
    upward, across = step.eliminate(tables)
    step.extend(tables, upward)
    return Lengths(tables, across, flat)


@dataclass(frozen=True)
class _Step:
    """Steps 1 and 2 with what both need."""

    backend: Backend
    graph: Graph
    parts: Parts
    kind: WorkType
    nonnegative: bool
    monitor: Monitor

    def eliminate(self, tables: list[Array]) -> tuple[list[Array], list[Array]]:
        """Step 1: the lengths to and from each part's border; those inside go to the first columns of its table."""
        from engine.backends.cpu_parts import join

        parts, arcs, updates = self.parts, _Arcs(self.graph, self.parts, self.kind), self.parts.updates()[0]
        through: list[list[tuple[Positions, Array]]] = [[] for _ in range(parts.count)]
        upward: list[Array] = []
        across: list[Array] = []
        for i in range(parts.count):
            size, border = len(tables[i]), parts.border(i)
            front = arcs.front(i)
            for other, lengths in through[i]:
                join(front, arcs.local(i, other), lengths)
            through[i] = []
            own, out, back = front[:size, :size], front[:size, size:], front[size:, :size]
            self._close(own)
            up = self._relaxed(out, own, out)
            down = self._relaxed(back, back, own) if self.graph.directed else np.ascontiguousarray(up.T)
            if len(border):
                rest = self._relaxed(front[size:, size:], back, up)
                through[parts.parents[i]].append((border, rest))
            tables[i][:, :size] = own
            upward.append(up)
            across.append(down)
            self.monitor.step(int(updates[i]))
        return upward, across

    def extend(self, tables: list[Array], upward: list[Array]) -> None:
        """Step 2, in place: each part's table grows by the parts above."""
        parts, updates = self.parts, self.parts.updates()[1]
        owner = parts.owner()
        for i in range(parts.count - 1, -1, -1):
            size, wide = tables[i].shape
            border = parts.border(i)
            if len(border):
                beyond = np.full((len(border), wide - size), self.kind.sentinel(), self.kind.dtype)
                for first, last in _runs(owner[border]):
                    k = owner[border[first]]
                    known = tables[k][border[first:last] - parts.starts[k]]
                    beyond[first:last, beyond.shape[1] - known.shape[1] :] = known
                self.backend.relax(tables[i][:, size:], upward[i], beyond, nonnegative=self.nonnegative)
            self.monitor.step(int(updates[i]))

    def _close(self, block: Array) -> None:
        symmetric = not self.graph.directed
        if len(block) <= floyd_warshall.LEAF:
            self.backend.close(block, nonnegative=self.nonnegative, symmetric=symmetric)
        else:
            floyd_warshall.recursive(self.backend, block, nonnegative=self.nonnegative, symmetric=symmetric)

    def _relaxed(self, c: Array, a: Array, b: Array) -> Array:
        """min(C, A (x) B) as an array of its own."""
        new = c.copy()
        self.backend.relax(new, a, b, nonnegative=self.nonnegative)
        return new


class _Arcs:
    """The arcs of a graph by the part that is eliminated first of their two ends' parts."""

    def __init__(self, graph: Graph, parts: Parts, kind: WorkType) -> None:
        self._parts, self._kind = parts, kind
        tails = np.repeat(parts.position, np.diff(graph.indptr))
        heads = parts.position[graph.heads]
        first = parts.owner()[np.minimum(tails, heads)]
        order = np.argsort(first, kind="stable")
        self._tails, self._heads = tails[order], heads[order]
        weights = graph.weights[order] + 0  # -0.0, whose bits sort below every number, becomes 0.0
        if kind.integer:  # an arc longer than every distance is on no shortest path, and might not fit
            weights = np.minimum(weights, int(kind.unreachable))
        self._weights = weights.astype(kind.dtype)
        self._begin = np.searchsorted(first[order], np.arange(parts.count + 1))

    def front(self, i: int) -> Array:
        """The weights between part ``i`` and itself and its border, 0 on the diagonal, unreachable elsewhere."""
        side = int(self._parts.starts[i + 1] - self._parts.starts[i]) + len(self._parts.border(i))
        front = np.full((side, side), self._kind.sentinel(), self._kind.dtype)
        front[np.arange(side), np.arange(side)] = 0
        some = slice(self._begin[i], self._begin[i + 1])
        front[self.local(i, self._tails[some]), self.local(i, self._heads[some])] = self._weights[some]
        return front

    def local(self, i: int, positions: Positions) -> npt.NDArray[np.int64]:
        """Rows of the front of part ``i`` that hold ``positions``."""
        start, stop = self._parts.starts[i : i + 2]
        beyond = (stop - start) + np.searchsorted(self._parts.border(i), positions)
        return np.asarray(np.where(positions < stop, positions - start, beyond), np.int64)


def _runs(values: Array) -> list[tuple[int, int]]:
    """Spans of equal values."""
    cuts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return list(itertools.pairwise(cuts))
