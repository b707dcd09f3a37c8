"""Completes the rows of a symmetric matrix at the end of a solve: until then, they are stored from the diagonal on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from engine.model.backend import Array
from engine.model.tiling import Tiling
from storage.matrix.working import WorkingMatrix
from storage.threads import ThreadPool


class Mirror:
    """Reads whole rows of a working store, a few stripes at a time.

    In a symmetric layout, a stripe is stored without the columns left of its diagonal block.  The entries of these
    columns are in the stripes above, transposed.  The stripes above are read once for each group of stripes, so more
    buffers mean fewer reads.

    Args:
        writer: the working store.
        tiling: how the matrix is cut.
        buffers: arrays of shape (rows of a stripe, n), one for each stripe of a group.
        pool: threads that read and write.
    """

    def __init__(self, writer: WorkingMatrix, tiling: Tiling, buffers: list[Array], pool: ThreadPool) -> None:
        self._writer, self._tiling, self._buffers, self._pool = writer, tiling, buffers, pool
        self._n = writer.shape[1]

    def groups(self, stripes: list[int]) -> Iterator[list[int]]:
        """Cut ``stripes`` into runs of consecutive stripes, none longer than the number of buffers."""
        cuts = [k for k, (a, b) in enumerate(pairwise(stripes), 1) if b != a + 1]
        for start, stop in pairwise([0, *cuts, len(stripes)]):
            for k in range(start, stop, len(self._buffers)):
                yield stripes[k : min(stop, k + len(self._buffers))]

    def whole(self, group: list[int], *, done: Callable[[int], bool]) -> Iterator[tuple[int, Array]]:
        """Yield each stripe of ``group`` with all its columns; ``done`` returns whether the store already has all
        columns of a stripe.
        """
        buffers = zip(group, self._buffers, strict=False)
        rows = {s: buffer[: self._span(s)[1] - self._span(s)[0]] for s, buffer in buffers}
        lacking = [s for s in group if self._tiling.symmetric and not done(s)]
        self._each(lambda s: self._read_own(s, rows[s], whole=s not in lacking), group)
        if lacking:
            self._gather(lacking, rows)
        yield from rows.items()

    def write(self, stripe: int, rows: Array) -> None:
        """Write the tiles of a stripe that hold entries left of the diagonal.

        Raises:
            StorageFailed: the store cannot be written.
        """
        first, last = self._span(stripe)
        band, width = self._writer.tile
        end = min(self._n, -(-last // width) * width)

        def some(row: int) -> None:
            self._writer.write(row, 0, rows[row - first : min(last, row + band) - first, :end])

        self._each(some, range(first, last, band))

    def _span(self, stripe: int) -> tuple[int, int]:
        return self._tiling.rows(stripe, self._n)

    def _each(self, work: Callable[[int], None], items: list[int] | range) -> None:
        for _ in self._pool.map(work, items):
            pass

    def _read_own(self, stripe: int, rows: Array, *, whole: bool) -> None:
        self._writer.read_rows(self._span(stripe)[0], rows, column=0 if whole else self._tiling.left(stripe))

    def _gather(self, lacking: list[int], group: dict[int, Array]) -> None:
        """Fill the columns left of the diagonal in those stripes of a group that ``lacking`` names."""
        start = self._span(next(iter(group)))[0]
        self._each(lambda i: self._transpose_band(i, start, lacking, group), range(-(-start // self._writer.tile[0])))
        for s in lacking:
            begin, stop = self._span(s)
            for t in group:
                top, bottom = self._span(t)
                if t < s:
                    group[s][:, top:bottom] = group[t][:, begin:stop].T
            block = group[s][:, begin:stop]
            np.copyto(block, block.T.copy(), where=np.tri(len(block), k=-1, dtype=np.bool_))

    def _transpose_band(self, i: int, start: int, lacking: list[int], group: dict[int, Array]) -> None:
        """Transpose tiles of tile row ``i`` into the stripes ``lacking``.

        These tiles, which are read from the store, are those whose column numbers are row numbers of these stripes.
        """
        band, width = self._writer.tile
        top, bottom = i * band, min((i + 1) * band, start)
        low, high = self._span(lacking[0])[0], self._span(lacking[-1])[1]
        for j in range(low // width, -(-high // width)):
            across = self._writer.grid.slices(i, j)[1]
            tile = np.empty((bottom - top, across.stop - across.start), self._writer.dtype)
            self._writer.read_tile(i, j, tile)
            for s in lacking:
                first, last = self._span(s)
                begin, stop = max(first, across.start), min(last, across.stop)
                if begin < stop:
                    part = tile[:, begin - across.start : stop - across.start]
                    group[s][begin - first : stop - first, top:bottom] = part.T
