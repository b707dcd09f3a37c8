"""The shortest-path functions of ``scipy.sparse.csgraph``, computed by this engine.

Signatures, semantics and results are SciPy's.  Distances are float64, +inf where there is no path; predecessors are
int32, -9999 for none.  Explicit zeros of a sparse matrix are arcs of length zero; zeros, NaN and inf of a dense matrix
mean that there is no arc.  Sums of whole weights are exact up to 2^53; other weights are added in float64.

``method`` (or the name of the function) says which algorithm the caller prefers; distances do not depend on it.  If
predecessors are wanted and weights are fractional, searches are used, because only searches add weights in order along
a path.  A predecessor is recognized by an exact comparison, which needs sums in this order.
``overwrite`` is accepted, but the input is never changed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from operator import index
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import NegativeCycleError, csgraph_from_masked

from engine.interop.dense import graph_of_dense
from engine.interop.rows import NONE, Floats, Indices, distance_rows, nearest_row
from storage.errors import InvalidGraph, InvalidRequest, NegativeCycle
from storage.graph.graph import Graph, build_graph
from storage.graph.ordered import build_from_rows

T = TypeVar("T")
_METHODS: Final = ("auto", "FW", "D", "BF", "J")


def shortest_path(
    csgraph: Any,
    method: str = "auto",
    directed: bool = True,
    return_predecessors: bool = False,
    unweighted: bool = False,
    overwrite: bool = False,  # noqa: ARG001 - SciPy's signature
    indices: Any = None,
) -> Any:
    """Return lengths of shortest paths, as ``scipy.sparse.csgraph.shortest_path`` does.

    Args:
        csgraph: matrix of arcs, shape (n, n): dense, masked or sparse.
        method: ``auto``, ``FW``, ``D``, ``BF`` or ``J``.
        directed: if False, paths may use every arc in both directions; of the two arcs between a pair of vertices, only
            the shorter counts.
        return_predecessors: whether to return (distances, predecessors).
        unweighted: whether to count arcs instead of adding weights.
        overwrite: without effect.
        indices: sources, an integer array of any shape, or None for all; not together with ``FW``.

    Returns:
        Distances, float64, shape ``indices.shape + (n,)``, or (n, n) without ``indices``; predecessors, int32, have the
        same shape.

    Raises:
        ValueError: the method is unknown, a source is out of range, or the matrix is not square.
        NegativeCycleError: SciPy's exception; its message names a cycle.
    """
    if method not in _METHODS:
        raise ValueError(f"unrecognized method {method!r}; use {', '.join(_METHODS)}")
    if method == "FW" and indices is not None:
        raise ValueError("method 'FW' answers all sources; indices cannot be given with it")
    full = method == "FW" or (method == "auto" and indices is None and _is_full(csgraph))
    graph = _graph(csgraph, directed, unweighted, full=full)
    algorithm = "recursive-floyd-warshall" if method == "FW" else "auto"
    return _answer(graph, indices, return_predecessors, algorithm)


def floyd_warshall(
    csgraph: Any,
    directed: bool = True,
    return_predecessors: bool = False,
    unweighted: bool = False,
    overwrite: bool = False,
) -> Any:
    """Return what ``scipy.sparse.csgraph.floyd_warshall`` returns; :func:`shortest_path` describes the parameters."""
    return shortest_path(csgraph, "FW", directed, return_predecessors, unweighted, overwrite)


def johnson(
    csgraph: Any,
    directed: bool = True,
    indices: Any = None,
    return_predecessors: bool = False,
    unweighted: bool = False,
) -> Any:
    """Return what ``scipy.sparse.csgraph.johnson`` returns; :func:`shortest_path` describes the parameters."""
    return shortest_path(csgraph, "J", directed, return_predecessors, unweighted, indices=indices)


def bellman_ford(
    csgraph: Any,
    directed: bool = True,
    indices: Any = None,
    return_predecessors: bool = False,
    unweighted: bool = False,
) -> Any:
    """Return what ``scipy.sparse.csgraph.bellman_ford`` returns; :func:`shortest_path` describes the parameters."""
    return shortest_path(csgraph, "BF", directed, return_predecessors, unweighted, indices=indices)


def dijkstra(
    csgraph: Any,
    directed: bool = True,
    indices: Any = None,
    return_predecessors: bool = False,
    unweighted: bool = False,
    limit: float = np.inf,
    min_only: bool = False,
) -> Any:
    """Return what ``scipy.sparse.csgraph.dijkstra`` returns; if arcs are negative, warn as SciPy does, but return
    correct distances.

    Args:
        csgraph, directed, indices, return_predecessors, unweighted: as in :func:`shortest_path`.
        limit: distances beyond this limit count as no path.
        min_only: whether to return only the distance of each vertex from its nearest source, shape (n,).

    Returns:
        As :func:`shortest_path`; with ``min_only`` and predecessors (distances, predecessors, sources), of shape (n,)
        each.
    """
    if not limit >= 0:
        raise ValueError(f"limit must be at least 0, found {limit}")
    graph = _graph(csgraph, directed, unweighted)
    if graph.arcs and graph.weights.min() < 0:
        warnings.warn("Graph has negative weights: answered by Johnson's reweighting", UserWarning, stacklevel=2)
    if min_only:
        return _nearest(graph, indices, return_predecessors, limit)
    return _answer(graph, indices, return_predecessors, "auto", limit)


def _is_full(csgraph: Any) -> bool:
    """Return whether SciPy would select Floyd-Warshall: at least a quarter of a sparse or masked matrix are arcs."""
    count = csgraph.nnz if issparse(csgraph) else np.ma.count(csgraph) if np.ma.isMaskedArray(csgraph) else 0
    return bool(4 * count >= math.prod(csgraph.shape)) if count else False


def _graph(csgraph: Any, directed: bool, unweighted: bool, *, full: bool = False) -> Graph:
    """Return the clean graph of SciPy's input.

    Args:
        csgraph, directed, unweighted: as in :func:`shortest_path`.
        full: whether SciPy first makes a dense matrix of the input.  Then inf means no arc, even with ``unweighted``,
            and a zero in a masked matrix means no arc.
    """
    directed = _said(directed)
    if not issparse(csgraph) and hasattr(
        csgraph, "to_scipy_sparse"
    ):  # this is an array of pydata/sparse, whose fill value means no arc
        csgraph = csgraph.to_scipy_sparse(accept_fv=[0, np.inf, np.nan])
    if issparse(csgraph):
        arcs = csr_array(csgraph)
    elif np.ma.isMaskedArray(csgraph):
        given = np.ma.asarray(csgraph, np.float64)
        hidden = np.ma.getmaskarray(given) | (np.equal(given.data, 0) if full else False)
        # ``csgraph_from_masked`` does not accept a mask that is a single False, so ``hidden`` is a whole array
        arcs = csgraph_from_masked(np.ma.array(given.data, mask=hidden))
    else:
        dense = _square(_numbers(csgraph))
        if directed and not unweighted and (made := graph_of_dense(dense)) is not None:
            return made
        arcs = _arcs_of_dense(dense)
    if arcs.shape[0] != arcs.shape[1]:
        raise ValueError(f"the graph must be of shape (N, N), not {arcs.shape}")
    n = arcs.shape[0]
    if full and unweighted and np.isinf(np.asarray(arcs.data, np.float64)).any():
        arcs = _without_infinite(arcs)
    weights = None if unweighted else np.asarray(arcs.data, np.float64)
    if directed and arcs.has_canonical_format:
        return _answered(lambda: build_from_rows(arcs.indptr, arcs.indices, weights))
    tails = np.repeat(np.arange(n), np.diff(arcs.indptr))
    return _answered(lambda: build_graph(tails, arcs.indices, weights, n=n, directed=directed)[0])


def _without_infinite(arcs: Any) -> Any:
    """Return a sparse matrix without its infinite entries; explicit zeros stay."""
    listed = arcs.tocoo()
    kept = ~np.isinf(np.asarray(listed.data, np.float64))
    return csr_array((listed.data[kept], (listed.row[kept], listed.col[kept])), shape=arcs.shape)


def _said(directed: Any) -> bool:
    """Return a flag as bool; as in SciPy, whole numbers are accepted, but text is refused (ValueError)."""
    try:
        return bool(index(directed))
    except TypeError:
        if isinstance(directed, np.bool_):
            return bool(directed)
        raise ValueError(f"directed must be True or False, not {directed!r}") from None


def _numbers(csgraph: Any) -> Floats:
    """Return a dense matrix as float64; raise ValueError for text, even if it contains numbers."""
    given = np.asarray(csgraph)
    if given.dtype.kind in "SUTmM" or (
        given.dtype.kind == "O" and any(isinstance(one, str | bytes) for one in given.flat)
    ):
        raise ValueError(f"the graph must be a matrix of numbers, not of {given.dtype}")
    return np.asarray(given, np.float64)


def _square(dense: Floats) -> Floats:
    if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
        raise ValueError(f"the graph must be of shape (N, N), not {dense.shape}")
    return dense


def _arcs_of_dense(dense: Floats) -> Any:
    """Return the arcs of a square matrix in which zeros, NaN and inf mean no arc."""
    some = np.isfinite(dense)
    some &= dense != 0
    heads = np.broadcast_to(np.arange(len(dense), dtype=np.int32), dense.shape)[some]
    ends = np.concatenate([[0], np.cumsum(np.count_nonzero(some, axis=1))])
    arcs = csr_array((dense[some], heads, ends), shape=dense.shape)
    arcs.has_canonical_format = True
    return arcs


def _answered(call: Callable[[], T]) -> T:
    """Return the result of ``call``; raise SciPy's error for a negative cycle, ValueError for other refusals."""
    try:
        return call()
    except NegativeCycle as error:
        raise NegativeCycleError(str(error)) from error
    except (InvalidGraph, InvalidRequest) as error:
        raise ValueError(str(error)) from error


