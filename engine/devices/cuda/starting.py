"""Starts the CUDA driver in a thread while the caller works.  Starting takes half a second, during which other Python
threads can run.

cupy is not imported here: two threads that import packages may wait for each other.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any


def start_driver(device: int = 0) -> threading.Thread:
    """Begin to start the driver and the primary context of a device, and return at once.

    A later use of the device waits until the start is complete.  Errors are not reported here, because the later use
    raises them again.

    Args:
        device: index of the device.

    Returns:
        The thread, which ends by itself.
    """
    # not a daemon thread, because the process must not end while the driver is starting
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
    """Create the primary context of a device; it exists until the process ends.

    Args:
        driver: the driver's library.
        device: index of the device.

    Returns:
        Whether the driver created the context.
    """
    chip, made = ctypes.c_int(), ctypes.c_void_p()
    return not (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(chip), device)
        or driver.cuDevicePrimaryCtxRetain(ctypes.byref(made), chip)
    )
