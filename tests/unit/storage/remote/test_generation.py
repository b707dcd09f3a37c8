"""What one writer puts below an address is removed if it did not seal, and never if it may have."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from storage.errors import Conflict, StorageFailed
from storage.remote.addresses import SEAL
from storage.remote.generation import Generation
from storage.remote.objects import Objects, address_of
from tests.s3 import S3Server


@pytest.fixture
def address(s3: S3Server) -> str:
    return f"{s3.address}/{secrets.token_hex(4)}/d"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f" / "c").mkdir(parents=True)
    (tmp_path / "f" / "c" / "0").write_bytes(b"tile")
    return tmp_path / "f"


ROOT = json.dumps({"attributes": {"seal": {"digest": "sha256:1"}}}).encode()


def held() -> None:
    """The folder is still this process's."""


def names(address: str) -> set[str]:
    return set(Objects(address).names())


def test_the_root_document_comes_before_the_seal_and_both_after_the_files(address, folder, monkeypatch):
    order: list[str] = []
    real = Objects.write, Objects.create
    for name, call in zip(("write", "create"), real, strict=True):
        monkeypatch.setattr(
            Objects, name, lambda self, key, data, call=call: (order.append(key), call(self, key, data))
        )
    made = Generation.at(address, overwrite=False)
    made.send_folder(folder, ROOT, held)
    assert order == [f"{made.name}/c/0", f"{made.name}/zarr.json", SEAL]
    sealed = json.loads(Objects(address).read(SEAL))["attributes"]["apsp"]
    assert sealed == {"generation": made.name, "digest": "sha256:1"}
    made.abandon()
    assert names(address) == set(order), "what the seal names is never removed"


def test_a_folder_that_is_another_process_s_is_not_sealed(address, folder):
    def lost() -> None:
        raise StorageFailed("taken")

    made = Generation.at(address, overwrite=False)
    with pytest.raises(StorageFailed, match="taken"):
        made.send_folder(folder, ROOT, lost)
    assert SEAL not in names(address)
    made.abandon()
    assert names(address) == set()


def test_a_seal_whose_answer_was_lost_keeps_its_objects(address, folder, monkeypatch):
    real = Objects.create

    def lost(self: Objects, name: str, data: bytes) -> None:
        real(self, name, data)
        raise StorageFailed("the answer was lost")

    monkeypatch.setattr(Objects, "create", lost)
    made = Generation.at(address, overwrite=False)
    with pytest.raises(StorageFailed, match="lost"):
        made.send_folder(folder, ROOT, held)
    made.abandon()
    assert f"{made.name}/c/0" in names(address)
    away = Generation.at(address, overwrite=True)
    away.objects.write(f"{away.name}/x", b"")

    def unread(*_: object) -> None:
        raise StorageFailed("away")

    monkeypatch.setattr(Objects, "read", unread)
    away.abandon()
    assert f"{away.name}/x" in names(address), "whether it is sealed is not known"


def test_claims_leave_those_of_later_ones(address, folder):
    later, made = Generation.at(address, overwrite=False, claim=8), Generation.at(address, overwrite=False, claim=7)
    none = Generation.at(address, overwrite=False)
    for other in (later, none):
        other.objects.write(f"{other.name}/x", b"")
    made.send_folder(folder, ROOT, held)
    with pytest.raises(Conflict, match="exists already"):
        later.seal("sha256:2")
    made.tidy()
    assert names(address) == {SEAL, f"{made.name}/c/0", f"{made.name}/zarr.json", f"{later.name}/x"}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("s3://b/p", "s3://b/p"),
        (Path("s3://b/p"), "s3://b/p"),
        ("s3:/b", "s3://b"),
        (Path("/s3:/b"), None),
        ("b", None),
    ],
)
def test_an_address_is_known_even_as_a_path(given, want):
    assert address_of(given) == want
