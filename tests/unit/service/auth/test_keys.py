"""Keys: what they allow, what they hide, and what never shows them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.auth.callers import ANYBODY, Caller
from service.auth.keys import REMEMBERED_SECONDS, Keyring, first_key
from service.cli.main import run
from service.http.cursors import encode
from service.http.gate import needed_scope
from service.http.limits import Rates
from service.logs import redacted
from service.settings import Settings
from service.state import Service
from storage.errors import DatabaseFailed, InvalidRequest, NotFound, StorageFailed
from storage.jobs.keys import KeyRecord, KeyStore
from storage.jobs.store import JobStore, Submission
from tests.unit.service.support import Bench, small_graph


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", max_requests_per_second=50, max_uploads=1)


@pytest.fixture
def service(client: TestClient) -> Service:
    return client.app.state.service  # type: ignore[attr-defined]


@pytest.fixture
def two(service: Service, bench: Bench) -> dict[str, tuple[dict[str, str], str, str]]:
    """Two keys, each with a graph and a solved job of its own: headers, graph id, job id."""
    found = {}
    for name, names in (("ann", False), ("bob", True)):
        record, key = service.keys.create(name, ("read", "submit"))
        graph = small_graph(names)
        job_id, _ = bench.solved(graph, "int32")
        graph_id = bench.jobs.job(job_id).graph
        service.add_graph(bench.jobs.graph(graph_id), Caller(record.id, frozenset(record.scopes)))
        with service.jobs.database.transaction("durable") as connection:
            connection.exec_driver_sql(f"UPDATE jobs SET owner = '{record.id}' WHERE id = '{job_id}'")
        found[name] = ({"authorization": f"Bearer {key}"}, graph_id, job_id)
    return found


def test_without_a_key_nothing_below_v1_answers(client: TestClient):
    for path in ("/v1/jobs", "/v1/limits", "/v1/nothing"):
        response = client.get(path)
        assert (response.status_code, response.json()["code"]) == (401, "unauthorized")
        assert response.headers["www-authenticate"].startswith("Bearer")
    for header in ("Bearer x", "Bearer apsp_aaaaaaaa_" + "a" * 43, "Basic YTpi", "Bearer", "bearer  ", "Bearer é"):
        assert client.get("/v1/jobs", headers={"authorization": header.encode()}).status_code == 401
    assert client.get("/health/live").status_code == 200


def test_scopes(client: TestClient, service: Service):
    headers = {
        scope: {"authorization": f"Bearer {service.keys.create(scope, (scope,))[1]}"} for scope in ("read", "admin")
    }
    assert client.get("/v1/jobs", headers=headers["read"]).status_code == 200
    refused = client.post("/v1/jobs", json={"graph": "x"}, headers=headers["read"])
    assert (refused.status_code, refused.json()["details"]) == (403, {"scope": "submit"})
    assert client.post("/v1/jobs", json={"graph": "x"}, headers=headers["admin"]).status_code == 404
    assert client.post("/v1/jobs/x/distances", json={"pairs": [[1, 2]]}, headers=headers["read"]).status_code == 404
    assert client.get("/v1/jobs", headers=headers["admin"]).status_code == 200
    assert needed_scope("HEAD", "/v1/jobs/x/zarr/zarr.json") == "read"
    assert needed_scope("POST", "/v1/jobs/x/cancel") == "submit"
    assert needed_scope("DELETE", "/v1/graphs/x") == "submit"


JOB_PATHS = (
    "", "/results", "/summary", "/histogram", "/distance?source=10&target=20", "/rows?sources=10",
    "/columns?targets=10", "/path?source=10&target=20", "/nearest?source=10", "/zarr/zarr.json",
    "/zarr/distances/c/0/0", "/rows?all=true",
)  # fmt: skip


def test_what_belongs_to_another_key_does_not_exist(client: TestClient, two: dict, service: Service):
    ann, graph_id, job_id = two["ann"]
    bob = two["bob"][0]
    for path in JOB_PATHS:
        assert client.get(f"/v1/jobs/{job_id}{path}", headers=ann).status_code == 200, path
        assert client.get(f"/v1/jobs/{job_id}{path}", headers=bob).status_code == 404, path
        assert client.head(f"/v1/jobs/{job_id}{path}", headers=bob).status_code == 404, path
    body = {"pairs": [[10, 20]]}
    for path in ("distances", "paths", "submatrix", "cancel"):
        sent = {} if path in ("submatrix", "cancel") else body
        assert client.post(f"/v1/jobs/{job_id}/{path}", json=sent, headers=bob).status_code == 404, path
    assert client.get(f"/v1/graphs/{graph_id}", headers=ann).status_code == 200
    assert client.get(f"/v1/graphs/{graph_id}", headers=bob).status_code == 404
    assert client.delete(f"/v1/graphs/{graph_id}", headers=bob).status_code == 404
    assert client.post("/v1/jobs", json={"graph": graph_id}, headers=bob).status_code == 404
    assert [job["id"] for job in client.get("/v1/jobs", headers=bob).json()["jobs"]] == [two["bob"][2]]
    assert [graph["id"] for graph in client.get("/v1/graphs", headers=bob).json()["graphs"]] == [two["bob"][1]]
    assert client.delete(f"/v1/jobs/{job_id}", headers=bob).status_code == 404
    assert client.delete(f"/v1/jobs/{job_id}", headers=ann).status_code == 204
    assert client.get(f"/v1/jobs/{job_id}", headers=ann).status_code == 410
    assert client.get(f"/v1/jobs/{job_id}", headers=bob).status_code == 404
    admin = {"authorization": f"Bearer {service.keys.create('root', ('admin',))[1]}"}
    assert len(client.get("/v1/jobs", headers=admin).json()["jobs"]) == 1
    assert client.get(f"/v1/graphs/{graph_id}", headers=admin).status_code == 200


def test_a_graph_of_two_owners_goes_with_the_last(client: TestClient, two: dict, service: Service):
    ann, graph_id, _ = two["ann"]
    record, key = service.keys.create("carl", ("read", "submit"))
    carl = {"authorization": f"Bearer {key}"}
    assert service.add_graph(service.jobs.graph(graph_id), Caller(record.id, frozenset(record.scopes)))[1]
    assert not service.add_graph(service.jobs.graph(graph_id), Caller(record.id, frozenset(record.scopes)))[1]
    open_job, _ = service.jobs.submit(Submission(graph_id, {}, {}, owner=record.id))
    assert client.delete(f"/v1/graphs/{graph_id}", headers=carl).status_code == 409
    service.jobs.cancel(open_job.id)
    assert client.delete(f"/v1/graphs/{graph_id}", headers=carl).status_code == 204
    assert client.get(f"/v1/graphs/{graph_id}", headers=carl).status_code == 404
    assert client.get(f"/v1/graphs/{graph_id}", headers=ann).status_code == 200
    assert client.delete(f"/v1/graphs/{graph_id}", headers=ann).status_code == 204
    assert not (service.settings.data_dir / "graphs" / graph_id).exists()


def test_a_graph_that_an_administrators_job_needs_stays_whose_it_is(client: TestClient, service: Service, two):
    ann, graph_id, _ = two["ann"]
    root, _ = service.keys.create("root", ("admin",))
    job, _ = service.jobs.submit(Submission(graph_id, {}, {}, owner=root.id))
    refused = client.delete(f"/v1/graphs/{graph_id}", headers=ann)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert job.id not in refused.text
    assert client.get(f"/v1/graphs/{graph_id}", headers=ann).status_code == 200
    service.jobs.cancel(job.id)
    assert client.delete(f"/v1/graphs/{graph_id}", headers=ann).status_code == 204
    assert client.get(f"/v1/graphs/{graph_id}", headers=ann).status_code == 404


def test_a_graph_of_two_owners_tells_neither_of_the_other(client: TestClient, service: Service, bench: Bench):
    kept = bench.jobs.graph(bench.add_graph(small_graph()))
    headers, since = {}, kept.created + 10.0
    for number, name in enumerate(("ann", "bob")):
        record, key = service.keys.create(name, ("read", "submit"))
        headers[name] = {"authorization": f"Bearer {key}"}
        told = {"receipt": {"sha256": name, "notes": [name]}, "facts": {"notes": [name], "arcs": 4}}
        upload = replace(kept, id="other", name=f"{name}.csv", created=since + number, **told)
        seen, new = service.add_graph(upload, Caller(record.id, frozenset(record.scopes)))
        assert (seen.id, seen.name, seen.receipt["sha256"], seen.created, new) == (
            kept.id, f"{name}.csv", name, since + number, True,
        )  # fmt: skip
    for name, other in (("ann", "bob"), ("bob", "ann")):
        answers = [client.get(path, headers=headers[name]) for path in ("/v1/graphs", f"/v1/graphs/{kept.id}")]
        for answer in answers:
            assert f'"{name}.csv"' in answer.text
            assert other not in answer.text
            assert "bench" not in answer.text
        earlier = client.get(f"/v1/graphs?cursor={encode(kept.created + 5, 'x')}", headers=headers[name])
        assert earlier.json()["graphs"] == []
    with service.jobs.database.transaction("durable") as connection:  # as it was before receipts were kept for each
        connection.exec_driver_sql("UPDATE graph_owners SET facts = NULL, receipt = NULL")
        connection.exec_driver_sql("""UPDATE graphs SET facts = '{"notes": ["secret"], "weights": {"column": "w"}}'""")
    seen = client.get(f"/v1/graphs/{kept.id}", headers=headers["ann"]).json()
    assert (seen["facts"], seen["receipt"]) == ({"weights": {"column": None}}, {})


@pytest.mark.parametrize("scopes", [("read", "submit"), ("admin",)])
def test_a_graph_has_the_name_that_its_caller_gave_last(client: TestClient, service: Service, scopes: tuple[str, ...]):
    """The first key of a service is that of an admin, who sees the graphs of all."""
    headers = {"authorization": f"Bearer {service.keys.create('ann', scopes)[1]}"}

    def upload(**names: str) -> tuple[str, ...]:
        answer = client.post("/v1/graphs", params=names, content=b"1 2 3\n", headers=headers).json()
        [listed] = client.get("/v1/graphs", headers=headers).json()["graphs"]
        return answer["name"], client.get(f"/v1/graphs/{answer['id']}", headers=headers).json()["name"], listed["name"]

    assert upload(filename="C:\\maps\\roads.csv") == ("roads.csv",) * 3, "a new graph has the name of its file"
    assert upload(filename="others.csv") == ("roads.csv",) * 3, "which no later file changes"
    assert upload(name="Roads", filename="others.csv") == ("Roads",) * 3
    assert upload(filename="others.csv") == ("Roads",) * 3
    assert upload(name="Streets") == ("Streets",) * 3


@pytest.mark.parametrize(
    "caller", [ANYBODY, Caller("ann", frozenset({"submit"})), Caller("root", frozenset({"admin"}))]
)
def test_a_name_that_one_gives_is_not_seen_by_another_owner(service: Service, bench: Bench, caller: Caller):
    kept = bench.jobs.graph(bench.add_graph(small_graph()))
    bob = Caller("bob", frozenset({"submit"}))
    service.add_graph(replace(kept, name="bob.csv"), bob)
    assert service.add_graph(replace(kept, name="x.csv"), caller, "mine")[0].id == kept.id
    service.add_graph(replace(kept, name="x.csv"), caller, "mine")
    assert service.graph(kept.id, caller).name == "mine"
    assert service.graph(kept.id, bob).name == "bob.csv"


def test_graphs_page_by_page(client: TestClient, service: Service, bench: Bench):
    record, key = service.keys.create("ann", ("read",))
    owner = Caller(record.id, frozenset(record.scopes))
    for names in (False, True):
        service.add_graph(bench.jobs.graph(bench.add_graph(small_graph(names))), owner)
    headers = {"authorization": f"Bearer {key}"}
    seen, url = [], "/v1/graphs?limit=1"
    while url:
        answer = client.get(url, headers=headers)
        seen += [graph["id"] for graph in answer.json()["graphs"]]
        url = answer.json()["next"]
        assert (url is not None) == ("link" in answer.headers)
    assert len(set(seen)) == len(seen) == 2
    for cursor in ("x", "W10", "é", "W251bGwsIDFd", "WzFlOTk5LCAiYSJd", "W05hTiwgImEiXQ"):
        assert client.get("/v1/graphs", params={"cursor": cursor}, headers=headers).status_code == 422


def test_a_revoked_key_is_refused(client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("service.auth.keys.REMEMBERED_SECONDS", 0.0)
    record, key = service.keys.create("ann", ("read",))
    headers = {"authorization": f"Bearer {key}"}
    assert client.get("/v1/jobs", headers=headers).status_code == 200
    first = service.keys.revoke(record.id).revoked
    assert client.get("/v1/jobs", headers=headers).status_code == 401
    assert service.keys.revoke(record.id).revoked == first
    with pytest.raises(NotFound, match="nobody"):
        service.keys.revoke("nobody")


class SlowKeys:
    """A database that tells of keys when it is let; None stands for no valid key, an error for none at all."""

    def __init__(self) -> None:
        self.asked, self.may_answer = 0, threading.Event()
        self.answer: KeyRecord | Exception | None = KeyRecord("a", "ann", ("read",), 0.0, None)

    def find(self, _key: str) -> KeyRecord | None:
        self.asked += 1
        assert self.may_answer.wait(10)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def looked_up(ring: Keyring) -> None:
    """Wait until nothing is being looked up."""
    async with asyncio.timeout(60):
        while ring._asked:
            await asyncio.sleep(0.001)


def test_a_key_that_many_wait_for_is_looked_up_once_and_again_before_its_time(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("service.auth.keys.time", SimpleNamespace(monotonic=lambda: now))

    async def story() -> None:
        nonlocal now
        keys = SlowKeys()
        ring = Keyring(keys)  # type: ignore[arg-type]
        waiting = [asyncio.create_task(ring.identify("Bearer x")) for _ in range(8)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        now += 1.0  # what is remembered is as old as the question, not the answer
        keys.may_answer.set()
        assert {caller.owner for caller in (await asyncio.gather(*waiting[1:])) if caller} == {"a"}
        assert keys.asked == 1

        keys.may_answer.clear()
        now += REMEMBERED_SECONDS / 2
        keys.answer = None  # revoked meanwhile
        assert [(await ring.identify("Bearer x")) is not None for _ in range(3)] == [True] * 3
        keys.may_answer.set()
        await looked_up(ring)
        assert await ring.identify("Bearer x") is None
        assert keys.asked == 3

        keys.answer = KeyRecord("a", "ann", ("read",), 0.0, None)
        assert await ring.identify("Bearer x") is not None
        now += REMEMBERED_SECONDS / 2
        keys.answer = StorageFailed("the database is away")
        assert await ring.identify("Bearer x") is not None  # nobody waits for what is looked up ahead
        await looked_up(ring)
        now += REMEMBERED_SECONDS / 2
        with pytest.raises(StorageFailed, match="away"):
            await ring.identify("Bearer x")

    asyncio.run(story())


def test_while_the_database_is_away_nobody_is_known_for_now(client: TestClient, service: Service, monkeypatch):
    def away(*_: str) -> None:
        raise DatabaseFailed("the database is away")

    monkeypatch.setattr(service.keys, "find", away)
    monkeypatch.setattr("storage.jobs.sessions.SessionStore.find", away)
    for headers in ({"authorization": "Bearer x"}, {"cookie": "apsp_session=x"}):
        answer = client.get("/v1/jobs", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (503, "database-unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-request-id"] == answer.json()["request_id"]


def test_too_many_requests_a_second(client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch):
    def wait(rates: Rates, who: str, real: Callable[[Rates, str], float] = Rates.wait) -> float:
        rates._clock = lambda: 1e6  # a busy machine takes longer than the seconds that allow so many requests
        return real(rates, who)

    monkeypatch.setattr(Rates, "wait", wait)
    headers = {"authorization": f"Bearer {service.keys.create('ann', ('read',))[1]}"}
    other = {"authorization": f"Bearer {service.keys.create('bob', ('read',))[1]}"}
    answers = [client.get("/v1/version", headers=headers) for _ in range(400)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert refused[0].json()["details"] == {"limit": 50, "setting": "APSP_MAX_REQUESTS_PER_SECOND"}
    assert int(refused[0].headers["retry-after"]) >= 1
    assert client.get("/v1/version", headers=other).status_code == 200
    assert client.get("/health/live").status_code == 200
    guesses = [client.get("/v1/version", headers={"authorization": "Bearer x"}).status_code for _ in range(400)]
    assert guesses[0] == 401
    assert 429 in guesses


def test_the_key_itself_is_kept_nowhere(service: Service, settings: Settings, client: TestClient, caplog):
    caplog.set_level(logging.DEBUG)
    _, key = service.keys.create("ann", ("read",))
    client.get("/v1/jobs", headers={"authorization": f"Bearer {key}"})
    secret = key.split("_", 2)[2].encode()
    assert all(secret not in path.read_bytes() for path in settings.data_dir.rglob("*") if path.is_file())
    assert secret.decode() not in caplog.text


def test_secrets_are_struck_out_of_logs():
    _, key = "", "apsp_abcdefgh_" + "s" * 43
    for text in (f"got {key}", f"Authorization: Bearer {key}", "postgresql://me:secretpass@host/x", f"?k={key}&x=1"):
        assert "sss" not in redacted(text)
        assert "secretpass" not in redacted(text)
    assert redacted("tile (3, 4) of job 01a1") == "tile (3, 4) of job 01a1"


def test_the_first_key(tmp_path: Path):
    settings = Settings(data_dir=tmp_path)
    with pytest.raises(InvalidRequest, match="apsp key create"):
        first_key(settings.model_copy(update={"host": "0.0.0.0"}))
    key = first_key(settings)
    assert key is not None
    jobs = JobStore(settings.database)
    record = KeyStore(jobs.database).find(key)
    assert record is not None
    assert record.scopes == ("admin",)
    jobs.close()
    assert first_key(settings) is None
    assert first_key(settings.model_copy(update={"host": "0.0.0.0"})) is None
    with pytest.raises(InvalidRequest, match="loopback"):
        first_key(settings.model_copy(update={"host": "::", "auth": False}))
    assert first_key(settings.model_copy(update={"host": "localhost", "auth": False})) is None


def test_a_first_key_may_be_asked_for_wherever_is_listened(tmp_path: Path):
    settings = Settings(data_dir=tmp_path, host="0.0.0.0", first_key=True)
    assert str(first_key(settings)).startswith("apsp_")
    assert first_key(settings) is None


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = ["--data-dir", str(tmp_path)]
    assert run(["key", "create", "ann", "--scope", "read", *folder]) == 0
    key = capsys.readouterr().out.strip()
    assert key.startswith("apsp_")
    assert run(["key", "list", *folder]) == 0
    listed = capsys.readouterr().out
    assert "ann" in listed
    assert key not in listed
    assert run(["key", "revoke", key.split("_")[1], *folder]) == 0
    assert run(["key", "revoke", "nobody", *folder]) == 2
    assert run(["key", "create", "ann", "--scope", "all", *folder]) == 2


def test_an_application_without_keys_asks_for_none(tmp_path: Path):
    app = create_app(Settings(data_dir=tmp_path, auth=False))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        assert client.get("/v1/jobs").status_code == 200


def test_without_keys_only_names_of_this_machine_are_answered(tmp_path: Path):
    app = create_app(Settings(data_dir=tmp_path, auth=False))
    client = TestClient(app)
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "[", "", "192.0.2.1", "::1"):
        for path in ("/", "/v1/jobs", "/health/live"):
            answer = client.get(path, headers={"host": host})
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (host, path)
    for host in ("127.0.0.1", "127.0.0.1:8000", "LocalHost:8000", "[::1]", "[::1]:8000"):
        assert client.get("/v1/jobs", headers={"host": host}).status_code == 200, host
    app.state.service.jobs.close()


@pytest.mark.parametrize("host", ["[", "[::1", "[::zz]", "a]", "a:b", "a:1:2", "a:99999", "me@a", "a/b", "a?b", "é"])
def test_a_host_that_is_none_is_refused(host: str, tmp_path: Path):
    app = create_app(Settings(data_dir=tmp_path))
    client = TestClient(app, raise_server_exceptions=False)
    for path in ("/", "/login", "/nowhere", "/v1/jobs", "/health/live"):
        answer = client.get(path, headers={"host": host.encode("latin-1")})
        assert (answer.status_code, answer.json()["details"]) == (422, {"field": "Host"}), (host, path)
    for fine in ("a", "a.b:8000", "[::1]:8000", "192.0.2.1", ""):
        assert client.get("/login", headers={"host": fine}).status_code == 200, fine
    app.state.service.jobs.close()
