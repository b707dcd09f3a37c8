"""What all tests of the readers share: an error that no reader foresaw is not told as a refusal here."""

from __future__ import annotations

from typing import NoReturn

import pytest


def _raise(error: BaseException, format: str | None) -> NoReturn:  # noqa: A002
    raise error


@pytest.fixture(autouse=True)
def no_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """The net of ``read_graph`` would hide the faults of readers."""
    monkeypatch.setattr("storage.readers.unforeseen", _raise)


@pytest.fixture(autouse=True)
def by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are read by columns, as large ones are; ``test_small_files`` compares that with line by line."""
    monkeypatch.setattr("storage.readers.tables.table.FEW_BYTES", 0)
    monkeypatch.setattr("storage.readers.columns.FEW_NAMES", 0)
