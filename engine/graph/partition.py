"""Partition of a graph into nested parts with small separators, for the partitioned algorithm.

A *part* is a set of vertices that are eliminated together.  Its *border* is the set of later vertices that are its
neighbours once all earlier vertices are eliminated.  Parts form a tree: the border of a part lies in the parts above
it.  A path that leaves the part and everything below it passes through the border, which is all that
``engine.algorithms.partitioned`` needs.

The order of elimination begins with vertices of few neighbours; the others follow by nested dissection (George, "Nested
dissection of a regular finite element mesh", 1973) with METIS (Karypis and Kumar 1998).  Then vertices are merged into
parts as long as that lowers the cost.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.graph.metis import elimination_order
from engine.graph.ordering import fixed
from engine.model.device_layout import SHALLOW
from engine.model.plan import Plan
from engine.model.problem import Machine, PartsFacts, Problem, changed
from engine.model.progress import NotCompiledError, only_ready, working_time
from engine.planning import cost_dijkstra
from engine.planning.constants import ENTRY_SECONDS
from engine.planning.refusal import about_seconds, seconds_text
from storage.graph.cleaning import FEW_ARCS

if TYPE_CHECKING:
    from engine.graph.profile import GraphProfile
    from storage.graph.graph import Graph

#: Seconds that METIS and the elimination take for each vertex and arc; a cautious estimate.
TRIAL_SECONDS: Final = 1e-6
#: A trial partition is made if parts may save at least WORTHWHILE times the seconds that the trial takes.  They save at
#: most the predicted seconds of the solve without parts, minus the least seconds of a sweep over parts.
WORTHWHILE: Final = 20.0
#: The value in place of WORTHWHILE for graphs as long as lattices: the hops across are at least LATTICE times the
#: square root of n, so the separators are probably small (decision 278).
LONG_WORTHWHILE: Final = 2.0
#: The value in place of WORTHWHILE if a GPU would search a graph of many hops: such graphs mostly have small
#: separators, so a sweep is much faster than the searches.
DEVICE_WORTHWHILE: Final = 1.0
#: The search for articulation vertices takes LOOK_SECONDS for each vertex and arc.  It is made if it takes at most
#: LOOK_SHARE of the seconds of the remaining solve.
LOOK_SECONDS: Final = 4e-9
LOOK_SHARE: Final = 0.04
#: Seconds that METIS and the elimination take for each vertex and arc of a graph that single vertices divide into dense
#: pieces.  METIS soon finds that a dense piece cannot be divided.  Measured on cliques, barbells and lollipops: 0.05 to
#: 0.07 us.
BRIDGED_SECONDS: Final = 8e-8
#: A graph with at least this number of arcs per vertex counts as one with dense pieces.  In a sparser graph METIS takes
#: ten times as long for each arc, and finds no useful parts.
DENSE_PIECES: Final = 16
#: Floyd-Warshall on the pieces of a graph reaches this share of the update rate that it reaches on a whole graph.
BRIDGED_RATE: Final = 0.5
#: The largest number of bytes that finding parts takes for each entry of the borders of single vertices, before these
#: vertices are merged into parts.
ENTRY_BYTES: Final = 16

#: Seconds to compile the kernels of a partition, once per machine.  If these kernels are not compiled yet, a solve that
#: is predicted to be shorter than this gets no parts.
COMPILING_SECONDS: Final = 10.0

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Grain:
    """Costs that decide how large parts become, expressed in updates of one row of the matrix.

    Attributes:
        width: columns that a product computes at once; products are padded to a multiple of this number of columns.
        entry: cost of gathering an entry of a border.
        part: cost of beginning a product.
        inside: cost of an update while parts are eliminated, which is done once, before any row is computed.
    """

    width: int
    entry: float
    part: float
    inside: float


#: Costs on a processor, where a product has few rows, and beginning a product is cheap.
CPU_GRAIN: Final = Grain(width=16, entry=40.0, part=200.0, inside=10.0)
#: Costs on a GPU, where a launch takes as long as many updates.
DEVICE_GRAIN: Final = Grain(width=32, entry=100.0, part=5_000.0, inside=100.0)


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a graph in the order in which they are eliminated; a *position* is a vertex's place in that order.

    Attributes:
        position: int64, shape (n,): the position of each vertex.
        starts: int64, shape (parts + 1,): part i holds the positions ``starts[i]:starts[i + 1]``.
        parents: int32, shape (parts,): the part that holds the first vertex of the border; -1 if the border is empty.
        ends: int64, shape (parts + 1,): the border of part i is ``borders[ends[i]:ends[i + 1]]``.
        borders: int32: the positions in all borders, ascending in each border.
    """

    position: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    parents: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]
    borders: npt.NDArray[np.int32]

    @property
    def count(self) -> int:
        """The number of parts."""
        return len(self.parents)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The number of vertices of each part, shape (parts,)."""
        return np.diff(self.starts)

    @property
    def depths(self) -> npt.NDArray[np.int64]:
        """The number of vertices of each part's border, shape (parts,)."""
        return np.diff(self.ends)

    def border(self, i: int) -> npt.NDArray[np.int32]:
        """Return the border of part ``i`` as positions, ascending."""
        return self.borders[self.ends[i] : self.ends[i + 1]]

    def owner(self) -> npt.NDArray[np.int32]:
        """Return the part that holds each position, int32, shape (n,)."""
        return np.repeat(np.arange(self.count, dtype=np.int32), self.sizes)

    def widths(self) -> npt.NDArray[np.int64]:
        """Return the number of vertices of each part together with all parts above it, shape (parts,)."""
        wide = self.sizes.copy()
        for i in range(self.count - 1, -1, -1):
            if self.parents[i] >= 0:
                wide[i] += wide[self.parents[i]]
        return wide

    def lows(self) -> npt.NDArray[np.int64]:
        """Return the lowest number of the parts below each part (its own if there are none), shape (parts,)."""
        lows = np.arange(self.count)
        for i, above in enumerate(self.parents.tolist()):
            if above >= 0:
                lows[above] = min(lows[above], lows[i])
        return lows

    def updates(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return, for each part, the number of updates to eliminate it, and to find its lengths to all parts above."""
        size, depth = self.sizes, self.depths
        return size**3 + 2 * size**2 * depth + size * depth**2, size * depth * (self.widths() - size)

    def facts(self, grain: Grain, seconds: float) -> PartsFacts:
        """Return the sizes and costs that planning needs; ``seconds`` is the time that finding the parts took."""
        size, depth, wide = self.sizes, self.depths, self.widths()
        padded = -(-size // grain.width) * grain.width
        overhead = grain.entry * depth.sum() + grain.part * np.count_nonzero(depth)
        inside, above = self.updates()
        return PartsFacts(
            count=self.count,
            largest=int(size.max(initial=0)),
            border=int(depth.max(initial=0)),
            sweep=int(padded @ depth) + int(overhead),
            prepare=int(inside.sum() + above.sum()),
            entries=int(size @ wide + 3 * padded @ depth + depth @ depth + 3 * ((size + depth) ** 2).max(initial=0)),
            seconds=seconds,
            table=int(size @ wide),
            above=int(above.sum()),
            closed=int(size @ size),
        )


@dataclass(frozen=True)
class Lengths:
    """The lengths for each part that ``engine.algorithms.partitioned`` computes before it sweeps.

    Attributes:
        tables: for each part, shape (size, width): lengths from the part's vertices to the part itself and to all parts
            above, the parent first; all tables are views of ``flat``, one after the other.
        across: for each part, shape (border, size): lengths from the border to the part, through the part and the parts
            below it.
        flat: one-dimensional array of all tables.
    """

    tables: list[Array]
    across: list[Array]
    flat: Array


#: Four arrays: the step at which each vertex is eliminated; for each step, the index at which its border begins; all
#: borders; and the parent of each step in the elimination tree (see ``_elimination.eliminate``).
Dissection = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]


def find_parts(profile: GraphProfile, grain: Grain, most: int) -> Parts | None:
    """Find the parts of a graph.

    This takes about 5 microseconds and 45 bytes for each vertex and arc, and ``ENTRY_BYTES`` for each entry of borders.

    Args:
        profile: the graph; the profile caches its dissection and its parts.
        grain: costs that decide how large parts become.
        most: the largest number of entries of all borders together, each vertex being a part of its own, before
            vertices are merged into parts.

    Returns:
        The parts; None if the borders have more than ``most`` entries.
    """
    if profile.given_parts is not None:
        return profile.given_parts
    found = profile.dissection(most)
    if found is None:
        return None
    if grain in profile.found_parts:
        return profile.found_parts[grain]
    from engine.graph._elimination import arrange, merge

    rank, begin, border, parent = found
    inside = grain.inside / max(1, profile.graph.n)
    last = merge(parent, np.diff(begin), grain.width, grain.entry, grain.part, inside)
    position, *parts = arrange(parent, last, begin, border)
    profile.found_parts[grain] = Parts(position[rank], *parts)
    return profile.found_parts[grain]


def dissect(graph: Graph, most: int) -> Dissection | None:
    """Return an order of elimination and its borders; None if they have more than ``most`` entries (``find_parts``)."""
    from engine.graph._elimination import eliminate

    pattern = _pattern(graph)
    order, rank = elimination_order(pattern.indptr.astype(np.int32), pattern.indices.astype(np.int32))
    begin, border, parent, finished = eliminate(pattern.indptr, pattern.indices, order, rank, most)
    return (rank, begin, border, parent) if finished else None


class _Pattern(NamedTuple):
    """The neighbours of each vertex, regardless of the direction of arcs, in compressed sparse rows."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]


def _pattern(graph: Graph) -> _Pattern:
    """Return the neighbours of each vertex, regardless of the direction of arcs."""
    n = graph.n
    if not graph.directed:
        return _Pattern(graph.indptr, graph.heads.astype(np.int64))
    if graph.arcs <= FEW_ARCS:  # sorting few arcs takes less time than the import of scipy.sparse
        tails = np.repeat(np.arange(n), np.diff(graph.indptr))
        ends = np.sort(np.concatenate([tails * n + graph.heads, graph.heads * np.int64(n) + tails]))
        rows, heads = np.divmod(ends[np.diff(ends, prepend=-1) > 0], max(1, n))
        return _Pattern(np.searchsorted(rows, np.arange(n + 1)), heads)
    from scipy.sparse import csr_array

    arcs = csr_array((np.ones(graph.arcs, np.int8), graph.heads, graph.indptr), shape=(n, n))
    both = (arcs + arcs.T).tocsr()
    return _Pattern(both.indptr, both.indices)


def with_trial(profile: GraphProfile, problem: Problem, plan: Plan, machine: Machine, *, wait: bool = False) -> Problem:
    """Make a trial partition if it may save more time than it takes.

    The trial may take only a small share of the time of ``plan``.  It is abandoned as soon as the borders are so large
    that a row computed over the parts would take longer than ``plan`` predicts.

    Args:
        profile: the graph.
        problem: the problem that the graph poses.
        plan: the plan without a partition.
        machine: rates and memory.
        wait: whether to wait for kernels that are not compiled even if the solve is short.

    Returns:
        ``problem`` with the sizes of its parts, or with the reason why there are none.
    """
    if problem.max_hops is not None or problem.parts is not None:
        return problem
    work, saved = _work(plan), saved_by_parts(problem, plan, machine)
    took = TRIAL_SECONDS * (problem.n + problem.arcs)
    if saved < _worthwhile(profile, problem, plan, saved / max(took, 1e-9)) * took:
        times = f"{about_seconds(took)}, and all of {plan.algorithm} {seconds_text(work)}"
        return changed(problem, no_parts=f"a trial partition takes {times}")
    try:
        with _patience(math.inf if wait else work):
            return with_parts(profile, problem, _most_entries(problem, plan, machine), device=machine.cuda is not None)
    except NotCompiledError:
        why = f"kernels that find parts are not compiled here, and all of {plan.algorithm} takes {seconds_text(work)}"
        return replace(problem, no_parts=why)


def with_bridges(
    profile: GraphProfile, problem: Problem, plan: Plan, machine: Machine, *, wait: bool = False
) -> Problem:
    """Partition a graph that single vertices divide into much smaller pieces.

    Dense pieces that are joined by bridges, as in barbells and lollipops, are solved one by one in a fraction of the
    time, and one pass over the arcs finds the bridges.  This is done before any rate of the machine is measured,
    because measuring can take longer than such a solve.

    Args:
        profile, problem, plan, machine, wait: as for :func:`with_trial`.

    Returns:
        ``problem`` with the sizes of its parts; ``problem`` itself if the pieces are not much smaller than the graph.
    """
    if problem.max_hops is not None or problem.parts is not None or problem.arcs < DENSE_PIECES * problem.n:
        return problem
    if not any(phase.name == "relax" for phase in plan.phases):
        return problem  # searches visit each arc once per source, so pieces do not make them faster
    work, size = _work(plan), problem.n + problem.arcs
    look = LOOK_SECONDS * (size + problem.arcs if problem.directed else size)
    if work * LOOK_SHARE < look or work < BRIDGED_SECONDS * size:
        return problem
    try:
        with _patience(math.inf if wait else work):
            left = _cubes(profile.graph) / max(1, problem.n) ** 3 / BRIDGED_RATE
            if work * (1 - left) < BRIDGED_SECONDS * size:
                return problem
            return with_parts(profile, problem, _most_entries(problem, plan, machine), device=machine.cuda is not None)
    except NotCompiledError:
        return problem


def _patience(work: float) -> AbstractContextManager[None]:
    """Context manager: if a solve of ``work`` seconds is short, raise NotCompiledError instead of compiling kernels."""
    return nullcontext() if work >= COMPILING_SECONDS else only_ready()


def _cubes(graph: Graph) -> float:
    """Return the sum of the cubes of the sizes of the pieces into which single vertices divide the graph."""
    from engine.graph._elimination import block_cubes
    from engine.graph._walks import both_ways
    from engine.graph.kernels.plain import call

    form, work = (fixed(graph.indptr), fixed(graph.heads)), graph.n + graph.arcs
    if graph.directed:
        form = call(both_ways, *form, work=work)
    return float(call(block_cubes, *form, work=work))


def _work(plan: Plan) -> float:
    """Return the predicted seconds of all phases except writing."""
    return sum(phase.seconds for phase in plan.phases if phase.name != "write")


def saved_by_parts(problem: Problem, plan: Plan, machine: Machine, passes: float = 1.0) -> float:
    """Return the most seconds that parts can save: a sweep takes at least ``ENTRY_SECONDS`` for each entry.

    Args:
        problem: the problem that the graph poses.
        plan: the plan without a partition.
        machine: rates and memory.
        passes: the factor by which searches may take longer than predicted.
    """
    least = problem.rows * problem.n * ENTRY_SECONDS / machine.threads if plan.device == "cpu" else 0.0
    return passes * _work(plan) - least


def _most_entries(problem: Problem, plan: Plan, machine: Machine) -> int:
    """Return the largest number of entries of borders that fit the memory and let a sweep be faster than ``plan``."""
    rates = machine.relax_rate if plan.device == "cpu" or machine.cuda is None else machine.cuda.relax_rate
    most = int(_work(plan) / max(1, problem.rows) * rates[plan.dtype])
    return min(most, machine.memory // ENTRY_BYTES)


def _worthwhile(profile: GraphProfile, problem: Problem, plan: Plan, found: float) -> float:
    """Return the least ratio of seconds saved to seconds taken for a trial; ``found`` is the expected ratio."""
    if plan.device == "cuda" and problem.hops > SHALLOW:
        return DEVICE_WORTHWHILE
    if LONG_WORTHWHILE <= found < WORTHWHILE and cost_dijkstra.is_lattice(replace(problem, across=profile.hops_across)):
        return LONG_WORTHWHILE
    return WORTHWHILE


def with_parts(profile: GraphProfile, problem: Problem, most: int, *, device: bool = True) -> Problem:
    """Partition a graph.

    Args:
        profile: the graph.
        problem: the problem that the graph poses.
        most: the largest number of entries of all borders together, as in :func:`find_parts`.
        device: whether parts that suit a GPU are also wanted.

    Returns:
        ``problem`` with the sizes of its parts, or with the reason why there are none.
    """
    began = working_time()
    parts = find_parts(profile, CPU_GRAIN, most)
    if parts is None:
        why = f"the separators are large: the borders of all vertices have more than {most} entries"
        return replace(problem, no_parts=why)
    coarse = find_parts(profile, DEVICE_GRAIN, most) if device else None  # not None, as the same borders fit ``most``
    took = working_time() - began
    coarse_facts = None if coarse is None else coarse.facts(DEVICE_GRAIN, took)
    return replace(problem, parts=parts.facts(CPU_GRAIN, took), device_parts=coarse_facts)
