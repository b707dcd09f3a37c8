"""Cleans columns of arcs by the rules that all readers share: labels, weights, self loops, parallel arcs, rows.

These are the steps of ``storage.graph.graph.build_from``.  They work in chunks or in place where possible, because the
columns and the result together are the peak memory of reading a graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from storage.arguments import as_float64, shown, unmasked
from storage.errors import InvalidGraph, InvalidRequest, NegativeCycle

IntArray = npt.NDArray[np.int64]
AnyArray = npt.NDArray[np.generic]

#: Whole numbers up to this one are exact in float64, so rules that compute in float64 are exact for them.
EXACT = 2**53
#: Up to this number, arcs are sorted with NumPy, because that takes less time than importing scipy.sparse.
FEW_ARCS = 1 << 18
#: Number of entries per chunk in steps whose temporary arrays would raise the peak memory of reading a graph.
CHUNK = 1 << 20
#: Number of entries per chunk in steps with several passes over a chunk, so that it stays in the processor's cache.
CACHED = 1 << 14

#: A whole number in its only accepted spelling: no leading zeros, no plus sign, no minus zero.
_LABEL = re.compile(r"0|-?[1-9][0-9]{0,18}+")
_QUANTITY = re.compile(r"(?!zarr\.json$)[^\W_][\w .+%-]{0,79}|_[^\W_][\w .+%-]{0,78}")


def is_label(text: str) -> bool:
    """Return whether a name is an int64 in the only accepted spelling, so that no two names are the same number."""
    return _LABEL.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


@dataclass
class ArcList:
    """Arcs to build a graph from.  ``build_from`` empties the columns, so that no column is in memory twice.

    Attributes:
        tails, heads: labels or indices of the ends, int32 or int64, shape (entries,).
        weights: int32, int64 or float64, shape (entries,), or None for an unweighted graph.
        quantities: numbers of each arc other than weights, by name, int32, int64 or float64, shape (entries,) each.
        greatest: which of parallel arcs is kept: the arc with the greatest weight if True, else the arc with the
            smallest weight (``Graph.parallel``).
    """

    tails: AnyArray
    heads: AnyArray
    weights: AnyArray | None
    quantities: dict[str, AnyArray] = field(default_factory=dict)
    greatest: bool = False


def chunks(length: int) -> Iterator[slice]:
    """Yield slices of at most ``CHUNK`` entries that together cover ``length`` entries."""
    return (slice(i, min(i + CHUNK, length)) for i in range(0, length, CHUNK))


def _extent(columns: tuple[AnyArray, ...]) -> tuple[int, int]:
    """Return the smallest and the largest entry of integer columns; (0, -1) without entries."""
    full = [c for c in columns if len(c)]
    if not full:
        return 0, -1
    return min(int(c.min()) for c in full), max(int(c.max()) for c in full)


def index_by_label(arcs: ArcList) -> IntArray:
    """Replace labels by vertex indices and return the labels that occur, ascending.

    If the labels span a small range, a table maps them to indices.  Otherwise, as for ids of OpenStreetMap, indices are
    found by binary search in the sorted labels.
    """
    low, high = _extent((arcs.tails, arcs.heads))
    span = high - low + 1
    if span > 2 * len(arcs.tails) + 65536:
        labels = _distinct(arcs.tails, arcs.heads)
        arcs.tails = _rank(arcs.tails, labels)
        arcs.heads = _rank(arcs.heads, labels)
        return labels
    seen = np.zeros(span, np.bool_)
    for column in (arcs.tails, arcs.heads):
        for part in chunks(len(column)):
            seen[column[part].astype(np.int64) - low] = True
    labels = np.flatnonzero(seen)
    table = None if len(labels) == span else np.cumsum(seen, dtype=np.int32) - np.int32(1)
    labels += low
    arcs.tails = _look_up(arcs.tails, low, table)
    arcs.heads = _look_up(arcs.heads, low, table)
    return labels


def _distinct(*columns: AnyArray) -> IntArray:
    """Return the distinct entries, ascending; the temporary arrays hold about as many entries as the result.

    Entries are sorted and repeats dropped; ``np.unique`` hashes integers, which took ten times as long.
    """
    found = np.empty(0, np.int64)
    parts: list[IntArray] = []
    pending = 0
    for column in columns:
        for part in chunks(len(column)):
            parts.append(_sorted_set(column[part]))
            pending += len(parts[-1])
            if pending > max(len(found), 2 * CHUNK):
                found, parts, pending = _sorted_set(np.concatenate([found, *parts])), [], 0
    return _sorted_set(np.concatenate([found, *parts])) if parts else found


def _sorted_set(values: AnyArray) -> IntArray:
    ascending = np.sort(values.astype(np.int64, copy=False))
    keep = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=keep[1:])
    return ascending[keep]


def _rank(column: AnyArray, labels: IntArray) -> npt.NDArray[np.int32]:
    """Return the position of every entry in ``labels``.

    Entries are looked up in ascending order, which is four times as fast as random order.
    """
    out = np.empty(len(column), np.int32)
    for part in chunks(len(column)):
        order = np.argsort(column[part])
        piece = np.empty(len(order), np.int32)
        piece[order] = np.searchsorted(labels, column[part][order])
        out[part] = piece
    return out


def _look_up(column: AnyArray, low: int, table: npt.NDArray[np.int32] | None) -> AnyArray:
    """Return ``column - low`` as int32, or, for labels with gaps, the entries of ``table`` at these indices."""
    if table is None and low == 0 and column.dtype == np.int32:
        return column
    out = np.empty(len(column), np.int32)
    for part in chunks(len(column)):
        index = column[part].astype(np.int64) - low
        out[part] = index if table is None else table[index]
    return out


def shift_to_index(arcs: ArcList, base: int, n: int) -> None:
    """Convert vertex numbers ``base .. base + n - 1`` to vertex indices ``0 .. n - 1``.

    Args:
        arcs: the arcs; their tails and heads are replaced by int32 indices.
        base: the number of the first vertex.
        n: number of vertices.

    Raises:
        InvalidGraph: a vertex number is outside ``base .. base + n - 1``; the message names it.
    """
    low, high = _extent((arcs.tails, arcs.heads))
    if low <= high and (low < base or high >= base + n):
        wrong = low if low < base else high
        raise InvalidGraph(f"vertex {wrong} is outside {base} .. {base + n - 1}", field="vertex")
    arcs.tails = _look_up(arcs.tails, base, None)
    arcs.heads = _look_up(arcs.heads, base, None)


def canonical_weights(weights: AnyArray) -> AnyArray:
    """Check that all weights are lengths, and return whole numbers as int64 (int32 stays).

    Raises:
        InvalidGraph: a weight is NaN, -inf, or a whole number beyond 2**53.
    """
    if weights.dtype.kind in "iu":
        low, high = _extent((weights,))
        if max(-low, high) > EXACT:
            wrong = high if high > -low else low
            raise InvalidGraph(f"weight {wrong} is beyond 2^53, so sums would not be exact", field="weight")
        return weights if weights.dtype == np.int32 else weights.astype(np.int64, copy=False)
    numbers = _whole_numbers(weights)
    if numbers is not None:
        return numbers
    for first in range(0, len(weights), CACHED):
        piece = weights[first : first + CACHED].astype(np.float64, copy=False)
        if np.isnan(piece).any() or (piece == -np.inf).any():
            bad = "NaN" if np.isnan(piece).any() else "-inf"
            raise InvalidGraph(f"weight {bad} is not a length", field="weight")
    return weights.astype(np.float64, copy=False)


def _whole_numbers(weights: AnyArray) -> IntArray | None:
    """Return floats as int64 if all are whole and at most 2**53, else None.  Chunks fit into the processor's cache."""
    out = np.empty(len(weights), np.int64)
    for first in range(0, len(weights), CACHED):
        piece, whole = weights[first : first + CACHED], out[first : first + CACHED]
        with np.errstate(invalid="ignore"):  # NaN and infinity become integers, so the comparison below finds them
            whole[:] = piece
        if not np.array_equal(whole, piece) or max(-int(whole.min()), int(whole.max())) > EXACT:
            return None
    return out


