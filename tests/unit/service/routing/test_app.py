"""OSRM's and Valhalla's protocols over a solved and a prepared city, against distances and paths of NetworkX."""

from __future__ import annotations

import itertools
import json
import math
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import routingpy
import uvicorn
from fastapi.testclient import TestClient

from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from service.http.listening import address_of, listen
from service.routing.app import create_app
from service.routing.network import RoutingNetwork
from service.routing.polyline import decode, encode
from storage.errors import InvalidRequest
from storage.geography.coordinates import Coordinates, crow_distances
from storage.graph.graph import Graph, build_graph

N = 30
#: Vertices without any way to the others; the last one has no coordinates.
LONELY, NOWHERE = N - 2, N - 1


def city(unit: str | None = "s") -> Graph:
    draw = np.random.default_rng(3)
    tails, heads = draw.integers(0, N - 2, (2, 90))
    ring = np.arange(N - 2)
    tails, heads = np.append(tails, ring), np.append(heads, np.roll(ring, -1))
    graph, _ = build_graph(tails, heads, draw.integers(1, 600, len(tails)), n=N, directed=True)
    x, y = 25 + draw.random(N) / 10, 60 + draw.random(N) / 10
    x[NOWHERE] = y[NOWHERE] = np.nan
    names = np.array([f"corner {i}" if i % 2 else "" for i in range(N)], np.dtypes.StringDType())
    return replace(graph, coordinates=Coordinates(x, y, True, {"name": names}), unit=unit)


def expected(graph: Graph) -> nx.DiGraph:
    made = nx.DiGraph()
    made.add_nodes_from(range(N))
    tails = np.repeat(np.arange(N), np.diff(graph.indptr))
    made.add_weighted_edges_from(zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True))
    return made


@pytest.fixture(scope="module", params=["solved", "prepared"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("routing") / "city.zarr"
    if request.param == "solved":
        solve_to_store(city(), Options(device="cpu"), path)
    else:
        prepare(city(), path, Options(device="cpu"))
    return path


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[TestClient]:
    with open_result(store) as matrix:
        yield TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=None, most=1000)))


def nearest(graph: Graph, lon: float, lat: float) -> int:
    assert graph.coordinates is not None
    far = [
        math.inf if math.isnan(x) else crow_distances(*(np.array([v]) for v in (lon, lat, x, y)), geographic=True)[0]
        for x, y in zip(graph.coordinates.x, graph.coordinates.y, strict=True)
    ]
    return int(np.argmin(far))


def places(count: int, seed: int) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    return [(round(25 + draw.random() / 10, 6), round(60 + draw.random() / 10, 6)) for _ in range(count)]


def text(some: list[tuple[float, float]]) -> str:
    return ";".join(f"{lon},{lat}" for lon, lat in some)


def lengths(some: list[tuple[float, float]]) -> list[list[float | None]]:
    graph = city()
    found = dict(nx.all_pairs_dijkstra_path_length(expected(graph)))
    vertices = [nearest(graph, *place) for place in some]
    return [[found[u].get(v) for v in vertices] for u in vertices]


def lonely() -> tuple[float, float]:
    where = city().coordinates
    assert where is not None
    return float(where.x[LONELY]), float(where.y[LONELY])


def test_tables_are_those_of_networkx_however_they_are_split(client: TestClient) -> None:
    some = [*places(12, 1), lonely()]
    whole = client.get(f"/table/v1/driving/{text(some)}").json()
    assert whole["code"] == "Ok"
    assert whole["durations"] == lengths(some)
    assert None in whole["durations"][0]
    assert len(whole["sources"]) == len(whole["destinations"]) == 13
    line = encode([lat for _, lat in some], [lon for lon, _ in some], 6)
    assert client.get(f"/table/v1/foot/polyline6({line}).json").json()["durations"] == whole["durations"]
    for i, j in itertools.product(range(0, 13, 4), range(13)):
        part = client.get(f"/table/v1/driving/{text([some[i], some[j]])}?sources=0&destinations=1").json()
        assert part["durations"] == [[whole["durations"][i][j]]]
        assert part["sources"] == [whole["sources"][i]]
    rows = client.get(f"/table/v1/x/{text(some)}?sources=3;1&destinations=2&skip_waypoints=true&scale_factor=2").json()
    assert rows == {"code": "Ok", "durations": [[whole["durations"][3][2] * 2], [whole["durations"][1][2] * 2]]}


