"""OSRM's *trip* over a solved and a prepared city: against all orders of few places, and its own *route*."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from service.routing.app import create_app
from service.routing.network import RoutingNetwork
from service.routing.polyline import encode
from storage.geography.coordinates import Coordinates
from storage.graph.graph import build_graph
from tests.unit.service.routing.support import city, lengths, lonely, places, text

Place = tuple[float, float]
FULL = "geometries=geojson&overview=full&steps=true"


def connected(count: int, seed: int) -> list[Place]:
    """Places of the part of the city in which every vertex reaches every other."""
    return [place for place in places(2 * count, seed) if None not in lengths([place, places(1, 0)[0]])[0]][:count]


def ask(client: TestClient, some: list[Place], query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/trip/v1/driving/{text(some)}?{FULL}&{query}").json()
    return found


def order_of(answer: dict[str, Any]) -> list[int]:
    at = [point["waypoint_index"] for point in answer["waypoints"]]
    assert sorted(at) == list(range(len(at)))
    assert {point["trips_index"] for point in answer["waypoints"]} == {0}
    return [at.index(number) for number in range(len(at))]


@pytest.mark.parametrize(
    ("query", "first", "last", "back"),
    [
        ("", None, None, True), ("source=first", 0, None, True), ("roundtrip=true&destination=any", None, None, True),
        ("source=first&destination=last", 0, -1, True), ("source=first&destination=last&roundtrip=false", 0, -1, False),
    ],
)  # fmt: skip
def test_trips_are_the_shortest_of_all_orders(
    client: TestClient, query: str, first: int | None, last: int | None, back: bool
) -> None:
    for seed in range(4):
        some = connected(6, seed)
        times: Any = lengths(some)
        answer = ask(client, some, query)
        [trip] = answer["trips"]
        best = min(
            sum(times[a][b] for a, b in itertools.pairwise([*order, *(order[:1] if back else ())]))
            for order in itertools.permutations(range(6))
            if first in (None, order[0]) and (last is None or order[-1] == 5)
        )
        assert trip["duration"] == best
        order = order_of(answer)
        assert first is None or order[0] == 0
        assert last is None or order[-1] == 5
        # it is the route through the places in this order
        way = [some[i] for i in order] + ([some[order[0]]] if back else [])
        [route] = client.get(f"/route/v1/driving/{text(way)}?{FULL}").json()["routes"]
        assert trip == route
        assert len(trip["legs"]) == (6 if back else 5)


def test_a_round_trip_to_the_last_place_begins_and_ends_there(client: TestClient) -> None:
    some = connected(5, 2)
    answer = ask(client, some, "destination=last")
    assert order_of(answer)[0] == 4
    assert answer["trips"][0]["duration"] == ask(client, some)["trips"][0]["duration"]
    line = answer["trips"][0]["geometry"]["coordinates"]
    assert line[0] == line[-1] == answer["waypoints"][4]["location"]


def test_many_places_are_visited_once_each(client: TestClient) -> None:
    some = connected(24, 3)
    times: Any = lengths(some)
    for query, back in (("", True), ("source=first&destination=last&roundtrip=false", False)):
        answer = ask(client, some, query)
        order = order_of(answer)
        way = [*order, *(order[:1] if back else ())]
        [trip] = answer["trips"]
        assert [leg["duration"] for leg in trip["legs"]] == [times[a][b] for a, b in itertools.pairwise(way)]
        # far better than the order in which they are given
        assert trip["duration"] < 0.7 * sum(times[i][i + 1] for i in range(23))


def test_places_at_one_vertex_are_visited_one_after_the_other(client: TestClient) -> None:
    [a, b] = connected(2, 4)
    both: Any = lengths([a, b])
    answer = ask(client, [a, b, a, b, a])
    assert answer["trips"][0]["duration"] == both[0][1] + both[1][0]
    assert sorted(leg["duration"] for leg in answer["trips"][0]["legs"])[:3] == [0, 0, 0]
    same = ask(client, [a, a])
    assert (same["code"], same["trips"][0]["duration"], order_of(same)) == ("Ok", 0, [0, 1])


def test_a_trip_of_two_goes_there_and_back(client: TestClient) -> None:
    some = connected(2, 5)
    times: Any = lengths(some)
    assert [leg["duration"] for leg in ask(client, some)["trips"][0]["legs"]] == [times[0][1], times[1][0]]
    one_way = ask(client, some, "source=first&destination=last&roundtrip=false")
    assert [leg["duration"] for leg in one_way["trips"][0]["legs"]] == [times[0][1]]


def test_r_is_answered_as_it_asks(client: TestClient) -> None:
    """``osrmTrip`` finds the waypoints on the line by their coordinates."""
    some = [(round(lon, 5), round(lat, 5)) for lon, lat in connected(5, 6)]
    line = encode([lat for _, lat in some], [lon for lon, _ in some])
    for where in (f"polyline({line})", text(some)):
        shape = "steps=false&geometries=geojson&overview=simplified&generate_hints=false"
        answer = client.get(f"/trip/v1/car/{where}?{shape}").json()
        assert answer["code"] == "Ok"
        for point in answer["waypoints"]:
            assert point["location"] in answer["trips"][0]["geometry"]["coordinates"]


@pytest.mark.parametrize(
    ("address", "code", "said"),
    [
        ("{a};{b}?roundtrip=false", "NotImplemented", "source=first and destination=last"),
        ("{a};{b}?roundtrip=false&source=first", "NotImplemented", "source=first"),
        ("{a};{b}?roundtrip=false&destination=last", "NotImplemented", "source=first"),
        ("{a};{b};{lonely}", "NoTrips", "no way from coordinate 0 to 2"),
        ("{lonely};{b};{a}?source=first&destination=last&roundtrip=false", "NoTrips", "no way from coordinate 0 to 1"),
        ("{a}", "InvalidOptions", "two coordinates"),
        ("{a};{b}?roundtrip=yes", "InvalidOptions", "roundtrip is true or false"),
        ("{a};{b}?source=last", "InvalidOptions", "source is any or first"),
        ("{a};{b}?destination=first", "InvalidOptions", "destination is any or last"),
        ("{a};{b}?steps=1", "InvalidOptions", "steps is true or false"),
        ("{a};{b}?geometries=wkt", "InvalidOptions", "geojson"),
        ("{a};{b}?annotations=true", "InvalidOptions", "annotations=true"),
        ("{a};{b}?alternatives=1", "InvalidOptions", "no parameter 'alternatives'"),
        ("{a};{b}?steps=true&steps=false", "InvalidOptions", "steps is given more than once"),
        ("{a};{b}?radiuses=;1", "NoSegment", "coordinate 1"),
        (";".join(["{a}"] * 501), "TooBig", "more than the 500"),
    ],
)
def test_what_cannot_be_answered_is_said(client: TestClient, address: str, code: str, said: str) -> None:
    a, b = (text([place]) for place in connected(2, 0))
    answer = client.get("/trip/v1/driving/" + address.format(a=a, b=b, lonely=text([lonely()])))
    assert answer.status_code == 400
    assert answer.json()["code"] == code
    assert said in answer.json()["message"]


def test_trips_over_lengths_are_the_shortest(tmp_path: Path) -> None:
    solve_to_store(city("km"), Options(device="cpu"), tmp_path / "a.zarr")
    some = connected(5, 1)
    kilometres: Any = lengths(some)
    with open_result(tmp_path / "a.zarr") as matrix:
        client = TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=None, most=1000)))
        [trip] = ask(client, some)["trips"]
    best = min(
        math.fsum(kilometres[a][b] for a, b in itertools.pairwise([0, *order, 0]))
        for order in itertools.permutations(range(1, 5))
    )
    assert (trip["distance"], trip["duration"], trip["weight_name"]) == (1000 * best, None, "distance")


def test_a_trip_needs_every_way_within_the_cutoff(tmp_path: Path) -> None:
    some = connected(5, 1)
    longest = np.array(lengths(some), float).max()
    solve_to_store(city(), Options(device="cpu", cutoff=int(longest) - 1), tmp_path / "near.zarr")
    with open_result(tmp_path / "near.zarr") as matrix:
        client = TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=None, most=1000)))
        assert ask(client, some)["code"] == "NoTrips"


@pytest.mark.parametrize(("unit", "member"), [("s", "duration"), ("m", "distance")])
def test_halves_are_rounded_in_routes_as_in_tables(tmp_path: Path, unit: str, member: str) -> None:
    """0.35 is less than 35 hundredths in binary: Python's round says 0.3, NumPy's 0.4."""
    weights = np.round(np.arange(40) / 20 + 0.05, 2)
    hub = np.zeros(40, np.int64)
    graph, _ = build_graph(hub, np.arange(1, 41), weights / (1 if unit == "s" else 1000), n=41, directed=False)
    where = Coordinates(25 + np.arange(41) / 1000, np.full(41, 60.0), True)
    made = replace(graph, coordinates=where, unit="s" if unit == "s" else "km")
    solve_to_store(made, Options(device="cpu", dtype="float64"), tmp_path / "star.zarr")
    at = [(float(x), 60.0) for x in where.x]
    with open_result(tmp_path / "star.zarr") as matrix:
        network = RoutingNetwork(matrix, unit=None, speed=None, most=1000)
        client = TestClient(create_app(network))
        table = client.get(f"/table/v1/car/{text(at)}?sources=0&annotations={member}").json()[f"{member}s"][0]
        routes = [client.get(f"/route/v1/car/{text([at[0], place])}").json()["routes"][0] for place in at[1:]]
        assert [route[member] for route in routes] == table[1:]
        if unit == "m":
            ends = [{"lon": lon, "lat": lat} for lon, lat in at]
            asked = {"sources": ends[:1], "targets": ends[1:], "verbose": False}
            lengths = client.post("/sources_to_targets", json=asked).json()["sources_to_targets"]["distances"][0]
            ways = [client.post("/route", json={"locations": [ends[0], end]}).json()["trip"] for end in ends[1:]]
            assert [way["summary"]["length"] for way in ways] == lengths
