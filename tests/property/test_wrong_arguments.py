"""Tests wrong arguments of every function of ``apsp``, and of every option: the call refuses each by its name.

A table has the kind of each parameter, and another table has wrong values of each kind.  The test fails if a function
has a parameter that is not in the table, so no new parameter can be forgotten.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apsp
from engine.rows.asked_measures import MeasureRequest
from storage.errors import ApspError, InvalidGraph, InvalidRequest
from storage.options import ReadingOptions

FUNCTIONS = sorted(name for name in apsp.__all__ if inspect.isfunction(getattr(apsp, name)))
THING = object()
#: Values that are no such thing; a list in a list is itself a value.
WRONG: dict[str, list[Any]] = {
    "whole": ["2", "", b"2", 1.5, 2.0, True, np.True_, -1, math.nan, math.inf, THING, [2], {}, 1j, Decimal(2),
              np.float64(2), np.array([1, 2])],
    "number": ["1", b"1", True, math.nan, math.inf, -math.inf, -1, -0.5, [1.0], THING, 10**400, 1j, np.float32("nan")],
    "flag": ["no", "", 0, 1, None, 1.0, [], THING, np.array([True])],
    "text": [1, 1.5, True, b"x", [], ["x"], THING, math.nan],
    "choice": ["bogus", "", 1, True, b"cpu", ["cpu"], THING, math.nan],
    "path": [1, 1.5, True, b"x", [], THING, "", "a\0b", math.nan],
    "names": ["name", 1, True, [1], [None], {"name": 1}, THING],
    "indices": ["01", 1, 1.5, {0, 1}, (0.5,), (True,), ("0",), [None], THING, {}, np.array([[0]]), np.array([0.0]),
                math.nan, np.ma.array([0, 1], mask=[True, False])],
    "numbers": ["15", 15, ["15"], [True], [math.nan], [math.inf], [-1], [None], THING],
    "object": ["roads.csv", 1, 1.5, True, b"x", [1], {"a": 1}, THING, math.nan],
    "arrays": ["ab", 1.5, [0.5, 1.5, 2.5], ["a", "b", "c"], [None, 1, 2], [[0, 1], [2, 3]], [0, 1], THING, math.nan,
               np.ma.array([0, 1, 2], mask=[0, 1, 0]), ["a", "\ud800", "z"]],
    "weights": ["ab", ["a", "b", "c"], [math.nan, 1, 1], [-math.inf, 1, 1], [1, 2], [[1, 2, 3]], THING, [None, 1, 1],
                np.ma.array([1, 1, 1], mask=[0, 1, 0])],
    "columns": ["ab", 1, [1], {"a": [1]}, {"a": ["x"] * 4}, {1: [1] * 4}, {"a": [math.nan] * 4}, THING,
                *({"a": np.ma.array(np.ones(count), mask=np.arange(count) == 1)} for count in (3, 4))],
}  # fmt: skip
#: Wrong, too, where the kind alone allows it.
FURTHER: dict[str, list[Any]] = {
    **{name: [0] for name in ("memory", "device_memory", "max_hops", "threads", "processes")},
    **{name: [(), (-1,), (10**30,), (0, 0)] for name in ("sources", "targets")},
}
OPTIONS = {
    **dict.fromkeys(("dtype", "algorithm", "device", "executor", "semiring"), "choice"),
    **dict.fromkeys(("memory", "device_memory", "max_hops", "threads"), "whole"),
    **dict.fromkeys(("sources", "targets"), "indices"),
    "cutoff": "number",
    "scheduler": "text",
    "also": "names",
}
#: The kind of each parameter of a function; one that is of another kind in one function is named with it.
PARAMETERS = {
    **dict.fromkeys(("graph", "options", "monitor", "demands", "pairs", "plan", "coordinates", "limits"), "object"),
    **dict.fromkeys(("out", "path", "work", "prepared", "spill", "nodes"), "path"),
    **dict.fromkeys(("overwrite", "resume", "changed", "arcs", "normalized", "endpoints", "directed", "mirrored",
                     "unweighted", "centroids_through"), "flag"),
    **dict.fromkeys(("nearest", "beside", "n", "processes", "nice", "device_memory", "memory"), "whole"),
    **dict.fromkeys(("compression", "device", "parallel", "direction", "decay", "format"), "choice"),
    **dict.fromkeys(("weight", "length_of", "source", "target", "mode", "unit", "flow"), "text"),
    **dict.fromkeys(("also", "measures"), "names"),
    **dict.fromkeys(("within", "quantiles"), "numbers"),
    "decay_value": "number",
    "opportunities": "columns",
    "tails": "arrays",
    "heads": "arrays",
    "weights": "weights",
    "quantities": "columns",
    "labels": "arrays",
    "sample": "whole",
    "semiring": "choice",
    "read_graph.labels": "text",
    "read_graph.coordinates": "choice",
    "reweight.coordinates": "choice",
    "reweight.labels": "text",
    "reweight.weights": "path",
    "graphs": "object",
    "solve_many.out": "names",
    "nearest_vertices.x": "floats",
    "nearest_vertices.y": "floats",
    "read_demands.labels": "labels",
}  # fmt: skip
WRONG["floats"] = ["ab", ["a"], [True], [math.nan], [math.inf], [[1.0]], [None], 1.5, THING,
                   np.ma.array([1.0], mask=[True])]  # fmt: skip
WRONG["labels"] = ["ab", 1.5, [0.5, 1.5], [1, 0], [[0, 1]], THING, np.ma.array([0, 1], mask=[True, False]), ["\ud800"]]
#: What other kinds would refuse, and is right here.
RIGHT = {
    ("build_graph", "labels"): [["a", "b", "c"]],
    ("warm", "nice"): [-1],
    ("read_graph", "directed"): [None],
    ("reweight", "directed"): [None],
}
#: None counts arcs.
MAY_BE_NONE = {("build_graph", "weights")}
SAID = {("near_pairs", "options"): "need a cutoff"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph file, a prepared graph and a table of demands."""
    folder = tmp_path_factory.mktemp("door")
    (folder / "a.csv").write_text("from,to,w\n0,1,3\n1,2,3\n2,3,1\n3,0,2\n")
    (folder / "d.csv").write_text("origin,destination,flow\n0,1,3\n")
    apsp.prepare(apsp.read_graph(folder / "a.csv")[0], folder / "p")
    return folder


