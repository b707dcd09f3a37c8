"""The network over HTTP: what its bytes say, read as the documents say, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from service.views.pictures import layout
from storage.geography.coordinates import Coordinates
from storage.graph.graph import Graph, build_graph
from storage.jobs.keys import KeyStore
from tests.unit.service.support import Bench, InlinePool, small_graph
from tests.unit.service.test_app import problem

GONE = np.nan


def placed(graph: Graph, x: list[float], y: list[float], *, geographic: bool = False) -> Graph:
    return dataclasses.replace(graph, coordinates=Coordinates(np.array(x), np.array(y), geographic))


def read(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The object at the beginning, and the arrays; nothing may follow them."""
    size = int.from_bytes(content[:4], "little")
    about = json.loads(content[4 : 4 + size])
    n, m = about["vertices"], about["edges"]
    counts = {"x": ("<f4", n), "y": ("<f4", n), "edges": ("<i4", 2 * m),
              "sources": ("<i4", about["sources"] or 0), "targets": ("<i4", about["targets"] or 0)}  # fmt: skip
    at, arrays = 4 + size, {}
    assert at % 8 == 0
    for name, (dtype, count) in counts.items():
        arrays[name] = np.frombuffer(content, dtype, count, at)
        at += 4 * count
    assert at == len(content)
    return about, {**arrays, "edges": arrays["edges"].reshape(m, 2)}


