"""Finds shortest paths with a limit on the number of arcs, one path at a time, within a memory budget.

Layer k of the Bellman-Ford algorithm holds the shortest lengths of walks of at most k arcs.  A path is traced from the
last layer back to the first, so every layer is needed once, but not all layers at the same time.  If not all of them
fit in memory, some layers are kept.  The layers between two kept layers are computed again when they are needed, as
with checkpoints in reverse-mode differentiation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.api.reference import Floats, Reference
from storage.errors import DoesNotFit


class Layers:
    """Finds paths over the layers of one graph.

    Args:
        reference: computes the layers of the graph.
        n: number of vertices.
        memory: bytes of memory that all kept layers may take together.
    """

    def __init__(self, reference: Reference, n: int, memory: int) -> None:
        self._reference, self._n = reference, n
        self._capacity = max(2, memory // (8 * max(1, n)))

    def path(self, source: int, target: int, hops: int, enough: Callable[[float, int], bool]) -> list[int] | None:
        """Find a shortest path of at most ``hops`` arcs.

        Args:
            source: vertex index.
            target: vertex index.
            hops: most arcs of the path.
            enough: called with the length of a path to the target and a bound on the number of its arcs; the search
                ends if it returns True, if a layer equals the previous one, or after ``hops`` layers.

        Returns:
            The vertices from source to target; None if there is no path.

        Raises:
            DoesNotFit: the path has so many arcs that even the fewest layers that must be kept exceed ``memory``.
        """
        first = layer = self._reference.start(source)
        kept, last, changed = [layer], 0, 0
        while last < hops and not enough(float(layer[target]), changed):
            following = self._reference.step(layer)
            if np.array_equal(following, layer):
                break
            last += 1
            if following[target] != layer[target]:
                changed = last
            layer = following
            if len(kept) == last < self._capacity:
                kept.append(layer)
        if not np.isfinite(layer[target]):
            return None
        path = [target]
        if changed < len(kept):
            self._walk(kept[: changed + 1], path)
        else:
            del kept[1:]
            self._check_capacity(changed)
            self._back(first, changed, path, self._capacity)
        return _simple(path[::-1])

    def _check_capacity(self, arcs: int) -> None:
        if _reach(self._capacity) >= arcs:
            return
        needed_layers = self._capacity
        while _reach(needed_layers) < arcs:
            needed_layers += 1
        needed, there = 8 * self._n * needed_layers, 8 * self._n * self._capacity
        raise DoesNotFit(
            f"the path has up to {arcs:,} arcs; finding it takes {needed_layers:,} layers of {self._n:,} lengths, "
            f"{needed:,} bytes, and {there:,} may be used; ask for its distance, or solve with smaller --max-hops",
            resource="memory",
            needed=needed,
            available=there,
        )

    def _back(self, layer: Floats, steps: int, path: list[int], capacity: int) -> None:
        """Extend ``path`` backwards through the ``steps`` layers after ``layer``, with at most ``capacity`` layers in
        memory.
        """
        if steps < capacity:
            self._walk([layer, *self._following(layer, steps, 1)], path)
            return
        stride = -(-steps // (capacity // 2))
        kept = [layer, *self._following(layer, (steps - 1) // stride * stride, stride)]
        while kept:
            here = kept.pop()
            self._back(here, min(stride, steps - stride * len(kept)), path, capacity - len(kept))

    def _following(self, layer: Floats, steps: int, stride: int) -> list[Floats]:
        """Return every ``stride``-th of the ``steps`` layers after ``layer``."""
        found = []
        for k in range(1, steps + 1):
            layer = self._reference.step(layer)
            if k % stride == 0:
                found.append(layer)
        return found

    def _walk(self, layers: list[Floats], path: list[int]) -> None:
        """Extend ``path`` backwards from the last of consecutive layers to the first."""
        into = self._reference.into
        for k in range(len(layers) - 1, 0, -1):
            v = path[-1]
            if layers[k - 1][v] == layers[k][v]:
                continue
            arcs = slice(into.indptr[v], into.indptr[v + 1])
            tails = into.indices[arcs]
            path.append(int(tails[np.argmin(layers[k - 1][tails] + into.data[arcs])]))


def _reach(capacity: int) -> int:
    """Return the most steps that :meth:`Layers._back` can trace with ``capacity`` kept layers."""
    return max(capacity - 1, capacity // 2 * _reach(capacity - capacity // 2)) if capacity > 1 else 0


def _simple(path: list[int]) -> list[int]:
    """Return ``path`` without cycles.  It has cycles only where rounding makes them seem to shorten the path."""
    found: list[int] = []
    places: dict[int, int] = {}
    for vertex in path:
        if vertex in places:
            for left in found[places[vertex] + 1 :]:
                del places[left]
            del found[places[vertex] + 1 :]
        else:
            places[vertex] = len(found)
            found.append(vertex)
    return found
