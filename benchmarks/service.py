"""Measures the service under load: ``python -m benchmarks.service [--only WORD ...] [--rounds 3] [--out FOLDER]``.

The program starts the real service (with keys, one API process), nginx with the files of deploy/, and, for comparison,
a *bare endpoint* of FastAPI, which returns a constant.  It loads them one after the other with wrk and with a client of
the standard library, prints a Markdown table, and writes JSON to ``benchmarks/results/``.  It needs wrk, nginx and
curl, which are packages of Debian.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import service_load as load
from benchmarks.graphs import road
from benchmarks.peers import facts
from tests.integration.keyed_service import KeyedService
from tests.integration.nginx_process import Nginx

MB: Final = 1e6
#: settings of all services here, with limits so high that wrk does not reach them
_SETTINGS: Final = {"APSP_MAX_REQUESTS_PER_SECOND": "1000000000", "APSP_MAX_OPEN_JOBS": "100000"}


@dataclass
class Row:
    """One figure with the value that was required, whether that was reached (``met``), and further facts."""

    name: str
    value: float
    unit: str
    wanted: str
    met: bool
    more: dict[str, Any] = field(default_factory=dict)


class Bench:
    """The graph that the services solve, the number of rounds, and the figures so far."""

    def __init__(self, folder: Path, rounds: int, n: int) -> None:
        self.folder, self.rounds, self.rows = folder, rounds, list[Row]()
        graph = road(n)
        self.graph = load.edge_list(graph)
        #: the names of the vertices that have an edge
        self.names = np.unique(graph.heads).tolist()
        self.n = len(self.names)

    def note(self, name: str, value: float, unit: str, wanted: str, met: bool, **more: Any) -> None:
        """Record and print one figure; ``wanted`` is the required value, and ``met`` whether it was reached."""
        self.rows.append(Row(name, value, unit, wanted, met, more))
        print(f"| {name} | {value:.4g} {unit} | {wanted} | {'yes' if met else 'NO'} | {load.as_json(more)}", flush=True)

    def solve(self, service: KeyedService) -> str:
        """Solve the graph on a service, and return the id of the job."""
        job = service.submit(service.upload(self.graph)["id"])["id"]
        found = service.wait(job, seconds=900)
        assert found["state"] == "successful", found
        return str(job)


# Streaming


def streaming(bench: Bench) -> None:
    """Measure how fast the application, and nginx before it, send tiles."""
    for accelerated in (False, True):
        settings = {**_SETTINGS, **({"APSP_ACCEL_PREFIX": "/apsp-files"} if accelerated else {})}
        data = bench.folder / f"stream{int(accelerated)}"
        with KeyedService(data, **settings) as service:
            job = bench.solve(service)
            tiles = sorted((data / "jobs" / job / "matrix.zarr" / "distances" / "c").glob("*/*"))
            paths = [f"/v1/jobs/{job}/zarr/distances/c/{tile.parent.name}/{tile.name}" for tile in tiles]
            if not accelerated:
                _stream(bench, "application, one stream", service.url, paths, service, wanted=300 * MB)
                continue
            with Nginx(bench.folder / "nginx", service.url.removeprefix("http://"), data) as nginx:
                _stream(bench, "nginx, one stream", nginx.plain, paths, service, wanted=1000 * MB)
                _stream(bench, "nginx, four streams", nginx.plain, paths, service, wanted=1000 * MB, clients=4)


def _stream(
    bench: Bench, name: str, base: str, paths: list[str], service: KeyedService, *, wanted: float, clients: int = 1
) -> None:
    """Measure tiles that are requested one after the other on each connection, with wrk.

    A single stream is also measured with ``load.stream``, which reads more bytes at once than wrk.
    """
    headers, number = [f"Authorization: {service.bearer}"], service.process.pid

    def by_wrk(seconds: float) -> load.Load:
        return load.wrk(base, paths, bench.folder, process=number, clients=clients, seconds=seconds, headers=headers)

    by_wrk(4)
    load.forget_peak(number)
    before = load.memory(number)
    found, own = [], []
    for _ in range(bench.rounds):
        found.append(by_wrk(4))
        if clients == 1:
            own.append(load.stream(base, paths, 4, bearer=service.bearer))
    grown = load.memory(number, "VmHWM") - before
    best = max([*(item.bytes for item in found), *(rate for rate, _ in own)])
    more = {"wrk_mb_s": [item.bytes / MB for item in found], "mb_s": [rate / MB for rate, _ in own],
            "first_byte_ms": [first * 1000 for _, first in own]}  # fmt: skip
    bench.note(
        f"tiles from {name}", best / MB, "MB/s", f"≥ {wanted / MB:g}", best >= wanted,
        grown_mb=grown / MB, tiles_a_second=max(item.rate for item in found), **more,
        mb_a_processor_second=max(item.bytes / item.rate / item.processor for item in found) / MB,
    )  # fmt: skip


# Queries


def queries(bench: Bench) -> None:
    """Measure distances beside the bare endpoint, then routes, rows and many pairs, with a store in the caches."""
    with KeyedService(bench.folder / "queries", **_SETTINGS) as service, load.bare_endpoint() as bare:
        base = f"/v1/jobs/{bench.solve(service)}"
        rng = random.Random(1)
        pairs = [(rng.choice(bench.names), rng.choice(bench.names)) for _ in range(20_000)]
        _warm(service, base, bench.names)
        paths = [f"{base}/distance?source={u}&target={v}" for u, v in pairs]
        _beside(bench, service, bare, paths)
        headers = [f"Authorization: {service.bearer}"]
        for name, kind in (("a route", "path?source={}&target={}"), ("a row as npy", "rows?format=npy&sources={}")):
            some = [f"{base}/{kind.format(u, v)}" for u, v in pairs[:2000]]
            found = [
                load.wrk(
                    service.url, some, bench.folder, process=service.process.pid, clients=1, seconds=4, headers=headers
                )
                for _ in range(bench.rounds)
            ]
            best = min(item.p99 for item in found)
            middle, rate = min(item.median for item in found), max(item.rate for item in found)
            bench.note(f"{name}, p99", best * 1000, "ms", "≤ 50", best <= 0.05, median_ms=middle * 1000, rate=rate)
        _many_pairs(bench, service, base, pairs[:10_000])


def _warm(service: KeyedService, base: str, names: list[int]) -> None:
    """Read every tile once, so that the caches hold the store."""
    for u in names[::64]:
        assert service.http.get(f"{base}/rows", params={"sources": u, "format": "npy"}).status_code == 200
    assert service.http.get(f"{base}/path", params={"source": names[0], "target": names[-1]}).status_code == 200


def _beside(bench: Bench, service: KeyedService, bare: tuple[str, int], paths: list[str]) -> None:
    headers = [f"Authorization: {service.bearer}"]

    def ask(seconds: float) -> tuple[load.Load, load.Load]:
        folder, (address, number) = bench.folder, bare
        plain = load.wrk(address, ["/distance"], folder, process=number, clients=32, seconds=seconds)
        number = service.process.pid
        return plain, load.wrk(service.url, paths, folder, process=number, clients=32, seconds=seconds, headers=headers)

    ask(1)
    plain, ours = zip(*[ask(5) for _ in range(2 * bench.rounds)], strict=True)
    more = {"bare": [asdict(item) for item in plain], "distance": [asdict(item) for item in ours]}
    share = max(own.rate for own in ours) / max(other.rate for other in plain)
    bench.note("a distance: requests a second by those of the bare endpoint", share, "", "≥ 0.5", share >= 0.5, **more)
    share = min(other.processor for other in plain) / min(own.processor for own in ours)
    bench.note("the same by processor seconds for each request", share, "", "≥ 0.5", share >= 0.5)
    p99 = min(own.p99 for own in ours) / min(other.p99 for other in plain)
    turns = [own.p99 / other.p99 for own, other in zip(ours, plain, strict=True)]
    bench.note(
        "a distance: p99 by that of the bare endpoint", p99, "", "≤ 2", p99 <= 2,
        median_of_turns=statistics.median(turns), turns=turns,
    )  # fmt: skip


def _many_pairs(bench: Bench, service: KeyedService, base: str, pairs: list[tuple[int, int]]) -> None:
    body = load.as_json({"pairs": pairs}).encode()
    found = []
    for _ in range(2 * bench.rounds):
        seconds, answer = timed(lambda: service.http.post(
            f"{base}/distances", content=body, headers={"Content-Type": "application/json"}))  # fmt: skip
        assert answer.status_code == 200, answer.text
        found.append(seconds)
    bench.note(f"{len(pairs):,} pairs in a request", min(found), "s", "≤ 0.5", min(found) <= 0.5, all=found)


def cold(bench: Bench) -> None:
    """Measure queries of a store of 100,000 vertices that is not open, and of which the kernel caches nothing."""
    data = bench.folder / "cold"
    jobs, n = load.add_large_jobs(data, 100_000, 2)
    with KeyedService(data, **_SETTINGS, APSP_MATRIX_CACHE="1") as service:
        load.settle(service.process.pid)
        rng = random.Random(1)
        for name, wanted, kind in (("distance", 0.05, "distance?source={}&target={}"),
                                   ("row", 0.15, "rows?format=npy&sources={}")):  # fmt: skip
            found = []
            for turn in range(4 * bench.rounds + 1):
                job = jobs[turn % 2]  # the service keeps one store open: the last query has closed this job's store
                load.drop_cache(data / "jobs" / job)
                path = f"/v1/jobs/{job}/{kind.format(rng.randrange(n), rng.randrange(n))}"
                seconds, answer = timed(partial(service.http.get, path))
                assert answer.status_code == 200, answer.text
                found.append(seconds)
            best, middle = min(found), statistics.median(found)
            bench.note(
                f"a cold {name} of {n:,} vertices", best * 1000, "ms", f"≤ {wanted * 1000:g}", best <= wanted,
                median_ms=middle * 1000, first_ms=found[0] * 1000,
            )  # fmt: skip


# Uploads and jobs


def uploads(bench: Bench) -> None:
    """Measure the time of receiving a file alone: after receiving, the file is refused for its wrong digest."""
    size = 3 * 10**8
    path = bench.folder / "upload"
    with path.open("wb") as file:
        piece = (b"# " + b"x" * 997 + b"\n") * 1000
        for _ in range(size // len(piece)):
            file.write(piece)
    with KeyedService(bench.folder / "uploads", **_SETTINGS) as service:
        command = [
            "curl", "-sS", "-X", "POST", "-T", str(path), "-H", f"Authorization: {service.bearer}", "-H", "Expect:",
            "-H", f"Content-Digest: sha-256=:{'A' * 43}=:", "-w", "\n%{http_code} %{time_total}",
            f"{service.url}/v1/graphs",
        ]  # fmt: skip
        load.settle(service.process.pid)
        load.forget_peak(service.process.pid)
        before, found, used = load.memory(service.process.pid), [], []
        for _ in range(bench.rounds):
            worked = load.processor(service.process.pid)
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            used.append(size / (load.processor(service.process.pid) - worked))
            status, seconds = output.splitlines()[-1].split()
            assert (status, "Content-Digest" in output) == ("422", True), output
            found.append(size / float(seconds))
        grown = load.memory(service.process.pid, "VmHWM") - before
    path.unlink()
    bench.note("an upload", max(found) / MB, "MB/s", "≥ 200", max(found) >= 200 * MB, all=[x / MB for x in found],
               mb_a_processor_second=max(used) / MB)  # fmt: skip
    bench.note("memory that uploads took", grown / MB, "MB", "< 50", grown < 50 * MB)


def jobs(bench: Bench) -> None:
    """Measure the time of a small job beyond that of its solve, and the submissions a second."""
    with KeyedService(bench.folder / "jobs", **_SETTINGS) as service:
        _latency(bench, service)
        tiny = service.upload(b"1 2 3\n2 3 4\n3 4 5\n")["id"]
        service.wait(service.submit(tiny)["id"])
        rates = [_submit(service, 200, {"graph": tiny, "fresh": True}) for _ in range(bench.rounds)]
        bench.note("submissions of jobs", max(rates), "/s", "≥ 100", max(rates) >= 100, all=rates)
        # the waiting jobs are of no use, so they are cancelled
        for job in service.http.get("/v1/jobs", params={"state": "accepted", "limit": 200}).json()["jobs"]:
            service.http.post(f"/v1/jobs/{job['id']}/cancel")


def _latency(bench: Bench, service: KeyedService) -> None:
    graph = service.upload(load.edge_list(road(1000)))["id"]
    service.wait(service.submit(graph)["id"])
    time.sleep(5)  # the runner warms up while it is idle
    over, found, ask = [], {}, {"graph": graph, "fresh": True}
    for _ in range(5 * bench.rounds):
        seconds, answer = timed(lambda: service.http.post("/v1/jobs", json=ask, headers={"Prefer": "wait=30"}))
        found = answer.json()
        assert found["state"] == "successful", found
        # the seconds that the runner spent on computing distances, without loading, creating the store and sealing
        solved = sum(value for name, value in found["seconds"].items() if name not in ("load", "create", "seal"))
        over.append(seconds - solved)
    bench.note(
        "a job of 1,000 vertices, submission to result, beyond its solve time", min(over) * 1000, "ms", "≤ 150",
        min(over) <= 0.15, median_ms=statistics.median(over) * 1000, last=found["seconds"],
    )  # fmt: skip


def _submit(service: KeyedService, count: int, body: object, clients: int = 8) -> float:
    """Return the accepted jobs a second of several clients, each with its own connection."""
    host, port = service.url.removeprefix("http://").split(":")
    headers = {"Authorization": service.bearer, "Content-Type": "application/json"}
    failures: list[str] = []

    def run(share: int) -> None:
        connection = http.client.HTTPConnection(host, int(port))
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(share):
            connection.request("POST", "/v1/jobs", load.as_json(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 201:
                failures.append(f"{answer.status} {text[:200]!r}")
        connection.close()

    threads = [threading.Thread(target=run, args=(count // clients,)) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    return count / (time.perf_counter() - began)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and its result."""
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


PARTS: Final[dict[str, Callable[[Bench], None]]] = {
    "streaming": streaming, "queries": queries, "cold": cold, "uploads": uploads, "jobs": jobs,
}  # fmt: skip


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vertices", type=int, default=20_000, help="of the warm store")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    print("| measured | best | asked for | met | |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.rounds, options.vertices)
        for part in options.only:
            print(part, file=sys.stderr, flush=True)
            PARTS[part](bench)
    found = {"facts": facts(2), "load generator": "wrk -t1, curl, http.client", "rounds": options.rounds,
             "load average": [before, os.getloadavg()[0]]}  # fmt: skip
    record = {**found, "vertices": bench.n, "rows": [asdict(row) for row in bench.rows]}
    options.out.mkdir(parents=True, exist_ok=True)
    path = (
        options.out
        / f"service-{found['facts']['date']}-{'-'.join(options.only) if len(options.only) < 5 else 'all'}.json"
    )
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{path}")


if __name__ == "__main__":
    main()
