"""The common part of betweenness and assignment: the graph in the form that searches take, the plan, and the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.folding import VERTEX_BYTES, Fold
from engine.algorithms.betweenness.numbering import PathArcs, number_arcs
from engine.algorithms.betweenness.passing import Passed, PassingSearches, PassingTask, thread_bytes
from engine.devices.cpu.team import Team
from engine.execution.survey import KERNELS, survey
from engine.graph.terminals import arrivals, opened
from engine.model.problem import Machine, Options, refuse_semiring, with_threads
from engine.model.progress import Monitor, PhaseClock, given_monitor, told_of_compiling
from engine.planning.cost import most_threads
from engine.planning.refusal import gib
from storage.errors import ApspError, Cancelled, DoesNotFit, InvalidRequest
from storage.graph.graph import Graph

if TYPE_CHECKING:
    from engine.api.betweenness.on_device import DevicePassing

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Options of a solve that counting shortest paths does not support.
_NOT_HERE: Final = ("algorithm", "dtype", "max_hops", "cutoff", "executor", "scheduler")
_given: Final = attrgetter(*_NOT_HERE)
#: A trial, which predicts the time from a few timed searches, is made only if all searches visit more vertices and arcs
#: than this.
LITTLE: Final = 100_000_000
#: Number of vertices and arcs that a thread visits in a second, if it searches from many sources at the same time:
#: 0.3 · 10^9 on the roads of Rome with weights, 0.5 · 10^9 without, and up to 4 · 10^9 where vertices have many arcs.
TOGETHER_RATE: Final = 3.0e8
#: Limits of a trial: the number of sources that are searched from one after the other (TRIED), and the seconds after
#: which no further source is tried (TRIAL).
TRIED: Final = 16
TRIAL: Final = 0.3
#: A GPU is considered only if the processors are predicted to take at least this number of seconds.
LONG: Final = 2.0


@dataclass(frozen=True)
class PathPlan:
    """The predicted memory and time of counting shortest paths.

    Attributes:
        search: how shortest paths are found, in words.
        sources: number of sources.
        threads: number of threads.
        memory: projected peak of host memory, bytes.
        seconds: predicted wall time; from a trial unless there is little to do.
        tried: number of sources from which a trial searched; 0 without a trial.
        device: ``cpu`` or ``cuda``.
        device_memory: projected peak of the GPU's memory, bytes; 0 without a GPU.
    """

    search: str
    sources: int
    threads: int
    memory: int
    seconds: float
    tried: int
    device: str = "cpu"
    device_memory: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON types."""
        return asdict(self)


class Passage:
    """A graph whose shortest paths are counted; paths do not pass through terminals.

    Args:
        graph: the graph; no weight is negative.
        decimal: whether floats of few decimals are taken as whole multiples of a decimal unit, so that sums are exact.

    Raises:
        InvalidRequest: the weights have no well-defined number of shortest paths.
    """

    def __init__(self, graph: Graph, *, decimal: bool = True) -> None:
        self.graph = graph
        self._opened = opened(graph)
        self.arcs: PathArcs = number_arcs(self._opened, decimal=decimal)
        self.directed = self._opened.directed

    @property
    def size(self) -> int:
        """The number of vertices of the opened graph: a terminal counts twice, as itself and as its arrival, the copy
        where paths to it end.
        """
        return self._opened.n

    def starts(self, vertices: Indices) -> Indices:
        """Return the numbers, in ``arcs``, of the vertices where paths from ``vertices`` begin."""
        return self.arcs.rank[vertices].astype(np.int64)

    def arrivals(self, vertices: Indices) -> npt.NDArray[np.int32]:
        """Return the numbers, in ``arcs``, of the vertices where paths to ``vertices`` end."""
        found: npt.NDArray[np.int32] = self.arcs.rank[arrivals(vertices, self.graph.n, self.graph.terminals)]
        return found

    def by_vertex(self, values: Floats) -> Floats:
        """Reorder values of vertices from the numbering of ``arcs`` to that of the graph, shape (n,).

        The value of a terminal and that of its arrival are added.
        """
        n, found = self.graph.n, values[self.arcs.rank]
        found[: self.graph.terminals] += found[n:]
        return found[:n]

    def by_arc(self, values: Floats) -> Floats:
        """Reorder values of arcs from the order of ``arcs`` to that of the graph's arcs, shape (arcs,)."""
        graph, found = self.graph, np.empty(len(values))
        found[self.arcs.moved] = values
        if not graph.terminals:
            return found
        # the opened graph has the graph's arcs and one from each terminal to its arrival, sorted by tail and head
        ends = np.arange(graph.terminals)
        tails = np.concatenate([np.repeat(np.arange(graph.n), np.diff(graph.indptr)), ends])
        heads = np.concatenate([arrivals(graph.heads.astype(np.int64), graph.n, graph.terminals), graph.n + ends])
        placed = np.empty(len(values))
        placed[np.lexsort((heads, tails))] = found
        return placed[: graph.arcs]

    def search(self) -> str:
        """Return how shortest paths are found, in words."""
        weights = self.arcs.weights
        return words_of_search(whole=weights.dtype.kind != "f", unit=len(weights) == 0, power=self.arcs.power)


