"""Tests on a CUDA device; all carry the mark ``gpu`` and are skipped where there is no device.

For compute-sanitizer set APSP_GPU_POOL=0: each array is then an allocation of its own, so that a stray access shows.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from storage.errors import InvalidRequest


@pytest.fixture(scope="session")
def cupy() -> Any:
    from engine.devices.cuda.context import open_device

    try:
        found = open_device()
        if os.environ.get("APSP_GPU_POOL") == "0":
            found.cuda.set_allocator(None)
        return found
    except InvalidRequest as error:
        pytest.skip(str(error))