def drop_loops(arcs: ArcList, labels: AnyArray) -> tuple[int, int]:
    """Remove self loops and arcs of weight +inf; return how many loops, and how many other arcs, were removed.

    Raises:
        NegativeCycle: a self loop has a negative weight, and weights are lengths (``arcs.greatest`` is False).
        InvalidGraph: a weight is +inf, and weights are no lengths (``arcs.greatest`` is True).
    """
    keep = arcs.tails != arcs.heads
    loops = len(keep) - int(np.count_nonzero(keep))
    if loops and arcs.weights is not None and not arcs.greatest:
        at = np.flatnonzero(~keep)
        worst = at[int(np.argmin(arcs.weights[at]))]
        if arcs.weights[worst] < 0:
            label = labels[arcs.tails[worst]]
            raise NegativeCycle([label.item() if hasattr(label, "item") else label], float(arcs.weights[worst]))
    infinite = 0
    if arcs.weights is not None and arcs.weights.dtype.kind == "f":
        finite = np.isfinite(arcs.weights)
        infinite = int(np.count_nonzero(keep & ~finite))
        if infinite and arcs.greatest:
            raise InvalidGraph(
                f"{infinite:,} arcs weigh +inf, which means no arc where weights are lengths; where the greatest of "
                "parallel arcs is kept (parallel), give each a finite weight, such as one above all others",
                field="weight",
            )
        keep &= finite
    if loops or infinite:
        arcs.tails, arcs.heads = arcs.tails[keep], arcs.heads[keep]
        arcs.weights = None if arcs.weights is None else arcs.weights[keep]
        arcs.quantities = {name: values[keep] for name, values in arcs.quantities.items()}
        if infinite and arcs.weights is not None:
            arcs.weights = canonical_weights(arcs.weights)
    return loops, infinite


