"""Tests jobs of every semiring on a real service: upload, questions of both clients and of commands, and the store."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse

import apsp
from apsp import Client
from service.cli import main
from service.client.errors import ServiceError
from storage.errors import InvalidRequest
from tests.integration.keyed_service import KeyedService
from tests.semirings import Arcs

pytestmark = pytest.mark.slow
N = 60


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    with KeyedService(tmp_path_factory.mktemp("semirings") / "data", APSP_RUNNER_NICE="0") as service:
        yield service


@pytest.fixture(scope="module")
def client(live: KeyedService) -> Iterator[Client]:
    with Client(live.url, live.key) as client:
        yield client


@pytest.fixture(scope="module")
def arcs() -> Arcs:
    rng = np.random.default_rng(2)
    tails, heads = rng.integers(0, N, (2, 2 * N))
    line = np.arange(N - 1)  # so that every vertex is in the file
    tails, heads = [*tails, 0, 0, *(line + 1)], [*heads, 1, 1, *line]
    return Arcs(N, tails, heads, [*(rng.integers(1, 9, 2 * N) / 8), 0.5, 1.0, *([0.125] * (N - 1))], directed=True)


@pytest.fixture(scope="module")
def table(arcs: Arcs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "arcs.csv"
    lines = [f"{u},{v},{w}" for u, v, w in zip(arcs.tails, arcs.heads, arcs.weights, strict=True)]
    path.write_text("\n".join(["from,to,weight", *lines, ""]))
    return path


@pytest.mark.parametrize("semiring", ["max-min", "min-max", "max-times", "lor-land"])
def test_jobs_of_every_semiring(client: Client, arcs: Arcs, table: Path, tmp_path: Path, semiring: str):
    values = arcs.values(semiring)
    result = client.solve(table, semiring=semiring)
    assert result.semiring == semiring
    pairs = [(int(u), int(v)) for u in range(0, N, 9) for v in range(N)]
    found = result.distances(pairs)
    np.testing.assert_allclose(found, [values[pair] for pair in pairs], rtol=1e-13)
    for pair in pairs[:90]:
        assert math.isclose(result.distance(*pair), values[pair], rel_tol=1e-13)
        path = result.path(*pair)
        if path is not None:
            assert (path.vertices[0], path.vertices[-1]) == pair
            assert math.isclose(path.length, values[pair], rel_tol=1e-13)
    fetched = result.fetch(tmp_path / "f.zarr")
    with apsp.open(fetched, semiring=semiring) as matrix:
        np.testing.assert_allclose(matrix.rows(matrix.sources).astype(float), values, rtol=1e-13)
    assert apsp.verify(fetched, "all").searched == N
    with apsp.open(fetched, semiring=semiring) as matrix:
        nearest = [(int(matrix.labels[v]), value) for v, value in zip(*matrix.nearest(0, 7), strict=True)]
    np.testing.assert_allclose(result.to_numpy(), values, rtol=1e-6 if semiring == "lor-land" else 1e-13)
    np.testing.assert_allclose(result.to_numpy([5, 0], [7, 5, 1]), values[np.ix_([5, 0], [7, 5, 1])], rtol=1e-13)
    row = result.row(3)
    np.testing.assert_allclose([row[v] for v in range(N)], values[3], rtol=1e-13)
    assert result.nearest(0, 7) == nearest
    with pytest.raises(ServiceError, match=f"of semiring {semiring}, and this takes distances"):
        result.plot()
    with pytest.raises(InvalidRequest, match=f"the values are of semiring {semiring}"):
        result.to_xarray()


def test_questions_that_do_not_say_the_semiring_are_refused(live: KeyedService, client: Client, table: Path):
    job = client.solve(table, semiring="max-min").job
    for path in ("distance?source=0&target=1", "path?source=0&target=1", "nearest?source=0", "histogram",
                 "rows?sources=0", "sample", "eccentricities", "path?source=0&target=1&semiring=min-max",
                 "path?source=0&target=1&semiring=max-min&format=geojson"):  # fmt: skip
        answer = live.http.get(f"/v1/jobs/{job}/{path}")
        assert answer.status_code == 409, path
        assert "max-min" in answer.json()["detail"]
    for what in ("distances", "paths", "submatrix"):
        body = {"pairs": [[0, 1]]} if what != "submatrix" else {"sources": [0]}
        assert live.http.post(f"/v1/jobs/{job}/{what}", json=body).status_code == 409
    found = live.http.get(f"/v1/jobs/{job}/distance?source=0&target=1&semiring=max-min").json()
    assert found == {"source": 0, "target": 1, "reachable": True, "distance": 1.0, "semiring": "max-min"}
    itself = live.http.get(f"/v1/jobs/{job}/distance?source=0&target=0&semiring=max-min").json()
    assert (itself["reachable"], itself["distance"]) == (True, None)
    assert live.http.get(f"/v1/jobs/{job}/results").json()["semiring"] == "max-min"
    plain = client.solve(table)
    asked = live.http.get(f"/v1/jobs/{plain.job}/distance?source=0&target=1&semiring=max-min")
    assert (asked.status_code, "and max-min is asked for" in asked.json()["detail"]) == (409, True)
    assert plain.distance(0, 1) == 0.5
    page = live.http.get(f"/jobs/{job}", headers={"Accept": "text/html"})
    assert page.status_code == 200 or page.status_code in (303, 401)


def test_graphs_that_lost_parallel_arcs_are_refused(client: Client, table: Path):
    with pytest.raises(ServiceError, match="needs the greatest of parallel arcs"):
        client.submit(table, semiring="max-min", parallel="least")
    with pytest.raises(ServiceError, match="semiring max-min belongs to result matrix"):
        client.submit(table, semiring="max-min", result="measures")
    with pytest.raises(ServiceError, match=r"cutoff .* is for distances"):
        client.submit(table, semiring="max-min", cutoff=3)


def test_objects_keep_the_greatest_parallel_arc(client: Client, arcs: Arcs):
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(N))
    graph.add_weighted_edges_from(zip(arcs.tails.tolist(), arcs.heads.tolist(), arcs.weights.tolist(), strict=True))
    values = arcs.values("max-min")
    parts: list[Any] = [graph, (arcs.tails, arcs.heads, arcs.weights)]
    for given in parts:
        assert client.solve(given, semiring="max-min").distance(0, 1) == values[0, 1] == 1.0
    one = scipy.sparse.csr_array(([0.5, 0.25], ([0, 1], [1, 2])), shape=(3, 3))
    assert client.solve(one, semiring="max-min").distance(0, 2) == 0.25


def test_commands(
    live: KeyedService, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("APSP_SERVER", live.url)
    monkeypatch.setenv("APSP_KEY", live.key)
    assert main.run(["submit", str(table), "--semiring", "max-min"]) == 0
    job = capsys.readouterr().out.strip()
    assert main.run(["wait", job]) == 0
    store = str(tmp_path / "s.zarr")
    assert main.run(["solve", str(table), "--semiring", "max-min", "-o", store]) == 0
    capsys.readouterr()
    for question in (
        ["row", "3"], ["nearest", "3", "4"], ["distance", "0", "1"], ["path", "0", "1"], ["distance", "0", "0"],
    ):  # fmt: skip
        for more in ([], ["--json"]):
            said = []
            for place in (store, job):
                assert main.run(["query", place, *question, *more]) == 0
                said.append(capsys.readouterr().out)
            assert said[0] == said[1]
    assert json.loads(said[0]) == {"source": 0, "target": 0, "reachable": True, "distance": None, "semiring": "max-min"}
    assert main.run(["query", job, "within", "0", "3"]) != 0
    assert "max-min" in capsys.readouterr().err
