"""Every interface offers the declared options of a solve, with their defaults and choices, and no others."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from engine.model.algorithms import ALGORITHMS
from engine.model.problem import Options
from engine.rows.asked_measures import MEASURES
from service.api.schemas.jobs import JobRequest
from service.cli import main, remote
from service.cli.arguments import PointOptions
from service.client import AsyncClient, Client
from service.dashboard.options import FIELDS
from service.options import (
    BulkOptions,
    ClientOptions,
    JobOptions,
    LocalOptions,
    MeasureOptions,
    SolveOptions,
    TableOptions,
)
from storage.options import declared
from storage.readers.parsed import ReadOptions

CHOICES = ["auto", *ALGORITHMS]


def test_the_engine_takes_what_is_declared_with_the_same_defaults() -> None:
    found = {field.name: field.default for field in fields(Options)}
    assert found.pop("also") == ()  # quantities of the graph, which the command line names as columns of its file
    assert found == {name: option.default for name, (_, option) in declared(LocalOptions).items()}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (main.solve, LocalOptions),
        (main.plan, LocalOptions),
        (main.solve_many, BulkOptions),
        (remote.submit, JobOptions),
    ],
)
def test_a_command_offers_its_options_and_no_others(command: Any, options: type) -> None:
    known = set(declared(LocalOptions)) | set(declared(JobOptions)) - {"also"}
    parameters = inspect.signature(command).parameters
    # commands of this machine have the limit of points among the options of how a graph is read
    own = set(declared(PointOptions)) - set(declared(options))
    if command is main.plan:  # what is planned is a word of the command, and an option of a job
        own |= {"prepared"}
    assert parameters.keys() & known - own == set(declared(options)) - {"also"}
    assert ("also" in parameters) == (command is not main.solve_many)
    for name, (kind, option) in declared(options).items():
        assert parameters[name].default == option.default
        shown = parameters[name].annotation.__metadata__[0]
        # what takes a cutoff checks it and says what it found; Typer does not, and lets NaN pass
        bounds = (None, None) if name == "cutoff" else (option.least, option.most)
        assert (shown.help, shown.min, shown.max) == (option.help, *bounds)
        if name == "algorithm":
            assert list(get_args(get_args(parameters[name].annotation)[0])) == CHOICES
        elif get_args(kind) and all(isinstance(choice, str) for choice in get_args(kind)):
            assert parameters[name].annotation.__origin__ == kind


def test_the_api_takes_the_options_of_a_job() -> None:
    assert set(JobRequest.model_fields) == {"graph", "name", *declared(JobOptions)}
    properties = JobRequest.model_json_schema()["properties"]
    for name, (_, option) in declared(JobOptions).items():
        assert properties[name]["default"] == option.default
        assert properties[name]["description"] == (option.in_api or option.help)
    assert properties["algorithm"]["enum"] == CHOICES
    request = JobRequest(graph="g")
    # distances are what jobs have always been about, so their semiring is not stored
    assert set(request.options()) == {*declared(SolveOptions), "result"} - {"semiring"}
    assert JobRequest(graph="g", semiring="max-min").options()["semiring"] == "max-min"
    assert (request.priority, request.fresh) == (0, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithm": "astar"}, {"dtype": "int8"}, {"memory": "4GiB"}, {"memory": 0}, {"max_hops": 0}, {"threads": 1.0},
        {"max_hops": 2**63}, {"cutoff": -1}, {"cutoff": float("inf")}, {"cutoff": "1"}, {"priority": 101},
        {"priority": True}, {"sources": []}, {"sources": "1,2"}, {"targets": [1.5]}, {"scheduler": "tcp://elsewhere"},
        {"also": "toll"}, {"also": []}, {"also": [1]},
    ],
)  # fmt: skip
def test_the_api_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JobRequest(graph="g", **wrong)


@pytest.mark.parametrize("method", [Client.solve, Client.submit, AsyncClient.solve, AsyncClient.submit])
def test_the_client_takes_every_option(method: Any) -> None:
    parameters = inspect.signature(method).parameters
    for name, (kind, option) in declared(ClientOptions).items():
        assert parameters[name].default == option.default
        assert parameters[name].annotation == kind
    assert parameters.keys() - declared(ClientOptions).keys() <= {"self", "graph", "timeout", "watcher"}


def test_the_form_shows_every_option_that_has_a_label() -> None:
    labelled = {name: option for name, (_, option) in declared(ClientOptions).items() if option.label}
    assert {field.name: (field.label, field.help, field.hint) for field in FIELDS} == {
        name: (option.label, option.in_form, option.hint) for name, option in labelled.items()
    }
    choices = {field.name: dict(field.choices) for field in FIELDS if field.choices}
    assert choices.keys() == {"result", "of", "raw", "direction", "decay", "semiring", "dtype", "device", "algorithm"}
    assert choices["algorithm"] == {"auto": "the fastest", **{name: one.title for name, one in ALGORITHMS.items()}}
    for name in ("result", "semiring", "dtype", "device"):
        assert list(choices[name]) == list(get_args(declared(ClientOptions)[name][0]))
    for name in ("of", "direction", "decay"):  # one of them is what is done if nothing is said
        (named,) = (set(get_args(one)) for one in get_args(declared(ClientOptions)[name][0]) if get_args(one))
        assert {""} < choices[name].keys() <= named | {""}


def test_readers_get_what_is_declared() -> None:
    from storage.options import ReadingOptions

    found = {field.name for field in fields(ReadOptions)}
    assert found == {"limits", "told", "also", *declared(ReadingOptions)} - {"format", "unit", "parallel"}


@pytest.mark.parametrize("options", [TableOptions, MeasureOptions])
def test_the_help_of_measures_names_all_of_them(options: type) -> None:
    _, measures = declared(options)["measures"]
    assert ", ".join(MEASURES) in measures.help
