"""Valhalla's route service, ``/route``.

Source: the documentation of Valhalla, valhalla.github.io/valhalla/api/turn-by-turn/api-reference.  The network has no
names of streets and no turns, so the maneuvers of a leg are its departure and its arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from service.routing.network import Leg, RoutingNetwork, Stops
from service.routing.osrm_objects import Answer, rounded
from service.routing.polyline import encode
from service.routing.valhalla_request import as_text, places, refuse_unknown, unit_of
from storage.errors import InvalidRequest

#: Types of a place, each with two facts: whether a leg ends there, and whether the route may turn back there.
_TYPES: Final[Mapping[str, tuple[bool, bool]]] = {
    "break": (True, True), "via": (False, True), "break_through": (True, False), "through": (False, False),
}  # fmt: skip
_DIRECTIONS: Final = ("none", "maneuvers", "instructions")
#: Parameters with the values that change nothing; other values are refused.
_ONLY: Final[Mapping[str, tuple[Any, ...]]] = {
    "format": (None, "json"),
    "shape_format": (None, "polyline6"),
    "elevation_interval": (None, 0),
    "linear_references": (None, False),
}
#: Facts about a place that a client may send, and that the answer repeats.
_ABOUT_PLACES: Final = ("name", "street", "city", "state", "postal_code", "country", "phone", "url")
_DEPARTURE, _ARRIVAL = 1, 4


def route(network: RoutingNetwork, asked: Mapping[str, Any]) -> Answer:
    """Return the answer to a request for a route; times are None where the network has none.

    Raises:
        InvalidRequest: the request is wrong, needs more than the network has, or there is no way.
        LimitExceeded: there are too many places.
    """
    nested = asked.get("directions_options", {})
    if not isinstance(nested, dict):
        raise InvalidRequest("directions_options is an object", field="directions_options")
    asked = {**nested, **asked}
    refuse_unknown(network, asked)
    for name, fine in _ONLY.items():
        if asked.get(name) not in fine:
            message = f"{name} is not supported, or {' or '.join(str(value) for value in fine[1:])} only"
            raise InvalidRequest(message, field=name)
    metres, unit = unit_of(asked)
    directions = _directions(asked)
    stops = places(network, asked.get("locations"), "locations")
    if len(stops) < 2:
        raise InvalidRequest("a route needs two locations or more", field="locations")
    types = _types(asked["locations"])
    legs = _legs(network, stops, types)
    trip: Answer = {
        "locations": [_location(place, types[i], i) for i, place in enumerate(asked["locations"])],
        "legs": [_leg(leg, metres, directions) for leg in legs],
        "summary": _summary(legs, metres),
        "status_message": "Found route between points",
        "status": 0,
        "units": unit,
        "language": "en-US",
    }
    made: Answer = {"trip": trip}
    if isinstance(asked.get("id"), str):
        made["id"] = as_text(asked["id"])
    return made


def _directions(asked: Mapping[str, Any]) -> str:
    """Return how much a request wants to know of maneuvers; older clients say it with ``narrative``."""
    found = asked.get("directions_type", "none" if asked.get("narrative") is False else "instructions")
    if found not in _DIRECTIONS:
        raise InvalidRequest(f"directions_type is {', '.join(_DIRECTIONS)}", field="directions_type")
    return str(found)


def _types(given: Sequence[Any]) -> list[str]:
    """Return the types of places; the first and the last place are breaks, whatever the request says."""
    found = ["break", *(place.get("type", "break") for place in given[1:-1]), "break"]
    for number, kind in enumerate(found):
        if not isinstance(kind, str) or kind not in _TYPES:
            raise InvalidRequest(f"locations {number}: type is {', '.join(_TYPES)}", field="type")
    return found


def _legs(network: RoutingNetwork, stops: Stops, types: Sequence[str]) -> list[Leg]:
    """Return the legs.  A leg ends at a break or break-through; stops of other types lie within a leg."""
    parts, legs, path = list[Leg](), list[Leg](), stops.vertices[:1].tolist()
    at = list[int]()  # the position on the path of each stop after the first
    for number, (a, b) in enumerate(pairwise(stops.vertices.tolist())):
        found = network.leg(a, b)
        if found is None:
            message = f"No path could be found for input: there is no way from locations {number} to {number + 1}"
            raise InvalidRequest(message, field="path")
        path.extend(found.vertices[1:])
        at.append(len(path) - 1)
        parts.append(found)
        if _TYPES[types[number + 1]][0]:
            legs.append(_joined(parts))
            parts = []
    for number, place in enumerate(at[:-1], 1):
        back = 0 < place < len(path) - 1 and path[place - 1] == path[place + 1]
        if back and not _TYPES[types[number]][1]:
            message = f"the shortest way goes back at locations {number}, where type={types[number]} forbids it"
            raise InvalidRequest(f"{message}; type break or via allows it", field="path")
    return legs


def _joined(parts: Sequence[Leg]) -> Leg:
    times = [part.seconds for part in parts if part.seconds is not None]
    lon, lat = (
        np.concatenate([getattr(part, side)[bool(i) :] for i, part in enumerate(parts)]) for side in ("lon", "lat")
    )
    vertices = [vertex for i, part in enumerate(parts) for vertex in part.vertices[bool(i) :]]
    seconds = sum(times) if len(times) == len(parts) else None
    return Leg(seconds, sum(part.metres for part in parts), vertices, lon, lat)


def _leg(leg: Leg, metres: float, directions: str) -> Answer:
    shape = encode(leg.lat.tolist(), leg.lon.tolist(), 6)
    return {"maneuvers": _maneuvers(leg, metres, directions), "summary": _summary([leg], metres), "shape": shape}


def _maneuvers(leg: Leg, metres: float, directions: str) -> list[Answer]:
    if directions == "none":
        return []
    last = len(leg.lon) - 1
    ends = (
        (_DEPARTURE, "Depart.", 0, _lengths([leg], metres)),
        (_ARRIVAL, "Arrive.", last, {"time": None if leg.seconds is None else 0.0, "length": 0.0}),
    )
    found = []
    for kind, text, begin, lengths in ends:
        said = {"instruction": text} if directions == "instructions" else {}
        shape = {"begin_shape_index": begin, "end_shape_index": last}
        found.append({"type": kind, **said, **lengths, **shape, "travel_mode": "drive", "travel_type": "car"})
    return found


def _lengths(legs: Sequence[Leg], metres: float) -> Answer:
    """Return time and length of legs together; ``metres`` is the number of metres in the unit of the length."""
    times = [leg.seconds for leg in legs if leg.seconds is not None]
    seconds = rounded(sum(times), 3) if len(times) == len(legs) else None
    return {"time": seconds, "length": rounded(sum(leg.metres for leg in legs) / metres, 3)}


def _summary(legs: Sequence[Leg], metres: float) -> Answer:
    lon, lat = (np.concatenate([getattr(leg, side) for leg in legs]) for side in ("lon", "lat"))
    box = {"min_lat": lat.min(), "min_lon": lon.min(), "max_lat": lat.max(), "max_lon": lon.max()}
    return {**_lengths(legs, metres), **{name: round(float(value), 6) for name, value in box.items()}}


def _location(place: Mapping[str, Any], kind: str, number: int) -> Answer:
    about = {name: as_text(place[name]) for name in _ABOUT_PLACES if isinstance(place.get(name), str)}
    return {"type": kind, "lat": place["lat"], "lon": place["lon"], "original_index": number, **about}
