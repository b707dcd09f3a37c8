"""New weights for the arcs of a stored graph, from a file or from arrays, matched arc by arc.

A weight of +inf closes an arc.  A closed arc is not part of the graph, but it remains known, so that later weights can
open it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from storage.arguments import as_float64, unmasked
from storage.errors import InvalidGraph, InvalidRequest, NegativeCycle, NotFound
from storage.graph.cleaning import AnyArray, ArcList, canonical_weights, is_label
from storage.graph.graph import Graph, build_from
from storage.graph.inputs import as_texts
from storage.options import ReadingOptions
from storage.readers import ReadLimits, read_arcs
from storage.readers.lines import line_of

Indices = npt.NDArray[np.int64]
#: Formats whose entries are rows of a table; errors name the row, because such a file has no lines.
_ROWS: Final = frozenset({"parquet", "gpkg"})
#: Formats that are not text; errors name the number of the entry.
_BINARY: Final = frozenset({"npz", "npy"})


@dataclass(frozen=True, eq=False)
class ArcWeights:
    """Weights of arcs that are named by the labels of their ends.

    Attributes:
        tails, heads: labels, int64 or text, shape (entries,).
        weights: numbers, shape (entries,); +inf closes an arc.
        mirrored: whether the entries of an undirected graph hold both arcs of each edge.
        both: whether the second half of the entries is the first half with tails and heads exchanged.
        where: returns the place of an entry in the file, such as ``roads.csv, line 7``, from the number and the labels
            of the entry.
    """

    tails: AnyArray
    heads: AnyArray
    weights: AnyArray
    mirrored: bool = False
    where: Callable[[int, str, str], str] = lambda entry, _tail, _head: f"entry {entry}"
    both: bool = False


@dataclass(frozen=True, eq=False)
class NewGraph:
    """A graph after its weights were changed; arcs whose new weight is +inf are closed, and so no longer in the graph.

    Attributes:
        graph: the graph with the new weights, without the closed arcs.
        closed: the closed arcs, as ``tail * n + head``, ascending.
        changed: the arcs whose weights differ from those before the change, as ``tail * n + head``, ascending.
        known: the number of arcs before any was closed.
    """

    graph: Graph
    closed: Indices
    changed: Indices
    known: int


def arc_weights(tails: npt.ArrayLike, heads: npt.ArrayLike, weights: npt.ArrayLike) -> ArcWeights:
    """Return weights of arcs from arrays.

    Args:
        tails, heads: labels of vertices, whole numbers or text, shape (entries,).
        weights: numbers, shape (entries,).

    Raises:
        InvalidRequest: the arrays have different lengths.
        InvalidGraph: an array does not hold labels or numbers.
    """
    ends = [_names(unmasked(side, column)) for side, column in (("tails", tails), ("heads", heads))]
    values = unmasked("weights", weights)
    if not len(ends[0]) == len(ends[1]) == len(values) or values.ndim != 1:
        raise InvalidRequest("tails, heads and weights must have the same length", field="weights")
    if values.dtype.kind not in "iuf" and len(values):
        raise InvalidGraph(f"weights must be numbers, not {values.dtype}", field="weights")
    return ArcWeights(ends[0], ends[1], values if values.dtype.kind in "iu" else as_float64("weights", values))


def _names(array: npt.NDArray[Any]) -> AnyArray:
    wraps = (
        array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63
    )  # labels are int64, so a number beyond int64 is no label
    if (array.dtype.kind in "iu" and not wraps) or not array.size:
        return array.astype(np.int64)
    return as_texts(array, "arcs")


def read_weights(path: str | Path, reading: ReadingOptions, *, directed: bool) -> ArcWeights:
    """Read weights of arcs from a graph file of any format, in the order of the file and without cleaning them.

    Args:
        path: the file.
        reading: how to read the file; options of ``storage.readers.read_graph``.
        directed: whether the stored graph is directed.  If not, an entry sets the weight of an edge in both directions.
            If it is directed, an entry of a directed file sets the weight of one arc, and an entry of an undirected
            file sets the weights of the two arcs between its vertices.

    Raises:
        InvalidRequest: the file has no weights; its arcs cannot be matched with arcs of the stored graph; or
            ``reading`` has a unit or coordinates, which new weights cannot change, or asks for the greatest of
            parallel arcs.
        ApspError: as for ``storage.readers.read_graph``.
    """
    if said := next((name for name in ("unit", "coordinates") if reading.get(name)), None):
        raise InvalidRequest(f"new weights keep unit and coordinates of the graph; {said} was given", field=said)
    if reading.get("parallel") == "greatest":
        raise InvalidRequest("new weights are lengths, of which the least of parallel arcs counts", field="parallel")
    asked = reading.get("directed") if directed else False
    given, limits = cast(ReadingOptions, {**reading, "directed": asked}), ReadLimits()
    parsed, form = read_arcs(path, limits=limits, **given)
    if parsed.alone is not None:
        message = f"{path}: {parsed.alone}; give new weights as a table with a row for each arc: from, to, weight"
        raise InvalidRequest(message, field="weights")
    if parsed.arcs.weights is None:
        raise InvalidRequest(f"{path} has no weights; name the column that has them (--weight)", field="weights")
    ends = [parsed.arcs.tails, parsed.arcs.heads]
    if parsed.labels is not None:
        for column in ends:
            _check_inside(column, parsed.base, len(parsed.labels))
        ends = [parsed.labels[column.astype(np.int64) - parsed.base] for column in ends]

    def where(entry: int, tail: str, head: str) -> str:
        if form in _ROWS:
            return f"{path}, row {entry + 1}"
        line = None if form in _BINARY else line_of(Path(path), tail, head, limits)
        return f"{path}, entry {entry + 1}" if line is None else f"{path}, line {line}"

    values = parsed.arcs.weights
    both = directed and not (parsed.directed if asked is None else asked) and not parsed.mirrored
    if both:
        ends = [np.concatenate([ends[0], ends[1]]), np.concatenate([ends[1], ends[0]])]
        values = np.concatenate([values, values])
    return ArcWeights(ends[0], ends[1], values, parsed.mirrored and not directed, where, both)


def _check_inside(column: AnyArray, base: int, count: int) -> None:
    wrong = np.flatnonzero((column < base) | (column >= base + count))  # type: ignore[operator]
    if len(wrong):
        raise InvalidGraph(f"vertex {column[wrong[0]]} is outside {base} .. {base + count - 1}", field="vertex")


def reweighted(graph: Graph, closed: Indices, given: ArcWeights, *, changed: bool) -> NewGraph:
    """Give a graph new weights.

    As in all readers, loops are dropped, and of parallel arcs the least weight counts.

    Args:
        graph: the graph.
        closed: the closed arcs of the graph, as ``tail * n + head``, ascending.
        given: the new weights.
        changed: whether only changed weights are given, so that all other arcs keep their weights; otherwise every arc
            that is not closed must be given.

    Returns:
        The graph with the new weights.  It depends on the old weights only where arcs keep them.

    Raises:
        NotFound: an arc is given that the graph does not have, or an arc that must be given is missing.
        InvalidGraph: a weight is no length, or an edge has two weights.
        InvalidRequest: a weight is negative, and the graph has terminals.
        NegativeCycle: the weight of a loop is negative.
    """
    n = graph.n
    open_arcs = np.repeat(np.arange(n), np.diff(graph.indptr)) * n + graph.heads
    known = np.concatenate([open_arcs, closed])
    old = np.concatenate([graph.weights.astype(np.float64), np.full(len(closed), np.inf)])
    order = np.argsort(known, kind="stable")
    known, old = known[order], old[order]
    places, values = _matched(graph, known, given)
    found = np.full(len(known), np.nan)
    first = np.lexsort((values, places))
    first = first[np.diff(places[first], prepend=-1) > 0]
    found[places[first]] = values[first]
    missing = np.isnan(found) & (np.isfinite(old) if not changed else False)
    if missing.any():
        tail, head = divmod(int(known[int(np.argmax(missing))]), n)
        raise NotFound(
            f"{int(missing.sum())} of {len(open_arcs)} arcs have no new weight, the first is "
            f"{graph.labels[tail]} -> {graph.labels[head]}; give every arc, or say that only changed ones are given "
            "(--changed)"
        )
    found = np.where(np.isnan(found), old, found)
    tails, heads = np.divmod(known, n) if n else (known, known)
    arcs = ArcList(tails.astype(np.int32), heads.astype(np.int32), found.copy())
    new, _ = build_from(arcs, labels=graph.labels, directed=graph.directed, mirrored=not graph.directed)
    if graph.terminals and new.arcs and new.weights.min() < 0:
        raise InvalidRequest("a graph with terminals cannot have negative arcs", field="weights")
    unit = graph.unit if graph.weighted else None
    # Arcs that keep their weights were selected among parallel arcs by ``graph.parallel`` when the graph was read.
    parallel = graph.parallel if changed and graph.weighted else new.parallel
    new = replace(
        new, weighted=True, terminals=graph.terminals, coordinates=graph.coordinates, unit=unit, parallel=parallel
    )
    return NewGraph(new, known[np.isinf(found)], known[found != old], len(known))


def _matched(graph: Graph, known: Indices, given: ArcWeights) -> tuple[Indices, npt.NDArray[np.float64]]:
    """Return the index in ``known``, and the weight, of each given arc that is no loop."""
    n, values = graph.n, canonical_weights(np.asarray(given.weights)).astype(np.float64)
    tails, heads = (_indices(graph.labels, column) for column in (given.tails, given.heads))
    loops = (tails == heads) & (tails >= 0)
    if (values[loops] < 0).any():
        at = int(np.flatnonzero(loops & (values < 0))[0])
        raise NegativeCycle([str(given.tails[at])], float(values[at]))
    keys = np.where((tails < 0) | (heads < 0), -1, tails * n + heads)
    places = np.searchsorted(known, keys)
    there = np.zeros(len(keys), np.bool_)
    inside = places < len(known)
    there[inside] = known[places[inside]] == keys[inside]
    wrong = ~there & ~loops & np.isfinite(values)  # closing an unknown arc changes nothing
    if wrong.any():
        at = int(np.argmax(wrong))
        tail, head = str(given.tails[at]), str(given.heads[at])
        lacks = next((name for name, index in ((tail, tails[at]), (head, heads[at])) if index < 0), None)
        what = f"no vertex {lacks}" if lacks is not None else f"no arc {tail} -> {head}"
        reverse = given.both and lacks is None and at >= len(values) // 2
        entry = given.where(at - len(values) // 2, head, tail) if reverse else given.where(at, tail, head)
        why = ", and this file is undirected: --directed takes each edge as one arc" if reverse else ""
        raise NotFound(f"{entry}: the prepared graph has {what}; only known arcs get new weights{why}")
    kept = there & ~loops
    places, values = places[kept].astype(np.int64), values[kept]
    if graph.directed:
        return places, values
    back = (keys[kept] % max(1, n)) * n + keys[kept] // max(1, n)
    others = np.searchsorted(known, back)
    if given.mirrored:
        _check_edges(graph, known, places, others, values)
        return places, values
    return np.concatenate([places, others]), np.concatenate([values, values])


def _check_edges(graph: Graph, known: Indices, places: Indices, others: Indices, values: AnyArray) -> None:
    """Raise if an edge is listed in one direction only, or has different weights in its directions.  Of parallel arcs,
    the least weight counts.
    """
    there, listed = np.full(len(known), np.inf), np.zeros(len(known), np.bool_)
    np.minimum.at(there, places, values)
    listed[places] = True
    wrong = np.flatnonzero(~listed[others] | (there[others] != there[places]))
    if len(wrong):
        tail, head = divmod(int(known[places[wrong[0]]]), graph.n)
        u, v, back = graph.labels[tail], graph.labels[head], there[others[wrong[0]]]
        if not listed[others[wrong[0]]]:
            raise InvalidGraph(f"vertex {u} lists {v} as a neighbour, but {v} does not list {u}", field="neighbours")
        raise InvalidGraph(f"edge {u} - {v} has two weights, {there[places[wrong[0]]]:g} and {back:g}")


def _indices(labels: AnyArray, names: AnyArray) -> Indices:
    """Return, for each name, the index of the vertex with this label; -1 if there is none."""
    if labels.dtype.kind in "iu":
        if names.dtype.kind not in "iu":
            names, text = np.empty(len(names), np.int64), names
            whole = np.fromiter((is_label(str(name)) for name in text), np.bool_, len(text))
            names[whole] = [int(str(name)) for name in text[whole]]
        else:
            whole = np.ones(len(names), np.bool_)
        at = np.minimum(np.searchsorted(labels, names), max(0, len(labels) - 1))
        same = whole & (labels[at] == names) if len(labels) else np.zeros(len(names), np.bool_)
        return np.where(same, at, -1).astype(np.int64)
    index: dict[str, int] = {str(name): k for k, name in enumerate(labels.tolist())}
    found: Any = (index.get(str(name), -1) for name in names.tolist())
    return np.fromiter(found, np.int64, len(names))
