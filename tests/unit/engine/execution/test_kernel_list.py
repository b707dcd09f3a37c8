"""The list of kernels: it says what solves call, and reads back what it writes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numba import typeof, types

from benchmarks import kernel_list as uses
from engine.execution import kernel_list
from engine.model.progress import count_compilation


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3, np.uint16),
        np.zeros((3, 4), np.float32),
        np.zeros((3, 4), bool)[:, ::2],
        frozen(np.zeros(3, np.int64)),
        np.int32(5),
        np.float64(1.5),
        7,
        True,
        None,
        (np.zeros(1, np.int8), np.zeros(1, np.int8)),
        (np.zeros(1), (np.uint8(1), frozen(np.zeros((2, 2)))), None),
    ],
)
def test_types_are_read_back(value: object) -> None:
    kind = typeof(value)
    text = kernel_list.types_text([kind, types.int64])
    assert kernel_list.signature_of(text) == (kind, types.int64)
    assert json.dumps(json.loads(text)) == text


def test_a_type_that_cannot_be_listed_is_refused() -> None:
    with pytest.raises(ValueError, match="no kernel is listed"):
        kernel_list.types_text([types.unicode_type])


def test_the_list_names_kernels_that_exist_once_each() -> None:
    listed = kernel_list.listed_kernels()
    assert len({(one.module, one.name, one.types) for one in listed}) == len(listed) > 50
    for one in listed:
        one.is_ready()  # KeyError and ImportError for what is not there
        assert kernel_list.types_text(kernel_list.signature_of(one.types)) == one.types
        assert set(one.uses) <= set(uses.uses())
    assert {use for one in listed for use in one.uses} == set(uses.uses())


def test_what_is_no_longer_there_is_not_missing() -> None:
    old = kernel_list.ListedKernel("engine.graph._walks", "gone", "[]", 1.0, ("plan",))
    lost = kernel_list.ListedKernel("engine.graph.gone", "gone", "[]", 1.0, ("plan",))
    assert kernel_list.missing([old, lost]) == []


def unlisted(*names: str) -> dict[str, set[tuple[str, str, str]]]:
    called: dict[str, set[tuple[str, str, str]]] = {use: set() for use in names}
    for one in uses.recorded(uses.ROOT, *names):
        called[one["uses"][0]].add((one["module"], one["name"], json.dumps(one["types"])))
    assert all(called.values())
    listed = {use: {(one.module, one.name, one.types) for one in kernel_list.used_by(use)} for use in names}
    return {use: lost for use, found in called.items() if (lost := found - listed[use])}


def test_solves_call_listed_kernels_only() -> None:
    """``python -m benchmarks.kernel_list`` writes the list again where the kernels or their types have changed."""
    assert unlisted("plan", "dijkstra uint16", "bfs uint16") == {}


@pytest.mark.slow
def test_all_uses_call_listed_kernels_only() -> None:
    assert unlisted(*uses.uses()) == {}


def test_a_kernel_that_is_not_listed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = kernel_list.listed_kernels()
    lost = next(one for one in listed if "plan" in one.uses)
    monkeypatch.setattr(kernel_list, "used_by", lambda use: [one for one in listed if one != lost and use in one.uses])
    assert unlisted("plan") == {"plan": {(lost.module, lost.name, lost.types)}}


def test_missing_kernels_are_looked_for_again_only_after_a_compilation_or_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked, found, now = list[str](), [kernel_list.listed_kernels()[0]], [100.0]

    def look(kernels: object) -> list[kernel_list.ListedKernel]:
        looked.append("looked")
        return list(found)

    monkeypatch.setattr(kernel_list, "missing", look)
    monkeypatch.setattr(kernel_list, "_MISSING", {})
    monkeypatch.setattr(kernel_list, "_COMPLETE", set())
    monkeypatch.setattr(kernel_list.time, "monotonic", lambda: now[0])
    for _ in range(3):
        assert kernel_list.missing_for("plan") == found
    assert len(looked) == 1
    count_compilation()
    assert kernel_list.missing_for("plan") == found
    assert len(looked) == 2
    now[0] += kernel_list.LOOK_AGAIN + 1
    found.clear()
    assert kernel_list.missing_for("plan") == []
    count_compilation()
    assert kernel_list.missing_for("plan") == []
    assert len(looked) == 3
