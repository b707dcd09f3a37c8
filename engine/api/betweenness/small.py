"""The run of betweenness on a small graph, which takes as long as planning a larger one."""

from __future__ import annotations

from engine.algorithms.betweenness.passing import check_verdict
from engine.algorithms.betweenness.small import SIZE, VISITED, SmallSearches, whole_lengths
from engine.api.betweenness.passage import (
    TOGETHER_RATE,
    Floats,
    PathPlan,
    words_of_fold,
    words_of_search,
)
from engine.execution.survey import KERNELS, survey
from engine.model.problem import Options
from engine.model.progress import Monitor, PhaseClock, given_monitor, told_of_compiling
from storage.graph.graph import Graph


class SmallRun:
    """A request for the flow between all pairs of vertices through each vertex of a small graph.

    One thread searches, because others would hardly have begun before it ends.
    """

    def __init__(self, searches: SmallSearches, plan: PathPlan) -> None:
        self._searches, self._plan = searches, plan

    @classmethod
    def of(cls, graph: Graph, options: Options, *, decimal: bool) -> SmallRun | None:
        """Return the run for a graph; None if the graph is not small, if lengths are not whole, or if memory is short.

        Args:
            graph: the graph.
            options: ``memory`` and ``threads``.
            decimal: whether floats of few decimals are taken as whole multiples of a decimal unit.

        Raises:
            InvalidRequest: more threads than processors.
        """
        if graph.terminals or not 0 < graph.arcs <= SIZE - graph.n:
            return None
        found = whole_lengths(graph, decimal=decimal)
        if found is None:
            return None
        lengths, largest, power = found
        searches = SmallSearches(graph, lengths, largest)
        if sum(searches.visits) > VISITED:
            return None
        machine = survey(memory=options.memory, threads=options.threads, little=True)
        memory = machine.resident + KERNELS + searches.bytes
        if memory > machine.memory:
            return None
        words = words_of_search(whole=True, unit=len(lengths) == 0, power=power)
        words += words_of_fold(searches.folded, graph.n)
        words += "; blocks between cut vertices are searched one by one" if searches.split else ""
        together, alone = searches.visits
        seconds = alone * machine.threads / machine.search_rate + together / TOGETHER_RATE
        return cls(searches, PathPlan(words, searches.sources, 1, memory, seconds, 0))

    def make_plan(self, monitor: Monitor | None = None) -> PathPlan:
        """Return the prediction of memory and time, which needs no searches; ``monitor`` is not told anything."""
        given_monitor(monitor)
        return self._plan

    def run(self, monitor: Monitor | None = None) -> tuple[Floats, PathPlan, dict[str, float]]:
        """Search from all vertices.

        Args:
            monitor: receives progress, and is asked whether to stop.

        Returns:
            The flow through each vertex over all ordered pairs, shape (n,); the plan; and the seconds of each phase.

        Raises:
            Cancelled: the monitor asked to stop.
            SolveFailed: there are too many shortest paths for float64, or a check of the flows fails.
        """
        clock = PhaseClock(given_monitor(monitor))
        clock.begin("search", self._plan.sources, "rows")
        with told_of_compiling(clock):
            said, values = self._searches.run()
        check_verdict(said)
        clock.step(self._plan.sources)
        clock.stop()
        return values, self._plan, clock.seconds