def test_routes_are_shortest_paths_along_the_network(client: TestClient) -> None:
    graph = city()
    assert graph.coordinates is not None
    way, where = expected(graph), list(zip(graph.coordinates.x, graph.coordinates.y, strict=True))
    for seed in range(15):
        some = places(3, seed)
        answer = client.get(f"/route/v1/driving/{text(some)}?geometries=geojson&overview=full&steps=true").json()
        stops = [nearest(graph, *place) for place in some]
        if LONELY in stops:
            assert answer["code"] == "NoRoute"
            continue
        [route] = answer["routes"]
        each = [nx.dijkstra_path_length(way, u, v) for u, v in itertools.pairwise(stops)]
        assert [leg["duration"] for leg in route["legs"]] == each
        assert route["duration"] == route["weight"] == sum(each)
        line = [where.index((lon, lat)) for lon, lat in route["geometry"]["coordinates"]]
        assert (line[0], line[-1]) == (stops[0], stops[-1])
        assert sum(way[u][v]["weight"] for u, v in itertools.pairwise(line)) == sum(each)
        x, y = graph.coordinates.x[line], graph.coordinates.y[line]
        straight = crow_distances(x[:-1], y[:-1], x[1:], y[1:], geographic=True).sum()
        assert route["distance"] == pytest.approx(straight, abs=0.11)
        assert [point["name"] for point in answer["waypoints"]] == [f"corner {v}" if v % 2 else "" for v in stops]
        assert [step["maneuver"]["type"] for step in route["legs"][0]["steps"]] == ["depart", "arrive"]
        coded = client.get(f"/route/v1/driving/{text(some)}").json()["routes"][0]["geometry"]
        assert decode(coded) == [pytest.approx(place, abs=6e-6) for place in route["geometry"]["coordinates"]]


def test_a_route_to_where_one_already_is(client: TestClient) -> None:
    [place] = places(1, 5)
    answer = client.get(f"/route/v1/driving/{text([place, place])}?geometries=geojson").json()
    assert (answer["routes"][0]["duration"], answer["routes"][0]["distance"]) == (0, 0)
    assert len(answer["routes"][0]["geometry"]["coordinates"]) == 1


def test_nearest_vertices_in_order(client: TestClient) -> None:
    [(lon, lat)] = places(1, 9)
    answer = client.get(f"/nearest/v1/driving/{lon},{lat}?number=40").json()
    metres = [point["distance"] for point in answer["waypoints"]]
    assert metres == sorted(metres)
    assert len(metres) == N - 1


@pytest.mark.parametrize(
    ("address", "code", "said"),
    [
        ("/route/v1/driving/{a};{lonely}", "NoRoute", "no way from coordinate 0 to 1"),
        ("/table/v1/driving/{a};{b}?annotations=distance", "InvalidOptions", "tells times and no lengths"),
        ("/table/v1/driving/{a};{b}?annotations=speed", "InvalidOptions", "duration, distance"),
        ("/table/v1/driving/{a};{b}?sources=2", "InvalidOptions", "from 0 to 1"),
        ("/table/v1/driving/{a};{b}?sources=-1", "InvalidOptions", "from 0 to 1"),
        ("/table/v1/driving/{a};{b}?bearings=10,20;", "InvalidOptions", "bearings"),
        ("/table/v1/driving/{a};{b}?colour=red", "InvalidOptions", "no parameter 'colour'"),
        ("/table/v1/driving/{a};{b}?radiuses=1;1", "NoSegment", "coordinate 0"),
        ("/table/v1/driving/{a};{b}?radiuses=1", "InvalidOptions", "1 radiuses"),
        ("/table/v1/driving/{a};{b}?scale_factor=0", "InvalidOptions", "positive"),
        ("/table/v1/driving/{a};25", "InvalidValue", "coordinate 1"),
        ("/table/v1/driving/{a};25,99", "InvalidValue", "latitude 99"),
        ("/table/v1/driving/polyline(~)", "InvalidValue", "cut off"),
        ("/route/v1/driving/{a}", "InvalidOptions", "two coordinates"),
        ("/route/v1/driving/{a};{b}?geometries=wkt", "InvalidOptions", "geojson"),
        ("/route/v1/driving/{a};{b}?annotations=nodes", "InvalidOptions", "annotations=nodes"),
        ("/nearest/v1/driving/{a}?number=0", "InvalidOptions", "from 1"),
        ("/nearest/v1/driving/{a};{b}", "InvalidOptions", "one coordinate"),
        ("/table/v1/driving/" + ";".join(["{a}"] * 40), "TooBig", "1,600"),
    ],
)
def test_what_cannot_be_answered_is_said(client: TestClient, address: str, code: str, said: str) -> None:
    a, b = (text([place]) for place in places(2, 0))
    answer = client.get(address.format(a=a, b=b, lonely=text([lonely()])))
    assert answer.status_code == 400
    assert answer.json()["code"] == code
    assert said in answer.json()["message"]


