"""The services *table*, *route* and *nearest* of OSRM's HTTP protocol, version 1.

Source: the documentation of OSRM, project-osrm.org/docs/v5.24.0/api.  Parameters that ask for what this network cannot
know (bearings, kerbs, turns) are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from service.routing.network import Floats, Indices, Leg, RoutingNetwork, Stops
from service.routing.polyline import decode, encode
from storage.errors import ApspError, InvalidRequest, LimitExceeded
from storage.geography.coordinates import crow_distances, wrong_degrees

Answer = dict[str, Any]

_PLACE: Final = re.compile(r"(-?\d{1,3}(?:\.\d{1,20})?),(-?\d{1,2}(?:\.\d{1,20})?)")
_POLYLINE: Final = re.compile(r"polyline(6?)\((.*)\)")
#: Most places of one request, and most vertices of *nearest*.
MOST_PLACES: Final = 20_000
MOST_NEAREST: Final = 1000
#: Parameters of every service, each with the values that ask for nothing special; any other value is refused.
_COMMON: Final[Mapping[str, frozenset[str]]] = {
    "bearings": frozenset({""}),
    "exclude": frozenset({""}),
    "snapping": frozenset({"default", "any"}),
    "generate_hints": frozenset({"true", "false"}),
    "skip_waypoints": frozenset({"true", "false"}),
}
_SILENT: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "table": {},
    "route": {
        "annotations": frozenset({"false"}),
        "continue_straight": frozenset({"default", "true", "false"}),
        "waypoints": frozenset({""}),
    },
    "nearest": {},
}
#: Parameters that are understood; hints only save OSRM a search, so they may be anything.
_PLACED: Final = frozenset({"radiuses", "approaches", "hints"})
_OWN: Final[Mapping[str, frozenset[str]]] = {
    "table": _PLACED
    | {"sources", "destinations", "annotations", "scale_factor", "fallback_speed", "fallback_coordinate"},
    "route": _PLACED | {"overview", "geometries", "steps", "alternatives"},
    "nearest": _PLACED | {"number"},
}
#: Codes of OSRM for what is wrong, by the field that an error names.
_CODES: Final = {"coordinates": "InvalidValue", "radiuses": "NoSegment", "options": "InvalidOptions"}


class Osrm:
    """Answers requests of OSRM over a network; each method returns a status and a JSON object."""

    def __init__(self, network: RoutingNetwork) -> None:
        self._network = network

    def answer(self, service: str, places: str, query: Mapping[str, str]) -> tuple[int, Answer]:
        """Answer one request; tables are arrays, with +inf where there is no way.

        Args:
            service: ``table``, ``route`` or ``nearest``.
            places: the part of the address that holds the coordinates.
            query: the parameters.
        """
        try:
            _check(service, query)
            lon, lat = parse_places(places)
            made = {"table": self._table, "route": self._route, "nearest": self._nearest}[service](lon, lat, query)
        except LimitExceeded as error:
            return 400, {"code": "TooBig", "message": str(error)}
        except InvalidRequest as error:
            return 400, {"code": _CODES.get(error.field or "", "InvalidValue"), "message": str(error)}
        except ApspError as error:
            return 500, {"code": "InternalError", "message": str(error)}
        return (200 if made["code"] == "Ok" else 400), made

    def _stops(self, lon: Floats, lat: Floats, query: Mapping[str, str]) -> Stops:
        """Return the stops of a request; refuse one that is farther from its place than its radius."""
        approaches = query.get("approaches", "")
        if set(approaches.split(";")) - {"", "unrestricted"}:
            raise InvalidRequest("approaches may be unrestricted only: the network knows no kerbs", field="options")
        stops = self._network.stops(lon, lat)
        radiuses = query.get("radiuses", "")
        if not radiuses:
            return stops
        limits = radiuses.split(";")
        if len(limits) != len(stops):
            message = f"{len(limits)} radiuses are given for {len(stops)} coordinates"
            raise InvalidRequest(message, field="options")
        for number, (limit, metres) in enumerate(zip(limits, stops.metres.tolist(), strict=True)):
            if limit in ("", "unlimited"):
                continue
            radius = _number(limit, "radiuses")
            if metres > radius:
                raise InvalidRequest(
                    # VROOM reads the number after these words
                    f"Could not find a matching segment for coordinate {number}: the nearest vertex is {metres:,.0f} m "
                    f"away, its radius is {radius:g} m",
                    field="radiuses",
                )
        return stops

    def _table(self, lon: Floats, lat: Floats, query: Mapping[str, str]) -> Answer:
        asked = query.get("annotations", "duration").split(",")
        if set(asked) - {"duration", "distance"}:
            raise InvalidRequest("annotations are duration, distance, or both", field="options")
        if "duration" in asked and not self._network.tells_time:
            raise InvalidRequest(
                "this network tells lengths and no times: ask with annotations=distance, or serve it with --speed",
                field="options",
            )
        scale = _number(query.get("scale_factor", "1"), "scale_factor")
        if not scale > 0:
            raise InvalidRequest(f"scale_factor must be positive, found {scale:g}", field="options")
        stops = self._stops(lon, lat, query)
        at = [_picked(len(stops), query.get(side, "all"), side) for side in ("sources", "destinations")]
        rows, columns = (stops.picked(numbers) for numbers in at)
        found = self._network.table(rows, columns)
        made: Answer = {"code": "Ok"}
        if "duration" in asked:
            made["durations"] = self._network.seconds(found)
        if "distance" in asked:
            made["distances"] = self._network.metres(rows, columns, found)
        if "fallback_speed" in query:
            places = (stops.lon, stops.lat) if _snapped(query) else (lon, lat)
            _estimate(made, np.argwhere(np.isinf(found)), at, places, query["fallback_speed"])
        if "durations" in made:
            made["durations"] = np.round(made["durations"] * scale, 1)
        if "distances" in made:
            made["distances"] = np.round(made["distances"], 1)
        if query.get("skip_waypoints") != "true":
            made["sources"], made["destinations"] = _waypoints(rows), _waypoints(columns)
        return made

    def _route(self, lon: Floats, lat: Floats, query: Mapping[str, str]) -> Answer:
        if len(lon) < 2:
            raise InvalidRequest("a route needs two coordinates or more", field="options")
        form = query.get("geometries", "polyline")
        if form not in ("polyline", "polyline6", "geojson"):
            raise InvalidRequest("geometries are polyline, polyline6 or geojson", field="options")
        overview = query.get("overview", "simplified")
        if overview not in ("simplified", "full", "false"):
            raise InvalidRequest("overview is simplified, full or false", field="options")
        if not re.fullmatch(r"true|false|\d{1,3}", query.get("alternatives", "false")):
            raise InvalidRequest("alternatives is true, false or a number", field="options")
        stops = self._stops(lon, lat, query)
        vertices = stops.vertices.tolist()
        legs = [self._network.leg(a, b) for a, b in pairwise(vertices)]
        if None in legs:
            missing = legs.index(None)
            return {"code": "NoRoute", "message": f"there is no way from coordinate {missing} to {missing + 1}"}
        known = [leg for leg in legs if leg is not None]
        steps = query.get("steps", "false") == "true"
        route: Answer = {
            **_lengths(known),
            "legs": [{**_lengths([leg]), "summary": "", "steps": _steps(leg, form) if steps else []} for leg in known],
            "weight_name": "duration" if self._network.tells_time else "distance",
        }
        if overview != "false":
            parts = [(leg.lon[bool(i) :], leg.lat[bool(i) :]) for i, leg in enumerate(known)]
            lons, lats = (np.concatenate(side) for side in zip(*parts, strict=True))
            route["geometry"] = _line(lons, lats, form)
        made: Answer = {"code": "Ok", "routes": [route]}
        if query.get("skip_waypoints") != "true":
            made["waypoints"] = _waypoints(stops)
        return made

    def _nearest(self, lon: Floats, lat: Floats, query: Mapping[str, str]) -> Answer:
        if len(lon) != 1:
            raise InvalidRequest(f"nearest takes one coordinate, found {len(lon)}", field="options")
        number = query.get("number", "1")
        if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= MOST_NEAREST:
            raise InvalidRequest(f"number is from 1 to {MOST_NEAREST}, found {number[:20]!r}", field="options")
        self._stops(lon, lat, query)
        found = self._network.nearest(float(lon[0]), float(lat[0]), int(number))
        return {"code": "Ok", "waypoints": _waypoints(found)}


def parse_places(text: str) -> tuple[Floats, Floats]:
    """Return longitudes and latitudes of the coordinates of an address.

    Raises:
        InvalidRequest: they cannot be understood, or are out of range.
        LimitExceeded: there are more than ``MOST_PLACES``.
    """
    text = text.removesuffix(".json")
    line = _POLYLINE.fullmatch(text)
    if line:
        places = decode(line[2], 6 if line[1] else 5)
    else:
        places = []
        for number, part in enumerate(text.split(";")):
            found = _PLACE.fullmatch(part)
            if not found:
                message = f"coordinate {number} is {part[:60]!r}, not longitude,latitude"
                raise InvalidRequest(message, field="coordinates")
            places.append((float(found[1]), float(found[2])))
    if not places:
        raise InvalidRequest("there are no coordinates", field="coordinates")
    if len(places) > MOST_PLACES:
        message = f"{len(places):,} coordinates, more than the {MOST_PLACES:,} of a request"
        raise LimitExceeded(message, limit=MOST_PLACES, requested=len(places), setting="coordinates")
    for number, (lon, lat) in enumerate(places):
        wrong = wrong_degrees(lon, lat)
        if wrong:
            raise InvalidRequest(f"coordinate {number}: {wrong}", field="coordinates")
    lons, lats = zip(*places, strict=True)
    return np.array(lons, np.float64), np.array(lats, np.float64)


def _check(service: str, query: Mapping[str, str]) -> None:
    """Refuse parameters that are unknown, or that ask for what the network does not know."""
    silent = {**_COMMON, **_SILENT[service]}
    for name, value in query.items():
        if name in _OWN[service]:
            continue
        if name not in silent:
            known = ", ".join(sorted({*_OWN[service], *silent}))
            raise InvalidRequest(f"{service} has no parameter {name[:40]!r}; it has {known}", field="options")
        if value not in silent[name] and set(value) - {";"}:
            raise InvalidRequest(f"{name}={value[:40]} is not supported: the network does not know it", field="options")


def _picked(count: int, text: str, side: str) -> Indices:
    """Return the numbers of the coordinates that ``sources`` or ``destinations`` name, of ``count``."""
    if text == "all":
        return np.arange(count)
    numbers = text.split(";")
    for number in numbers:
        if not number.isascii() or not number.isdigit() or len(number) > 9 or int(number) >= count:
            raise InvalidRequest(
                f"{side} are numbers of coordinates from 0 to {count - 1}, found {number[:20]!r}", field="options"
            )
    return np.array([int(number) for number in numbers], np.int64)


def _snapped(query: Mapping[str, str]) -> bool:
    """Return whether estimates are between vertices, not between the places that were asked for."""
    found = query.get("fallback_coordinate", "input")
    if found not in ("input", "snapped"):
        raise InvalidRequest("fallback_coordinate is input or snapped", field="options")
    return found == "snapped"


def _estimate(made: Answer, cells: Indices, at: Sequence[Indices], places: tuple[Floats, Floats], speed: str) -> None:
    """Fill in estimates where there is no way: straight lines, at ``speed`` metres a second.

    Args:
        made: the answer; its tables are changed.
        cells: rows and columns without a way, shape (k, 2).
        at: the numbers of the places of the rows, and of the columns.
        places: longitudes and latitudes of all places.
        speed: what the request says.
    """
    fast = _number(speed, "fallback_speed")
    if not fast > 0:
        raise InvalidRequest(f"fallback_speed must be positive, found {fast:g}", field="options")
    ends = [at[side][cells[:, side]] for side in (0, 1)]
    (lon, lat), rows, columns = places, cells[:, 0], cells[:, 1]
    metres = crow_distances(lon[ends[0]], lat[ends[0]], lon[ends[1]], lat[ends[1]], geographic=True)
    if "durations" in made:
        made["durations"][rows, columns] = metres / fast
    if "distances" in made:
        made["distances"][rows, columns] = metres
    made["fallback_speed_cells"] = np.ascontiguousarray(cells)


def _waypoints(stops: Stops) -> list[Answer]:
    places = zip(stops.lon.tolist(), stops.lat.tolist(), stops.metres.tolist(), stops.names, strict=True)
    return [{"location": [lon, lat], "distance": metres, "name": name} for lon, lat, metres, name in places]


def _lengths(legs: Sequence[Leg]) -> Answer:
    """Return distance, duration and weight of legs together; no duration where times are not told."""
    metres = round(sum(leg.metres for leg in legs), 1)
    times = [leg.seconds for leg in legs if leg.seconds is not None]
    if len(times) < len(legs):
        return {"distance": metres, "duration": None, "weight": metres}
    seconds = round(sum(times), 1)
    return {"distance": metres, "duration": seconds, "weight": seconds}


def _steps(leg: Leg, form: str) -> list[Answer]:
    """Return a leg as OSRM's steps: from its departure to its arrival, as the network knows no turns."""
    there = Leg(None if leg.seconds is None else 0.0, 0.0, leg.vertices[-1:], leg.lon, leg.lat)
    ends = (("depart", leg, slice(None)), ("arrive", there, slice(-1, None)))
    found = []
    for kind, part, which in ends:
        lon, lat = leg.lon[which], leg.lat[which]
        if kind == "arrive":
            lon, lat = np.repeat(lon, 2), np.repeat(lat, 2)
        place = [float(lon[0]), float(lat[0])]
        maneuver = {"type": kind, "modifier": "straight", "location": place, "bearing_before": 0, "bearing_after": 0}
        cross = {"location": place, "bearings": [0], "entry": [True], ("out" if kind == "depart" else "in"): 0}
        about = {"name": "", "mode": "driving", "driving_side": "right", "maneuver": maneuver, "intersections": [cross]}
        found.append({**_lengths([part]), **about, "geometry": _line(lon, lat, form)})
    return found


def _line(lon: Floats, lat: Floats, form: str) -> str | Answer:
    if form == "geojson":
        return {"type": "LineString", "coordinates": np.stack([lon, lat], axis=-1).tolist()}
    return encode(lat.tolist(), lon.tolist(), 6 if form == "polyline6" else 5)


def _number(text: str, name: str) -> float:
    if not re.fullmatch(r"\d{1,12}(\.\d{1,12})?", text):
        raise InvalidRequest(f"{name} are numbers from 0, found {text[:20]!r}", field="options")
    return float(text)
