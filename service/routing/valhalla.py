"""Valhalla's matrix service, ``/sources_to_targets``.

Source: the documentation of Valhalla, valhalla.github.io/valhalla/api/matrix/api-reference.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

import numpy as np

from service.routing.network import Floats, RoutingNetwork, Stops
from service.routing.osrm import MOST_PLACES, Answer
from storage.errors import ApspError, InvalidRequest, LimitExceeded
from storage.geography.coordinates import wrong_degrees

#: Metres in the units of a request.
_UNITS: Final = {"km": 1000.0, "kilometers": 1000.0, "mi": 1609.344, "miles": 1609.344}
#: Parameters that close parts of the network, which an answer may not pass over.
_AROUND: Final = (
    "exclude_locations", "exclude_polygons", "exclude_levels", "avoid_locations", "avoid_polygons",
)  # fmt: skip
#: Valhalla's numbers of errors: no such path, no JSON, no sources or targets, too many places, anything else.
NO_PATH: Final = 106
_NO_JSON, _NO_PLACES, _TOO_MANY, _OTHER = 100, 112, 150, 199


class Valhalla:
    """Answers requests of Valhalla over a network; each method returns a status and a JSON object."""

    def __init__(self, network: RoutingNetwork) -> None:
        self._network = network

    def answer(self, body: bytes) -> tuple[int, Answer]:
        """Answer one request, given as a JSON object; what is not known is +inf."""
        try:
            asked = json.loads(body)
            if not isinstance(asked, dict):
                raise TypeError
        except (ValueError, TypeError, RecursionError):
            return refused(400, _NO_JSON, "the request is no JSON object")
        try:
            return 200, self._matrix(asked)
        except LimitExceeded as error:
            return refused(400, _TOO_MANY, str(error))
        except InvalidRequest as error:
            return refused(400, _NO_PLACES if error.field in ("sources", "targets") else _OTHER, str(error))
        except ApspError as error:
            return refused(500, _OTHER, str(error))

    def _matrix(self, asked: Answer) -> Answer:
        unit = asked.get("units", "kilometers")
        if not isinstance(unit, str) or unit not in _UNITS:
            raise InvalidRequest(f"units are {', '.join(_UNITS)}", field="units")
        sources, targets = (self._places(asked.get(side), side) for side in ("sources", "targets"))
        for name in _AROUND:
            if asked.get(name):
                raise InvalidRequest(f"{name} is not supported: what is closed is part of the network", field=name)
        found = self._network.table(sources, targets)
        times = self._network.seconds(found) if self._network.tells_time else np.full(found.shape, np.inf)
        seconds = _whole(times)
        lengths = np.round(self._network.metres(sources, targets, found) / _UNITS[unit], 3)
        made: Answer = {"units": "miles" if unit in ("mi", "miles") else "kilometers"}
        made["sources"], made["targets"] = [_listed(sources)], [_listed(targets)]
        if asked.get("verbose", True):
            made["sources_to_targets"] = [
                [
                    {"distance": length, "time": time, "from_index": i, "to_index": j}
                    for j, (length, time) in enumerate(zip(*pair, strict=True))
                ]
                for i, pair in enumerate(zip(lengths.tolist(), seconds, strict=True))
            ]
        else:
            made["sources_to_targets"] = {"distances": lengths, "durations": seconds}
        if isinstance(asked.get("id"), str):
            made["id"] = asked["id"][:200]
        return made

    def _places(self, given: Any, side: str) -> Stops:
        if not isinstance(given, list) or not given:
            raise InvalidRequest(f"{side} must be a list of places with lat and lon", field=side)
        if len(given) > MOST_PLACES:
            message = f"{len(given):,} {side}, more than the {MOST_PLACES:,} of a request"
            raise LimitExceeded(message, limit=MOST_PLACES, requested=len(given), setting=side)
        lon, lat = np.empty(len(given)), np.empty(len(given))
        for number, place in enumerate(given):
            values = [place.get("lon"), place.get("lat")] if isinstance(place, dict) else [None]
            if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
                raise InvalidRequest(f"{side} {number} has no numbers lat and lon", field=side)
            lon[number], lat[number] = values
            wrong = wrong_degrees(float(lon[number]), float(lat[number]))
            if wrong:
                raise InvalidRequest(f"{side} {number}: {wrong}", field=side)
        return self._network.stops(lon, lat)


def _whole(times: Floats) -> list[list[int | None]]:
    """Return times as whole seconds, which clients in C++ rely on; None where there is no way."""
    rows = np.rint(np.where(np.isfinite(times), times, -1)).astype(np.int64).tolist()
    return [[None if time < 0 else time for time in row] for row in rows]


def _listed(stops: Stops) -> list[Answer]:
    return [{"lon": lon, "lat": lat} for lon, lat in zip(stops.lon.tolist(), stops.lat.tolist(), strict=True)]


def refused(status: int, number: int, message: str) -> tuple[int, Answer]:
    """Return a status and an error of Valhalla with one of its numbers."""
    about = {"error_code": number, "error": message, "status_code": status, "status": HTTPStatus(status).phrase}
    return status, about
