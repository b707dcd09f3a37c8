"""Tests that fetching a store takes the same memory for a small store and for a large one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from storage.matrix.reader import MatrixSpec, create_matrix
from tests.stores import line_graph

MIB = 1 << 20
#: The peak of its own process, which is not ru_maxrss: a child starts with that of its parent.
FETCH = """
import re, sys
from pathlib import Path
from service.client import Client, fetching
from service.client.flows import job_path
with Client(sys.argv[1], "k") as client:
    place = job_path(sys.argv[2], "zarr")
    client.run(fetching.fetch(place, Path(sys.argv[3]), client.patience, overwrite=False, meter=None))
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024)
"""


class Files(SimpleHTTPRequestHandler):
    """Stores below a folder, at the addresses that the service gives them."""

    def translate_path(self, path: str) -> str:
        job, _, key = path.removeprefix("/v1/jobs/").partition("/zarr/")
        return str(Path(self.directory) / job / key)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: Files(*given, directory=str(tmp_path)))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def make_store(path: Path, n: int) -> None:
    graph = line_graph(n)
    with create_matrix(path, graph, MatrixSpec(np.float32, np.inf)) as writer:
        for top in range(0, n, 64):
            rows = min(64, n - top)
            writer.write(top, 0, np.full((rows, n), top, np.float32))
        writer.seal({})


def test_memory_does_not_grow_with_the_store(url, tmp_path):
    peaks = []
    for n in (600, 5000):
        make_store(tmp_path / f"job{n}", n)
        command = [sys.executable, "-c", FETCH, url, f"job{n}", str(tmp_path / f"{n}.zarr")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
        peaks.append(int(done.stdout))
        assert sum(file.stat().st_size for file in (tmp_path / f"{n}.zarr").rglob("*")) > 4 * n * n
    print(f"peak of a fetch: {peaks[0] / MIB:.0f} MiB for 1.4 MiB, {peaks[1] / MIB:.0f} MiB for 96 MiB")
    # four tiles of 2 MiB are read again to be checked, four pieces are on their way
    assert peaks[1] - peaks[0] < 24 * MIB
