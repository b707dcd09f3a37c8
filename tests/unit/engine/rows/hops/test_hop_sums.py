"""Sums where every arc counts 1: the same as those of the walk, for any number of rows, and for near and far rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.model.dtypes import SUM_TYPES, WORK_TYPES
from engine.rows.hops.hop_sums import LINE, WIDTHS, HopSums, hop_bytes
from engine.rows.lane_sums import FAR, LANES, LEAST_ROWS
from engine.rows.sums import PathSums, sum_types
from storage.errors import SolveFailed
from storage.graph.graph import Graph, build_graph
from tests.unit.engine.rows.test_lane_sums import INT32, outcome, random_graph, rows_from, typed, walks_few

COUNTS = (LEAST_ROWS, LANES, LANES + LEAST_ROWS, 2 * LANES, 2 * LANES + 7, LINE, LINE + LEAST_ROWS, 2 * LINE + 40)


def ways(graph: Graph, kind: str, *, short: bool = False, **given: object) -> tuple[PathSums, PathSums]:
    """What sums rows side by side, of which it may walk few, and what walks.  If ``short``, sums of whole numbers that
    are not negative are uint16 in the first one, if a path through all vertices allows it.
    """
    types = [sum_types(graph, list(graph.quantities), graph.n - 1 if short and first else None) for first in (1, 0)]
    beside, walk = (
        PathSums(graph, own, WORK_TYPES[kind], **{"limited": False, "targets": None} | given) for own in types
    )
    assert isinstance(beside._lanes, HopSums)
    walk._lanes = None
    return walks_few(beside), walk


def widened(sums: np.ndarray) -> np.ndarray:
    """Sums of two bytes as the walk has them."""
    if sums.dtype != np.uint16:
        return sums
    return np.where(sums == SUM_TYPES["uint16"].unreachable, INT32.unreachable, sums.astype(np.int32))


def a_path(n: int) -> tuple[Graph, np.ndarray]:
    """A path of n vertices, the quantities of its arcs, and the sums of these from vertex 0."""
    amounts = np.arange(n - 1) % 7
    graph, _ = build_graph(np.arange(n - 1), np.arange(1, n), None, n=n, directed=True, quantities={"q": amounts})
    return graph, np.concatenate(([0], np.cumsum(amounts)))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("seed", range(6))
def test_any_number_of_rows_is_summed_as_the_walk_sums_them(seed, count):
    rng = np.random.default_rng([seed, count])
    n = int(rng.integers(2, 300))
    graph, sources = random_graph(rng, "hops", n), rng.integers(0, n, count)
    rows, limited = rows_from(graph, sources), bool(rng.integers(2))
    if limited:
        rows[rows > np.median(rows[np.isfinite(rows)])] = np.inf
    targets = rng.permutation(n)[: n // 2] if seed % 3 == 0 else None
    for dtype, short in (("uint16", False), ("uint16", True), ("int32", True), ("float64", True)):
        beside, walk = ways(graph, dtype, short=short, limited=limited, targets=targets)
        used, own = (tuple(np.full_like(part, 7) for part in way.results(count + 2)) for way in (walk, beside))
        found, wanted = beside.of(sources, typed(rows, dtype)), walk.of(sources, typed(rows, dtype), used)
        assert (found["other"].dtype == np.uint16) == short
        for name in graph.quantities:
            assert np.array_equal(widened(found[name]), wanted[name]), (dtype, name)
        again = beside.of(sources, typed(rows, dtype), own)
        for name in graph.quantities:
            assert np.array_equal(widened(again[name]), wanted[name]), (dtype, name)
        del beside._walk  # what counts rows
        beside._lanes = None
        for name, sums in beside.of(sources, typed(rows, dtype)).items():
            assert np.array_equal(widened(sums), wanted[name]), (dtype, name)


@pytest.mark.parametrize("width", range(len(WIDTHS)))
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_distances_take_the_narrowest_type_that_holds_them(width, more):
    """A path whose farthest vertex is at the end of what a type holds, beside it rows that end soon."""
    most = min(int(np.iinfo(WIDTHS[width]).max), 2**17)
    graph, wanted = a_path(most + more)  # the distance of the last vertex is one less
    sources = np.zeros(LINE, np.int64)
    sources[1:] = graph.n - 2
    rows = np.full((LINE, graph.n), INT32.unreachable, np.int32)
    rows[0], rows[1:, -2:] = np.arange(graph.n), [0, 1]
    beside, _ = ways(graph, "int32")
    found = beside.of(sources, rows)["q"]
    assert np.array_equal(found[0], wanted)
    assert (found[1:, :-2] == INT32.unreachable).all()
    assert (found[1:, -2:] == [0, wanted[-1] - wanted[-2]]).all()
    assert beside._lanes._narrowest == (width + (more > 0) if width < 2 else 2)


def test_hundredths_count_as_hops():
    rng = np.random.default_rng(3)
    tails, heads = rng.integers(0, 50, (2, 150))
    amounts = {"whole": rng.integers(0, 9, 150), "part": rng.random(150)}
    graph, _ = build_graph(tails, heads, np.full(150, 0.01), n=50, directed=True, quantities=amounts)
    rows = np.round(rows_from(replace(graph, weights=np.ones(graph.arcs, np.int64)), np.arange(50)) / 100, 10)
    beside, walk = ways(graph, "float64")
    found, wanted = (way.of(np.arange(48), rows[:48]) for way in (beside, walk))
    for name in graph.quantities:
        assert np.array_equal(found[name], wanted[name])


def test_terminals_and_fractions_only():
    """The lines of the terminals follow those of the vertices; there is no line of whole sums between them."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(10, 80))
        tails, heads = rng.integers(0, n, (2, 3 * n))
        graph, _ = build_graph(tails, heads, None, n=n, directed=False, quantities={"part": rng.random(3 * n)})
        graph = replace(graph, terminals=n // 2)
        sources = rng.permutation(n)[: n // 16 * 16] if n >= 16 else np.arange(LEAST_ROWS)
        rows = typed(rows_from(graph, sources), "int32")
        beside, walk = ways(graph, "int32")
        for _ in range(2):
            assert np.array_equal(beside.of(sources, rows)["part"], walk.of(sources, rows)["part"])


def test_every_wrong_entry_is_refused_as_the_walk_refuses_it_in_64_lanes():
    refused = accepted = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, limited = int(rng.integers(2, 9)), seed % 2 == 1
        graph, sources = random_graph(rng, "hops", n), rng.integers(0, n, LINE)
        rows = typed(rows_from(graph, sources), "int32")
        beside, walk = ways(graph, "int32", limited=limited)
        for _ in range(60):
            i, v = rng.integers(LINE), rng.integers(n)
            other = rows.copy()
            other[i, v] = rng.choice([0, 1, max(0, rows[i, v] - 1), rows[i, v] + 1, 254, INT32.unreachable])
            told = [outcome(way, sources, other) for way in (beside, walk)]
            assert told[0] == told[1], (seed, i, v, other[i, v])
            refused, accepted = refused + (told[0] == {}), accepted + (told[0] != {})
    assert refused > 150
    assert accepted > 20


def test_the_entry_that_is_named_is_wrong():
    """Not one that only differs from what a wrong entry of a tail gives."""
    named = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, limited = int(rng.integers(3, 60)), seed % 2 == 1
        graph, sources = random_graph(rng, "hops", n), rng.integers(0, n, LINE)
        rows = typed(rows_from(graph, sources), "int32")
        beside, _ = ways(graph, "int32", limited=limited)
        for _ in range(10):
            other = rows.copy()
            for _ in range(rng.integers(1, 5)):
                i, v = rng.integers(LINE), rng.integers(n)
                some = [0, 1, rows[i, v] // 2, rows[i, v] + 1, rows[i, v] + 2, 254, INT32.unreachable]
                other[i, v] = rng.choice(some[: 5 if limited else 7]) if rows[i, v] < FAR else rng.choice(some[:2])
            if np.array_equal(other, rows):
                continue
            with pytest.raises(SolveFailed, match="is not the shortest distance") as told:
                beside.of(sources, other)
            source, vertex = (int(word) for word in str(told.value).split() if word.isdigit())
            assert (rows != other)[sources == source, vertex].any()
            named += 1
    assert named > 500


@pytest.mark.parametrize(("dtype", "wrong"), [("int32", -1), ("int32", FAR + 1), ("float64", -1), ("float64", np.nan)])
def test_what_is_no_distance_is_refused(dtype, wrong):
    graph, wanted = a_path(30)
    sources, unreachable = np.arange(LANES), WORK_TYPES[dtype].unreachable
    steps = np.arange(30) - sources[:, None]
    rows = np.where(steps < 0, unreachable, steps).astype(dtype)
    sums = PathSums(graph, sum_types(graph, ["q"]), WORK_TYPES[dtype], limited=False, targets=None)
    assert np.array_equal(sums.of(sources, rows)["q"][0], wanted)
    rows[3, 20] = wrong
    with pytest.raises(SolveFailed, match="the entry from 3 to 20 is not"):
        sums.of(sources, rows)
    rows[3, 20] = 17
    assert np.array_equal(sums.of(sources, rows)["q"][0], wanted)


def test_the_memory_of_a_thread_is_counted():
    graph = replace(random_graph(np.random.default_rng(1), "hops", 500), terminals=100)
    beside, _ = ways(graph, "int32", short=True)
    bases = {}
    for buffer, (lines, orders, starts), _ in beside._lanes._new_spaces():
        for array in (buffer, lines[0], lines[1], *lines[2], *orders, starts):
            whole = array
            while whole.base is not None:
                whole = whole.base
            bases[whole.ctypes.data] = whole.nbytes
    counted = hop_bytes(graph.n, graph.terminals, 2 + 4 + 8)
    assert counted == pytest.approx(sum(bases.values()), abs=1000)


@pytest.mark.parametrize("kind", ["int32", "uint16", "float64"])
def test_rows_of_sources_that_no_arc_leaves_are_no_lanes(kind, monkeypatch):
    """They are summed with any columns, alone and among others, and an entry that is wrong is refused."""
    rng = np.random.default_rng(5)
    graph, _ = build_graph(rng.integers(0, 30, 200), rng.integers(0, 90, 200), None, n=90, directed=True)
    graph = replace(graph, quantities={"q": rng.integers(0, 9, graph.arcs), "r": rng.random(graph.arcs)})
    alone = np.flatnonzero(np.diff(graph.indptr) == 0)
    for sources in (alone[:1], alone, rng.permutation(90), np.repeat(alone[:3], 9)):
        rows, none = typed(rows_from(graph, sources), kind), WORK_TYPES[kind].sentinel()
        for targets in (None, rng.permutation(90)[:20], alone[[0, 0]]):
            both = ways(graph, kind, targets=targets)
            counts = []
            add = both[0]._lanes.add
            monkeypatch.setattr(
                both[0]._lanes, "add", lambda which, *rest, c=counts, a=add: c.append(len(which)) or a(which, *rest)
            )
            found, wanted = (way.of(sources, rows) for way in both)
            assert all(np.array_equal(found[name], wanted[name]) for name in graph.quantities)
            assert counts == [len(sources) - np.isin(sources, alone).sum()]
            i = int(np.flatnonzero(np.isin(sources, alone))[-1])
            for vertex, entry in ((sources[i], none), (sources[i], 1), ((sources[i] + 1) % 90, 1)):
                wrong = rows.copy()
                wrong[i, vertex] = entry
                told = [outcome(way, sources, wrong) for way in both]
                assert told == [{}, {}]
