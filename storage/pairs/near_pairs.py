"""The result of a search for near pairs: for each source, the near targets and their distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from storage.arguments import check_whole

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class NearPairs:
    """Distances between near vertices, in compressed sparse rows.  A source is no target of itself.

    Attributes:
        indptr: int64, shape (rows + 1,): the entries of row i are ``indptr[i]:indptr[i + 1]``.
        indices: int32, shape (entries,): the vertex index of each target; ascending within a row.  If the nearest
            targets were asked for, each row is sorted by distance instead, and by index where distances are equal.
        lengths: int32, int64 or float64, shape (entries,): the distances, in the unit of the weights.
        sources: int64, shape (rows,): the vertex index of each row.
        labels: shape (n,): the labels of all vertices.
        cutoff: the largest distance asked for; None for no limit.
        nearest: how many targets of each source were asked for; None for all.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    lengths: Array
    sources: npt.NDArray[np.int64]
    labels: Array
    cutoff: float | None = None
    nearest: int | None = None

    @property
    def entries(self) -> int:
        """The number of pairs."""
        return len(self.indices)

    def row(self, source: int) -> tuple[npt.NDArray[np.int32], Array]:
        """Return the targets of a source (vertex index) and their distances.

        Raises:
            KeyError: the vertex is not one of the sources.
            InvalidRequest: ``source`` is no whole number.
        """
        source = check_whole("source", source)
        (rows,) = np.nonzero(self.sources == source)
        if not len(rows):
            raise KeyError(source)
        here = slice(int(self.indptr[rows[0]]), int(self.indptr[rows[0] + 1]))
        return self.indices[here], self.lengths[here]

    def to_scipy(self) -> csr_array:
        """Return the rows as an array of SciPy, shape (rows, n); a distance of 0 is an explicit entry."""
        from scipy.sparse import csr_array

        shape = len(self.sources), len(self.labels)
        return csr_array((self.lengths, self.indices, self.indptr), shape=shape)
