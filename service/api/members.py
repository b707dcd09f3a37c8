"""Parses JSON, and refuses two members of one name in an object, and numbers that float64 would take for 0."""

from __future__ import annotations

import json
from typing import Any, Final

from service.api.fault import Fault, Refused
from storage.number_texts import TOO_SMALL, vanishes

#: most characters of a member's name in a message; clients control its length
_LONGEST_NAME: Final = 100
#: Most characters of a number in a message.
_LONGEST_NUMBER: Final = 40


def parse(body: bytes) -> Any:
    """Return a body as JSON types.

    Python's parser would keep only the last of two members of one name, and the answer would silently ignore the
    others; and it would return 0 for a number too small for float64.

    Raises:
        Refused: an object has two members of one name, or float64 would take a number for 0.
    """
    return json.loads(body, object_pairs_hook=_members, parse_float=_number)


def _number(text: str) -> float:
    found = float(text)
    if vanishes(text, found):
        shown = text if len(text) <= _LONGEST_NUMBER else f"{text[:_LONGEST_NUMBER]}..."
        raise Refused(Fault("invalid-request", f"the number {shown} in the body {TOO_SMALL}: write 0 if that is meant"))
    return found


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            shown = name[:_LONGEST_NAME]
            raise Refused(Fault("invalid-request", f"the body has the member {shown!r} twice", {"field": shown}))
        members[name] = value
    return members