def mirror(arcs: ArcList) -> None:
    """Add the reverse arc of every arc."""
    arcs.tails, arcs.heads = np.concatenate([arcs.tails, arcs.heads]), np.concatenate([arcs.heads, arcs.tails])
    if arcs.weights is not None:
        arcs.weights = np.concatenate([arcs.weights, arcs.weights])
    arcs.quantities = {name: np.concatenate([values, values]) for name, values in arcs.quantities.items()}


def compress_all(arcs: ArcList, n: int) -> tuple[IntArray, npt.NDArray[np.int32], AnyArray, dict[str, AnyArray], int]:
    """Sort arcs that have quantities into rows and by head, and merge parallel arcs; empties ``arcs``.

    Of parallel arcs, the arc with the smallest weight is kept with its quantities (with ``arcs.greatest`` the arc with
    the greatest weight).  Among equal weights, the arc whose first quantity is smallest is kept; if these are equal,
    too, the second quantity decides, and so on.

    Args:
        arcs: the arcs, whose ends are vertex indices.
        n: number of vertices.

    Returns:
        ``indptr`` (shape (n + 1,)), heads, weights and quantities (shape (arcs,) each), and how many arcs were merged.
    """
    weights = np.ones(len(arcs.tails), np.int32) if arcs.weights is None else arcs.weights
    ends = arcs.tails.astype(np.int64) * n + arcs.heads.astype(np.int64)
    order = np.argsort(ends, kind="stable")  # takes little time if arcs come in rows, as in most files
    further = np.diff(ends[order], prepend=-1) == 0
    if further.any():
        parallel = further | np.append(further[1:], False)
        some = order[parallel]
        key = -weights[some].astype(np.float64) if arcs.greatest else weights[some]  # whole weights are at most 2**53
        others = (values[some] for values in reversed(arcs.quantities.values()))
        order[parallel] = some[np.lexsort((*others, key, ends[some]))]
    order, indptr = order[~further], np.zeros(n + 1, np.int64)
    tails, heads = arcs.tails[order], arcs.heads[order].astype(np.int32, copy=False)
    np.cumsum(np.bincount(tails, minlength=n), out=indptr[1:])
    quantities = {name: values[order] for name, values in arcs.quantities.items()}
    arcs.tails = arcs.heads = np.zeros(0, np.int32)
    arcs.weights, arcs.quantities = None, {}
    return indptr, heads, weights[order], quantities, int(np.count_nonzero(further))


def check_quantity_name(name: str) -> None:
    """Raise InvalidRequest if a quantity cannot have this name, because the name becomes a folder name in a store."""
    if not _QUANTITY.fullmatch(name) or name.endswith((" ", ".")):
        raise InvalidRequest(
            f"quantity {name[:80]!r} cannot name an array of a store: at most 80 letters, digits, blanks, _ - . + %, "
            "the first is a letter, a digit or _, and zarr.json is taken; rename the column",
            field="also",
        )


def given_quantities(given: Mapping[str, npt.ArrayLike] | None) -> dict[str, AnyArray]:
    """Return the checked quantities of arcs by name; an empty dictionary for None.

    Raises:
        InvalidGraph: :func:`quantity_values` refuses the numbers.
        InvalidRequest: a name cannot be the name of an array, or ``given`` is no mapping of names to columns.
    """
    if given is not None and not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
        raise InvalidRequest(f"quantities must be columns by name, found {shown(given)}", field="quantities")
    return {name: quantity_values(name, values) for name, values in (given or {}).items()}


