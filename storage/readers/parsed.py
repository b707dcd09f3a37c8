"""The data that ``read_graph`` and the reader of a format exchange, and how further columns of numbers are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from storage.errors import ApspError, InvalidGraph, InvalidRequest, LimitExceeded
from storage.geography.coordinates import Coordinates
from storage.graph.cleaning import AnyArray, ArcList, quantity_values
from storage.readers.formula import Formula
from storage.readers.limits import ReadLimits
from storage.readers.source import Source


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

    def as_weight(self, column: str) -> ReadOptions:
        """Return the options that read ``column``, one of ``also``, as if it were the weight."""
        return replace(self, weight=column, unweighted=False, length_of=None, also=())

    def read_together(self, find: Callable[[ReadOptions], int | None]) -> dict[str, int]:
        """Return the positions of those columns of ``also`` that can be read in one parse with the weight, by name.

        ``find`` returns the position of the weight with the options that it is given; None if all else would have to be
        read in another way with these options.
        """
        places = {column: find(self.as_weight(column)) for column in self.also}
        return {column: place for column, place in places.items() if place is not None}

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
        arcs: tails, heads and weights, and the columns of ``ReadOptions.also`` that were read in the same parse;
            ``build_from`` empties them to save memory.
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


class FormatReader(Protocol):
    """A module that reads files of a format."""

    def read(self, source: Source, options: ReadOptions) -> Parsed:
        """Read the weights, and those columns of ``options.also`` that the reader can read in the same parse."""


def read_with_quantities(reader: FormatReader, source: Source, options: ReadOptions) -> Parsed:
    """Read a file with all columns of ``options.also``.

    Args:
        reader: reads the format of the file.
        source: the file.
        options: the options; each column that the reader does not read with the weights is read as if it were the
            weight.

    Raises:
        ApspError: as for ``read_graph``; a refusal of a further column names it.
    """
    parsed = None
    try:
        parsed = reader.read(source, options)
    except ApspError:
        if not options.also:
            raise
    if parsed is None:
        # A further column may be at fault.  Read one by one, the weight is refused first, and each column by its name.
        # Outside of ``except``, because the traceback keeps what was read so far in memory.
        parsed = reader.read(source, replace(options, also=()))
    arcs = parsed.arcs
    together, arcs.quantities = arcs.quantities, {}
    for column in options.also:
        values = together.pop(column) if column in together else _read_alone(reader, source, options, arcs, column)
        arcs.quantities[column] = quantity_values(column, values)
    if options.also:
        parsed.notes = [note.replace("not read: ", "not the weight: ", 1) for note in parsed.notes]
        parsed.notes.append(f"summed along the paths: {', '.join(options.also)}")
    return parsed


def _read_alone(reader: FormatReader, source: Source, options: ReadOptions, arcs: ArcList, column: str) -> AnyArray:
    """Return a column of further numbers of ``arcs``, read as if it were the weight."""
    try:
        found = reader.read(source, options.as_weight(column)).arcs
    except InvalidGraph as error:
        message = str(error).removeprefix(f"line {error.line}: ")
        raise InvalidGraph(f"--also {column}: {message}", line=error.line, field=error.field) from None
    except LimitExceeded:
        raise
    except InvalidRequest as error:
        raise InvalidRequest(f"--also {column}: {error}", field="also") from None
    same = np.array_equal(found.tails, arcs.tails) and np.array_equal(found.heads, arcs.heads)
    if not same or found.weights is None:
        raise InvalidGraph(f"--also {column}: its rows are not the arcs of the weight", field="also")
    return found.weights
