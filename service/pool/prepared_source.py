"""Opens the prepared result of another job as the source of a table, checks its graph, and notices its removal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from service.settings import Settings
from storage.errors import Conflict, Gone, NotFound, StorageFailed

if TYPE_CHECKING:
    from engine.api.prepared_matrix import PreparedMatrix
    from storage.graph.graph import Graph


def open_source(job_id: str, graph: Graph, settings: Settings) -> PreparedMatrix:
    """Open the prepared result of a job; its tables are read and checked when the first row is asked for.

    Args:
        job_id: the job, which belongs to the caller and was successful when the request was accepted.
        graph: the graph of the job that makes the table.
        settings: the service's settings.

    Raises:
        Gone: the result was deleted or has expired meanwhile.
        Conflict: the result was prepared from another graph, or from the same arcs with other weights.
        StorageFailed: the result is damaged.
    """
    from engine.api.prepared_matrix import PreparedMatrix, open_result

    # imports the job database, which takes a fifth of the start of a helper process, and few tasks need it
    from service.jobs.folders import result_place
    from storage.graph.graph import graph_digest

    try:
        found = open_result(result_place(settings, job_id))
    except NotFound:
        raise _gone(job_id) from None
    if not isinstance(found, PreparedMatrix) or found.attributes["graph"] != graph_digest(graph):
        found.close()
        raise Conflict(
            f"prepared: what job {job_id} has prepared is no longer the graph of this request: its weights were "
            "replaced (apsp reweight), or it is another graph; leave out prepared to search the graph itself"
        )
    return found


@contextlib.contextmanager
def watched(job_id: str, matrix: PreparedMatrix) -> Iterator[None]:
    """Context manager: turn a failure to read into Gone, if the result was removed or replaced.

    Tables that were read before the removal belong to the right graph, so what was computed from them stays valid.

    Args:
        job_id: the job that has prepared the result.
        matrix: the open result.

    Raises:
        Gone: a file could not be read, and the result is no longer at its place.
    """
    try:
        yield
    except StorageFailed:
        if matrix.current():
            raise
        raise _gone(job_id) from None


def _gone(job_id: str) -> Gone:
    return Gone(
        f"prepared: the result of job {job_id} was deleted, replaced or has expired; leave out prepared to search the "
        "graph itself, or prepare it again"
    )
