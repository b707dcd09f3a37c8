"""One function plans for this process and for workers: both see the same graph, store and checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from benchmarks.kernel_list import make_graph
from engine.api import planning
from engine.api.planning import make_plan
from engine.api.solve import solve, solve_to_store
from engine.devices.cpu import relax
from engine.distributed import planning as workers_planning
from engine.distributed.messages import WorkerInfo
from engine.execution import compiling
from engine.execution import survey as surveying
from engine.execution.kernel_list import used_by
from engine.graph import bound, ordering, transpose
from engine.graph import profile as profiles
from engine.graph.profile import GraphProfile
from engine.model import backend, decimals, system
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Machine, Options, Problem
from engine.model.progress import COMPILING, Monitor
from engine.model.rows import ArraySink
from engine.planning import binding, planner
from engine.planning.cost_dijkstra import is_lattice
from storage.errors import DoesNotFit, InvalidRequest, NegativeCycle
from storage.graph.graph import build_graph
from storage.matrix.reader import open_matrix

#: What a short solve does at most once, by module and name; a search for the arcs across is three of ``_levels``.
ONCE = {
    (system, "control_groups"): 1,
    (decimals, "in_units"): 1,
    (binding, "content_of"): 1,
    (ordering, "_levels"): 3,
    (relax, "aligned"): 0,
    (transpose, "transposed"): 1,
    (transpose, "_components"): 1,
    (backend, "heaviest_out"): 1,
}
RATES = dict.fromkeys(WORK_TYPES, 4e10)
DASK = Options(executor="dask", scheduler="toy")


@pytest.fixture(params=[Options(device="cpu"), DASK], ids=["local", "dask"])
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Options:
    """Options of a solve here, and of one over two workers of three threads."""
    worker = WorkerInfo("", "cpu", "a core", "node", 1, 3, 2**33, RATES)
    monkeypatch.setattr(workers_planning, "Cluster", lambda _: nullcontext())
    monkeypatch.setattr(workers_planning, "gather", lambda *_: {"one": worker, "two": replace(worker, process=2)})
    return request.param


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Problem, Machine, int]]:
    """What the planner was asked to choose for."""
    made, choose = [], planning.choose

    def remember(problem: Problem, machine: Machine, options: Options, **more: Any) -> Plan:
        made.append((problem, machine, more["store"]))
        return choose(problem, machine, options, **more)

    monkeypatch.setattr(planning, "choose", remember)
    return made


def test_plans_have_the_threads_of_those_who_solve(options: Options) -> None:
    plan = make_plan(graphs.grid(100), replace(options, threads=None if options is DASK else 1))
    assert (plan.workers, plan.threads) == ((2, 3) if options.executor == "dask" else (0, 1))
    assert plan.statistics is not None
    assert plan.statistics.vertices == 100


def test_a_solve_too_short_for_a_gpu_is_chosen_once(choices: list[tuple[Problem, Machine, int]]) -> None:
    """The choice that rules the GPU out is the plan; it is not made again."""
    plan = make_plan(graphs.grid(9), Options(threads=1))
    assert plan.device_reason == "the CPU: it finishes before a GPU could start"
    assert len(choices) == 1


def test_the_bytes_of_a_checkpoint_count_as_free(
    options: Options, choices: list[tuple[Problem, Machine, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new store replaces them, whoever solves."""
    graph, out = graphs.grid(100), tmp_path / "d.zarr"
    monkeypatch.setattr("engine.execution.survey.shutil.disk_usage", lambda _: SimpleNamespace(free=2**30))
    make_plan(graph, options, out=out)
    monkeypatch.setattr(planning, "resumable", lambda *_, **__: SimpleNamespace(bytes=2**20, target=out, identity={}))
    monkeypatch.setattr(planning, "is_of", lambda *_: False)
    make_plan(graph, options, out=out, resume=True)
    disks = [machine.disk for _, machine, _ in choices]
    assert set(disks) == {2**30, 2**30 + 2**20}
    assert disks[-1] == 2**30 + 2**20
    assert len({store for _, _, store in choices}) == 1


def test_both_refuse_a_negative_cycle_and_sources_that_are_none(options: Options) -> None:
    cycle, _ = build_graph([0, 1], [1, 0], [1, -2], n=2, directed=True)
    with pytest.raises(NegativeCycle):
        make_plan(cycle, options)
    with pytest.raises(InvalidRequest, match="sources"):
        make_plan(graphs.grid(100), replace(options, sources=(100,)))


def test_workers_know_no_terminals() -> None:
    with pytest.raises(InvalidRequest, match="no path may pass through"):
        make_plan(replace(graphs.grid(100), terminals=3), DASK)


