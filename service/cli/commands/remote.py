"""Commands that ask a service: submit, wait, fetch, jobs and so on, and query with ``--server``."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_json, table, unit_of_facts
from service.cli.commands.showing import (
    check_question,
    count_of,
    limit_of,
    save_path,
    show_pair,
    show_row,
    show_summary,
    summary_lines,
)
from service.cli.progress import FetchDisplay, JobDisplay
from service.cli.remote import SHOWN_DIGITS
from service.cli.vertex_lists import points_or_names, tell_points
from service.client import Client, flows
from service.client.asking import Patience
from service.client.blocking import Job, Result
from service.client.names import Names
from service.client.steps import Flow
from service.client.tables import TABLES
from service.options import ClientOptions
from service.units import format_bytes, format_seconds
from storage.counted import counted
from storage.errors import InvalidRequest
from storage.graph.units import said_unit
from storage.graph.vertex_table import ENDINGS, check_table, write_table
from storage.options import declared
from storage.semirings import MIN_PLUS

#: Seconds for which a failed short question or other request is repeated; a wait for a job repeats ten times as long.
QUESTION_SECONDS: Final = 2.0
WORK_SECONDS: Final = 60.0
#: the largest finite float32; ``struct.pack`` refuses larger numbers
_LARGEST: Final = 3.4028234663852886e38


class Remote(NamedTuple):
    """A service (APSP_SERVER if ``server`` is None), whether answers are printed as JSON, and a file for a path."""

    server: str | None
    as_json: bool
    out: Path | None = None

    def client(self, patience: float = WORK_SECONDS) -> Client:
        """Return a client that prints failed attempts on standard error, and repeats them for ``patience`` seconds."""
        return Client(self.server, tell=_Notes(), patience=patience)

    def asker(self) -> Client:
        """Return a client with little patience for short questions, so that a service that is down is reported soon."""
        return self.client(QUESTION_SECONDS)


class Window(NamedTuple):
    """Which part of a list is shown: page number ``page``, from 1, of pages of ``limit`` entries."""

    limit: int
    page: int

    def ask(self) -> int:
        """Return how many entries to request: up to the end of this page, and one more to see if a next page exists."""
        return self.limit * self.page + 1

    def cut(self, entries: Sequence[Any]) -> Sequence[Any]:
        """Return the entries of this page."""
        return entries[self.limit * (self.page - 1) : self.limit * self.page]

    def tell(self, entries: Sequence[Any], command: str) -> None:
        """Print on standard error how to see more entries, if there are any."""
        if len(entries) >= self.ask():
            limit = "" if self.limit == 50 else f" --limit {self.limit}"
            print(f"note: older ones: {command}{limit} --page {self.page + 1}", file=sys.stderr, flush=True)


class _Notes:
    """Prints messages about failed requests, except the same failure twice in a row."""

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
        options: options of reading and of the job, and the name of the job; default values are not sent.
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
    with at.asker() as client:
        found = client.job(_id(client, job))
    emit_json(found.facts) if at.as_json else emit(_lines(found))


def wait(job: str, at: Remote, timeout: float | None) -> None:
    """Wait for a job, and print how it ended.

    Args:
        job: id of the job.
        at: the service, and how the answer is printed.
        timeout: seconds to wait at most; no limit if None.
    """
    with at.client() as client:
        _see_to_its_end(client, client.job(_id(client, job)), timeout, at.as_json)


def cancel(job: str, at: Remote) -> None:
    """Ask a job to stop."""
    with at.asker() as client:
        found = Job(client, client.run(flows.cancel(_id(client, job), client.patience)))
    if at.as_json:
        emit_json(found.facts)
    else:
        emit(f"{found.id}: {found.state if found.over else 'is asked to stop'}")


def resume(job: str, at: Remote) -> None:
    """Queue a stopped job again."""
    with at.asker() as client:
        found = client.run(flows.resume(_id(client, job), client.patience))
    emit_json(found) if at.as_json else emit(f"{found['id']}: {found['state']}")


def delete(job: str, at: Remote) -> None:
    """Delete a job that is over, and its result."""
    with at.asker() as client:
        whole = _id(client, job)
        client.run(flows.delete(whole, client.patience))
    emit_json({"job": whole, "deleted": True}) if at.as_json else emit(f"{whole}: deleted")


def log(job: str, at: Remote) -> None:
    """Print the log of a job."""
    with at.asker() as client:
        whole = _id(client, job)
        text = client.run(flows.log(whole, client.patience))
    if at.as_json:
        emit_json({"job": whole, "log": text})
    elif text:
        emit(text.rstrip("\n"))


def jobs(at: Remote, window: Window, *, state: str | None) -> None:
    """List jobs, newest first.

    Args:
        at: the service, and how the answer is printed.
        window: which part of the list is shown.
        state: list only jobs in this state.
    """
    with at.asker() as client:
        listed = client.run(flows.jobs(client.patience, state=state, limit=window.ask()))
    found = window.cut(listed)
    if at.as_json:
        emit_json({"jobs": found, "more": len(listed) >= window.ask()})
        return
    head = ("job", "state", "done", "size", "algorithm", "took", "created", "name")
    rows = [_job_row(job) for job in found]
    emit(table([head, *rows], right=(2, 3, 5)) if rows else "there is no job")
    window.tell(listed, f"apsp jobs{'' if state is None else f' --state {state}'}")


def _job_row(job: Mapping[str, Any]) -> tuple[str, ...]:
    size = " x ".join(f"{side:,}" for side in job.get("shape") or ())
    took = ""
    if job["started"] and job["finished"]:
        began, ended = (datetime.fromisoformat(job[name]) for name in ("started", "finished"))
        took = format_seconds((ended - began).total_seconds())
    return (
        job["id"][-SHOWN_DIGITS:], job["state"], f"{100 * job['progress']:.0f} %", size, job.get("algorithm") or "",
        took, _moment(job["created"]), job["name"] or "",
    )  # fmt: skip


def graphs(at: Remote, window: Window) -> None:
    """List uploaded graphs, newest first.

    Args:
        at: the service, and how the answer is printed.
        window: which part of the list is shown.
    """
    with at.asker() as client:
        listed = client.run(flows.graphs(client.patience, limit=window.ask()))
    found = window.cut(listed)
    if at.as_json:
        emit_json({"graphs": found, "more": len(listed) >= window.ask()})
        return
    head = ("graph", "vertices", "arcs", "created", "name")
    rows = [
        (graph["id"], f"{graph['n']:,}", f"{graph['m']:,}", _moment(graph["created"]), graph["name"] or "")
        for graph in found
    ]
    emit(table([head, *rows], right=(1, 2)) if rows else "there is no graph")
    window.tell(listed, "apsp graphs")


def _moment(text: str) -> str:
    return text[:19].replace("T", " ")


def _id(client: Client, job: str) -> str:
    """Return the whole id of the job whose id begins or ends with ``job``."""
    return client.run(flows.whole_id(job, client.patience))


def fetch(job: str, out: Path, at: Remote, *, overwrite: bool) -> None:
    """Fetch the store of a job into a folder, or its table into a file.

    Args:
        job: id of the job.
        out: folder of the store; a table can also go into a file, whose ending decides the format.
        at: the service, and how the answer is printed.
        overwrite: whether an existing store may be replaced.
    """
    with at.client() as client:
        job = _id(client, job)
        result = client.job(job).result()
        if result.result in TABLES and out.suffix.lower() in ENDINGS:
            _fetch_table(result, out, at, overwrite=overwrite)
            return
        INTERRUPTS.left_behind = "what was fetched is kept; the same command continues from there"
        with FetchDisplay(sys.stderr) as watch:
            result.fetch(out, overwrite=overwrite, meter=watch)
        INTERRUPTS.left_behind = f"{out} is complete"
    if at.as_json:
        emit_json({"job": job, "store": str(out), "bytes": watch.total})
    else:
        emit(f"{out}: fetched, {format_bytes(watch.total)}, and checked")


def _fetch_table(result: Result, out: Path, at: Remote, *, overwrite: bool) -> None:
    check_table(out, overwrite=overwrite)
    INTERRUPTS.left_behind = f"{out} is as it was"
    frame = result.frame()
    write_table(frame, out, overwrite=overwrite)
    if at.as_json:
        emit_json({"job": result.job, "table": str(out), "rows": frame.height, "columns": frame.columns})
    else:
        emit(f"{out}: fetched, {counted(frame.height, 'rows')}, and checked")


def query(job: str, question: str, vertices: Sequence[str], at: Remote, points: Sequence[Path] = ()) -> None:
    """Answer one question about a job's result, as ``apsp query`` does about a store.

    Args:
        job: id of the job.
        question: distance, path, row, nearest, within, also or summary.
        vertices: names of the vertices of the question; for nearest and within also a number of vertices or a distance.
        at: the service, and how the answer is printed.
        points: tables of points, which may stand for vertices.
    """
    check_question(question, vertices, at.out)
    ends = points_or_names(points, vertices[: 2 if question in ("distance", "path", "also") else 1])
    with at.asker() as client:
        patience, job = client.patience, _id(client, job)
        if question == "summary":
            show_summary(client.run(flows.summary(job, patience, counted=True)), f"job {job}", at.as_json)
            return
        facts = client.run(flows.manifest(job, patience))
        unit = said_unit(facts["unit"]) if at.as_json else unit_of_facts(facts)
        said = {} if facts.get("semiring", MIN_PLUS) == MIN_PLUS else {"semiring": facts["semiring"]}
        if question == "nearest":
            params = {**Names().asked(None, source=ends[0]), "k": count_of(vertices[1]), **said}
            found = client.run(flows.question("GET", flows.job_path(job, question), patience, params=params))
            tell_points(found, ends, vertices)
            show_row(found, at.as_json, unit)
        elif question in ("row", "within"):
            row = client.run(_row(job, ends[0], patience, said if question == "row" else {}))
            tell_points(row, ends, vertices)
            show_row(row if question == "row" else _within(row, limit_of(vertices[1]), facts), at.as_json, unit)
        else:
            pair = Names().asked(None, **dict(zip(("source", "target"), ends, strict=True)))
            pair |= {} if at.out is None else {"format": "geojson"}
            pair |= said if question != "also" else {}
            found = client.run(flows.question("GET", flows.job_path(job, question), patience, params=pair))
            if at.out is None:
                tell_points(found, ends, vertices)
                show_pair(question, found, at.as_json, unit)
            else:
                tell_points(dict(found["properties"]), ends, vertices)
                save_path(found, at.out, at.as_json)


def _row(job: str, source: Any, patience: Patience, said: dict[str, str]) -> Flow[dict[str, Any]]:
    """Return the row of a source; ``said`` is the parameter of the question that names the semiring."""
    found = yield from flows.question(
        "POST",
        flows.job_path(job, "submatrix"),
        patience,
        json={"sources": [Names().place(source)], **said},
        params={"format": "json"},
    )
    [name], [distances] = found["sources"], found["distances"]
    told = {name: value for name, value in found.items() if name == "source_points"}
    return {"source": name, "targets": found["targets"], "distances": distances, **said, **told}


def _within(row: Mapping[str, Any], limit: float, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a row that are at most ``limit``, as ``ResultReader.within`` does.

    Args:
        row, facts: the row (source, targets, distances), and the facts of the result.
        limit: the largest distance; a result with a cutoff below it is refused.
    """
    cutoff = facts.get("cutoff")
    if cutoff is not None and limit > cutoff:
        message = f"distance: {limit:.15g} is asked for, but the result was solved with a cutoff of {cutoff:.15g}"
        raise InvalidRequest(f"{message}; it holds no longer distances", field="distance")
    single = facts["dtype"] == "float32"
    most = _as_float32(limit) if single else limit
    pairs = [
        (distance, target)
        for target, distance in zip(row["targets"], row["distances"], strict=True)
        if distance is not None and (_as_float32(distance) if single else distance) <= most
    ]
    pairs.sort(key=itemgetter(0))
    names, distances = [target for _, target in pairs], [distance for distance, _ in pairs]
    return {"source": row["source"], "targets": names, "distances": distances}


