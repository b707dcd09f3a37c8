"""Skips a test that starts a program which this machine lacks."""

from __future__ import annotations

import os
import shutil

import pytest


def need(*programs: str) -> None:
    """Skip the test if a program is not installed, or fail it if APSP_REQUIRE_PROGRAMS is 1, as in CI."""
    for program in programs:
        if shutil.which(program) is None:
            message = f"there is no {program} (Debian: apt-get install {program})"
            if os.environ.get("APSP_REQUIRE_PROGRAMS") == "1":
                pytest.fail(message)
            pytest.skip(message)
