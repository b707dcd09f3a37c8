"""The folder for files that apsp can do without or make again: below XDG_CACHE_HOME, or below ``~/.cache``."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Return the folder, which may not exist; None if the user has no home, such as a user id without an account."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "apsp"
    try:
        return Path.home() / ".cache" / "apsp"
    except RuntimeError:
        return None
