"""Gathers the content of pages as plain data; templates only lay it out."""

from __future__ import annotations

import shutil
from typing import Any, Final

from engine.model.algorithms import ALGORITHMS
from service.api.problems import CODES
from service.dashboard.charts import counted, histogram
from service.dashboard.visiting import Visitor
from service.jobs.checkpoints import resumable
from service.jobs.joblog import fetch_log, log_path
from service.pool.tasks import wants_prepared
from service.state import Service, silent
from service.views.matrix_summary import compared
from storage.errors import ApspError, Gone, NotFound, StorageFailed
from storage.jobs.store import (
    ACCEPTED,
    DISMISSED,
    FAILED,
    OVER,
    RUNNING,
    SUCCESSFUL,
    GraphRecord,
    JobRecord,
    RunnerRecord,
)

View = dict[str, Any]

#: finished jobs on one page
PAGE: Final = 20
_MOST_OPEN: Final = 50
#: bytes at the end of a log that a page shows first
_LOG_TAIL: Final = 16_384
#: defaults for members that records of earlier versions lack
_NO_FACTS: Final = {
    "directed": True, "weak_components": None, "strong_components": None, "first_vertex": None,
    "last_vertex": None,
}  # fmt: skip
_NO_WEIGHTS: Final = {
    "weighted": True, "column": None, "length_of": None, "integral": True, "smallest": None, "largest": None, "zero": 0,
    "negative": 0,
}  # fmt: skip
_NO_RECEIPT: Final = {
    "format": "?", "compression": None, "entries": 0, "self_loops": 0, "parallel_arcs": 0, "infinite_arcs": 0,
    "notes": (),
}  # fmt: skip
STATES: Final = {
    ACCEPTED: "waiting", RUNNING: "running", SUCCESSFUL: "done", FAILED: "failed", DISMISSED: "cancelled",
}  # fmt: skip
_PHASES: Final = {
    "queued": "waiting for a runner", "loading": "reading the graph", "create": "making space", "search": "searching",
    "ingest": "taking the arcs in", "potentials": "making weights non-negative", "prepare": "preparing",
    "partition": "cutting into parts", "sweep": "sweeping", "close": "closing blocks", "load": "loading",
    "store": "storing", "finish": "finishing", "relax": "relaxing", "write": "writing", "verify": "checking",
    "seal": "checking and sealing", "dismissed": "cancelled",
}  # fmt: skip


def home(visitor: Visitor, before: str | None) -> View:
    """Return the jobs by state, the newest first (finished ones before that of id ``before``), devices and the disk."""
    owner = visitor.owner
    names = _graph_names(visitor.service, owner)
    listed = visitor.service.jobs.list_jobs
    over = listed(PAGE + 1, owner=owner, state=OVER, before=before)
    running, waiting = (listed(_MOST_OPEN, owner=owner, state=state) for state in (RUNNING, ACCEPTED))
    waiting_rows = [row(record, names, visitor.service.jobs.queue_position(record)) for record in waiting]
    return {
        "running": [row(record, names) for record in running],
        "waiting": sorted(waiting_rows, key=lambda item: item["position"]),
        "over": [row(record, names) for record in over[:PAGE]],
        "older": over[PAGE - 1].id if len(over) > PAGE else None,
        "paged": before is not None,
        "graphs": [_graph_row(record) for record in visitor.service.keys.list_graphs(5, owner)],
        **machines(visitor.service),
    }


def machines(service: Service) -> View:
    """Return the devices with their memory, and the disk on which results are stored."""
    runners = service.jobs.list_runners()
    disk = shutil.disk_usage(service.settings.data_dir)
    return {
        "devices": [_device(runner, silent(runner, service.settings)) for runner in runners],
        "disk": {"used": disk.used, "total": disk.total, "free": disk.free},
    }


def graph(visitor: Visitor, graph_id: str) -> View:
    """Return one graph and its jobs."""
    record = visitor.graph(graph_id)
    owner = visitor.owner
    name = _graph_names(visitor.service, owner).get(record.id) or record.name
    jobs = visitor.service.jobs.list_jobs(10, graph=graph_id, owner=owner)
    return {
        "graph": record, "title": name or f"Graph {record.id[:8]}", "jobs": [row(job, {}) for job in jobs],
        "facts": {**_NO_FACTS, **record.facts, "weights": {**_NO_WEIGHTS, **record.facts.get("weights", {})}},
        "receipt": {**_NO_RECEIPT, **record.receipt},
    }  # fmt: skip


