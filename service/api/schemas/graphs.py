"""Schemas of the answers about graphs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, Field, create_model

from service.api.schemas.wire import LONGEST_NAME, MOST_QUANTITIES, Wire, members_of, moment
from service.name_lists import split_names
from storage.errors import InvalidRequest
from storage.jobs.store import GraphRecord
from storage.options import ReadingOptions

if TYPE_CHECKING:
    _Options = BaseModel
else:
    _Options = create_model("_Options", **members_of(ReadingOptions))


#: the most characters of the name of a graph
LONGEST_TITLE: Final = 200
#: names of columns, separated by commas
QuantityNames = Annotated[str, Field(max_length=LONGEST_NAME)]


class UploadQuery(_Options):
    """Options for reading an uploaded file, and the name of the graph."""

    name: str | None = Field(None, max_length=LONGEST_TITLE, description="A name of your own.")
    filename: str | None = Field(
        None, max_length=255, description="Its ending hints at the format; the name of a new graph that gets no other."
    )
    also: list[QuantityNames] | None = Field(
        None,
        description="Further columns, which jobs can sum along the paths (also): separated by commas or repeated.",
        max_length=MOST_QUANTITIES,
        examples=[["toll"], ["metres,toll"]],
    )

    def title(self) -> str | None:
        """Return the name of a new graph: ``name``, else the name of the file without its folders."""
        return self.name or (self.filename or "").replace("\\", "/").rpartition("/")[2][-LONGEST_TITLE:] or None

    def reading(self) -> dict[str, Any]:
        """Return how the file is read, as arguments of ``read_graph``.  Raises InvalidRequest for a wrong list of
        columns.
        """
        also = [] if self.also is None else split_names(self.also, "also", "column")
        if len(also) > MOST_QUANTITIES:
            message = f"also names {len(also)} columns, at most {MOST_QUANTITIES} are kept"
            raise InvalidRequest(message, field="also")
        return {**self.model_dump(exclude={"name", "filename", "also"}), "also": also}


class GraphDocument(Wire):
    """An uploaded graph."""

    id: str = Field(examples=["2f1c0a7be85d4f0d9f4f3f8d0a3b7c11"])
    digest: str = Field(description="SHA-256 of the content: vertices, arcs, weights, direction, quantities.")
    name: str | None = None
    n: int = Field(description="Vertices.", examples=[3353])
    m: int = Field(description="Arcs of a directed graph, edges of an undirected one.", examples=[8859])
    facts: dict[str, Any] = Field(description="Direction, weights, quantities, components, degrees.")
    receipt: dict[str, Any] = Field(description="What the reader understood and what cleaning changed.")
    created: datetime
    links: dict[str, str]

    @classmethod
    def of(cls, record: GraphRecord) -> GraphDocument:
        """Return the document that describes the stored graph ``record``."""
        links = {"self": f"/v1/graphs/{record.id}", "jobs": f"/v1/jobs?graph={record.id}"}
        return cls(
            id=record.id, digest=record.digest, name=record.name, n=record.n, m=record.m, facts=record.facts,
            receipt=record.receipt, created=moment(record.created), links=links,
        )  # fmt: skip


class GraphList(Wire):
    """A page of graphs, newest first; ``next`` is the path of the page with older graphs."""

    graphs: list[GraphDocument]
    next: str | None
