"""The examples of the OpenAPI document: each fits its schema, and asking as they say is answered as it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.app import ROUTERS
from storage.geography.coordinates import Coordinates
from storage.graph.graph import Graph, build_graph
from storage.jobs.store import JobStore
from tests.property.test_openapi import here
from tests.unit.service.support import Bench, small_graph

OPERATIONS = sorted(
    (route.path_format, method.lower())
    for router in ROUTERS
    for route in router.routes
    if route.include_in_schema
    for method in route.methods
)
Document = dict[str, Any]


def streets() -> Graph:
    """Vertices 1 to 40 in a ring, as the examples name them, around the points of the examples."""
    vertices = np.arange(40)
    further = {"metres": 100 + vertices, "toll": vertices / 4}
    graph, _ = build_graph(
        vertices, np.roll(vertices, -1), np.ones(40), labels=vertices + 1, directed=True, quantities=further
    )
    angles = vertices * (2 * np.pi / len(vertices))
    placed = Coordinates(24.945 + 0.01 * np.cos(angles), 60.169 + 0.005 * np.sin(angles), geographic=True)
    return replace(graph, coordinates=placed)


@pytest.fixture
def document(client: TestClient) -> Document:
    return client.get("/openapi.json").json()


def schemas(part: Any) -> Iterator[Document]:
    """All objects in a document that hold examples beside a schema, or are schemas with examples."""
    if isinstance(part, dict):
        if "examples" in part and isinstance(part["examples"], list):
            yield part
        for value in part.values():
            yield from schemas(value)
    elif isinstance(part, list):
        for value in part:
            yield from schemas(value)


def fits(document: Document, schema: Document, value: Any) -> None:
    jsonschema_rs.validator_for({**schema, "components": document["components"]}).validate(value)


def test_every_example_fits_its_schema(document: Document):
    found = list(schemas(document))
    assert len(found) > 15
    for schema in found:
        own = {k: v for k, v in schema.items() if k != "examples"}
        for example in schema["examples"]:
            fits(document, own.get("schema", own), example)


def example_of(document: Document, schema: Document) -> Any:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "examples" in schema:
        return schema["examples"][0]
    if "default" in schema:
        return schema["default"]
    if schema.get("type") == "array":
        return [example_of(document, schema["items"])]
    required = schema.get("required", schema.get("properties", {}))
    return {name: example_of(document, schema["properties"][name]) for name in required}


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda value: value)
def test_asking_as_the_document_says(client: TestClient, bench: Bench, document: Document, path: str, method: str):
    service = client.app.state.service
    service.planner.run = service.worker.run = service.checker.run = here
    graph = streets()
    graph_id = bench.add_graph(graph)
    job_id, _ = bench.solved(graph, "int32", sources=[0, 16])
    if path.endswith("/prepared/{key}"):
        job_id, _ = bench.prepared(graph, "int32")
    if path.endswith("/also"):
        job_id = bench.summed(graph, "metres", "toll")
    if "{job_id}/table" in path:
        job_id = bench.tabled(graph, result="measures", within=[15])
    if path.endswith("/network"):
        there = Coordinates(np.arange(4.0), np.zeros(4), False)
        job_id, _ = bench.solved(replace(small_graph(), coordinates=there), "int32")
    if path.endswith("/cancel") or path.endswith("/resume"):
        job_id = bench.jobs.create(graph_id, {}, {}).id
    if path.endswith("/resume"):
        stop(bench.jobs, job_id)
        record = service.settings.store(job_id).with_name(".matrix.zarr.working") / "record.json"
        record.parent.mkdir(parents=True)
        record.write_text("{}")
    operation = document["paths"][path][method]
    query = {}
    for parameter in operation.get("parameters", []):
        examples = parameter.get("examples") or parameter["schema"].get("examples")
        assert examples or not parameter["required"] or parameter["in"] != "query", "nobody says how to ask"
        if parameter["in"] == "query" and examples:
            query[parameter["name"]] = examples[0]
    body: dict[str, Any] = {}
    if content := operation.get("requestBody", {}).get("content"):
        if "application/json" in content:
            example = example_of(document, content["application/json"]["schema"])
            body["json"] = {**example, "graph": graph_id} if "graph" in example else example
        else:
            body["content"] = content["application/octet-stream"]["example"].encode()
    names = {"job_id": job_id, "graph_id": graph_id, "key": "zarr.json"}
    if "{table_id}" in path:
        names["table_id"] = client.post("/v1/tables", content=b"place,jobs\n1,5\n").json()["id"]
    url = path.format(**names)
    answer = client.request(method.upper(), url, params=query, **body)
    healthy = 503 if path == "/health/ready" else 299
    assert answer.status_code <= healthy, answer.text
    declared = operation["responses"][str(answer.status_code)]
    forms = declared.get("content", {})
    kind = answer.headers.get("content-type", "").partition(";")[0]
    assert kind in forms or (not answer.content and not kind and not forms), (kind, list(forms))
    if kind == "application/json" and forms[kind].get("schema"):
        fits(document, forms[kind]["schema"], answer.json())


def test_points_stand_for_vertices_as_the_document_says(client: TestClient, bench: Bench, document: Document):
    """Wherever a parameter names a source or a target, a point may be given; examples with points are answered."""
    service = client.app.state.service
    service.planner.run = service.worker.run = service.checker.run = here
    graph_id, asked = bench.add_graph(streets()), 0
    job_id = bench.summed(streets(), "metres", "toll")
    for path, operations in document["paths"].items():
        parameters = {one["name"] for one in operations.get("get", {}).get("parameters", ())}
        url = path.format(job_id=job_id, graph_id=graph_id) if parameters & {"source", "sources", "targets"} else ""
        if not url.startswith("/v1/jobs/"):
            continue
        names = {f"{side}_point" for side in ("source", "target") if parameters & {side, f"{side}s"}}
        assert names <= parameters, path
        answer = client.get(url, params=dict.fromkeys(names, "24.9405,60.1697"))
        assert answer.status_code == 200, answer.text
        assert any(name.startswith("source_point") or name.startswith("target_point") for name in answer.json()), path
        asked += 1
    assert asked == 7
    for path, schema in (("", "JobRequest"), ("distances", "PairsRequest"), ("submatrix", "SubmatrixRequest")):
        for example in document["components"]["schemas"][schema]["examples"]:
            body = {**example, "graph": graph_id} if "graph" in example else example
            answer = client.post(f"/v1/jobs/{job_id}/{path}" if path else "/v1/jobs", json=body)
            assert answer.status_code < 300, answer.text


def stop(jobs: JobStore, job_id: str) -> None:
    """End a job without a result."""
    claimed = jobs.claim("r")
    assert claimed is not None
    assert claimed.id == job_id
    jobs.fail(claimed, {"code": "storage-failed", "message": "the disk is full", "details": {}})
