"""Reads definitions of systems of coordinates: well-known text of GeoPackages, and PROJJSON of GeoParquet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from storage.geography.coordinates import LONLAT, PLANE

#: Codes of systems whose coordinates are longitude and latitude on WGS 84.
_DEGREES: Final = frozenset({"EPSG:4326", "EPSG:4979", "OGC:CRS84", "OGC:CRS84H"})
_TOKEN: Final = re.compile(r'\s*+("(?:[^"]|"")*+"|[\w.+-]++|[\[\](),])')
_PROJECTED: Final = frozenset({"PROJCS", "PROJCRS", "PROJECTEDCRS", "ProjectedCRS"})
_ANGULAR: Final = frozenset({"GEOGCS", "GEOGCRS", "GEODCRS", "GEOGRAPHICCRS", "GEODETICCRS", "GeographicCRS"})
#: Keywords of systems that contain another system, as a compound system contains a horizontal one.  The inner system
#: is read.
_OUTER: Final = frozenset({"COMPD_CS", "COMPOUNDCRS", "BOUNDCRS", "SOURCECRS"})
#: Names of projections whose units are not lengths on the ground, unless the name matches _NOT_STRETCHED, too.  In Web
#: Mercator, the projection of most web maps, a metre on the ground at Helsinki is two units.
_STRETCHED: Final = re.compile(r"mercator|equirectangular|equidistant.?cylindrical|plate.?carr", re.IGNORECASE)
_NOT_STRETCHED: Final = re.compile(r"transverse|oblique", re.IGNORECASE)


@dataclass(frozen=True)
class ReferenceSystem:
    """The system of coordinates that a file declares.

    Attributes:
        name: the code and the name, for messages.
        kind: ``lonlat`` (WGS 84) or ``plane``; None for longitudes and latitudes other than those of WGS 84, and for
            unknown systems.
        metres: length of a unit of the plane on the ground in metres; None if it is unknown or varies between places.
    """

    name: str
    kind: str | None
    metres: float | None = None


#: The system of a GeoParquet file that names no system: the standard says longitude and latitude.
DEFAULT: Final = ReferenceSystem("OGC:CRS84", LONLAT)
UNKNOWN: Final = ReferenceSystem("an unknown system of coordinates", None)


@dataclass(frozen=True)
class _Node:
    """A keyword of well-known text, with the content of its brackets."""

    word: str
    values: list[str]
    parts: list[_Node]

    def named(self, *words: str) -> list[_Node]:
        return [part for part in self.parts if part.word in words]


def from_text(code: str, definition: str) -> ReferenceSystem:
    """Return the system that a GeoPackage defines.

    Args:
        code: authority and code, such as ``EPSG:3067``.
        definition: the definition in well-known text, version 1 or 2.
    """
    node = _parsed(definition)
    while node is not None and node.word in _OUTER:
        node = next((part for part in node.parts if part.word in _OUTER | _PROJECTED | _ANGULAR), None)
    called = f" ({node.values[0]})" if node is not None and node.values else ""
    if code.upper() in _DEGREES:
        return ReferenceSystem(f"{code.upper()}{called}", LONLAT)
    if node is None or node.word not in _PROJECTED:
        return ReferenceSystem(f"{code}{called}", None)
    conversions = [part for outer in node.named("CONVERSION") for part in outer.named("METHOD", "PROJECTION")]
    method = " ".join(part.values[0] for part in node.named("PROJECTION") + conversions if part.values)
    units = node.named("UNIT", "LENGTHUNIT")
    units += [unit for axis in node.named("AXIS") for unit in axis.named("UNIT", "LENGTHUNIT")]
    factor = _number(units[0].values[1]) if units and len(units[0].values) > 1 else None
    return ReferenceSystem(f"{code}{called}", PLANE, _on_the_ground(factor, f"{method} {called}"))


def from_json(crs: Any) -> ReferenceSystem:
    """Return the system that PROJJSON defines; ``UNKNOWN`` if it is not understood."""
    while isinstance(crs, dict) and crs.get("type") in ("CompoundCRS", "BoundCRS"):
        parts = crs.get("components") or [None]
        crs = crs.get("source_crs") if crs["type"] == "BoundCRS" else parts[0] if isinstance(parts, list) else None
    if not isinstance(crs, dict):
        return UNKNOWN
    id_ = crs.get("id") if isinstance(crs.get("id"), dict) else {}
    code = f"{id_.get('authority', '')}:{id_.get('code', '')}" if id_ else ""
    name = f"{code} ({crs.get('name', 'without a name')})".strip()
    if code.upper() in _DEGREES:
        return ReferenceSystem(name, LONLAT)
    if crs.get("type") not in _PROJECTED:
        return ReferenceSystem(name, None)
    try:
        method = str(crs["conversion"]["method"]["name"])
        unit = crs["coordinate_system"]["axis"][0]["unit"]
        factor = 1.0 if unit == "metre" else _number(str(unit["conversion_factor"]))
    except (KeyError, TypeError, IndexError):
        return ReferenceSystem(name, PLANE)
    return ReferenceSystem(name, PLANE, _on_the_ground(factor, f"{method} {name}"))


def _on_the_ground(factor: float | None, method: str) -> float | None:
    stretched = _STRETCHED.search(method) and not _NOT_STRETCHED.search(method)
    return None if stretched or factor is None or not 0 < factor < float("inf") else factor


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parsed(text: str) -> _Node | None:
    """Parse well-known text, and return its outermost keyword; None if ``text`` is no well-known text."""
    stack: list[_Node] = []
    word, at = "", 0
    while token := _TOKEN.match(text, at):
        found, at = token[1], token.end()
        if found in "[(":
            stack.append(_Node(word.upper(), [], []))
            word = ""
            continue
        if stack and word:
            stack[-1].values.append(word)
        word = ""
        if found in "])":
            if not stack:
                return None
            node = stack.pop()
            if not stack:
                return node
            stack[-1].parts.append(node)
        elif found != ",":
            word = found.strip('"').replace('""', '"')
    return None
