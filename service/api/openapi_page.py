"""``/docs``: the OpenAPI document as a page of this service, on which requests can be tried.

Nothing is loaded from other servers: the page has the style and the scripts of the dashboard.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from markupsafe import Markup, escape

from service.dashboard.render import environment
from storage.version import VERSION

_TITLES: Final = {
    "graphs": "Graphs", "jobs": "Jobs", "results": "Results", "store": "Files of a result", "service": "The service",
}  # fmt: skip
_CODE: Final = re.compile(r"(`{1,2})([^`]+)\1")
#: Media type of the bodies that a reader of the page types; a body of another type is sent from a file.
_TYPED: Final = "application/json"
_Operation = dict[str, Any]


def render(document: dict[str, Any]) -> str:
    """Return the page of an OpenAPI document."""
    from jinja2 import Undefined

    # an OpenAPI document may lack most members, which the template must take for empty
    template = environment().overlay(undefined=Undefined).get_template("api.html")
    return template.render(
        document=document, groups=_groups(document), inline=_inline, path="/docs", version=VERSION,
        visitor=None,
    )  # fmt: skip


def _groups(document: dict[str, Any]) -> list[tuple[str, list[_Operation]]]:
    """Return the operations by subject, in the order of the document."""
    found: dict[str, list[_Operation]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["service"])[0]
            found.setdefault(tag, []).append(_operation(document, path, method, operation))
    return [(_TITLES.get(tag, tag), operations) for tag, operations in found.items()]


def _operation(document: dict[str, Any], path: str, method: str, operation: _Operation) -> _Operation:
    """Return one operation for the template, with answers and refusals in separate lists, and with the content of the
    form on which the operation can be tried.
    """
    answers = operation.get("responses", {})
    body = next(iter((operation.get("requestBody") or {}).get("content", {}).items()), None)
    return {
        **operation, "path": path, "method": method.upper(), "id": operation.get("operationId") or f"{method}{path}",
        "answers": {status: answer for status, answer in answers.items() if not status.startswith(("4", "5"))},
        "refusals": {status: answer for status, answer in answers.items() if status.startswith(("4", "5"))},
        "scopes": [scope for item in operation.get("security") or [] for scopes in item.values() for scope in scopes],
        "body": body, "example": _example(document, body), "types_body": body is not None and body[0] == _TYPED,
        "parameters": operation.get("parameters") or [],
    }  # fmt: skip


def _example(document: dict[str, Any], body: tuple[str, dict[str, Any]] | None) -> str:
    """Return the text with which the body's field on the form begins: the first example of the schema, or nothing."""
    if body is None or body[0] != _TYPED:
        return ""
    schema = body[1].get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return json.dumps((schema.get("examples") or [{}])[0], indent=2, ensure_ascii=False)


def _inline(text: str | None) -> Markup:
    """Return a text of the document in which text between backticks is marked as code; nothing else becomes markup."""
    return Markup(_CODE.sub(r"<code>\2</code>", str(escape(text or ""))))  # noqa: S704 - it was escaped
