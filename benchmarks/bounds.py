"""Times what a solve of a matrix cannot avoid: its bytes over the bus from one GPU, and its bytes into a folder.

    python -m benchmarks.bounds [--vertices 65536] [--folder /dev/shm] [--threads 16] [--out FILE]

The bus copies from device memory into locked host memory.  Plain writes of 4 MiB go to one new file a thread.  Neither
computes, compresses or checks anything.  Each is timed three times, and the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

#: Bytes of a copy over the bus, and of a write.
COPY: Final = 2**27
WRITE: Final = 2**22
TIMES: Final = 3


def bus_seconds(size: int) -> float:
    """Return the seconds in which ``size`` bytes of the GPU reach locked memory of the host."""
    import cupy

    host = cupy.cuda.alloc_pinned_memory(COPY)
    device = cupy.zeros(COPY, "u1")
    best, runtime = float("inf"), cupy.cuda.runtime
    for _ in range(TIMES):
        cupy.cuda.get_current_stream().synchronize()
        began = time.perf_counter()
        for _ in range(-(-size // COPY)):
            runtime.memcpyAsync(host.ptr, device.data.ptr, COPY, runtime.memcpyDeviceToHost, 0)
        runtime.deviceSynchronize()
        best = min(best, time.perf_counter() - began)
    return best * size / (-(-size // COPY) * COPY)


def write_seconds(size: int, folder: Path, threads: int) -> float:
    """Return the seconds in which ``threads`` threads write ``size`` bytes into new files of ``folder``, durably."""
    content = os.urandom(WRITE)
    pieces = -(-size // (WRITE * threads))

    def write(path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            for _ in range(pieces):
                file.write(content)
            os.fsync(file.fileno())

    best = float("inf")
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory(dir=folder, prefix="bounds-") as made, ThreadPoolExecutor(threads) as pool:
            began = time.perf_counter()
            list(pool.map(write, [Path(made) / str(i) for i in range(threads)]))
            best = min(best, time.perf_counter() - began)
    return best * size / (pieces * WRITE * threads)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=65536)
    parser.add_argument("--itemsize", type=int, default=4, help="bytes of an entry")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    size = given.vertices**2 * given.itemsize
    found = {
        "what": "bounds of a solve", "date": time.strftime("%Y-%m-%d"), "vertices": given.vertices, "bytes": size,
        "threads": given.threads, "bus_seconds": round(bus_seconds(size), 3),
        "write_seconds": round(write_seconds(size, given.folder, given.threads), 3),
    }  # fmt: skip
    print(json.dumps(found))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