def words_of_search(*, whole: bool, unit: bool, power: float) -> str:
    """Return how shortest paths are found, in words.

    Args:
        whole: whether lengths are whole numbers.
        unit: whether all arcs have the same length.
        power: the number by which lengths are divided to get the graph's own weights.
    """
    if unit:
        return "breadth first, as all arcs weigh the same"
    if not whole:
        return "Dijkstra in float64: two lengths are equal where their sums from the source are"
    decimals = f", weights as multiples of {1 / power:g}" if power > 1 else ""
    return f"Dijkstra in whole numbers{decimals}: lengths are exact"


def words_of_fold(folded: int, n: int) -> str:
    """Return the part of a plan's text that says how many of ``n`` vertices are folded; empty if none are."""
    return f"; trees are folded: {folded:,} of {n:,} vertices" if folded else ""


@dataclass(frozen=True, eq=False)
class Unfolded:
    """The graph to which a core belongs.

    Attributes:
        fold: the graph, its core, and what was folded.
        make: makes the whole graph and the task in it, for a GPU.  A GPU cannot count in the core, because it cannot
            multiply the flow of a source.
    """

    fold: Fold
    make: Callable[[], tuple[Passage, PassingTask]]

    def words(self) -> str:
        """Return the part of the plan's text that says how many vertices are folded."""
        return words_of_fold(self.fold.graph.n - self.fold.core.n, self.fold.graph.n)

    def bytes(self) -> int:
        """Estimate the bytes of memory that the whole graph and the fold take."""
        fold = self.fold
        return VERTEX_BYTES * fold.graph.n + 24 * (fold.graph.n + fold.graph.arcs) + 8 * fold.core.arcs


