"""Finds routes from distances alone, without a stored matrix of predecessors.

A route from u to v is found in row D[u, .], from v back to u, over *tight* arcs: those with
D[u, w] + weight(w, v) = D[u, v].  Arcs of length zero and rounding can make tight arcs form cycles, so the
search is depth first, with a visited set.  A path is accepted only if the sum of its weights is the stored distance.
Otherwise, or if the store has no whole row, the row is computed by one search of the stored graph.  Routes with a hop
limit need layers (``engine.api.hop_layers``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.api.hop_layers import Layers
from engine.api.reference import Reference
from engine.graph.terminals import OpenedMatrix
from storage.arguments import check_index_array, check_whole, shown
from storage.errors import InvalidRequest, StorageFailed
from storage.graph.graph import Graph
from storage.matrix.sealed import SealedResult
from storage.semirings import MIN_PLUS

Array = npt.NDArray[np.generic]

#: Default for the most bytes of layers that are kept for a route with a hop limit.
LAYERS_BYTES: Final = 256 << 20
#: Tolerances, in units of rounding, within which an arc counts as tight in a row of floats; tried in this order, for
#: whole weights after 0.
_LOOSE: Final = (1, 4, 16, 64, 256, 1024)


@dataclass(frozen=True)
class Route:
    """A shortest path.

    Attributes:
        vertices: vertex indices from source to target.
        weights: weights of the arcs between these vertices.
        length: the sum of the weights; in a semiring other than min-plus the value of the path, such as its width.
    """

    vertices: list[int]
    weights: list[int] | list[float]
    length: int | float


class Router:
    """Finds routes over one sealed result; the reversed arcs are kept between calls."""

    def __init__(self, matrix: SealedResult, *, memory: int = LAYERS_BYTES) -> None:
        """Prepare routes over ``matrix``; a route with a hop limit may keep ``memory`` bytes of layers."""
        if not hasattr(matrix, "entries") or not hasattr(matrix, "graph"):
            raise InvalidRequest(f"matrix must be an open result, found {shown(matrix)}", field="matrix")
        self._matrix, self._memory = OpenedMatrix(matrix), check_whole("memory", memory, 1)

    @cached_property
    def _graph(self) -> Graph:
        return self._matrix.graph()

    @cached_property
    def _reference(self) -> Reference:
        return Reference(self._graph)

    def route(self, source: int, target: int) -> Route | None:
        """Find a shortest path from ``source`` to ``target`` (vertex indices); None if there is no path.

        The length of the path is the stored distance: exactly for whole numbers, else within the rounding error of its
        sum (see :func:`rounding`).  This reads one row of the matrix, or one entry if the store has no whole rows.  If
        the store was solved with a hop limit, the path has at most that number of arcs.

        Raises:
            InvalidRequest: ``source`` or ``target`` is not a whole number.
            NotFound: ``source`` is not among the solved sources, or ``target`` not among the targets.
            StorageFailed: no path has the stored distance.
            DoesNotFit: the layers that are needed to trace a path with a hop limit exceed the memory for them.
        """
        source, target = check_whole("source", source), check_whole("target", target)
        check_index_array("source and target", [source, target], self._matrix.n)
        if self._matrix.semiring != MIN_PLUS:
            return self._best(source, target)
        if target != source:
            target = self._matrix.arrival(target)
        stored = self._matrix.entries([source], [target])[0]
        if stored == self._matrix.unreachable:
            return None
        hops = self._matrix.attributes.get("max_hops")
        found = None
        for vertices, searched in (
            self._limited(stored, source, target, hops) if hops else self._walks(stored, source, target)
        ):
            route = self._along(vertices)
            if self._agrees(route, stored):
                return route
            found = route if searched else None
        raise self._refused(stored, source, target, found)

    def _best(self, source: int, target: int) -> Route | None:
        """Find a path with the stored value of a semiring other than min-plus; raise the errors of :meth:`route`."""
        from engine.api.semirings.routes import path_value, paths_with

        value = self._matrix.entries([source], [target])[0]
        if value == self._matrix.unreachable:
            return None
        itself, ends = [([source], 0.0)], (source, self._matrix.arrival(target))
        for vertices, allowed in itself if source == target else paths_with(self._matrix, self._graph, value, ends):
            weights = [self._weight(u, v) for u, v in pairwise(vertices)]
            found = path_value(self._matrix.semiring, weights)
            if vertices[0] == source and (found == value or abs(found - value) <= allowed):
                return Route([self._matrix.vertex(v) for v in vertices], weights, found)
        raise StorageFailed(
            f"no path of the stored graph has the stored value {value} from {self._matrix.labels[source]} to "
            f"{self._matrix.labels[target]}; the store is wrong there; check it with apsp verify"
        )

    def _exact(self, stored: Any) -> bool:
        """Return whether a stored length is the sum of the weights without rounding: of whole numbers, none negative,
        that its type holds.  A sum that was rounded is at least as large as the first number that the type rounds.
        """
        if stored.dtype.kind != "f":
            return True
        return self._whole and bool(stored < 2.0 ** (np.finfo(stored.dtype).nmant + 1))

    @cached_property
    def _whole(self) -> bool:
        """Whether all weights are whole numbers and none is negative."""
        return self._graph.integral and bool(self._graph.weights.min(initial=0) >= 0)

    def _agrees(self, found: Route, stored: Any) -> bool:
        """Return whether a route has the stored length, within the rounding error where there is one."""
        if self._exact(stored):
            return bool(found.length == stored.item())
        magnitude = math.fsum(map(abs, found.weights))
        return bool(abs(found.length - float(stored)) <= rounding(len(found.weights), magnitude, stored.dtype))

    def _along(self, vertices: list[int]) -> Route:
        weights = [self._weight(u, v) for u, v in pairwise(vertices)]
        vertices = [self._matrix.vertex(v) for v in vertices]
        return Route(vertices, weights, sum(weights) if self._graph.integral else math.fsum(weights))

    def _refused(self, stored: Any, source: int, target: int, found: Route | None) -> StorageFailed:
        labels = self._graph.labels
        there = "no path is that short" if found is None else f"the shortest path has the length {found.length}"
        coarse = "" if stored.dtype.kind != "f" else f", or {stored.dtype} is too imprecise for weights that cancel"
        if stored.dtype == np.float32:
            coarse += " (solve with --dtype float64)"
        return StorageFailed(
            f"no path of the stored graph has the stored distance {stored} from {labels[source]} to {labels[target]}: "
            f"{there}; the matrix is wrong there{coarse}; check the store with apsp verify"
        )

    def _walks(self, stored: Any, source: int, target: int) -> Iterator[tuple[list[int], bool]]:
        """Yield vertices of paths that may have the stored length, and whether they are from a search: first from the
        stored row, then from a search for paths that are no longer than the stored length.
        """
        if self._matrix.attributes["targets"] == "all":
            for path in self._walk(self._matrix.row(source), source, target):
                yield path, False
        length = float(stored)
        limit = max(0.0, length)
        if not self._exact(stored):  # the stored length is rounded: allow for the error of a path of n arcs
            limit += rounding(self._graph.n, abs(length), stored.dtype)
        for path in self._walk(self._reference.distances(source, limit), source, target):
            yield path, True

    def _limited(self, stored: Any, source: int, target: int, hops: int) -> Iterator[tuple[list[int], bool]]:
        """Yield the vertices of two paths of at most ``hops`` arcs, both from a search (True): a path as short as the
        stored length, then a shortest path.
        """
        layers = Layers(self._reference, self._graph.n, self._memory)
        length = float(stored)

        def enough(found: float, arcs: int) -> bool:
            return found <= length + (0.0 if self._exact(stored) else rounding(arcs, abs(length), stored.dtype))

        for stop in (enough, lambda _found, _arcs: False):
            path = layers.path(source, target, hops, stop)
            if path is not None:
                yield path, True

    def _weight(self, tail: int, head: int) -> int | float:
        graph = self._graph
        begin, end = graph.indptr[tail], graph.indptr[tail + 1]
        at = begin + np.searchsorted(graph.heads[begin:end], head)
        return graph.weights[at].item()  # type: ignore[no-any-return]

    def _walk(self, row: Array, source: int, target: int) -> Iterator[list[int]]:
        """Yield vertices of a path over tight arcs of a row; for floats, raise the tolerance until a path is found."""
        floats = row.dtype.kind == "f"
        unit = float(np.finfo(row.dtype.name).eps) if floats else 0.0
        wide = row.astype(np.float64 if floats else np.int64)
        for loose in ((0, *_LOOSE) if self._graph.integral else _LOOSE) if floats else (0,):
            found = self._search(wide, source, target, loose * unit)
            if found is not None:
                yield found[::-1]
                return

    def _tight(self, row: Array, head: int, tolerance: float) -> Iterator[int]:
        """Iterate over the tails of tight arcs into ``head``, the tightest first; ``tolerance`` is relative to the
        numbers that are added.
        """
        into: Any = self._reference.into
        arcs = slice(into.indptr[head], into.indptr[head + 1])
        tails, weights, end = into.indices[arcs], into.data[arcs], row[head]
        if not np.isfinite(end):  # a search with a limit has not reached ``head``
            return iter(())
        slack = np.abs(row[tails] + weights - end)
        order = np.argsort(slack, kind="stable")
        return iter(tails[order][(slack <= tolerance * (np.abs(weights) + np.abs(end)))[order]].tolist())

    def _search(self, row: Array, source: int, target: int, tolerance: float) -> list[int] | None:
        path, seen, choices = [target], {target}, [self._tight(row, target, tolerance)]
        while path:
            if path[-1] == source:
                return path
            following = next((w for w in choices[-1] if w not in seen), None)
            if following is None:
                path.pop()
                choices.pop()
            else:
                seen.add(following)
                path.append(following)
                choices.append(self._tight(row, following, tolerance))
        return None


def rounding(arcs: Any, magnitude: Any, dtype: npt.DTypeLike) -> Any:
    """Bound the rounding error of a sum of floats, for any order of addition.

    Each weight and each addition has an error of at most half a unit of rounding of ``magnitude``.  The bound is twice
    the sum of these errors, plus the errors of numbers below the least normal one.

    Args:
        arcs: number of summands, a number or an array.
        magnitude: sum of the absolute weights, a number or an array.
        dtype: type of the stored sum.
    """
    kind = np.finfo(np.dtype(dtype).name)
    return (arcs + 1) * (float(kind.eps) * magnitude + float(kind.smallest_subnormal))
