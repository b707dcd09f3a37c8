"""The services *table*, *route*, *trip* and *nearest* of OSRM's HTTP protocol, version 1.

Source: the documentation of OSRM, project-osrm.org/docs/v5.24.0/api.  The network has no bearings, kerbs or turns: a
parameter that needs them is refused, and the error names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from service.routing.network import Floats, Indices, Leg, RoutingNetwork, Stops
from service.routing.osrm_objects import Answer, RouteForm, flag, waypoints
from service.routing.polyline import decode
from service.routing.visiting_order import visiting_order
from storage.errors import ApspError, InvalidRequest, LimitExceeded
from storage.geography.coordinates import crow_distances, wrong_degrees
from storage.number_texts import is_digits

_PLACE: Final = re.compile(
    r"(-?\d{1,3}(?:\.\d{1,20})?(?:[eE]-\d{1,3})?),(-?\d{1,2}(?:\.\d{1,20})?(?:[eE]-\d{1,3})?)", re.ASCII
)
_POLYLINE: Final = re.compile(r"polyline(6?)\((.*)\)")
#: Most places of one request, most places of one trip, and most vertices that *nearest* returns.
MOST_PLACES: Final = 20_000
MOST_VISITED_PLACES: Final = 500
MOST_NEAREST: Final = 1000
#: Parameters of all services, then those of each service, with the values that change nothing; others are refused.
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
    "trip": {"annotations": frozenset({"false"})},
}
#: Parameters of places, and all parameters that each service understands.  Hints, which only save OSRM a search, are
#: accepted with any value and ignored.
_PLACED: Final = frozenset({"radiuses", "approaches", "hints"})
_OWN: Final[Mapping[str, frozenset[str]]] = {
    "table": _PLACED
    | {"sources", "destinations", "annotations", "scale_factor", "fallback_speed", "fallback_coordinate"},
    "route": _PLACED | {"overview", "geometries", "steps", "alternatives"},
    "nearest": _PLACED | {"number"},
    "trip": _PLACED | {"overview", "geometries", "steps", "source", "destination", "roundtrip"},
}
#: The services that are answered.
SERVICES: Final = tuple(_OWN)
#: OSRM's codes of errors, by the field that an error names.
_CODES: Final = {"coordinates": "InvalidValue", "radiuses": "NoSegment", "options": "InvalidOptions"}


class Osrm:
    """Answers requests of OSRM over a network; each method returns a status and a JSON object."""

    def __init__(self, network: RoutingNetwork) -> None:
        self._network = network
        self._services: dict[str, Callable[[Floats, Floats, Mapping[str, str]], Answer]] = {
            "table": self._table, "route": self._route, "nearest": self._nearest, "trip": self._trip,
        }  # fmt: skip

    def answer(self, service: str, places: str, query: Mapping[str, str]) -> tuple[int, Answer]:
        """Answer one request.  Tables in the answer are arrays, with +inf where there is no way.

        Args:
            service: one of ``SERVICES``.
            places: the part of the address that holds the coordinates.
            query: the parameters.
        """
        try:
            _check(service, query)
            lon, lat = parse_places(places)
            made = self._services[service](lon, lat, query)
        except LimitExceeded as error:
            return 400, {"code": "TooBig", "message": str(error)}
        except InvalidRequest as error:
            return 400, {"code": _CODES.get(error.field or "", "InvalidValue"), "message": str(error)}
        except ApspError as error:
            return 500, {"code": "InternalError", "message": str(error)}
        return (200 if made["code"] == "Ok" else 400), made

    def _stops(self, lon: Floats, lat: Floats, query: Mapping[str, str]) -> Stops:
        """Return the stops of a request; refuse a stop that is farther from its place than the radius of the place."""
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
                    # VROOM, a client of OSRM, reads the number after these words
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
        snapped = _one_of(query, "fallback_coordinate", ("input", "snapped")) == "snapped"
        if "fallback_speed" in query:
            places = (stops.lon, stops.lat) if snapped else (lon, lat)
            _estimate(made, np.argwhere(np.isinf(found)), at, places, query["fallback_speed"])
        if "durations" in made:
            made["durations"] = np.round(made["durations"] * scale, 1)
        if "distances" in made:
            made["distances"] = np.round(made["distances"], 1)
        if query.get("skip_waypoints") != "true":
            made["sources"], made["destinations"] = waypoints(rows), waypoints(columns)
        return made

    def _route(self, lon: Floats, lat: Floats, query: Mapping[str, str]) -> Answer:
        if len(lon) < 2:
            raise InvalidRequest("a route needs two coordinates or more", field="options")
        form = RouteForm.of(query)
        if not re.fullmatch(r"true|false|[0-9]{1,3}", query.get("alternatives", "false")):
            raise InvalidRequest("alternatives is true, false or a number", field="options")
        stops = self._stops(lon, lat, query)
        legs = self._legs(stops.vertices.tolist())
        if None in legs:
            missing = legs.index(None)
            return {"code": "NoRoute", "message": f"there is no way from coordinate {missing} to {missing + 1}"}
        made: Answer = {"code": "Ok", "routes": [form.route([leg for leg in legs if leg is not None])]}
        if query.get("skip_waypoints") != "true":
            made["waypoints"] = waypoints(stops)
        return made

    def _legs(self, vertices: Sequence[int]) -> list[Leg | None]:
        return [self._network.leg(a, b) for a, b in pairwise(vertices)]

    def _trip(self, lon: Floats, lat: Floats, query: Mapping[str, str]) -> Answer:
        if not len(lon) >= 2:
            raise InvalidRequest("a trip needs two coordinates or more", field="options")
        form, back = RouteForm.of(query), flag(query, "roundtrip", default=True)
        first = _one_of(query, "source", ("any", "first")) == "first"
        last = _one_of(query, "destination", ("any", "last")) == "last"
        if not back and not (first and last):
            message = "roundtrip=false is supported with source=first and destination=last only"
            return {"code": "NotImplemented", "message": message}
        if len(lon) > MOST_VISITED_PLACES:
            message = f"a trip through {len(lon):,} coordinates, more than the {MOST_VISITED_PLACES:,} of a request"
            raise LimitExceeded(message, limit=MOST_VISITED_PLACES, requested=len(lon), setting="coordinates")
        stops = self._stops(lon, lat, query)
        found = self._network.table(stops, stops)
        for a, b in np.argwhere(np.isinf(found))[:1].tolist():
            message = f"no trip visits all places: there is no way from coordinate {a} to {b}"
            return {"code": "NoTrips", "message": message}
        end = len(stops) - 1 if last else 0
        order = visiting_order(found, 0 if first or not last else end, end)
        legs = self._legs(stops.vertices[order + order[:1] if back else order].tolist())
        made: Answer = {"code": "Ok", "trips": [form.route([leg for leg in legs if leg is not None])]}
        if query.get("skip_waypoints") != "true":
            at = {place: number for number, place in enumerate(order)}
            made["waypoints"] = [
                {**about, "trips_index": 0, "waypoint_index": at[place]} for place, about in enumerate(waypoints(stops))
            ]
        return made

    def _nearest(self, lon: Floats, lat: Floats, query: Mapping[str, str]) -> Answer:
        if len(lon) != 1:
            raise InvalidRequest(f"nearest takes one coordinate, found {len(lon)}", field="options")
        number = query.get("number", "1")
        if not is_digits(number) or not 1 <= int(number) <= MOST_NEAREST:
            raise InvalidRequest(f"number is from 1 to {MOST_NEAREST}, found {number[:20]!r}", field="options")
        self._stops(lon, lat, query)
        found = self._network.nearest(float(lon[0]), float(lat[0]), int(number))
        return {"code": "Ok", "waypoints": waypoints(found)}


def parse_places(text: str) -> tuple[Floats, Floats]:
    """Return the longitudes and latitudes that a part of a URL lists, or encodes as a polyline.

    Raises:
        InvalidRequest: the coordinates cannot be understood, or are out of range.
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
    """Refuse parameters that are unknown, or that need facts that the network lacks, such as turns."""
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
    """Return the indices, from 0 to ``count`` - 1, of the coordinates that ``sources`` or ``destinations`` names."""
    if text == "all":
        return np.arange(count)
    numbers = text.split(";")
    for number in numbers:
        if not is_digits(number) or int(number) >= count:
            raise InvalidRequest(
                f"{side} are numbers of coordinates from 0 to {count - 1}, found {number[:20]!r}", field="options"
            )
    return np.array([int(number) for number in numbers], np.int64)


def _one_of(query: Mapping[str, str], name: str, values: tuple[str, str]) -> str:
    """Return a parameter that has one of two values; the first one is the default."""
    found = query.get(name, values[0])
    if found not in values:
        raise InvalidRequest(f"{name} is {' or '.join(values)}", field="options")
    return found


def _estimate(made: Answer, cells: Indices, at: Sequence[Indices], places: tuple[Floats, Floats], speed: str) -> None:
    """Fill in estimates where there is no way: straight lines, at ``speed`` metres a second.

    Args:
        made: the answer; its tables are changed.
        cells: rows and columns without a way, shape (k, 2).
        at: the index in ``places`` of each row, and of each column.
        places: longitudes and latitudes of all places.
        speed: the parameter ``fallback_speed``.
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


def _number(text: str, name: str) -> float:
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", text):
        raise InvalidRequest(f"{name} are numbers from 0, found {text[:20]!r}", field="options")
    return float(text)
