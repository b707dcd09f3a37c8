"""What is refused for other semirings than min-plus, and what a plan says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api.betweenness.centrality import betweenness
from engine.api.many import solve_many
from engine.api.measuring import measure
from engine.api.near import near_pairs
from engine.api.planning import make_plan
from engine.api.prepared import prepare
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from engine.planning.binding import check_plan
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import Graph, build_graph


def sample(parallel: Any = "greatest", scale: float = 1.0, *, directed: bool = True, n: int = 4) -> Graph:
    return build_graph(
        [0, 1, 2, 2], [1, 2, 0, 1], np.array([1, 2, 3, 4]) * scale, n=n, directed=directed, parallel=parallel
    )[0]


def test_unknown_names_and_options_of_distances_are_refused():
    graph = sample()
    with pytest.raises(InvalidRequest, match="semiring 'plus-times' is unknown; use min-plus, max-min"):
        make_plan(graph, Options(semiring="plus-times"))
    for field, value in (
        ("device", "cuda"), ("executor", "dask"), ("max_hops", 3), ("cutoff", 2.0), ("also", ("toll",)),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest, match=f"{field} .* is for distances") as refused:
            make_plan(graph, replace(Options(semiring="max-min"), **{field: value}))
        assert refused.value.field == field
    with pytest.raises(InvalidRequest, match=r"algorithm dijkstra cannot be used.*merged-components"):
        make_plan(graph, Options(semiring="max-min", algorithm="dijkstra"))
    with pytest.raises(InvalidRequest, match="device 'abacus' is unknown"):
        make_plan(graph, Options(semiring="max-min", device="abacus"))
    with pytest.raises(InvalidRequest, match="sources must be vertex indices"):
        make_plan(graph, Options(semiring="max-min", sources=(9,)))
    for field in ("memory", "threads"):
        with pytest.raises(InvalidRequest, match="must be at least 1"):
            make_plan(graph, replace(Options(semiring="max-min"), **{field: 0}))


def test_a_graph_that_has_lost_the_parallel_arcs_is_refused():
    for semiring, wrong, needed in (
        ("max-min", "least", "greatest"),
        ("max-times", "least", "greatest"),
        ("min-max", "greatest", "least"),
    ):
        with pytest.raises(InvalidRequest, match=f"semiring {semiring} needs the {needed} of parallel arcs"):
            make_plan(sample(wrong, 0.1), Options(semiring=semiring))
        assert make_plan(sample(needed, 0.1), Options(semiring=semiring)).semiring == semiring
    for either in ("least", "greatest"):
        assert make_plan(sample(either), Options(semiring="lor-land")).dtype == "uint8"


def test_products_take_probabilities_only():
    with pytest.raises(InvalidRequest, match="3 arcs weigh something else: the first leads from 1 to 2 and weighs 2"):
        make_plan(sample(), Options(semiring="max-times"))
    zero = build_graph([0], [1], [0.0], n=2, directed=True, parallel="greatest")[0]
    with pytest.raises(InvalidRequest, match="leave out arcs of probability 0"):
        make_plan(zero, Options(semiring="max-times"))


def test_types_hold_every_weight():
    plan = make_plan(sample(), Options(semiring="max-min"))
    assert (plan.dtype, plan.algorithm, plan.shape) == ("float32", "merged-components", (4, 4))
    assert make_plan(sample(scale=0.1), Options(semiring="max-min")).dtype == "float64"
    assert make_plan(sample(), Options(semiring="max-min", dtype="float64")).dtype == "float64"
    assert make_plan(sample(scale=0.1), Options(semiring="max-times")).dtype == "float64"
    with pytest.raises(InvalidRequest, match="dtype float32 cannot be used: every value is a weight"):
        make_plan(sample(scale=0.1), Options(semiring="max-min", dtype="float32"))
    with pytest.raises(InvalidRequest, match="dtype int32 cannot be used"):
        make_plan(sample(), Options(semiring="lor-land", dtype="int32"))
    assert make_plan(sample(directed=False), Options(semiring="max-min")).algorithm == "spanning-tree"


def test_memory_and_disk_are_counted(tmp_path: Path):
    with pytest.raises(DoesNotFit, match=r"semiring max-min needs .* of memory") as refused:
        make_plan(sample(n=20_000), Options(semiring="max-min", memory=2**20))
    assert refused.value.resource == "memory"
    with pytest.raises(DoesNotFit, match="of disk") as refused:
        make_plan(sample(n=3_000_000), Options(semiring="lor-land"), out=tmp_path / "s")
    assert refused.value.resource == "disk"
    plan = make_plan(sample(n=2_000), Options(semiring="lor-land"), out=tmp_path / "s")
    assert 4_000_000 <= plan.disk < 6_000_000
    assert [phase.name for phase in plan.phases] == ["prepare", "search"]


@pytest.mark.parametrize("semiring", ["max-min", "max-times", "lor-land"])
def test_fewer_threads_search_where_memory_is_short_for_all(semiring: str, monkeypatch: pytest.MonkeyPatch):
    graph, options = sample(scale=0.25, n=20_000), Options(semiring=semiring, sources=(0, 1))
    budget = make_plan(graph, replace(options, threads=1)).memory + (8 << 20)
    monkeypatch.setattr("engine.execution.survey.usable_processors", lambda _groups: 64)
    plan = make_plan(graph, replace(options, memory=budget))
    assert plan.threads < 64
    assert plan.memory <= budget
    assert make_plan(graph, options).threads == 64


def test_a_plan_is_for_its_semiring_only():
    graph = sample()
    plan = make_plan(graph, Options(semiring="max-min"))
    assert plan.to_dict()["semiring"] == "max-min"
    assert "semiring" not in make_plan(sample("least"), Options()).to_dict()
    check_plan(plan, graph, Options(semiring="max-min"))
    for other in (Options(), Options(semiring="lor-land")):
        with pytest.raises(InvalidRequest, match="semirings; make one"):
            check_plan(plan, graph, other)


def test_what_takes_distances_refuses_other_semirings(tmp_path: Path):
    graph, options = sample("least"), Options(semiring="min-max")
    for refuse in (
        lambda: measure(graph, options),
        lambda: near_pairs(graph, replace(options, cutoff=2.0)),
        lambda: betweenness(graph, options=options),
        lambda: prepare(graph, tmp_path / "p", options),
        lambda: solve_many([graph], options),
    ):
        with pytest.raises(InvalidRequest, match="semiring"):
            refuse()
    assert list(tmp_path.iterdir()) == []


def test_a_real_solve_takes_what_was_planned(tmp_path: Path):
    rng = np.random.default_rng(0)
    tails, heads = rng.integers(0, 1500, (2, 6000))
    graph = build_graph(tails, heads, rng.integers(1, 99, 6000), n=1500, directed=True)[0]
    outcome = solve_to_store(graph, Options(semiring="min-max"), tmp_path / "s")
    taken = sum(f.stat().st_size for f in (tmp_path / "s").rglob("*") if f.is_file())
    assert 0.5 * outcome.plan.disk < taken <= outcome.plan.disk
