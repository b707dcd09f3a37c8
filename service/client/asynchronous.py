"""The asynchronous client: ``AsyncClient``, ``AsyncJob``, ``AsyncResult``, for asyncio and trio.

The methods of these classes are defined in ``methods`` and ``result``.  File access and computation run in threads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path as FilePath
from typing import Any, Self, TypeVar

import anyio
import anyio.to_thread
import httpx2

from service.client import wire
from service.client.asking import Patience
from service.client.flows import Document
from service.client.methods import Awaited, ClientMethods, JobMethods
from service.client.names import Names
from service.client.result import ResultMethods
from service.client.steps import CHUNK, Answer, Flow, Lost, Pause, Request, Send, Step, Together, Work

T = TypeVar("T")


class AsyncDriver:
    """Carries out flows (defined in ``steps``) over one pool of connections."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def run(self, flow: Flow[T]) -> T:
        """Return the value of the flow.  Raises what the flow raises."""
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
            raise failed.pop(0)


async def _chunks(file: FilePath) -> AsyncIterator[bytes]:
    async with await anyio.open_file(file, "rb") as handle:
        while chunk := await handle.read(CHUNK):
            yield chunk


class AsyncClient(ClientMethods["AsyncJob", "AsyncResult"], Awaited):
    """The client of one caller.  It has the methods of :class:`Client`, to be awaited under asyncio or trio.

    Args:
        url, key: address of the service and key of the caller, as for :class:`Client`.
        patience: seconds for which failed requests are repeated, as for :class:`Client`.
        tell: called with a message after every failed attempt that will be repeated.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        patience: float = 60.0,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._http: httpx2.AsyncClient = httpx2.AsyncClient(**wire.settings(url, key))
        self.patience = Patience(patience) if tell is None else Patience(patience, tell=tell)
        self._driver = AsyncDriver(self._http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, flow: Flow[T]) -> T:
        """Carry out a flow of ``service.client.flows``, for which this class may have no method; return its value."""
        return await self._driver.run(flow)

    _run = run

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _job(self, facts: Document, names: Names | None = None, receipt: Document | None = None) -> AsyncJob:
        return AsyncJob(self, facts, names, receipt)


class AsyncJob(JobMethods["AsyncJob", "AsyncResult"], Awaited):
    """A job; its attributes are from the last answer of the service."""

    def _result(self, facts: Document) -> AsyncResult:
        return AsyncResult(self._client, facts, self._names)


class AsyncResult(ResultMethods, Awaited):
    """A result on the service; its methods take and return vertices as the caller's graph names them."""
