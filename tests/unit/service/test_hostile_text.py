"""Text that strangers choose: in addresses, headers, bodies and cookies, on its way to the database and to the log."""

from __future__ import annotations

import json
import logging
import re
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from service import logs
from service.api.schemas.jobs import JobRequest
from service.app import create_app
from service.auth.sessions import COOKIE, tokens_of
from service.jobs import joblog
from service.settings import Settings
from storage.jobs.keys import KeyStore
from tests.property.test_openapi import here
from tests.unit.service.support import Bench, small_graph
from tests.unit.service.test_app import problem

TEXTS = ["\ud800", "a\udfffb", "\0", "a\0b", "x" * 20_000, "\n", "\x1b[31m", "\u2028", "\u202e", "٣", "é", "'; --"]
FORGED = "2026-01-01 00:00:00 api INFO all is well"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def cursors() -> Iterator[str]:
    """What a stranger makes of the form that cursors have."""
    for text in TEXTS:
        for value in ([1, text], [text, 1], [text, text], text, {text: text}):
            yield urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
        yield urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", host="testserver", max_body_bytes=1 << 20, max_wait_seconds=1)


@pytest.fixture
def key(client: TestClient) -> str:
    service = client.app.state.service  # type: ignore[attr-defined]
    service.planner.run = service.worker.run = service.checker.run = here
    return KeyStore(service.jobs.database).create("test", ("admin",))[1]


@pytest.fixture
def asked(client: TestClient, key: str) -> Iterator[list[str]]:
    """Texts that reach the database; no database refuses one of them."""
    client.headers["Authorization"] = f"Bearer {key}"
    engine = client.app.state.service.jobs.database._engine  # type: ignore[attr-defined]
    found: list[str] = []

    def look(_connection: Any, _cursor: Any, _statement: str, parameters: Any, *_: Any) -> None:
        rows = parameters if isinstance(parameters, list) else [parameters]
        for row in rows:
            found.extend(value for value in (row.values() if isinstance(row, dict) else row) if isinstance(value, str))

    event.listen(engine, "before_cursor_execute", look)
    yield found
    event.remove(engine, "before_cursor_execute", look)
    for text in found:
        text.encode()
        assert "\0" not in text


