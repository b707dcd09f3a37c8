"""Timing on the device: events around work that the host has queued ahead; the clock seen meanwhile; JSON results."""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"

_SPIN = 'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n); }'


def milliseconds(run: Callable[[], object], *, prepare: Callable[[], object] = lambda: None, repeats: int = 5) -> float:
    """Median device time of ``run``; a spinning kernel holds the stream until the host has queued all of it."""
    import cupy

    times, spin = list[float](), cupy.RawKernel(_SPIN, "spin")
    for _ in range(repeats):
        prepare()
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        cupy.cuda.runtime.deviceSynchronize()
        spin((1,), (1,), (2_000_000,))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
    return float(statistics.median(times))


def random_weights(n: int, dtype: str, *, share: float = 0.0625, symmetric: bool = False, seed: int = 1) -> Any:
    """Whole-number arc weights 1 ... 100 on the device, ``share`` of all pairs; zero diagonal."""
    import cupy

    rng = cupy.random.RandomState(seed)
    nothing = {"uint16": 2**15 - 1, "int32": 2**30 - 1}.get(dtype, cupy.inf)
    d = cupy.empty((n, n), dtype)
    for i in range(0, n, 4096):
        part = rng.randint(1, 101, (min(4096, n - i), n)).astype("f4")
        absent = rng.random_sample(part.shape, dtype="f4") >= share
        d[i : i + 4096] = part.astype(dtype)
        d[i : i + 4096][absent] = nothing
    if symmetric:
        for i in range(0, n, 4096):
            for j in range(i, n, 4096):
                low = cupy.minimum(d[i : i + 4096, j : j + 4096], d[j : j + 4096, i : i + 4096].T)
                d[i : i + 4096, j : j + 4096] = low
                d[j : j + 4096, i : i + 4096] = low.T
    cupy.fill_diagonal(d, 0)
    return d


class Record:
    """Collects rows and writes them with what they were measured on."""

    def __init__(self, name: str) -> None:
        self.name, self.rows = name, list[dict[str, object]]()
        self._clocks: list[tuple[int, float]] = []
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._sample, daemon=True)
        self._watch.start()

    def add(self, **row: object) -> None:
        """One measurement, printed as it comes."""
        self.rows.append(row)
        print("  ".join(f"{k}={v:.5g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)

    def write(self) -> None:
        """Write ``results/<name>.json`` (or under APSP_RESULTS)."""
        import cupy

        self._stop.set()
        self._watch.join()
        busy = [c for c, power in self._clocks if power > 200] or [c for c, _ in self._clocks]
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        record = {
            "benchmark": self.name,
            "commit": os.environ.get("APSP_COMMIT") or _git("rev-parse", "--short", "HEAD"),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "gpu": properties["name"].decode(),
            "driver": _query("driver_version"),
            "sm_clock_mhz_under_load": [min(busy, default=0), max(busy, default=0)],
            "power_w_most": max((p for _, p in self._clocks), default=0.0),
            "rows": self.rows,
        }
        folder = results_folder()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(record, indent=1) + "\n")

    def _sample(self) -> None:
        while not self._stop.wait(0.25):
            found = _query("clocks.sm,power.draw")
            try:
                clock, power = found.split(",")
                self._clocks.append((int(clock.split()[0]), float(power.split()[0])))
            except ValueError:
                continue


def results_folder() -> Path:
    """Where results are written: beside the benchmarks, or APSP_RESULTS."""
    return Path(os.environ.get("APSP_RESULTS", RESULTS))


def _query(fields: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-i", "0"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _git(*arguments: str) -> str:
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout.strip()
