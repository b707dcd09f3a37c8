"""Preparing in the compact form: what it takes, what is refused, and runs that end on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from engine.api import prepared_planning as planning
from engine.api.from_tables.compacting import prepare_compact
from engine.api.from_tables.reweighting import reweight
from engine.api.prepared_matrix import open_result
from engine.api.prepared_planning import plan_prepared
from engine.api.verify import verify_store
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.streaming import part_journal
from storage.errors import Cancelled, Conflict, DoesNotFit, InvalidRequest, NotFound
from tests.unit.engine.api.test_prepared import Stops, grid_graph
from tests.unit.engine.api.test_prepared_weights import arcs_of, files_of


def test_the_plan_names_both_forms_and_a_refusal_offers_the_smaller(tmp_path, monkeypatch):
    graph = grid_graph(40)
    full, compact = plan_prepared(graph), plan_prepared(graph, compact=True)
    assert compact.disk < full.disk
    assert "the compact form (--compact) would be" in full.reason
    assert compact.reason.startswith("closed parts of")
    survey, between = planning.survey, (compact.disk + full.disk) // 2
    monkeypatch.setattr(planning, "survey", lambda **asked: replace(survey(**asked), disk=between))
    with pytest.raises(DoesNotFit, match=r"in the compact form \(--compact\) they are"):
        plan_prepared(graph, out=tmp_path / "p")
    assert plan_prepared(graph, out=tmp_path / "p", compact=True).disk == compact.disk


def test_new_weights_are_refused_with_the_reason(tmp_path):
    graph = grid_graph(6)
    prepare_compact(graph, tmp_path / "p")
    before = files_of(tmp_path / "p")
    with pytest.raises(InvalidRequest, match="compact form, which keeps no tables to change"):
        reweight(tmp_path / "p", arcs_of(graph))
    assert files_of(tmp_path / "p") == before
    with pytest.raises(Conflict, match="exists already"):
        prepare_compact(graph, tmp_path / "p")


def test_a_stopped_run_goes_on_with_the_same_files(tmp_path, monkeypatch):
    graph = grid_graph(12)
    prepare_compact(graph, tmp_path / "want")
    monkeypatch.setattr(part_journal, "EVERY", 0.0)

    class Late(Monitor):
        left, now = 1, ""

        def begin(self, phase, total, unit):
            self.now = phase

        def cancelled(self):
            self.left -= self.now == "prepare"
            return self.left < 0

    with pytest.raises(Cancelled):
        prepare_compact(graph, tmp_path / "p", Options(threads=1), monitor=Late())
    with pytest.raises(NotFound):
        open_result(tmp_path / "p")
    outcome = prepare_compact(graph, tmp_path / "p", Options(threads=1))
    assert outcome.summary["resumed"]["eliminate"] > 0
    want, found = files_of(tmp_path / "want"), files_of(tmp_path / "p")
    assert {k: v for k, v in found.items() if k != "zarr.json"} == {k: v for k, v in want.items() if k != "zarr.json"}
    with pytest.raises(Cancelled):
        prepare_compact(graph, tmp_path / "q", monitor=Stops("write"))
    assert sorted(path.name for path in tmp_path.iterdir() if "q" in path.name and path.name != ".q.preparing") == []


KILLED = """
import os, sys, signal
from storage.files import atomic
from storage.prepared import writer
from tests.unit.engine.api.test_prepared import grid_graph
from engine.api.from_tables.compacting import prepare_compact
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "table":
    writer.crc32c = die
elif sys.argv[2] == "seal":
    writer.seal_document = die
else:
    atomic.Staging.publish = die
prepare_compact(grid_graph(9), sys.argv[1])
"""


@pytest.mark.parametrize("stage", ["table", "seal", "publish"])
def test_a_killed_run_serves_nothing_half_sealed(tmp_path, stage):
    path = tmp_path / "p"
    run = subprocess.run([sys.executable, "-c", KILLED, str(path), stage], check=False, env=os.environ)
    assert run.returncode == -signal.SIGKILL
    with pytest.raises(NotFound):
        open_result(path)
    prepare_compact(grid_graph(9), path)
    assert [found.name for found in tmp_path.iterdir()] == ["p"]
    assert verify_store(path, "all").searched == 81
