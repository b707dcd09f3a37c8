"""Assignment: which demands are refused, what is lost or stays inside, terminals, and sums that are checked."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from engine.api.betweenness import assignment
from engine.api.betweenness.assignment import assign
from engine.api.betweenness.centrality import betweenness
from engine.model.problem import Options
from storage.errors import DoesNotFit, InvalidRequest, SolveFailed
from storage.graph.demand_table import Demands
from storage.graph.graph import build_graph


def demands(*rows):
    return Demands(*(np.array(side) for side in zip(*rows, strict=True)))


DIAMOND = build_graph([0, 0, 1, 2, 3], [1, 2, 3, 3, 4], [1, 1, 1, 1, 2.5], n=5, directed=True)[0]


def test_ties_share_and_what_has_no_path_is_told():
    found = assign(DIAMOND, demands((0, 4, 10), (4, 0, 3), (1, 1, 4), (2, 4, 2.5), (0, 3, 0)))
    assert found.flow.tolist() == [5, 5, 5, 7.5, 12.5]
    assert found.begins.tolist() == [10, 0, 2.5, 0, 0]
    assert found.ends.tolist() == [0, 0, 0, 0, 12.5]
    assert found.through.tolist() == [0, 5, 5, 12.5, 0]
    assert found.lengths[:4].tolist() == [4.5, np.inf, 0, 3.5]
    assert np.isnan(found.lengths[4])
    assert (found.assigned, found.inside, found.lost, found.cost) == (12.5, 4, 3, 53.75)
    assert found.unreachable_table().to_dicts() == [{"source": 4, "target": 0, "flow": 3.0}]
    assert found.arc_table().columns == ["source", "target", "weight", "flow"]
    assert found.vertex_table().row(3) == (3, 0.0, 0.0, 12.5)


def test_the_same_pair_may_come_twice_and_there_may_be_no_demand():
    found = assign(DIAMOND, demands((0, 1, 2), (0, 1, 3), (0, 2, 1)), Options(threads=1))
    assert found.flow.tolist() == [5, 1, 0, 0, 0]
    assert found.lengths.tolist() == [1, 1, 1]
    none = assign(DIAMOND, Demands(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)))
    assert not none.flow.any()
    assert none.assigned == none.lost == 0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (((0, 5, 1),), "destinations must be vertex indices from 0 to 4, and demand 0 has 5"),
        (((0, 1, 1), (-1, 1, 1)), "origins must be vertex indices from 0 to 4, and demand 1 has -1"),
        (((0, 1, -2.0),), "demand 0 has -2"),
        (((0, 1, float("nan")),), "demand 0 has nan"),
        (((0, 1, float("inf")),), "demand 0 has inf"),
        (
            ((0, 1, 1), (0, 1, 5e-324)),
            "a flow must be 0 or at least 1e-290, and demand 1 has 5e-324; give them in another unit",
        ),
        (((0, 1, 1e308), (0, 4, 1e308)), "the sum of the flows is beyond float64; give them in another unit"),
        (((0, 3, 1.7e308),), "the sum of flow times length is beyond float64; give flows or weights in another unit"),
    ],
)
def test_demands_without_meaning_are_refused(rows, message):
    with pytest.raises(InvalidRequest, match=message) as refused:
        assign(DIAMOND, demands(*rows))
    assert refused.value.field == "demands"


@pytest.mark.parametrize("side", ["origins", "destinations", "flows"])
def test_masked_demands_are_refused(side):
    one = demands((0, 1, 1), (1, 2, 3))
    hidden = np.ma.array(getattr(one, side), mask=[False, True])
    with pytest.raises(InvalidRequest, match=f"{side} has 1 masked entries"):
        assign(DIAMOND, replace(one, **{side: hidden}))


def test_other_refusals_come_before_work():
    one = demands((0, 1, 1))
    with pytest.raises(InvalidRequest, match="must have one shape"):
        assign(DIAMOND, replace(one, flows=np.ones(2)))
    with pytest.raises(InvalidRequest, match="the demands say from where to where"):
        assign(DIAMOND, one, Options(sources=(0,)))
    with pytest.raises(InvalidRequest, match="cutoff cannot be given"):
        assign(DIAMOND, one, Options(cutoff=3))
    with pytest.raises(InvalidRequest, match="on the processors of this machine, so device cannot be given"):
        assign(DIAMOND, one, Options(device="cuda"))
    with pytest.raises(DoesNotFit):
        assign(DIAMOND, one, Options(memory=10**6))


def test_zones_are_not_passed_through_and_keep_their_own():
    ends = [0, 1, 1, 2, 0, 3, 3, 2], [1, 0, 2, 1, 3, 0, 2, 3]
    graph = build_graph(*ends, [1, 1, 1, 1, 5, 5, 5, 5], n=4, directed=True)[0]
    found = assign(replace(graph, terminals=2), demands((0, 2, 7), (0, 1, 2), (1, 1, 3), (3, 1, 1)))
    flow = dict(zip(zip(np.repeat(np.arange(4), np.diff(graph.indptr)).tolist(), graph.heads.tolist(), strict=True),
                    found.flow.tolist(), strict=True))  # fmt: skip
    assert {arc: x for arc, x in flow.items() if x} == {(0, 3): 7, (3, 2): 8, (0, 1): 2, (2, 1): 1}
    assert found.begins.tolist() == [9, 0, 0, 1]
    assert found.ends.tolist() == [0, 3, 7, 0]
    assert (found.inside, found.lengths.tolist()) == (3, [10, 1, 0, 6])


def test_an_edge_carries_flow_in_each_direction():
    line = build_graph([0, 1], [1, 2], None, n=3, directed=False)[0]
    found = assign(line, demands((0, 2, 4), (2, 0, 1)))
    assert found.arc_table()["flow"].to_list() == [4, 1, 4, 1]


def test_sums_that_do_not_agree_are_no_answer(monkeypatch):
    by_arc = assignment.Passage.by_arc
    monkeypatch.setattr(assignment.Passage, "by_arc", lambda self, over: by_arc(self, over) * 1.001)
    with pytest.raises(SolveFailed, match="leaves vertex 0, and it should be"):
        assign(DIAMOND, demands((0, 4, 10)))


@pytest.mark.parametrize("names", list(itertools.permutations(range(3))))
def test_flows_of_an_earlier_search_do_not_count_where_a_search_ends(names):
    """The search from one vertex ends at another, which is as far as the third, and so the third seems to be after an
    arc from there, whose weight is lost.
    """
    last, third, source = names
    tails, heads = np.array(names)[[[2, 2, 0], [0, 1, 1]]]
    graph, _ = build_graph(tails, heads, [1e16, 1e16, 0.5], n=3, directed=True)
    for threads in (1, 1, 2, 2):
        found = assign(graph, demands((source, last, 1), (last, third, 2)), Options(threads=threads))
        flows = {(int(row["source"]), int(row["target"])): row["flow"] for row in found.arc_table().to_dicts()}
        assert flows == {(source, last): 1, (source, third): 0, (last, third): 2}
        assert not found.through.any()


@pytest.mark.parametrize("small", [1e-38, 0.5])
@pytest.mark.parametrize("names", list(itertools.permutations(range(3))))
def test_a_path_that_is_longer_by_a_lost_weight_is_no_shortest_path(small, names):
    tails, heads = np.array(names)[[[2, 2, 0], [0, 1, 1]]]
    graph, _ = build_graph(tails, heads, [1e16, 1e16, small], n=3, directed=True)
    with pytest.raises(InvalidRequest, match="float64 loses them"):
        assign(graph, demands((names[2], names[1], 4)))
    with pytest.raises(InvalidRequest, match="float64 loses them"):
        betweenness(graph)
