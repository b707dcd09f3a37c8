"""The methods of both clients, written once: each is a flow, which the client's driver carries out.

``@asks`` turns a function that makes a flow into a method.  In a class of :mod:`service.client.blocking` the method
returns the value of the flow; in a class of :mod:`service.client.asynchronous` it must be awaited.  Type checkers see
both forms.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

import httpx2

from service.client import flows
from service.client.asking import Patience
from service.client.displays import JobView
from service.client.names import Names
from service.client.steps import Flow
from service.options import ClientOptions, UploadOptions
from storage.options import ReadingOptions, declared, lists_options
from storage.semirings import needed_parallel

T = TypeVar("T")
P = ParamSpec("P")
JobT = TypeVar("JobT", bound="JobMethods[Any, Any]")
ResultT = TypeVar("ResultT")


class Blocking:
    """Base of the classes whose methods wait for the answer."""


class Awaited:
    """Base of the classes whose methods must be awaited."""


class Method(Generic[P, T]):
    """Turns a function that returns a flow into a method, which must be awaited in classes that derive from Awaited."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self._flow = flow
        self._made: dict[type, Any] = {}
        self.__doc__ = flow.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Awaited, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        """Return the method, bound to an instance if there is one."""
        if owner not in self._made:
            self._made[owner] = self._function(owner)
        found = self._made[owner]
        return found if instance is None else found.__get__(instance, owner)

    def _function(self, owner: type) -> Callable[..., Any]:
        flow: Callable[..., Flow[T]] = self._flow
        function: Callable[..., Any]
        if issubclass(owner, Awaited):

            async def function(self: Any, /, *given: Any, **options: Any) -> Any:
                return await self._run(flow(self, *given, **options))
        else:

            def function(self: Any, /, *given: Any, **options: Any) -> Any:
                return self._run(flow(self, *given, **options))

        signature = inspect.signature(flow)
        returned = str(signature.return_annotation).removeprefix("Flow[").removesuffix("]")
        side = "Async" if issubclass(owner, Awaited) else ""
        names = {"JobT": f"{side}Job", "ResultT": f"{side}Result", "list[JobT]": f"list[{side}Job]"}
        vars(wraps(flow)(function))["__signature__"] = signature.replace(
            return_annotation=names.get(returned, returned)
        )
        return function


def asks(flow: Callable[Concatenate[Any, P], Flow[T]]) -> Method[P, T]:
    """Turn a function that returns a flow into a method."""
    return Method(flow)


class ClientMethods(Generic[JobT, ResultT]):
    """The methods of a client."""

    patience: Patience
    _http: httpx2.Client | httpx2.AsyncClient

    def _job(self, facts: flows.Document, names: Names | None = None, receipt: flows.Document | None = None) -> JobT:
        raise NotImplementedError

    @property
    def url(self) -> str:
        """The address of the service."""
        return str(self._http.base_url).rstrip("/")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    @asks
    @lists_options
    def solve(
        self,
        graph: Any,
        *,
        timeout: float | None = None,
        watcher: flows.Watcher | None = None,
        **options: Unpack[ClientOptions],
    ) -> Flow[ResultT]:
        """Upload a graph, queue a job, wait until it has ended, and return the result.

        Raises JobFailed if the job fails or is cancelled, and what :meth:`submit` and :meth:`Job.wait` raise.

        Args:
            graph: the path of a file, or a graph object, as in :meth:`submit`.
            timeout: seconds after which StillOpen is raised.
            watcher: called every second with the service's description of the job.
            options: how the graph is read, its name, and options of the job, as in :meth:`submit`.
        """
        job = yield from self._submitted(graph, options)
        yield from job.waited(timeout, watcher)
        return cast(ResultT, (yield from job.solved()))

    @asks
    @lists_options
    def submit(self, graph: Any, **options: Unpack[ClientOptions]) -> Flow[JobT]:
        """Upload a graph and queue a job.

        Args:
            graph: the path of a file, a NetworkX graph, a SciPy sparse matrix, a pandas or polars edge table, a square
                NumPy array, or arrays ``(sources, targets)`` or ``(sources, targets, weights)``.
            options: all may be left out.  These say how the graph is read:
                ``format`` is the format of a file; by default it is recognised by the content.
                ``directed`` says whether edges are directed; by default the graph declares it, and a graph that
                declares nothing is directed.
                ``weight`` is the column, or the attribute of edges, that holds the weights.
                ``unweighted`` says whether every arc counts 1.
                ``source`` and ``target`` are the columns of a table, or of a file of columns.
                ``labels`` is the attribute that names vertices in place of their id, in GML, GraphML, GEXF, Pajek and
                JSON.
                ``length_of`` is a formula over one column that makes the lengths, such as ``"1000 - score"``.
                ``unit`` is the unit of the weights, such as ``min``; it is kept with the result.
                ``coordinates`` says what coordinates called x and y are in a file: ``lonlat`` or ``plane``.
                ``centroids_through`` says whether paths may pass through the zone centroids of a TNTP file.
                ``mode`` is ``"walking"``, ``"cycling"`` or ``"driving"``, for an OpenStreetMap file.
                ``parallel`` says which of parallel arcs stays, ``"least"`` or ``"greatest"``; by default the one that
                ``semiring`` needs.
                ``also`` names further columns or attributes, which the job sums along the shortest paths, too.
                Further options are for the job:
                ``name`` names the graph and the job.
                ``opportunities`` may be the path of a table, a pandas or polars table whose first column names
                vertices, or ``{column: {vertex: number}}``; it is uploaded.
                ``demands`` is uploaded in the same way: a table whose first two columns name vertices, or
                ``{(origin, destination): flow}``.
                ``sources`` and ``targets`` may be points, dicts with ``lon`` and ``lat`` (or ``x`` and ``y``) and
                optionally ``id`` and ``name``; each point means the vertex nearest to it, no farther than
                ``snap_limit``, and ``job.facts["points"]`` then says how far these vertices are.
                docs/api.md describes the other options of jobs.

        Raises:
            InvalidRequest, NotFound: the graph or an option cannot be understood.
            ServiceError: the service refused, with its problem document.
            NoAnswer: the service cannot be reached.
        """
        return (yield from self._submitted(graph, options))

    def _submitted(self, graph: Any, options: ClientOptions) -> Flow[JobT]:
        known, name = declared(ReadingOptions), options.get("name")
        reads = cast(UploadOptions, {option: value for option, value in options.items() if option in known})
        asked = {option: value for option, value in options.items() if option not in known and option != "name"}
        if reads.get("parallel") is None and (needed := needed_parallel(options.get("semiring"))) is not None:
            reads["parallel"] = needed
        if asked.get("also") is not None:
            reads["also"] = asked["also"] = flows.listed_values("also", asked["also"], str)
        found, names = yield from flows.upload(graph, reads, self.patience, name=name)
        for field in ("opportunities", "demands"):
            if asked.get(field) is not None:
                from service.client.tables import sent_table

                asked[field] = yield from sent_table(field, asked[field], names, self.patience)
        facts = yield from flows.submit(found["id"], names, asked, self.patience, name=name)
        return self._job(facts, names, found.get("receipt"))

    @asks
    def job(self, job: str) -> Flow[JobT]:
        """Return a job by its id."""
        return self._job((yield from flows.status(job, self.patience)))

    @asks
    def jobs(self, *, state: str | None = None, limit: int = 50) -> Flow[list[JobT]]:
        """Return the jobs, newest first."""
        found = yield from flows.jobs(self.patience, state=state, limit=limit)
        return [self._job(facts) for facts in found]

    @asks
    def result(self, job: str) -> Flow[ResultT]:
        """Return the result of a finished job by its id."""
        return cast(ResultT, (yield from self._job((yield from flows.status(job, self.patience))).solved()))


