"""Makes a graph from a layer of edges: columns name the vertices, or the ends of the lines are the vertices.

In a layer that names no vertices, there is a vertex wherever a line ends; ends with exactly the same x and y are the
same vertex.  Weights are taken from a column, or, under the name ``metres``, they are the lengths of the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from storage.counted import counted
from storage.errors import InvalidGraph, InvalidRequest
from storage.geography.coordinates import LONLAT, Coordinates
from storage.geography.lines import Lines, check_degrees, read_lines
from storage.geography.nodes import missing_note
from storage.geography.systems import ReferenceSystem
from storage.graph.cleaning import ArcList
from storage.number_texts import is_digits
from storage.readers.columns import TextLabels
from storage.readers.layers.frames import arcs_of
from storage.readers.layers.ways import Ways, one_way_column, ways_of, without_double
from storage.readers.named import NO_DIRECTION, both_ways
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.tables.choose import Columns, choose_by_name, listed
from storage.readers.tables.directions import direction_of
from storage.readers.tables.ends import find_ends, refuse_both_ways

if TYPE_CHECKING:
    import polars as pl

#: METRES is the name of the weight that is computed from lines; _UNIT is its unit.
METRES: Final = "metres"
_UNIT: Final = "m"
#: Number of digits after the decimal point that computed metres keep.
_DIGITS: Final = 3
#: Names for the two ends of a line, used like column names if no columns name the vertices.
_ENDS: Final = ("source", "target")


class EdgeLayer(Protocol):
    """A table of edges with their geometry.

    Attributes:
        title: the name of the table in messages.
        names: the table's columns, without columns of geometry.
        numeric: for each column in ``names``, whether it holds numbers.
        system: the system of coordinates of the geometry; None if the table has no lines.
    """

    title: str
    names: list[str]
    numeric: list[bool]
    system: ReferenceSystem | None

    def sample(self) -> list[list[str]]:
        """Return some rows as text."""

    def read(self, names: Sequence[str], *, geometry: bool) -> tuple[pl.DataFrame, list[bytes | None]]:
        """Return the columns ``names``, and the geometries as well-known binary (an empty list without
        ``geometry``).
        """

    def where(self, row: int) -> str:
        """Return a text for messages that says where a row is in the file; ``row`` counts from 0."""

    def nodes(self, labels: npt.NDArray[np.generic], asked: str | None) -> tuple[Coordinates | None, list[str]]:
        """Return the coordinates of the vertices ``labels``, and notes; None if the file has no table of vertices.

        ``asked`` is the system of coordinates that the caller names; None if the caller names none.
        """


@dataclass(frozen=True)
class _Choice:
    """The columns that are read: ``ends`` for the vertices (None if the ends of lines are the vertices), and one each
    for the weight, for one-way streets and for directions.  If ``measured``, the lengths of lines are the weights.
    """

    ends: tuple[str, str] | None
    weight: str | None
    measured: bool
    one_way: str | None
    kind: str | None
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        found = [*(self.ends or ()), self.weight, self.one_way, self.kind]
        return list(dict.fromkeys(name for name in found if name is not None))


def read_edges(layer: EdgeLayer, options: ReadOptions) -> Parsed:
    """Read a layer of edges; raises the errors of ``read_graph``."""
    choice = _choose(layer, options)
    system, asked = layer.system, options.coordinates
    needs_lines = choice.ends is None or choice.measured
    if choice.ends is None and system is not None and (system.kind or asked) is None:
        raise InvalidRequest(
            f"{layer.title}: its coordinates are in {system.name}, which may be degrees or not: say --coordinates "
            "lonlat or --coordinates plane, or save the layer in EPSG:4326",
            field="coordinates",
        )
    frame, geometry = layer.read(choice.names, geometry=needs_lines)
    lines = read_lines(geometry, layer.where) if needs_lines else None
    if lines is not None and system is not None and (system.kind or asked) == LONLAT:
        check_degrees(lines, layer.where)
    weights, notes = _weights(layer, choice, frame, lines, options)
    if choice.ends is None:
        assert lines is not None
        found, more = _of_ends(layer, lines, weights, options)
    else:
        found, more = _of_columns(layer, frame.select(choice.ends), weights, lines, options)
    arcs, directed, about = _directed(choice, frame, found.arcs, options)
    return replace(
        found,
        arcs=arcs,
        directed=directed,
        weight_column=METRES if choice.measured else choice.weight,
        length_of=None if options.length_of is None else options.length_of.text,
        alone=_alone(layer, choice),
        unit=_UNIT if choice.measured and options.length_of is None else None,
        notes=[*notes, *more, *about, *choice.notes],
    )


def _alone(layer: EdgeLayer, choice: _Choice) -> str | None:
    """Return why arcs of the layer cannot be matched with those of another file by the names of their vertices; None if
    they can.
    """
    if choice.ends is None:
        return "its vertices are the ends of its lines, whose numbers mean nothing in another file"
    name = one_way_column(layer.names)
    return None if name is None else f"its column {name!r} makes rows arcs both ways, which new weights do not follow"


def _choose(layer: EdgeLayer, options: ReadOptions) -> _Choice:
    """Decide by the rules of edge lists which columns are read for what.  The weight ``metres`` is the length of lines
    unless a column has that name.
    """
    header, options = _header(layer, options)
    measured = (options.column or "").lower() == METRES and METRES not in (name.lower() for name in header.names)
    if measured and layer.system is None:
        raise InvalidRequest(f"{layer.title} has no lines to be measured, and no column {METRES!r}", field="weight")
    # If ``directed`` were None, ``choose_by_name`` would refuse a column that says which rows go both ways.  The module
    # ``ways`` reads such a column.
    plain = replace(options, directed=True)
    try:
        columns = header.columns(_unweighted(plain) if measured else plain)
    except InvalidRequest as error:
        if error.field != "weight" or options.column is not None or layer.system is None:
            raise
        measured, columns = True, header.columns(_unweighted(plain))
    measured |= columns.weight is None and not options.unweighted and layer.system is not None
    weight = None if columns.weight is None or measured else header.names[columns.weight]
    if weight is not None and not header.numeric[columns.weight or 0]:
        raise InvalidRequest(f"{layer.title}: column {weight!r} holds no numbers, so no weights", field="weight")
    one_way = None if options.directed is not None else one_way_column(layer.names)
    if options.directed is None:
        names = ["" if name == one_way else name for name in header.names]
        refuse_both_ways(names, header.body, (columns.source, columns.target, columns.weight))
    ends = None if header.by_ends else (header.names[columns.source], header.names[columns.target])
    kind = None if columns.kind is None or options.directed is not None or one_way else header.names[columns.kind]
    return _Choice(ends, weight, measured, one_way, kind, _told(layer, (*(ends or ()), weight, one_way, kind), ends))


class _LayerHeader(NamedTuple):
    """Names of columns, whether each holds numbers, and some rows.  With ``by_ends``, the first two columns stand for
    the ends of lines.
    """

    names: list[str]
    numeric: list[bool]
    body: list[list[str]]
    by_ends: bool

    def columns(self, options: ReadOptions) -> Columns:
        """Return which columns hold vertices, weights and so on."""
        return choose_by_name(self.names, self.numeric, options, self.body)


def _header(layer: EdgeLayer, options: ReadOptions) -> tuple[_LayerHeader, ReadOptions]:
    """Return the header of a layer, and the options; a column that the options give by number is replaced by its
    name.
    """
    by_ends = layer.system is not None and not (options.source or options.target)
    if not by_ends or None not in find_ends(layer.names, None, None):
        return _LayerHeader(layer.names, layer.numeric, layer.sample(), by_ends=False), options
    number = options.column or ""
    if is_digits(number) and 1 <= int(number) <= len(layer.names) and number not in layer.names:
        options = _with_column(options, layer.names[int(number) - 1])
    body = [["u", "v", *row] for row in layer.sample()]
    return _LayerHeader([*_ENDS, *layer.names], [False, False, *layer.numeric], body, by_ends=True), options


def _told(layer: EdgeLayer, used: Sequence[str | None], ends: tuple[str, str] | None) -> tuple[str, ...]:
    """Return notes about the columns that name vertices, and about columns that are not read."""
    left = [name for name in layer.names if name not in used]
    notes = [] if ends is None else [f"columns {ends[0]!r} and {ends[1]!r} name the vertices"]
    return (*notes, *([f"not read: {listed('column', left)}"] if left else []))


def _with_column(options: ReadOptions, name: str) -> ReadOptions:
    if options.length_of is None:
        return replace(options, weight=name)
    return replace(options, length_of=replace(options.length_of, column=name))


def _unweighted(options: ReadOptions) -> ReadOptions:
    return replace(options, weight=None, length_of=None, unweighted=True)


def _weights(
    layer: EdgeLayer, choice: _Choice, frame: pl.DataFrame, lines: Lines | None, options: ReadOptions
) -> tuple[pl.Series | None, list[str]]:
    """Return the weights, from a column or as the lengths of lines, and notes."""
    import polars as pl

    if not choice.measured:
        return (None if choice.weight is None else frame[choice.weight]), []
    assert lines is not None
    assert layer.system is not None
    system = layer.system
    if (system.kind or options.coordinates) == LONLAT:
        metres, how = lines.lengths(geographic=True), "along great circles"
    elif system.metres is not None:
        metres, how = lines.lengths(geographic=False) * system.metres, f"in the plane of {system.name}"
    else:
        raise InvalidRequest(
            f"{layer.title}: its lines cannot be measured in metres, because {system.name} does not say how long its "
            "units are on the ground; say --weight COLUMN or --unweighted, or save the layer in EPSG:4326",
            field="weight",
        )
    return pl.Series(METRES, np.round(metres, _DIGITS)), [f"{METRES}: the lengths of the lines {how}"]


def _of_ends(
    layer: EdgeLayer, lines: Lines, weights: pl.Series | None, options: ReadOptions
) -> tuple[Parsed, list[str]]:
    """Return arcs between the ends of lines, numbering the ends as vertices from 0 in the order of occurrence; also
    return notes.
    """
    import polars as pl

    rows = len(lines.first)
    points = np.stack((lines.first, lines.last), axis=1).ravel()
    places = np.empty(len(points), np.complex128)
    places.real, places.imag = lines.x[points], lines.y[points]
    _, occurs, number = np.unique(places, return_index=True, return_inverse=True)
    order = np.argsort(occurs)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    codes, at = rank[number.ravel()], points[occurs[order]]
    options.limits.check_vertices(len(at))
    ends = [pl.Series("first point", codes[0::2]), pl.Series("last point", codes[1::2])]
    frame = pl.DataFrame(ends + ([] if weights is None else [weights]))
    tails, heads, values = arcs_of(frame, 0, False, TextLabels(), options.length_of)
    geographic = layer.system is not None and (layer.system.kind or options.coordinates) == LONLAT
    notes = [
        f"the vertices are the {len(at):,} ends of {counted(rows, 'lines')}, numbered from 0; lines that cross meet "
        "only where they end",
        *_heights(lines, points, codes),
    ]
    placed = Coordinates(lines.x[at], lines.y[at], geographic)
    return Parsed(ArcList(tails, heads, values), np.arange(len(at)), True, rows, coordinates=placed), notes


def _heights(lines: Lines, points: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]) -> list[str]:
    """Return notes about heights and measures, which are left out."""
    notes = [f"measures (M) of {counted(lines.measured, 'lines')} are left out"] if lines.measured else []
    heights = lines.z[points]
    there = np.isfinite(heights)
    if not there.any():
        return notes
    many = int(codes.max()) + 1
    lowest, highest = np.full(many, np.inf), np.full(many, -np.inf)
    np.minimum.at(lowest, codes[there], heights[there])
    np.maximum.at(highest, codes[there], heights[there])
    apart = int(np.sum(highest > lowest))
    more = f"; at {counted(apart, 'vertices')} ends of different heights meet" if apart else ""
    return [*notes, f"heights (Z) are left out{more}"]


def _of_columns(
    layer: EdgeLayer, ends: pl.DataFrame, weights: pl.Series | None, lines: Lines | None, options: ReadOptions
) -> tuple[Parsed, list[str]]:
    """Return arcs between vertices that columns name, with the coordinates of the vertices."""
    import polars as pl

    for column in ends:
        kind = column.dtype
        if not (kind.is_integer() or kind in (pl.String(), pl.Categorical()) or isinstance(kind, pl.Enum)):
            message = f"{layer.title}: column {column.name!r} holds {kind}; vertices are whole numbers or text"
            raise InvalidGraph(message, field=column.name)
        if column.null_count():
            row = int(column.is_null().arg_max() or 0)
            message = f"{layer.where(row)}: column {column.name!r} is empty, so the edge has no vertex there"
            raise InvalidGraph(message, field=column.name)
    text = not all(column.dtype.is_integer() for column in ends)
    names = TextLabels()
    frame = pl.DataFrame([*ends.get_columns(), *([] if weights is None else [weights])])
    arcs = ArcList(*arcs_of(frame, 0, text, names, options.length_of))
    if text:
        arcs = ArcList(arcs.tails.astype(np.int64), arcs.heads.astype(np.int64), arcs.weights)
        labels = names.finish(arcs)
    else:
        labels, number = np.unique(np.concatenate((arcs.tails, arcs.heads)), return_inverse=True)
        tails, heads = np.split(number.ravel(), 2)
        arcs = ArcList(tails, heads, arcs.weights)
    options.limits.check_vertices(len(labels))
    placed, notes = layer.nodes(labels, options.coordinates)
    if placed is None and layer.system is not None:
        placed, more = _placed(layer, labels, arcs, lines, options)
        notes += more
    return Parsed(arcs, labels, True, len(frame), coordinates=placed), notes


def _placed(
    layer: EdgeLayer, labels: npt.NDArray[np.generic], arcs: ArcList, lines: Lines | None, options: ReadOptions
) -> tuple[Coordinates | None, list[str]]:
    """Return the coordinates of vertices from the ends of their lines; if ends contradict each other, return a note
    instead.
    """
    assert layer.system is not None
    kind = layer.system.kind or options.coordinates
    if kind is None:
        return None, [f"coordinates are not kept: they are in {layer.system.name}; --coordinates says what they are"]
    try:
        if lines is None:
            lines = read_lines(layer.read([], geometry=True)[1], layer.where)
        if kind == LONLAT:
            check_degrees(lines, layer.where)
    except InvalidGraph as error:
        return None, [f"coordinates are not kept: {error}"]
    x, y = np.full(len(labels), np.nan), np.full(len(labels), np.nan)
    for vertices, points in ((arcs.tails, lines.first), (arcs.heads, lines.last)):
        x[vertices], y[vertices] = lines.x[points], lines.y[points]
    for vertices, points in ((arcs.tails, lines.first), (arcs.heads, lines.last)):
        apart = np.flatnonzero((x[vertices] != lines.x[points]) | (y[vertices] != lines.y[points]))
        if len(apart):
            vertex, place = labels[vertices[apart[0]]], layer.where(int(apart[0]))
            return None, [f"coordinates are not kept: lines of vertex {vertex} end at different places ({place})"]
    found = Coordinates(x, y, kind == LONLAT)
    return found, missing_note(found, labels)


def _directed(
    choice: _Choice, frame: pl.DataFrame, arcs: ArcList, options: ReadOptions
) -> tuple[ArcList, bool, list[str]]:
    """Return the arcs of all rows in all directions allowed, whether they are directed, and notes."""
    import polars as pl

    if options.directed is not None:
        return arcs, options.directed, []
    if choice.one_way is None and choice.kind is not None:
        values = frame[choice.kind].cast(pl.String()).fill_null("").to_list()
        directed = direction_of(choice.kind, values)
        return arcs, directed, [f"column {choice.kind!r}: all are {'directed' if directed else 'undirected'}"]
    if choice.one_way is None:
        if choice.ends is not None:
            return arcs, True, [NO_DIRECTION]
        note = (
            "no column says which lines are one-way, so all are read both ways; --directed reads them as they are drawn"
        )
        return arcs, False, [note]
    found = ways_of(frame[choice.one_way])
    ways = found if choice.ends is None else without_double(found, (arcs.tails, arcs.heads), choice.one_way)
    told = f"column {choice.one_way!r}: {int(np.sum(~found.both)):,} of {len(arcs.tails):,} rows are one-way"
    if found.both.any() and not ways.both.any():
        return _along(arcs, ways), True, [f"{told}; of the others, the way back is a row of its own"]
    if len(arcs.tails) and ways.both.all():
        return arcs, False, [told]
    return _along(arcs, ways), True, [told]


def _along(arcs: ArcList, ways: Ways) -> ArcList:
    """Return the arcs of rows in the directions that ``ways`` allows."""
    back = ways.against & ~ways.along
    tails, heads = np.where(back, arcs.heads, arcs.tails), np.where(back, arcs.tails, arcs.heads)
    return both_ways(ArcList(tails, heads, arcs.weights), ways.both)
