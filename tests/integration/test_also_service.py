"""Tests sums along paths of a real service: uploads in every form, both clients, the commands, and Zarr over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray
import zarr
from zarr.storage import FsspecStore

import apsp
from apsp import Client
from engine.api.verify import verify_store
from service.cli import main
from service.client import AsyncClient
from service.client.errors import ServiceError
from storage.errors import InvalidRequest, StorageFailed
from tests.integration.keyed_service import KeyedService

pytestmark = pytest.mark.slow
N = 300
READ = {"source": "from", "target": "to", "weight": "minutes"}
ALSO = ["toll", "metres"]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    with KeyedService(tmp_path_factory.mktemp("also") / "data", APSP_RUNNER_NICE="0") as service:
        yield service


@pytest.fixture(scope="module")
def client(live: KeyedService) -> Iterator[Client]:
    with Client(live.url, live.key) as client:
        yield client


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    """A directed graph with many ties and parallel arcs."""
    rng = np.random.default_rng(4)
    m = 4 * N
    ends = rng.integers(0, N, (2, m))
    minutes, metres = rng.integers(0, 6, m), rng.integers(1, 5000, m)
    return pl.DataFrame({"from": ends[0], "to": ends[1], "minutes": minutes, "metres": metres,
                         "toll": rng.integers(0, 8, m) / 4})  # fmt: skip


@pytest.fixture(scope="module")
def roads(frame: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("roads") / "roads.csv"
    frame.write_csv(path)
    return path


@pytest.fixture(scope="module")
def local(roads: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What ``apsp solve --also`` makes of the same file."""
    store = tmp_path_factory.mktemp("local") / "s.zarr"
    words = ["--from", "from", "--to", "to", "--weight", "minutes", "--also", ",".join(ALSO), "-o", str(store)]
    assert main.run(["solve", str(roads), *words]) == 0
    with apsp.open(store) as matrix:
        yield matrix


def every(matrix: Any) -> list[np.ndarray]:
    return [matrix.rows(matrix.sources), *(matrix.also[name].rows(matrix.sources) for name in ALSO)]


@pytest.fixture(scope="module")
def result(client: Client, roads: Path) -> Any:
    return client.solve(roads, also=ALSO, **READ)


def test_sums_are_bit_for_bit_those_of_the_command(result: Any, local: Any, tmp_path: Path):
    fetched = result.fetch(tmp_path / "f.zarr")
    with apsp.open(fetched) as matrix:
        assert list(matrix.also) == ALSO
        for found, wanted in zip(every(matrix), every(local), strict=True):
            np.testing.assert_array_equal(found, wanted, strict=True)
    assert verify_store(fetched, "all").searched == N
    assert main.run(["export", str(fetched), "-o", str(tmp_path / "t.csv")]) == 0
    assert (tmp_path / "t.csv").read_text().startswith("source,target,distance,toll,metres\n")


def test_arrays_of_sums(result: Any, local: Any):
    for name in ALSO:
        sums = local.also[name].rows(local.sources).astype(float)
        sums[sums == local.also[name].unreachable] = np.inf
        np.testing.assert_array_equal(result.to_numpy(also=name), sums)
        np.testing.assert_array_equal(result.to_numpy([7, 3], [5, 7], also=name), sums[np.ix_([7, 3], [5, 7])])
    with pytest.raises(ServiceError, match="no sums of 'nope'; it has toll, metres"):
        result.to_numpy(also="nope")


def test_a_damaged_tile_of_sums_is_not_fetched(live: KeyedService, result: Any, tmp_path: Path):
    tile = live.data / "jobs" / result.job / "matrix.zarr" / "also" / "toll" / "c" / "0" / "0"
    whole = tile.read_bytes()
    try:
        tile.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        with pytest.raises(StorageFailed, match="also/toll/c/0/0 was damaged twice"):
            result.fetch(tmp_path / "f.zarr")
    finally:
        tile.write_bytes(whole)
    assert not (tmp_path / "f.zarr").exists()
    result.fetch(tmp_path / "f.zarr")  # goes on with the files that it has


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "networkx"])
def test_graphs_of_every_kind_have_the_same_sums(client: Client, frame: pl.DataFrame, local: Any, kind: str):
    graph: Any = {"pandas": frame.to_pandas, "lazy": frame.lazy}.get(kind, lambda: frame)()
    how: dict[str, Any] = READ
    if kind == "networkx":
        graph, how = nx.MultiDiGraph(), {"weight": "minutes"}
        for u, v, *values in frame.iter_rows():
            graph.add_edge(u, v, **dict(zip(("minutes", "metres", "toll"), values, strict=True)))
        graph.add_node(N + 5)
    found = client.solve(graph, also=ALSO, targets=[3, 0], **how)
    for source in range(0, N, 37):
        toll, metres = (local.also[name].entries([source], [3])[0] for name in ALSO)
        reached = local.entries([source], [3])[0] != local.unreachable
        assert found.also(source, 3) == ({"toll": toll, "metres": metres} if reached else
                                         {"toll": np.inf, "metres": np.inf})  # fmt: skip


def test_hops_with_sums_and_columns_called_like_the_ends(client: Client):
    edges = [("a", "b", {"source": 1, "tail": 2.5}), ("b", "c", {"source": 4, "tail": 0.25})]
    path = nx.DiGraph(edges)
    for graph in (path, pd.DataFrame({"u": list("ab"), "v": list("bc"), "source": [1, 4], "tail": [2.5, 0.25]})):
        found = client.solve(graph, unweighted=True, also=["source", "tail"])
        assert (found.distance("a", "c"), found.also("a", "c")) == (2, {"source": 5, "tail": 2.75})
        assert found.also("c", "a") == {"source": np.inf, "tail": np.inf}


