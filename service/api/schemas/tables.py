"""Schemas of the answers about uploaded tables."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field

from service.api.schemas.wire import Wire, moment

if TYPE_CHECKING:
    from storage.tables.uploaded import TableRecord


#: kind of the numbers in an uploaded table
Holds = Literal["opportunities", "demands"]


class TableDocument(Wire):
    """An uploaded table of numbers by vertex, or of demands."""

    id: str = Field(description="For opportunities or demands of a job.", examples=["9b7d0a7be85d4f0d9f4f3f8d0a3b7c11"])
    holds: Holds = Field(description="As it was uploaded.")
    rows: int = Field(description="Vertices that it names, or demands.")
    key: str = Field(description="The name of its first column.")
    columns: list[str] = Field(description="Its columns of numbers.")
    bytes: int = Field(description="As it is kept.")
    created: datetime
    links: dict[str, str]

    @classmethod
    def of(cls, record: TableRecord) -> TableDocument:
        """Return the document that describes the uploaded table ``record``."""
        return cls(
            id=record.id, holds=cast("Holds", record.holds), rows=record.rows, key=record.key,
            columns=record.columns, bytes=record.bytes, created=moment(record.created),
            links={"self": f"/v1/tables/{record.id}"},
        )  # fmt: skip


class TableList(Wire):
    """All tables of a caller, newest first."""

    tables: list[TableDocument]