@pytest.mark.parametrize("kind", ["matrix", "prepared"])
def test_vertices_edges_and_labels(client: TestClient, bench: Bench, kind: str):
    client.app.state.service.answering.pool = InlinePool()
    graph = dataclasses.replace(placed(small_graph(), [2.0, 6, 2, GONE], [10.0, 10, 13, GONE]), unit="min")
    make = bench.solved if kind == "matrix" else bench.prepared
    job, _ = make(graph, "int32")
    answer = client.get(f"/v1/jobs/{job}/network")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    about, arrays = read(answer.content)
    assert about.pop("unit") == ("min" if kind == "prepared" else None)
    assert about == {
        "directed": True, "sources": None, "targets": None, "vertices": 4, "edges": 3, "system": "plane",
        "origin": [4.0, 11.5], "labels": [10, 20, 30, 40],
    }  # fmt: skip
    np.testing.assert_array_equal(arrays["x"], np.float32([-2, 2, -2, GONE]))
    np.testing.assert_array_equal(arrays["y"], np.float32([-1.5, -1.5, 1.5, GONE]))
    assert arrays["edges"].tolist() == [[0, 1], [0, 2], [1, 2]]  # none to the vertex without coordinates
    tag = answer.headers["etag"]
    assert answer.headers["cache-control"] == "private, no-cache"
    again = client.get(f"/v1/jobs/{job}/network", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_degrees_become_metres_and_both_directions_one_edge(client: TestClient, bench: Bench):
    graph, _ = build_graph([0, 1, 1, 2], [1, 0, 2, 2], [1] * 4, n=3, labels=["a", "b,c", "d"], directed=True)
    job, _ = bench.solved(placed(graph, [179.9, -179.9, 180.0], [60.0, 60, 60.1], geographic=True), "int32")
    about, arrays = read(client.get(f"/v1/jobs/{job}/network").content)
    assert (about["system"], about["labels"]) == ("lonlat", ["a", "b,c", "d"])
    assert arrays["edges"].tolist() == [[0, 1], [1, 2]]  # no loop
    degree = 6_371_008.8 * np.pi / 180
    wide = 0.2 * degree * np.cos(np.radians(60.05))  # across the date line it is a short way
    np.testing.assert_allclose(arrays["x"], [-wide / 2, wide / 2, 0], atol=0.01)
    np.testing.assert_allclose(np.ptp(arrays["y"]), 0.1 * degree, rtol=1e-6)


def test_selected_sources_and_targets_are_in_the_order_of_rows_and_columns(client: TestClient, bench: Bench):
    job, _ = bench.solved(placed(small_graph(), [0.0, 1, 2, 3], [0.0] * 4), "int32", sources=[2, 0], targets=[1, 3, 0])
    about, arrays = read(client.get(f"/v1/jobs/{job}/network").content)
    assert (about["sources"], about["targets"]) == (2, 3)
    assert (arrays["sources"].tolist(), arrays["targets"].tolist()) == ([2, 0], [1, 3, 0])


@pytest.mark.parametrize("kind", ["matrix", "prepared", "no coordinate is there"])
def test_a_small_graph_without_coordinates_is_laid_out(client: TestClient, bench: Bench, kind: str):
    client.app.state.service.answering.pool = InlinePool()
    graph = small_graph() if kind != "no coordinate is there" else placed(small_graph(), [GONE] * 4, [GONE] * 4)
    job, _ = (bench.prepared if kind == "prepared" else bench.solved)(graph, "int32")
    about, arrays = read(client.get(f"/v1/jobs/{job}/network").content)
    assert about["system"] == "layout"
    assert arrays["edges"].tolist() == [[0, 1], [0, 2], [0, 3], [1, 2]]
    apart = np.hypot(*(arrays[name][:, None] - arrays[name] for name in "xy"))
    assert (apart[~np.eye(4, dtype=bool)] > 0.1).all()
    again, same = (read(client.get(f"/v1/jobs/{job}/network").content)[1][name] for name in "xy")
    np.testing.assert_array_equal([again, same], [arrays["x"], arrays["y"]])


def test_no_coordinates_no_map(client: TestClient, bench: Bench, monkeypatch):
    job, _ = bench.solved(small_graph(), "int32")
    monkeypatch.setattr(layout, "MOST", 3)
    said = problem(client.get(f"/v1/jobs/{job}/network"), 409, "conflict")
    assert "no coordinates" in said["detail"]
    assert "up to 3 vertices" in said["detail"]
    assert "OSMnx" in said["detail"]
    lone, _ = build_graph([], [], [], n=3, directed=True)
    job, _ = bench.solved(lone, "int32")
    assert "no coordinates" in problem(client.get(f"/v1/jobs/{job}/network"), 409, "conflict")["detail"]
    table = bench.tabled(placed(small_graph(real=True), [0.0] * 4, [0.0] * 4), result="measures", measures=["mean"])
    assert "table" in problem(client.get(f"/v1/jobs/{table}/network"), 409, "conflict")["detail"]


def test_a_network_of_too_many_numbers_is_refused_with_the_number(client: TestClient, bench: Bench):
    n = 23  # 46 coordinates and 22 arcs, where 64 numbers are allowed
    graph, _ = build_graph(np.arange(n - 1), np.arange(1, n), np.ones(n - 1), n=n, directed=True)
    job, _ = bench.solved(placed(graph, [0.0] * n, [0.0] * n), "int32")
    said = problem(client.get(f"/v1/jobs/{job}/network"), 413, "limit-exceeded")
    assert "23 vertices and 22 arcs" in said["detail"]
    assert said["details"] == {"limit": 64, "requested": 68, "setting": "APSP_MAX_CELLS"}


def test_a_network_needs_the_right_to_read_and_belongs_to_its_owner(settings: Settings, bench: Bench):
    app = create_app(settings.model_copy(update={"auth": True}))
    keys = KeyStore(bench.jobs.database)
    job, _ = bench.solved(placed(small_graph(), [0.0] * 4, [0.0] * 4), "int32")
    with_key = {name: {"Authorization": f"Bearer {keys.create(name, (name,))[1]}"} for name in ("admin", "read")}
    client = TestClient(app, raise_server_exceptions=False)
    problem(client.get(f"/v1/jobs/{job}/network"), 401, "unauthorized")
    assert client.get(f"/v1/jobs/{job}/network", headers=with_key["admin"]).status_code == 200
    problem(client.get(f"/v1/jobs/{job}/network", headers=with_key["read"]), 404, "not-found")
    app.state.service.stop_workers()
    app.state.service.jobs.close()
