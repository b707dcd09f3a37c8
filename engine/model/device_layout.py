"""How matrices, searches and sweeps are laid out in a GPU's memory, and how many bytes each takes.

Planning and the device code both use this module, so the bytes planned are the bytes allocated.  It is pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.model.dtypes import WorkType
from engine.model.problem import PartsFacts

#: Up to this number of vertices, one launch of the kernel that closes a whole matrix is fastest (measured;
#: docs/kernels.md).
SINGLE: Final = 3584
#: The largest number of columns of A (rows of B) in one launch of relax; it limits the packed copies of the operands.
SLAB: Final = 4096
#: Number of arcs that are copied to the device, and scattered into the matrix, at a time.
PIECE: Final = 1 << 20
#: Bytes of device memory that are needed in addition to the arrays: kernels, flags, and what the allocator rounds up.
SLACK: Final = 64 * 2**20


def tile_side(itemsize: int) -> int:
    """Return the multiple to which the sides of a solved matrix are padded, so that relax works on whole blocks."""
    return 256 if itemsize == 2 else 128


def padded_side(n: int, itemsize: int) -> int:
    """Return the number of rows, and of columns, of the padded matrix of ``n`` vertices."""
    return -(-n // tile_side(itemsize)) * tile_side(itemsize)


def pivot_width(n: int) -> int:
    """Return the width of a pivot block.  It is wide enough for relax to be fast, and narrow enough that closing the
    next pivot block takes no longer than relax (measured).
    """
    return 512 if n <= 12288 else 1024


def base_bytes(n: int, rows: int, itemsize: int) -> int:
    """Return the bytes of the padded matrix, a piece of arcs, the row pointers and the facts of every row.

    Args:
        n: vertices.
        rows: rows of the result.
        itemsize: bytes of an entry.
    """
    return padded_side(n, itemsize) ** 2 * itemsize + PIECE * (4 + itemsize) + 8 * n + 40 * rows + SLACK


def rounds_bytes(n: int, itemsize: int) -> int:
    """Return the bytes of the packed pivot block, panels and column panels of rounds; 0 where n is at most SINGLE."""
    if n <= SINGLE:
        return 0
    side, width, word = padded_side(n, itemsize), pivot_width(n), max(itemsize, 4)
    return width * (side + width) * (word + itemsize) + 2 * width * side * word


def product_bytes(n: int, itemsize: int) -> int:
    """Return the bytes of the packed operands of one slab of a product of n x n matrices."""
    side = padded_side(n, itemsize)
    return min(SLAB, side) * side * (max(itemsize, 4) + itemsize)


# ---- searches -------------------------------------------------------------------------------------------------------
#
# Batched searches are label correcting (Bellman 1958; Ford 1956) from many sources at once, or breadth first.  The
# device relaxes an arc for a whole block of sources at once (engine/kernels/search.cu); where all arcs weigh 1 it
# searches breadth first with one bit per source (hops.cu).  Usually each thread block keeps lists of the vertices
# that it still has to visit.  In graphs of few hops across, and in graphs too large for such lists, the whole device
# makes sweeps over all vertices instead.

#: Searches with weights sweep over all vertices, instead of keeping lists, if no vertex is more than this number of
#: hops from the hub (a vertex of highest degree), or if the graph is too large for lists (LISTED).
SHALLOW: Final = 40
#: Breadth-first searches are used if no vertex is more than this number of hops from the hub.  They count steps in 8
#: bits, and a search from a vertex far from the hub may take about twice as many steps as there are hops from the hub.
STEPS: Final = 120
#: A thread block keeps lists of at most this number of vertices, including auxiliary vertices that only gather arcs.
#: It marks each vertex with three bits of shared memory; the smallest chip (compute capability 7.5) gives a block
#: 64 KiB.
LISTED: Final = 170_000
#: Tentative distances for an int32 matrix are held in 16 bits at first if no weight is larger than this.
NARROW: Final = 4096
#: The search of a block of sources is given up after SWEEPS sweeps for each hop from the hub to the vertex farthest
#: from it; a search with lists is given up after LOOKS visits of each vertex on average.
SWEEPS: Final = 24
LOOKS: Final = 1024


@dataclass(frozen=True)
class SearchForm:
    """How a graph is searched, and when a block of sources is given up.

    Attributes:
        name: which kernel searches: ``sweep`` (sweeps over all vertices), ``lists`` (lists of the vertices that are
            still to be visited) or ``hops`` (breadth first).
        limit: a block of sources is given up after this number of sweeps (``sweep``), steps (``hops``), or visits of
            each vertex on average (``lists``).
    """

    name: str
    limit: int


def form_of(*, unit: bool, hops: int, n: int, arcs: int) -> SearchForm:
    """Choose the form of the searches of a graph.

    Args:
        unit: whether all arcs weigh 1.
        hops: arcs from the hub to the vertex farthest from it.
        n: vertices.
        arcs: arcs.
    """
    if unit and hops <= STEPS:
        return SearchForm("hops", 255)
    if hops <= SHALLOW or n + arcs // 32 > LISTED:
        return SearchForm("sweep", SWEEPS * (hops + 8))
    return SearchForm("lists", LOOKS)


def narrow_first(kind: WorkType, heaviest: float) -> bool:
    """Return whether tentative distances of 16 bits are tried first.

    Args:
        kind: working type of the matrix.
        heaviest: the largest weight.
    """
    return kind.name == "int32" and heaviest <= NARROW


#: Bytes of a vertex's row of tentative distances where the whole device works on one block of sources.
ROW: Final = 512
#: Bytes of a vertex's row of tentative distances where each thread block searches its own block of sources (lists).
LIST_ROW: Final = 128
#: Number of bit rows of each vertex in breadth-first searches, with one bit per source.  One row marks the sources that
#: have reached the vertex, two rows mark the sources that are new to it, and eight rows count the steps in binary.
HOPS_ROWS: Final = 11
#: LIST_BLOCKS thread blocks per multiprocessor search over lists; all their tentative distances take at most
#: LIST_BYTES.
LIST_BLOCKS: Final = 4
LIST_BYTES: Final = 8 * 2**30
#: SWEEP_ARCS / (arcs of the graph) blocks of sources are swept at the same time, but at most SWEEP_GROUPS.  Each of
#: them is swept by an equal share of the thread blocks of the device.
SWEEP_ARCS: Final = 2**20
SWEEP_GROUPS: Final = 33


def sweep_groups(arcs: int, rows: int, itemsize: int) -> int:
    """Return the number of groups of thread blocks; each group sweeps for one block of sources at a time.

    Args:
        arcs: arcs of the graph.
        rows: sources of a batch.
        itemsize: bytes of a tentative distance.
    """
    blocks = -(-rows // (ROW // itemsize))
    return max(1, min(SWEEP_ARCS // max(arcs, 1), blocks, SWEEP_GROUPS))


def list_groups(vertices: int, rows: int, itemsize: int, multiprocessors: int) -> int:
    """Return the number of thread blocks that search over lists, limited by the blocks of sources and by memory.

    Args:
        vertices: number of vertices, including auxiliary vertices that only gather arcs.
        rows: sources of a batch.
        itemsize: bytes of a tentative distance.
        multiprocessors: number of multiprocessors of the device.
    """
    blocks = -(-rows // (LIST_ROW // itemsize))
    fitting = LIST_BYTES // (vertices * (LIST_ROW + 12) + 1)
    return max(1, min(LIST_BLOCKS * multiprocessors, blocks, fitting))


#: A batch holds at most 1 / SHARE of all sources, so that most rows are copied while later rows are searched.  Searches
#: over lists take all sources in one batch, so that neighbouring vertices share a block of sources.
SHARE: Final = 8
#: The least number of sources of a batch, so that every part of the device gets some blocks of sources.
LEAST_BATCH: Final = 2048
#: The number of rows of a batch is a multiple of this number, the number of rows of the store's tiles.
TILE_ROWS: Final = 64


def _halved(batch: int, step: int) -> list[int]:
    """Return the batch sizes to choose from: ``batch``, then half of the previous size, rounded down to a multiple of
    ``step``, until ``step`` is reached.
    """
    found = [batch]
    while found[-1] > step:
        found.append(max(step, found[-1] // 2 // step * step))
    return found


def _fitting(batches: Sequence[int], size: Callable[[int], int], memory: int) -> int:
    """Return the first of ``batches`` that fits; if none fits, the batch that needs least memory.

    The smallest batch does not always need least: a single batch of all rows needs no second buffer.
    """
    return next((batch for batch in batches if size(batch) <= memory), min(batches, key=size))


@dataclass(frozen=True)
class SearchLayout:
    """What batched searches keep in device memory.

    Attributes:
        n: vertices.
        arcs: arcs.
        rows: sources, of all batches together.
        itemsize: bytes of an entry of the matrix.
        form: name of the :class:`SearchForm`.
    """

    n: int
    arcs: int
    rows: int
    itemsize: int
    form: str

    def bytes(self, batch: int, multiprocessors: int = 132) -> int:
        """Return the bytes of device memory with batches of ``batch`` sources."""
        # vertices with many arcs get auxiliary vertices, which only gather some of these arcs
        vertices = self.n if self.form == "hops" else self.n + self.arcs // 32
        if self.form == "hops":
            own = HOPS_ROWS * self.n * ROW
        elif self.form == "sweep":
            own = sweep_groups(self.arcs, batch, self.itemsize) * vertices * (ROW + 8)
        else:
            own = list_groups(vertices, batch, self.itemsize, multiprocessors) * vertices * (LIST_ROW + 12)
        out = batch * self.n * self.itemsize * (2 if batch < self.rows else 1)
        return own + out + self.arcs * 18 + vertices * 20 + batch * 72 + SLACK

    def batch(self, memory: int) -> int:
        """Return the number of sources of the largest batch that fits ``memory`` bytes; if none fits, of the batch that
        needs least memory.
        """
        share = max(LEAST_BATCH, -(-self.rows // SHARE // LEAST_BATCH) * LEAST_BATCH)
        batch = max(1, min(max(self.rows, 1), self.rows if self.form == "lists" else share))
        return _fitting(_halved(batch, TILE_ROWS), self.bytes, memory)

    def spans(self, batch: int) -> Iterator[range]:
        """Yield the rows of each batch of at most ``batch`` sources.

        The sizes double from LEAST_BATCH to ``batch``, so that copies to the host start early.  A batch is searched
        while the rows of the previous batch, half as many, are copied.  If the search takes longer than these copies,
        the next copies have to wait for it, but they would wait with any sizes.
        """
        first, size = 0, batch if batch >= self.rows else min(batch, LEAST_BATCH)
        while first < self.rows:
            yield range(first, min(first + size, self.rows))
            first, size = first + size, min(batch, 2 * size)


# ---- sweeps over parts ----------------------------------------------------------------------------------------------

#: A sweep over parts fills at most SWEEP_BATCH rows at once, enough that launches take a small part of the time.  All
#: batches are multiples of ROW_STEP rows.
SWEEP_BATCH: Final = 8192
ROW_STEP: Final = 128
#: A batch holds at most 1 / SWEEP_SHARE of all rows, so that most rows are copied while later rows are swept.
SWEEP_SHARE: Final = 6


@dataclass(frozen=True)
class SweepLayout:
    """What a sweep over parts keeps in device memory.

    Attributes:
        n: vertices.
        rows: sources.
        itemsize: bytes of an entry.
        entries: entries of the tables and of the packed lengths.
        stride: entries of a padded row of distances whose columns are in the order of the parts.
        deepest: vertices of the largest border.
    """

    n: int
    rows: int
    itemsize: int
    entries: int
    stride: int
    deepest: int

    def bytes(self, batch: int) -> int:
        """Return the bytes of device memory with batches of ``batch`` rows."""
        out = min(batch, self.rows) * self.n * (2 if batch < self.rows else 1)
        gathered = (self.deepest + 16) * batch * max(4, self.itemsize)
        return (self.entries + self.stride * batch + out) * self.itemsize + gathered + 24 * self.n + 64 * batch + SLACK

    def batch(self, memory: int) -> int:
        """Return the number of rows of the largest batch that fits ``memory`` bytes; if none fits, of the batch that
        needs least memory.
        """
        share = -(-self.rows // SWEEP_SHARE // ROW_STEP) * ROW_STEP
        return _fitting(_halved(min(SWEEP_BATCH, max(ROW_STEP, share)), ROW_STEP), self.bytes, memory)


#: Number of rows that a thread on a processor sweeps at once.  With fewer rows, each packed border is used less often;
#: with more rows, the rows do not stay in the cache.
SWEEP_ROWS: Final = 24


def sweep_layout(facts: PartsFacts, n: int, rows: int, itemsize: int) -> SweepLayout:
    """Lay out a sweep over parts on a GPU.

    Args:
        facts: the sizes that a trial partition found.
        n: vertices.
        rows: sources.
        itemsize: bytes of an entry.
    """
    return SweepLayout(n, rows, itemsize, facts.entries, n + 16 * facts.count, facts.border)
