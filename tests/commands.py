"""Command lines that are run in the process of the test: one of their own needs a second to import the program.

That a process of its own does the same is what tests/integration/test_cli.py and tests/docs are about.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from service.cli import main

#: The start of a command line in a process of its own: what the installed script ``apsp`` runs.
APSP = [sys.executable, "-c", "from service.cli.start import main; main()"]


def run_here(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``apsp WORDS`` with more environment variables; returns its exit code and all that it has printed."""
    arguments, out, err = [str(word) for word in words], io.StringIO(), io.StringIO()
    with _kept_signals(), _environment(variables), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _kept_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
