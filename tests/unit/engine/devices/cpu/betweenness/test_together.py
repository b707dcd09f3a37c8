"""Sixteen sources together: near sources are gathered, one order serves all, and wrong distances are noticed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.algorithms.betweenness import rows as rows_of_sources
from engine.algorithms.betweenness.acyclic import ForwardPasses
from engine.algorithms.betweenness.numbering import number_arcs
from engine.algorithms.betweenness.rows import NO_MEMBERS, RowPasses
from engine.devices.cpu.betweenness import gathering, together
from engine.devices.cpu.betweenness.accumulating import DONE, UNEQUAL
from engine.devices.cpu.betweenness.gathering import gather_near, order_along_tree
from engine.devices.cpu.betweenness.ordering import count_in_order
from engine.devices.cpu.betweenness.vectors import LANES
from storage.graph.graph import build_graph

FAR = 2**30 - 1
KINDS = ("hops", "weights", "zeros", "undirected", "ring", "circle")


def drawn(seed, kind):
    """Return arcs whose shortest paths from scattered sources form many cycles, and eight such sources with arcs."""
    rng = np.random.default_rng((seed, KINDS.index(kind)))
    n = int(rng.integers(60, 120))
    tails, heads = rng.integers(0, n, (2, int(rng.integers(1, 4)) * n))
    if kind in ("ring", "circle"):
        tails, heads = np.arange(n), np.roll(np.arange(n), -1)
    if kind == "zeros":
        tails, heads = np.minimum(tails, heads), np.maximum(tails, heads)
    low = 0 if kind == "zeros" else 1
    weights = None if kind in ("hops", "circle") else rng.integers(low, 5, len(tails))
    graph = build_graph(tails, heads, weights, n=n, directed=kind not in ("undirected", "ring", "circle"))[0]
    arcs = number_arcs(graph, decimal=True)
    return arcs, np.sort(rng.permutation(inner(arcs))[:LANES])


def inner(arcs):
    """Return how many vertices have arcs out; the others have the largest numbers."""
    return int(np.count_nonzero(np.diff(arcs.indptr)))


def distances(arcs, sources):
    n = len(arcs.indptr) - 1
    weights = arcs.weights if len(arcs.weights) else np.ones(len(arcs.heads))
    # SciPy takes 0 for no arc, so a weight is a multiple of 2^10 and 1 more, and the ones are dropped afterwards
    matrix = csr_array((weights * 1024.0 + 1, arcs.heads, arcs.indptr), shape=(n, n))
    return (np.minimum(dijkstra(matrix, indices=sources), FAR * 1024.0) // 1024).astype(np.int32)


def known(passes, rows, sources):
    """Return rows of distances of sources as ``pass_together`` takes them."""
    places = np.full(passes._inner, -1, np.int32)
    places[sources] = np.arange(len(sources))
    block = np.concatenate([rows, np.zeros((LANES, passes._inner), rows.dtype)])
    return block, np.int32(FAR), passes._sides[0], places


def passes_of(arcs, sources, kept=None):
    n = len(arcs.indptr) - 1
    given = sources.astype(np.int64), sources.astype(np.int64), np.ones(len(sources))
    return RowPasses(arcs, given, np.ones(n) if kept is None else kept)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("passes", "many"), [(0, 999), (1, 999), (16, 999), (16, 2)])
def test_all_shortest_paths_ascend_in_one_order(kind, passes, many):
    if many == 2 and kind not in ("hops", "circle"):  # on circles some distances are LEVELS or more beyond the least
        pytest.skip("only where all arcs have the length 1 are vertices taken by distance")
    several = 0
    for seed in range(25):
        arcs, sources = drawn(seed, kind)
        n, rows = inner(arcs), distances(*drawn(seed, kind))[:, : inner(arcs)]
        rows_of = passes_of(arcs, sources)
        space = list(rows_of._space(flows=False))
        columns, before, places, taken, flags, lines = space[0], space[3], space[6], space[7], space[9], space[11]
        columns = np.ascontiguousarray(rows.T)
        together._list_tight(rows_of._into, columns, np.int32(FAR), before, space[4])
        flags[sources] = 1 << np.arange(LANES)
        order = np.random.default_rng(seed).permutation(n).astype(np.int32)
        given = before, flags, columns, np.int32(FAR)
        size, counted = count_in_order(given, order, places, taken, (passes, many), (lines[0], lines[1], lines[3]))
        assert counted == np.count_nonzero(columns < FAR)
        listed, lanes = taken[0][:size], taken[1][:size]
        at = np.full((n, LANES), -1)
        for i in range(size):
            for k in range(LANES):
                if lanes[i] >> k & 1:
                    assert at[listed[i], k] < 0
                    at[listed[i], k] = i
        assert np.array_equal(at >= 0, columns < FAR)
        heads, tails, weights = rows_of._into[:3]
        u, v = columns[tails].astype(np.int64), columns[heads]
        is_tight = (u < FAR) & (u + weights[:, None] == v)
        assert np.all(at[tails][is_tight] < at[heads][is_tight])
        several += size > len(np.unique(listed))
    assert several == 0 if kind == "zeros" else several > 10


@pytest.mark.parametrize("kind", KINDS)
def test_distances_that_are_wrong_are_noticed(kind):
    noticed = 0
    for seed in range(30):
        arcs, sources = drawn(seed, kind)
        n = inner(arcs)
        rows = np.ascontiguousarray(distances(arcs, sources)[:, :n])
        rng, found = np.random.default_rng(seed), passes_of(arcs, sources)
        for wrong in (False, True):
            if wrong:
                reached = np.argwhere((rows > 0) & (rows < FAR))
                if len(reached) == 0:
                    continue
                k, v = reached[rng.integers(0, len(reached))]
                rows[k, v] += rng.choice([-1, 10**6])
            sums = np.zeros(n), np.zeros(0), np.zeros(0), np.zeros(0)
            space = list(found._space(flows=False))
            space[0] = np.zeros((n, LANES), np.int32)
            task, kept = (*found._sources, *NO_MEMBERS), np.ones(len(arcs.indptr) - 1)
            given = task, np.arange(LANES), known(found, rows, sources), kept
            said = together.pass_together((found._into, found._sinks_of(each=True)), *given, tuple(space), sums)
            assert said == (UNEQUAL if wrong else DONE)
            noticed += wrong
    assert noticed > 20


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_and_rows_in_pieces_add_up(kind, monkeypatch):
    for seed in range(12):
        arcs, _ = drawn(seed, kind)
        n = len(arcs.indptr) - 1
        sources, kept = np.arange(n), np.random.default_rng(seed).integers(0, 3, n).astype(float)
        right = None
        for passes, piece in ((16, n), (0, 1), (1, 3), (16, 11)):
            monkeypatch.setattr(RowPasses, "PASSES", passes)
            found = RowPasses(arcs, (sources, sources, 1.0 + sources % 3), kept)
            sums = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(len(arcs.heads))
            work = found.worker(sums)
            order = found.near() if passes else np.random.default_rng(seed).permutation(n)
            for at in range(0, len(order), piece):
                assert work(order[at : at + piece]) == DONE
            right = sums if right is None else right
            for mine, other in zip(sums, right, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", ["hops", "weights"])
def test_the_tail_of_its_arc_stands_for_a_sink_with_one_arc_in(kind):
    stood = 0
    for seed in range(30):
        rng = np.random.default_rng((seed, 7))
        n = int(rng.integers(5, 90))
        tails, heads = rng.integers(0, n // 2, n), rng.integers(0, n, n)
        weights = rng.integers(1, 5, n) if kind == "weights" else None
        arcs = number_arcs(build_graph(tails, heads, weights, n=n, directed=True)[0], decimal=True)
        kept, found = rng.integers(0, 3, n).astype(float), []
        for each in (False, True):
            own = np.full(n, n - 1 if each else -1)  # a source that sends nothing to a sink has every sink visited
            passes = RowPasses(arcs, (np.arange(n), own, 1.0 + np.arange(n) % 3), kept * (np.arange(n) < n - 1))
            stood += not each and len(passes._sinks_of(each=False)[5]) > 0
            sums = np.zeros(n), np.zeros(n), np.zeros(0), np.zeros(0)
            assert passes.worker(sums)(passes.near()) == DONE
            found.append(sums)
        for mine, other in zip(*found, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)
    assert stood > 20


def test_sources_near_each_other_are_gathered():
    n = 400
    place = np.random.default_rng(2).permutation(n)  # a ring in an order that says nothing about places
    graph = build_graph(place, np.roll(place, -1), None, n=n, directed=False)[0]
    side = graph.indptr.astype(np.int64), graph.heads
    where = np.empty(n, np.int64)
    where[place] = np.arange(n)
    for some in (np.arange(n), np.sort(np.random.default_rng(3).permutation(n)[:200])):
        order = gather_near(side, side, some, LANES, np.array([64, 1024]))
        assert np.array_equal(np.sort(order), np.arange(len(some)))
        groups = where[some[order[: len(order) // LANES * LANES]]].reshape(-1, LANES)
        spread = [min(np.ptp((group + turn) % n) for turn in (0, n // 2)) for group in groups]
        assert np.median(spread) <= LANES * n / len(some) + LANES
        order = order_along_tree(side, side, some)
        assert np.array_equal(np.sort(order), np.arange(len(some)))
        groups = where[some[order[: len(order) // LANES * LANES]]].reshape(-1, LANES)
        spread = [min(np.ptp((group + turn) % n) for turn in (0, n // 2)) for group in groups]
        assert np.median(spread) <= LANES * n / len(some) + LANES
    apart = build_graph([0], [1], None, n=30, directed=False)[0]
    side = apart.indptr.astype(np.int64), apart.heads
    assert np.array_equal(gather_near(side, side, np.arange(30), LANES, np.array([64])), np.arange(30))
    order = order_along_tree(side, side, np.arange(30)).tolist()
    assert {*order[:2]} == {0, 1}
    assert order[2:] == [*range(2, 30)]


def test_near_sources_are_not_searched_for_in_a_small_world(monkeypatch):
    rng = np.random.default_rng(4)
    mesh = np.arange(30 * 30).reshape(30, 30)
    ends = [(mesh[:-1], mesh[1:]), (mesh[:, :-1], mesh[:, 1:])]
    graphs = rng.integers(0, 900, (2, 4000)), [np.concatenate([pair[k].ravel() for pair in ends]) for k in (0, 1)]
    searched = []
    monkeypatch.setattr(rows_of_sources, "gather_near", lambda *given: searched.append(1) or gather_near(*given))
    for (tails, heads), gathered in zip(graphs, (False, True), strict=True):
        weights = rng.integers(1, 9, len(tails))
        for lengths in (None, weights):
            arcs = number_arcs(build_graph(tails, heads, lengths, n=900, directed=False)[0], decimal=True)
            searched.clear()
            near = passes_of(arcs, np.arange(900)).near()
            assert np.array_equal(np.sort(near), np.arange(900))
            assert bool(searched) == gathered
            if not gathered and lengths is not None:  # hops say little of weights
                assert np.array_equal(near, np.arange(900))


def test_a_search_for_near_sources_reads_no_neighbours_that_it_will_not_visit():
    star, seen, queue = (np.array([0, 50, 50]), np.arange(1, 51, dtype=np.int32)), np.full(51, -1), np.full(51, -1)
    assert gathering._see(star, 0, seen, 7, queue, 1, 9) == 9
    assert queue.tolist() == [-1, *range(1, 9)] + [-1] * 42
    assert np.flatnonzero(seen == 7).tolist() == list(range(1, 9))
    assert gathering._see(star, 0, seen, 8, queue, 9, 9) == 9
    assert not np.any(seen == 8)


def test_rows_are_derived_where_those_of_all_heads_are_searched():
    derived = 0
    for seed in range(40):
        rng = np.random.default_rng((seed, 8))
        n = int(rng.integers(2, 150))
        tails, heads = rng.integers(0, n, (2, int(rng.integers(1, 3)) * n))
        arcs = number_arcs(build_graph(tails, heads, None, n=n, directed=seed % 2 == 0)[0], decimal=True)
        sources = rng.permutation(inner(arcs))
        if len(sources) == 0:
            continue
        passes, rows = passes_of(arcs, sources), np.full((len(sources) + 1, inner(arcs)), FAR, np.int32)
        rows[:-1] = distances(arcs, np.arange(len(sources)))[:, : inner(arcs)]
        space, out = passes._choosing(), passes._sides[0]
        size, most = int(rng.integers(LANES, 4 * LANES)), int(rng.integers(LANES, 3 * LANES))
        left = sources
        while len(left):
            searched = gathering.choose_searched(out, left, (size, most, LANES), space)
            piece, left = left[: len(searched)], left[len(searched) :]
            assert 0 < len(piece) < size + LANES
            assert np.count_nonzero(searched) <= most
            assert not space[0].any()
            for v in piece[~searched]:
                assert np.isin(out[1][out[0][v] : out[0][v + 1]], piece[searched]).all()
                gathering.derive_row(rows, len(rows) - 1, v, out, np.arange(len(rows), dtype=np.int32), np.int32(FAR))
                assert np.array_equal(rows[-1], rows[v])
                derived += 1
    assert derived > 200


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["hops", "weights", "circle"])
def test_pieces_hold_each_source_once(kind, threads, monkeypatch):
    for held in (1, LANES, 40):
        monkeypatch.setattr(rows_of_sources, "HELD_ROWS", held)
        for seed in range(10):
            arcs, _ = drawn(seed, kind)
            n = len(arcs.indptr) - 1
            passes = passes_of(arcs, np.arange(n))
            pieces = passes.pieces(near := passes.near(), threads)
            assert np.array_equal(np.concatenate(pieces), near)
            assert all(len(piece) % min(held, LANES) == 0 for piece in pieces[:-1])
            sums = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(0)
            work = passes.worker(sums)
            assert [work(piece) for piece in pieces] == [DONE] * len(pieces)
            reached = np.count_nonzero(distances(arcs, np.arange(n)) < FAR, axis=1) - 1
            assert np.array_equal(sums[1], reached)


def test_sources_without_arcs_are_left_out():
    graph = build_graph([0, 0, 1], [1, 2, 2], None, n=40, directed=True)[0]
    arcs = number_arcs(graph, decimal=True)
    assert sorted(passes_of(arcs, np.arange(40)).near()) == sorted(arcs.rank[[0, 1]])
    lone = number_arcs(build_graph([], [], None, n=40, directed=True)[0], decimal=True)
    assert len(passes_of(lone, np.arange(40)).near()) == 1


def test_a_graph_without_cycles_is_numbered_forward_and_counted_without_rows():
    seen = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 120))
        ends = np.sort(rng.integers(0, n, (2, int(rng.integers(0, 4 * n)))), axis=0)
        tails, heads = rng.permutation(n)[ends[:, ends[0] < ends[1]]]
        weights = rng.integers(0, 4, len(tails)) * int(rng.choice([1, 10**4])) if seed % 2 else None
        arcs = number_arcs(build_graph(tails, heads, weights, n=n, directed=True)[0], decimal=True)
        assert arcs.forward
        sources, kept = np.arange(n), rng.integers(0, 3, n).astype(float)
        found = []
        for kind in (RowPasses, ForwardPasses):
            passes = kind(arcs, (sources, sources, 1.0 + sources % 3), kept)
            sums = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(len(arcs.heads))
            work, order = passes.worker(sums), passes.near()
            for piece in passes.pieces(order, max(1, len(order) // 11)):
                assert work(piece) == DONE
            found.append(sums)
        for mine, other in zip(*found, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-11)
        seen += found[0][0].any()
    assert seen > 25


def test_a_cycle_is_no_way_forward():
    for tails, heads in (([0, 1, 2], [1, 2, 0]), ([0, 1, 2, 3, 1], [1, 2, 1, 2, 4]), ([0, 1], [1, 0])):
        assert not number_arcs(build_graph(tails, heads, None, n=6, directed=True)[0], decimal=True).forward
    assert not number_arcs(build_graph([0], [1], None, n=3, directed=False)[0], decimal=True).forward
