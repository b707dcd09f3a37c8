"""Refuses query parameters that would be ignored silently: misspelt ones, and repeated ones that take one value."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from fastapi import Request
from fastapi.routing import APIRoute

from storage.errors import InvalidRequest


async def known_parameters(request: Request) -> None:
    """Raise InvalidRequest if a query parameter is unknown, or if one that takes a single value is given repeatedly."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = dict(sorted(entry for parameter in route.dependant.query_params for entry in _forms(parameter)))
    given = [name for name, _ in request.query_params.multi_items()]
    for name in request.query_params:
        if name not in known:
            has = f"there are {', '.join(known)}" if known else "there is none here"
            raise InvalidRequest(f"there is no query parameter {name!r}; {has}", field=name)
        if given.count(name) > 1 and not _is_list(known[name]):
            raise InvalidRequest(f"the query parameter {name!r} is given twice, and takes one value", field=name)


def _forms(parameter: Any) -> list[tuple[str, Any]]:
    """Return pairs (name, annotation) of the query parameters that ``parameter`` declares.

    A Pydantic model declares one for each of its fields; any other parameter declares only itself.
    """
    annotation = parameter.field_info.annotation
    fields = getattr(annotation, "model_fields", {parameter.alias: parameter.field_info})
    return [(name, field.annotation) for name, field in fields.items()]


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))
