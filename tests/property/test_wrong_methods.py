"""Tests wrong arguments of methods of the objects that ``apsp`` returns: each is refused by its name, and none rounded.

A table has the kind of each parameter, and another table lists the methods that only the program itself calls.  The
test fails if a method or a parameter is in no table, so no new one can be forgotten.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import apsp
from service.client import AsyncClient, Client
from storage.errors import ApspError, Conflict, InvalidRequest, NotFound
from storage.quantities.reading import QuantityMatrix

THING = object()
WRONG: dict[str, list[Any]] = {
    "vertex": [None, "1", "", b"1", 1.5, 1.0, True, np.True_, -1, 4, 10**30, 10**5000, math.nan, math.inf, THING, [1],
               {}, 1j, Decimal(1), np.float64(1), np.array([1, 2])],
    "vertices": [None, "01", b"01", 1, 1.5, {0, 1}, {}, THING, (0.5,), [1.0], [0, True], [np.True_, 0], ["0"], [None],
                 [[0]], [[0], [0, 1]], [0, -1], [4], [10**30], [2**63], np.array([[0]]), np.array([0.0]),
                 np.array([True, False]), np.array(["0"]), np.array(1), range(5), math.nan, iter([1]), [math.nan],
                 np.ma.array([0, 1], mask=[True, False])],
    "whole": [None, "2", "", 1.5, 2.0, True, -1, math.nan, math.inf, THING, [2], {}, 1j, Decimal(2), np.float64(2)],
    "label": [None, 1.5, 1.0, True, np.True_, b"1", THING, [1], {}, math.nan, 10**30, 10**5000, -1, 4, "01", "1.0",
              "+1", "x", "", "1e0", "١"],
    "flag": ["no", "", 0, 1, None, 1.0, [], THING],
    "path": [None, 1, 1.5, True, b"x", [], THING, "", "a\0b", math.nan, "table.txt"],
    "result": [None, 1, "m.zarr", THING, [], math.nan],
}  # fmt: skip
KINDS = {
    **dict.fromkeys(("sources", "targets", "vertices", "order", "first", "second"), "vertices"),
    **dict.fromkeys(("source", "target", "source_index", "vertex_index"), "vertex"),
    **dict.fromkeys(("count", "rows", "columns", "memory", "threads"), "whole"),
    **dict.fromkeys(("max_bytes", "max_ratio", "max_vertices", "max_arcs", "max_columns"), "whole"),
    "text": "label",
    "overwrite": "flag",
    "Assignment.vertices": "flag",
    "path": "path",
    "matrix": "result",
}
#: Methods that take None; ``peek`` leaves what is out of range to ``entries``.
RIGHT = {"using"}
#: Called otherwise in the message than in the signature.
SAID = {"source_positions": "sources", "target_positions": "targets", "write": ""}
#: Made by functions, whose arguments ``test_wrong_arguments`` walks, or checked where they are used.
MADE = {
    "Assignment", "BetweennessTable", "Coordinates", "Demands", "Graph", "Matrix", "MeasureTable", "Monitor",
    "NearPairs", "Options", "Outcome", "Plan", "PreparedMatrix", "QuantityMatrix",
}  # fmt: skip
#: Names of files and parts: only the program calls these.
INSIDE = {
    *(f"Matrix.{name}" for name in ("check_files", "holds", "open_file")),
    *(f"PreparedMatrix.{name}" for name in (
        "check_files", "checked", "chunk_of", "file", "has", "holding", "line_files", "open_file", "part_array",
        "running_checksums", "section_of", "share",
        "table")),
    *(f"ReadLimits.{name}" for name in ("check_arcs", "check_bytes", "check_columns", "check_vertices")),
    *(f"Monitor.{name}" for name in ("advance", "begin", "resume", "step")),
    "QuantityMatrix.size",
}  # fmt: skip
CLASSES = {
    **{name: getattr(apsp, name) for name in apsp.__all__ if inspect.isclass(getattr(apsp, name))},
    "QuantityMatrix": QuantityMatrix,
}
#: Methods of clients are walked where there is a service.
LOCAL = [name for name, kind in CLASSES.items() if kind not in (Client, AsyncClient)]


def methods_of(name: str) -> Iterator[tuple[str, list[str]]]:
    """Methods with arguments, and the names of these."""
    for method, function in inspect.getmembers(CLASSES[name], callable):
        made = method == "__init__" and name not in MADE
        if (method.startswith("_") and not made) or f"{name}.{method}" in INSIDE:
            continue
        if given := [one for one in inspect.signature(function).parameters if one not in ("self", "args", "kwargs")]:
            yield method, given


def kind_of(name: str, parameter: str) -> str | None:
    return KINDS.get(f"{name}.{parameter}", KINDS.get(parameter))


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One object of each class."""
    folder = tmp_path_factory.mktemp("methods")
    (folder / "a.csv").write_text("from,to,w,km\n0,1,3,1\n1,2,3,1\n2,3,1,1\n3,0,2,1\n")
    (folder / "d.csv").write_text("origin,destination,flow\n0,1,3\n")
    graph = apsp.read_graph(folder / "a.csv", also=["km"])[0]
    plain = apsp.read_graph(folder / "a.csv")[0]
    apsp.solve_to_store(graph, folder / "m", apsp.Options(also=("km",)))
    apsp.prepare(plain, folder / "p")
    place = apsp.Coordinates(np.arange(4.0), np.zeros(4), geographic=False)
    with apsp.open(folder / "m") as matrix, apsp.open(folder / "p") as prepared:
        yield {
            "folder": folder,
            "Matrix": matrix,
            "QuantityMatrix": matrix.also["km"],
            "PreparedMatrix": prepared,
            "Router": apsp.Router(matrix),
            "NearPairs": apsp.near_pairs(plain, apsp.Options(cutoff=3)),
            "MeasureTable": apsp.measure(plain),
            "BetweennessTable": apsp.betweenness(plain),
            "Assignment": apsp.assign(plain, apsp.read_demands(folder / "d.csv", plain.labels)),
            "Coordinates": place,
        }


