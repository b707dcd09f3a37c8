"""Makes a graph from a dense matrix of arcs, in two compiled passes whose rows are divided among all threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.graph.graph import Graph

if TYPE_CHECKING:
    from engine.devices.cpu.team import Team

Floats = npt.NDArray[np.float64]

#: Below this number of entries NumPy is used, because starting threads and loading kernels takes longer.
FEW: Final = 2**18
#: Approximate number of entries in the rows that a thread takes at a time.
PIECE: Final = 2**17
#: The largest number up to which whole numbers are exact in float64.
EXACT: Final = 2.0**53


def graph_of_dense(dense: Floats) -> Graph | None:
    """Return the directed graph whose arcs are the finite entries that are not zero, without loops.

    Args:
        dense: shape (n, n).

    Returns:
        The graph that ``storage.graph.ordered.build_from_rows`` returns for these entries.  None if the matrix is
        small, has no arc, or has a negative loop; the caller then uses that function, which raises the right error.
    """
    if dense.size < FEW:
        return None
    from engine.devices.cpu.team import Team

    team = Team()
    try:
        return _compressed(np.ascontiguousarray(dense), team)
    finally:
        team.close()


def _compressed(dense: Floats, team: Team) -> Graph | None:
    from engine.interop.dense_kernels import count_arcs, fill_arcs

    n = len(dense)
    rows = max(1, PIECE // n)
    indptr, facts = np.zeros(n + 1, np.int64), np.zeros((n, 4))

    def share(kernel: object, *arrays: object) -> None:
        firsts = iter(range(0, n, rows))  # threads may share this iterator, because each advance of it is atomic

        def work(worker: int) -> None:  # noqa: ARG001
            for first in firsts:
                kernel(dense, first, min(n, first + rows), *arrays)  # type: ignore[operator]

        team.run(work, most=-(-n // rows))

    share(count_arcs, indptr[1:], facts)
    low, high, broken, loop = facts[:, 0].min(), facts[:, 1].max(), facts[:, 2].any(), facts[:, 3].any()
    np.cumsum(indptr, out=indptr)
    if loop or indptr[-1] == 0:
        return None
    kind = "float64"
    if not broken and max(-low, high) <= EXACT:
        kind = "int32" if low >= -(2**31) and high < 2**31 else "int64"
    heads: npt.NDArray[np.int32] = np.empty(indptr[-1], np.int32)
    weights: npt.NDArray[Any] = np.empty(indptr[-1], kind)
    share(fill_arcs, indptr, heads, weights)
    return Graph(indptr, heads, weights, np.arange(n, dtype=np.int64), True, True)
