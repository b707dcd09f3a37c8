"""What the client asks again, when, and for how long: flows driven by a script, without a socket or a clock."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.client import flows
from service.client.asking import Patience, ask
from service.client.errors import JobFailed, NoAnswer, Problem, ServiceError, StillOpen
from service.client.fetching import FileSink
from service.client.names import Names
from service.client.steps import Answer, Flow, Lost, Pause, Request, Send, Work
from storage.errors import InvalidRequest, StorageFailed

BUSY = Lost("connection reset", sent=True)


class Clock:
    """Seconds that pass only in pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Script:
    """Gives the replies in their order; keeps the requests and the pauses."""

    def __init__(self, *replies: Answer | Lost | Callable[[Request], Answer | Lost], patience: float = 60.0) -> None:
        self.replies: Iterator[Any] = iter(replies)
        self.requests: list[Request] = []
        self.pauses: list[float] = []
        self.told: list[str] = []
        self.clock = Clock()
        self.patience = Patience(patience, tell=self.told.append, clock=self.clock, chance=lambda: 1.0)

    def run(self, flow: Flow[Any]) -> Any:
        outcome: Any = None
        try:
            while True:
                step = flow.send(outcome)
                outcome = None
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.clock.now += step.seconds
                elif isinstance(step, Work):
                    outcome = step.call()
                else:
                    assert isinstance(step, Send)
                    self.requests.append(step.request)
                    reply = next(self.replies)
                    outcome = reply if isinstance(reply, Answer | Lost) else reply(step.request)
        except StopIteration as end:
            return end.value


def good(value: object = None, **headers: str) -> Answer:
    return Answer(200, {k.replace("_", "-"): v for k, v in headers.items()}, json.dumps(value or {}).encode())


def refusal(status: int, code: str = "invalid-request", **headers: str) -> Answer:
    document = {"title": "No", "status": status, "detail": f"because of {code}", "code": code, "details": {"limit": 3}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, named, json.dumps(document).encode())


def test_trouble_is_outlasted_with_pauses_that_double():
    script = Script(BUSY, BUSY, BUSY, good())
    assert script.run(ask(Request("GET", "x"), script.patience)).status == 200
    assert script.pauses == [0.2, 0.4, 0.8]
    assert script.told[0] == "connection reset; trying again in 0.2 s"


def test_pauses_have_an_upper_bound_and_a_part_by_chance():
    patience = Patience(chance=lambda: 0.0)
    assert patience.pause(50) == 5.0
    assert Patience(chance=lambda: 1.0).pause(50) == 10.0
    assert all(0.1 <= Patience().pause(0) <= 0.2 for _ in range(100))


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured_as_a_number(status):
    script = Script(refusal(status, retry_after="7"), good())
    script.run(ask(Request("GET", "x"), script.patience))
    assert script.pauses == [7.0]


def test_retry_after_is_honoured_as_a_date():
    date = email.utils.formatdate(time.time() + 20, usegmt=True)
    script = Script(refusal(503, retry_after=date), good())
    script.run(ask(Request("GET", "x"), script.patience))
    assert 18 <= script.pauses[0] <= 20


def test_a_pause_longer_than_the_patience_is_an_error_at_once():
    script = Script(refusal(429, "too-many-requests", retry_after="3600"))
    with pytest.raises(ServiceError) as caught:
        script.run(ask(Request("GET", "x"), script.patience))
    assert (caught.value.code, caught.value.retry_after, script.pauses) == ("too-many-requests", 3600.0, [])


def test_patience_ends():
    script = Script(*[BUSY] * 1000, patience=30.0)
    with pytest.raises(NoAnswer, match=r"connection reset \(tried for 2\d s\)"):
        script.run(ask(Request("GET", "x"), script.patience))
    assert 20 <= script.clock.now <= 30


