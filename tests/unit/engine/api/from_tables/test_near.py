"""Near pairs of a prepared graph are those of its file and of SciPy, whichever way they are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

import apsp
from engine.api.from_tables import shares
from engine.api.from_tables.near import NearWay, PreparedNear
from engine.api.near import near_pairs, plan_near
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.model.problem import Options
from storage.errors import Cancelled, DoesNotFit, InvalidRequest
from storage.graph.graph import build_graph
from tests.unit.engine.algorithms.test_near import expected
from tests.unit.engine.api.test_prepared import grid_graph

#: random graphs of each kind of weights: in every run, and of those marked long
SEEDS = [pytest.param(range(7), id="few"), pytest.param(range(7, 60), id="many", marks=pytest.mark.long)]
#: kinds of weights, and the types that tables of them may be asked to have
KINDS = {
    "whole": ("auto", "int32", "float32", "float64"), "zeros": ("auto",), "ones": ("auto",), "long": ("auto",),
    "quarters": ("float32", "float64"), "fractions": ("float32", "float64"), "negative": ("auto",),
}  # fmt: skip


def random_graph(rng, kind):
    """Several pieces, parallel arcs, loops, both directions or one; terminals in some."""
    n, count = int(rng.integers(1, 45)), int(rng.integers(0, 130))
    tails, heads = rng.integers(0, n, (2, count))
    weights = {
        "whole": rng.integers(0, 30, count), "zeros": rng.integers(0, 2, count), "ones": None,
        "long": rng.integers(0, 2**26, count), "quarters": rng.integers(0, 40, count) / 4,
        "fractions": np.round(rng.integers(0, 60, count) / 7, 2), "negative": rng.integers(0, 20, count),
    }[kind]  # fmt: skip
    directed = kind == "negative" or bool(rng.integers(2))
    if kind == "negative":  # arcs against a potential: many are below zero, no cycle is
        height = rng.integers(0, 30, n)
        weights = weights + height[heads] - height[tails]
    graph = build_graph(tails, heads, weights, n=n, directed=directed)[0]
    return replace(graph, terminals=int(rng.integers(1, n))) if n > 3 and rng.random() < 0.2 else graph


def distances(graph):
    """All distances by SciPy; a stored zero is an arc of length zero, and no path passes through a terminal."""
    shape = graph.n, graph.n
    opened = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=shape)
    if not graph.terminals:
        return shortest_path(opened, method="BF" if graph.integral and graph.weights.min(initial=0) < 0 else "D")
    found = np.full(shape, np.inf)
    for source in range(graph.n):
        tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
        kept = (tails >= graph.terminals) | (tails == source)
        arcs = csr_array((graph.weights[kept].astype(np.float64), (tails[kept], graph.heads[kept])), shape=shape)
        method = "BF" if graph.weights.min(initial=0) < 0 else "D"
        found[source] = shortest_path(arcs, method=method, indices=source)
    return found


def request_of(rng, whole):
    reached = np.sort(whole[np.isfinite(whole) & (whole >= 0)])
    n, asked, nearest = len(whole), {}, None
    for side in ("sources", "targets"):
        if rng.random() < 0.4:
            asked[side] = tuple(rng.permutation(n)[: int(rng.integers(1, n + 1))].tolist())
    if rng.random() < 0.6:  # on the boundary: a distance itself, or a little less
        at = float(rng.choice(reached))
        asked["cutoff"] = float(rng.choice([at, max(0.0, np.nextafter(at, -1)), at + 0.3, 1e12]))
    if "cutoff" not in asked or rng.random() < 0.4:
        nearest = int(rng.choice([1, 3, 50]))
    return asked, nearest


def swept(monkeypatch, *, rows):
    reason = "the test says so"
    monkeypatch.setattr(PreparedNear, "way", property(lambda self: NearWay(rows and self._matrix.exact, reason)))


def same(found, want):
    for name in ("indptr", "indices", "lengths", "sources", "labels"):
        one, other = getattr(found, name), getattr(want, name)
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, err_msg=name)
    assert (found.cutoff, found.nearest) == (want.cutoff, want.nearest)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_those_of_the_file_and_of_scipy(tmp_path, monkeypatch, kind, seeds):
    monkeypatch.setattr(shares, "BAND_BYTES", 256)  # many bands
    for seed in seeds:
        rng = np.random.default_rng([seed, len(kind), ord(kind[0])])
        graph = random_graph(rng, kind)
        dtype = KINDS[kind][seed % len(KINDS[kind])]
        prepare(graph, tmp_path / str(seed), Options(dtype=dtype))
        whole = distances(graph)
        asked, nearest = request_of(rng, whole)
        options, below = Options(**asked, threads=1 + seed % 2), graph.weights.min(initial=0) < 0
        with open_result(tmp_path / str(seed)) as matrix:
            assert matrix.exact or kind == "fractions"
            ways = [True] if below else [True, False]
            results = []
            for way in ways:
                with monkeypatch.context() as patch:
                    swept(patch, rows=way)
                    results.append(near_pairs(matrix, options, nearest=nearest))
        for found in results if below else [*results, near_pairs(graph, options, nearest=nearest)]:
            same(found, results[0])
        columns = np.arange(graph.n) if options.targets is None else np.sort(options.targets)
        for source in results[0].sources.tolist():
            vertices, lengths = results[0].row(source)
            want, far = expected(whole[source], source, columns, options.cutoff, nearest)
            if kind != "fractions":  # SciPy adds these in another order, so that ties and cutoffs differ
                np.testing.assert_array_equal(vertices, want, err_msg=f"{seed}")
                np.testing.assert_array_equal(lengths, far)
            else:
                np.testing.assert_allclose(lengths, whole[source][vertices], rtol=1e-12)


def road(n=600):
    ends = np.arange(n - 1)
    return build_graph(ends, ends + 1, np.full(n - 1, 10), n=n, directed=False)[0]


def test_the_cheaper_way_is_taken_and_says_its_numbers(tmp_path, monkeypatch):
    prepare(road(), tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        monkeypatch.setattr(PreparedNear, "_search_seconds", lambda self: 3.0)
        asked = PreparedNear(matrix, Options(cutoff=50))
        assert asked.way.swept
        assert asked.way.seconds == asked._sweep_seconds()
        assert asked.way.reason.endswith("s predicted, 3 s by searches")
        assert 0 < asked._sweep_seconds() < 3
        unread = asked._sweep_seconds()
        same(asked.run(), near_pairs(road(), Options(cutoff=50)))
        assert asked._sweep_seconds() < unread  # the tables are in memory now
        monkeypatch.setattr(PreparedNear, "_search_seconds", lambda self: 0.0)
        other = PreparedNear(matrix, Options(cutoff=50))
        assert not other.way.swept
        assert "searched: 0 s predicted" in other.way.reason


def test_searches_are_predicted_from_some_sources(tmp_path):
    prepare(road(), tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        far, close = (PreparedNear(matrix, Options(cutoff=cutoff, threads=1)) for cutoff in (10**6, 10))
        assert far._search_seconds() > close._search_seconds() >= 0


def test_plans_have_the_sizes_of_those_of_the_file(tmp_path, monkeypatch):
    prepare(road(), tmp_path / "p")
    want = plan_near(road(), Options(cutoff=50))
    with open_result(tmp_path / "p") as matrix:
        for rows in (True, False):
            swept(monkeypatch, rows=rows)
            found = plan_near(matrix, Options(cutoff=50), out=tmp_path)
            entries = near_pairs(matrix, Options(cutoff=50)).entries
            assert (found.shape, found.dtype, found.disk) == (want.shape, want.dtype, want.disk)
            assert abs(int(found.reason.split()[1].replace(",", "")) - entries) < 0.05 * entries
            assert found.reason.endswith("; the test says so")


def test_a_cutoff_of_the_tables_is_kept_in_mind(tmp_path):
    graph = grid_graph(9)
    prepare(graph, tmp_path / "p", Options(cutoff=12.0))
    with open_result(tmp_path / "p") as matrix:
        same(near_pairs(matrix, Options(), nearest=200), near_pairs(graph, Options(cutoff=12.0), nearest=200))
        same(near_pairs(matrix, Options(cutoff=7)), near_pairs(graph, Options(cutoff=7)))
        with pytest.raises(InvalidRequest, match=r"cutoff 12 and knows no longer distances; 12\.5") as caught:
            near_pairs(matrix, Options(cutoff=12.5))
        with pytest.raises(InvalidRequest, match=r"; 12\.00000001 was"):  # numbers that differ are told apart
            near_pairs(matrix, Options(cutoff=12.00000001))
        assert caught.value.field == "cutoff"


@pytest.mark.parametrize(
    ("asked", "nearest", "field"),
    [
        ({}, None, "cutoff"), ({}, 0, "nearest"), ({"cutoff": -1.0}, None, "cutoff"), ({"max_hops": 2}, 1, "max_hops"),
        ({"device": "cuda"}, 1, "device"), ({"dtype": "float64"}, 1, "dtype"), ({"targets": (1, 1)}, 1, "targets"),
        ({"sources": (9,)}, 1, "sources"), ({"algorithm": "dijkstra"}, 1, "algorithm"),
    ],
)  # fmt: skip
def test_what_near_pairs_do_not_have_is_refused(tmp_path, asked, nearest, field):
    prepare(grid_graph(3), tmp_path / "p")
    with open_result(tmp_path / "p") as matrix, pytest.raises(InvalidRequest) as caught:
        apsp.near_pairs(matrix, Options(**asked), nearest=nearest)
    assert caught.value.field == field


def test_memory_and_a_wish_to_stop(tmp_path, monkeypatch):
    class Stopping(apsp.Monitor):
        def cancelled(self):
            return True

    prepare(road(), tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        assert "need" in PreparedNear(matrix, Options(cutoff=5, memory=5000)).way.reason
        swept(monkeypatch, rows=True)
        few = PreparedNear(matrix, Options(cutoff=5))._shares.needed + 24 * 50
        with pytest.raises(DoesNotFit, match=r"already .* and 50 fit") as caught:
            near_pairs(matrix, Options(cutoff=100, memory=few))
        assert caught.value.needed > caught.value.available
        with pytest.raises(Cancelled):
            near_pairs(matrix, Options(cutoff=5), monitor=Stopping())


@pytest.mark.parametrize("nearest", [None, 3])
@pytest.mark.parametrize("kept", [0, 50, 500])
def test_pairs_that_memory_does_not_hold_are_the_same_from_files(tmp_path, monkeypatch, kept, nearest):
    prepare(road(), tmp_path / "p")
    monkeypatch.setattr(shares, "BAND_BYTES", 1 << 14)
    with open_result(tmp_path / "p") as matrix:
        swept(monkeypatch, rows=True)
        right = near_pairs(matrix, Options(cutoff=100), nearest=nearest)
        # one thread: of several, one may hold more than these few pairs while another searches the piece before
        needed = PreparedNear(matrix, Options(cutoff=100, threads=1))._shares.needed
        few = Options(cutoff=100, memory=needed + 24 * kept, threads=1)
        found = near_pairs(matrix, few, nearest=nearest, spill=tmp_path)
        assert isinstance(found.indices, np.memmap)
        for name in ("indptr", "indices", "lengths", "sources"):
            one, other = getattr(right, name), getattr(found, name)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        assert plan_near(matrix, few, nearest=nearest, spills=True, out=tmp_path / "t").memory <= few.memory
        with pytest.raises(DoesNotFit):
            plan_near(matrix, few, nearest=nearest)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_only_tables_answer_where_arcs_are_negative(tmp_path):
    below, _ = build_graph([0, 1, 2], [1, 2, 3], [3, -1, 4], n=4, directed=True)
    prepare(below, tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        assert near_pairs(matrix, Options(cutoff=2)).row(0)[0].tolist() == [2]
        assert near_pairs(matrix, Options(cutoff=0)).row(1)[1].tolist() == [-1]
        assert "searches cannot answer" in plan_near(matrix, Options(cutoff=2)).reason
        with pytest.raises(DoesNotFit, match="1 may be used"):
            near_pairs(matrix, Options(cutoff=2, memory=1))
