"""The order in which a solve on a GPU queues its work, recorded by fakes, for machines without one.

The digest was recorded from the code before ``engine.devices.rounds`` drove the rounds: what is launched, over which
blocks, on which stream, and which events are recorded and waited for has not changed.
"""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from engine.devices.cuda import floyd_warshall
from engine.devices.cuda.floyd_warshall import Solver
from engine.model.progress import Monitor


class Recorder:
    """Streams, events and launchers that write down what is asked of them."""

    def __init__(self):
        self.lines, self.stream, self.arrays, self.events = [], "outer", [], 0

    def note(self, *words):
        self.lines.append(" ".join(map(str, words)))

    def allocate(self, _, shape, dtype):
        self.arrays.append(np.empty(shape, dtype))
        return self.arrays[-1]

    def name(self, block):
        """The array that a block belongs to, its first entry and its shape."""
        at = block.__array_interface__["data"][0]
        for number, array in enumerate(self.arrays):
            offset = (at - array.__array_interface__["data"][0]) // array.itemsize
            if 0 <= offset < array.size:
                return f"{number}[{offset // array.shape[1]},{offset % array.shape[1]}]{block.shape}"
        return f"empty{block.shape}"


def fakes(monkeypatch):
    """A recorder, and the modules whose streams, events and launches it records."""
    seen = Recorder()

    class Stream:
        def __init__(self, non_blocking=True, priority=0):
            self.label = "high" if priority < 0 else "low"

        def wait_event(self, event):
            seen.note(self.label, "waits", event.number)

        def __enter__(self):
            self.before, seen.stream = seen.stream, self.label

        def __exit__(self, *_):
            seen.stream = self.before

    class Event:
        def __init__(self, disable_timing=False):
            self.number = None

        def record(self, stream):
            seen.events += 1
            self.number = seen.events
            seen.note(stream.label, "records", self.number)

        def synchronize(self):
            seen.note("host waits", self.number)

    class Launches:
        word = np.dtype("u4")

        def __init__(self, modules, dtype, *, nonnegative):
            self.dtype = np.dtype(dtype)

        def close(self, block):
            seen.note(seen.stream, "close", seen.name(block))

        def mirror(self, block):
            seen.note(seen.stream, "mirror", seen.name(block))

        def send_flag(self):
            seen.note(seen.stream, "flag")

        def sent_flag(self):
            seen.note("look at flag")
            return False

        def squares(self, block):
            return False

        def pack(self, copies):
            for c in copies:
                seen.note(seen.stream, "pack", seen.name(c.source), seen.name(c.to), c.transposed, c.spread)

        def products(self, products, *, upper=False):
            for p in products:
                skip = (p.skip.rows, p.skip.columns)
                seen.note(seen.stream, "product", seen.name(p.c), seen.name(p.a), seen.name(p.b), skip, upper)

    outer = Stream()
    outer.label = "outer"
    cuda = SimpleNamespace(Stream=Stream, Event=Event, get_current_stream=lambda: outer)
    monkeypatch.setattr(floyd_warshall, "Launcher", Launches)
    monkeypatch.setattr(floyd_warshall, "allocate", seen.allocate)
    return seen, SimpleNamespace(cupy=SimpleNamespace(cuda=cuda))


class Told(Monitor):
    """A monitor that writes progress into the same list."""

    def __init__(self, seen):
        self.seen = seen

    def step(self, amount):
        self.seen.note("told", amount)


def launches(monkeypatch, n, width, dtype, *, symmetric, watched):
    """What a solve of n padded vertices in rounds of ``width`` queues, a line each."""
    seen, modules = fakes(monkeypatch)
    solver = Solver(modules, dtype, nonnegative=False)
    d = seen.allocate(None, (n, n), dtype)
    solver.close(d, symmetric=symmetric, width=width, monitor=Told(seen) if watched else None)
    return seen.lines


CASES = [
    (n, width, dtype, symmetric, watched)
    for n, width in [(256, 256), (512, 256), (1024, 256), (1280, 512), (2048, 1024)]
    for dtype in ("uint16", "int32", "float64")
    for symmetric in (False, True)
    for watched in (False, True)
]


def test_work_is_queued_as_before_rounds_were_driven_by_their_own_module(monkeypatch):
    told = hashlib.sha256()
    count = 0
    for n, width, dtype, symmetric, watched in CASES:
        lines = launches(monkeypatch, n, width, dtype, symmetric=symmetric, watched=watched)
        count += len(lines)
        told.update("\n".join(lines).encode() + b"\n\n")
    assert count == 2702
    assert told.hexdigest() == "7f28b6319b300157c0d41cc71ed8cc8eded4c039f65f3935923e997cd3307294"


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_next_panel_is_closed_beside_the_rest(monkeypatch, symmetric):
    """The stream of high priority has panel, strips, next panel; the other one the rest, which waits for its panel."""
    lines = launches(monkeypatch, 1024, 256, "int32", symmetric=symmetric, watched=False)
    closed = [i for i, line in enumerate(lines) if line.startswith("high close")]
    rests = [i for i, line in enumerate(lines) if line.startswith("low product")]
    assert len(closed) == len(rests) == 4
    assert closed[0] < rests[0] < closed[1] < rests[1] < closed[2] < rests[2] < closed[3] < rests[3]
    for at in rests:
        assert lines[at - 1].startswith("low waits")
