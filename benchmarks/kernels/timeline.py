"""A picture of what ran when: one row a lane, one bar a piece of work, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol

COLOURS = {
    "load": "#4c78a8",
    "relax": "#f58518",
    "store": "#54a24b",
    "reside": "#e8c15a",
    "close": "#b5305f",
    "panel": "#8a63b5",
    "write": "#7fbf7b",
}
WIDTH, ROW, LEFT, TOP = 1500, 16, 150, 60


class Interval(Protocol):
    """What is drawn, seconds from any zero."""

    @property
    def kind(self) -> str:
        """Kind of work."""
        ...

    @property
    def device(self) -> int:
        """Which device."""
        ...

    @property
    def k(self) -> int:
        """Which round."""
        ...

    @property
    def lane(self) -> int:
        """Slot; below zero for what is in none."""
        ...

    @property
    def begin(self) -> float:
        """Seconds."""
        ...

    @property
    def end(self) -> float:
        """Seconds."""
        ...


def lane_of(i: Interval) -> tuple[int, int, str]:
    """Device, order and name of the row of an interval."""
    if i.lane >= 0:
        order = {"load": 0, "relax": 1, "store": 2}[i.kind]
        return i.device, 10 + 4 * i.lane + order, f"slot {i.lane} {i.kind}"
    order = {"close": 1, "panel": 2, "write": 3}.get(i.kind, 4 - i.lane)
    return i.device, order, i.kind if i.kind != "reside" else f"resident {-i.lane}"


def draw(intervals: Sequence[Interval], title: str) -> str:
    """The picture; an empty one if there is nothing."""
    lanes = sorted({lane_of(i) for i in intervals})
    place = {lane: TOP + ROW * k for k, lane in enumerate(lanes)}
    begin = min((i.begin for i in intervals), default=0.0)
    end = max((i.end for i in intervals), default=1.0)
    scale = (WIDTH - LEFT - 10) / (end - begin)
    height = TOP + ROW * len(lanes) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}; {1e3 * (end - begin):.0f} ms</text>',
    ]
    for k, (kind, colour) in enumerate(COLOURS.items()):
        x = 10.0 + 110 * k
        parts.append(f'<rect x="{x:g}" y="30" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16:g}" y="40" font-size="11">{kind}</text>')
    several = len({device for device, _, _ in lanes}) > 1
    for (device, order, name), y in place.items():
        del order
        label = f"GPU {device} {name}" if several else name
        parts.append(f'<text x="10" y="{y + 11}" font-size="10">{label}</text>')
    for i in intervals:
        x, width = LEFT + (i.begin - begin) * scale, max(0.3, (i.end - i.begin) * scale)
        shade = "1" if i.k % 2 else "0.65"
        parts.append(
            f'<rect x="{x:.1f}" y="{place[lane_of(i)] + 2}" width="{width:.1f}" height="{ROW - 4}" '
            f'fill="{COLOURS[i.kind]}" fill-opacity="{shade}"><title>round {i.k}</title></rect>'
        )
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100, 1000) if (end - begin) / s < 16)
    for k in range(int((end - begin) / step) + 1):
        x = LEFT + k * step * scale
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - 26}" stroke="#ccc" stroke-width="0.5"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{height - 10}" font-size="10">{1e3 * k * step:.0f} ms</text>')
    return "\n".join([*parts, "</svg>", ""])
