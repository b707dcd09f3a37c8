"""The phases that are foretold are those that a job reports."""

import pytest

from engine.api.solve import make_plan
from engine.model.problem import Options
from service.jobs.phases import foretold
from storage.graph.graph import build_graph


def test_rows_are_written_while_they_are_searched():
    planned = [("create", 1.0), ("start", 2.0), ("sweep", 3.0), ("write", 4.0), ("seal", 5.0)]
    assert foretold(planned) == {"create": 1, "search": 7, "seal": 5}
    assert foretold([("ingest", 1.0), ("relax", 2.0), ("write", 3.0)]) == {"ingest": 1, "relax": 2, "write": 3}


@pytest.mark.parametrize("algorithm", ["dijkstra", "recursive-floyd-warshall", "partitioned"])
def test_no_phase_is_foretold_that_no_job_reports(algorithm: str):
    graph = build_graph([0, 1, 2, 3], [1, 2, 3, 0], [1, 2, 3, 4], n=4, directed=True)[0]
    plan = make_plan(graph, Options(algorithm=algorithm))
    reported = {"create", "partition", "potentials", "prepare", "ingest", "relax", "search", "write", "seal"}
    assert set(foretold((phase.name, phase.seconds) for phase in plan.phases)) <= reported
