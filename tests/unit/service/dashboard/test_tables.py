"""The page of a table without a browser: rows, orders, histogram, downloads; nothing of a matrix, and no markup."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.dashboard.options import FIELDS, read_options
from service.pool.tabled import TAKES
from service.settings import Settings
from service.state import Service
from storage.graph.graph import build_graph
from tests.unit.service.dashboard import test_pages
from tests.unit.service.dashboard.test_pages import EVIL, Tags, give, log_in
from tests.unit.service.support import Bench, small_graph

service = test_pages.service


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", max_cells=600)


def words(client: TestClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return " ".join(Tags(answer.text).text.split())


def cells(client: TestClient, address: str) -> list[list[str]]:
    """The rows that a page shows."""
    body = client.get(address).text.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def text_of(value: object) -> str:
    return "–" if value is None else f"{value:.7g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"unit": "min"}, "Distances are in min."),
        ({"weights": {"column": "length_m"}}, "Distances are sums of length_m."),
        ({"weights": {"weighted": False}}, ""),
        ({}, ""),
    ],
)
def test_the_page_of_a_table_says_what_distances_measure(
    client: TestClient, service: Service, bench: Bench, facts: dict[str, object], said: str
):
    owner = log_in(client, service)
    job, _ = give(service, bench, owner, bench.tabled(small_graph(), result="near", nearest=1))
    with service.jobs.database.transaction("durable") as connection:
        for table in ("graphs", "graph_owners"):
            connection.exec_driver_sql(f"UPDATE {table} SET facts = ?", (json.dumps(facts),))
    text = " ".join(Tags(client.get(f"/jobs/{job}").text).text.split())
    assert (said in text) if said else "Distances are" not in text


def test_the_page_of_measures(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    made = bench.tabled(small_graph(), result="measures", measures=["reached", "mean"], within=[3.0])
    job, _ = give(service, bench, owner, made)
    answer = client.get(f"/jobs/{job}")
    page = Tags(answer.text)
    text = " ".join(page.text.split())
    assert "A table of measures: 4 rows and 4 columns. No matrix was made" in text
    for of_a_matrix in ("mean distance", "Heat map", "From one vertex to another", "eccentricities"):
        assert of_a_matrix not in answer.text
    links = {found["href"]: found["download"] for tag, found in page.tags if tag == "a" and "download" in found}
    for address, name in links.items():
        if "/log" not in address:
            assert client.get(address).status_code == 200
            assert name.startswith(job)
    assert [name.rpartition(".")[2] for name in links.values()] == ["parquet", "csv", "arrows", "txt"]
    assert ("div", f"/jobs/{job}/table") in [(tag, found.get("data-load")) for tag, found in page.tags]
    assert "Count within3" in text
    part = words(client, f"/jobs/{job}/table")
    assert "Rows 1 to 4 of 4" in part
    table = client.get(f"/v1/jobs/{job}/table").json()
    assert cells(client, f"/jobs/{job}/table") == [[text_of(value) for value in row] for row in table["rows"]]
    assert "Columnreachedmeanwithin_3 Draw" in part


def test_orders_pages_and_columns(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    rng = np.random.default_rng(4)
    graph = build_graph(*rng.integers(0, 50, (2, 99)), rng.integers(1, 5, 99), n=50, directed=True)[0]
    job, _ = give(service, bench, owner, bench.tabled(graph, result="measures", measures=["reached", "farthest"]))
    base = f"/jobs/{job}/table"
    assert "Rows 21 to 40 of 50" in words(client, f"{base}?first=20")
    assert "Rows 41 to 50 of 50" in words(client, f"{base}?first=999")
    table = client.get(f"/v1/jobs/{job}/table?sort=-reached&limit=20").json()["rows"]
    shown = Tags(client.get(f"{base}?sort=-reached").text)
    first = next(found for tag, found in shown.tags if tag == "a" and found.get("id") == "sort-2")
    assert first["href"] == f"{base}?sort=reached&first=0&column=reached"
    assert ("th", "descending") in [(tag, found.get("aria-sort")) for tag, found in shown.tags]
    assert cells(client, f"{base}?sort=-reached") == [[text_of(value) for value in row] for row in table]
    for wrong in ("sort=nope", "column=nope", "first=-1"):
        assert client.get(f"{base}?{wrong}").status_code == 422
    assert (
        client.get(f"/jobs/{give(service, bench, owner, bench.solved(graph, 'int32')[0])[0]}/table").status_code == 409
    )


def test_near_pairs_that_are_too_many_to_sort(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    rng = np.random.default_rng(4)
    graph = build_graph(*rng.integers(0, 50, (2, 200)), None, n=50, directed=True)[0]
    job, _ = give(service, bench, owner, bench.tabled(graph, result="near", cutoff=9.0))
    assert "CSV and Arrow come in pages of at most 600 entries" in words(client, f"/jobs/{job}")
    page = client.get(f"/jobs/{job}/table?sort=-distance").text
    assert "A table of this many rows is not sorted here" in page
    assert "sort-1" not in page


def test_names_of_a_file_are_no_markup(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    graph, _ = build_graph([0, 1], [1, 0], [1, 2], labels=sorted([EVIL, "b"]), directed=True)
    inline = {"vertices": ["b"], "columns": {EVIL[:100]: [1]}}
    made = bench.tabled(graph, result="measures", measures=["farthest"], within=[1.0], opportunities=inline)
    job, _ = give(service, bench, owner, made)
    for address in (f"/jobs/{job}", f"/jobs/{job}/table"):
        page = client.get(address).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;" in page or address.endswith(job)


def test_strangers_see_no_table(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    job, _ = give(service, bench, owner, bench.tabled(small_graph(), result="near", nearest=1))
    log_in(client, service, "bob")
    assert client.get(f"/jobs/{job}/table").status_code == 404


def test_the_pages_of_betweenness_and_of_flows(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    job, _ = give(service, bench, owner, bench.tabled(small_graph(), result="betweenness", of="arcs", raw=True))
    assert "Betweenness: 4 rows. No matrix was made" in words(client, f"/jobs/{job}")
    part = words(client, f"/jobs/{job}/table?sort=-betweenness")
    assert "Rows 1 to 4 of 4" in part
    assert "How betweenness is spread" in part
    shown = cells(client, f"/jobs/{job}/table?sort=-betweenness")
    assert [float(row[2]) for row in shown] == sorted((float(row[2]) for row in shown), reverse=True)
    given = {"origins": [10, 20, 30], "destinations": [30, 40, 30], "flows": [5, 4, 1]}
    job, _ = give(service, bench, owner, bench.tabled(small_graph(), result="flows", demands=given))
    text = words(client, f"/jobs/{job}")
    assert "Flows of demands on shortest paths: 4 rows" in text
    assert "assigned5, of 3 demands" in text
    assert "without a path4: 20 to 40" in text
    assert "from vertices to themselves1, which is on no arc" in text


def test_the_form_asks_for_every_result(client: TestClient, service: Service, bench: Bench):
    for filled in (
        {"result": "betweenness", "of": "arcs", "raw": True},
        {"result": "flows", "demands": "9b7d0a7be85d4f0d9f4f3f8d0a3b7c11", "flow": "cars"},
        {
            "result": "measures",
            "opportunities": "9b7d0a7be85d4f0d9f4f3f8d0a3b7c11",
            "decay": "linear",
            "decay_value": 2.5,
        },
    ):
        read = read_options("g", {name: str(value).lower() for name, value in filled.items()})
        assert read.request is not None, read.fault
        assert read.request.options() | filled == read.request.options()
    choices = {field.name: [value for value, _ in field.choices] for field in FIELDS}
    assert choices["of"] == ["", "vertices", "arcs"]
    assert choices["raw"] == ["", "true"]
    assert choices["result"] == ["matrix", "prepared", *TAKES]


def test_each_field_of_the_form_says_which_results_take_it():
    results = {field.name: field.results for field in FIELDS}
    for name, taken in results.items():
        for result in taken:
            assert result == "matrix" or name in TAKES[result]
    for result, names in TAKES.items():
        assert {name for name in names & results.keys() if result not in results[name]} == set()
    assert {field.name: field.holds for field in FIELDS if field.holds} == {
        "opportunities": "opportunities", "demands": "demands",
    }  # fmt: skip


def test_lists_say_what_a_job_makes(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    demands = {"origins": [10], "destinations": [30], "flows": [5]}
    for kind, options in (
        ("measures", {"result": "measures"}), ("near pairs", {"result": "near", "nearest": 1}),
        ("betweenness", {"result": "betweenness"}), ("flows", {"result": "flows", "demands": demands}),
    ):  # fmt: skip
        job, graph = give(service, bench, owner, bench.tabled(small_graph(), **options))
        for address in ("/", f"/graphs/{graph}", f"/jobs/{job}"):
            assert f'<span class="kind">{kind}</span>' in client.get(address).text, address


def test_names_of_vertices_are_no_numbers(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    graph, _ = build_graph([0, 1], [1, 2], [5, 7], labels=[10_001, 20_002, 30_003], directed=True)
    for options in (
        {"result": "near", "nearest": 3}, {"result": "measures", "nearest": 1}, {"result": "betweenness", "of": "arcs"},
    ):  # fmt: skip
        job, _ = give(service, bench, owner, bench.tabled(graph, **options))
        shown = [cell for row in cells(client, f"/jobs/{job}/table") for cell in row]
        assert {"10001", "20002", "30003"} <= set(shown), options
        assert not {"10,001", "20,002", "30,003"} & set(shown), options
