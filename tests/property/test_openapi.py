"""Tests generated requests for every operation of the OpenAPI document: no server error, no undocumented answer.

``APSP_CASES=500 pytest tests/property/test_openapi.py`` is the long run; by default each operation gets a few dozen.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import anyio.to_thread
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from service.api.fault import Fault, Refused
from service.app import ROUTERS, create_app
from service.pool.process import guarded
from service.settings import Settings
from storage.jobs.keys import KeyStore
from tests.unit.service.support import Bench, small_graph

CASES = int(os.environ.get("APSP_CASES", "24"))
#: what the service says when it cannot do what was asked, which is no failure of its own
CANNOT = (503, 507)
LABELS = ["10", "20", "30", "40"]
NAMES = (
    "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "missing_required_header", "ignored_auth",
)  # fmt: skip
OPERATIONS = sorted(
    (route.path_format, method)
    for router in ROUTERS
    for route in router.routes
    if route.include_in_schema
    for method in route.methods
)


async def here(task: Callable[..., Any], *arguments: Any, **_limits: Any) -> Any:
    """Run a task of the processes beside in a thread of this one."""
    found = await anyio.to_thread.run_sync(lambda: guarded(task, arguments))
    if isinstance(found, Fault):
        raise Refused(found)
    return found


def likely(data: st.DataObject, case: schemathesis.Case, job_id: str, graph_id: str) -> None:
    """Let some of the generated request mean something: a job, a graph or vertices that there are."""
    for name, value in (("job_id", job_id), ("graph_id", graph_id)):
        if name in (case.path_parameters or {}) and data.draw(st.integers(0, 3)):
            case.path_parameters[name] = value
    if "key" in (case.path_parameters or {}) and data.draw(st.booleans()):
        case.path_parameters["key"] = data.draw(st.sampled_from(["zarr.json", "distances/c/0/0", "graph.json"]))
    for name in ("columns", "column", "sort"):
        if name in (case.query or {}) and data.draw(st.booleans()):
            case.query[name] = data.draw(st.sampled_from(["vertex", "mean", "within_3", "farthest"]))
    for name in ("source", "target", "sources", "targets", "vertices", "graph"):
        if name in (case.query or {}) and data.draw(st.booleans()):
            case.query[name] = graph_id if name == "graph" else data.draw(st.sampled_from(LABELS))
    if isinstance(case.body, bytes) and data.draw(st.booleans()):
        case.body = data.draw(st.sampled_from([b"1 2 3\n2 3 4\n", b"v,n\n1,2\n"]))
    if isinstance(case.body, dict):
        if "graph" in case.body and data.draw(st.integers(0, 3)):
            case.body["graph"] = graph_id
        for name in ("sources", "targets"):
            if case.body.get(name) and data.draw(st.booleans()):
                case.body[name] = data.draw(st.lists(st.sampled_from([10, "20", 30]), min_size=1, max_size=3))
        if "pairs" in case.body and data.draw(st.booleans()):
            case.body["pairs"] = [[10, 20], ["40", 30]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, schemathesis.BaseSchema, Bench]]:
    data = tmp_path_factory.mktemp("served")
    app = create_app(Settings(data_dir=data, max_requests_per_second=10**9, max_wait_seconds=1))
    service = app.state.service
    service.planner.run = service.worker.run = service.checker.run = here
    bench = Bench(service.settings)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client, schemathesis.openapi.from_asgi("/openapi.json", app), bench
    bench.jobs.close()
    service.jobs.close()


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda value: value)
def test_answers_are_documented_and_no_accident(served: Any, path: str, method: str):
    client, schema, bench = served
    keys = KeyStore(bench.jobs.database)
    headers = {"Authorization": f"Bearer {keys.create('generated', ('admin',))[1]}"}
    for waiting in bench.jobs.list_jobs(10_000, state="accepted"):
        bench.jobs.cancel(waiting.id)
    if "/table" in path and "job_id" in path:
        job_id = bench.tabled(small_graph(), result="measures", within=[3.0])
    else:
        job_id, _ = bench.solved(small_graph(), "int32")
    graph_id = bench.jobs.job(job_id).graph
    operation = schema[path][method]
    checks = [CHECKS.get_one(name) for name in NAMES]
    either = operation.as_strategy() | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
    answers: Counter[int] = Counter()

    @settings(
        max_examples=CASES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=either, data=st.data())
    def ask(case: schemathesis.Case, data: st.DataObject) -> None:
        likely(data, case, job_id, graph_id)
        response = case.call(session=client, headers=headers)
        answers[response.status_code] += 1
        assert response.status_code < 500 or response.status_code in CANNOT, response.content
        if response.status_code >= 400 and path.startswith("/v1/"):
            assert response.headers["content-type"] == ["application/problem+json"]
        case.validate_response(response, checks=checks, headers=headers)

    ask()
    assert answers, "nothing was asked"
    print(f"{method} {path}: {dict(sorted(answers.items()))}")
