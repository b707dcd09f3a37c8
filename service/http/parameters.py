"""Refuses query parameters that would be ignored silently, misspelt ones and repeated ones that take one value, and
texts in place of numbers.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin

from fastapi import Request
from fastapi.routing import APIRoute

from storage.errors import InvalidRequest
from storage.number_texts import decimal_number, whole_number


async def known_parameters(request: Request) -> None:
    """Raise InvalidRequest if a query parameter is unknown, if one that takes a single value is given repeatedly, or if
    one that takes a number is none.

    Pydantic would take ``1_000``, blanks around a number, and ``inf``.
    """
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
        _check_number(name, request.query_params[name], known[name])


def _check_number(name: str, text: str, annotation: Any) -> None:
    kinds = _leaves(annotation)
    if str in kinds or not kinds & {int, float}:
        return
    try:
        decimal_number(text) if float in kinds else whole_number(text)
    except ValueError as error:
        raise InvalidRequest(f"the query parameter {name!r} takes a number: {error}", field=name) from None


def _forms(parameter: Any) -> list[tuple[str, Any]]:
    """Return pairs (name, annotation) of the query parameters that ``parameter`` declares.

    A Pydantic model declares one for each of its fields; any other parameter declares only itself.
    """
    annotation = parameter.field_info.annotation
    fields = getattr(annotation, "model_fields", {parameter.alias: parameter.field_info})
    return [(name, field.annotation) for name, field in fields.items()]


def _leaves(annotation: Any) -> set[Any]:
    """Return the types of which an annotation is composed, such as int and None of ``int | None``."""
    parts = get_args(annotation)
    return {leaf for part in parts for leaf in _leaves(part)} if parts else {annotation}


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))
