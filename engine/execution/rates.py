"""Measures rates of this machine and stores them in the user's cache, for later solves.

The seconds that streaming takes depend on the disk, the bus and host memory, and no table predicts these.  Measuring
them takes a second or two, so only long jobs do it.  Other work on the machine makes a rate look worse and never
better, so a single measurement is not enough: rates are measured ``TIMES`` times, at least ``APART`` seconds apart, and
the best value of each is used for a month.  A cache file that cannot be read, parsed or written is ignored.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.execution.compiling import hasten
from engine.model.dtypes import WorkType
from engine.model.plan import Plan
from engine.model.problem import Device, Machine
from engine.model.progress import Monitor
from engine.rows.dense import ClosedRows, write_rows
from engine.rows.summary import SummarySink
from engine.streaming.store_tier import IO_THREADS
from storage.errors import Cancelled
from storage.files.caches import cache_folder
from storage.files.memory import in_memory
from storage.graph.graph import build_graph
from storage.matrix.frame import MatrixSpec
from storage.matrix.working import WorkingMatrix, open_working
from storage.threads import in_threads

#: Rates are measured for solves of at least this many predicted seconds.
WORTHWHILE: Final = 10.0
#: Rates are measured if a streamed candidate is predicted to take less than this many times the plan's seconds.
CONTENDER: Final = 4.0
#: Days for which rates are kept, counted from the first measurement.
DAYS: Final = 30
#: At most TIMES measurements are made within ``DAYS`` days, and at least APART seconds lie between two of them.
TIMES: Final = 3
APART: Final = 3600.0
#: The matrix of the trial store has SIDE vertices, which makes 1 GiB in float32; each pass over that store takes at
#: most LIMIT seconds.  In memory the store has half as many vertices, because no cache of a disk has to be filled.
SIDE: Final = 16384
LIMIT: Final = 2.0

Values = dict[str, float]
log = logging.getLogger("apsp.engine")


def with_rates(machine: Machine, kind: WorkType, plan: Plan, out: Path | None) -> Machine:
    """Return ``machine`` with measured rates of disk and GPUs, if ``plan`` is long and these rates decide between
    candidates.

    Args:
        machine: the machine as surveyed.
        kind: the working type.
        plan: the plan that was made with the present rates.
        out: the path of the store; None if no store is written.
    """
    near = [
        c for c in plan.candidates if c.feasible and c.streaming is not None and c.seconds < CONTENDER * plan.seconds
    ]
    if plan.seconds < WORTHWHILE or not near or out is None or machine.disk is None:
        return machine
    if machine.disk > 4 * SIDE**2 * 4:
        folder = next(path for path in (out.absolute().parent, *out.absolute().parents) if path.exists())
        key = f"disk {folder.stat().st_dev}, {machine.threads} threads"
        machine = _with_disk(machine, _known(key, lambda: disk_rates(folder, machine.threads)))
    cuda = machine.cuda
    if cuda is not None and any(c.device == "cuda" for c in near):
        key = f"{cuda.count} {cuda.name}, {kind.name}, {machine.threads} threads"
        # rates under the key without this suffix, in caches of older versions, are too low
        key += ", places apart" if cuda.count > 1 else ""
        values = _known(key, lambda: _device_rates(cuda, kind, machine.threads))
        machine = replace(machine, cuda=_with_bus(cuda, kind, values))
    return machine


def disk_rates(folder: Path, threads: int) -> Values:
    """Measure the rates of a working store in ``folder``, as fields of :class:`Machine`.

    Raises:
        StorageFailed: the folder cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=".apsp-trial-", dir=folder) as trial:
        empty = np.zeros(0, np.int64)
        side = SIDE // 2 if in_memory(folder) else SIDE
        graph, _ = build_graph(empty, empty, empty, n=side, directed=True)
        with open_working(Path(trial) / "trial", graph, MatrixSpec(np.float32, np.inf)) as writer:
            hasten(writer)
            rate, rows = _write_rate(writer, threads)
            return {"stream_write": rate, **_stream_rates(writer, rows)}


class _Limit(Monitor):
    """A monitor that measures the rate of rows, and stops after ``LIMIT`` seconds.

    A solve starts its threads once, and a short trial in memory would count their start for much.  So the clock starts
    when the first rows are done, and these do not count.

    Attributes:
        rows: the number of rows so far.
    """

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.rows, self._first, self._when = 0, 0, self.began

    def advance(self, amount: int) -> None:
        if self.rows == 0:
            self._first, self._when = amount, time.perf_counter()
        self.rows += amount

    def cancelled(self) -> bool:
        return time.perf_counter() > self.began + LIMIT

    def rate(self) -> float:
        """Return the number of rows per second until now."""
        if self.rows > self._first:
            return (self.rows - self._first) / (time.perf_counter() - self._when)
        return self.rows / (time.perf_counter() - self.began)


