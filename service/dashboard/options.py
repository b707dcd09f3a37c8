"""The options of a job as fields of a form, and their translation into a request of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from engine.model.algorithms import ALGORITHMS
from service.api.fault import Fault, fault_of
from service.api.schemas.jobs import JobRequest
from service.cli.names import split_names
from service.units import parse_size
from storage.errors import InvalidRequest


@dataclass(frozen=True)
class Field:
    """One option: its name in the API, its label, its help, and its choices if there is a list of them."""

    name: str
    label: str
    help: str
    choices: tuple[tuple[str, str], ...] = ()
    hint: str = ""


FIELDS: Final = (
    Field("sources", "From", "Rows of the matrix. Vertices as the file names them, with commas.", hint="every vertex"),
    Field("targets", "To", "Columns of the matrix. Vertices as the file names them, with commas.", hint="every vertex"),
    Field("cutoff", "No farther than", "Longer distances count as no path.", hint="no limit"),
    Field("max_hops", "At most so many arcs a path", "Counts arcs, not weights.", hint="no limit"),
    Field("dtype", "Numbers are kept as", "The narrowest type that is exact is taken unless you say otherwise.", (
        ("auto", "whatever is exact and smallest"), ("uint16", "16-bit integers"), ("int32", "32-bit integers"),
        ("float32", "32-bit floats"), ("float64", "64-bit floats"),
    )),
    Field("device", "Solve on", "The faster one is taken unless you say otherwise.", (
        ("auto", "whatever is faster"), ("cpu", "the processors"), ("cuda", "a GPU"),
    )),
    Field("algorithm", "Algorithm", "The plan below says which one is fastest, and why.", (
        ("auto", "the fastest"), *((name, one.title) for name, one in ALGORITHMS.items()),
    )),
    Field("memory", "Memory at most", "Of the host, such as 4GiB.", hint="what is free"),
    Field("priority", "Priority", "From -100 to 100; higher goes first.", hint="0"),
    Field("name", "Name of the job", "To find it again.", hint="the graph's name"),
)  # fmt: skip

#: the most characters of an option that is not a list
_LONGEST: Final = 1000


@dataclass(frozen=True)
class FormOptions:
    """A filled-in form and the request that it means; ``fault`` describes an invalid field."""

    filled: dict[str, str]
    request: JobRequest | None
    fault: Fault | None = None


def read_options(graph_id: str, values: Mapping[str, str]) -> FormOptions:
    """The request that a filled-in form means."""
    filled = {field.name: values.get(field.name, "").strip() for field in FIELDS}
    filled["fresh"] = "true" if values.get("fresh") else ""
    try:
        members = {name: _value(name, text) for name, text in filled.items() if text}
        return FormOptions(filled, JobRequest.model_validate({"graph": graph_id, **members}))
    except InvalidRequest as error:
        return FormOptions(filled, None, fault_of(error))
    except ValidationError as error:
        first = error.errors()[0]
        label = next((field.label for field in FIELDS if first["loc"][:1] == (field.name,)), str(first["loc"]))
        message = f"{label}: {first['msg'][0].lower()}{first['msg'][1:]}"
        return FormOptions(filled, None, Fault("invalid-request", message, {"field": str(first["loc"][0])}))


def _value(name: str, text: str) -> Any:
    if name in ("sources", "targets"):  # the limit on the body bounds their number
        return split_names([text], name)
    if len(text) > _LONGEST:
        label = next(field.label for field in FIELDS if field.name == name)
        raise InvalidRequest(f"{label}: {len(text):,} characters, at most {_LONGEST:,} are read", field=name)
    if name == "memory":
        return parse_size(text, field="memory")
    if name == "fresh":
        return True
    if name not in ("cutoff", "max_hops", "priority"):
        return text
    label = next(field.label for field in FIELDS if field.name == name)
    try:
        return float(text) if name == "cutoff" else int(text)
    except ValueError:
        raise InvalidRequest(f"{label}: {text[:40]!r} is no number", field=name) from None
