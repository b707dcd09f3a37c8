"""The asynchronous client: ``AsyncClient``, ``AsyncJob``, ``AsyncResult``, for asyncio and trio.

It runs the same flows as ``blocking``, whose docstrings apply here too.  File access and computation run in threads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from os import PathLike
from pathlib import Path as FilePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import anyio
import anyio.to_thread
import httpx2

from service.client import fetching, flows, opening, plots, reading, wire
from service.client.asking import Patience
from service.client.graphs import GraphReading
from service.client.names import Names
from service.client.steps import CHUNK, Answer, Flow, Lost, Pause, Request, Send, Step, Together, Work
from service.client.views import JobView, Path, ResultView

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataArray

T = TypeVar("T")


class AsyncDriver:
    """Carries out flows over one pool of connections."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def run(self, flow: Flow[T]) -> T:
        """The value that the flow returns; raises what it raises."""
        try:
            step = next(flow)
            while True:
                try:
                    outcome = await self._carry_out(step)
                except Exception as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(outcome)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            flow.close()

    async def _carry_out(self, step: Step) -> Any:
        if isinstance(step, Send):
            return await self._send(step.request)
        if isinstance(step, Work):
            return await anyio.to_thread.run_sync(step.call)
        if isinstance(step, Pause):
            await anyio.sleep(step.seconds)
            return None
        return await self._side_by_side(step)

    async def _send(self, request: Request) -> Answer | Lost:
        content = None if request.file is None else _chunks(request.file)
        try:
            async with self._http.stream(content=content, **wire.arguments(request)) as response:
                headers = wire.lowered(response.headers)
                if not wire.is_body(request, response.status_code):
                    return Answer(response.status_code, headers, await response.aread())
                sink = request.sink
                assert sink is not None
                sink.begin(response.status_code, headers)
                try:
                    async for chunk in response.aiter_bytes(CHUNK):
                        sink.write(chunk)
                finally:
                    sink.end()
                return Answer(response.status_code, headers, b"")
        except httpx2.RequestError as error:
            return wire.lost(error, self._http.base_url)

    async def _side_by_side(self, step: Together) -> None:
        taking = anyio.Lock()
        failed: list[Exception] = []

        async def work() -> None:
            while not failed:
                async with taking:
                    flow = await anyio.to_thread.run_sync(next, step.flows, None)
                if flow is None:
                    return
                try:
                    await self.run(flow)
                except Exception as error:
                    failed.append(error)
                    group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for _ in range(step.width):
                group.start_soon(work)
        if failed:
            raise failed[0]


async def _chunks(file: FilePath) -> AsyncIterator[bytes]:
    async with await anyio.open_file(file, "rb") as handle:
        while chunk := await handle.read(CHUNK):
            yield chunk


