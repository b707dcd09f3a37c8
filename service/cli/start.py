"""Starts the command line. While its modules are imported, an interrupt ends the process at once and prints nothing.

Python turns SIGINT into an exception, which may appear anywhere: in a half-imported module it becomes a traceback or
another error, or it is lost.  Nothing has been written before a command begins, so until then the default action of the
system is right: the signal ends the process, and a shell that runs the command in a loop ends the loop.  SIGTERM has
this action anyway.  ``service.cli.main`` installs its own handlers as soon as it can do better (decision 166).
"""

from __future__ import annotations

import gc
import signal
import sys
from types import TracebackType


def main() -> None:
    """Entry point of the ``apsp`` command."""
    # Python looks for garbage once for every 700 new objects.  While hundreds of modules are imported, that took 6 % of
    # the processor time of a small solve, so the threshold is raised.  ``service.serve`` sets it back.
    gc.set_threshold(50_000, 10, 10)
    sys.excepthook = _without_a_word
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a signal that the parent ignored stays ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from service.cli import main as command_line

    try:
        command_line.main()
    finally:
        # At exit Python would look for garbage among all imported objects, which took 7 % of the processor time of a
        # query.
        gc.disable()


def _without_a_word(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught exception, unless it is an interrupt, for which Python ends the process anyway."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
