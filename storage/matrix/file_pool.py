"""A pool of spare files: a new version of a tile is written into a spare file, which then replaces the tile's old file.

If each tile were written to a new file, the file system would allocate and free blocks every time, which halves the
rate of writing (decision 033).  So a tile is written into a *spare*, a file that already has blocks.  The spare is made
durable and exchanged with the file of the old tile, which becomes a spare in turn.  No reader ever sees half a tile,
and no old tile is removed before the new one is durable.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from storage.files import atomic
from storage.files.memory import in_memory

#: A pool has one spare file for every ``_SHARE`` tiles, at least ``_FEWEST`` and at most ``_MOST`` files.  When all are
#: used up, the folders are made durable; then the files of replaced tiles can be used again.
_MOST: Final = 64
_FEWEST: Final = 8
_SHARE: Final = 16


def spare_files(tiles: int) -> int:
    """Return how many spare files a matrix of ``tiles`` tiles may have."""
    return min(_MOST, max(_FEWEST, tiles // _SHARE))


class FilePool:
    """The spare files of a matrix of ``tiles`` tiles, in ``folder``.  Several threads may write different tiles."""

    def __init__(self, folder: Path, tiles: int) -> None:
        self._folder, self._most, self._in_memory = folder, spare_files(tiles), in_memory(folder)
        # ``with`` is used on the lock, which is C code, and never on the condition, which is Python code: an interrupt
        # in Python code could leave the lock held (decision 166)
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._free: list[Path] = []
        self._retired: list[Path] = []
        self._touched: set[Path] = set()
        self._out = self._made = 0

    def write(self, path: Path, buffers: Sequence[atomic.Buffer], size: int) -> None:
        """Replace a file atomically by a durable file with new content.

        Args:
            path: the file, which exists.
            buffers: the new content of the file, C-contiguous.
            size: bytes of all buffers together.

        Raises:
            OSError: the file system refused; the old file is still there.
        """
        spare = self._take()
        kept = True
        try:
            atomic.overwrite_file(spare, buffers, size, in_memory=self._in_memory)
            kept = atomic.take_place(spare, path)
        except BaseException:
            with self._lock:
                self._out -= 1
                self._free.append(spare)
                self._condition.notify()
            raise
        with self._lock:
            self._out -= 1
            self._touched.add(path.parent)
            if kept:
                # Until the folder is durable, a power cut may give this file the name of the tile again.
                self._retired.append(spare)
            self._condition.notify()

    def settle(self) -> None:
        """Make the folders of replaced tiles durable.  Raises OSError."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        for folder in () if self._in_memory else self._touched:
            atomic.sync_path(folder)
        self._touched.clear()
        self._free += self._retired
        self._retired.clear()
        self._condition.notify_all()

    def _take(self) -> Path:
        with self._lock:
            while not self._free:
                if len(self._retired) + self._out < self._most:
                    self._made += 1
                    self._free.append(self._folder / str(self._made))
                elif self._retired:
                    self._settle()
                else:
                    self._condition.wait()
            self._out += 1
            return self._free.pop()
