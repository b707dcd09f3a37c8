"""Tasks of the helper processes: read an uploaded graph or table, plan a job."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from service.options import TableOptions
from service.pool.tabled import TableTask, check_request, wants_table
from storage.counted import counted
from storage.errors import DoesNotFit, InvalidRequest, LimitExceeded, NotFound
from storage.options import declared

if TYPE_CHECKING:
    from engine.graph.profile import GraphProfile
    from engine.model.plan import Plan
    from engine.model.problem import Options
    from service.settings import Settings
    from storage.graph.graph import Graph


#: members of a request that are no options of the engine
_NOT_OF_ENGINE: Final = frozenset({"result", "snap_limit", "points", *declared(TableOptions)})
#: pairs of texts: the command that a refusal of the engine advises, and the job that the service advises instead
_WAYS_OUT: Final = (
    ("(apsp prepare answers", '(a job with "result": "prepared" answers'),
    ("(apsp measure:", '(a job with "result": "measures":'),
    ("apsp near --cutoff keeps", 'a job with "result": "near" keeps'),
)


def warm_up() -> None:
    """Import the modules that the tasks need, so that the first request does not wait for them."""
    for name in ("engine.api.solve", "service.views.graph_summary", "storage.readers"):
        importlib.import_module(name)


def read_upload(settings: Settings, path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Read the uploaded file and save its graph.  Return the columns of the graph's record, without name and time of
    creation.

    Args:
        settings: the service's settings.
        path: the uploaded file.
        request: arguments of ``read_graph`` by name.

    Raises:
        ApspError: the errors of ``storage.readers.read_graph``, such as InvalidGraph.
        LimitExceeded: the file or the graph is larger than the settings allow.
    """
    from service.settings import variable
    from service.views.graph_summary import graph_facts
    from storage.graph.graph_store import GraphStore
    from storage.readers import ReadLimits, read_graph

    limits = ReadLimits(
        max_bytes=settings.max_graph_bytes,
        max_ratio=settings.max_ratio,
        max_vertices=settings.max_vertices,
        max_arcs=settings.max_arcs,
    )
    try:
        graph, receipt = read_graph(path, limits=limits, **request)
    except LimitExceeded as error:
        setting = variable({"max_bytes": "max_graph_bytes"}.get(error.setting, error.setting))
        raise LimitExceeded(str(error), limit=error.limit, requested=error.requested, setting=setting) from None
    graph_id, digest = GraphStore(settings.data_dir, settings.store_url).add(graph, receipt)
    facts = graph_facts(graph, receipt)
    return {"id": graph_id, "digest": digest, "n": graph.n, "m": graph.m, "facts": facts, "receipt": asdict(receipt)}


def read_table_upload(path: Path, most_rows: int, most_columns: int, holds: str = "opportunities") -> None:
    """Check an uploaded table, and write it as Parquet into a file beside ``path`` that ends in ``-normal.parquet``.

    Args:
        path: the uploaded file.
        most_rows, most_columns: the most rows, and the most columns of numbers, that the table may have.
        holds: ``opportunities`` or ``demands``.

    Raises:
        InvalidRequest, LimitExceeded: raised by ``storage.tables.uploaded.normal_table``.
    """
    from service.settings import variable
    from storage.tables.uploaded import normal_table

    try:
        normal_table(path, most_rows, most_columns, holds)
    except LimitExceeded as error:
        setting = variable(error.setting) if error.setting in ("max_vertices", "max_arcs") else error.setting
        raise LimitExceeded(str(error), limit=error.limit, requested=error.requested, setting=setting) from None


