"""Large dissections run in a process of their own: the same order, and neither signals nor threads wait for METIS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from scipy.sparse import coo_array

from engine.graph import metis
from storage.errors import SolveFailed

ROOT = Path(__file__).resolve().parents[4]


def grid(side: int) -> tuple[metis.Ints, metis.Ints]:
    """The arcs of a square grid."""
    at = np.arange(side * side, dtype=np.int32).reshape(side, side)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    ends = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    arcs = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(side * side, side * side)).tocsr()
    return arcs.indptr.astype(np.int32), arcs.indices.astype(np.int32)


def test_the_order_is_that_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    here = metis.nested_dissection(*grid(40))
    monkeypatch.setattr(metis, "SHORT", 0)
    there = metis.nested_dissection(*grid(40))
    for one, other in zip(here, there, strict=True):
        assert one.dtype == other.dtype == np.int32
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(there[0][there[1]], np.arange(1600))


def test_other_threads_go_on_meanwhile() -> None:
    seen, over = [time.monotonic()], threading.Event()

    def tick() -> None:
        while not over.wait(0.02):
            seen.append(time.monotonic())

    ticking = threading.Thread(target=tick)
    ticking.start()
    began = time.monotonic()
    try:
        metis.nested_dissection(*grid(400))
    finally:
        over.set()
        ticking.join()
    assert max(np.diff(seen)) < (time.monotonic() - began) / 2


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metis, "SHORT", 0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SolveFailed, match="status 1"):
        metis.nested_dissection(*grid(40))


_PARENT = """
import sys
from tests.unit.engine.graph.test_metis import grid
from engine.graph import metis
rows = grid(700)
print("begun", flush=True)
metis.nested_dissection(*rows)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_it_at_once_with_its_process(number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "begun\n"
    child = _child(parent.pid)
    time.sleep(0.5)
    assert child.is_running()
    os.kill(parent.pid, number)
    began = time.monotonic()
    assert parent.wait(30) in (-signal.SIGINT, -signal.SIGKILL, 130)
    child.wait(30)
    assert time.monotonic() - began < 10
    parent.communicate()


def _child(number: int) -> psutil.Process:
    """The process that a process has started."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(number).children():
            return child
        time.sleep(0.01)
    raise AssertionError("no process was started")
