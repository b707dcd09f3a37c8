"""Tables over HTTP: pages in every format and order, histograms, files, uploads; everything else is refused clearly."""

from __future__ import annotations

import dataclasses
import io
import shutil
from typing import Any

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.name_lists import quote_name
from service.settings import Settings
from storage.graph.graph import build_graph
from storage.jobs.keys import KeyStore
from storage.matrix.sealed import SealedResult
from storage.tables.reader import open_table
from tests.unit.service.support import Bench, InlinePool, small_graph
from tests.unit.service.test_app import problem

MEASURES = {"result": "measures", "measures": ["reached", "mean", "farthest"], "within": [3.0]}


def rows_of(bench: Bench, job: str) -> pl.DataFrame:
    with open_table(bench.settings.store(job)) as table:
        return table.page(list(table.columns), 0, table.rows)


@pytest.mark.parametrize("names", [False, True])
def test_a_page_is_the_same_in_every_format(client: TestClient, bench: Bench, names: bool):
    job = bench.tabled(small_graph(names=names), **MEASURES)
    frame, url = rows_of(bench, job), f"/v1/jobs/{job}/table"
    found = client.get(url).json()
    assert found == {"columns": frame.columns, "rows": [list(row) for row in frame.rows()], "total": 4, "next": None}
    assert pl.read_parquet(io.BytesIO(client.get(url, params={"format": "parquet"}).content)).equals(frame)
    arrow = client.get(url, headers={"accept": "application/vnd.apache.arrow.stream"})
    assert pl.read_ipc_stream(io.BytesIO(arrow.content)).equals(frame)
    assert client.get(url, params={"format": "csv"}).text == frame.write_csv()
    assert arrow.headers["vary"] == "Accept"
    assert client.get(url, headers={"if-none-match": client.get(url).headers["etag"]}).status_code == 304
    file = client.get(f"/v1/jobs/{job}/zarr/table.parquet")
    assert file.headers["content-type"] == "application/vnd.apache.parquet"
    assert pl.read_parquet(io.BytesIO(file.content)).equals(frame)


def test_pages_of_every_format_name_the_unit(client: TestClient, bench: Bench):
    graph = dataclasses.replace(small_graph(), unit="min")
    url = f"/v1/jobs/{bench.tabled(graph, **MEASURES)}/table"
    for kind in ("json", "csv", "parquet", "arrow"):
        assert client.get(url, params={"format": kind}).headers["distance-unit"] == "min"
    page = client.get(url, params={"format": "parquet"}).content
    assert pl.read_parquet_metadata(io.BytesIO(page))["distance_unit"] == "min"
    unknown = client.get(f"/v1/jobs/{bench.tabled(small_graph(), **MEASURES)}/table", params={"format": "parquet"})
    assert "distance-unit" not in unknown.headers
    assert "distance_unit" not in pl.read_parquet_metadata(io.BytesIO(unknown.content))


def test_rows_of_every_format_name_the_unit(client: TestClient, bench: Bench, monkeypatch: pytest.MonkeyPatch):
    url = f"/v1/jobs/{bench.solved(small_graph(), 'int32')[0]}/rows"
    unknown = client.get(url, params={"sources": "10"})
    assert (unknown.status_code, "distance-unit" in unknown.headers) == (200, False)
    monkeypatch.setattr(SealedResult, "unit", property(lambda _matrix: "min"))
    for kind in ("json", "csv", "npy", "parquet", "arrow"):
        assert client.get(url, params={"format": kind, "sources": "10"}).headers["distance-unit"] == "min"


def test_pages_follow_each_other_in_any_order(client: TestClient, bench: Bench):
    rng = np.random.default_rng(2)
    graph = build_graph(*rng.integers(0, 40, (2, 90)), rng.integers(1, 5, 90), n=40, directed=True)[0]
    job = bench.tabled(graph, result="near", cutoff=2.0)
    frame = rows_of(bench, job).with_row_index("row")
    for sort in (None, "distance", "-distance", "-target"):
        found: list[Any] = []
        url = f"/v1/jobs/{job}/table?columns=target,distance&limit=7" + (f"&sort={sort}" if sort else "")
        while url:
            answer = client.get(url)
            found += answer.json()["rows"]
            assert answer.links.get("next", {}).get("url") == answer.json()["next"]
            url = answer.json()["next"]
        ordered = (
            frame
            if sort is None
            else frame.sort(sort.removeprefix("-"), "row", descending=[sort.startswith("-"), False], nulls_last=True)
        )
        assert found == [list(row) for row in ordered.select("target", "distance").rows()]
    assert len(found) > 30
    assert len(found) <= bench.settings.max_cells


