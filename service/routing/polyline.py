"""Google's encoded polylines: a sequence of coordinates as a string.  OSRM and Valhalla use them for geometries.

The format is described at developers.google.com/maps/documentation/utilities/polylinealgorithm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storage.errors import InvalidRequest


def encode(lat: Iterable[float], lon: Iterable[float], digits: int = 5) -> str:
    """Return places in degrees as an encoded polyline, with ``digits`` decimal digits."""
    scale, text = 10**digits, list[str]()
    before = (0, 0)
    for place in zip(lat, lon, strict=True):
        now = (round(place[0] * scale), round(place[1] * scale))
        for value, last in zip(now, before, strict=True):
            step = value - last
            rest = ~(step << 1) if step < 0 else step << 1
            while rest >= 0x20:
                text.append(chr((0x20 | (rest & 0x1F)) + 63))
                rest >>= 5
            text.append(chr(rest + 63))
        before = now
    return "".join(text)


def decode(text: str, digits: int = 5) -> list[tuple[float, float]]:
    """Return the places of an encoded polyline, longitude first.  Raises InvalidRequest: the text is no polyline."""
    values, sums, found = _values(text), [0, 0], list[tuple[float, float]]()
    for step in values:
        sums[0] += step
        other = next(values, None)
        if other is None:
            raise InvalidRequest("the polyline ends after a latitude", field="coordinates")
        sums[1] += other
        found.append((sums[1] / 10**digits, sums[0] / 10**digits))
    return found


def _values(text: str) -> Iterator[int]:
    rest, shift = 0, 0
    for letter in text:
        code = ord(letter) - 63
        if not 0 <= code < 64 or shift > 35:
            raise InvalidRequest(f"{letter!r} has no meaning in a polyline", field="coordinates")
        rest |= (code & 0x1F) << shift
        shift += 5
        if code < 0x20:
            yield ~(rest >> 1) if rest & 1 else rest >> 1
            rest = shift = 0
    if shift:
        raise InvalidRequest("the polyline is cut off", field="coordinates")
