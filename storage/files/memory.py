"""Tells folders whose files are in memory alone from folders on a disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: Types of file systems that are in memory.
KINDS = (b"tmpfs", b"ramfs")
_MOUNTS: Final = Path("/proc/self/mountinfo")


def in_memory(folder: Path) -> bool:
    """Return whether files of ``folder`` are in memory alone (tmpfs, ramfs).

    Such files are lost when the machine stops, so nothing makes them durable, and they cannot be kept out of the page
    cache, where they live.  The answer is looked up each time, because another file system may be mounted later.

    Returns:
        True if the system says so; False on a disk, and where the folder or the list of mounts cannot be examined.
    """
    try:
        status = os.stat(folder)  # noqa: PTH116 - the number of the device is what matters
        device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}".encode()
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False
    for line in lines:
        fields, _, rest = line.partition(b" - ")
        if fields.split()[2:3] == [device]:
            return rest.split(b" ", 1)[0] in KINDS
    return False