@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 413, 422, 500, 507])
def test_a_refusal_is_an_error_at_once_and_carries_the_problem(status):
    script = Script(refusal(status, "limit-exceeded"))
    with pytest.raises(ServiceError, match="because of limit-exceeded") as caught:
        script.run(ask(Request("GET", "x"), script.patience))
    problem = caught.value.problem
    assert (problem.status, problem.title, problem.limit, problem.asked) == (status, "No", 3, None)


def test_what_is_not_repeatable_is_sent_again_only_if_nothing_was_done():
    once = Request("POST", "x", repeatable=False)
    script = Script(BUSY)
    with pytest.raises(NoAnswer, match="may have taken effect"):
        script.run(ask(once, script.patience))
    script = Script(refusal(502))
    with pytest.raises(ServiceError):
        script.run(ask(once, script.patience))
    script = Script(Lost("refused", sent=False), refusal(503), good())
    assert script.run(ask(once, script.patience)).status == 200


def test_what_can_never_go_well_is_not_tried_again():
    script = Script(Lost("bad certificate", sent=False, final=True))
    with pytest.raises(NoAnswer, match="bad certificate"):
        script.run(ask(Request("GET", "x"), script.patience))


def test_an_answer_that_is_no_problem_document_is_not_shown():
    script = Script(Answer(404, {}, b"<html><script>alert(1)</script>"))
    with pytest.raises(ServiceError, match="is this apsp's address") as caught:
        script.run(ask(Request("GET", "x"), script.patience))
    assert "script" not in str(caught.value)
    assert caught.value.code == "unknown"


def test_a_job_is_submitted_with_one_key_however_often_it_is_sent():
    script = Script(BUSY, refusal(503), good({"id": "j"}))
    script.run(flows.submit("g", Names(), {"sources": [3], "memory": "2KiB"}, script.patience))
    keys = {request.headers["Idempotency-Key"] for request in script.requests}
    assert (len(script.requests), len(keys)) == (3, 1)
    assert script.requests[0].json == {"graph": "g", "sources": [3], "memory": 2048}


def test_an_unknown_option_is_refused_before_anything_is_sent():
    script = Script()
    with pytest.raises(InvalidRequest, match="no option 'dytpe'; there are dtype"):
        script.run(flows.submit("g", Names(), {"dytpe": "auto"}, script.patience))


def job(state: str, **more: object) -> dict[str, object]:
    return {"id": "j", "state": state, "progress": 0.5, **more}


def test_waiting_goes_on_through_lost_connections_and_a_service_that_restarts():
    held = good(job("running"), preference_applied="wait=1")
    seen: list[str] = []
    replies = [
        held,
        BUSY,
        Lost("refused", sent=False),
        refusal(503, "draining", retry_after="5"),
        held,
        good(job("failed")),
    ]
    script = Script(*replies)
    flow = flows.wait("j", script.patience, timeout=None, watcher=lambda facts: seen.append(facts["state"]))
    assert script.run(flow)["state"] == "failed"
    assert seen == ["running", "running", "failed"]
    assert script.requests[0].headers["Prefer"] == "wait=1"


def test_a_service_may_be_away_for_minutes_while_a_job_is_waited_for():
    away = [Lost("refused", sent=False)] * 30
    script = Script(good(job("running"), preference_applied="wait=20"), *away, good(job("successful")))
    assert script.run(flows.wait("j", script.patience, timeout=None, watcher=None))["state"] == "successful"
    assert script.clock.now > 240


def test_where_nothing_lets_it_wait_the_service_is_asked_as_often_as_it_says():
    script = Script(*[good(job("running"), retry_after="2")] * 3, good(job("successful")))
    script.run(flows.wait("j", script.patience, timeout=None, watcher=None))
    assert script.pauses == [2.0, 2.0, 2.0]


def test_waiting_gives_up_in_time_and_says_that_the_job_goes_on():
    script = Script(*[good(job("running"), retry_after="2")] * 100)
    with pytest.raises(StillOpen, match="not over after 9 s; the job continues"):
        script.run(flows.wait("j", script.patience, timeout=9.0, watcher=None))
    assert script.clock.now == pytest.approx(9.0)
    assert issubclass(StillOpen, TimeoutError)


