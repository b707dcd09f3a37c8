"""Jobs whose result is a table: refused at the door, planned with numbers, made like the commands make them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from engine.api.measuring import measure
from engine.api.near import near_pairs
from engine.graph.profile import GraphProfile
from engine.model.problem import Options
from engine.model.progress import Monitor
from service.api.fault import fault_of
from service.pool.tabled import TableTask
from service.pool.tasks import job_options, plan_job
from service.settings import Settings
from storage.errors import Cancelled, DoesNotFit, InvalidRequest, LimitExceeded
from storage.graph.graph import Graph, build_graph
from storage.graph.graph_store import GraphStore
from storage.pairs.saving import frame_of_pairs
from storage.tables.reader import open_table
from storage.tables.uploaded import UploadedTables, normal_table
from tests.unit.service.support import RECEIPT, small_graph

SUMS = {"result": "measures", "within": [3]}
INLINE = {"vertices": [10, "40"], "columns": {"jobs": [3, 0.5], "beds": [1, 2]}}


def grid(side: int) -> Graph:
    at = np.arange(side * side).reshape(side, side)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    return build_graph(tails, heads, 1 + np.arange(len(tails)) % 9, n=side * side, directed=False)[0]


def task(graph: Graph, data: Path, **request: Any) -> TableTask:
    settings = Settings(data_dir=data)
    return TableTask(GraphProfile(graph), request, job_options(graph, request, settings), settings)


def made(graph: Graph, folder: Path, **request: Any) -> pl.DataFrame:
    found = task(graph, folder, **request)
    found.make(folder / "t", found.plan(folder / "t"), Monitor())
    with open_table(folder / "t") as opened:
        frame = opened.page(list(opened.columns), 0, opened.rows)
    shutil.rmtree(folder / "t")
    return frame


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        ({"within": [3]}, "within", "within belongs to result measures, and result matrix was asked for"),
        ({"result": "prepared", "nearest": 3}, "nearest", "belongs to result measures or near"),
        ({"result": "near", "cutoff": 3, "decay": "linear"}, "decay", "belongs to result measures"),
        ({"result": "near"}, "cutoff", "needs a cutoff, or nearest"),
        ({"result": "near", "cutoff": 3, "max_hops": 2}, "max_hops", "max_hops cannot be given"),
        ({"result": "near", "cutoff": 3, "dtype": "int32"}, "dtype", "dtype cannot be given"),
        ({"result": "measures", "measures": ["nearness"]}, "measures", "'nearness'"),
        ({"result": "measures", "quantiles": [1.5]}, "quantiles", "from 0 to 1"),
        ({"result": "measures", "within": [-1]}, "within", "at least 0"),
        ({"result": "measures", "nearest": 10_001}, "nearest", "10,000"),
        ({"result": "measures", "sources": [77]}, "sources", "77"),
        ({"result": "measures", "columns": ["jobs"]}, "columns", "none were given"),
        ({"result": "measures", "opportunities": INLINE}, "within", "summed within distances"),
        ({**SUMS, "opportunities": INLINE, "columns": ["x"]}, "columns", "there are jobs, beds"),
        ({**SUMS, "opportunities": {"vertices": [9], "columns": {"a": [1]}}}, "opportunities", "'9'"),
        ({**SUMS, "opportunities": {**INLINE, "vertices": [10, "10"]}}, "opportunities", "named twice"),
        ({**SUMS, "opportunities": {**INLINE, "vertices": [10]}}, "opportunities", "2 numbers for 1 vertex"),
        ({**SUMS, "opportunities": "0" * 32}, "opportunities", "there is no table"),
        ({**SUMS, "decay": "linear", "opportunities": INLINE}, "decay_value", "needs the width"),
    ],
)  # fmt: skip
def test_the_door_names_field_and_reason(tmp_path: Path, request_: dict[str, Any], field: str, words: str):
    settings = Settings(data_dir=tmp_path)
    graph = GraphStore(tmp_path, None).add(small_graph(), RECEIPT)[0]
    with pytest.raises(InvalidRequest, match=words) as caught:
        plan_job(settings, graph, request_)
    assert caught.value.field == field
    assert not (tmp_path / "jobs").exists()


def test_bounds_and_object_stores(tmp_path: Path):
    graph = small_graph()
    with pytest.raises(LimitExceeded, match="5 vertices are named, and the graph has 4"):
        task(
            graph,
            tmp_path,
            result="measures",
            within=[1],
            opportunities={"vertices": [10] * 5, "columns": {"a": [1] * 5}},
        )
    settings = Settings(data_dir=tmp_path, store_url="s3://bucket/prefix")
    for asked in ({"result": "measures", "opportunities": "t1"}, {"result": "flows", "demands": "t1"}):
        with pytest.raises(InvalidRequest, match="an uploaded table lies on the node that received it"):
            plan_job(settings, "g", asked)


@pytest.mark.parametrize("names", [False, True])
def test_measures_are_those_of_the_command(tmp_path: Path, names: bool):
    graph = small_graph(names=names)
    first, last = (str(graph.labels[0]), str(graph.labels[3]))
    inline = {"vertices": [last, first], "columns": {"beds": [1, 2], "jobs": [3, 0.5]}}
    asked = {"direction": "in", "within": [2.0, 5.0], "quantiles": [0.5], "nearest": 2, "decay": "exponential"}
    frame = made(
        graph, tmp_path, result="measures", opportunities=inline, columns=["jobs"], sources=[first, last], **asked
    )
    jobs = np.array([0.5, 0, 0, 3.0])
    wanted = measure(graph, Options(sources=(0, 3)), opportunities={"jobs": jobs}, **asked)
    assert frame.equals(wanted.to_polars())


def test_an_uploaded_table_counts_as_one_in_the_body(tmp_path: Path):
    upload = tmp_path / "upload-1"
    upload.write_text("place,jobs,beds\n10,3,1\n40,0.5,2\n")
    record, _ = UploadedTables(tmp_path).add(normal_table(upload, 10, 10), None, 1.0, 10)
    asked = {"result": "measures", "within": [2.0], "measures": ["reached"]}
    assert made(small_graph(), tmp_path, opportunities=record.id, **asked).equals(
        made(small_graph(), tmp_path, opportunities=INLINE, **asked)
    )
    one = made(small_graph(), tmp_path, opportunities=record.id, columns=["beds"], **asked)
    assert one.columns == ["vertex", "reached", "within_2", "beds_2"]
    with pytest.raises(InvalidRequest, match=f"opportunities: table {record.id}.*no column 'x'") as caught:
        task(small_graph(), tmp_path, opportunities=record.id, columns=["x"], **asked)
    assert str(tmp_path) not in str(caught.value)
    with pytest.raises(InvalidRequest, match="no vertex '10'"):
        task(small_graph(names=True), tmp_path, opportunities=record.id, **asked)


@pytest.mark.parametrize("asked", [{"cutoff": 4}, {"nearest": 2, "targets": [10, 30]}, {"cutoff": 0.5}])
def test_near_pairs_are_those_of_the_command(tmp_path: Path, asked: dict[str, Any]):
    graph = small_graph()
    targets = (0, 2) if "targets" in asked else None
    wanted = near_pairs(graph, Options(cutoff=asked.get("cutoff"), targets=targets), nearest=asked.get("nearest"))
    assert made(graph, tmp_path, result="near", **asked).equals(frame_of_pairs(wanted))


@pytest.mark.parametrize("asked", [{"result": "near", "cutoff": 6}, {"result": "measures", "within": [4.0]}])
def test_plans_have_numbers_that_cover_what_comes(tmp_path: Path, asked: dict[str, Any]):
    graph = grid(30)
    found = task(graph, tmp_path, **asked)
    plan = found.plan(tmp_path / "t")
    assert plan.shape == (900, 900)
    assert min(plan.seconds, plan.memory, plan.disk) > 0
    found.make(tmp_path / "t", plan, Monitor())
    with open_table(tmp_path / "t") as opened:
        assert opened.bytes < 2 * plan.disk + 20_000
        assert opened.summary["rows"] == opened.rows


def test_what_does_not_fit_is_refused_with_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    graph = grid(60)
    for asked, few in (
        ({"result": "near", "cutoff": 10**6}, 2**19),
        ({"result": "measures", "nearest": 10_000}, 130 * 2**20),
    ):
        with pytest.raises(DoesNotFit) as memory:
            task(graph, tmp_path, memory=few, **asked).plan(tmp_path / "t")
        assert memory.value.resource == "memory"
        assert memory.value.needed > memory.value.available
    # pairs that memory does not hold need space on the disk, for waiting and for the result
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 200 * 10**6))
    with pytest.raises(DoesNotFit, match="200000000") as both:
        task(graph, tmp_path, result="near", cutoff=10**6, memory=130 * 2**20).plan(tmp_path / "t")
    assert both.value.resource == "disk"
    assert task(graph, tmp_path, result="near", cutoff=10**6, memory=2**33).plan(tmp_path / "t").disk < 200 * 10**6
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 5000))
    for asked in ({"result": "near", "cutoff": 10**6, "sources": list(range(50))}, {"result": "measures"}):
        with pytest.raises(DoesNotFit, match="5000") as disk:
            task(graph, tmp_path, **asked).plan(tmp_path / "t")
        assert (disk.value.resource, disk.value.available) == ("disk", 5000)


#: a job for all 12,956,400 near pairs, and the most anonymous memory above what the process had before
_BOUNDED = """
import re, sys, threading, time
from pathlib import Path
from engine.model.progress import Monitor
from tests.unit.service.pool.test_tabled import grid, task

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

