"""How a matrix is cut into stripes and rounds for streaming, and how many bytes that takes.

The planner, the tiers and the devices all follow this module, which is pure arithmetic.  A *stripe* is a run of whole
rows, the unit that is streamed.  A *pivot block* is a block on the diagonal; its rows are those of a *group* of
stripes.  Once this group is closed, it is the *row panel*, by which all other stripes are relaxed.

A matrix is closed in rounds or in two *passes* over its panels.  In rounds, each panel relaxes all other stripes.  In
passes, each panel is relaxed by all stripes above it, from the first panel to the last, and then by all stripes below
it, from the last panel to the first (``engine.streaming.passes``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.model.device_layout import SINGLE, SLACK, padded_side, rounds_bytes, tile_side

#: The number of rows of a stripe is a multiple of this number, the number of rows of the store's tiles.
GRAIN: Final = 64
#: When a GPU closes a panel, it copies and relaxes this number of columns at a time.
CHUNK: Final = 8192
#: When a CPU closes a panel, it copies and relaxes this number of columns at a time.
CLOSED: Final = 1024
#: Levels of a stripe in passes: WALKS if each row r holds the lengths of all walks with intermediate vertices up to r,
#: LOWERED if it is as the pass down leaves it, FINISHED if it is final.
WALKS: Final = 0
LOWERED: Final = 1
FINISHED: Final = 2
#: Stripes in flight on a GPU: one is copied in, one is relaxed, one is copied out, and one waits.
SLOTS: Final = 4
#: Number of products by stripes that are queued ahead on a GPU in passes.  So the GPU has work while the CUDA driver
#: locks a piece of host memory and accepts no other call for 0.07 to 0.35 s.  A product takes about 12 ms (n = 200,000,
#: H200).  With more queued products, a slow GPU would continue for seconds after a request to stop.
QUEUED: Final = 8

Span = tuple[int, int]


@dataclass(frozen=True)
class Tiling:
    """How a matrix of n vertices is streamed.

    Attributes:
        tier: where the matrix lies, ``host`` or ``store``.
        height: rows of a stripe, a multiple of GRAIN.
        width: rows of a pivot block, a multiple of ``height``.
        slots: stripes in flight on a device; 1 on the CPU.
        resident: stripes that stay on each device instead of being streamed, a multiple of ``group``; 0 on the CPU.  In
            passes, the stripes that a device holds once it has read them, until the pass is over.
        symmetric: only the entries of each stripe from its diagonal block on are computed; the entries left of it are
            mirrored at the end.
        passes: the matrix is closed in two passes instead of rounds.
    """

    tier: str
    height: int
    width: int
    slots: int = 1
    resident: int = 0
    symmetric: bool = False
    passes: bool = False

    def __post_init__(self) -> None:
        if self.tier not in ("host", "store"):
            raise ValueError(f"the tier is {self.tier!r}; host or store are known")
        if self.height < GRAIN or self.height % GRAIN or self.width < self.height or self.width % self.height:
            raise ValueError(
                f"height {self.height} and width {self.width} must be multiples of {GRAIN} and of each other"
            )
        if self.slots < 1 or self.resident < 0 or self.resident % self.group:
            raise ValueError(f"slots is {self.slots}, resident {self.resident} of groups of {self.group}")
        if self.passes and self.symmetric:
            raise ValueError("in passes, all of the matrix is computed")
        if self.passes and self.resident and self.panels == 1:
            raise ValueError("in passes, a device holds stripes only if it holds several panels")

    @property
    def group(self) -> int:
        """The number of stripes of a pivot block."""
        return self.width // self.height

    @property
    def panels(self) -> int:
        """The number of panels held at a time.

        In rounds, these are the panel of the current round and the panel of the next round, which is closed ahead.
        With ``symmetric`` there is also the panel of the round after the next, whose columns are being collected.

        In passes, a CPU holds one panel.  A GPU holds three: the current panel, which is relaxed; the previous panel,
        which is stored and then relaxes the current one; and the next panel, which is loaded.  With few slots a GPU
        holds two, and loads the next panel later.
        """
        if self.passes:
            return 1 if self.slots == 1 else 2 if self.slots < SLOTS else 3
        return 3 if self.symmetric else 2

    def stripes(self, n: int) -> int:
        """Return the number of stripes of a matrix of ``n`` vertices."""
        return -(-n // self.height)

    def rounds(self, n: int) -> int:
        """Return the number of rounds of a matrix of ``n`` vertices."""
        return -(-n // self.width)

    def last(self, n: int) -> int:
        """Return the level of a finished stripe: its last round, or FINISHED in passes."""
        return FINISHED if self.passes else self.rounds(n) - 1

    def rows(self, stripe: int, n: int) -> tuple[int, int]:
        """Return the first row of a stripe, and the row after its last."""
        return stripe * self.height, min(n, (stripe + 1) * self.height)

    def pivot(self, k: int, n: int) -> tuple[int, int]:
        """Return the first vertex of the pivot block of round ``k``, and the vertex after its last."""
        return k * self.width, min(n, (k + 1) * self.width)

    def members(self, k: int, n: int) -> range:
        """Return the stripes of the pivot block of round ``k``."""
        return range(k * self.group, min(self.stripes(n), (k + 1) * self.group))

    def left(self, stripe: int) -> int:
        """Return the first column of a stripe whose entries are computed; symmetric layouts begin at its diagonal
        block.
        """
        return stripe * self.height if self.symmetric else 0


def pitch(n: int, itemsize: int) -> int:
    """Return the row stride on a device in entries; rows begin at multiples of 16 bytes."""
    grain = 16 // itemsize
    return -(-n // grain) * grain


def updates(tiling: Tiling, n: int) -> int:
    """Return the number of updates, c = min(c, a + b), of a whole solve."""
    return n * entries(tiling, n)


def entries(tiling: Tiling, n: int) -> int:
    """Return the number of computed entries of all stripes; symmetric layouts mirror all other entries."""
    if not tiling.symmetric:
        return n * n
    height, whole = tiling.height, n // tiling.height
    rest = n - whole * height
    return whole * height * n - height * height * (whole * (whole - 1) // 2) + rest * rest


def stripe_entries(tiling: Tiling, stripe: int, n: int) -> int:
    """Return the number of computed entries of one stripe; symmetric layouts mirror all other entries.

    Args:
        tiling: the layout.
        stripe: number of the stripe.
        n: vertices.
    """
    first, last = tiling.rows(stripe, n)
    return (last - first) * (n - tiling.left(stripe))


def round_updates(tiling: Tiling, k: int, stripe: int, n: int) -> int:
    """Return the updates that relaxing a stripe by the panel of round ``k`` takes.

    Args:
        tiling, n: the layout, and the number of vertices.
        k, stripe: the numbers of the round and of the stripe.
    """
    start, stop = tiling.pivot(k, n)
    return (stop - start) * stripe_entries(tiling, stripe, n)


def passed_bytes(tiling: Tiling, n: int, itemsize: int, devices: int = 1) -> tuple[int, int]:
    """Return the bytes that all devices together read, and those that they write, in a whole solve in passes.

    Each pass reads every panel once, and once more for each later panel that it relaxes.  A device that holds several
    panels saves one of these reads, because it still holds a panel when the next panel is relaxed.  The first panels of
    a pass become resident as far as the device has memory for them, and are read only once more.  A pass writes every
    panel once.  For several devices the number of bytes read is approximate.

    Args:
        tiling: the layout.
        n: vertices.
        itemsize: bytes of an entry.
        devices: number of devices that share the work.
    """
    rounds, whole = max(1, tiling.rounds(n)), n * n * itemsize
    own = 2 * whole - whole // rounds  # the last panel is final after the first pass
    if tiling.panels == 1:
        return own + (rounds - 1) * rounds * whole // rounds, own
    held, most = tiling.resident // tiling.group, max(0, rounds - 2)
    streamed = max(0, most - held)
    again = min(streamed * (streamed + 1) + 2 * devices * min(held, most), most * (most + 1))
    return own + again * whole // rounds, own


def streamed_bytes(tiling: Tiling, n: int, itemsize: int, devices: int = 1) -> int:
    """Return the bytes that are copied to the devices in a round, for stripes that are not resident.

    About as many bytes are copied back.

    Args:
        tiling: the layout.
        n: vertices.
        itemsize: bytes of an entry.
        devices: number of devices that share the work.
    """
    streamed = max(0, tiling.stripes(n) - devices * tiling.resident)
    return entries(tiling, n) * itemsize * streamed // max(1, tiling.stripes(n))


def device_bytes(tiling: Tiling, n: int, itemsize: int) -> int:
    """Return the largest number of bytes of one device's memory that streaming takes.

    The memory holds the panels, the workspace of closing them, the slots, each with packed columns, and the resident
    stripes.
    Rounds add packed copies of the pivot columns of resident stripes; passes add packed columns for the products that
    are queued.

    Args:
        tiling: the layout.
        n: vertices.
        itemsize: bytes of an entry.
    """
    height, width, across = tiling.height, tiling.width, pitch(n, itemsize)
    word, tile = max(itemsize, 4), tile_side(4)
    packed_width = width * -(-width // tile) * tile * word
    panels = tiling.panels * width * across * itemsize
    closing = width * min(CHUNK, across) * itemsize + packed_width + padded_side(width, itemsize) ** 2 * itemsize
    if width > SINGLE:
        closing += rounds_bytes(padded_side(width, itemsize), itemsize)
    packed = width * -(-height // tile) * tile * word
    slot = height * across * itemsize + packed
    resident = tiling.resident * height * across * itemsize
    if tiling.resident:
        resident += QUEUED * packed if tiling.passes else 2 * packed_width
    return panels + closing + tiling.slots * slot + resident + SLACK


def panel_bytes(tiling: Tiling, n: int, itemsize: int) -> int:
    """Return the bytes of host memory for the panels, and for the work space of closing a panel, when a CPU streams.

    Args:
        tiling: the layout.
        n: vertices.
        itemsize: bytes of an entry.
    """
    if tiling.symmetric:  # more than the rounds need, because mirroring at the end takes further buffers
        return (tiling.panels * tiling.width + min(tiling.width, CHUNK)) * n * itemsize
    width = min(tiling.width, n)
    closing = width * (width + CLOSED) * itemsize
    return tiling.panels * width * n * itemsize + closing