def _write_rate(writer: WorkingMatrix, threads: int) -> tuple[float, int]:
    """Return the bytes per second at which finished rows are summarised and written durably, and the number of rows."""
    side = writer.shape[1]
    rows = np.broadcast_to(np.arange(side, dtype=np.float32), (side, side))
    sink = SummarySink(writer, np.arange(side), side, integral=False)
    sink.write(0, 0, np.ascontiguousarray(rows[: writer.tile[0]]))  # compiles or loads the kernels of the summary
    limit = _Limit()
    with suppress(Cancelled):
        write_rows(ClosedRows(rows), sink, limit, threads)
    writer.commit({})
    return limit.rate() * side * 4, limit.rows


def _stream_rates(writer: WorkingMatrix, count: int) -> Values:
    """Return the rate, in bytes per second, of reading tiles and writing them again at the same time, and the processor
    seconds per byte.
    """
    band, side = writer.tile[0], writer.shape[1]
    limit, work = _Limit(), time.process_time()

    def pass_on(first: int) -> int:
        if first and limit.cancelled():
            return 0
        rows = np.empty((min(band, side - first), side), np.float32)
        writer.read_rows(first, rows)
        writer.write(first, 0, rows)
        return len(rows)

    in_threads(2 * IO_THREADS, pass_on, range(0, count, band), told=limit.advance, name="apsp-trial")
    writer.commit({})
    row = side * 4
    return {
        "stream_rate": limit.rate() * row,
        "stream_work": (time.process_time() - work) / (2 * limit.rows * row),
    }


def _with_disk(machine: Machine, values: Values) -> Machine:
    if not values:
        return machine
    write, rate, work = (values[name] for name in ("stream_write", "stream_rate", "stream_work"))
    return replace(machine, stream_write=write, stream_rate=rate, stream_work=work)


def _device_rates(cuda: Device, kind: WorkType, threads: int) -> Values:
    """Measure the rates of the GPUs, as fields of :class:`Device`; the rate of products in ``kind`` is
    ``relax_rate``.
    """
    from engine.devices.cuda.rates import LEAST_MEMORY, measured

    if cuda.memory < LEAST_MEMORY:
        return {}
    found = measured(cuda, kind, threads=threads)
    names = ("bus_rate", "bus_most", "touch_seconds", "lock_seconds")
    return {"relax_rate": found.relax_rate[kind.name], **{name: getattr(found, name) for name in names}}


def _with_bus(cuda: Device, kind: WorkType, values: Values) -> Device:
    if not values:
        return cuda
    return replace(
        cuda,
        relax_rate={**cuda.relax_rate, kind.name: values["relax_rate"]},
        bus_rate=values["bus_rate"],
        bus_most=values["bus_most"],
        touch_seconds=values["touch_seconds"],
        lock_seconds=values["lock_seconds"],
    )


def cache_file() -> Path | None:
    """Return the path of the cache file; None if this user has no folder for it."""
    folder = cache_folder()
    return None if folder is None else folder / "rates.json"


def _known(key: str, measure: Callable[[], Values]) -> Values:
    """Return the best rates measured on this node under ``key`` in the last month, including a new measurement.

    ``measure`` is called only if another measurement is due.  If it fails, the earlier rates are returned, {} if there
    are none.
    """
    key, now = f"{platform.node()}: {key}", time.time()
    entries = _read()
    kept = entries.get(key)
    if kept is not None and now - kept["when"] >= DAYS * 86400:
        kept = None
    if kept is not None and (kept["times"] >= TIMES or now - kept["last"] < APART):
        return dict(kept["values"])
    before: Values = {} if kept is None else kept["values"]
    try:
        values = _best(before, measure())
    except Exception as error:  # a driver may fail in many ways, and predictions can do without measured rates
        log.warning("rates were not measured (%s: %s)", type(error).__name__, error)
        return dict(before)
    when, times = (now, 1) if kept is None else (kept["when"], kept["times"] + 1)
    _write({**entries, key: {"when": when, "last": now, "times": times, "values": values}})
    return values


def _best(before: Values, now: Values) -> Values:
    """Return the better of two measurements of each value: the smaller for seconds and work, the larger for rates."""
    less = [name for name in now if name.endswith(("_seconds", "_work"))]
    return {name: (min if name in less else max)(value, before.get(name, value)) for name, value in now.items()}


def _read() -> dict[str, Any]:
    """Return all valid entries of the cache file."""
    path = cache_file()
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(key): {
                "when": float(entry["when"]),
                "last": float(entry.get("last", entry["when"])),
                "times": int(entry.get("times", 1)),
                "values": {str(k): float(v) for k, v in entry["values"].items()},
            }
            for key, entry in found.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _write(entries: Mapping[str, object]) -> None:
    """Replace the cache file; where that cannot be done, the next process measures again."""
    path = cache_file()
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="rates-", dir=path.parent)
        os.close(handle)
        try:
            Path(name).write_text(json.dumps(entries, indent=1), encoding="utf-8")
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)  # if the file is still there: the disk is full, or the cache is a folder
