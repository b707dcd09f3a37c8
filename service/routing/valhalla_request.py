"""Reads what all requests of Valhalla have: places, units, and parameters that this network cannot take into account.

Source: the documentation of Valhalla, valhalla.github.io/valhalla/api/turn-by-turn/api-reference.  Parameters that
change nothing here are ignored: those that say how Valhalla searches for the street of a place, and those that only the
client uses.  A parameter that would change the answer is refused, and the error names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from service.routing.network import RoutingNetwork, Stops
from service.routing.osrm import MOST_PLACES
from storage.errors import InvalidRequest, LimitExceeded
from storage.geography.coordinates import wrong_degrees

#: Metres in the units of a request.
UNITS: Final = {"km": 1000.0, "kilometers": 1000.0, "mi": 1609.344, "miles": 1609.344}
#: The largest number of characters of a client's text that the answer repeats.
_LONGEST_TEXT: Final = 200
#: Parameters of a whole request that this network cannot take into account, each with the reason that the error gives.
_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("exclude_locations", "exclude_polygons", "exclude_levels", "avoid_locations", "avoid_polygons"),
        "what is closed is part of the network",
    ),
    "date_time": "ways take the same time all day",
}
#: Parameters of a single place that this network cannot take into account, each with a test.  A value of the parameter
#: is refused if the test is true.
_REFUSED_AT_PLACES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "heading": lambda value: value is not None,
    "search_filter": bool,
    "preferred_side": lambda value: value not in (None, "either"),
    "radius": bool,
    "waiting": bool,
}


def refuse_unknown(network: RoutingNetwork, asked: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for a parameter that needs more than the network has."""
    for name, reason in _REFUSED.items():
        if asked.get(name):
            raise InvalidRequest(f"{name} is not supported: {reason}", field=name)
    if network.fastest and _wants_shortest(asked):
        reason = "this network has times, so its paths are the fastest ones; serve a result of lengths for the shortest"
        raise InvalidRequest(f"costing_options: shortest is not supported: {reason}", field="costing_options")


def _wants_shortest(asked: Mapping[str, Any]) -> bool:
    """Return whether a request asks for the shortest ways by length, in the options of its costing.

    If the request names no costing, the options of every costing count.
    """
    costing, options = asked.get("costing"), asked.get("costing_options")
    if not isinstance(options, dict):
        return False
    own = [options.get(costing)] if isinstance(costing, str) else options.values()
    return any(isinstance(each, dict) and bool(each.get("shortest")) for each in own)


def unit_of(asked: Mapping[str, Any]) -> tuple[float, str]:
    """Return how many metres the unit of a request has, and the name of this unit in the answer."""
    unit = asked.get("units", "kilometers")
    if not isinstance(unit, str) or unit not in UNITS:
        raise InvalidRequest(f"units are {', '.join(UNITS)}", field="units")
    return UNITS[unit], "miles" if unit in ("mi", "miles") else "kilometers"


def as_text(given: str) -> str:
    """Return a text of a client as the answer repeats it: cut to a limit, with unpaired surrogates replaced."""
    return given[:_LONGEST_TEXT].encode(errors="replace").decode()


def places(network: RoutingNetwork, given: Any, side: str) -> Stops:
    """Return the places of a request as stops, each at the vertex nearest to the place.

    Args:
        network: the network.
        given: what the request says, a list of objects with ``lat`` and ``lon``.
        side: name of the parameter that holds the places.

    Raises:
        InvalidRequest: a place has no valid coordinates, has a parameter that is not supported, or is farther from the
            nearest vertex than its ``search_cutoff``.
        LimitExceeded: there are more than ``MOST_PLACES``.
    """
    if not isinstance(given, list) or not given:
        raise InvalidRequest(f"{side} must be a list of places with lat and lon", field=side)
    if len(given) > MOST_PLACES:
        message = f"{len(given):,} {side}, more than the {MOST_PLACES:,} of a request"
        raise LimitExceeded(message, limit=MOST_PLACES, requested=len(given), setting=side)
    lon, lat = np.empty(len(given)), np.empty(len(given))
    for number, place in enumerate(given):
        values = [place.get("lon"), place.get("lat")] if isinstance(place, dict) else [None]
        if not all(_is_number(value) for value in values):
            raise InvalidRequest(f"{side} {number} must have lat and lon, and both must be numbers", field=side)
        lon[number], lat[number] = values
        wrong = wrong_degrees(float(lon[number]), float(lat[number]))
        if wrong:
            raise InvalidRequest(f"{side} {number}: {wrong}", field=side)
        for name, refused in _REFUSED_AT_PLACES.items():
            if refused(place.get(name)):
                message = f"{side} {number}: {name} is not supported: a place is the vertex nearest to it"
                raise InvalidRequest(message, field=name)
    stops = network.stops(lon, lat)
    _refuse_far(stops, given, side)
    return stops


def _refuse_far(stops: Stops, given: list[Any], side: str) -> None:
    for number, (place, metres) in enumerate(zip(given, stops.metres.tolist(), strict=True)):
        cutoff = place.get("search_cutoff")
        if cutoff is None:
            continue
        if not _is_number(cutoff):
            raise InvalidRequest(f"{side} {number}: search_cutoff is a number of metres", field="search_cutoff")
        if metres > cutoff:
            message = f"{side} {number}: the nearest vertex is {metres:,.0f} m away, its search_cutoff is {cutoff:g} m"
            raise InvalidRequest(message, field="far")


def _is_number(value: Any) -> bool:
    """Return whether a JSON value is a number below a billion, as coordinates and radii are."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9
