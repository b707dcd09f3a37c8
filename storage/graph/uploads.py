"""Stores raw uploads in temporary files until they are read.

The API process imports this module, so it does not import NumPy.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from storage.errors import DoesNotFit


class Uploads:
    """Temporary files under ``root/incoming``, on the same disk as the graphs."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "incoming"
        self._folder.mkdir(parents=True, exist_ok=True)

    def create(self, filename: str | None, size: int | None) -> Path:
        """Make an empty file whose name ends like ``filename``, because readers use the ending to detect formats.

        Raises:
            DoesNotFit: the client announced ``size`` bytes, more than are free on the disk.
        """
        free = shutil.disk_usage(self._folder).free
        if size is not None and size > free:
            message = f"the upload does not fit on the disk: {size} bytes are announced, {free} are free"
            raise DoesNotFit(message, resource="disk", needed=size, available=free)
        ending = "".join(Path(filename or "").suffixes[-2:])
        safe = ending if len(ending) <= 20 and ending.replace(".", "").isalnum() else ""
        handle, name = tempfile.mkstemp(suffix=safe, prefix="upload-", dir=self._folder)
        os.close(handle)
        return Path(name)

    def clear(self) -> None:
        """Remove unfinished uploads that processes left when they ended; call this only while no upload runs."""
        for path in self._folder.glob("upload-*"):
            path.unlink(missing_ok=True)