def test_valhallas_matrix(client: TestClient) -> None:
    some = [*places(5, 2), lonely()]
    asked = [{"lon": lon, "lat": lat} for lon, lat in some]
    body = {"sources": asked, "targets": asked[:3], "costing": "auto", "id": "mine"}
    answer = client.post("/sources_to_targets", json=body).json()
    assert (answer["units"], answer["id"]) == ("kilometers", "mine")
    found = [[cell["time"] for cell in row] for row in answer["sources_to_targets"]]
    assert found == [row[:3] for row in lengths(some)]
    assert answer["sources_to_targets"][1][2] == {"distance": None, "time": found[1][2], "from_index": 1, "to_index": 2}
    short = client.get("/sources_to_targets", params={"json": json.dumps({**body, "verbose": False})}).json()
    assert short["sources_to_targets"]["durations"] == found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "no JSON"), ("[]", "no JSON"), ("{}", "sources must be"),
        ('{"sources": 1, "targets": 2}', "sources must be"),
        ('{"sources": [{"lat": 60}], "targets": []}', "sources 0 has no numbers"),
        ('{"sources": [{"lat": NaN, "lon": 25}], "targets": []}', "sources 0"),
        ('{"sources": [{"lat": 60, "lon": 25}], "targets": [{"lat": true, "lon": 25}]}', "targets 0"),
        ('{"sources": [{"lat": 60, "lon": 25}], "targets": [{"lat": 60, "lon": 25}], "units": []}', "units are"),
        ("[" * 100_000, "no JSON"),
    ],
)  # fmt: skip
def test_what_valhalla_cannot_be_asked(client: TestClient, body: str, said: str) -> None:
    answer = client.post("/sources_to_targets", content=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_lengths_become_times_by_a_speed(tmp_path: Path) -> None:
    solve_to_store(city("km"), Options(device="cpu"), tmp_path / "a.zarr")
    some = places(4, 3)
    kilometres: Any = lengths(some)
    address = f"/table/v1/driving/{text(some)}"
    with open_result(tmp_path / "a.zarr") as matrix:
        plain = TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=None, most=100)))
        timed = TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=50, most=100)))
        assert "no times" in plain.get(address).json()["message"]
        metres = [[1000 * value for value in row] for row in kilometres]
        assert plain.get(address + "?annotations=distance").json()["distances"] == metres
        both = timed.get(address + "?annotations=duration,distance").json()
        assert both["distances"] == metres
        assert both["durations"] == [[pytest.approx(72 * value, abs=0.051) for value in row] for row in kilometres]
        route = plain.get(f"/route/v1/driving/{text(some[:2])}").json()["routes"][0]
        assert (route["distance"], route["duration"]) == (metres[0][1], None)


def test_networks_that_cannot_be_served_are_refused(tmp_path: Path) -> None:
    plain, _ = build_graph([0, 1], [1, 0], [1, 2], directed=True)
    solve_to_store(plain, Options(device="cpu"), tmp_path / "plain.zarr")
    solve_to_store(city(None), Options(device="cpu"), tmp_path / "unit.zarr")
    solve_to_store(city(), Options(device="cpu", sources=(1, 2)), tmp_path / "some.zarr")
    for name, options, said in (
        ("plain", {}, "no coordinates"), ("unit", {}, "say --unit"), ("some", {}, "all vertices are needed"),
        ("unit", {"unit": "parsec"}, "none of time or length"), ("unit", {"unit": "s", "speed": 5.0}, "no meaning"),
    ):  # fmt: skip
        with open_result(tmp_path / f"{name}.zarr") as matrix, pytest.raises(InvalidRequest, match=said):
            RoutingNetwork(matrix, **{"unit": None, "speed": None, "most": 9, **options})


def test_other_names_of_this_machine_are_not_answered(client: TestClient) -> None:
    a = text(places(1, 0))
    assert client.get(f"/nearest/v1/driving/{a}", headers={"host": "evil.example"}).status_code == 400
    assert client.get(f"/nearest/v1/driving/{a}", headers={"host": "localhost:5000"}).status_code == 200


def test_clients_of_both_families_work(client: TestClient) -> None:
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(client.app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            address, some = address_of("127.0.0.1", listener), places(6, 7)
            osrm = routingpy.OSRM(base_url=address)
            assert osrm.matrix(some, profile="driving", annotations=["duration"]).durations == lengths(some)
            way = osrm.directions(some[:2], profile="driving")
            assert way.duration == lengths(some)[0][1]
            assert len(way.geometry) >= 1
            valhalla = routingpy.Valhalla(base_url=address)
            assert valhalla.matrix(some, profile="auto").durations == lengths(some)
        finally:
            server.should_exit = True
            thread.join()