def right_call(name: str, place: Path) -> dict[str, Any]:
    """Arguments with which a function does what it should, all that have no default among them."""
    graph = apsp.read_graph(place / "a.csv")[0]
    out, counter = place / "out", len(list(place.iterdir()))
    out = place / f"out{counter}"
    return {
        "assign": lambda: {"graph": graph, "demands": apsp.read_demands(place / "d.csv", graph.labels)},
        "betweenness": lambda: {"graph": graph},
        "build_graph": lambda: {"tails": [0, 1, 2], "heads": [1, 2, 0], "weights": [1, 2, 3], "directed": True},
        "measure": lambda: {"graph": graph},
        "near_pairs": lambda: {"graph": graph, "options": apsp.Options(cutoff=3)},
        "nearest_vertices": lambda: {
            "coordinates": apsp.Coordinates(np.zeros(2), np.zeros(2), geographic=False), "x": [1.0], "y": [1.0]},
        "open": lambda: {"path": place / "p"},
        "plan": lambda: {"graph": graph},
        "prepare": lambda: {"graph": graph, "out": out},
        "read_demands": lambda: {"path": place / "d.csv", "labels": graph.labels},
        "read_graph": lambda: {"path": place / "a.csv"},
        "reweight": lambda: {"prepared": place / "p", "weights": place / "a.csv", "out": out},
        "save_pairs": lambda: {"pairs": apsp.near_pairs(graph, apsp.Options(cutoff=3)), "path": f"{out}.csv"},
        "solve": lambda: {"graph": graph},
        "solve_many": lambda: {"graphs": [graph]},
        "solve_to_store": lambda: {"graph": graph, "out": out},
        "verify": lambda: {"path": place / "p"},
        "warm": dict,
    }[name]()  # fmt: skip


