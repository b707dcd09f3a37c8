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
