"""Reads results that are tables, in the API process.  Importing it loads NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from service.jobs.results import ResultReader
from storage.tables.reader import SealedTable

if TYPE_CHECKING:
    from service.api.schemas.wire import ResultKind


class TableReader(ResultReader):
    """An open table; it answers with pages, columns and files, and has no distances of pairs.

    Attributes:
        matrix: the table.
    """

    table = True

    def __init__(self, table: SealedTable) -> None:
        """Make a reader of an open table."""
        self.matrix: Any = table

    @property
    def kind(self) -> ResultKind:
        """The kind of the result, as the job's option ``result`` names it."""
        return cast("ResultKind", self.matrix.result)

    def peek_distance(self, source: int | str, target: int | str) -> None:
        """Return None, because a table has no distances; the ordinary route then refuses the question."""

    def facts(self) -> dict[str, Any]:
        """Return a description of the table: rows, columns, options of the job, bytes, digest."""
        table = self.matrix
        names = ("dtype", "unit", "directed", "algorithm", "max_hops", "cutoff", "graph", "asked", "software")
        columns = [{"name": name, "type": kind} for name, kind in table.columns.items()]
        return {
            "result": self.kind, "shape": list(table.shape), "rows": table.rows, "columns": columns,
            **{name: table.attributes.get(name) for name in names}, "bytes": table.bytes, "digest": table.digest,
        }  # fmt: skip
