"""How a matrix lies in a GPU's memory, and how much of it a solve takes: what planner and backend agree on.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from engine.model.dtypes import WorkType
from engine.model.problem import PartsFacts

#: Largest n that one launch of the single kernel solves fastest (measured; docs/kernels.md).
SINGLE: Final = 3584
#: Most k of one launch of relax: bounds the packed copies of its operands.
SLAB: Final = 4096
#: Arcs that are sent and scattered at a time.
PIECE: Final = 1 << 20
#: Device memory beside the arrays that are counted: kernels, flags, what the allocator rounds up.
SLACK: Final = 64 * 2**20


@dataclass(frozen=True)
class SearchForm:
    """How to search: the kernel's form (``sweep``, ``lists`` or ``hops``) and when a block of sources is given up.

    ``limit`` counts sweeps or steps; in lists, looks at vertices for each vertex.
    """

    name: str
    limit: int


def tile_side(itemsize: int) -> int:
    """The multiple to which a solved matrix is padded, so that no block of relax meets a ragged edge."""
    return 256 if itemsize == 2 else 128


def padded_side(n: int, itemsize: int) -> int:
    """Rows and columns of the padded matrix."""
    return -(-n // tile_side(itemsize)) * tile_side(itemsize)


def pivot_width(n: int) -> int:
    """The width of a pivot block: wide enough for relax, narrow enough for closing to hide behind it (measured)."""
    return 512 if n <= 12288 else 1024


def base_bytes(n: int, rows: int, itemsize: int) -> int:
    """The padded matrix, a piece of arcs, the row pointers and the facts of every row."""
    return padded_side(n, itemsize) ** 2 * itemsize + PIECE * (4 + itemsize) + 8 * n + 40 * rows + SLACK


def rounds_bytes(n: int, itemsize: int) -> int:
    """Packed pivot block, panels and column panels of rounds; small matrices need none."""
    if n <= SINGLE:
        return 0
    side, width, word = padded_side(n, itemsize), pivot_width(n), max(itemsize, 4)
    return width * (side + width) * (word + itemsize) + 2 * width * side * word


def product_bytes(n: int, itemsize: int) -> int:
    """Packed operands of one slab of a product of n x n matrices."""
    side = padded_side(n, itemsize)
    return min(SLAB, side) * side * (max(itemsize, 4) + itemsize)


#: Rows that a sweep over parts does at once, at most: enough for launches to cost little.  Multiples of ROW_STEP.
SWEEP_BATCH: Final = 8192
ROW_STEP: Final = 128
#: A sweep's batch is at most such a share of all rows, so that most rows leave while others are swept.
SWEEP_SHARE: Final = 6


@dataclass(frozen=True)
class SweepLayout:
    """What a sweep over parts keeps on the device.

    Attributes:
        n: vertices; rows: sources; itemsize: bytes an entry.
        entries: numbers in tables and packed lengths; stride: entries of a row in the order of the parts.
        deepest: vertices of the largest border.
    """

    n: int
    rows: int
    itemsize: int
    entries: int
    stride: int
    deepest: int

    def bytes(self, batch: int) -> int:
        """Device memory with batches of so many rows."""
        out = min(batch, self.rows) * self.n * (2 if batch < self.rows else 1)
        gathered = (self.deepest + 16) * batch * max(4, self.itemsize)
        return (self.entries + self.stride * batch + out) * self.itemsize + gathered + 24 * self.n + 64 * batch + SLACK

    def batch(self, memory: int) -> int:
        """Rows of a batch: as many as suit, fewer where memory is short."""
        share = -(-self.rows // SWEEP_SHARE // ROW_STEP) * ROW_STEP
        batch = min(SWEEP_BATCH, max(ROW_STEP, share))
        while batch > ROW_STEP and self.bytes(batch) > memory:
            batch = max(ROW_STEP, batch // 2 // ROW_STEP * ROW_STEP)
        return batch


#: Bytes of a vertex's row of labels where the whole device shares a block of sources, and where a thread block has it.
ROW: Final = 512
LIST_ROW: Final = 128
#: Rows of bits a vertex of breadth-first searches: seen, new (twice), and eight planes that count the steps.
HOPS_ROWS: Final = 11
#: Thread blocks a multiprocessor that search over lists of their own, and the most memory that their labels may take.
LIST_BLOCKS: Final = 4
LIST_BYTES: Final = 8 * 2**30
#: Blocks of sources that are swept side by side, each by its share of the device: so many that their arcs together
#: come to this, and at most that many.
SWEEP_ARCS: Final = 2**20
SWEEP_GROUPS: Final = 33


def sweep_groups(arcs: int, rows: int, itemsize: int) -> int:
    """Groups of thread blocks that sweep, each over a block of sources of its own."""
    blocks = -(-rows // (ROW // itemsize))
    return max(1, min(SWEEP_ARCS // max(arcs, 1), blocks, SWEEP_GROUPS))


def list_groups(vertices: int, rows: int, itemsize: int, multiprocessors: int) -> int:
    """Thread blocks that search over lists: no more than there are blocks of sources, nor than memory allows."""
    blocks = -(-rows // (LIST_ROW // itemsize))
    fitting = LIST_BYTES // (vertices * (LIST_ROW + 12) + 1)
    return max(1, min(LIST_BLOCKS * multiprocessors, blocks, fitting))


#: A batch of sources is at most so much of all of them, so that most rows leave while others are searched; not of
#: searches over lists, which do better with all sources at hand: neighbours then share a block.
SHARE: Final = 8
#: The least sources of a batch: some blocks of them for every part of the device.
LEAST_BATCH: Final = 2048
#: Batches are whole tiles of the store high.
TILE_ROWS: Final = 64


@dataclass(frozen=True)
class SearchLayout:
    """What batched searches from ``rows`` sources keep on the device, for a matrix of ``itemsize`` bytes an entry."""

    n: int
    arcs: int
    rows: int
    itemsize: int
    form: str

    def bytes(self, batch: int, multiprocessors: int = 132) -> int:
        """Device memory with batches of so many sources."""
        vertices = self.n if self.form == "hops" else self.n + self.arcs // 32  # some only gather
        if self.form == "hops":
            own = HOPS_ROWS * self.n * ROW
        elif self.form == "sweep":
            own = sweep_groups(self.arcs, batch, self.itemsize) * vertices * (ROW + 8)
        else:
            own = list_groups(vertices, batch, self.itemsize, multiprocessors) * vertices * (LIST_ROW + 12)
        out = batch * self.n * self.itemsize * (2 if batch < self.rows else 1)
        return own + out + self.arcs * 18 + vertices * 20 + batch * 72 + SLACK

    def batch(self, memory: int) -> int:
        """Sources of a batch: as many as suit, fewer where memory is short; at least a tile's worth."""
        share = max(LEAST_BATCH, -(-self.rows // SHARE // LEAST_BATCH) * LEAST_BATCH)
        batch = min(max(self.rows, 1), self.rows if self.form == "lists" else share)
        while batch > TILE_ROWS and self.bytes(batch) > memory:
            batch = max(TILE_ROWS, batch // 2 // TILE_ROWS * TILE_ROWS)
        return max(batch, 1)

    def spans(self, batch: int) -> Iterator[range]:
        """The rows of each batch, where one takes at most ``batch``.

        The first one is short, so that rows soon begin to leave, and each later one twice the one before until all have
        the full size: a batch is searched in less time than the rows of half of it take to leave, or has to be waited
        for anyway.
        """
        first, size = 0, batch if batch >= self.rows else min(batch, LEAST_BATCH)
        while first < self.rows:
            yield range(first, min(first + size, self.rows))
            first, size = first + size, min(batch, 2 * size)


# ---- how searches use the device ----

#: Hops from a vertex of highest degree up to which the whole device sweeps.
SHALLOW: Final = 40
#: The same for breadth-first searches, whose steps are counted in 8 bits.
STEPS: Final = 120
#: Vertices, those that only gather included, up to which a thread block keeps lists: it marks them in shared memory,
#: three bits each, of which the smallest chip (7.5) gives a block 64 KiB.
LISTED: Final = 170_000
#: Weights up to which labels of an int32 matrix are held in 16 bits at first.
NARROW: Final = 4096
#: Times over the arcs that a block of sources may take before it is given up: a sweep counts as one; lists count
#: vertices looked at.
SWEEPS: Final = 24
LOOKS: Final = 1024


def form_of(*, unit: bool, hops: int, n: int, arcs: int) -> SearchForm:
    """How to search a graph whose hub lies ``hops`` arcs from the vertex farthest from it."""
    if unit and hops <= STEPS:
        return SearchForm("hops", 255)
    if hops <= SHALLOW or n + arcs // 32 > LISTED:
        return SearchForm("sweep", SWEEPS * (hops + 8))
    return SearchForm("lists", LOOKS)


def narrow_first(kind: WorkType, heaviest: float) -> bool:
    """Whether labels of 16 bits are tried for a matrix of type ``kind``."""
    return kind.name == "int32" and heaviest <= NARROW


# ---- sweeps ----

#: Rows that a thread sweeps at once: few, and a packed border is soon used up; many, and they leave the cache.
SWEEP_ROWS: Final = 24


def sweep_layout(facts: PartsFacts, n: int, rows: int, itemsize: int) -> SweepLayout:
    """What sweeping ``rows`` rows of ``n`` vertices over such parts keeps on a GPU."""
    return SweepLayout(n, rows, itemsize, facts.entries, n + 16 * facts.count, facts.border)
