"""``/docs``: the OpenAPI document as one plain page, made here: nothing is loaded from elsewhere and no script runs."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from typing import Any, Final

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1b1f24;background:#fff}
code,pre{font:14px/1.4 ui-monospace,monospace;background:#f2f4f6}pre{padding:.7rem;overflow-x:auto}
h2{margin-top:2.5rem;border-bottom:1px solid #d5dadf}h3 code{background:none;font-size:1.05rem}
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#e4e7ea;background:#15181b}code,pre{background:#22272c}}
"""
#: nothing but the style above is allowed
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def render(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    info = document["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('summary', ''))}. "
        "The same for programs: <a href=openapi.json>openapi.json</a>.</p>"
    ]
    if "securitySchemes" in document["components"]:
        parts.append("<p>Every request below <code>/v1</code> needs <code>Authorization: Bearer KEY</code>.</p>")
    parts.append("<h2>Requests</h2>")
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts += _operation(path, method.upper(), operation)
    parts.append("<h2>Forms</h2>")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += _schema(name, schema)
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h3 id='{escape(operation['operationId'])}'><code>{method} {escape(path)}</code></h3>"
    scopes = [scope for item in operation.get("security", []) for found in item.values() for scope in found]
    needs = f" Scope: <code>{escape(', '.join(scopes))}</code>." if scopes else ""
    yield f"<p>{escape(operation.get('description', ''))}{needs}</p>"
    if found := operation.get("parameters"):
        yield "<table><tr><th>parameter<th>in<th>type<th>meaning"
        for item in found:
            name = f"<code>{escape(item['name'])}</code>{'*' if item.get('required') else ''}"
            text = escape(item.get("description", ""))
            yield f"<tr><td>{name}<td>{item['in']}<td>{_type(item['schema'])}<td>{text}"
        yield "</table>"
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: <code>{escape(media_type)}</code>, {_type(content.get('schema', {}))}</p>"
    yield "<table><tr><th>status<th>answer<th>form"
    for status, answer in operation["responses"].items():
        forms = [f"<code>{escape(m)}</code> {_type(c.get('schema', {}))}" for m, c in answer.get("content", {}).items()]
        yield f"<tr><td>{status}<td>{escape(answer['description'])}<td>{'<br>'.join(forms)}"
    yield "</table>"


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"<h3 id='form-{escape(name)}'>{escape(name)}</h3><p>{escape(schema.get('description', ''))}</p>"
    required = schema.get("required", [])
    yield "<table><tr><th>member<th>type<th>meaning"
    for member, item in schema.get("properties", {}).items():
        mark = "*" if member in required else ""
        text = escape(item.get("description", ""))
        yield f"<tr><td><code>{escape(member)}</code>{mark}<td>{_type(item)}<td>{text}"
    yield "</table>"
    for example in schema.get("examples", []):
        yield f"<pre>{escape(json.dumps(example, indent=2, ensure_ascii=False))}</pre>"


def _type(schema: dict[str, Any]) -> str:
    """A short word for a schema, with a link where it has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#form-{name}'>{name}</a>"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(item) for item in schema[key]))
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    return escape(str(schema.get("format") or schema.get("type") or ""))
