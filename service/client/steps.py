"""The steps of an exchange with the service.  Nothing in this module does input or output.

A :data:`Flow` is a generator that yields steps (send a request, pause, call a function, run flows concurrently) and
receives their outcomes; it contains all the logic.  ``blocking.BlockingDriver`` and ``asynchronous.AsyncDriver``
execute the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

#: bytes of a body that are read at once
CHUNK = 1 << 18


class BodySink(Protocol):
    """Receives the body of a download, over several answers if the connection breaks."""

    @property
    def received(self) -> int:
        """The bytes received so far."""

    @property
    def complete(self) -> bool:
        """Whether all bytes have been received."""

    def ask(self) -> Mapping[str, str]:
        """Return the headers of a request for the missing bytes."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin to receive a body: all of it (200), or the missing part (206)."""

    def write(self, chunk: bytes) -> None:
        """Receive a chunk of the body."""

    def end(self) -> None:
        """Stop receiving: the body has ended, or the connection broke."""


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        path: the path of the URL, relative to the address of the service.
        params: the query; parameters that are None are left out.
        json: the body as JSON types.
        file: a file to send as the body in place of ``json``.
        repeatable: whether the request may be sent again when the service may have received it already.
        sink: receives the body of a successful answer; if None, the body is in ``Answer.content``.
        seconds: time without a byte after which the request is aborted.
        connect_seconds: time after which an attempt to connect is given up.
    """

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    file: Path | None = None
    repeatable: bool = True
    sink: BodySink | None = None
    seconds: float = 60.0
    connect_seconds: float = 10.0

    def with_headers(self, more: Mapping[str, str]) -> Request:
        """Return the request with further headers."""
        return replace(self, headers={**self.headers, **more})


@dataclass(frozen=True)
class Answer:
    """One whole answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Lost:
    """No complete answer arrived.

    Attributes:
        reason: the text that says why no answer arrived.
        sent: whether the service may have seen the request.
        final: whether another attempt would end in the same way.
    """

    reason: str
    sent: bool
    final: bool = False


@dataclass(frozen=True)
class Send:
    """Send a request; the outcome is an Answer or Lost."""

    request: Request


@dataclass(frozen=True)
class Pause:
    """Wait for ``seconds``."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Call a function that reads files or computes; the outcome is its result."""

    call: Callable[[], Any]


@dataclass(frozen=True)
class Together:
    """Run flows, ``width`` at a time; each is taken from the iterator when it starts.  The outcome is None."""

    flows: Iterator[Flow[None]]
    width: int


Step: TypeAlias = Send | Pause | Work | Together
Flow: TypeAlias = Generator[Step, Any, T]
