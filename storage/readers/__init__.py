"""Graph files in: one door for all formats, told apart by content."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol, cast

import numpy as np

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph import Graph, Receipt, build_from
from storage.readers.detect import detect
from storage.readers.limits import ReadLimits
from storage.readers.parsed import Options, Parsed
from storage.readers.source import Source

__all__ = ["FORMATS", "ReadLimits", "read_graph"]

#: Name of each format and what it is; ``docs/formats.md`` has the rules.
FORMATS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dimacs": "DIMACS shortest path (.gr): 'p sp', without a header, or PACE 'p tw'",
        "edges": "edge list: SNAP, CSV, TSV, spreadsheets, Matrix Market bodies without their header",
        "mtx": "Matrix Market (.mtx): coordinate or array, general or symmetric",
        "metis": "METIS adjacency lists (.graph), with all weight flags",
        "gml": "Graph Modelling Language (.gml)",
        "graphml": "GraphML (.graphml)",
        "tntp": "TransportationNetworks link table (_net.tntp)",
        "tsplib": "TSPLIB (.tsp, .atsp) with an explicit matrix",
        "npz": "SciPy sparse matrix (.npz): CSR, CSC or COO",
        "npy": "dense NumPy matrix (.npy)",
        "parquet": "Parquet edge list",
        "algs4": "vertex count, arc count, then 'u v w' lines from 0 (Sedgewick and Wayne)",
        "rcpsp-max": "RCPSP/max projects (.sch): a minimum lag d from i to j is the arc of weight -d",
    }
)

_MODULES: Final = {
    "dimacs": "dimacs",
    "edges": "edge_list",
    "mtx": "matrix_market",
    "metis": "metis",
    "gml": "gml",
    "graphml": "graphml",
    "tntp": "tntp",
    "tsplib": "tsplib",
    "npz": "arrays",
    "npy": "arrays",
    "parquet": "parquet",
    "algs4": "algs4",
    "rcpsp-max": "rcpsp_max",
}


class _Reader(Protocol):
    def read(self, source: Source, options: Options) -> Parsed: ...


def read_graph(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the word that the command line and the service use
    directed: bool | None = None,
    weight: str | None = None,
    unweighted: bool = False,
    limits: ReadLimits = ReadLimits(),  # noqa: B008 - frozen
) -> tuple[Graph, Receipt]:
    """Read, check and clean a graph file, plain or compressed with gzip or zstd.

    Args:
        path: the file.
        format: a name in ``FORMATS``; None tells it by content.
        directed: overrides what the format declares.
        weight: the weight's column or attribute, by name or by number from 1; None: see ``docs/formats.md``.
        unweighted: ignore weights: every arc weighs 1.
        limits: what the file may expand to and declare.

    Raises:
        NotFound: no such file.
        InvalidGraph: the content cannot be understood; names the line or field where there is one.
        NegativeCycle: a self loop of negative weight.
        InvalidRequest: unknown format, a weight that is not there.
        LimitExceeded: larger than ``limits`` allow; raised before anything of that size is allocated.
    """
    if format is not None and format not in FORMATS:
        raise InvalidRequest(f"unknown format {format!r}; known are {', '.join(FORMATS)}", field="format")
    if unweighted and weight is not None:
        raise InvalidRequest("a weight column and 'unweighted' exclude each other", field="weight")
    source = Source(path, limits)
    name = format or detect(source)
    # Imported by name: a start of the API process must not pay for polars and SciPy.
    reader = cast(_Reader, importlib.import_module(f"storage.readers.{_MODULES[name]}"))
    parsed = reader.read(source, Options(directed, weight, unweighted, limits))
    return _build(parsed, name, source, parsed.directed if directed is None else directed)


def _build(parsed: Parsed, name: str, source: Source, directed: bool) -> tuple[Graph, Receipt]:
    mirrored = parsed.mirrored and not directed
    graph, counts = build_from(
        parsed.arcs, labels=parsed.labels, directed=directed, mirrored=mirrored, base=parsed.base
    )
    source.limits.check_vertices(graph.n)
    if mirrored:
        _check_mirrored(graph)
    receipt = Receipt(
        format=name,
        compression=source.compression,
        entries=parsed.entries,
        self_loops=counts.self_loops,
        parallel_arcs=counts.parallel_arcs,
        infinite_arcs=counts.infinite_arcs,
        weight_column=parsed.weight_column if graph.weighted else None,
        notes=tuple(parsed.notes),
    )
    return graph, receipt


def _check_mirrored(graph: Graph) -> None:
    """Refuse an undirected graph whose file lists an edge at one end only, or with two weights."""
    from scipy.sparse import csr_array

    rows = csr_array((graph.weights, graph.heads, graph.indptr), shape=(graph.n, graph.n))
    turned = rows.T.tocsr()
    turned.sort_indices()
    if np.array_equal(turned.indptr, graph.indptr) and np.array_equal(turned.indices, graph.heads):
        at = np.flatnonzero(turned.data != graph.weights)
        if len(at) == 0:
            return
        tail = int(np.searchsorted(graph.indptr, at[0], side="right")) - 1
        u, v = graph.labels[tail], graph.labels[graph.heads[at[0]]]
        raise InvalidGraph(f"edge {u} - {v} has two weights, {graph.weights[at[0]]} and {turned.data[at[0]]}")
    for tail in range(graph.n):
        out = graph.heads[graph.indptr[tail] : graph.indptr[tail + 1]]
        into = turned.indices[turned.indptr[tail] : turned.indptr[tail + 1]]
        lone = np.setdiff1d(out, into)
        if len(lone):
            u, v = graph.labels[tail], graph.labels[lone[0]]
            raise InvalidGraph(f"vertex {u} lists {v} as a neighbour, but {v} does not list {u}", field="neighbours")
