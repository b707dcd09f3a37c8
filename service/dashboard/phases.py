"""The phases of a job, and its algorithm, as its page shows them."""

from __future__ import annotations

from typing import Any, Final

from engine.model.algorithms import ALGORITHMS
from service.jobs.phases import foretold
from storage.jobs.store import RUNNING, SUCCESSFUL, JobRecord

_WORDS: Final = {
    "queued": "waiting for a runner", "loading": "reading the graph", "create": "making space", "search": "searching",
    "ingest": "taking the arcs in", "potentials": "making weights non-negative", "prepare": "preparing",
    "prepare backward": "preparing the way back", "partition": "cutting into parts", "sweep": "sweeping",
    "close": "closing blocks", "load": "loading", "read": "reading the graph", "read tables": "reading tables",
    "weights": "taking the weights in", "extend": "extending tables", "compile": "compiling kernels",
    "start": "starting", "plan": "planning", "measure": "measuring", "solve": "solving",
    "search again": "searching again to compare", "sum": "adding up along paths", "summary": "summing up",
    "export": "writing the file",
    "store": "storing", "finish": "finishing", "relax": "relaxing", "write": "writing", "verify": "checking",
    "seal": "checking and sealing", "dismissed": "cancelled",
}  # fmt: skip


def phase_word(name: str) -> str:
    """Return the display name of a phase."""
    return _WORDS.get(name, name)


def algorithm(name: str) -> str:
    """Return the display name of an algorithm."""
    return ALGORITHMS[name].title if name in ALGORITHMS else name.replace("-", " ").capitalize()


def phase_views(record: JobRecord) -> list[dict[str, Any]]:
    """Return the phases of the plan with predicted and measured seconds, and whether each is past, current or ahead.

    If a job is in a phase that its plan lacks, the phase is inserted at the fraction of the work that is done.
    """
    planned = (record.plan or {}).get("phases") or []
    predicted = foretold((phase["name"], phase["seconds"]) for phase in planned)
    taken = record.seconds or {}
    names = list(taken) if taken else list(predicted)
    if not taken and record.state == RUNNING and record.phase not in names:
        names.insert(_place(record.progress.fraction, list(predicted.values())), record.phase)
    here = names.index(record.phase) if record.phase in names else -1
    found: list[dict[str, Any]] = []
    for k, name in enumerate(names):
        past = record.state == SUCCESSFUL or (record.open and k < here)
        state = "past" if past else "now" if record.open and k == here else "ahead"
        shown = {"name": phase_word(name), "predicted": predicted.get(name), "taken": taken.get(name)}
        found.append({**shown, "state": state})
    return found


def _place(fraction: float, seconds: list[float]) -> int:
    """Return how many phases are over at ``fraction`` of the whole time; ``seconds`` are the predicted phase times."""
    done, whole = 0.0, sum(seconds)
    for k, value in enumerate(seconds):
        done += value
        if done > fraction * whole * (1 + 1e-9):
            return k
    return len(seconds)
