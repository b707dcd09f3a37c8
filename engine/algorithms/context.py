"""Everything that one solve works on, in one object that is passed from planning to the last row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.dtypes import WORK_TYPES, WorkType
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import QuantitySink, Sink


@dataclass(frozen=True)
class SolveContext:
    """One solve: its graph, its plan, and the objects that receive its results.

    Attributes:
        profile: the graph and its facts.
        plan: the plan to carry out.
        options: the user's options, for settings that the plan does not contain.
        rectangle: the rows and columns of the result.
        sink: receives the rows.
        monitor: receives the progress, and is asked whether to stop.
        facts: whether the summary of the rows is wanted.
        also: for each further quantity of arcs (such as a toll), by name, the sink of its sums along shortest paths.
        first: the first row of the rectangle, as a row number of the result; above 0 if the solve resumes.
    """

    profile: GraphProfile
    plan: Plan
    options: Options
    rectangle: Rectangle
    sink: Sink
    monitor: Monitor
    facts: bool = field(default=True, kw_only=True)
    also: Mapping[str, QuantitySink] = field(default_factory=dict, kw_only=True)
    first: int = field(default=0, kw_only=True)

    @property
    def kind(self) -> WorkType:
        """The type in which distances are computed."""
        return WORK_TYPES[self.plan.dtype]
