"""Plans of sums along paths name the kernels that sum, so that these are predicted, and compiled before the search."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.kernel_list import SUMMING, make_graph
from engine.api.solve import make_plan
from engine.execution import compiling, kernel_list
from engine.execution.sums import FLOATS, HOPS, WALKED, WEIGHTS
from engine.model.problem import Options
from engine.model.progress import COMPILING
from storage.graph.graph import Graph

ROOT = Path(__file__).parents[4]


def summed(kind: str, **options: object) -> Graph:
    graph = make_graph(kind, **options)  # type: ignore[arg-type]
    return replace(graph, quantities={"q": np.ones(graph.arcs, np.int32)})


@pytest.mark.parametrize(
    ("kind", "rows", "uses"),
    [
        ("unit", 200, (HOPS,)),
        ("unit", 64 + 4, (HOPS, WALKED)),
        ("unit", 64 + 5, (HOPS,)),
        ("whole", 200, (WEIGHTS,)),
        ("whole", 16 + 4, (WEIGHTS, WALKED)),
        ("whole", 16 + 5, (WEIGHTS,)),
        ("whole", 3, (WEIGHTS, WALKED)),
        ("decimals", 200, (WEIGHTS, FLOATS)),
        ("far-decimals", 200, (WEIGHTS,)),
        ("fractions", 200, (WALKED,)),
        ("below", 200, (WALKED,)),
    ],
)
def test_a_plan_names_how_its_rows_are_summed(kind: str, rows: int, uses: tuple[str, ...]) -> None:
    graph = summed(kind)
    options = Options(sources=tuple(range(rows)), also=("q",), device="cpu")
    plan = make_plan(graph, options)
    assert plan.sums == uses
    assert "sums" not in plan.to_dict()
    assert make_plan(graph, replace(options, also=())).sums == ()


def test_the_kernels_that_sum_are_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, options = summed("whole"), Options(also=("q",), device="cpu")
    without = make_plan(graph, options)
    monkeypatch.setattr(kernel_list, "missing", lambda found: [one for one in found if one.name == "sum_groups_of"])
    monkeypatch.setattr(kernel_list, "_MISSING", {})
    monkeypatch.setattr(kernel_list, "_COMPLETE", set())
    plan = make_plan(graph, options)
    (lost,) = compiling.needed(plan)
    assert lost.name == "sum_groups_of"
    predicted = next(phase.seconds for phase in plan.phases if phase.name == COMPILING)
    assert predicted == lost.seconds
    assert plan.seconds > without.seconds + 0.9 * lost.seconds
    assert compiling.needed(replace(plan, sums=())) == []


def test_a_kernel_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although several uses of a plan need it."""
    monkeypatch.setattr(compiling, "missing_for", kernel_list.used_by)
    plan = replace(make_plan(summed("whole"), Options(also=("q",), device="cpu")), sums=tuple(SUMMING))
    found = compiling.needed(plan)
    assert len(found) == len(set(found))
    names = {one.name for one in found}
    assert names >= {"sum_groups_of", "sum_hops", "sum_along"}


#: For each case of the command line, in a process that has called no kernel: solves with sums, and prints a line with
#: the kernels that were called to sum, and with those of them that the plan does not name.
PROGRAM = """
import json, os, sys, tempfile, traceback
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.kernel_list import make_graph
from engine.api.solve import make_plan, solve_to_store
from engine.execution.kernel_list import types_text, used_by
from engine.graph import kernels
from engine.model.problem import Options


def check(kind, count, dtype):
    graph = make_graph(kind)
    graph = replace(graph, quantities={"q": np.ones(graph.arcs, np.int32), "f": np.full(graph.arcs, 0.5)})
    options = Options(sources=tuple(range(int(count))), also=("q", "f"), device="cpu", dtype=dtype, threads=1)
    plan = make_plan(graph, options)
    named = {(one.module, one.name, one.types) for use in plan.sums for one in used_by(f"{use} {plan.searched}")}
    called, compile_it = set(), kernels.CompiledKernel.compile

    def told(self, signature):
        called.add((*self.name, types_text(signature)))
        return compile_it(self, signature)

    kernels.CompiledKernel.compile = told
    for kernel in kernels.KERNELS.values():
        kernel.dispatcher.compile = told.__get__(kernel)
    with tempfile.TemporaryDirectory() as folder:
        solve_to_store(graph, options, Path(folder) / "s.zarr", plan=plan)
    called = {one for one in called if one[0].startswith("engine.rows.") and one[0].endswith("_sums")}
    print(json.dumps([sorted(called), sorted(called - named)]), flush=True)


for case in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check(*case.split(","))
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{case} failed")
"""


def test_no_solve_calls_a_kernel_that_sums_and_that_its_plan_does_not_name() -> None:
    cases = {
        "unit,200,auto": {"sum_hops", "narrow_rows", "sum_lone"},
        "unit,68,auto": {"sum_hops", "narrow_rows", "sum_along", "sum_lone"},
        "unit,25,int32": {"sum_hops", "narrow_rows", "sum_lone"},
        "unit,10,float64": {"sum_hops", "narrow_rows", "sum_lone"},
        "whole,200,auto": {"number_vertices", "sum_groups_of", "sum_lone"},
        "whole,64,int32": {"number_vertices", "sum_groups", "sum_lone"},
        "heavy,20,auto": {"number_vertices", "sum_groups", "sum_along", "sum_lone"},
        "decimals,83,auto": {"number_vertices", "sum_groups_of", "sum_along", "from_units", "sum_lone"},
        "heavy-decimals,64,float64": {"number_vertices", "sum_groups", "from_units", "sum_lone"},
        "far-decimals,83,auto": {"number_vertices", "sum_groups_of", "sum_along", "in_units", "sum_lone"},
        "whole,3,auto": {"number_vertices", "sum_along", "sum_lone"},
        "fractions,200,auto": {"sum_along"},
        "below,200,auto": {"sum_along"},
    }
    command = [sys.executable, "-c", PROGRAM, *cases]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = dict(zip(cases, map(json.loads, done.stdout.splitlines()), strict=True))
    assert {case: {name for _, name, _ in called} for case, (called, _) in found.items()} == cases
    assert {case: lost for case, (_, lost) in found.items() if lost} == {}
