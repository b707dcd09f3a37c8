"""Near pairs: the distances up to a cutoff, or from each source to its nearest targets, without a matrix."""

from __future__ import annotations

import math
from typing import Final

from engine.algorithms.near import ENTRY_BYTES, PIECE, SPACE_BYTES, NearSearches, NearWanted
from engine.devices.cpu.arcs import FAR
from engine.devices.cpu.team import Team
from engine.execution.survey import survey
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle, check_cutoff, check_vertices
from engine.model.problem import Machine, Options
from engine.model.progress import Monitor, PhaseClock, told_of_compiling
from engine.planning.refusal import gib
from storage.errors import ApspError, DoesNotFit, InvalidRequest
from storage.graph.graph import Graph
from storage.pairs.near_pairs import NearPairs

#: Options of a solve that near pairs do not have.
_NOT_HERE: Final = ("algorithm", "dtype", "device", "device_memory", "max_hops", "executor", "scheduler")
#: The refusal of a matrix mentions near pairs if they take at most this share of what the matrix needs.
FAVOURABLE: Final = 0.05
#: Number of sources from which that is predicted, and the most vertices and arcs of a graph for which it is predicted.
OFFERED_SOURCES: Final = 16
OFFERED_SIZE: Final = 5_000_000


def near_pairs(
    graph: Graph | GraphProfile,
    options: Options,
    *,
    nearest: int | None = None,
    monitor: Monitor | None = None,
) -> NearPairs:
    """Find the targets near each source, and their distances.

    A search from each source ends at the cutoff or with the last target wanted, so time and memory depend on the number
    of vertices reached.  The size of the result is predicted from some sources first, and a result that cannot fit is
    refused then.

    Args:
        graph: the graph, or its profile; no weight may be negative.
        options: the cutoff, sources and targets; memory and threads.  No other option may be set.
        nearest: the number of nearest targets of each source; of equally near ones those of smaller index come first.
            None for all targets within the cutoff.
        monitor: receives progress, and is asked whether to stop.

    Returns:
        The pairs.  A source is no target of itself.  Distances are integers where all weights are, else float64.

    Raises:
        InvalidRequest: neither a cutoff nor nearest is given, one is out of range, or a weight is negative.
        DoesNotFit: the result would need more memory than may be used.
        Cancelled: the monitor asked to stop.
    """
    profile = GraphProfile.of(graph)
    graph = profile.graph
    _check(profile, options, nearest)
    machine = survey(memory=options.memory, threads=options.threads)
    clock, asked = PhaseClock(monitor or Monitor()), Rectangle.of(options, graph.n)
    inner, rectangle = profile.open(asked)
    budget = _budget(machine, inner.graph)
    clock.begin("search", len(asked.rows), "rows")
    team = Team(machine.threads)
    try:
        with told_of_compiling(clock):
            searches = NearSearches(
                inner.arcs, NearWanted(rectangle, asked.columns, asked.rows, asked.cutoff, nearest), graph.n
            )
            _run(searches, team, clock, budget)
    finally:
        team.close()
    clock.stop()
    return NearPairs(*searches.result(), asked.rows, graph.labels, asked.cutoff, nearest)


def _check(profile: GraphProfile, options: Options, nearest: int | None) -> None:
    """Refuse requests that searches cannot answer; see :func:`near_pairs`."""
    cutoff, usual = options.cutoff, Options()
    for name in _NOT_HERE:
        if getattr(options, name) != getattr(usual, name) and (name, options.device) != ("device", "cpu"):
            raise InvalidRequest(
                f"near pairs are searched by processors without further limits, so {name} cannot be given", field=name
            )
    check_vertices("sources", options.sources, profile.graph.labels)
    check_vertices("targets", options.targets, profile.graph.labels)
    if cutoff is None and nearest is None:
        raise InvalidRequest(
            "near pairs need a cutoff, or the number of nearest targets; for all distances, solve the graph",
            field="cutoff",
        )
    check_cutoff(cutoff)
    if nearest is not None and nearest < 1:
        raise InvalidRequest(f"nearest must be at least 1, found {nearest}", field="nearest")
    least, largest = profile.weight_range
    if least < 0:
        raise InvalidRequest(
            f"near pairs need weights that are not negative, and the least weight is {least:g}: a path may become "
            "shorter again beyond the cutoff; solve all distances with the cutoff instead",
            field="weight",
        )
    beyond = FAR if profile.graph.integral else math.inf
    if (cutoff is None or cutoff >= beyond) and profile.graph.n * largest >= beyond:
        raise InvalidRequest(
            f"the weights are up to {largest:g}, so sums along a path may be too large for their type; give a cutoff",
            field="cutoff",
        )


