"""Parts of a graph, nested: small separators first found by METIS, then what they mean for all-pairs shortest paths.

A *part* is a set of vertices that are eliminated together, and its *border* the later vertices that it touches once
all before it are gone.  Parts form a tree: the border of a part lies in the parts above it.  A path that leaves the
part and everything below it passes through the border, which is all that ``engine.algorithms.partitioned`` needs.

The order is nested dissection (George, "Nested dissection of a regular finite element mesh", 1973) by METIS (Karypis
and Kumar 1998); vertices are then merged into parts as large as is cheap.
"""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from engine.graph.ordering import hops_across
from engine.model.device_layout import SHALLOW
from engine.model.plan import Plan
from engine.model.problem import Machine, PartsFacts, Problem

if TYPE_CHECKING:
    from storage.graph.graph import Graph


#: Seconds that METIS and the elimination take for each vertex and arc, on the cautious side.
TRIAL_SECONDS: Final = 1e-6
#: A trial partition is made where all else is predicted to take this many times as long.
WORTHWHILE: Final = 10.0
#: The same for graphs of as many arcs across as lattices have, a good half of the root of n: their separators are
#: likely small.
LONG_WORTHWHILE: Final = 2.5
LATTICE: Final = 0.5
#: The same where a GPU would search a graph of many hops: its separators are mostly small, and sweeps much faster.
DEVICE_WORTHWHILE: Final = 1.0
#: Seconds that looking for single vertices at which a graph falls apart takes for each vertex and arc, and the share of
#: all else that it may take.
LOOK_SECONDS: Final = 5e-9
LOOK_SHARE: Final = 0.1
#: Seconds that METIS and the elimination take for each vertex and arc of a graph that falls apart so: dense pieces are
#: quickly told to be no further divisible.  0.05 to 0.07 us measured on cliques, barbells and lollipops.
BRIDGED_SECONDS: Final = 8e-8
#: Share of the rate at which a whole graph is closed that its pieces are closed at.
BRIDGED_RATE: Final = 0.5
#: Bytes that finding parts holds for each entry of the borders of single vertices, at most.
ENTRY_BYTES: Final = 16

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Grain:
    """What makes parts large or small, in updates' worth of time a row of the matrix.

    Attributes:
        width: columns that a product does at once; others are done, too, and thrown away.
        entry: gathering an entry of a border; part: beginning a product.
        inside: an update made once, before any row.
    """

    width: int
    entry: float
    part: float
    inside: float