class AsyncClient:
    """A service, as seen by one caller, with the methods of :class:`Client` to be awaited, under asyncio and trio.

    Args:
        url, key, patience, tell: as for :class:`Client`.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        patience: float = 60.0,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(**wire.settings(url, key))
        self.patience = Patience(patience) if tell is None else Patience(patience, tell=tell)
        self._driver = AsyncDriver(self._http)

    @property
    def url(self) -> str:
        """The address of the service."""
        return str(self._http.base_url).rstrip("/")

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self, flow: Flow[T]) -> T:
        """Carry out a flow of ``service.client.flows`` or ``reading``: what has no method of its own."""
        return await self._driver.run(flow)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def solve(
        self,
        graph: Any,
        *,
        format: str | None = None,  # noqa: A002
        directed: bool | None = None,
        weight: str | None = None,
        unweighted: bool = False,
        source: str | None = None,
        target: str | None = None,
        labels: str | None = None,
        length_of: str | None = None,
        centroids_through: bool = False,
        name: str | None = None,
        timeout: float | None = None,
        watcher: flows.Watcher | None = None,
        **options: Unpack[flows.JobOptions],
    ) -> AsyncResult:
        """Upload a graph, solve it, wait, and return the result.

        Args:
            graph, format, directed, weight, unweighted, source, target, labels, length_of, centroids_through, name:
                as in :meth:`Client.submit`.
            timeout, watcher: as in :meth:`Job.wait`.
            options: of the job, as in docs/api.md.
        """
        job = await self._submit(
            graph,
            GraphReading(
                format, directed, weight, unweighted, source, target, name, labels, length_of, centroids_through
            ),
            options,
        )
        return await (await job.wait(timeout, watcher)).result()

    async def submit(
        self,
        graph: Any,
        *,
        format: str | None = None,  # noqa: A002
        directed: bool | None = None,
        weight: str | None = None,
        unweighted: bool = False,
        source: str | None = None,
        target: str | None = None,
        labels: str | None = None,
        length_of: str | None = None,
        centroids_through: bool = False,
        name: str | None = None,
        **options: Unpack[flows.JobOptions],
    ) -> AsyncJob:
        """Upload a graph and queue a job.

        Args:
            graph, format, directed, weight, unweighted, source, target, labels, length_of, centroids_through, name:
                as in :meth:`Client.submit`.
            options: of the job, as in docs/api.md.
        """
        return await self._submit(
            graph,
            GraphReading(
                format, directed, weight, unweighted, source, target, name, labels, length_of, centroids_through
            ),
            options,
        )

    async def _submit(self, graph: Any, how: GraphReading, options: flows.JobOptions) -> AsyncJob:
        found, names = await self.run(flows.upload(graph, how, self.patience))
        facts = await self.run(flows.submit(found["id"], names, options, self.patience, name=how.name))
        return AsyncJob(self, facts, names, found.get("receipt"))

    async def job(self, job: str) -> AsyncJob:
        """A job by its id."""
        return AsyncJob(self, await self.run(flows.status(job, self.patience)))

    async def jobs(self, *, state: str | None = None, limit: int = 50) -> list[AsyncJob]:
        """Jobs, newest first."""
        found = await self.run(flows.jobs(self.patience, state=state, limit=limit))
        return [AsyncJob(self, facts) for facts in found]

    async def result(self, job: str) -> AsyncResult:
        """The result of a finished job by its id."""
        return await (await self.job(job)).result()


class AsyncJob(JobView):
    """A job; its facts are those of the last answer."""

    def __init__(
        self,
        client: AsyncClient,
        facts: flows.Document,
        names: Names | None = None,
        receipt: flows.Document | None = None,
    ) -> None:
        super().__init__(facts, receipt)
        self._client, self._names = client, names or Names()
        self._run, self._patience = client.run, client.patience

    async def refresh(self) -> AsyncJob:
        """Update the facts; returns itself."""
        self.facts = await self._run(flows.status(self.id, self._patience))
        return self

    async def wait(self, timeout: float | None = None, watcher: flows.Watcher | None = None) -> AsyncJob:
        """Wait until it has ended; returns itself."""
        self.facts = await self._run(flows.wait(self.id, self._patience, timeout=timeout, watcher=watcher))
        return self

    async def cancel(self) -> AsyncJob:
        """Ask it to stop; returns itself."""
        self.facts = await self._run(flows.cancel(self.id, self._patience))
        return self

    async def resume(self) -> AsyncJob:
        """Queue it again from its checkpoint; returns itself."""
        self.facts = await self._run(flows.resume(self.id, self._patience))
        return self

    async def delete(self) -> None:
        """Delete it and its result."""
        await self._run(flows.delete(self.id, self._patience))

    async def log(self) -> str:
        """Return its log."""
        return await self._run(flows.log(self.id, self._patience))

    async def result(self) -> AsyncResult:
        """Return its result.  Raises JobFailed if it ended without one."""
        if self.over:
            flows.successful(dict(self.facts))
        return AsyncResult(self._client, await self._run(flows.summary(self.id, self._patience)), self._names)


class AsyncResult(ResultView):
    """A solved matrix on the service; vertices are given and named as in the graph."""

    def __init__(self, client: AsyncClient, facts: flows.Document, names: Names | None = None) -> None:
        super().__init__(facts)
        self._client, self._names = client, names or Names()
        self._run, self._patience = client.run, client.patience

    async def distance(self, source: Any, target: Any) -> float:
        """One distance; +inf where there is no path."""
        return await self._run(reading.distance(self.job, self._names, self._patience, source, target))

    async def distances(self, pairs: Sequence[tuple[Any, Any]]) -> list[float]:
        """The distances of many pairs, in their order."""
        return await self._run(reading.distances(self.job, self._names, self._patience, pairs))

    async def path(self, source: Any, target: Any) -> Path | None:
        """One shortest path; None if there is none."""
        return await self._run(reading.path(self.job, self._names, self._patience, source, target))

    async def row(self, source: Any) -> dict[Any, float]:
        """The distances from one vertex to each target that was solved."""
        return await self._run(reading.row(self.job, self._names, self._patience, source))

    async def nearest(self, source: Any, k: int = 10) -> list[tuple[Any, float]]:
        """The ``k`` nearest vertices with their distances, the nearest first."""
        return await self._run(reading.nearest(self.job, self._names, self._patience, source, k))

    async def labels(self) -> tuple[list[Any], list[Any]]:
        """The vertices of the rows and of the columns, in their order."""
        down, across = await self._run(reading.sides(self.job, self._patience))
        return self._names.vertices(down), self._names.vertices(across)

    async def to_numpy(
        self, sources: Sequence[Any] | None = None, targets: Sequence[Any] | None = None, *, most: int | str = "1GiB"
    ) -> Any:
        """Distances as a NumPy array of floats, shape (sources, targets), +inf where there is no path.

        Args:
            sources, targets: the rows and columns; None for all.
            most: the most bytes that the array may have.
        """
        return await self._run(reading.submatrix(self.job, self._names, self._patience, sources, targets, most=most))

    async def to_xarray(self, **options: Any) -> DataArray:
        """The distances as a labelled array whose entries are read when they are used, which blocks."""
        http, job = self._client._http, self.job
        return await anyio.to_thread.run_sync(lambda: opening.open_array(http, job, options))

    async def fetch(
        self, folder: str | PathLike[str], *, overwrite: bool = False, meter: fetching.Meter | None = None
    ) -> FilePath:
        """Fetch the whole store into a folder, and check each file; after an interruption, the next call continues.

        Args:
            folder: where the store goes; it appears once it is complete.
            overwrite: whether an existing store may be replaced.
            meter: called with the bytes fetched so far and the bytes in all.
        """
        target = FilePath(folder)
        return await self._run(fetching.fetch(self.job, target, self._patience, overwrite=overwrite, meter=meter))

    async def plot(self, size: int = 256) -> Figure:
        """A heat map of at most ``size`` rows and columns beside the histogram of all; needs matplotlib."""
        return plots.draw(self, await self._run(plots.sample(self.job, self._patience, size)))
