"""What a thread does where a kernel for processors was never compiled: wait, tell that it waits, or refuse to wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

#: Returns a context that lasts as long as the compilation of the kernel whose name it is given.
Announce = Callable[[str], AbstractContextManager[None]]


class NotCompiledError(Exception):
    """A kernel is needed that was never compiled, by a caller that does not want to wait for it."""


class _Waiting(threading.local):
    """What the calls of this thread do about a kernel that is not compiled.

    Attributes:
        announce: is entered around a compilation.
        refuse: whether NotCompiledError is raised instead.
        compiling: whether this thread compiles, so that what a kernel calls is compiled along with it.
    """

    announce: Announce | None = None
    refuse = False
    compiling = False


WAITING: Final = _Waiting()


@contextlib.contextmanager
def announcing(announce: Announce) -> Iterator[None]:
    """Enter ``announce(name)`` around each compilation that this thread waits for."""
    before, WAITING.announce = WAITING.announce, announce
    try:
        yield
    finally:
        WAITING.announce = before


@contextlib.contextmanager
def only_ready() -> Iterator[None]:
    """Let calls of this thread raise NotCompiledError instead of compiling."""
    before, WAITING.refuse = WAITING.refuse, True
    try:
        yield
    finally:
        WAITING.refuse = before
