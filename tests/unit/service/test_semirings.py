"""Results of other semirings in the API process and on pages, without a runner."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from storage.graph.graph import build_graph
from tests.unit.service.support import Bench
from tests.unit.service.test_app import ROOT, problem


@pytest.fixture
def job(bench: Bench) -> str:
    """A job of widest paths: 10 -> 20 -> 30, and 40 alone."""
    labels = [10, 20, 30, 40]
    graph, _ = build_graph([0, 1], [1, 2], [3, 2], labels=labels, directed=True, parallel="greatest")
    return bench.valued(graph, "max-min")


def test_answers_say_the_semiring(client: TestClient, job: str):
    asked = {"source": 10, "target": 30, "semiring": "max-min"}
    for _ in range(2):  # the second answer is from an open result, which must not take the fast path
        found = client.get(f"/v1/jobs/{job}/distance", params=asked).json()
        assert found == {"source": 10, "target": 30, "reachable": True, "distance": 2.0, "semiring": "max-min"}
        refused = problem(client.get(f"/v1/jobs/{job}/distance?source=10&target=30"), 409, "conflict")
        assert "widths of semiring max-min" in refused["detail"]
    lost = client.get(f"/v1/jobs/{job}/distance", params={**asked, "target": 40}).json()
    assert (lost["reachable"], lost["distance"]) == (False, None)
    path = client.get(f"/v1/jobs/{job}/path", params=asked).json()
    assert (path["length"], path["vertices"], path["semiring"]) == (2, [10, 20, 30], "max-min")
    none = client.get(f"/v1/jobs/{job}/path", params={**asked, "target": 40}).json()
    assert (none["reachable"], none["semiring"]) == (False, "max-min")
    body = {"pairs": [[10, 20], [10, 40], [10, 10]], "semiring": "max-min"}
    assert client.post(f"/v1/jobs/{job}/distances", json=body).json() == {"distances": [3.0, None, None]}
    assert client.get(f"/v1/jobs/{job}/results").json()["semiring"] == "max-min"
    summary = client.get(f"/v1/jobs/{job}/summary").json()["summary"]
    assert (summary["semiring"], summary["reached"], summary["least"], summary["greatest"]) == ("max-min", 3, 2, 3)


def test_rows_and_submatrices_of_values(client: TestClient, job: str):
    asked = {"semiring": "max-min"}
    whole = [[None, 3, 2, None], [None, None, 2, None], [None] * 4, [None] * 4]
    answers = [
        client.post(f"/v1/jobs/{job}/submatrix", json=asked).json(),
        client.get(f"/v1/jobs/{job}/rows?sources=10,20,30,40&semiring=max-min").json(),
        client.get(f"/v1/jobs/{job}/columns?targets=10,20,30,40&semiring=max-min").json(),
    ]
    for found in answers:
        assert found == {"sources": [10, 20, 30, 40], "targets": [10, 20, 30, 40], "semiring": "max-min",
                         "distances": whole}  # fmt: skip
    csv = client.get(f"/v1/jobs/{job}/rows?sources=10&semiring=max-min&format=csv").text
    assert csv.splitlines() == ["source,target,value", "10,10,inf", "10,20,3.0", "10,30,2.0", "10,40,"]
    npy = client.get(f"/v1/jobs/{job}/rows?sources=20&semiring=max-min&format=npy").content
    assert np.load(io.BytesIO(npy)).tolist() == [[-np.inf, np.inf, 2, -np.inf]]
    for kind, read in (("parquet", pl.read_parquet), ("arrow", pl.read_ipc_stream)):
        table = client.get(f"/v1/jobs/{job}/rows?sources=10&semiring=max-min&format={kind}").content
        assert read(io.BytesIO(table))["value"].to_list() == [np.inf, 3, 2, None]
    near = client.get(f"/v1/jobs/{job}/nearest?source=10&k=5&semiring=max-min").json()
    assert near == {"source": 10, "targets": [20, 30], "distances": [3, 2], "semiring": "max-min"}
    problem(client.post(f"/v1/jobs/{job}/submatrix", json={}), 409, "conflict")
    for other in ("", "&semiring=min-max"):
        problem(client.get(f"/v1/jobs/{job}/columns?targets=10{other}"), 409, "conflict")


@pytest.mark.parametrize(
    "path",
    ["histogram", "histogram?source=10", "sample", "nearest?source=10&semiring=min-plus", "rows?sources=10",
     "eccentricities",
     "also?source=10&target=20", "network", "path?source=10&target=30&semiring=max-min&format=geojson"],
)  # fmt: skip
def test_other_questions_are_refused(client: TestClient, job: str, path: str):
    assert "semiring max-min" in problem(client.get(f"/v1/jobs/{job}/{path}"), 409, "conflict")["detail"]


def test_pages_show_values_and_no_distances(client: TestClient, job: str):
    page = client.get(f"/jobs/{job}", headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert "The widest path of each pair (semiring max-min): widths" in page.text
    assert "Eccentricities" not in page.text
    assert 'id="heat"' not in page.text
    for more in ("eccentricities", "counted", "path?source=10&target=30"):
        assert client.get(f"/jobs/{job}/{more}", headers={"Accept": "text/html"}).status_code != 500


def test_the_options_of_jobs_say_the_semiring_only_where_it_is_another():
    code = (
        "from service.api.schemas.jobs import JobRequest as R; from service.jobs.submission import fingerprint as f;"
        "plain, said = R(graph='g').options(), R(graph='g', semiring='min-plus').options();"
        "assert plain == said and 'semiring' not in plain;"
        "wide = R(graph='g', semiring='max-min').options();"
        "assert wide['semiring'] == 'max-min' and f('g', wide) != f('g', plain)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
