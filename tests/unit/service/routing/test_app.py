"""OSRM's and Valhalla's protocols over a solved and a prepared city, against distances and paths of NetworkX."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import routingpy
import uvicorn
from fastapi.testclient import TestClient

from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from service.http.listening import address_of, listen
from service.routing.app import create_app
from service.routing.network import RoutingNetwork
from service.routing.polyline import decode, encode
from storage.errors import InvalidRequest, StorageFailed
from storage.geography.coordinates import crow_distances
from storage.graph.graph import build_graph
from tests.unit.service.routing.support import (
    LONELY,
    N,
    city,
    expected,
    lengths,
    lonely,
    nearest,
    places,
    straight_lines,
    text,
)


@pytest.mark.parametrize("written", ["0.000064,1e-7;25.05,60.05", "-1e-05,-2.5e-06;1,2"])
def test_numbers_may_have_exponents_as_python_writes_them(client: TestClient, written: str) -> None:
    plain = ";".join(",".join(f"{float(number):.9f}" for number in place.split(",")) for place in written.split(";"))
    assert client.get(f"/table/v1/car/{written}").json() == client.get(f"/table/v1/car/{plain}").json()


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


def test_tables_over_times_have_the_metres_of_a_fastest_way(client: TestClient) -> None:
    graph, some = city(), [*places(12, 1), lonely()]
    way, vertices = expected(graph), [nearest(graph, *place) for place in some]
    asked = f"/table/v1/driving/{text(some)}?annotations=duration,distance"
    answer = client.get(asked).json()
    assert answer["durations"] == lengths(some)
    for i, j in itertools.product(range(13), repeat=2):
        u, v, found = vertices[i], vertices[j], answer["distances"][i][j]
        if answer["durations"][i][j] is None:
            assert found is None
        else:
            ways = nx.all_shortest_paths(way, u, v, weight="weight")
            assert any(found == pytest.approx(straight_lines(graph, path), abs=0.051) for path in ways)
    part = client.get(f"{asked}&sources=3;1&destinations=2").json()
    assert part["distances"] == [[answer["distances"][3][2]], [answer["distances"][1][2]]]


def test_metres_beyond_a_cutoff_and_where_there_is_no_plain_search(tmp_path: Path) -> None:
    some = places(12, 1)
    asked = f"/table/v1/driving/{text(some)}?annotations=duration,distance"
    solve_to_store(city(), Options(device="cpu", cutoff=600), tmp_path / "near.zarr")
    solve_to_store(city(), Options(device="cpu", max_hops=3), tmp_path / "hops.zarr")
    with open_result(tmp_path / "near.zarr") as matrix:
        answer = TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=None, most=1000))).get(asked).json()
    times = [[value if value is not None and value <= 600 else None for value in row] for row in lengths(some)]
    assert answer["durations"] == times
    assert [[value is None for value in row] for row in answer["distances"]] == [[v is None for v in r] for r in times]
    with open_result(tmp_path / "hops.zarr") as matrix:
        client = TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=None, most=1000)))
        assert "a limit of hops" in client.get(asked).json()["message"]
        assert client.get(asked.replace(",distance", "")).json()["code"] == "Ok"


def test_a_table_that_is_not_that_of_its_graph_is_no_answer(store: Path) -> None:
    with open_result(store) as matrix:
        network = RoutingNetwork(matrix, unit=None, speed=None, most=1000)
        stops = network.stops(*(np.array(side) for side in zip(*places(4, 1), strict=True)))
        table = network.table(stops, stops)
        network.metres(stops, stops, table)
        for wrong in (table[1, 2] + 1, np.inf):
            changed = table.copy()
            changed[1, 2] = wrong
            with pytest.raises(StorageFailed, match="other times"):
                network.metres(stops, stops, changed)


def test_metres_along_ways_have_a_limit(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.routing.ways.MOST_VISITED", 2 * N)
    asked = f"/table/v1/driving/{text(places(6, 1))}?annotations=distance&sources="
    answer = client.get(asked + "0;1;2;3;4").json()
    assert (answer["code"], "at most 2 places a request" in answer["message"]) == ("TooBig", True)
    assert client.get(asked + "0;1").json()["code"] == "Ok"


def test_estimates_where_there_is_no_way(client: TestClient) -> None:
    graph, some = city(), [(25.05, 60.05), lonely(), (25.02, 60.08)]
    asked = f"/table/v1/driving/{text(some)}?annotations=duration,distance"
    plain = client.get(asked).json()
    assert "fallback_speed_cells" not in plain
    missing = [[i, j] for i, j in itertools.product(range(3), repeat=2) if plain["durations"][i][j] is None]
    assert missing
    for form in ("input", "snapped"):
        found = client.get(f"{asked}&fallback_speed=2.5&scale_factor=3&fallback_coordinate={form}").json()
        assert found["fallback_speed_cells"] == missing
        ends = some
        if form == "snapped":
            assert graph.coordinates is not None
            at = [nearest(graph, *place) for place in some]
            ends = list(zip(graph.coordinates.x[at], graph.coordinates.y[at], strict=True))
        for i, j in itertools.product(range(3), repeat=2):
            if [i, j] in missing:
                far = float(crow_distances(*(np.array([v]) for v in (*ends[i], *ends[j])), geographic=True)[0])
                assert found["distances"][i][j] == pytest.approx(far, abs=0.051)
                assert found["durations"][i][j] == pytest.approx(far / 2.5 * 3, abs=0.051)
            else:
                assert found["durations"][i][j] == plain["durations"][i][j] * 3
                assert found["distances"][i][j] == plain["distances"][i][j]
    rows = client.get(f"{asked}&fallback_speed=1&sources=1&destinations=2;0").json()
    assert rows["fallback_speed_cells"] == [[0, 0], [0, 1]]


def test_polylines_with_question_marks_as_clients_send_them(client: TestClient) -> None:
    # R's osrm sends polylines with the question mark that stands for a step of zero
    some = [(25.01, 60.01), (25.05, 60.01), (25.05, 60.09), (25.02, 60.09)]
    line = encode([lat for _, lat in some], [lon for lon, _ in some])
    assert line.count("?") == 3
    for ending in ("", ".json"):
        answer = client.get(f"/table/v1/car/polyline({line}){ending}?sources=0;1&destinations=2;3&annotations=duration")
        assert answer.json()["durations"] == [row[2:] for row in lengths(some)[:2]]
        assert client.get(f"/table/v1/car/polyline({line}){ending}").json()["durations"] == lengths(some)
    cut = client.get(f"/table/v1/car/polyline({line}?sources=0").json()
    assert cut["code"] == "InvalidOptions"


def test_what_a_client_may_send_for_other_servers_changes_nothing(client: TestClient) -> None:
    some = places(3, 4)
    plain = client.get(f"/table/v1/driving/{text(some)}").json()
    harmless = "hints=KSoKADRY;;x&generate_hints=true&approaches=unrestricted;;&snapping=any&radiuses=unlimited;;35000"
    assert client.get(f"/table/v1/driving/{text(some)}?{harmless}").json() == plain


def test_other_services_are_refused_as_their_servers_do(client: TestClient) -> None:
    answer = client.get("/isochrone", params={"json": "{}"})
    assert (answer.status_code, answer.json()["error_code"], answer.json()["status_code"]) == (404, 106, 404)


def test_vroom_is_answered_as_it_asks(client: TestClient) -> None:
    """What VROOM 1.15 sends: six digits, a radius for each place, both tables, routes with a polyline; Valhalla's JSON
    without any escapes.  It looks for a server at 0.0.0.0 unless it is told otherwise.
    """
    some, host = places(4, 8), {"host": "0.0.0.0:5000"}
    where = ";".join(f"{lon:.6f},{lat:.6f}" for lon, lat in some)
    radiuses = ";".join(["35000"] * 4)
    table = client.get(f"/table/v1/car/{where}?annotations=duration,distance&radiuses={radiuses}", headers=host).json()
    assert table["durations"] == lengths(some)
    assert all(isinstance(value, float) for row in table["distances"] for value in row)
    shape = "alternatives=false&steps=false&overview=full&continue_straight=false"
    [route] = client.get(f"/route/v1/car/{where}?{shape}&radiuses={radiuses}", headers=host).json()["routes"]
    for at, leg in enumerate(route["legs"]):
        assert leg["duration"] == table["durations"][at][at + 1]
    assert len(decode(route["geometry"])) > 1
    listed = ",".join(f'{{"lon":{lon:.6f},"lat":{lat:.6f}}}' for lon, lat in some)
    asked = f'/sources_to_targets?json={{"sources":[{listed}],"targets":[{listed}],"costing":"auto"}}'
    cells = client.get(asked, headers=host).json()["sources_to_targets"]
    assert [[cell["time"] for cell in row] for row in cells] == table["durations"]


def test_r_is_answered_as_it_asks(client: TestClient) -> None:
    """What ``osrmRoute`` and ``osrmNearest`` of R's osrm 4 send; ``osrmTable`` sends the polylines above."""
    some = [(25.01, 60.01), (25.05, 60.09)]
    where = ";".join(f"{lon:.5f},{lat:.5f}" for lon, lat in some)
    shape = "alternatives=false&geometries=polyline&steps=false&overview=full&generate_hints=false"
    [route] = client.get(f"/route/v1/car/{where}?{shape}").json()["routes"]
    assert route["duration"] == lengths(some)[0][1]
    assert len(decode(route["geometry"])) > 1
    [point] = client.get("/nearest/v1/car/25.01000,60.01000?number=1&generate_hints=false").json()["waypoints"]
    assert point["distance"] > 0
    assert len(point["location"]) == 2


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
    line = answer["routes"][0]["geometry"]["coordinates"]
    assert len(line) == 2, "a line has two positions (RFC 7946)"
    assert line[0] == line[1]


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
        ("/table/v1/driving/{a};{b}?annotations=speed", "InvalidOptions", "duration, distance"),
        ("/table/v1/driving/{a};{b}?sources=2", "InvalidOptions", "from 0 to 1"),
        ("/table/v1/driving/{a};{b}?sources=-1", "InvalidOptions", "from 0 to 1"),
        ("/table/v1/driving/{a};{b}?bearings=10,20;", "InvalidOptions", "bearings"),
        ("/table/v1/driving/{a};{b}?colour=red", "InvalidOptions", "no parameter 'colour'"),
        # VROOM takes the number of the place from behind these words
        ("/table/v1/driving/{a};{b}?radiuses=;1", "NoSegment", "Could not find a matching segment for coordinate 1"),
        ("/table/v1/driving/{a};{b}?radiuses=1", "InvalidOptions", "1 radiuses"),
        ("/table/v1/driving/{a};{b}?scale_factor=0", "InvalidOptions", "positive"),
        ("/table/v1/driving/{a};{lonely}?fallback_speed=0", "InvalidOptions", "fallback_speed must be positive"),
        ("/table/v1/driving/{a};{lonely}?fallback_speed=-1", "InvalidOptions", "fallback_speed are numbers"),
        ("/table/v1/driving/{a};{lonely}?fallback_speed=1&fallback_coordinate=x", "InvalidOptions", "input or snapped"),
        ("/table/v1/driving/{a};{lonely}?fallback_coordinate=x", "InvalidOptions", "input or snapped"),
        ("/table/v1/driving/{a};{lonely}?sources=0&sources=1", "InvalidOptions", "sources is given more than once"),
        ("/match/v1/driving/{a};{b}?steps=false", "InvalidService", "Service match not found"),
        ("/route/v1/driving/{a};{b}?steps=yes", "InvalidOptions", "steps is true or false"),
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
    metres = client.get(f"/table/v1/driving/{text(some)}?annotations=distance").json()["distances"]
    for i, j in itertools.product(range(6), range(3)):
        cell = answer["sources_to_targets"][i][j]
        assert (cell["from_index"], cell["to_index"], cell["time"] is None) == (i, j, metres[i][j] is None)
        # VROOM reads times as whole numbers and distances as fractions, and anything else as nonsense
        assert {type(cell["time"]), type(cell["distance"])} in ({int, float}, {type(None)})
        assert metres[i][j] is None or cell["distance"] * 1000 == pytest.approx(metres[i][j], abs=0.6)
    short = client.get("/sources_to_targets", params={"json": json.dumps({**body, "verbose": False})}).json()
    assert short["sources_to_targets"]["durations"] == found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "no JSON"), ("[]", "no JSON"), ("{}", "sources must be"),
        ('{"sources": 1, "targets": 2}', "sources must be"),
        ('{"sources": [{"lat": 60}], "targets": []}', "sources 0 must have lat and lon"),
        ('{"sources": [{"lat": NaN, "lon": 25}], "targets": []}', "sources 0"),
        ('{"sources": [{"lat": 60, "lon": 25}], "targets": [{"lat": true, "lon": 25}]}', "targets 0"),
        ('{"sources": [{"lat": 60, "lon": 25}], "targets": [{"lat": 60, "lon": 25}], "units": []}', "units are"),
        (
            '{"sources": [{"lat": 60, "lon": 25}], "targets": [{"lat": 6, "lon": 2}], "exclude_polygons": [[[1, 2]]]}',
            "exclude_polygons is not supported",
        ),
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


