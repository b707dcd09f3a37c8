"""A slow, obvious reference for sums along shortest paths: every simple path of a small graph, in exact fractions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np

Arc = tuple[int, int, Fraction, tuple[Fraction, ...]]


def exact(value: object) -> Fraction:
    """The number that a decimal text of a float says, which is what files mean: 0.1 is a tenth."""
    return Fraction(str(value))


def arcs_of(tails, heads, weights, quantities: Mapping[str, Sequence[float]], *, directed: bool) -> list[Arc]:
    columns = list(quantities.values())
    found = [
        (int(u), int(v), exact(w), tuple(exact(column[k]) for column in columns))
        for k, (u, v, w) in enumerate(zip(tails, heads, weights, strict=True))
        if u != v
    ]
    return found if directed else found + [(v, u, w, q) for u, v, w, q in found]


def _simple_paths(out: dict[int, list[Arc]], path: list[Arc], at: int, seen: set[int]) -> Iterator[list[Arc]]:
    yield path
    for arc in out.get(at, []):
        if arc[1] not in seen:
            yield from _simple_paths(out, [*path, arc], arc[1], seen | {arc[1]})


def best_paths(arcs: list[Arc], source: int, terminals: int = 0) -> dict[int, tuple[Fraction, tuple[Fraction, ...]]]:
    """Length and sums of the path to each vertex: shortest, then fewest arcs, then the vertices from the target back,
    then, arc by arc from the target back, the first of parallel arcs by their quantities.
    """
    out: dict[int, list[Arc]] = {}
    for arc in arcs:
        if arc[0] >= terminals or arc[0] == source:
            out.setdefault(arc[0], []).append(arc)
    best: dict[int, tuple] = {}
    for path in _simple_paths(out, [], source, {source}):
        target = path[-1][1] if path else source
        back = path[::-1]
        key = sum((arc[2] for arc in path), Fraction(0)), len(path), [arc[0] for arc in back], [arc[3] for arc in back]
        if target not in best or key < best[target][0]:
            best[target] = key, path
    return {
        target: (key[0], tuple(sum(column, Fraction(0)) for column in zip(*(arc[3] for arc in path), strict=True)))
        for target, (key, path) in best.items()
    }


def expected(arcs: list[Arc], n: int, width: int, terminals: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Distances, shape (n, n), and sums, shape (width, n, n), as floats; +inf where there is no path."""
    distances, sums = np.full((n, n), np.inf), np.full((width, n, n), np.inf)
    for source in range(n):
        for target, (length, found) in best_paths(arcs, source, terminals).items():
            distances[source, target] = length
            sums[:, source, target] = found or 0  # the path from a source to itself has no arc
    return distances, sums
