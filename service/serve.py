"""The whole service in one command: the API runs in this process, and a supervisor keeps the runners alive."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from service import logs
from service.app import create_app
from service.auth.keys import first_key, is_loopback
from service.http.connections import AcceptErrorHandler, IdleConnections, connection_limits, raise_open_files
from service.http.listening import address_of, listen
from service.http.protocol import HEADER_BYTES, KEEP_ALIVE_SECONDS, PatientProtocol
from service.jobs.folders import check_store, keep_private, prepare
from service.jobs.metrics import Metrics
from service.jobs.retention import Retention
from service.runner.gpus import check_answer_device, with_shares
from service.runner.supervisor import Supervisor
from service.settings import Settings
from service.state import Service
from storage.errors import Conflict
from storage.files.locks import FileLock
from storage.graph.uploads import Uploads

log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then shut down the API and the runners cleanly.

    Prints one line with the service's address as soon as the service listens.

    Raises:
        InvalidRequest: the address cannot be listened on.
        Conflict: another service works on the same data directory.
    """
    check_answer_device(settings)
    settings = with_shares(settings.model_copy(update={"data_dir": settings.data_dir.absolute()}))
    logs.configure("api", settings.log_format)
    keep_private(settings.data_dir)
    raise_open_files()
    prepare(settings)
    check_store(settings)
    key = first_key(settings)
    lock = FileLock(settings.data_dir / "serve.lock")
    try:
        lock.acquire()
    except Conflict as error:
        raise Conflict(f"another service works on {settings.data_dir}: {error}") from error
    try:
        with listen(settings.host, settings.port) as listener, _signals_kept():
            Uploads(settings.data_dir).clear()
            _run_all(settings, listener, key)
    finally:
        lock.release()


def _run_all(settings: Settings, listener: socket.socket, key: str | None) -> None:
    metrics = Metrics(settings)
    app = create_app(settings, observe=metrics.observe)
    service: Service = app.state.service
    supervisor = Supervisor(settings, service.jobs)
    retention = Retention(settings, service.jobs, service.results.forget)
    service.wake = supervisor.wake
    supervisor.start()
    retention.start()
    metrics.start(service.jobs)
    try:
        _run_api(settings, app, listener, key)
    finally:
        metrics.stop()
        retention.stop()
        supervisor.stop()
        service.jobs.close()


def _run_api(settings: Settings, app: FastAPI, listener: socket.socket, key: str | None) -> None:
    _Announcing(_config(settings, app), address_of(settings.host, listener), app.state.service, key).run(
        sockets=[listener]
    )


def _config(settings: Settings, app: ASGIApp) -> uvicorn.Config:
    connections, backlog = connection_limits(settings.max_connections)
    return uvicorn.Config(
        app,
        http=partial(PatientProtocol, crowd=IdleConnections(connections)),  # type: ignore[arg-type]
        backlog=backlog,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=settings.proxies,
        timeout_graceful_shutdown=max(1, int(settings.stop_seconds)),
    )


class _Announcing(uvicorn.Server):
    """A server that prints its address once it listens, and is *not ready* for ``drain_seconds`` before a shutdown."""

    def __init__(self, config: uvicorn.Config, address: str, service: Service, key: str | None) -> None:
        super().__init__(config)
        self._address, self._service, self._key = address, service, key

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        seconds = self._service.settings.drain_seconds
        if self._service.draining or seconds == 0:
            self._service.draining = True
            super().handle_exit(sig, frame)
            return
        self._service.draining = True
        log.info("the service accepts no more jobs and closes in %g s", seconds)
        threading.Timer(seconds, super().handle_exit, (sig, None)).start()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(AcceptErrorHandler())
        await super().startup(sockets)
        if self.started:
            ways = f"a page for browsers; API documentation: {self._address}/docs"
            print(f"apsp listens on {self._address} ({ways})", flush=True)
            if self._key is not None:
                print(f"key, shown this once: {self._key}", flush=True)
            self._print_login_link()
            threading.Thread(target=_get_ready, name="get-ready", daemon=True).start()

    def _print_login_link(self) -> None:
        """Print a login link for one use, if only this machine is served and the output does not go to a log."""
        is_read = sys.stdout.isatty() or self._key is not None
        if not (self._service.settings.auth and is_loopback(self._service.settings.host) and is_read):
            return
        ticket = self._service.visitors.ticket()
        if ticket is not None:
            print(f"page, this link lets in once: {self._address}/login#{ticket}", flush=True)


def _get_ready() -> None:
    """Import the modules that the first query of a result needs, while the service already listens."""
    try:
        for name in ("service.jobs.results", "service.views.representations", "engine.api.routes"):
            importlib.import_module(name)
        from service.dashboard import render

        render.get_ready()
        from storage.matrix.reader import get_ready

        get_ready()
        # Imported objects live until the process ends, so garbage collections during requests skip them from here on.
        gc.collect()
        gc.freeze()
        gc.set_threshold(700, 10, 10)  # the defaults of Python 3.11; service.cli.start has raised the first threshold
    except Exception as error:
        log.warning("imports failed, so the first query of a result will take longer: %s", error)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ignore the signal that uvicorn raises again after it has stopped, so that the runners are stopped too.

    A second interrupt during the shutdown is also ignored, because the shutdown has a time limit.
    """

    def swallow(_number: int, _frame: FrameType | None) -> None:
        pass

    before = {number: signal.signal(number, swallow) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