def plan_job(settings: Settings, graph_id: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of a job as JSON types.

    Args:
        settings: the service's settings.
        graph_id: id of the graph.
        request: options of the job, as stored with it.

    Raises:
        InvalidRequest: options that make no sense, a source or target that is no vertex.
        NegativeCycle, DoesNotFit: the job cannot be done.
        Gone, Conflict, StorageFailed: the prepared result that ``request`` names is gone, has different weights, or is
            damaged.
    """
    from engine.api.solve import make_plan
    from engine.graph.profile import GraphProfile
    from service.runner.gpus import see_those_of_a_runner
    from storage.graph.graph_store import GraphStore

    check_request(request, settings)
    kept, _ = GraphStore(settings.data_dir, settings.store_url).load(graph_id)
    graph = with_asked(kept, request, settings)
    options, out = job_options(graph, request, settings), settings.store("new")
    if wants_table(request):
        with TableTask(GraphProfile(graph), request, options, settings) as task:
            return task.plan(out).to_dict()
    if wants_prepared(request):
        return prepared_plan(graph, options, out).to_dict()
    see_those_of_a_runner(settings)
    try:
        return make_plan(graph, options, out=out).to_dict()
    except DoesNotFit as refusal:
        raise _said_here(refusal) from None


def with_asked(graph: Graph, request: Mapping[str, Any], settings: Settings) -> Graph:
    """Return the graph with the quantities that a job sums along its paths, in the order of the request.

    All other quantities are left out, so that the graph has the digest of a graph uploaded without their columns.

    Args:
        graph: the graph, with all quantities of its upload.
        request: options of the job, as stored with it.
        settings: the service's settings.

    Raises:
        InvalidRequest: the graph has no such quantity, a quantity is named twice, or results are in an object store,
            which cannot hold the arrays of sums.
    """
    names = request.get("also") or []
    if not names and not graph.quantities:
        return graph
    for name in names:
        if name not in graph.quantities:
            there = ", ".join(graph.quantities) or "none, as its upload named no columns (also)"
            raise InvalidRequest(f"also: the graph has no quantity {name!r}; it has {there}", field="also")
        if names.count(name) > 1:
            raise InvalidRequest(f"also: quantity {name!r} is named twice", field="also")
    if names and settings.store_url is not None:
        raise InvalidRequest(
            f"further arrays ({', '.join(names)}) are written into folders only, and this service keeps results in an "
            "object store (APSP_STORE_URL); leave out also",
            field="also",
        )
    return replace(graph, quantities={name: graph.quantities[name] for name in names})


def wants_prepared(request: Mapping[str, Any]) -> bool:
    """Return whether a job request, as stored with the job, asks for a prepared graph."""
    return request.get("result") == "prepared"


def prepared_plan(graph: Graph | GraphProfile, options: Options, out: Path) -> Plan:
    """Return the plan of a job whose result is a prepared graph.

    Args:
        graph: the graph, or its profile.
        options: as :func:`job_options` returns them.
        out: the folder in which the prepared graph is made.

    Raises:
        InvalidRequest: an option asks for something that a prepared graph does not support.
        NegativeCycle, DoesNotFit: raised by ``plan_prepared``.
    """
    from engine.api.prepared_planning import plan_prepared

    return plan_prepared(graph, options, out=out)


def _said_here(refusal: DoesNotFit) -> DoesNotFit:
    """Return the engine's refusal with the commands that it advises replaced by jobs."""
    message, reason = str(refusal), refusal.reason
    for command, job in _WAYS_OUT:
        message, reason = message.replace(command, job), reason.replace(command, job)
    return DoesNotFit(
        message,
        resource=refusal.resource,
        needed=refusal.needed,
        available=refusal.available,
        candidates=refusal.candidates,
        remedies=refusal.remedies,
        reason=reason,
    )


def job_options(graph: Graph, request: dict[str, Any], settings: Settings) -> Options:
    """Return the engine's options of a job request.  Vertices become indices, and budgets are limited to those of the
    service.

    Args:
        graph: the graph to solve.
        request: options of the job, as stored with it.
        settings: the service's settings.
    """
    from engine.model.problem import Options
    from service.runner.gpus import beside_short

    values = {
        **{name: value for name, value in request.items() if name not in _NOT_OF_ENGINE},
        "also": tuple(request.get("also") or ()),
        "sources": _indices(graph, request, "sources"),
        "targets": _indices(graph, request, "targets"),
        "memory": _least(request.get("memory"), settings.memory, beside_short(settings)),
        "threads": _least(request.get("threads"), settings.threads),
    }
    if request.get("executor") == "dask":
        if settings.scheduler is None:
            raise InvalidRequest("executor dask is not offered: the service has no scheduler", field="executor")
        values["scheduler"] = settings.scheduler
    return Options(**values)


def _indices(graph: Graph, request: dict[str, Any], field: str) -> tuple[int, ...] | None:
    """Return the vertices that a request names in ``field``, each once; raise InvalidRequest for an unknown name."""
    from storage.graph.graph import index_of

    names = request.get(field)
    if names is None:
        return None
    if len(names) > graph.n:
        message = f"{len(names)} {field} are named, and the graph has {counted(graph.n, 'vertices')}"
        raise LimitExceeded(message, limit=graph.n, requested=len(names), setting=field)
    try:
        return tuple(dict.fromkeys(index_of(graph, name) for name in names))
    except NotFound as error:
        raise InvalidRequest(f"{field}: {error}", field=field) from None


def _least(*limits: int | None) -> int | None:
    return min((value for value in limits if value is not None), default=None)
