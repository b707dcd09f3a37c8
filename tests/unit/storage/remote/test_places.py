"""Where stores are made that go to an address: below a folder of caches, which may not be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import NotFound, StorageFailed
from storage.remote.places import _working_path

ADDRESS = "s3://bucket/d.zarr"


def test_the_place_depends_on_the_address_and_the_folder_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = _working_path(ADDRESS, None)
    assert own.is_relative_to(tmp_path / "cache" / "apsp" / "work")
    assert own == _working_path(f"{ADDRESS}/", None) != _working_path("s3://bucket/e.zarr", None)
    (tmp_path / "work").mkdir()
    assert _working_path(ADDRESS, tmp_path / "work").is_relative_to(tmp_path / "work")


def test_a_cache_that_cannot_be_written_is_named_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageFailed, match=r"cannot work in .*; XDG_CACHE_HOME may name another folder"):
        _working_path(ADDRESS, None)
    assert _working_path(ADDRESS, tmp_path).parent.is_dir()


def test_a_user_without_a_home_names_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(NotFound, match=r"no home, .* name one with XDG_CACHE_HOME, or with --work where"):
        _working_path(ADDRESS, None)
    assert _working_path(ADDRESS, tmp_path).parent.is_dir()