def test_rows_of_vertices(client: TestClient, bench: Bench):
    job = bench.tabled(small_graph(names=True), result="near", cutoff=100.0)
    frame, url = rows_of(bench, job), f"/v1/jobs/{job}/table"
    found = client.get(url, params={"vertices": '"b,c",a', "columns": "target,distance"}).json()
    wanted = frame.filter(pl.col("source").is_in(["a", "b,c"])).select("target", "distance")
    assert found["rows"] == [list(row) for row in wanted.rows()]
    problem(client.get(url, params={"vertices": "nobody"}), 404, "not-found")
    problem(client.get(url, params={"vertices": "a", "limit": 1}), 413, "limit-exceeded")
    for name in ("sort", "cursor"):
        assert problem(client.get(url, params={"vertices": "a", name: "x"}), 422, "invalid-request")["details"] == {
            "field": name
        }


@pytest.mark.parametrize("names", [False, True])
def test_a_source_without_near_pairs_has_no_rows(client: TestClient, bench: Bench, names: bool):
    graph = small_graph(names)
    lone, some = [str(graph.labels[k]) for k in (2, 0)]
    url = f"/v1/jobs/{bench.tabled(graph, result='near', cutoff=3.0, sources=graph.labels[[0, 2]].tolist())}/table"
    asked = {"columns": "source,distance"}
    assert client.get(url, params={"vertices": lone, **asked}).json()["rows"] == []
    both = client.get(url, params={"vertices": f"{lone},{some}", **asked}).json()["rows"]
    assert both == client.get(url, params={"vertices": some, **asked}).json()["rows"] != []
    for form in ("csv", "parquet", "arrow"):
        assert client.get(url, params={"vertices": lone, "format": form}).status_code == 200
    for name in ("nobody", f" {graph.labels[3]}", quote_name(graph.labels[1])):  # the last two are no sources
        problem(client.get(url, params={"vertices": f"{name},{lone}"}), 404, "not-found")
    measured = f"/v1/jobs/{bench.tabled(graph, **MEASURES)}/table"
    problem(client.get(measured, params={"vertices": "nobody"}), 404, "not-found")


def test_bounds_and_mistakes_are_named(client: TestClient, bench: Bench):
    job = bench.tabled(small_graph(), **MEASURES)
    url = f"/v1/jobs/{job}/table"
    body = problem(client.get(url, params={"columns": "reached,nope"}), 422, "invalid-request")
    assert "there are vertex, reached, mean, farthest, within_3" in body["detail"]
    cursor = client.get(url, params={"limit": 2, "sort": "mean"}).json()["next"].partition("cursor=")[2]
    for wrong in (
        {"sort": "nope"},
        {"limit": 0},
        {"format": "npy"},
        {"cursor": "zzz"},
        {"cursor": cursor},
        {"page": 2},
        {"columns": ","},
    ):
        problem(client.get(url, params=wrong), 422, "invalid-request")
    problem(client.get(url, headers={"accept": "application/x-npy"}), 406, "not-acceptable")
    rng = np.random.default_rng(1)
    large = build_graph(*rng.integers(0, 30, (2, 90)), None, n=30, directed=True)[0]
    job = bench.tabled(large, result="near", cutoff=100.0)
    url = f"/v1/jobs/{job}/table"
    rows = client.get(url).json()
    assert len(rows["rows"]) == 64 // 3
    details = problem(client.get(url, params={"limit": 40}), 413, "limit-exceeded")["details"]
    assert details == {"limit": 64, "requested": 120, "setting": "APSP_MAX_CELLS"}
    assert "sorted" in problem(client.get(url, params={"sort": "distance"}), 413, "limit-exceeded")["detail"]


def test_histograms_of_columns(client: TestClient, bench: Bench):
    job = bench.tabled(small_graph(), **MEASURES)
    mean = rows_of(bench, job)["mean"]
    url = f"/v1/jobs/{job}/table/histogram"
    found = client.get(url, params={"column": "mean", "bins": 3}).json()
    counts, edges = np.histogram(mean.drop_nulls(), 3)
    assert (found["counts"], found["edges"], found["missing"]) == (counts.tolist(), edges.tolist(), mean.null_count())
    same = client.get(url, params={"column": "reached", "bins": 9}).json()
    assert sum(same["counts"]) == 4
    problem(client.get(url, params={"column": "nope"}), 422, "invalid-request")
    problem(client.get(url), 422, "invalid-request")
    near, _ = build_graph([0, 0], [1, 2], [0.3, 0.1 + 0.2], directed=True)
    url = f"/v1/jobs/{bench.tabled(near, result='near', nearest=2)}/table/histogram?column=distance"
    assert client.get(url).json() == {
        "column": "distance", "edges": [0.3, 0.1 + 0.2], "counts": [2], "missing": 0
    }  # fmt: skip
    named = bench.tabled(small_graph(names=True), **MEASURES)
    body = problem(client.get(f"/v1/jobs/{named}/table/histogram?column=vertex"), 422, "invalid-request")
    assert "there are numbers in reached, mean, within_3" in body["detail"]


