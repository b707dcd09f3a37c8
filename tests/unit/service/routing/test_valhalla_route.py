"""Valhalla's ``/route`` over a solved and a prepared city: against OSRM's route, NetworkX and the straight lines."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from service.routing.polyline import decode
from storage.geography.coordinates import Coordinates
from storage.graph.graph import build_graph
from tests.unit.service.routing.support import city, lengths, lonely, nearest, places, text

Place = tuple[float, float]
#: Minutes along a street 0 - 1 - 2 with a dead end 3 at 1.
MINUTES = {(0, 3): 5, (3, 2): 6, (0, 1): 1, (1, 2): 2, (3, 3): 0, (0, 0): 0, (1, 0): 1}


def asked(some: list[Place], *types: str, **more: Any) -> dict[str, Any]:
    found: list[dict[str, Any]] = [{"lon": lon, "lat": lat} for lon, lat in some]
    for place, kind in zip(found, types, strict=False):
        place["type"] = kind
    return {"locations": found, **more}


def at(vertex: int) -> Place:
    where = city().coordinates
    assert where is not None
    return float(where.x[vertex]), float(where.y[vertex])


def test_routes_are_those_of_osrm_and_networkx(client: TestClient) -> None:
    graph = city()
    for seed in range(10):
        some = places(4, seed)
        times = [lengths([a, b])[0][1] for a, b in itertools.pairwise(some)]
        answer = client.post("/route", json=asked(some, costing="auto"))
        other = client.get(f"/route/v1/driving/{text(some)}?geometries=geojson&overview=full").json()
        if None in times:
            assert (answer.status_code, answer.json()["error_code"], other["code"]) == (400, 442, "NoRoute")
            continue
        [route] = other["routes"]
        trip = answer.json()["trip"]
        assert [leg["summary"]["time"] for leg in trip["legs"]] == times == [leg["duration"] for leg in route["legs"]]
        assert trip["summary"]["time"] == sum(filter(None, times))
        for leg, metres in zip([*trip["legs"], trip], [*route["legs"], route], strict=True):
            assert leg["summary"]["length"] * 1000 == pytest.approx(metres["distance"], abs=0.6)
        line = [place for i, leg in enumerate(trip["legs"]) for place in decode(leg["shape"], 6)[bool(i) :]]
        assert line == [pytest.approx(place, abs=6e-7) for place in route["geometry"]["coordinates"]]
        assert nearest(graph, *line[0]) == nearest(graph, *some[0])
        lon, lat = zip(*line, strict=True)
        box = {"min_lat": min(lat), "max_lat": max(lat), "min_lon": min(lon), "max_lon": max(lon)}
        assert {name: trip["summary"][name] for name in box} == pytest.approx(box, abs=1e-6)
        assert (trip["status"], trip["units"], trip["language"]) == (0, "kilometers", "en-US")


def test_maneuvers_are_a_departure_and_an_arrival(client: TestClient) -> None:
    some = [at(1), at(5), at(9)]
    trip = client.post("/route", json=asked(some)).json()["trip"]
    for leg in trip["legs"]:
        first, last = leg["maneuvers"]
        end = len(decode(leg["shape"], 6)) - 1
        assert (first["type"], first["begin_shape_index"], first["end_shape_index"]) == (1, 0, end)
        assert (last["type"], last["begin_shape_index"], last["end_shape_index"]) == (4, end, end)
        assert {name: first[name] for name in ("time", "length")} == {n: leg["summary"][n] for n in ("time", "length")}
        assert (last["time"], last["length"]) == (0, 0)
        assert first["instruction"]
        assert last["instruction"]
    for more, told in (
        ({"directions_type": "maneuvers"}, [False, False]),
        ({"directions_options": {"directions_type": "maneuvers"}}, [False, False]),
        ({"directions_type": "none"}, []),
        ({"narrative": False}, []),
        ({"narrative": False, "directions_type": "instructions"}, [True, True]),
    ):
        [leg, _] = client.post("/route", json=asked(some, **more)).json()["trip"]["legs"]
        assert ["instruction" in step for step in leg["maneuvers"]] == told


def test_types_of_places_say_where_legs_end(client: TestClient) -> None:
    some = [at(1), at(5), at(9), at(14)]
    whole = client.post("/route", json=asked(some)).json()["trip"]
    for types, count in ((("break", "via", "via", "break"), 1), (("via", "via", "break", "through"), 2)):
        trip = client.post("/route", json=asked(some, *types)).json()["trip"]
        assert [place["type"] for place in trip["locations"]] == ["break", *types[1:-1], "break"]
        assert len(trip["legs"]) == count
        assert trip["summary"] == whole["summary"]
        lines = [
            [place for i, leg in enumerate(made["legs"]) for place in decode(leg["shape"], 6)[bool(i) :]]
            for made in (trip, whole)
        ]
        assert lines[0] == lines[1]


def test_nobody_turns_round_where_the_type_forbids_it(tmp_path: Path) -> None:
    graph, _ = build_graph([0, 1, 1], [1, 2, 3], [1.0, 2.0, 4.0], n=4, directed=False)
    x, y = np.array([25.0, 25.1, 25.2, 25.1]), np.array([60.0, 60.0, 60.0, 60.1])
    graph = replace(graph, coordinates=Coordinates(x, y, True, {}), unit="min")
    solve_to_store(graph, Options(device="cpu"), tmp_path / "street.zarr")
    where = list(zip(x.tolist(), y.tolist(), strict=True))
    with open_result(tmp_path / "street.zarr") as matrix:
        client = TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=None, most=100)))
        for order in ([0, 3, 2], [0, 1, 2], [0, 3, 3, 2], [0, 0, 1], [0, 1, 0]):
            back = order not in ([0, 1, 2], [0, 0, 1])
            some, middle = [where[v] for v in order], len(order) - 2
            for kind in ("through", "break_through", "via", "break"):
                answer = client.post("/route", json=asked(some, "break", *[kind] * middle, "break"))
                refused = back and "through" in kind
                assert answer.status_code == (400 if refused else 200)
                if refused:
                    assert f"goes back at locations 1, where type={kind}" in answer.json()["error"]
                else:
                    minutes = sum(MINUTES[pair] for pair in itertools.pairwise(order))
                    assert answer.json()["trip"]["summary"]["time"] == 60 * minutes
                    assert len(answer.json()["trip"]["legs"]) == (len(order) - 1 if "break" in kind else 1)


def test_what_a_client_tells_comes_back(client: TestClient) -> None:
    body = asked([at(1), at(5)], id="mine", units="mi", language="de", costing_options={"auto": {"use_tolls": 0}})
    body["locations"][1] |= {"name": "x" * 300, "street": 7, "city": "Oulu \ud800", "minimum_reachability": 50}
    answer = client.post("/route", content=json.dumps(body)).json()
    assert (answer["id"], answer["trip"]["units"]) == ("mine", "miles")
    first, second = answer["trip"]["locations"]
    lon, lat = at(1)
    assert first == {"type": "break", "lat": lat, "lon": lon, "original_index": 0}
    assert (second["name"], second["city"], "street" in second) == ("x" * 200, "Oulu ?", False)
    kilometres = client.get("/route", params={"json": json.dumps(asked([at(1), at(5)]))}).json()["trip"]["summary"]
    assert answer["trip"]["summary"]["length"] * 1.609344 == pytest.approx(kilometres["length"], abs=0.002)
    nested = asked([at(1), at(5)], directions_options={"units": "miles"})
    assert client.post("/route", json=nested).json()["trip"]["units"] == "miles"


@pytest.mark.parametrize(("before", "after"), [("{", '{"units": "mi", '), ('"lat"', '"lat": 0, "lat"')])
def test_a_member_that_stands_twice_is_refused(client: TestClient, before: str, after: str) -> None:
    once = json.dumps(asked([at(1), at(5)], units="km"))
    twice = once.replace(before, after, 1)
    for answer in (client.post("/route", content=twice), client.get("/route", params={"json": twice})):
        assert (answer.status_code, answer.json()["error_code"]) == (400, 100)
        assert answer.json()["error"].endswith(" twice")
    assert client.get("/route", params={"json": once}).status_code == 200
    for several in ([once, once], [once, ""], [once[:20], once[20:]]):
        assert client.get("/route", params={"json": several}).json()["error_code"] == 100


def test_a_route_to_where_one_already_is(client: TestClient) -> None:
    trip = client.post("/route", json=asked([at(5), at(5)])).json()["trip"]
    assert (trip["summary"]["time"], trip["summary"]["length"]) == (0, 0)
    assert decode(trip["legs"][0]["shape"], 6) == [pytest.approx(at(5), abs=6e-7)]


def test_lengths_have_times_only_by_a_speed(tmp_path: Path) -> None:
    solve_to_store(city("km"), Options(device="cpu"), tmp_path / "a.zarr")
    some = [at(1), at(5)]
    kilometres = lengths(some)[0][1]
    assert kilometres is not None
    with open_result(tmp_path / "a.zarr") as matrix:
        for speed, seconds in ((None, None), (50, 72 * kilometres)):
            app = create_app(RoutingNetwork(matrix, unit=None, speed=speed, most=100))
            summary = TestClient(app).post("/route", json=asked(some)).json()["trip"]["summary"]
            assert (summary["time"], summary["length"]) == (pytest.approx(seconds), kilometres)


def test_the_shortest_way_is_not_the_fastest_one(client: TestClient, tmp_path: Path) -> None:
    """QGIS' plugin and routingpy offer *Shortest*: over times it would be another way, so it is refused there."""
    some = [at(1), at(5)]
    listed = [{"lon": lon, "lat": lat} for lon, lat in some]
    shortest: dict[str, Any] = {"costing": "auto", "costing_options": {"auto": {"shortest": True}}}
    way, table = asked(some, **shortest), {"sources": listed, "targets": listed, **shortest}
    for service, body in (("/route", way), ("/sources_to_targets", table)):
        answer = client.post(service, json=body)
        assert answer.status_code == 400
        assert "serve a result of lengths for the shortest" in answer.json()["error"]
        for other in ({"auto": {"shortest": False}}, {"bicycle": {"shortest": True}}, {"auto": None}, None, [1]):
            assert client.post(service, json={**body, "costing_options": other}).status_code == 200
        without = {**body, "costing": None, "costing_options": {"bicycle": {"shortest": True}}}
        assert client.post(service, json=without).status_code == 400, "where no costing is named, any may be meant"
    solve_to_store(city("m"), Options(device="cpu"), tmp_path / "a.zarr")
    with open_result(tmp_path / "a.zarr") as matrix:
        lengths_of = TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=50, most=100)))
        assert lengths_of.post("/route", json=way).json() == lengths_of.post("/route", json=asked(some)).json()
        assert lengths_of.post("/sources_to_targets", json=table).status_code == 200


