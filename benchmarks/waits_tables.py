"""Makes the tables of ``benchmarks.waits``.

A row has a graph, a number of threads, and the answers of contenders by name; ``which`` selects ``engine`` or ``door``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

PEERS: Final = ("SciPy", "NetworKit", "rustworkx")


def least(told: dict[str, Any] | None, which: str = "engine") -> float:
    """Return the least seconds of the calls after the first, or of the only call; infinity if there is none."""
    times = [each["seconds"] for each in (told or {}).get(which, [])]
    return min(times[1:] or times, default=math.inf)


def cell(told: dict[str, Any] | None, which: str = "engine") -> str:
    """Return the text of a contender's seconds in a table."""
    if told is None:
        return ""
    if "given up" in told:
        return f"> {told['given up']:.2g}"
    seconds = least(told, which)
    if seconds == math.inf:
        return "–"
    wrong = "" if told.get("agrees", True) else " (differs)"
    return f"{'~ ' if 'sampled' in told else ''}{seconds:.3g}{wrong}"


def fastest(row: dict[str, Any]) -> float:
    """Return the seconds of the fastest peer."""
    return min((least(row.get(name)) for name in PEERS), default=math.inf)


def ratio(row: dict[str, Any], name: str, which: str = "engine") -> float | None:
    """Return the seconds of the fastest peer divided by those of ``name``; None if either is unknown."""
    own, best = least(row.get(name), which), fastest(row)
    return best / own if own < math.inf and best < math.inf else None


def shares(row: dict[str, Any]) -> tuple[float, float] | None:
    """Return planning's share of the whole time, and the seconds of planning that save the solve nothing (*not kept*).

    Planning saves the solve the time of parts that it finds, of arcs that it prepares, and of rows that trials keep.
    """
    later = row.get("now", {}).get("engine", [])
    if not later:
        return None
    best = min(later[1:] or later, key=lambda each: each["seconds"])
    planning, solving, n = best["planning"], best["seconds"] - best["planning"], row["n"]
    left = max(1, n - best["kept"])
    used = best["partition"] + best.get("prepared", 0.0) + solving / left * best["kept"]
    return planning / best["seconds"], max(0.0, planning - used)


HEAD: Final = (
    *("graph", "n", "arcs", "96d7eee", "now", "first call", "SciPy's door", *PEERS, "fastest peer / now", "/ door"),
    *("/ 96d7eee", "algorithm", "of it planning", "not kept, ms"),
)


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return a table in Markdown of rows with the same number of threads."""
    lines = [f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD)]
    for row in rows:
        now, told = row.get("now", {}), shares(row)
        ratios = [ratio(row, "now"), ratio(row, "now", "door"), ratio(row, "old")]
        calls = now.get("engine", [])
        cells = [
            row["graph"],
            f"{row['n']:,}",
            f"{row['arcs']:,}",
            cell(row.get("old")),
            cell(now),
            f"{calls[0]['seconds']:.3g}" if calls else "–",
            cell(now, "door"),
            *(cell(row.get(name)) for name in PEERS),
            *("" if each is None else f"{each:.2f}" for each in ratios),
            calls[-1]["algorithm"] if calls else now.get("failed", "–"),
            *(("", "") if told is None else (f"{told[0]:.0%}", f"{1000 * told[1]:.1f}")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def medians(rows: Sequence[dict[str, Any]], threads: int) -> str:
    """Return lines with the medians and the least of ratios, parallel efficiencies, and the cost of planning."""
    own = [row for row in rows if row["threads"] == threads]
    lines = []
    for what, chosen in (
        ("all", own),
        ("hops", [r for r in own if r["hops"]]),
        ("weights", [r for r in own if not r["hops"]]),
    ):
        for label, name, which in (("engine", "now", "engine"), ("door", "now", "door"), ("96d7eee", "old", "engine")):
            found = [each for row in chosen if (each := ratio(row, name, which)) is not None]
            if found:
                slower = sum(each < 1 for each in found)
                facts_of = f"median {statistics.median(found):.2f}, least {min(found):.2f}"
                lines.append(f"- {what}, fastest peer / {label}: {facts_of}, slower on {slower} of {len(found)}")
    beside = [least(r["now"]) / least(r["now"], "door") for r in own if r.get("now", {}).get("door")]
    if beside:
        lines.append(f"- engine / door: median {statistics.median(beside):.2f}, least {min(beside):.2f}")
    single = {row["graph"]: row for row in rows if row["threads"] == 1}
    for row in own:
        if row["graph"] in single and threads > 1 and least(row.get("now")) < math.inf:
            times = least(single[row["graph"]]["now"]) / least(row["now"])
            lines.append(f"- {row['graph']}: {times:.1f} times one thread, {times / threads:.0%}")
    costs = [(told[1], least(row["now"])) for row in own if (told := shares(row)) is not None]
    if costs:
        good = sum(lost <= max(0.001, 0.05 * (whole - lost)) for lost, whole in costs)
        lines.append(f"- planning that is not kept is at most 5 % or 1 ms on {good} of {len(costs)}")
    wrong = [f"{r['graph']} ({n})" for r in own for n in ("now", "old", *PEERS) if r.get(n, {}).get("agrees") is False]
    lines.append(f"- answers that are not SciPy's: {', '.join(wrong) or 'none'}")
    return "\n".join(lines)


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of ratios over many graphs: a line for each number of threads and kind of graph.

    The column of 96d7eee is left out if no row has it.
    """
    older = any(row.get("old") for row in rows)
    head = ["threads", "graphs", "fastest other / apsp: median", "least", "most", "slower than another"]
    head += ["96d7eee / apsp"] if older else []
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for threads in sorted({row["threads"] for row in rows}):
        for name, made, hops in (
            ("real, weights", False, False),
            ("real, hops", False, True),
            ("made, weights", True, False),
            ("made, hops", True, True),
        ):
            own = [r for r in rows if (r["threads"], r["made"], r["hops"]) == (threads, made, hops)]
            found = [each for row in own if (each := ratio(row, "now")) is not None]
            before = [least(r.get("old")) / least(r["now"]) for r in own if least(r.get("old")) < math.inf]
            if found:
                told = (statistics.median(found), min(found), max(found))
                cells = [str(threads), f"{len(found)} {name}", *(f"{each:.1f} ×" for each in told)]
                cells.append(str(sum(each < 1 for each in found)))
                if older:
                    cells.append(f"{statistics.median(before):.1f} ×" if before else "–")
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def insert(page: Path, texts: dict[str, str]) -> None:
    """Replace the text between ``<!-- waits: NAME -->`` and ``<!-- end -->`` by the text of that name."""
    text = page.read_text(encoding="utf-8")
    for name, new in texts.items():
        before, mark, rest = text.partition(f"<!-- waits: {name} -->\n")
        if mark:
            after = rest.partition("<!-- end -->")[2]
            text = f"{before}{mark}\n{new}\n\n<!-- end -->{after}"
    page.write_text(text, encoding="utf-8")


def report(rows: Sequence[dict[str, Any]]) -> str:
    """Return the tables and the medians of all numbers of threads in Markdown."""
    parts = []
    for threads in sorted({row["threads"] for row in rows}):
        own = sorted((r for r in rows if r["threads"] == threads), key=lambda row: (row["hops"], row["n"]))
        parts += [f"### {threads} threads\n", table(own), "", medians(rows, threads), ""]
    return "\n".join(parts)
