"""The validated graph: compressed sparse rows, vertex labels, and a receipt of what cleaning changed.

``build_graph`` is the only way in: it applies the rules that every reader shares (parallel arcs, self loops,
zeros, infinities) and makes the canonical form on which digests, stores and engines rely.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.errors import ApspError, Conflict, InvalidGraph, NegativeCycle, NotFound, StorageFailed

IntArray = npt.NDArray[np.int64]
AnyArray = npt.NDArray[np.generic]

#: Whole numbers up to here are exact in float64, and so is every rule that goes through it.
EXACT = 2**53
#: Entries looked at in one go where a temporary of the whole length would spoil the memory bound.
CHUNK = 1 << 20
#: Version of the folder written by ``save_graph``.
FORM = 1


@dataclass(frozen=True, eq=False)
class Graph:
    """A clean graph in compressed sparse rows (CSR).

    No self loops, no parallel arcs, no NaN or infinite weight.  An undirected graph holds both arcs of each edge.

    Attributes:
        indptr: int64, shape (n + 1,); the arcs out of vertex u are ``indptr[u]:indptr[u + 1]``.
        heads: int32, shape (arcs,); ascending within each row.
        weights: int32, int64 or float64, shape (arcs,); integer exactly when every weight is a whole number.
        labels: int64 or ``StringDType``, shape (n,), strictly ascending (numbers by value, names by code point).
        directed: False when the arcs mirror each other.
        weighted: False when every arc weighs 1 because the file has no weights (distances are then hops).
    """

    indptr: IntArray
    heads: npt.NDArray[np.int32]
    weights: npt.NDArray[np.int32] | npt.NDArray[np.int64] | npt.NDArray[np.float64]
    labels: npt.NDArray[np.generic]
    directed: bool
    weighted: bool

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
        """Number of arcs of a directed graph, of edges of an undirected one."""
        return self.arcs if self.directed else self.arcs // 2

    @property
    def integral(self) -> bool:
        """Whether every weight is a whole number, so that distances are exact integers."""
        return self.weights.dtype.kind == "i"


@dataclass(frozen=True)
class Receipt:
    """What a reader understood and what cleaning changed; shown by ``apsp inspect`` and ``POST /v1/graphs``."""

    format: str
    compression: str | None
    entries: int
    self_loops: int
    parallel_arcs: int
    infinite_arcs: int
    weight_column: str | None
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Counts:
    """What cleaning removed: self loops, arcs (edges) merged into a parallel one, arcs of weight +inf."""

    self_loops: int
    parallel_arcs: int
    infinite_arcs: int


@dataclass
class ArcList:
    """Arcs on their way into a graph; ``build_from`` empties it, so that no column is held twice.

    Attributes:
        tails, heads: int32 or int64, shape (entries,).
        weights: int32, int64 or float64, shape (entries,), or None for an unweighted graph.
    """

    tails: AnyArray
    heads: AnyArray
    weights: AnyArray | None


def build_graph(
    tails: npt.ArrayLike,
    heads: npt.ArrayLike,
    weights: npt.ArrayLike | None,
    *,
    labels: npt.ArrayLike | None = None,
    n: int | None = None,
    directed: bool,
    mirrored: bool = False,
) -> tuple[Graph, Counts]:
    """Clean a list of arcs into a graph.

    Self loops are dropped (a negative one is a negative cycle), of parallel arcs the smallest weight stays, both after
    mirroring undirected edges; a weight of +inf means no arc, an explicit 0 is an arc of length zero.

    Args:
        tails, heads: integers, shape (entries,).  With ``labels`` or ``n`` they are vertex indices 0 .. n - 1;
            without, they are the labels themselves and the vertices are those that occur.
        weights: numbers, shape (entries,), or None: every arc weighs 1 and the graph counts hops.
        labels: shape (n,), strictly ascending int64 or strings.
        n: number of vertices, labelled 0 .. n - 1; may go together with ``labels``, whose length it then repeats.
        directed: False mirrors every entry.
        mirrored: the entries of an undirected graph hold both arcs of each edge already.

    Raises:
        InvalidGraph: NaN, -inf, whole weights beyond 2**53, index out of range, labels that do not ascend.
        NegativeCycle: a self loop of negative weight.
    """
    arcs = ArcList(_whole_array(tails, "tails"), _whole_array(heads, "heads"), None)
    if weights is not None:
        array = np.asarray(weights)
        if array.dtype.kind not in "iuf" and array.size:
            raise InvalidGraph(f"weights must be numbers, not {array.dtype}", field="weights")
        arcs.weights = array.astype(np.float64) if array.dtype.kind not in "iu" else array
    if not len(arcs.tails) == len(arcs.heads) == len(arcs.tails if arcs.weights is None else arcs.weights):
        raise InvalidGraph("tails, heads and weights must have the same length", field="weights")
    names = None if labels is None else _label_array(labels)
    if n is not None and names is not None and len(names) != n:
        raise InvalidGraph(f"{n} vertices, but {len(names)} labels", field="labels")
    if names is None and n is not None:
        names = np.arange(n, dtype=np.int64)
    return build_from(arcs, labels=names, directed=directed, mirrored=mirrored)


def build_from(
    arcs: ArcList, *, labels: AnyArray | None, directed: bool, mirrored: bool = False, base: int = 0
) -> tuple[Graph, Counts]:
    """``build_graph`` for columns that may be consumed: peak memory is that of ``arcs`` and the result together.

    ``base`` is the number that the columns use for the first of ``labels`` (1 in most file formats).
    """
    weighted = arcs.weights is not None
    if labels is None:
        labels = _index_by_label(arcs)
    else:
        _shift_to_index(arcs, base, len(labels))
    if arcs.weights is not None:
        arcs.weights = _canonical_weights(arcs.weights)
    self_loops, infinite = _drop_loops(arcs, labels)
    if not directed and not mirrored:
        _mirror(arcs)
    indptr, out_heads, out_weights, merged = _compress(arcs, len(labels))
    out_weights = _smallest_type(out_weights)
    graph = Graph(indptr, out_heads, out_weights, labels, directed, weighted)
    return graph, Counts(self_loops, merged if directed or mirrored else merged // 2, infinite)


def _whole_array(values: npt.ArrayLike, name: str) -> AnyArray:
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidGraph(f"{name} must be a list of whole numbers, not {array.dtype} of {array.ndim} axes", field=name)
    return array if array.dtype in (np.int32, np.int64) else array.astype(np.int64)


def _label_array(labels: npt.ArrayLike) -> AnyArray:
    """Labels as int64 or ``StringDType``; they must ascend strictly."""
    array = np.asarray(labels)
    kind: npt.DTypeLike = np.int64 if array.dtype.kind in "iu" or array.size == 0 else np.dtypes.StringDType()
    array = array.astype(kind)
    if len(array) > 1 and not bool(np.all(array[1:] > array[:-1])):
        raise InvalidGraph("labels must ascend strictly", field="labels")
    return array


def _chunks(length: int) -> Iterator[slice]:
    return (slice(i, min(i + CHUNK, length)) for i in range(0, length, CHUNK))


def _extent(columns: tuple[AnyArray, ...]) -> tuple[int, int]:
    """Smallest and largest entry of integer columns, (0, -1) if there is none."""
    full = [c for c in columns if len(c)]
    if not full:
        return 0, -1
    return min(int(c.min()) for c in full), max(int(c.max()) for c in full)


def _index_by_label(arcs: ArcList) -> IntArray:
    """Replace labels by vertex indices and return the labels that occur, ascending.

    A dense range is ranked through a table; wide ones (OpenStreetMap ids) through sorted labels.
    """
    low, high = _extent((arcs.tails, arcs.heads))
    span = high - low + 1
    if span > 2 * len(arcs.tails) + 65536:
        labels = np.union1d(_distinct(arcs.tails), _distinct(arcs.heads)).astype(np.int64)
        arcs.tails = _rank(arcs.tails, labels)
        arcs.heads = _rank(arcs.heads, labels)
        return labels
    seen = np.zeros(span, np.bool_)
    for column in (arcs.tails, arcs.heads):
        for part in _chunks(len(column)):
            seen[column[part].astype(np.int64) - low] = True
    labels = np.flatnonzero(seen)
    table = None if len(labels) == span else np.cumsum(seen, dtype=np.int32) - np.int32(1)
    labels += low
    arcs.tails = _look_up(arcs.tails, low, table)
    arcs.heads = _look_up(arcs.heads, low, table)
    return labels


def _distinct(column: AnyArray) -> AnyArray:
    """Distinct entries, part by part: never a sorted copy of the whole column."""
    parts = [np.unique(column[part]) for part in _chunks(len(column))]
    while len(parts) > 1:
        parts = [np.union1d(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def _rank(column: AnyArray, labels: IntArray) -> npt.NDArray[np.int32]:
    out = np.empty(len(column), np.int32)
    for part in _chunks(len(column)):
        out[part] = np.searchsorted(labels, column[part])
    return out


def _look_up(column: AnyArray, low: int, table: npt.NDArray[np.int32] | None) -> AnyArray:
    """``column - low`` as int32 indices, through the rank table where the labels have gaps."""
    if table is None and low == 0 and column.dtype == np.int32:
        return column
    out = np.empty(len(column), np.int32)
    for part in _chunks(len(column)):
        index = column[part].astype(np.int64) - low
        out[part] = index if table is None else table[index]
    return out


def _shift_to_index(arcs: ArcList, base: int, n: int) -> None:
    low, high = _extent((arcs.tails, arcs.heads))
    if low <= high and (low < base or high >= base + n):
        wrong = low if low < base else high
        raise InvalidGraph(f"vertex {wrong} is outside {base} .. {base + n - 1}", field="vertex")
    arcs.tails = _look_up(arcs.tails, base, None)
    arcs.heads = _look_up(arcs.heads, base, None)


def _canonical_weights(weights: AnyArray) -> AnyArray:
    """Refuse what is no length; whole numbers become int64 (or stay int32)."""
    if weights.dtype.kind in "iu":
        low, high = _extent((weights,))
        if max(-low, high) > EXACT:
            wrong = high if high > -low else low
            raise InvalidGraph(f"weight {wrong} is beyond 2^53, so sums would not be exact", field="weight")
        return weights if weights.dtype == np.int32 else weights.astype(np.int64, copy=False)
    whole = True
    infinite = False
    for part in _chunks(len(weights)):
        piece = weights[part].astype(np.float64, copy=False)
        if np.isnan(piece).any() or (piece == -np.inf).any():
            bad = "NaN" if np.isnan(piece).any() else "-inf"
            raise InvalidGraph(f"weight {bad} is not a length", field="weight")
        finite = np.isfinite(piece)
        infinite = infinite or not finite.all()
        exact = (np.rint(piece) == piece) & (np.abs(piece) <= EXACT)
        whole = whole and bool(np.all(exact | ~finite))
    if not whole or infinite:
        return weights.astype(np.float64, copy=False)
    out = np.empty(len(weights), np.int64)
    for part in _chunks(len(weights)):
        out[part] = weights[part]
    return out


def _drop_loops(arcs: ArcList, labels: AnyArray) -> tuple[int, int]:
    """Remove self loops and arcs of weight +inf; returns how many of each."""
    keep = arcs.tails != arcs.heads
    loops = len(keep) - int(np.count_nonzero(keep))
    if loops and arcs.weights is not None:
        at = np.flatnonzero(~keep)
        worst = at[int(np.argmin(arcs.weights[at]))]
        if arcs.weights[worst] < 0:
            label = labels[arcs.tails[worst]]
            raise NegativeCycle([label.item() if hasattr(label, "item") else label], float(arcs.weights[worst]))
    infinite = 0
    if arcs.weights is not None and arcs.weights.dtype.kind == "f":
        finite = np.isfinite(arcs.weights)
        infinite = int(np.count_nonzero(keep & ~finite))
        keep &= finite
    if loops or infinite:
        arcs.tails = arcs.tails[keep]
        arcs.heads = arcs.heads[keep]
        arcs.weights = None if arcs.weights is None else arcs.weights[keep]
        if infinite and arcs.weights is not None:
            arcs.weights = _canonical_weights(arcs.weights)
    return loops, infinite


def _mirror(arcs: ArcList) -> None:
    tails = np.concatenate([arcs.tails, arcs.heads])
    arcs.heads = np.concatenate([arcs.heads, arcs.tails])
    arcs.tails = tails
    if arcs.weights is not None:
        arcs.weights = np.concatenate([arcs.weights, arcs.weights])


def _compress(arcs: ArcList, n: int) -> tuple[IntArray, npt.NDArray[np.int32], AnyArray, int]:
    """Counting sort into rows, sort within rows, merge parallel arcs; returns also how many were merged."""
    # Imported here: a start of the API process must not pay for scipy.sparse.
    from scipy.sparse import coo_array

    weights = np.ones(len(arcs.tails), np.int32) if arcs.weights is None else arcs.weights
    if len(arcs.tails) == 0:
        return np.zeros(n + 1, np.int64), np.zeros(0, np.int32), weights, 0
    rows = coo_array((weights, (arcs.tails, arcs.heads)), shape=(n, n))
    # SciPy would add up parallel arcs; claiming that there are none leaves them to the minimum below.
    rows.has_canonical_format = True
    arcs.tails = arcs.heads = np.zeros(0, np.int32)
    arcs.weights = None
    del weights
    matrix = rows.tocsr()
    del rows
    matrix.has_sorted_indices = False
    matrix.sort_indices()
    indptr = matrix.indptr.astype(np.int64)
    heads = matrix.indices.astype(np.int32, copy=False)
    values: AnyArray = matrix.data
    del matrix
    return _merge_parallel(indptr, heads, values)


def _merge_parallel(
    indptr: IntArray, heads: npt.NDArray[np.int32], values: AnyArray
) -> tuple[IntArray, npt.NDArray[np.int32], AnyArray, int]:
    """Of equal neighbours within a row keep one, with the smallest weight."""
    repeats = np.zeros(len(heads), np.bool_)
    np.equal(heads[1:], heads[:-1], out=repeats[1:])
    starts = indptr[:-1]
    repeats[starts[starts < len(heads)]] = False
    at = np.flatnonzero(repeats)
    if len(at) == 0:
        return indptr, heads, values, 0
    opens = np.ones(len(at), np.bool_)
    opens[1:] = at[1:] != at[:-1] + 1
    first = np.flatnonzero(opens)
    lowest = np.minimum.reduceat(values[at], first)
    kept = at[first] - 1
    values[kept] = np.minimum(values[kept], lowest)
    indptr = indptr - np.searchsorted(at, indptr)
    keep = ~repeats
    heads = heads[keep]
    return indptr, heads, values[keep], len(at)


def _smallest_type(weights: AnyArray) -> npt.NDArray[np.int32] | npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """Int32 if it holds all weights; merging may have left only whole numbers."""
    weights = _canonical_weights(weights)
    if weights.dtype == np.int64:
        low, high = _extent((weights,))
        if -(2**31) <= low and high < 2**31:
            return weights.astype(np.int32)
    return weights  # type: ignore[return-value]


def graph_digest(graph: Graph) -> str:
    """``sha256:<hex>`` of the content: n, direction, rows, heads, weights by value, labels.

    Equal for equal graphs whatever the file they came from and the width of the integer type that holds the weights.
    """
    digest = hashlib.sha256()
    text = graph.labels.dtype.kind not in "iu"
    head = {"n": graph.n, "arcs": graph.arcs, "directed": graph.directed, "integral": graph.integral, "text": text}
    digest.update(json.dumps(head, sort_keys=True).encode())
    weight_type = "<i8" if graph.integral else "<f8"
    for array, kind in ((graph.indptr, "<i8"), (graph.heads, "<i4"), (graph.weights, weight_type)):
        for part in _chunks(len(array)):
            digest.update(np.ascontiguousarray(array[part], dtype=kind).data)
    for part in _chunks(graph.n):
        if text:
            digest.update(json.dumps(graph.labels[part].tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(graph.labels[part], dtype="<i8").data)
    return f"sha256:{digest.hexdigest()}"


def index_of(graph_or_labels: Graph | AnyArray, text: str | int) -> int:
    """Index of the vertex that the file calls ``text``; NotFound names it and the range of the labels."""
    labels = graph_or_labels.labels if isinstance(graph_or_labels, Graph) else graph_or_labels
    if len(labels) == 0:
        raise NotFound(f"no vertex {text!s}: the graph has no vertices")
    wanted = str(text).strip()
    if labels.dtype.kind in "iu":
        if re.fullmatch(r"[+-]?[0-9]{1,19}", wanted) and -(2**63) <= int(wanted) < 2**63:
            key = np.int64(int(wanted))
            at = int(np.searchsorted(labels, key))
            if at < len(labels) and labels[at] == key:
                return at
        raise NotFound(f"no vertex {wanted!r}: the vertices are numbers, {len(labels)} from {labels[0]} to {labels[-1]}")
    for name in (str(text), wanted):
        at = _search_text(labels, name)
        if at < len(labels) and str(labels[at]) == name:
            return at
    raise NotFound(f"no vertex {wanted!r}: the vertices are names, {len(labels)} from {labels[0]!r} to {labels[-1]!r}")


def _search_text(labels: AnyArray, name: str) -> int:
    low, high = 0, len(labels)
    while low < high:
        middle = (low + high) // 2
        if str(labels[middle]) < name:
            low = middle + 1
        else:
            high = middle
    return low


def save_graph(graph: Graph, receipt: Receipt, folder: str | Path) -> None:
    """Write the graph as npy files and JSON; the folder appears complete or not at all.

    Raises Conflict if the folder exists, StorageFailed if it cannot be written.
    """
    target = Path(folder)
    if target.exists():
        raise Conflict(f"{target} exists already")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise StorageFailed(f"cannot write {target}: {error}") from error
    try:
        _write_files(graph, receipt, staging)
        staging.rename(target)
        _sync(target.parent)
    except OSError as error:
        raise StorageFailed(f"cannot write {target}: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


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
        with (folder / f"{name}.npy").open("wb") as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
    about = {
        "form": FORM,
        "n": graph.n,
        "arcs": graph.arcs,
        "directed": graph.directed,
        "weighted": graph.weighted,
        "text_labels": text,
        "digest": graph_digest(graph),
        "receipt": asdict(receipt),
    }
    with (folder / "graph.json").open("w") as file:
        json.dump(about, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load_graph(folder: str | Path) -> tuple[Graph, Receipt]:
    """Open what ``save_graph`` wrote; the arrays are memory-mapped, read only.

    Raises NotFound if there is no such folder, StorageFailed if what is there is damaged.
    """
    source = Path(folder)
    if not (source / "graph.json").is_file():
        raise NotFound(f"no stored graph at {source}")
    try:
        about = json.loads((source / "graph.json").read_text())
        if about["form"] != FORM:
            raise StorageFailed(f"{source} has form {about['form']}; this version reads form {FORM}")
        indptr, heads, weights = (_open_array(source / f"{name}.npy") for name in ("indptr", "heads", "weights"))
        labels = _open_labels(source, bool(about["text_labels"]))
        shapes = (len(indptr), len(heads), len(weights), len(labels))
        if shapes != (about["n"] + 1, about["arcs"], about["arcs"], about["n"]) or int(indptr[-1]) != about["arcs"]:
            raise StorageFailed(f"{source} is damaged: lengths {shapes} do not fit n = {about['n']}")
        receipt = Receipt(**{**about["receipt"], "notes": tuple(about["receipt"]["notes"])})
        graph = Graph(indptr, heads, weights, labels, bool(about["directed"]), bool(about["weighted"]))  # type: ignore[arg-type]
    except ApspError:
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
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