def test_parts_are_not_looked_for_where_another_algorithm_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial partition decides nothing then, and on a large random graph it takes longer than the solve."""
    tails, heads = np.random.default_rng(0).integers(0, 500, (2, 2000))
    graph, _ = build_graph(tails, heads, tails % 9 + 1, n=500, directed=True)
    monkeypatch.setattr(planning, "with_trial", lambda *_: pytest.fail("a trial partition was made"))
    plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", device="cpu"))
    assert plan.statistics is not None
    assert plan.statistics.no_parts == "blocked-floyd-warshall was asked for"


class Phases(Monitor):
    """The phases of a solve, and what was counted in each."""

    def __init__(self) -> None:
        self.total: dict[str, int] = {}

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.total[phase] = self.total.get(phase, 0) + total


#: Phases of the work, as plans and solves call them.
WORK = {"search", "sweep", "relax", "write", "ingest", "potentials", "prepare", "partition"}


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("dijkstra", "whole"),
        ("bfs", "unit"),
        ("johnson", "below"),
        ("partitioned", "whole"),
        ("recursive-floyd-warshall", "whole"),
        ("repeated-squaring", "whole"),
    ],
)
def test_predictions_count_what_a_solve_takes_besides_its_work(algorithm: str, kind: str, tmp_path: Path) -> None:
    graph, options = make_graph(kind), Options(device="cpu", algorithm=algorithm)
    plan = make_plan(graph, options, out=tmp_path / "a.zarr")
    solve_to_store(graph, options, tmp_path / "a.zarr", plan=plan, monitor=(seen := Phases()))
    names = [phase.name for phase in plan.phases]
    assert set(seen.total) - WORK - {COMPILING} == {"create", "seal"} == set(names) - WORK - {"start", COMPILING}
    assert (names[0], names[-1]) == ("create", "seal")
    assert (COMPILING in seen.total) <= (COMPILING in names)
    assert plan.seconds == pytest.approx(sum(phase.seconds for phase in plan.phases))
    work = sum(phase.seconds for phase in plan.phases if phase.name in WORK)
    assert work == pytest.approx(plan.candidates[0].seconds)  # candidates are compared by their work alone

    in_memory = [phase.name for phase in make_plan(graph, options).phases]
    assert not {"create", "seal"} & set(in_memory)
    assert "start" not in in_memory  # this process has loaded its kernels


@pytest.mark.parametrize("algorithm", ["dijkstra", "partitioned"])
def test_kernels_that_are_not_compiled_are_predicted(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, options = make_graph("whole"), Options(device="cpu", algorithm=algorithm)
    plan = make_plan(graph, options)
    assert COMPILING not in [phase.name for phase in plan.phases]
    listed = used_by(f"{algorithm} {plan.dtype}")
    assert len(listed) >= 4
    monkeypatch.setattr(compiling, "missing_for", lambda use: [one for one in used_by(use) if one in listed])
    monkeypatch.setattr(compiling, "usable_processors", lambda: 4)
    cold = make_plan(graph, options)
    waited = next(phase.seconds for phase in cold.phases if phase.name == COMPILING)
    work = sum(one.seconds for one in listed)
    assert work / 4 <= waited <= work + compiling.PROCESS_START
    assert cold.seconds == pytest.approx(plan.seconds + waited)
    compiled: list[object] = []
    monkeypatch.setattr(compiling, "compile_kernels", lambda kernels, **_: compiled.extend(kernels))
    solve_to_store(graph, options, tmp_path / "a.zarr", plan=cold, monitor=(seen := Phases()))
    assert compiled == listed
    assert seen.total[COMPILING] == len(listed)


def test_kernels_of_planning_are_compiled_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(planning, "missing_for", used_by)
    monkeypatch.setattr(compiling, "usable_processors", lambda: 4)
    monkeypatch.setattr(compiling, "compile_kernels", lambda kernels, **_: compiled.extend(kernels))
    # over a small graph Python walks sooner than a kernel is compiled
    for most, kind, expected in ((0, "whole", used_by("plan")), (0, "fractions", []), (planning.PLAIN, "whole", [])):
        compiled.clear()
        monkeypatch.setattr(planning, "PLAIN", most)
        make_plan(make_graph(kind), Options(device="cpu"), monitor=(seen := Phases()))
        assert compiled == expected
        assert seen.total == ({COMPILING: len(expected), "plan": 0} if expected else {})


@pytest.mark.parametrize("kind", ["decimals", "unit", "heavy"])
def test_a_short_solve_does_nothing_twice(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # both plans are made in one moment, however slow or full this machine is: a later one reads free memory again
    monkeypatch.setattr(surveying, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(surveying, "MUCH", 0)
    monkeypatch.setattr(surveying, "_SEEN", [])
    # kernels that no test has compiled yet would make plans ask for processors and memory
    monkeypatch.setattr(compiling, "missing_for", lambda _: [])
    graph, counts, files = make_graph(kind), Counter[str](), list[str]()
    options = Options(device="cpu", threads=1, algorithm="dijkstra" if kind == "heavy" else "auto")

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            counts[name] += 1
            return function(*given)

        return call

    make_plan(graph, options)  # what is looked for once in a process
    for module, name in ONCE:
        function = counted(name, getattr(module, name))
        for place in (module, surveying, profiles, bound, decimals):
            if hasattr(place, name):
                monkeypatch.setattr(place, name, function)
    read = system._content
    monkeypatch.setattr(system, "_content", lambda file: files.append(str(file)) or read(file))
    monkeypatch.setattr(planner, "ESTIMATES", {n: counted(n, each) for n, each in planner.ESTIMATES.items()})
    profile = GraphProfile(graph)
    plan = make_plan(profile, options)
    assert len(set(files)) == len(files)
    assert [counts[name] for name in planner.ESTIMATES] == [1] * len(planner.ESTIMATES)
    solve(profile, plan, options, ArraySink(plan.shape, plan.dtype))
    assert plan.algorithm == ("bfs" if kind == "unit" else "dijkstra")
    for (_, name), most in ONCE.items():
        assert counts[name] <= most, name
    assert counts["in_units"] == (kind == "decimals")
    assert counts["heaviest_out"] == 1
    assert counts["transposed"] == 1


def test_the_arcs_across_are_no_reason_to_choose_again(
    choices: list[tuple[Problem, Machine, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimates ask for them only whether the graph is a lattice: of one that is none the plan stays as it is."""
    shaped: list[Problem] = []

    def with_across(profile: GraphProfile, problem: Problem, *_: object) -> Problem:
        shaped.append(replace(problem, across=profile.hops_across))
        return shaped[-1]

    monkeypatch.setattr(planning, "with_shape", with_across)
    options = Options(device="cpu", threads=1)
    plan = make_plan(graphs.random(1_500), options)
    assert len(choices) == 1
    (across,), (_, machine, store) = shaped, choices[0]
    assert across.across > 0
    assert not is_lattice(across)
    again = planner.choose(across, machine, options, store=store)
    assert (plan.reason, plan.dtype, plan.candidates[0]) == (again.reason, again.dtype, again.candidates[0])


