"""Reads and writes sizes, counts and durations as people do: ``4GiB``, ``500M``, ``12.3 G``, ``2 h 5 min``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from storage.errors import InvalidRequest

_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "p": 10**15,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
    "pi": 2**50,
}
_SIZE: Final = re.compile(r"\s*+(\d++(?:\.\d*+)?|\.\d++)\s*+([kmgtp]i?)?b?\s*+", re.IGNORECASE | re.ASCII)


def parse_size(text: str, *, field: str) -> int:
    """Return the bytes meant by ``text``: a number and an optional unit, ``M`` = ``MB`` = 10^6, ``MiB`` = 2^20.

    Raises InvalidRequest, naming ``field``, for anything else and for less than one byte.
    """
    match = _SIZE.fullmatch(text)
    if match is None or len(text) > 100:
        raise InvalidRequest(f"{field}: {text!r} is no size; write for example 4GiB, 500M or 1000000", field=field)
    size = int(Decimal(match[1]) * _UNITS[(match[2] or "").lower()])
    if not 1 <= size < 2**63:
        raise InvalidRequest(f"{field}: {text!r} must be at least one byte and below 8 EiB", field=field)
    return size


def format_bytes(size: float) -> str:
    """Return ``size`` in binary units with three digits, such as ``1.50 GiB``."""
    return _scaled(size, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"), " ")


def format_count(count: float) -> str:
    """Return ``count`` in full below 100,000, else in decimal units with three digits, such as ``12.3 G``."""
    if abs(count) < 100_000:
        return f"{count:,.0f}" if count >= 10 or count == int(count) else f"{count:.2g}"
    return _scaled(count, 1000, ("", "k", "M", "G", "T", "P", "E"), " ")


def format_seconds(seconds: float) -> str:
    """Return a duration: ``under 1 ms``, ``0.012 s``, ``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if 0 < seconds < 0.001:
        return "under 1 ms"
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_about(seconds: float) -> str:
    """Return a predicted duration: ``about 0.012 s``, or ``under 1 ms``."""
    text = format_seconds(seconds)
    return text if text.startswith("under") else f"about {text}"


def _scaled(value: float, base: int, units: tuple[str, ...], gap: str) -> str:
    for unit in units:
        if abs(value) < base * 0.9995 or unit == units[-1]:
            break
        value /= base
    if unit == units[0]:
        return f"{value:,.0f}{gap}{unit}".strip()
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f}{gap}{unit}"