def test_a_failed_job_carries_its_problem():
    error = {"title": "No", "status": 422, "detail": "a cycle", "code": "negative-cycle", "details": {"cycle": [1, 2]}}
    with pytest.raises(JobFailed, match="job j failed: a cycle") as caught:
        flows.successful(job("failed", error=error))
    assert (caught.value.code, caught.value.state, caught.value.details()) == (
        "negative-cycle",
        "failed",
        {"cycle": [1, 2]},
    )
    with pytest.raises(JobFailed, match="job j dismissed: it was cancelled"):
        flows.successful(job("dismissed", error=None))


def test_all_pages_of_a_list_are_asked_for():
    first = {"jobs": [{"id": k} for k in range(200)], "next": "/v1/jobs?limit=200&cursor=abc"}
    script = Script(good(first), good({"jobs": [{"id": 200}], "next": None}))
    assert len(script.run(flows.jobs(script.patience, state=None, limit=500))) == 201
    assert script.requests[1].params == {"state": None, "limit": 200, "cursor": "abc"}


def body(
    sink_bytes: bytes, status: int, headers: dict[str, str], *, breaks: bool
) -> Callable[[Request], Answer | Lost]:
    def reply(request: Request) -> Answer | Lost:
        assert request.sink is not None
        request.sink.begin(status, headers)
        try:
            request.sink.write(sink_bytes)
        finally:
            request.sink.end()
        return BUSY if breaks else Answer(status, headers, b"")

    return reply


def test_a_download_goes_on_where_it_broke_off(tmp_path: Path):
    sink = FileSink(tmp_path / "tile", 6)
    whole, rest = {"etag": '"e"'}, {"etag": '"e"', "content-range": "bytes 4-5/6"}
    script = Script(body(b"abcd", 200, whole, breaks=True), body(b"ef", 206, rest, breaks=False))
    script.run(ask(Request("GET", "x", sink=sink), script.patience))
    assert (tmp_path / "tile").read_bytes() == b"abcdef"
    assert script.requests[1].headers == {"Range": "bytes=4-", "If-Range": '"e"'}


def test_a_download_begins_anew_where_the_file_is_another(tmp_path: Path):
    sink = FileSink(tmp_path / "tile", 6)
    other = {"etag": '"f"'}
    script = Script(body(b"abcd", 200, {"etag": '"e"'}, breaks=True), body(b"ghijkl", 200, other, breaks=False))
    script.run(ask(Request("GET", "x", sink=sink), script.patience))
    assert (tmp_path / "tile").read_bytes() == b"ghijkl"


def test_progress_renews_the_patience(tmp_path: Path):
    sink = FileSink(tmp_path / "tile", 100)
    parts = [body(b"x", 200, {"etag": '"e"'}, breaks=True)]
    parts += [
        body(b"x", 206, {"etag": '"e"', "content-range": f"bytes {k}-99/100"}, breaks=True) for k in range(1, 100)
    ]
    script = Script(*parts, patience=1.0)
    script.run(ask(Request("GET", "x", sink=sink), script.patience))
    assert sink.complete
    assert script.clock.now > 10


def test_more_bytes_than_the_file_has_and_another_part_are_refused(tmp_path: Path):
    script = Script(body(b"abcdefg", 200, {}, breaks=False))
    with pytest.raises(StorageFailed, match="more than its 6 bytes"):
        script.run(ask(Request("GET", "x", sink=FileSink(tmp_path / "tile", 6)), script.patience))
    script = Script(body(b"cd", 206, {"content-range": "bytes 2-3/6"}, breaks=False))
    with pytest.raises(StorageFailed, match="another part"):
        script.run(ask(Request("GET", "x", sink=FileSink(tmp_path / "tile", 6)), script.patience))


def test_a_problem_with_strange_members_is_still_one():
    found = Problem.read(418, json.dumps({"code": "new-kind", "later": 1}).encode())
    assert (found.code, found.status, found.detail) == ("new-kind", 418, "no reason was given")
