"""Tests tables of a real service with both clients and the commands, and after the end of a killed runner."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pytest
import zarr
from scipy.sparse import csr_array

import apsp
from apsp import Client
from service.cli import main
from service.client import AsyncClient
from service.client.errors import ServiceError
from storage.errors import InvalidRequest, NotFound
from tests.integration.keyed_service import KeyedService

SIDE = 20


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    data = tmp_path_factory.mktemp("tables") / "data"
    with KeyedService(data, APSP_MAX_CELLS="2000", APSP_RUNNER_NICE="0", APSP_HEARTBEAT_SECONDS="1") as service:
        yield service


@pytest.fixture(scope="module")
def client(live: KeyedService) -> Iterator[Client]:
    with Client(live.url, live.key) as client:
        yield client


def lattice() -> tuple[Any, Any, Any]:
    at = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel(), [0]])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel(), [SIDE * SIDE - 1]])
    return tails, heads, 1 + np.arange(len(tails)) % 13


@pytest.fixture(scope="module")
def graph() -> apsp.Graph:
    tails, heads, weights = lattice()
    return apsp.build_graph(tails, heads, weights, n=SIDE**2, directed=True)[0]


ASKED: dict[str, Any] = {"within": [10, 20.5], "quantiles": [0.5], "nearest": 2, "direction": "in"}
JOBS = np.arange(SIDE**2) % 5


def tables(tmp_path: Path) -> Iterator[Any]:
    """Opportunities in every form that a client takes."""
    frame = pl.DataFrame({"place": np.arange(SIDE**2), "jobs": JOBS})
    frame.write_csv(tmp_path / "jobs.csv")
    yield tmp_path / "jobs.csv"
    yield frame
    yield pd.DataFrame({"place": np.arange(SIDE**2), "jobs": JOBS})
    yield {"jobs": {k: int(JOBS[k]) for k in range(SIDE**2) if JOBS[k]}}
    yield {"vertices": list(range(SIDE**2)), "columns": {"jobs": JOBS.tolist()}}


def test_measures_are_those_of_the_engine_however_the_jobs_are_given(client: Client, graph: apsp.Graph, tmp_path: Path):
    wanted = apsp.measure(graph, opportunities={"jobs": JOBS}, **ASKED).to_polars()
    for given in tables(tmp_path):
        result = client.solve(lattice(), directed=True, result="measures", opportunities=given, **ASKED)
        assert result.result == "measures"
        assert result.frame().equals(wanted)
        assert result.summary()["rows"] == SIDE**2
        assert result.table().column_names == wanted.columns
    columns = ["vertex", "jobs_10", "farthest"]
    assert result.frame(columns, sort="-jobs_10").equals(
        wanted.with_row_index("row").sort("jobs_10", "row", descending=[True, False], nulls_last=True).select(columns)
    ), "in pages, as no answer has more than APSP_MAX_CELLS entries"
    assert result.frame(columns, vertices=[7, 3]).rows() == wanted.select(columns)[[3, 7]].rows()
    assert result.frame(["vertex"], limit=5)["vertex"].to_list() == list(range(5))
    assert result.frame(["vertex"], limit=0).shape == (0, 1)
    for refused in (result.labels, result.to_numpy, result.plot):
        with pytest.raises(InvalidRequest, match="frame"):
            refused()
    with pytest.raises(ServiceError, match="table of measures, which holds no distances"):
        result.distance(0, 1)
    with pytest.raises(NotFound):
        client.submit(lattice(), result="measures", opportunities="nowhere.csv")
    with pytest.raises(ServiceError, match="opportunities") as caught:
        client.submit(lattice(), directed=True, result="measures", within=[1], opportunities={"jobs": {-5: 1}})
    assert (caught.value.status, caught.value.problem.details["field"]) == (422, "opportunities")


def same(found: pl.DataFrame, wanted: pl.DataFrame) -> None:
    """Compare tables; the last digits of sums depend on the number of threads."""
    polars.testing.assert_frame_equal(found, wanted, rel_tol=1e-12)


TRIPS = {(0, 21): 3.5, (7, 399): 2.0, (0, 5): 1.0, (399, 0): 4.0}


def demand_tables(tmp_path: Path) -> Iterator[Any]:
    """Demands in every form that a client takes."""
    columns = {"from": [u for u, _ in TRIPS], "to": [v for _, v in TRIPS], "cars": list(TRIPS.values())}
    frame = pl.DataFrame(columns)
    frame.write_csv(tmp_path / "trips.csv")
    yield tmp_path / "trips.csv"
    yield frame
    yield pd.DataFrame(columns)
    yield TRIPS
    yield dict(zip(("origins", "destinations", "flows"), columns.values(), strict=True))


def test_betweenness_and_flows_are_those_of_the_engine(client: Client, graph: apsp.Graph, tmp_path: Path):
    between = client.solve(lattice(), directed=True, result="betweenness", of="arcs", raw=True)
    same(between.frame(), apsp.betweenness(graph, arcs=True, normalized=False).to_polars())
    ends = np.array(list(TRIPS))
    wanted = apsp.assign(graph, apsp.Demands(ends[:, 0], ends[:, 1], np.array(list(TRIPS.values()))))
    for given in demand_tables(tmp_path):
        flows = client.solve(lattice(), directed=True, result="flows", demands=given)
        same(flows.frame(), wanted.arc_table())
        assert flows.summary()["assigned"] == wanted.assigned == 6.5
        assert flows.summary()["lost"] == wanted.lost == 4
    for wrong in ({"from": [1]}, [1, 2], pl.DataFrame({"a": [1], "b": [2]})):
        with pytest.raises(InvalidRequest, match="demands are the path"):
            client.submit(lattice(), result="flows", demands=wrong)
    with pytest.raises(ServiceError, match=r"demands: .*no vertex"):
        client.submit(lattice(), directed=True, result="flows", demands={(0, -5): 1})


def test_names_of_python_and_the_asynchronous_client(live: KeyedService):
    pairs = [((0, k), (0, k + 1)) for k in range(9)]
    edges = pl.DataFrame({"source": [str(u) for u, _ in pairs], "target": [str(v) for _, v in pairs]})

    async def ask() -> pl.DataFrame:
        async with AsyncClient(live.url, live.key) as client:
            import networkx as nx

            found = await client.solve(
                nx.DiGraph(pairs), result="measures", measures=["reached"], within=2,
                opportunities={"beds": {(0, 1): 3.5}},
            )  # fmt: skip
            return await found.frame(sort="-beds_2", vertices=None)

    found = asyncio.run(ask())
    assert found.height == len(set(edges["source"]) | set(edges["target"]))
    assert found["beds_2"].to_list()[:2] == [3.5, 3.5]
    assert sorted(found["vertex"][:2].to_list()) == ["(0, 0)", "(0, 1)"]


def test_near_pairs_are_fetched_as_sparse_rows(client: Client, graph: apsp.Graph, tmp_path: Path):
    wanted = apsp.near_pairs(graph, apsp.Options(cutoff=20))
    result = client.solve(lattice(), directed=True, result="near", cutoff=20)
    frame = result.frame()
    assert frame.height == wanted.entries
    folder = result.fetch(tmp_path / "near")
    group = zarr.open_group(folder, mode="r")
    rows = csr_array((group["data"][:], group["indices"][:], group["indptr"][:]), shape=group.attrs["shape"])
    assert abs(rows - wanted.to_scipy()).max() == 0
    assert pl.read_parquet(folder / "table.parquet").equals(frame)
    with pytest.raises(ServiceError, match="sorted"):
        result.frame(sort="distance")


def test_the_commands(
    live: KeyedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    tails, heads, weights = lattice()
    pl.DataFrame({"from": tails, "to": heads, "m": weights}).write_csv(tmp_path / "g.csv")
    pl.DataFrame({"place": np.arange(SIDE**2), "jobs": JOBS, "beds": JOBS}).write_csv(tmp_path / "jobs.csv")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("APSP_SERVER", live.url)
    monkeypatch.setenv("APSP_KEY", live.key)

    def run(*words: str, code: int = 0) -> str:
        found = main.run(words)
        said = capsys.readouterr()
        assert found == code, said
        return said.out if code == 0 else said.err

    asked = ["--measures", "reached,mean", "--within", "15,30", "--opportunities", "jobs.csv", "--columns", "beds"]
    out = run("submit", "g.csv", "--result", "measures", *asked, "--wait")
    job = out.splitlines()[0]
    assert "columns  vertex, reached, mean, within_15, within_30, beds_15, beds_30" in out
    assert "400 rows" in run("fetch", job, "-o", "t.parquet")
    run("fetch", job, "-o", "t.csv")
    run("measure", "g.csv", *asked, "-o", "here.parquet")
    assert pl.read_parquet(tmp_path / "t.parquet").equals(pl.read_parquet(tmp_path / "here.parquet"))
    assert pl.read_csv(tmp_path / "t.csv").height == 400
    run("fetch", job, "-o", "folder")
    assert (tmp_path / "folder/table.parquet").exists()
    assert "no distances of all pairs" in run("query", "folder", "distance", "1", "2", code=1)
    assert "holds no distances of all pairs" in run("query", job, "distance", "1", "2", code=2)
    assert json.loads(run("query", job, "summary", "--json"))["summary"]["rows"] == 400
    assert "exists already" in run("fetch", job, "-o", "t.csv", code=2)
    pl.DataFrame({"from": [0, 7], "to": [21, 399], "bikes": [1, 2], "cars": [3, 4]}).write_csv("trips.csv")
    out = run("submit", "g.csv", "--result", "flows", "--demands", "trips.csv", "--flow", "cars", "--wait")
    assert "assigned           7, of 2 demands" in out
    run("fetch", out.splitlines()[0], "-o", "flows.csv")
    run("assign", "g.csv", "--demands", "trips.csv", "--flow", "cars", "-o", "same.csv")
    assert (tmp_path / "flows.csv").read_text() == (tmp_path / "same.csv").read_text()
    out = run("submit", "g.csv", "--result", "betweenness", "--of", "vertices", "--raw", "--endpoints", "--wait")
    run("fetch", out.splitlines()[0], "-o", "between.csv")
    run("betweenness", "g.csv", "--raw", "--endpoints", "-o", "here.csv")
    same(*(pl.read_csv(tmp_path / name) for name in ("between.csv", "here.csv")))
    assert "raw belongs to result betweenness" in run("submit", "g.csv", "--raw", code=2)
    assert "--within takes numbers" in run("submit", "g.csv", "--result", "measures", "--within", "soon", code=2)
    assert "within belongs to result measures" in run("submit", "g.csv", "--within", "5", code=2)


@pytest.mark.slow
def test_a_runner_that_is_killed_leaves_the_table_to_its_successor(live: KeyedService):
    rng = np.random.default_rng(1)
    tails, heads = rng.integers(0, 30_000, (2, 120_000))
    lines = "\n".join(f"{u} {v} {w}" for u, v, w in zip(tails, heads, rng.integers(1, 99, 120_000), strict=True))
    graph = live.upload(lines.encode(), directed=True)["id"]
    sources = list(range(3000))
    known = set(tails.tolist()) | set(heads.tolist())
    asked = {"result": "measures", "within": [100], "sources": [k for k in sources if k in known]}
    job = live.submit(graph, **asked)["id"]
    first = live.wait(job, seconds=120, state="running")
    if first["state"] == "running":
        os.kill(live.runner(), signal.SIGKILL)
    problem = live.http.get(f"/v1/jobs/{job}/table")
    assert problem.status_code in (200, 409)
    assert problem.status_code == 200 or problem.json()["code"] == "result-not-ready"
    done = live.wait(job, seconds=240)
    assert done["state"] == "successful", done
    rows = live.http.get(f"/v1/jobs/{job}/table", params={"columns": "vertex,within_100", "limit": 3}).json()
    assert rows["total"] == len(asked["sources"])
    left = [path.name for path in (live.data / "jobs" / job).iterdir() if path.is_dir()]
    assert left == ["matrix.zarr"]
