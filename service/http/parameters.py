"""Refuses unknown query parameters, because a misspelt one would be ignored silently."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute

from storage.errors import InvalidRequest


async def known_parameters(request: Request) -> None:
    """Raise InvalidRequest for an unknown query parameter; the message lists the known ones."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = sorted(name for parameter in route.dependant.query_params for name in _names(parameter))
    for name in request.query_params:
        if name not in known:
            has = f"there are {', '.join(known)}" if known else "there is none here"
            raise InvalidRequest(f"there is no query parameter {name!r}; {has}", field=name)


def _names(parameter: Any) -> list[str]:
    """Return the names of a parameter; a parameter that is a model has several."""
    return list(getattr(parameter.field_info.annotation, "model_fields", (parameter.alias,)))
