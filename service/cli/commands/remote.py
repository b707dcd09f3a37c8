"""Commands that ask a service: submit, status, wait, cancel, fetch, jobs, and query with ``--server``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_json, table
from service.cli.commands.showing import check_question, show_distance, show_path, show_row, show_summary, summary_lines
from service.cli.progress import FetchDisplay, JobDisplay
from service.client import Client, flows
from service.client.blocking import Job
from service.options import ClientOptions
from service.units import format_bytes, format_seconds
from storage.options import declared


class Remote(NamedTuple):
    """A service (``server`` is APSP_SERVER if None), and whether its answers are printed as one JSON object."""

    server: str | None
    as_json: bool

    def client(self) -> Client:
        """Return a client that reports failed attempts on standard error."""
        return Client(self.server, tell=_Notes())


class _Notes:
    """Prints each kind of failure once."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, trouble: str) -> None:
        what = trouble.split("; trying again", maxsplit=1)[0]
        if what != self._said:
            self._said = what
            print(f"note: {trouble}", file=sys.stderr, flush=True)


def submit(graph: Path, options: Mapping[str, Any], at: Remote, *, wait: bool) -> None:
    """Upload a graph and queue a job; with ``wait``, wait for its end.

    Args:
        graph: path of the graph file.
        options: how the file is read, options of the job, and its name; defaults are not sent.
        at: the service, and how the answer is printed.
        wait: whether to wait until the job has ended.
    """
    known = declared(ClientOptions)
    given = cast(Any, {name: value for name, value in options.items() if value != known[name][1].default})
    with at.client() as client:
        job = client.submit(graph, **given)
        for note in job.notes:
            print(f"note: {note}", file=sys.stderr, flush=True)
        if wait:
            if not at.as_json:
                emit(job.id)
            _see_to_its_end(client, job, None, at.as_json)
        elif at.as_json:
            emit_json(job.facts)
        else:
            emit(job.id)


def status(job: str, at: Remote) -> None:
    """Print the state of a job."""
    with at.client() as client:
        found = client.job(job)
    emit_json(found.facts) if at.as_json else emit(_lines(found))


def wait(job: str, at: Remote, timeout: float | None) -> None:
    """Wait for a job, and print how it ended.

    Args:
        job: id of the job.
        at: the service, and how the answer is printed.
        timeout: seconds to wait at most; no limit if None.
    """
    with at.client() as client:
        _see_to_its_end(client, client.job(job), timeout, at.as_json)


def cancel(job: str, at: Remote) -> None:
    """Ask a job to stop."""
    with at.client() as client:
        found = Job(client, client.run(flows.cancel(job, client.patience)))
    if at.as_json:
        emit_json(found.facts)
    else:
        emit(f"{found.id}: {found.state if found.over else 'is asked to stop'}")


def jobs(at: Remote, *, state: str | None, limit: int) -> None:
    """List jobs, newest first.

    Args:
        at: the service, and how the answer is printed.
        state: list only jobs in this state.
        limit: the most jobs to list.
    """
    with at.client() as client:
        found = client.jobs(state=state, limit=limit)
    if at.as_json:
        emit_json({"jobs": [job.facts for job in found]})
        return
    rows = [
        (job.id, job.state, f"{100 * job.progress:.0f} %", str(job.facts["created"])[:19], job.facts["name"] or "")
        for job in found
    ]
    emit(table([("job", "state", "done", "created", "name"), *rows], right=(2,)) if rows else "there is no job")


def fetch(job: str, out: Path, at: Remote, *, overwrite: bool) -> None:
    """Fetch the store of a job into a folder.

    Args:
        job: id of the job.
        out: folder of the store.
        at: the service, and how the answer is printed.
        overwrite: whether an existing store may be replaced.
    """
    with at.client() as client:
        INTERRUPTS.left_behind = "what was fetched is kept; the same command continues from there"
        with FetchDisplay(sys.stderr) as watch:
            client.job(job).result().fetch(out, overwrite=overwrite, meter=watch)
        INTERRUPTS.left_behind = f"{out} is complete"
    if at.as_json:
        emit_json({"job": job, "store": str(out), "bytes": watch.total})
    else:
        emit(f"{out}: fetched, {format_bytes(watch.total)}, and checked")


def query(job: str, question: str, vertices: Sequence[str], at: Remote) -> None:
    """Answer one question about a job's result, as ``apsp query`` does about a store.

    Args:
        job: id of the job.
        question: distance, path, row or summary.
        vertices: names of the vertices that the question takes.
        at: the service, and how the answer is printed.
    """
    check_question(question, vertices)
    with at.client() as client:
        patience = client.patience
        if question == "summary":
            found = client.run(flows.summary(job, patience))
            show_summary(found, f"job {job}", at.as_json)
        elif question == "row":
            found = client.run(
                flows.question(
                    "POST", flows.job_path(job, "submatrix"), patience,
                    json={"sources": list(vertices)}, params={"format": "json"},
                )
            )  # fmt: skip
            [source], [distances] = found["sources"], found["distances"]
            show_row({"source": source, "targets": found["targets"], "distances": distances}, at.as_json)
        else:
            pair = dict(zip(("source", "target"), vertices, strict=True))
            found = client.run(flows.question("GET", flows.job_path(job, question), patience, params=pair))
            (show_distance if question == "distance" else show_path)(found, at.as_json)


def _see_to_its_end(client: Client, job: Job, timeout: float | None, as_json: bool) -> None:
    INTERRUPTS.left_behind = f"job {job.id} continues; wait for it with: apsp wait {job.id} --server {client.url}"
    with JobDisplay(sys.stderr) as watch:
        job.wait(timeout, watch)
    INTERRUPTS.left_behind = f"job {job.id} is over"
    if job.state != "successful":
        if as_json:
            emit_json(job.facts)
        job.result()  # this raises the error with which the job failed
    summary = job.result().summary()
    if as_json:
        emit_json({**job.facts, "summary": summary})
    else:
        emit([*_lines(job), *summary_lines(summary)])


def _lines(job: Job) -> list[str]:
    """Return a job in aligned lines."""
    facts = job.facts
    rows = [("state", f"{job.state}, {facts['phase']}" if not job.over else job.state)]
    if facts["name"]:
        rows.insert(0, ("name", str(facts["name"])))
    if not job.over:
        rows.append(("done", f"{100 * job.progress:.0f} %"))
    if facts.get("queue_position"):
        rows.append(("before it", f"{facts['queue_position']} jobs"))
    if facts["eta_seconds"] is not None:
        rows.append(("left", f"about {format_seconds(facts['eta_seconds'])}"))
    if plan := job.plan:
        down, across = plan["shape"]
        rows.append(("plan", f"{plan['algorithm']} in {plan['dtype']} on {plan['device']}, {down:,} x {across:,}"))
    if facts.get("seconds"):
        parts = (f"{name} {format_seconds(value)}" for name, value in facts["seconds"].items())
        rows.append(("took", ", ".join(parts)))
    if facts["error"]:
        rows.append(("error", facts["error"]["detail"]))
    return [f"job {job.id}", *table(rows, indent="  ")]
