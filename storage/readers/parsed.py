"""What passes between ``read_graph`` and the reader of one format."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.errors import InvalidRequest
from storage.graph.cleaning import AnyArray, ArcList
from storage.readers.formula import Formula
from storage.readers.limits import ReadLimits


@dataclass(frozen=True)
class ReadOptions:
    """The caller's wishes, as ``read_graph`` describes them; None: as the format says.  ``told``: the format is one."""

    directed: bool | None = None
    weight: str | None = None
    unweighted: bool = False
    limits: ReadLimits = field(default_factory=ReadLimits)
    source: str | None = None
    target: str | None = None
    labels: str | None = None
    length_of: Formula | None = None
    centroids_through: bool = False
    told: bool = False

    @property
    def column(self) -> str | None:
        """The column or attribute that the weight is, or is computed from; None: the format's rules choose."""
        return self.weight if self.length_of is None else self.length_of.column

    def refuse_weight(self, name: str) -> None:
        """For formats with at most one weight: a choice makes no sense."""
        if self.weight is not None:
            raise InvalidRequest(f"{name} files have no weight columns to choose from", field="weight")


@dataclass
class Parsed:
    """A file as arcs, before cleaning.

    Attributes:
        arcs: the columns; ``build_from`` consumes them.
        labels: all vertices, ascending, or None: those that occur, the columns then holding labels.
        base: number that the columns use for the first of ``labels``.
        directed: what the format declares.
        mirrored: an undirected file that lists both arcs of each edge; ``read_graph`` checks that it does.
        entries: rows, list entries or elements read, before cleaning.
        weight_column: the column or attribute that became the weight, None without weights or where there is but one.
        length_of: the formula that made the weights of it, as it was written; None without one.
        first_through: vertices with smaller numbers are terminals (``Graph.terminals``); None: no vertex is.
        notes: what a person should know about how the file was understood.
    """

    arcs: ArcList
    labels: AnyArray | None
    directed: bool
    entries: int
    base: int = 0
    mirrored: bool = False
    weight_column: str | None = None
    length_of: str | None = None
    first_through: int | None = None
    notes: list[str] = field(default_factory=list)
