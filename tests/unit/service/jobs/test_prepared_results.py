"""A prepared result answers over HTTP what a matrix of the same graph answers; what is damaged is named and refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from engine.api.from_tables import held
from engine.api.from_tables.reweighting import reweight
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from service.http import etags
from service.settings import Settings
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from tests.unit.service.support import Bench, InlinePool, small_graph
from tests.unit.service.test_app import ROOT, problem

U, V = "source=10&target=30", "source=10&target=40"
GETS = (
    "summary", f"distance?{U}", f"distance?{V}", "distance?source=10&target=10", f"path?{U}", f"path?{V}",
    "nearest?source=40", "nearest?source=30&k=1", "nearest?source=10&k=0", "histogram?source=10&bins=3",
    "histogram?source=41", "rows?sources=10,40", "rows?sources=40&targets=30,10", "rows?sources=10&format=csv",
    "rows?sources=10&format=npy", "rows?sources=10&format=parquet", "rows?sources=10,20&format=arrow", "rows?sources=9",
    "columns?targets=30", "columns?targets=40,10&format=csv", "columns?targets=5", "sample", "sample?size=2",
    "sample?row=1&rows=2&column=3", "sample?row=9", "eccentricities", "eccentricities?size=2",
    f"rows?sources={','.join(['10'] * 17)}", "distance?source=10", "distance?source=10&target=nobody",
    "rows?all=true", "rows?all=true&format=arrow", "rows?all=true&targets=40&format=npy", "rows?all=true&sources=10",
)  # fmt: skip
POSTS = (
    ("distances", {"pairs": [[10, 30], [10, 40], ["40", 10], [10, 10]]}),
    ("distances", {"pairs": [[10, 99]]}),
    ("distances", {"pairs": [[10, 20]] * 11}),
    ("paths", {"pairs": [[40, 30], [10, 40]]}),
    ("submatrix", {"sources": [10, 40], "targets": [40, 20]}),
    ("submatrix", {"targets": [40]}),
    ("submatrix", {}),
)


@pytest.fixture
def inline(client: TestClient) -> InlinePool:
    pool = client.app.state.service.answering.pool = InlinePool()
    return pool


def chain(n: int) -> Graph:
    """A line of n vertices with an arc back to the first."""
    tails = np.arange(n)
    return build_graph(tails, (tails + 1) % n, 1 + tails % 7, n=n, directed=True)[0]


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
def test_every_question_has_the_answer_of_a_matrix(client: TestClient, bench: Bench, inline: InlinePool, dtype: str):
    stored, made = (f"/v1/jobs/{make(small_graph(), dtype)[0]}" for make in (bench.solved, bench.prepared))
    answers = [(client.get(f"{stored}/{path}"), client.get(f"{made}/{path}")) for path in GETS]
    answers += [(client.post(f"{stored}/{p}", json=body), client.post(f"{made}/{p}", json=body)) for p, body in POSTS]
    for want, found in answers:
        where = found.url
        assert found.status_code == want.status_code, (where, found.text)
        assert found.headers["content-type"] == want.headers["content-type"]
        if "json" not in want.headers["content-type"]:
            assert found.content == want.content, where
            continue
        told, expected = found.json(), want.json()
        for document in (told, expected):
            for of_its_own in ("job", "result", "request_id", "instance"):
                document.pop(of_its_own, None)
        assert told == expected, where
    assert {want.status_code for want, _ in answers} == {200, 404, 413, 422}
    assert inline.asked


def test_names_and_facts(client: TestClient, bench: Bench, inline: InlinePool):
    stored, made = (f"/v1/jobs/{make(small_graph(names=True), 'int32')[0]}" for make in (bench.solved, bench.prepared))
    asked = {"sources": '"e""f","b,c"', "targets": "a"}
    assert client.get(f"{made}/rows", params=asked).json() == client.get(f"{stored}/rows", params=asked).json()
    want, found = client.get(f"{stored}/results").json(), client.get(f"{made}/results").json()
    same = {"shape", "dtype", "unreachable", "unit", "directed", "graph", "sources", "targets", "compression", "tiles"}
    assert {name: found[name] for name in same} == {name: want[name] for name in same}
    assert (want["result"], found["result"], found["algorithm"]) == ("matrix", "prepared", "prepared")
    assert found["links"].keys() - want["links"].keys() == {"prepared"}
    problem(client.get(f"{stored}/prepared/zarr.json"), 404, "not-found")


def test_keys_of_the_store_are_those_of_a_matrix(client: TestClient, bench: Bench, inline: InlinePool):
    graph = chain(200)
    made = f"/v1/jobs/{bench.prepared(graph, 'int32')[0]}/zarr"
    stored, _ = bench.solved(graph, "int32")
    folder = bench.settings.store(stored)
    for i in range(4):
        want, found = (folder / f"distances/c/{i}/0").read_bytes(), client.get(f"{made}/distances/c/{i}/0")
        assert (found.status_code, found.content) == (200, want)
        assert found.headers["content-type"] == "application/octet-stream"
        tail = client.get(f"{made}/distances/c/{i}/0", headers={"range": "bytes=8-15,-4"})
        assert tail.status_code == 206
        assert want[8:16] in tail.content
        assert want[-4:] in tail.content
    assert client.get(f"{made}/distances/zarr.json").json()["shape"] == [200, 200]
    assert client.get(f"{made}/source/c/0").content == client.get(f"{made}/vertex/c/0").content
    for key in ("distances/c/4/0", "distances/c/0/1", "distances/c/00/0", "tables/forward/c/0", "graph/indptr/c/0"):
        problem(client.get(f"{made}/{key}"), 404, "not-found")


def test_a_chunk_is_computed_once_and_only_where_it_is_wanted(client: TestClient, bench: Bench, inline: InlinePool):
    job, _ = bench.prepared(chain(200), "int32")
    url = f"/v1/jobs/{job}/zarr/distances/c/1/0"
    head = client.head(url)
    assert (head.status_code, head.content, int(head.headers["content-length"])) == (200, b"", 64 * 200 * 4 + 4)
    same = client.get(url, headers={"if-none-match": head.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    problem(client.get(url, headers={"range": "bytes=999999-"}), 416, "range-not-satisfiable")
    assert inline.asked == []
    whole = client.get(url)
    assert whole.headers["etag"] == head.headers["etag"] != client.head(url.replace("/1/0", "/2/0")).headers["etag"]
    part = client.get(url, headers={"range": "bytes=4-7", "if-range": head.headers["etag"]})
    assert (part.status_code, part.content) == (206, whole.content[4:8])
    assert len(inline.asked) == 1
    other, _ = bench.prepared(chain(201), "int32")
    assert client.head(url.replace(job, other)).headers["etag"] != head.headers["etag"]


def test_what_another_version_has_computed_is_asked_again(client: TestClient, bench: Bench, inline, monkeypatch):
    """Floats added in another order differ, so no part of an older answer may be kept or continued; files stay."""
    graph = small_graph()
    made, stored = (f"/v1/jobs/{make(graph, 'float32')[0]}" for make in (bench.prepared, bench.solved))
    computed = [f"{made}/zarr/distances/c/0/0", f"{made}/distance?source=10&target=20", f"{made}/rows?sources=10"]
    files = [f"{made}/prepared/tables/forward/c/0", f"{stored}/zarr/distances/c/0/0"]
    tags = {url: client.get(url).headers["etag"] for url in (*computed, *files)}
    monkeypatch.setattr(etags, "SOFTWARE", b"apsp 999")
    for url, tag in tags.items():
        again = client.get(url, headers={"if-none-match": tag})
        assert again.status_code == (200 if url in computed else 304), url
    part = client.get(computed[0], headers={"range": "bytes=4-7", "if-range": tags[computed[0]]})
    assert part.status_code == 200, "a part of another version's chunk is not continued"


def test_the_prepared_folder_itself_is_served(client: TestClient, bench: Bench, settings: Settings):
    job, _ = bench.prepared(small_graph(), "int32")
    for path in settings.store(job).rglob("*"):
        if path.is_file():
            found = client.get(f"/v1/jobs/{job}/prepared/{path.relative_to(settings.store(job)).as_posix()}")
            assert found.content == path.read_bytes()
    for key in ("", "distances/zarr.json", "..%2f..%2fapsp.db", "%2e%2e/%2e%2e/apsp.db"):
        problem(client.get(f"/v1/jobs/{job}/prepared/{key}"), 404, "not-found")


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("graph", [small_graph(names=True), chain(200)], ids=["small", "chain"])
def test_what_is_counted_is_what_a_solve_has_stored(
    client: TestClient, bench: Bench, inline: InlinePool, tmp_path: Path, graph: Graph, dtype: str
):
    solve_to_store(graph, Options(dtype=dtype, device="cpu"), tmp_path / "s")
    with open_matrix(tmp_path / "s") as matrix:
        want = json.loads(json.dumps(matrix.summary))
    made = f"/v1/jobs/{bench.prepared(graph, dtype)[0]}"
    assert client.get(f"{made}/summary").json()["summary"] == {"pairs": graph.n * (graph.n - 1)}
    found = client.get(f"{made}/summary?counted=true")
    assert found.json()["summary"] == want
    drawn = client.get(f"{made}/histogram").json()
    histogram = want["histogram"]
    assert (drawn["edges"], drawn["counts"]) == (histogram["edges"], histogram["counts"])
    assert len(inline.asked) == 1, "it is counted once"
    same = client.get(f"{made}/summary?counted=true", headers={"if-none-match": found.headers["etag"]})
    assert same.status_code == 304
    # a store says what was counted while solving, however it is asked
    stored = f"/v1/jobs/{bench.solved(graph, dtype)[0]}/summary"
    assert client.get(f"{stored}?counted=true").json() == client.get(stored).json()


def test_counting_that_would_take_long_is_refused_with_the_seconds(
    client: TestClient, bench: Bench, inline: InlinePool, monkeypatch: pytest.MonkeyPatch
):
    job, _ = bench.prepared(chain(200), "int32")
    answering = client.app.state.service.answering
    monkeypatch.setattr("engine.api.from_tables.summary.summary_seconds", lambda matrix: 500.4)
    for path in ("summary?counted=true", "histogram"):
        body = problem(client.get(f"/v1/jobs/{job}/{path}"), 413, "limit-exceeded")
        assert "all 200 rows" in body["detail"]
        assert "apsp query FOLDER summary" in body["detail"]
        limits = {"limit": 120, "requested": 500, "setting": "APSP_MAX_COMPUTING_SECONDS"}
        assert body["details"] == limits
    assert len(inline.asked) == 1, "a refusal is not predicted again"
    assert client.get(f"/v1/jobs/{job}/summary").json()["summary"] == {"pairs": 200 * 199}
    other, _ = bench.prepared(chain(201), "int32")
    answering.budget.charge(None, answering.budget.limit + 30)
    problem(client.get(f"/v1/jobs/{other}/histogram"), 429, "too-much-computing")
    assert len(inline.asked) == 1


@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_a_damaged_table_is_named_and_nothing_is_answered_from_it(
    client: TestClient, bench: Bench, inline: InlinePool, settings: Settings, how: str
):
    job, _ = bench.prepared(small_graph(), "int32")
    table = settings.store(job) / "tables/forward/c/0"
    data = bytearray(table.read_bytes())
    data[0] ^= 1
    if how == "gone":
        table.unlink()
    else:
        table.write_bytes(data if how == "changed" else data[:-1])
    base = f"/v1/jobs/{job}"
    for path in (f"distance?{U}", "rows?sources=10", "columns?targets=10", f"path?{U}", "nearest?source=10",
                 "zarr/distances/c/0/0", "sample", "eccentricities", "histogram", "summary?counted=true"):  # fmt: skip
        body = problem(client.get(f"{base}/{path}"), 500, "storage-failed")
        assert "tables/forward/c/0" in body["detail"]
        assert str(settings.data_dir) not in body["detail"]
    assert client.get(f"{base}/results").status_code == 200


def test_tables_larger_than_memory_are_refused_with_the_numbers(
    client: TestClient, bench: Bench, inline: InlinePool, monkeypatch: pytest.MonkeyPatch
):
    job, _ = bench.prepared(small_graph(), "int32")
    monkeypatch.setattr(held, "available_memory", lambda: 5)
    assert client.get(f"/v1/jobs/{job}/distance?{U}").json()["distance"] == 3, "a pair is read, and fits always"
    for path in ("rows?sources=10", "zarr/distances/c/0/0"):
        details = problem(client.get(f"/v1/jobs/{job}/{path}"), 507, "does-not-fit")["details"]
        assert (details["resource"], details["available"]) == ("memory", 5)
        assert details["needed"] > 5


def test_a_caller_who_has_computed_much_waits(client: TestClient, bench: Bench, inline: InlinePool):
    job, _ = bench.prepared(chain(200), "int32")
    base, budget = f"/v1/jobs/{job}", client.app.state.service.answering.budget
    assert client.get(f"{base}/zarr/distances/c/0/0").status_code == 200
    budget.charge(None, budget.limit + 30)
    for path in ("distance?source=0&target=1", "rows?sources=0&targets=1", "zarr/distances/c/1/0"):
        answer = client.get(f"{base}/{path}")
        body = problem(answer, 429, "too-much-computing")
        assert body["details"] == {"limit": 120, "setting": "APSP_MAX_COMPUTING_SECONDS"}
        assert 10 <= int(answer.headers["retry-after"]) <= 16
    for free in ("results", "summary", "zarr/zarr.json", "zarr/distances/c/0/0", "prepared/zarr.json"):
        assert client.get(f"{base}/{free}").status_code == 200, free
    assert client.app.state.service.answering.budget._buckets.keys() == {None}


def test_a_result_that_is_gone_is_not_answered_from_memory(
    client: TestClient, bench: Bench, inline: InlinePool, settings: Settings
):
    deleted, _ = bench.prepared(small_graph(names=True), "int32")
    assert client.get(f"/v1/jobs/{deleted}/distance?source=a&target=d").status_code == 200
    assert client.delete(f"/v1/jobs/{deleted}").status_code == 204
    problem(client.get(f"/v1/jobs/{deleted}/distance?source=a&target=d"), 410, "gone")
    job, _ = bench.prepared(small_graph(), "int32")
    assert client.get(f"/v1/jobs/{job}/distance?{U}").status_code == 200
    shutil.rmtree(settings.store(job))
    body = problem(client.get(f"/v1/jobs/{job}/distance?{U}"), 409, "result-not-ready")
    assert "solved again" in body["detail"]
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "accepted"


class ReplacingPool(InlinePool):
    """Puts other weights into the folder of a result, as ``apsp reweight`` does, just before the next question."""

    folder: Path | None = None

    def wait(self, task: Callable[..., Any], *given: Any, owner: str | None = None) -> Any:
        if self.folder is not None:
            reweight(self.folder, ([10, 20, 30, 40], [20, 30, 10, 10], [5, 6, 7, 8]))
            self.folder = None
        return super().wait(task, *given, owner=owner)


@pytest.mark.parametrize(
    "path", ["rows?sources=10", "columns?targets=30", f"path?{U}", "nearest?source=10", "zarr/distances/c/0/0"]
)
def test_a_result_that_is_replaced_while_it_is_asked_is_asked_again(
    client: TestClient, bench: Bench, settings: Settings, path: str
):
    pool = client.app.state.service.answering.pool = ReplacingPool()
    job, _ = bench.prepared(small_graph(), "int32")
    before = client.get(f"/v1/jobs/{job}/distance?{U}").json()["distance"]
    pool.folder = settings.store(job)
    answer = client.get(f"/v1/jobs/{job}/{path}")
    problem(answer, 503, "result-replaced")
    assert answer.headers["retry-after"] == "1"
    assert client.get(f"/v1/jobs/{job}/{path}").status_code == 200
    assert client.get(f"/v1/jobs/{job}/distance?{U}").json()["distance"] != before


_ASK = """
import sys
from fastapi.testclient import TestClient
from service.app import create_app
from service.settings import Settings

if __name__ == "__main__":
    app = create_app(Settings.load())
    base, client = f"/v1/jobs/{sys.argv[1]}", TestClient(app)
    assert client.get(f"{base}/distance?source=10&target=30").json()["distance"] == 3
    assert client.get(f"{base}/rows?sources=40").json()["distances"] == [[1, 2, 4, 0]]
    assert client.get(f"{base}/path?source=40&target=30").json()["length"] == 4
    assert len(client.get(f"{base}/zarr/distances/c/0/0").content) == 4 * 4 * 4 + 4
    answering = app.state.service.answering
    assert len(answering.pool._children) == 1
    assert answering.budget._buckets[None][0] < answering.budget.limit
    app.state.service.stop_workers()
    print(sorted(name for name in ("numba", "engine.api.prepared_matrix") if name in sys.modules))
"""


def test_only_helper_processes_load_compiled_code(bench: Bench, settings: Settings, tmp_path: Path):
    job, _ = bench.prepared(small_graph(), "int32")
    script = tmp_path / "ask.py"
    script.write_text(_ASK)
    environment = {**os.environ, **settings.environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script, job], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
