"""The answer of the form of a result: in every semiring the value of the path grows along it as its weights say."""

from __future__ import annotations

from itertools import accumulate

import pytest
from fastapi.testclient import TestClient

from service.dashboard.path_answers import _JOINED, _route
from service.state import Service
from storage.graph.graph import build_graph
from storage.semirings import MIN_PLUS, SEMIRINGS
from tests.unit.service.dashboard import test_pages
from tests.unit.service.dashboard.test_pages import Tags, give, log_in
from tests.unit.service.support import Bench

service, settings = test_pages.service, test_pages.settings
WEIGHTS = {
    MIN_PLUS: ([3, 1, 2], [0, 3, 4, 6]),
    "max-min": ([3, 1, 2], [None, 3, 1, 1]), "min-max": ([1, 3, 2], [None, 1, 3, 3]),
    "max-times": ([0.5, 0.5, 1], [None, 0.5, 0.25, 0.25]), "lor-land": ([1, 1, 1], [None, 1, 1, 1]),
}  # fmt: skip


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_stops_have_the_value_up_to_them(semiring: str):
    weights, expected = WEIGHTS[semiring]
    route = _route({"vertices": list("abcd"), "weights": weights}, semiring, drawn=True)
    assert (route["scale"] is not None) == (semiring == MIN_PLUS), "other values are no lengths"
    assert _route({"vertices": list("abcd"), "weights": weights}, semiring, drawn=False)["scale"] is None
    assert [stop["so_far"] for stop in route["first"]] == expected
    assert [stop["weight"] for stop in route["first"]] == [None, *weights]
    assert expected[-1] == list(accumulate(weights, _JOINED[semiring]))[-1]


@pytest.mark.parametrize("semiring", [name for name in SEMIRINGS if name != MIN_PLUS])
def test_the_page_of_another_semiring_says_what_its_values_are(
    client: TestClient, service: Service, bench: Bench, semiring: str
):
    owner = log_in(client, service)
    keep = SEMIRINGS[semiring].parallel or "least"
    graph, _ = build_graph([0, 1, 2], [1, 2, 0], [0.5, 0.25, 1], labels=[10, 20, 30], directed=True, parallel=keep)
    job, _ = give(service, bench, owner, bench.valued(graph, semiring))
    text = " ".join(Tags(client.get(f"/jobs/{job}").text).text.split())
    assert f"The {SEMIRINGS[semiring].title} of each pair (semiring {semiring}): {SEMIRINGS[semiring].value}" in text
    assert "object at 0x" not in text
    answer = client.get(f"/jobs/{job}?source=10&target=30")
    path = client.get(f"/v1/jobs/{job}/path", params={"source": 10, "target": 30, "semiring": semiring}).json()
    assert f"over {len(path['weights'])} arc" in answer.text
    assert f"semiring={semiring}" in answer.text
    assert "Copy as a table" not in answer.text, "which adds weights up"


def test_every_semiring_joins_the_lengths_of_a_path() -> None:
    assert set(_JOINED) == set(SEMIRINGS)