def test_a_table_has_no_distances_and_a_matrix_no_table(client: TestClient, bench: Bench):
    job = bench.tabled(small_graph(), result="near", nearest=1)
    base = f"/v1/jobs/{job}"
    for path in ("distance?source=10&target=20", "path?source=10&target=20", "rows?sources=10", "columns?targets=10",
                 "nearest?source=10", "histogram", "sample", "eccentricities", "prepared/zarr.json"):  # fmt: skip
        body = problem(client.get(f"{base}/{path}"), 409, "conflict")
        assert f"table of near pairs, which holds no distances of all pairs; read {base}/table" in body["detail"]
    for path, body in (("distances", {"pairs": [[10, 20]]}), ("submatrix", {})):
        problem(client.post(f"{base}/{path}", json=body), 409, "conflict")
    solved, _ = bench.solved(small_graph(), "int32")
    for path in ("table", "table/histogram?column=x"):
        assert "is a matrix" in problem(client.get(f"/v1/jobs/{solved}/{path}"), 409, "conflict")["detail"]


def test_manifest_summary_links_and_files(client: TestClient, bench: Bench, settings: Settings):
    job = bench.tabled(small_graph(), **MEASURES)
    base = f"/v1/jobs/{job}"
    found = client.get(f"{base}/results").json()
    assert (found["result"], found["rows"], found["shape"]) == ("measures", 4, [4, 4])
    assert found["columns"][:2] == [{"name": "vertex", "type": "integer"}, {"name": "reached", "type": "integer"}]
    assert found["asked"]["within"] == [3.0]
    assert found["links"].keys() == {"job", "results", "summary", "table", "table/histogram", "zarr"}
    shown = client.get(base).json()
    assert shown["links"].keys() - {"self", "graph", "log"} == found["links"].keys() - {"job"}
    summary = client.get(f"{base}/summary").json()
    assert (summary["result"], summary["summary"]["rows"]) == ("measures", 4)
    for path in settings.store(job).rglob("*"):
        if path.is_file():
            key = path.relative_to(settings.store(job)).as_posix()
            assert client.get(f"{base}/zarr/{key}").content == path.read_bytes()
    problem(client.get(f"{base}/zarr/..%2f..%2fapsp.db"), 404, "not-found")


def test_damage_loss_and_deletion(client: TestClient, bench: Bench, settings: Settings):
    job = bench.tabled(small_graph(), **MEASURES)
    file = settings.store(job) / "table.parquet"
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    body = problem(client.get(f"/v1/jobs/{job}/table"), 500, "storage-failed")
    assert "table.parquet" in body["detail"]
    assert str(settings.data_dir) not in body["detail"]
    gone = bench.tabled(small_graph(real=True), **MEASURES)
    assert client.get(f"/v1/jobs/{gone}/table").status_code == 200
    assert client.delete(f"/v1/jobs/{gone}").status_code == 204
    problem(client.get(f"/v1/jobs/{gone}/table"), 410, "gone")
    assert not settings.store(gone).parent.exists()
    lost = bench.tabled(small_graph(names=True), **MEASURES)
    assert client.get(f"/v1/jobs/{lost}/table").status_code == 200
    shutil.rmtree(settings.store(lost))
    problem(client.get(f"/v1/jobs/{lost}/table"), 409, "result-not-ready")


