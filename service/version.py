"""Tells the version of the software."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def software_version() -> str:
    """Return the installed version."""
    try:
        return version("apsp")
    except PackageNotFoundError:
        return "unknown"
