"""References for what passes through vertices and arcs: every shortest path of a tiny graph, listed one by one."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise


def shortest_paths(arcs, source, target):
    """All shortest simple paths, each a tuple of vertices; ``arcs`` is a dictionary from (tail, head) to the weight."""
    best, found = None, []
    around = {}
    for (u, v), weight in arcs.items():
        around.setdefault(u, []).append((v, weight))

    def walk(path, length):
        nonlocal best, found
        if path[-1] == target:
            if best is None or length < best:
                best, found = length, []
            if length == best:
                found.append(tuple(path))
            return
        for v, weight in around.get(path[-1], []):
            if v not in path and (best is None or length + weight <= best):
                walk([*path, v], length + weight)

    walk([source], 0)
    return found, best


def passing(arcs, n, demands):
    """What passes through vertices, begins and ends at them, and passes over arcs, exactly.

    ``demands`` is a list of (origin, destination, flow).  Every shortest path carries the same share.
    """
    through, begins, ends = ([Fraction(0)] * n for _ in range(3))
    over = dict.fromkeys(arcs, Fraction(0))
    lengths = []
    for s, t, flow in demands:
        if s == t:
            lengths.append(0)
            continue
        found, best = shortest_paths(arcs, s, t)
        lengths.append(best)
        for path in found:
            share = Fraction(flow) / len(found)
            begins[s] += share
            ends[t] += share
            for v in path[1:-1]:
                through[v] += share
            for arc in pairwise(path):
                over[arc] += share
    return through, begins, ends, over, lengths
