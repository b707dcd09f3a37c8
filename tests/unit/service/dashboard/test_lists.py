"""Lists of jobs and graphs, the example, names of vertices, and the page where there is nothing."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from service.auth.callers import Caller
from service.jobs.folders import discard
from service.state import Service
from storage.jobs.store import Submission
from tests.unit.service.dashboard.test_pages import EVIL, OURS, Tags, log_in, own, service, settings
from tests.unit.service.support import Bench, InlinePool, small_graph

__all__ = ["service", "settings"]  # fixtures
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def names_on(page: str) -> list[str]:
    return re.findall(r'class="name" href="[^"]*">([^<]*)<', page)


def wishes(bench: Bench, owner: str, count: int) -> list[str]:
    """Waiting jobs of an owner."""
    graph = bench.add_graph(small_graph())
    asked = (Submission(graph, {}, {}, f"wish {k}", owner=owner) for k in range(count))
    return [bench.jobs.submit(wish)[0].id for wish in asked]


def test_jobs_are_found(client: TestClient, service: Service, bench: Bench):
    ann = log_in(client, service)
    own(service, bench, ann, title=EVIL)
    wishes(bench, ann, 3)
    wishes(bench, "somebody else", 1)
    assert len(names_on(client.get("/jobs").text)) == 4
    assert names_on(client.get("/jobs?q=WISH 1").text) == ["wish 1"]
    assert names_on(client.get("/jobs?state=accepted").text) == ["wish 0", "wish 1", "wish 2"]
    found = client.get(f"/jobs?{urlencode({'q': EVIL})}")
    assert "<script>alert" not in found.text
    assert len(names_on(found.text)) == 1
    assert "No job matches" in client.get("/jobs?q=nothing").text
    assert client.get("/jobs?state=odd").status_code == 422


def test_a_long_list_has_pages(client: TestClient, service: Service, bench: Bench):
    ann = log_in(client, service)
    graph = bench.add_graph(small_graph())
    for k in range(52):
        bench.jobs.cancel(bench.jobs.submit(Submission(graph, {}, {}, f"wish {k}", owner=ann))[0].id)
    first = client.get("/jobs?q=wish")
    assert len(names_on(first.text)) == 50
    older = re.search(r'href="(/jobs\?[^"]*)" rel="next"', first.text)
    assert older
    assert names_on(client.get(older[1].replace("&amp;", "&")).text) == ["wish 1", "wish 0"]


def test_the_queue_is_emptied_of_ones_own_jobs(client: TestClient, service: Service, bench: Bench):
    ann = log_in(client, service)
    mine, other = wishes(bench, ann, 3), wishes(bench, "somebody else", 1)
    assert client.post("/jobs/cancel", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.post("/jobs/cancel", headers=OURS, follow_redirects=False).status_code == 303
    assert {bench.jobs.job(i).state for i in mine} == {"dismissed"}
    assert bench.jobs.job(other[0]).state == "accepted"
    client.cookies.clear()
    log_in(client, service, "reader", ("read",))
    assert client.post("/jobs/cancel", headers=OURS).status_code == 403


def test_graphs_are_listed_and_deleted(client: TestClient, service: Service, bench: Bench):
    ann = log_in(client, service)
    _, graph = own(service, bench, ann)
    assert names_on(client.get("/graphs").text) == ["bench"]
    answer = client.post(f"/graphs/{graph}/delete", headers=OURS, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/graphs")
    assert "There are no graphs yet" in client.get("/graphs").text
    wishes(bench, ann, 1)
    waits = bench.add_graph(small_graph())
    service.add_graph(bench.jobs.graph(waits), Caller(ann, frozenset({"submit"})))
    refused = client.post(f"/graphs/{waits}/delete", headers=OURS)
    assert refused.status_code == 409
    assert "open jobs" in refused.text


def test_a_graph_that_comes_again_takes_its_new_name(client: TestClient, service: Service):
    log_in(client, service)
    for name in ("first", "second", None):
        asked = {} if name is None else {"name": name}
        answer = client.post("/v1/graphs", params=asked, content=b"1 2 3\n", headers=OURS)
        assert answer.json()["name"] == (name or "second"), "without a name it keeps the one it has"
    assert names_on(client.get("/graphs").text) == ["second"]


def test_an_empty_service_offers_an_example(client: TestClient, service: Service):
    log_in(client, service)
    empty = client.get("/").text
    assert 'action="/examples/helsinki"' in empty
    assert "OpenStreetMap" in empty, "its origin is named"
    answer = client.post("/examples/helsinki", headers=OURS)
    text = " ".join(Tags(answer.text).text.split())
    assert answer.url.path.startswith("/graphs/")
    for words in ("Helsinki", "vertices973", "arcs, one way1,624", "length_m"):
        assert words in text, words
    shipped = Path("service/dashboard/examples/helsinki.csv").read_bytes()
    assert shipped == Path("examples/helsinki_drive.csv").read_bytes()


def test_names_are_offered_for_the_side_that_was_solved(client: TestClient, service: Service, bench: Bench):
    ann = log_in(client, service)
    job_id, _ = own(service, bench, ann)
    asked = f"/jobs/{job_id}/names"
    assert client.get(f"{asked}?side=source&like=b").json() == ["b,c"]
    assert client.get(f"{asked}?side=target&like=F").json() == ['e"f']
    assert client.get(f"{asked}?side=odd&like=F").status_code == 422
    page = Tags(client.get(f"/jobs/{job_id}?source=b&target=d").text)
    assert "b,c → d" in page.text, "what was meant is a link"
    client.cookies.clear()
    log_in(client, service, "bob")
    assert client.get(f"{asked}?side=source&like=b").status_code == 404


@pytest.mark.parametrize("names", [False, True])
def test_names_are_offered_in_whatever_order_they_were_solved(
    client: TestClient, service: Service, bench: Bench, names: bool
):
    log_in(client, service, "root", ("admin",))
    graph = small_graph(names)
    job_id, _ = bench.solved(graph, "int32", sources=[3, 0, 2], targets=[2, 1, 3, 0])
    for side, solved in (("source", [3, 0, 2]), ("target", [2, 1, 3, 0])):
        for vertex in solved:
            name = str(graph.labels[vertex])
            offered = client.get(f"/jobs/{job_id}/names", params={"side": side, "like": name[:1]}).json()
            assert offered == [name], side
    page = Tags(client.get(f"/jobs/{job_id}?source=40x&target=30").text if not names else "")
    assert names or "40 → 30" in page.text


@pytest.mark.parametrize("part", ["table", "eccentricities"])
def test_the_page_of_a_result_that_is_removed_while_it_is_read_is_gone(
    client: TestClient, service: Service, bench: Bench, monkeypatch: pytest.MonkeyPatch, part: str
):
    log_in(client, service, "root", ("admin",))
    service.answering.pool = InlinePool()  # type: ignore[assignment]
    kind = {"result": "near", "nearest": 3}
    job = bench.tabled(small_graph(), **kind) if part == "table" else bench.prepared(small_graph(), "int32")[0]
    assert client.get(f"/jobs/{job}/{part}").status_code == 200
    result = service.result

    def late(job_id: str, caller: Caller, **more: str) -> object:
        found = result(job_id, caller, **more)
        service.stop_workers()
        service.jobs.delete(job_id)
        discard(bench.settings, job_id)
        return found

    monkeypatch.setattr(service, "result", late)
    assert client.get(f"/jobs/{job}/{part}").status_code == 410


def test_browsers_get_a_page_where_there_is_nothing_and_programs_a_document(client: TestClient, service: Service):
    page = client.get("/nothing/<b>", headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is nothing at /nothing/&lt;b&gt;" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    for path, headers in (("/nothing", {}), ("/v1/nothing", BROWSER), ("/health/nothing", BROWSER)):
        answer = client.get(path, headers=headers)
        assert answer.status_code in (401, 404)
        assert answer.headers["content-type"] == "application/problem+json", path
