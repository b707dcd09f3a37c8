"""What a conversation with the service is made of, without any input or output.

A :data:`Flow` is a generator that yields steps (send this request, pause, work, do these side by side) and is sent
their outcomes; it holds all the logic.  ``blocking.Driver`` and ``asynchronous.AsyncDriver`` carry out the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

#: bytes of a body that are in memory at once
CHUNK = 1 << 18
#: bytes of an answer about an error that are read
MOST_OF_A_PROBLEM = 1 << 20


class BodySink(Protocol):
    """Takes the body of a download as it comes, over several answers if the connection breaks off."""

    @property
    def received(self) -> int:
        """Bytes that are there."""

    @property
    def complete(self) -> bool:
        """Whether that is all."""

    def ask(self) -> Mapping[str, str]:
        """The headers that ask for what is missing."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """A body comes: all of it (200), or what is missing (206)."""

    def write(self, chunk: bytes) -> None:
        """A piece of it."""

    def end(self) -> None:
        """The body is over, or broke off."""


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        path: below the address of the service.
        params: the query, without those that are None.
        json: the body as JSON types; or file: the body is this file.
        repeatable: whether it may be sent again though it may have arrived.
        sink: where a successful body goes; else it is in ``Answer.content``.
        seconds: without a byte, after which it is given up.
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

    def with_headers(self, more: Mapping[str, str]) -> Request:
        """The request with further headers."""
        return replace(self, headers={**self.headers, **more})


@dataclass(frozen=True)
class Answer:
    """One whole answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Lost:
    """No whole answer came.

    Attributes:
        reason: in words.
        sent: whether the service may have seen the request.
        final: whether another attempt would end the same.
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
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Call something that reads files or computes; the outcome is what it returns."""

    call: Callable[[], Any]


@dataclass(frozen=True)
class Together:
    """Carry out flows, ``width`` at a time, taken from the iterator as they are begun; nothing comes back."""

    flows: Iterator[Flow[None]]
    width: int


Step: TypeAlias = Send | Pause | Work | Together
Flow: TypeAlias = Generator[Step, Any, T]
