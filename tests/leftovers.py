"""A pytest plugin: interrupts reach what tests start, and a test that fails leaves no process behind.

A shell that is not interactive starts commands in the background with SIGINT ignored, and whatever they start inherits
that: tests that interrupt a command then wait for ever.  A process that a failed test left running fails another test
later, when it is collected (ResourceWarning), or changes what that one measures.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Heed SIGINT, also where the parent ignored it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """End what the test itself has started, but not what fixtures have, if it fails."""
    before = _children()
    try:
        return (yield)
    except pytest.skip.Exception:
        raise
    except BaseException:
        _end(_children() - before)
        raise


def _children() -> set[int]:
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            found |= {int(word) for word in path.read_text().split()}
        except OSError:  # the thread has ended
            continue
    return found


def _end(numbers: set[int]) -> None:
    """SIGKILL to those of ``subprocess``, and to the groups that they lead; what else is started by itself, such as the
    helpers of ``multiprocessing``, serves later tests, too.
    """
    for found in gc.get_objects():
        # by type(): isinstance() asks proxies, and what they stand for may be gone
        if not issubclass(type(found), subprocess.Popen) or found.pid not in numbers or found.poll() is not None:
            continue
        if os.getpgid(found.pid) == found.pid:
            os.killpg(found.pid, signal.SIGKILL)
        else:
            found.kill()
        found.wait(30)
        for stream in (found.stdin, found.stdout, found.stderr):
            if stream is not None:
                stream.close()