def _as_float32(value: float) -> float:
    """Return a number rounded to a float32."""
    return math.copysign(math.inf, value) if abs(value) > _LARGEST else struct.unpack("f", struct.pack("f", value))[0]


def _see_to_its_end(client: Client, job: Job, timeout: float | None, as_json: bool) -> None:
    INTERRUPTS.left_behind = f"job {job.id} continues; wait for it with: apsp wait {job.id} --server {client.url}"
    with JobDisplay(sys.stderr) as watch:
        job.wait(timeout, watch)
    INTERRUPTS.left_behind = f"job {job.id} is over"
    if job.state != "successful":
        if as_json:
            emit_json(job.facts)
        job.result()  # this raises the error with which the job failed
    result = job.result()
    if as_json:
        emit_json({**job.facts, "summary": result.summary()})
    else:
        unit = None if result.facts["result"] in ("betweenness", "flows") else unit_of_facts(result.facts)
        emit([*_lines(job), *summary_lines(result.summary(), unit)])


def _lines(job: Job) -> list[str]:
    """Return the description of a job in aligned lines."""
    facts = job.facts
    rows = [("state", f"{job.state}, {facts['phase']}" if not job.over else job.state)]
    if facts["name"]:
        rows.insert(0, ("name", str(facts["name"])))
    if not job.over:
        rows.append(("done", f"{100 * job.progress:.0f} %"))
    if facts.get("queue_position"):
        rows.append(("before it", counted(facts["queue_position"], "jobs")))
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
