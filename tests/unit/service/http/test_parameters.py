"""Nothing that a request says is passed over: unknown parameters and members, and others that stand there twice."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from service.http.bodies import SHORT
from service.settings import Settings
from tests.property.test_openapi import here
from tests.unit.service.support import Bench, small_graph

JSON = {"content-type": "application/json"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_body_bytes": 4 * SHORT})


def test_every_parameter_of_one_value_is_refused_when_it_is_given_twice(client: TestClient):
    tried = 0
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        url = path.replace("{job_id}", "0").replace("{graph_id}", "0").replace("{table_id}", "0").replace("{key}", "a")
        for method, operation in operations.items():
            if not path.startswith("/v1/"):
                continue
            unknown = client.request(method, url, params={"nonsense": "1"})
            assert (unknown.status_code, unknown.json()["details"]) == (422, {"field": "nonsense"}), (method, path)
            for parameter in operation.get("parameters", []):
                if parameter["in"] != "query":
                    continue
                name, listed = parameter["name"], '"array"' in json.dumps(parameter["schema"])
                answer = client.request(method, url, params=[(name, "1"), (name, "1")])
                refused = "given twice" in answer.json()["detail"]
                assert refused == (not listed), (method, path, name, answer.text)
                tried += 1
    assert tried > 60


def test_every_parameter_that_takes_a_number_refuses_other_texts(client: TestClient):
    tried = 0
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        url = path.replace("{job_id}", "0").replace("{graph_id}", "0").replace("{table_id}", "0").replace("{key}", "a")
        for method, operation in operations.items():
            for parameter in operation.get("parameters", []):
                schema = json.dumps(parameter["schema"])
                if parameter["in"] != "query" or not ('"integer"' in schema or '"number"' in schema):
                    continue
                for text in ("1_0", "1 ", "٣", "nan", "inf", "1e999", "1e-400", ""):
                    answer = client.request(method, url, params={parameter["name"]: text})
                    found = answer.status_code, answer.json().get("details")
                    assert found == (422, {"field": parameter["name"]}), (method, path, parameter["name"], text)
                    assert f"takes a number: {text!r}" in answer.json()["detail"]
                tried += 1
    assert tried > 15


def test_a_text_in_a_body_is_no_number(client: TestClient, bench: Bench):
    client.app.state.service.checker.run = here  # type: ignore[attr-defined]
    url = f"/v1/jobs/{bench.solved(small_graph(), 'int32')[0]}"
    for path, member in (("distances", "pairs"), ("paths", "pairs"), ("submatrix", "sources"), ("points", "points")):
        answer = client.post(f"{url}/{path}", json={member: [], "snap_limit": "5"})
        assert (answer.status_code, "snap_limit" in answer.text) == (422, True), answer.text


def test_the_last_of_two_values_is_no_answer(client: TestClient, bench: Bench):
    url = f"/v1/jobs/{bench.solved(small_graph(), 'int32')[0]}"
    for query in ("source=10&source=20&target=30", "source=10&target=20&target=30"):
        answer = client.get(f"{url}/distance?{query}")
        assert (answer.status_code, "given twice" in answer.json()["detail"]) == (422, True)
    assert client.get(f"{url}/rows?sources=10&sources=20").json()["sources"] == [10, 20]


@pytest.mark.parametrize("blanks", [0, SHORT])
def test_a_number_of_a_body_that_float64_takes_for_0_is_refused(client: TestClient, bench: Bench, blanks: int):
    client.app.state.service.checker.run = here  # type: ignore[attr-defined]
    url = f"/v1/jobs/{bench.solved(small_graph(), 'int32')[0]}/points"
    for number, refused in (("1e-400", True), ("-1E-0400", True), ("0e-400", False), ("0.0", False)):
        body = f'{{"points": [], "snap_limit": {number}{" " * blanks}}}'
        answer = client.post(url, content=body, headers=JSON)
        said = f"the number {number} in the body is so small that float64 would take it for 0: write 0 if that is meant"
        assert (said in answer.text) == refused, answer.text
        assert answer.status_code == 422 or not refused


@pytest.mark.parametrize("blanks", [0, SHORT])
def test_a_member_that_stands_twice_is_refused(client: TestClient, bench: Bench, blanks: int):
    client.app.state.service.checker.run = here  # type: ignore[attr-defined]
    url = f"/v1/jobs/{bench.solved(small_graph(), 'int32')[0]}/distances"
    body = '{"pairs": [[10, 20]], "pairs": [[10, 30]]' + " " * blanks + "}"
    answer = client.post(url, content=body, headers=JSON)
    assert (answer.status_code, answer.json()["details"]) == (422, {"field": "pairs"}), answer.text
    assert "twice" in answer.json()["detail"]