def test_what_the_client_refuses(client: Client, frame: pl.DataFrame):
    with pytest.raises(InvalidRequest, match="also: edge 'a' - 'b' lacks 'toll'"):
        client.submit(nx.DiGraph([("a", "b", {"metres": 1})]), also=["toll"])
    with pytest.raises(InvalidRequest, match="also names a column"):
        client.submit(([0], [1]), also=["toll"])
    with pytest.raises(InvalidRequest, match="also: there is no column 'nope'"):
        client.submit(frame.to_pandas(), also="nope", **READ)
    with pytest.raises(InvalidRequest, match="also toll: values of <U1 are no numbers"):
        client.submit(pd.DataFrame({"u": [0], "v": [1], "toll": [["x"]]}), unweighted=True, also="toll")
    plain = client.solve(frame, targets=[0], **READ)
    with pytest.raises(ServiceError, match="has summed nothing along its paths"):
        plain.also(0, 0)


def test_the_asynchronous_client(live: KeyedService, roads: Path, local: Any):
    async def ask() -> dict[str, float]:
        async with AsyncClient(live.url, live.key) as client:
            found = await client.solve(roads, also=["metres"], **READ)
            return await found.also(1, 1)

    assert asyncio.run(ask()) == {"metres": 0}


def test_commands_say_what_they_say_of_a_store(
    live: KeyedService, roads: Path, local: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("APSP_SERVER", live.url)
    monkeypatch.setenv("APSP_KEY", live.key)
    words = ["--from", "from", "--to", "to", "--weight", "minutes", "--also", " toll, metres"]
    assert main.run(["submit", str(roads), *words]) == 0
    job = capsys.readouterr().out.strip()
    assert main.run(["wait", job]) == 0
    u, v = np.argwhere(local.rows(local.sources) > 5)[0]
    capsys.readouterr()
    for more in ([], ["--json"]):
        said = []
        for place in (str(local.path), job):
            assert main.run(["query", place, "also", str(u), str(v), *more]) == 0
            said.append(capsys.readouterr().out)
        assert said[0] == said[1]
        assert "toll" in said[0]
    assert main.run(["graphs", "--json"]) == 0
    graphs = json.loads(capsys.readouterr().out)["graphs"]
    assert ALSO in [[one["name"] for one in graph["facts"]["quantities"]] for graph in graphs]
    assert main.run(["submit", str(roads), *words, "--max-hops", "2"]) == 2
    assert "sums along paths of at most K arcs are not made" in capsys.readouterr().err


def test_zarr_clients_open_them_like_distances(live: KeyedService, client: Client, result: Any, local: Any):
    headers = {"headers": {"Authorization": live.bearer}}
    url = f"{live.url}/v1/jobs/{result.job}/zarr"
    group = zarr.open_group(FsspecStore.from_url(url, storage_options=headers, read_only=True), mode="r")
    for name in ALSO:
        np.testing.assert_array_equal(group[f"also/{name}"][:], local.also[name].rows(local.sources))
    with xarray.open_zarr(url, group="also", storage_options=headers) as store:
        assert store["toll"].dims == ("source", "target")
        np.testing.assert_array_equal(store["metres"].values, local.also["metres"].rows(local.sources))
    table = pd.DataFrame({"a": [1], "b": [2], "w": [1], "Maut 2.5": [7], "é_+ 1.5": [0.5]})
    odd = client.solve(table, source="a", target="b", weight="w", also=["Maut 2.5", "é_+ 1.5"])
    url = f"{live.url}/v1/jobs/{odd.job}/zarr"
    group = zarr.open_group(FsspecStore.from_url(url, storage_options=headers, read_only=True), mode="r")
    assert group["also/Maut 2.5"][0, 1] == 7
    assert group["also/é_+ 1.5"][0, 1] == 0.5
    assert odd.also(1, 2) == {"Maut 2.5": 7, "é_+ 1.5": 0.5}


def test_names_with_percent_signs_are_fetched(live: KeyedService, client: Client, tmp_path: Path):
    found = client.solve(nx.DiGraph([(1, 2, {"w": 3, "5%41 of w": 2})]), weight="w", also="5%41 of w")
    with apsp.open(found.fetch(tmp_path / "f.zarr")) as matrix:
        assert matrix.also["5%41 of w"].entries([0], [1]).tolist() == [2]
    path = f"/v1/jobs/{found.job}/zarr/also/5%2541%20of%20w/zarr.json"
    assert live.http.get(path).json()["attributes"]["long_name"].startswith("5%41 of w, ")


@pytest.mark.data
def test_a_real_network_with_centroids(client: Client, data_dir: Path, tmp_path: Path):
    how = {"weight": "free_flow_time", "also": ["length", "toll"]}
    graph, _ = apsp.read_graph(data_dir / "Anaheim_net.tntp", **how)
    assert graph.terminals
    apsp.solve_to_store(graph, tmp_path / "l.zarr", apsp.Options(also=("toll", "length")))
    fetched = client.solve(data_dir / "Anaheim_net.tntp", **how).fetch(tmp_path / "f.zarr")
    assert verify_store(fetched, "all").searched == graph.n
    with apsp.open(fetched) as found, apsp.open(tmp_path / "l.zarr") as wanted:
        np.testing.assert_array_equal(found.rows(found.sources), wanted.rows(found.sources), strict=True)
        for name in how["also"]:
            sums = found.also[name].rows(found.sources)
            np.testing.assert_array_equal(sums, wanted.also[name].rows(found.sources), strict=True)
        assert np.isfinite(sums).any()
