"""Writes the facts of a matrix's summary as texts.

``engine.rows.summary`` gathers the facts.  Here each fact gets a name and a text, which the command line prints and a
notebook shows.  The dashboard has its own markup in ``service/dashboard/templates/facts.html``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from storage.semirings import SEMIRINGS

#: the most columns of a table whose names are shown
_COLUMNS: Final = 20


def shown_facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and texts of the facts that a summary has, in the order in which they are shown."""
    rows = []
    if summary.get("columns") is not None:
        shown, count = summary["columns"][:_COLUMNS], len(summary["columns"])
        more = f" and {count - len(shown):,} more" if count > len(shown) else ""
        rows += [("rows", f"{summary['rows']:,}"), ("columns", ", ".join(shown) + more)]
    if summary.get("assigned") is not None:
        rows += flow_facts(summary)
    pairs, reached, between = summary.get("pairs"), summary.get("reached"), summary.get("diameter_pair")
    if summary.get("sampled"):
        rows.append(("rows", f"{summary['sources']:,} of {summary['vertices']:,}, picked evenly"))
    if pairs is not None:
        rows.append(("pairs", f"{pairs:,}"))
    if reached is not None:
        rows.append(("reached", f"{reached:,}{f' ({100 * reached / pairs:.4g} %)' if pairs else ''}"))
    for name in ("least", "greatest"):
        if summary.get(name) is not None:
            rows.append((name, _digits(summary[name])))
    if summary.get("mean") is not None:
        rows.append(("mean", f"{summary['mean']:.7g}"))
    if summary.get("diameter") is not None:
        text = f" from {between[0]} to {between[1]}" if between else ""
        rows.append(("diameter", f"{_digits(summary['diameter'])}{text}"))
    if summary.get("radius") is not None:
        rows.append(("radius", f"{_digits(summary['radius'])} {compared(summary)}".rstrip()))
    return rows


def flow_facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return facts about a table of flows: which part of the demands was assigned to paths, and which was not."""
    rows = [
        ("assigned", f"{summary['assigned']:,.7g}, of {summary['demands']:,} demands"),
        ("flow times length", f"{summary['cost']:,.7g}"),
    ]
    if summary["inside"]:
        rows.append(("from vertices to themselves", f"{summary['inside']:,.7g}, which is on no arc"))
    if summary["unreachable"]:
        first = ", ".join(f"{source} to {target}" for source, target, _ in summary["unreachable_first"][:5])
        more = f" and {summary['unreachable'] - 5:,} more" if summary["unreachable"] > 5 else ""
        rows.append(("without a path", f"{summary['lost']:,.7g}: {first}{more}"))
    return rows


def value_facts(options: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts of a result in a semiring other than min-plus: the kind of values, the least and the greatest value.

    Args:
        options: the options of the job.
        summary: the summary of the result.
    """
    semiring = SEMIRINGS.get(options.get("semiring", ""))
    if semiring is None:
        return {"semiring": None}
    about = {"semiring": semiring.name, "title": semiring.title, "what": semiring.value}
    return {**about, "least": summary.get("least"), "greatest": summary.get("greatest")}


def _digits(value: object) -> str:
    """Return whole numbers in full, floats with the seven digits that float32 has."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def compared(summary: Mapping[str, Any]) -> str:
    """Return a text that says among which sources the radius is the smallest eccentricity; empty if among all sources.

    Summaries of older versions lack this fact: their radius is among all sources that reach any vertex, dead ends
    included.
    """
    if summary.get("radius") is None:
        return ""
    sources, reach = summary.get("central_sources"), summary.get("central_reach")
    if sources is None or reach is None:
        return "of all sources that reach any"
    if sources == summary.get("sources"):
        return ""
    kind = "vertices" if summary.get("targets") == summary.get("vertices") else "targets"
    if sources == 1:
        return f"of the only source that reaches {reach:,} {kind} or more"
    return f"of the {sources:,} sources that reach {reach:,} {kind} or more"
