"""Renders templates.  All values are escaped; Jinja is imported with the first page."""

from __future__ import annotations

import functools
import json
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from engine.model.algorithms import ALGORITHMS
from service.name_lists import quote_name
from service.options import JobOptions
from service.units import format_bytes, format_count, format_seconds
from storage.counted import counted
from storage.options import declared
from storage.version import VERSION

if TYPE_CHECKING:
    from jinja2 import Environment

HERE: Final = Path(__file__).parent
#: allows scripts, styles and requests of this service only: no inline script or style, no frame, no plugin
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: headers of every page
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    # pages show private data, which must not remain in caches after the session
    "Cache-Control": "no-store",
}


#: options of the command line that messages name -> labels of the page's fields that mean the same
_FIELDS: Final = {
    "--undirected": "Arcs: both ways", "--directed": "Arcs: one way", "--weight": "Column of the weights",
    "--unweighted": "Count arcs instead of weights", "--length-of": "Lengths as a formula",
    "--also": "Further columns to sum along paths",
    "--labels": "Attribute that names vertices",
}  # fmt: skip
#: options of the command line -> labels: those in ``_FIELDS``, and the labels that the options of a job declare
_SPOKEN: Final = {
    **{f"--{name.replace('_', '-')}": one.label for name, (_, one) in declared(JobOptions).items() if one.label},
    **_FIELDS,
}  # fmt: skip
_OPTION: Final = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(_SPOKEN, reverse=True))})(?![\w-])")
#: the part of a message that says what to install or to type, which a reader of the page cannot do
_INSTALLING: Final = re.compile(r": install apsp\[cuda\].*?--device cpu")
#: an option of the command line, in parentheses, for which the page has no field
_ASIDE: Final = re.compile(r" \(--[\w-]+\)")


def page(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """Render a template.

    In the context, ``visitor`` is the person who requests the page, or None.

    Args:
        request: the HTTP request.
        template: file name of the template.
        status: HTTP status.
        context: variables of the template.
    """
    text = (
        environment()
        .get_template(template)
        .render(path=request.url.path, status=status, version=VERSION, **{"visitor": None, **context})
    )
    return HTMLResponse(text, status_code=status, headers=HEADERS)


def get_ready() -> None:
    """Compile the templates, so that the first page does not wait for that."""
    for name in environment().list_templates():
        environment().get_template(name)


@functools.cache
def environment() -> Environment:
    """Return the Jinja environment: the templates and the filters that they use."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "bytes": format_bytes, "count": format_count, "counted": counted, "seconds": format_seconds,
        "number": _number, "about": _about, "whole": _whole, "sentence": _sentence, "iso": _iso, "moment": _moment,
        "percent": _percent,
        "json": lambda value: json.dumps(value, ensure_ascii=False), "shell": lambda value: shlex.quote(str(value)),
        "quoted": quote_name, "spoken": _spoken, "field": _field,
    }  # fmt: skip
    # Imported here, because it imports NumPy, which would slow the start of the process.
    from storage.readers import FORMATS

    made.globals["formats"] = tuple(FORMATS)
    return made


def _spoken(text: str) -> str:
    """Return a text in which options of the command line have the names of the page's fields, and algorithms their
    titles.
    """
    said = _OPTION.sub(lambda found: f"“{_SPOKEN[found[0]]}”", _INSTALLING.sub("", text))
    said = _ASIDE.sub("", said)
    return _algorithms().sub(lambda found: ALGORITHMS[found[0]].title, said)


def _field(option: str) -> str:
    """Return the label of the field of an option."""
    return _SPOKEN.get(f"--{option.replace('_', '-')}", option.replace("_", " ").capitalize())


@functools.cache
def _algorithms() -> re.Pattern[str]:
    """Return a pattern that matches the names of algorithms except *partitioned*, which is also an ordinary word."""
    names = sorted(ALGORITHMS.keys() - {"partitioned"}, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(names)})(?![\w-])")


def _number(value: float | None) -> str:
    """Return a distance or a weight as people write it; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.7g}"


def _about(value: float | None) -> str:
    """Return a number rounded to about four digits, for axes."""
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _sentence(text: str) -> str:
    """Return a text of the planner as a sentence."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _whole(value: int) -> str:
    return f"{value:,}"


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _moment(seconds: float) -> str:
    """Return a time in UTC; the page's script replaces it by the time in the reader's time zone."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %b %Y, %H:%M UTC")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
