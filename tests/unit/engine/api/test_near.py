"""Near pairs: what is refused and with which numbers, and how a refused solve names them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from engine.api import near
from engine.api.near import near_pairs, plan_near
from engine.api.solve import make_plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from storage.errors import Cancelled, DoesNotFit, InvalidRequest
from storage.graph.graph import build_graph


def road(n: int = 4000, weight: float = 10):
    ends = np.arange(n - 1)
    return build_graph(ends, ends + 1, np.full(n - 1, weight), n=n, directed=False)[0]


@pytest.mark.parametrize(
    ("asked", "nearest", "field", "message"),
    [
        ({}, None, "cutoff", "need a cutoff, or the number"),
        ({}, 0, "nearest", "at least 1, found 0"),
        ({"cutoff": -1.0}, None, "cutoff", "-1"),
        ({"cutoff": float("nan")}, None, "cutoff", "nan"),
        ({"cutoff": 1, "sources": (4000,)}, None, "sources", "from 0 to 3999"),
        ({"cutoff": 1, "targets": (1, 1)}, None, "targets", "1"),
        ({"cutoff": 1, "threads": 10**6}, None, "threads", "1000000"),
    ],
)
def test_requests_without_an_answer_are_refused(asked, nearest, field, message):
    with pytest.raises(InvalidRequest, match=message) as refused:
        near_pairs(road(), Options(**asked), nearest=nearest)
    assert refused.value.field == field


def test_weights_that_searches_cannot_take_are_refused():
    below, _ = build_graph([0, 1], [1, 2], [3, -1], n=3, directed=True)
    with pytest.raises(InvalidRequest, match="the least weight is -1"):
        near_pairs(below, Options(cutoff=5))
    huge, _ = build_graph([0, 1], [1, 2], [2**53, 2**53], n=600, directed=True)
    with pytest.raises(InvalidRequest, match="give a cutoff"):
        near_pairs(huge, Options(), nearest=1)
    assert near_pairs(huge, Options(cutoff=2**54)).lengths.tolist() == [2**53, 2**54, 2**53]
    floats, _ = build_graph([0, 1], [1, 2], [1e308, 1e308], n=3, directed=True)
    with pytest.raises(InvalidRequest, match="give a cutoff"):
        near_pairs(floats, Options(), nearest=2)
    assert near_pairs(floats, Options(cutoff=1.7e308)).entries == 2
    assert near_pairs(road(3, 0.5), Options(cutoff=1e300)).entries == 6


def test_too_many_pairs_are_refused_from_a_sample_or_as_they_are_found(monkeypatch):
    graph = road()
    monkeypatch.setattr(near, "_budget", lambda machine, graph, each: 5_000_000)
    with pytest.raises(DoesNotFit, match=r"are predicted from 1,.* and 5,000,000 fit") as refused:
        near_pairs(graph, Options(cutoff=10_000))
    assert refused.value.needed > refused.value.available
    monkeypatch.setattr(near.NearSearches, "predicted", lambda self: 0.0)
    with pytest.raises(DoesNotFit, match=r"already .* pairs were found from"):
        near_pairs(graph, Options(cutoff=10_000))
    monkeypatch.undo()
    with pytest.raises(DoesNotFit, match=r"with 1 thread, .*give it more memory"):
        near_pairs(graph, Options(cutoff=1, memory=1))


def test_fewer_threads_search_where_memory_is_short_for_all(monkeypatch):
    graph, few = road(), Options(cutoff=20, memory=4_000_000)
    expected = near_pairs(graph, Options(cutoff=20, threads=1))
    monkeypatch.setattr("engine.execution.survey.usable_processors", lambda _groups: 64)
    assert plan_near(graph, few).threads == 11, "pairs may take as much as the searches of eleven threads"
    assert plan_near(graph, Options(cutoff=20)).threads == 64
    found = near_pairs(graph, few)
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.lengths, expected.lengths)


def test_pairs_wait_on_the_disk_with_many_threads(monkeypatch, tmp_path):
    """What 64 threads find at the same time, while the first piece takes longer, is more than memory holds."""
    graph, search = road(), near.NearSearches._search
    expected = near_pairs(graph, Options(cutoff=1250, threads=1))

    def slowly(self, first, space):
        time.sleep(0.5 if first == 0 else 0.1)
        return search(self, first, space)

    monkeypatch.setattr(near.NearSearches, "_search", slowly)
    monkeypatch.setattr("engine.execution.survey.usable_processors", lambda _groups: 64)
    options = Options(cutoff=1250, memory=23_700_000)
    assert plan_near(graph, options, out=tmp_path / "t", spills=True).threads == 64
    found = near_pairs(graph, options, spill=tmp_path)
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.lengths, expected.lengths)


def test_progress_is_told_and_a_wish_to_stop_is_heard():
    class Told(Monitor):
        done, stop = 0, False

        def advance(self, amount):
            self.done += amount

        def cancelled(self):
            return self.stop and self.done > 0

    told = Told()
    near_pairs(road(), Options(cutoff=50), monitor=told)
    assert told.done == 4000
    told = Told()
    told.stop = True
    with pytest.raises(Cancelled):
        near_pairs(road(), Options(cutoff=50), monitor=told)


def test_a_refused_solve_with_a_cutoff_names_near_pairs(tmp_path):
    graph = road()
    options = Options(cutoff=50, memory=100 << 20, device="cpu", dtype="float64")
    machine = DoesNotFit("too large", resource="disk", needed=10**9, available=1)
    told = near.near_offered(machine, graph, options)
    entries = near_pairs(graph, Options(cutoff=50)).entries
    assert "too large; near pairs: about" in str(told)
    said = int(str(told).split("about ")[1].split(" ")[0].replace(",", ""))
    assert entries * 0.9 < said < entries * 1.1
    for other in (Options(device="cpu"), Options(cutoff=50, max_hops=3), Options(cutoff=10**6)):
        assert near.near_offered(machine, graph, other) is machine


def test_planning_asks_for_it(monkeypatch, tmp_path):
    from engine.api import planning

    def full(*_arguments, **_options):
        raise DoesNotFit("no place", resource="disk", needed=10**10, available=1)

    monkeypatch.setattr(planning, "_plan", full)
    with pytest.raises(DoesNotFit, match=r"no place;.* near pairs: about"):
        make_plan(road(), Options(cutoff=50, device="cpu"), out=tmp_path / "s.zarr")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("weight", [10, 0.5])
@pytest.mark.parametrize("nearest", [None, 30])
def test_pairs_that_memory_does_not_hold_are_the_same_from_files(monkeypatch, tmp_path, threads, weight, nearest):
    """Whether the prediction or the search finds that memory is too small: the budget is below either one."""
    graph, options = road(weight=weight), Options(cutoff=200 * weight, threads=threads)
    right = near_pairs(graph, options, nearest=nearest)
    for budget in (right.entries // 2, right.entries - 1, right.entries // 3):
        monkeypatch.setattr(near, "_budget", lambda machine, graph, each, budget=budget: budget)
        found = near_pairs(graph, options, nearest=nearest, spill=tmp_path)
        assert isinstance(found.indices, np.memmap)
        for name in ("indptr", "indices", "lengths", "sources"):
            one, other = getattr(right, name), getattr(found, name)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        with pytest.raises(DoesNotFit):
            near_pairs(graph, options, nearest=nearest)
        assert not list(tmp_path.iterdir())
