"""Valhalla's services: the matrix, ``/sources_to_targets``, and the route, ``/route``.

Source: the documentation of Valhalla, valhalla.github.io/valhalla/api/matrix/api-reference.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import numpy as np

from service.api.fault import Refused
from service.api.members import parse
from service.routing.network import Floats, RoutingNetwork, Stops
from service.routing.osrm_objects import Answer
from service.routing.valhalla_request import as_text, places, refuse_unknown, unit_of
from service.routing.valhalla_route import route
from storage.errors import ApspError, InvalidRequest, LimitExceeded

#: The services of Valhalla that are answered.
SERVICES: Final = ("sources_to_targets", "route")
#: Valhalla's error codes: 106 for no service at this path of the URL, 100 for no JSON, 150 for too many places, and 199
#: for any other error.
NO_PATH: Final = 106
_NO_JSON, _TOO_MANY, _OTHER = 100, 150, 199
#: Valhalla's error codes, by the field that an InvalidRequest names.
_NUMBERS: Final = {"locations": 110, "sources": 112, "targets": 112, "far": 171, "path": 442}


class Valhalla:
    """Answers requests of Valhalla over a network; each method returns a status and a JSON object."""

    def __init__(self, network: RoutingNetwork) -> None:
        self._network = network

    def answer(self, service: str, body: bytes) -> tuple[int, Answer]:
        """Answer one request; unknown values in the answer are +inf or None.

        Args:
            service: ``route`` or ``sources_to_targets``.
            body: the request, a JSON object.
        """
        try:
            asked = parse(body)
            if not isinstance(asked, dict):
                raise TypeError
        except Refused as error:
            return refused(400, _NO_JSON, str(error))
        except (ValueError, TypeError, RecursionError):
            return refused(400, _NO_JSON, "the request is no JSON object")
        try:
            return 200, route(self._network, asked) if service == "route" else self._matrix(asked)
        except LimitExceeded as error:
            return refused(400, _TOO_MANY, str(error))
        except InvalidRequest as error:
            return refused(400, _NUMBERS.get(error.field or "", _OTHER), str(error))
        except ApspError as error:
            return refused(500, _OTHER, str(error))

    def _matrix(self, asked: Answer) -> Answer:
        unit, named = unit_of(asked)
        sources, targets = (places(self._network, asked.get(side), side) for side in ("sources", "targets"))
        refuse_unknown(self._network, asked)
        found = self._network.table(sources, targets)
        times = self._network.seconds(found) if self._network.tells_time else np.full(found.shape, np.inf)
        seconds = _whole(times)
        lengths = np.round(self._network.metres(sources, targets, found) / unit, 3)
        made: Answer = {"units": named}
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
            made["id"] = as_text(asked["id"])
        return made


def _whole(times: Floats) -> list[list[int | None]]:
    """Return times as whole seconds, which clients in C++ rely on; None where there is no way."""
    rows = np.rint(np.where(np.isfinite(times), times, -1)).astype(np.int64).tolist()
    return [[None if time < 0 else time for time in row] for row in rows]


def _listed(stops: Stops) -> list[Answer]:
    return [{"lon": lon, "lat": lat} for lon, lat in zip(stops.lon.tolist(), stops.lat.tolist(), strict=True)]


def refused(status: int, number: int, message: str) -> tuple[int, Answer]:
    """Return an HTTP status, and an error in Valhalla's form; ``number`` is its error code."""
    about = {"error_code": number, "error": message, "status_code": status, "status": HTTPStatus(status).phrase}
    return status, about
