"""Near pairs: the distances up to a cutoff, or from each source to its nearest targets, without a matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
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

#: A refused solve is told of near pairs that take at most this share of what the matrix needs.
FAVOURABLE: Final = 0.05
#: Sources from which that is predicted, and the vertices and arcs up to which it is.
OFFERED_SOURCES: Final = 16
OFFERED_SIZE: Final = 5_000_000


def near_pairs(
    graph: Graph | GraphProfile,
    *,
    cutoff: float | None = None,
    nearest: int | None = None,
    sources: Sequence[int] | None = None,
    targets: Sequence[int] | None = None,
    memory: int | None = None,
    threads: int | None = None,
    monitor: Monitor | None = None,
) -> NearPairs:
    """Find the targets near each source, and their distances.

    A search from each source ends at the cutoff or with the last target wanted, so time and memory follow what is
    reached.  From the first pieces of sources follows how large the result will be; what cannot fit is refused then.

    Args:
        graph: the graph, or its profile; no weight may be negative.
        cutoff: the largest distance wanted, in the unit of the weights; None for no limit.
        nearest: only so many targets of each source, the nearest ones; of equal ones those of smaller index.
        sources: vertex indices of the rows, none twice; None for all vertices.
        targets: vertex indices that may be targets, none twice; None for all vertices.
        memory: bytes of host memory that the process may use; None for what is free.
        threads: processors; None for all.
        monitor: is told of progress, and asked whether to stop.

    Returns:
        The pairs.  A source is no target of itself.  Distances are integers where all weights are, else float64.

    Raises:
        InvalidRequest: neither cutoff nor nearest is given, one is out of range, or a weight is negative.
        DoesNotFit: the result would need more memory than may be used.
        Cancelled: the monitor asked to stop.
    """
    profile = GraphProfile.of(graph)
    graph = profile.graph
    _check(profile, cutoff, nearest)
    for name, given in (("sources", sources), ("targets", targets)):
        check_vertices(name, given, graph.labels)
    machine, clock = survey(memory=memory, threads=threads), PhaseClock(monitor or Monitor())
    asked = Rectangle.of(Options(sources=_tuple(sources), targets=_tuple(targets), cutoff=cutoff), graph.n)
    inner, rectangle = profile.open(asked)
    budget = _budget(machine, inner.graph)
    clock.begin("search", len(asked.rows), "rows")
    team = Team(machine.threads)
    try:
        with told_of_compiling(clock):
            searches = NearSearches(
                inner.arcs, NearWanted(rectangle, asked.columns, asked.rows, cutoff, nearest), graph.n
            )
            _run(searches, team, clock, budget)
    finally:
        team.close()
    clock.stop()
    return NearPairs(*searches.result(), asked.rows, graph.labels, cutoff, nearest)


def _tuple(vertices: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if vertices is None else tuple(vertices)


def _check(profile: GraphProfile, cutoff: float | None, nearest: int | None) -> None:
    """Refuse what no search can answer; see :func:`near_pairs`."""
    if cutoff is None and nearest is None:
        raise InvalidRequest(
            "near pairs need a cutoff, or how many nearest targets are wanted; all distances are what a solve gives",
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
    """Return the most entries that fit memory, or refuse the graph."""
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
    """Search a sample, see that the result will fit, and search the rest."""
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
    """Return the error of a refused solve with a cutoff, which names near pairs where those take far less.

    Args:
        refusal: why the matrix does not fit.
        graph: the graph, or its profile.
        options: what was asked.

    Returns:
        The same error where near pairs are no way out.
    """
    profile = GraphProfile.of(graph)
    graph, limits = profile.graph, (options.cutoff, options.max_hops, options.executor, options.device)
    if limits[0] is None or limits[1:3] != (None, "local") or graph.n + graph.arcs > OFFERED_SIZE:
        return refusal
    if refusal.resource not in ("disk", "memory"):
        return refusal
    rows = len(options.sources) if options.sources is not None else graph.n
    spread = [(2 * i + 1) * rows // (2 * min(rows, OFFERED_SOURCES)) for i in range(min(rows, OFFERED_SOURCES))]
    chosen = spread if options.sources is None else [options.sources[row] for row in spread]
    try:
        found = near_pairs(profile, cutoff=limits[0], sources=chosen, targets=options.targets, threads=options.threads)
    except ApspError:  # the refusal itself says more
        return refusal
    entries = found.entries * rows // len(chosen)
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
