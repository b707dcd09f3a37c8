"""The blocking client: ``Client``, ``Job``, ``Result``.  Each method runs one flow."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from os import PathLike
from pathlib import Path as FilePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

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


class BlockingDriver:
    """Carries out flows over one pool of connections; safe to use from many threads."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def run(self, flow: Flow[T], stop: threading.Event | None = None) -> T:
        """The value that the flow returns; raises what it raises, and Stopped soon after ``stop`` is set."""
        stop = stop or threading.Event()
        try:
            step = next(flow)
            while True:
                try:
                    outcome = self._carry_out(step, stop)
                except Exception as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(outcome)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            flow.close()

    def _carry_out(self, step: Step, stop: threading.Event) -> Any:
        if isinstance(step, Send):
            return self._send(step.request)
        if isinstance(step, Work):
            return step.call()
        if isinstance(step, Pause):
            if stop.wait(step.seconds):
                raise InterruptedError
            return None
        return self._side_by_side(step, stop)

    def _send(self, request: Request) -> Answer | Lost:
        content = None if request.file is None else _chunks(request.file)
        try:
            with self._http.stream(content=content, **wire.arguments(request)) as response:
                headers = wire.lowered(response.headers)
                if not wire.is_body(request, response.status_code):
                    return Answer(response.status_code, headers, response.read())
                sink = request.sink
                assert sink is not None
                sink.begin(response.status_code, headers)
                try:
                    for chunk in response.iter_bytes(CHUNK):
                        sink.write(chunk)
                finally:
                    sink.end()
                return Answer(response.status_code, headers, b"")
        except httpx2.RequestError as error:
            return wire.lost(error, self._http.base_url)

    def _side_by_side(self, step: Together, stop: threading.Event) -> None:
        taking = threading.Lock()

        def work() -> None:
            while not stop.is_set():
                with taking:
                    flow = next(step.flows, None)
                if flow is None:
                    return
                self.run(flow, stop)

        with ThreadPoolExecutor(step.width, "apsp-client") as pool:
            futures = [pool.submit(work) for _ in range(step.width)]
            try:
                done, _ = wait_for(futures, return_when=FIRST_EXCEPTION)
            except BaseException:
                stop.set()
                raise
            failed = [error for future in done if (error := future.exception()) is not None]
            if failed:
                stop.set()
        if failed:
            raise failed[0]


def _chunks(file: FilePath) -> Iterator[bytes]:
    with file.open("rb") as handle:
        while chunk := handle.read(CHUNK):
            yield chunk


