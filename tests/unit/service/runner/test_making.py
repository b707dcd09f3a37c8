"""A runner goes on from what another runner, which was killed, has committed of a prepared graph."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.api.prepared import prepare
from engine.streaming import part_journal
from service.runner.runner import Runner
from service.settings import Settings
from storage.files import atomic
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.api.test_prepared_weights import files_of
from tests.unit.service.support import Bench

ROOT = Path(__file__).resolve().parents[4]


def kill_at(call: int) -> None:
    """Kill this process before so many calls that change the disk."""
    left = iter(range(call - 1, -1, -1))

    def dies(real: Any) -> Any:
        def called(*args: Any, **keywords: Any) -> Any:
            if next(left, 1) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **keywords)

        return called

    for module, name in ((os, "fsync"), (os, "writev"), (atomic, "_renameat2"), (os, "rename")):
        setattr(module, name, dies(getattr(module, name)))
    os.replace = os.rename


KILLED = """
import sys, threading
from engine.streaming import part_journal
from service.runner.runner import Runner
from service.settings import Settings
from tests.unit.service.runner.test_making import kill_at
part_journal.EVERY, part_journal.LARGE = 0.0, 0
kill_at(int(sys.argv[2]))
runner = Runner(Settings.load(), threading.Event())
runner.work(runner._jobs.job(sys.argv[1]))
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("calls", [[75], pytest.param(range(1, 1000, 7), marks=pytest.mark.long)], ids=["some", "many"])
def test_a_preparation_goes_on_from_that_of_a_killed_runner(
    settings: Settings, bench: Bench, monkeypatch, caplog, calls, tmp_path: Path
):
    """Killed before some of its calls that change the disk, and the next one, too: the files are those of one run."""
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    monkeypatch.setattr(part_journal, "LARGE", 0)
    graph = grid_graph(9)
    prepare(graph, tmp_path / "want")
    graph_id = bench.add_graph(graph)
    runner = Runner(settings, threading.Event())
    environment, went_on = {**os.environ, **bench.settings.environment()}, 0
    for call in calls:
        bench.jobs.create(graph_id, {"result": "prepared"}, {})
        record = bench.jobs.claim(f"{settings.slot('cpu')}:1")
        assert record is not None
        words = [sys.executable, "-c", KILLED, record.id, str(call)]
        done = subprocess.run(words, env=environment, cwd=ROOT, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        bench.jobs.recover()
        again = bench.jobs.claim("second")
        assert again is not None
        caplog.clear()
        with caplog.at_level(logging.INFO):
            runner.work(again)
        went_on += "had done: eliminate" in caplog.text
        store = bench.settings.store(record.id)
        assert bench.jobs.job(record.id).state == "successful"
        assert files_of(store) == files_of(tmp_path / "want")
        assert sorted(path.name for path in store.parent.iterdir()) == ["log.txt", store.name]
    runner._jobs.close()
    assert went_on > len(calls) // 10
