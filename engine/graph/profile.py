"""Caches the facts that the engine computes about one graph; each fact is computed when it is first needed.

A profile is passed from planning to solving, so that both use the same values, and so that potentials and dissections,
which take long, are computed only once.  It also decides whether products use reduced weights; planning, all executors
and checkpoints use this decision, because reduced lengths and true lengths must never be mixed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np

from engine.graph.bound import arcs_bound, distance_bound
from engine.graph.ordering import hop_radius, hops_across
from engine.graph.partition import Dissection, Grain, Parts, dissect, find_parts
from engine.graph.potentials import Potentials, find_potentials, reduced_weights
from engine.graph.selection import Rectangle
from engine.graph.terminals import open_rectangle, opened
from engine.model.backend import Arcs
from engine.model.dtypes import WorkType, needs_potentials
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import KnownRows
from engine.planning.binding import content_of, fingerprint
from storage.arguments import shown
from storage.errors import InvalidRequest
from storage.graph.graph import Graph


class GraphProfile:
    """One graph, and the facts that were computed about it.  Not thread-safe.

    Attributes:
        graph: the graph.
        reduced_by: shape (n,), the potentials by which the weights of ``graph`` were reduced; None if they were not
            reduced.
        known: rows that trials computed during planning; None if there are none.
        given_parts: the parts of a prepared graph that has these arcs; None if parts must be found.
        found_parts: the parts that were found, by grain (the costs that decide how large parts become).
    """

    def __init__(self, graph: Graph, reduced_by: Potentials | None = None) -> None:
        self.graph, self.reduced_by = graph, reduced_by
        self.known: KnownRows | None = None
        self.given_parts: Parts | None = None
        self.found_parts: dict[Grain, Parts] = {}
        self._dissected: tuple[int, Dissection | None] = (-1, None)
        self._task: tuple[Options, tuple[str, str]] | None = None
        self._most_arcs: dict[int, int | None] = {}
        self._counted: dict[int, GraphProfile] = {}

    @classmethod
    def of(cls, graph: Graph | GraphProfile) -> GraphProfile:
        """Return the profile of ``graph``: a new one, or ``graph`` itself if it is a profile.

        Raises:
            InvalidRequest: ``graph`` is neither a graph nor a profile.
        """
        if isinstance(graph, GraphProfile):
            return graph
        if not isinstance(graph, Graph):
            raise InvalidRequest(
                f"graph must be a Graph, found {shown(graph)}; read_graph reads a file, build_graph takes arrays",
                field="graph",
            )
        return cls(graph)

    # ---- weights ----------------------------------------------------------------------------------------------------

    @cached_property
    def weight_range(self) -> tuple[float, float]:
        """The smallest and the largest weight; (0, 0) without arcs."""
        weights = self.graph.weights
        return (weights.min().item(), weights.max().item()) if self.graph.arcs else (0, 0)

    @property
    def nonnegative(self) -> bool:
        """Whether no arc is negative."""
        return self.weight_range[0] >= 0

    @property
    def unit(self) -> bool:
        """Whether there are arcs and each of them weighs 1 in the graph's own weights."""
        return self.reduced_by is None and self.graph.arcs > 0 and self.weight_range == (1, 1)

    @cached_property
    def potentials(self) -> Potentials:
        """The potentials by which reduced weights are never negative, shape (n,).

        Raises:
            NegativeCycle: there is a negative cycle.
            InvalidRequest: weights are too large (see :func:`engine.graph.potentials.find_potentials`).
        """
        return find_potentials(self.graph)

    def find_potentials(self, monitor: Monitor) -> Potentials:
        """Find the potentials as a phase of a solve, and return them; ``monitor`` receives the progress, in arcs.

        Raises:
            NegativeCycle, InvalidRequest: there are no potentials (see ``potentials``).
            Cancelled: the monitor asked to stop.
        """
        monitor.begin("potentials", self.graph.arcs, "arcs")
        if "potentials" not in self.__dict__:
            self.__dict__["potentials"] = find_potentials(self.graph, monitor)
        found = self.potentials
        monitor.step(self.graph.arcs)
        return found

    def reweighted(self, monitor: Monitor) -> GraphProfile:
        """Return the graph with weights reduced by its potentials, or this profile if no arc is negative.

        The reduced weights take as much memory as the graph's, so they are not kept here.

        Raises:
            NegativeCycle, InvalidRequest: there are no potentials (see ``potentials``).
            Cancelled: the monitor asked to stop.
        """
        return self if self.nonnegative else self.reduced(self.find_potentials(monitor))

    def reduced(self, h: Potentials) -> GraphProfile:
        """Return the graph with weights reduced by potentials ``h``, shape (n,)."""
        return GraphProfile(replace(self.graph, weights=reduced_weights(self.graph, h)), h)

    def counted(self, per: int) -> GraphProfile:
        """Return the graph with its weights in whole units, of which ``per`` make 1; it is kept.

        Args:
            per: see :func:`engine.rows.sums.units_counted`.
        """
        if per not in self._counted:
            whole = np.rint(self.graph.weights * per).astype(np.int32)
            self._counted[per] = GraphProfile(replace(self.graph, weights=whole))
        return self._counted[per]

    def holds_reduced(self, kind: WorkType, max_hops: int | None = None) -> bool:
        """Return whether min-plus products over the graph use weights reduced by potentials, in O(m) time.

        If so, the tiles of a checkpoint of rounds hold reduced lengths.

        Args:
            kind: the working type.
            max_hops: the largest number of arcs of a path; None for no limit.
        """
        if self.nonnegative or kind.integer:
            return False
        integral = self.graph.integral
        bound = distance_bound(self.graph, max_hops)[0] if integral else math.inf
        return needs_potentials(kind, negative=True, integral=integral, bound=bound)

    def for_products(self, kind: WorkType, monitor: Monitor, max_hops: int | None = None) -> GraphProfile:
        """Return the graph with the weights for products: reduced by potentials if that is needed, else unchanged.

        Args:
            kind: the working type.
            monitor: receives the progress, in arcs.
            max_hops: the largest number of arcs of a path; None for no limit.

        Raises:
            NegativeCycle, InvalidRequest: potentials are needed, and there are none (see ``potentials``).
            Cancelled: the monitor asked to stop.
        """
        return self.reweighted(monitor) if self.holds_reduced(kind, max_hops) else self

    @cached_property
    def content(self) -> int:
        """The checksum of the arcs; plans use it to identify the graph (``engine.planning.binding``)."""
        return content_of(self.graph)

    def task(self, options: Options) -> tuple[str, str]:
        """Return the fingerprints of the graph and of ``options``, cached for the last ``options`` object."""
        if self._task is None or self._task[0] is not options:
            self._task = options, fingerprint(self.graph, options, self.content)
        return self._task[1]

    # ---- structure --------------------------------------------------------------------------------------------------

    @cached_property
    def arcs(self) -> Arcs:
        """The arcs as an argument of searches; this object also caches the forms into which devices convert them."""
        graph, mirrored = self.graph, self.reduced_by is None and not self.graph.directed
        return Arcs(graph.indptr, graph.heads, graph.weights, self.reduced_by, mirrored=mirrored)

    @cached_property
    def hops(self) -> int:
        """The largest number of hops from a vertex of highest degree (:func:`engine.graph.ordering.hop_radius`)."""
        return self._radius[0]

    @cached_property
    def hops_across(self) -> int:
        """The lower bound of :func:`engine.graph.ordering.hops_across` on the diameter in hops."""
        return hops_across(self.graph.indptr, self.graph.heads, self._radius)

    @cached_property
    def _radius(self) -> tuple[int, int]:
        return hop_radius(self.graph.indptr, self.graph.heads)

    def most_arcs(self, limit: int) -> int | None:
        """Return the bound of :func:`engine.graph.bound.arcs_bound` on the arcs of paths, None above ``limit``; each
        limit is tried once.
        """
        if limit not in self._most_arcs:
            known = self.unit and not self.graph.terminals
            self._most_arcs[limit] = arcs_bound(self.graph, limit, self.arcs if known else None)
        return self._most_arcs[limit]

    @cached_property
    def _opened(self) -> GraphProfile:
        return GraphProfile(opened(self.graph))

    def open(self, asked: Rectangle) -> tuple[GraphProfile, Rectangle]:
        """Return the opened graph (``engine.graph.terminals``), and the rectangle of its matrix with the values that
        ``asked`` has in this graph's matrix.  Without terminals, these are this profile and ``asked`` itself.
        """
        return (self._opened, open_rectangle(self.graph, asked)) if self.graph.terminals else (self, asked)

    @property
    def dissected(self) -> bool:
        """Whether a nested dissection has already been computed."""
        return self._dissected[1] is not None

    def dissection(self, most: int) -> Dissection | None:
        """Return the nested dissection, which is computed once; None if its borders have more than ``most`` entries."""
        tried, found = self._dissected
        if found is None and tried < most:
            found = dissect(self.graph, most)
            self._dissected = most, found
        return found

    def dissect_as(self, found: Dissection) -> None:
        """Use a nested dissection of the same graph that an earlier run has found."""
        self._dissected = len(found[2]), found

    def parts(self, grain: Grain) -> Parts:
        """Return the parts of the graph, without a limit on the size of their borders."""
        parts = find_parts(self, grain, self.graph.n**2)
        assert parts is not None  # the limit is the largest possible number of entries
        return parts
