"""What strangers send in bodies and addresses: each is refused with a reason, and none is an accident of ours."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from storage.files.zstd import zstd
from tests.property.test_openapi import here
from tests.unit.service.support import Bench, small_graph
from tests.unit.service.test_app import problem

JSON = {"content-type": "application/json"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        data_dir=tmp_path / "data", auth=False, host="testserver", max_graph_bytes=4_000_000, max_ratio=100,
        max_vertices=1000, max_upload_bytes=1_000_000,
    )  # fmt: skip


@pytest.fixture
def client(client: TestClient) -> TestClient:
    service = client.app.state.service
    service.planner.run = service.worker.run = service.checker.run = here
    return client


@pytest.fixture
def graph(bench: Bench) -> str:
    return bench.add_graph(small_graph())


@pytest.mark.parametrize(
    "value",
    [
        "NaN", "Infinity", "-Infinity", "1e400", "-101", "1" * 5000, '"\\ud800"', '"\\u0000"', "true", "[]", "{}",
        "1.5.2",
    ],
)  # fmt: skip
@pytest.mark.parametrize("member", ["cutoff", "memory", "threads", "name", "priority", "sources"])
def test_numbers_and_words_that_are_none(client: TestClient, bench: Bench, graph: str, member: str, value: str):
    body = f'{{"graph": "{graph}", "{member}": {value}}}'
    for path in ("/v1/jobs", "/v1/estimates"):
        problem(client.post(path, content=body, headers=JSON), 422, "invalid-request")
    assert bench.jobs.list_jobs(1) == []


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 4000, b'{"a":' * 4000, b"\xff\xfe", b'"\xc3"', b"", b"null", b"[]", b'{"graph": "g", "graph": 3}',
        b'{"graph": "\\ud800"}', b'{"graph": "a\\u0000b"}', b'{"graph": {"$ref": "#"}}', b"\xef\xbb\xbf{}",
    ],
)  # fmt: skip
def test_bodies_that_are_no_request(client: TestClient, body: bytes):
    problem(client.post("/v1/jobs", content=body, headers=JSON), 422, "invalid-request")


def test_deep_json_everywhere(client: TestClient, bench: Bench):
    job_id, _ = bench.solved(small_graph(), "int32")
    deep = b'{"pairs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for path in ("distances", "paths", "submatrix"):
        problem(client.post(f"/v1/jobs/{job_id}/{path}", content=deep, headers=JSON), 422, "invalid-request")


def test_unknown_vertices_by_any_name(client: TestClient, bench: Bench):
    job_id, _ = bench.solved(small_graph(), "int32")
    base = f"/v1/jobs/{job_id}"
    for name in ("NaN", "inf", "1e1", "-0", "0x0a", "10.0", "١٠", "9" * 400, "../10", "'; DROP TABLE jobs; --"):
        response = client.get(f"{base}/distance", params={"source": name, "target": 20})
        problem(response, 404, "not-found")
    for pair in ([2**80, 10], [-1, 10], ["", 10]):
        problem(client.post(f"{base}/distances", json={"pairs": [pair]}), 404, "not-found")
    for pair in ("[NaN, 10]", "[1e400, 10]", "[10.5, 10]", "[10]", "[10, 10, 10]", "[true, 10]"):
        response = client.post(f"{base}/distances", content=f'{{"pairs": [{pair}]}}', headers=JSON)
        problem(response, 422, "invalid-request")


def test_nul_is_in_no_name(client: TestClient, graph: str):
    for path in ("/v1/jobs/a%00b", "/v1/graphs/%00", "/v1/jobs/%00/zarr/zarr.json", "/%00"):
        problem(client.get(path), 404, "not-found")
    for path in ("/v1/jobs?graph=%00", "/v1/jobs?cursor=AA", "/v1/graphs?cursor=%00", "/v1/jobs/x/distance?source=%00"):
        problem(client.get(path), 422, "invalid-request")
    problem(client.post("/v1/graphs?weight=" + "9" * 5000, content=b"1 2 3\n"), 422, "invalid-request")
    for parameter in ("name", "filename", "weight", "format"):
        response = client.post(f"/v1/graphs?{parameter}=a%00b", content=b"1 2 3\n")
        problem(response, 422, "invalid-request")
    response = client.post("/v1/jobs", json={"graph": graph, "name": "a\0b"})
    problem(response, 422, "invalid-request")


def test_file_names_name_no_file(client: TestClient, settings: Settings, tmp_path: Path):
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    for name in (
        "../../../x.csv",
        "/etc/passwd",
        "..%2f..%2fx.csv",
        "x" * 250 + ".csv",
        "a/b\\c.csv",
        ".csv",
        "x.csv/..",
    ):
        response = client.post("/v1/graphs", params={"filename": name}, content=b"from,to,km\n1,2,3\n")
        assert response.status_code in (200, 201, 422), response.text
        assert list((settings.data_dir / "incoming").iterdir()) == []
    after = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert {path.relative_to(settings.data_dir).parts[0] for path in after} <= {
        "graphs", "apsp.db", "apsp.db-wal", "apsp.db-shm",
    }  # fmt: skip


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_bombs_are_told_by_their_setting(client: TestClient, settings: Settings, pack, monkeypatch):
    monkeypatch.setattr("storage.readers.limits.HARMLESS_BYTES", 1000)
    comment = b"# " + b"x" * 10_000 + b"\n"
    for content, setting in ((comment * 350, "APSP_MAX_RATIO"), (comment * 450, "APSP_MAX_GRAPH_BYTES")):
        details = problem(client.post("/v1/graphs", content=pack(content)), 413, "limit-exceeded")["details"]
        limit = settings.max_ratio if setting == "APSP_MAX_RATIO" else settings.max_graph_bytes
        assert (details["setting"], details["limit"]) in ((setting, limit), ("APSP_MAX_RATIO", settings.max_ratio))
        assert details["requested"] > details["limit"]
    assert list((settings.data_dir / "incoming").iterdir()) == []
    many = "".join(f"{i} {i + 1} 1\n" for i in range(2000)).encode()
    details = problem(client.post("/v1/graphs", content=many), 413, "limit-exceeded")["details"]
    assert (details["setting"], details["limit"]) == ("APSP_MAX_VERTICES", 1000)


def npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    "content",
    [
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3000000, 3000000), }          \n"),
        npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1, 1), }   \n") + b"cos\nsystem\n(S'true'\ntR.",
        b"%%MatrixMarket matrix coordinate real general\n3000000000 3000000000 900000000000\n1 1 1\n",
        b'<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><graphml>&b;</graphml>',
        b'<?xml version="1.0"?><!DOCTYPE g [<!ENTITY f SYSTEM "file:///etc/passwd">]><graphml>&f;</graphml>',
        b"1 2 " + b"9" * 100_000 + b"\n",
        b"<NUMBER OF NODES> 2\n<NUMBER OF LINKS> 0\n<END OF METADATA>\n~\t1\t2\t;\n\t",
        b"1 2 nan\n2 1 1\n",
        b"\x00" * 5000,
        b"\x1f\x8b\x08\x00garbage",
        b"\x28\xb5\x2f\xfdgarbage",
        b"PK\x03\x04garbage",
        b"PAR1garbagePAR1",
        gzip.compress(gzip.compress(b"1 2 3\n", mtime=0), mtime=0),
    ],
    ids=lambda content: repr(content[:24]),
)
def test_files_that_lie(client: TestClient, settings: Settings, content: bytes):
    response = client.post("/v1/graphs", content=content)
    assert response.status_code in (413, 422), (response.status_code, response.text)
    problem(response, response.status_code, response.json()["code"])
    assert response.json()["code"] in ("invalid-graph", "limit-exceeded", "invalid-request")
    assert len(response.content) < 5000, "a refusal does not repeat the file"
    assert list((settings.data_dir / "incoming").iterdir()) == []


def test_content_types_decide_nothing_about_files_and_all_about_json(client: TestClient, graph: str):
    csv = b"from,to,km\n1,2,3\n"
    for kind in ("application/zip", "application/json", "image/png", "text/html; charset=utf-7", "x", ""):
        response = client.post("/v1/graphs", content=csv, headers={"content-type": kind})
        assert response.status_code in (200, 201), (kind, response.text)
        assert response.json()["receipt"]["format"]
    for encoding, status in (("gzip", 201), ("identity", 200), ("br", 415), ("gzip, gzip", 415), ("x" * 500, 415)):
        response = client.post("/v1/graphs", content=b"1 2 3\n2 3 9\n", headers={"content-encoding": encoding})
        assert response.status_code in (status, 200, 201) if status < 300 else response.status_code == status
    body = json.dumps({"graph": graph}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", ""):
        problem(client.post("/v1/jobs", content=body, headers={"content-type": kind}), 422, "invalid-request")
    problem(client.post("/v1/graphs", files={"file": io.BytesIO(csv)}), 422, "invalid-request")


def test_absurd_ranges(client: TestClient, bench: Bench):
    job_id, _ = bench.solved(small_graph(), "int32")
    url = f"/v1/jobs/{job_id}/zarr/zarr.json"
    size = len(client.get(url).content)
    for header, status in (
        ("bytes=" + ",".join(["0-0"] * 101), 400), ("bytes=0-" + "9" * 39, 400), ("bytes=" + "9" * 30 + "-", 416),
        ("bytes=-0", 416), ("bytes=5-2", 400), ("bytes=" + "0-," * 60 + "0-", 200), ("bytes=" * 1000, 400),
        (f"bytes=0-{2**64}", 206), ("bytes=0-0,-1", 206), ("items=0-1", 200),
    ):  # fmt: skip
        response = client.get(url, headers={"range": header})
        assert response.status_code == status, (header[:40], response.status_code)
        assert len(response.content) < size + 2000, "ranges that overlap do not multiply the file"


def test_answers_carry_security_headers(client: TestClient, bench: Bench, graph: str):
    job_id, _ = bench.solved(small_graph(), "int32")
    paths = (
        "/v1/version", "/nothing", "/v1/jobs/unknown", f"/v1/jobs/{job_id}/zarr/zarr.json", "/docs", "/health/live",
        f"/v1/jobs/{job_id}/rows?sources=10&format=csv", "/openapi.json", f"/v1/jobs/{job_id}/events",
    )  # fmt: skip
    for path in paths:
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["cross-origin-resource-policy"] == "same-site", path
        assert headers.get_list("content-security-policy")[0].startswith("default-src 'none'"), path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert "server" not in headers, path
        assert "set-cookie" not in headers, path


def test_text_that_looks_like_markup_or_a_header_stays_text(client: TestClient, bench: Bench, graph: str):
    response = client.get("/v1/jobs/<script>alert(1)</script>")
    assert response.headers["content-type"] == "application/problem+json"
    job_id, _ = bench.solved(small_graph(), "int32")
    response = client.get(f"/v1/jobs/{job_id}/log", headers={"x-request-id": "a\tb", "origin": "https://evil.example"})
    assert "access-control-allow-origin" not in response.headers
    assert response.headers["x-request-id"] != "a\tb"


def test_each_application_has_its_own_refusals(tmp_path: Path):
    app = create_app(Settings(data_dir=tmp_path))
    with TestClient(app) as client:
        for path in (
            "/v1/jobs/%00", "/v1/jobs?graph=%00", "/v1/../v1/jobs", "http://testserver//v1/jobs", "/v1//jobs",
            "/V1/jobs",
        ):  # fmt: skip
            assert client.get(path).status_code in (401, 404), path
