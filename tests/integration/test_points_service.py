"""Tests points in questions to a real service: over HTTP, both clients and commands agree with the local commands."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import networkx as nx
import numpy as np
import polars as pl
import pytest

from apsp import Client
from service.cli import main
from service.client import AsyncClient
from service.client.errors import ServiceError
from storage.errors import InvalidRequest
from tests.integration.keyed_service import KeyedService
from tests.layers import line, write_geoparquet, write_gpkg

SIDE = 6


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streets with random places, as OSMnx writes them, and tables of points, one of them far away."""
    folder, rng = tmp_path_factory.mktemp("city"), np.random.default_rng(11)
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(SIDE, SIDE), 100)
    for vertex in graph:
        graph.nodes[vertex].update(lon=24.9 + 0.02 * float(rng.random()), lat=60.1 + 0.02 * float(rng.random()))
    for edge in graph.edges:
        graph.edges[edge]["weight"] = int(rng.integers(1, 40))
    nx.write_graphml(graph, folder / "city.graphml")
    for name, count in (("homes", 7), ("shops", 5)):
        lon, lat = 24.9 + 0.02 * rng.random(count), 60.1 + 0.02 * rng.random(count)
        lat[0] = 60.3
        keys = [f"{name[0]}{k}" for k in range(count)]
        table = pl.DataFrame({"id": keys, "name": [f"The {key}" for key in keys], "lon": lon, "lat": lat})
        table.write_csv(folder / f"{name}.csv")
    run("solve", folder / "city.graphml", "--out", folder / "city.zarr")
    return folder


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    with KeyedService(tmp_path_factory.mktemp("points") / "data", APSP_RUNNER_NICE="0") as service:
        yield service


@pytest.fixture(scope="module")
def client(live: KeyedService) -> Iterator[Client]:
    with Client(live.url, live.key) as client:
        yield client


def run(*words: object, code: int = 0) -> None:
    assert main.run([str(word) for word in words]) == code


def points(city: Path, name: str) -> list[dict]:
    return pl.read_csv(city / f"{name}.csv").to_dicts()


def test_questions_have_the_answers_of_the_command_line(
    client: Client, live: KeyedService, city: Path, capsys, monkeypatch
):
    result = client.solve(city / "city.graphml")
    homes, shops = points(city, "homes"), points(city, "shops")
    with pytest.warns(UserWarning, match=r"2 of 2 points are far from the network"):
        result.distance(homes[0], shops[0])
    vertices, snaps = result.nearest_vertices(homes)
    both = ["--points", city / "homes.csv", "--points", city / "shops.csv"]
    for home, vertex, snap in zip(homes[1:], vertices[1:], snaps[1:], strict=True):
        for shop in shops[1:3]:
            capsys.readouterr()
            run("query", city / "city.zarr", "distance", home["id"], shop["name"], *both, "--json")
            here = capsys.readouterr()
            assert f"{home['id']} is a point of homes.csv, {snap:,.0f} m from vertex {vertex}" in here.err
            answer = json.loads(here.out)
            assert result.distance(home, shop) == result.distance(vertex, shop) == answer["distance"]
    pairs = [(home, shops[1]) for home in homes[1:]]
    assert result.distances(pairs) == [result.distance(*pair) for pair in pairs]
    assert result.row(homes[1]) == result.row(vertices[1])
    line = result.path_feature(homes[1], shops[1])
    assert line["properties"]["vertices"] == list(result.path(homes[1], shops[1]).vertices)
    assert line["properties"]["source_point"]["vertex"] == vertices[1]
    assert line["properties"]["distance"] == result.distance(homes[1], shops[1])
    assert len(line["geometry"]["coordinates"]) == max(2, len(line["properties"]["vertices"]))
    files = [city / name for name in ("here.geojson", "there.geojson")]
    run("query", city / "city.zarr", "path", *vertices[1:3], "-o", files[0])
    monkeypatch.setenv("APSP_KEY", live.key)
    run("query", result.job, "path", *vertices[1:3], "-o", files[1], "--server", live.url)
    run(
        "query",
        result.job,
        "path",
        homes[1]["id"],
        shops[1]["id"],
        *both,
        "-o",
        city / "p.geojson",
        "--server",
        live.url,
    )
    assert json.loads((city / "p.geojson").read_text()) == line
    assert files[0].read_bytes() == files[1].read_bytes()
    assert json.loads(files[0].read_bytes()) == result.path_feature(*vertices[1:3])
    assert result.nearest(homes[1], 3) == result.nearest(vertices[1], 3)
    assert result.path(homes[1], shops[1]).vertices[0] == vertices[1]
    with pytest.raises(ServiceError, match="farther than 100"):
        result.distance(homes[0], 100, snap_limit=100)
    with pytest.raises(InvalidRequest, match="a point has lon and lat"):
        result.distance({"lon": 1}, 100)

    async def asked() -> tuple[float, tuple]:
        async with AsyncClient(live.url, live.key) as other:
            twin = await other.result(result.job)
            return await twin.distance(homes[1], shops[1]), await twin.nearest_vertices(homes)

    assert asyncio.run(asked()) == (result.distance(homes[1], shops[1]), (vertices, snaps))