#: On a processor, where the rows of a product are few and its beginning cheap.
CPU_GRAIN: Final = Grain(width=16, entry=40.0, part=200.0, inside=10.0)
#: On a GPU, where a launch takes as long as many updates.
DEVICE_GRAIN: Final = Grain(width=32, entry=100.0, part=5_000.0, inside=100.0)


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a graph in the order in which they are eliminated; a *position* is a vertex's place in that order.

    Attributes:
        position: int64, shape (n,): of each vertex.
        starts: int64, shape (parts + 1,): part i holds the positions ``starts[i]:starts[i + 1]``.
        parents: int32, shape (parts,): the part that holds the first vertex of the border; -1 where there is none.
        ends: int64, shape (parts + 1,): the border of part i is ``borders[ends[i]:ends[i + 1]]``.
        borders: int32: positions, ascending in each border.
    """

    position: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    parents: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]
    borders: npt.NDArray[np.int32]

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.parents)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Vertices of each part."""
        return np.diff(self.starts)

    @property
    def depths(self) -> npt.NDArray[np.int64]:
        """Vertices of the border of each part."""
        return np.diff(self.ends)

    def border(self, i: int) -> npt.NDArray[np.int32]:
        """The border of part ``i``."""
        return self.borders[self.ends[i] : self.ends[i + 1]]

    def owner(self) -> npt.NDArray[np.int32]:
        """int32, shape (n,): the part of each position."""
        return np.repeat(np.arange(self.count, dtype=np.int32), self.sizes)

    def widths(self) -> npt.NDArray[np.int64]:
        """Vertices of each part and all parts above it."""
        wide = self.sizes.copy()
        for i in range(self.count - 1, -1, -1):
            if self.parents[i] >= 0:
                wide[i] += wide[self.parents[i]]
        return wide

    def updates(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Updates that eliminating each part takes, and those of its lengths to all parts above."""
        size, depth = self.sizes, self.depths
        return size**3 + 2 * size**2 * depth + size * depth**2, size * depth * (self.widths() - size)

    def facts(self, grain: Grain, seconds: float) -> PartsFacts:
        """What planning needs to know; ``seconds`` were spent on finding the parts."""
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
            entries=int(size @ wide + 3 * padded @ depth + 3 * ((size + depth) ** 2).max(initial=0)),
            seconds=seconds,
        )


@dataclass(frozen=True)
class Lengths:
    """What ``engine.algorithms.partitioned`` finds before it sweeps, part by part.

    Attributes:
        tables: (size, width): from the part's vertices to itself and all parts above, its parent's first; all of them
            are views of ``flat``, one after the other.
        across: (border, size): from the border to the part, through the part and what is below it.
        flat: one-dimensional.
    """

    tables: list[Array]
    across: list[Array]
    flat: Array


def find_parts(graph: Graph, grain: Grain, most: int) -> Parts | None:
    """The parts of ``graph``; None if its borders come to more than ``most`` entries.

    Takes about 5 microseconds a vertex and arc, and 20 bytes for each entry of the borders of single vertices.
    """
    found = _dissect(graph, most)
    if found is None:
        return None
    from engine.graph._elimination import arrange, merge

    rank, begin, border, parent = found
    inside = grain.inside / max(1, graph.n)
    last = merge(parent, np.diff(begin), grain.width, grain.entry, grain.part, inside)
    position, *parts = arrange(parent, last, begin, border)
    return Parts(position[rank], *parts)


_Dissection = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]
_KNOWN: dict[int, tuple[int, _Dissection | None]] = {}


def _dissect(graph: Graph, most: int) -> _Dissection | None:
    """The step at which each vertex is eliminated, the borders and the tree; kept as long as the graph lives."""
    known = _KNOWN.get(id(graph))
    if known is not None and (known[1] is not None or known[0] >= most):
        return known[1]
    from engine.graph._elimination import eliminate

    pattern = _pattern(graph)
    order, rank = _nested_dissection(pattern)
    begin, border, parent, finished = eliminate(pattern.indptr, pattern.indices, order, rank, most)
    found = (rank, begin, border, parent) if finished else None
    if id(graph) not in _KNOWN:
        weakref.finalize(graph, _KNOWN.pop, id(graph), None)
    _KNOWN[id(graph)] = (most, found)
    return found


def _pattern(graph: Graph) -> csr_array:
    """Who is joined to whom by an arc of either direction; entries of no meaning."""
    ones = np.ones(graph.arcs, np.int8)
    arcs = csr_array((ones, graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return (arcs + arcs.T).tocsr() if graph.directed else arcs


def _nested_dissection(pattern: csr_array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    n = pattern.shape[0]
    if n < 2 or pattern.nnz == 0:
        identity = np.arange(n, dtype=np.int32)
        return identity, identity
    import pymetis

    adjacency = pymetis.CSRAdjacency(pattern.indptr.astype(np.int32), pattern.indices.astype(np.int32))
    order, rank = pymetis.nested_dissection(adjacency=adjacency)
    return np.asarray(order, np.int32), np.asarray(rank, np.int32)


def with_trial(graph: Graph, problem: Problem, plan: Plan, machine: Machine) -> Problem:
    """``problem`` with what a trial partition finds, where one can pay; else with the reason why there is none.

    ``plan`` is what would be done otherwise: finding parts may take a small share of its time, and no row may take
    longer over parts than it predicts.
    """
    if problem.max_hops is not None or problem.parts is not None:
        return problem
    work = _work(plan)
    took = TRIAL_SECONDS * (problem.n + problem.arcs)
    if work < _worthwhile(graph, problem, plan, work / max(took, 1e-9)) * took:
        why = f"a trial partition takes about {took:.2g} s, and all of {plan.algorithm} {work:.2g} s"
        return replace(problem, no_parts=why)
    return with_parts(graph, problem, _most_entries(problem, plan, machine))


def with_bridges(graph: Graph, problem: Problem, plan: Plan, machine: Machine) -> Problem:
    """``problem`` with its parts where the graph falls into much smaller pieces at single vertices; else as it is.

    Dense pieces that hang together by bridges, as cliques, barbells and lollipops do, are solved piece by piece in a
    fraction of the time, and looking for the places takes one pass over the arcs.  It comes before anything is measured
    on the machine, which can take longer than such a solve.
    """
    if problem.max_hops is not None or problem.parts is not None:
        return problem
    work, size = _work(plan), problem.n + problem.arcs
    if work * LOOK_SHARE < LOOK_SECONDS * size or work < BRIDGED_SECONDS * size:
        return problem
    from engine.graph._elimination import block_cubes

    pattern = _pattern(graph)
    left = block_cubes(pattern.indptr, pattern.indices) / max(1, problem.n) ** 3 / BRIDGED_RATE
    if work * (1 - left) < BRIDGED_SECONDS * size:
        return problem
    return with_parts(graph, problem, _most_entries(problem, plan, machine))


def _work(plan: Plan) -> float:
    """Predicted seconds of all but writing."""
    return sum(phase.seconds for phase in plan.phases if phase.name != "write")


def _most_entries(problem: Problem, plan: Plan, machine: Machine) -> int:
    """Entries of borders above which sweeping takes longer than ``plan``, or finding them more than the memory."""
    rates = machine.relax_rate if plan.device == "cpu" or machine.cuda is None else machine.cuda.relax_rate
    most = int(_work(plan) / max(1, problem.rows) * rates[plan.dtype])
    return min(most, machine.memory // ENTRY_BYTES)


def _worthwhile(graph: Graph, problem: Problem, plan: Plan, found: float) -> float:
    """How many times as long as a trial all else must take; ``found`` is how many times as long it does."""
    if plan.device == "cuda" and problem.hops > SHALLOW:
        return DEVICE_WORTHWHILE
    if LONG_WORTHWHILE <= found < WORTHWHILE and hops_across(graph.indptr, graph.heads) >= LATTICE * graph.n**0.5:
        return LONG_WORTHWHILE
    return WORTHWHILE


def with_parts(graph: Graph, problem: Problem, most: int) -> Problem:
    """``problem`` with the facts of its parts, if the borders of single vertices come to at most ``most`` entries."""
    began = time.perf_counter()
    parts = find_parts(graph, CPU_GRAIN, most)
    if parts is None:
        return replace(problem, no_parts=f"the separators are large: the borders of all vertices pass {most} entries")
    coarse = find_parts(graph, DEVICE_GRAIN, most)
    assert coarse is not None  # the same order, so the same borders of single vertices
    took = time.perf_counter() - began
    return replace(problem, parts=parts.facts(CPU_GRAIN, took), device_parts=coarse.facts(DEVICE_GRAIN, took))