def test_vroom_reads_the_geometry_that_it_asks_for(client: TestClient) -> None:
    """What VROOM 1.14 sends, with a shape of each leg and no maneuvers."""
    some = places(3, 8)
    listed = ",".join(f'{{"lon":{lon:.6f},"lat":{lat:.6f},"type":"break"}}' for lon, lat in some)
    query = f'/route?json={{"locations":[{listed}],"costing":"auto","directions_type":"none"}}'
    trip = client.get(query, headers={"host": "0.0.0.0:5000"}).json()["trip"]
    assert trip["status"] == 0
    assert [leg["summary"]["time"] for leg in trip["legs"]] == [lengths(some)[i][i + 1] for i in range(2)]
    assert all(isinstance(leg["summary"]["length"], float) and decode(leg["shape"], 6) for leg in trip["legs"])


@pytest.mark.parametrize("key", ["", "abc"])
def test_the_valhalla_plugin_of_qgis_is_answered_as_it_asks(client: TestClient, key: str) -> None:
    """What version 2 of GIS-OPS' plugin sends and reads: a token in the address, the number of a feature as ``id``, and
    answers that list the places once more, within a further list.
    """
    some = [at(1), at(5), at(9)]
    listed = [{"lon": round(lon, 6), "lat": round(lat, 6)} for lon, lat in some]
    options = {"costing": "auto", "costing_options": {"auto": {"use_tolls": 0.5, "maneuver_penalty": 5}}}
    body = {**options, "show_locations": True, "locations": listed, "id": 7}
    trip = client.post(f"/route?access_token={key}", json=body).json()["trip"]
    assert [leg["summary"]["time"] for leg in trip["legs"]] == [lengths(some)[i][i + 1] for i in range(2)]
    assert all(leg["summary"]["length"] > 0 and len(decode(leg["shape"], 6)) > 1 for leg in trip["legs"])
    table = {**options, "sources": listed, "targets": listed[1:], "id": "matrix"}
    found = client.post(f"/sources_to_targets?access_token={key}", json=table).json()
    for side, places_there in (("sources", listed), ("targets", listed[1:])):
        assert found[side][0] == [pytest.approx(place, abs=6e-7) for place in places_there]
    assert [[cell["time"] for cell in row] for row in found["sources_to_targets"]] == [row[1:] for row in lengths(some)]
    assert all(cell["distance"] >= 0 for row in found["sources_to_targets"] for cell in row)