def watch():
    global most
    while True:
        most = max(most, anonymous())
        time.sleep(0.002)

folder, memory = Path(sys.argv[1]), int(sys.argv[2])
small = task(grid(9), folder, result="near", cutoff=10**6)
small.make(folder / "small", small.plan(folder / "small"), Monitor())
found = task(grid(60), folder, result="near", cutoff=10**6, memory=memory)
plan = found.plan(folder / "t")
most = before = anonymous()
threading.Thread(target=watch, daemon=True).start()
found.make(folder / "t", plan, Monitor())
print(most - before)
"""


def test_a_job_takes_no_more_memory_than_it_may(tmp_path: Path):
    """Pairs wait on the disk, their table passes in pieces: 54 MB were counted, 260 with memory for all pairs."""
    given = [sys.executable, "-c", _BOUNDED, str(tmp_path), str(130 * 2**20)]
    taken = int(subprocess.run(given, check=True, capture_output=True, text=True).stdout)
    assert taken < 130 * 2**20
    with open_table(tmp_path / "t") as opened:
        assert opened.rows == 3600 * 3599
        page = opened.page(["source", "target", "distance"], 3599 * 1234, 3599)
    pairs = near_pairs(grid(60), Options(cutoff=10**6, sources=(1234,)))
    assert page.equals(frame_of_pairs(pairs))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small", "t"]


def test_a_refused_matrix_names_these_results_as_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = Settings(data_dir=tmp_path)
    graph = GraphStore(tmp_path, None).add(grid(130), RECEIPT)[0]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 2**28))
    with pytest.raises(DoesNotFit) as refused:
        plan_job(settings, graph, {"result": "matrix", "device": "cpu", "cutoff": 5})
    fault = fault_of(refused.value)
    assert '(a job with "result": "measures": closeness' in fault.message
    assert 'a job with "result": "near" keeps them without a matrix' in fault.message
    assert "apsp " not in fault.message
    for name in ("measures", "near"):
        figures = fault.details[name]
        assert 0 < figures["disk"] < fault.details["available"]
        assert figures["memory"] > 0
        assert figures["seconds"] > 0


class Stop(Monitor):
    def __init__(self, phase: str) -> None:
        super().__init__()
        self.phase, self.now = phase, ""

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.now = phase

    def cancelled(self) -> bool:
        return self.now == self.phase


@pytest.mark.parametrize("phase", ["search", "write"])
@pytest.mark.parametrize("result", ["near", "measures"])
def test_a_cancelled_table_leaves_nothing(tmp_path: Path, phase: str, result: str):
    found = task(grid(40), tmp_path, result=result, **({"cutoff": 9} if result == "near" else {}))
    plan = found.plan(tmp_path / "t")
    if phase == "search":
        phase = next(one.name for one in plan.phases if one.name != "compile")
    with pytest.raises(Cancelled):
        found.make(tmp_path / "t", plan, Stop(phase))
    assert list(tmp_path.iterdir()) == []
