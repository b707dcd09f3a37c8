"""A store of another semiring is opened only by those who say that they understand it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.errors import Conflict, InvalidGraph, InvalidRequest
from storage.graph.graph import build_graph, graph_digest, load_graph, save_graph
from storage.matrix.reader import open_matrix
from storage.readers import read_graph
from storage.semirings import EVERY, needed_parallel
from tests.stores import verify_matrix


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    graph, _ = build_graph([0, 1], [1, 2], [3, 2], n=3, directed=True, parallel="greatest")
    solve_to_store(graph, Options(semiring="max-min"), tmp_path / "wide")
    return tmp_path / "wide"


@pytest.mark.parametrize("opens", [open_matrix, open_result])
def test_readers_of_distances_are_refused(wide: Path, opens):
    with pytest.raises(Conflict, match="holds widths of semiring max-min, and this takes distances"):
        opens(wide)
    with pytest.raises(Conflict, match="and min-max is asked for"):
        opens(wide, semiring="min-max")
    for said in ("max-min", ("max-min", "min-max"), EVERY):
        with opens(wide, semiring=said) as matrix:
            assert matrix.semiring == "max-min"
            assert matrix.graph().parallel == "greatest"
            with pytest.raises(Conflict, match="this takes distances"):
                matrix.eccentricities([0])
    verify_matrix(wide)


def test_a_store_of_distances_is_no_store_of_widths(tmp_path: Path):
    graph, _ = build_graph([0, 1], [1, 2], [3, 2], n=3, directed=True)
    solve_to_store(graph, Options(), tmp_path / "s")
    with pytest.raises(Conflict, match="holds distances of semiring min-plus, and max-min is asked for"):
        open_matrix(tmp_path / "s", semiring="max-min")


def test_earlier_programs_refuse_the_store(wide: Path, tmp_path: Path):
    assert json.loads((wide / "zarr.json").read_text())["attributes"]["seal"]["version"] == 7
    graph, _ = build_graph([0], [1], [3], n=2, directed=True)
    solve_to_store(graph, Options(), tmp_path / "s")
    assert json.loads((tmp_path / "s" / "zarr.json").read_text())["attributes"]["seal"]["version"] == 1


def test_the_greatest_of_parallel_arcs(tmp_path: Path):
    tails, heads, weights = [0, 0, 1, 0, 1, 1], [1, 1, 2, 1, 1, 2], [4, 7, 2, -1, -9, 2]
    graph, counts = build_graph(tails, heads, weights, directed=True, parallel="greatest")
    assert graph.weights.tolist() == [7, 2]
    assert (counts.parallel_arcs, counts.self_loops, graph.parallel) == (3, 1, "greatest")
    toll = {"toll": [1, 5, 0, 3, 0, 0]}
    with_toll, _ = build_graph(tails, heads, weights, directed=True, parallel="greatest", quantities=toll)
    assert with_toll.weights.tolist() == [7, 2]
    assert with_toll.quantities["toll"].tolist() == [5, 0]
    with pytest.raises(InvalidGraph, match=r"1 arcs weigh \+inf"):
        build_graph([0], [1], [float("inf")], n=2, directed=True, parallel="greatest")
    with pytest.raises(InvalidRequest, match="parallel 'most' is unknown"):
        build_graph([0], [1], [1], n=2, directed=True, parallel="most")  # type: ignore[typeddict-item]
    plain, _ = build_graph([0, 1], [1, 2], [7, 2], directed=True)
    assert graph_digest(plain) != graph_digest(graph)
    (tmp_path / "g.csv").write_text("from,to,weight\na,b,4\na,b,7\nb,c,2\n")
    read, receipt = read_graph(tmp_path / "g.csv", parallel="greatest")
    assert (read.weights.tolist(), read.parallel) == ([7, 2], "greatest")
    save_graph(read, receipt, tmp_path / "kept")
    assert load_graph(tmp_path / "kept")[0].parallel == "greatest"
    assert read_graph(tmp_path / "g.csv")[0].parallel == "least"


def test_which_semirings_need_it():
    assert [needed_parallel(name) for name in ("max-min", "max-times")] == ["greatest"] * 2
    assert [needed_parallel(name) for name in (None, "min-plus", "min-max", "lor-land", "?")] == [None] * 5
