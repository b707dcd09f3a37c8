"""Reads extracts of OpenStreetMap (.osm.pbf, .osm) as networks for walking, cycling or driving.

Vertices are the junctions and the ends of ways, named by their OpenStreetMap ids.  An arc is the stretch of a way
between two vertices; its length in metres is measured along the line.  Only the largest strongly connected component of
the network is kept.  ``storage.readers.networks.osm_modes`` decides which ways are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidGraph, InvalidRequest
from storage.geography.coordinates import Coordinates, crow_distances
from storage.graph.cleaning import ArcList
from storage.readers.fields import shown
from storage.readers.limits import ReadLimits
from storage.readers.networks.osm_modes import MODES, TravelMode
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source

#: Names and units of the weights that the caller may choose; the first is the default.
UNITS: Final = {"seconds": "s", "metres": "m"}
#: Number of digits after the decimal point that weights keep; tenths of a second or a metre are finer than the data.
DIGITS: Final = 1
#: Bytes of memory that each node of a way takes while the file is read, counted against ``ReadLimits``.
_ENTRY: Final = 48

Ids = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read an extract; raises the errors of ``read_graph``."""
    mode, weight = _mode(options), _weight(options)
    with source.local() as path:
        ways = _ways(_objects(path, "way"), mode, options.limits, path.stat().st_size)
        places = _places(path, mode, ways)
    network = _network(ways, places)
    if not len(network.tails):
        raise InvalidGraph(
            f"the file has no way for {mode.name} of two nodes or more that are also in the file "
            f"({ways.seen:,} ways with a tag 'highway')"
        )
    kept = _largest(network, directed=mode.directed)
    lengths = network.metres if weight == "metres" else network.metres / network.speeds * 3.6
    weights = None if options.unweighted else np.round(lengths[kept], DIGITS)
    labels, ends = np.unique(np.concatenate((network.tails[kept], network.heads[kept])), return_inverse=True)
    tails, heads = np.split(ends, 2)
    at = np.searchsorted(places.ids, labels)
    return Parsed(
        ArcList(tails, heads, weights),
        labels,
        mode.directed,
        ways.seen,
        weight_column=weight,
        coordinates=Coordinates(places.longitudes[at], places.latitudes[at], geographic=True),
        unit=None if options.unweighted else UNITS[weight],
        notes=_notes(mode, ways, places, network, len(labels)),
    )


def _mode(options: ReadOptions) -> TravelMode:
    known = ", ".join(MODES)
    if options.mode is None:
        raise InvalidRequest(f"an OpenStreetMap file needs --mode: {known}", field="mode")
    if options.mode not in MODES:
        raise InvalidRequest(f"mode {shown(options.mode)} is unknown; known are {known}", field="mode")
    mode = MODES[options.mode]
    if options.directed is not None and options.directed != mode.directed:
        kind = "directed, for its one-way streets" if mode.directed else "undirected"
        raise InvalidRequest(f"a network for {mode.name} is {kind}", field="directed")
    return mode


def _weight(options: ReadOptions) -> str:
    if options.weight is None:
        return next(iter(UNITS))
    if options.weight not in UNITS:
        raise InvalidRequest(
            f"an OpenStreetMap file has the weights {' and '.join(UNITS)}, not {shown(options.weight)}",
            field="weight",
        )
    return options.weight


def _objects(path: Path, kind: str, ids: Iterable[int] | None = None) -> Iterator[Any]:
    """Yield the objects of a kind, ``way`` or ``node``, in the order of the file; with ``ids``, only those with these
    ids.
    """
    try:
        import osmium
    except ImportError:
        message = "reading OpenStreetMap files needs osmium, which is not installed: pip install 'apsp[osm]'"
        raise InvalidRequest(message, field="format") from None
    with path.open("rb") as file:
        form = "osm" if file.read(1) == b"<" else "pbf"
    try:
        found = osmium.FileProcessor(
            osmium.io.File(str(path), form), {"way": osmium.osm.WAY, "node": osmium.osm.NODE}[kind]
        )
        if ids is not None:
            found = found.with_filter(osmium.filter.IdFilter(ids))
        yield from found
    except (RuntimeError, ValueError, osmium.InvalidLocationError) as error:  # raised by libosmium
        raise InvalidGraph(f"the OpenStreetMap file is damaged: {error}") from None


@dataclass
class _Ways:
    """The ways that the traveller may use, one after the other.

    Attributes:
        nodes: the ids of the nodes of all ways.
        starts: for each way, the position in ``nodes`` of its first node; the last element is the length of ``nodes``.
        speeds: the speed on each way, in kilometres an hour.
        forward, backward: whether each way may be used in the direction in which it is drawn, and whether in the
            opposite direction.
        seen: the number of ways with a tag ``highway``.
        ferries: the number of ferries, which are left out.
    """

    nodes: Ids
    starts: Ids
    speeds: Reals
    forward: npt.NDArray[np.bool_]
    backward: npt.NDArray[np.bool_]
    seen: int
    ferries: int


