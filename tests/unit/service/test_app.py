"""The API without reading process and runner: errors, limits, results, the store's files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.api.fault import Fault, Refused
from service.api.schemas.wire import ProblemDocument
from service.auth.callers import ANYBODY
from service.jobs.answering import Answering
from service.settings import Settings
from storage.graph.graph import build_graph
from storage.jobs.store import Progress
from tests.unit.service.support import Bench, InlinePool, small_graph

ROOT = Path(__file__).resolve().parents[3]


def problem(response, status: int, code: str) -> dict:
    """The members of a problem document, checked against the schema and for what every problem has."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    ProblemDocument.model_validate(body)
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:apsp:problem:{code}")
    assert body["request_id"] == response.headers["x-request-id"]
    assert response.headers.get_list("x-request-id") == [body["request_id"]]
    return body


@pytest.fixture(params=["matrix", "prepared"])
def solved(bench: Bench, client: TestClient, request) -> tuple[str, np.ndarray]:
    """A job with a result of either kind."""
    client.app.state.service.answering.pool = InlinePool()
    make = bench.solved if request.param == "matrix" else bench.prepared
    return make(small_graph(), "int32")


def cpu_seconds(code: str) -> float:
    """Processor time of a fresh interpreter that runs ``code``, with bytecode at hand as an installed program has it
    (the best of several runs, the first of which may compile), whatever PYTHONDONTWRITEBYTECODE says here."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    if kept != dict(os.environ):  # then there may be no bytecode, and this must write none beside the sources
        kept["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / f"apsp-bytecode-{os.getuid()}")
    told = "import resource; u = resource.getrusage(resource.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {told}"], cwd=ROOT, env=kept, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def test_start_is_light():
    """Seconds depend on who else is busy; the packages that a start loads do not."""
    code = "import sys; import service.app;print(*{m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if not name.startswith("_")}
    own = {"service", "engine", "storage"}
    frameworks = {"fastapi", "starlette", "anyio", "h11", "uvicorn", "click", "pydantic", "pydantic_core", "sqlalchemy"}
    helpers = {"annotated_doc", "annotated_types", "cython_runtime", "opentelemetry", "typing_extensions"}
    assert "fastapi" in loaded
    more = {"typing_inspection", "greenlet", "sniffio", "idna", "exceptiongroup", "markupsafe", "orjson"}
    more.add("sitecustomize")  # some systems have one (Ubuntu)
    assert loaded <= own | frameworks | helpers | more


@pytest.mark.slow
@pytest.mark.alone
def test_start_takes_less_than_a_second():
    """On a slow machine it may take longer, but not much longer than what importing the frameworks takes there."""
    code = (
        "import tempfile, pathlib, service.app, service.settings;"
        "service.app.create_app(service.settings.Settings(data_dir=pathlib.Path(tempfile.mkdtemp())))"
    )
    seconds, frameworks = [], []
    for _ in range(20):  # the best of many: a busy machine shows larger numbers than a laptop at rest
        seconds.append(cpu_seconds(code))
        if seconds[-1] < 1:
            break
        frameworks.append(cpu_seconds("import fastapi, pydantic, sqlalchemy"))
    assert min(seconds) < 1 or min(seconds) < 2.2 * min(frameworks), (seconds, frameworks)


def test_problems_of_the_framework(client: TestClient):
    assert problem(client.get("/nope"), 404, "not-found")["instance"] == "/nope"
    response = client.put("/v1/jobs")
    problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "GET, POST"
    body = problem(client.post("/v1/jobs", json={"graph": "g", "dtpye": "int32"}), 422, "invalid-request")
    assert body["details"]["errors"][0]["pointer"] == "/body/dtpye"
    assert body["details"]["field"] == "dtpye"
    problem(client.post("/v1/jobs", content=b"{", headers={"content-type": "application/json"}), 422, "invalid-request")
    body = problem(client.post("/v1/jobs", content=b'{"graph": "g"}'), 422, "invalid-request")
    assert "Content-Type" in body["detail"]
    body = problem(client.post("/v1/graphs?weigth=km", content=b"1 2 3\n"), 422, "invalid-request")
    assert "'weigth'" in body["detail"]
    assert "unweighted, weight" in body["detail"]
    body = problem(client.post("/v1/graphs", files={"file": b"1 2 3\n"}), 422, "invalid-request")
    assert "--data-binary" in body["detail"]
    body = problem(client.get("/v1/jobs?limit=0&state=lost"), 422, "invalid-request")
    assert {e["pointer"] for e in body["details"]["errors"]} == {"/query/limit", "/query/state"}
    assert "field" not in body["details"]


def test_unexpected_errors_say_nothing_of_the_inside(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    def explode(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("secret path")

    monkeypatch.setattr(client.app.state.service.jobs, "job", explode)
    response = client.get("/v1/jobs/x")
    problem(response, 500, "internal")
    assert "secret" not in response.text


def test_request_ids_are_echoed_only_if_harmless(client: TestClient):
    assert client.get("/v1/version", headers={"x-request-id": "abc-1.2_3"}).headers["x-request-id"] == "abc-1.2_3"
    for bad in ("a b", "x" * 81, "<script>"):
        assert client.get("/v1/version", headers={"x-request-id": bad}).headers["x-request-id"] != bad


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize(
    ("path", "limit", "setting"),
    [("/v1/jobs", 4096, "APSP_MAX_BODY_BYTES"), ("/v1/graphs", 8192, "APSP_MAX_UPLOAD_BYTES")],
)
def test_large_bodies(client: TestClient, settings: Settings, path: str, limit: int, setting: str, announced: bool):
    data = b"[" + b" " * limit
    pieces: bytes | Iterator[bytes] = data if announced else iter([data[:1000], data[1000:]])
    response = client.post(path, content=pieces, headers={"content-type": "application/json"})
    details = problem(response, 413, "limit-exceeded")["details"]
    assert details == {"limit": limit, "requested": limit + 1, "setting": setting}
    assert list((settings.data_dir / "incoming").iterdir()) == []


def test_limits_and_version(client: TestClient):
    limits = client.get("/v1/limits").json()["limits"]
    assert limits["max_cells"]["value"] == 64
    assert limits["max_cells"]["setting"] == "APSP_MAX_CELLS"
    assert client.get("/v1/version").json()["api"] == "v1"


def test_health(client: TestClient):
    assert client.get("/health/live").json() == {"status": "ok", "checks": {}}
    response = client.get("/health/ready")
    assert response.status_code == 503
    assert response.json()["checks"]["runner"] == "no runner is alive"


def test_openapi_documents_errors_as_problems(client: TestClient):
    schema = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    assert "ProblemDocument" in schema["components"]["schemas"]
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and not path.startswith("/health"):
                    assert list(answer["content"]) == ["application/problem+json"], (path, method, status)


def test_refusals_of_the_reading_process_become_problems(client: TestClient, bench: Bench, monkeypatch):
    graph_id = bench.add_graph(small_graph())
    faults = {
        "does-not-fit": (507, {"resource": "disk", "needed": 10, "available": 5}),
        "invalid-request": (422, {"field": "dtype"}),
        "negative-cycle": (422, {"cycle": [1, 2], "weight": -1}),
        "worker-lost": (500, {}),
    }
    for code, (status, details) in faults.items():

        async def refuse(*_args: object, code: str = code, details: dict = details) -> None:
            raise Refused(Fault(code, "no", details))

        monkeypatch.setattr(client.app.state.service.planner, "run", refuse)
        body = problem(client.post("/v1/jobs", json={"graph": graph_id}), status, code)
        assert body["details"] == details
    problem(client.post("/v1/jobs", json={"graph": "unknown"}), 404, "not-found")
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_a_submitted_job_is_described(client: TestClient, bench: Bench, monkeypatch):
    graph_id = bench.add_graph(small_graph())

    async def plan(_task: object, _settings: Settings, graph: str, request: dict) -> dict:
        return {"algorithm": "dijkstra", "for": graph, "dtype": request["dtype"], "seconds": float("inf")}

    monkeypatch.setattr(client.app.state.service.planner, "run", plan)
    response = client.post("/v1/jobs", json={"graph": graph_id, "name": "mine", "sources": [10, "20"]})
    assert response.status_code == 201
    job = response.json()
    assert response.headers["location"] == f"/v1/jobs/{job['id']}" == job["links"]["self"]
    assert response.headers["retry-after"] == "1"
    assert (job["state"], job["phase"], job["progress"], job["name"]) == ("accepted", "queued", 0, "mine")
    assert job["plan"] == {"algorithm": "dijkstra", "for": graph_id, "dtype": "auto", "seconds": None}
    assert job["options"]["sources"] == [10, "20"]
    assert client.get(job["links"]["self"]).json() == job
    assert client.get(f"/v1/jobs?graph={graph_id}").json()["jobs"][0]["id"] == job["id"]
    cancelled = client.post(job["links"]["cancel"])
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "dismissed")


def test_lists_lead_on(client: TestClient, bench: Bench):
    graph_id = bench.add_graph(small_graph())
    ids = []
    for _ in range(3):
        ids.append(bench.jobs.create(graph_id, {}, {}).id)
        time.sleep(0.002)
    first = client.get("/v1/jobs?limit=2&state=accepted").json()
    assert [j["id"] for j in first["jobs"]] == ids[:0:-1]
    rest = client.get(first["next"]).json()
    assert ([j["id"] for j in rest["jobs"]], rest["next"]) == (ids[:1], None)
    graphs = client.get("/v1/graphs").json()["graphs"]
    assert [g["id"] for g in graphs] == [graph_id]
    assert client.get(f"/v1/graphs/{graph_id}").json() == graphs[0]
    problem(client.get("/v1/graphs/unknown"), 404, "not-found")


ENDS = "source=10&target=20"
RESULT_PATHS = ("summary", f"distance?{ENDS}", "rows?sources=10", f"path?{ENDS}", "zarr/zarr.json")


@pytest.mark.parametrize("path", RESULT_PATHS)
def test_results_of_open_failed_and_unknown_jobs(client: TestClient, bench: Bench, path: str):
    graph_id = bench.add_graph(small_graph())
    record = bench.jobs.create(graph_id, {}, {})
    response = client.get(f"/v1/jobs/{record.id}/{path}")
    assert problem(response, 409, "result-not-ready")["details"] == {"state": "accepted"}
    assert response.headers["retry-after"] == "1"
    problem(client.delete(f"/v1/jobs/{record.id}"), 409, "conflict")
    claimed = bench.jobs.claim("r")
    assert claimed is not None
    bench.jobs.fail(claimed, {"code": "solve-failed", "message": "the reason", "details": {"a": 1}})
    body = problem(client.get(f"/v1/jobs/{record.id}/{path}"), 409, "no-result")
    assert "the reason" in body["detail"]
    error = client.get(f"/v1/jobs/{record.id}").json()["error"]
    assert (error["code"], error["status"], error["detail"], error["details"]) == (
        "solve-failed", 500, "the reason", {"a": 1},
    )  # fmt: skip
    problem(client.get(f"/v1/jobs/unknown/{path}"), 404, "not-found")


def test_distances(client: TestClient, solved):
    job_id, _ = solved
    base = f"/v1/jobs/{job_id}"
    assert client.get(f"{base}/distance?source=10&target=30").json() == {
        "source": 10, "target": 30, "reachable": True, "distance": 3,
    }  # fmt: skip
    assert client.get(f"{base}/distance?source=10&target=40").json()["distance"] is None
    problem(client.get(f"{base}/distance?source=10&target=41"), 404, "not-found")
    problem(client.get(f"{base}/distance?source=10"), 422, "invalid-request")
    pairs = [[10, 30], [10, 40], ["40", 10], [10, 10]]
    found = client.post(f"{base}/distances", json={"pairs": pairs})
    assert found.json() == {"distances": [3, None, 1, 0]}
    too_many = client.post(f"{base}/distances", json={"pairs": [[10, 20]] * 11})
    assert problem(too_many, 413, "limit-exceeded")["details"] == {
        "limit": 10, "requested": 11, "setting": "APSP_MAX_PAIRS",
    }  # fmt: skip
    problem(client.post(f"{base}/distances", json={"pairs": [[1.5, 20]]}), 422, "invalid-request")


def test_path_and_summary(client: TestClient, solved):
    base = f"/v1/jobs/{solved[0]}"
    assert client.get(f"{base}/path?source=40&target=30").json() == {
        "source": 40, "target": 30, "reachable": True, "length": 4, "vertices": [40, 10, 20, 30], "weights": [1, 1, 2],
    }  # fmt: skip
    assert client.get(f"{base}/path?source=10&target=40").json() == {
        "source": 10, "target": 40, "reachable": False, "length": None, "vertices": [], "weights": [],
    }  # fmt: skip
    summary = client.get(f"{base}/summary").json()
    assert (summary["shape"], summary["dtype"], summary["summary"]) == ([4, 4], "int32", {"pairs": 12})


def test_rows(client: TestClient, solved, bench: Bench):
    job_id, distances = solved
    base = f"/v1/jobs/{job_id}/rows"
    found = client.get(f"{base}?sources=10,40&targets=30&targets=40").json()
    assert found == {"sources": [10, 40], "targets": [30, 40], "distances": [[3, None], [4, 0]]}
    response = client.get(f"{base}?sources=30", headers={"accept": "application/x-npy"})
    assert response.headers["content-type"] == "application/x-npy"
    assert response.headers["vary"] == "Accept"
    assert np.array_equal(np.load(io.BytesIO(response.content)), distances[[2]])
    response = client.get(f"{base}?sources=30&format=csv", headers={"accept": "application/x-npy"})
    assert response.headers["content-type"].startswith("text/csv")
    assert response.text.splitlines()[1] == "30,10,4"
    problem(client.get(f"{base}?sources=30", headers={"accept": "image/png"}), 406, "not-acceptable")
    problem(client.get(f"{base}?sources=30&format=xml"), 422, "invalid-request")
    problem(client.get(f"{base}?sources=31"), 404, "not-found")
    for nothing in (base, f"{base}?sources=", f"{base}?sources=,", f'{base}?sources="10'):
        problem(client.get(nothing), 422, "invalid-request")
    details = problem(client.get(f"{base}?sources={','.join(['10'] * 17)}"), 413, "limit-exceeded")["details"]
    assert details == {"limit": 64, "requested": 68, "setting": "APSP_MAX_CELLS"}


def test_rows_of_named_vertices_and_of_some_sources(client: TestClient, bench: Bench):
    job_id, _ = bench.solved(small_graph(names=True), "int32", sources=[3, 1])
    base = f"/v1/jobs/{job_id}/rows"
    found = client.get(base, params={"sources": '"e""f","b,c"', "targets": "a"}).json()
    assert found == {"sources": ['e"f', "b,c"], "targets": ["a"], "distances": [[1], [6]]}
    for kind in ("json", "csv", "npy", "parquet", "arrow"):
        for sources in ("a", '"b,c",a'):
            body = problem(client.get(base, params={"sources": sources, "format": kind}), 404, "not-found")
            assert "vertex a was not solved" in body["detail"]


@pytest.mark.parametrize("lengths", [[0.3, 0.1 + 0.2], [1.5e17], [9e299, 9e299]])
@pytest.mark.parametrize("bins", [1, 64])
def test_the_histogram_of_distances_between_which_no_number_lies(
    client: TestClient, bench: Bench, lengths: list[float], bins: int
):
    graph, _ = build_graph([0] * len(lengths), range(1, 1 + len(lengths)), lengths, directed=True)
    job_id, _ = bench.solved(graph, "float64")
    found = client.get(f"/v1/jobs/{job_id}/histogram?source=0&bins={bins}").json()
    assert (found["edges"], found["counts"]) == ([min(lengths), max(lengths)], [len(lengths)])


def test_answers_from_a_rectangle(client: TestClient, bench: Bench):
    job_id, distances = bench.solved(small_graph(), "int32", sources=[3, 0], targets=[2, 0, 3])
    base = f"/v1/jobs/{job_id}"
    assert client.get(f"{base}/summary").json()["shape"] == [2, 3]
    found = client.get(f"{base}/rows?sources=10,40").json()
    assert found == {"sources": [10, 40], "targets": [30, 10, 40], "distances": [[3, 0, None], [4, 1, 0]]}
    assert client.get(f"{base}/rows?sources=40&targets=40,30").json()["distances"] == [[0, 4]]
    facts = client.get(f"{base}/results").json()
    assert (facts["shape"], facts["sources"], facts["targets"], facts["cutoff"]) == ([2, 3], "subset", "subset", None)
    assert client.get(f"{base}/columns?targets=30").json()["distances"] == [[4], [3]]
    nearest = client.get(f"{base}/nearest?source=40&k=5").json()
    assert (nearest["targets"], nearest["distances"]) == ([10, 30], [1, 4])
    assert sum(client.get(f"{base}/histogram?source=40").json()["counts"]) == 2
    assert client.post(f"{base}/submatrix", json={"targets": [40]}).json()["distances"] == [[0], [None]]
    assert client.get(f"{base}/rows?sources=40&format=csv").text.splitlines()[1:] == ["40,30,4", "40,10,1", "40,40,0"]
    assert client.get(f"{base}/distance?source=40&target=30").json()["distance"] == distances[0, 0] == 4
    path = client.get(f"{base}/path?source=40&target=30").json()
    assert (path["vertices"], path["weights"]) == ([40, 10, 20, 30], [1, 1, 2])
    assert client.post(f"{base}/distances", json={"pairs": [[10, 40], [40, 10]]}).json()["distances"] == [None, 1]
    for asked in ("rows?sources=40&targets=20", "distance?source=40&target=20", "path?source=40&target=20"):
        body = problem(client.get(f"{base}/{asked}"), 404, "not-found")
        assert "vertex 20 was not solved as a target; this store holds 3 of 4" in body["detail"]
    body = problem(client.get(f"{base}/distance?source=20&target=30"), 404, "not-found")
    assert "vertex 20 was not solved as a source" in body["detail"]


@pytest.mark.parametrize(
    ("member", "pointer"),
    [
        ({"sources": []}, "/body/sources"),
        ({"targets": []}, "/body/targets"),
        ({"targets": "10"}, "/body/targets"),
        ({"targets": [1.5]}, "/body/targets/0/"),
        ({"cutoff": -1}, "/body/cutoff"),
        ({"cutoff": "far"}, "/body/cutoff"),
    ],
)
def test_a_rectangle_that_makes_no_sense_is_told_by_its_member(client: TestClient, bench: Bench, member, pointer):
    graph_id = bench.add_graph(small_graph())
    body = problem(client.post("/v1/jobs", json={"graph": graph_id, **member}), 422, "invalid-request")
    assert body["details"]["errors"][0]["pointer"].startswith(pointer)


def test_files_of_the_store(client: TestClient, solved, settings: Settings):
    job_id, _ = solved
    base = f"/v1/jobs/{job_id}/zarr"
    whole = client.get(f"{base}/zarr.json")
    assert whole.status_code == 200
    assert json.loads(whole.content)["node_type"] == "group"
    assert "immutable" in whole.headers["cache-control"]
    head = client.head(f"{base}/zarr.json")
    assert (head.content, head.headers["content-length"]) == (b"", str(len(whole.content)))
    tail = client.get(f"{base}/zarr.json", headers={"range": "bytes=-5"})
    assert (tail.status_code, tail.content) == (206, whole.content[-5:])
    size = len(whole.content)
    assert tail.headers["content-range"] == f"bytes {size - 5}-{size - 1}/{size}"
    outside = client.get(f"{base}/zarr.json", headers={"range": "bytes=999999999-"})
    problem(outside, 416, "range-not-satisfiable")
    assert outside.headers["content-range"].endswith(f"*/{len(whole.content)}")
    problem(client.get(f"{base}/zarr.json", headers={"range": "bytes=x-y"}), 400, "invalid-request")
    same = client.get(f"{base}/zarr.json", headers={"if-none-match": whole.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    problem(client.post(f"{base}/zarr.json"), 405, "method-not-allowed")


@pytest.mark.parametrize(
    "key",
    [
        ".zarray", ".zgroup", "", "distances", "distances/c", "distances/c/9/0", "distances/c/00/0", "distances/c/0/x",
        "..%2f..%2fapsp.db", "%2e%2e/%2e%2e/apsp.db", "distances/%2e%2e/zarr.json", "%2e/zarr.json",
        "distances//zarr.json", "/etc/passwd", "zarr.json%00", "a" * 5000, "c:%5cwindows", "zarr.json/x",
    ],
)  # fmt: skip
def test_keys_that_cannot_exist(client: TestClient, solved, key: str):
    problem(client.get(f"/v1/jobs/{solved[0]}/zarr/{key}"), 404, "not-found")


def test_a_link_out_of_the_store_is_not_followed(client: TestClient, solved, settings: Settings):
    store = settings.store(solved[0])
    (store / "link").symlink_to(settings.database)
    (store / "up").symlink_to("/etc")
    for key in ("link", "up/passwd"):
        problem(client.get(f"/v1/jobs/{solved[0]}/zarr/{key}"), 404, "not-found")


def test_a_lost_file_is_an_error_and_never_missing(client: TestClient, bench: Bench, settings: Settings):
    job_id, _ = bench.solved(small_graph(), "int32")
    assert client.get(f"/v1/jobs/{job_id}/summary").status_code == 200
    for key in ("distances/c/0/0", "target/c/0", "distances/zarr.json"):
        (settings.store(job_id) / key).unlink()
        body = problem(client.get(f"/v1/jobs/{job_id}/zarr/{key}"), 500, "storage-failed")
        assert key.split("/")[0] in body["detail"]
    problem(client.get(f"/v1/jobs/{job_id}/rows?sources=10"), 500, "storage-failed")


def test_deleted_jobs_are_gone_with_their_files(client: TestClient, solved, settings: Settings):
    job_id, _ = solved
    assert client.get(f"/v1/jobs/{job_id}/summary").status_code == 200
    response = client.delete(f"/v1/jobs/{job_id}")
    assert (response.status_code, response.content) == (204, b"")
    assert not settings.store(job_id).parent.exists()
    assert list((settings.data_dir / "trash").iterdir()) == []
    problem(client.get(f"/v1/jobs/{job_id}/summary"), 410, "gone")
    problem(client.delete(f"/v1/jobs/{job_id}"), 410, "gone")


def test_only_the_last_results_stay_open(settings: Settings, bench: Bench):
    from service.state import Results

    ids = [bench.solved(small_graph(), "int32")[0] for _ in range(3)]
    results = Results(settings.model_copy(update={"matrix_cache": 2}), Answering(settings))
    first = results.get(ids[0], None)
    results.get(ids[1], None)
    assert results.peek(ids[0], ANYBODY) is first
    results.get(ids[2], None)
    assert list(results._open) == [ids[0], ids[2]]
    results.forget(ids[0])
    assert list(results._open) == [ids[2]]


def test_a_job_that_is_over_has_no_rate_and_nothing_left(client: TestClient, bench: Bench):
    job = bench.jobs.create(bench.add_graph(small_graph()), {}, {})
    claimed = bench.jobs.claim("bench")
    assert claimed is not None
    bench.jobs.report(claimed, "search", Progress(0.5, 100.0, "rows", 7.0))
    found = client.get(f"/v1/jobs/{job.id}").json()
    assert (found["progress"], found["rate"], found["eta_seconds"]) == (0.5, 100, 7)
    bench.jobs.dismiss(claimed)
    found = client.get(f"/v1/jobs/{job.id}").json()
    assert (found["progress"], found["rate"], found["eta_seconds"]) == (0.5, None, None)
