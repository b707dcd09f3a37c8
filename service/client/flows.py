"""Flows about graphs and jobs; ``steps`` defines what a flow is."""

from __future__ import annotations

import json
import math
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import quote

from service.client.asking import Patience, ask, checked_seconds, retry_after
from service.client.errors import JobFailed, StillOpen
from service.client.graphs import Upload, prepared
from service.client.names import Names, several
from service.client.steps import Flow, Pause, Request, Work
from service.options import JobOptions, Numbers, Size, UploadOptions, Vertices, Words
from service.units import parse_size
from storage.arguments import check_texts, check_whole, shown
from storage.errors import InvalidRequest, NotFound
from storage.options import declared

Document = dict[str, Any]
Watcher = Callable[[Document], None]

#: states of a job that is not over
OPEN: Final = ("accepted", "running")
#: the id of a job, and a text that may be a part of an id
WHOLE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PART_OF_ID: Final = re.compile(r"[0-9a-f-]{4,35}")
#: seconds for which the service is asked to delay its answer about an open job: with a watcher, and without one
_WATCHED, _UNWATCHED = 1, 20
#: the requests of a wait for a job are repeated this many times as long as a single request
_MORE_PATIENCE: Final = 10
#: seconds of silence, in addition to the delay that was asked for, after which a request is aborted
_SLACK: Final = 30.0


def job_path(job: str, *rest: str) -> str:
    """Return the path of a job, or a path below it."""
    if not job:
        raise InvalidRequest("which job? its id is empty", field="job")
    return "/".join(["v1/jobs", quote(job, safe=""), *rest])


def question(method: str, path: str, patience: Patience, **more: Any) -> Flow[Document]:
    """Send a request and return its answer, a JSON object.

    Args:
        method: HTTP method.
        path: path below the address of the service.
        patience: how long requests are repeated.
        more: further fields of :class:`Request`.
    """
    answer = yield from ask(Request(method, path, **more), patience)
    return cast(Document, json.loads(answer.content)) if answer.content else {}


def upload(
    graph: Any, reading: UploadOptions, patience: Patience, *, name: str | None = None
) -> Flow[tuple[Document, Names]]:
    """Encode a graph and upload it; repeating is safe, because the same content is the same graph.

    Args:
        graph: a path or an object, see :meth:`Client.submit`.
        reading: how the graph is read.
        patience: how long requests are repeated.
        name: the caller's name for the graph.
    """
    context = prepared(graph, reading, name)
    made: Upload = yield Work(context.__enter__)
    try:
        found = yield from question("POST", "v1/graphs", patience, params=made.query, file=made.file, seconds=600.0)
    finally:
        context.__exit__(None, None, None)
    return found, made.names


def submit(
    graph_id: str, names: Names, options: Mapping[str, Any], patience: Patience, *, name: str | None = None
) -> Flow[Document]:
    """Queue a job; an idempotency key ensures that it is queued once, however often the request is sent.

    Args:
        graph_id: id of an uploaded graph.
        names: translates between the caller's vertices and labels on the wire.
        options: see ``service.options.JobOptions``.
        patience: how long requests are repeated.
        name: name of the job.
    """
    body = {"graph": graph_id, "name": name, **_wired(options, names)}
    if body.get("prepared") is not None:
        body["prepared"] = yield from whole_id(str(body["prepared"]), patience)
    headers = {"Idempotency-Key": secrets.token_hex(16)}
    asked = {key: value for key, value in body.items() if value is not None}
    return (yield from question("POST", "v1/jobs", patience, json=asked, headers=headers))


def _wired(options: Mapping[str, Any], names: Names) -> Document:
    """Return the options in the form that is sent to the service."""
    known = declared(JobOptions)
    if unknown := sorted(options.keys() - known.keys()):
        raise InvalidRequest(f"there is no option {unknown[0]!r}; there are {', '.join(known)}", field=unknown[0])
    wired = dict(options)
    for name, value in options.items():
        kind, _ = known[name]
        if kind == Size and isinstance(value, str):
            wired[name] = parse_size(value, field=name)
        if kind == Vertices and value is not None:
            wired[name] = names.places(several(name, value))
        elif kind in (Numbers, Words) and value is not None:
            wired[name] = listed_values(name, value, float if kind == Numbers else str)
        else:
            wired[name] = _plain(name, wired[name])
    return wired


def _plain(name: str, value: Any) -> Any:
    """Return a value for JSON: NumPy numbers become Python numbers.  Raises InvalidRequest if JSON cannot hold it."""
    found = value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidRequest(f"{name} cannot be sent, found {shown(value)}", field=name) from None
    return found


def listed_values(name: str, value: Any, kind: Callable[[Any], Any]) -> list[Any]:
    """Return numbers or names as a list; a single value becomes a list of one."""
    try:
        listed = [value] if isinstance(value, str | int | float) else list(value)
        if any(isinstance(one, bool) for one in listed):
            raise TypeError
        return [kind(one) for one in listed]
    except (TypeError, ValueError):
        what = "numbers" if kind is float else "names"
        raise InvalidRequest(f"{name} takes {what} in a list, found {value!r}", field=name) from None


def status(job: str, patience: Patience) -> Flow[Document]:
    """Return the current state of a job."""
    return (yield from question("GET", job_path(job), patience))


