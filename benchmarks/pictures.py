"""Draws the plots of ``docs/numbers.md`` from ``benchmarks/results``: ``python -m benchmarks.pictures``.

Each SVG file holds a digest of the series that it shows, by which a test finds out whether the file is up to date.  The
test cannot draw it again and compare, because each version of matplotlib writes different bytes for the same picture.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FOLDER = ROOT / "docs" / "pictures"
MARK = "series sha256:"


@dataclass(frozen=True)
class Chart:
    """One picture: lines over x, or bars in groups.

    Attributes:
        title, x, y: the texts at the top and at the axes.
        series: points (x, y) by the name of the series; for bars, x is the name of a group.
        kind: ``lines`` (both axes logarithmic), ``speed-up`` (both axes logarithmic to the base 2, and the last line is
            the ideal speed-up), ``bars`` (vertical axis logarithmic) or ``shares`` (bars, vertical axis linear).
        level: a height that is marked with a horizontal line, and the name of this line; None for no line.
    """

    title: str
    x: str
    y: str
    series: dict[str, list[tuple[Any, float]]]
    kind: str
    level: tuple[float, str] | None = None

    @property
    def digest(self) -> str:
        """The digest of everything that the chart shows."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def result(name: str) -> Any:
    """Return the content of the newest result file whose name matches the pattern ``name``."""
    found = sorted(RESULTS.glob(f"{name}.json"))
    if not found:
        raise FileNotFoundError(f"no {name}.json in {RESULTS}")
    return json.loads(found[-1].read_text(encoding="utf-8"))


def peers() -> Chart:
    """Return the chart of the times of other libraries divided by ours, on graphs of about four thousand vertices."""
    series: dict[str, list[tuple[Any, float]]] = {}
    for row in result("peers-*")["tables"]["sparse"]:
        seconds = {name: each["seconds"] for name, each in row["solvers"].items() if each.get("seconds")}
        if not 3_000 <= row["n"] <= 4_100:
            continue
        for name in sorted(seconds.keys() - {"apsp"}):
            series.setdefault(name, []).append((row["case"], round(seconds[name] / seconds["apsp"], 2)))
    title = "All distances of sparse graphs, 3,300 to 4,000 vertices, two threads"
    return Chart(title, "graph", "times the time of apsp", series, "bars", (1.0, "apsp"))


def algorithms() -> Chart:
    """Return the chart of microseconds for each row, of the planner's choice and of the fastest peer, on roads."""
    ours, theirs = [], []
    rows = {row["graph"]: row for row in result("regret-*")["rows"]}
    for row in sorted(rows.values(), key=lambda each: each["n"]):
        best = min((value for value in row.get("peers", {}).values() if value), default=None)
        if best is not None and any(word in row["graph"] for word in ROADS):
            whole = row["seconds"][row["choice"]]
            ours.append((row["n"], round(whole / row["n"] * 1e6, 2)))
            theirs.append((row["n"], round(best / row["n"] * 1e6, 2)))
    title = "Road networks: processor time of one row, one thread"
    return Chart(title, "vertices", "microseconds a row", {"apsp": ours, "fastest other library": theirs}, "lines")


#: Names of the road networks in the set of ``benchmarks.regret``.
ROADS = ("monaco", "krems", "helsinki", "minnesota", "rome99", "Chicago", "cal.cedge", "Sydney", "bremen_dist",
         "seattle", "delhi")  # fmt: skip


def processor() -> Chart:
    """The product on the CPU as a share of what additions and minima in registers reach."""
    series: dict[str, list[tuple[Any, float]]] = {}
    for row in result("cpu-relax-*")["products"]:
        if row["n"] == 2048:
            name = f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"
            series.setdefault(name, []).append((row["kind"], round(100 * row["rate"] / row["textbook"], 1)))
    title = "CPU: the product C ← min(C, A ⊗ B), n = 2,048"
    return Chart(title, "type", "% of the textbook ceiling", series, "shares", (100.0, "additions and minima alone"))


def gpu() -> Chart:
    """Rates of the relax kernel on the GPU."""
    series: dict[str, list[tuple[Any, float]]] = {}
    for row in result("gpu_relax")["rows"]:
        kind = f"{row['dtype']}{', any sign' if row['signed'] else ''}"
        series.setdefault(f"K = {row['k']:,}", []).append((kind, round(row["rate_T"], 2)))
    return Chart("NVIDIA H200: relax, n = 32,768", "type", "10¹² updates a second", series, "shares")


