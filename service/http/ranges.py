"""Range and conditional requests (RFC 9110, sections 13 and 14) as pure functions over headers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final

from service.api.fault import Fault

#: the most ranges in one request
MAX_RANGES: Final = 100
_ITEM: Final = re.compile(r"([0-9]*)-([0-9]*)")


@dataclass(frozen=True)
class ByteRange:
    """Bytes ``begin`` to ``end - 1`` of a file."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.begin

    def of(self, size: int) -> str:
        """Return the value of Content-Range in a file of ``size`` bytes."""
        return f"bytes {self.begin}-{self.end - 1}/{size}"


@dataclass(frozen=True)
class Refusal:
    """The refusal of a malformed range (status 400), or of a range outside the file (416)."""

    status: int
    fault: Fault


def parse_ranges(header: str | None, size: int) -> tuple[ByteRange, ...] | Refusal | None:
    """Return the parts of a file of ``size`` bytes that a Range header names, in the order of the header.

    Returns:
        The parts; parts outside the file are left out.  None means the whole file: there is no header, its unit is not
        bytes, or its parts together are larger than the file (they overlap).  A Refusal if the header is malformed or
        no part lies inside the file, because sending the whole file, perhaps gigabytes, instead would not help the
        client.
    """
    unit, equals, value = (header or "").partition("=")
    if header is None or unit.strip().lower() != "bytes":
        return None
    items = [item.strip(" \t") for item in value.split(",")]
    if not equals or len(items) > MAX_RANGES:
        return _malformed(f"at most {MAX_RANGES} ranges go in one request" if equals else "there is no '=' in it")
    parts = []
    for item in filter(None, items):
        match = _ITEM.fullmatch(item)
        if match is None or item == "-" or len(item) > 40:
            return _malformed(f"{item[:40]!r} is no range of bytes")
        first, last = match.groups()
        if first and last and int(last) < int(first):
            return _malformed(f"{item!r} ends before it begins")
        if first:
            part = ByteRange(int(first), min(int(last) + 1, size) if last else size)
        else:
            part = ByteRange(max(0, size - int(last)), size)
        if part.size > 0 and part.begin < size:
            parts.append(part)
    if not parts:
        if not any(items):
            return _malformed("it names no range")
        message = f"no part of the range lies inside the file, which has {size} bytes"
        return Refusal(416, Fault("range-not-satisfiable", message, {"size": size}))
    return None if len(parts) > 1 and sum(part.size for part in parts) > size else tuple(parts)


def matches(header: str, etag: str) -> bool:
    """Return whether an If-None-Match header names this (strong) entity tag, or any."""
    if header.strip() == "*":
        return True
    return etag in {item.strip().removeprefix("W/") for item in header.split(",")}


def unchanged(header: str | None, etag: str, modified: str) -> bool:
    """Return whether to obey a Range header: there is no If-Range header, or it names the present file.

    Args:
        header: the If-Range header; None if there is none.
        etag: the file's entity tag.
        modified: the file's Last-Modified header.
    """
    return header is None or header.strip() in (etag, modified)


def http_date(seconds: float) -> str:
    """Return a time, in seconds since 1970, in the form of HTTP headers."""
    return formatdate(seconds, usegmt=True)


def _malformed(why: str) -> Refusal:
    return Refusal(400, Fault("invalid-request", f"Range cannot be understood: {why}", {"field": "Range"}))
