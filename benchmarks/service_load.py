"""Helpers of ``benchmarks.service``: load by wrk, a bare endpoint, prepared stores, and memory of processes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.graphs import road
from storage.graph.graph import Graph
from storage.graph.graph_store import GraphStore
from storage.jobs.store import GraphRecord, JobStore
from storage.matrix.reader import MatrixSpec, create_matrix
from storage.matrix.writer import MatrixWriter

#: program of a FastAPI endpoint that returns a constant, written as in FastAPI's documentation
BARE: Final = """
import socket, sys
import uvicorn
from fastapi import FastAPI

app = FastAPI()
ANSWER = {"source": 17, "target": 4711, "reachable": True, "distance": 1234}

@app.get("/distance")
async def distance():
    return ANSWER

# the protocol is named so that asyncio sets TCP_NODELAY on what is accepted
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listener.bind(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
"""
#: script of wrk that requests the paths in a file one after the other, beginning at a random one
_SCRIPT: Final = """
local paths = {}
for line in io.lines(os.getenv("WRK_PATHS")) do paths[#paths + 1] = line end
math.randomseed(os.time())
local at = math.random(#paths)
request = function()
  at = at % #paths + 1
  return wrk.format("GET", paths[at])
end
"""
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_BYTES: Final = {"B": 1.0, "KB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30}


@dataclass(frozen=True)
class Load:
    """The figures of one run of wrk.

    ``rate`` and ``bytes`` are requests and bytes a second, ``median`` and ``p99`` are seconds of an answer.
    ``processor`` is the server's processor seconds for each request, which depend least on other work of the machine.
    """

    rate: float
    bytes: float
    median: float
    p99: float
    processor: float


def wrk(
    base: str,
    paths: Sequence[str],
    folder: Path,
    *,
    process: int,
    clients: int,
    seconds: float,
    headers: Sequence[str] = (),
) -> Load:
    """Request the paths from a server, again and again; ``process`` is the number of the server's process.

    Raises RuntimeError if an answer is no success.
    """
    script, listed = folder / "load.lua", folder / "paths"
    script.write_text(_SCRIPT)
    listed.write_text("\n".join(paths) + "\n")
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds:g}s", "--latency", "--timeout", "30s", "-s", str(script)]
    for header in headers:
        command += ["-H", header]
    before = processor(process)
    output = subprocess.run(
        [*command, base], env={**os.environ, "WRK_PATHS": str(listed)}, capture_output=True, text=True, check=True
    ).stdout
    used = processor(process) - before
    if "Non-2xx" in output or "Socket errors" in output:
        raise RuntimeError(output)

    def found(pattern: str) -> tuple[float, str]:
        match = re.search(pattern, output)
        assert match is not None, output
        return float(match[1]), match[2] if match.re.groups > 1 else ""

    half, last = found(r" 50%\s+([\d.]+)([a-z]+)"), found(r" 99%\s+([\d.]+)([a-z]+)")
    moved = found(r"Transfer/sec:\s+([\d.]+)([KMG]?B)")
    return Load(
        found(r"Requests/sec:\s+([\d.]+)")[0], moved[0] * _BYTES[moved[1]], half[0] * _UNITS[half[1]],
        last[0] * _UNITS[last[1]], used / max(1.0, found(r"(\d+) requests in")[0]),
    )  # fmt: skip


def stream(base: str, paths: Sequence[str], seconds: float, *, bearer: str) -> tuple[float, float]:
    """Return the bytes a second of one client, and its median seconds from a request to the first byte of the answer.

    The client gets one file after the other over one connection, and reads up to 1 MiB at a time, as clients of arrays
    do.  wrk reads only 8 KiB at a time, which limits its rate.
    """
    host, port = base.removeprefix("http://").split(":")
    view, firsts, total = memoryview(bytearray(1 << 20)), [], 0
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = now = time.perf_counter()
        for path in itertools.cycle(paths):
            if now > began + seconds:
                break
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer}\r\n\r\n".encode())
            got = connection.recv_into(view)
            firsts.append(time.perf_counter() - now)
            head, _, body = bytes(view[:got]).partition(b"\r\n\r\n")
            match = re.search(rb"HTTP/1.1 200 .*\r\ncontent-length: (\d+)", head, re.DOTALL | re.IGNORECASE)
            if match is None:
                raise RuntimeError(f"{path}: {head.decode('latin-1') or 'the connection ended'}")
            left = int(match[1]) - len(body)
            while left > 0 and (got := connection.recv_into(view)):
                left -= got
            if left:
                raise RuntimeError(f"{path}: the connection ended")
            total, now = total + int(match[1]), time.perf_counter()
    return total / (now - began), statistics.median(firsts)


@contextlib.contextmanager
def bare_endpoint() -> Iterator[tuple[str, int]]:
    """Context manager: yield the address and the process number of a server that returns a constant."""
    process = subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        base = f"http://127.0.0.1:{int(process.stdout.readline())}"
        time.sleep(1.5)
        yield base, process.pid
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def processor(process: int) -> float:
    """Return the processor seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settle(process: int) -> None:
    """Wait until a process that has just started is idle."""
    used = -1.0
    while (now := processor(process)) > used + 0.02:
        used = now
        time.sleep(1)


def memory(process: int, name: str = "VmRSS") -> int:
    """Return the bytes of memory of a process: ``VmRSS`` at present, ``VmHWM`` at the peak since ``forget_peak``."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def forget_peak(process: int) -> None:
    """Reset ``VmHWM``, the peak of a process, to its present memory."""
    Path(f"/proc/{process}/clear_refs").write_text("5")


class _LinkedWriter:
    """Fills a store of a matrix that is too large for the disk: all bands of tiles are hard links to the first band."""

    def __init__(self, writer: MatrixWriter) -> None:
        self._writer = writer

    def repeat_first_band(self) -> None:
        """Link every tile of the other bands to the tile of the same column in the first band."""
        writer = self._writer
        tiles, (down, across) = Path(writer._tiles), writer._grid.counts
        for i in range(1, down):
            (tiles / str(i)).mkdir(exist_ok=True)
            for j in range(across):
                os.link(tiles / "0" / str(j), tiles / str(i) / str(j))
        writer._checksums[1:] = writer._checksums[0]
        writer._sizes[1:] = writer._sizes[0]


def add_job(data: Path, graph: Graph, fill: Callable[[MatrixWriter], object]) -> str:
    """Make a finished job in a data directory that no service uses yet, and return its id.

    ``fill(writer)`` is called to write the tiles.
    """
    from service.settings import Settings

    settings = Settings.load({}, data_dir=data)
    (data / "jobs").mkdir(parents=True, exist_ok=True)
    jobs = JobStore(settings.database)
    receipt: Any = {"entries": graph.arcs}
    from storage.graph.graph import Receipt

    graph_id, digest = GraphStore(data).add(graph, Receipt("edges", None, graph.arcs, 0, 0, 0, "weight"))
    jobs.add_graph(GraphRecord(graph_id, digest, "made", graph.n, graph.m, {}, receipt, time.time()))
    record = jobs.create(graph_id, {}, {})
    claimed = jobs.claim("benchmark")
    assert claimed is not None
    path = settings.store(record.id)
    path.parent.mkdir()
    with create_matrix(path, graph, MatrixSpec("uint16", 2**15 - 1, attributes={"unit": "weight"})) as writer:
        fill(writer)
        writer.seal({})
    jobs.succeed(claimed, {}, {})
    jobs.close()
    return record.id


def add_large_jobs(data: Path, n: int, count: int) -> tuple[list[str], int]:
    """Make jobs of about ``n`` vertices in uint16, whose bands of tiles are all equal.

    Returns the ids of the jobs, and the exact number of vertices.
    """
    graph = road(n)
    rng = np.random.default_rng(1)

    def fill(writer: MatrixWriter) -> None:
        writer.write(0, 0, rng.integers(0, 30_000, (writer.tile[0], graph.n)).astype(writer.dtype))
        _LinkedWriter(writer).repeat_first_band()

    return [add_job(data, graph, fill) for _ in range(count)], graph.n


def drop_cache(folder: Path) -> None:
    """Make the kernel drop the contents of all files below a folder from its cache."""
    seen = set()
    for path in folder.rglob("*"):
        if path.is_file() and (number := path.stat().st_ino) not in seen:
            seen.add(number)
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def edge_list(graph: Graph) -> bytes:
    """Return the graph as the text of an edge list, with each edge once."""
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    once = tails < graph.heads
    columns = (tails[once].tolist(), graph.heads[once].tolist(), graph.weights[once].tolist())
    return "\n".join(f"{u} {v} {w}" for u, v, w in zip(*columns, strict=True)).encode()


def as_json(value: object) -> str:
    """Return a value as JSON without blanks."""
    return json.dumps(value, separators=(",", ":"))
