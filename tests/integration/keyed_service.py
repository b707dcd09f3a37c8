"""Starts a real service that requires keys, with a result whose distances are all known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.integration.service_process import LiveService


class KeyedService(LiveService):
    """As :class:`LiveService`, with keys; ``key`` is the first one, which may do everything."""

    def __init__(self, data: Path, **settings: str) -> None:
        super().__init__(data, **{"APSP_AUTH": "true", **settings})

    def __enter__(self) -> KeyedService:
        super().__enter__()
        assert self.process.stdout is not None
        self.key = self.process.stdout.readline().split()[-1]
        self.http.headers["Authorization"] = self.bearer
        self.url = str(self.http.base_url).rstrip("/")
        return self

    @property
    def bearer(self) -> str:
        """The value of an Authorization header."""
        return f"Bearer {self.key}"


@dataclass(frozen=True)
class Solved:
    """A finished job: its id, and the distances, shape (100, 20,000), int32, as they have to be stored."""

    job: str
    distances: npt.NDArray[np.int32]

    @property
    def zarr(self) -> str:
        """The path of the store on the service."""
        return f"/v1/jobs/{self.job}/zarr"


def solve_line(service: LiveService, n: int = 20_000, rows: int = 100) -> Solved:
    """Solve a one-way street through ``n`` vertices from its first ``rows``: tiles side by side, half a row no path."""
    weights = np.arange(n - 1) % 9 + 1
    lines = "\n".join(f"{i} {i + 1} {w}" for i, w in enumerate(weights.tolist()))
    graph = service.upload(lines.encode(), directed=True)
    asked: dict[str, Any] = {"sources": list(range(n - rows // 2, n)) + list(range(rows - rows // 2))}
    job = service.wait(service.submit(graph["id"], dtype="int32", **asked)["id"])
    assert job["state"] == "successful", job
    along = np.concatenate([[0], np.cumsum(weights)])
    sources = np.array(asked["sources"])
    distances = along[None, :] - along[sources, None]
    unreachable = 2**30 - 1
    return Solved(job["id"], np.where(distances < 0, unreachable, distances).astype(np.int32))
