"""Prepares a graph: computes tables, about as large as the graph, that answer every distance.

With new weights the parts and their order stay; either all tables are computed again, or only those that may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Unpack

import numpy as np
import numpy.typing as npt

from engine.algorithms.both_ways import FoundTables, find_tables
from engine.algorithms.eliminated import Eliminated
from engine.algorithms.part_lengths import PartWork
from engine.algorithms.reweighting import Touched, change_tables
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.api.prepared_planning import plan_prepared
from engine.api.solve import Outcome, store_attributes
from engine.graph.partition import CPU_GRAIN, Parts
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.graph.terminals import arrivals
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor, PhaseClock, told_of_compiling
from engine.planning.binding import check_plan
from engine.streaming.part_journal import PartJournal, identity_of, keep_dissection
from storage.errors import Conflict, InvalidRequest
from storage.files.writing import Writing
from storage.graph.graph import Graph
from storage.graph.new_weights import ArcWeights, NewGraph, arc_weights, read_weights, reweighted
from storage.matrix.frame import MatrixSpec
from storage.options import ReadingOptions
from storage.prepared.journal import PreparedJournal
from storage.prepared.writer import TABLE_CHUNK, PreparedWriter
from storage.remote.generation import Generation
from storage.remote.objects import address_of
from storage.remote.places import prepared_place, reweighted_place

__all__ = ["plan_prepared", "prepare", "reweight"]

PART_ARRAYS = ("position", "starts", "parents", "ends", "borders")


def prepare(
    graph: Graph | GraphProfile,
    out: str | Path | tuple[Path, Generation | None],
    options: Options | None = None,
    *,
    plan: Plan | None = None,
    overwrite: bool = False,
    monitor: Monitor | None = None,
    work: Path | None = None,
) -> Outcome:
    """Prepare a graph into a new folder and seal it; ``open`` answers every distance from it.

    A long run commits what it has done about every ten seconds.  If it is stopped or killed, the next one of the same
    graph and type into the same folder goes on from there, with the same result to the last bit.

    Args:
        graph: the graph, or its profile, which keeps what planning has found.
        out: the folder, whose parent must exist, or an address in an object store (``s3://BUCKET/PREFIX``);
            or what ``storage.remote.places.prepared_place`` returns: the folder to work in, and the objects to send.
        options: type, memory, threads and cutoff: longer distances are answered as unreachable.
        plan: from :func:`plan_prepared`; None to make one.
        overwrite: replace a store at ``out`` once the new one is done.
        monitor: receives progress, and is asked whether to stop.
        work: with an address, the folder to work in, which keeps the commits; None for one in the user's cache.

    Returns:
        The plan that was followed, the seconds of each phase, and facts about the tables; ``resumed`` is how many parts
        of each step an earlier run had done.

    Raises:
        Conflict: there is something at ``out``, and ``overwrite`` was not asked for; or another process writes it.
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk or the object store refused.
        InvalidRequest, DoesNotFit, NegativeCycle: as :func:`plan_prepared`.
    """
    place, sent = out if isinstance(out, tuple) else prepared_place(out, work, overwrite=overwrite)
    with Writing(place, "prepare"):
        return _prepared(GraphProfile.of(graph), (place, sent), (options or Options(), plan), overwrite, monitor)


def _prepared(
    profile: GraphProfile,
    place: tuple[Path, Generation | None],
    asked: tuple[Options, Plan | None],
    overwrite: bool,
    monitor: Monitor | None,
) -> Outcome:
    """Prepare a graph into a place that no other process writes."""
    (out, sent), (options, plan) = place, asked
    if plan is None:
        plan = plan_prepared(profile, options, out=out)
    check_plan(plan, profile.graph, options)
    clock = PhaseClock(monitor or Monitor())
    inner, _ = profile.open(Rectangle.of(options, profile.graph.n))
    clock.begin("partition", inner.graph.arcs, "arcs")
    parts = inner.parts(CPU_GRAIN)
    clock.step(inner.graph.arcs)
    with PreparedJournal(out, identity_of(profile)) as kept:
        keep_dissection(inner, kept)
        arrays = {name: getattr(parts, name) for name in PART_ARRAYS}
        spec = spec_of(profile.graph, plan)
        with PreparedWriter(out, profile.graph, spec, arrays, overwrite=overwrite, remote=sent) as writer:
            found, resumed = found_anew(inner, parts, plan, clock, kept)
            write_tables(writer, found, clock)
        kept.finish()
    clock.stop()
    return Outcome(plan, clock.seconds, {**facts_of(parts, found), "resumed": resumed})


def spec_of(graph: Graph, plan: Plan) -> MatrixSpec:
    """Return type and attributes of a prepared graph."""
    kind = WORK_TYPES[plan.dtype]
    return MatrixSpec(kind.dtype, kind.unreachable, attributes=store_attributes(graph, plan))


@contextmanager
def working(inner: GraphProfile, parts: Parts, plan: Plan, clock: PhaseClock) -> Iterator[PartWork]:
    """Context manager: what computing the lengths of parts takes, with threads of its own.

    Args:
        inner: the graph, opened.
        parts: its parts.
        plan: says type and threads.
        clock: receives the progress.
    """
    from engine.devices.cpu.backend import CpuBackend

    backend = CpuBackend(plan.threads)
    try:
        with told_of_compiling(clock):
            yield PartWork(backend, inner.graph, parts, WORK_TYPES[plan.dtype], inner.nonnegative, clock)
    finally:
        backend.shutdown()


def found_anew(
    inner: GraphProfile, parts: Parts, plan: Plan, clock: PhaseClock, kept: PreparedJournal
) -> tuple[FoundTables, dict[str, int]]:
    """Find all tables, going on from what was committed.

    Args:
        inner: the graph, opened.
        parts: its parts.
        plan: says type and threads.
        clock: receives the progress.
        kept: what an earlier run has committed; receives what this one does.

    Returns:
        The tables, and how many parts of each step were not computed again.

    Raises:
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk refused.
    """
    journal = PartJournal(kept)
    with working(inner, parts, plan, clock) as work:
        found = find_tables(work, journal)
    return found, journal.resumed


def write_tables(
    writer: PreparedWriter, found: FoundTables, clock: PhaseClock, same: dict[str, frozenset[int]] | None = None,
    replaces: PreparedMatrix | None = None,
) -> None:  # fmt: skip
    """Write tables and what elimination found, and seal.

    Args:
        writer: of the prepared graph.
        found: the tables.
        clock: receives the progress, in bytes.
        same: the chunks of each table that are those of the prepared graph that the new one comes from.
        replaces: the prepared graph that must still be at the path; None for any.

    Raises:
        Cancelled: the monitor asked to stop.
        StorageFailed: the disk refused.
        Conflict: meanwhile something else has appeared at the path.
    """
    tables = (
        {"forward": found.forward} if found.backward is None else {"forward": found.forward, "backward": found.backward}
    )
    clock.begin("write", sum(table.nbytes for table in tables.values()), "bytes")
    for name, table in tables.items():
        writer.add_table(name, table, clock.step, (same or {}).get(name, frozenset()))
    writer.add_eliminated((found.eliminated.upward, found.eliminated.across, found.eliminated.rests))
    clock.begin("seal", 1, "store")
    if replaces is not None:
        _check_current(replaces)
    writer.seal()
    clock.advance(1)


def facts_of(parts: Parts, found: FoundTables) -> dict[str, object]:
    """Return the number of parts, and entries and bytes of the tables."""
    tables = [found.forward] if found.backward is None else [found.forward, found.backward]
    return {
        "parts": parts.count,
        "entries": sum(len(table) for table in tables),
        "bytes": sum(table.nbytes for table in tables),
    }


#: Where more than this share of the parts holds changed arcs or lies above them, all tables are computed.
MOST: Final = 0.5

_COMPACT: Final = (
    "{} is in the compact form, which keeps no tables to change; prepare the graph with its new weights again"
)

#: Weights as arrays: labels of tails and heads, and numbers.
Arrays = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]


def reweight(
    prepared: str | Path,
    weights: str | Path | Arrays,
    *,
    out: str | Path | None = None,
    changed: bool = False,
    overwrite: bool = False,
    options: Options | None = None,
    monitor: Monitor | None = None,
    **reading: Unpack[ReadingOptions],
) -> Outcome:
    """Give a prepared graph new weights; its vertices, arcs, parts and their order stay.

    A weight of +inf closes an arc; later weights may open it.  The result is what preparing with these parts would
    make, to the last bit.  Files that stay the same are shared with ``prepared`` (hard links), and each folder can be
    moved or removed alone.

    Args:
        prepared: the folder of a prepared graph, or its address in an object store.
        weights: a graph file of any format that lists the arcs, in any order; or three arrays: labels of tails, labels
            of heads, numbers.
        out: the new folder or address; None to replace ``prepared`` in one step once the new tables are sealed.
        changed: only arcs with new weights are given; else every arc that is not closed must be.
        overwrite: replace a store at ``out`` once the new one is done.
        options: type, memory, threads and cutoff; unless said otherwise, the cutoff of ``prepared`` stays, and so does
            float64 where the new weights are not whole.
        monitor: receives progress, and is asked whether to stop.
        reading: how the file is read, as in ``read_graph``.

    Returns:
        The plan, the seconds of each phase, and facts: arcs with other weights, closed arcs, parts that were eliminated
        again, and tables that differ.

    Raises:
        NotFound: an arc is given that the graph does not have, or an arc is missing; with its name and line.
        Conflict: there is something at ``out``, or ``prepared`` was replaced meanwhile, or another process writes it.
        Cancelled: the monitor asked to stop; what was there is as before.
        StorageFailed: the disk refused, or ``prepared`` is damaged.
        InvalidRequest, DoesNotFit, NegativeCycle: as in ``prepare``.
    """
    replaces = overwrite or out is None
    clock, options = PhaseClock(monitor or Monitor()), options or Options()
    with ExitStack() as stack:
        found = stack.enter_context(open_result(address_of(prepared) or prepared))
        if not isinstance(found, PreparedMatrix):
            raise InvalidRequest(
                f"{prepared} is a solved store; only prepared graphs get new weights", field="prepared"
            )
        if found.compact:
            raise InvalidRequest(_COMPACT.format(found.path), field="prepared")
        target, sent = reweighted_place(found, out, overwrite=overwrite)
        stack.enter_context(Writing(target, "reweight"))
        clock.begin("weights", 1, "file")
        if options.cutoff is None:
            options = replace(options, cutoff=found.attributes["cutoff"])
        given = _given(weights, found, reading)
        new = reweighted(found.graph(), found.closed(), given, changed=changed)
        clock.step(1)
        clock.begin("plan", 1, "plan")
        if options.dtype == "auto" and found.dtype == np.float64 and not new.graph.integral:
            options = replace(options, dtype="float64")  # no digits are lost unasked
        base = _Base(found, new)
        plan = plan_prepared(base.profile, options, out=target)
        clock.step(1)
        kept = stack.enter_context(PreparedJournal(target, {**identity_of(base.profile), "reweighted": True}))
        _check_current(found)
        facts = _sealed(base, plan, clock, kept, (target, replaces, sent))
        kept.finish()
    clock.stop()
    return Outcome(plan, clock.seconds, facts)


class _Base:
    """The prepared graph that new weights are for, and the new graph with its parts."""

    def __init__(self, old: PreparedMatrix, new: NewGraph) -> None:
        self.old, self.new, self.profile = old, new, GraphProfile(new.graph)
        self.inner, _ = self.profile.open(Rectangle.of(Options(), new.graph.n))
        self.parts = self.inner.given_parts = old.parts()

    def holds(self) -> npt.NDArray[np.bool_]:
        """Return the parts that hold changed arcs, shape (parts,)."""
        graph, position = self.new.graph, self.parts.position
        tails, heads = np.divmod(self.new.changed, max(1, graph.n))
        heads = arrivals(heads, graph.n, graph.terminals)
        holds = np.zeros(self.parts.count, np.bool_)
        holds[self.parts.owner()[np.minimum(position[tails], position[heads])]] = True
        return holds

    def tables(self, plan: Plan) -> FoundTables | None:
        """Return the tables that new ones can be made of; None where all must be computed."""
        old, type_stays = self.old, np.dtype(plan.dtype) == self.old.dtype
        if not (type_stays and self.inner.nonnegative and old.least_weight >= 0):
            return None
        if _and_above(self.parts, self.holds()) > MOST * self.parts.count + 1:
            return None
        arrays, forward = old.eliminated(), old.table("forward")
        assert forward is not None  # a prepared graph without it does not open
        return (
            None if arrays is None else FoundTables(forward, old.table("backward"), Eliminated.of(self.parts, *arrays))
        )


def _given(weights: str | Path | Arrays, found: PreparedMatrix, reading: ReadingOptions) -> ArcWeights:
    if not isinstance(weights, tuple):
        if reading.get("unweighted"):
            raise InvalidRequest("new weights cannot be 'unweighted'", field="unweighted")
        return read_weights(weights, reading, directed=found.directed)
    if reading:
        raise InvalidRequest(f"{next(iter(reading))!r} says how a file is read, and arrays are given", field="weights")
    return arc_weights(*weights)


def _check_current(old: PreparedMatrix) -> None:
    """Refuse to go on from a prepared graph that another process has replaced.  Raises Conflict."""
    if not old.current():
        raise Conflict(f"{old.path} was replaced by another process meanwhile; ask again")


def _and_above(parts: Parts, holds: npt.NDArray[np.bool_]) -> int:
    """Return how many parts are in ``holds`` or above one that is."""
    again = holds.copy()
    for i, above in enumerate(parts.parents.tolist()):
        if again[i] and above >= 0:
            again[above] = True
    return int(again.sum())


def _sealed(
    base: _Base, plan: Plan, clock: PhaseClock, kept: PreparedJournal, place: tuple[Path, bool, Generation | None]
) -> dict[str, object]:
    """Make the new tables, write and seal them; return facts."""
    parts, new, facts = base.parts, base.new, {}
    target, replaces, sent = place
    clock.begin("read tables", 1, "store")
    tables, same = base.tables(plan), None
    clock.step(1)
    if tables is None:
        tables, facts["resumed"] = found_anew(base.inner, parts, plan, clock, kept)
        touched = Touched(*(np.ones(parts.count, np.bool_) for _ in range(3)))
    else:
        with working(base.inner, parts, plan, clock) as work:
            touched = change_tables(work, tables, base.holds())
        same = {"forward": _same_chunks(base, "forward", touched.forward)}
        if tables.backward is not None:
            same["backward"] = _same_chunks(base, "backward", touched.backward)
    spec = spec_of(new.graph, plan)
    with PreparedWriter(target, new.graph, spec, {}, overwrite=replaces, base=base.old, remote=sent) as writer:
        writer.add_closed(new.closed)
        in_place = target == Path(base.old.path).absolute()
        write_tables(writer, tables, clock, same, base.old if in_place else None)
    return {
        **facts_of(parts, tables),
        **facts,
        "changed": len(new.changed) if new.graph.directed else len(new.changed) // 2,
        "closed": len(new.closed) if new.graph.directed else len(new.closed) // 2,
        "eliminated": int(touched.eliminated.sum()),
        "differ": int((touched.forward | touched.backward).sum()),
    }


def _same_chunks(base: _Base, name: str, touched: npt.NDArray[np.bool_]) -> frozenset[int]:
    """Return the chunks of a table that no touched part has entries in."""
    entries = base.parts.sizes * base.parts.widths()
    ends = np.cumsum(entries)
    total = int(ends[-1]) if len(ends) else 0
    chunk = max(1, min(TABLE_CHUNK, total))
    if base.old.chunk_of(name) != chunk:
        return frozenset()
    some = np.flatnonzero(touched & (entries > 0))
    spans = zip(((ends - entries)[some] // chunk).tolist(), ((ends[some] - 1) // chunk).tolist(), strict=True)
    written = {k for first, last in spans for k in range(first, last + 1)}
    return frozenset(range(-(-total // chunk))) - written
