"""``verify``: a store whose tiles agree with their manifest and whose numbers are wrong is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api import verify as module
from engine.api.reference import Reference, sums_again
from engine.api.solve import solve_to_store
from engine.api.verify import Verified, verify_rows, verify_store
from engine.model.problem import Options
from storage.errors import Cancelled, StorageFailed
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from tests.stores import forget_contents, verify_matrix
from tests.wrong import sealed

KEEP: Callable[[Any], None] = lambda _: None  # noqa: E731


def chain(weight: float = 2, n: int = 60) -> Graph:
    labels = 100 + np.arange(n)
    return build_graph(np.arange(n - 1), np.arange(1, n), np.full(n - 1, weight), labels=labels, directed=True)[0]


def signed() -> Graph:
    return build_graph([0, 1, 2, 0], [1, 2, 3, 3], [5, -3, 4, 7], labels=100 + np.arange(4), directed=True)[0]


def put(i: int, j: int, value: float) -> Callable[[Any], None]:
    def change(array: Any) -> None:
        array[i, j] = value

    return change


WRONG: list[tuple[Graph, dict[str, Any], Callable[[Any], None], str]] = [
    (chain(), {"dtype": "uint16"}, put(1, 9, 17), "from 101 to 109 it holds 17, .* finds 16"),
    (chain(), {"dtype": "int32"}, put(0, 59, 117), "from 100 to 159 it holds 117, .* finds 118"),
    (chain(), {"dtype": "int32"}, put(3, 1, 5), "from 103 to 101 it holds 5, .* finds no path"),
    (chain(), {"dtype": "int32"}, put(1, 3, 2**30 - 1), "from 101 to 103 it holds no path, .* finds 4"),
    (chain(0.1), {"dtype": "float32"}, put(2, 12, 1.001), r"from 102 to 112 it holds 1\.001, .* finds 1"),
    (chain(0.1), {"dtype": "float64"}, put(2, 12, 1.000001), r"from 102 to 112 it holds 1\.000001, .* finds 1"),
    (chain(0.1), {"dtype": "float64"}, put(4, 4, np.nan), "from 104 to 104 it holds nan, .* finds 0"),
    (chain(), {"max_hops": 3}, put(5, 9, 8), "from 105 to 109 it holds 8, .* within 3 arcs finds no path"),
    (chain(), {"cutoff": 7}, put(5, 9, 8), "from 105 to 109 it holds 8, .* finds 8, beyond the cutoff 7"),
    (chain(), {"sources": (9, 2), "targets": (5, 12, 3)}, put(1, 0, 7), "from 102 to 105 it holds 7, .* finds 6"),
    (signed(), {"algorithm": "johnson"}, put(0, 2, 3), "from 100 to 102 it holds 3, .* finds 2"),
    (signed(), {"dtype": "float32"}, put(0, 3, -4.4e34), "from 100 to 103 it holds -4.4.*e[+]34, .* finds 6"),
]


@pytest.mark.parametrize(("graph", "options", "change", "told"), WRONG)
def test_the_first_wrong_entry_is_named(
    tmp_path: Path, graph: Graph, options: dict[str, Any], change: Callable[[Any], None], told: str
) -> None:
    sealed(tmp_path / "d.zarr", graph, change, **options).close()
    verify_matrix(tmp_path / "d.zarr")  # each tile agrees with its checksum
    with pytest.raises(StorageFailed, match=told):
        verify_store(tmp_path / "d.zarr")
    sealed(tmp_path / "right.zarr", graph, KEEP, **options).close()
    found = verify_store(tmp_path / "right.zarr")
    assert found.searched == found.sources > 0


def test_as_many_sources_as_asked_for_are_spread_over_the_rows(tmp_path: Path, monkeypatch: Any) -> None:
    matrix = sealed(tmp_path / "d.zarr", chain())
    searched: list[int] = []
    trees = Reference.trees

    def counted(self: Reference, sources: Any) -> Any:
        searched.extend(sources.tolist())
        return trees(self, sources)

    monkeypatch.setattr(Reference, "trees", counted)
    monkeypatch.setattr(module, "_AT_A_TIME", 120)
    assert verify_rows(matrix, 3) == Verified(60, 3)
    assert searched == [10, 30, 50]
    assert verify_rows(matrix, 0) == Verified(60, 0)
    assert searched == [10, 30, 50]
    searched.clear()
    for sample in ("all", None, 60, 10**6):
        assert verify_rows(matrix, sample) == Verified(60, 60)  # type: ignore[arg-type]
    assert searched == 4 * list(range(60))


def test_unasked_it_searches_no_more_than_the_bound(tmp_path: Path, monkeypatch: Any) -> None:
    """A search costs 16 times the arcs and vertices; a large graph is searched from few sources, or from none."""
    matrix = sealed(tmp_path / "d.zarr", chain())
    cost = 16 * (60 + 59)
    for bound, searched in ((7 * cost, 7), (cost, 1), (cost - 1, 0)):
        monkeypatch.setattr(module, "FREE_WORK", bound)
        assert verify_rows(matrix) == Verified(60, searched)
    assert verify_rows(matrix, 2).searched == 2


def test_it_stops_when_asked_to(tmp_path: Path) -> None:
    class Stop(module.Monitor):
        def cancelled(self) -> bool:
            return True

    with pytest.raises(Cancelled):
        verify_store(tmp_path / "d.zarr", "all", monitor=Stop()) if sealed(tmp_path / "d.zarr", chain()) else None


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_to_search(tmp_path: Path, n: int) -> None:
    sealed(tmp_path / "d.zarr", build_graph([], [], None, n=n, directed=True)[0]).close()
    assert verify_store(tmp_path / "d.zarr") == Verified(n, n)


def test_sums_of_a_thousand_floats_are_not_doubted(tmp_path: Path) -> None:
    """Added one by one, 0.1 a thousand times is 99.99905 in float32; one arc of 100 may be as short."""
    n = 1001
    tails, heads = np.append(np.arange(n - 1), 0), np.append(np.arange(1, n), n - 1)
    graph = build_graph(tails, heads, np.append(np.full(n - 1, 0.1), 100.0), n=n, directed=True)[0]
    added = np.cumsum(np.full(n, 0.1, np.float32), dtype=np.float32) - np.float32(0.1)

    def change(array: Any) -> None:
        array[0] = added

    with sealed(tmp_path / "d.zarr", graph, change, dtype="float32", sources=(0,)) as matrix:
        assert verify_rows(matrix) == Verified(1, 1)


@pytest.mark.parametrize("array", ["graph/heads", "graph/weights", "source", "target"])
def test_arcs_and_labels_of_another_store_are_noticed(tmp_path: Path, array: str) -> None:
    """Seals of earlier versions take them, so the digest of the graph has to tell."""
    for name, step in (("a", 1), ("b", 2)):
        tails = np.arange(20)
        graph, _ = build_graph(tails, (tails + step) % 21, tails + step, n=21, directed=True)
        labelled = Graph(graph.indptr, graph.heads, graph.weights, graph.labels + step, directed=True, weighted=True)
        solve_to_store(labelled, Options(device="cpu", threads=1), tmp_path / name)
        forget_contents(tmp_path / name)
    verify_store(tmp_path / "a", "all")
    chunk = tmp_path / "a" / array / "c" / "0"
    chunk.write_bytes((tmp_path / "b" / array / "c" / "0").read_bytes())
    with pytest.raises(StorageFailed, match="are not those of the graph that was solved"):
        verify_store(tmp_path / "a", 0)


def test_the_graph_s_own_arcs_decide(tmp_path: Path) -> None:
    """A store whose matrix is that of another graph."""
    other = sealed(tmp_path / "other.zarr", chain(3)).rows(np.arange(60))

    def change(array: Any) -> None:
        array[:] = other

    with sealed(tmp_path / "d.zarr", chain(2), change) as matrix, pytest.raises(StorageFailed, match="from 100 to 101"):
        verify_rows(matrix, 60)
    with open_matrix(tmp_path / "other.zarr") as matrix:
        verify_rows(matrix, 60)


@pytest.mark.parametrize("far", [1e308, np.inf])
def test_an_arc_whose_sum_is_beyond_float64_ends_no_shortest_path(far: float) -> None:
    """Also none to a vertex beyond the cutoff, to which the length is infinite, too."""
    graph, _ = build_graph(
        [0, 0, 1], [1, 2, 2], [8e307, 1e308, 1.2e308], n=3, directed=True, quantities={"q": [1, 2, 4]}
    )
    found = sums_again(graph, 0, np.array([0, 8e307, far]), 0)["q"]
    np.testing.assert_array_equal(found, [0, 1, 2 if far < np.inf else np.nan])
