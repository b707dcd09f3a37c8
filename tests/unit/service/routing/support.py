"""A city for the routing protocols, and what NetworkX says of it."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import networkx as nx
import numpy as np

from storage.geography.coordinates import Coordinates, crow_distances
from storage.graph.graph import Graph, build_graph

N = 30
#: Vertices without any way to the others; the last one has no coordinates.
LONELY, NOWHERE = N - 2, N - 1


def city(unit: str | None = "s") -> Graph:
    draw = np.random.default_rng(3)
    tails, heads = draw.integers(0, N - 2, (2, 90))
    ring = np.arange(N - 2)
    tails, heads = np.append(tails, ring), np.append(heads, np.roll(ring, -1))
    graph, _ = build_graph(tails, heads, draw.integers(1, 600, len(tails)), n=N, directed=True)
    x, y = 25 + draw.random(N) / 10, 60 + draw.random(N) / 10
    x[NOWHERE] = y[NOWHERE] = np.nan
    names = np.array([f"corner {i}" if i % 2 else "" for i in range(N)], np.dtypes.StringDType())
    return replace(graph, coordinates=Coordinates(x, y, True, {"name": names}), unit=unit)


def expected(graph: Graph) -> nx.DiGraph:
    made = nx.DiGraph()
    made.add_nodes_from(range(N))
    tails = np.repeat(np.arange(N), np.diff(graph.indptr))
    made.add_weighted_edges_from(zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True))
    return made


def nearest(graph: Graph, lon: float, lat: float) -> int:
    assert graph.coordinates is not None
    far = [
        math.inf if math.isnan(x) else crow_distances(*(np.array([v]) for v in (lon, lat, x, y)), geographic=True)[0]
        for x, y in zip(graph.coordinates.x, graph.coordinates.y, strict=True)
    ]
    return int(np.argmin(far))


def places(count: int, seed: int) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    return [(round(25 + draw.random() / 10, 6), round(60 + draw.random() / 10, 6)) for _ in range(count)]


def text(some: list[tuple[float, float]]) -> str:
    return ";".join(f"{lon},{lat}" for lon, lat in some)


def lengths(some: list[tuple[float, float]]) -> list[list[float | None]]:
    graph = city()
    found = dict(nx.all_pairs_dijkstra_path_length(expected(graph)))
    vertices = [nearest(graph, *place) for place in some]
    return [[found[u].get(v) for v in vertices] for u in vertices]


def lonely() -> tuple[float, float]:
    where = city().coordinates
    assert where is not None
    return float(where.x[LONELY]), float(where.y[LONELY])


def straight_lines(graph: Graph, path: list[int]) -> float:
    assert graph.coordinates is not None
    x, y = graph.coordinates.x[path], graph.coordinates.y[path]
    return float(crow_distances(x[:-1], y[:-1], x[1:], y[1:], geographic=True).sum())