def test_uploaded_tables(settings: Settings):
    app = create_app(settings.model_copy(update={"auth": True, "max_tables": 2, "max_table_bytes": 200}))
    app.state.service.worker = InlinePool()
    client = TestClient(app, raise_server_exceptions=False)
    keys = KeyStore(app.state.service.jobs.database)
    mine, theirs = ({"Authorization": f"Bearer {keys.create(name, ('read', 'submit'))[1]}"} for name in "ab")
    good = b"place,jobs\n10,3\n20,4\n"
    first = client.post("/v1/tables", content=good, headers=mine)
    assert first.status_code == 201, first.text
    table = first.json()
    assert (table["rows"], table["columns"], first.headers["location"]) == (2, ["jobs"], f"/v1/tables/{table['id']}")
    assert client.post("/v1/tables", content=good, headers=mine).status_code == 200
    assert client.get("/v1/tables", headers=mine).json()["tables"] == [table]
    assert client.get("/v1/tables", headers=theirs).json()["tables"] == []
    for call in (client.get, client.delete):
        problem(call(f"/v1/tables/{table['id']}", headers=theirs), 404, "not-found")
    app.state.service.planner = app.state.service.worker
    for headers, statuses in ((mine, (200, 201)), (theirs, (404, 404))):
        graph = client.post("/v1/graphs", content=b"10 20 1\n", headers=headers)
        asked = {"graph": graph.json()["id"], "result": "measures", "within": [5], "opportunities": table["id"]}
        for path, status in zip(("estimates", "jobs"), statuses, strict=True):
            answer = client.post(f"/v1/{path}", json=asked, headers=headers)
            assert answer.status_code == status, answer.text
    body = problem(client.post("/v1/tables", content=b"place,jobs\n10,x\n", headers=mine), 422, "invalid-request")
    assert body["detail"].startswith("the table, line 2: column 'jobs' is 'x'")
    details = problem(client.post("/v1/tables", content=b"x" * 201, headers=mine), 413, "limit-exceeded")["details"]
    assert details == {"limit": 200, "requested": 201, "setting": "APSP_MAX_TABLE_BYTES"}
    assert client.post("/v1/tables", content=good + b"30,5\n", headers=mine).status_code == 201
    details = problem(client.post("/v1/tables", content=good + b"40,5\n", headers=mine), 413, "limit-exceeded")[
        "details"
    ]
    assert details == {"limit": 2, "requested": 3, "setting": "APSP_MAX_TABLES"}
    assert client.delete(f"/v1/tables/{table['id']}", headers=mine).status_code == 204
    problem(client.get(f"/v1/tables/{table['id']}", headers=mine), 404, "not-found")
    assert list((settings.data_dir / "incoming").iterdir()) == []
    client.close()
    app.state.service.jobs.close()


def test_demands_are_uploaded_and_assigned_by_a_job_of_who_has_them(settings: Settings):
    app = create_app(settings.model_copy(update={"auth": True}))
    app.state.service.worker = InlinePool()
    app.state.service.planner = InlinePool()
    client = TestClient(app, raise_server_exceptions=False)
    keys = KeyStore(app.state.service.jobs.database)
    mine, theirs = ({"Authorization": f"Bearer {keys.create(name, ('read', 'submit'))[1]}"} for name in "ab")
    trips = b"from,to,cars\n10,20,3\n10,20,4\n"
    made = client.post("/v1/tables", params={"holds": "demands"}, content=trips, headers=mine)
    assert made.status_code == 201, made.text
    table = made.json()
    assert (table["holds"], table["rows"], table["key"], table["columns"]) == ("demands", 2, "from", ["cars"])
    wrong = client.post("/v1/tables", content=trips, headers=mine)
    assert "'from'" in problem(wrong, 422, "invalid-request")["detail"] or "more than once" in wrong.text
    for headers, status in ((mine, 200), (theirs, 404)):
        graph = client.post("/v1/graphs", content=b"10 20 1\n", headers=headers).json()["id"]
        asked = {"graph": graph, "result": "flows", "demands": table["id"], "flow": "cars"}
        answer = client.post("/v1/estimates", json=asked, headers=headers)
        assert answer.status_code == status, answer.text
    problem(client.post("/v1/tables", params={"holds": "x"}, content=trips, headers=mine), 422, "invalid-request")
    client.close()
    app.state.service.jobs.close()


def test_pages_of_betweenness_and_flows(client: TestClient, bench: Bench):
    job = bench.tabled(small_graph(), result="betweenness", of="arcs", raw=True)
    found = client.get(f"/v1/jobs/{job}/table", params={"sort": "-betweenness", "limit": 2}).json()
    assert (found["columns"], found["total"]) == (["source", "target", "betweenness"], 4)
    manifest = client.get(f"/v1/jobs/{job}/results").json()
    assert (manifest["result"], manifest["asked"]) == ("betweenness", {"of": "arcs", "raw": True, "endpoints": None})
    problem(client.get(f"/v1/jobs/{job}/distance", params={"source": 10, "target": 20}), 409, "conflict")
    given = {"origins": [10, 20], "destinations": [30, 40], "flows": [5, 4]}
    job = bench.tabled(small_graph(), result="flows", demands=given)
    rows = client.get(f"/v1/jobs/{job}/table").json()["rows"]
    assert rows == [[10, 20, 1, 5.0], [20, 30, 2, 5.0], [30, 10, 4, 0.0], [40, 10, 1, 0.0]]
    summary = client.get(f"/v1/jobs/{job}/summary").json()["summary"]
    assert (summary["assigned"], summary["lost"], summary["unreachable_first"]) == (5, 4, [[20, 40, 4]])
    assert client.get(f"/v1/jobs/{job}/table/histogram", params={"column": "flow"}).json()["missing"] == 0
