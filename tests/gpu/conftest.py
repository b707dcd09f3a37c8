"""Tests on a CUDA device; all carry the mark ``gpu`` and are skipped where there is no device."""

from __future__ import annotations

from typing import Any

import pytest

from storage.errors import InvalidRequest


@pytest.fixture(scope="session")
def cupy() -> Any:
    from engine.backends.cuda_modules import open_device

    try:
        return open_device()
    except InvalidRequest as error:
        pytest.skip(str(error))
