"""Makes an idle runner ready for its first job: compiles kernels in the background, then loads them step by step.

Compiling takes some minutes of processor time, and is needed once on each machine.  It runs in processes of the lowest
priority, and is stopped when a job comes.  The job compiles the kernels that it needs.  The remaining kernels are
compiled when the runner is idle again.

Run as ``python -m service.runner.warmup PROCESSES`` this module is the process that compiles.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_MODULES: Final = ("service.pool.tasks", "storage.graph.graph_store", "engine.api.solve", "engine.devices.cpu.backend")
#: solves that load kernels: their options, and whether the weights are integers
_SOLVES: Final = (
    ({"algorithm": "dijkstra"}, True),
    ({"algorithm": "dijkstra", "dtype": "float32"}, False),
    ({"algorithm": "bfs"}, True),
    ({"algorithm": "blocked-floyd-warshall", "dtype": "uint16"}, True),
    ({"algorithm": "blocked-floyd-warshall", "dtype": "int32"}, True),
    ({"algorithm": "blocked-floyd-warshall", "dtype": "float32"}, False),
)
#: most processes that compile while the runner is idle
PROCESSES: Final = 4
#: compiling is started at most this many times, because each job interrupts it; kernels that are missing after that are
#: compiled by the jobs that need them
STARTS: Final = 20
#: seconds between two checks for the kernels that another runner compiles
_REST: Final = 30.0
LOWEST: Final = 19


class WarmUp:
    """The remaining steps of a warm-up; a step that fails is only logged, because no step is necessary.

    Args:
        compiles: whether this runner compiles missing kernels; if not, another runner of this machine compiles them,
            and the warm-up waits for the compiled kernels.
    """

    def __init__(self, *, compiles: bool = True) -> None:
        self._steps = _steps()
        self._compiles, self._rests_until = compiles, 0.0
        self._compiling: subprocess.Popen[bytes] | None = None

    def step(self) -> bool:
        """Do the next step; return False if there is nothing to do now, perhaps because kernels are still being
        compiled.
        """
        if time.monotonic() < self._rests_until:
            return False
        if self._compiling is not None:
            if self._compiling.poll() is None:
                return False
            with self._compiling as ended:  # the end of the block closes the pipe to the process
                self._compiling = None
            if ended.returncode:
                log.warning("kernels are not compiled ahead; the process ended with %d", ended.returncode)
                self._steps = iter(())
        try:
            done = next(self._steps, None)
        except Exception as error:
            log.warning("a warm-up failed: %s", error)
            return True
        if done is False and self._compiles:
            self._compiling = _compile()
        elif done is False:
            self._rests_until = time.monotonic() + _REST
            return False
        return done is not None

    def pause(self) -> None:
        """Stop compiling in the background, because there is a job; it is started again when the runner is idle."""
        compiling, self._compiling = self._compiling, None
        if compiling is None:
            return
        with compiling, contextlib.suppress(ProcessLookupError):  # then close the pipe, and wait for the process
            os.killpg(compiling.pid, signal.SIGKILL)


def _steps() -> Iterator[bool]:
    """Yield after each step of the warm-up: True, or False if kernels must be compiled before the next step."""
    for name in _MODULES:
        importlib.import_module(name)
        yield True
    from engine.execution.kernel_list import listed_kernels, missing

    starts = 0
    while _SOLVES and missing(listed_kernels()):
        if (starts := starts + 1) > STARTS:
            return
        yield False
    for options, whole in _SOLVES:
        _solve(options, whole)
        yield True


def _compile() -> subprocess.Popen[bytes]:
    """Start compiling in a separate process group, which ends with this process."""
    command = [sys.executable, "-m", "service.runner.warmup", str(PROCESSES)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 - this program


def _solve(options: dict[str, str], whole: bool) -> None:
    import numpy as np

    from engine.api.solve import solve_to_store
    from engine.model.problem import Options
    from storage.graph.graph import build_graph

    vertices = np.arange(64)
    weights = np.arange(1, 65) if whole else np.arange(1, 65) + 0.5
    if options["algorithm"] == "bfs":
        weights = np.ones_like(weights)
    graph, _ = build_graph(vertices, np.roll(vertices, -1), weights, directed=True)
    with tempfile.TemporaryDirectory(prefix="apsp-warm-") as folder:
        solve_to_store(graph, Options(device="cpu", **options), Path(folder) / "warm.zarr")  # type: ignore[arg-type]


def main() -> None:
    """Compile missing kernels, until the runner that started this process ends."""
    import threading

    from engine.api.warming import warm
    from engine.model.system import usable_processors
    from storage.errors import ApspError

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.killpg(0, signal.SIGKILL)

    os.nice(LOWEST)
    threading.Thread(target=watch, daemon=True).start()
    try:
        warm(processes=min(int(sys.argv[1]), usable_processors()))
    except ApspError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
