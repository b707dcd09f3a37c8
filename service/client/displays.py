"""Shows jobs and results in terminals and notebooks; all text in HTML is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from service.units import format_seconds
from service.views.matrix_summary import shown_facts
from storage.counted import counted
from storage.graph.units import measured_by


@dataclass(frozen=True)
class Path:
    """One shortest path: vertices, the weight of each arc between them, and the sum of the weights."""

    vertices: list[Any]
    weights: list[float]
    length: float


def table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return an HTML table of two columns; everything in it is escaped."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"


class JobView:
    """The attributes of a job, from the last answer of the service."""

    def __init__(self, facts: Mapping[str, Any], receipt: Mapping[str, Any] | None = None) -> None:
        self.facts: Mapping[str, Any] = facts
        self._receipt = receipt or {}

    @property
    def receipt(self) -> Mapping[str, Any]:
        """The reader's receipt of the uploaded graph; empty for a job that was looked up by its id."""
        return self._receipt

    @property
    def notes(self) -> list[str]:
        """Remarks on what the reader selected or left out, from :attr:`receipt`."""
        return [str(note) for note in self._receipt.get("notes", ())]

    @property
    def id(self) -> str:
        """The id of the job."""
        return str(self.facts["id"])

    @property
    def state(self) -> str:
        """The state: accepted, running, successful, failed or dismissed."""
        return str(self.facts["state"])

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state not in ("accepted", "running")

    @property
    def progress(self) -> float:
        """The fraction of the job that is done, from 0 to 1."""
        return float(self.facts["progress"])

    @property
    def plan(self) -> Mapping[str, Any]:
        """The plan: algorithm, device, type, and every rejected candidate."""
        return dict(self.facts.get("plan") or {})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.state}, {100 * self.progress:.0f} %>"

    def _repr_html_(self) -> str:
        facts = self.facts
        rows = [("state", self.state), ("phase", facts["phase"]), ("done", f"{100 * self.progress:.0f} %")]
        if facts.get("name"):
            rows.insert(0, ("name", facts["name"]))
        if facts.get("eta_seconds") is not None:
            rows.append(("left", f"about {format_seconds(facts['eta_seconds'])}"))
        if facts.get("error"):
            rows.append(("error", facts["error"]["detail"]))
        return table(f"Job {self.id}", rows)


class ResultView:
    """The attributes of a result: ``job`` is its job's id, ``shape`` the numbers of sources and targets."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts: Mapping[str, Any] = facts

    @property
    def job(self) -> str:
        """The id of the job that made the result."""
        return str(self.facts["job"])

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of sources (rows) and targets (columns)."""
        rows, columns = self.facts["shape"]
        return int(rows), int(columns)

    @property
    def dtype(self) -> str:
        """The type of the stored distances."""
        return str(self.facts["dtype"])

    @property
    def directed(self) -> bool:
        """Whether the graph is directed."""
        return bool(self.facts["directed"])

    @property
    def unit(self) -> str:
        """The unit of the distances; ``weight`` if it is not known, and ``hops`` if distances count arcs."""
        return str(self.facts["unit"])

    @property
    def measured(self) -> str:
        """The text that web pages show after distances: the unit, else the weight column, else ``arcs`` or nothing."""
        return measured_by(self.facts)

    def summary(self) -> dict[str, Any]:
        """Return the summary: numbers of pairs and of reached pairs, mean, diameter, radius, histogram."""
        return dict(self.facts["summary"])

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<{type(self).__name__} of job {self.job}: {rows:,} x {columns:,}, {self.dtype}>"

    def _repr_html_(self) -> str:
        rows = self.summary().get("rows")
        shown = [
            ("matrix", "{:,} x {:,}, {}".format(*self.shape, self.dtype))
            if rows is None
            else ("table", counted(rows, "rows")),
            ("graph", "directed" if self.directed else "undirected"),
            *([("unit", self.measured)] if self.measured else []),
        ]
        shown += shown_facts(self.summary())
        return table(f"Distances, job {self.job}", shown)