def job(visitor: Visitor, job_id: str) -> View:
    """Return one job: state, phases, plan, error, and the summary of its result."""
    record = visitor.job(job_id)
    try:
        found: GraphRecord | None = visitor.graph(record.graph)
    except (NotFound, Gone):
        found = None
    names = {} if found is None or found.name is None else {found.id: found.name}
    position = visitor.service.jobs.queue_position(record) if record.state == ACCEPTED else None
    return {
        "job": row(record, names, position), "record": record, "graph": found,
        "plan": plan(record.plan) if record.plan else None, "phases": _phases(record),
        "resumable": resumable(visitor.service.settings, record),
        "log": _log(visitor.service, record), "result": _result(record, visitor.service.settings.max_cells),
        "example": _example(record, found),
        "notes": () if found is None else found.receipt.get("notes", ()),
        "options": {k: v for k, v in record.options.items() if v not in (None, "auto", "matrix")},
    }  # fmt: skip


def answer(visitor: Visitor, job_id: str, source: str, target: str) -> View:
    """Return the distance and the route from one vertex to another, or why there is no answer.

    Args:
        visitor: the person who asks.
        job_id: id of the job.
        source, target: vertices as the file names them.
    """
    try:
        result = visitor.service.result(job_id, visitor.caller)
        found = result.distance(source, target)
        if not found["reachable"]:
            return {"source": source, "target": target, "distance": None, "route": None, "refused": None}
        route = _route(result.path(source, target))
    except ApspError as error:
        return {"source": source, "target": target, "refused": str(error)}
    return {"source": source, "target": target, "distance": found["distance"], "route": route, "refused": None}


def eccentricities(visitor: Visitor, job_id: str) -> View:
    """Return the eccentricities of all sources, or of evenly spaced ones."""
    from service.views.sampling import eccentricities

    found = eccentricities(visitor.service.result(job_id, visitor.caller), 1024)
    facts = zip(found["sources"], found["eccentricities"], found["central"], strict=True)
    known = sorted(((name, value, near) for name, value, near in facts if value is not None), key=lambda item: item[1])
    values = [value for _, value, _ in known]
    central = [(name, value) for name, value, near in known if near]
    return {
        "of": found["of"], "complete": found["complete"], "looked": len(found["sources"]),
        "alone": len(found["sources"]) - len(known),
        "chart": histogram(*counted(values, min(48, len(set(values))))) if values else None,
        "central": central[:5], "compared": len(central), "remote": [(n, e) for n, e, _ in known[::-1]][:5],
    }  # fmt: skip


def row(record: JobRecord, names: dict[str, str], position: int | None = None) -> View:
    """Return one job in a list.

    Args:
        record: the stored job.
        names: names of graphs by id.
        position: jobs before it in the queue.
    """
    progress, shown = record.progress, record.plan or {}
    error = None
    if record.error is not None:
        title = CODES.get(record.error["code"], (500, "Unexpected error"))[1]
        said = record.error
        error = {"title": title, "detail": said["message"], "code": said["code"], "details": said.get("details", {})}
    took = record.finished - record.started if record.finished and record.started else None
    return {
        "id": record.id, "title": record.name or names.get(record.graph) or f"Job {record.id[-8:]}",
        "state": record.state, "word": STATES[record.state], "open": record.open,
        "phase": _PHASES.get(record.phase, record.phase), "stopping": record.cancel and record.open,
        "fraction": progress.fraction, "rate": progress.rate, "unit": progress.unit, "eta": progress.eta,
        "position": position, "error": error, "created": record.created, "started": record.started,
        "finished": record.finished, "took": took, "bytes": record.bytes, "removed": record.removed,
        "algorithm": algorithm(shown.get("algorithm", "")), "shape": shown.get("shape"), "dtype": shown.get("dtype"),
        "device": shown.get("device"), "attempt": record.attempt,
    }  # fmt: skip


def plan(shown: dict[str, Any]) -> View:
    """Return a plan with its selected and rejected candidates."""
    candidates = [
        {**item, "name": algorithm(item["algorithm"]), "chosen": k == 0 and not item.get("rejected")}
        for k, item in enumerate(shown.get("candidates") or [])
    ]
    slowest = max((item["seconds"] for item in candidates if item.get("feasible", True)), default=0.0) or 1.0
    for item in candidates:
        item["share"] = min(1.0, item["seconds"] / slowest)
    return {**shown, "name": algorithm(shown["algorithm"]), "candidates": candidates}


def algorithm(name: str) -> str:
    """Return the display name of an algorithm."""
    return ALGORITHMS[name].title if name in ALGORITHMS else name


def _graph_names(service: Service, owner: str | None) -> dict[str, str]:
    return {record.id: record.name for record in service.keys.list_graphs(200, owner) if record.name}


def _graph_row(record: GraphRecord) -> View:
    return {"id": record.id, "title": record.name or f"Graph {record.id[:8]}", "n": record.n, "m": record.m}


