"""Folders in memory: they are told from folders on a disk, and stores in them are written without waiting."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from storage.files import atomic, direct, memory
from storage.matrix.reader import MatrixSpec, create_matrix, open_matrix
from storage.matrix.shared import GuestMatrix
from storage.matrix.working import open_working
from tests.stores import UNREACHABLE, entries_of, line_graph, verify_matrix

N = 200


def mounts_of(path: Path, kind: str) -> str:
    device = path.stat().st_dev
    here = f"{os.major(device)}:{os.minor(device)}"
    return (
        "22 1 254:77 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        f"23 22 {here}9 / /other rw - tmpfs tmpfs rw\n"
        f"25 22 {here} / /a\\040folder rw,nosuid shared:2 master:7 - {kind} none rw\n"
    )


@pytest.mark.parametrize(("kind", "wanted"), [("tmpfs", True), ("ramfs", True), ("ext4", False), ("overlay", False)])
def test_the_kind_of_the_mount_decides(tmp_path, monkeypatch, kind, wanted):
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(memory, "KINDS", (b"tmpfs", b"ramfs"))
    monkeypatch.setattr(memory, "_MOUNTS", mounts)
    assert not memory.in_memory(tmp_path)  # there is no list
    mounts.write_text(mounts_of(tmp_path, kind))
    assert memory.in_memory(tmp_path) is wanted
    mounts.write_text("22 1 254:77 / / rw - tmpfs none rw\n\n")  # a list without this device
    assert not memory.in_memory(tmp_path)
    mounts.write_text(mounts_of(tmp_path, "tmpfs"))
    assert not memory.in_memory(tmp_path / "none")


def test_the_systems_own_folder_in_memory_is_told(tmp_path, monkeypatch):
    found = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    folders = [Path(line[1]) for line in found if line[2] == "tmpfs" and Path(line[1]).is_dir()]
    if not folders:
        pytest.skip("the system has no folder in memory")
    monkeypatch.setattr(memory, "KINDS", (b"tmpfs", b"ramfs"))
    assert memory.in_memory(folders[-1])


@pytest.fixture
def forbidden(tmp_path, monkeypatch):
    """The folder counts as one in memory; every way to a disk is refused."""
    mounts = tmp_path.parent / f"{tmp_path.name}-mountinfo"
    mounts.write_text(mounts_of(tmp_path, "tmpfs"))
    monkeypatch.setattr(memory, "KINDS", (b"tmpfs",))
    monkeypatch.setattr(memory, "_MOUNTS", mounts)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a tile in memory was treated as a tile on a disk")

    for place, name in ((atomic, "sync_data"), (atomic, "_begin_writeback"), (atomic, "_sync_files")):
        monkeypatch.setattr(place, name, refused)
    for name in ("write", "read", "settle_file", "forget"):
        monkeypatch.setattr(direct, name, refused)


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_store_in_memory_is_written_read_left_and_resumed_as_any_other(tmp_path, monkeypatch, compression):
    monkeypatch.setattr("storage.matrix.working._PENDING", 1)  # a large matrix
    graph, path = line_graph(N), tmp_path / "d.zarr"
    spec = MatrixSpec("int32", UNREACHABLE["int32"], compression=compression)
    before, now = entries_of(N, N, "int32", 1), entries_of(N, N, "int32", 2)
    with open_working(path, graph, spec) as writer:
        for entries in (now, before):  # the second turn replaces tiles
            writer.write(0, 0, entries)
        writer.commit({"round": 1})
        exchange = writer.make_exchange_dir()
        guest = GuestMatrix(writer._place.folder, exchange, writer.grid, "int32", compression)
        tile = np.empty((64, N), np.int32)
        guest.read_tile(0, 0, tile)
        np.testing.assert_array_equal(tile, before[:64])
        writer.adopt(exchange, [guest.write_tile(0, 0, now[:64])])
        writer.commit({"round": 2})
    with open_working(path, graph, spec, resume=True) as writer:
        assert writer.record() == {"round": 2}
        found = np.empty_like(now)
        writer.read_rows(0, found)
        np.testing.assert_array_equal(found, np.concatenate([now[:64], before[64:]]))
        writer.write(64, 0, now[64:])
        writer.seal({})
    verify_matrix(path)
    with open_matrix(path) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(N)), now)


@pytest.mark.usefixtures("forbidden")
def test_files_in_memory_are_those_on_a_disk(tmp_path, monkeypatch):
    graph, spec = line_graph(N), MatrixSpec("float32", np.inf)
    entries = entries_of(N, N, "float32", 3)

    def tiles(name: str) -> dict[str, bytes]:
        with create_matrix(tmp_path / name, graph, spec) as writer:
            writer.write(0, 0, entries)
            writer.seal({})
        folder = tmp_path / name / "distances"
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    inside = tiles("memory.zarr")
    monkeypatch.undo()
    assert inside == tiles("disk.zarr")