def right(parameter: str, kind: str, things: dict[str, Any]) -> Any:
    if kind == "path":
        return things["folder"] / "table.csv"
    return {"vertex": 1, "vertices": [1], "whole": 1, "label": 1, "flag": False, "result": things["Matrix"]}[kind]


def test_the_tables_have_every_method_and_parameter():
    missing = {
        (name, method, one) for name in LOCAL for method, given in methods_of(name) for one in given
        if kind_of(name, one) is None
    }  # fmt: skip
    assert missing == set()


@pytest.mark.parametrize("name", [name for name in LOCAL if list(methods_of(name))])
def test_every_wrong_argument_of_a_method_is_refused_by_its_name(name: str, things: dict[str, Any]):
    for method, given in methods_of(name):
        made = method == "__init__"
        function = CLASSES[name] if made else getattr(things[name], method)
        kinds = {one: kind_of(name, one) or "" for one in given}
        for parameter, kind in kinds.items():
            for value in WRONG[kind]:
                if (value is None and method in RIGHT) or (method == "peek" and type(value) is int):
                    continue
                asked = {one: right(one, kinds[one], things) for one in given} | {parameter: value}
                told = f"{name}.{method}({parameter}={type(value).__name__})"
                before = sorted(things["folder"].iterdir())
                with pytest.raises((ApspError, KeyError)) as caught:
                    raise AssertionError(f"{told} = {function(**asked)!r}, {value!r:.50}")
                assert isinstance(caught.value, InvalidRequest | NotFound | Conflict) or name == "NearPairs", told
                if isinstance(caught.value, InvalidRequest):
                    named = SAID.get(method, parameter)
                    assert named in str(caught.value), f"{told}: {caught.value}"
                    assert len(str(caught.value)) < 300
                assert sorted(things["folder"].iterdir()) == before, told


def test_numbers_of_numpy_and_empty_and_repeated_vertices_are_as_good(things: dict[str, Any]):
    for name in ("Matrix", "PreparedMatrix"):
        matrix = things[name]
        whole = matrix.rows(range(4))
        for asked in ([1, 1], (1, 1), np.array([1, 1], np.uint8), np.array([1, 9, 1, 9])[::2], [np.int64(1), 1]):
            assert np.array_equal(matrix.rows(asked), whole[[1, 1]])
            assert np.array_equal(matrix.columns(asked), whole[:, [1, 1]])
            assert np.array_equal(matrix.block(asked, asked), whole[[1, 1]][:, [1, 1]])
            assert np.array_equal(matrix.entries(asked, asked), whole[[1, 1], [1, 1]])
        for none in ([], (), np.zeros(0), np.zeros(0, np.int64), range(0)):
            assert matrix.rows(none).shape == (0, 4)
            assert matrix.columns(none).shape == (4, 0)
            assert matrix.block(none, [0]).shape == (0, 1)
            assert matrix.entries(none, none).shape == (0,)
            assert matrix.eccentricities(none).shape == (0,)
        assert matrix.vertex(np.int64(2)) == matrix.vertex("2") == matrix.vertex(2) == 2
        assert len(matrix.nearest(np.uint8(1), np.int16(2))[0]) == 2
        assert len(matrix.nearest(1, 10**9)[0]) == 3
        with pytest.raises(InvalidRequest, match="2 sources do not pair with 1 targets"):
            matrix.entries([0, 1], [0])