def _device(runner: RunnerRecord, lost: bool) -> View:
    figures = runner.figures or {}
    memory = figures.get("memory") or {}
    words = {"idle": "ready", "busy": "busy", "sick": "out of service"}
    return {
        "runner": runner.slot, "name": figures.get("name"), "state": "silent" if lost else runner.state,
        "word": "silent" if lost else words.get(runner.state, runner.state),
        "reason": "gives no sign of life" if lost else runner.detail if runner.state == "sick" else None,
        "used": memory.get("used"), "limit": memory.get("limit"),
    }  # fmt: skip


def _phases(record: JobRecord) -> list[View]:
    """Return the phases of the plan with predicted and measured seconds, and whether each is past, current or ahead."""
    predicted = {phase["name"]: phase["seconds"] for phase in (record.plan or {}).get("phases") or []}
    taken = record.seconds or {}
    names = list(taken) if taken else list(predicted)
    here = names.index(record.phase) if record.phase in names else len(names) if record.phase == "seal" else -1
    found = []
    for k, name in enumerate(names):
        past = record.state == SUCCESSFUL or (record.open and k < here)
        state = "past" if past else "now" if record.open and k == here else "ahead"
        shown = {"name": _PHASES.get(name, name), "predicted": predicted.get(name), "taken": taken.get(name)}
        found.append({**shown, "state": state})
    return found


def _log(service: Service, record: JobRecord) -> View:
    """Return the end of the log, and its size, from which the stream of events continues.

    Events cover the file on this node only, so after the log of other nodes they start at its beginning.
    """
    path = log_path(service.settings, record.id)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            begin = max(0, size - _LOG_TAIL)
            file.seek(begin)
            text = file.read(size - begin).decode("utf-8", "replace")
    except OSError:
        return {**_sent_log(service, record), "size": 0}
    return {"text": text.partition("\n")[2] if begin else text, "cut": begin > 0, "size": size}


def _sent_log(service: Service, record: JobRecord) -> View:
    """Return the end of the log of attempts on other nodes."""
    try:
        sent = fetch_log(service.settings, record.id) or b""
    except StorageFailed as error:  # the rest of the page is useful without the log
        return {"text": f"The log cannot be read: {error}\n", "cut": False}
    begin = max(0, len(sent) - _LOG_TAIL)
    text = sent[begin:].decode("utf-8", "replace")
    return {"text": text.partition("\n")[2] if begin else text, "cut": begin > 0}


def _result(record: JobRecord, most: int) -> View | None:
    """Return the facts of an existing result; one answer has at most ``most`` entries."""
    if record.state != SUCCESSFUL or record.removed is not None:
        return None
    summary = record.summary or {}
    found = summary.get("histogram") or {}
    return {
        **{name: summary.get(name) for name in ("pairs", "reached", "mean", "diameter", "radius", "center", "sum")},
        "compared": compared(summary), "pair": summary.get("diameter_pair"), "bytes": record.bytes,
        "histogram": histogram(found.get("edges") or [], found.get("counts") or []),
        "below_zero": found.get("below_zero", 0), "prepared": wants_prepared(record.options),
        "kind": record.options.get("result", "matrix"), **_table_facts(summary, most),
    }  # fmt: skip


def _table_facts(summary: dict[str, Any], most: int) -> View:
    """Return rows and columns of a table, and whether all of it goes into one answer of ``most`` entries."""
    rows, columns = summary.get("rows", 0), len(summary.get("columns", ()))
    return {"rows": rows, "columns": columns, "most": most, "whole": rows * columns <= most}


def _example(record: JobRecord, graph: GraphRecord | None) -> list[Any]:
    """Return two existing vertices, for examples of code."""
    pair = (record.summary or {}).get("diameter_pair")
    facts = {} if graph is None else graph.facts
    return pair or [facts.get("first_vertex", "A"), facts.get("last_vertex", "B")]


def _route(found: dict[str, Any]) -> View:
    """Return a path as a list of stops, each with the sum of weights up to it; the middle of a long path is left
    out.
    """
    so_far: int | float = 0
    stops: list[View] = []
    for k, vertex in enumerate(found["vertices"]):
        weight = found["weights"][k - 1] if k else None
        so_far = so_far if weight is None else so_far + weight
        stops.append({"vertex": vertex, "weight": weight, "so_far": so_far})
    most = 60
    left_out = max(0, len(stops) - most)
    if left_out:
        stops = [*stops[: most // 2], *stops[-(most // 2) :]]
    return {"stops": stops, "arcs": len(found["weights"]), "left_out": left_out, "gap": most // 2 if left_out else None}
