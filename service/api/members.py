"""Parses JSON whose objects have no two members of one name."""

from __future__ import annotations

import json
from typing import Any, Final

from service.api.fault import Fault, Refused

#: most characters of a member's name in a message; clients control its length
_LONGEST_NAME: Final = 100


def parse(body: bytes) -> Any:
    """Return a body as JSON types.  Raises Refused where an object has two members of one name.

    Python's parser would keep only the last of these members, and the answer would silently ignore the others.
    """
    return json.loads(body, object_pairs_hook=_members)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            shown = name[:_LONGEST_NAME]
            raise Refused(Fault("invalid-request", f"the body has the member {shown!r} twice", {"field": shown}))
        members[name] = value
    return members
