"""Wrong arguments of the methods of clients, jobs and results: refused by name before anything is sent."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any

import pytest

from service.client import Client, Job, Result
from storage.errors import InvalidRequest

THING = object()
WRONG: dict[str, list[Any]] = {
    "vertex": [None, 1.5, 1.0, True, math.nan, THING, [1], (1,), b"1", {"lon": 1}, {"lon": "a", "lat": 2}],
    "vertices": ["12", "", b"12", 1, 1.5, THING, {"lon": 1, "lat": 2}, [1.5], [None], [True], [[1]], math.nan],
    "pairs": ["12", 1, THING, [1], ["12"], [(1,)], [(1, 2, 3)], [(1.5, 2)], [(True, 0)], [(None, 1)], {1: 2}],
    "whole": ["2", 1.5, 2.0, True, -1, math.nan, math.inf, THING, [2]],
    "size": ["x", "", 1.5, True, -1, 0, math.nan, THING, [2], "1.5.5"],
    "limit": ["2", True, -1, math.nan, math.inf, THING, [2], 1j],
    "seconds": ["2", True, -1, math.nan, THING, [2], 1j],
    "text": [1, 1.5, True, b"x", [], THING, math.nan],
    "names": ["name", 1, True, [1], [None], {"name": 1}, THING],
    "flag": ["no", "", 0, 1, None, 1.0, [], THING],
    "path": [None, 1, 1.5, True, b"x", [], THING, "", "a\0b", math.nan],
}  # fmt: skip
KINDS = {
    **dict.fromkeys(("source", "target"), "vertex"),
    **dict.fromkeys(("sources", "targets", "vertices"), "vertices"),
    **dict.fromkeys(("k", "limit"), "whole"),
    **dict.fromkeys(("sort", "also", "state"), "text"),
    **dict.fromkeys(("timeout", "patience"), "seconds"),
    "Result.plot.size": "whole",
    "pairs": "pairs",
    "points": "vertices",
    "snap_limit": "limit",
    "most": "size",
    "columns": "names",
    "overwrite": "flag",
    "folder": "path",
}
RIGHT = {"vertex": 1, "vertices": [1], "pairs": [(1, 2)], "whole": 1, "size": 100, "limit": 1.0, "seconds": 1.0,
         "text": "x", "names": ["x"], "flag": False, "path": "x"}  # fmt: skip
#: What goes to functions of the caller, to xarray, or in the address, where the service says that there is none.
ELSEWHERE = {
    "watcher",
    "meter",
    "options",
    "job",
    "graph",
    "facts",
    "client",
    "names",
    "receipt",
    "flow",
    "url",
    "key",
    "tell",
}
#: Walked where the options of jobs and uploads are checked.
OPTIONS = {"Client.solve", "Client.submit", "Job.waited"}


def methods() -> Iterator[tuple[str, str, list[str]]]:
    for kind in (Client, Job, Result):
        for name, function in inspect.getmembers(kind, callable):
            if name.startswith("_") or f"{kind.__name__}.{name}" in OPTIONS:
                continue
            given = [one for one in inspect.signature(function).parameters if one not in {"self", *ELSEWHERE}]
            if given:
                yield kind.__name__, name, given


def kind_of(owner: str, method: str, parameter: str) -> str | None:
    return KINDS.get(f"{owner}.{method}.{parameter}", KINDS.get(parameter))


def test_the_table_has_every_parameter():
    missing = {(*one, name) for *one, given in methods() for name in given if kind_of(*one, name) is None}
    assert missing == set()


@pytest.mark.parametrize(("owner", "method", "given"), list(methods()))
def test_wrong_arguments_are_refused_before_anything_is_sent(
    owner: str, method: str, given: list[str], monkeypatch: pytest.MonkeyPatch
):
    with Client("http://127.0.0.1:9", patience=0) as client:
        monkeypatch.setattr(client, "run", _first_step)
        table = method in ("frame", "table")
        facts = {"job": "x", "id": "x", "state": "running", "result": "measures" if table else "matrix", "summary": {}}
        thing: Any = {"Client": client, "Job": Job(client, facts), "Result": Result(client, facts)}[owner]
        for parameter in given:
            for value in WRONG[kind_of(owner, method, parameter) or ""]:
                asked = {one: RIGHT[kind_of(owner, method, one) or ""] for one in given} | {parameter: value}
                with pytest.raises(InvalidRequest) as caught:
                    raise AssertionError(
                        f"{owner}.{method}({parameter}={value!r}): {getattr(thing, method)(**asked)!r}"
                    )
                assert len(str(caught.value)) < 300


def test_an_endless_patience_is_one_and_nan_is_none():
    Client("http://127.0.0.1:9", patience=math.inf).close()
    for value in WRONG["seconds"]:
        with pytest.raises(InvalidRequest, match="patience must be"):
            Client("http://127.0.0.1:9", patience=value)


def _first_step(flow: Any) -> Any:
    """Whatever the flow would do first."""
    return next(flow)
