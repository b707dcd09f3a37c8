"""Pages that list jobs and graphs, with search and filters.

The module also adds the example graph, and suggests names of vertices while one is typed.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from service.dashboard import page_data
from service.dashboard.render import HERE, page
from service.dashboard.visiting import Known, PageRoute, Visitor
from service.jobs.reading import GraphUpload, keep_graph
from service.jobs.submission import refuse_if_draining
from service.state import ReadPermit
from storage.jobs.store import ACCEPTED, JobFilter
from storage.semirings import EVERY

router = APIRouter(include_in_schema=False, route_class=PageRoute)

#: the most jobs or graphs on one page of a list
_PAGE: Final = 50
#: the most waiting jobs that one request cancels
_MOST_CANCELLED: Final = 10_000
#: the graph that an empty service offers, and its name
_EXAMPLE: Final = HERE / "examples" / "helsinki.csv"
_EXAMPLE_NAME: Final = "Helsinki"
#: the most names that are suggested for a typed text
_NAMES: Final = 8

State = Literal["", "accepted", "running", "successful", "failed", "dismissed"]
Words = Annotated[str, Query(max_length=200)]


@router.get("/jobs")
def get_jobs(
    *, request: Request, visitor: Known, q: Words = "", state: State = "",
    before: Annotated[str | None, Query(max_length=60)] = None,
) -> Response:  # fmt: skip
    """Return the jobs that a search finds, the newest first; a list of waiting jobs only is in the order of the queue.

    Args:
        q: part of the name of the job or of its graph, or of an id.
        state: the state of the jobs; empty for all states.
        before: show jobs that are older than the job of this id.
    """
    wanted = JobFilter((state,) if state else (), visitor.owner, q.strip())
    found = page_data.found_jobs(visitor, wanted, _PAGE, before)
    return page(request, "jobs.html", visitor=visitor, **found, q=q.strip(), state=state, filters=page_data.FILTERS)


@router.post("/jobs/cancel")
async def cancel_waiting(request: Request, visitor: Known) -> Response:
    """Cancel all waiting jobs that the visitor may see."""
    visitor.need("submit")
    await request.body()
    await anyio.to_thread.run_sync(_cancel_waiting, visitor)
    return RedirectResponse("/", 303)


def _cancel_waiting(visitor: Visitor) -> None:
    store = visitor.service.jobs
    for record in store.find_jobs(JobFilter((ACCEPTED,), visitor.owner), _MOST_CANCELLED):
        store.cancel(record.id)


@router.get("/graphs")
def get_graphs(
    *, request: Request, visitor: Known, after: Annotated[float | None, Query()] = None,
    last: Annotated[str, Query(max_length=60)] = "",
) -> Response:  # fmt: skip
    """Return the graphs of the visitor, the newest first.

    Args:
        after, last: time of creation and id of the last graph of the previous page.
    """
    position = None if after is None else (after, last)
    found = visitor.service.keys.list_graphs(_PAGE + 1, visitor.owner, position)
    more = found[_PAGE - 1] if len(found) > _PAGE else None
    return page(request, "graphs.html", visitor=visitor, graphs=found[:_PAGE], more=more, paged=after is not None)


@router.post("/graphs/{graph_id}/delete")
def delete_graph(graph_id: str, visitor: Known) -> Response:
    """Forget a graph; refused while open jobs need it."""
    visitor.need("submit")
    visitor.service.remove_graph(graph_id, visitor.caller)
    return RedirectResponse("/graphs", 303)


@router.post("/examples/helsinki")
async def add_example(visitor: Known) -> Response:
    """Add the graph that is shipped as an example, as if it had been uploaded, and show it."""
    visitor.need("submit")
    service = visitor.service
    refuse_if_draining(service)
    digest = hashlib.sha256(_EXAMPLE.read_bytes()).hexdigest()
    upload = GraphUpload(_EXAMPLE, digest, service.settings.read_seconds, _EXAMPLE_NAME)
    _, kept, _ = await keep_graph(service, upload, visitor.caller)
    return RedirectResponse(f"/graphs/{kept.id}", 303)


@router.get("/jobs/{job_id}/names")
def get_names(
    *, job_id: str, visitor: Known, side: Literal["source", "target"], like: Annotated[str, Query(max_length=1000)],
    _permit: ReadPermit,
) -> Response:  # fmt: skip
    """Return some names of sources or targets that resemble a typed text.

    Args:
        side: whether sources or targets are named.
        like: the typed text.
    """
    from service.views.naming import ascending_names, like_names

    matrix: Any = visitor.service.result(job_id, visitor.caller, semiring=EVERY).matrix
    return JSONResponse(like_names(ascending_names(matrix, side), like, _NAMES), headers={"Cache-Control": "no-store"})
