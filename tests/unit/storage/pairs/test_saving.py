"""Files of near pairs hold what was found, whatever the form, and appear whole or not at all."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import zarr
from scipy.sparse import csr_array, load_npz

from storage.errors import Conflict, InvalidRequest, NotFound, StorageFailed
from storage.pairs import saving
from storage.pairs.near_pairs import NearPairs
from storage.pairs.saving import check_pairs_target, save_pairs


def make_pairs(*, names: bool = False, kind: type = np.int32) -> NearPairs:
    labels = np.array(["a", "ü,1", "c"], np.dtypes.StringDType()) if names else np.array([5, 7, 2**40])
    return NearPairs(
        np.array([0, 2, 2]),
        np.array([1, 2], np.int32),
        np.array([0, 4], kind),
        np.array([0, 2]),
        labels,
        cutoff=9.5,
        nearest=None,
    )


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64])
@pytest.mark.parametrize("names", [False, True])
def test_every_form_holds_the_same(tmp_path, names, kind):
    pairs = make_pairs(names=names, kind=kind)
    for ending in saving.FORMS:
        save_pairs(pairs, tmp_path / f"near{ending}")
    want = pairs.to_scipy()
    assert want.shape == (2, 3)
    assert want.nnz == 2  # the distance of zero is an entry
    group = zarr.open(tmp_path / "near.zarr", mode="r")
    read = [load_npz(tmp_path / "near.npz"), csr_array((group["data"][:], group["indices"][:], group["indptr"][:]))]
    for one in read:
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(one, name), getattr(want, name))
        assert one.data.dtype == kind
    assert group["vertex"][:].tolist() == pairs.labels.tolist()
    assert dict(group.attrs)["shape"] == [2, 3]
    with np.load(tmp_path / "near.npz") as file:
        assert file["labels"].tolist() == pairs.labels.tolist()
    for table in (pl.read_parquet(tmp_path / "near.parquet"), pl.read_csv(tmp_path / "near.csv")):
        assert table.columns == ["source", "target", "distance"]
        assert table["source"].to_list() == [pairs.labels[0]] * 2
        assert table["target"].to_list() == pairs.labels[1:].tolist()
        assert table["distance"].to_list() == [0, 4]


def test_targets_are_checked(tmp_path):
    with pytest.raises(
        InvalidRequest, match=r"near.txt: the ending decides the format; known are .zarr \(Zarr group\)"
    ):
        check_pairs_target(tmp_path / "near.txt", overwrite=False)
    with pytest.raises(NotFound, match="missing"):
        check_pairs_target(tmp_path / "missing" / "near.csv", overwrite=True)
    (tmp_path / "near.csv").write_text("mine")
    (tmp_path / "near.zarr").mkdir()
    for path in ("near.csv", "near.zarr"):
        with pytest.raises(Conflict, match="exists already"):
            save_pairs(make_pairs(), tmp_path / path)
    with pytest.raises(Conflict, match="holds no near pairs"):
        save_pairs(make_pairs(), tmp_path / "near.zarr", overwrite=True)
    assert (tmp_path / "near.csv").read_text() == "mine"


@pytest.mark.parametrize("ending", list(saving.FORMS))
def test_what_was_there_stays_until_the_new_one_is_whole(tmp_path, monkeypatch, ending):
    path = tmp_path / f"near{ending}"
    save_pairs(make_pairs(), path)
    before = sorted(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving.atomic, "sync_tree", full)
    monkeypatch.setattr(saving.os, "fsync", full)
    with pytest.raises(StorageFailed, match="No space left"):
        save_pairs(make_pairs(kind=np.float64), path, overwrite=True)
    monkeypatch.undo()
    assert sorted(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()) == before
    assert [child.name for child in tmp_path.iterdir()] == [path.name]
    save_pairs(make_pairs(kind=np.float64), path, overwrite=True)
    assert sorted(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()) != before


def test_a_row_is_found_by_its_source():
    pairs = make_pairs()
    assert [each.tolist() for each in pairs.row(0)] == [[1, 2], [0, 4]]
    assert [each.tolist() for each in pairs.row(2)] == [[], []]
    with pytest.raises(KeyError):
        pairs.row(1)


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_tables_in_pieces_are_those_in_one(tmp_path, monkeypatch, names, most):
    """Rows of sources are cut anywhere, some sources have no pairs, and the arrays may lie in files."""
    rng = np.random.default_rng(most)
    counts = np.array([0, 3, 0, 0, 5, 1, 0, 9, 0])
    indptr, n = np.concatenate([[0], np.cumsum(counts)]), 12
    labels = np.array([f"v{i}" for i in range(n)], np.dtypes.StringDType()) if names else np.arange(n) * 7
    indices = np.memmap(tmp_path / "indices", np.int32, "w+", shape=(18,))
    indices[:] = rng.integers(0, n, 18)
    pairs = NearPairs(indptr, indices, rng.integers(0, 99, 18).astype(np.int32), np.arange(9)[::-1].copy(), labels)
    whole = saving.frame_of_pairs(pairs)
    save_pairs(pairs, tmp_path / "whole.csv")
    monkeypatch.setattr(saving, "MOST_ROWS", most)
    for ending in (".csv", ".parquet"):
        save_pairs(pairs, tmp_path / f"near{ending}")
    assert (tmp_path / "near.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    found = pl.read_parquet(tmp_path / "near.parquet")
    assert found.schema == whole.schema
    assert found.equals(whole)
    nothing = NearPairs(np.zeros(10, np.int64), np.empty(0, np.int32), np.empty(0), np.arange(9), labels)
    save_pairs(nothing, tmp_path / "nothing.parquet")
    assert pl.read_parquet(tmp_path / "nothing.parquet").is_empty()
