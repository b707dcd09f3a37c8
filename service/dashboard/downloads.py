"""Says which parts of a matrix the page of a result offers as a table."""

from __future__ import annotations

from service.pool.tasks import wants_prepared
from storage.jobs.store import JobRecord


def downloads(record: JobRecord, most: int) -> dict[str, bool | int]:
    """Return which tables fit into one answer of the API: that of one source (``row``), and of all sources (``all``).

    Rows of a prepared graph are computed for each answer, so the page offers one of them at a time.

    Args:
        record: a job whose result is a matrix or a prepared graph.
        most: the most entries of one answer.
    """
    rows, columns = (record.plan or {}).get("shape") or (0, 0)
    entries = columns * (1 + len(record.options.get("also") or ()))
    whole = 0 < rows * entries <= most and not wants_prepared(record.options)
    return {"row": 0 < entries <= most, "all": whole, "most": most}
