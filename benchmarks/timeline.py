"""Draws the picture of whole commands in docs/out-of-core.md: a bar for each, from its start to the sealed store.

    python -m benchmarks.timeline

The data are records of ``benchmarks.commands``.  Seconds that belong to no phase are shown as the start of the program.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
RECORD: Final = ROOT / "benchmarks" / "results" / "commands-h200-2026-11-29-later.json"
PICTURE: Final = ROOT / "docs" / "pictures" / "command.svg"
PROGRAM: Final = "now"
#: For each bar its name, and the row and turn of the record that it shows; turn 0 is the first command of its kind.
BARS: Final = (
    ("in 4 GiB, first", "streamed", 0),
    ("in 4 GiB, later", "streamed", 1),
    ("by searches, later", "searches", 2),
    ("n = 32,768, later", "memory", 1),
)
COLOURS: Final = {
    "start": "#9a9a9a", "read": "#8a63b5", "plan": "#4c78a8", "compile": "#b5305f", "create": "#72b7b2",
    "prepare": "#e8c15a", "ingest": "#9d755d", "relax": "#f58518", "search": "#d67195", "write": "#54a24b",
    "seal": "#1f6f3a",
}  # fmt: skip
WIDTH, LEFT, ROW, TOP = 1000, 140, 44, 50


def parts(row: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the phases of a command with their seconds, in the order of the bar."""
    seconds = dict(row["seconds"])
    seconds["start"] = row["wall"] - sum(seconds.values())
    return [(name, seconds[name]) for name in COLOURS if seconds.get(name, 0) > 0]


def draw(record: dict[str, Any]) -> str:
    """Return the picture as SVG."""
    rows = {(row["row"], row["turn"]): row for row in record["rows"] if row["program"] == PROGRAM}
    bars = [(name, rows[kind, turn]) for name, kind, turn in BARS]
    longest = max(row["wall"] for _, row in bars)
    scale, height = (WIDTH - LEFT - 70) / longest, TOP + ROW * len(bars) + 40
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="14">',
        f"<title>{escape('Seconds of the phases of four commands, n = 65,536 where nothing else is said')}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for place, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + place * 77
        out.append(
            f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/><text x="{x + 17}" y="25">{name}</text>'
        )
    for place, (name, row) in enumerate(bars):
        y, at = TOP + ROW * place, float(LEFT)
        out.append(f'<text x="{LEFT - 8}" y="{y + 19}" text-anchor="end">{escape(name)}</text>')
        for phase, seconds in parts(row):
            wide = seconds * scale
            out.append(f'<rect x="{at:.1f}" y="{y}" width="{wide:.1f}" height="28" fill="{COLOURS[phase]}"/>')
            at += wide
        out.append(f'<text x="{at + 6:.1f}" y="{y + 19}">{row["wall"]:.1f} s</text>')
    bottom = TOP + ROW * len(bars)
    for second in range(0, int(longest) + 1, 5):
        x = LEFT + second * scale
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="#bbb" stroke-width="0.5"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{second}</text>')
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    """Draw the picture."""
    PICTURE.write_text(draw(json.loads(RECORD.read_text())))


if __name__ == "__main__":
    main()
