"""Bodies of requests: every list and string is bounded, few errors are built, and long ones are checked elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2 as httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from service.api import problems
from service.api.fault import Refused
from service.api.schemas.jobs import JobRequest
from service.api.schemas.results import PairsRequest, SubmatrixRequest
from service.api.schemas.wire import MOST_LISTED, Question
from service.http.bodies import SHORT, check_body
from service.settings import Settings
from tests.property.test_openapi import here
from tests.unit.service.support import Bench, small_graph
from tests.unit.service.test_app import problem

JSON = {"content-type": "application/json"}
#: each makes a body with ``count`` things wrong
WRONG: dict[str, Callable[[int], tuple[type[Question], Any]]] = {
    "lists for vertices": lambda count: (JobRequest, {"graph": "g", "sources": [[1]] * count}),
    "both lists": lambda count: (SubmatrixRequest, {"sources": [{}] * count, "targets": [None] * count}),
    "vertices for pairs": lambda count: (PairsRequest, {"pairs": [1] * count}),
    "pairs of lists": lambda count: (PairsRequest, {"pairs": [[[], []]] * count}),
    "pairs of many": lambda count: (PairsRequest, {"pairs": [[1] * count]}),
    "numbers of opportunities": lambda count: (
        JobRequest,
        {"graph": "g", "opportunities": {"vertices": [1], "columns": {"a": [[]] * count}}},
    ),
    "unknown members": lambda count: (JobRequest, {"graph": "g", **{f"a{k}": 1 for k in range(count)}}),
    "unknown members of pairs": lambda count: (PairsRequest, {f"a{k}": 1 for k in range(count)}),
    "everything": lambda count: (JobRequest, {name: [[]] * count for name in JobRequest.model_fields}),
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_body_bytes": 16 << 20, "max_pairs": 1000})


@pytest.fixture
def inside(client: TestClient) -> TestClient:
    """As ``client``, without the seconds that a process takes to start."""
    client.app.state.service.checker.run = here  # type: ignore[attr-defined]
    return client


def unbounded(schema: Any, defined: dict[str, Any], place: str) -> Iterator[str]:
    """The places of a JSON schema where a list or a string may be of any length."""
    if "$ref" in schema:
        schema = defined[schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "array" and "maxItems" not in schema:
        yield f"{place}: maxItems"
    if schema.get("type") == "string" and not {"maxLength", "enum", "const"} & schema.keys():
        yield f"{place}: maxLength"
    further = schema.get("additionalProperties")
    if schema.get("type") == "object" and further is not False:
        if not {"maxProperties", "propertyNames"} <= schema.keys() or "maxLength" not in schema["propertyNames"]:
            yield f"{place}: additionalProperties"
        else:
            yield from unbounded(further, defined, f"{place}/additionalProperties")
    below = [(name, part) for name, part in schema.get("properties", {}).items()]
    below += [("items", schema["items"])] if "items" in schema else []
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        below += [(f"{key}/{k}", part) for k, part in enumerate(schema.get(key, ()))]
    for name, part in below:
        yield from unbounded(part, defined, f"{place}/{name}")


def test_every_list_and_string_of_a_body_is_bounded(client: TestClient):
    document = client.get("/openapi.json").json()
    bodies = {
        f"{method} {path}": form["schema"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for form in operation.get("requestBody", {}).get("content", {}).values()
    }
    assert len(bodies) == 8
    for name in ("graphs", "tables"):  # the file itself, whose bytes APSP_MAX_UPLOAD_BYTES or ..._TABLE_BYTES bounds
        del bodies[f"post /v1/{name}"]
    defined = document["components"]["schemas"]
    assert [place for name, schema in bodies.items() for place in unbounded(schema, defined, name)] == []
    assert list(unbounded({"type": "array", "items": {"type": "string"}}, {}, "x")) == [
        "x: maxItems",
        "x/items: maxLength",
    ]


@pytest.mark.parametrize("name", WRONG)
def test_the_errors_that_are_built_do_not_grow_with_the_body(name: str):
    def built(count: int) -> int:
        form, body = WRONG[name](count)
        with pytest.raises(ValidationError) as caught:
            form.model_validate(body)
        return caught.value.error_count()

    assert 0 < built(1000) == built(4000) <= 60


@pytest.mark.parametrize("wrong", [[[]], "x", [None]])
def test_columns_of_opportunities_are_few(wrong: Any):
    def built(count: int) -> int:
        columns = {f"c{k}": wrong for k in range(count)}
        with pytest.raises(ValidationError) as caught:
            JobRequest.model_validate({"graph": "g", "opportunities": {"vertices": [1], "columns": columns}})
        return caught.value.error_count()

    assert built(101) == built(10_000) < 10
    assert built(100) <= 110


@pytest.mark.parametrize("name", WRONG)
def test_long_bodies_are_refused_as_short_ones(inside: TestClient, bench: Bench, name: str):
    job_id, _ = bench.solved(small_graph(), "int32")
    form, short = WRONG[name](60)
    _, long = WRONG[name](30_000)
    path = {JobRequest: "/v1/jobs", PairsRequest: f"/v1/jobs/{job_id}/distances"}.get(
        form, f"/v1/jobs/{job_id}/submatrix"
    )
    assert len(json.dumps(short)) < SHORT < len(json.dumps(long))
    answers = [problem(inside.post(path, json=body), 422, "invalid-request") for body in (short, long)]
    assert answers[0]["details"]["errors"][0]["pointer"] == answers[1]["details"]["errors"][0]["pointer"]
    assert all(len(answer["details"]["errors"]) <= 20 for answer in answers)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"graph": "\xff' + b"x" * 100_000,
        b"1" * 100_000,
        b"[1, " * 3 + b" " * 100_000,
        b"[] " * 40_000,
    ],
)
def test_long_bodies_that_are_no_json(inside: TestClient, body: bytes):
    problem(inside.post("/v1/jobs", content=body, headers=JSON), 422, "invalid-request")
    problem(inside.post("/v1/jobs", content=body), 422, "invalid-request")


def test_long_bodies_mean_what_short_ones_mean(client: TestClient, bench: Bench):
    job_id, distances = bench.solved(small_graph(), "int32")
    pairs = [[10, 20], ["20", 40], [30, 10]] * 300
    for blanks in (0, SHORT):
        body = json.dumps({"pairs": pairs}) + " " * blanks
        answer = client.post(f"/v1/jobs/{job_id}/distances", content=body, headers=JSON)
        assert answer.json()["distances"][:3] == [distances[0, 1], None, distances[2, 0]]
        assert len(answer.json()["distances"]) == 900
    graph = bench.jobs.job(job_id).graph
    for path in ("/v1/jobs", "/v1/estimates"):
        answer = client.post(path, json={"graph": graph, "sources": [10] * 30_000})
        assert (
            "30000 sources are named, and the graph has 4 vertices" in problem(answer, 413, "limit-exceeded")["detail"]
        )


def test_as_many_vertices_as_the_limit_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(problems, "_LONGEST_PART", 5)
    for count in (MOST_LISTED, MOST_LISTED + 1):
        body = json.dumps({"sources": [1] * count}).encode()
        if count == MOST_LISTED:
            assert len(check_body(SubmatrixRequest, body).sources or ()) == count
        else:
            with pytest.raises(Refused, match=f"/body/sourc: .* at most {MOST_LISTED} "):
                check_body(SubmatrixRequest, body)


def test_others_are_answered_while_a_long_body_is_checked(client: TestClient):
    """However long that takes: here, until the others have been answered."""
    app, answered = client.app, asyncio.Event()
    checked = []

    async def check(task: Any, form: Any, body: bytes, **_: Any) -> Any:
        checked.append(len(body))
        await asyncio.wait_for(answered.wait(), 60)
        return await asyncio.to_thread(task, form, body)

    app.state.service.checker.run = check  # type: ignore[attr-defined]

    async def scene() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as http:
            long = asyncio.create_task(http.post("/v1/jobs", json={"graph": "g", "sources": [[1]] * 100_000}))
            while not checked:
                await asyncio.sleep(0.01)
            assert (await http.get("/health/live")).status_code == 200
            assert (await http.post("/v1/jobs", json={"graph": "g", "sources": [[1]]})).status_code == 422
            answered.set()
            assert (await long).status_code == 422

    asyncio.run(scene())
    assert len(checked) == 1
