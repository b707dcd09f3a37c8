"""Answers the form on a result's page: the distance and the path from one vertex to another."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from service.dashboard.charts import line_of_stops
from service.dashboard.visiting import Visitor
from storage.errors import ApspError, NotFound
from storage.semirings import EVERY, MIN_PLUS

View = dict[str, Any]

#: how the values of two parts of a path are combined, in each semiring
_JOINED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    MIN_PLUS: operator.add, "max-min": min, "min-max": max, "max-times": operator.mul, "lor-land": min,
}  # fmt: skip
#: the most stops of a path that is shown whole; for a longer path, which is folded, the numbers of stops that are shown
#: at its beginning and at its end
_MOST_STOPS, _FIRST_STOPS, _LAST_STOPS = 14, 8, 4
#: the most folded stops that a reader can unfold; a path with more of them is shown without its middle
_MOST_BETWEEN: Final = 1000


def answer(visitor: Visitor, job_id: str, source: str, target: str) -> View:
    """Return the distance and the route from one vertex to another, or why there is no answer.

    Args:
        visitor: the person who asks.
        job_id: id of the job.
        source, target: vertices as the file names them.
    """
    try:
        result = visitor.service.result(job_id, visitor.caller, semiring=EVERY)
        found = result.also(source, target) if result.matrix.also else result.distance(source, target)
        if not found["reachable"]:
            return {"source": source, "target": target, "distance": None, "route": None, "refused": None}
        semiring, lines = result.matrix.semiring, result.lines
        route = {**_route(result.path(source, target), semiring, drawn=not lines), "lines": lines}
    except ApspError as error:
        instead = _instead(visitor, job_id, source, target) if isinstance(error, NotFound) else []
        return {"source": source, "target": target, "refused": str(error), "instead": instead}
    return {"also": None, **found, "source": source, "target": target, "route": route, "refused": None}


def _instead(visitor: Visitor, job_id: str, source: str, target: str) -> list[tuple[str, str]]:
    """Return pairs of vertices to suggest if ``source`` or ``target`` does not exist; their names are similar."""
    from service.views.naming import ascending_names, like_names, similar_names

    try:
        matrix = visitor.service.result(job_id, visitor.caller, semiring=EVERY).matrix
    except ApspError:
        return []
    most = 3
    sides = (source, ascending_names(matrix, "source")), (target, ascending_names(matrix, "target"))
    found = [[name] if name.strip() in like_names(labels, name, most) else similar_names(labels, name, most)
             for name, labels in sides]  # fmt: skip
    return [(a, b) for a in found[0] for b in found[1]][:most]


def _route(found: dict[str, Any], semiring: str, *, drawn: bool) -> View:
    """Return a path as stops: the first ones, the folded ones, the last ones, each with the value of the path so far.

    Of a very long path the middle is left out.

    Args:
        found: the path, as the API answers it.
        semiring: decides how the weights are combined; the weights of shortest paths are added, starting from zero.
        drawn: whether a shortest path is also drawn as a line of stops; with coordinates this is not needed, because a
            map shows the path.
    """
    join = _JOINED[semiring]
    so_far: int | float | None = 0 if semiring == MIN_PLUS else None
    stops: list[View] = []
    for k, vertex in enumerate(found["vertices"]):
        weight = found["weights"][k - 1] if k else None
        so_far = so_far if weight is None else weight if so_far is None else join(so_far, weight)
        stops.append({"vertex": vertex, "weight": weight, "so_far": so_far})
    first, last = (_FIRST_STOPS, _LAST_STOPS) if len(stops) > _MOST_STOPS else (len(stops), 0)
    between = stops[first : len(stops) - last]
    left_out = max(0, len(between) - _MOST_BETWEEN)
    if left_out:
        half = _MOST_BETWEEN // 2
        between = [*between[:half], *between[-half:]]
    return {
        "first": stops[:first], "between": between, "last": stops[len(stops) - last :], "stops": len(stops),
        "arcs": len(found["weights"]), "left_out": left_out, "gap": _MOST_BETWEEN // 2 if left_out else None,
        "scale": line_of_stops(found["vertices"], [stop["so_far"] for stop in stops])
        if drawn and semiring == MIN_PLUS else None,
    }  # fmt: skip
