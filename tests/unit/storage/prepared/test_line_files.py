"""Entries read from the files of a table: right across chunks, checked once, and told what is damaged."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.model.problem import Options
from storage.errors import StorageFailed
from storage.graph.graph import build_graph
from storage.matrix.format import data_mark
from storage.matrix.tiles import StoreFolder
from storage.prepared.line_files import LineFiles

ENTRIES = np.arange(1000, 1350, dtype=np.int32)
CHUNK = 100


@pytest.fixture
def files(tmp_path: Path) -> LineFiles:
    """A table of four chunks, the last one padded."""
    (tmp_path / "t/c").mkdir(parents=True)
    marks = []
    for k in range(4):
        data = np.resize(ENTRIES[k * CHUNK : (k + 1) * CHUNK], CHUNK).astype("<i4").tobytes()
        marks.append(data_mark(data))
        (tmp_path / f"t/c/{k}").write_bytes(data)
    return LineFiles(StoreFolder(tmp_path), "t", CHUNK, np.dtype(np.int32), marks)


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (0, 100), (99, 101), (100, 200), (5, 299), (0, 350), (349, 350)])
def test_entries_of_any_chunks(files: LineFiles, begin: int, end: int):
    assert files.peek(begin, end) is None, "no chunk was checked yet"
    np.testing.assert_array_equal(files.read(begin, end), ENTRIES[begin:end])
    found = files.peek(begin, end)
    if end - begin <= 2 * CHUNK:
        np.testing.assert_array_equal(found, ENTRIES[begin:end])
    else:
        assert found is None or found.tolist() == ENTRIES[begin:end].tolist()


def test_only_chunks_that_were_checked_are_peeked_at(files: LineFiles):
    files.read(0, 10)
    assert files.peek(50, 60) is not None
    for begin, end in ((99, 101), (100, 101), (50, 320)):
        assert files.peek(begin, end) is None


@pytest.mark.parametrize("how", ["changed", "cut", "longer", "gone", "a folder"])
@pytest.mark.parametrize("checked", [False, True])
def test_damage_is_named(files: LineFiles, tmp_path: Path, how: str, checked: bool):
    path = tmp_path / "t/c/1"
    if checked:
        files.read(0, 350)
    data = path.read_bytes()
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how != "gone":
        path.write_bytes({"changed": b"\1" + data[1:], "cut": data[:40], "longer": data + b"\0\0\0\0"}[how])
    np.testing.assert_array_equal(files.read(0, 100), ENTRIES[:100])
    if checked and how in ("changed", "longer"):
        return  # a sealed file is compared with the seal once, as a tile of a matrix is
    with contextlib.suppress(BlockingIOError):  # a file that ends early looks like one that is not in memory
        assert files.peek(150, 160) is None
    for _ in range(2):
        with pytest.raises(StorageFailed, match="t/c/1"):
            files.read(95, 160)


@pytest.mark.parametrize("shorter", [None, 0, 8])
def test_what_is_not_in_memory_is_requested_and_not_waited_for(
    files: LineFiles, monkeypatch: pytest.MonkeyPatch, shorter: int | None
):
    files.read(0, 200)
    usual, advised = os.preadv, []

    def preadv(handle: int, buffers: Any, place: int, flags: int = 0) -> int:
        if not flags:
            return usual(handle, buffers, place, flags)
        if shorter is None:
            raise BlockingIOError
        return shorter

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "posix_fadvise", lambda _handle, *what: advised.append(what))
    with pytest.raises(BlockingIOError):
        files.peek(110, 120)
    assert advised == [(40, 40, os.POSIX_FADV_WILLNEED)]
    np.testing.assert_array_equal(files.read(110, 120), ENTRIES[110:120])


def test_a_folder_that_was_replaced_is_not_read(files: LineFiles, tmp_path: Path):
    files.read(0, 350)
    files._folder.close()
    assert files.peek(0, 10) is None
    with pytest.raises(StorageFailed, match="closed"):
        files.read(0, 10)


def test_a_prepared_graph_has_them_for_its_tables(tmp_path: Path):
    graph = build_graph([0, 1, 2, 3], [1, 2, 0, 0], [1, 2, 4, 1], directed=True)[0]
    prepare(graph, tmp_path / "p", Options())
    with open_result(tmp_path / "p") as matrix:
        assert isinstance(matrix, PreparedMatrix)
        for name in ("forward", "backward"):
            files, table = matrix.line_files(name), matrix.table(name)
            assert files is not None
            assert table is not None
            np.testing.assert_array_equal(files.read(0, len(table)), table)
        assert matrix.line_files("sideward") is None
