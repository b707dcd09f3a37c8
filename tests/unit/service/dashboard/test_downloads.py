"""Tables that the page of a result offers: which ones, and that every link gives the table that it names."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import urlencode

import polars as pl
import pytest
from fastapi.testclient import TestClient

from service.dashboard.downloads import downloads
from service.state import Service
from storage.graph.graph import build_graph
from tests.unit.service.dashboard import test_pages
from tests.unit.service.dashboard.test_pages import give, log_in, own
from tests.unit.service.support import Bench, small_graph

settings, service = test_pages.settings, test_pages.service

READ = {"csv": pl.read_csv, "parquet": pl.read_parquet, "arrow": pl.read_ipc_stream}


@pytest.mark.parametrize(
    ("options", "shape", "row", "whole"),
    [
        ({}, (4, 5), True, True), ({}, (5, 5), True, False), ({}, (1, 21), False, False), ({}, (0, 0), False, False),
        ({"also": ["toll"]}, (2, 5), True, True), ({"also": ["toll"]}, (3, 5), True, False),
        ({"also": ["toll", "metres"]}, (1, 7), False, False), ({"result": "prepared"}, (2, 2), True, False),
    ],
)  # fmt: skip
def test_a_table_that_fits_one_answer_is_offered(
    bench: Bench, options: dict[str, Any], shape: tuple[int, int], row: bool, whole: bool
):
    record = bench.jobs.job(bench.solved(small_graph(), "int32")[0])
    found = downloads(replace(record, options=options, plan={"shape": shape}), 20)
    assert found == {"row": row, "all": whole, "most": 20}
    assert downloads(replace(record, plan=None), 20)["row"] is False


def offered(client: TestClient, page: str) -> dict[str, pl.DataFrame]:
    """Follow every link to a table on a page; the tables by address."""
    found = {}
    for address in map(unescape, re.findall(r'href="(/v1/jobs/[^"]*/rows\?[^"]*)"', client.get(page).text)):
        answer = client.get(address)
        assert answer.status_code == 200, answer.text
        found[address] = READ[address.rpartition("format=")[2]](io.BytesIO(answer.content))
    return found


@pytest.fixture
def all_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"row": True, "all": True, "most": 99}
    monkeypatch.setattr("service.dashboard.page_data.downloads", lambda record, most: said)


@pytest.mark.usefixtures("all_fit")
def test_every_link_gives_its_table(client: TestClient, service: Service, bench: Bench):
    """Of names with commas and quotes, too."""
    job, _ = own(service, bench, log_in(client, service))
    found = offered(client, f"/jobs/{job}?source=b%2Cc&target=d")
    asked = [address.partition("?")[2].rpartition("&")[0] for address in found]
    assert asked == ["sources=%22b%2Cc%22"] * 3 + ["all=true"] * 3
    for address, table in found.items():
        assert table.height == (16 if "all=true" in address else 4)
        assert table["source"].unique().len() == (4 if "all=true" in address else 1)
    row = found[next(iter(found))]
    assert dict(zip(row["target"], row["distance"], strict=True)) == {"a": 6, "b,c": 0, "d": 2, 'e"f': None}
    assert len(offered(client, f"/jobs/{job}?source=nobody&target=d")) == 3, "a name that is no vertex has no row"


@pytest.mark.usefixtures("all_fit")
def test_a_link_never_gives_the_row_of_another_vertex(client: TestClient, service: Service, bench: Bench):
    """Lists of vertices drop blanks around names, but not those in quotes: ``a`` and a blank is not ``a``."""
    names = ["a", "a ", "b\nc", "d\re"]
    graph, _ = build_graph([0, 1, 2, 3], [1, 2, 3, 0], [5, 3, 4, 1], labels=names, directed=True)
    job, _ = give(service, bench, log_in(client, service), bench.solved(graph, "int32")[0])
    for name in names:
        page = f"/jobs/{job}?{urlencode({'source': name, 'target': 'a'})}"
        rows = [table for address, table in offered(client, page).items() if "sources=" in address]
        assert len(rows) == 3, name
        assert [table["source"].unique().to_list() for table in rows] == [[name]] * len(rows)
        assert f"<code>{name}</code>" in client.get(page).text


@pytest.mark.usefixtures("all_fit")
def test_tables_of_another_semiring_name_it(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    graph, _ = build_graph([0, 1, 2], [1, 2, 0], [5, 3, 4], labels=[10, 20, 30], directed=True, parallel="greatest")
    job, _ = give(service, bench, owner, bench.valued(graph, "max-min"))
    found = offered(client, f"/jobs/{job}?source=10&target=30")
    assert len(found) == 6
    for table in found.values():
        assert dict(table.select(pl.col("target"), pl.col("value")).tail(3).rows())[10] is not None


def test_a_table_that_is_too_large_is_not_offered(client: TestClient, service: Service, bench: Bench):
    job, _ = own(service, bench, log_in(client, service))
    assert offered(client, f"/jobs/{job}?source=a&target=d") == {}
    assert f"apsp fetch {job}" in client.get(f"/jobs/{job}").text


def test_every_row_is_asked_for_by_name(client: TestClient, service: Service, bench: Bench):
    job, _ = own(service, bench, log_in(client, service))
    base = f"/v1/jobs/{job}/rows"
    assert client.get(f"{base}?all=true").json()["sources"] == ["a", "b,c", "d", 'e"f']
    assert client.get(f"{base}?all=true&targets=a").json()["distances"] == [[0], [6], [4], [1]]
    for query, said in (("", "all=true"), ("?all=false", "all=true"), ("?all=true&sources=a", "name no sources")):
        answer = client.get(base + query)
        assert answer.status_code == 422
        assert said in answer.json()["detail"]
