"""Vertices that paths begin and end at but do not pass through, against searches in which each source opens its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.bulk import Entry, make_bulk_plan, run
from engine.api.routes import Router
from engine.api.solve import make_plan, solve, solve_to_store
from engine.api.verify import verify_store
from engine.model.dtypes import work_type
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import ArraySink
from engine.streaming import checkpoint
from storage.errors import Cancelled, InvalidRequest, StorageFailed
from storage.graph.graph import FORM, Graph, build_graph, graph_digest, load_graph, save_graph
from storage.matrix.format import read_seal
from storage.matrix.reader import MatrixSpec, create_matrix, open_matrix
from storage.readers import read_graph
from tests import oracle

ALGORITHMS = (
    "dijkstra", "partitioned", "recursive-floyd-warshall", "blocked-floyd-warshall", "repeated-squaring",
)  # fmt: skip


def network(n: int, terminals: int, *, seed: int, fractions: bool = False, directed: bool = True) -> Graph:
    """A random graph in which the first vertices are hubs, so that most shortest paths would pass through them."""
    rng = np.random.default_rng(seed)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    hubs = np.repeat(np.arange(terminals), 6)
    others = rng.integers(0, n, (2, len(hubs)))
    tails, heads = np.concatenate([tails, hubs, others[0]]), np.concatenate([heads, others[1], hubs])
    weights = rng.integers(1, 50, len(tails)).astype(np.float64)
    weights[-2 * len(hubs) :] = 1
    graph, _ = build_graph(tails, heads, weights + 0.25 if fractions else weights, n=n, directed=directed)
    return replace(graph, terminals=terminals)


def expected(graph: Graph, hops: int | None = None) -> np.ndarray:
    """Row by row: the arcs out of the terminals are taken away, but for those of the source."""
    n = graph.n
    weights = np.full((n, n), np.inf)
    weights[np.repeat(np.arange(n), np.diff(graph.indptr)), graph.heads] = graph.weights
    np.fill_diagonal(weights, 0)
    found = np.empty((n, n))
    for source in range(n):
        own = weights.copy()
        closed = [t for t in range(graph.terminals) if t != source]
        own[closed] = np.inf
        own[closed, closed] = 0
        found[source] = (oracle.closure(own) if hops is None else oracle.hops(own, hops))[source]
    return found


def answer(graph: Graph, **asked: object) -> np.ndarray:
    options = Options(threads=2, **asked)  # type: ignore[arg-type]
    plan = make_plan(graph, options)
    sink = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, options, sink)
    return as_floats(sink.array)


def as_floats(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    return np.where(array >= work_type(array.dtype).unreachable, np.inf, array)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("directed", [True, False])
def test_every_algorithm_agrees_with_searches_that_open_one_terminal(algorithm: str, directed: bool) -> None:
    for seed, fractions in ((1, False), (2, True)):
        graph = network(40, 7, seed=seed, fractions=fractions, directed=directed)
        wanted = expected(graph)
        assert (oracle.closure(expected(replace(graph, terminals=0))) < wanted).any()  # terminals matter here
        found = answer(graph, algorithm=algorithm, dtype="float64" if fractions else "auto")
        np.testing.assert_array_equal(found, wanted)
        assert (np.diagonal(found) == 0).all()


def test_random_networks_rectangles_and_cutoffs() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 24))
        graph = network(n, int(rng.integers(0, n + 1)), seed=seed)
        wanted = expected(graph)
        np.testing.assert_array_equal(answer(graph), wanted, err_msg=str(seed))
        sources = tuple(rng.permutation(n)[: rng.integers(1, n + 1)].tolist())
        targets = tuple(rng.permutation(n)[: rng.integers(1, n + 1)].tolist())
        part = wanted[np.ix_(sources, targets)]
        np.testing.assert_array_equal(answer(graph, sources=sources, targets=targets), part, err_msg=str(seed))
        cutoff = float(rng.integers(0, 30))
        cut = np.where(part > cutoff, np.inf, part)
        found = answer(graph, sources=sources, targets=targets, cutoff=cutoff)
        np.testing.assert_array_equal(found, cut, err_msg=str(seed))


def test_hops_of_a_graph_without_weights() -> None:
    graph = network(40, 7, seed=3)
    graph = replace(graph, weights=np.ones_like(graph.weights), weighted=False)
    np.testing.assert_array_equal(answer(graph), expected(graph))


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_hop_limits(hops: int) -> None:
    graph = network(20, 5, seed=4)
    np.testing.assert_array_equal(answer(graph, max_hops=hops), expected(graph, hops))


@pytest.mark.parametrize(
    "asked", [{}, {"max_hops": 3}, {"targets": (1, 30, 4), "sources": (2, 0, 35)}, {"cutoff": 9.0}]
)
def test_routes_pass_through_no_terminal_and_name_the_vertices_of_the_file(tmp_path: Path, asked: dict) -> None:
    graph = network(40, 7, seed=5)
    solve_to_store(graph, Options(threads=1, **asked), tmp_path / "m.zarr")
    wanted = expected(graph, asked.get("max_hops"))
    arcs = {}
    for tail in range(graph.n):
        for at in range(graph.indptr[tail], graph.indptr[tail + 1]):
            arcs[tail, int(graph.heads[at])] = int(graph.weights[at])
    with open_matrix(tmp_path / "m.zarr") as matrix:
        assert matrix.labels.tolist() == list(range(40))
        router = Router(matrix)
        for source in asked.get("sources", range(0, 40, 3)):
            for target in asked.get("targets", range(40)):
                route = router.route(source, target)
                if wanted[source, target] > asked.get("cutoff", np.inf) or np.isinf(wanted[source, target]):
                    assert route is None
                    continue
                assert route.length == wanted[source, target]
                assert (route.vertices[0], route.vertices[-1]) == (source, target)
                assert all(v >= graph.terminals for v in route.vertices[1:-1])
                pairs = list(zip(route.vertices, route.vertices[1:], strict=False))
                assert [arcs[pair] for pair in pairs] == route.weights
                if source == target:
                    assert route.vertices == [source]


def test_a_store_says_so_and_earlier_readers_are_kept_off(tmp_path: Path) -> None:
    graph = network(12, 3, seed=6)
    outcome = solve_to_store(graph, Options(threads=1), tmp_path / "m.zarr")
    assert outcome.summary["pairs"] == 12 * 11
    assert outcome.summary["vertices"] == 12
    wanted = expected(graph)
    finite = wanted[np.isfinite(wanted) & ~np.eye(12, dtype=bool)]
    assert (outcome.summary["reached"], outcome.summary["sum"]) == (len(finite), finite.sum())
    document = (tmp_path / "m.zarr" / "zarr.json").read_bytes()
    assert read_seal("m", document)["attributes"]["seal"]["version"] == 3
    with open_matrix(tmp_path / "m.zarr") as matrix:
        assert (matrix.attributes["terminals"], matrix.graph().terminals) == (3, 3)
        assert matrix.attributes["targets"] == "all"
        assert np.array_equal(matrix.graph().heads, graph.heads)
    solve_to_store(replace(graph, terminals=0), Options(threads=1), tmp_path / "plain.zarr")
    plain = read_seal("m", (tmp_path / "plain.zarr" / "zarr.json").read_bytes())
    assert plain["attributes"]["seal"]["version"] == 1
    assert "terminals" not in plain["attributes"]


@pytest.mark.parametrize("asked", [{}, {"max_hops": 3}, {"targets": (1, 11, 4), "sources": (2, 0, 7)}, {"cutoff": 9.0}])
@pytest.mark.parametrize("fractions", [False, True])
def test_verify_searches_with_terminals_too(tmp_path: Path, asked: dict, fractions: bool) -> None:
    graph = network(12, 3, seed=6, fractions=fractions)
    solve_to_store(graph, Options(threads=1, **asked), tmp_path / "m.zarr")
    assert verify_store(tmp_path / "m.zarr", "all").searched == len(asked.get("sources", range(12)))
    # what was solved with paths through terminals is told apart
    plan = make_plan(replace(graph, terminals=0), Options(threads=1, **asked))
    sink = ArraySink(plan.shape, plan.dtype)
    solve(replace(graph, terminals=0), plan, Options(threads=1, **asked), sink)
    with open_matrix(tmp_path / "m.zarr") as matrix:
        rows = np.array([matrix.row(int(source)) for source in matrix.sources])
        attributes = {"max_hops": matrix.attributes["max_hops"], "cutoff": matrix.attributes["cutoff"]}
    if np.array_equal(as_floats(rows), as_floats(sink.array)):
        assert asked, "the whole matrix must differ, or nothing is tested"
        return
    sides = {name: np.array(asked[name]) for name in ("sources", "targets") if name in asked}
    unreachable = work_type(sink.array.dtype).unreachable
    with create_matrix(
        tmp_path / "w.zarr", graph, MatrixSpec(sink.array.dtype, unreachable, attributes=attributes, **sides)
    ) as writer:
        writer.write(0, 0, sink.array)
        writer.seal({})
    with pytest.raises(StorageFailed, match="is wrong"):
        verify_store(tmp_path / "w.zarr", "all")


def test_graph_folders_and_digests(tmp_path: Path) -> None:
    graph, receipt = read_graph(_tntp(tmp_path))
    assert graph.terminals == 2
    plain = replace(graph, terminals=0)
    assert len({graph_digest(graph), graph_digest(plain), graph_digest(replace(graph, terminals=1))}) == 3
    save_graph(graph, receipt, tmp_path / "g")
    found, same = load_graph(tmp_path / "g")
    assert (found.terminals, graph_digest(found), same) == (2, graph_digest(graph), receipt)
    save_graph(plain, receipt, tmp_path / "p")
    assert '"form": 1' in (tmp_path / "p" / "graph.json").read_text()
    about = tmp_path / "g" / "graph.json"
    about.write_text(about.read_text().replace('"form": 2', f'"form": {FORM + 1}'))
    with pytest.raises(StorageFailed, match=f"forms 1 to {FORM}"):
        load_graph(tmp_path / "g")


def test_a_stopped_solve_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    graph = network(300, 40, seed=8)

    class Stops(Monitor):
        done = 0

        def advance(self, amount: int) -> None:
            self.done += amount

        def cancelled(self) -> bool:
            return self.done > 100

    options = Options(threads=1, algorithm="dijkstra")
    with pytest.raises(Cancelled):
        solve_to_store(graph, options, tmp_path / "m.zarr", monitor=Stops())
    outcome = solve_to_store(graph, options, tmp_path / "m.zarr", resume=True)
    whole = solve_to_store(graph, options, tmp_path / "n.zarr")
    assert outcome.summary == whole.summary
    with open_matrix(tmp_path / "m.zarr") as first, open_matrix(tmp_path / "n.zarr") as second:
        for source in range(0, 300, 7):
            assert np.array_equal(first.row(source), second.row(source))


def test_many_graphs_at_once(tmp_path: Path) -> None:
    graphs = {i: network(15 + i, i, seed=i) for i in range(4)}
    options = Options(device="cpu")
    entries = {i: Entry(graph, tmp_path / f"{i}.zarr") for i, graph in graphs.items()}
    plan = make_bulk_plan(graphs, options, stores=True)
    assert all(result.failure is None for result in run(entries, plan, options))
    for i, graph in graphs.items():
        with open_matrix(tmp_path / f"{i}.zarr") as matrix:
            found = as_floats(np.array([matrix.row(source) for source in range(graph.n)]))
        np.testing.assert_array_equal(found, expected(graph))


def test_workers_of_dask_do_not_know_terminals() -> None:
    with pytest.raises(InvalidRequest, match="executor dask does not know the 3 vertices") as caught:
        make_plan(network(12, 3, seed=6), Options(executor="dask", scheduler="tcp://127.0.0.1:1"))
    assert caught.value.field == "executor"


def _tntp(folder: Path) -> Path:
    """Zones 1 and 2 in the middle: 3 -> 1 -> 4 and 3 -> 2 -> 4 are short, 3 -> 5 -> 4 is long."""
    links = [(3, 1, 1), (1, 4, 1), (3, 2, 1), (2, 4, 1), (3, 5, 10), (5, 4, 10), (4, 3, 7), (1, 2, 5)]
    rows = "".join(f"\t{u}\t{v}\t900\t{w}\t;\n" for u, v, w in links)
    head = "<NUMBER OF ZONES> 2\n<NUMBER OF NODES> 5\n<FIRST THRU NODE> 3\n<NUMBER OF LINKS> 8\n<END OF METADATA>\n"
    path = folder / "zones_net.tntp"
    path.write_text(f"{head}~\tinit_node\tterm_node\tcapacity\tlength\t;\n{rows}")
    return path


def test_tntp_centroids(tmp_path: Path) -> None:
    path = _tntp(tmp_path)
    graph, receipt = read_graph(path)
    assert "no path passes through the 2 centroids 1 .. 2 (FIRST THRU NODE)" in " ".join(receipt.notes)
    assert "not read: column capacity" in receipt.notes
    matrix = answer(graph)
    assert (matrix[2, 3], matrix[0, 1], matrix[1, 0], matrix[3, 2]) == (20, 5, 9, 7)
    through, receipt = read_graph(path, centroids_through=True)
    assert answer(through)[2, 3] == 2
    assert not any("centroid" in note for note in receipt.notes)
    assert graph_digest(through) != graph_digest(graph)


def test_centroids_that_nothing_could_pass_through_change_nothing(tmp_path: Path) -> None:
    path = _tntp(tmp_path)
    path.write_text(path.read_text().replace("<FIRST THRU NODE> 3", "<FIRST THRU NODE> 1"))
    graph, receipt = read_graph(path)
    assert graph.terminals == 0
    assert not any("centroid" in note for note in receipt.notes)


def test_negative_lengths_and_centroids_are_refused(tmp_path: Path) -> None:
    path = _tntp(tmp_path)
    with pytest.raises(InvalidRequest, match="--centroids-through"):
        read_graph(path, length_of="length - 2")
    assert read_graph(path, length_of="length - 2", centroids_through=True)[0].weights.min() == -1


@pytest.mark.data
@pytest.mark.parametrize("name", ["Anaheim_net.tntp", "Winnipeg_net.tntp"])
def test_real_networks_against_scipy(data_dir: Path, name: str) -> None:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    graph, _ = read_graph(data_dir / name)
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    assert graph.terminals > 0
    found = answer(graph, dtype="float64")
    for source in [*range(0, graph.terminals, 5), *range(graph.terminals, graph.n, 20)]:
        open_ = (tails >= graph.terminals) | (tails == source)
        arcs = csr_array((graph.weights[open_].astype(float), (tails[open_], graph.heads[open_])), shape=(graph.n,) * 2)
        np.testing.assert_allclose(found[source], dijkstra(arcs, indices=source), rtol=1e-12)
