"""The whole service in one command: the API in this process, the runner in one beside it, watched."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Final

import uvicorn

from service import logs
from service.app import create_app
from service.protocol import PatientProtocol
from service.runner import WITH_PARENT
from service.settings import Settings
from service.stores import prepare
from storage.errors import Conflict, InvalidRequest
from storage.locks import FileLock
from storage.uploads import Uploads

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
#: a runner that lived this long did not die of its start
_HEALTHY_SECONDS: Final = 30.0


class RunnerProcess:
    """Keeps one runner process alive until it is stopped; waits longer and longer between starts that fail."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="runner-watch", daemon=True)

    def start(self) -> None:
        """Start the runner and the watch over it."""
        self._thread.start()

    def stop(self) -> None:
        """Let the runner come to the next tile and give its job back; end it the hard way if it takes too long."""
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(self._settings.stop_seconds)
            except subprocess.TimeoutExpired:
                log.warning("the runner did not stop in %g s and is killed", self._settings.stop_seconds)
                process.kill()
                process.wait()
        self._thread.join()

    def _watch(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            born = time.monotonic()
            self._process = self._spawn()
            if self._stopping.is_set():  # asked to stop while it was being started
                self._process.terminate()
            code = self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            if self._stopping.is_set():
                return
            pause = _FIRST_PAUSE if time.monotonic() - born > _HEALTHY_SECONDS else min(2 * pause, _LONGEST_PAUSE)
            log.error("the runner ended with status %s; a new one starts in %.3g s", code, pause)
            self._stopping.wait(pause)

    def _spawn(self) -> subprocess.Popen[bytes]:
        # Standard input is never written to: it ends when this process does, however it does, and then so does the
        # runner.  A session of its own keeps the terminal's interrupt from it: it is stopped after the API.
        return subprocess.Popen(  # noqa: S603 - nothing in it comes from outside
            [sys.executable, "-m", "service.runner", WITH_PARENT],
            stdin=subprocess.PIPE,
            env={**os.environ, **self._settings.environment()},
            start_new_session=True,
        )


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then shut down both processes cleanly.

    Prints one line with the address once it listens.

    Raises:
        InvalidRequest: the address cannot be listened on.
        Conflict: another service works on the same data directory.
    """
    settings = settings.model_copy(update={"data_dir": settings.data_dir.absolute()})
    logs.configure("api", settings.log_format)
    prepare(settings)
    lock = FileLock(settings.data_dir / "serve.lock")
    try:
        lock.acquire()
    except Conflict as error:
        raise Conflict(f"another service works on {settings.data_dir}: {error}") from error
    try:
        with _listen(settings) as listener, _signals_kept():
            Uploads(settings.data_dir).clear()
            runner = RunnerProcess(settings)
            runner.start()
            try:
                _run_api(settings, listener)
            finally:
                runner.stop()
    finally:
        lock.release()


def _run_api(settings: Settings, listener: socket.socket) -> None:
    config = uvicorn.Config(
        create_app(settings),
        http=PatientProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, int(settings.stop_seconds)),
    )
    _Announcing(config, _address(settings, listener)).run(sockets=[listener])


class _Announcing(uvicorn.Server):
    """Says where it listens, once it does."""

    def __init__(self, config: uvicorn.Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(f"apsp listens on {self._address} (API documentation: {self._address}/docs)", flush=True)


def _listen(settings: Settings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # With the protocol named, asyncio sets TCP_NODELAY on accepted connections; left at 0 it does not, and every
        # answer on a kept connection waits 40 ms for the client's delayed acknowledgement.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
        return listener
    except OSError as error:
        message = f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        raise InvalidRequest(message, field="port") from error


def _address(settings: Settings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1]}"


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Uvicorn raises the signal that stopped it once more when it is done; swallow that, so that the runner is stopped.

    A second interrupt while that happens is swallowed too: it is bounded in time.
    """

    def swallow(_number: int, _frame: FrameType | None) -> None:
        pass

    before = {number: signal.signal(number, swallow) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
