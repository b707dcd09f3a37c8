"""Points in jobs: taken to vertices at the door, told in the receipt, lines of the table as the command writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from service.cli import main
from service.pool import job_points
from service.settings import Settings
from service.views import near_points
from storage.errors import InvalidRequest, LimitExceeded, NotFound
from storage.geography.coordinates import Coordinates
from storage.geography.snapping import snap_file
from storage.graph.graph import Graph, build_graph
from storage.tables.reader import open_table
from tests.property.test_openapi import here
from tests.unit.service.pool.test_tabled import made
from tests.unit.service.support import Bench, small_graph

SIDE = 8


def city(seed: int = 3, geographic: bool = True) -> Graph:
    """A lattice of two-way streets with random lengths and places."""
    rng, at = np.random.default_rng(seed), np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    graph, _ = build_graph(tails, heads, rng.integers(1, 50, len(tails)), n=SIDE * SIDE, directed=False)
    x, y = 24.9 + rng.random(graph.n) * 0.03, 60.1 + rng.random(graph.n) * 0.03
    return replace(graph, coordinates=Coordinates(x.round(6), y.round(6), geographic))


def spots(count: int, seed: int, **more: Any) -> list[dict[str, Any]]:
    """Points, some of them at the same place, and some far away."""
    rng = np.random.default_rng(seed)
    x, y = (24.9 + rng.random(count) * 0.03).round(6), (60.1 + rng.random(count) * 0.03).round(6)
    x[1], y[1], y[2] = x[0], y[0], 60.4
    return [
        {"id": f"p{k}", "name": f"Spot {k}", "lon": a, "lat": b}
        for k, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True))
    ]


def written(points: list[dict[str, Any]], path: Path) -> Path:
    pl.DataFrame(points).write_csv(path)
    return path


def test_points_become_vertices_as_tables_of_points_do(tmp_path: Path):
    graph, points = city(), spots(12, 1)
    found = job_points.taken(graph, {"sources": points, "targets": [1, 2], "snap_limit": 1e6, "cutoff": 9})
    snapped = snap_file(written(points, tmp_path / "points.csv"), graph.coordinates)
    labels = graph.labels[snapped.vertices].tolist()
    assert found["sources"] == list(dict.fromkeys(labels))
    assert (found["targets"], found["cutoff"]) == ([1, 2], 9)
    assert "snap_limit" not in found
    told = found["points"]["sources"]
    assert [one["vertex"] for one in told] == labels
    assert [one["snap"] for one in told] == snapped.distances.tolist()
    assert [one["far"] for one in told] == snapped.far.tolist()
    assert sum(one["far"] for one in told) >= 1
    restored = job_points.restored(told, graph, "sources")
    assert (restored.ids, restored.names) == (snapped.ids, snapped.names)
    assert restored.vertices.tolist() == snapped.vertices.tolist()
    receipt = job_points.receipt_of(found["points"])["sources"]
    assert (receipt["count"], receipt["vertices"], receipt["unit"]) == (12, len(set(labels)), "m")
    assert receipt["farthest"] == snapped.distances.max()
    assert receipt["far"] == [one for one in told if one["far"]]


def test_a_point_without_near_pairs_has_no_rows(bench: Bench):
    graph, homes = city(), spots(9, 4)
    request = {"result": "near", "sources": homes, "cutoff": 2.0, "targets": [5]}
    job = bench.tabled(graph, **job_points.taken(graph, request))
    with open_table(bench.settings.store(job)) as table:
        all_rows = table.values("source").to_list()
        assert {*all_rows} < {one["id"] for one in homes}
        assert table.rows_of([one["id"] for one in homes], ["source"], 100)["source"].to_list() == all_rows
        for name in ("p9", str(graph.labels[0])):
            with pytest.raises(NotFound, match="no row of"):
                table.rows_of([name], ["source"], 100)


@pytest.mark.parametrize("asked", [{"nearest": 3}, {"cutoff": 60.0}])
@pytest.mark.parametrize("both", [True, False])
def test_the_table_of_a_job_is_that_of_the_command(tmp_path: Path, asked: dict, both: bool):
    graph = city()
    homes, shops = spots(9, 4), spots(7, 5)
    request: dict[str, Any] = {"result": "near", "sources": homes, **({"targets": shops} if both else {}), **asked}
    table = made(graph, tmp_path, **job_points.taken(graph, request))
    arcs = pl.DataFrame({
        "from": graph.labels[np.repeat(np.arange(graph.n), np.diff(graph.indptr))].tolist(),
        "to": graph.labels[graph.heads].tolist(), "m": graph.weights.tolist(),
    })  # fmt: skip
    arcs.write_csv(tmp_path / "arcs.csv")
    placed = graph.coordinates
    pl.DataFrame({"id": graph.labels.tolist(), "lon": placed.x, "lat": placed.y}).write_csv(tmp_path / "nodes.csv")
    words = ["near", tmp_path / "arcs.csv", "--nodes", tmp_path / "nodes.csv", "-o", tmp_path / "near.parquet",
             "--sources", written(homes, tmp_path / "homes.csv")]  # fmt: skip
    words += ["--targets", written(shops, tmp_path / "shops.csv")] if both else []
    words += ["--nearest", "3"] if "nearest" in asked else ["--cutoff", "60"]
    assert main.run([str(word) for word in words]) == 0
    expected = pl.read_parquet(tmp_path / "near.parquet")
    assert table.columns[:3] == ["source", "source_name", "source_snap"]
    assert table.rows() == expected.rows()
    assert table.columns == expected.columns


def test_refusals(tmp_path: Path):
    graph, points = city(), spots(4, 1)
    with pytest.raises(InvalidRequest, match="4 points and 1 vertex are given"):
        job_points.sides_with_points({"sources": [*points, 7]})
    with pytest.raises(InvalidRequest, match="neither sources nor targets are points"):
        job_points.sides_with_points({"sources": [7], "snap_limit": 5.0})
    with pytest.raises(InvalidRequest, match=r"sources: points farther than 1000 from every vertex: 1, Spot 2 \("):
        job_points.taken(graph, {"sources": points, "snap_limit": 1000.0})
    with pytest.raises(InvalidRequest, match="the graph has no coordinates"):
        job_points.taken(replace(graph, coordinates=None), {"sources": points})
    with pytest.raises(InvalidRequest, match="sources, row 2: 'p0' stands also in row 1"):
        job_points.taken(graph, {"sources": [points[0], {**points[1], "id": "p0"}]})
    with pytest.raises(LimitExceeded, match="65 sources are given as points, and the graph has 64 vertices"):
        job_points.taken(graph, {"sources": spots(SIDE * SIDE + 1, 1)})


@pytest.mark.parametrize("asked", [{"nearest": 3}, {"cutoff": 30.0}, {"cutoff": 0.5}])
@pytest.mark.parametrize("sides", [("sources",), ("targets",), ("sources", "targets")])
def test_lines_between_points_pass_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict, sides: tuple[str, ...]
):
    """However many points share a vertex, no more lines are made at a time than a piece has, or a source."""
    graph, same = city(), [*spots(20, 6), *({"id": f"s{k}", "lon": 24.91, "lat": 60.11} for k in range(30))]
    request = job_points.taken(graph, {"result": "near", **asked, **dict.fromkeys(sides, same)})
    whole = made(graph, tmp_path, **request)
    heights, lines = [], near_points.lines_of

    def counted(*arguments: Any, **options: Any) -> Any:
        found = lines(*arguments, **options)
        heights.append(len(found.rows))
        return found

    monkeypatch.setattr(near_points, "lines_of", counted)
    monkeypatch.setattr(near_points.NearLines.pieces, "__defaults__", (100,))
    assert made(graph, tmp_path, **request).equals(whole)
    assert sum(heights) == whole.height
    assert max(heights) <= 100
    assert whole.height < 100 or len(heights) > 1


@pytest.fixture
def there(client: TestClient) -> TestClient:
    service = client.app.state.service
    service.planner.run = service.worker.run = service.checker.run = here
    return client


def test_a_job_tells_its_points(there: TestClient, bench: Bench, settings: Settings):
    graph_id, points = bench.add_graph(city()), spots(3, 1)
    body = {"graph": graph_id, "sources": points, "dtype": "float64"}
    answer = there.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    taken = job_points.taken(city(), {"sources": points})
    assert job["options"]["sources"] == taken["sources"]
    assert "points" not in job["options"]
    assert job["plan"]["shape"] == [len(taken["sources"]), SIDE * SIDE]
    told = job["points"]["sources"]
    assert (told["count"], told["vertices"], len(told["far"])) == (3, 2, 1)
    shown = [{name: value for name, value in one.items() if value is not None} for one in told["points"]]
    assert shown == taken["points"]["sources"]
    assert there.get(f"/v1/jobs/{job['id']}").json()["points"] == job["points"]
    page = there.get(f"/jobs/{job['id']}", headers={"Accept": "text/html"})
    assert "3 at 2 vertices" in page.text
    estimate = there.post("/v1/estimates", json=body).json()
    assert estimate["shape"] == job["plan"]["shape"]
    plain = there.post("/v1/jobs", json={**body, "sources": taken["sources"]}).json()
    assert plain["id"] != job["id"]
    assert plain["points"] is None
    key = {"Idempotency-Key": "k"}
    first, again = (there.post("/v1/jobs", json=body, headers=key).json()["id"] for _ in range(2))
    assert first == again
    refused = there.post("/v1/jobs", json={**body, "snap_limit": 10})
    assert (refused.status_code, refused.json()["details"]["field"]) == (422, "snap_limit")
    none = there.post("/v1/jobs", json={**body, "graph": bench.add_graph(small_graph())})
    assert (none.status_code, "no coordinates" in none.json()["detail"]) == (422, True)
    wrong = there.post("/v1/jobs", json={**body, "sources": [{"lon": 1.0}]})
    assert (wrong.status_code, "lon and lat, or x and y" in wrong.text) == (422, True)
