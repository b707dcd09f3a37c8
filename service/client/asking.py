"""Repeats requests until there is an answer; decides which requests are repeated, when, and for how long."""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from service.client.errors import NoAnswer, Problem, ServiceError
from service.client.steps import Answer, Flow, Lost, Pause, Request, Send
from storage.arguments import check_number
from storage.errors import InvalidRequest
from storage.number_texts import is_digits

#: statuses after which another attempt may succeed; proxies and a stopping service send some of them
_AGAIN: Final = frozenset({425, 429, 502, 503, 504})
#: statuses that guarantee that the request had no effect
_UNTOUCHED: Final = frozenset({425, 429, 503})


def _ignore(_: str) -> None:
    """Ignore a message."""


def checked_seconds(field: str, seconds: Any) -> float:
    """Return a time limit in seconds, or infinity.  Raises InvalidRequest if it is no number, is negative or NaN."""
    found = check_number(field, seconds)
    if not found >= 0:
        raise InvalidRequest(f"{field} must be a number of seconds, at least 0, found {found}", field=field)
    return found


@dataclass(frozen=True)
class Patience:
    """How long and how often one request is repeated.

    Attributes:
        seconds: time without progress after which failures become an error.
        first: pause in seconds before the second attempt; it doubles for every further attempt.
        most: the longest pause in seconds.
        tell: called with a message when an attempt has failed and another one will follow.
        clock, chance: sources of time in seconds and of random numbers from 0 to 1, replaced in tests.
    """

    seconds: float = 60.0
    first: float = 0.2
    most: float = 10.0
    tell: Callable[[str], None] = _ignore
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        checked_seconds("patience", self.seconds)

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after failed attempt number ``attempt``, counted from 0.

        Half of the pause is random, so that many clients do not repeat their requests at the same time.
        """
        full = min(self.most, self.first * 2.0 ** min(attempt, 30))
        return full * (0.5 + self.chance() / 2)


def ask(request: Request, patience: Patience) -> Flow[Answer]:
    """Send a request until its answer has a status below 300; repeat it only where that is safe and may help.

    Raises:
        ServiceError: the service refused.
        NoAnswer: no answer arrived in time.
    """
    began, attempt, received = patience.clock(), 0, 0
    request = replace(request, connect_seconds=min(request.connect_seconds, max(0.1, patience.seconds)))
    while True:
        sink = request.sink
        reply: Answer | Lost = yield Send(request if sink is None else request.with_headers(sink.ask()))
        if isinstance(reply, Answer) and reply.status < 300:
            return reply
        if sink is not None and sink.complete:
            return Answer(200, {}, b"")
        if sink is not None and sink.received > received:
            began, attempt, received = patience.clock(), 0, sink.received
        spent = patience.clock() - began
        wait = _wait(reply, request, patience.pause(attempt))
        if wait is None or spent + wait > patience.seconds:
            raise _error(reply, request, spent)
        patience.tell(f"{_trouble(reply)}; trying again in {wait:.1f} s")
        yield Pause(wait)
        attempt += 1


def _wait(reply: Answer | Lost, request: Request, pause: float) -> float | None:
    """Return the seconds until the next attempt, or None if the request must not be repeated."""
    if isinstance(reply, Lost):
        return pause if not reply.final and (request.repeatable or not reply.sent) else None
    if reply.status not in _AGAIN or not (request.repeatable or reply.status in _UNTOUCHED):
        return None
    return max(pause, retry_after(reply) or 0.0)


def retry_after(answer: Answer) -> float | None:
    """Return the seconds that ``Retry-After`` asks for, as a number or a date (RFC 9110, 10.2.3); None without it."""
    text = answer.headers.get("retry-after", "").strip()
    if is_digits(text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _trouble(reply: Answer | Lost) -> str:
    return reply.reason if isinstance(reply, Lost) else Problem.read(reply.status, reply.content).detail


def _error(reply: Answer | Lost, request: Request, spent: float) -> Exception:
    if isinstance(reply, Lost):
        tried = f" (tried for {spent:.0f} s)" if spent >= 1 else ""
        unsure = "" if request.repeatable or not reply.sent else "; it may have taken effect, so it is not sent again"
        return NoAnswer(f"{request.method} {request.path}: {reply.reason}{tried}{unsure}")
    return ServiceError(Problem.read(reply.status, reply.content), retry_after=retry_after(reply))