def _ways(found: Iterator[Any], mode: TravelMode, limits: ReadLimits, size: int) -> _Ways:
    nodes: list[int] = []
    starts, speeds, both = [0], [], []
    seen = ferries = 0
    for way in found:
        tags = way.tags
        ferries += tags.get("route") == "ferry"
        if "highway" not in tags:
            continue
        seen += 1
        told = dict(tags)
        speed, directions = mode.speed(told), mode.directions(told)
        if speed == 0 or not any(directions) or len(way.nodes) < 2:
            continue
        nodes += [node.ref for node in way.nodes]
        limits.check_arcs(len(nodes))
        limits.check_bytes(_ENTRY * len(nodes), size)
        starts.append(len(nodes))
        speeds.append(speed)
        both.append(directions)
    ends = np.array(both, np.bool_).reshape(-1, 2)
    return _Ways(
        np.array(nodes, np.int64),
        np.array(starts, np.int64),
        np.array(speeds, np.float64),
        ends[:, 0],
        ends[:, 1],
        seen,
        ferries,
    )


@dataclass
class _Places:
    """The coordinates of the nodes of all ways, and the barriers at the nodes.

    Attributes:
        ids: the ids of the nodes, ascending.
        longitudes, latitudes: coordinates in degrees; NaN for nodes that the file lacks.
        blocked: whether a barrier at the node stops the traveller.
    """

    ids: Ids
    longitudes: Reals
    latitudes: Reals
    blocked: npt.NDArray[np.bool_]


def _places(path: Path, mode: TravelMode, ways: _Ways) -> _Places:
    ids = np.unique(ways.nodes)
    places = _Places(ids, np.full(len(ids), np.nan), np.full(len(ids), np.nan), np.zeros(len(ids), np.bool_))
    at = {id_: i for i, id_ in enumerate(ids.tolist())}
    for node in _objects(path, "node", at):
        i = at[node.id]
        if node.location.valid():
            places.longitudes[i], places.latitudes[i] = node.lon, node.lat
        if len(node.tags):
            places.blocked[i] = mode.stops(dict(node.tags))
    return places


@dataclass
class _Network:
    """Arcs between junctions: ids of the ends, length in metres, and speed in kilometres an hour.

    ``cut`` is the number of stretches that are left out because one of their nodes is missing or blocked.
    """

    tails: Ids
    heads: Ids
    metres: Reals
    speeds: Reals
    cut: int = field(default=0)


def _network(ways: _Ways, places: _Places) -> _Network:
    """Return the arcs between the junctions of ``ways``; an arc is left out if one of its nodes is missing or blocked.

    An arc of a way that is open in both directions is listed in both directions.  In an undirected network, every way
    is open in both directions.
    """
    where = np.searchsorted(places.ids, ways.nodes)
    x, y = places.longitudes[where], places.latitudes[where]
    steps = crow_distances(x[:-1], y[:-1], x[1:], y[1:], geographic=True)
    steps[ways.starts[1:-1] - 1] = 0.0  # a step from the end of a way to the start of the next is in no arc
    usable = ~(np.isnan(places.longitudes) | places.blocked)[where]
    junction = np.bincount(where, minlength=len(places.ids))[where] > 1
    first, last = ways.starts[:-1], ways.starts[1:] - 1
    junction[first] = junction[last] = True
    way = np.repeat(np.arange(len(first)), np.diff(ways.starts))
    stops = np.flatnonzero(junction)
    begin, end = stops[:-1], stops[1:]
    same = way[begin] == way[end]
    begin, end = begin[same], end[same]
    along = np.concatenate(([0.0], np.cumsum(np.nan_to_num(steps))))  # metres from the first node of the first way
    wrong = np.concatenate(([0], np.cumsum(~usable)))
    whole = wrong[end + 1] == wrong[begin]
    begin, end = begin[whole], end[whole]
    owner, metres = way[begin], along[end] - along[begin]
    tails, heads = ways.nodes[begin], ways.nodes[end]
    out, back = ways.forward[owner], ways.backward[owner]
    return _Network(
        np.concatenate((tails[out], heads[back])),
        np.concatenate((heads[out], tails[back])),
        np.concatenate((metres[out], metres[back])),
        np.concatenate((ways.speeds[owner][out], ways.speeds[owner][back])),
        int((~whole).sum()),
    )


def _largest(network: _Network, *, directed: bool) -> npt.NDArray[np.bool_]:
    """Return a mask of the arcs that belong to the largest strongly connected component, shape (arcs,)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    ids, ends = np.unique(np.concatenate((network.tails, network.heads)), return_inverse=True)
    tails, heads = np.split(ends, 2)
    links = csr_array((np.ones(len(tails), np.int8), (tails, heads)), shape=(len(ids), len(ids)))
    _, part = connected_components(links, directed=directed, connection="strong")
    largest = np.bincount(part).argmax()
    return np.asarray((part[tails] == largest) & (part[heads] == largest))


def _notes(mode: TravelMode, ways: _Ways, places: _Places, network: _Network, vertices: int) -> list[str]:
    """Return notes for the receipt about how the file was understood."""
    found = len(np.unique(np.concatenate((network.tails, network.heads))))
    notes = [f"{len(ways.speeds):,} of {ways.seen:,} ways are open for {mode.name}"]
    if vertices < found:
        notes.append(
            f"{vertices:,} of {found:,} junctions and ends are the largest part whose vertices all reach each "
            "other; the rest is left out"
        )
    if network.cut:
        missing, blocked = int(np.isnan(places.longitudes).sum()), int(places.blocked.sum())
        notes.append(
            f"{_count(network.cut, 'stretch', 'stretches')} left out: {_count(missing, 'node')} of theirs missing from "
            f"the file, {_count(blocked, 'barrier')}"
        )
    if ways.ferries:
        notes.append(f"{_count(ways.ferries, 'ferry', 'ferries')} left out")
    return notes


def _count(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
