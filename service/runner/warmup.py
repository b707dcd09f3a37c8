"""Imports the engine and loads its kernels step by step while a runner is idle."""

from __future__ import annotations

import importlib
import logging
import tempfile
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


class WarmUp:
    """The remaining steps; a step that fails is only logged, because none is necessary."""

    def __init__(self) -> None:
        self._steps = _steps()

    def step(self) -> bool:
        """Do the next step; False when there is none."""
        try:
            return next(self._steps, None) is not None
        except Exception as error:
            log.warning("a warm-up failed: %s", error)
            return True


def _steps() -> Iterator[bool]:
    for name in _MODULES:
        importlib.import_module(name)
        yield True
    for options, whole in _SOLVES:
        _solve(options, whole)
        yield True


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
