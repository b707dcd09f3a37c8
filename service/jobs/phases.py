"""Translates the phases of a plan into the phases that a running job reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Phases of plans whose work is reported under another name.
_REPORTED_AS: Final = {"sweep": "search"}
#: A fixed cost in plans, which no job reports as a phase.
_SILENT: Final = "start"


def foretold(phases: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the predicted seconds of each phase that a job will report, in order.

    Searching rows and writing them are one phase of the job, because both happen at the same time.

    Args:
        phases: name and predicted seconds of each phase of a plan.
    """
    found: dict[str, float] = {}
    for planned, seconds in phases:
        name = _REPORTED_AS.get(planned, planned)
        if name == _SILENT:
            continue
        if name == "write" and "search" in found:
            name = "search"
        found[name] = found.get(name, 0.0) + seconds
    return found
