"""How a matrix is cut for streaming, and how many bytes that takes.  Pure: planner, tiers and streamers agree here.

A *stripe* is a run of whole rows, the unit that is streamed.  A *pivot block* is as wide as a *group* of stripes is
high; the rows of its round, once closed, are the *row panel*, which every other stripe is relaxed by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from engine.model.device_layout import SINGLE, SLACK, padded_side, rounds_bytes, tile_side

#: Stripes are multiples of the store's tile rows.
GRAIN: Final = 64
#: Columns of the panel that are copied and relaxed at a time when it is closed.
CHUNK: Final = 8192
#: Where a CPU closes one: columns that are copied at a time, bytes of a row of what it packs at a time, and columns by
#: which packing may widen the panel.
CLOSED: Final = 1024
PACKED: Final = 4096
PADDING: Final = 64
#: Stripes in flight on a device: one comes, one is relaxed, one goes, one waits.
SLOTS: Final = 4
#: Heights of a stripe and widths of a pivot block that are considered, best first where all fit.
HEIGHTS: Final = (1024, 512, 256, 128, 64)
WIDTHS: Final = (1024, 2048, 3072, 4096)
#: How much wider than the break-even of bus and kernels a pivot block should be, so that copies hide.
MARGIN: Final = 1.25

Span = tuple[int, int]


@dataclass(frozen=True)
class Streaming:
    """How a matrix of n vertices is streamed.

    Attributes:
        tier: where the matrix lies, ``host`` or ``store``.
        height: rows of a stripe, a multiple of GRAIN.
        width: rows of a pivot block, a multiple of ``height``.
        slots: stripes in flight on a device; 1 on the CPU.
        resident: stripes that stay on each device instead of being streamed, a multiple of ``group``; 0 on the CPU.
        symmetric: only what lies on or right of the diagonal of each stripe is kept right; the rest is mirrored last.
        ahead: each panel is closed during the round before its own, so that devices need not wait for it.  Else there
            is one panel, which is closed when the round before is done: on one CPU, whose processors would have to
            close it anyway, that leaves memory for one twice as wide.
    """

    tier: str
    height: int
    width: int
    slots: int = 1
    resident: int = 0
    symmetric: bool = False
    ahead: bool = True

    def __post_init__(self) -> None:
        if self.tier not in ("host", "store"):
            raise ValueError(f"the tier is {self.tier!r}; host or store are known")
        if self.height < GRAIN or self.height % GRAIN or self.width < self.height or self.width % self.height:
            raise ValueError(
                f"height {self.height} and width {self.width} must be multiples of {GRAIN} and of each other"
            )
        if self.slots < 1 or self.resident < 0 or self.resident % self.group:
            raise ValueError(f"slots is {self.slots}, resident {self.resident} of groups of {self.group}")
        if not self.ahead and (self.symmetric or self.resident):
            raise ValueError("panels of symmetric layouts, and with resident stripes, are closed ahead")

    @property
    def group(self) -> int:
        """Stripes of a pivot block."""
        return self.width // self.height

    @property
    def panels(self) -> int:
        """Panels held at a time: this round's and the next one's; undirected, also the one after, as it comes in."""
        return 3 if self.symmetric else 1 + self.ahead

    def stripes(self, n: int) -> int:
        """How many stripes there are."""
        return -(-n // self.height)

    def rounds(self, n: int) -> int:
        """How many rounds there are."""
        return -(-n // self.width)

    def rows(self, stripe: int, n: int) -> tuple[int, int]:
        """First row of a stripe, and the one after its last."""
        return stripe * self.height, min(n, (stripe + 1) * self.height)

    def pivot(self, turn: int, n: int) -> tuple[int, int]:
        """First vertex of the pivot block of a round, and the one after its last."""
        return turn * self.width, min(n, (turn + 1) * self.width)

    def members(self, turn: int, n: int) -> range:
        """The stripes of the pivot block of a round."""
        return range(turn * self.group, min(self.stripes(n), (turn + 1) * self.group))

    def left(self, stripe: int) -> int:
        """First column of a stripe that is kept right."""
        return stripe * self.height if self.symmetric else 0


def pitch(n: int, itemsize: int) -> int:
    """Entries from one row to the next on a device: rows begin at multiples of 16 bytes."""
    grain = 16 // itemsize
    return -(-n // grain) * grain


def updates(streaming: Streaming, n: int) -> int:
    """Updates of a whole solve, c = min(c, a + b)."""
    return n * entries(streaming, n)


def entries(streaming: Streaming, n: int) -> int:
    """Entries of all stripes that are kept right."""
    if not streaming.symmetric:
        return n * n
    height, whole = streaming.height, n // streaming.height
    rest = n - whole * height
    return whole * height * n - height * height * (whole * (whole - 1) // 2) + rest * rest


def stripe_entries(streaming: Streaming, stripe: int, n: int) -> int:
    """Entries of a stripe that are kept right."""
    first, last = streaming.rows(stripe, n)
    return (last - first) * (n - streaming.left(stripe))


def streamed_bytes(streaming: Streaming, n: int, itemsize: int, devices: int = 1) -> int:
    """Bytes that cross to the devices in a round, and about as many come back: stripes that are not resident."""
    streamed = max(0, streaming.stripes(n) - devices * streaming.resident)
    return entries(streaming, n) * itemsize * streamed // max(1, streaming.stripes(n))


def device_bytes(streaming: Streaming, n: int, itemsize: int) -> int:
    """Bytes of one device's memory that streaming takes at most.

    The panels and what closing them takes, the slots, each with the packed columns it is relaxed by, and the resident
    stripes with theirs.
    """
    height, width, across = streaming.height, streaming.width, pitch(n, itemsize)
    word, tile = max(itemsize, 4), tile_side(4)
    packed_width = width * -(-width // tile) * tile * word
    panels = streaming.panels * width * across * itemsize
    closing = width * min(CHUNK, across) * itemsize + packed_width + padded_side(width, itemsize) ** 2 * itemsize
    if width > SINGLE:
        closing += rounds_bytes(padded_side(width, itemsize), itemsize)
    slot = height * across * itemsize + width * -(-height // tile) * tile * word
    resident = streaming.resident * height * across * itemsize + (2 * packed_width if streaming.resident else 0)
    return panels + closing + streaming.slots * slot + resident + SLACK


def panel_bytes(streaming: Streaming, n: int, itemsize: int) -> int:
    """Bytes of host memory that the panels take where a CPU streams, and what closing one takes."""
    if streaming.symmetric:  # counted generously: the last pass, which mirrors, has tiles of its own
        return (streaming.panels * streaming.width + min(streaming.width, CHUNK)) * n * itemsize
    width = min(streaming.width, n)
    padding = width * PADDING * itemsize
    closing = width * (width * itemsize + max(CLOSED * itemsize, PACKED))
    return streaming.panels * width * n * itemsize + padding + closing


def choose_layout(
    n: int,
    itemsize: int,
    *,
    device_memory: int,
    devices: int,
    bus_rate: float,
    relax_rate: float,
    symmetric: bool = False,
    tier: str = "host",
) -> Streaming | None:
    """The layout for GPUs: the narrowest pivot block behind which the bus hides, tall stripes, the rest resident.

    Args:
        n, itemsize: vertices, bytes of an entry.
        device_memory: bytes of each device's memory that may be used.
        devices: how many share the work.
        bus_rate: bytes a second, each way at once, of all devices together.
        relax_rate: updates a second of all devices together.
        symmetric: stream half of the matrix.
        tier: ``host`` or ``store``, whose stripes never stay on a device.

    Returns:
        None where not even the smallest stripes and panels fit.
    """
    wanted = MARGIN * itemsize * relax_rate / bus_rate
    whole = -(-n // GRAIN) * GRAIN
    best: tuple[float, Streaming] | None = None
    for width in (*(w for w in WIDTHS if w <= whole), *HEIGHTS):
        for height in HEIGHTS:
            if height > width or width % height:
                continue
            for slots in (SLOTS, 3):
                found = Streaming(tier, height, width, slots, 0, symmetric)
                spare = device_memory - device_bytes(found, n, itemsize)
                if spare < 0:
                    continue
                if tier == "host":
                    found = _keep(found, n, itemsize, device_memory, devices)
                cost = _round_cost(found, n, devices, wanted)
                if best is None or cost < best[0]:
                    best = cost, found
    return None if best is None else best[1]


def _keep(streaming: Streaming, n: int, itemsize: int, memory: int, devices: int) -> Streaming:
    """The same with as many groups resident on each device as its memory holds."""
    groups = streaming.rounds(n)

    def with_groups(count: int) -> Streaming:
        s = streaming
        return Streaming(s.tier, s.height, s.width, s.slots, count * s.group, s.symmetric)

    one = with_groups(1)
    left = memory - device_bytes(one, n, itemsize)
    if left < 0:
        return streaming
    each = streaming.width * pitch(n, itemsize) * itemsize
    return with_groups(min(1 + left // each, math.ceil(groups / devices)))


def _round_cost(streaming: Streaming, n: int, devices: int, wanted: float) -> float:
    """Relative time: bus against kernels, closing, stripes too low for full waves, few slots, uneven shares."""
    stripes = streaming.stripes(n)
    share = max(0, stripes - devices * streaming.resident) / max(1, stripes)
    bus = share * wanted / MARGIN / streaming.width
    closing = streaming.width / n * (1.5 if streaming.symmetric else 0.5)
    low = {1024: 0.0, 512: 0.005}.get(streaming.height, 8 / streaming.height) * (0.2 + share)
    shallow = 0.03 * (1024 / streaming.width) ** 2
    few = 0.01 * share if streaming.slots < SLOTS else 0.0
    groups = streaming.rounds(n)
    uneven = (1 - share) * (math.ceil(groups / devices) * devices / groups - 1)  # resident groups stay where they are
    return max(1.0, bus * (MARGIN if share else 1)) + closing + low + shallow + few + uneven
