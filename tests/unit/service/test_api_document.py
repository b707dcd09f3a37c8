"""docs/api.md says what the application does, and the examples of the schemas are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel

from service import schemas
from service.formats import MEDIA_TYPES
from service.problems import CODES
from service.settings import Settings, variable

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text()


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
    for request, statuses in documented.items():
        assert statuses <= real[request], (request, real[request])
        assert real[request] - statuses <= {422}, request  # wrong parameters are refused everywhere


def test_the_codes_formats_and_settings():
    for code, (status, _) in CODES.items():
        assert re.search(rf"^\| `{code}` \| {status}\b", TEXT, re.MULTILINE), code
    for name, media_type in MEDIA_TYPES.items():
        assert f"| `{name}` | `{media_type}` |" in TEXT
    for name in Settings.model_fields:
        assert f"`{variable(name)}`" in TEXT, name
    assert set(re.findall(r"APSP_[A-Z_]+", TEXT)) == {variable(name) for name in Settings.model_fields}


def models() -> list[type[BaseModel]]:
    found = [c for c in vars(schemas).values() if isinstance(c, type) and issubclass(c, schemas.Wire)]
    return [c for c in found if c.model_json_schema().get("examples")]


@pytest.mark.parametrize("model", models())
def test_the_examples_are_valid(model: type[BaseModel]):
    for example in model.model_json_schema()["examples"]:
        model.model_validate(example)