def raw(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def test_no_parameter_of_any_operation_is_an_accident(client: TestClient, bench: Bench, asked: list[str]):
    job_id, _ = bench.solved(small_graph(), "int32")
    known = {"job_id": job_id, "graph_id": bench.jobs.job(job_id).graph, "key": "zarr.json"}
    document = client.get("/openapi.json").json()
    tried = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method == "delete":
                continue
            for parameter in operation.get("parameters", ()):
                name, place = parameter["name"], parameter["in"]
                texts = [*cursors()] if name == "cursor" else []
                for text in [raw(text) for text in TEXTS] + texts:
                    if place == "header":
                        value = text.encode() if "%" not in text else bytes.fromhex("c3a9eda080")
                        response = client.request(method, path.format(**known), headers={name: value})
                    elif place == "query":
                        response = client.request(method, f"{path.format(**known)}?{name}={text}")
                    else:
                        response = client.request(method, path.format(**{**known, name: text}))
                    assert response.status_code < 500, (method, path, name, text[:40], response.text)
                    tried += 1
    assert tried > 500
    assert asked


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_in_a_body_is_an_accident(client: TestClient, bench: Bench, asked: list[str], text: str):
    job_id, _ = bench.solved(small_graph(), "int32")
    graph = bench.jobs.job(job_id).graph
    bodies: list[tuple[str, Any]] = [
        ("/v1/jobs", {"graph": graph, name: value}) for name in JobRequest.model_fields for value in (text, [text])
    ]
    bodies += [(f"/v1/jobs/{job_id}/submatrix", {name: [text]}) for name in ("sources", "targets", text)]
    bodies += [(f"/v1/jobs/{job_id}/{path}", {"pairs": [[text, 10]]}) for path in ("distances", "paths")]
    for path, body in bodies:
        response = client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
        assert response.status_code < 500, (path, body, response.text)
        response.json()
    for name in ("authorization", "cookie"):
        value = f"Bearer {text}" if name == "authorization" else f"{COOKIE}={text}"
        sent = value.encode("utf-8", "surrogatepass").replace(b"\n", b"").replace(b"\0", b"")[:2000]
        assert client.get("/v1/jobs", headers={name: sent}).status_code in (200, 401)
    assert asked


@pytest.mark.parametrize("path", ["/v1/graphs", "/v1/jobs"])
def test_cursors_that_no_list_gave(client: TestClient, asked: list[str], path: str):
    for cursor in {*cursors(), "WzEsIlx1ZDgwMCJd", "WzEsIlx1MDAwMCJd", "=" * 300, "~"}:
        answer = client.get(path, params={"cursor": cursor})
        if path == "/v1/graphs":
            assert answer.status_code == (200 if cursor == urlsafe_b64encode(b"""[1, "'; --"]""").decode() else 422)
        assert answer.status_code in (200, 422), cursor
    assert asked


def test_nothing_lies_behind_a_control_character(client: TestClient, bench: Bench, asked: list[str]):
    job_id, _ = bench.solved(small_graph(), "int32")
    known = {
        "job_id": job_id,
        "graph_id": bench.jobs.job(job_id).graph,
        "key": "distances/c/0/0",
        "name": "page.css",
        "table_id": "0" * 32,
    }
    paths = {route.path_format.format(**known) for route in client.app.state.routes}  # type: ignore[attr-defined]
    assert len(paths) > 25
    for path in paths:
        for character in ("%0a", "%0d", "%1b", "%7f", "%00"):
            for method in ("GET", "POST", "DELETE"):
                headers = {"origin": "http://testserver", "sec-fetch-site": "same-origin"}
                answer = client.request(method, path + character, headers=headers, follow_redirects=False)
                problem(answer, 404, "not-found")


def test_what_must_be_given_is_said_to_be(client: TestClient, key: str):
    paths = client.get("/openapi.json").json()["paths"]
    said = (
        ("rows", "sources", "One of `sources`, `source_point` and `all=true` must be given"),
        ("columns", "targets", "Either `targets` or `target_point` must be given"),
    )
    for path, name, sentence in said:
        operation = paths[f"/v1/jobs/{{job_id}}/{path}"]["get"]
        point = f"{name.removesuffix('s')}_point"
        assert {name, point} <= {item["name"] for item in operation["parameters"]}
        assert sentence in operation["description"]


def test_trace_is_no_method_of_ours(client: TestClient, key: str):
    for scope in ("read", "admin"):
        mine = KeyStore(client.app.state.service.jobs.database).create(scope, (scope,))[1]  # type: ignore[attr-defined]
        headers = {"Authorization": f"Bearer {mine}", "sec-fetch-site": "cross-site"}
        problem(client.request("TRACE", "/v1/jobs", headers=headers), 405, "method-not-allowed")
    problem(client.request("TRACE", "/health/live"), 405, "method-not-allowed")


def test_a_session_behind_one_that_is_none(client: TestClient, key: str):
    service = client.app.state.service  # type: ignore[attr-defined]
    good = service.visitors.enter(key)
    assert tokens_of(f"a=b; {COOKIE}=x; {COOKIE}=; {COOKIE}=y;{COOKIE}=x; z") == ["x", "y"]
    assert len(tokens_of(f"{COOKIE}=x;" + "".join(f"{COOKIE}={k};" for k in range(1000)))) <= 4
    for cookie in (f"{COOKIE}={good}", f"{COOKIE}=bad; {COOKIE}={good}", f"{COOKIE}={good}; {COOKIE}=bad"):
        assert client.get("/v1/jobs", headers={"cookie": cookie}).status_code == 200, cookie
        assert client.get("/", headers={"cookie": cookie}, follow_redirects=False).status_code == 200
    assert client.get("/v1/jobs", headers={"cookie": f"{COOKIE}=bad; {COOKIE}=worse"}).status_code == 401
    service.visitors.leave(f"{COOKIE}=bad; {COOKIE}={good}")
    assert client.get("/v1/jobs", headers={"cookie": f"{COOKIE}={good}"}).status_code == 401


def formatters() -> dict[str, logging.Formatter]:
    return {"service": logs._Text("api"), "job": joblog._Plain(Path("/data"), "ab-1")}


@pytest.mark.parametrize("name", formatters())
@pytest.mark.parametrize("text", [f"x\n{FORGED}", f"x\r\n{FORGED}", f"x\x85{FORGED}", "\x1b[31m", "\u202e", "\u2028a"])
def test_text_in_a_log_is_no_line_of_it(name: str, text: str):
    """Wherever it stands: in the message, its arguments, an exception, the cause of one, a stack, an id."""
    try:
        try:
            raise OSError(text)
        except OSError as error:
            raise ValueError(text) from error
    except ValueError:
        failed = sys.exc_info()
    token = logs.JOB_ID.set(text)
    for message, arguments, problem_, stack in (
        (text, (), None, None), ("%s", (text,), None, None), ("%r", (text,), failed, None),
        ("Exception in application\n", (), failed, text),
    ):  # fmt: skip
        record = logging.LogRecord("x", logging.ERROR, "f.py", 1, message, arguments, problem_, sinfo=stack)
        first, *rest = formatters()[name].format(record).split("\n")
        assert first[:4].isdigit()
        assert all(line.startswith("  ") for line in rest), rest
        assert not any(CONTROL.search(line) for line in [first, *rest])
        assert (len(rest) > 3) == (problem_ is not None), "a traceback is still one"
    logs.JOB_ID.reset(token)


def test_a_stranger_writes_no_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    app = create_app(Settings(data_dir=tmp_path / "data", log_requests=True))
    client = TestClient(app, raise_server_exceptions=False)
    for path in (f"/v1/x%0a{FORGED}%1b[31m", "/jobs/%c2%9b31m", "/v1/%e2%80%ae"):
        client.get(path)
    lines = [logs._Text("api").format(record) for record in caplog.records]
    assert sum("/v1/x\\n2026-01-01" in line for line in lines) == 1
    assert len(lines) >= 3
    assert not any("\n" in line or CONTROL.search(line) for line in lines)
    app.state.service.jobs.close()
