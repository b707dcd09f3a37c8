"""The main job, shown: start the service, post a real road network, wait, ask for distances and a route.

Run it with ``./dev demo``.  It keeps everything in a temporary folder and stops the service at the end.  All it needs
of the service is HTTP, so it is also an example of a client.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GRAPH = HERE / "helsinki_drive.csv"
#: OpenStreetMap nodes in the centre of Helsinki.
PAIRS = [(1483296617, 760466577), (1380411607, 1369465868), (25291537, 6338725741), (311025101, 947965945)]
FINISHED = ("successful", "failed", "dismissed")


class Client:
    """The few requests that the demo makes."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """One request; its answer as JSON.  An error ends the demo with what the service says."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        address = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(address, data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            problem = json.load(error)
            sys.exit(f"{method} {path}: {problem['title']}: {problem['detail']}")

    def ready(self) -> bool:
        """Whether the service answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/health/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def service(data_dir: Path) -> Iterator[Client]:
    """The whole service in a process of its own, until the context ends."""
    port, log = free_port(), data_dir.parent / "service.log"
    command = [sys.executable, "-m", "service.cli.main", "serve", "--port", str(port), "--data-dir", str(data_dir)]
    with log.open("wb") as output:
        # only this machine can ask, for these few seconds: no key is needed
        environment = {**os.environ, "APSP_AUTH": "false"}
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        client = Client(f"http://127.0.0.1:{port}")
        deadline = time.monotonic() + 60
        while not client.ready():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the service did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.1)
        yield client
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(client: Client, job_id: str) -> dict[str, Any]:
    """Poll until the job is over, showing what changes."""
    shown = ""
    while True:
        job: dict[str, Any] = client.call("GET", f"/v1/jobs/{job_id}")
        line = f"{job['state']:<11}{job['phase'] or '':<10}{100 * job['progress']:4.0f} %{_pace(job)}"
        if line != shown:
            print(f"  {line}", flush=True)
            shown = line
        if job["state"] in FINISHED:
            return job
        time.sleep(0.2)


def _pace(job: dict[str, Any]) -> str:
    """Rate, from one a second, and time left, where the service knows them."""
    rate = f"  {job['rate']:,.0f} {job['unit']}/s" if (job["rate"] or 0) >= 1 else ""
    return rate if job["eta_seconds"] is None else f"{rate}  {job['eta_seconds']:.1f} s left"


def show_plan(plan: dict[str, Any]) -> None:
    """What the service will do, and why."""
    rows, columns = plan["shape"]
    print(f"  {plan['algorithm']} in {plan['dtype']}, a matrix of {rows:,} x {columns:,}: {plan['reason']}")


def show_answers(client: Client, job_id: str) -> None:
    """Summary, a few distances, one route."""
    summary = client.call("GET", f"/v1/jobs/{job_id}/summary")["summary"]
    share = summary["reached"] / summary["pairs"]
    ends = " to ".join(str(vertex) for vertex in summary["diameter_pair"])
    print(f"\nSummary: {summary['reached']:,} of {summary['pairs']:,} pairs are connected ({share:.1%});")
    print(f"  {summary['mean']:,.0f} m from one to another on average, {summary['diameter']:,.0f} m at most ({ends})")
    print("\nDistances (vertices are OpenStreetMap nodes, as in the file):")
    answer = client.call("POST", f"/v1/jobs/{job_id}/distances", {"pairs": PAIRS})
    for (u, v), distance in zip(PAIRS, answer["distances"], strict=True):
        print(f"  {u:>11} -> {v:<11} {'no way' if distance is None else f'{distance:,.1f} m':>10}")
    source, target = PAIRS[0]
    route = client.call("GET", f"/v1/jobs/{job_id}/path", source=source, target=target)
    steps = [str(route["vertices"][0])]
    steps += [
        f"-({weight:g} m)-> {vertex}" for weight, vertex in zip(route["weights"], route["vertices"][1:], strict=True)
    ]
    print(f"\nA route of {route['length']:,.1f} m:\n  " + "\n    ".join(steps))


def show_store(store: Path) -> None:
    """The result is a Zarr store; any Zarr reader opens it."""
    import xarray

    distances = xarray.open_zarr(store)["distances"]
    u, v = PAIRS[0]
    print(f"\nThe matrix in Python: xarray.open_zarr('{store.name}')['distances']")
    print(f"  dims {dict(distances.sizes)}, {distances.dtype}, {distances.nbytes / 2**20:.1f} MiB")
    print(f"  .sel(source={u}, target={v}) = {float(distances.sel(source=u, target=v)):,.3f}")


def main() -> None:
    """Run the demo."""
    with tempfile.TemporaryDirectory(prefix="apsp-demo-") as folder:
        data_dir = Path(folder) / "data"
        print("Starting the service ...", flush=True)
        with service(data_dir) as client:
            print(f"  {client.url}  (its API: {client.url}/docs)\nPosting {GRAPH.name} ...", flush=True)
            found = client.call("POST", "/v1/graphs", GRAPH.read_bytes(), name=GRAPH.name, filename=GRAPH.name)
            print(f"  {found['n']:,} vertices, {found['m']:,} arcs\nSolving ...", flush=True)
            job = client.call("POST", "/v1/jobs", {"graph": found["id"]})
            show_plan(job["plan"])
            job = wait_for(client, job["id"])
            if job["state"] != "successful":
                sys.exit(f"the job {job['state']}: {(job['error'] or {}).get('detail')}")
            show_answers(client, job["id"])
            show_store(data_dir / "jobs" / job["id"] / "matrix.zarr")
    print(
        "\nThe service is stopped and its folder removed. To go on with a graph of your own:\n"
        "  source .venv/bin/activate\n"
        "  apsp solve GRAPH --out matrix.zarr       all distances, from the command line\n"
        "  apsp query matrix.zarr distance U V      or: path U V, row U, summary\n"
        "  apsp serve --data-dir FOLDER             the service; its API under /docs"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
