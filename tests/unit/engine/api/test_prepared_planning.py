"""What refusals and plans of solves say of preparing."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from engine.api import near, planning, prepared_planning
from engine.api.from_tables.compacting import prepare_compact
from engine.api.planning import make_plan
from engine.api.prepared import prepare
from engine.api.prepared_planning import beside, plan_prepared
from engine.execution import compiling
from engine.execution.kernel_list import used_by
from engine.graph import partition
from engine.graph.analysis import describe
from engine.graph.profile import GraphProfile
from engine.model import progress
from engine.model.problem import Options
from storage.errors import DoesNotFit
from storage.graph.graph import build_graph
from tests.stores import line_graph


@pytest.fixture
def small_disk(monkeypatch):
    """A disk of five million bytes."""
    for module in (planning, prepared_planning):
        survey = module.survey
        monkeypatch.setattr(module, "survey", lambda survey=survey, **asked: replace(survey(**asked), disk=5_000_000))


@pytest.mark.parametrize("cutoff", [None, 1e6])  # which a prepared graph keeps, too
def test_a_refusal_names_preparing_and_what_it_takes(tmp_path, small_disk, monkeypatch, cutoff):
    monkeypatch.setattr(prepared_planning, "FAVOURABLE", 0.5)  # a graph that is small enough for a test
    graph = line_graph(3000)
    says = r"fit on the disk: .*; prepared: [\d.]+ MB, [\d.]+ s \(apsp prepare"
    with pytest.raises(DoesNotFit, match=says) as refused:
        make_plan(graph, Options(device="cpu", cutoff=cutoff), out=tmp_path / "s.zarr")
    candidate = refused.value.candidates[-1]
    assert (candidate.algorithm, refused.value.resource) == ("prepared", "disk")
    assert candidate.disk < 5_000_000
    prepare(graph, tmp_path / "p", Options(cutoff=cutoff))
    there = sum(path.stat().st_size for path in (tmp_path / "p").rglob("*") if path.is_file())
    assert there <= candidate.disk < there + 2**21


@pytest.mark.parametrize(
    "options",
    [Options(sources=tuple(range(2900))), Options(max_hops=5, dtype="int32")],
)
def test_it_is_not_named_where_it_does_not_answer(tmp_path, small_disk, monkeypatch, options):
    monkeypatch.setattr(prepared_planning, "FAVOURABLE", 0.5)
    with pytest.raises(DoesNotFit) as refused:
        make_plan(line_graph(3000), replace(options, device="cpu"), out=tmp_path / "s.zarr")
    assert "prepared" not in str(refused.value)


def test_it_is_not_named_where_tables_are_large(tmp_path, small_disk):
    rng = np.random.default_rng(0)
    graph = build_graph(*rng.integers(0, 2500, (2, 20_000)), rng.integers(1, 9, 20_000), n=2500, directed=True)[0]
    with pytest.raises(DoesNotFit) as refused:
        make_plan(graph, Options(device="cpu"), out=tmp_path / "s.zarr")
    assert "prepared" not in str(refused.value)


def test_looking_for_parts_is_bounded(tmp_path, small_disk, monkeypatch):
    monkeypatch.setattr(prepared_planning, "FAVOURABLE", 0.5)
    monkeypatch.setattr(prepared_planning, "OFFERED_SIZE", 100)
    with pytest.raises(DoesNotFit) as refused:
        make_plan(line_graph(3000), Options(device="cpu"), out=tmp_path / "s.zarr")
    assert "prepared" not in str(refused.value)


def test_a_plan_lists_it_only_where_parts_are_known(monkeypatch):
    monkeypatch.setattr(prepared_planning, "FAVOURABLE", 0.9)
    profile = GraphProfile(line_graph(500))
    assert beside(profile, Options(), None) is None
    profile.dissection(500**2)
    found = beside(profile, Options(), None)
    assert found is not None
    assert "apsp prepare" in str(found.rejected)
    assert beside(profile, Options(cutoff=5.0), None) is not None
    assert beside(profile, Options(max_hops=5), None) is None


def test_a_plan_says_what_is_made():
    plan = plan_prepared(line_graph(500))
    assert plan.algorithm == "prepared"
    assert plan.shape == (500, 500)
    own = ["partition", "prepare", "write"]
    assert [phase.name for phase in plan.phases if phase.name not in ("start", "compile")] == ["create", *own, "seal"]
    assert plan.seconds == pytest.approx(sum(phase.seconds for phase in plan.phases))
    assert plan.to_dict()["algorithm"] == "prepared"
    assert plan.memory > 0 < plan.seconds


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("compact", [False, True])
def test_the_bytes_on_disk_are_predicted(tmp_path, directed, compact):
    rng = np.random.default_rng(3)
    tails, heads = np.array([(i, j) for i in range(2500) for j in (i + 1, i + 50) if j < 2500]).T
    weights = rng.integers(1, 10**6, len(tails))
    graph = build_graph(tails, heads, weights, n=2500, directed=directed)[0]
    plan = plan_prepared(graph, out=tmp_path / "p", compact=compact)
    (prepare_compact if compact else prepare)(graph, tmp_path / "p", plan=plan)
    taken = sum(path.stat().st_size for path in (tmp_path / "p").rglob("*") if path.is_file())
    assert taken <= plan.disk <= 1.3 * taken + 2**20  # a mebibyte for metadata


def compiling_first(function, clock):
    """Return ``function`` as it is where its kernels have to be compiled, which takes 1000 seconds of a clock."""

    def slow(*inputs, **options):
        with progress.compilation("kernel"):
            clock.perf_counter = lambda before=clock.perf_counter: before() + 1000
        return function(*inputs, **options)

    return slow


def test_predictions_from_trials_leave_out_what_was_compiled(monkeypatch):
    """What is compiled in a trial is compiled when the work begins."""
    graph = line_graph(500)
    problem, clock = describe(GraphProfile(graph)), SimpleNamespace(**vars(time))
    monkeypatch.setattr(progress, "time", clock)
    for module, name in ((prepared_planning, "find_parts"), (partition, "find_parts"), (near, "near_pairs")):
        monkeypatch.setattr(module, name, compiling_first(getattr(module, name), clock))
    [cutting] = [phase for phase in plan_prepared(graph).phases if phase.name == "partition"]
    assert cutting.seconds < 500
    assert partition.with_parts(GraphProfile(graph), problem, 10**6).parts.seconds < 500
    assert near.searched_sample(GraphProfile(graph), Options(), 3).seconds < 500


def test_a_machine_without_compiled_kernels_waits_for_those_of_parts(monkeypatch):
    monkeypatch.setattr(compiling, "missing_for", used_by)
    plan = plan_prepared(line_graph(500))
    assert next(phase.seconds for phase in plan.phases if phase.name == "compile") > 1