def _budget(machine: Machine, graph: Graph) -> int:
    """Return the largest number of entries that fits in memory; raise DoesNotFit if not even the searches fit."""
    fixed = SPACE_BYTES * graph.n * machine.threads + 40 * (graph.n + graph.arcs)
    if fixed + PIECE * ENTRY_BYTES > machine.memory:
        raise DoesNotFit(
            f"{fixed} bytes ({gib(fixed)}) are needed to search this graph with {machine.threads} threads, and "
            f"{machine.memory} ({gib(machine.memory)}) may be used; take fewer threads, or give it more memory",
            resource="memory",
            needed=fixed,
            available=machine.memory,
        )
    return (machine.memory - fixed) // ENTRY_BYTES


def _run(searches: NearSearches, team: Team, clock: PhaseClock, budget: int) -> None:
    """Search a sample of the sources, check that the result will fit, and search the rest."""
    rows = searches.size

    def within(entries: int, predicted: float | None = None) -> None:
        if max(entries, predicted or 0) <= budget:
            return
        count = int(predicted or entries)
        found = f"about {count:,} pairs are predicted from" if predicted else f"already {count:,} pairs were found from"
        raise DoesNotFit(
            f"near pairs: {found} {searches.rows:,} of {rows:,} sources, and {budget:,} fit the memory that may be "
            f"used ({ENTRY_BYTES} bytes per pair); take a smaller cutoff, fewer sources, or more memory",
            resource="memory",
            needed=count * ENTRY_BYTES,
            available=budget * ENTRY_BYTES,
        )

    sample = searches.sample()
    searches.run(team, sample, clock, within)
    within(searches.entries, searches.predicted())
    rest = sorted(set(searches.pieces) - set(sample))
    if rest:
        searches.run(team, rest, clock, within)


def near_offered(refusal: DoesNotFit, graph: Graph | GraphProfile, options: Options) -> DoesNotFit:
    """Return the refusal of a solve with a cutoff; it mentions near pairs if these take far less.

    Args:
        refusal: why the matrix does not fit.
        graph: the graph, or its profile.
        options: the options of the refused solve.

    Returns:
        The same error if near pairs cannot help.
    """
    profile = GraphProfile.of(graph)
    graph, bounded = profile.graph, options.cutoff is not None and options.max_hops is None
    if not bounded or options.executor != "local" or graph.n + graph.arcs > OFFERED_SIZE:
        return refusal
    if refusal.resource not in ("disk", "memory"):
        return refusal
    rows = len(options.sources) if options.sources is not None else graph.n
    count = min(rows, OFFERED_SOURCES)
    places = [(2 * i + 1) * rows // (2 * count) for i in range(count)]
    some = tuple(places if options.sources is None else (options.sources[place] for place in places))
    asked = Options(cutoff=options.cutoff, sources=some, targets=options.targets, threads=options.threads)
    try:
        found = near_pairs(profile, asked)
    except ApspError:  # near pairs cannot answer this either, and the original refusal explains more
        return refusal
    entries = found.entries * rows // len(some)
    if entries * ENTRY_BYTES > FAVOURABLE * refusal.needed:
        return refusal
    return DoesNotFit(
        f"{refusal}; near pairs: about {entries:,} ({gib(entries * ENTRY_BYTES)} of memory; apsp near --cutoff keeps "
        "them without a matrix)",
        resource=refusal.resource,
        needed=refusal.needed,
        available=refusal.available,
        candidates=refusal.candidates,
        remedies=refusal.remedies,
    )