@contextlib.contextmanager
def served(client: TestClient) -> Iterator[str]:
    """Serve the client's application on a port, for programs that ask by themselves; its address."""
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(client.app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield address_of("127.0.0.1", listener)
        finally:
            server.should_exit = True
            thread.join()


def test_clients_of_both_families_work(client: TestClient) -> None:
    with served(client) as address:
        some = places(6, 7)
        osrm = routingpy.OSRM(base_url=address)
        assert osrm.matrix(some, profile="driving", annotations=["duration"]).durations == lengths(some)
        way = osrm.directions(some[:2], profile="driving")
        assert way.duration == lengths(some)[0][1]
        assert len(way.geometry) >= 1
        valhalla = routingpy.Valhalla(base_url=address)
        assert valhalla.matrix(some, profile="auto").durations == lengths(some)


#: VROOM holds Python's lock while it waits for answers, so it runs in a process of its own.
VROOM = """
import json, sys, vroom
router, profile, address, places = json.load(sys.stdin)
problem = vroom.Input(servers={profile: address}, router=getattr(vroom._vroom.ROUTER, router), geometry=True)
problem.add_vehicle([vroom.Vehicle(1, start=places[0], end=places[0], profile=profile)])
problem.add_job([vroom.Job(k, location=place) for k, place in enumerate(places[1:], 1)])
found = problem.solve(exploration_level=5, nb_threads=1).summary
print(json.dumps([found.duration, found.distance]))
"""


@pytest.mark.parametrize(("router", "profile"), [("OSRM", "car"), ("VALHALLA", "auto")])
def test_vroom_plans_a_round(client: TestClient, router: str, profile: str) -> None:
    """VROOM itself (the package ``pyvroom``), where it is installed; with ``APSP_REQUIRE_VROOM=1`` it must be."""
    if os.environ.get("APSP_REQUIRE_VROOM") != "1" and importlib.util.find_spec("vroom") is None:
        pytest.skip("pyvroom is not installed; APSP_REQUIRE_VROOM=1 makes that an error")
    some = places(5, 8)
    with served(client) as address:
        asked = json.dumps([router, profile, address.removeprefix("http://"), some])
        words = [sys.executable, "-c", VROOM]
        done = subprocess.run(words, input=asked, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    duration, distance = json.loads(done.stdout)
    table = lengths(some)
    rounds = [[0, *order, 0] for order in itertools.permutations(range(1, 5))]
    best = min(sum(table[a][b] for a, b in itertools.pairwise(stops)) for stops in rounds)
    assert duration == pytest.approx(best, abs=3), "VROOM rounds each entry to seconds"
    assert distance > 0
