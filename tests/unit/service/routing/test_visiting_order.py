"""The order of places, against all orders that there are."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.routing import visiting_order as tested
from service.routing.visiting_order import visiting_order

Table = npt.NDArray[np.float64]


def length(table: Table, order: list[int], end: int) -> float:
    way = [*order, end] if order[0] == end else order
    return sum(float(table[a, b]) for a, b in itertools.pairwise(way))


def shortest(table: Table, start: int, end: int) -> float:
    middle = [place for place in range(len(table)) if place not in (start, end)]
    behind = [] if start == end else [end]
    return min(length(table, [start, *order, *behind], end) for order in itertools.permutations(middle))


def directed(n: int, seed: int) -> Table:
    """Ways that differ with the direction, some of them of length 0."""
    draw = np.random.default_rng(seed)
    return np.where(np.eye(n) == 1, 0, draw.integers(0, 50, (n, n))).astype(np.float64)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 7), st.integers(0, 10_000), st.data())
def test_few_places_have_the_best_order(n: int, seed: int, data: st.DataObject) -> None:
    start, end = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    table = directed(n, seed)
    order = visiting_order(table, start, end)
    assert sorted(order) == list(range(n))
    assert order[0] == start
    assert end in (start, order[-1])
    assert length(table, order, end) == shortest(table, start, end)


def test_the_most_places_with_the_best_order() -> None:
    # on a circle the best round trip follows it
    n = tested.EXACT + 1
    there = np.random.default_rng(5).permutation(n)
    places = np.exp(2j * np.pi * there / n)
    table = np.abs(places[:, None] - places)
    order = there[visiting_order(table, 3, 3)]
    assert set(np.diff(order) % n) in ({1}, {n - 1})


def test_more_places_are_inserted() -> None:
    n = 60
    there = np.random.default_rng(6).permutation(n)
    places = np.exp(2j * np.pi * there / n)
    table = np.abs(places[:, None] - places)
    order = visiting_order(table, 0, 0)
    assert set(np.diff(there[order]) % n) in ({1}, {n - 1})
    order = visiting_order(directed(n, 7), 4, 9)
    assert (sorted(order), order[0], order[-1]) == (list(range(n)), 4, 9)


def test_inserting_is_nearly_best_in_a_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = []
    for seed in range(30):
        draw = np.random.default_rng(seed)
        places = draw.random((7, 2))
        table = np.hypot(*(places[:, None] - places).transpose(2, 0, 1))
        for end in (0, 6):
            best = shortest(table, 0, end)
            with monkeypatch.context() as patched:
                patched.setattr(tested, "EXACT", 0)
                found = length(table, visiting_order(table, 0, end), end)
            assert found >= best - 1e-12
            ratios.append(found / best)
    assert np.mean(ratios) < 1.03
    assert max(ratios) < 1.25


def test_the_farthest_place_is_inserted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    # nearest insertion would begin with 1 and end with 0 2 1 3 or its like
    monkeypatch.setattr(tested, "EXACT", 0)
    line = np.array([0.0, 1.0, 10.0, 4.0])
    table = np.abs(line[:, None] - line)
    assert length(table, visiting_order(table, 0, 0), 0) == 20
    assert visiting_order(table, 0, 2) == [0, 1, 3, 2]
