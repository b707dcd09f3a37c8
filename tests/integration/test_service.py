"""Tests the service as a user would use it, with real processes, real graphs and real stores."""

from __future__ import annotations

import csv
import io
import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import psutil
import pytest
import zarr

from tests.integration.service_process import ROOT, LiveService

ROADS = ROOT / "examples" / "helsinki_drive.csv"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with LiveService(tmp_path_factory.mktemp("service") / "data", APSP_MAX_UPLOAD_BYTES="300MB") as service:
        yield service


@pytest.fixture(scope="module")
def roads(live: LiveService) -> dict:
    """The shipped road network, solved."""
    graph = live.upload(ROADS.read_bytes(), filename=ROADS.name, name="Helsinki")
    job = live.wait(live.submit(graph["id"])["id"])
    assert job["state"] == "successful", job
    return {"graph": graph, "job": job, "base": f"/v1/jobs/{job['id']}"}


@pytest.fixture(scope="module")
def reference() -> nx.DiGraph:
    """The same file, read by a few obvious lines."""
    graph = nx.DiGraph()
    with ROADS.open() as file:
        rows = csv.reader(file)
        header = next(rows)
        assert len(header) >= 3
        for tail, head, weight, *_ in rows:
            u, v, w = int(tail), int(head), float(weight)
            if u != v and w <= graph.get_edge_data(u, v, {"weight": np.inf})["weight"]:
                graph.add_edge(u, v, weight=w)
    return graph


#: Options with which a grid of 4096 vertices takes some seconds on any machine; a small type and many threads take less
#: than the service may need for an answer.
SOME_SECONDS: dict[str, Any] = {"algorithm": "blocked-floyd-warshall", "dtype": "float64", "threads": 1}


def grid(side: int) -> bytes:
    """A square grid of two-way streets as an edge list: long to solve by Floyd-Warshall."""
    lines = []
    for i in range(side * side):
        if (i + 1) % side:
            lines.append(f"{i} {i + 1} {i % 7 + 1}")
        if i + side < side * side:
            lines.append(f"{i} {i + side} {i % 5 + 1}")
    return "\n".join(lines).encode()


def test_a_road_network_is_solved_and_served(live: LiveService, roads: dict, reference: nx.DiGraph):
    graph, job = roads["graph"], roads["job"]
    assert (graph["n"], graph["m"]) == (len(reference), reference.number_of_edges())
    assert graph["receipt"]["entries"] > 0
    assert job["progress"] == 1
    assert job["plan"]["shape"] == [graph["n"], graph["n"]]
    assert len(job["plan"]["candidates"]) > 1
    assert {"create", "seal"} <= set(job["seconds"])
    assert job["created"] <= job["started"] <= job["finished"]
    source = next(iter(reference))
    expected = nx.single_source_dijkstra_path_length(reference, source)
    rows = live.http.get(f"{roads['base']}/rows", params={"sources": source}).json()
    found = dict(zip(rows["targets"], rows["distances"][0], strict=True))
    assert {v for v, d in found.items() if d is not None} == set(expected)
    assert all(found[v] == pytest.approx(d, rel=1e-5) for v, d in expected.items())


def test_the_other_representations_agree(live: LiveService, roads: dict):
    ask = {"sources": ",".join(map(str, list_of_labels(live, roads)[:3]))}
    url = f"{roads['base']}/rows"
    plain = np.array(live.http.get(url, params=ask).json()["distances"], dtype=float)
    npy = live.http.get(url, params=ask, headers={"Accept": "application/x-npy"})
    assert np.array_equal(np.load(io.BytesIO(npy.content)), np.nan_to_num(plain, nan=np.inf).astype("f4"))
    for kind, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet), ("arrow", pl.read_ipc_stream)):
        table = read(io.BytesIO(live.http.get(url, params={**ask, "format": kind}).content))
        column = table["distance"].cast(pl.Float32).fill_null(float("nan")).to_numpy()
        assert np.array_equal(column.reshape(plain.shape), plain.astype("f4"), equal_nan=True)


def list_of_labels(live: LiveService, roads: dict) -> list:
    first = live.http.get(f"{roads['base']}/summary").json()["summary"]["diameter_pair"][0]
    return live.http.get(f"{roads['base']}/rows", params={"sources": first}).json()["targets"]


def test_routes_add_up(live: LiveService, roads: dict, reference: nx.DiGraph):
    source, target = live.http.get(f"{roads['base']}/summary").json()["summary"]["diameter_pair"]
    ends = {"source": source, "target": target}
    route = live.http.get(f"{roads['base']}/path", params=ends).json()
    distance = live.http.get(f"{roads['base']}/distance", params=ends).json()
    assert route["reachable"]
    assert (route["vertices"][0], route["vertices"][-1]) == (source, target)
    for u, v, w in zip(route["vertices"], route["vertices"][1:], route["weights"], strict=False):
        assert reference[u][v]["weight"] == pytest.approx(w)
    assert route["length"] == pytest.approx(sum(route["weights"]))
    assert route["length"] == pytest.approx(distance["distance"], rel=1e-5)
    assert route["length"] == pytest.approx(nx.dijkstra_path_length(reference, source, target), rel=1e-5)
    pairs = live.http.post(f"{roads['base']}/distances", json={"pairs": [[source, target], [source, source]]}).json()
    assert pairs["distances"] == [distance["distance"], 0]


