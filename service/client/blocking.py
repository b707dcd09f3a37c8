"""The blocking client: ``Client``, ``Job``, ``Result``; their methods are defined in ``methods`` and ``result``."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any, Self, TypeVar

import httpx2

from service.client import wire
from service.client.asking import Patience
from service.client.flows import Document
from service.client.methods import Blocking, ClientMethods, JobMethods
from service.client.names import Names
from service.client.result import ResultMethods
from service.client.steps import CHUNK, Answer, Flow, Lost, Pause, Request, Send, Step, Together, Work
from storage.threads import ThreadPool

T = TypeVar("T")


class BlockingDriver:
    """Carries out flows (defined in ``steps``) over one pool of connections; safe to use from many threads."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def run(self, flow: Flow[T], stop: threading.Event | None = None) -> T:
        """Return the value of the flow.  Raises what the flow raises, and InterruptedError if ``stop`` ends a pause."""
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
        taking, failed = threading.Lock(), list[BaseException]()

        def work() -> None:
            try:
                while not stop.is_set():
                    with taking:
                        flow = next(step.flows, None)
                    if flow is None:
                        return
                    self.run(flow, stop)
            except BaseException as error:
                failed.append(error)
                stop.set()

        with ThreadPool(step.width, "apsp-client") as pool, pool:
            calls = [pool.submit(work) for _ in range(step.width)]
            try:
                for call in calls:
                    call.wait()
            except BaseException:
                stop.set()
                raise
        if failed:
            raise failed.pop(0)


def _chunks(file: FilePath) -> Iterator[bytes]:
    with file.open("rb") as handle:
        while chunk := handle.read(CHUNK):
            yield chunk


class Client(ClientMethods["Job", "Result"], Blocking):
    """A service, as seen by one caller.

    Args:
        url: address of the service; APSP_SERVER if None.
        key: key of the caller; APSP_KEY if None.
        patience: seconds for which a request without an answer is repeated, where that is safe.
        tell: called with a message after every failed attempt that will be repeated.

    Raises InvalidRequest if the address or the key is malformed.
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
        # if close() is never called, the connections are closed when the client is garbage-collected
        self._release = weakref.finalize(self, self._http.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, flow: Flow[T]) -> T:
        """Carry out a flow of ``service.client.flows``, for which this class may have no method; return its value."""
        return self._driver.run(flow)

    _run = run

    def close(self) -> None:
        """Close the connections."""
        self._release()

    def _job(self, facts: Document, names: Names | None = None, receipt: Document | None = None) -> Job:
        return Job(self, facts, names, receipt)


class Job(JobMethods["Job", "Result"], Blocking):
    """A job; its attributes are from the last answer of the service."""

    def _result(self, facts: Document) -> Result:
        return Result(self._client, facts, self._names)


class Result(ResultMethods, Blocking):
    """A result on the service; its methods take and return vertices as the caller's graph names them."""
