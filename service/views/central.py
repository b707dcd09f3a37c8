"""Describes which sources the radius of a summary is the minimum of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def compared(summary: Mapping[str, Any]) -> str:
    """The sources whose smallest eccentricity is the radius, as text; empty if these are all sources.

    Summaries of older versions lack this fact; they use all sources that reach any vertex, dead ends included.
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