def test_the_store_opens_with_zarr_from_disk_and_over_http(live: LiveService, roads: dict, tmp_path: Path):
    store = live.data / "jobs" / roads["job"]["id"] / "matrix.zarr"
    group = zarr.open_group(store, mode="r")
    n = roads["graph"]["n"]
    assert group["distances"].shape == (n, n)
    # A mirror made of nothing but GET requests must be the same store.
    for path in sorted(p for p in store.rglob("*") if p.is_file()):
        key = path.relative_to(store)
        response = live.http.get(f"{roads['base']}/zarr/{key.as_posix()}")
        assert response.status_code == 200
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(response.content)
    mirror = zarr.open_group(tmp_path, mode="r")
    assert np.array_equal(mirror["distances"][:], group["distances"][:])
    assert np.all(np.diag(mirror["distances"][:]) == 0)


def test_the_same_content_is_the_same_graph(live: LiveService, roads: dict):
    response = live.http.post("/v1/graphs", content=ROADS.read_bytes(), params={"filename": "other.csv"})
    assert (response.status_code, response.json()["id"]) == (200, roads["graph"]["id"])
    reordered = b"\n".join([(lines := ROADS.read_bytes().strip().split(b"\n"))[0], *lines[:0:-1]])
    assert live.upload(reordered)["id"] == roads["graph"]["id"]


def test_some_sources_only_and_names_as_labels(live: LiveService):
    graph = live.upload(b"from,to,km\nA,B,1.5\nB,C,2\nC,A,4\nD,A,1\n", filename="named.csv")
    job = live.wait(live.submit(graph["id"], sources=["D", "B"], dtype="float64")["id"])
    assert job["state"] == "successful", job
    base = f"/v1/jobs/{job['id']}"
    rows = live.http.get(f"{base}/rows?sources=D,B").json()
    assert rows == {
        "sources": ["D", "B"], "targets": ["A", "B", "C", "D"],
        "distances": [[1.0, 2.5, 4.5, 0.0], [6.0, 0.0, 2.0, None]],
    }  # fmt: skip
    assert live.http.get(f"{base}/distance?source=A&target=B").status_code == 404
    assert live.http.get(f"{base}/path?source=B&target=D").json()["reachable"] is False


@pytest.mark.parametrize(
    ("content", "query", "status", "code", "words"),
    [
        (b"1 2 3\n1 x 3\n2 3\n", {}, 422, "invalid-graph", ["2"]),
        (b"p sp 3 1\na 1 9 5\n", {"format": "dimacs"}, 422, "invalid-graph", ["9"]),
        (b"1 2 3\n", {"format": "nonsense"}, 422, "invalid-request", ["nonsense"]),
        (b"1 2 -5\n2 1 3\n", {}, 422, "negative-cycle", ["-2"]),
        (b"", {}, 422, "invalid-graph", ["empty"]),
    ],
)
def test_bad_graphs_are_refused_with_the_reason(live: LiveService, content, query, status, code, words):
    response = live.http.post("/v1/graphs", content=content, params=query)
    if code == "negative-cycle":  # a matter of solving, not of reading
        assert response.status_code == 201
        response = live.http.post("/v1/jobs", json={"graph": response.json()["id"]})
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code), body
    assert response.headers["content-type"] == "application/problem+json"
    assert all(word in body["detail"] for word in words), body
    assert list((live.data / "incoming").iterdir()) == []


def test_bad_options_and_what_does_not_fit(live: LiveService, roads: dict):
    def submit(**options: object):
        return live.http.post("/v1/jobs", json={"graph": roads["graph"]["id"], **options})

    before = live.http.get("/v1/jobs").json()["jobs"][0]["id"]
    for options, field in (({"algorithm": "magic"}, "algorithm"), ({"device": "cuda"}, "device")):
        response = submit(**options)
        assert (response.status_code, response.json()["details"]["field"]) == (422, field)
    for field in ("sources", "targets"):
        body = submit(**{field: ["nowhere"]}).json()
        assert (body["status"], body["code"], body["details"]["field"]) == (422, "invalid-request", field)
    response = submit(memory=1000, fresh=True)
    body = response.json()
    assert (response.status_code, body["code"]) == (507, "does-not-fit")
    assert body["details"]["available"] == 1000 < body["details"]["needed"]
    assert body["details"]["setting"] == "APSP_MEMORY"
    huge = live.upload("\n".join(f"{i} {i + 1} 1" for i in range(2_000_000)).encode())
    response = live.http.post("/v1/jobs", json={"graph": huge["id"]})
    body = response.json()
    assert (response.status_code, body["details"]["resource"]) == (507, "disk")
    assert body["details"]["setting"] == "APSP_DATA_DIR"
    assert live.http.get("/v1/jobs").json()["jobs"][0]["id"] == before


