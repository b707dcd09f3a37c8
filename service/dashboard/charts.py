"""Computes charts that a template draws as SVG, without script or style attributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

WIDTH, HEIGHT = 720, 200
#: in the picture of a path, the heights of the whole picture, of the tick of a stop on the way, and of a tick at an end
_LINE, _TICK, _END = 36, 14, 30
_MOST_BARS: Final = 72


def counted(values: Sequence[float], bins: int) -> tuple[list[float], list[int]]:
    """Return the edges of ``bins`` equal bins over the values, and their counts; a single bin if all values are
    equal, or too near together for more.
    """
    low, high = min(values), max(values)
    width = (high - low) / bins
    if low + width == low:
        return [low, high], [len(values)]
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return [low + k * width for k in range(bins)] + [high], counts


def histogram(edges: Sequence[float], counts: Sequence[int]) -> dict[str, Any] | None:
    """Return the bars of a histogram in a box of ``WIDTH`` by ``HEIGHT``.

    Neighbouring bins are merged if there are more than ``_MOST_BARS``.  ``edges`` has one number more than ``counts``.
    Returns None if there is nothing to draw.
    """
    total = sum(counts)
    if not total:
        return None
    together = -(-len(counts) // _MOST_BARS)
    merged = [sum(counts[k : k + together]) for k in range(0, len(counts), together)]
    bounds = [edges[min(k, len(counts))] for k in range(0, len(counts) + together, together)][: len(merged) + 1]
    tallest, step = max(merged), WIDTH / len(merged)
    bars = [
        {
            "x": round(k * step + 0.5, 2), "width": round(max(step - 1, 0.8), 2),
            "y": round(HEIGHT - HEIGHT * count / tallest, 2), "height": round(HEIGHT * count / tallest, 2),
            "from": bounds[k], "to": bounds[k + 1], "count": count, "share": count / total,
        }
        for k, count in enumerate(merged)
    ]  # fmt: skip
    return {"bars": bars, "width": WIDTH, "height": HEIGHT, "first": bounds[0], "last": bounds[-1], "tallest": tallest,
            "middle": (bounds[len(merged) // 2] + bounds[(len(merged) + 1) // 2]) / 2, "total": total}  # fmt: skip


def line_of_stops(vertices: Sequence[object], so_far: Sequence[float]) -> dict[str, Any] | None:
    """Return a path as a line with a tick for each stop, placed in proportion to the path length up to the stop.

    Args:
        vertices: names of the stops, in order.
        so_far: the length of the path up to each stop, from 0.

    Returns:
        The ticks, and the ends of the longest arc; None if the path has no length, or if it gets shorter on the way,
        which no line can show.
    """
    whole = so_far[-1]
    lengths = [after - before for before, after in pairwise(so_far)]
    if not lengths or whole <= 0 or not math.isfinite(whole) or min(lengths) < 0:
        return None
    at = [round(WIDTH * value / whole, 1) for value in so_far]
    ticks = [
        {"x": x, "vertex": vertices[k], "so_far": so_far[k],
         "top": (_LINE - height) / 2, "bottom": (_LINE + height) / 2}
        for k, x in enumerate(at)
        for height in (_END if k in (0, len(at) - 1) else _TICK,)
        # of the stops that fall on one pixel only the first is drawn; both ends of the path are always drawn
        if k in (0, len(at) - 1) or int(x) != int(at[k - 1])
    ]  # fmt: skip
    k = max(range(len(lengths)), key=lengths.__getitem__)
    return {"width": WIDTH, "height": _LINE, "middle": _LINE / 2, "ticks": ticks, "from": at[k], "to": at[k + 1],
            "longest": lengths[k], "tail": vertices[k], "head": vertices[k + 1]}  # fmt: skip