@pytest.mark.parametrize("algorithm", ["dijkstra", "recursive-floyd-warshall", "auto"])
def test_a_refusal_of_sums_names_memory_that_suffices(algorithm, tmp_path):
    """The sums take about 50 MB here, beside the rows; what is named holds both."""
    rng, n, m = np.random.default_rng(0), 1000, 600_000
    quantities = {name: rng.random(m) for name in "abcd"}
    ends = rng.integers(0, n, m), rng.integers(0, n, m)
    graph, _ = build_graph(*ends, rng.integers(1, 99, m), n=n, directed=True, quantities=quantities)
    options = Options(also=tuple(quantities), memory=128 << 20, threads=1, algorithm=algorithm)
    with pytest.raises(DoesNotFit) as caught:
        make_plan(graph, options, out=tmp_path / "s.zarr")
    assert caught.value.available == options.memory
    for remedy in caught.value.remedies:
        [budget] = remedy["budgets"]
        assert budget["available"] == options.memory
        enough = replace(options, memory=budget["needed"])
        plan = make_plan(graph, enough, out=tmp_path / "s.zarr")
        assert plan.memory <= enough.memory


def test_sums_of_a_matrix_larger_than_memory_are_planned_by_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(
        surveying, "resident_bytes", lambda: 200 << 20
    )  # whatever other tests have left in this process
    n = 30_000
    tails = np.arange(n)
    quantities = {"q": np.ones(2 * n, np.int32)}
    ends = np.concatenate([tails, tails]), np.concatenate([(tails + 1) % n, (tails * 7 + 3) % n])
    graph, _ = build_graph(
        *ends, np.ones(2 * n, np.int64) + np.arange(2 * n) % 5, n=n, directed=True, quantities=quantities
    )
    options = Options(also=("q",), memory=900 << 20, threads=1)
    plan = make_plan(graph, options, out=tmp_path / "s.zarr")
    assert plan.memory <= options.memory < 2 * n * n
    with pytest.raises(DoesNotFit, match="--algorithm auto as it is") as caught:
        make_plan(graph, replace(options, algorithm="recursive-floyd-warshall"), out=tmp_path / "s.zarr")
    assert caught.value.needed > 2 * n * n


@pytest.mark.parametrize(
    "options", [Options(algorithm="repeated-squaring", device="cpu"), Options(also=("minutes",))], ids=["plain", "sums"]
)
def test_fewer_threads_are_planned_where_memory_is_short_for_all(
    options: Options, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Buffers of products, and those of sums along paths, are of each thread."""
    rng = np.random.default_rng(1)
    tails, heads, weights = rng.integers(0, 500, 2000), rng.integers(0, 500, 2000), rng.integers(1, 9, 2000)
    graph, _ = build_graph(tails, heads, weights, n=500, directed=True, quantities={"minutes": weights * 2.0})
    solve_to_store(graph, replace(options, threads=1), tmp_path / "one")
    budget = make_plan(graph, replace(options, threads=1), out=tmp_path / "some").memory + 24 * 2**20
    monkeypatch.setattr(surveying, "usable_processors", lambda _groups: 64)
    plan = make_plan(graph, replace(options, memory=budget), out=tmp_path / "some")
    assert 1 < plan.threads < 64
    assert plan.memory <= budget
    solve_to_store(graph, replace(options, memory=budget), tmp_path / "some", plan=plan)
    with open_matrix(tmp_path / "one") as one, open_matrix(tmp_path / "some") as some:
        np.testing.assert_array_equal(one.rows(range(500)), some.rows(range(500)))
    assert make_plan(graph, options, out=tmp_path / "all").threads == 64