class Part:
    """Base class of jobs and results.  It holds the client that made the object, and the names of vertices."""

    def _belong(self, client: ClientMethods[Any, Any], names: Names | None) -> None:
        self._client, self._names = client, names or Names()
        self._patience = client.patience
        self._run: Any = client.run  # type: ignore[attr-defined]


class JobMethods(JobView, Part, Generic[JobT, ResultT]):
    """A job; its attributes are from the last answer of the service."""

    def __init__(
        self,
        client: ClientMethods[Any, Any],
        facts: flows.Document,
        names: Names | None = None,
        receipt: flows.Document | None = None,
    ) -> None:
        super().__init__(facts, receipt)
        self._belong(client, names)

    def _result(self, facts: flows.Document) -> ResultT:
        raise NotImplementedError

    def waited(self, timeout: float | None, watcher: flows.Watcher | None) -> Flow[None]:
        """Return the flow (``steps``) that carries out :meth:`wait`."""
        self.facts = yield from flows.wait(self.id, self._patience, timeout=timeout, watcher=watcher)

    def solved(self) -> Flow[ResultT]:
        """Return the flow (``steps``) that carries out :meth:`result`."""
        if self.over:
            flows.successful(dict(self.facts))
        return self._result((yield from flows.summary(self.id, self._patience)))

    @asks
    def refresh(self) -> Flow[JobT]:
        """Update the attributes of the job; return the job itself."""
        self.facts = yield from flows.status(self.id, self._patience)
        return cast(JobT, self)

    @asks
    def wait(self, timeout: float | None = None, watcher: flows.Watcher | None = None) -> Flow[JobT]:
        """Wait until the job has ended; return the job.  Broken connections and restarts of the service are tolerated.

        Args:
            timeout: seconds after which StillOpen, a TimeoutError, is raised; the job continues.
            watcher: called every second with the service's description of the job.
        """
        yield from self.waited(timeout, watcher)
        return cast(JobT, self)

    @asks
    def cancel(self) -> Flow[JobT]:
        """Ask the job to stop, which it does at the next tile or batch; return the job."""
        self.facts = yield from flows.cancel(self.id, self._patience)
        return cast(JobT, self)

    @asks
    def resume(self) -> Flow[JobT]:
        """Queue the job again, from its checkpoint; return the job.  Raises ServiceError if there is no checkpoint."""
        self.facts = yield from flows.resume(self.id, self._patience)
        return cast(JobT, self)

    @asks
    def delete(self) -> Flow[None]:
        """Delete the job and its result.  Raises ServiceError if the job has not ended."""
        return flows.delete(self.id, self._patience)

    @asks
    def log(self) -> Flow[str]:
        """Return the log of the job."""
        return flows.log(self.id, self._patience)

    @asks
    def result(self) -> Flow[ResultT]:
        """Return the result of the job.  Raises JobFailed if the job ended without one, ServiceError if it has not
        ended.
        """
        return self.solved()
