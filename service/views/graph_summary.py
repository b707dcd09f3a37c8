"""Computes the facts about a graph that ``apsp inspect`` and the service show."""

from __future__ import annotations

import numpy as np

from storage.graph.cleaning import AnyArray
from storage.graph.graph import Graph, Receipt


def graph_facts(graph: Graph, receipt: Receipt) -> dict[str, object]:
    """Return counts, weights, components and what cleaning changed, as JSON types.

    ``edges`` counts the edges of an undirected graph, and ``arcs`` counts the stored arcs of any graph.  No path passes
    through the first ``terminals`` vertices, which components treat like any other vertex.  Takes O(n + arcs) time.
    """
    weak, strong = _components(graph)
    degrees = np.diff(graph.indptr)
    return {
        "format": receipt.format,
        "compression": receipt.compression,
        "directed": graph.directed,
        "vertices": graph.n,
        "arcs": graph.arcs,
        "edges": None if graph.directed else graph.m,
        "first_vertex": _label(graph, 0),
        "last_vertex": _label(graph, -1),
        "largest_out_degree": int(degrees.max(initial=0)),
        "weak_components": weak,
        "strong_components": strong,
        "terminals": graph.terminals,
        "parallel": graph.parallel,
        "weights": _weights(graph, receipt),
        "quantities": [_quantity(name, values) for name, values in graph.quantities.items()],
        "unit": graph.unit,
        "coordinates": _coordinates(graph),
        "entries": receipt.entries,
        "dropped": {
            "self_loops": receipt.self_loops,
            "parallel_arcs": receipt.parallel_arcs,
            "infinite_arcs": receipt.infinite_arcs,
        },
        "notes": list(receipt.notes),
    }


def _coordinates(graph: Graph) -> dict[str, object] | None:
    """Return the reference system and the extent of the coordinates, and for how many vertices they are known."""
    found = graph.coordinates
    if found is None or not found.there.any():
        return None
    x, y = found.x[found.there], found.y[found.there]
    corners = {"from": [float(x.min()), float(y.min())], "to": [float(x.max()), float(y.max())]}
    return {"system": found.system, "vertices": len(x), **corners, "columns": list(found.columns)}


def _weights(graph: Graph, receipt: Receipt) -> dict[str, object]:
    weights = graph.weights
    return {
        "weighted": graph.weighted,
        "column": receipt.weight_column,
        "length_of": receipt.length_of,
        "integral": graph.integral,
        "smallest": weights.min().item() if graph.arcs else None,
        "largest": weights.max().item() if graph.arcs else None,
        "zero": int(np.count_nonzero(weights == 0)),
        "negative": int(np.count_nonzero(weights < 0)),
    }


def _quantity(name: str, values: AnyArray) -> dict[str, object]:
    least, most = (values.min().item(), values.max().item()) if len(values) else (None, None)
    return {"name": name, "integral": values.dtype.kind == "i", "smallest": least, "largest": most}


def _label(graph: Graph, index: int) -> int | str | None:
    if graph.n == 0:
        return None
    label = graph.labels[index]
    return int(label) if graph.labels.dtype.kind == "i" else str(label)


def _components(graph: Graph) -> tuple[int, int]:
    """Return the number of weakly and of strongly connected components."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    if graph.n == 0:
        return 0, 0
    # Ones replace the weights, because SciPy would take a weight of zero for a missing arc.
    links = csr_array((np.ones(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    weak = int(connected_components(links, directed=True, connection="weak", return_labels=False))
    if not graph.directed:
        return weak, weak
    return weak, int(connected_components(links, directed=True, connection="strong", return_labels=False))
