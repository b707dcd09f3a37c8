"""Gathers the content of pages as plain data; templates only lay it out."""

from __future__ import annotations

import shutil
from typing import Any, Final

from service.api.fault import Refused, TooMuchComputing
from service.api.problems import CODES
from service.dashboard.charts import counted, histogram
from service.dashboard.downloads import downloads
from service.dashboard.phases import algorithm, phase_views, phase_word
from service.dashboard.visiting import Visitor
from service.jobs.checkpoints import resumable
from service.jobs.joblog import fetch_log, log_path
from service.pool.job_points import receipt_of
from service.pool.tasks import wants_prepared
from service.state import Service, silent
from service.views.matrix_summary import compared, flow_facts, value_facts
from storage.errors import ApspError, Gone, LimitExceeded, NotFound, StorageFailed
from storage.graph.units import measured
from storage.jobs.store import (
    ACCEPTED,
    DISMISSED,
    FAILED,
    OVER,
    RUNNING,
    SUCCESSFUL,
    GraphRecord,
    JobFilter,
    JobRecord,
    RunnerRecord,
)
from storage.semirings import MIN_PLUS, SEMIRINGS

View = dict[str, Any]

#: the most finished jobs on one page
PAGE: Final = 20
_MOST_OPEN: Final = 50
#: the most waiting jobs on the first page, which are the next to run
_MOST_NEXT: Final = 10
#: bytes at the end of a log that a page shows first
_LOG_TAIL: Final = 16_384
#: the most entries of a prepared result whose pairs a page counts without a click; counting them takes about 0.1 s
_COUNTED: Final = 1 << 24
#: defaults for members that records of earlier versions lack
_NO_FACTS: Final = {
    "directed": True, "weak_components": None, "strong_components": None, "first_vertex": None,
    "last_vertex": None, "quantities": (),
}  # fmt: skip
_NO_WEIGHTS: Final = {
    "weighted": True, "column": None, "length_of": None, "integral": True, "smallest": None, "largest": None, "zero": 0,
    "negative": 0,
}  # fmt: skip
_NO_RECEIPT: Final = {
    "format": "?", "compression": None, "entries": 0, "self_loops": 0, "parallel_arcs": 0, "infinite_arcs": 0,
    "notes": (),
}  # fmt: skip
#: what the pages call each kind of result
_KINDS: Final = {
    "prepared": "prepared graph", "measures": "measures", "near": "near pairs", "betweenness": "betweenness",
    "flows": "flows",
}  # fmt: skip
#: algorithms that make only one kind of result; pages show this kind, because the algorithm's name says nothing more
_OWN: Final = {"prepared": "prepared", "near": "near", "betweenness": "betweenness", "assignment": "flows"}
STATES: Final = {
    ACCEPTED: "waiting", RUNNING: "running", SUCCESSFUL: "done", FAILED: "failed", DISMISSED: "cancelled",
}  # fmt: skip
#: the choices of the filter by state: the value that is sent, and the text that is shown
FILTERS: Final = (("", "all states"), *STATES.items())


def home(visitor: Visitor, before: str | None) -> View:
    """Return the jobs by state, the newest first, the devices and the disk.

    Args:
        visitor: the person who asks.
        before: show only finished jobs that are older than the job of this id; None for the newest.
    """
    owner = visitor.owner
    names = _graph_names(visitor.service, owner)
    listed = visitor.service.jobs.list_jobs
    over = listed(PAGE + 1, owner=owner, state=OVER, before=before)
    running = listed(_MOST_OPEN, owner=owner, state=RUNNING)
    queue = JobFilter((ACCEPTED,), owner)
    waiting = visitor.service.jobs.find_jobs(queue, _MOST_NEXT)
    return {
        "running": [row(record, names) for record in running],
        "waiting": [row(record, names, visitor.service.jobs.queue_position(record)) for record in waiting],
        "queued": visitor.service.jobs.count_jobs(queue),
        "over": [row(record, names) for record in over[:PAGE]],
        "older": over[PAGE - 1].id if len(over) > PAGE else None,
        "paged": before is not None,
        "graphs": [_graph_row(record) for record in visitor.service.keys.list_graphs(5, owner)],
        **machines(visitor.service),
    }