def wait(job: str, patience: Patience, *, timeout: float | None, watcher: Watcher | None) -> Flow[Document]:
    """Wait for the end of a job.  Raises StillOpen, a TimeoutError, after ``timeout`` seconds.

    An unreachable service is tolerated ten times as long as for a single request.

    Args:
        job: id of the job.
        patience: how long requests are repeated.
        timeout: seconds to wait at most; None for no limit.
        watcher: called with the job's facts after every answer.
    """
    patience = replace(patience, seconds=_MORE_PATIENCE * patience.seconds)
    until = None if timeout is None or checked_seconds("timeout", timeout) == math.inf else patience.clock() + timeout
    hold = _UNWATCHED if watcher is None else _WATCHED
    while True:
        left = None if until is None else max(0.0, until - patience.clock())
        seconds = hold if left is None else min(hold, int(left))
        headers = {"Prefer": f"wait={seconds}"}
        answer = yield from ask(Request("GET", job_path(job), headers=headers, seconds=seconds + _SLACK), patience)
        found = cast(Document, json.loads(answer.content))
        if watcher is not None:
            watcher(found)
        if found["state"] not in OPEN:
            return found
        if left == 0.0:
            raise StillOpen(f"job {job} is not over after {timeout:g} s; the job continues")
        # the service did not delay its answer: a proxy removed the header, or less than a second is left
        if "preference-applied" not in answer.headers or seconds == 0:
            pause = retry_after(answer) or 1.0
            yield Pause(pause if left is None else min(pause, left))


def summary(job: str, patience: Patience, *, counted: bool = False) -> Flow[Document]:
    """Return the facts about a result: shape, type, direction, unit, summary.

    Args:
        job: id of the job.
        patience: how long requests are repeated.
        counted: whether all rows of a prepared result are counted for the summary.
    """
    path = job_path(job, "summary")
    return (yield from question("GET", f"{path}?counted=true" if counted else path, patience))


def manifest(job: str, patience: Patience) -> Flow[Document]:
    """Return the description of a result: shape, type, cutoff, tiles, bytes, digest."""
    return (yield from question("GET", job_path(job, "results"), patience))


def successful(found: Document) -> Document:
    """Return the job if it was successful, else raise JobFailed."""
    if found["state"] != "successful":
        raise JobFailed(found)
    return found


def cancel(job: str, patience: Patience) -> Flow[Document]:
    """Ask a job to stop; safe to repeat."""
    return (yield from question("POST", job_path(job, "cancel"), patience))


def resume(job: str, patience: Patience) -> Flow[Document]:
    """Queue a stopped job again; the request is not repeated, because a second request would be refused."""
    return (yield from question("POST", job_path(job, "resume"), patience, repeatable=False))


def delete(job: str, patience: Patience) -> Flow[None]:
    """Delete a job and its result."""
    yield from ask(Request("DELETE", job_path(job)), patience)


def log(job: str, patience: Patience) -> Flow[str]:
    """Return the log of a job, the text that runners have written about it."""
    answer = yield from ask(Request("GET", job_path(job, "log")), patience)
    return answer.content.decode("utf-8", "replace")


def jobs(patience: Patience, *, state: str | None, limit: int) -> Flow[list[Document]]:
    """Return the jobs, newest first, at most ``limit``.

    Args:
        patience: how long requests are repeated.
        state: only jobs in this state.
        limit: the most jobs to list.
    """
    check_texts(state=state)
    return (yield from _listed("jobs", patience, check_whole("limit", limit, 1), state=state))


def graphs(patience: Patience, *, limit: int) -> Flow[list[Document]]:
    """Return the uploaded graphs, newest first, at most ``limit``."""
    return (yield from _listed("graphs", patience, limit))


def _listed(kind: str, patience: Patience, limit: int, **query: Any) -> Flow[list[Document]]:
    """Return the first ``limit`` entries of a list that the service gives in pages."""
    found: list[Document] = []
    cursor = None
    while len(found) < limit:
        asked = {**query, "limit": min(200, limit - len(found)), "cursor": cursor}
        answer = yield from question("GET", f"v1/{kind}", patience, params=asked)
        found += answer[kind]
        if not answer["next"]:
            break
        cursor = cursor_of(answer["next"])
    return found


def whole_id(text: str, patience: Patience) -> Flow[str]:
    """Return the id of the only job whose id begins or ends with ``text``, four or more hexadecimal digits.

    Text that cannot be a part of an id is returned unchanged.  Ids of jobs begin with the time, so ids of the same
    minute have the same beginning; their ends are random.

    Raises:
        NotFound: there is no such job.
        InvalidRequest: there are several such jobs.
    """
    if WHOLE_ID.fullmatch(text) or not PART_OF_ID.fullmatch(text):
        return text
    listed = yield from jobs(patience, state=None, limit=sys.maxsize)
    found = [job for job in listed if job["id"].startswith(text) or job["id"].endswith(text)]
    if not found:
        raise NotFound(f"there is no job whose id begins or ends with {text!r}; apsp jobs lists them")
    if len(found) > 1:
        some = ", ".join(job["id"] for job in found[:3])
        more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
        raise InvalidRequest(f"{len(found)} jobs have ids that begin or end with {text!r}: {some}{more}", field="job")
    return str(found[0]["id"])


def cursor_of(link: str) -> str:
    """Return the cursor in the link to the next page."""
    from urllib.parse import parse_qs, urlsplit

    return parse_qs(urlsplit(link).query)["cursor"][0]
