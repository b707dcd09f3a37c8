"""Starts the CUDA driver while something else is done: half a second, of which the driver's part needs no Python.

cupy is not imported here: two threads that import packages may wait for each other.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any


def start_driver(device: int = 0) -> threading.Thread:
    """Begin to start the driver and the primary context of a device, and return at once.

    Whoever uses the device afterwards waits for what is left.  Errors are not reported: they are found again there.

    Args:
        device: its index.

    Returns:
        The thread that does it, which ends by itself.
    """
    # not a daemon: the process must not end inside the driver
    thread = threading.Thread(target=_start, args=(device,), name="apsp-cuda")
    thread.start()
    return thread


def _start(device: int) -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    context(driver, device)


def context(driver: Any, device: int) -> bool:
    """Make the primary context of a device; it stays until the process ends.

    Args:
        driver: the library.
        device: its index.

    Returns:
        Whether the driver did it.
    """
    chip, made = ctypes.c_int(), ctypes.c_void_p()
    return not (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(chip), device)
        or driver.cuDevicePrimaryCtxRetain(ctypes.byref(made), chip)
    )