def found_jobs(visitor: Visitor, wanted: JobFilter, most: int, before: str | None) -> View:
    """Return the jobs that a search finds, and how many there are.

    Args:
        visitor: the person who asks.
        wanted: the filter that the jobs pass.
        most: jobs on one page.  If ``wanted`` is for waiting jobs only, they are on a single page in the order of the
            queue, at most ten times as many.
        before: only jobs older than the job of this id.
    """
    store, names = visitor.service.jobs, _graph_names(visitor.service, visitor.owner)
    queue = wanted.states == (ACCEPTED,)
    limit = 10 * most if queue else most
    found = store.find_jobs(wanted, limit + 1, None if queue else before)
    rows = [row(record, names, store.queue_position(record) if record.state == ACCEPTED else None)
            for record in found[:limit]]  # fmt: skip
    return {
        "jobs": rows, "count": store.count_jobs(wanted), "paged": before is not None and not queue,
        "older": found[limit - 1].id if len(found) > limit and not queue else None,
    }  # fmt: skip


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
    found = _graph_of(visitor, record)
    names = {} if found is None or found.name is None else {found.id: found.name}
    position = visitor.service.jobs.queue_position(record) if record.state == ACCEPTED else None
    return {
        "job": row(record, names, position), "record": record, "graph": found,
        "plan": plan(record.plan) if record.plan else None, "phases": phase_views(record),
        "resumable": resumable(visitor.service.settings, record),
        "log": _log(visitor.service, record), "result": _result(visitor, record),
        "example": _example(record, found), "opening": _opening(record, found),
        "measured": measured_in(found, record.options),
        "notes": () if found is None else found.receipt.get("notes", ()),
        "options": _said_options(record),
        "points": receipt_of(record.options.get("points")) or {},
    }  # fmt: skip


def _said_options(record: JobRecord) -> View:
    """Return the options that differ from their defaults, by name, for the page to show."""
    usual = (None, "auto", "matrix", "local")
    said = {name: value for name, value in record.options.items() if value not in usual and name != "points"}
    for name, value in said.items():
        if isinstance(value, list) and value and all(isinstance(one, float) for one in value):
            said[name] = [f"{one:,.7g}" for one in value]
    if "algorithm" in said:
        said["algorithm"] = algorithm(said["algorithm"])
    return said


def _graph_of(visitor: Visitor, record: JobRecord) -> GraphRecord | None:
    """Return the graph of a job; None if it was deleted."""
    try:
        return visitor.graph(record.graph)
    except (NotFound, Gone):
        return None


def _measured(visitor: Visitor, job_id: str) -> str:
    record = visitor.job(job_id)
    return measured_in(_graph_of(visitor, record), record.options)


def eccentricities(visitor: Visitor, job_id: str) -> View:
    """Return the eccentricities of all sources, or of evenly spaced ones."""
    from service.views.pictures.sampling import eccentricities

    found = eccentricities(visitor.service.result(job_id, visitor.caller), 1024)
    facts = zip(found["sources"], found["eccentricities"], found["central"], strict=True)
    known = sorted(((name, value, near) for name, value, near in facts if value is not None), key=lambda item: item[1])
    values = [value for _, value, _ in known]
    central = [(name, value) for name, value, near in known if near]
    return {
        "of": found["of"], "complete": found["complete"], "looked": len(found["sources"]),
        "measured": _measured(visitor, job_id),
        "alone": len(found["sources"]) - len(known),
        "chart": histogram(*counted(values, min(48, len(set(values))))) if values else None,
        "central": central[:5], "compared": len(central), "remote": [(n, e) for n, e, _ in known[::-1]][:5],
    }  # fmt: skip


def row(record: JobRecord, names: dict[str, str], position: int | None = None) -> View:
    """Return the facts of a job for its line in a list."""
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
        "phase": phase_word(record.phase), "stopping": record.cancel and record.open,
        "fraction": progress.fraction, "rate": progress.rate, "unit": progress.unit, "eta": progress.eta,
        "position": position, "error": error, "created": record.created, "started": record.started,
        "finished": record.finished, "took": took, "bytes": record.bytes, "removed": record.removed,
        "algorithm": "" if shown.get("algorithm") in _OWN else algorithm(shown.get("algorithm", "")),
        "kind": kind(record), "shape": shown.get("shape"), "dtype": shown.get("dtype"),
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


def kind(record: JobRecord) -> str:
    """Return a word for what a job makes; the empty text for a matrix of distances, which most jobs make.

    The records of a list have no options, so what a job makes follows from its plan, or from the columns of its table.
    """
    semiring = SEMIRINGS.get(record.options.get("semiring", ""))
    if semiring is not None:
        return semiring.title
    usual = "measures" if (record.summary or {}).get("columns") else ""
    planned = _OWN.get((record.plan or {}).get("algorithm", ""), usual)
    return _KINDS.get(record.options.get("result", planned), "")


def measured_in(graph: GraphRecord | None, options: View) -> str:
    """Return what the values of a job's result measure, as ``storage.graph.units.measured`` says it."""
    facts = {} if graph is None else graph.facts
    weights = {**_NO_WEIGHTS, **facts.get("weights", {})}
    semiring = SEMIRINGS.get(options.get("semiring") or MIN_PLUS)
    if semiring is None or not semiring.measures(weighted=weights["weighted"]):
        return ""
    column = weights["column"] if weights["length_of"] is None else None
    return measured(facts.get("unit"), column, weighted=weights["weighted"])


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


