"""``/docs``: the OpenAPI document as one plain page; nothing is loaded from elsewhere, and no script runs."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Any, Final

from service.dashboard.render import environment

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
    """Return the page of an OpenAPI document."""
    from jinja2 import Undefined

    # most members of an OpenAPI document may be left out
    template = environment().overlay(undefined=Undefined).get_template("api.html")
    return template.render(document=document, style=_STYLE)
