"""The objects of OSRM's answers: waypoints, routes, legs and steps.

Source: the documentation of OSRM, project-osrm.org/docs/v5.24.0/api.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.routing.network import Floats, Leg, Stops
from service.routing.polyline import encode
from storage.errors import InvalidRequest

Answer = dict[str, Any]


@dataclass(frozen=True)
class RouteForm:
    """How the route of an answer is written.

    Attributes:
        geometries: how lines are written: ``polyline``, ``polyline6`` or ``geojson``.
        overview: whether the line of the whole route is written.
        steps: whether the steps of the legs are written.
    """

    geometries: str
    overview: bool
    steps: bool

    @classmethod
    def of(cls, query: Mapping[str, str]) -> RouteForm:
        """Return the form that the parameters of a request ask for.  Raises InvalidRequest: a value is not allowed."""
        form = query.get("geometries", "polyline")
        if form not in ("polyline", "polyline6", "geojson"):
            raise InvalidRequest("geometries are polyline, polyline6 or geojson", field="options")
        overview = query.get("overview", "simplified")
        if overview not in ("simplified", "full", "false"):
            raise InvalidRequest("overview is simplified, full or false", field="options")
        return cls(form, overview != "false", flag(query, "steps", default=False))

    def route(self, legs: Sequence[Leg]) -> Answer:
        """Return legs as one route; lines are never simplified."""
        made: Answer = {
            **_lengths(legs),
            "legs": [
                {**_lengths([leg]), "summary": "", "steps": _steps(leg, self.geometries) if self.steps else []}
                for leg in legs
            ],
            "weight_name": "distance" if any(leg.seconds is None for leg in legs) else "duration",
        }
        if self.overview:
            parts = [(leg.lon[bool(i) :], leg.lat[bool(i) :]) for i, leg in enumerate(legs)]
            lons, lats = (np.concatenate(side) for side in zip(*parts, strict=True))
            made["geometry"] = _line(lons, lats, self.geometries)
        return made


def flag(query: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return a parameter that is true or false.  Raises InvalidRequest: it is neither."""
    found = query.get(name, str(default).lower())
    if found not in ("true", "false"):
        raise InvalidRequest(f"{name} is true or false, found {found[:20]!r}", field="options")
    return found == "true"


def waypoints(stops: Stops) -> list[Answer]:
    """Return stops as OSRM's waypoint objects."""
    places = zip(stops.lon.tolist(), stops.lat.tolist(), stops.metres.tolist(), stops.names, strict=True)
    return [{"location": [lon, lat], "distance": metres, "name": name} for lon, lat, metres, name in places]


def rounded(number: float, digits: int) -> float:
    """Return a number with some digits after the point, rounded as tables are (0.35 to 0.4, as NumPy does)."""
    return float(np.round(number, digits))


def _lengths(legs: Sequence[Leg]) -> Answer:
    """Return distance, duration and weight of legs together; the duration is None if a leg has no time."""
    metres = rounded(sum(leg.metres for leg in legs), 1)
    times = [leg.seconds for leg in legs if leg.seconds is not None]
    if len(times) < len(legs):
        return {"distance": metres, "duration": None, "weight": metres}
    seconds = rounded(sum(times), 1)
    return {"distance": metres, "duration": seconds, "weight": seconds}


def _steps(leg: Leg, form: str) -> list[Answer]:
    """Return a leg as OSRM's steps: departure and arrival only, because the network has no turns."""
    there = Leg(None if leg.seconds is None else 0.0, 0.0, leg.vertices[-1:], leg.lon, leg.lat)
    ends = (("depart", leg, slice(None)), ("arrive", there, slice(-1, None)))
    found = []
    for kind, part, which in ends:
        lon, lat = leg.lon[which], leg.lat[which]
        place = [float(lon[0]), float(lat[0])]
        maneuver = {"type": kind, "modifier": "straight", "location": place, "bearing_before": 0, "bearing_after": 0}
        cross = {"location": place, "bearings": [0], "entry": [True], ("out" if kind == "depart" else "in"): 0}
        about = {"name": "", "mode": "driving", "driving_side": "right", "maneuver": maneuver, "intersections": [cross]}
        found.append({**_lengths([part]), **about, "geometry": _line(lon, lat, form)})
    return found


def _line(lon: Floats, lat: Floats, form: str) -> str | Answer:
    """Return a line in ``form``, a value of ``geometries``.  A single place is written twice, because RFC 7946 wants
    two positions.
    """
    if len(lon) == 1:
        lon, lat = np.repeat(lon, 2), np.repeat(lat, 2)
    if form == "geojson":
        return {"type": "LineString", "coordinates": np.stack([lon, lat], axis=-1).tolist()}
    return encode(lat.tolist(), lon.tolist(), 6 if form == "polyline6" else 5)
