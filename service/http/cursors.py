"""Makes and reads cursors, opaque texts in the Link header (RFC 8288) that say where the next page of a list begins."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from fastapi import Request

from storage.errors import InvalidRequest

_LONGEST_ID: Final = 100


def encode(*values: float | str) -> str:
    """Return the sort key of the last item of a page, encoded for a URL."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def is_plain(text: str) -> bool:
    """Return whether a text can be the id in a cursor; not every database accepts lone surrogates or NUL."""
    return len(text) <= _LONGEST_ID and text.isascii() and text.isprintable()


def decode(cursor: str) -> tuple[float, str]:
    """Return the inverse of ``encode(number, text)``.  Raises InvalidRequest for any other text."""
    match _decoded(cursor):
        case [int() | float() as number, str() as text] if (
            not isinstance(number, bool) and 0 <= number < 1e12 and is_plain(text)
        ):
            return float(number), text
    raise _unknown()


def decode_id(cursor: str) -> str:
    """Return the inverse of ``encode(text)``.  Raises InvalidRequest for any other text."""
    match _decoded(cursor):
        case [str() as text] if is_plain(text):
            return text
    raise _unknown()


def _decoded(cursor: str) -> Any:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise _unknown() from None


def _unknown() -> InvalidRequest:
    return InvalidRequest("the cursor does not come from a list", field="cursor")


def following(request: Request, **parameters: str) -> str:
    """Return the URL path and query of the next page of a list."""
    url = request.url.include_query_params(**parameters)
    return f"{url.path}?{url.query}"
