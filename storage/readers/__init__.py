"""Reads graph files: one function for all formats, which are recognised by content."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Unpack, cast

import numpy as np

from storage.arguments import check_declared, check_given_paths, check_names, shown
from storage.errors import ApspError, InvalidGraph, InvalidRequest
from storage.geography.coordinates import Coordinates, check_system
from storage.geography.nodes import read_nodes
from storage.graph.cleaning import ArcList, check_quantity_name, compress
from storage.graph.graph import Graph, Receipt, build_from
from storage.graph.inputs import keeps_greatest
from storage.graph.units import check_unit
from storage.options import FileReadingOptions, ReadingOptions, declared, lists_options
from storage.readers.detect import detect
from storage.readers.formula import parse_formula
from storage.readers.limits import ReadLimits
from storage.readers.lookalikes import refuse_triples
from storage.readers.names import note_quotes
from storage.readers.parsed import FormatReader, Parsed, ReadOptions, read_with_quantities
from storage.readers.source import Source
from storage.readers.spool import regular_file
from storage.readers.tables.matrix_shape import is_matrix

__all__ = ["FORMATS", "ReadLimits", "read_arcs", "read_graph"]

log = logging.getLogger(__name__)

#: Name and description of each format; ``docs/formats.md`` says how each format is read.
FORMATS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dimacs": "DIMACS shortest path (.gr): 'p sp', without a header, or PACE 'p tw'",
        "edges": "edge list: SNAP, CSV, TSV, spreadsheets, Matrix Market bodies without their header",
        "matrix": "square matrix as text (CSV, TSV, semicolons, blanks), with or without names",
        "mtx": "Matrix Market (.mtx): coordinate or array, general or symmetric",
        "metis": "METIS adjacency lists (.graph), with all weight flags",
        "gml": "Graph Modelling Language (.gml)",
        "graphml": "GraphML (.graphml)",
        "gexf": "GEXF (.gexf) of Gephi and NetworkX",
        "pajek": "Pajek networks (.net)",
        "json": "JSON: NetworkX's node-link, adjacency and Cytoscape data",
        "nx-edgelist": "NetworkX edge list with dictionaries: u v {'weight': 1}",
        "adjlist": "adjacency lists of NetworkX: 'u v v v' on each line",
        "multiline-adjlist": "adjacency lists of NetworkX over several lines, with dictionaries",
        "sif": "Cytoscape's simple interaction format (.sif): 'source relation target'",
        "tntp": "TransportationNetworks link table (_net.tntp)",
        "tsplib": "TSPLIB (.tsp, .atsp) with an explicit matrix",
        "npz": "SciPy sparse matrix (.npz): CSR, CSC or COO",
        "npy": "dense NumPy matrix (.npy)",
        "parquet": "Parquet edge list, and GeoParquet of lines",
        "gpkg": "GeoPackage of edges (.gpkg): a layer of lines, of OSMnx, QGIS and others",
        "algs4": "vertex count, arc count, then 'u v w' lines from 0 (Sedgewick and Wayne)",
        "osm": "OpenStreetMap extracts (.osm.pbf, .osm), with --mode walking, cycling or driving",
        "rcpsp-max": "RCPSP/max projects (.sch): a minimum lag d from i to j is the arc of weight -d",
    }
)

_MODULES: Final = {
    "dimacs": "instances.dimacs",
    "edges": "tables.edge_list",
    "matrix": "tables.text_matrix",
    "mtx": "instances.matrix_market",
    "metis": "instances.metis",
    "gml": "networks.gml",
    "graphml": "networks.graphml",
    "gexf": "networks.gexf",
    "pajek": "networks.pajek",
    "json": "networks.json_graph",
    "nx-edgelist": "networks.nx_edgelist",
    "adjlist": "networks.adjlist",
    "multiline-adjlist": "networks.multiline_adjlist",
    "sif": "networks.sif",
    "tntp": "instances.tntp",
    "tsplib": "instances.tsplib",
    "npz": "instances.arrays",
    "npy": "instances.arrays",
    "parquet": "tables.parquet",
    "gpkg": "layers.geopackage",
    "algs4": "instances.algs4",
    "osm": "networks.osm",
    "rcpsp-max": "instances.rcpsp_max",
}

#: Formats whose edges have columns or attributes with names.
_WITH_NAMES: Final = (
    "edges", "parquet", "gpkg", "gml", "graphml", "gexf", "pajek", "json", "nx-edgelist", "multiline-adjlist", "tntp",
)  # fmt: skip
#: Maps each option that only some formats take to its spelling on the command line and to the names of these formats.
#: All other formats refuse the option instead of ignoring it.
_TAKES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "source": ("--from", ("edges", "parquet", "gpkg")),
    "target": ("--to", ("edges", "parquet", "gpkg")),
    "labels": ("--labels", ("gml", "graphml", "gexf", "pajek", "json")),
    "length_of": ("--length-of", _WITH_NAMES),
    "also": ("--also", _WITH_NAMES),
    "centroids_through": ("--centroids-through", ("tntp",)),
    "mode": ("--mode", ("osm",)),
}


#: Options that are not passed on to a reader as they were given: ``read_graph`` uses them itself, or parses them first
#: (``length_of``).
_NOT_OF_READERS: Final = frozenset({"format", "length_of", "nodes", "unit", "parallel"})
#: Formats in which single quotes are part of the names that they enclose.
_UNQUOTED: Final = frozenset(
    {"edges", "matrix", "sif", "adjlist", "multiline-adjlist", "nx-edgelist", "parquet", "gpkg"}
)


@lists_options
def read_graph(
    path: str | Path,
    *,
    limits: ReadLimits = ReadLimits(),  # noqa: B008 - frozen
    also: Sequence[str] = (),
    **reading: Unpack[FileReadingOptions],
) -> tuple[Graph, Receipt]:
    """Read, check and clean a graph file, plain or compressed with gzip or zstd.

    Args:
        path: the file, or a pipe, whose content is copied to a temporary file.
        format: a name in ``FORMATS``; None to recognise it by content.
        directed: overrides what the format declares.
        weight: the column or attribute of the weights, by name or by number from 1; None for the rules of
            ``docs/formats.md``.
        unweighted: whether weights are ignored, so that every arc weighs 1.
        source, target: the columns of the vertices, by name or by number from 1.
        labels: the attribute whose values become the labels of vertices instead of their ids; all vertices must have
            different values.
        length_of: a formula over one column that makes the lengths, such as ``1000 - score`` (``formula``).
        centroids_through: whether paths may pass through the zone centroids of a TNTP network.
        unit: what the weights measure, such as ``min``; it is stored with every result.
        coordinates: the system of coordinates called x and y, ``lonlat`` or ``plane``; None for the system that the
            file names, or ``plane`` if it names none.
        nodes: a table with the coordinates of the vertices and other columns (``docs/coordinates.md``).
        parallel: which of parallel arcs is kept, ``least`` or ``greatest``; None for the least (``build_graph``).
        mode: how people travel through an OpenStreetMap extract: ``walking``, ``cycling`` or ``driving``.
        limits: limits on the size of the content and on declared counts.
        also: columns or attributes of further numbers of each arc, named as for ``weight``, which become
            ``Graph.quantities``.  Edge lists, Parquet and TNTP are read once for all of them, files of other formats
            once more for each name.

    Returns:
        The clean graph, and the receipt: format, column of the weight, what was dropped or merged, notes.

    Raises:
        NotFound: there is no such file.
        InvalidGraph: the content cannot be understood; the message names the line or field if there is one.
        NegativeCycle: a self loop has a negative weight.
        InvalidRequest: the format is unknown, a column does not exist, or an option has no meaning for the format.
        LimitExceeded: the graph is larger than ``limits`` allow; raised before anything of that size is allocated.
        StorageFailed: there is no space for a temporary file.
    """
    if not isinstance(limits, ReadLimits):
        raise InvalidRequest(f"limits must be ReadLimits, found {shown(limits)}", field="limits")
    with _parsed(path, limits, reading, check_names("also", also)) as (parsed, name, file):
        directed = reading.get("directed")
        graph, receipt = _build(parsed, name, file, parsed.directed if directed is None else directed)
    return with_places(graph, receipt, parsed, reading)


def read_arcs(path: str | Path, *, limits: ReadLimits, **reading: Unpack[ReadingOptions]) -> tuple[Parsed, str]:
    """Read a graph file as arcs in the order of the file, before they are cleaned.

    Args:
        path: the file.
        limits: limits on the size of the content and on declared counts.
        reading: options as for :func:`read_graph`.

    Returns:
        The arcs, and the name of the format.

    Raises:
        ApspError: as for :func:`read_graph`, except for the errors of cleaning.
    """
    with _parsed(path, limits, reading) as (parsed, name, _):
        return parsed, name


def with_places(graph: Graph, receipt: Receipt, parsed: Parsed, reading: FileReadingOptions) -> tuple[Graph, Receipt]:
    """Add coordinates and the unit to a graph, and notes about them to its receipt; return both.

    Args:
        graph: the clean graph.
        receipt: the receipt so far.
        parsed: the coordinates and the unit that the graph's file states; ``reading`` may replace them.
        reading: options, of which the table of nodes, the system of coordinates and the unit are used.

    Raises:
        NotFound, InvalidRequest: as for ``storage.geography.nodes.read_nodes``; a unit is given for a graph without
            weights, or is a word that means *no unit* in stores.
    """
    nodes, unit, notes = reading.get("nodes"), (reading.get("unit") or "").strip() or None, list(receipt.notes)
    found: Coordinates | None = parsed.coordinates
    if unit is not None and not graph.weighted:
        message = "unit says what the weights measure, and here every arc counts 1: distances are hops"
        raise InvalidRequest(message, field="unit")
    check_unit(unit)
    if nodes is not None:
        found, more = read_nodes(Path(nodes), graph.labels, reading.get("coordinates"))
        notes += more
    asked = reading.get("coordinates")
    if asked is not None and (found is None or found.system != asked):
        has = "has no coordinates called x and y" if found is None else f"says that its coordinates are {found.system}"
        raise InvalidRequest(f"--coordinates {asked} has no meaning here: the file {has}", field="coordinates")
    column = None if receipt.length_of else receipt.weight_column
    graph = replace(graph, coordinates=found, unit=unit or parsed.unit, weight_column=column)
    return graph, replace(receipt, notes=tuple(notes))


@contextlib.contextmanager
def _parsed(
    path: str | Path, limits: ReadLimits, reading: ReadingOptions, also: tuple[str, ...] = ()
) -> Iterator[tuple[Parsed, str, Source]]:
    """Context manager: yields the arcs of a file, the name of the format, and the open file."""
    check_given_paths(path=path)
    check_declared(reading, {name: kind for name, (kind, _) in declared(FileReadingOptions).items()})
    form, weight, length_of = reading.get("format"), reading.get("weight"), reading.get("length_of")
    unweighted = reading.get("unweighted", False)
    if form is not None and form not in FORMATS:
        raise InvalidRequest(f"unknown format {form!r}; known are {', '.join(FORMATS)}", field="format")
    if unweighted and weight is not None:
        raise InvalidRequest("a weight column and 'unweighted' exclude each other", field="weight")
    if length_of is not None and (unweighted or weight is not None):
        other = "'unweighted'" if unweighted else "a weight column"
        raise InvalidRequest(f"a formula for the lengths and {other} exclude each other", field="length_of")
    check_system(reading.get("coordinates"))
    formula = None if length_of is None else parse_formula(length_of)
    given = {name: value for name, value in reading.items() if name not in _NOT_OF_READERS}
    options = ReadOptions(limits=limits, length_of=formula, told=form is not None, also=also, **cast(Any, given))
    for column in also:
        check_quantity_name(column)
        if also.count(column) > 1:
            raise InvalidRequest(f"--also names {column!r} twice", field="also")
    with regular_file(Path(path), limits) as regular, _net(form):
        file = Source(regular, limits)
        name = form or _told(file, options)
        _check_meaning(name, options)
        # The reader is imported only here, so that the API process starts without waiting for polars and SciPy.
        reader = cast(FormatReader, importlib.import_module(f"storage.readers.{_MODULES[name]}"))
        parsed = read_with_quantities(reader, file, options)
        parsed.arcs.greatest = keeps_greatest(reading.get("parallel"))
        yield parsed, name, file


@contextlib.contextmanager
def _net(format: str | None) -> Iterator[None]:  # noqa: A002
    """Context manager: turn an unforeseen error of a reader, which is a defect of apsp, into a refusal of the file."""
    try:
        yield
    except (ApspError, MemoryError):
        raise
    except BaseException as error:
        # A panic of polars is no Exception.  It is recognised by the name of its class, because using the class would
        # import polars.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise unforeseen(error, format) from error


def unforeseen(error: BaseException, format: str | None) -> BaseException:  # noqa: A002
    """Return the refusal for an error that a reader should have foreseen, and log that error."""
    log.error("a reader failed with an error that it should have reported as a refusal", exc_info=error)
    why = f"{error} ".splitlines()[0].strip()[:200]
    what = "a graph" if format is None else format
    return InvalidGraph(f"the file could not be read as {what}: {type(error).__name__}: {why}")


def _told(file: Source, options: ReadOptions) -> str:
    """Recognise the format of a file by content, and return its name."""
    if file.start.startswith(b"PK") and any(mark in file.start for mark in (b"[Content_Types].xml", b"opendocument")):
        raise InvalidGraph("this is a spreadsheet file, which is not read: save the sheet as CSV")
    if file.start.startswith(b"\xd0\xcf\x11\xe0"):
        raise InvalidGraph("this is an old Excel file (.xls), which is not read: save the sheet as CSV")
    name = detect(file)
    if name == "sif" and (options.source or options.target):
        return "edges"  # the caller has named the columns of the vertices, so the relation is one more column
    if name != "edges":
        return name
    if is_matrix(file, options):
        return "matrix"
    if not (options.source or options.target):
        refuse_triples([line.strip() for line in file.head])
    return name


def _check_meaning(name: str, options: ReadOptions) -> None:
    """Refuse options that have no meaning for files of this format."""
    for field, (option, formats) in _TAKES.items():
        if getattr(options, field) and name not in formats:
            message = f"{option} has no meaning for {name} files, only for {', '.join(formats)}"
            raise InvalidRequest(message, field=field)


def _build(parsed: Parsed, name: str, source: Source, directed: bool) -> tuple[Graph, Receipt]:
    mirrored = parsed.mirrored and not directed
    graph, counts = build_from(
        parsed.arcs, labels=parsed.labels, directed=directed, mirrored=mirrored, base=parsed.base
    )
    source.limits.check_vertices(graph.n)
    if name in _UNQUOTED:
        parsed.notes += note_quotes(graph.labels)
    if parsed.first_through is not None:
        graph = _with_terminals(graph, parsed)
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
        length_of=parsed.length_of if graph.weighted else None,
        notes=tuple(parsed.notes),
    )
    return graph, receipt


def _with_terminals(graph: Graph, parsed: Parsed) -> Graph:
    """Make the vertices below ``first_through`` terminals, if a path could pass through any of them."""
    count = int(np.searchsorted(graph.labels, np.int64(parsed.first_through or 0)))
    into = np.zeros(graph.n, np.bool_)
    into[graph.heads] = True
    if not (into & (np.diff(graph.indptr) > 0))[:count].any():
        return graph
    if graph.weights.min() < 0:
        raise InvalidRequest(
            "a graph with negative arcs cannot have centroids that no path passes through; "
            "say --centroids-through to let paths pass through them",
            field="centroids_through",
        )
    parsed.notes.append(
        f"no path passes through the {count:,} centroids {graph.labels[0]} .. {graph.labels[count - 1]} "
        "(FIRST THRU NODE); --centroids-through lets them"
    )
    return replace(graph, terminals=count)


def _check_mirrored(graph: Graph) -> None:
    """Refuse an undirected graph whose file lists an edge in one direction only, or with two weights."""
    tails = np.repeat(np.arange(graph.n, dtype=np.int32), np.diff(graph.indptr))
    starts, into, weights, _ = compress(ArcList(graph.heads, tails, graph.weights), graph.n)
    if np.array_equal(starts, graph.indptr) and np.array_equal(into, graph.heads):
        at = np.flatnonzero(weights != graph.weights)
        if len(at) == 0:
            return
        u, v = graph.labels[tails[at[0]]], graph.labels[graph.heads[at[0]]]
        raise InvalidGraph(f"edge {u} - {v} has two weights, {graph.weights[at[0]]} and {weights[at[0]]}")
    for tail in range(graph.n):
        out = graph.heads[graph.indptr[tail] : graph.indptr[tail + 1]]
        lone = np.setdiff1d(out, into[starts[tail] : starts[tail + 1]])
        if len(lone):
            u, v = graph.labels[tail], graph.labels[lone[0]]
            raise InvalidGraph(f"vertex {u} lists {v} as a neighbour, but {v} does not list {u}", field="neighbours")
