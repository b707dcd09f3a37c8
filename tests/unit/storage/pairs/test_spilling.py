"""Pairs that are written to files without names: their values, their type, and what remains of the files."""

from __future__ import annotations

import numpy as np
import pytest

from storage.errors import DoesNotFit, StorageFailed
from storage.pairs import spilling
from storage.pairs.spilling import PairSpill


@pytest.mark.parametrize(("most", "dtype"), [(2**31 - 1, np.int32), (2**31, np.int64)])
def test_whole_distances_are_as_narrow_as_they_can_be(tmp_path, monkeypatch, most, dtype):
    monkeypatch.setattr(spilling, "_BLOCK", 100)
    lengths = np.random.default_rng(1).integers(0, 2**31, 1234)
    lengths[77] = most
    spill = PairSpill(tmp_path, np.dtype(np.int64), 1234)
    for first in range(0, 1234, 200):
        spill.append(np.arange(1234, dtype=np.int32)[first : first + 200], lengths[first : first + 200])
    indices, found = spill.result()
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, lengths)
    np.testing.assert_array_equal(indices, np.arange(1234))
    assert not list(tmp_path.iterdir())


def test_fractions_and_nothing(tmp_path):
    spill = PairSpill(tmp_path, np.dtype(np.float64), 3)
    spill.append(np.array([4, 2, 1], np.int32), np.array([0.5, 0.25, 1e300]))
    assert spill.result()[1].tolist() == [0.5, 0.25, 1e300]
    empty = PairSpill(tmp_path, np.dtype(np.int64), 0)
    assert [array.dtype for array in empty.result()] == [np.int32, np.int32]


def test_a_disk_that_is_too_small_is_told_before_any_work(tmp_path):
    with pytest.raises(DoesNotFit, match="are free in") as refused:
        PairSpill(tmp_path, np.dtype(np.int64), 10**15)
    assert refused.value.resource == "disk"
    assert refused.value.needed > refused.value.available


def test_a_folder_that_is_gone_is_an_error_of_storage(tmp_path, monkeypatch):
    monkeypatch.setattr(spilling.shutil, "disk_usage", lambda _: spilling.shutil._ntuple_diskusage(9, 0, 9 * 10**9))
    with pytest.raises(StorageFailed, match="cannot write to"):
        PairSpill(tmp_path / "gone", np.dtype(np.int64), 1)
