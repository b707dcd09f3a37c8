"""The ways to count what passes agree, stop when asked, and refuse what they cannot count."""

from __future__ import annotations

import numpy as np
import pytest

from engine.algorithms.betweenness import passing
from engine.algorithms.betweenness.numbering import number_arcs
from engine.algorithms.betweenness.passing import PassingSearches, PassingTask
from engine.devices.cpu.team import Team
from engine.model.progress import Monitor
from storage.errors import Cancelled, InvalidRequest, SolveFailed
from storage.graph.graph import build_graph


def mesh(side: int, rng, weight):
    """A mesh with some diagonals, in an order that says nothing about places."""
    place = rng.permutation(side * side).reshape(side, side)
    ends = [(place[:-1], place[1:]), (place[:, :-1], place[:, 1:]), (place[:-1, :-1][::3], place[1:, 1:][::3])]
    tails, heads = (np.concatenate([pair[k].ravel() for pair in ends]) for k in (0, 1))
    weights = None if weight is None else weight(len(tails))
    return build_graph(tails, heads, weights, n=side * side, directed=False)[0]


def small_world(n: int, rng, weight, *, directed=True):
    tails, heads = rng.integers(0, n, (2, 4 * n))
    weights = None if weight is None else weight(4 * n)
    return build_graph(tails, heads, weights, n=n, directed=directed)[0]


def acyclic(n: int, rng, weight):
    """Arcs that lead forward in an order that says nothing about numbers; some vertices have many arcs in."""
    ends = np.sort(rng.integers(0, n, (2, 3 * n)), axis=0)
    ends[1][::5] = n - 1 - ends[1][::5] % 7
    kept = ends[0] < ends[1]
    tails, heads = rng.permutation(n)[ends[:, kept]]
    return build_graph(tails, heads, None if weight is None else weight(len(tails)), n=n, directed=True)[0]


def sinks(n: int, rng, weight):
    """A small world whose vertices have arcs to many vertices without arcs out, and some without arcs in."""
    tails = np.append(rng.integers(0, n // 2, 4 * n), np.arange(n // 2, n // 2 + 9))
    heads = np.append(rng.integers(0, n, 4 * n), np.arange(9))
    tails, heads = rng.permutation(n)[[tails, heads]]
    return build_graph(tails, heads, None if weight is None else weight(len(tails)), n=n, directed=True)[0]


def all_pairs(graph, *, ends=True, arcs=True):
    found, n = number_arcs(graph, decimal=True), graph.n
    none = np.zeros(0, np.int64)
    sources = np.arange(n)
    return found, PassingTask(
        sources, sources, np.ones(n), none, none.astype(np.int32), none.astype(np.float64), ends=ends, arcs=arcs
    )


def sums(graph, threads=1, rows=None, monitor=None, **asked):
    team = Team(threads)
    try:
        return PassingSearches(*all_pairs(graph, **asked)).run(team, monitor or Monitor(), rows)
    finally:
        team.close()


GRAPHS = {
    "mesh, hops": lambda rng: mesh(24, rng, None),
    "mesh, few lengths": lambda rng: mesh(24, rng, lambda m: rng.integers(1, 4, m)),
    "mesh, decimals": lambda rng: mesh(20, rng, lambda m: rng.integers(1, 30, m) / 10),
    "mesh, heavy": lambda rng: mesh(20, rng, lambda m: rng.integers(1, 3, m) * 10**6),
    "small world, hops": lambda rng: small_world(600, rng, None),
    "small world, undirected": lambda rng: small_world(600, rng, None, directed=False),
    "no cycle, hops": lambda rng: acyclic(700, rng, None),
    "no cycle, few lengths": lambda rng: acyclic(400, rng, lambda m: rng.integers(0, 3, m)),
    "no cycle, some heavy": lambda rng: acyclic(300, rng, lambda m: np.where(rng.random(m) < 0.5, 1, 10**6)),
    "many sinks": lambda rng: sinks(700, rng, None),
    "many sinks, decimals": lambda rng: sinks(500, rng, lambda m: rng.integers(1, 4, m) / 10),
    "pieces": lambda rng: build_graph(*rng.integers(0, 700, (2, 500)), None, n=700, directed=False)[0],
    "long path": lambda rng: build_graph(*rng.permutation(300)[np.array([range(299), range(1, 300)])], None, n=300,
                                         directed=False)[0],
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("asked", [{"ends": True, "arcs": True}, {"ends": False, "arcs": False}])
def test_rows_and_searches_count_the_same(name, asked, monkeypatch):
    graph = GRAPHS[name](np.random.default_rng(3))
    found = {}
    for few in (1, 10**9):
        monkeypatch.setattr(passing, "FEW_ROWS", few)
        for threads in (1, 2):
            found[few, threads] = sums(graph, threads, **asked)
    right = found[10**9, 1]
    assert right.vertices.max() > 0
    for other in found.values():
        for field in ("vertices", "begins", "ends", "over"):
            np.testing.assert_allclose(getattr(other, field), getattr(right, field), rtol=1e-9, atol=1e-9)
    if asked["arcs"]:
        assert len(right.over) == graph.arcs
        np.testing.assert_allclose(right.begins.sum(), right.ends.sum())


def test_too_many_paths_are_refused(monkeypatch):
    # 1,100 diamonds in a row have 2^1100 shortest paths
    at = 3 * np.arange(1100)
    tails, heads = np.concatenate([at, at, at + 1, at + 2]), np.concatenate([at + 1, at + 2, at + 3, at + 3])
    graph = build_graph(tails, heads, None, n=3301, directed=True)[0]
    for few in (1, 10**9):
        monkeypatch.setattr(passing, "FEW_ROWS", few)
        with pytest.raises(SolveFailed, match=r"more than 1e\+300 shortest paths"):
            sums(graph, rows=np.arange(3301))
    weighted = build_graph(tails, heads, np.where(np.arange(4400) % 2, 2, 2) + (tails == 0), n=3301, directed=True)[0]
    for few in (1, 10**9):
        monkeypatch.setattr(passing, "FEW_ROWS", few)
        with pytest.raises(SolveFailed, match=r"more than 1e\+300 shortest paths"):
            sums(weighted, rows=np.arange(3301))


def test_weights_that_sums_lose_are_refused():
    graph = build_graph([0, 1, 2], [1, 2, 1], [2.0**60, 0.3, 0.3], n=3, directed=True)[0]
    with pytest.raises(InvalidRequest, match="float64 loses them"):
        sums(graph)


@pytest.mark.parametrize("few", [1, 10**9])
def test_progress_is_told_and_a_wish_to_stop_is_heard(few, monkeypatch):
    monkeypatch.setattr(passing, "FEW_ROWS", few)

    class Told(Monitor):
        done, stop = 0, False

        def advance(self, amount):
            self.done += amount

        def cancelled(self):
            return self.stop

    graph, told = GRAPHS["mesh, hops"](np.random.default_rng(3)), Told()
    sums(graph, 2, monitor=told)
    assert told.done == graph.n
    told.stop = True
    with pytest.raises(Cancelled):
        sums(graph, 2, monitor=told)
