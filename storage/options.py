"""Declarations of options: the name, the type and the default of each, and its descriptions in every interface.

Options that belong together are one ``TypedDict``, whose members are ``Annotated`` with an :class:`Option`.  Type
checkers use the class itself (``**options: Unpack[ReadingOptions]``); the command line, the API and the pages make
their parameters from :func:`declared`.  The client and ``apsp --help`` import this module, so it imports nothing that
takes long to import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar, cast, get_type_hints

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """The declaration of an option, from which interfaces make their parameters and descriptions.

    Attributes:
        help: the option's description in the help of the command line and, unless ``in_api`` replaces it, in the API.
        default: the value of an option that is not given.
        flags: the option's spellings on the command line, such as ``--out``; made from the name if empty.
        metavar: placeholder of the value in the help of the command line.
        least, most: smallest and largest allowed number.
        longest: the most characters of a text that the API accepts.
        in_api: the description in the API, if ``help`` describes something that only the command line can do.
        label: the option's label on a form; options without a label are left out of forms.
        in_form: the option's description on a form.
        hint: text that says what an empty field of a form means.
        titles: the names of the choices on a form.
    """

    help: str
    default: Any = None
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    longest: int | None = None
    in_api: str = ""
    label: str = ""
    in_form: str = ""
    hint: str = ""
    titles: Mapping[str, str] = field(default_factory=dict)


class ArcReadingOptions(TypedDict, total=False):
    """How the arcs of a graph file are to be read; ``read_graph`` describes the meaning of each option."""

    format: Annotated[
        str | None,
        Option("Format of the file; else recognised by content.", metavar="NAME",
               in_api="Name of the format; recognised by content if left out."),
    ]  # fmt: skip
    directed: Annotated[
        bool | None,
        Option("Direction of the arcs; else as the format declares, or directed.", flags=("--directed/--undirected",),
               in_api="Direction; what the format declares if left out."),
    ]  # fmt: skip
    weight: Annotated[
        str | None,
        Option("Column of weights: its name, or its number from 1.", metavar="COLUMN"),
    ]
    length_of: Annotated[
        str | None,
        Option("Lengths from a formula: '1000 - score', '1 / weight', '-log(p)'.", metavar="FORMULA", longest=200,
               in_api="Formula over one column: 1000 - score."),
    ]  # fmt: skip
    source: Annotated[
        str | None,
        Option("Column of the arcs' sources: its name, or its number.", flags=("--from",), metavar="COLUMN",
               longest=200),
    ]  # fmt: skip
    target: Annotated[
        str | None,
        Option("Column of the arcs' targets: its name, or its number.", flags=("--to",), metavar="COLUMN", longest=200,
               in_api="Column of the arcs' targets."),
    ]  # fmt: skip
    labels: Annotated[
        str | None,
        Option("Attribute that names vertices instead of the id (GML, GraphML, GEXF, Pajek, JSON).",
               metavar="ATTRIBUTE", longest=200),
    ]  # fmt: skip
    parallel: Annotated[
        Literal["least", "greatest"] | None,
        Option("Which of parallel arcs stays; else the least, and the greatest for widest and most reliable paths.",
               in_api="Which of parallel arcs stays; the least if left out. Jobs of semirings max-min and max-times "
                      "need the greatest."),
    ]  # fmt: skip
    centroids_through: Annotated[bool, Option("TNTP: let paths pass through zone centroids.", default=False)]
    mode: Annotated[
        str | None,
        Option("OpenStreetMap: walking, cycling or driving.", metavar="MODE", longest=20),
    ]


class ReadingOptions(ArcReadingOptions, total=False):
    """How a graph file is to be read."""

    unweighted: Annotated[bool, Option("Every arc counts 1, whatever the file says.", default=False)]
    unit: Annotated[
        str | None,
        Option("What the weights measure, such as min or m; shown wherever a distance is.", metavar="UNIT", longest=20,
               in_api="What the weights measure, such as min or m."),
    ]  # fmt: skip
    coordinates: Annotated[
        Literal["lonlat", "plane"] | None,
        Option("What coordinates called x and y are; else as the file says, or a plane.",
               in_api="What coordinates called x and y are; what the file says, or a plane, if left out."),
    ]  # fmt: skip


class FileReadingOptions(ReadingOptions, total=False):
    """How a graph file on this machine is to be read."""

    nodes: Annotated[
        str | Path | None,
        Option("Coordinates of the vertices: a table with id, lon, lat (or x, y), name and more.", metavar="TABLE"),
    ]


@cache
def declared(options: type) -> dict[str, tuple[Any, Option]]:
    """Return the type and the declaration of each member of a class of options, by name, in the order of the class."""
    found = {}
    for name, hint in get_type_hints(options, include_extras=True).items():
        [option] = hint.__metadata__
        found[name] = (hint.__origin__, option)
    return found


def flag_of(name: str, option: Option) -> str:
    """Return the flag of an option on the command line, such as ``--max-hops``."""
    return option.flags[0] if option.flags else f"--{name.replace('_', '-')}"


def spelled(name: str, value: object = True) -> str:
    """Return the command line's flag of a reading option, such as ``--from``.  For an option with two flags, such as
    ``--directed`` and ``--undirected``, return the flag that sets ``value``.
    """
    yes, _, no = flag_of(name, declared(FileReadingOptions)[name][1]).partition("/")
    return no if no and value is False else yes


def lists_options(function: F) -> F:
    """Decorator: list every option in the function's signature in place of ``**options: Unpack[...]``, so that help and
    editors show the options; a call with any other keyword raises TypeError.
    """
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            parameters.append(parameter)
            continue
        options = get_type_hints(function)[parameter.name].__args__[0]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=kind)
            for name, (kind, option) in declared(options).items()
        ]
    known = {parameter.name for parameter in parameters}

    @wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        if unknown := given.keys() - known:
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {min(unknown)!r}")
        return function(*args, **given)

    vars(checked)["__signature__"] = inspect.signature(function).replace(parameters=parameters)
    return cast(F, checked)
