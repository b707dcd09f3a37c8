"""Checks that a GPU computes, by a tiny solve in a separate process that may hang or crash without harm.

The separate process is ``python -m service.runner.gpu_probe``; CUDA_VISIBLE_DEVICES says which device it sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from service.runner.gpus import visible

_SIDE: Final = 96


def probe(device: int, seconds: float) -> str | None:
    """Return None if the device computes correctly within ``seconds``, else the reason why it does not."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible(device)}
    command = [sys.executable, "-m", "service.runner.gpu_probe"]
    try:
        done = subprocess.run(  # noqa: S603 - nothing in it comes from outside
            command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the probe gave no answer within {seconds:g} s"
    if done.returncode == 0:
        return None
    words = done.stderr.strip().splitlines()
    return words[-1][:400] if words else f"the probe ended with status {done.returncode}"


def compute() -> None:
    """Solve a directed cycle on the device and compare with the known distances."""
    import numpy as np

    from engine.api.solve import make_plan, solve
    from engine.model.problem import Options
    from engine.model.rows import ArraySink
    from storage.graph.graph import build_graph

    vertices = np.arange(_SIDE)
    graph, _ = build_graph(vertices, np.roll(vertices, -1), np.ones(_SIDE, np.int64), directed=True)
    options = Options(device="cuda", dtype="int32")
    sink = ArraySink((_SIDE, _SIDE), np.int32)
    solve(graph, make_plan(graph, options), options, sink)
    expected = (vertices[None, :] - vertices[:, None]) % _SIDE
    if not np.array_equal(sink.array, expected):
        raise ArithmeticError("the device computes wrong distances")


if __name__ == "__main__":
    try:
        compute()
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}".replace("\n", " "))
