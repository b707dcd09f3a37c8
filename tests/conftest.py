"""What all tests share: the folder of real graphs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real graphs with known answers: APSP_DATA, or shared/data beside the repository.

    Tests that ask for it are skipped where it is absent, and fail there if APSP_REQUIRE_DATA is 1, as in CI.
    """
    folder = Path(os.environ.get("APSP_DATA") or ROOT.parent / "shared" / "data")
    if (folder / "REFERENCE.json").is_file():
        return folder
    message = f"the real graphs are not at {folder}; set APSP_DATA to their folder"
    if os.environ.get("APSP_REQUIRE_DATA") == "1":
        pytest.fail(message)
    pytest.skip(message)
