"""Panels that pass through a store: in several files, read only as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from storage.errors import StorageFailed
from storage.matrix import exchange

SIZES = [1, 99, 100, 101, 799, 800, 801, 1600, 1999]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PIECE", 100)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as found:
        yield found


def panel(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, (1, size), dtype=np.uint8)


@pytest.mark.parametrize("size", SIZES)
def test_a_panel_is_read_as_it_was_written(size: int, tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    sent, found = panel(size), np.zeros((1, size), np.uint8)
    exchange.write_panel(tmp_path / "p", sent, pool)
    assert len(list((tmp_path / "p").iterdir())) == min(-(-size // 100), -(-size // (-(-size // 800) * 100)))
    exchange.read_panel(tmp_path / "p", found, pool)
    np.testing.assert_array_equal(found, sent)
    exchange.write_panel(tmp_path / "p", sent[:, ::-1].copy(), pool)
    exchange.read_panel(tmp_path / "p", found, pool)
    np.testing.assert_array_equal(found, sent[:, ::-1])
    exchange.remove_panel(tmp_path / "p")
    assert not (tmp_path / "p").exists()
    exchange.remove_panel(tmp_path / "p")


@pytest.mark.parametrize("size", SIZES)
def test_damage_is_found_wherever_it_is(size: int, tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    sent, found = panel(size), np.zeros((1, size), np.uint8)
    exchange.write_panel(tmp_path / "p", sent, pool)
    for part in (tmp_path / "p").iterdir():
        right = part.read_bytes()
        flipped = bytearray(right)
        flipped[size % len(right)] ^= 4
        for wrong in (bytes(flipped), right[:-1], right + b"0", b""):
            part.write_bytes(wrong)
            with pytest.raises(StorageFailed, match="damaged"):
                exchange.read_panel(tmp_path / "p", found, pool)
        part.unlink()
        with pytest.raises(StorageFailed, match="read panel"):
            exchange.read_panel(tmp_path / "p", found, pool)
        part.write_bytes(right)


def test_a_room_that_is_gone_is_a_failure(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with pytest.raises(StorageFailed, match="write panel"):
        exchange.write_panel(tmp_path / "none" / "p", panel(99), pool)
