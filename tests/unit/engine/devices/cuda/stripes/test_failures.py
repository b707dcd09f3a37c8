"""A solve on GPUs that fails keeps neither its graph nor its page-locked memory; fakes stand for driver and devices."""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.devices.cuda import pinned
from engine.devices.cuda.stripes.panels import CudaPanels
from engine.devices.cuda.stripes.streamer import CudaStreamer
from engine.execution import streamed
from engine.model.problem import Options
from engine.model.tiling import Tiling
from storage.errors import SolveFailed
from tests.cycles import keepers, no_collection
from tests.unit.engine.devices.cuda.stripes.fakes import install
from tests.unit.engine.devices.cuda.test_pinned import Driver, Refusal
from tests.unit.engine.execution.test_streamed import sample


@pytest.fixture
def failing(monkeypatch):
    """Fakes, and a function that lets them fail from the call of some name and number on; it returns what fails."""
    calls, driver, lock, seen, when = install(monkeypatch), Driver(), threading.Lock(), [], []

    def note(*words, real=calls.note, error=SolveFailed):
        with lock:
            for name, number in when:
                if name in " ".join(map(str, words)):
                    seen.append(name)
                    if len(seen) >= number:
                        raise error("the device failed")
        real(*words)

    def refusing(name, real):
        return lambda *given: (note(name, error=Refusal), real(*given))

    for name in ("hostRegister", "hostUnregister"):
        monkeypatch.setattr(driver, name, refusing(name, getattr(driver, name)))
    monkeypatch.setattr(calls, "note", note)
    monkeypatch.setattr(pinned, "RANGE", 2**16)
    monkeypatch.setattr(pinned, "open_device", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=driver)))
    monkeypatch.setattr(streamed.log, "handle", lambda _: None)  # pytest keeps what is logged, so the errors in it, too
    yield lambda name, number: when.append((name, number))
    when.clear()


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("kind", ["passes", "rounds", "half"])
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    ("call", "number"),
    [("allocate", 3), ("memcpy", 20), ("host waits", 20), ("hostRegister", 1), ("hostUnregister", 1)],
)
def test_what_fails_keeps_neither_the_graph_nor_the_memory(
    tmp_path, monkeypatch, failing, tier, kind, devices, call, number
):
    made, memory, device = [], pinned.HostMemory, CudaPanels if kind == "passes" else CudaStreamer

    def make(*given):
        found = memory(*given)
        made.extend((weakref.ref(found), weakref.ref(found.array)))
        return found

    @contextmanager
    def opened(_):
        yield [device(index, memory=10**9) for index in range(devices)]

    monkeypatch.setattr(pinned, "HostMemory", make)
    monkeypatch.setattr(streamed, "_devices", opened)
    graph = sample(333, directed=kind != "half")
    plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", dtype="int32", device="cpu"))
    streaming = Tiling(tier, 64, 128, 3, symmetric=kind == "half", passes=kind == "passes")
    plan, kept = replace(plan, device="cuda", tier=tier, streaming=streaming, threads=2), [weakref.ref(graph)]
    failing(call, number)
    with no_collection():
        with suppress(SolveFailed) if call.startswith("host") else pytest.raises(SolveFailed):
            solve_to_store(graph, Options(), tmp_path / "d.zarr", plan=plan)
        del graph
        kept += made
        until = time.monotonic() + 20
        while any(one() is not None for one in kept) and time.monotonic() < until:
            time.sleep(0.01)  # a thread of a pool drops its last task a moment after its result was taken
        for one in kept:
            assert one() is None, keepers(one())