A, B = ({"lat": lat, "lon": lon} for lon, lat in (at(1), at(5)))


@pytest.mark.parametrize(
    ("body", "number", "said"),
    [
        ({}, 110, "locations must be"), ({"locations": [A]}, 110, "two locations"),
        ({"locations": [A, {"lat": 60}]}, 110, "locations 1 must have lat and lon"),
        ({"locations": [A, {"lat": 10**300, "lon": 25}]}, 110, "locations 1 must have lat and lon"),
        ({"locations": [A, {"lat": 99, "lon": 25}]}, 110, "locations 1"),
        ({"locations": [A, {"type": "stop", **A}, B]}, 199, "type is break, via"),
        ({"locations": [A, {"type": [], **A}, B]}, 199, "type is break, via"),
        ({"locations": [A, {"heading": 0, **B}]}, 199, "locations 1: heading is not supported"),
        ({"locations": [A, {"preferred_side": "same", **B}]}, 199, "preferred_side"),
        ({"locations": [A, {"radius": 100, **B}]}, 199, "radius"),
        ({"locations": [A, {"waiting": 60, **B}]}, 199, "waiting"),
        ({"locations": [A, {"search_filter": {"exclude_bridge": True}, **B}]}, 199, "search_filter"),
        ({"locations": [A, {"search_cutoff": 10, "lat": 61, "lon": 25}]}, 171, "its search_cutoff is 10 m"),
        ({"locations": [A, {"search_cutoff": "10", **B}]}, 199, "a number of metres"),
        ({"locations": [A, B], "units": "feet"}, 199, "units are"),
        ({"locations": [A, B], "directions_type": "some"}, 199, "directions_type is"),
        ({"locations": [A, B], "directions_options": 1}, 199, "an object"),
        ({"locations": [A, B], "format": "gpx"}, 199, "format is not supported, or json only"),
        ({"locations": [A, B], "shape_format": "geojson"}, 199, "polyline6 only"),
        ({"locations": [A, B], "elevation_interval": 30}, 199, "elevation_interval"),
        ({"locations": [A, B], "linear_references": True}, 199, "linear_references"),
        ({"locations": [A, B], "date_time": {"type": 0}}, 199, "the same time all day"),
        ({"locations": [A, B], "exclude_locations": [A]}, 199, "exclude_locations is not supported"),
        ({"locations": [A, {"lat": lonely()[1], "lon": lonely()[0]}]}, 442, "no way from locations 0 to 1"),
        ({"locations": [A] * 20_001}, 150, "more than the 20,000"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said(client: TestClient, body: Any, number: int, said: str) -> None:
    answer = client.post("/route", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (400, number)
    assert said in answer.json()["error"]


def test_a_matrix_is_not_asked_for_more_either(client: TestClient) -> None:
    for body in (
        {"sources": [A], "targets": [{"heading": 90, **B}]},
        {"sources": [A], "targets": [B], "date_time": {"type": 1, "value": "2026-01-01T08:00"}},
    ):
        assert "is not supported" in client.post("/sources_to_targets", json=body).json()["error"]


def test_routingpy_finds_its_way(client: TestClient) -> None:
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(client.app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            valhalla = routingpy.Valhalla(base_url=address_of("127.0.0.1", listener))
            some = [at(1), at(5), at(9)]
            way = valhalla.directions(some, profile="auto", instructions=True, units="km")
            assert way.duration == sum(lengths(some)[i][i + 1] or 0 for i in range(2))
            metres = client.get(f"/route/v1/driving/{text(some)}").json()["routes"][0]["distance"]
            assert way.distance == pytest.approx(metres, abs=2)
            assert way.geometry[0] == pytest.approx(at(1), abs=6e-7)
            assert way.geometry[-1] == pytest.approx(at(9), abs=6e-7)
            through = valhalla.Waypoint(at(5), type="via")
            joined = valhalla.directions([some[0], through, some[2]], profile="auto")
            assert (joined.duration, len(joined.raw["trip"]["legs"])) == (way.duration, 1)
        finally:
            server.should_exit = True
            thread.join()
