"""What an algorithm may ask of a backend: a handful of verbs, the same on every device.

Orchestration (which tile, in which order) is written once, over these verbs.  Every backend inherits the contract
suite in ``tests/contracts/backend.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Arcs:
    """The arcs that a search walks: CSR as in ``storage.graph.graph.Graph``, weights non-negative.

    ``potentials`` (float64 or int64, shape (n,)) is None for the weights as they are; else ``weights`` are reduced
    weights w + h[u] - h[v] and the search writes d - h[source] + h[target] (Johnson 1977).
    """

    indptr: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int32]
    weights: Array
    potentials: Array | None = None


class Backend(Protocol):
    """The verbs.  Arrays are C-contiguous in their last axis, of one working type (``engine.model.dtypes``)."""

    @property
    def name(self) -> str:
        """``cpu`` or the like."""
        ...

    @property
    def threads(self) -> int:
        """Processors that share the work."""
        ...

    def relax(self, c: Array, a: Array, b: Array, *, nonnegative: bool, upper: bool = False) -> None:
        """C <- min(C, A (x) B), the min-plus product, in place; shapes (m, n), (m, k), (k, n).

        ``nonnegative`` promises that A, B and C hold no entry below zero and no -0.0; unreachable stays unreachable
        (integers: above ``largest``, see ``engine.model.dtypes.settle``).  With ``upper`` (square C, the product known
        to be symmetric) only entries on and above the diagonal need be right.  C may not overlap A or B.
        """
        ...

    def close(self, d: Array, *, nonnegative: bool, symmetric: bool = False) -> None:
        """Floyd-Warshall inside the square block ``d``, in place: afterwards d = d (x) d, with a zero diagonal kept."""
        ...

    def transpose(self, out: Array, a: Array, *, lower: bool = False) -> None:
        """``out`` <- the transpose of ``a``, shapes (m, n) and (n, m).

        They do not overlap, except that with ``lower`` both may be the same square block: only entries below the
        diagonal are written then.
        """
        ...

    def search(
        self,
        arcs: Arcs,
        sources: npt.NDArray[np.int64],
        out: Array,
        *,
        unit: bool = False,
        targets: npt.NDArray[np.int64] | None = None,
        cutoff: float | None = None,
    ) -> None:
        """One shortest-path search per source: ``out[i]`` becomes the row of ``sources[i]``.

        ``out`` has shape (len(sources), n), or (len(sources), len(targets)) where only those columns are wanted.
        Sums are held in float64 or int64 and rounded once into ``out``.  ``unit`` promises that all arcs weigh 1.
        Entries beyond ``cutoff`` (``engine.graph.selection``) become unreachable, and nothing is searched past it.
        """
        ...

    def shutdown(self) -> None:
        """Release threads and device memory; the backend is not used afterwards."""
        ...


@runtime_checkable
class Packing(Protocol):
    """What a backend may offer besides: products by a B that is packed once and used for many."""

    def packed(self, depth: int, columns: int, dtype: np.dtype[np.generic]) -> Array:
        """Memory, flat, for a packed B of this shape at most."""
        ...

    def piece(self, dtype: np.dtype[np.generic]) -> int:
        """Columns that may be packed on their own, from a multiple of as many on: into the memory from where they lie
        in a B whose pieces lie one after the other, (first column) x depth."""
        ...

    def pack(self, out: Array, b: Array) -> None:
        """Pack ``b`` into the beginning of such memory."""
        ...

    def unpack(self, out: Array, packed: Array, depth: int, first: int) -> None:
        """``out`` <- the rows from ``first`` on of a B of ``depth`` rows and as many columns as ``out``."""
        ...

    def relax_by(self, c: Array, a: Array, packed: Array, *, nonnegative: bool) -> None:
        """C <- min(C, A (x) B) as :meth:`Backend.relax`, B as it was packed; C has as many columns as B or, from the
        first one on, a multiple of ``engine.algorithms.products.SIDE`` of them."""
        ...
