"""A GPU that starts while a graph is read and planned: opening it takes longer than reading a graph of some size.

The first call of the driver, the context and the first kernel take some tenths of a second, more where the kernel has
to be compiled; none of it needs the graph.  What goes wrong is not told here: planning opens the device again, finds
the same error, and names it, after the errors of the graph's file and of the options.
"""

from __future__ import annotations

import atexit
import importlib.util
import threading
from contextlib import suppress
from typing import Final

from engine.execution import survey

#: Seconds that the end of the process waits for a device that is still being opened.
PATIENCE: Final = 10.0


def open_ahead() -> threading.Thread | None:
    """Open the GPU in a thread that nobody has to wait for, so that later calls find it open.

    cupy is imported here and not in the thread, because imports by two threads could meet.

    Returns:
        The thread; None where cupy is not installed or cannot be imported.
    """
    if importlib.util.find_spec("cupy") is None:
        return None
    with suppress(Exception):  # a broken installation fails in many ways, and planning tells which
        from engine.devices.cuda.context import load_cupy

        load_cupy()
        opening = threading.Thread(target=survey.find_cuda, args=(None,), name="apsp-open", daemon=True)
        opening.start()
        atexit.register(opening.join, PATIENCE)  # the driver does not bear that the process ends in its first call
        return opening
    return None
