"""Searches that visit little are made alone, the others together in a part of the graph; the sums stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from engine.algorithms.betweenness import numbering, passing
from engine.algorithms.betweenness.numbering import number_arcs
from engine.algorithms.betweenness.passing import PassingSearches, PassingTask
from engine.algorithms.betweenness.splitting import TogetherPasses, VisitedPart
from engine.devices.cpu.team import Team
from engine.model.progress import Monitor
from storage.graph.graph import build_graph

#: The share of the graph up to which searches are alone: none, those in small components, and nearly all.
SHARES = (0.0, 1 / 16, 0.5)


def mixed(kind, rng):
    """A large component with cycles, chains that lead into it and out of it, and small components of their own."""
    n, core = 420, 180
    tails, heads = [rng.integers(0, core, 3 * core)], [rng.integers(0, core, 3 * core)]
    for first, last, out in ((core, 230, False), (230, 280, True)):  # chains into the core, chains out of it
        some = np.arange(first, last)
        other = np.where(rng.random(len(some)) < 0.5, rng.integers(0, core, len(some)), np.maximum(some - 1, first))
        tails.append(other if out else some)
        heads.append(some if out else other)
    small = np.arange(280, n)
    tails.append(small)
    heads.append(small // 7 * 7 + rng.integers(0, 7, len(small)))
    tails.append(small[::3])
    heads.append(small[::3] // 7 * 7 + rng.integers(0, 7, len(small[::3])))
    ends = rng.permutation(n)[np.minimum(np.array([np.concatenate(tails), np.concatenate(heads)]), n - 1)]
    ends = ends[:, ends[0] != ends[1]]
    if kind == "no cycle":
        ends = np.sort(ends, axis=0)
    m = ends.shape[1]
    weights = {
        "weights": rng.integers(1, 4, m),
        "decimals": rng.integers(1, 4, m) / 10,
        "no cycle": rng.integers(0, 3, m),
    }
    return build_graph(*ends, weights.get(kind), n=n, directed=kind != "undirected")[0]


KINDS = ("hops", "undirected", "weights", "decimals", "no cycle")


def task(n, *, ends, arcs, rng=None):
    none = np.zeros(0, np.int64)
    sources = np.arange(n) if rng is None else np.sort(rng.permutation(n)[: n // 2])
    kept = np.ones(n) if rng is None else rng.integers(0, 3, n).astype(float)
    times = np.zeros(0) if rng is None else rng.integers(1, 4, len(sources)).astype(float)
    no_flows = np.zeros(0)
    return PassingTask(sources, sources, kept, none, none.astype(np.int32), no_flows, ends=ends, arcs=arcs, times=times)


def searched(graph, share, monkeypatch, threads=1, rows=None, few=32, **asked):
    monkeypatch.setattr(numbering, "ALONE", share)
    monkeypatch.setattr(passing, "FEW_ROWS", few)
    arcs, team = number_arcs(graph, decimal=True), Team(threads)
    searches = PassingSearches(arcs, task(graph.n, **asked))
    try:
        passed = searches.run(team, Monitor(), rows)
    finally:
        team.close()
    by_vertex = [each[arcs.rank] for each in (passed.vertices, passed.begins, passed.ends) if len(each)]
    over = np.empty(len(passed.over))
    over[arcs.moved[: len(over)]] = passed.over
    return searches, [*by_vertex, over]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flows", [True, False])
def test_all_ways_to_split_count_the_same(kind, flows, monkeypatch):
    for seed in range(4):
        graph, right = mixed(kind, np.random.default_rng(seed)), None
        for share in SHARES:
            for threads in (1, 2):
                searches, found = searched(graph, share, monkeypatch, threads, ends=flows, arcs=flows)
                kinds = {together for together, _ in searches._pieces(None, threads)[0]}
                if right is None:
                    right = searched(graph, share, monkeypatch, few=10**9, ends=flows, arcs=flows)[1]
                    assert right[0].max() > 0
                for one, other in zip(found, right, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
                assert True in kinds or share == SHARES[-1]
                assert (False in kinds) == (share > 0)


@pytest.mark.parametrize("kind", KINDS)
def test_some_sources_with_factors_and_flows_count_the_same(kind, monkeypatch):
    graph = mixed(kind, np.random.default_rng(9))
    found = []
    for share in SHARES:
        monkeypatch.setattr(numbering, "ALONE", share)
        arcs = number_arcs(graph, decimal=True)
        rng = np.random.default_rng(5)
        mine = task(graph.n, ends=True, arcs=True, rng=rng)
        # the same vertices in each numbering
        sources = np.sort(arcs.rank[mine.sources]).astype(np.int64)
        kept = np.empty(graph.n)
        kept[arcs.rank] = mine.kept
        times = 1.0 + np.argsort(arcs.rank)[sources] % 3
        mine = PassingTask(
            sources, sources, kept, mine.first, mine.targets, mine.flows, ends=True, arcs=True, times=times
        )
        passed = PassingSearches(arcs, mine).run(Team(1), Monitor())
        over = np.empty(graph.arcs)
        over[arcs.moved] = passed.over
        found.append([passed.vertices[arcs.rank], passed.begins[arcs.rank], passed.ends[arcs.rank], over])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


def test_chosen_rows_are_split_too(monkeypatch):
    graph = mixed("hops", np.random.default_rng(2))
    rows = np.random.default_rng(3).permutation(graph.n)[:200]
    vertices = {}
    for share in SHARES:
        monkeypatch.setattr(numbering, "ALONE", share)
        rank = number_arcs(graph, decimal=True).rank
        vertices[share] = searched(graph, share, monkeypatch, rows=rank[rows].astype(np.int64), ends=True, arcs=True)[1]
    for share in SHARES[1:]:
        for one, other in zip(vertices[share], vertices[0.0], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_the_part_has_no_more_than_the_large_searches_visit(monkeypatch):
    monkeypatch.setattr(numbering, "ALONE", 1 / 16)
    arcs = number_arcs(mixed("hops", np.random.default_rng(0)), decimal=True)
    part = VisitedPart.of(arcs)
    assert 150 < len(part.vertices) < 300
    assert np.array_equal(part.vertices, np.flatnonzero(arcs.inside))
    assert np.array_equal(part.number[part.vertices], np.arange(len(part.vertices)))
    tails = np.repeat(np.arange(len(part.vertices)), np.diff(part.arcs.indptr))
    old = np.repeat(np.arange(len(arcs.inside)), np.diff(arcs.indptr))
    assert np.array_equal(part.vertices[tails], old[part.places])
    assert np.array_equal(part.vertices[part.arcs.heads], arcs.heads[part.places])
    sources = np.arange(len(arcs.inside))
    near = TogetherPasses(arcs, (sources, sources, np.ones(len(sources))), np.ones(len(sources))).near()
    assert np.array_equal(np.sort(near), np.flatnonzero(~arcs.few & (np.diff(arcs.indptr) > 0)))


def test_sources_whose_paths_have_one_arc_are_left_out_where_nothing_is_counted_on_it():
    clique = np.argwhere(~np.eye(8, dtype=bool))
    star, line = np.array([[8, leaf] for leaf in range(9, 30)]), np.array([[30, 31], [31, 32]])
    tails, heads = np.concatenate([clique, star, line]).T
    for weights in (None, np.arange(len(tails)) + 1):
        arcs = number_arcs(build_graph(tails, heads, weights, n=33, directed=True)[0], decimal=True)
        for asked in ({"ends": False, "arcs": False}, {"ends": True, "arcs": False}, {"ends": False, "arcs": True}):
            pieces, left = PassingSearches(arcs, task(33, **asked))._pieces(None, 1)
            found = sorted(np.argsort(arcs.rank)[np.concatenate([some for _, some in pieces])].tolist())
            only_line = weights is None and not any(asked.values())
            assert found == ([30] if only_line else [*range(9), 30, 31])
            assert left == 33 - len(found)


def test_sources_without_arcs_are_left_out_and_pieces_have_much_the_same_work(monkeypatch):
    monkeypatch.setattr(passing, "SHORT", 50)
    heads = np.arange(1, 400)
    kept = heads % 20 != 0
    graph = build_graph(heads[kept] - 1, heads[kept], None, n=400, directed=True)[0]  # twenty paths
    searches = PassingSearches(number_arcs(graph, decimal=True), task(400, ends=False, arcs=False))
    pieces, left = searches._pieces(None, 1)
    assert not searches.together
    assert left == 40  # the last two of each path
    assert sum(len(some) for _, some in pieces) == 360
    assert searches.visits == (0, 20 * sum(range(1, 40, 2)))
    work = [int(searches._visits[some].sum()) for _, some in pieces]
    assert len(work) > 20
    assert max(work) < 2 * (searches.visits[1] // passing.PIECES)
