"""Jobs for betweenness and flows: refused at the door, planned with numbers, the tables and sums of the commands."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api.betweenness.assignment import assign
from engine.api.betweenness.centrality import betweenness
from engine.model.problem import Options
from engine.model.progress import Monitor
from service.pool.tasks import plan_job
from service.settings import Settings
from storage.errors import Cancelled, DoesNotFit, InvalidRequest
from storage.graph.demand_table import Demands
from storage.graph.graph import build_graph
from storage.graph.graph_store import GraphStore
from storage.tables.reader import open_table
from storage.tables.uploaded import TableRecord, UploadedTables, normal_table
from tests.unit.service.pool.test_tabled import Stop, grid, made, task
from tests.unit.service.support import RECEIPT, small_graph

INLINE = {"origins": [10, 40], "destinations": ["30", 20], "flows": [5, 2.5]}


def uploaded(folder: Path, content: str, holds: str) -> TableRecord:
    upload = folder / "upload-1"
    upload.write_text(content)
    return UploadedTables(folder).add(normal_table(upload, 10, 10, holds), None, 1.0, 10)[0]


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        ({"of": "arcs"}, "of", "of belongs to result betweenness or flows, and result matrix was asked for"),
        ({"result": "measures", "raw": True}, "raw", "belongs to result betweenness"),
        ({"result": "betweenness", "demands": INLINE}, "demands", "belongs to result flows"),
        ({"result": "betweenness", "of": "arcs", "endpoints": True}, "of", "endpoints belong to"),
        ({"result": "betweenness", "cutoff": 3}, "cutoff", "cutoff cannot be given"),
        ({"result": "betweenness", "dtype": "int32"}, "dtype", "dtype cannot be given"),
        ({"result": "flows", "demands": INLINE, "device": "cuda"}, "device", "device cannot be given"),
        ({"result": "betweenness", "sources": [77]}, "sources", "77"),
        ({"result": "flows"}, "demands", "needs demands"),
        ({"result": "flows", "demands": INLINE, "sources": [10]}, "sources", "the demands say from where"),
        ({"result": "flows", "demands": INLINE, "flow": "cars"}, "flow", "names a column of an uploaded table"),
        ({"result": "flows", "demands": {**INLINE, "origins": [9, 10]}}, "demands", "'9'"),
        ({"result": "flows", "demands": {**INLINE, "flows": [1]}}, "demands", "2 origins, 2 destinations, 1 flows"),
        ({"result": "flows", "demands": {**INLINE, "flows": [1, -2]}}, "demands", "demand 1 has -2"),
        ({"result": "flows", "demands": "0" * 32}, "demands", "there is no table"),
    ],
)  # fmt: skip
def test_the_door_names_field_and_reason(tmp_path: Path, request_: dict[str, Any], field: str, words: str):
    graph = GraphStore(tmp_path, None).add(small_graph(), RECEIPT)[0]
    with pytest.raises(InvalidRequest, match=words) as caught:
        plan_job(Settings(data_dir=tmp_path), graph, request_)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, {}),
        ({"of": "arcs"}, {"arcs": True}),
        ({"of": "vertices", "raw": True, "endpoints": True}, {"normalized": False, "endpoints": True}),
        ({"raw": False, "sources": [10, 20], "targets": [30]}, {"options": Options(sources=(0, 1), targets=(2,))}),
    ],
)
def test_betweenness_is_that_of_the_command(tmp_path: Path, asked: dict[str, Any], wanted: dict[str, Any]):
    graph = small_graph()
    frame = made(graph, tmp_path, result="betweenness", **asked)
    assert frame.equals(betweenness(graph, **wanted).to_polars())
    assert frame[frame.columns[-1]].sum() > 0


@pytest.mark.parametrize("of", [None, "arcs", "vertices"])
def test_flows_are_those_of_the_command_and_say_what_is_lost(tmp_path: Path, of: str | None):
    # 40 leads to all others, and none leads to 40
    graph, given = (
        small_graph(),
        {"origins": [10, 40, 20, 30], "destinations": [30, 20, 40, 30], "flows": [5, 2.5, 4, 1]},
    )
    wanted = assign(graph, Demands(np.array([0, 3, 1, 2]), np.array([2, 1, 3, 2]), np.array([5, 2.5, 4, 1])))
    found = task(graph, tmp_path, result="flows", of=of, demands=given)
    plan = found.plan(tmp_path / "t")
    assert (plan.algorithm, plan.dtype, plan.shape) == ("assignment", "float64", (4, 3))
    found.make(tmp_path / "t", plan, Monitor())
    with open_table(tmp_path / "t") as table:
        frame = table.page(list(table.columns), 0, table.rows)
        assert frame.equals(wanted.vertex_table() if of == "vertices" else wanted.arc_table())
        said = table.summary
        assert table.attributes["asked"] == {"of": of, "flow": None}
    assert (said["demands"], said["assigned"], said["inside"], said["lost"]) == (4, 7.5, 1.0, 4.0)
    assert (said["unreachable"], said["unreachable_first"]) == (1, [[20, 40, 4.0]])
    assert said["cost"] == wanted.cost > 0


def test_an_uploaded_table_counts_as_one_in_the_body(tmp_path: Path):
    table = uploaded(tmp_path, "from,to,cars,trucks\n10,30,5,1\n40,20,2.5,0\n10,30,0,2\n", "demands")
    assert (table.holds, table.key, table.columns, table.rows) == ("demands", "from", ["cars", "trucks"], 3)
    asked = {"result": "flows", "demands": table.id}
    assert made(small_graph(), tmp_path, **asked).equals(made(small_graph(), tmp_path, result="flows", demands=INLINE))
    trucks = {"origins": [10], "destinations": [30], "flows": [3]}
    assert made(small_graph(), tmp_path, flow="trucks", **asked).equals(
        made(small_graph(), tmp_path, result="flows", demands=trucks)
    )
    with pytest.raises(InvalidRequest, match=f"demands: table {table.id}.*no column 'x'") as caught:
        task(small_graph(), tmp_path, flow="x", **asked)
    assert str(tmp_path) not in str(caught.value)
    with pytest.raises(InvalidRequest, match="no vertex '10'"):
        task(small_graph(names=True), tmp_path, **asked)
    other = uploaded(tmp_path, "place,jobs,beds\n10,3,1\n", "opportunities")
    with pytest.raises(InvalidRequest, match=r"uploaded as opportunities; upload it with .*holds=demands") as caught:
        task(small_graph(), tmp_path, result="flows", demands=other.id)
    assert caught.value.field == "demands"
    with pytest.raises(InvalidRequest, match="was uploaded as demands"):
        task(small_graph(), tmp_path, result="measures", within=[1], opportunities=table.id)


@pytest.mark.parametrize("asked", [{"result": "betweenness", "of": "arcs"}, {"result": "flows", "of": "vertices"}])
def test_plans_cover_what_comes_and_refuse_what_does_not_fit(
    tmp_path: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    if asked["result"] == "flows":
        asked = {**asked, "demands": {"origins": [0, 5], "destinations": [899, 7], "flows": [1, 2]}}
    found = task(grid(30), tmp_path, **asked)
    plan = found.plan(tmp_path / "t")
    assert min(plan.seconds, plan.memory, plan.disk) > 0
    found.make(tmp_path / "t", plan, Monitor())
    with open_table(tmp_path / "t") as opened:
        assert opened.bytes < 2 * plan.disk + 20_000
        assert math.isfinite(opened.values(list(opened.columns)[-1]).sum())
    with pytest.raises(DoesNotFit) as memory:
        task(grid(30), tmp_path, memory=1 << 20, **asked)
    assert (memory.value.resource, memory.value.available) == ("memory", 1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 5000))
    with pytest.raises(DoesNotFit, match="5000 are free") as disk:
        found.plan(tmp_path / "t")
    assert disk.value.resource == "disk"


@pytest.mark.parametrize("phase", ["search", "write"])
@pytest.mark.parametrize("asked", [{"result": "betweenness"}, {"result": "flows", "demands": INLINE}])
def test_a_cancelled_table_leaves_nothing(tmp_path: Path, phase: str, asked: dict[str, Any]):
    graph = build_graph([10, 20, 30], [20, 30, 40], None, n=41, directed=True)[0]
    found = task(graph, tmp_path, **asked)
    plan = found.plan(tmp_path / "t")
    with pytest.raises(Cancelled):
        found.make(tmp_path / "t", plan, Stop(phase))
    assert list(tmp_path.iterdir()) == []
