"""Binds a plan to its task: the graph it was made for, and what was asked of that graph.

Types, layouts and limits of a plan are proven for that task only.  Another graph may have distances that the type
cannot hold, and other sources, limits or cutoffs may not suit the layout, so a plan is refused for any other task.
"""

from __future__ import annotations

import numpy as np

from engine.model.plan import Plan
from engine.model.problem import Options, changed
from storage.arguments import shown
from storage.errors import InvalidRequest
from storage.files.checksum import crc32c
from storage.graph.graph import Graph
from storage.semirings import MIN_PLUS


def bind_plan(plan: Plan, graph: Graph, options: Options, content: int | None = None) -> Plan:
    """Return ``plan``, made for ``graph`` and ``options``, with the fingerprint of that task."""
    return changed(plan, task=fingerprint(graph, options, content))


def check_plan(plan: Plan, graph: Graph, options: Options, content: int | None = None) -> None:
    """Check that a plan was made for this task; a plan that was never bound to a task passes.

    Args:
        plan: the plan to follow.
        graph: the graph to solve.
        options: the options of the solve.
        content: :func:`content_of` the graph, if it is known.

    Raises:
        InvalidRequest: the plan was made for another graph, or for other sources, targets or limits.
    """
    if not isinstance(plan, Plan):
        raise InvalidRequest(f"plan must be a Plan, found {shown(plan)}", field="plan")
    if not plan.task or plan.task == (found := fingerprint(graph, options, content)):
        return
    other = "another graph" if plan.task[0] != found[0] else "other sources, targets, hop limits, cutoffs or semirings"
    raise InvalidRequest(f"the plan was made for {other}; make one for this solve (make_plan)", field="plan")


def content_of(graph: Graph) -> int:
    """Return a checksum of the arcs of a graph; this takes as long as reading them from memory."""
    content = 0
    for array in (graph.indptr, graph.heads, graph.weights):
        content = crc32c(np.ascontiguousarray(array), content)
    return content


def fingerprint(graph: Graph, options: Options, content: int | None = None) -> tuple[str, str]:
    """Return a fingerprint of a graph, and a fingerprint of the options.

    Labels are left out, because no plan depends on them.

    Args:
        graph: the graph.
        options: the options.
        content: :func:`content_of` the graph; None to compute it here.
    """
    content = content_of(graph) if content is None else content
    facts = f"{graph.n} {graph.arcs} {graph.directed:d} {graph.terminals} {graph.weights.dtype.name} {content:08x}"
    sides = [None if side is None else crc32c(np.array(side, np.int64)) for side in (options.sources, options.targets)]
    lengths = [None if side is None else len(side) for side in (options.sources, options.targets)]
    also = f" {options.also}" if options.also else ""
    also += f" {options.semiring}" if options.semiring != MIN_PLUS else ""
    return facts, f"{sides} {lengths} {options.max_hops} {options.cutoff}{also}"
