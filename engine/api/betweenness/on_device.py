"""Counts paths on a GPU, which finds rows of distances as in a solve and counts the shortest paths in them."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.numbering import PathArcs
from engine.algorithms.betweenness.passing import Passed, PassingSearches, PassingTask, check_rows
from engine.api.planning import make_plan
from engine.api.solve import solve
from engine.devices.cpu.team import Team
from engine.graph.profile import GraphProfile
from engine.graph.transpose import transposed
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Device, Options
from engine.model.progress import Monitor
from engine.model.rows import CountedPaths, PathCounting, bytes_a_row
from engine.planning.refusal import gib
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import Graph

Indices = npt.NDArray[np.int64]

#: Most rows that are counted at the same time, by one thread block each: 8 rows for each of 160 multiprocessors.
MOST: Final = 1280
#: Largest shares of the device's memory: SPACES for the work space of the rows that are counted at the same time,
#: COUNTED for all that counting takes, this work space included.
SPACES: Final = 1 / 3
COUNTED: Final = 0.6
#: Number of vertices and arcs that a device visits in a second while it counts, added up over all rows.  Measured on an
#: H100: 6 · 10^9 on the roads of Seattle, whose paths have many arcs; 140 · 10^9 and more if paths have few arcs.
RATE: Final = 6.0e9


class DevicePassing:
    """A request to count paths on a GPU: the constructor checks it, :meth:`make_plan` predicts it, :meth:`run` counts.

    Args:
        arcs: the arcs.
        directed: whether the graph is directed.
        task: the sources and targets; it must have no list of targets.
        options: memory, threads, and device memory.
        device: the GPU.

    Raises:
        InvalidRequest: lengths are not whole numbers, or too large for the device's types.
        DoesNotFit: the device's memory is too small.
    """

    def __init__(self, arcs: PathArcs, directed: bool, task: PassingTask, options: Options, device: Device) -> None:
        self._arcs, self._task, self._device = arcs, task, device
        _check_lengths(arcs)
        self._graph, self._sorted = _sorted_graph(arcs, directed)
        self.counting = self._counting()
        left = device.memory - self.counting.bytes
        if self.counting.bytes > COUNTED * device.memory:
            raise DoesNotFit(
                f"{self.counting.bytes} bytes ({gib(self.counting.bytes)}) of the GPU's memory are needed to count "
                f"paths, beside the rows of distances, and {device.memory} ({gib(device.memory)}) may be used; give it "
                "more, or use --device cpu",
                resource="device memory",
                needed=int(self.counting.bytes / COUNTED) + 1,
                available=device.memory,
            )
        self._profile = GraphProfile(self._graph)
        whole = len(task.sources) == self._graph.n
        self._options = Options(
            device="cuda",
            device_memory=left,
            memory=options.memory,
            threads=options.threads,
            sources=None if whole else tuple(task.sources.tolist()),
        )
        self._solved: Plan | None = None

    @property
    def sources(self) -> int:
        """The number of sources."""
        return len(self._task.sources)

    def make_plan(self, monitor: Monitor | None = None) -> Plan:
        """Plan the rows; ``seconds`` of the plan include finding the rows and counting the paths.

        Raises:
            DoesNotFit: memory is too small.
        """
        found = make_plan(self._profile, self._options, monitor=monitor, dropped=True)
        self._solved = found
        visits = (self._graph.n + self._graph.arcs) * len(self._task.sources)
        seconds = sum(phase.seconds for phase in found.phases if phase.name != "write")
        return replace(found, seconds=seconds + visits / RATE)

    def run(self, monitor: Monitor) -> tuple[Passed, dict[str, float]]:
        """Find the rows and count their shortest paths; return the flow, and the seconds of each phase.

        Raises:
            Cancelled: the monitor asked to stop.
            SolveFailed: there are too many shortest paths for float64, the flow that left a source and the flow that
                arrived differ, or the device failed.
        """
        assert self._solved is not None
        sink = _CountingSink(self.counting)
        outcome = solve(self._profile, self._solved, self._options, sink, monitor, facts=False)
        passed = self._passed(sink)
        late = np.array(sorted(sink.late), np.int64)
        if len(late):
            passed = self._with_rows(passed, late, monitor)
        return passed, outcome.seconds

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _counting(self) -> PathCounting:
        graph, task = self._graph, self._task
        into, tails, places = transposed(graph.indptr, graph.heads)
        weights = graph.weights.astype(np.int32) if graph.weighted else np.zeros(0, np.int32)
        each = bytes_a_row(graph.n, graph.arcs * task.arcs, task.ends)
        most = int(min(MOST, len(task.sources), SPACES * self._device.memory // max(1, each)))
        return PathCounting(
            task.sources,
            task.own,
            task.kept,
            (graph.indptr, graph.heads, weights),
            (into, tails, weights[places] if graph.weighted else weights),
            ends=task.ends,
            over=task.arcs,
            most=max(1, most),
        )

    def _passed(self, sink: _CountingSink) -> Passed:
        task, n, arcs = self._task, self._graph.n, self._graph.arcs
        vertices, over = np.zeros(n), np.zeros(arcs * task.arcs)
        begins, ends = np.zeros(n * task.ends), np.zeros(n * task.ends)
        for counted in sink.counted:
            check_rows(counted.told)
            vertices += counted.vertices
            if task.ends:
                np.add.at(begins, task.sources[counted.rows], counted.told[:, 1])
                ends += counted.ends
            if task.arcs:
                over[self._sorted] += counted.over
        return Passed(vertices, begins, ends, over, np.zeros(0))

    def _with_rows(self, passed: Passed, rows: Indices, monitor: Monitor) -> Passed:
        """Count, on the processors, the paths of the rows that the device could not count; return all sums."""
        team = Team(max(1, min(self._solved.threads if self._solved else 1, len(rows))))
        try:
            more = PassingSearches(self._arcs, self._task).run(team, monitor, rows)
        finally:
            team.close()
        return Passed(
            passed.vertices + more.vertices,
            passed.begins + more.begins,
            passed.ends + more.ends,
            passed.over + more.over,
            passed.lengths,
        )


class _CountingSink:
    """Collects counts from the device, and the numbers of the rows whose paths the device did not count.

    Attributes:
        counting: the description of the counts that the device makes.
        counted: the counts that the device has returned.
        late: the numbers of the rows that the device abandoned; processors have computed their distances.
    """

    def __init__(self, counting: PathCounting) -> None:
        self.counting, self.counted, self.late = counting, list[CountedPaths](), set[int]()
        self.tile = (64, max(1, len(counting.kept)))
        self._lock = threading.Lock()

    def take_counted(self, counted: CountedPaths) -> None:
        """Keep counts from the device."""
        with self._lock:
            self.counted.append(counted)

    def write(self, row: int, column: int, block: npt.NDArray[np.generic]) -> None:
        """Note the numbers of the rows in ``block``, shape (rows, columns), the first of which is ``row``.

        The paths in these rows are counted later.
        """
        del column
        with self._lock:
            self.late.update(range(row, row + block.shape[0]))


def _check_lengths(arcs: PathArcs) -> None:
    largest = WORK_TYPES["int32"].largest
    if arcs.longest <= largest:
        return
    found = "fractions" if np.isinf(arcs.longest) else f"up to {arcs.longest:,.0f} units"
    raise InvalidRequest(
        f"a GPU counts paths whose lengths are whole numbers (or decimals of few places) of at most {largest:,.0f} "
        f"units, and here they are {found}; use --device cpu, or give coarser weights",
        field="device",
    )


def _sorted_graph(arcs: PathArcs, directed: bool) -> tuple[Graph, Indices]:
    """Return the graph of the arcs with the heads of each vertex ascending, and the index in ``arcs`` of each arc."""
    n = len(arcs.indptr) - 1
    tails = np.repeat(np.arange(n), np.diff(arcs.indptr))
    order = np.lexsort((arcs.heads, tails))
    weighted = len(arcs.weights) > 0
    # weights are limited to this value; an arc with this weight is longer than every distance, so on no shortest path
    longest = int(WORK_TYPES["int32"].unreachable)
    weights = np.minimum(arcs.weights[order], longest) if weighted else np.ones(len(order))
    graph = Graph(
        arcs.indptr, arcs.heads[order], weights.astype(np.int32), np.arange(n), directed=directed, weighted=weighted
    )
    return graph, order