def quantity_values(name: str, values: npt.ArrayLike) -> AnyArray:
    """Return the numbers of a quantity as int64 if all of them are whole, else as float64.

    Args:
        name: the name of the quantity, for messages.
        values: numbers, shape (entries,).

    Raises:
        InvalidGraph: an entry is no number, is infinite, or is whole and beyond 2**53.
        InvalidRequest: the name cannot be the name of an array in a store.
    """
    array = unmasked(name, values)
    check_quantity_name(name)
    if array.ndim != 1 or (array.dtype.kind not in "iuf" and array.size):
        raise InvalidGraph(f"quantity {name!r} must be a list of numbers, not {array.dtype}", field=name)
    wrong = np.flatnonzero(~np.isfinite(array.astype(np.float64)))
    if len(wrong):
        message = f"{array[wrong[0]]} of arc {wrong[0] + 1} cannot be summed along a path"
        raise InvalidGraph(f"quantity {name!r}: {message}", field=name)
    try:
        return smallest_type(array if array.dtype.kind in "iu" else as_float64(name, array))
    except InvalidGraph as error:
        raise InvalidGraph(f"quantity {name!r}: {error}", field=name) from None


def compress(arcs: ArcList, n: int) -> tuple[IntArray, npt.NDArray[np.int32], AnyArray, int]:
    """Sort the arcs into rows and by head, and merge parallel arcs; empties ``arcs``.

    Returns:
        ``indptr`` (shape (n + 1,)), heads and weights (shape (arcs,)), and how many arcs were merged.
    """
    best = np.maximum if arcs.greatest else np.minimum
    weights = np.ones(len(arcs.tails), np.int32) if arcs.weights is None else arcs.weights
    if len(arcs.tails) == 0:
        return np.zeros(n + 1, np.int64), np.zeros(0, np.int32), weights, 0
    if len(arcs.tails) <= FEW_ARCS:
        return _merge_parallel(*_sorted_rows(arcs, weights, n), best)
    # scipy.sparse is imported only here, so that the start of the API process and small solves need not wait for it.
    from scipy.sparse import coo_array

    rows = coo_array((weights, (arcs.tails, arcs.heads)), shape=(n, n))
    # SciPy would add up the weights of parallel arcs.  This flag claims that there are none, so that SciPy leaves them
    # for the code below, which keeps the best of parallel arcs.
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
    return _merge_parallel(indptr, heads, values, best)


def _sorted_rows(arcs: ArcList, weights: AnyArray, n: int) -> tuple[IntArray, npt.NDArray[np.int32], AnyArray]:
    """Sort arcs into rows and by head with NumPy, which is fast for few arcs; empties ``arcs``."""
    order = np.lexsort((arcs.heads, arcs.tails))
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(arcs.tails, minlength=n), out=indptr[1:])
    heads = arcs.heads[order].astype(np.int32, copy=False)
    arcs.tails = arcs.heads = np.zeros(0, np.int32)
    arcs.weights = None
    return indptr, heads, weights[order]


def _merge_parallel(
    indptr: IntArray, heads: npt.NDArray[np.int32], values: AnyArray, best: np.ufunc = np.minimum
) -> tuple[IntArray, npt.NDArray[np.int32], AnyArray, int]:
    """Merge arcs of a row with the same head, which are adjacent, into one arc with the ``best`` of their weights."""
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
    lowest = best.reduceat(values[at], first)
    kept = at[first] - 1
    values[kept] = best(values[kept], lowest)
    indptr = indptr - np.searchsorted(at, indptr)
    keep = ~repeats
    heads = heads[keep]
    return indptr, heads, values[keep], len(at)


def smallest_type(weights: AnyArray) -> npt.NDArray[np.int32] | npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """Return weights as int32 or int64 if all are whole (merging may have removed all fractions), else as float64."""
    weights = canonical_weights(weights)
    if weights.dtype == np.int64:
        low, high = _extent((weights,))
        if low >= -(2**31) and high < 2**31:
            return weights.astype(np.int32)
    elif weights.dtype == np.float64:
        np.add(weights, 0.0, out=weights)  # -0.0 becomes 0.0, so that equal weights have equal bytes
    return weights  # type: ignore[return-value]
