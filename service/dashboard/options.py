"""Makes the fields of a form from the options of a job, and an API request from a filled-in form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import ValidationError

from engine.model.algorithms import ALGORITHMS
from service.api.fault import Fault, fault_of
from service.api.schemas.jobs import JobRequest
from service.name_lists import split_names
from service.options import ClientOptions, Numbers, Size, Vertices, Words
from service.pool.tabled import TAKES
from service.units import parse_size
from storage.errors import InvalidRequest
from storage.number_texts import decimal_number, whole_number
from storage.options import declared


@dataclass(frozen=True)
class Field:
    """One field of the form.

    Attributes:
        name: the option's name in the API.
        label, help, hint: the text beside the field, below it, and inside it while it is empty.
        choices: the values to select from, with their names; empty for other fields.
        results: the kinds of result that have this option; empty for all.
        holds: what a file that fills the field holds, such as ``demands``; empty if the field takes no file.
    """

    name: str
    label: str
    help: str
    choices: tuple[tuple[str, str], ...] = ()
    hint: str = ""
    results: tuple[str, ...] = ()
    holds: str = ""


#: the options on the form, in the order in which people fill them in
_SHOWN: Final = (
    "result", "sources", "targets", "cutoff", "also", "semiring", "measures", "direction", "within", "quantiles",
    "nearest", "opportunities", "decay", "decay_value", "prepared", "demands", "flow", "of", "raw",
    "max_hops", "dtype", "device", "algorithm", "memory", "priority", "name",
)  # fmt: skip
#: options that name an uploaded table
_TABLES: Final = frozenset({"opportunities", "demands"})
#: options that only a matrix has
_OF_MATRIX: Final = frozenset({"also", "semiring"})
_OPTIONS: Final = declared(ClientOptions)


def _field(name: str) -> Field:
    kind, option = _OPTIONS[name]
    titles = {algorithm.name: algorithm.title for algorithm in ALGORITHMS.values()} if name == "algorithm" else {}
    choices = {choice: choice for choice in get_args(kind) if isinstance(choice, str)} | {**option.titles} | titles
    results = ("matrix",) if name in _OF_MATRIX else tuple(one for one, names in TAKES.items() if name in names)
    holds = name if name in _TABLES else ""
    return Field(name, option.label, option.in_form, tuple(choices.items()), option.hint, results, holds)


FIELDS: Final = tuple(map(_field, _SHOWN))

#: the most characters of an option that is not a list
_LONGEST: Final = 1000


@dataclass(frozen=True)
class FormOptions:
    """A filled-in form and the request that it means; ``fault`` describes an invalid field."""

    filled: dict[str, str]
    request: JobRequest | None
    fault: Fault | None = None


def read_options(graph_id: str, values: Mapping[str, str]) -> FormOptions:
    """Return the request that a filled-in form means."""
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
    """Return the value that the text of a field means: a list, a size or a number, else the text itself."""
    kind, option = _OPTIONS[name]
    if kind == Vertices:  # the limit on the size of a body bounds the number of vertices
        return split_names([text], name)
    if kind == Words:
        return split_names([text], name)
    if kind == Numbers:
        return [_number(name, place, decimal_number) for place in split_names([text], name)]
    if len(text) > _LONGEST:
        raise InvalidRequest(f"{option.label}: {len(text):,} characters, at most {_LONGEST:,} are read", field=name)
    if kind == Size:
        return parse_size(text, field=name)
    if kind in (bool, bool | None):
        return True
    convert = decimal_number if kind == float | None else whole_number if kind in (int, int | None) else str
    return _number(name, text, convert)


def _number(name: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        raise InvalidRequest(f"{_OPTIONS[name][1].label}: {error}", field=name) from None