def _log(service: Service, record: JobRecord) -> View:
    """Return the end of the log, and its size, from which the stream of events continues.

    The events contain only the log file on this node.  If this node has no log file, the page shows the log from
    other nodes, and the events start at the beginning of the file.
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
    """Return the end of the log that a runner of another node has sent to the object store."""
    try:
        sent = fetch_log(service.settings, record.id) or b""
    except StorageFailed as error:  # the rest of the page is useful without the log
        return {"text": f"The log cannot be read: {error}\n", "cut": False}
    begin = max(0, len(sent) - _LOG_TAIL)
    text = sent[begin:].decode("utf-8", "replace")
    return {"text": text.partition("\n")[2] if begin else text, "cut": begin > 0}


def all_pairs(visitor: Visitor, job_id: str) -> View:
    """Return the summary of all pairs, which a prepared result computes now, or why the pairs cannot be counted."""
    try:
        summary = visitor.service.result(job_id, visitor.caller).counted()
    except (LimitExceeded, TooMuchComputing, Refused) as error:
        return {"refused": str(error), "result": None}
    return {"refused": None, "result": _summary_facts(summary), "measured": _measured(visitor, job_id)}


def _result(visitor: Visitor, record: JobRecord) -> View | None:
    """Return the facts of the result of a job; None if there is no result."""
    if record.state != SUCCESSFUL or record.removed is not None:
        return None
    summary, made = record.summary or {}, wants_prepared(record.options)
    known = _known(visitor, record) if made else None
    across = (record.plan or {}).get("shape") or (0, 0)
    return {
        **_summary_facts(summary if known is None else known), "bytes": record.bytes, "prepared": made,
        "counted": known is not None, "small": across[0] * across[1] <= _COUNTED,
        "kind": record.options.get("result", "matrix"), "map": _map_of(visitor, record),
        **value_facts(record.options, summary), **_table_facts(summary, visitor.service.settings.max_cells),
        "downloads": downloads(record, visitor.service.settings.max_cells),
    }  # fmt: skip


def _known(visitor: Visitor, record: JobRecord) -> dict[str, Any] | None:
    """Return the summary of a prepared result if it has been counted already."""
    try:
        digest = visitor.service.result(record.id, visitor.caller).matrix.digest
    except ApspError:  # errors of the result are shown where its page loads the result
        return None
    return visitor.service.answering.summaries.known(digest)


def _summary_facts(summary: dict[str, Any]) -> View:
    found = summary.get("histogram") or {}
    return {
        **{name: summary.get(name) for name in ("pairs", "reached", "mean", "diameter", "radius", "center", "sum")},
        "compared": compared(summary), "pair": summary.get("diameter_pair"),
        "histogram": histogram(found.get("edges") or [], found.get("counts") or []),
        "below_zero": found.get("below_zero", 0),
    }  # fmt: skip


def _map_of(visitor: Visitor, record: JobRecord) -> str | None:
    """Return where the vertices on a result's map come from, ``coordinates`` or ``layout``; None if it has no map."""
    try:
        found = visitor.service.result(record.id, visitor.caller)
    except ApspError:  # errors are shown where the page loads the result
        return None
    if found.table:
        return None
    return "layout" if found.laid_out else "coordinates" if found.matrix.placed else None


def _table_facts(summary: dict[str, Any], most: int) -> View:
    """Return the numbers of rows and columns of a table, and whether the table has at most ``most`` entries.

    Such a table fits in one answer.
    """
    rows, columns = summary.get("rows", 0), len(summary.get("columns", ()))
    flows = flow_facts(summary) if "assigned" in summary else []
    return {"rows": rows, "columns": columns, "most": most, "whole": rows * columns <= most, "flows": flows}


def _example(record: JobRecord, graph: GraphRecord | None) -> list[Any]:
    """Return two existing vertices, for examples of code."""
    pair = (record.summary or {}).get("diameter_pair")
    facts = {} if graph is None else graph.facts
    return pair or [facts.get("first_vertex", "A"), facts.get("last_vertex", "B")]


def _opening(record: JobRecord, graph: GraphRecord | None) -> View | None:
    """Return the pair of vertices whose path the page of a result shows first, and why; None to show no path."""
    pair = (record.summary or {}).get("diameter_pair")
    if pair:
        return {"pair": pair, "why": "Shown first: the pair that is farthest apart."}
    facts = {} if graph is None else graph.facts
    whole = not (record.options.get("sources") or record.options.get("targets"))
    if whole and facts.get("first_vertex") is not None and facts.get("last_vertex") is not None:
        return {
            "pair": [facts["first_vertex"], facts["last_vertex"]],
            "why": "Shown first: the ends of the list of names.",
        }
    return None
