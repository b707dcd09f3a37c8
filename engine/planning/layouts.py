"""The search over layouts of a streamed matrix: which are possible, and which is predicted to be the fastest.

What a layout costs depends on where it runs, so callers estimate the cost.  This module lists which layouts they try:
for processors, for GPUs that stream from host memory or from the store, and for workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from engine.model.plan import Candidate
from engine.model.tiling import GRAIN, SLOTS, Tiling, device_bytes, pitch
from engine.planning.constants import BUS_MARGIN, FEEDING_SECONDS, LOW_STRIPES, ROUND_SHARES


@dataclass(frozen=True)
class LayoutGrid:
    """The layouts that are tried; of layouts that are equally good, the first one is selected.

    Attributes:
        tier: where the matrix lies, ``host`` or ``store``.
        widths: widths of a pivot block, in vertices.
        heights: heights of a stripe, in rows; empty for stripes as high as the pivot block is wide.
        slots: numbers of stripes in flight on a device.
        symmetric: the values of ``Tiling.symmetric`` to try.
        passes: whether layouts that are not symmetric are closed in passes; all others are closed in rounds.
    """

    tier: str
    widths: Sequence[int]
    heights: Sequence[int] = ()
    slots: Sequence[int] = (1,)
    symmetric: Sequence[bool] = (False,)
    passes: bool = False

    def layouts(self) -> Iterator[Tiling]:
        """Yield the layouts whose stripes divide the pivot block."""
        for symmetric in self.symmetric:
            for width in self.widths:
                for height in self.heights or (width,):
                    for slots in self.slots:
                        if width % height == 0:
                            passes = self.passes and not symmetric
                            yield Tiling(self.tier, height, width, slots, 0, symmetric, passes)


#: For GPUs: heights of a stripe (GPU_HEIGHTS) and numbers of stripes in flight (GPU_SLOTS), in order of preference.
GPU_HEIGHTS: Final = (1024, 512, 256, 128, 64)
GPU_SLOTS: Final = (SLOTS, 3)
#: For GPUs: widths of a pivot block of a matrix in host memory; ``GPU_HEIGHTS`` are tried as widths, too, in case
#: memory is small.
GPU_HOST_WIDTHS: Final = (1024, 2048, 3072, 4096)
#: For GPUs: widths of a pivot block of a matrix in the store, which is read fewer times if blocks are wide.
GPU_STORE_WIDTHS: Final = (64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)
#: For processors: heights of a stripe (CPU_HEIGHTS), best first, and widths of a pivot block (CPU_WIDTHS).
CPU_HEIGHTS: Final = (512, 384, 256, 192, 128, 64)
CPU_WIDTHS: Final = (
    64, 128, 192, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2560, 3072, 3584, 4096,
    5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384, 20480, 24576, 28672, 32768,
)  # fmt: skip
#: For workers: widths of a pivot block; a stripe has as many rows as the block is wide.
WORKER_WIDTHS: Final = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)


def whole_width(n: int) -> int:
    """Return the width of a pivot block that covers all ``n`` vertices."""
    return -(-n // GRAIN) * GRAIN


def fastest(found: Sequence[Candidate], memory: int) -> Candidate | None:
    """Return the fastest candidate that fits; if none fits, the candidate that needs least memory, so that a refusal
    can say how much.

    Args:
        found: candidates; may be empty.
        memory: bytes of host memory that may be used.

    Returns:
        The candidate; None if ``found`` is empty.
    """
    fitting = [c for c in found if c.memory <= memory]
    if fitting:
        return min(fitting, key=lambda c: c.seconds)
    return min(found, key=lambda c: c.memory, default=None)


# ---- GPUs over host memory ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamingDevices:
    """The GPUs that share a streamed matrix.

    Attributes:
        count: number of GPUs.
        memory: bytes of each device's memory that may be used.
        bus_rate: bytes per second of all devices together in each direction, while both directions are used.
        relax_rate: updates a second of all devices together.
    """

    count: int
    memory: int
    bus_rate: float
    relax_rate: float


def choose_layout(
    n: int, itemsize: int, devices: StreamingDevices, *, symmetric: bool = False, passes: bool = False
) -> Tiling | None:
    """Choose the layout for GPUs: stripes of many rows, and the narrowest pivot block whose products hide the copies.

    Stripes for which the devices have memory are resident.

    Args:
        n: vertices.
        itemsize: bytes of an entry.
        devices: the GPUs.
        symmetric: whether half of the matrix is streamed.
        passes: whether the matrix is closed in passes.

    Returns:
        The layout; None where not even the smallest stripes and panels fit.
    """
    widths = (*(w for w in GPU_HOST_WIDTHS if w <= whole_width(n)), *GPU_HEIGHTS)
    grid = LayoutGrid("host", widths, GPU_HEIGHTS, GPU_SLOTS, (symmetric,), passes)
    fitting = [tiling for tiling in grid.layouts() if device_bytes(tiling, n, itemsize) <= devices.memory]
    fitting = [_keep(tiling, n, itemsize, devices) for tiling in fitting]
    wanted = BUS_MARGIN * itemsize * devices.relax_rate / devices.bus_rate
    return min(fitting, key=lambda tiling: _round_cost(tiling, n, devices, wanted), default=None)


def least_layout(*, symmetric: bool = False, passes: bool = False) -> Tiling:
    """Return the layout over host memory that takes the least device memory."""
    least = GPU_HEIGHTS[-1]
    return Tiling("host", least, least, GPU_SLOTS[-1], 0, symmetric, passes)


def _keep(tiling: Tiling, n: int, itemsize: int, devices: StreamingDevices) -> Tiling:
    """Return ``tiling`` with as many groups of stripes resident on each device as its memory holds."""
    left = devices.memory - device_bytes(replace(tiling, resident=tiling.group), n, itemsize)
    if left < 0:
        return tiling
    each = tiling.width * pitch(n, itemsize) * itemsize
    shared = 1 if tiling.passes else devices.count  # in passes each device reads, and may hold, all stripes
    groups = min(1 + left // each, math.ceil(tiling.rounds(n) / shared))
    return replace(tiling, resident=groups * tiling.group)


def _round_cost(tiling: Tiling, n: int, devices: StreamingDevices, wanted: float) -> float:
    """Return the relative time of a round.

    It is a sum.  Its terms are: products, or copies if these take longer; closing; the time lost because stripes have
    too few rows to fill waves of thread blocks, or because few stripes are in flight; and uneven shares of the devices.

    Args:
        tiling: the layout.
        n: vertices.
        devices: the GPUs.
        wanted: width of the pivot block, in vertices, from which copies hide behind products.
    """
    if tiling.passes:
        return _pass_cost(tiling, n, devices, wanted)
    stripes, shares, count = tiling.stripes(n), ROUND_SHARES, devices.count
    streamed = max(0, stripes - count * tiling.resident) / max(1, stripes)
    bus = streamed * wanted / BUS_MARGIN / tiling.width
    closing = tiling.width / n * (shares.closing_half if tiling.symmetric else shares.closing)
    low = LOW_STRIPES.get(tiling.height, shares.low_rows / tiling.height) * (shares.low_resident + streamed)
    shallow = shares.shallow * (shares.shallow_width / tiling.width) ** 2
    few = shares.few_slots * streamed if tiling.slots < SLOTS else 0.0
    groups = tiling.rounds(n)
    # a resident group stays on its device, so a round takes as long as the device with most of these groups needs; a
    # streamed stripe goes to the next device that is free, so it does not count here
    uneven = (1 - streamed) * (math.ceil(groups / count) * count / groups - 1)
    return max(1.0, bus * (BUS_MARGIN if streamed else 1)) + closing + low + shallow + few + uneven


def waiting(tiling: Tiling, n: int, devices: int, bus: float) -> float:
    """Return the time for which devices that share passes wait for each other, as a share of the time of the products.

    The first panels of a pass are closed one after the other, because there is little other work: a panel arrives, is
    relaxed by the previous panel, and is closed.  This continues until the work for one panel, shared by all devices,
    takes longer than such a step.  At the end of a pass, the devices finish their last panels at evenly spaced times.
    The formula was derived from this, not measured.  A simulation of 1 to 8 devices agrees with it to within 0.02 where
    the share is below a fifth; where it is larger, the simulation gives less than the formula.

    Args:
        tiling: the layout.
        n: vertices.
        devices: number of devices.
        bus: seconds of copying a panel to a device, divided by the seconds of relaxing a panel by a panel.
    """
    panels, step = tiling.rounds(n), 2 + 2 * bus
    return min(devices, (devices - 1) / (2 * panels) + devices * (devices - 1) * (step / panels) ** 2)


def _pass_cost(tiling: Tiling, n: int, devices: StreamingDevices, wanted: float) -> float:
    """Return the relative time of passes, as :func:`_round_cost` does for rounds.

    In passes, the inner dimension of the products (their depth) is the height of a stripe.
    """
    shares, step = ROUND_SHARES, wanted / BUS_MARGIN / tiling.width
    closing = tiling.width / n * shares.closing
    shallow = shares.shallow_pass * float((shares.shallow_width / tiling.height) ** 1.5)
    low = LOW_STRIPES.get(tiling.width, shares.low_rows / tiling.width)
    few = shares.few_panels if tiling.panels < 3 else 0.0
    between = tiling.height * tiling.width * n / devices.relax_rate
    # ``fed`` is halved below, because the GPUs wait for the host only in the pass up, which has half of all products
    fed = max(1.0, FEEDING_SECONDS / between) if devices.count > 1 else 1.0
    waits = waiting(tiling, n, devices.count, step)
    return _streaming(tiling, n, devices.count, wanted) + fed / 2 + closing + shallow + low + few + waits


def _streaming(tiling: Tiling, n: int, devices: int, wanted: float) -> float:
    """Return the time of products and copies, divided by the time of the products.

    A panel takes as long as its products or its copies, whichever take longer.

    If stripes are held, the first panels of a pass need few copies, and the last panels need copies of all stripes that
    are not held.  A GPU of 8 GiB held 18 of 79 stripes of 1,024 rows (n = 80,000).  During the last panels, the bus
    limited it to 15.1 of 16.6 T updates/s, so copies are counted as longer by ``BUS_MARGIN``.
    """
    held, sources = tiling.resident // tiling.group, np.arange(1, max(2, tiling.rounds(n)))
    copied = np.minimum(sources, np.maximum(0, sources - held) + devices)
    return float(np.maximum(sources, wanted / tiling.width * copied).sum() / sources.sum())
