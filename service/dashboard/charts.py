"""Computes charts that a template draws as SVG, without script or style attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

WIDTH, HEIGHT = 720, 200
_MOST_BARS: Final = 72


def counted(values: Sequence[float], bins: int) -> tuple[list[float], list[int]]:
    """Return the edges of ``bins`` equal bins over the values, and their counts; a single bin if all values are
    equal.
    """
    low, high = min(values), max(values)
    if low == high:
        return [low, high], [len(values)]
    width = (high - low) / bins
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return [low + k * width for k in range(bins)] + [high], counts


def histogram(edges: Sequence[float], counts: Sequence[int]) -> dict[str, Any] | None:
    """Return the bars of a histogram in a box of ``WIDTH`` by ``HEIGHT``; neighbouring bins are merged if there are
    many.

    ``edges`` has one number more than ``counts``.  Returns None if there is nothing to draw.
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
