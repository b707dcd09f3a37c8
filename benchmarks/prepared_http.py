"""Times distances over HTTP from a prepared graph and from a solved store of the same graph, in alternation.

``python -m benchmarks.prepared GRAPH`` calls this for graphs whose matrix is small enough to be solved.  Each distance
is a request of its own, over one connection.  Rates are given for a processor second of the whole service, which say
how many distances a busy machine can serve, and for a wall second.  Both results must give the same answers.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np
import psutil

from storage.graph.graph import Graph
from tests.integration.service_process import LiveService

#: Number of requests in a round, and of rounds of each kind of result; the round with least processor seconds counts.
REQUESTS: Final = 2_000
ROUNDS: Final = 5
#: The most vertices of a graph that is also solved for its matrix.
MOST: Final = 25_000
KINDS: Final = {"solved": "matrix", "prepared": "prepared"}


def over_http(path: Path, graph: Graph) -> None:
    """Print how many distances a second the service answers from each kind of result, and the ratio of the rates.

    Args:
        path: the file of the graph.
        graph: the graph that was read from the file.
    """
    with tempfile.TemporaryDirectory() as folder, LiveService(Path(folder) / "data") as service:
        uploaded = service.upload(path.read_bytes(), name=path.name)
        jobs = {kind: _finished(service, uploaded["id"], result) for kind, result in KINDS.items()}
        pairs = graph.labels[np.random.default_rng(2).integers(0, graph.n, (REQUESTS, 2))].tolist()
        address = http.client.HTTPConnection(service.http.base_url.host, service.http.base_url.port)
        rounds: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        answers: dict[str, list[Any]] = {}
        for _ in range(ROUNDS + 1):  # the first one, which opens results and fills caches, does not count
            for kind, job in jobs.items():
                wall, used = time.perf_counter(), _used(service)
                answers[kind] = [_distance(address, job, *pair) for pair in pairs]
                rounds[kind].append((_used(service) - used, time.perf_counter() - wall))
        address.close()
    differ = sum(one != other for one, other in zip(answers["solved"], answers["prepared"], strict=True))
    rates = {kind: REQUESTS / min(used for used, _ in found[1:]) for kind, found in rounds.items()}
    for kind, found in rounds.items():
        print(f"  a distance over HTTP, {kind:10s} {rates[kind]:10,.0f} a processor second of the service, "
              f"{REQUESTS / min(wall for _, wall in found[1:]):10,.0f} a second")  # fmt: skip
    print(f"  prepared / solved {rates['prepared'] / rates['solved']:.2f} (asked: 0.9); {differ} of {REQUESTS} differ")


def _finished(service: LiveService, graph: str, result: str) -> str:
    job: str = service.submit(graph, result=result)["id"]
    while (found := service.http.get(f"/v1/jobs/{job}", headers={"Prefer": "wait=30"}).json())["state"] in (
        "accepted", "running",
    ):  # fmt: skip
        time.sleep(0.2)
    assert found["state"] == "successful", found
    return job


def _used(service: LiveService) -> float:
    """Return the processor seconds of all processes of the service."""
    process = psutil.Process(service.process.pid)
    return sum(sum(each.cpu_times()[:2]) for each in [process, *process.children(recursive=True)])


def _distance(connection: http.client.HTTPConnection, job: str, source: Any, target: Any) -> Any:
    query = urlencode({"source": source, "target": target})
    connection.request("GET", f"/v1/jobs/{job}/distance?{query}")
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body
    return json.loads(body)["distance"]
