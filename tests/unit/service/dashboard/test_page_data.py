"""What pages say of a job: what its distances measure, what it makes, which options are not as usual."""

from __future__ import annotations

from typing import Any

import pytest

from service.dashboard.page_data import kind, measured_in
from service.dashboard.phases import algorithm
from storage.jobs.store import GraphRecord, JobStore
from storage.semirings import MIN_PLUS, SEMIRINGS

WEIGHTS: dict[str, Any] = {"weighted": True, "column": "length_m", "length_of": None}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"weights": WEIGHTS}, "length_m"),
        ({"weights": WEIGHTS, "unit": "m"}, "m"),
        ({"weights": WEIGHTS | {"length_of": "1000 - length_m"}}, ""),
        ({"weights": WEIGHTS | {"length_of": "length_m / 80"}, "unit": "min"}, "min"),
        ({"weights": WEIGHTS | {"column": None}}, ""),
        ({"weights": WEIGHTS | {"column": "3"}}, ""),
        ({"weights": WEIGHTS | {"column": "weight"}}, ""),
        ({"weights": WEIGHTS | {"column": "hops"}}, ""),
        ({"weights": {"weighted": False}}, "arcs"),
        ({}, ""),
    ],
)
def test_what_distances_measure(facts: dict[str, Any], expected: str):
    assert measured_in(GraphRecord("g", "d", "name", 2, 1, facts, {}, 0.0), {}) == expected


@pytest.mark.parametrize("weights", [WEIGHTS, {"weighted": False}])
@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_products_and_reachability_have_no_unit(semiring: str, weights: dict[str, Any]):
    graph = GraphRecord("g", "d", "name", 2, 1, {"weights": weights, "unit": "m"}, {}, 0.0)
    known = semiring == MIN_PLUS or (weights is WEIGHTS and semiring in ("max-min", "min-max"))
    assert measured_in(graph, {"semiring": semiring}) == (("m" if weights is WEIGHTS else "arcs") if known else "")


def test_nothing_is_known_of_a_graph_that_was_deleted():
    assert measured_in(None, {}) == ""


def test_what_a_job_makes(tmp_path):
    jobs = JobStore(tmp_path / "apsp.db")
    jobs.add_graph(GraphRecord("g", "d", "name", 2, 1, {}, {}, 0.0))
    for options, planned, expected in (
        ({}, "dijkstra", ""), ({"result": "measures"}, "dijkstra", "measures"),
        ({"result": "near"}, "near", "near pairs"),
        ({"result": "prepared"}, "prepared", "prepared graph"), ({"result": "flows"}, "assignment", "flows"),
        ({"semiring": "max-min"}, "merged-components", "widest path"),
    ):  # fmt: skip
        record = jobs.create("g", options, {"algorithm": planned})
        assert kind(record) == expected
        (listed,) = jobs.list_jobs(1)
        assert listed.options == {}
        if planned not in ("dijkstra", "merged-components"):
            assert kind(listed) == expected, "a list has no options, but the plan"
    jobs.close()


def test_algorithms_have_names_for_people():
    assert [algorithm(name) for name in ("dijkstra", "merged-components", "")] == ["Dijkstra", "Merged components", ""]
