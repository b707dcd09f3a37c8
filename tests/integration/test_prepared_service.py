"""Tests a prepared result of a real service: it is submitted, queried through helper processes, and read as Zarr."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path
from zarr.storage import FsspecStore

import apsp
from apsp import Client
from service.client.errors import ServiceError
from tests.integration.keyed_service import KeyedService

SIDE = 20


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    with KeyedService(tmp_path_factory.mktemp("prepared") / "data", APSP_MAX_COMPUTING_SECONDS="1000000") as service:
        yield service


@pytest.fixture(scope="module")
def client(live: KeyedService) -> Iterator[Client]:
    with Client(live.url, key=live.bearer.removeprefix("Bearer ")) as client:
        yield client


def lattice() -> tuple[Any, Any, Any]:
    at = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel(), [0]])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel(), [SIDE * SIDE - 1]])
    return tails, heads, 1 + np.arange(len(tails)) % 13


@pytest.fixture(scope="module")
def wanted() -> Any:
    tails, heads, weights = lattice()
    return shortest_path(csr_array((weights.astype(float), (tails, heads)), shape=(SIDE**2, SIDE**2)))


@pytest.fixture(scope="module")
def result(client: Client) -> Any:
    return client.solve(lattice(), result="prepared", directed=True)


def test_a_client_asks_as_of_a_matrix(client: Client, result: Any, wanted: Any):
    pairs = [(0, 399), (17, 300), (399, 0)]
    assert result.distances(pairs) == [wanted[pair] for pair in pairs]
    assert result.distance(5, 250) == wanted[5, 250]
    assert result.path(0, 399).length == wanted[0, 399]
    assert list(result.row(7).values()) == wanted[7].tolist()
    np.testing.assert_array_equal(result.to_numpy([3, 1], [8, 9]), wanted[np.ix_([3, 1], [8, 9])])
    assert [found[1] for found in result.nearest(0, 3)] == np.sort(wanted[0])[1:4].tolist()
    assert result.plot().axes
    again = client.submit(lattice(), result="prepared", directed=True)
    assert (again.id, again.state) == (result.job, "successful")
    assert client.submit(lattice(), directed=True).id != result.job


def test_an_estimate_has_the_numbers_before_any_work(live: KeyedService, result: Any):
    graph = live.job(result.job)["graph"]
    found = live.http.post("/v1/estimates", json={"graph": graph, "result": "prepared"}).json()
    assert (found["algorithm"], found["shape"]) == ("prepared", [SIDE**2, SIDE**2])
    assert min(found["seconds"], found["memory"], found["disk"]) > 0
    refused = live.http.post("/v1/estimates", json={"graph": graph, "result": "prepared", "max_hops": 3})
    assert (refused.status_code, refused.json()["details"]) == (422, {"field": "max_hops"})


def test_a_cutoff_belongs_to_the_result(client: Client, wanted: Any):
    limit = float(np.median(wanted[np.isfinite(wanted)]))
    result = client.solve(lattice(), result="prepared", directed=True, cutoff=limit)
    near = np.where(wanted <= limit, wanted, np.inf)
    assert list(result.row(7).values()) == near[7].tolist()
    pairs = [(0, 399), (0, 1), (17, 300)]
    assert result.distances(pairs) == [near[pair] for pair in pairs]


def test_readers_of_zarr_read_what_is_computed(live: KeyedService, result: Any, wanted: Any):
    url, options = f"{live.url}/v1/jobs/{result.job}/zarr", {"headers": {"Authorization": live.bearer}}
    store = FsspecStore.from_url(url, storage_options=options, read_only=True)
    array = zarr.open_group(store, mode="r")["distances"]
    assert isinstance(array, zarr.Array)
    found = np.where(array[:] == array.attrs["unreachable"], np.inf, array[:])
    np.testing.assert_array_equal(found, wanted)
    with xarray.open_zarr(url, storage_options=options) as data:
        assert data.distances.dims == ("source", "target")
        assert data.distances.sel(source=5, target=250).values == wanted[5, 250]
        assert data.source.values.tolist() == list(range(SIDE**2))


def test_near_pairs_and_measures_come_from_the_tables(live: KeyedService, client: Client, result: Any, wanted: Any):
    same: dict[str, Any] = {"result": "near", "cutoff": 30}
    found, usual = (client.solve(lattice(), directed=True, **same, **more) for more in ({"prepared": result.job}, {}))
    assert found.frame().equals(usual.frame())
    near = (wanted <= 30) & ~np.eye(SIDE**2, dtype=bool)
    assert found.frame().height == near.sum()
    job = live.job(found.job)
    assert job["options"]["prepared"] == result.job
    assert "predicted" in job["plan"]["reason"]
    table = client.solve(lattice(), directed=True, result="measures", within=[30], prepared=result.job)
    assert table.frame(sort="vertex")["within_30"].to_list() == near.sum(1).tolist()
    assert live.job(table.job)["plan"]["algorithm"] == "prepared"
    with pytest.raises(ServiceError, match="not prepared"):
        client.submit(lattice(), directed=True, **same, prepared=usual.job)


def test_a_fetched_result_is_the_prepared_folder(tmp_path: Path, result: Any, wanted: Any):
    seen = []
    folder = result.fetch(tmp_path / "p", meter=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    with apsp.open(folder) as opened:
        assert isinstance(opened, apsp.PreparedMatrix)
        assert opened.entries([0], [399])[0] == wanted[0, 399]
    assert apsp.verify(folder, 5).searched == 5


def test_damage_is_an_error_for_readers_of_zarr_too(live: KeyedService, client: Client):
    result = client.solve(lattice(), result="prepared", directed=True, fresh=True)
    table = live.data / "jobs" / result.job / "matrix.zarr/tables/forward/c/0"
    data = bytearray(table.read_bytes())
    for at in range(3, len(data) - 4, 1 << 10):  # in every section
        data[at] ^= 4
    table.write_bytes(data)
    url, options = f"{live.url}/v1/jobs/{result.job}/zarr", {"headers": {"Authorization": live.bearer}}
    with xarray.open_zarr(url, storage_options=options) as opened, pytest.raises(Exception, match="500"):
        _ = opened.distances.values
    with pytest.raises(ServiceError, match="tables/forward/c/0 does not agree with the seal"):
        result.distance(0, 1)