def test_commands_ask_a_service_as_they_ask_a_store(
    client: Client, live: KeyedService, city: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("APSP_SERVER", live.url)
    monkeypatch.setenv("APSP_KEY", live.key)
    job = client.solve(city / "city.graphml").job
    for asked in (
        ["distance", "h1", "s2"],
        ["path", "h1", "104"],
        ["row", "h1"],
        ["nearest", "h1", "4"],
        ["within", "h1", "30"],
    ):
        words = ["query", "STORE", *asked, "--points", city / "homes.csv", "--points", city / "shops.csv", "--json"]
        found = []
        for store in (city / "city.zarr", job):
            capsys.readouterr()
            run(*(store if word == "STORE" else word for word in words))
            out, err = capsys.readouterr()
            found.append(json.loads(out))
            assert "h1 is a point" in err
        assert found[0] == found[1], asked


def test_a_job_between_points_is_the_table_of_the_command(
    client: Client, live: KeyedService, city: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("APSP_SERVER", live.url)
    monkeypatch.setenv("APSP_KEY", live.key)
    sides = ["--sources", f"@{city / 'homes.csv'}", "--targets", f"@{city / 'shops.csv'}"]
    run("near", city / "city.graphml", "--nearest", "2", *sides, "-o", tmp_path / "near.parquet")
    expected = pl.read_parquet(tmp_path / "near.parquet")
    capsys.readouterr()
    run("submit", city / "city.graphml", "--result", "near", "--nearest", "2", *sides, "--wait", "--json")
    facts = json.loads(capsys.readouterr().out)
    told = facts["points"]["sources"]
    assert (told["count"], [one["id"] for one in told["far"]]) == (7, ["h0"])
    frame = client.result(facts["id"]).frame()
    assert (frame.columns, frame.rows()) == (expected.columns, expected.rows())
    job = client.submit(city / "city.graphml", result="near", nearest=2, sources=points(city, "homes"),
                        targets=points(city, "shops"))  # fmt: skip
    assert job.id == facts["id"]  # the same points in the same graph: it was solved before
    with pytest.raises(ServiceError, match="farther than 100"):
        client.submit(city / "city.graphml", sources=points(city, "homes"), snap_limit=100)
    run("submit", city / "city.graphml", *sides, "--snap-limit", "100", code=2)


@pytest.mark.parametrize("kind", ["gpkg", "parquet"])
def test_layers_of_lines_can_be_uploaded(client: Client, tmp_path: Path, kind: str):
    lines = [line((24.9, 60.1), (24.91, 60.1)), line((24.91, 60.1), (24.91, 60.11))]
    fields = {"minutes": [3, 4], "oneway": ["yes", "no"]}
    if kind == "gpkg":
        path = write_gpkg(tmp_path / "x.gpkg", "streets", lines, **fields)
    else:
        path = write_geoparquet(tmp_path / "x.parquet", lines, **fields)
    result = client.solve(path, unit="min")
    assert (result.distance(0, 2), result.distance(2, 0), result.distance(2, 1)) == (7, float("inf"), 4)
    assert result.nearest_vertices([{"lon": 24.911, "lat": 60.112}])[0] == [2]
    assert result.path_feature(0, 2)["geometry"]["coordinates"] == [[24.9, 60.1], [24.91, 60.1], [24.91, 60.11]]
    view = tmp_path / "view.gpkg"
    with closing(sqlite3.connect(write_gpkg(view, "streets", lines))) as database:
        database.execute("CREATE VIEW v AS SELECT * FROM streets")
        database.execute("UPDATE gpkg_contents SET table_name = 'v'")
        database.execute("UPDATE gpkg_geometry_columns SET table_name = 'v'")
        database.commit()
    with pytest.raises(ServiceError, match="layer v is a view, which is not read"):
        client.solve(view)
