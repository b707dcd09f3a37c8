"""Vertices taken by ascending distance: the sums are those in one order, which serves where distances differ much."""

from __future__ import annotations

import numpy as np
import pytest

from engine.algorithms.betweenness.numbering import number_arcs
from engine.algorithms.betweenness.rows import NO_MEMBERS, RowPasses
from engine.devices.cpu.betweenness import levels, together
from engine.devices.cpu.betweenness.accumulating import DONE, UNEQUAL
from engine.devices.cpu.betweenness.ordering import count_in_order, sort_roughly
from engine.devices.cpu.betweenness.vectors import LANES
from storage.graph.graph import build_graph
from tests.unit.engine.devices.cpu.betweenness.test_together import FAR, distances, inner, known, passes_of


def listed(passes, columns, flags):
    """Return the entries by distance of sixteen sources, and the number of entries in one order."""
    _, keys, counts, before, moved, order, places, taken, limits, _, spare, lines = passes._space(flows=False)
    far = np.iinfo(columns.dtype).max if columns.dtype == np.uint16 else FAR
    together._list_tight(passes._into, columns, np.int32(far), before, moved)
    size, reached = levels.list_levels(columns, np.int32(far), before[0], (order, taken, spare, counts))
    entries = order[:reached].copy(), taken[0][:size].copy(), taken[1][:size].copy()
    keys[:] = 0
    sort_roughly(keys, order, counts)
    given = before, flags, columns, np.int32(far)
    return entries, count_in_order(given, order, places, taken, limits, (lines[0], lines[1], lines[3]))[0]


def sums_of(arcs, sources, kept, own, pieces, *, flows):
    """Return what the passes of all pieces of sources add up to."""
    n = len(arcs.indptr) - 1
    passes = RowPasses(arcs, (sources, own, 1.0 + sources % 3), kept)
    few = n if flows else 0
    sums = np.zeros(n), np.zeros(few), np.zeros(few), np.zeros(len(arcs.heads) if flows else 0)
    work = passes.worker(sums)
    for piece in pieces:
        assert work(piece) == DONE
    return sums


def in_sixteens(order):
    return [order[at : at + LANES] for at in range(0, len(order), LANES)]


@pytest.mark.parametrize("directed", [False, True])
def test_entries_take_each_vertex_once_for_each_source_by_ascending_distance(directed):
    taken = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(60, 200))
        tails, heads = rng.integers(0, n, (2, int(rng.integers(1, 5)) * n))
        arcs = number_arcs(build_graph(tails, heads, None, n=n, directed=directed)[0], decimal=True)
        sources = rng.permutation(inner(arcs))[:LANES]
        columns = np.ascontiguousarray(distances(arcs, sources)[:, : inner(arcs)].T)
        reached, flags = columns < FAR, np.zeros(n, np.uint32)
        flags[sources] = 1 << np.arange(LANES)
        (members, vertices, lanes), _ = listed(passes_of(arcs, sources), columns, flags)
        if len(vertices) == 0:  # there is space for few distances in a graph of few vertices
            continue
        taken += 1
        assert np.array_equal(members, np.flatnonzero(reached.any(1)))
        lanes = (lanes[:, None] >> np.arange(LANES) & 1).astype(bool)
        places = np.stack([np.repeat(vertices, lanes.sum(1)), lanes.nonzero()[1]], 1)
        assert np.array_equal(np.argwhere(reached), places[np.lexsort(places.T[::-1])])
        lengths = np.where(lanes, columns[vertices], -1).max(1)
        assert np.all((columns[vertices] == lengths[:, None]) == lanes)
        assert np.all(np.diff(lengths) >= 0)
    assert taken > 15


@pytest.mark.parametrize("flows", [False, True])
def test_sums_by_distance_are_those_in_one_order(flows):
    by_distance = 0
    for seed in range(30):
        rng = np.random.default_rng((seed, 264))
        n = int(rng.integers(80, 300))
        tails, heads = rng.integers(0, n * 3 // 4, int(rng.integers(2, 6)) * n), rng.integers(0, n, 6 * n)
        arcs = number_arcs(build_graph(tails, heads[: len(tails)], None, n=n, directed=True)[0], decimal=True)
        sources, kept = rng.permutation(n), rng.integers(0, 3, n).astype(float)
        own = np.where(rng.random(n) < 0.8, sources, rng.integers(-1, n, n))
        order = np.flatnonzero(sources < inner(arcs))
        together_ = sums_of(arcs, sources, kept, own, [order], flows=flows)
        apart = sums_of(arcs, sources, kept, own, in_sixteens(order), flows=flows)
        for mine, other in zip(together_, apart, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-11)
        first = sources[order[:LANES]]
        columns = np.ascontiguousarray(np.minimum(distances(arcs, first)[:, : inner(arcs)].T, 65535).astype(np.uint16))
        flags = np.zeros(n, np.uint32)
        flags[first] = 1 << np.arange(LANES)
        (_, vertices, _), size = listed(passes_of(arcs, sources), columns, flags)
        by_distance += 0 < len(vertices) < together.DEAR * size
    assert by_distance > 20


def test_where_distances_differ_too_much_vertices_are_taken_in_one_order_again():
    rng = np.random.default_rng(1)
    ring = 100 + np.arange(1500)
    tails, heads = np.append(rng.integers(0, 100, 500), ring), np.append(rng.integers(0, 100, 500), np.roll(ring, -1))
    arcs = number_arcs(build_graph(tails, heads, None, n=1600, directed=True)[0], decimal=True)
    near, apart = arcs.rank[:100][:48].astype(np.int64), arcs.rank[ring[::90]][:16].astype(np.int64)
    sources = np.concatenate([near[near < inner(arcs)], apart])
    order = np.arange(len(sources))
    found = sums_of(arcs, sources, np.ones(1600), sources, [order], flows=True)
    right = sums_of(arcs, sources, np.ones(1600), sources, in_sixteens(order), flows=True)
    for mine, other in zip(found, right, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-11)


def test_distances_that_are_wrong_are_noticed_by_distance():
    noticed = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        tails, heads = rng.integers(0, 90, (2, 400))
        arcs = number_arcs(build_graph(tails, heads, None, n=90, directed=True)[0], decimal=True)
        n = inner(arcs)
        sources = rng.permutation(n)[: 2 * LANES]
        rows = np.ascontiguousarray(distances(arcs, sources)[:, :n])
        found = passes_of(arcs, sources)
        for wrong in (False, True):
            if wrong:
                k, v = rng.choice(np.argwhere((rows > 1) & (rows < FAR) & (np.arange(2 * LANES) >= LANES)[:, None]))
                rows[k, v] += rng.choice([-1, 40])
            sums = np.zeros(90), np.zeros(0), np.zeros(0), np.zeros(0)
            space = list(found._space(flows=False))
            space[0] = np.zeros((n, LANES), np.int32)
            given = (*found._sources, *NO_MEMBERS), np.arange(2 * LANES), known(found, rows, sources), np.ones(90)
            said = together.pass_together((found._into, found._sinks_of(each=True)), *given, tuple(space), sums)
            assert said == (UNEQUAL if wrong else DONE)
            noticed += wrong
    assert noticed > 20