def parameters_of(name: str) -> list[str]:
    """All arguments that a function takes by name."""
    found = list(inspect.signature(getattr(apsp, name)).parameters)
    for several, members in (("request", MeasureRequest), ("reading", ReadingOptions)):
        if several in found:
            found.remove(several)
            found += members.__annotations__
    return found


def kind_of(name: str, parameter: str) -> str:
    return PARAMETERS.get(f"{name}.{parameter}", PARAMETERS.get(parameter, ""))


def wrong_values(kind: str, name: str, owner: str = "") -> Iterator[Any]:
    right = [repr(value) for value in RIGHT.get((owner, name), [])]
    yield from (value for value in [*WRONG[kind], *FURTHER.get(name, [])] if repr(value) not in right)


def refused(call: Callable[[], object]) -> ApspError | None:
    """The error by which the program refuses; None where it does not. Any other error is raised."""
    try:
        made = call()
    except ApspError as error:
        return error
    if hasattr(made, "close"):
        made.close()
    return None


def test_the_tables_have_every_option_and_parameter():
    assert {field.name for field in dataclasses.fields(apsp.Options)} == OPTIONS.keys()
    missing = {(name, one) for name in FUNCTIONS for one in parameters_of(name) if not kind_of(name, one)}
    assert missing == set()


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_a_wrong_type_is_refused_when_it_is_said(option: str, place: Path):
    graph = apsp.read_graph(place / "a.csv")[0]
    for value in wrong_values(OPTIONS[option], option):
        error = refused(lambda value=value: apsp.solve(graph, apsp.Options(**{option: value})))
        assert isinstance(error, InvalidRequest), f"{option}={value!r}: {error!r}"
        assert error.details()["field"] == option, f"{option}={value!r}: {error}"
        assert option in str(error)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_of_a_wrong_type_is_refused_at_the_door(name: str, place: Path):
    function = getattr(apsp, name)
    for parameter in parameters_of(name):
        for value in wrong_values(kind_of(name, parameter), parameter, name):
            asked = {**right_call(name, place), parameter: value}
            before = {path.name for path in place.iterdir()}
            try:
                error = refused(lambda asked=asked: function(**asked))
            except Exception as other:  # any other error is a traceback for whoever calls
                raise AssertionError(f"{name}({parameter}={value!r}): {other!r}") from other
            assert error is not None, f"{name}({parameter}={value!r}) is not refused"
            assert len(str(error)) > 15
            assert isinstance(error, InvalidRequest | InvalidGraph), f"{name}({parameter}={value!r}): {error!r}"
            assert {path.name for path in place.iterdir()} == before, f"{name}({parameter}={value!r}) left something"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_must_be_given_is_refused_if_it_is_none(name: str, place: Path):
    function = getattr(apsp, name)
    for parameter, about in inspect.signature(function).parameters.items():
        if about.default is not about.empty or about.kind is about.VAR_KEYWORD or (name, parameter) in MAY_BE_NONE:
            continue
        asked = {**right_call(name, place), parameter: None}
        with pytest.raises((InvalidRequest, InvalidGraph), match=SAID.get((name, parameter), parameter)):
            function(**asked)


def test_numbers_of_numpy_are_as_good_as_those_of_python():
    asked = apsp.Options(
        threads=np.int64(1), memory=np.uint64(2**30), cutoff=np.float32(2.5), sources=np.array([1, 0]), targets=[2],
        also=["length"], max_hops=np.int8(3),
    )  # fmt: skip
    plain = {"threads": 1, "memory": 2**30, "cutoff": 2.5, "sources": (1, 0), "targets": (2,), "also": ("length",)}
    assert asked == apsp.Options(**plain, max_hops=3)
    assert {type(value) for value in vars(asked).values()} <= {int, float, str, tuple, type(None)}
    assert apsp.Options(sources=range(3)).sources == (0, 1, 2)
    assert apsp.Options(cutoff=5).cutoff == 5
