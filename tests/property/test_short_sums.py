"""Sums of two bytes: they are chosen only where a proof allows it, and are read as sums always were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from engine.algorithms import dijkstra
from engine.api import solve as solving
from engine.api.solve import make_plan, solve_to_store
from engine.api.verify import verify_rows, verify_store
from engine.execution import sums
from engine.execution.sums import types_of_sums
from engine.graph.bound import arcs_bound
from engine.graph.profile import GraphProfile
from engine.model.dtypes import SUM_TYPES, WorkType
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.rows.sums import sum_types
from engine.streaming import checkpoint
from storage.errors import Cancelled, Conflict, StorageFailed
from storage.files.checksum import crc32c
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from tests.path_sums import arcs_of, expected

LARGEST = int(SUM_TYPES["uint16"].largest)
INT32 = SUM_TYPES["int32"]


def names_of(graph: Graph, *also: str, **more: Any) -> dict[str, str]:
    options = Options(also=also or tuple(graph.quantities), **more)
    return {name: kind.name for name, kind in types_of_sums(GraphProfile(graph), options).items()}


def star(value: int, n: int = 600, *, directed: bool = False) -> Graph:
    """Paths have at most two arcs, and a path through all vertices, if there were one, n - 1."""
    rim = np.arange(1, n)
    ends = (np.zeros(n - 1, np.int64), rim)
    if directed:
        ends = np.concatenate([ends[0], rim]), np.concatenate([rim, ends[0]])
    values = {"q": np.full(len(ends[0]), value)}
    return build_graph(*ends, None, n=n, directed=directed, quantities=values)[0]


def wheel_ends(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Arcs between vertex 0 and all others, and around these."""
    rim = np.arange(1, n)
    return np.concatenate([np.zeros(n - 1, np.int64), rim]), np.concatenate([rim, np.roll(rim, 1)])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("most", "kind"), [(LARGEST // 2, "uint16"), (LARGEST // 2 + 1, "int32")])
def test_the_largest_sum_that_is_proven_to_fit_and_one_more(tmp_path: Path, directed: bool, most: int, kind: str):
    graph = star(most, directed=directed)
    assert names_of(graph) == {"q": kind}
    solve_to_store(graph, Options(also=("q",), threads=1), tmp_path / "s.zarr")
    with open_matrix(tmp_path / "s.zarr") as matrix:
        found = matrix.also["q"]
        assert (found.stored_dtype.name, found.dtype.name) == (kind, "int32")
        assert found.unreachable == INT32.unreachable
        wanted = np.full((600, 600), 2 * most)
        wanted[0], wanted[:, 0] = most, most
        np.fill_diagonal(wanted, 0)
        assert np.array_equal(found.rows(range(600)), wanted)
        assert np.array_equal(found.entries([1, 0, 5], [2, 0, 0]), [2 * most, 0, most])
        assert np.array_equal(found.block([3, 4], [4, 3]), [[2 * most, 0], [0, 2 * most]])
    assert verify_store(tmp_path / "s.zarr", "all").searched == 600


@pytest.mark.parametrize("value", [LARGEST, LARGEST + 1])
@pytest.mark.parametrize("rows", [2, 16, 32, 64, 130])
def test_the_largest_value_of_the_type(tmp_path: Path, value: int, rows: int):
    """One arc with the largest value, beside vertices without a path to it, in all widths of lanes and one by one."""
    n = 140
    graph, _ = build_graph([0, 2], [1, 3], None, n=n, directed=True, quantities={"q": [value, 1]})
    sources = tuple(range(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "BOUND_ENTRIES", (0, 0))
        solve_to_store(graph, Options(also=("q",), sources=sources, threads=1), tmp_path / "s.zarr")
    with open_matrix(tmp_path / "s.zarr") as matrix:
        assert matrix.also["q"].stored_dtype.name == ("uint16" if value == LARGEST else "int32")
        wanted = np.where(np.arange(n) == np.array(sources)[:, None], 0, int(INT32.unreachable))
        wanted[0, 1] = value
        if rows > 2:
            wanted[2, 3] = 1
        assert np.array_equal(matrix.also["q"].rows(sources), wanted)
    assert verify_store(tmp_path / "s.zarr", "all").searched == rows


def test_what_is_not_proven_stays_wider():
    graph = star(100)
    arcs = graph.arcs
    values = {
        "negative": np.concatenate([[-1], np.ones(arcs - 1, np.int64)]),
        "fraction": np.full(arcs, 0.5),
        "far": np.full(arcs, 2**40),
        "zero": np.zeros(arcs, np.int64),
    }
    both = replace(graph, quantities={**graph.quantities, **values})
    assert names_of(both) == {
        "q": "uint16", "negative": "int32", "fraction": "float64", "far": "float64", "zero": "uint16",
    }  # fmt: skip
    assert names_of(replace(graph, weights=np.full(graph.arcs, 2, np.int32))) == {"q": "int32"}
    wheel = build_graph(*wheel_ends(600), None, n=600, directed=False, quantities={"q": np.full(1198, 1000)})[0]
    assert names_of(wheel) == {"q": "uint16"}
    assert names_of(replace(wheel, terminals=1)) == {"q": "int32"}  # no path passes through the hub
    assert names_of(star(1000), sources=(1, 2)) == {"q": "int32"}  # a bound is not worth its search
    lone, _ = build_graph([], [], None, n=3, directed=True, quantities={"q": []})
    assert names_of(lone) == {"q": "int32"}


@pytest.mark.parametrize("directed", [False, True])
def test_paths_that_need_not_have_the_fewest_arcs_are_not_bounded_by_them(
    tmp_path: Path, directed: bool, monkeypatch: pytest.MonkeyPatch
):
    """Fractions between 0.5 and 1.5 that are multiples of no decimal unit: a path of five short arcs is nearer than one
    of two long arcs, and its sum has more than 16 bits.
    """
    monkeypatch.setattr(sums, "BOUND_ENTRIES", (0, 0))
    tails, heads = wheel_ends(600)
    far, rng = tails == 0, np.random.default_rng(1)
    weights = np.where(far, 1.4 + rng.random(len(tails)) / 20, 0.5 + rng.random(len(tails)) / 50)
    ends, values = (tails, heads), np.full(len(tails), 30_000)
    if directed:
        ends = np.concatenate([tails, heads]), np.concatenate([heads, tails])
        weights, values = np.tile(weights, 2), np.tile(values, 2)
    graph, _ = build_graph(*ends, weights, n=600, directed=directed, quantities={"q": values})
    assert arcs_bound(graph, LARGEST) == 2
    assert names_of(graph) == {"q": "int32"}
    solve_to_store(graph, Options(also=("q",), sources=(10, 11)), tmp_path / "s.zarr")
    with open_matrix(tmp_path / "s.zarr") as matrix:
        assert matrix.also["q"].entries([10, 10], [12, 15]).tolist() == [60_000, 150_000]
    decimal = replace(graph, weights=np.full(graph.arcs, 0.1))
    assert names_of(decimal) == {"q": "uint16"}  # paths of the fewest arcs again


def test_the_bound_on_arcs_holds():
    """Also in parts that are not joined, against the direction of arcs, and around terminals."""
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 60))
        m = int(rng.integers(1, 3 * n))
        directed = bool(rng.integers(2))
        graph, _ = build_graph(*rng.integers(0, n, (2, m)), rng.integers(0, 9, m), n=n, directed=directed)
        if graph.arcs == 0:
            continue
        graph = replace(graph, terminals=int(rng.integers(0, n)) if seed % 3 == 0 else 0)
        tails = np.repeat(np.arange(n), np.diff(graph.indptr))
        most = 0
        for source in range(n):
            own = (tails >= graph.terminals) | (tails == source)
            arcs = nx.DiGraph(zip(tails[own].tolist(), graph.heads[own].tolist(), strict=True))
            if source in arcs:
                most = max(most, *nx.single_source_shortest_path_length(arcs, source).values())
        bound = arcs_bound(graph, 2**15)
        assert bound is not None, seed
        assert bound >= most, seed
        assert arcs_bound(graph, most - 1) is None, seed
        assert GraphProfile(graph).most_arcs(2**15) == bound, seed


@pytest.mark.parametrize("seed", range(40))
def test_of_a_store_as_of_every_path(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(seed)
    n, directed = int(rng.integers(2, 8)), bool(rng.integers(2))
    m = int(rng.integers(1, 3 * n))
    tails, heads = rng.integers(0, n, (2, m))
    values = {"a": rng.integers(0, 9000, m), "b": rng.integers(-3, 9, m), "c": rng.random(m).round(3)}
    tenths = seed % 3 == 2  # every arc has the length 0.1
    weights = np.full(m, 0.1) if tenths else None
    graph, _ = build_graph(tails, heads, weights, n=n, directed=directed, quantities=values)
    graph = replace(graph, terminals=int(rng.integers(0, n)) if seed % 4 == 0 else 0)
    arcs = arcs_of(tails, heads, np.ones(m, np.int64), values, directed=directed)
    distances, wanted = expected(arcs, n, 3, graph.terminals)
    sides = [
        None if rng.integers(2) else tuple(rng.permutation(n)[: rng.integers(1, n + 1)].tolist()) for _ in range(2)
    ]
    cutoff = int(rng.integers(1, 4)) if seed % 5 == 0 else None
    limit = cutoff / 10 + 0.05 if tenths and cutoff else cutoff
    options = Options(also=("a", "b", "c"), sources=sides[0], targets=sides[1], cutoff=limit)
    monkeypatch.setattr(sums, "BOUND_ENTRIES", (0, 0))
    solve_to_store(graph, options, tmp_path / "s.zarr", compression=("none", "zstd")[seed % 2])
    place = np.ix_(*(range(n) if side is None else side for side in sides))
    near = distances[place] <= (np.inf if cutoff is None else cutoff)
    with open_matrix(tmp_path / "s.zarr") as matrix:
        assert matrix.also["a"].stored_dtype.name == ("uint16" if graph.arcs else "int32")
        for name, found in zip(("a", "b", "c"), wanted, strict=True):
            quantity = matrix.also[name]
            rows = quantity.rows(matrix.sources)
            floats = np.where(rows == quantity.unreachable, np.inf, rows.astype(np.float64))
            assert np.allclose(floats, np.where(near, found[place], np.inf), rtol=1e-12), name
    verify_store(tmp_path / "s.zarr", "all")


@pytest.mark.parametrize("wrong", [LARGEST, LARGEST + 1, 2**16 - 1, 3])
def test_a_wrong_sum_is_found(tmp_path: Path, wrong: int):
    solve_to_store(star(7), Options(also=("q",)), tmp_path / "s.zarr")
    tile = tmp_path / "s.zarr" / "also" / "q" / "c" / "0" / "0"
    data = np.frombuffer(tile.read_bytes()[:-4], np.uint16).copy()
    assert data[2] == 7
    data[2] = wrong
    tile.write_bytes(data.tobytes() + crc32c(data).to_bytes(4, "little"))
    with open_matrix(tmp_path / "s.zarr") as matrix:
        matrix.also["q"]._tiles._checksums[0, 0] = crc32c(data)
        with pytest.raises(StorageFailed, match="a new sum along the path is 7"):
            verify_rows(matrix, "all")


def test_plans_count_two_bytes():
    short, wide = (make_plan(star(value), Options(also=("q",), device="cpu")) for value in (7, LARGEST))
    bytes_of = [sum(phase.bytes for phase in plan.phases if phase.name == "sum") for plan in (short, wide)]
    assert bytes_of[0] < 0.6 * bytes_of[1]
    assert short.disk < wide.disk
    assert short.memory < wide.memory


class _Stop(Monitor):
    """Stops a solve when it is asked the given number of times."""

    def __init__(self, after: int) -> None:
        self.left = after

    def cancelled(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that begins a solve of a graph into ``s.zarr``, as a program would that knows the types of sums
    which are given, and that leaves a checkpoint.
    """
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    for name in ("BATCH_SECONDS", "BUSY_SECONDS"):
        monkeypatch.setattr(dijkstra, name, 0.0)
    for name in ("FIRST_ENTRIES", "BUSY_ENTRIES"):
        monkeypatch.setattr(dijkstra, name, 0)

    def stop(graph: Graph, options: Options, types: dict[str, WorkType]) -> Path:
        path, after = tmp_path / "s.zarr", 4
        while checkpoint.resumable(path, resume=True) is None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(solving, "types_of_sums", lambda *_: types)
                with pytest.raises(Cancelled):
                    solve_to_store(graph, options, path, overwrite=True, monitor=_Stop(after))
            after *= 2
        return path

    return stop


def some_graph(most: int, n: int = 400) -> Graph:
    """The same arcs always; the numbers of q are at most ``most``."""
    rng = np.random.default_rng(1)
    ends, values = rng.integers(0, n, (2, 1200)), {"q": rng.integers(0, most + 1, 1200), "r": rng.random(1200)}
    return build_graph(*ends, None, n=n, directed=True, quantities=values)[0]


OF_BOTH = Options(also=("q", "r"), threads=1, algorithm="dijkstra")


@pytest.mark.parametrize("before", ["uint16", "int32"])
def test_a_solve_resumes_in_the_type_of_its_checkpoint(
    tmp_path: Path, before: str, stopped: Any, monkeypatch: pytest.MonkeyPatch
):
    """Whatever type this program would choose itself: an earlier one knew no sums of two bytes, a later one may prove
    more.
    """
    graph, options = some_graph(8), OF_BOTH
    own = types_of_sums(GraphProfile(graph), options)
    assert {name: kind.name for name, kind in own.items()} == {"q": "uint16", "r": "float64"}
    path = stopped(graph, options, own | {"q": SUM_TYPES[before]})
    if before == "uint16":  # and this program would not choose it
        monkeypatch.setattr(sums, "counts_hops", lambda _: False)
        assert types_of_sums(GraphProfile(graph), options)["q"].name == "int32"
        monkeypatch.undo()
    solve_to_store(graph, options, path, resume=True)
    solve_to_store(graph, options, tmp_path / "whole.zarr")
    with open_matrix(path) as matrix, open_matrix(tmp_path / "whole.zarr") as whole:
        assert matrix.also["q"].stored_dtype.name == before
        assert whole.also["q"].stored_dtype.name == "uint16"
        for name in ("q", "r"):
            np.testing.assert_array_equal(
                matrix.also[name].rows(range(400)), whole.also[name].rows(range(400)), strict=True
            )
    assert verify_store(path, "all").searched == 400


@pytest.mark.parametrize("change", ["values", "sources"])
def test_a_solve_that_begins_anew_does_not_take_the_types_of_a_checkpoint(tmp_path: Path, stopped: Any, change: str):
    """They are proven for the matrix of the checkpoint only, which is another one."""
    short = types_of_sums(GraphProfile(some_graph(8)), OF_BOTH)
    assert short["q"].name == "uint16"
    graph, options = some_graph(60_000), OF_BOTH
    assert names_of(graph) == {"q": "int32", "r": "float64"}
    if change == "values":
        path = stopped(some_graph(8), options, short)
    else:  # as if a later program proved more about some of the sources
        path = stopped(graph, replace(options, sources=tuple(range(300))), short)
    with pytest.raises(Conflict, match="is of another"):
        solve_to_store(graph, options, path, resume=True)
    solve_to_store(graph, options, path, resume=True, overwrite=True)
    solve_to_store(graph, options, tmp_path / "whole.zarr")
    with open_matrix(path) as matrix, open_matrix(tmp_path / "whole.zarr") as whole:
        assert matrix.also["q"].stored_dtype.name == "int32"
        rows = [both.also["q"].rows(range(400)) for both in (matrix, whole)]
        assert np.array_equal(*rows)
        assert rows[0][rows[0] != INT32.unreachable].max() > 2**16


def test_an_earlier_program_refuses_a_checkpoint_of_two_bytes(stopped: Any, monkeypatch: pytest.MonkeyPatch):
    """It asks for the types that it knows, and what is resumed has to be the same."""
    graph = some_graph(8)
    path = stopped(graph, OF_BOTH, types_of_sums(GraphProfile(graph), OF_BOTH))
    earlier = sum_types(graph, OF_BOTH.also)
    monkeypatch.setattr(solving, "types_of_sums", lambda *_: earlier)
    with pytest.raises(Conflict, match=r"of another also .*'type': 'uint16'.*'type': 'int32'.*--overwrite"):
        solve_to_store(graph, OF_BOTH, path, resume=True)


#: What is asked for by name: the largest number of q, and the options.
ASKED: dict[str, tuple[int, Options]] = {
    "the matrix of the checkpoint": (8, OF_BOTH),
    "another graph": (9, OF_BOTH),
    "another graph with large values": (60_000, OF_BOTH),
    "another quantity": (8, replace(OF_BOTH, also=("r",))),
    "one quantity fewer": (8, replace(OF_BOTH, also=("q",))),
    "another order of quantities": (8, replace(OF_BOTH, also=("r", "q"))),
    "other sources": (8, replace(OF_BOTH, sources=tuple(range(300)))),
    "other targets": (8, replace(OF_BOTH, targets=tuple(range(300)))),
    "a cutoff": (8, replace(OF_BOTH, cutoff=3.0)),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("before", ["uint16", "int32"])
def test_a_plan_names_the_types_that_the_store_will_have(tmp_path: Path, stopped: Any, before: str, asked: str):
    """Whether the checkpoint is resumed or replaced; it is of a program that chose other types than this one would."""
    most, options = ASKED[asked]
    same = asked == "the matrix of the checkpoint"
    own = types_of_sums(GraphProfile(some_graph(8)), OF_BOTH)
    path = stopped(some_graph(8), OF_BOTH, own | {"q": SUM_TYPES[before]})
    graph = some_graph(most)
    plan = make_plan(graph, options, out=path, resume=True)
    if not same:
        with pytest.raises(Conflict, match="is of another"):
            solve_to_store(graph, options, path, plan=plan, resume=True)
    outcome = solve_to_store(graph, options, path, plan=plan, resume=True, overwrite=True)
    assert outcome.plan == plan
    with open_matrix(path) as matrix:
        stored = {name: quantity.stored_dtype.name for name, quantity in matrix.also.items()}
    wanted = names_of(graph, *options.also, sources=options.sources, targets=options.targets, cutoff=options.cutoff)
    assert stored == (wanted | {"q": before} if same else wanted)
    said = ", ".join(f"{name} ({stored[name]})" for name in options.also)
    assert f"; then {said} along the paths" in plan.reason
    assert verify_store(path, "all").searched == matrix.shape[0]


@pytest.mark.parametrize("before", ["uint16", "int32"])
def test_a_store_that_is_compressed_in_another_way_has_the_types_of_its_plan(tmp_path: Path, stopped: Any, before: str):
    """The plan does not know the compression; the checkpoint is not resumed, but its types suit the same matrix."""
    graph = some_graph(8)
    path = stopped(graph, OF_BOTH, types_of_sums(GraphProfile(graph), OF_BOTH) | {"q": SUM_TYPES[before]})
    plan = make_plan(graph, OF_BOTH, out=path, resume=True)
    with pytest.raises(Conflict, match="is of another"):
        solve_to_store(graph, OF_BOTH, path, plan=plan, resume=True, compression="zstd")
    solve_to_store(graph, OF_BOTH, path, plan=plan, resume=True, overwrite=True, compression="zstd")
    assert f"; then q ({before}), r (float64) along the paths" in plan.reason
    with open_matrix(path) as matrix:
        assert matrix.also["q"].stored_dtype.name == before
    assert verify_store(path, "all").searched == 400