@pytest.mark.alone
def test_answers_stay_quick_while_both_cores_solve_and_a_cancel_is_prompt(live: LiveService, roads: dict):
    graph = live.upload(grid(150))  # many processors would be done with fewer vertices before anything is measured
    job_id = live.submit(graph["id"], algorithm="blocked-floyd-warshall")["id"]
    job = live.wait(job_id, phase="relax")
    assert job["state"] == "running", job
    seconds = []
    for path in [f"/v1/jobs/{job_id}", "/v1/jobs", f"{roads['base']}/summary"] * 20:
        began = time.perf_counter()
        assert live.http.get(path).status_code == 200
        seconds.append(time.perf_counter() - began)
    job = live.job(job_id)
    assert job["state"] == "running", "the job was too short to measure anything"
    assert job["rate"] is None or job["rate"] > 0
    assert 0 <= job["progress"] < 1
    assert statistics.median(seconds) < 0.1, seconds
    assert min(seconds) < 0.03, "every answer waits for a delayed acknowledgement: is TCP_NODELAY set?"
    assert live.http.delete(f"/v1/jobs/{job_id}").status_code == 409
    began = time.perf_counter()
    response = live.http.post(f"/v1/jobs/{job_id}/cancel")
    assert (response.status_code, response.json()["cancel_requested"]) == (202, True)
    assert live.wait(job_id)["state"] == "dismissed"
    assert time.perf_counter() - began < 10
    assert live.http.post(f"/v1/jobs/{job_id}/cancel").status_code == 200
    assert not (live.data / "jobs" / job_id / "matrix.zarr").exists()
    assert live.http.get(f"/v1/jobs/{job_id}/summary").json()["code"] == "no-result"
    assert live.http.delete(f"/v1/jobs/{job_id}").status_code == 204
    assert live.http.get(f"/v1/jobs/{job_id}").status_code == 410


def test_a_killed_runner_is_replaced_and_its_job_done(live: LiveService):
    graph = live.upload(grid(64))
    job_id = live.submit(graph["id"], algorithm="blocked-floyd-warshall", threads=2)[
        "id"
    ]  # more would be done too soon
    assert live.wait(job_id, state="running")["state"] == "running"
    first = live.runner()
    os.kill(first, signal.SIGKILL)
    job = live.wait(job_id, seconds=120)
    assert (job["state"], job["attempt"]) == ("successful", 2), job
    assert [a["reason"].split(" (")[0] for a in job["attempts"]] == ["the runner was ended by SIGKILL"]
    assert live.runner() != first
    ready = live.http.get("/health/ready")
    assert ready.status_code == 200, ready.text


def _at_work(pid: int) -> bool:
    """Whether some thread of a process is left; its first thread may be a zombie before the others have ended."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


def test_a_killed_reading_process_is_replaced(live: LiveService):
    tasks = Path(f"/proc/{live.process.pid}/task").iterdir()
    children = [pid for task in tasks for pid in (task / "children").read_text().split()]
    readers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert readers
    for pid in readers:
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while any(map(_at_work, readers)):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert live.upload(b"1 2 3\n2 3 4\n")["n"] == 3


def test_uploads_do_not_fill_memory(live: LiveService, roads: dict):
    def peak() -> int:
        lines = Path(f"/proc/{live.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

    piece = b"# " + b"x" * (2**20 - 3) + b"\n"
    before = peak()
    response = live.http.post("/v1/graphs", content=(piece for _ in range(256)))
    assert response.status_code == 422
    assert peak() - before < 50 * 2**20
    response = live.http.post("/v1/graphs", content=(piece for _ in range(300)))
    assert (response.status_code, response.json()["details"]["setting"]) == (413, "APSP_MAX_UPLOAD_BYTES")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_jobs_survive_a_stop_of_the_service(tmp_path: Path, number: signal.Signals):
    data = tmp_path / "data"
    with LiveService(data, APSP_RUNNER_NICE="0") as service:
        graph = service.upload(grid(52))
        running = service.submit(graph["id"], **SOME_SECONDS)["id"]
        waiting = service.submit(graph["id"], sources=[0, 1])["id"]
        assert service.wait(running, phase="relax")["phase"] == "relax"
        status = service.stop(number)
        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    with LiveService(data, APSP_RUNNER_NICE="0") as service:
        for job_id in (running, waiting):
            job = service.wait(job_id, seconds=120)
            assert job["state"] == "successful", job
            assert job["attempt"] == 1, job


def test_one_data_directory_has_one_service(live: LiveService):
    with pytest.raises(AssertionError, match="locked by process"), LiveService(live.data):
        pass
