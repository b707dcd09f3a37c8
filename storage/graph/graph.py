"""The validated graph: compressed sparse rows, vertex labels, and a receipt of what cleaning changed.

Graphs are made by ``build_graph`` or ``build_from``.  These functions apply the rules that every reader shares (for
parallel arcs, self loops, zeros and infinities) and make the canonical form on which digests, stores and engines rely.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt

from storage.arguments import as_float64, check_flags, check_whole, unmasked
from storage.errors import ApspError, Conflict, InvalidGraph, NotFound, StorageFailed
from storage.files.atomic import Staging, failure, sync_tree
from storage.geography.coordinates import Coordinates, add_to_digest, load_arrays, save_arrays
from storage.graph.cleaning import (
    AnyArray,
    ArcList,
    canonical_weights,
    chunks,
    compress,
    compress_all,
    drop_loops,
    given_quantities,
    index_by_label,
    is_label,
    mirror,
    shift_to_index,
    smallest_type,
)
from storage.graph.inputs import ArcOptions, keeps_greatest, label_array, search_text, similar_label, whole_array
from storage.graph.kept_quantities import load_quantities, save_quantities
from storage.options import lists_options

#: Newest version of the folder that ``save_graph`` writes.  A graph with quantities has version 3, because readers of
#: version 2 would drop the quantities.  A graph with terminals has version 2, because a reader of version 1 would let
#: paths pass through terminals.  All other graphs have version 1.
FORM = 3

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Graph:
    """A clean graph in compressed sparse rows (CSR).

    It has no self loop, no parallel arcs, no NaN or infinite weight.  An undirected graph holds both arcs of each edge.

    Attributes:
        indptr: int64, shape (n + 1,); the arcs out of vertex u are ``indptr[u]:indptr[u + 1]``.
        heads: int32, shape (arcs,); ascending within each row.
        weights: int32, int64 or float64, shape (arcs,); integer exactly when every weight is a whole number.
        labels: int64 or ``StringDType``, shape (n,), strictly ascending (numbers by value, names by code point).
        directed: False for an undirected graph, in which each arc has a reverse arc of the same weight.
        weighted: False when every arc weighs 1 because the file has no weights (distances are then hops).
        terminals: the first ``terminals`` vertices are terminals: paths may begin or end there, but not pass through.
        coordinates: the coordinates of the vertices; None if they are not known.
        unit: the unit of the weights, such as ``min``; None if it is not known.
        parallel: which of parallel arcs was kept, ``least`` or ``greatest``; the arcs themselves do not show which.
            Widest and most reliable paths need the greatest.
        quantities: further numbers of every arc by name, such as tolls, int32, int64 or float64, shape (arcs,) each.
            They do not influence paths; on request they are summed along the shortest paths.
        weight_column: the name of the column of weights in the file; None if it is not known, or a formula made the
            weights. The name is shown if no unit is known; it is not part of the content (the digest).
    """

    indptr: IntArray
    heads: npt.NDArray[np.int32]
    weights: npt.NDArray[np.int32] | npt.NDArray[np.int64] | npt.NDArray[np.float64]
    labels: npt.NDArray[np.generic]
    directed: bool
    weighted: bool
    terminals: int = 0
    coordinates: Coordinates | None = None
    unit: str | None = None
    quantities: Mapping[str, AnyArray] = field(default_factory=dict)
    parallel: str = "least"
    weight_column: str | None = None

    @property
    def n(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def arcs(self) -> int:
        """Number of stored arcs; an undirected edge counts twice."""
        return len(self.heads)

    @property
    def m(self) -> int:
        """Number of arcs of a directed graph; number of edges of an undirected one."""
        return self.arcs if self.directed else self.arcs // 2

    @property
    def integral(self) -> bool:
        """Whether every weight is a whole number, so that distances are exact integers."""
        return self.weights.dtype.kind == "i"


@dataclass(frozen=True)
class Receipt:
    """What a reader found in a file, and what cleaning changed, as ``apsp inspect`` and ``POST /v1/graphs`` show it."""

    format: str
    compression: str | None
    entries: int
    self_loops: int
    parallel_arcs: int
    infinite_arcs: int
    weight_column: str | None
    notes: tuple[str, ...] = field(default=())
    #: The formula that made the weights from the column ``weight_column``; None without a formula.
    length_of: str | None = None


@dataclass(frozen=True)
class Counts:
    """Numbers of entries that cleaning removed: self loops, parallel arcs (or edges), and arcs of weight +inf."""

    self_loops: int
    parallel_arcs: int
    infinite_arcs: int


@lists_options
def build_graph(
    tails: npt.ArrayLike,
    heads: npt.ArrayLike,
    weights: npt.ArrayLike | None,
    *,
    labels: npt.ArrayLike | None = None,
    n: int | None = None,
    directed: bool,
    **further: Unpack[ArcOptions],
) -> tuple[Graph, Counts]:
    """Clean a list of arcs into a graph.

    First, undirected edges are mirrored.  Then self loops are dropped (a loop of negative weight is a negative cycle),
    and of parallel arcs the arc with the smallest weight is kept.  A weight of +inf means no arc; an explicit 0 is an
    arc of length zero.  With ``parallel="greatest"``, for widest and most reliable paths, the parallel arc with the
    greatest weight is kept, self loops may be negative, and a weight of +inf is refused.

    Args:
        tails, heads: integers, shape (entries,).  With ``labels`` or ``n`` they are vertex indices 0 .. n - 1;
            otherwise they are labels, and the vertices are those whose labels occur.
        weights: numbers, shape (entries,); None if every arc weighs 1, so that distances are hops.
        labels: shape (n,), strictly ascending int64 or strings.
        n: number of vertices, labelled 0 .. n - 1; if ``labels`` are given too, ``n`` must be their number.
        directed: whether the graph is directed; if not, the reverse arc of every entry is added.
        mirrored: whether the entries of an undirected graph already hold both arcs of each edge.
        quantities: further numbers of every entry by name, shape (entries,) each.  Of parallel arcs with the same
            weight, the one with the smallest first quantity is kept; if these are equal, the second decides, and so on.
        parallel: which of parallel arcs is kept, ``least`` or ``greatest``; None for the least.

    Returns:
        The graph, and counts of what was dropped or merged.

    Raises:
        InvalidGraph: a weight is NaN, -inf, or whole and beyond 2**53; an index is out of range; labels do not ascend.
        InvalidRequest: entries of an array are masked.
        NegativeCycle: a self loop has a negative weight.
    """
    check_flags(directed=directed, mirrored=further.get("mirrored", False))
    greatest = keeps_greatest(further.get("parallel"))
    arcs = ArcList(whole_array(tails, "tails"), whole_array(heads, "heads"), None, greatest=greatest)
    if weights is not None:
        array = unmasked("weights", weights)
        if array.dtype.kind not in "iuf" and array.size:
            raise InvalidGraph(f"weights must be numbers, not {array.dtype}", field="weights")
        arcs.weights = array if array.dtype.kind in "iu" else as_float64("weights", array)
    if not len(arcs.tails) == len(arcs.heads) == len(arcs.tails if arcs.weights is None else arcs.weights):
        raise InvalidGraph("tails, heads and weights must have the same length", field="weights")
    arcs.quantities = given_quantities(further.get("quantities"))
    for name, values in arcs.quantities.items():
        if len(values) != len(arcs.tails):
            raise InvalidGraph(f"quantity {name!r} has {len(values)} entries for {len(arcs.tails)} arcs", field=name)
    names = None if labels is None else label_array(labels)
    if n is not None:
        names = np.arange(check_whole("n", n, 0), dtype=np.int64) if names is None else names
        if len(names) != n:
            raise InvalidGraph(f"{n} vertices, but {len(names)} labels", field="labels")
    return build_from(arcs, labels=names, directed=directed, mirrored=further.get("mirrored", False))


def build_from(
    arcs: ArcList, *, labels: AnyArray | None, directed: bool, mirrored: bool = False, base: int = 0
) -> tuple[Graph, Counts]:
    """Build a graph like ``build_graph``, but take the columns out of ``arcs``, so that memory holds no copy of them.

    Args:
        arcs: the columns, shape (entries,) each; empty afterwards.
        labels: the labels of the vertices, shape (n,), strictly ascending; None if the columns hold labels.
        directed: whether the graph is directed; if not, the reverse arc of every entry is added.
        mirrored: whether the entries of an undirected graph already hold both arcs of each edge.
        base: the number of the first vertex in the columns (1 in most file formats).

    Returns:
        The graph, and the numbers of entries that cleaning removed.

    Raises:
        InvalidGraph, NegativeCycle: as in ``build_graph``.
    """
    weighted, greatest = arcs.weights is not None, arcs.greatest
    if labels is None:
        labels = index_by_label(arcs)
    else:
        shift_to_index(arcs, base, len(labels))
    if arcs.weights is not None:
        arcs.weights = canonical_weights(arcs.weights)
    self_loops, infinite = drop_loops(arcs, labels)
    if not directed and not mirrored:
        mirror(arcs)
    quantities: dict[str, AnyArray] = {}
    if arcs.quantities:
        indptr, out_heads, out_weights, quantities, merged = compress_all(arcs, len(labels))
    else:
        indptr, out_heads, out_weights, merged = compress(arcs, len(labels))
    out_weights = smallest_type(out_weights)
    graph = Graph(indptr, out_heads, out_weights, labels, directed, weighted, quantities=quantities)
    if greatest:
        graph = replace(graph, parallel="greatest")
    return graph, Counts(self_loops, merged if directed or mirrored else merged // 2, infinite)


def graph_digest(graph: Graph) -> str:
    """Return ``sha256:<hex>`` of the content of a graph.

    The content is n, direction, rows, heads, the values of weights, and labels.  Terminals, coordinates, unit, and
    quantities (in their order) are included if the graph has them, and so is ``parallel`` if it is not ``least``.
    Equal graphs have equal digests, whatever file they came from and whatever integer type holds their weights.
    """
    digest = hashlib.sha256()
    text = graph.labels.dtype.kind not in "iu"
    head: dict[str, object] = {"n": graph.n, "arcs": graph.arcs, "directed": graph.directed}
    head |= {"integral": graph.integral, "text": text}
    if graph.terminals:
        head["terminals"] = graph.terminals
    head |= {"unit": graph.unit} if graph.unit is not None else {}
    head |= {"quantities": list(graph.quantities)} if graph.quantities else {}
    if graph.parallel != "least":
        head["parallel"] = graph.parallel
    digest.update(json.dumps(head, sort_keys=True).encode())
    weight_type = "<i8" if graph.integral else "<f8"
    arrays: list[tuple[AnyArray, str]] = [(graph.indptr, "<i8"), (graph.heads, "<i4"), (graph.weights, weight_type)]
    arrays += [(values, "<i8" if values.dtype.kind == "i" else "<f8") for values in graph.quantities.values()]
    for array, kind in arrays:
        for part in chunks(len(array)):
            digest.update(np.ascontiguousarray(array[part], dtype=kind).data)
    for part in chunks(graph.n):
        if text:
            digest.update(json.dumps(graph.labels[part].tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(graph.labels[part], dtype="<i8").data)
    if graph.coordinates is not None:
        add_to_digest(digest, graph.coordinates)
    return f"sha256:{digest.hexdigest()}"


def index_of(graph_or_labels: Graph | AnyArray, text: str | int) -> int:
    """Return the index of the vertex with label ``text``.  Raises NotFound, whose message names the range of labels."""
    labels = graph_or_labels.labels if isinstance(graph_or_labels, Graph) else graph_or_labels
    if len(labels) == 0:
        raise NotFound(f"no vertex {text!s}: the graph has no vertices")
    wanted = str(text).strip()
    if labels.dtype.kind in "iu":
        if is_label(wanted):
            key = np.int64(int(wanted))
            at = int(np.searchsorted(labels, key))
            if at < len(labels) and labels[at] == key:
                return at
        span = f"{labels[0]} to {labels[-1]}"
        hint = "" if is_label(wanted) else ", written without leading zeros, signs or fractions"
        raise NotFound(f"no vertex {wanted!r}: the {len(labels)} vertices are numbers from {span}{hint}")
    for name in (str(text), wanted):
        at = search_text(labels, name)
        if at < len(labels) and str(labels[at]) == name:
            return at
    span = f"{labels[0]!r} to {labels[-1]!r}"
    near = similar_label(labels, wanted)
    hint = f". Did you mean {near!r}?" if near else ""
    raise NotFound(f"no vertex {wanted!r}: the {len(labels)} vertices are names from {span}{hint}")


def save_graph(graph: Graph, receipt: Receipt, folder: str | Path) -> None:
    """Write the graph as npy files and JSON; the folder appears complete and durable or not at all.

    Args:
        graph: the graph.
        receipt: the record of what the reader of the graph found; it is stored in the same folder.
        folder: a path that does not exist; missing parents are made.

    Raises:
        Conflict: the folder exists.
        StorageFailed: the folder cannot be written.
    """
    target = Path(folder)
    if target.exists():
        raise Conflict(f"{target} exists already")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failure("make the folder of", target, error) from error
    staging = Staging(target)
    try:
        _write_files(graph, receipt, staging.folder)
        sync_tree(staging.folder)
        staging.publish(replace=False)
    except OSError as error:
        raise failure("write", target, error) from error
    finally:
        staging.discard()


def _write_files(graph: Graph, receipt: Receipt, folder: Path) -> None:
    text = graph.labels.dtype.kind not in "iu"
    arrays: dict[str, AnyArray] = {"indptr": graph.indptr, "heads": graph.heads, "weights": graph.weights}
    if text:
        encoded = [str(label).encode() for label in graph.labels]
        arrays["label_bytes"] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays["label_ends"] = np.cumsum([len(e) for e in encoded], dtype=np.int64)
    else:
        arrays["labels"] = graph.labels
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    about: dict[str, object] = {
        "form": FORM if graph.quantities else 2 if graph.terminals else 1,
        "n": graph.n,
        "arcs": graph.arcs,
        "directed": graph.directed,
        "weighted": graph.weighted,
        "text_labels": text,
        "terminals": graph.terminals,
        "digest": graph_digest(graph),
        # An empty ``length_of`` is left out, because old versions of the program refuse a receipt with this member.
        "receipt": {name: value for name, value in asdict(receipt).items() if name != "length_of" or value},
    }
    about |= {"unit": graph.unit} if graph.unit is not None else {}
    about |= {"parallel": graph.parallel} if graph.parallel != "least" else {}
    if graph.coordinates is not None:
        about["coordinates"] = save_arrays(graph.coordinates, folder)
    if graph.quantities:
        about["quantities"] = save_quantities(graph.quantities, folder)
    (folder / "graph.json").write_text(json.dumps(about, indent=1))


def load_graph(folder: str | Path) -> tuple[Graph, Receipt]:
    """Open a graph that ``save_graph`` wrote; the arrays are memory-mapped, read only.

    Raises NotFound if there is no such folder, StorageFailed if the content is damaged.
    """
    source = Path(folder)
    if not (source / "graph.json").is_file():
        raise NotFound(f"no stored graph at {source}")
    try:
        about = json.loads((source / "graph.json").read_text())
        if about["form"] not in range(1, FORM + 1):
            raise StorageFailed(f"{source} has form {about['form']}; this version reads forms 1 to {FORM}")
        indptr, heads, weights = (_open_array(source / f"{name}.npy") for name in ("indptr", "heads", "weights"))
        labels = _open_labels(source, bool(about["text_labels"]))
        shapes = (len(indptr), len(heads), len(weights), len(labels))
        if shapes != (about["n"] + 1, about["arcs"], about["arcs"], about["n"]) or int(indptr[-1]) != about["arcs"]:
            raise StorageFailed(f"{source} is damaged: lengths {shapes} do not fit n = {about['n']}")
        receipt = Receipt(**{**about["receipt"], "notes": tuple(about["receipt"]["notes"])})
        kind = bool(about["directed"]), bool(about["weighted"]), int(about.get("terminals", 0))
        placed = load_arrays(about["coordinates"], source) if "coordinates" in about else None
        if placed is not None and len(placed.x) != len(labels):
            raise StorageFailed(f"{source} is damaged: {len(placed.x)} coordinates of {len(labels)} vertices")
        further = load_quantities(about["quantities"], source, about["arcs"]) if about["form"] > 2 else {}
        column = None if receipt.length_of else receipt.weight_column
        more = about.get("unit"), further, str(about.get("parallel", "least")), column
        graph = Graph(indptr, heads, weights, labels, *kind, placed, *more)  # type: ignore[arg-type]
    except ApspError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise StorageFailed(f"{source} is damaged: {error}") from error
    return graph, receipt


def _open_array(path: Path) -> AnyArray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except ValueError:
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]  # an empty array cannot be mapped


def _open_labels(folder: Path, text: bool) -> AnyArray:
    if not text:
        return _open_array(folder / "labels.npy")
    raw = _open_array(folder / "label_bytes.npy").tobytes()
    ends = _open_array(folder / "label_ends.npy").tolist()
    starts = [0, *ends[:-1]]
    return np.array([raw[i:j].decode() for i, j in zip(starts, ends, strict=True)], np.dtypes.StringDType())
