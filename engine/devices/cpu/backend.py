"""The CPU backend: vector kernels compiled by numba, run by a team of threads.

Algorithms decide which block is relaxed next and call only these operations.  ``tests/contracts/backend.py`` says what
each operation promises; the tests check these promises for this backend and for the kernels of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.relax import (
    TRANSPOSED_ALONE,
    Workspace,
    _relax_items,
    _transpose_items,
    close_whole,
    flat_of,
    item_shape,
    sharers,
)
from engine.devices.cpu.searches import Searches, Spaces
from engine.devices.cpu.team import Team
from engine.model.backend import NOTHING_SPECIAL, Arcs, Array, RowsWanted, Signs


class CpuBackend:
    """The operations of this machine's processors.

    The last axis of every array is contiguous, and all arrays of a call have the same working type
    (``engine.model.dtypes``).

    Not re-entrant: one call at a time.  ``engine.devices.cpu.vector`` chooses the instructions.

    Args:
        threads: the number of threads that share the work; None for one per usable processor.
        owner: a backend whose threads and work space are used in place of new ones; shutting down either backend
            releases the threads for reuse.
    """

    name = "cpu"

    def __init__(self, threads: int | None = None, *, owner: CpuBackend | None = None) -> None:
        self._team: Team = Team(threads) if owner is None else owner._team
        self._space: Workspace = Workspace(self._team.threads) if owner is None else owner._space
        self._spaces = Spaces(self._team.threads)

    @property
    def threads(self) -> int:
        """The number of threads that share the work."""
        return self._team.threads

    def relax(self, c: Array, a: Array, b: Array, *, nonnegative: Signs, upper: bool = False) -> None:
        """Set C to min(C, A (x) B), the min-plus product, in place; results do not depend on the number of threads, not
        even in the last bit.

        Unreachable entries stay unreachable; unreachable integers may end up at any value above ``largest``
        (``engine.model.dtypes.settle`` repairs them).

        Args:
            c: shape (m, n); it may not overlap ``a`` or ``b``.
            a: shape (m, k).
            b: shape (k, n).
            nonnegative: promises that A, B and C hold no entry below zero and no -0.0.
            upper: promises that C is square and that the product is symmetric; only entries on and above the diagonal
                need be right afterwards.

        Raises:
            ValueError: shapes or types do not match, or rows are not contiguous.
        """
        (rows, depth), columns = a.shape, b.shape[1]
        if c.shape != (rows, columns) or b.shape[0] != depth or not c.dtype == a.dtype == b.dtype:
            shapes = ", ".join(f"{name} {x.dtype}{x.shape}" for name, x in (("C", c), ("A", a), ("B", b)))
            raise ValueError(f"shapes or types do not match: {shapes}")
        if 0 in (rows, depth, columns):
            return
        threads = sharers(self._team, rows * depth * columns)
        item = item_shape(rows, columns, c.itemsize, threads)
        parts = [part for block in (c, a, b) for part in flat_of(block)]
        packs, counter = self._space.packs(c.dtype), np.zeros(1, np.int64)
        arguments = (counter, *item, *parts, (rows, columns, depth), upper, nonnegative, packs)
        if threads == 1:
            _relax_items(0, *arguments)
        else:
            self._team.run(_relax_items, *arguments, most=threads)

    def close(self, d: Array, *, nonnegative: Signs, symmetric: bool = False) -> None:  # noqa: ARG002
        """Run Floyd-Warshall inside ``d`` in the calling thread; it is meant for blocks that fit the cache.  Afterwards
        the block equals its own min-plus square.

        Args:
            d: shape (n, n), changed in place; a diagonal of zeros stays zero.
            nonnegative: promises that no entry is below zero or -0.0.
            symmetric: has no effect: a symmetric block stays symmetric, bit for bit.

        Raises:
            ValueError: ``d`` is not square, or its rows are not contiguous.
        """
        if d.shape[0] != d.shape[1]:
            raise ValueError(f"a block to close must be square, found {d.shape}")
        if d.size:
            flat, stride = flat_of(d)
            buffers = [buffer[0] for buffer in self._space.packs(d.dtype)]
            close_whole(flat, 0, stride, len(d), nonnegative, *buffers)

    def transpose(self, out: Array, a: Array, *, lower: bool = False) -> None:
        """Write the transpose of ``a`` to ``out``.

        Args:
            out: shape (m, n).
            a: shape (n, m); it does not overlap ``out``.  Only with ``lower``, ``a`` may be ``out`` itself, a square
                block.
            lower: write only the entries below the diagonal.

        Raises:
            ValueError: shapes or types do not match, or rows are not contiguous.
        """
        if out.shape != a.shape[::-1] or out.dtype != a.dtype:
            raise ValueError(f"the transpose of {a.dtype}{a.shape} is not {out.dtype}{out.shape}")
        if out.size:
            arguments = (np.zeros(1, np.int64), *flat_of(out), *flat_of(a), *out.shape, lower)
            if out.size < TRANSPOSED_ALONE:
                _transpose_items(0, *arguments)
            else:
                self._team.run(_transpose_items, *arguments)

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
        """Make one shortest-path search per source; ``out[i]`` becomes the row of ``sources[i]``.

        Sums are held in float64 or int64 and rounded once into ``out``.

        Args:
            arcs: the arcs, none of them negative.
            sources: vertex indices.
            out: shape (sources, n), or (sources, targets) with ``targets``.
            unit, targets, cutoff: as in :class:`engine.model.backend.RowsWanted`.
        """
        searches = self.begin_search(arcs, sources, out, RowsWanted(unit, targets, cutoff))

        def work(worker: int) -> None:
            while searches.waiting:
                searches.take(worker)

        while searches.waiting:  # new pieces replace given-up ones, perhaps after all threads have returned
            self._team.run(work, most=searches.count)

    def begin_search(
        self, arcs: Arcs, sources: npt.NDArray[np.int64], out: Array, wanted: RowsWanted = NOTHING_SPECIAL
    ) -> Searches:
        """Prepare the searches of :meth:`search`, and return them cut into pieces for the threads of :meth:`share`.

        Args:
            arcs, sources, out: as in :meth:`search`.
            wanted: what the caller promises, and what it wants.
        """
        from engine.devices.cpu.search import SearchBatch

        batch = SearchBatch.of(arcs, sources, out, wanted)
        left, copies = batch.without(wanted.known)
        return Searches([*copies, *batch.pieces(left, self.threads, self._spaces)])

    def share(self, work: Callable[[int], None], most: int | None = None) -> None:
        """Call ``work(worker)`` once in each thread, and wait for all calls; the calling thread is number 0.

        Args:
            work: takes the number of the thread.
            most: the number of threads to begin with; None for all.  :meth:`widen` lets the remaining threads take
                part.
        """
        self._team.run(work, most=most)

    def widen(self) -> None:
        """Let all threads take part in the running call of :meth:`share`; only the work of thread 0 may call this."""
        self._team.widen()

    def share_items(
        self, kernel: Callable[..., object], dtype: np.dtype[np.generic], items: Array, *arguments: object, most: int
    ) -> None:
        """Call ``kernel(worker, counter, items, *arguments, packs)`` in each thread; wait for all of them.

        Args:
            kernel: takes items from the counter until none is left.
            dtype: the type of the pack buffers.
            items: the items, one per row.
            arguments: further arguments of the kernel.
            most: the number of threads for which there is work.
        """
        counter, packs = np.zeros(1, np.int64), self._space.packs(dtype)
        threads = most if most > 1 and self._team.worth_sharing() else 1
        self._team.run(kernel, counter, items, *arguments, packs, most=threads)

    def shutdown(self) -> None:
        """Release the threads for reuse; the backend is not used afterwards."""
        self._team.close()
