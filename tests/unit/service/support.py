"""A solved job made without reader, planner or solver: what the service only has to serve."""

from __future__ import annotations

import functools
import pickle
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import anyio.to_thread
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from engine.graph.profile import GraphProfile
from engine.model.progress import Monitor
from service.api.fault import Fault, Refused
from service.pool import answers
from service.pool.process import guarded
from service.pool.tabled import TableTask
from service.pool.tasks import job_options
from service.settings import Settings
from storage.graph.graph import Graph, Receipt, build_graph
from storage.graph.graph_store import GraphStore
from storage.jobs.store import GraphRecord, JobStore
from storage.matrix.reader import MatrixSpec, create_matrix
from storage.tables.reader import open_table

RECEIPT = Receipt("csv", None, 5, 0, 0, 0, "weight")
UNREACHABLE = {"uint16": 2**15 - 1, "int32": 2**30 - 1, "float32": np.inf, "float64": np.inf}


class InlinePool:
    """Helper processes without processes: what crosses a pipe is pickled, and errors come back as they do."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def wait(self, task: Callable[..., Any], *given: Any, owner: str | None = None) -> Any:
        self.asked.append((owner, given[1:]))
        task, given = pickle.loads(pickle.dumps((task, given)))
        found = pickle.loads(pickle.dumps(guarded(task, given)))
        if isinstance(found, Fault):
            raise Refused(found)
        return found

    async def run(
        self, task: Callable[..., Any], *given: Any, owner: str | None = None, seconds: float | None = None
    ) -> Any:
        return await anyio.to_thread.run_sync(functools.partial(self.wait, task, *given, owner=owner))

    def stop(self) -> None:
        """Let go of what the tasks have opened in this process."""
        while answers._held:
            answers._held.popitem()[1].matrix.close()


class Bench:
    """The data directory of a service, filled directly: graphs and finished jobs without reader or solver."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        (settings.data_dir / "jobs").mkdir(parents=True, exist_ok=True)
        self.jobs = JobStore(settings.database, timeout=settings.database_timeout)

    def add_graph(self, graph: Graph) -> str:
        graph_id, digest = GraphStore(self.settings.data_dir, self.settings.store_url).add(graph, RECEIPT)
        self.jobs.add_graph(GraphRecord(graph_id, digest, "bench", graph.n, graph.m, {}, asdict(RECEIPT), time.time()))
        return graph_id

    def solved(
        self, graph: Graph, dtype: str, sources: list[int] | None = None, targets: list[int] | None = None
    ) -> tuple[str, np.ndarray]:
        """A successful job with distances from SciPy; returns its id and them, shape (rows, columns), inf inside."""
        arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
        distances = shortest_path(arcs, directed=True)
        distances = distances if sources is None else distances[sources]
        distances = distances if targets is None else distances[:, targets]
        record = self.jobs.create(self.add_graph(graph), {}, {})
        claimed = self.jobs.claim("bench")
        assert claimed is not None
        assert claimed.id == record.id
        path = self.settings.store(record.id)
        path.parent.mkdir()
        summary = {"pairs": graph.n * (graph.n - 1)}
        spec = MatrixSpec(
            np.dtype(dtype),
            UNREACHABLE[dtype],
            sources=None if sources is None else np.array(sources),
            targets=None if targets is None else np.array(targets),
            attributes={"unit": "weight", "algorithm": "dijkstra", "max_hops": None},
        )
        with create_matrix(path, graph, spec) as writer:
            writer.write(0, 0, np.where(np.isinf(distances), UNREACHABLE[dtype], distances).astype(dtype))
            writer.seal(summary)
        assert self.jobs.succeed(claimed, summary, {"search": 0.5})
        return record.id, distances

    def summed(self, graph: Graph, *names: str) -> str:
        """A successful job that sums quantities along its paths; returns its id."""
        from engine.api.solve import solve_to_store
        from engine.model.problem import Options

        record = self.jobs.create(self.add_graph(graph), {"also": list(names)}, {})
        claimed = self.jobs.claim("bench")
        assert claimed is not None
        path = self.settings.store(record.id)
        path.parent.mkdir()
        outcome = solve_to_store(graph, Options(also=names), path)
        assert self.jobs.succeed(claimed, outcome.summary, {"search": 0.5})
        return record.id

    def valued(self, graph: Graph, semiring: str) -> str:
        """A successful job of another semiring than min-plus; returns its id."""
        from engine.api.solve import solve_to_store
        from engine.model.problem import Options

        record = self.jobs.create(self.add_graph(graph), {"semiring": semiring}, {})
        claimed = self.jobs.claim("bench")
        assert claimed is not None
        path = self.settings.store(record.id)
        path.parent.mkdir()
        outcome = solve_to_store(graph, Options(semiring=semiring), path)
        assert self.jobs.succeed(claimed, outcome.summary, {"search": 0.5})
        return record.id

    def prepared(self, graph: Graph, dtype: str) -> tuple[str, np.ndarray]:
        """A successful job whose result is prepared; returns what ``solved`` returns."""
        from engine.api.prepared import prepare
        from engine.model.problem import Options

        arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
        record = self.jobs.create(self.add_graph(graph), {"result": "prepared"}, {})
        claimed = self.jobs.claim("bench")
        assert claimed is not None
        path = self.settings.store(record.id)
        path.parent.mkdir()
        prepare(graph, path, Options(dtype=dtype))
        assert self.jobs.succeed(claimed, {}, {"partition": 0.5})
        return record.id, shortest_path(arcs, directed=True)

    def tabled(self, graph: Graph, **request: Any) -> str:
        """A successful job whose result is a table; returns its id."""
        options = job_options(graph, request, self.settings)
        with TableTask(GraphProfile(graph), request, options, self.settings) as task:
            plan = task.plan(self.settings.data_dir)
            record = self.jobs.create(self.add_graph(graph), request, plan.to_dict())
            claimed = self.jobs.claim("bench")
            assert claimed is not None
            path = self.settings.store(record.id)
            path.parent.mkdir()
            task.make(path, plan, Monitor())
        with open_table(path) as table:
            assert self.jobs.succeed(claimed, table.summary, {"search": 0.5})
        return record.id


def small_graph(names: bool = False, *, real: bool = False) -> Graph:
    """0 -> 1 -> 2 -> 0 and the vertex 3, which nothing reaches; labels 10, 20, 30, 40 or names with a comma."""
    labels = ["a", "b,c", "d", 'e"f'] if names else [10, 20, 30, 40]
    weights = [1.5, 2.25, 4.1, 0.1] if real else [1, 2, 4, 1]
    graph, _ = build_graph([0, 1, 2, 3], [1, 2, 0, 0], weights, labels=labels, directed=True)
    return graph
