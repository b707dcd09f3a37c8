"""Near pairs: the distances up to a cutoff, or from each source to its nearest targets, without a matrix."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.algorithms.near import ENTRY_BYTES, PIECE, SPACE_BYTES, NearSearches, NearWanted
from engine.api.prepared_matrix import PreparedMatrix
from engine.devices.cpu.arcs import FAR
from engine.devices.cpu.team import Team
from engine.execution.survey import survey
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle, check_lengths, check_vertices
from engine.model.plan import Candidate, Phase, Plan
from engine.model.problem import Machine, Options, given_options, refuse_semiring
from engine.model.progress import Monitor, PhaseClock, given_monitor, told_of_compiling, working_time
from engine.planning.cost import most_threads
from engine.planning.refusal import gib
from storage.arguments import check_paths, check_whole
from storage.errors import ApspError, DoesNotFit, InvalidRequest, raised
from storage.graph.graph import Graph
from storage.pairs.near_pairs import NearPairs
from storage.pairs.spilling import SPILLED_BYTES

#: Options of a solve that near pairs do not have.
_NOT_HERE: Final = (
    "algorithm", "dtype", "device", "device_memory", "max_hops", "executor", "scheduler", "also",
)  # fmt: skip
#: The refusal of a matrix mentions near pairs if they need at most this share of the matrix's bytes.
FAVOURABLE: Final = 0.05
#: When a matrix is refused, near pairs are predicted from OFFERED_SOURCES sources, if the graph has at most
#: OFFERED_SIZE vertices and arcs.
OFFERED_SOURCES: Final = 16
OFFERED_SIZE: Final = 5_000_000
#: The reason that plans give for float64 if weights are fractions.
_FRACTIONS: Final = (
    "sums of fractions are float64; those of decimals are within a cutoff if they are on paper: 0.1 + 0.2 within 0.3"
)
#: Time and size are predicted from 8 sources; if these took at most _SAMPLE_SECONDS, then again from 256 sources.
_SAMPLES: Final = (8, 256)
_SAMPLE_SECONDS: Final = 1.0
#: Bytes of a pair in the compressed table that is written in addition to the arrays: 3.3 were measured (decision 140).
_TABLE_ENTRY: Final = 4


def near_pairs(
    graph: Graph | GraphProfile | PreparedMatrix,
    options: Options,
    *,
    nearest: int | None = None,
    monitor: Monitor | None = None,
    beside: int = 0,
    spill: Path | None = None,
) -> NearPairs:
    """Find the targets near each source, and their distances.

    The search from a source ends at the cutoff or with the last target wanted, so time and memory depend on the number
    of vertices reached.  The size of the result is predicted from some sources, and a result that cannot fit is refused
    before the other sources are searched.

    A prepared graph gives the same pairs, to the last bit.  If its sums are exact, rows are computed from the tables if
    that is predicted to take less time than searches (``engine.api.from_tables.near``).

    Args:
        graph: the graph, or its profile; no weight may be negative.  Or an open prepared graph; negative whole weights
            are accepted then.
        options: the cutoff, sources and targets; memory and threads.  No other option may be set.
        nearest: the number of nearest targets that are kept for each source; of equally near ones, those of smaller
            index are kept.  None for all.
        monitor: receives progress, and is asked whether to stop.
        beside: bytes of memory that the caller will need for each pair.
        spill: a folder.  Pairs that do not fit in memory are written to unnamed files on the disk of this folder, and
            the arrays of the result read these files; None to refuse such a result.

    Returns:
        The pairs.  A source is no target of itself.  Distances are integers if all weights are, else float64.

    Raises:
        InvalidRequest: neither ``cutoff`` nor ``nearest`` is given, one is out of range, or a weight is negative.
        DoesNotFit: the result would need more memory than may be used, or more of the disk than is free.
        Cancelled: the monitor asked to stop.
        StorageFailed: pairs could not be written to the disk.
    """
    if isinstance(graph, PreparedMatrix):
        from engine.api.from_tables.near import PreparedNear

        return PreparedNear(graph, options, nearest=nearest).run(monitor, beside=beside, spill=spill)
    profile, options = GraphProfile.of(graph), given_options(options)
    graph = profile.graph
    check_paths(spill=spill)
    _check(profile, options, nearest)
    machine = survey(memory=options.memory, threads=options.threads)
    clock, asked = PhaseClock(given_monitor(monitor)), Rectangle.of(options, graph.n)
    inner, rectangle = profile.open(asked)
    each = ENTRY_BYTES + check_whole("beside", beside, 0)
    machine = _on_threads_that_fit(machine, inner.graph, each)
    budget = _budget(machine, inner.graph, each)
    clock.begin("search", len(asked.rows), "rows")
    team = Team(machine.threads)
    try:
        wanted = NearWanted(rectangle, asked.columns, asked.rows, asked.cutoff, nearest)
        with told_of_compiling(clock), closing(NearSearches(inner.arcs, wanted, graph.n)) as searches:
            _run(searches, team, clock, (budget, each), spill)
            found = searches.result()
    finally:
        team.close()
    clock.stop()
    return NearPairs(*found, asked.rows, graph.labels, asked.cutoff, nearest)


def _check(profile: GraphProfile, options: Options, nearest: int | None) -> None:
    """Raise InvalidRequest if searches cannot answer a request; see :func:`near_pairs`."""
    check_near(profile.graph, options, nearest)
    raised(not_searchable(profile, options.cutoff))


def check_near(graph: Graph, options: Options, nearest: int | None) -> None:
    """Raise InvalidRequest if a request for near pairs is wrong; the arcs of the graph are not looked at."""
    refuse_semiring(options, "a table of near pairs")
    check_lengths(graph)
    cutoff, usual = options.cutoff, Options()
    for name in _NOT_HERE:
        if getattr(options, name) != getattr(usual, name) and (name, options.device) != ("device", "cpu"):
            raise InvalidRequest(
                f"near pairs are searched by processors without further limits, so {name} cannot be given", field=name
            )
    check_vertices("sources", options.sources, graph.labels)
    check_vertices("targets", options.targets, graph.labels)
    if cutoff is None and nearest is None:
        raise InvalidRequest(
            "near pairs need a cutoff, or the number of nearest targets; for all distances, solve the graph",
            field="cutoff",
        )
    if nearest is not None:
        check_whole("nearest", nearest, 1)


def not_searchable(profile: GraphProfile, cutoff: float | None) -> InvalidRequest | None:
    """Return the error that says why searches cannot find the near pairs of a graph; None if they can."""
    least, largest = profile.weight_range
    if least < 0:
        return InvalidRequest(
            f"near pairs need weights that are not negative, and the least weight is {least:g}: a path may become "
            "shorter again beyond the cutoff; solve all distances with the cutoff instead",
            field="weight",
        )
    beyond = FAR if profile.graph.integral else math.inf
    if (cutoff is None or cutoff >= beyond) and profile.graph.n * largest >= beyond:
        return InvalidRequest(
            f"the weights are up to {largest:g}, so sums along a path may be too large for their type; give a cutoff",
            field="cutoff",
        )
    return None


def _on_threads_that_fit(machine: Machine, graph: Graph, each: int) -> Machine:
    """Return the machine with the most threads that take no more memory than they leave for pairs."""

    def needed(on: Machine) -> int:
        return _fixed(on, graph) + max(PIECE * each, SPACE_BYTES * graph.n * on.threads)

    return most_threads(machine, needed)


def _budget(machine: Machine, graph: Graph, each: int) -> int:
    """Return the largest number of pairs that fits in memory; raise DoesNotFit if not even the searches fit."""
    fixed = _fixed(machine, graph)
    if fixed + PIECE * each > machine.memory:
        raise DoesNotFit(
            f"{fixed} bytes ({gib(fixed)}) are needed to search this graph with "
            f"{machine.threads} thread{'s' if machine.threads != 1 else ''}, and "
            f"{machine.memory} ({gib(machine.memory)}) may be used; give it more memory",
            resource="memory",
            needed=fixed,
            available=machine.memory,
        )
    return (machine.memory - fixed) // each


def _fixed(machine: Machine, graph: Graph) -> int:
    """Return the bytes that the searches need in addition to the pairs that they find."""
    return SPACE_BYTES * graph.n * machine.threads + 40 * (graph.n + graph.arcs)


def too_many(count: int, found: str, rows: int, budget: int, each: int) -> DoesNotFit:
    """Return the error for a result that memory cannot hold.

    Args:
        count: the number of pairs, found or predicted.
        found: the beginning of the message, which says how this number was found.
        rows: the number of sources.
        budget: the number of pairs that fit in memory.
        each: bytes of a pair.
    """
    return DoesNotFit(
        f"near pairs: {found} of {rows:,} sources, and {budget:,} fit the memory that may be "
        f"used ({each} bytes per pair); take a smaller cutoff, fewer sources, or more memory",
        resource="memory",
        needed=count * each,
        available=budget * each,
    )


def _run(searches: NearSearches, team: Team, clock: PhaseClock, limits: tuple[int, int], spill: Path | None) -> None:
    """Search a sample of the sources, check that the result will fit, and search the rest.

    Args:
        searches: the searches.
        team: the threads.
        clock: receives the progress.
        limits: the number of pairs that fit in memory, and the bytes of a pair.
        spill: the folder on whose disk pairs are written if they do not fit in memory; None to refuse them.
    """
    (budget, each), rows = limits, searches.size

    def within(entries: int, predicted: float | None = None) -> None:
        if spill is not None and not searches.spills and max(searches.expected, predicted or 0) > budget:
            searches.begin_spilling(spill, int(predicted or entries), budget // 2)
            return
        if max(entries, predicted or 0) <= budget or (searches.spills and searches.held <= budget):
            return
        count = int(predicted or entries)
        found = f"about {count:,} pairs are predicted from" if predicted else f"already {count:,} pairs were found from"
        raise too_many(count, f"{found} {searches.rows:,}", rows, budget, each)

    sample = searches.sample()
    searches.run(team, sample, clock, within)
    within(searches.entries, searches.predicted())
    rest = sorted(set(searches.pieces) - set(sample))
    if rest:
        searches.run(team, rest, clock, within)


def spread_sources(options: Options, rows: int, most: int) -> tuple[int, ...]:
    """Return at most ``most`` sources (vertex indices), evenly spaced among all; ``rows`` is the number of all."""
    count = min(rows, most)
    places = [(2 * i + 1) * rows // (2 * count) for i in range(count)]
    return tuple(places if options.sources is None else (options.sources[place] for place in places))


class NearSample(NamedTuple):
    """A prediction for all sources, from a sample of them.

    Attributes:
        counts: float64, shape (sources,): the number of pairs of each source of the sample.
        seconds: the predicted time to find the pairs of all sources.
        dtype: the type of the distances.
        fixed: bytes of memory that are needed in addition to the pairs.
        found: how the pairs of the sample were found, for the plan.
    """

    counts: npt.NDArray[np.float64]
    seconds: float
    dtype: np.dtype[Any]
    fixed: int
    found: str


def plan_near(
    graph: Graph | GraphProfile | PreparedMatrix,
    options: Options,
    *,
    nearest: int | None = None,
    beside: int = 0,
    out: Path | None = None,
    spills: bool = False,
) -> Plan:
    """Plan near pairs, kept as sparse rows and as a table: size and time are predicted by searches from some sources.

    Args:
        graph: the graph, its profile, or an open prepared graph.
        options: the cutoff, sources and targets; memory and threads.
        nearest: the number of nearest targets that are kept for each source; None for all.
        beside: bytes of memory that the caller will need for each pair.
        out: the path of the result, whose disk must have space for it; None for a result in memory.
        spills: whether pairs that do not fit in memory are first written to that disk, as :func:`near_pairs` does with
            ``spill``.

    Returns:
        The plan: bytes of memory and disk, seconds; ``shape`` is that of the matrix, although no matrix is made.

    Raises:
        InvalidRequest: as :func:`near_pairs`.
        DoesNotFit: even a low estimate of the number of pairs fits neither in memory nor on the disk.
    """
    if isinstance(graph, PreparedMatrix):
        from engine.api.from_tables.near import PreparedNear

        return PreparedNear(graph, options, nearest=nearest).make_plan(beside=beside, out=out, spills=spills)
    profile, options = GraphProfile.of(graph), given_options(options)
    graph = profile.graph
    _check(profile, options, nearest)
    machine = survey(out=out, memory=options.memory, threads=options.threads)
    machine = _on_threads_that_fit(machine, graph, ENTRY_BYTES + beside)
    _budget(machine, graph, ENTRY_BYTES + beside)
    spill = folder_of(out) if spills else None
    sample = searched_sample(profile, options, nearest, spill)._replace(fixed=_fixed(machine, graph))
    return planned(graph, options, sample, machine, ENTRY_BYTES + beside, spills=spills)


def folder_of(out: Path | None) -> Path | None:
    """Return the nearest existing folder above ``out``, which is on the disk of the result; None if ``out`` is None."""
    return None if out is None else next(folder for folder in out.absolute().parents if folder.is_dir())


def searched_sample(
    profile: GraphProfile, options: Options, nearest: int | None, spill: Path | None = None
) -> NearSample:
    """Search from some sources, and predict size and time for all of them; the caller sets ``fixed`` of the result.

    Args:
        profile: the graph, for which :func:`not_searchable` must return None.
        options: the cutoff, sources and targets; memory and threads.
        nearest: the number of nearest targets that are kept for each source; None for all.
        spill: a folder on whose disk pairs are written if they do not fit in memory; None to raise an error then.
    """
    rows = _row_count(options, profile.graph)
    for most in _SAMPLES:
        began = working_time()
        some = replace(options, sources=spread_sources(options, rows, most)) if rows else options
        found = near_pairs(profile, some, nearest=nearest, spill=spill)
        spent, counts = working_time() - began, np.diff(found.indptr).astype(np.float64)
        if spent > _SAMPLE_SECONDS or len(counts) == rows:
            break
    seconds = spent * rows / max(1, len(counts))
    return NearSample(counts, seconds, found.lengths.dtype, 0, f"searches from {len(counts):,} of {rows:,} sources")


def _row_count(options: Options, graph: Graph) -> int:
    return graph.n if options.sources is None else len(options.sources)


def planned(
    graph: Graph, options: Options, sample: NearSample, machine: Machine, each: int, *, spills: bool = False
) -> Plan:
    """Return the plan for near pairs of all sources, with sizes and times predicted from a sample.

    Args:
        graph: the graph.
        options: the cutoff, sources and targets; memory and threads.
        sample: the prediction from some sources.
        machine: memory, disk and threads.
        each: bytes of memory for each pair.
        spills: whether pairs that do not fit in memory are first written to the disk.

    Raises:
        DoesNotFit: even a low estimate of the number of pairs fits neither in memory nor on the disk.
    """
    counts, rows = sample.counts, _row_count(options, graph)
    mean = float(counts.mean()) if rows else 0.0
    error = float(counts.std(ddof=1)) / math.sqrt(len(counts)) if 1 < len(counts) < rows else 0.0
    least, entries = int(max(0.0, mean - 2 * error) * rows), int(mean * rows)
    budget = (machine.memory - sample.fixed) // each
    if least > budget and not spills:
        raise too_many(least, f"about {least:,} pairs are predicted from {len(counts):,}", rows, budget, each)
    size, labels = 4 + sample.dtype.itemsize, 16 * (graph.n + rows)
    # pairs that are first written to the disk take the same space again in the result; ``PairSpill`` checks both
    waits = entries > budget
    needed = least * max(size, 2 * SPILLED_BYTES if waits else 0)
    if machine.disk is not None and needed > machine.disk:
        raise DoesNotFit(
            f"near pairs: about {least:,} are predicted, {needed} bytes ({gib(needed)}), and of disk "
            f"{machine.disk} ({gib(machine.disk)}) are free; take a smaller cutoff or fewer sources",
            resource="disk",
            needed=needed,
            available=machine.disk,
        )
    phases = (Phase("search", sample.seconds, entries * size),)
    disk = entries * (size + _TABLE_ENTRY + (SPILLED_BYTES if waits else 0)) + labels
    memory = sample.fixed + min(entries, budget) * each
    made = Candidate("near", memory, disk, sample.seconds, phases)
    return Plan(
        algorithm="near",
        dtype=sample.dtype.name,
        device="cpu",
        threads=machine.threads,
        shape=(rows, graph.n if options.targets is None else len(options.targets)),
        memory=made.memory,
        disk=made.disk,
        seconds=made.seconds,
        reason=f"about {entries:,} pairs, predicted from {sample.found}",
        dtype_reason="whole weights stay whole numbers" if graph.integral else _FRACTIONS,
        device_reason="near pairs are searched by processors",
        phases=phases,
        candidates=(made,),
        cutoff=options.cutoff,
    )


def near_offered(refusal: DoesNotFit, graph: Graph | GraphProfile, options: Options) -> DoesNotFit:
    """Add an offer of near pairs to the refusal of a solve with a cutoff, if they take far less space than the matrix.

    Args:
        refusal: the error that says why the matrix does not fit.
        graph: the graph, or its profile.
        options: the options of the refused solve.

    Returns:
        ``refusal`` itself if near pairs need too much space, too, or if the options do not suit them.
    """
    profile = GraphProfile.of(graph)
    graph, bounded = profile.graph, options.cutoff is not None and options.max_hops is None
    if not bounded or options.executor != "local" or graph.n + graph.arcs > OFFERED_SIZE:
        return refusal
    if refusal.resource not in ("disk", "memory"):
        return refusal
    rows = len(options.sources) if options.sources is not None else graph.n
    some = spread_sources(options, rows, OFFERED_SOURCES)
    asked = Options(cutoff=options.cutoff, sources=some, targets=options.targets, threads=options.threads)
    began = working_time()
    try:
        found = near_pairs(profile, asked)
    except ApspError:  # near pairs fail, too, and the original refusal explains more
        return refusal
    entries = found.entries * rows // len(some)
    if entries * ENTRY_BYTES > FAVOURABLE * refusal.needed:
        return refusal
    seconds = (working_time() - began) * rows / len(some)
    machine = _on_threads_that_fit(survey(memory=options.memory, threads=options.threads), graph, ENTRY_BYTES)
    memory, size = _fixed(machine, graph) + entries * ENTRY_BYTES, 4 + found.lengths.itemsize + _TABLE_ENTRY
    if memory > machine.memory:
        return refusal
    said = "makes no matrix, but keeps the pairs up to the cutoff: apsp near"
    found_beside = Candidate("near", memory, entries * size, seconds, rejected=said)
    return refusal.offering(
        found_beside,
        f"near pairs: about {entries:,} ({gib(entries * ENTRY_BYTES)} of memory; apsp near --cutoff keeps "
        "them without a matrix)",
    )