class Client:
    """A service, as seen by one caller.

    Args:
        url: its address; APSP_SERVER if None.
        key: the key; APSP_KEY if None.
        patience: seconds for which a request without an answer is repeated, where that is safe.
        tell: called with a message after every failed attempt that will be repeated.

    Raises InvalidRequest for an address or key that cannot be one.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        patience: float = 60.0,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._http = httpx2.Client(**wire.settings(url, key))
        self.patience = Patience(patience) if tell is None else Patience(patience, tell=tell)
        self._driver = BlockingDriver(self._http)
        # a client without close() is closed when it is garbage-collected
        self._release = weakref.finalize(self, self._http.close)

    @property
    def url(self) -> str:
        """The address of the service."""
        return str(self._http.base_url).rstrip("/")

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, flow: Flow[T]) -> T:
        """Carry out a flow of ``service.client.flows`` or ``reading``: what has no method of its own."""
        return self._driver.run(flow)

    def close(self) -> None:
        """Close the connections."""
        self._release()

    def solve(
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
    ) -> Result:
        """Upload a graph, solve it, wait, and return the result; arguments as in :meth:`submit` and :meth:`Job.wait`.

        Raises JobFailed if the job fails or is cancelled, and what ``submit`` and ``wait`` raise.

        Args:
            graph, format, directed, weight, unweighted, source, target, labels, length_of, centroids_through, name:
                as in :meth:`submit`.
            timeout, watcher: as in :meth:`Job.wait`.
            options: of the job, as in docs/api.md.
        """
        how = GraphReading(
            format, directed, weight, unweighted, source, target, name, labels, length_of, centroids_through
        )
        job = self._submit(graph, how, options)
        return job.wait(timeout, watcher).result()

    def submit(
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
    ) -> Job:
        """Upload a graph and queue a job.

        Args:
            graph: the path of a file, a NetworkX graph, a SciPy sparse matrix, a pandas or polars edge table, a square
                NumPy array, or arrays ``(sources, targets)`` or ``(sources, targets, weights)``.
            format: of a file; told by its content if left out.
            directed: direction; what the graph declares if left out, and directed where it declares none.
            weight: the column, or attribute of edges, that holds the weights.
            unweighted: whether every arc counts 1.
            source, target: the columns of a table, or of a file of columns.
            labels: of GML, GraphML, GEXF, Pajek and JSON, the attribute that names vertices instead of their id.
            length_of: a formula over one column that makes the lengths, such as ``"1000 - score"``.
            centroids_through: of a TNTP file, whether paths may pass through zone centroids.
            name: of the graph and the job.
            options: of the job, as in docs/api.md.

        Raises:
            InvalidRequest, NotFound: the graph or an option cannot be understood.
            ServiceError: the service refused, with its problem document.
            NoAnswer: the service cannot be reached.
        """
        return self._submit(
            graph,
            GraphReading(
                format, directed, weight, unweighted, source, target, name, labels, length_of, centroids_through
            ),
            options,
        )

    def _submit(self, graph: Any, how: GraphReading, options: flows.JobOptions) -> Job:
        found, names = self.run(flows.upload(graph, how, self.patience))
        facts = self.run(flows.submit(found["id"], names, options, self.patience, name=how.name))
        return Job(self, facts, names, found.get("receipt"))

    def job(self, job: str) -> Job:
        """A job by its id."""
        return Job(self, self.run(flows.status(job, self.patience)))

    def jobs(self, *, state: str | None = None, limit: int = 50) -> list[Job]:
        """Jobs, newest first."""
        found = self.run(flows.jobs(self.patience, state=state, limit=limit))
        return [Job(self, facts) for facts in found]

    def result(self, job: str) -> Result:
        """The result of a finished job by its id."""
        return self.job(job).result()


class Job(JobView):
    """A job; its facts are those of the last answer."""

    def __init__(
        self,
        client: Client,
        facts: flows.Document,
        names: Names | None = None,
        receipt: flows.Document | None = None,
    ) -> None:
        super().__init__(facts, receipt)
        self._client, self._names = client, names or Names()
        self._run, self._patience = client.run, client.patience

    def refresh(self) -> Job:
        """Update the facts; returns itself."""
        self.facts = self._run(flows.status(self.id, self._patience))
        return self

    def wait(self, timeout: float | None = None, watcher: flows.Watcher | None = None) -> Job:
        """Wait until it has ended; returns itself.  Broken connections and restarts of the service are tolerated.

        Args:
            timeout: seconds after which StillOpen, a TimeoutError, is raised; the job continues.
            watcher: called with the job's facts every second.
        """
        self.facts = self._run(flows.wait(self.id, self._patience, timeout=timeout, watcher=watcher))
        return self

    def cancel(self) -> Job:
        """Ask it to stop, which it does at the next tile or batch; returns itself."""
        self.facts = self._run(flows.cancel(self.id, self._patience))
        return self

    def resume(self) -> Job:
        """Queue it again from its checkpoint; returns itself.  Raises ServiceError if it has none."""
        self.facts = self._run(flows.resume(self.id, self._patience))
        return self

    def delete(self) -> None:
        """Delete it and its result; ServiceError while it is open."""
        self._run(flows.delete(self.id, self._patience))

    def log(self) -> str:
        """Return its log."""
        return self._run(flows.log(self.id, self._patience))

    def result(self) -> Result:
        """Return its result.  Raises JobFailed if it ended without one, ServiceError while it is open."""
        if self.over:
            flows.successful(dict(self.facts))
        return Result(self._client, self._run(flows.summary(self.id, self._patience)), self._names)


class Result(ResultView):
    """A solved matrix on the service; vertices are given and named as in the graph."""

    def __init__(self, client: Client, facts: flows.Document, names: Names | None = None) -> None:
        super().__init__(facts)
        self._client, self._names = client, names or Names()
        self._run, self._patience = client.run, client.patience

    def distance(self, source: Any, target: Any) -> float:
        """One distance; +inf where there is no path."""
        return self._run(reading.distance(self.job, self._names, self._patience, source, target))

    def distances(self, pairs: Sequence[tuple[Any, Any]]) -> list[float]:
        """The distances of many pairs, in their order."""
        return self._run(reading.distances(self.job, self._names, self._patience, pairs))

    def path(self, source: Any, target: Any) -> Path | None:
        """One shortest path; None if there is none."""
        return self._run(reading.path(self.job, self._names, self._patience, source, target))

    def row(self, source: Any) -> dict[Any, float]:
        """The distances from one vertex to each target that was solved."""
        return self._run(reading.row(self.job, self._names, self._patience, source))

    def nearest(self, source: Any, k: int = 10) -> list[tuple[Any, float]]:
        """The ``k`` nearest vertices with their distances, the nearest first."""
        return self._run(reading.nearest(self.job, self._names, self._patience, source, k))

    def labels(self) -> tuple[list[Any], list[Any]]:
        """The vertices of the rows and of the columns, in their order."""
        down, across = self._run(reading.sides(self.job, self._patience))
        return self._names.vertices(down), self._names.vertices(across)

    def to_numpy(
        self, sources: Sequence[Any] | None = None, targets: Sequence[Any] | None = None, *, most: int | str = "1GiB"
    ) -> Any:
        """Distances as a NumPy array of floats, shape (sources, targets), +inf where there is no path.

        Rows and columns are in the order given, else in that of :meth:`labels`.  LimitExceeded if it would have more
        bytes than ``most``.

        Args:
            sources, targets: the rows and columns; None for all.
            most: the most bytes that the array may have, a number or text such as ``1GiB``.
        """
        asked = reading.submatrix(self.job, self._names, self._patience, sources, targets, most=most)
        return self._run(asked)

    def to_xarray(self, **options: Any) -> DataArray:
        """The distances as a lazy labelled array; entries are read through the service when they are used.

        Values are as stored: for integers, *no path* is the number in the attribute ``unreachable``.  Options go to
        ``xarray.open_zarr``.  Needs xarray, fsspec and aiohttp.
        """
        return opening.open_array(self._client._http, self.job, options)

    def fetch(
        self,
        folder: str | PathLike[str],
        *,
        overwrite: bool = False,
        meter: fetching.Meter | None = None,
    ) -> FilePath:
        """Fetch the whole store into a folder, and check each file; after an interruption, the next call continues.

        Args:
            folder: path of the store; it appears once it is complete.
            overwrite: whether an existing store is replaced.
            meter: called with the bytes fetched so far and the bytes in all.
        """
        target = FilePath(folder)
        return self._run(fetching.fetch(self.job, target, self._patience, overwrite=overwrite, meter=meter))

    def plot(self, size: int = 256) -> Figure:
        """A heat map of at most ``size`` rows and columns beside the histogram of all; needs matplotlib."""
        return plots.draw(self, self._run(plots.sample(self.job, self._patience, size)))