class PassageRun:
    """A request for searches: :meth:`make_plan` predicts them, :meth:`run` carries them out.

    If the options name no device, the processors count, unless they would take long and a GPU is faster.

    Args:
        passage: the graph.
        task: the sources and targets of the paths.
        options: memory and threads, device and its memory.
        unfolded: the whole graph, if ``passage`` is the core of it; None if it is the whole graph.

    Raises:
        InvalidRequest: the options demand a GPU, and there is none, or it cannot count the paths of this graph.
        DoesNotFit: memory is too small.
    """

    def __init__(self, passage: Passage, task: PassingTask, options: Options, unfolded: Unfolded | None = None) -> None:
        self._unfolded = unfolded
        self._passage, self._task, self._options = passage, task, options
        self._searches = PassingSearches(passage.arcs, task)
        self._rows = len(task.sources)
        self.plan: PathPlan | None = None
        self._there: DevicePassing | None = None
        machine = self._machine = survey(
            memory=options.memory,
            threads=options.threads,
            device="cuda" if options.device == "cuda" else "cpu",
            device_memory=options.device_memory,
        )
        self._threads = max(1, min(machine.threads, self._rows))
        if options.device == "cuda":
            self._there = self._on_device(machine)
        fixed = machine.resident + KERNELS + _fixed_bytes(passage, task) + (unfolded.bytes() if unfolded else 0)
        self.memory = fixed + self._bytes()
        if self.memory > machine.memory:  # a thread that searches from one source at a time takes less memory
            self._searches.gather = False
            self.memory = fixed + self._bytes()
        if self.memory > machine.memory:
            used = with_threads(machine, self._threads)
            self._threads = most_threads(used, lambda on: fixed + self._bytes(on.threads)).threads
            self.memory = fixed + self._bytes()
        if self.memory > machine.memory:
            raise _too_large(self.memory, machine, self._threads)

    def _bytes(self, threads: int | None = None) -> int:
        """Estimate the bytes of memory that all threads take, or that this number of threads takes."""
        if self._there:
            return 0
        size, together = self._passage.size, self._searches.together
        arcs = self._passage.arcs
        each = thread_bytes(size, len(arcs.heads), self._task, together=together, hops=len(arcs.weights) == 0)
        return (threads or self._threads) * each

    def make_plan(self, monitor: Monitor | None = None) -> PathPlan:
        """Predict memory and, from a trial, time; ``monitor`` receives the progress of compiling, and can stop it."""
        if self._options.device == "cuda":
            assert self._there is not None
            self.plan = self._plan_there(self._there, monitor)
            return self.plan
        here = self._plan_here(given_monitor(monitor))
        self.plan, self._there = here, None
        if self._options.device != "cpu" and here.seconds >= LONG:
            self._leave_if_faster(here, monitor)
        return self.plan

    def _plan_here(self, monitor: Monitor) -> PathPlan:
        together, alone = self._searches.visits
        seconds, tried = alone / self._machine.search_rate + together / (TOGETHER_RATE * self._threads), 0
        if together + alone > LITTLE:
            seconds, tried = self._try(monitor)
        search = self._passage.search() + (self._unfolded.words() if self._unfolded else "")
        return PathPlan(search, self._rows, self._threads, self.memory, seconds, tried)

    def _plan_there(self, there: DevicePassing, monitor: Monitor | None) -> PathPlan:
        found = there.make_plan(monitor)
        words = f"paths counted on a GPU in rows of distances by {found.algorithm}: lengths are exact"
        taken = (found.device_memory or 0) + there.counting.bytes
        memory = max(self.memory, found.memory)
        return PathPlan(words, there.sources, self._threads, memory, found.seconds, 0, "cuda", taken)

    def _leave_if_faster(self, here: PathPlan, monitor: Monitor | None) -> None:
        """Select a GPU if there is one whose predicted time is less than that of ``here``, the plan for processors."""
        options = self._options
        if len(self._task.first):
            return
        machine = survey(
            memory=options.memory, threads=options.threads, device="cuda", device_memory=options.device_memory
        )
        try:
            there = self._on_device(machine)
            plan = self._plan_there(there, monitor)
        except Cancelled:
            raise
        except ApspError:  # the options do not demand a GPU, and the processors can count these paths
            return
        if plan.seconds < here.seconds:
            self.plan, self._there = plan, there

    def _on_device(self, machine: Machine) -> DevicePassing:
        if machine.cuda is None:
            raise InvalidRequest(f"device cuda was asked for, but {machine.no_cuda}", field="device")
        from engine.api.betweenness.on_device import DevicePassing

        passage, task = self._passage, self._task
        if self._unfolded:
            passage, task = self._unfolded.make()
            self.memory = max(self.memory, machine.resident + KERNELS + _fixed_bytes(passage, task))
            if self.memory > machine.memory:
                raise _too_large(self.memory, machine, self._threads)
        return DevicePassing(passage.arcs, passage.directed, task, self._options, machine.cuda)

    def _try(self, monitor: Monitor) -> tuple[float, int]:
        """Search from a few sources; return the predicted seconds for all sources, and the number of sources tried."""
        clock, team = PhaseClock(monitor), Team(1)
        batches, all_rows = self._searches.samples(TRIED)
        began = time.perf_counter()
        with told_of_compiling(clock):
            self._searches.run(team, _Silent(monitor), batches[0])
        seconds = (time.perf_counter() - began) / len(batches[0]) * all_rows / self._threads
        if len(batches) == 1 and seconds < LONG:
            clock.stop()
            return seconds, len(batches[0])
        # perhaps kernels were loaded or compiled meanwhile, so the time is taken again
        began, tried = time.perf_counter(), 0
        for rows in batches:
            if tried and time.perf_counter() - began >= TRIAL:
                break
            self._searches.run(team, _Silent(monitor), rows)
            tried += len(rows)
        clock.stop()
        return (time.perf_counter() - began) / tried * all_rows / self._threads, tried

    def run(self, monitor: Monitor | None = None) -> tuple[Passed, PathPlan, dict[str, float]]:
        """Search from all sources.

        Args:
            monitor: receives progress, and is asked whether to stop.

        Returns:
            The flow, the plan, and the seconds of each phase.

        Raises:
            Cancelled: the monitor asked to stop.
            InvalidRequest: some weights are so small beside others that sums of floats lose them.
            SolveFailed: there are too many shortest paths for float64, or a check of the flows fails.
        """
        plan = self.plan or self.make_plan(monitor)
        if self._there is not None:
            passed, seconds = self._there.run(given_monitor(monitor))
            return passed, plan, seconds
        clock, team = PhaseClock(given_monitor(monitor)), Team(self._threads)
        clock.begin("search", self._rows, "rows")
        try:
            with told_of_compiling(clock):
                passed = self._searches.run(team, clock)
        finally:
            team.close()
        clock.stop()
        return passed, plan, clock.seconds


