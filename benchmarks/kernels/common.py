"""What the kernel benchmarks share: facts of the machine, the best of several runs, Markdown and JSON."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
import numpy as np
import numpy.typing as npt

from engine.devices.cpu import vector
from engine.model.dtypes import work_type

RESULTS: Final = Path(__file__).parents[1] / "results"

#: Name, NumPy type, whether no entry is negative.
KINDS: Final = [
    ("float32, any sign", "float32", False),
    ("float32 >= 0", "float32", True),
    ("float64, any sign", "float64", False),
    ("float64 >= 0", "float64", True),
    ("int32", "int32", True),
    ("uint16", "uint16", True),
]

Array = npt.NDArray[Any]


def facts() -> dict[str, Any]:
    """Commit, hardware, versions, date."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit,
        "processor": processor(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "vector_bytes": vector.VECTOR_BYTES,
        "python": platform.python_version(),
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
    }


def processor() -> str:
    """The processor's model, and its family, as virtual machines often hide the former."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    pairs = (line.partition(":") for line in info.read_text().splitlines())
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    return f"{fields.get('model name', platform.machine())} (family {fields.get('cpu family', '?')})"


def best(
    run: Callable[[], object],
    *,
    seconds: float,
    least: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    before: Callable[[], object] | None = None,
) -> float:
    """The least seconds of several runs, at least ``least`` of them and for about ``seconds``."""
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < stop:
        if before is not None:
            before()
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)


def clock_of(threads: int) -> Callable[[], float]:
    """Processor time of the calling thread where it works alone (neighbours then count less), else wall time."""
    return time.thread_time if threads == 1 else time.perf_counter


def random_matrix(n: int, dtype: str, *, nonnegative: bool, seed: int = 0) -> Array:
    """Random weights; negative ones too, but no negative cycle, where ``nonnegative`` is False."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 10_000, (n, n))
    if not nonnegative:
        height = rng.integers(0, 5_000, n)
        weights += height[:, None] - height
    np.fill_diagonal(weights, 0)
    return weights.astype(work_type(dtype).dtype)


def markdown(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; floats with three significant digits."""
    cells = [[f"{x:.3g}" if isinstance(x, float) and abs(x) < 1000 else str(x) for x in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in [list(head), ["---"] * len(head), *cells]]
    return "\n".join(["", f"### {title}", "", *lines])


def save(name: str, record: dict[str, Any], folder: Path) -> Path:
    """Write the record with the facts of the machine; the name says what, when and at which commit."""
    whole = {"facts": facts(), **record}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{whole['facts']['date']}-{whole['facts']['commit'][:8]}.json"
    path.write_text(json.dumps(whole, indent=1) + "\n")
    return path
