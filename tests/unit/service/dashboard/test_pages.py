"""The page without a browser: who is let in, what is shown, and that nothing of a file becomes markup."""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.api.fault import Fault, Refused
from service.app import create_app
from service.auth.callers import Caller
from service.auth.sessions import COOKIE, Sessions
from service.dashboard import forms, page_data, pages, phases, render
from service.dashboard.charts import HEIGHT, WIDTH, counted, histogram
from service.dashboard.options import read_options
from service.dashboard.render import environment
from service.dashboard.visiting import Visitor
from service.settings import Settings
from service.state import Service
from storage.geography.coordinates import Coordinates
from storage.graph.graph import build_graph
from storage.jobs.store import JobStore, Progress
from tests.property.test_openapi import here
from tests.unit.service.support import Bench, InlinePool, small_graph

EVIL = '<script>alert("1")</script>&\'`{{1234*4321}}'
OURS = {"sec-fetch-site": "same-origin"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture
def service(client: TestClient) -> Service:
    found: Service = client.app.state.service  # type: ignore[attr-defined]
    found.planner.run = found.worker.run = here  # type: ignore[method-assign]
    return found


class Tags(HTMLParser):
    """The tags of a page, each with its attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def log_in(
    client: TestClient, service: Service, name: str = "ann", scopes: tuple[str, ...] = ("read", "submit")
) -> str:
    """Log the client in with a new key; the key's id."""
    record, key = service.keys.create(name, scopes)
    answer = client.post("/login", data={"key": key}, headers=OURS, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    return record.id


def own(service: Service, bench: Bench, owner: str, names: bool = True, title: str | None = None) -> tuple[str, str]:
    """A solved job of an owner; its id and its graph's."""
    return give(service, bench, owner, bench.solved(small_graph(names), "int32")[0], title)


def give(service: Service, bench: Bench, owner: str, job_id: str, title: str | None = None) -> tuple[str, str]:
    """Make a job and its graph those of an owner; returns their ids."""
    graph_id = bench.jobs.job(job_id).graph
    service.add_graph(bench.jobs.graph(graph_id), Caller(owner, frozenset({"submit"})))
    with service.jobs.database.transaction("durable") as connection:
        connection.exec_driver_sql("UPDATE jobs SET owner = ?, name = ? WHERE id = ?", (owner, title, job_id))
    return job_id, graph_id


def test_who_has_not_logged_in_is_led_there_and_back(client: TestClient, service: Service):
    answer = client.get("/jobs/x?source=a%26b", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fjobs%2Fx%3Fsource%3Da%2526b")
    _, key = service.keys.create("ann", ("read",))
    form = {"key": key, "next": "/jobs/x?source=a%26b"}
    answer = client.post("/login", data=form, headers=OURS, follow_redirects=False)
    assert answer.headers["location"] == "/jobs/x?source=a%26b"
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example", "evil", "/\r\nSet-Cookie: a=b"):
        answer = client.post("/login", data={"key": key, "next": elsewhere}, headers=OURS, follow_redirects=False)
        assert answer.headers["location"] == "/"


def test_the_cookie_is_no_key_and_no_script_reads_it(client: TestClient, service: Service):
    _, key = service.keys.create("ann", ("read",))
    answer = client.post("/login", data={"key": key}, headers=OURS, follow_redirects=False)
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/", "max-age=43200"))
    assert "secure" not in cookie  # plain HTTP on the loopback
    assert key.lower() not in cookie
    over_tls = TestClient(client.app, base_url="https://testserver")
    answer = over_tls.post("/login", data={"key": key}, headers=OURS, follow_redirects=False)
    assert "secure" in answer.headers["set-cookie"].lower()
    behind = {**OURS, "origin": "https://testserver"}  # a proxy that ended TLS, of which nobody has told
    answer = client.post("/login", data={"key": key}, headers=behind, follow_redirects=False)
    assert "secure" in answer.headers["set-cookie"].lower()


def test_a_wrong_key_is_said_to_be_one(client: TestClient):
    for key in ("", "apsp_x", "apsp_aaaaaaaa_" + "a" * 43, "é", "\0"):
        answer = client.post("/login", data={"key": key}, headers=OURS)
        assert answer.status_code == 403
        assert "no valid key" in answer.text
        assert COOKIE not in client.cookies


def test_forms_that_anybody_may_send_are_short(client: TestClient):
    for content in (b"key=" + b"a" * 16_384, iter([b"key=", b"a" * 16_384])):
        assert client.post("/login", content=content, headers=OURS | FORM).status_code == 413
    assert client.post("/login", content=b"key=" + b"a" * 16_000, headers=OURS | FORM).status_code == 403
    answer = client.post("/login", content="&".join(["a="] * 65), headers=OURS | FORM)
    assert answer.status_code == 422
    assert "at most 64 fields" in answer.text


def test_forms_are_taken_apart_beside_the_event_loop(
    client: TestClient, service: Service, bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    _, graph_id = own(service, bench, log_in(client, service))
    seen = []

    def beside(work):
        def checked(*arguments, **options):
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            seen.append(work.__name__)
            return work(*arguments, **options)

        return checked

    monkeypatch.setattr("service.dashboard.forms.parse_qsl", beside(forms.parse_qsl))
    monkeypatch.setattr("service.dashboard.forms.read_options", beside(forms.read_options))
    assert client.post(f"/graphs/{graph_id}/solve", data={"cutoff": "x"}, headers=OURS).status_code == 422
    assert seen == ["parse_qsl", "read_options"]


def test_a_session_opens_the_api_and_ends_with_its_key_its_time_and_its_holder(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("service.auth.sessions.REMEMBERED_SECONDS", 0.0)
    key_id = log_in(client, service)
    assert client.get("/v1/jobs").status_code == 200
    assert client.get("/").status_code == 200
    token = client.cookies[COOKIE]
    assert client.post("/logout", headers=OURS, follow_redirects=False).status_code == 303
    client.cookies.set(COOKIE, token)
    assert client.get("/v1/jobs").status_code == 401
    client.cookies.clear()
    key_id = log_in(client, service, "again")
    service.keys.revoke(key_id)
    assert client.get("/v1/jobs").status_code == 401
    client.cookies.clear()
    monkeypatch.setattr("service.auth.sessions.SESSION_SECONDS", -1.0)
    log_in(client, service, "late")
    assert client.get("/v1/jobs").status_code == 401


@pytest.mark.parametrize(
    "text", ["", "x", "=", "apsp_session", "apsp_session=", 'apsp_session="', "a=b; apsp_session=é"]
)
def test_cookies_that_are_none(client: TestClient, text: str):
    assert client.get("/v1/jobs", headers={"cookie": text.encode()}).status_code == 401


@pytest.mark.parametrize("odd", ["a b=c", "x[1]=2", '{"a": 1}=b', "lonely", 'q="', "=", "ü=1", "a@b=1", "HttpOnly"])
def test_cookies_of_others_do_not_hide_ours(client: TestClient, service: Service, odd: str):
    log_in(client, service)
    ours = f"{COOKIE}={client.cookies[COOKIE]}"
    client.cookies.clear()
    for cookies in (f"{odd}; {ours}", f"{ours}; {odd}", f"{odd};{ours};{odd}", f"{odd}; a{ours}; {ours}"):
        assert client.get("/v1/jobs", headers={"cookie": cookies.encode()}).status_code == 200
    assert client.get("/v1/jobs", headers={"cookie": f"{odd}; a{ours}".encode()}).status_code == 401


def test_changes_by_cookie_come_from_our_own_pages(client: TestClient, service: Service, bench: Bench):
    job_id, _ = own(service, bench, log_in(client, service))
    elsewhere = (
        {}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "none"},
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://testserver:81"},
        {"origin": "http://["},
        {"origin": "http://testserver", "sec-fetch-site": "cross-site"},
    )  # fmt: skip
    for headers in elsewhere:
        for method, path in (("DELETE", f"/v1/jobs/{job_id}"), ("POST", f"/jobs/{job_id}/delete"), ("POST", "/logout")):
            answer = client.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (headers, path)
    assert client.get(f"/v1/jobs/{job_id}").status_code == 200
    assert client.delete(f"/v1/jobs/{job_id}", headers={"origin": "http://testserver"}).status_code == 204


def test_a_key_in_the_header_needs_no_origin(client: TestClient, service: Service, bench: Bench):
    record, key = service.keys.create("ann", ("read", "submit"))
    job_id, _ = own(service, bench, record.id)
    headers = {"authorization": f"Bearer {key}", "sec-fetch-site": "cross-site"}
    assert client.delete(f"/v1/jobs/{job_id}", headers=headers).status_code == 204


def test_without_keys_other_sites_change_nothing_either(tmp_path: Path):
    for allowed, status in (("", 403), ("https://a.example", 404), ("*", 404)):
        app = create_app(Settings(data_dir=tmp_path / "open", auth=False, host="testserver", cors_origins=allowed))
        with TestClient(app) as client:
            headers = {"origin": "https://a.example", "sec-fetch-site": "cross-site"}
            assert client.post("/v1/jobs/x/cancel", headers=headers).status_code == status
            assert client.post("/v1/jobs/x/cancel").status_code == 404
            assert client.get("/").status_code == 200
        app.state.service.jobs.close()


def test_a_printed_link_lets_in_once_and_not_for_long(client: TestClient, service: Service, monkeypatch):
    assert service.visitors.ticket() is None, "there is no key yet"
    service.keys.create("reader", ("read",))
    assert service.visitors.ticket() is None, "no key may do everything"
    record, _ = service.keys.create("first", ("admin",))
    ticket = service.visitors.ticket()
    answer = client.post("/login", data={"ticket": ticket}, headers=OURS, follow_redirects=False)
    assert answer.status_code == 303
    assert client.get("/").status_code == 200
    assert service.visitors._known[client.cookies[COOKIE]][0].id == record.id
    assert client.post("/login", data={"ticket": ticket}, headers=OURS).status_code == 403
    monkeypatch.setattr("service.auth.sessions.TICKET_SECONDS", -1.0)
    assert client.post("/login", data={"ticket": service.visitors.ticket()}, headers=OURS).status_code == 403


def test_sessions_outlive_the_process(settings: Settings, bench: Bench):
    visitors = Sessions(key_store := _keys(bench.jobs))
    _, key = key_store.create("ann", ("read",))
    token = visitors.enter(key)
    assert token is not None
    assert Sessions(key_store)._sessions.find(token) is not None
    with bench.jobs.database.transaction("read") as connection:
        kept = connection.exec_driver_sql("SELECT * FROM sessions").all()
    assert token not in str(kept)


def _keys(jobs: JobStore):
    from storage.jobs.keys import KeyStore

    return KeyStore(jobs.database)


def test_what_belongs_to_another_key_is_not_there(client: TestClient, service: Service, bench: Bench):
    ann = log_in(client, service)
    job_id, graph_id = own(service, bench, ann, title="anns own")
    assert "anns own" in client.get("/").text
    assert client.get(f"/jobs/{job_id}").status_code == 200
    client.cookies.clear()
    log_in(client, service, "bob")
    assert "anns own" not in client.get("/").text
    for method, path in (
        ("GET", f"/jobs/{job_id}"), ("GET", f"/graphs/{graph_id}"), ("POST", f"/jobs/{job_id}/cancel"),
        ("POST", f"/jobs/{job_id}/delete"), ("POST", f"/jobs/{job_id}/resume"), ("POST", f"/graphs/{graph_id}/solve"),
        ("GET", f"/jobs/{job_id}?source=a&target=d"),
    ):  # fmt: skip
        answer = client.request(method, path, headers=OURS)
        assert answer.status_code == 404, path
        assert "anns own" not in answer.text
    assert bench.jobs.job(job_id).state == "successful"


def test_a_key_that_only_reads_is_offered_no_change(client: TestClient, service: Service, bench: Bench):
    ann = log_in(client, service, scopes=("read",))
    job_id, graph_id = own(service, bench, ann)
    for path in ("/", f"/jobs/{job_id}", f"/graphs/{graph_id}"):
        actions = {a.get("action") or a.get("formaction") for t, a in Tags(client.get(path).text).tags}
        assert not {a for a in actions if a and a.endswith(("delete", "cancel", "solve"))}, path
    answer = client.post(f"/jobs/{job_id}/delete", headers=OURS)
    assert answer.status_code == 403
    assert "submit" in answer.text


def test_every_page_has_a_policy_without_exceptions_and_keeps_it(client: TestClient, service: Service, bench: Bench):
    job_id, graph_id = own(service, bench, log_in(client, service))
    for path in ("/", "/login", f"/jobs/{job_id}", f"/graphs/{graph_id}?plan=1", "/jobs/none", "/static/none"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert not re.search(r"unsafe|data:|\*|http", policy)
        assert answer.headers["cache-control"] == "no-store"
        for tag, attributes in Tags(answer.text).tags:
            assert "style" not in attributes
            assert tag != "style"
            assert not [name for name in attributes if name.startswith("on")]
            if tag == "script":
                assert str(attributes["src"]).startswith("/static/")
            for name in ("src", "href", "action", "formaction"):
                assert re.match(r"[/#]", str(attributes.get(name, "/"))), attributes


def test_nothing_of_a_file_is_markup(client: TestClient, service: Service, bench: Bench):
    ann = log_in(client, service, EVIL)
    graph, _ = build_graph([0, 1], [1, 0], [1, 2], labels=[EVIL, "b"], directed=True)
    job_id, _ = bench.solved(graph, "int32")
    graph_id = bench.jobs.job(job_id).graph
    facts = {"weights": {"column": EVIL}, "first_vertex": EVIL, "last_vertex": EVIL, "directed": True}
    fault = '{"code": "internal", "message": ' + _json(EVIL) + ', "details": {}}'
    service.add_graph(bench.jobs.graph(graph_id), Caller(ann, frozenset({"submit"})))
    with service.jobs.database.transaction("durable") as connection:
        run = connection.exec_driver_sql
        run("UPDATE graphs SET name = ?, facts = ?", (EVIL, _json(facts)))
        run("UPDATE graph_owners SET name = ?", (EVIL,))
        run("UPDATE jobs SET owner = ?, name = ?, error = ?", (ann, EVIL, fault))
        run("UPDATE jobs SET summary = ?", (_json({"center": EVIL, "diameter_pair": [EVIL, EVIL]}),))
    evil, filled = quote(EVIL), urlencode({"sources": EVIL, "name": EVIL})
    (service.settings.store(job_id).parent / "log.txt").write_text(EVIL)
    pages = {"/": 3, f"/graphs/{graph_id}?{filled}": 3, f"/login?next=/{evil}": 0, "/jobs/<script>alert(1)": 1}
    pages[f"/jobs/{job_id}?source={evil}&target=b"] = 5
    for path, shown in pages.items():
        answer = Tags(client.get(path).text)
        assert len([tag for tag, _ in answer.tags if tag == "script"]) == 1, path
        assert answer.text.count("<script>alert") >= shown, path
        assert "5332114" not in answer.text


def _json(value: object) -> str:
    import json

    return json.dumps(value)


def test_a_graph_says_what_was_understood_and_what_it_takes(client: TestClient, service: Service):
    log_in(client, service)
    sent = client.post(
        "/v1/graphs?filename=a.csv&name=mine", content=b"from,to,km\n1,2,3\n2,1,4\n1,1,5\n1,2,9\n", headers=OURS
    )
    graph_id = sent.json()["id"]
    page = Tags(client.get(f"/graphs/{graph_id}?plan=1").text)
    text = " ".join(page.text.split())
    for words in ("mine", "vertices2", "arcs, one way2", "weights in km", "3 to 4", "1 loops", "1 parallel arcs",
                  "time, predicted", "2 × 2 distances"):  # fmt: skip
        assert words in text, words
    answer = client.post(
        f"/graphs/{graph_id}/solve", data={"dtype": "float64", "name": "a job"}, headers=OURS, follow_redirects=False
    )
    job = service.jobs.job(answer.headers["location"].removeprefix("/jobs/"))
    assert (job.name, job.options["dtype"], job.state) == ("a job", "float64", "accepted")
    assert "next" in client.get("/").text
    assert client.post(f"/jobs/{job.id}/cancel", headers=OURS, follow_redirects=False).status_code == 303
    assert service.jobs.job(job.id).state == "dismissed"
    refused = client.post(f"/jobs/{job.id}/resume", headers=OURS)
    assert (refused.status_code, "no checkpoint" in refused.text) == (409, True)
    assert client.post(f"/jobs/{job.id}/delete", headers=OURS, follow_redirects=False).headers["location"] == "/"
    assert client.get(f"/jobs/{job.id}").status_code == 410


def test_what_cannot_be_done_is_said_where_it_was_asked_for(client: TestClient, service: Service):
    log_in(client, service)
    graph_id = client.post("/v1/graphs", content=b"1 2 3\n2 1 -9\n", headers=OURS).json()["id"]
    page = client.get(f"/graphs/{graph_id}?plan=1")
    assert (page.status_code, "negative cycle" in page.text) == (422, True)
    graph_id = client.post("/v1/graphs", content=b"1 2 3\n", headers=OURS).json()["id"]
    for values, words in (
        ({"memory": "4 parrots"}, "no size"), ({"cutoff": "far"}, "No farther than"), ({"dtype": "int8"}, "kept as"),
        ({"sources": "7"}, "7"), ({"priority": "1000"}, "Priority"), ({"max_hops": "0"}, "Most arcs of a path"),
        ({"targets": '"a'}, "targets"), ({"memory": "1"}, "memory"),
    ):  # fmt: skip
        answer = client.post(f"/graphs/{graph_id}/solve", data=values, headers=OURS)
        assert answer.status_code >= 400, values
        assert 'role="alert"' in answer.text
        assert words in Tags(answer.text).text, values
        assert f'value="{next(iter(values.values()))}"'.replace('""a"', '"&#34;a"') in answer.text or "dtype" in values


def test_options_left_alone_are_those_of_the_api():
    asked = read_options("g", {"sources": ' a, "b,c" ', "cutoff": "1.5", "fresh": "true", "nonsense": "1"})
    assert asked.request is not None
    assert asked.request.model_dump(exclude_defaults=True) == {
        "graph": "g", "sources": ["a", "b,c"], "cutoff": 1.5, "fresh": True,
    }  # fmt: skip
    assert read_options("g", {}).request.model_dump(exclude_defaults=True) == {"graph": "g"}
    small = read_options("g", {"cutoff": "1e-400"})
    assert small.request is None
    assert "'1e-400' is so small that float64 would take it for 0: write 0 if that is meant" in small.fault.message


def test_long_lists_of_vertices_are_read_to_their_end():
    names = [str(k) for k in range(30_000)]
    asked = read_options("g", {"sources": ",".join(names), "targets": ", ".join(names)})
    assert asked.request.sources == asked.request.targets == names
    quoted = read_options("g", {"sources": '"' + "a" * 200_000 + '"'})
    assert (quoted.request, quoted.fault.details["field"]) == (None, "sources")
    for name in ("memory", "cutoff", "priority", "name", "device"):
        refused = read_options("g", {name: "1" * 100_001})
        assert (refused.request, refused.fault.details["field"]) == (None, name)
        assert "100,001 characters" in refused.fault.message


def test_jobs_that_are_over_are_found_behind_many_open_ones(client: TestClient, service: Service, bench: Bench):
    owner = log_in(client, service)
    done = [own(service, bench, owner)[0] for _ in range(2)]
    graph_id = bench.jobs.job(done[0]).graph
    for _ in range(100):
        bench.jobs.create(graph_id, {}, {})
    with service.jobs.database.transaction("durable") as connection:
        connection.exec_driver_sql("UPDATE jobs SET owner = ?", (owner,))
    found = page_data.home(Visitor(service, Caller(owner, frozenset({"read"})), None), None)
    assert [job["id"] for job in found["over"]] == done[::-1]
    assert (len(found["waiting"]), found["queued"], found["older"]) == (10, 100, None)
    assert [job["position"] for job in found["waiting"]] == list(range(10))


def test_a_histogram_loses_nothing_on_its_way_to_the_picture():
    assert histogram([], []) is None
    for bins in (1, 2, 71, 72, 73, 128, 200):
        counts = [k % 7 for k in range(bins)]
        counts[0] = 9
        chart = histogram([float(k) for k in range(bins + 1)], counts)
        bars = chart["bars"]
        assert sum(bar["count"] for bar in bars) == sum(counts)
        assert (bars[0]["from"], bars[-1]["to"], len(bars) <= 72) == (0, bins, True)
        assert all(a["to"] == b["from"] for a, b in pairwise(bars))
        assert max(bar["height"] for bar in bars) == HEIGHT
        assert bars[-1]["x"] + bars[-1]["width"] <= WIDTH


def test_files_of_the_page(client: TestClient):
    for name, media_type in (("apsp.css", "text/css"), ("apsp.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        answer = client.get(f"/static/{name}")
        assert answer.headers["content-type"].startswith(media_type)
        again = client.get(f"/static/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304
    for name in ("nothing.js", "..%2Frender.py", "%2e%2e%2frender.py"):
        assert client.get(f"/static/{name}").status_code == 404


def test_the_page_of_a_result(client: TestClient, service: Service, bench: Bench):
    job_id, _ = own(service, bench, log_in(client, service))
    with service.jobs.database.transaction("durable") as connection:
        summary = {
            "pairs": 12, "reached": 9, "mean": 3.5, "diameter": 7, "radius": 4, "center": "b,c", "sources": 4,
            "vertices": 4, "targets": 4, "central_sources": 3, "central_reach": 2,
            "diameter_pair": ["b,c", 'e"f'], "histogram": {"edges": [0, 4, 8], "counts": [6, 3]},
        }  # fmt: skip
        connection.exec_driver_sql("UPDATE jobs SET summary = ?", (_json(summary),))
    page = Tags(client.get(f"/jobs/{job_id}?source=a&target=d").text)
    text = " ".join(page.text.split())
    least = "radius, from b,c, of the 3 sources that reach 2 vertices or more4"
    for words in ("75 %", "mean distance3.5", "b,c → e\"f7", least, "3 over 2 arcs", "a0 b,c+11 d+23"):  # fmt: skip
        assert words in text, words
    bars = [attributes for tag, attributes in page.tags if tag == "rect" and "height" in attributes]
    assert len([bar for bar in bars if bar["height"] == "100.0"]) == 1, "3 of 6 is half as high"
    # code as it has to be typed: names with quotes and commas too
    assert """result.distance("b,c", "e\\"f")""" in page.text
    assert """--data-urlencode source=b,c --data-urlencode target='e"f'""" in page.text
    assert """--data-urlencode sources='"b,c"'""" in page.text
    assert 'client = apsp.Client("http://testserver", key="apsp_…")\n' in page.text
    assert f'result = client.result("{job_id}")\n' in page.text
    assert 'distance \\\n  -H "Authorization: Bearer $APSP_KEY" \\\n  --data-urlencode source=b,c' in page.text
    part = Tags(client.get(f"/jobs/{job_id}/eccentricities").text)
    text = " ".join(part.text.split())
    assert "all 4 sources" in text
    assert "Most central" in text
    none = Tags(client.get(f"/jobs/{job_id}?source=a&target=nobody").text)
    assert "nobody" in none.text
    no_path = Tags(client.get(f"/jobs/{job_id}?source=a&target=e%22f").text)
    assert 'There is no path from a to e"f' in " ".join(no_path.text.split())


def test_a_result_with_coordinates_has_a_map_and_a_small_one_without_a_network(
    client: TestClient, service: Service, bench: Bench
):
    owner = log_in(client, service)
    small, _ = own(service, bench, owner)
    ring = np.arange(1001)
    large, _ = build_graph(ring, np.roll(ring, 1), np.ones(1001), n=1001, directed=True)
    plain, _ = give(service, bench, owner, bench.solved(large, "uint16")[0])
    spots = Coordinates(np.array([0.0, 1, 2, 3]), np.zeros(4), False)
    placed = replace(small_graph(), coordinates=spots)
    there, _ = give(service, bench, owner, bench.solved(placed, "int32")[0])

    def maps(address: str) -> list[str | None]:
        tags = Tags(client.get(address).text).tags
        assert len([1 for _, attributes in tags if attributes.get("id") == "query"]) == 1, "one form, with or without"
        return [attributes["data-map"] for _, attributes in tags if "data-map" in attributes]

    assert maps(f"/jobs/{plain}") == []
    assert maps(f"/jobs/{there}") == [there]
    assert maps(f"/jobs/{small}") == [small]
    said = " ".join(Tags(client.get(f"/jobs/{small}").text).text.split())
    assert "The network" in said
    assert "directions mean nothing" in said
    assert "directions mean nothing" not in client.get(f"/jobs/{there}").text
    # a source alone stays in its field, so that a link to a map may have one without a target
    fields = {
        attributes.get("id"): attributes for _, attributes in Tags(client.get(f"/jobs/{there}?source=30").text).tags
    }
    assert (fields["source"]["value"], fields["target"]["value"]) == ("30", "")
    assert "data-first" not in fields["query"]
    shutil.rmtree(service.settings.store(there))
    assert maps(f"/jobs/{there}") == [], "a page of a lost result is still a page"


def test_the_page_of_a_prepared_result(client: TestClient, service: Service, bench: Bench):
    service.answering.pool = InlinePool()  # type: ignore[assignment]
    owner = log_in(client, service)
    job_id, _ = give(service, bench, owner, bench.prepared(small_graph(), "int32")[0])
    shown = Tags(client.get(f"/jobs/{job_id}?source=40&target=30").text).text
    assert "A prepared graph" in shown
    assert "mean distance" not in shown
    assert "4 over 3 arcs" in " ".join(shown.split())
    far = " ".join(Tags(client.get(f"/jobs/{job_id}/eccentricities").text).text.split())
    assert "6" in far
    assert client.get(f"/v1/jobs/{job_id}/sample").json()["distances"][3] == [1, 2, 4, 0]
    assert "Count all pairs" in shown
    part = " ".join(Tags(client.get(f"/jobs/{job_id}/counted").text).text.split())
    assert "mean distance" in part
    assert "How far apart" in part
    again = " ".join(Tags(client.get(f"/jobs/{job_id}").text).text.split())
    assert "A prepared graph" in again
    assert "mean distance" in again
    assert "Count all pairs" not in again


def test_pairs_that_are_too_many_to_count_are_told_so(client: TestClient, service: Service, bench: Bench, monkeypatch):
    service.answering.pool = InlinePool()  # type: ignore[assignment]
    monkeypatch.setattr("engine.api.from_tables.summary.summary_seconds", lambda matrix: 1e6)
    job_id, _ = give(service, bench, log_in(client, service), bench.prepared(small_graph(), "int32")[0])
    found = client.get(f"/jobs/{job_id}/counted")
    assert (found.status_code, "1,000,000 processor seconds" in found.text) == (200, True)
    assert "Count all pairs" in client.get(f"/jobs/{job_id}").text


def test_a_refusal_offers_a_prepared_graph_with_its_figures(client: TestClient, service: Service, monkeypatch):
    log_in(client, service)
    graph = client.post("/v1/graphs", content=b"1 2 3\n", headers=OURS).json()["id"]
    details = {"resource": "disk", "needed": 10, "available": 5,
               "prepared": {"seconds": 2.0, "memory": 3 << 20, "disk": 5 << 20}}  # fmt: skip

    async def refuse(*_args: object, **_options: object) -> None:
        raise Refused(Fault("does-not-fit", "too large", details))

    monkeypatch.setattr(service.planner, "run", refuse)
    shown = " ".join(Tags(client.get(f"/graphs/{graph}?plan=1").text).text.split())
    assert "A prepared graph answers every distance without a matrix: 5.00 MiB of disk, 3.00 MiB of memory" in shown


def test_the_page_names_its_fields_and_not_options_of_the_command_line():
    spoken, field = environment().filters["spoken"], environment().filters["field"]
    assert (field("dtype"), field("max_hops"), field("as_yet_unknown")) == (
        "Numbers are kept as", "Most arcs of a path", "As yet unknown",
    )  # fmt: skip
    assert spoken("say --weight 4, or --undirected") == "say “Column of the weights” 4, or “Arcs: both ways”"
    assert spoken("a--weight --weights --unweighted2") == "a--weight --weights --unweighted2"
    assert (
        spoken("the compact form (--compact) is slower (--memory)") == "the compact form is slower (“Memory at most”)"
    )
    assert spoken("dijkstra fits with --memory 341MiB") == "Dijkstra fits with “Memory at most” 341MiB"
    assert spoken("not partitioned: next is bellman-ford") == "not partitioned: next is Bellman–Ford, in batches"
    absent = (
        "needs cupy, which is not installed: install apsp[cuda] (or the wheel that fits), or use --device cpu; it is 3"
    )
    assert spoken(absent) == "needs cupy, which is not installed; it is 3"
    script = (Path(pages.__file__).parent / "static" / "upload.js").read_text()
    for option, field in render._FIELDS.items():
        assert f'"{option}": "{field}"' in script
        words = field.partition(":")[0]
        assert words in (Path(pages.__file__).parent / "templates" / "drop.html").read_text()


def test_a_phase_that_the_plan_does_not_know_stands_where_the_job_is(bench: Bench):
    plan = {"phases": [{"name": "create", "seconds": 1.0}, {"name": "sweep", "seconds": 2.0},
                       {"name": "write", "seconds": 1.0}, {"name": "seal", "seconds": 1.0}]}  # fmt: skip
    record = bench.jobs.create(bench.add_graph(small_graph()), {}, plan)
    known = ["making space", "searching", "checking and sealing"]
    for phase, fraction, names, states in (
        ("loading", 0.0, ["reading the graph", *known], "now ahead ahead ahead"),
        ("search", 0.4, known, "past now ahead"),
        ("odd", 0.2, [known[0], "odd", *known[1:]], "past now ahead ahead"),
        ("verify", 1.0, [*known, "checking"], "past past past now"),
    ):
        found = phases.phase_views(replace(record, state="running", phase=phase, progress=Progress(fraction)))
        assert [item["name"] for item in found] == names
        assert [item["state"] for item in found] == states.split()


def test_bins_of_eccentricities():
    assert counted([3, 3], 1) == ([3, 3], [2])
    edges, counts = counted([0.0, 1.0, 2.0, 3.0, 4.0], 4)
    assert (edges, counts) == ([0, 1, 2, 3, 4], [1, 1, 1, 2])


@pytest.mark.parametrize("bins", [1, 2, 3, 4, 71, 72, 144])
def test_the_tick_in_the_middle_of_a_histogram_is_the_number_there(bins: int):
    """With an odd number of bars the middle lies inside one of them."""
    edges = [3.25 + 3.25 * k / bins for k in range(bins + 1)]
    chart = histogram(edges, [1] * bins)
    assert chart is not None
    assert (chart["first"], chart["last"]) == (edges[0], edges[-1])
    assert chart["middle"] == pytest.approx(4.875)


def test_a_dead_end_is_not_called_most_central(client: TestClient, service: Service, bench: Bench):
    """Vertices 0 to 10 are a ring; 11 reaches only 12, with a small eccentricity."""
    tails, heads = [*range(11), 11], [*range(1, 11), 0, 12]
    graph = build_graph(tails, heads, [5] * 11 + [1], n=13, directed=True)[0]
    job_id, _ = bench.solved(graph, "int32")
    ann = log_in(client, service)
    with service.jobs.database.transaction("durable") as connection:
        connection.exec_driver_sql("UPDATE jobs SET owner = ? WHERE id = ?", (ann, job_id))
    text = " ".join(Tags(client.get(f"/jobs/{job_id}/eccentricities").text).text.split())
    assert "Most central of 11 that reach nine tenths of what any reaches0 501 50" in text
    assert "1 source reaches no other vertex." in text


def test_progress_says_which_phase_is_on(client: TestClient, service: Service, bench: Bench):
    ann = log_in(client, service)
    job_id, _ = own(service, bench, ann)
    plan = {
        "algorithm": "dijkstra", "dtype": "int32", "device": "cpu", "shape": [4, 4], "memory": 1,
        "disk": 1, "seconds": 3,
        "device_memory": 0, "reason": "it is fastest", "dtype_reason": "it is exact", "device_reason": "",
        "phases": [{"name": "ingest", "seconds": 1}, {"name": "search", "seconds": 2}], "candidates": [],
    }  # fmt: skip
    progress = {"fraction": 0.5, "rate": 2500.0, "unit": "rows", "eta": 75.0}
    with service.jobs.database.transaction("durable") as connection:
        run = connection.exec_driver_sql
        run(
            "UPDATE jobs SET state = 'running', phase = 'search', plan = ?, progress = ?",
            (_json(plan), _json(progress)),
        )
        run("UPDATE jobs SET seconds = NULL, finished = NULL")
    page = client.get(f"/jobs/{job_id}").text
    text = " ".join(Tags(page).text.split())
    for words in ("50 % searching", "2,500 rows a second", "about 1 min 15 s left", "It is fastest.", "Cancel"):
        assert words in text, words
    assert re.findall(r'<li class="(past|now|ahead)"', page) == ["past", "now"]
    assert "50 %" in client.get("/").text


def test_a_refusal_shows_the_budgets_that_would_do(client: TestClient, service: Service, bench: Bench):
    """On the graph's page before the job is submitted, and on the job's page if it stopped fitting."""
    owner = log_in(client, service)
    graph_id = bench.add_graph(small_graph())
    service.add_graph(bench.jobs.graph(graph_id), Caller(owner, frozenset({"submit"})))
    page = client.get(f"/graphs/{graph_id}?plan=1&memory=1MiB").text
    assert '<ul class="remedies">' in page
    assert re.search(r"Memory at most <strong>[\d.]+ [MG]iB</strong> \(now 1.00 MiB\): [A-Za-z–, -]+, about ", page)
    assert "may be used" in page
    assert "it fits with" not in page  # the list says so
    job_id = bench.solved(small_graph(), "int32")[0]
    asked = {"resource": "device memory", "needed": 2**30, "available": 2**20, "option": None}
    remedy = {"budgets": [asked], "algorithm": EVIL, "device": "cuda", "tier": "store", "seconds": 3.0}
    fault = {"code": "does-not-fit", "message": "no", "details": {"remedies": [remedy]}}
    with service.jobs.database.transaction("durable") as connection:
        connection.exec_driver_sql("UPDATE jobs SET owner = ?, error = ?", (owner, _json(fault)))
    page = client.get(f"/jobs/{job_id}").text
    assert "Device memory <strong>1.00 GiB</strong> (now 1.00 MiB): &lt;script&gt;" in page
