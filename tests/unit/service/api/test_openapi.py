"""docs/api.md says what the application does, and the examples of the schemas are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel

from service.api import openapi_page
from service.api.openapi import EVERYWHERE, WITH_BODY
from service.api.problems import CODES
from service.api.schemas import graphs, jobs, results, wire
from service.api.schemas import service as about_service
from service.app import create_app
from service.settings import Settings, variable
from service.views.media_types import MEDIA_TYPES

ROOT = Path(__file__).resolve().parents[4]
TEXT = (ROOT / "docs" / "api.md").read_text()


def test_the_endpoints_and_their_statuses(client: TestClient):
    documented = {}
    for request, answers in re.findall(r"^\| `((?:GET|POST|DELETE) /\S+)` \| ([^|]*) \|", TEXT, re.MULTILINE):
        documented[request] = {int(number) for number in re.findall(r"\b\d{3}\b", answers)}
    paths = client.get("/openapi.json").json()["paths"]
    real = {
        f"{method.upper()} {path}": {int(status) for status in operation["responses"]}
        for path, operations in paths.items()
        for method, operation in operations.items()
    }
    assert set(documented) == set(real)
    sentence = re.search(
        r"Every request under `/v1` can also be answered with ([^;]*); one with a body with (.*?)\.", TEXT
    )
    assert sentence is not None
    everywhere, with_body = (tuple(map(int, re.findall(r"\d{3}", sentence[part]))) for part in (1, 2))
    assert (everywhere, with_body) == (EVERYWHERE, WITH_BODY)
    for request, statuses in documented.items():
        assert statuses <= real[request], (request, real[request])
        general = {*everywhere, *with_body} if " /v1/" in request else set()
        assert real[request] - statuses <= general, request


def test_the_codes_formats_and_settings():
    for code, (status, _) in CODES.items():
        assert re.search(rf"^\| `{code}` \| {status}\b", TEXT, re.MULTILINE), code
    for name, media_type in MEDIA_TYPES.items():
        assert f"| `{name}` | `{media_type}` |" in TEXT
    named = set(re.findall(r"APSP_[A-Z_]+", TEXT))  # all of them are on the page "Configuration"
    assert named
    assert named <= {variable(name) for name in Settings.model_fields}


def test_every_limit_of_a_request_is_told_and_looked_at(client: TestClient):
    told = client.get("/v1/limits").json()["limits"]
    sources = {path: path.read_text() for folder in ("service", "storage") for path in (ROOT / folder).rglob("*.py")}
    code = "\n".join(text for path, text in sources.items() if path.name not in ("settings.py", "health.py"))
    named = set(re.findall(r'\bvariable\("(\w+)"\)|\bsetting="APSP_(\w+)"|"APSP_(MAX_\w+)"', code))
    raised = {next(filter(None, found)).lower() for found in named}
    raised |= set(re.findall(r'"(max_\w+)"', code)) & set(Settings.model_fields)
    assert raised <= set(told), "a client could run into a limit that it was not told of"
    for name, limit in told.items():
        assert limit["description"]
        if limit["setting"] is None:
            assert name not in Settings.model_fields
            continue
        assert limit["setting"] == variable(name)
        assert limit["value"] == getattr(client.app.state.service.settings, name)
        assert re.search(rf"\b{name}\b", code), f"{name} is told, and nothing looks at it"


def test_keys_and_scopes_are_in_the_document(tmp_path: Path):
    app = create_app(Settings(data_dir=tmp_path))
    document = app.openapi()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    scopes = {
        f"{method} {path}": operation.get("security")
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert scopes["post /v1/jobs"] == scopes["delete /v1/graphs/{graph_id}"] == [{"key": ["submit"]}]
    assert scopes["get /v1/jobs"] == scopes["post /v1/jobs/{job_id}/paths"] == [{"key": ["read"]}]
    assert scopes["get /health/live"] is None
    app.state.service.jobs.close()


def test_descriptions_leave_out_what_docstrings_say_to_developers(client: TestClient):
    operations = [item for path in client.get("/openapi.json").json()["paths"].values() for item in path.values()]
    assert all(item["description"] and "Args:" not in item["description"] for item in operations)


def test_the_page_is_whole_and_loads_nothing(client: TestClient):
    answer = client.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert answer.headers.get_list("content-security-policy") == [policy]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    loaded = re.findall(r"<(?:script|link|img)\b[^>]*?\b(?:src|href)=\"([^\"]*)\"", answer.text)
    assert loaded
    assert all(address.startswith("/static/") for address in loaded)
    assert not re.search(r"@import|url\(|\son\w+=|https?://|style=|<style|<script(?![^>]*src=)", answer.text)
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"<code>{method.upper()} {path}</code>" in answer.text
    for name in document["components"]["schemas"]:
        assert f'id="form-{name}"' in answer.text
    for target in re.findall(r'href="#([^"]*)"', answer.text):
        assert f'id="{target}"' in answer.text
    assert "``" not in answer.text, "what stands between backticks is code"
    assert client.get("/redoc").status_code == 404


def test_the_page_shows_what_looks_like_markup_as_text():
    schema = {"description": "<b>&", "properties": {"<i>": {"enum": ["<u>"]}}, "examples": ["<s>"]}
    document = {"info": {"title": "<x>", "version": "1"}, "paths": {}, "components": {"schemas": {"<y>": schema}}}
    text = openapi_page.render(document)
    assert not re.search(r"<(?:x|y|b|i|u|s)>", text)


def models() -> list[type[BaseModel]]:
    found = {
        c for module in (graphs, jobs, results, about_service, wire) for c in vars(module).values() if _is_schema(c)
    }
    assert len(found) > 20
    return sorted((c for c in found if c.model_json_schema().get("examples")), key=lambda c: c.__name__)


def _is_schema(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, wire.Wire)


@pytest.mark.parametrize("model", models())
def test_the_examples_are_valid(model: type[BaseModel]):
    for example in model.model_json_schema()["examples"]:
        model.model_validate(example)
