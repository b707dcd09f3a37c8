"""Fakes of CUDA that write down what is asked of them: allocations, launches, copies, events, on which stream."""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from engine.devices.cuda import pinned
from engine.devices.cuda.stripes import memory, streamer, worker

#: Where the memory of the device begins.  No address of the host is as large; some Pythons allocate below 2^30.
DEVICE = 2**60
#: Which arguments are addresses.
ADDRESSES = {"memcpyAsync": (0, 1), "memcpy2DAsync": (0, 2)}


class Calls:
    """The calls of one test, a line each, and the number of things made so far."""

    def __init__(self):
        self.lines, self.made, self.by_thread = [], {}, defaultdict(list)
        self.chance = None  # a random generator decides whether an event is done when the host looks
        self._own, self._lock = threading.local(), threading.Lock()

    @property
    def stream(self):
        """The current stream of this thread."""
        return getattr(self._own, "stream", "default")

    @stream.setter
    def stream(self, name):
        self._own.stream = name

    def note(self, *words):
        line = " ".join(map(str, words))
        with self._lock:
            self.lines.append(line)
            self.by_thread[threading.get_ident()].append(line)

    def number(self, kind):
        with self._lock:
            self.made[kind] = self.made.get(kind, 0) + 1
            return self.made[kind]


class DeviceArray:
    """An array without contents: its number, the slices that were taken of it, and its shape."""

    def __init__(self, calls, shape, dtype, number, taken=""):
        self.calls, self.shape, self.dtype, self.number, self.taken = calls, shape, np.dtype(dtype), number, taken
        self.itemsize = self.dtype.itemsize

    @property
    def data(self):
        return SimpleNamespace(ptr=DEVICE + self.number * 2**20 + zlib.crc32(self.taken.encode()) % 2**20)

    @property
    def nbytes(self):
        return int(np.prod(self.shape)) * self.itemsize

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, key):
        shape = np.broadcast_to(np.zeros(1, self.dtype), self.shape)[key].shape
        return DeviceArray(self.calls, shape, self.dtype, self.number, f"{self.taken}[{key}]")

    def __setitem__(self, key, value):
        self.calls.note(self.calls.stream, "set", self, key, "=", value)

    def __repr__(self):
        return f"array {self.number}{self.taken}{self.shape}"


def shown(value):
    """An argument without what differs between runs: addresses and contents of host memory."""
    if isinstance(value, np.ndarray):
        return f"host{value.shape}"
    if isinstance(value, tuple):
        return tuple(shown(part) for part in value)
    return value


def shown_address(value):
    """An address as :func:`shown` shows it: in memory of the device counted from DEVICE, in that of the host hidden."""
    return value - DEVICE if value >= DEVICE else "address"


def recording(calls, name, **known):
    """An object whose every method writes down its call."""

    class Recording:
        def __getattr__(self, method):
            def call(*given, **named):
                places = ADDRESSES.get(method, ())
                said = [shown_address(value) if at in places else shown(value) for at, value in enumerate(given)]
                calls.note(calls.stream, f"{name}.{method}", said, named)

            return call

    found = Recording()
    for attribute, value in known.items():
        setattr(found, attribute, value)
    return found


def install(monkeypatch, free=2**50):
    """Put fakes in place of CUDA in the modules of stripes; returns the calls."""
    calls = Calls()
    # whether a copy is cut into parts must not depend on where the allocator puts an array
    monkeypatch.setattr(pinned, "RANGE", 2**60)

    class Event:
        def __init__(self, **_):
            self.number, self.passed = calls.number("event"), False

        @property
        def done(self):
            if calls.chance is not None and not self.passed:
                self.passed = calls.chance.random() < 0.3
                if self.passed:
                    calls.note("host waits", self.number)
            return calls.chance is None or self.passed

        def record(self, stream):
            self.passed = False
            calls.note(stream, "records", self.number)

        def synchronize(self):
            self.passed = True
            calls.note("host waits", self.number)

    class Stream:
        def __init__(self, **named):
            self.ptr = calls.number("stream")
            calls.note(self, "is made", named)

        def wait_event(self, event):
            calls.note(self, "waits", event.number)

        def synchronize(self):
            calls.note("host waits for", self)

        def __enter__(self):
            self.before, calls.stream = calls.stream, str(self)

        def __exit__(self, *_):
            calls.stream = self.before

        def __repr__(self):
            return f"stream {self.ptr}"

    def solver(*_, **__):
        launcher = {"word": np.dtype("u4"), "arithmetic": "plain", "negative": SimpleNamespace(data=Pointer)}
        return recording(calls, "solver", ahead=recording(calls, "ahead", **launcher))

    class Pointer:
        ptr = DEVICE + 7

    def allocate(_, shape, dtype):
        found = DeviceArray(calls, tuple(shape), dtype, calls.number("array"))
        calls.note("allocate", found, np.dtype(dtype))
        return found

    runtime = recording(
        calls, "runtime", memcpyDeviceToHost=2, memcpyHostToDevice=1, CUDARuntimeError=RuntimeError,
        memGetInfo=lambda: (free, 2**50),
    )  # fmt: skip
    cuda = SimpleNamespace(
        Stream=Stream,
        Event=Event,
        runtime=runtime,
        Device=lambda _: nullcontext(),
        get_current_stream=Stream,
        alloc_pinned_memory=bytearray,
    )
    pool = recording(calls, "pool", free_bytes=lambda: 0)
    cupy = SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: pool, asarray=lambda rows: f"device{rows.shape}")
    kernels = SimpleNamespace(cupy=cupy, device=0, get=lambda *name: getattr(recording(calls, "kernel"), name[0]))
    fakes = {
        "modules": lambda _=0: kernels,
        "limit_memory": lambda _, __, memory: pool.set_limit(size=memory),
        "lift_limit": lambda _, __, memory: memory is None or pool.set_limit(size=0),
        "allocate": allocate,
        "blank": lambda _, rows: calls.note(calls.stream, "blank", rows),
        "Solver": solver,
        "translated": lambda _: nullcontext(),
        "PinnedPool": lambda *_: recording(calls, "pinned"),
        "Copy": lambda *given, **named: ("copy", given, named),
        "Product": lambda *given: ("product", given),
    }
    for module in (memory, streamer, worker):
        for name, fake in fakes.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fake)
    return calls
