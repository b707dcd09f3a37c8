"""The data that ``read_graph`` and the reader of a format exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.errors import InvalidRequest
from storage.geography.coordinates import Coordinates
from storage.graph.cleaning import AnyArray, ArcList
from storage.readers.formula import Formula
from storage.readers.limits import ReadLimits


@dataclass(frozen=True)
class ReadOptions:
    """The options of ``read_graph``; None leaves a choice to the rules of the format.

    ``told`` is whether the caller has named the format; ``also`` are the columns of quantities.
    """

    directed: bool | None = None
    weight: str | None = None
    unweighted: bool = False
    limits: ReadLimits = field(default_factory=ReadLimits)
    source: str | None = None
    target: str | None = None
    labels: str | None = None
    length_of: Formula | None = None
    centroids_through: bool = False
    mode: str | None = None
    told: bool = False
    coordinates: str | None = None
    also: tuple[str, ...] = ()

    @property
    def column(self) -> str | None:
        """The column or attribute that the caller selected for weights or for the formula; None if the format's rules
        decide.
        """
        return self.weight if self.length_of is None else self.length_of.column

    def refuse_weight(self, name: str) -> None:
        """Raise InvalidRequest if the caller selects a column of weights: files of the format ``name`` have no such
        columns.
        """
        if self.weight is not None:
            raise InvalidRequest(f"{name} files have no weight columns to choose from", field="weight")


@dataclass
class Parsed:
    """The arcs of a file, before cleaning.

    Attributes:
        arcs: tails, heads and weights; ``build_from`` empties them to save memory.
        labels: the labels of all vertices, ascending; None if the vertices are those that occur in ``arcs``, whose
            tails and heads are then labels.
        base: the number that ``arcs`` uses for the first entry of ``labels``.
        directed: whether the graph is directed, as the format declares.
        mirrored: whether the file of an undirected graph lists both arcs of each edge; ``read_graph`` checks this.
        entries: rows, list entries or elements read, before cleaning.
        weight_column: the column or attribute that became the weight; None if there are no weights, or if the format
            has no choice of weights.
        length_of: the formula by which weights were computed, as it was written; None without a formula.
        first_through: vertices with smaller numbers are terminals (``Graph.terminals``); None if there are no
            terminals.
        coordinates: where the vertices are, in the order of ``labels``; None if the file does not say it.
        unit: what the weights measure; None if the file does not say it.
        alone: why arcs of this file cannot be matched with those of another file; None if they can.
        notes: remarks for people about how the file was understood.
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
    coordinates: Coordinates | None = None
    unit: str | None = None
    alone: str | None = None
    notes: list[str] = field(default_factory=list)