class _Silent(Monitor):
    """A monitor that asks the monitor ``inner`` whether to stop, but reports no progress to it."""

    def __init__(self, inner: Monitor) -> None:
        self.cancelled = inner.cancelled  # type: ignore[method-assign]


def check_options(options: Options, *, device: bool = True) -> None:
    """Raise InvalidRequest for options that counting shortest paths does not support.

    Args:
        options: the options.
        device: whether a GPU can be used.

    Raises:
        InvalidRequest: such an option is given; the error names it.
    """
    refuse_semiring(options, "a count of shortest paths")
    usual = Options  # the class has the default of each option
    for name in _NOT_HERE if _given(options) != _given(usual) else ():
        if getattr(options, name) != getattr(usual, name):
            raise InvalidRequest(f"all shortest paths are counted, so {name} cannot be given", field=name)
    for name in () if device or options.device == "cpu" else ("device", "device_memory"):
        if getattr(options, name) != getattr(usual, name):
            raise InvalidRequest(
                f"demands are assigned on the processors of this machine, so {name} cannot be given", field=name
            )


def _fixed_bytes(passage: Passage, task: PassingTask) -> int:
    """Estimate the bytes of memory that a graph and a task take, without those of each thread."""
    graph, arcs = passage.graph, len(passage.arcs.heads)
    return 48 * (passage.size + arcs) + 40 * len(task.targets) + 16 * (graph.n + graph.arcs)


def _too_large(needed: int, machine: Machine, threads: int) -> DoesNotFit:
    return DoesNotFit(
        f"{needed} bytes ({gib(needed)}) are needed to count the shortest paths of this graph with {threads} "
        f"thread{'s' if threads != 1 else ''}, and {machine.memory} ({gib(machine.memory)}) may be used; give it more "
        "memory",
        resource="memory",
        needed=needed,
        available=machine.memory,
    )
