"""Solves on a device that are killed and gone on with; ``python -m tests.gpu.kills`` does as many as one likes."""

from __future__ import annotations

import pytest

from tests.gpu.kills import campaign


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.usefixtures("cupy")
@pytest.mark.timeout(3600)
def test_two_hundred_kills() -> None:
    found = campaign(200, 3000, 10, 1, "cuda")
    assert found.total() - found["right"] >= 200


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_kills_on_the_processors() -> None:
    found = campaign(20, 1000, 2, 1, "cpu", 0)
    assert found.total() - found["right"] >= 20
