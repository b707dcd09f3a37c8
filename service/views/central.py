"""What the radius of a summary was compared over, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def compared(summary: Mapping[str, Any]) -> str:
    """Of which sources the radius is the smallest eccentricity; empty where it is of all sources.

    Summaries of older versions do not say: there, it is of all sources that reach any vertex, dead ends too.
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