def gpus() -> Chart:
    """Rates of streamed rounds on several GPUs."""
    series: dict[str, list[tuple[Any, float]]] = {}
    for row in result("gpu_stream_scale")["rows"]:
        if "gpus" in row:
            name = "streamed, 6.4 GiB a GPU" if row["resident"] == 0 else "stripes resident"
            series.setdefault(name, []).append((f"{row['gpus']}", round(row["rate_T"], 2)))
    return Chart("H200s: rounds of n = 131,072", "GPUs", "10¹² updates a second", series, "shares")


def searches() -> Chart:
    """Device time of searches from all vertices."""
    points: dict[int, float] = {}
    for row in result("gpu_search")["rows"]:
        if row["graph"] == "random" and row["dtype"] == "int32":
            points.setdefault(row["n"], round(row["ms"], 3))
    title = "One H200: searches from all vertices, random graph, 4 arcs a vertex"
    return Chart(title, "vertices", "milliseconds, whole matrix", {"bellman-ford": list(points.items())}, "lines")


#: Cases of ``benchmarks.cores`` that the picture of threads shows, and their names in the picture.
CURVES = {
    "random 16,000": "searches, random, n = 16,000",
    "grid 128, searches": "searches, grid 128²",
    "hops 16,000": "hops, n = 16,000",
    "grid 128": "partitioned, grid 128²",
    "dense 4,096": "Floyd–Warshall, n = 4,096",
}


def threads() -> Chart:
    """Return the chart of the speed-up of several threads over one thread."""
    rows = result("cores-*")["runs"][-1]["rows"]
    single = {row["graph"]: row["least"] for row in rows if row["threads"] == 1}
    series: dict[str, list[tuple[Any, float]]] = {}
    for row in sorted(rows, key=lambda each: each["threads"]):
        if row["graph"] in CURVES:
            found = series.setdefault(CURVES[row["graph"]], [])
            found.append((row["threads"], round(single[row["graph"]] / row["least"], 2)))
    counts = sorted({row["threads"] for row in rows})
    series["as many times as threads"] = [(count, float(count)) for count in counts]
    return Chart("Solves into memory on several threads", "threads", "times as fast as one thread", series, "speed-up")


CHARTS: Mapping[str, Callable[[], Chart]] = {
    "peers": peers,
    "roads": algorithms,
    "processor": processor,
    "gpu": gpu,
    "gpus": gpus,
    "searches": searches,
    "threads": threads,
}


def draw(chart: Chart, path: Path) -> None:
    """Write the picture; repeated calls write the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.digest, "font.family": "sans-serif"}):
        figure = Figure(figsize=(7.2, 3.8), layout="constrained")
        axes = figure.subplots()
        {"lines": _lines, "speed-up": _speed_up}.get(chart.kind, _bars)(axes, chart)
        axes.set_title(chart.title, fontsize=11)
        axes.set(xlabel=chart.x, ylabel=chart.y)
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
        if chart.level is not None:
            axes.axhline(chart.level[0], color="black", linewidth=1, linestyle="--", label=chart.level[1])
        if len(axes.get_legend_handles_labels()[0]) > 1:
            axes.legend(fontsize=8, ncols=1 if chart.kind == "speed-up" else 5, loc="upper left")
        figure.savefig(path, format="svg", metadata={"Date": None, "Description": MARK + chart.digest})


def _lines(axes: Axes, chart: Chart) -> None:
    for name, points in chart.series.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=4, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")


def _speed_up(axes: Axes, chart: Chart) -> None:
    *curves, ideal = chart.series.items()
    axes.plot(*zip(*ideal[1], strict=True), color="black", linewidth=1, linestyle="--", label=ideal[0])
    for name, points in curves:
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=4, label=name)
    ticks = [2**k for k in range(int(ideal[1][-1][1]).bit_length())]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(ticks, map(str, ticks))
    axes.set_yticks(ticks, map(str, ticks))


def _bars(axes: Axes, chart: Chart) -> None:
    groups = list(dict.fromkeys(x for points in chart.series.values() for x, _ in points))
    width = 0.8 / len(chart.series)
    for k, (name, points) in enumerate(chart.series.items()):
        places = [groups.index(x) + (k - (len(chart.series) - 1) / 2) * width for x, _ in points]
        axes.bar(places, [y for _, y in points], width, label=name)
    turn = 30 if sum(map(len, groups)) > 45 else 0
    axes.set_xticks(range(len(groups)), groups, rotation=turn, ha="right" if turn else "center", fontsize=8)
    if chart.kind == "bars":
        axes.set_yscale("log")
    bottom, top = axes.get_ylim()
    bottom = bottom if chart.level is None else min(bottom, 0.8 * chart.level[0])
    axes.set_ylim(bottom, top * (1.8 if chart.kind == "bars" else 1.12))  # leaves space for the legend


def main() -> None:
    """Draw the pictures that the command line names, or all of them."""
    for name in sys.argv[1:] or CHARTS:
        draw(CHARTS[name](), FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