def _sources(indices: Any, n: int) -> tuple[npt.NDArray[np.int64], tuple[int, ...]]:
    """Return the vertex indices, flattened, and their original shape.

    As in SciPy, negative indices count from the end.
    """
    if indices is None:
        return np.arange(n), (n,)
    asked = np.asarray(indices)
    broken = asked.dtype.kind == "f" and not (np.isfinite(asked) & (asked == np.trunc(asked))).all()
    if broken or asked.dtype.kind not in "iufb":
        raise ValueError(f"indices must be whole numbers, not {indices!r}")
    flat = asked.astype(np.int64).reshape(-1)
    flat = np.where(flat < 0, flat + n, flat)
    if len(flat) and not 0 <= flat.min() <= flat.max() < n:
        raise ValueError(f"indices out of range 0 to {n - 1}")
    return flat, asked.shape


def _answer(graph: Graph, indices: Any, predecessors: bool, algorithm: str, limit: float = np.inf) -> Any:
    sources, shape = _sources(indices, graph.n)
    rows, place = (sources, sources) if indices is None else np.unique(sources, return_inverse=True)
    distances, before = _answered(lambda: _limited(graph, rows, predecessors, algorithm, limit))
    if indices is not None:
        distances = distances[place].reshape(*shape, graph.n)
    if before is None:
        return distances
    return distances, before if indices is None else before[place].reshape(*shape, graph.n)


def _nearest(graph: Graph, indices: Any, predecessors: bool, limit: float) -> Any:
    """Return the distance of each vertex from its nearest source, shape (n,).

    With ``predecessors``, return (distances, predecessors, nearest sources), shape (n,) each.
    """
    sources, _ = _sources(indices, graph.n)
    distances, tree, origin = _answered(lambda: nearest_row(graph, sources, trees=predecessors))
    beyond = distances > limit
    distances[beyond] = np.inf
    if tree is None or origin is None:
        return distances
    tree[beyond] = origin[beyond] = NONE
    return distances, tree, origin


def _limited(
    graph: Graph, rows: npt.NDArray[np.int64], predecessors: bool, algorithm: str, limit: float
) -> tuple[Floats, Indices | None]:
    """Return distances from ``rows`` (ascending), shape (rows, n), and predecessors if wanted.

    Distances beyond ``limit`` become +inf.
    """
    distances, before = distance_rows(graph, rows, trees=predecessors, algorithm=algorithm)
    if limit < np.inf:
        beyond = distances > limit
        distances[beyond] = np.inf
        if before is not None:
            before[beyond] = NONE
    return distances, before
