"""The CPU backend: vector kernels compiled by numba, run by a team of threads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.devices.cpu import packed as cpu_packed
from engine.devices.cpu import relax as cpu_relax
from engine.devices.cpu.team import Team
from engine.model.backend import Arcs, Array


class CpuBackend:
    """The verbs of :class:`engine.model.backend.Backend` on this machine's processors.

    Not re-entrant: one call at a time.  Which instructions are used is decided in ``cpu_vector``.
    """

    name = "cpu"

    def __init__(self, threads: int | None = None) -> None:
        self._team = Team(threads)
        self._space = cpu_relax.Workspace(self._team.threads)

    @property
    def threads(self) -> int:
        """Threads that share the work."""
        return self._team.threads

    def relax(self, c: Array, a: Array, b: Array, *, nonnegative: bool, upper: bool = False) -> None:
        """C <- min(C, A (x) B); results do not depend on the number of threads, not even in the last bit."""
        cpu_relax.relax(self._team, self._space, c, a, b, nonnegative=nonnegative, upper=upper)

    def packed(self, depth: int, columns: int, dtype: np.dtype[np.generic]) -> Array:
        """Memory for a packed matrix of ``depth`` x ``columns`` at most, aligned as the kernels like it."""
        entries = cpu_packed.packed_entries(depth, columns, dtype.itemsize)
        return cpu_relax.aligned(entries * dtype.itemsize).view(dtype)

    def piece(self, dtype: np.dtype[np.generic]) -> int:
        """As wide as an item of work."""
        return cpu_relax.ITEM_BYTES // dtype.itemsize

    def pack(self, out: Array, b: Array) -> None:
        """Pack B, for :meth:`relax_by`."""
        cpu_packed.pack(self._team, out, b)

    def unpack(self, out: Array, packed: Array, depth: int, first: int) -> None:
        """Some rows of a packed B, by the calling thread alone."""
        cpu_packed.unpack(out, packed, depth, first)

    def relax_by(self, c: Array, a: Array, packed: Array, *, nonnegative: bool) -> None:
        """C <- min(C, A (x) B), B packed by :meth:`pack`; else as :meth:`relax`, and as good to the last bit."""
        cpu_packed.relax(self._team, self._space, c, a, packed, nonnegative=nonnegative)

    def close(self, d: Array, *, nonnegative: bool, symmetric: bool = False) -> None:  # noqa: ARG002
        """Floyd-Warshall inside ``d``, by the calling thread alone: it is meant for blocks that fit the cache.

        A symmetric block is closed like any other and comes out symmetric, bit for bit.
        """
        cpu_relax.close(self._space, d, nonnegative=nonnegative)

    def transpose(self, out: Array, a: Array, *, lower: bool = False) -> None:
        """``out`` <- the transpose of ``a``; with ``lower`` only below the diagonal."""
        cpu_relax.transpose(self._team, out, a, lower=lower)

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
        """One shortest-path search per source."""
        from engine.devices.cpu import search as cpu_search

        cpu_search.search(self._team, arcs, sources, out, unit, targets=targets, cutoff=cutoff)

    def shutdown(self) -> None:
        """Let the threads go."""
        self._team.close()
