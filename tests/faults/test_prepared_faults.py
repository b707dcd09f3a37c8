"""Tests that preparing reports a write, fsync, rename or open that fails, and leaves one version complete."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
import pytest

from engine.api.from_tables.reweighting import reweight
from engine.api.prepared import prepare
from engine.distributed.prepared import planning
from engine.streaming import part_journal
from storage.errors import StorageFailed
from storage.graph.graph import build_graph
from tests.faults import test_injected
from tests.faults.test_injected import Disk, hook
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.api.test_prepared_weights import arcs_of, files_of
from tests.unit.engine.distributed.test_this_process import short_of_memory

#: Every call of this distance fails once; APSP_FAULT_STEP=1 lets every one fail.
STEP = int(os.environ.get("APSP_FAULT_STEP", "20"))


@pytest.mark.parametrize("kind", ["write", "fsync", "rename", "open"])
@pytest.mark.parametrize("work", ["prepare", "files", "all", "one"])
def test_whatever_fails_one_version_is_whole_and_the_next_run_goes_on(tmp_path, monkeypatch, kind, work):
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    monkeypatch.setattr(part_journal, "LARGE", 0)
    if not test_injected._hooked:  # hooks stay as long as the process
        test_injected._hooked.append(True)
        sys.addaudithook(hook)
    graph = grid_graph(7)
    tails, heads, weights = arcs_of(graph)
    one = np.concatenate([[0], weights[1:]])
    new = one if work == "one" else weights * 2
    made = build_graph(tails, heads, new, n=graph.n, directed=True)[0]
    prepare(graph, tmp_path / "base")
    prepare(made, tmp_path / "want")
    old, want = files_of(tmp_path / "base"), files_of(tmp_path / "want")
    if work == "files":
        monkeypatch.setattr(planning, "LEAST_UPDATES", 1)
        short_of_memory(monkeypatch)
    place, when, failed = tmp_path / "work" / "p", 1, 0

    def run():
        if work in ("prepare", "files"):
            prepare(made, place, overwrite=True)
        else:
            reweight(
                place, (tails, heads, new) if work == "all" else (tails[:1], heads[:1], [0]), changed=work == "one"
            )

    while True:
        shutil.rmtree(place.parent, ignore_errors=True)
        place.parent.mkdir()
        shutil.copytree(tmp_path / "base", place)
        disk, ended = Disk(kind, when, place.parent), True
        with monkeypatch.context() as patch:
            disk.patch(patch)
            Disk.current = disk
            try:
                run()
            except StorageFailed:
                ended = False
            finally:
                Disk.current = None
        assert files_of(place) in ((want,) if ended else (old, want))
        if ended and disk.calls < when:
            break
        failed += not ended
        run()
        assert files_of(place) == want
        assert [path.name for path in place.parent.iterdir()] == ["p"]
        when += STEP
    assert failed > 0
