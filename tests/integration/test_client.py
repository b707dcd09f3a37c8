"""Tests the Python clients, sync and async, with a real service: every kind of graph, and every question."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from service.client import AsyncClient, Client, JobFailed, ServiceError, StillOpen
from storage.errors import Conflict, InvalidRequest, LimitExceeded
from storage.matrix.reader import open_matrix
from tests.integration.keyed_service import KeyedService
from tests.stores import verify_matrix

pytestmark = pytest.mark.beside

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    with KeyedService(
        tmp_path_factory.mktemp("service") / "data", APSP_MAX_CELLS="5000", APSP_RUNNER_NICE="0"
    ) as service:
        yield service


@pytest.fixture(scope="module")
def client(live: KeyedService) -> Iterator[Client]:
    with Client(live.url, live.key) as client:
        yield client


def weights(n: int = 40, seed: int = 3) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n, n)) < 0.1, rng.integers(1, 50, (n, n)), 0)
    np.fill_diagonal(dense, 0)
    return sparse.csr_array(dense)


MATRIX = weights()
EXACT = csgraph.shortest_path(MATRIX)
TAILS, HEADS = (side.astype(np.int64) for side in MATRIX.nonzero())
VALUES = np.asarray(MATRIX[TAILS, HEADS]).ravel()


def as_networkx() -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(40))
    graph.add_weighted_edges_from(zip(TAILS.tolist(), HEADS.tolist(), VALUES.tolist(), strict=True))
    return graph


TABLE = {"source": TAILS, "target": HEADS, "weight": VALUES}
KINDS = {
    "sparse": MATRIX,
    "dense": MATRIX.toarray(),
    "networkx": as_networkx(),
    "pandas": pd.DataFrame(TABLE),
    "polars": pl.DataFrame(TABLE),
    "arrays": (TAILS, HEADS, VALUES),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_graph_gives_the_matrix_that_scipy_gives(client, kind):
    result = client.solve(KINDS[kind], name=kind)
    rows, columns = result.labels()
    assert rows == columns == list(range(40))
    np.testing.assert_array_equal(result.to_numpy(), EXACT)


def test_a_file_and_all_questions_about_it(client):
    seen: list[str] = []
    result = client.solve(EXAMPLES / "helsinki_drive.csv", watcher=lambda job: seen.append(job["state"]))
    assert seen[-1] == "successful"
    u, v = 1372477605, 25291537
    row = result.row(u)
    assert result.distance(u, v) == row[v] == result.distances([(u, v)])[0] == 601.342
    path = result.path(u, v)
    assert (path.vertices[0], path.vertices[-1]) == (u, v)
    assert path.length == pytest.approx(math.fsum(path.weights))
    near = result.nearest(u, 3)
    assert [distance for _, distance in near] == sorted(d for t, d in row.items() if t != u)[:3]
    assert len(row) == 973
    assert math.inf in row.values()
    assert result.summary()["reached"] == 837_199
    some = result.to_numpy([u, v], [v, u, v])
    assert some.tolist() == np.array([[row[v], 0, row[v]], [0, result.distance(v, u), 0]], np.float32).tolist()


def test_pairs_are_asked_for_in_as_many_requests_as_it_takes(client):
    result = client.solve(MATRIX)
    pairs = [(k % 40, k * 7 % 40) for k in range(25_000)]
    assert result.distances(pairs) == [EXACT[pair] for pair in pairs]


def test_vertices_of_any_kind_come_back_as_they_were(client):
    graph = nx.grid_2d_graph(3, 4)
    graph.add_node("alone, <b>&")
    result = client.solve(graph)
    assert result.path((0, 0), (2, 3)).length == 5
    assert set(result.path((0, 0), (2, 3)).vertices) <= set(graph)
    assert result.path((0, 0), "alone, <b>&") is None
    assert result.distance("alone, <b>&", (0, 0)) == math.inf
    assert result.row((0, 0)) == {
        **dict.fromkeys(graph, math.inf), **nx.single_source_shortest_path_length(graph, (0, 0)),
    }  # fmt: skip
    assert result.nearest((0, 0), 1)[0][0] in [(0, 1), (1, 0)]
    assert client.result(result.job).distance("(0, 0)", "(2, 3)") == 5


def test_sources_targets_and_other_options(client):
    result = client.solve(MATRIX, sources=[3, 7], targets=[5], cutoff=1000.0, dtype="int32", memory="1GiB")
    assert (result.shape, result.dtype) == ((2, 1), "int32")
    np.testing.assert_array_equal(result.to_numpy(), EXACT[[3, 7]][:, [5]])
    assert result.labels() == ([3, 7], [5])
    with pytest.raises(ServiceError, match="not solved") as caught:
        result.distance(5, 3)
    assert (caught.value.code, caught.value.status) == ("not-found", 404)


def test_an_array_that_is_too_large_is_refused_with_both_sizes(client):
    with pytest.raises(LimitExceeded, match=r"40 x 40 entries, .*KiB, and the limit is 1,000 B") as caught:
        client.solve(MATRIX).to_numpy(most=1000)
    assert caught.value.requested in (40 * 40 * 4, 40 * 40 * 8)


def test_xarray_reads_lazily_with_the_key(client):
    found = client.solve(MATRIX).to_xarray()
    assert found.sizes == {"source": 40, "target": 40}
    assert float(found.sel(source=3, target=5)) == EXACT[3, 5]
    stored = found.to_numpy().astype(float)
    np.testing.assert_array_equal(np.where(stored == found.attrs["unreachable"], np.inf, stored), EXACT)


def test_fetching_a_store(client, tmp_path):
    result = client.solve(EXAMPLES / "helsinki_drive.csv")
    told: list[tuple[int, int]] = []
    folder = result.fetch(tmp_path / "roads.zarr", meter=lambda done, total: told.append((done, total)))
    verify_matrix(folder)
    assert told[-1][0] == told[-1][1] == open_matrix(folder).bytes
    assert sorted(done for done, _ in told) == [done for done, _ in told]
    assert list(tmp_path.iterdir()) == [folder]
    with pytest.raises(Conflict, match="exists already"):
        result.fetch(folder)
    result.fetch(folder, overwrite=True)
    verify_matrix(folder)


def test_a_notebook_shows_text_and_no_markup(client):
    result = client.solve(nx.Graph([("<script>alert(1)</script>", "b&b", {"weight": 2})]), name="<i>mine</i>")
    html = result._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    shown = client.job(result.job)._repr_html_()
    assert "<i>" not in shown
    assert "&lt;i&gt;mine" in shown
    assert "2 x 2" in repr(result)
    assert client._http.headers["authorization"] not in repr(client)


@pytest.mark.parametrize(("reading", "shown"), [({}, "distance"), ({"unit": "m"}, "distance in m")])
def test_a_plot(client, reading, shown):
    pytest.importorskip("matplotlib")
    figure = client.solve(EXAMPLES / "helsinki_drive.csv", **reading).plot(size=50)
    left, right = figure.axes[:2]
    assert left.images[0].get_array().shape == (50, 50)
    assert len(right.patches) == 1
    assert [axes.get_xlabel() for axes in (left, right)] == ["target", shown]
    assert figure.axes[2].get_ylabel() == shown, "the bar of colours"
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_what_the_service_refuses_carries_its_problem(client):
    with pytest.raises(ServiceError) as caught:
        client.solve((["a", "b"], ["b", "a"], [1, -2]))
    assert (caught.value.code, caught.value.problem.details["weight"]) == ("negative-cycle", -1)
    with pytest.raises(ServiceError) as caught:
        client.solve(MATRIX, memory=1, fresh=True)
    assert caught.value.code == "does-not-fit"
    assert caught.value.problem.limit == 1
    assert caught.value.problem.asked > 1
    with pytest.raises(ServiceError, match="there is nothing at") as caught:
        client.job("../../v1/version")
    assert caught.value.status == 404


def test_a_wrong_key_is_refused_and_not_shown(live):
    with Client(live.url, "apsp_wrong_secret") as client, pytest.raises(ServiceError) as caught:
        client.jobs()
    assert caught.value.status == 401
    assert "secret" not in str(caught.value)


def test_a_refusal_is_heard_in_the_middle_of_an_upload(live, tmp_path):
    large = tmp_path / "large.csv"
    large.write_bytes(b"1,2,3\n" * 5_000_000)
    with Client(live.url, "apsp_wrong_secret", patience=5) as client, pytest.raises(ServiceError) as caught:
        client.submit(large)
    assert caught.value.code == "unauthorized"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "which service"),
        ("ftp://x", "no address"),
        ("localhost:8000", "no address"),
        ("http://me:pw@x", "password"),
    ],
)
def test_an_address_that_is_none_is_refused(url, said):
    with pytest.raises(InvalidRequest, match=said):
        Client(url)


def test_address_and_key_come_from_the_environment(live, monkeypatch):
    monkeypatch.setenv("APSP_SERVER", f"{live.url}/")
    monkeypatch.setenv("APSP_KEY", live.key)
    with Client() as client:
        assert client.url == live.url
        client.jobs(limit=1)
    with pytest.raises(InvalidRequest, match="no key has"):
        Client(key="a\r\nX-Evil: 1")


def test_a_client_that_nobody_closes_leaves_no_socket_open(live):
    client = Client(live.url, live.key)
    http = client._http
    client.jobs(limit=1)
    del client
    gc.collect()
    assert http.is_closed


def test_jobs_can_be_listed_cancelled_told_about_and_deleted(client):
    finished = client.submit(MATRIX, fresh=True, name="mine").wait()
    assert finished.cancel().state == "successful"
    assert finished.id in [job.id for job in client.jobs(state="successful", limit=300)]
    assert finished.log() is not None
    assert finished.refresh().plan["shape"] == [40, 40]
    with pytest.raises(ServiceError) as caught:
        finished.resume()
    assert caught.value.status == 409
    finished.delete()
    with pytest.raises(ServiceError) as caught:
        finished.refresh()
    assert caught.value.code == "gone"


def test_a_job_that_takes_too_long_and_is_cancelled_has_no_result(tmp_path):
    with KeyedService(tmp_path / "data", APSP_RUNNERS="none") as idle, Client(idle.url, idle.key) as client:
        job = client.submit(MATRIX)
        with pytest.raises(StillOpen, match="the job continues"):
            job.wait(0.5)
        with pytest.raises(ServiceError) as caught:
            job.result()
        assert caught.value.code == "result-not-ready"
        assert job.cancel().wait().state == "dismissed"
        with pytest.raises(JobFailed, match="was cancelled"):
            job.result()


def test_all_of_it_without_waiting(live, tmp_path):
    async def use() -> None:
        async with AsyncClient(live.url, live.key) as client:
            results = await asyncio.gather(*(client.solve(graph) for graph in KINDS.values()))
            result = results[0]
            for found in results:
                np.testing.assert_array_equal(await found.to_numpy(), EXACT)
            row: dict[Any, float] = await result.row(3)
            assert list(row.values()) == EXACT[3].tolist()
            assert await result.distance(3, 5) == EXACT[3, 5]
            assert await result.distances([(3, 5), (5, 3)]) == [EXACT[3, 5], EXACT[5, 3]]
            path = await result.path(3, 5)
            assert path is not None
            assert path.length == EXACT[3, 5]
            assert len(await result.nearest(3, 2)) == 2
            verify_matrix(await result.fetch(tmp_path / "fetched.zarr"))
            assert float((await result.to_xarray()).sel(source=3, target=5)) == EXACT[3, 5]
            assert (await result.plot(20)).axes
            job = await client.job(result.job)
            assert (await job.cancel()).state == "successful"
            assert (await client.jobs(limit=3))[0].over
            with pytest.raises(ServiceError):
                await job.resume()
            with pytest.raises(InvalidRequest, match="is no graph"):
                await client.solve(7)

    asyncio.run(use())
