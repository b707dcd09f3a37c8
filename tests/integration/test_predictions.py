"""Compares the predicted and the measured seconds of jobs that take more than ten seconds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.execution import rates
from engine.model.problem import Options
from engine.model.system import resident_bytes
from engine.planning.constants import PROCESS_BYTES
from storage.graph.graph import Graph, build_graph

pytestmark = [pytest.mark.slow, pytest.mark.alone]
FW = "blocked-floyd-warshall"
WITHIN = 0.25


def graph_of(n: int) -> Graph:
    rng = np.random.default_rng(n)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    return build_graph(tails, heads, rng.integers(1, 100, 4 * n) / 8, n=n, directed=True)[0]


def idle() -> float:
    """Share of the processors' time that nobody uses now."""

    def ticks() -> tuple[int, int]:
        spent = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return spent[3] + spent[4], sum(spent)

    free, total = ticks()
    time.sleep(1)
    now = ticks()
    return (now[0] - free) / max(1, now[1] - total)


@pytest.mark.parametrize("tier", ["host", "store"])
def test_within_a_quarter(tier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many vertices as keep this machine busy for twelve seconds or more; the better one of two tries."""
    if not os.environ.get("APSP_PREDICTIONS"):
        pytest.skip("a measurement of this machine, for whom asks for it: APSP_PREDICTIONS=1")
    if idle() < 0.8:
        pytest.skip("other processes use this machine: a prediction is of one that is free")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small = make_plan(graph_of(3072), Options(algorithm=FW, dtype="float32", device="cpu"))
    n = int(3072 * (13 / small.seconds) ** (1 / 3)) // 64 * 64
    graph, out = graph_of(n), tmp_path / "d.zarr"
    off = []
    for _ in range(2):
        budget = None if tier == "host" else resident_bytes() + PROCESS_BYTES + n * n * 4 * 3 // 5
        options = Options(algorithm=FW, dtype="float32", device="cpu", memory=budget)
        plan = make_plan(graph, options, out=out)
        assert plan.tier == tier
        assert plan.seconds > rates.WORTHWHILE
        assert rates.cache_file().exists()
        began = time.perf_counter()
        solve_to_store(graph, options, out, plan=plan, overwrite=True)
        off.append(plan.seconds / (time.perf_counter() - began) - 1)
        if abs(off[-1]) <= WITHIN:
            return
    raise AssertionError(f"predicted {off} beside what it took")
