"""Which ways of OpenStreetMap a person may use on foot, by bicycle or by car, in which directions, and how fast.

The rules follow the pages *Key:highway*, *Key:access*, *Key:oneway* and *Key:barrier* of the OpenStreetMap wiki; the
speeds are typical of route planners.  ``docs/formats.md`` describes rules and speeds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_ROADS: Final = ("primary", "secondary", "tertiary", "unclassified", "residential", "road", "service")
_LINKS: Final = ("primary_link", "secondary_link", "tertiary_link")
#: Values of access tags that allow (_OPEN) or forbid (_CLOSED) the use of a way or the passing of a barrier; a tag with
#: any other value is ignored.
_OPEN: Final = frozenset({"yes", "designated", "permissive", "official", "destination", "customers"})
_CLOSED: Final = frozenset(
    {"no", "private", "agricultural", "forestry", "delivery", "emergency", "military", "permit", "psv", "bus"}
    | {"use_sidepath", "dismount", "discouraged"}
)
#: Values of ``service`` for roads without through traffic, as in car parks; mode ``driving`` does not use them.
_CUL_DE_SACS: Final = frozenset({"parking_aisle", "drive-through", "emergency_access"})
_FORWARD: Final = frozenset({"yes", "true", "1"})
_BACKWARD: Final = frozenset({"-1", "reverse"})
_TURNED: Final = frozenset({"reversible", "alternating"})
_LIMIT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,2})?)\s?(km/h|mph|knots)?")
_KILOMETRES: Final = {None: 1.0, "": 1.0, "km/h": 1.0, "mph": 1.609344, "knots": 1.852}
#: The speed limit in kilometres an hour for each word that ``maxspeed`` may have in place of a number.
_WORDS: Final = {"walk": 6.0, "none": 130.0}
#: Smallest and largest plausible speed limits, in kilometres an hour; a limit outside of them is ignored.
_LEAST_LIMIT: Final = 5.0
_MOST_LIMIT: Final = 150.0


@dataclass(frozen=True)
class TravelMode:
    """The rules for somebody on foot, on a bicycle or in a car.

    Attributes:
        name: name of the mode.
        open: the speed in kilometres an hour on each kind of way (value of ``highway``) that may be used unless a tag
            forbids it.
        told: the speed on each kind of way that may be used only if a tag allows it.
        access: the tags that allow or forbid use; the first of these tags with a known value decides.
        barriers: kinds of barriers that stop the traveller unless a tag allows passage.
        directed: whether the traveller must obey one-way streets, so that the network is directed.
        limits: whether the speed limit of a way (tag ``maxspeed``) replaces the speed of its kind in ``open``.
    """

    name: str
    open: Mapping[str, float]
    told: Mapping[str, float]
    access: tuple[str, ...]
    barriers: frozenset[str]
    directed: bool
    limits: bool = False

    def speed(self, tags: Mapping[str, str]) -> float:
        """Return the speed on a way with ``tags``, in kilometres an hour; 0 if the way cannot be used."""
        kind = tags.get("highway", "")
        told = self._told(tags)
        if told is False or tags.get("area") == "yes":
            return 0.0
        if kind in self.open:
            if told is None and tags.get("motorroad") == "yes" and not self.limits:
                return 0.0
            if self.limits and tags.get("service") in _CUL_DE_SACS:
                return 0.0
            return self._limit(tags) or self.open[kind]
        return self.told.get(kind, 0.0) if told else 0.0

    def directions(self, tags: Mapping[str, str]) -> tuple[bool, bool]:
        """Return whether a way with ``tags`` may be used in the direction in which it is drawn, and whether in the
        opposite direction.
        """
        if not self.directed:
            return True, True
        value = tags.get("oneway")
        if self.name == "cycling":
            own = tags.get("oneway:bicycle")
            against = any(tags.get(key, "").startswith("opposite") for key in _CYCLEWAYS)
            value = own if own is not None else "no" if against else value
        if value in _FORWARD:
            return True, False
        if value in _BACKWARD:
            return False, True
        if value in _TURNED:
            return False, False
        implied = tags.get("highway") == "motorway" or tags.get("junction") in ("roundabout", "circular")
        return True, not (value is None and implied)

    def stops(self, tags: Mapping[str, str]) -> bool:
        """Return whether a node with ``tags`` stops the traveller."""
        kind = tags.get("barrier")
        if kind is None:
            return False
        told = self._told(tags)
        return kind in self.barriers if told is None else not told

    def _told(self, tags: Mapping[str, str]) -> bool | None:
        """Return True if access tags allow the use of a way or barrier, False if they forbid it; None if they say
        nothing.
        """
        for key in self.access:
            value = tags.get(key)
            if value in _CLOSED:
                return False
            if value in _OPEN:
                return True
        return None

    def _limit(self, tags: Mapping[str, str]) -> float:
        """Return the speed limit in kilometres an hour; 0 if there is none, or if it cannot be read."""
        if not self.limits:
            return 0.0
        text = tags.get("maxspeed", "").strip().lower()
        if text in _WORDS:
            return _WORDS[text]
        found = _LIMIT.fullmatch(text)
        limit = float(found[1]) * _KILOMETRES[found[2]] if found else 0.0
        return limit if _LEAST_LIMIT <= limit <= _MOST_LIMIT else 0.0


_CYCLEWAYS: Final = ("cycleway", "cycleway:left", "cycleway:right", "cycleway:both")
_NARROW: Final = frozenset({"stile", "kissing_gate", "turnstile", "full-height_turnstile", "horse_stile"})
_AT_CARS: Final = _NARROW | {
    *("bollard", "block", "jersey_barrier", "chain", "cycle_barrier", "planter", "log", "debris", "barrier_board"),
    *("motorcycle_barrier", "bus_trap"),
}

MODES: Final[Mapping[str, TravelMode]] = MappingProxyType(
    {
        "walking": TravelMode(
            name="walking",
            open={
                **dict.fromkeys((*_ROADS, *_LINKS, "trunk", "trunk_link", "living_street", "track"), 5.0),
                **dict.fromkeys(("footway", "path", "pedestrian", "corridor"), 5.0),
                "steps": 2.5,
            },
            told=dict.fromkeys(("cycleway", "bridleway"), 5.0),
            access=("foot", "access"),
            barriers=frozenset(),
            directed=False,
        ),
        "cycling": TravelMode(
            name="cycling",
            open={
                **dict.fromkeys((*_ROADS, *_LINKS), 16.0),
                **{"cycleway": 18.0, "living_street": 10.0, "track": 12.0, "path": 12.0},
            },
            told={
                **dict.fromkeys(("trunk", "trunk_link"), 16.0),
                **dict.fromkeys(("footway", "pedestrian", "bridleway"), 10.0),
            },
            access=("bicycle", "vehicle", "access"),
            barriers=_NARROW,
            directed=True,
        ),
        "driving": TravelMode(
            name="driving",
            open={
                **{"motorway": 110.0, "trunk": 85.0, "primary": 65.0, "secondary": 55.0, "tertiary": 45.0},
                **{"motorway_link": 60.0, "trunk_link": 50.0, "primary_link": 45.0, "secondary_link": 40.0},
                **{"tertiary_link": 35.0, "unclassified": 40.0, "residential": 30.0, "road": 30.0},
                **{"living_street": 10.0, "service": 15.0},
            },
            told={"track": 15.0, "pedestrian": 10.0},
            access=("motorcar", "motor_vehicle", "vehicle", "access"),
            barriers=_AT_CARS,
            directed=True,
            limits=True,
        ),
    }
)
