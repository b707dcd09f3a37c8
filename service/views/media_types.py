"""Selects the representation of rows: by ``format=``, else by the Accept header (RFC 9110, 12.5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from service.api.fault import NotAcceptable

MEDIA_TYPES: Final = {
    "json": "application/json",
    "csv": "text/csv",
    "npy": "application/x-npy",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}

#: punctuation that stays unchanged when a unit is put into a header, as letters and digits do; all else is
#: percent-encoded
_SAFE: Final = " !#$&'()*+,/:;=?@[]^_`{|}~-."

#: the formats of answers that are tables, and their media types
TABLE_TYPES: Final = {name: kind for name, kind in MEDIA_TYPES.items() if name != "npy"}


def choose_format(asked: str | None, accept: str | None, offered: Mapping[str, str] = MEDIA_TYPES) -> str:
    """Select the name of a format.

    Args:
        asked: the name that was asked for; it takes precedence over the header.
        accept: the Accept header.
        offered: media types by name.

    Raises:
        NotAcceptable: the header allows no supported type; the message lists them.
    """
    if asked is not None:
        return asked
    best, best_rank = None, (0.0, 0)
    for name, media_type in offered.items():
        rank = _rank(media_type, accept or "*/*")
        if rank > best_rank:
            best, best_rank = name, rank
    if best is None:
        there = ", ".join(offered.values())
        raise NotAcceptable(f"Accept: {accept} leaves nothing; there are {there}", field="Accept")
    return best


def _rank(media_type: str, accept: str) -> tuple[float, int]:
    """Return the q-value that the Accept header gives a media type, and how specific the matching media range is.

    If several ranges match, such as ``text/*`` and ``text/csv``, the most specific one counts.
    """
    found = (0.0, 0)
    family = media_type.partition("/")[0]
    for item in accept.split(","):
        pattern, *parameters = (part.strip().lower() for part in item.split(";"))
        exactness = {media_type: 3, f"{family}/*": 2, "*/*": 1}.get(pattern, 0)
        if exactness > found[1]:
            found = (_quality(parameters), exactness)
    return found if found[0] > 0 else (0.0, 0)


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def unit_headers(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the header that names the unit of an answer, for formats that have no place for it.

    Args:
        metadata: what ``storage.graph.units.unit_metadata`` returns.  ``distance_unit`` becomes ``Distance-Unit``, and
            characters that are not ASCII are percent-encoded.
    """
    return {name.replace("_", "-").title(): quote(unit, safe=_SAFE) for name, unit in metadata.items()}
