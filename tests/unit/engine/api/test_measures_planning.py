"""Measures are named where a matrix does not fit, with bytes and seconds that follow from its plan."""

from dataclasses import replace

import numpy as np
import pytest

from engine.api.measures_planning import measures_beside, with_measures
from engine.api.solve import make_plan
from engine.model.plan import Candidate, Phase
from engine.model.problem import Options
from storage.errors import DoesNotFit
from storage.graph.graph import build_graph


def test_what_measures_take_beside_the_ways_to_solve():
    one = Candidate("dijkstra", 1000, 10**9, 7.0, (Phase("search", 2.0), Phase("write", 5.0)))
    other = replace(one, algorithm="partitioned", memory=10**6, seconds=1.5, phases=(Phase("sweep", 1.0),))
    found = measures_beside([one, other, replace(one, device="cuda", phases=())], 10, 10**5)
    assert (found.algorithm, found.disk, found.seconds) == ("measures", 10 * 9 * 8, 2.0)
    assert found.memory == 1000 + found.disk
    assert "apsp measure" in found.rejected
    assert measures_beside([one], 10, 1000) is None


def ring(n):
    return build_graph(np.arange(n), np.roll(np.arange(n), -1), np.arange(1, n + 1), n=n, directed=True)[0]


def test_a_matrix_for_which_the_disk_is_too_small_is_refused_with_measures(tmp_path, monkeypatch):
    from engine.api import planning

    surveyed = planning.survey
    monkeypatch.setattr(planning, "survey", lambda **kw: replace(surveyed(**kw), disk=1000))
    with pytest.raises(DoesNotFit, match=r"measures: a table of 211 KiB, about .* s \(apsp measure") as refused:
        make_plan(ring(3000), Options(device="cpu"), out=tmp_path / "s.zarr")
    assert "measures" in [one.algorithm for one in refused.value.candidates]


def test_a_table_that_is_no_smaller_is_not_named():
    one = Candidate("dijkstra", 1000, 10**9, 7.0, (Phase("search", 2.0),))
    refused = DoesNotFit("no", resource="disk", needed=100, available=10, candidates=[one])
    assert with_measures(refused, 10, 10**5) is refused
    other = DoesNotFit("no", resource="device memory", needed=10**6, available=10, candidates=[one])
    assert with_measures(other, 10, 10**5) is other
