"""The working copy: rewritten, read back, committed, left, resumed; refused when it is of something else."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from storage.errors import Conflict, StorageFailed
from storage.files import atomic, direct
from storage.files.writing import Writing
from storage.matrix import file_pool, working, working_dir
from storage.matrix import writer as matrix_writer
from storage.matrix.reader import MatrixSpec, create_matrix, open_matrix
from storage.matrix.shared import GuestMatrix
from storage.matrix.working import discard_checkpoint, find_checkpoint, open_working
from tests.stores import UNREACHABLE, entries_of, line_graph, make_store, verify_matrix

N = 150


def opened(path, *, n=N, dtype="float32", resume=False, overwrite=False, graph=None, **fields):
    graph = graph or line_graph(n)
    spec = MatrixSpec(dtype, UNREACHABLE[dtype], **fields)
    return open_working(path, graph, spec, resume=resume, overwrite=overwrite)


def base(path: Path) -> Path:
    return path.with_name(f".{path.name}.working")


def left_at(path, entries, record, **options):
    """A working copy that was committed and left."""
    with opened(path, n=entries.shape[1], dtype=entries.dtype.name, **options) as writer:
        writer.write(0, 0, entries)
        writer.commit(record)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(("n", "dtype"), [(1, "int32"), (64, "uint16"), (150, "float32"), (9000, "int32")])
def test_rows_come_back_as_last_written_and_the_sealed_store_holds_them(tmp_path, n, dtype, compression):
    rows = min(n, 200)
    sources = np.arange(rows) if rows < n else None
    with opened(tmp_path / "d.zarr", n=n, dtype=dtype, sources=sources, compression=compression) as writer:
        for seed in range(3):  # the second turn replaces tiles, the third those of spares
            entries = entries_of(rows, n, dtype, seed)
            writer.write(0, 0, entries)
            found = np.empty_like(entries)
            writer.read_rows(0, found)
            np.testing.assert_array_equal(found, entries)
        writer.commit({"round": 3})
        writer.seal({"seed": 2})
    with open_matrix(tmp_path / "d.zarr") as matrix:
        np.testing.assert_array_equal(matrix.rows(np.arange(rows)), entries)
        assert matrix.summary == {"seed": 2}
    verify_matrix(tmp_path / "d.zarr")
    assert [p.name for p in tmp_path.iterdir()] == ["d.zarr"]


def test_columns_before_the_asked_one_are_left_alone_by_whole_tiles(tmp_path):
    n = 20_000  # three tiles across
    with opened(tmp_path / "d.zarr", n=n, dtype="int32", sources=np.arange(64)) as writer:
        entries = entries_of(64, n, "int32")
        writer.write(0, 0, entries)
        width = writer.tile[1]
        found = np.full_like(entries, -1)
        writer.read_rows(0, found, column=width + 5)
        assert (found[:, :width] == -1).all()
        np.testing.assert_array_equal(found[:, width:], entries[:, width:])


def test_another_process_resumes_what_was_committed(tmp_path):
    path = tmp_path / "d.zarr"
    entries = entries_of(N, N, "float32")
    work = multiprocessing.get_context("fork").Process(target=left_at, args=(path, entries, {"round": 7}))
    work.start()
    work.join()
    assert work.exitcode == 0
    assert not path.exists()

    found = find_checkpoint(path)
    assert found.record == {"round": 7}
    assert found.identity["type"] == "float32"
    assert found.bytes >= entries.nbytes
    with opened(path, resume=True) as writer:
        assert writer.record() == {"round": 7}
        again = np.empty_like(entries)
        writer.read_rows(0, again)
        np.testing.assert_array_equal(again, entries)
        writer.write(64, 0, entries[64:128] + 1)
        writer.seal({})
    with open_matrix(path) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(64, 128)), entries[64:128] + 1)
        np.testing.assert_array_equal(matrix.rows(range(64)), entries[:64])
        np.testing.assert_array_equal(matrix.labels, line_graph(N).labels)
    verify_matrix(path)
    assert find_checkpoint(path) is None


def test_what_was_never_committed_goes(tmp_path):
    with opened(tmp_path / "d.zarr") as writer:
        writer.write(0, 0, entries_of(N, N, "float32"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "stray", ["foo", ".nfs0000000001", "0/.nfs0000000002", "0/bar", "7", "0/7", "00", "0/²", "-1", "1_0", "0/0x"]
)
def test_a_stray_file_among_the_tiles_is_passed_over(tmp_path, stray):
    path, entries = tmp_path / "d.zarr", entries_of(N, N, "float32")
    left_at(path, entries, {"round": 1})
    (base(path) / "store" / "distances" / "c" / stray).write_bytes(b"somebody else's")
    with opened(path, resume=True) as writer:
        found = np.empty_like(entries)
        writer.read_rows(0, found)
        np.testing.assert_array_equal(found, entries)
        writer.write(0, 0, entries + 1)
        writer.seal({})
    verify_matrix(path)


# ---- a record is lowered before a tile is overwritten by less ---------------------------------------------------


@pytest.mark.parametrize("adopted", [False, True])
def test_the_record_is_lowered_before_the_first_tile_is_changed_and_not_before(tmp_path, monkeypatch, adopted):
    path, old = tmp_path / "d.zarr", entries_of(N, N, "float32", 1)
    left_at(path, old, {"round": 5})
    seen = []

    def looking(real):
        def change(*arguments):
            seen.append(find_checkpoint(path).record)
            return real(*arguments)

        return change

    with opened(path, resume=True) as writer:
        writer.lower({"round": 2})
        found = np.empty_like(old)
        writer.read_rows(0, found)
        assert find_checkpoint(path).record == writer.record() == {"round": 5}
        if adopted:
            room = writer.make_exchange_dir()
            guest = GuestMatrix(base(path) / "store", room, writer.grid, "float32", "none")
            files = [guest.write_tile(0, 0, old[:64] + 1), guest.write_tile(1, 0, old[64:128] + 1)]
            assert find_checkpoint(path).record == {"round": 5}
            monkeypatch.setattr(Path, "replace", looking(Path.replace))
            writer.adopt(room, files)
            seen = seen[-2:]  # the record has a draft, too
        else:
            monkeypatch.setattr(file_pool.FilePool, "write", looking(file_pool.FilePool.write))
            writer.write(0, 0, old + 1)
        assert len(seen) >= 2
        assert all(record == {"round": 2} for record in seen)
        writer.commit({"round": 7})
        writer.write(0, 0, old + 2)
    assert find_checkpoint(path).record == {"round": 7}


def test_what_is_to_be_lowered_and_never_written_over_stays(tmp_path):
    path = tmp_path / "d.zarr"
    left_at(path, entries_of(N, N, "float32", 1), {"round": 5})
    with opened(path, resume=True) as writer:
        writer.lower({"round": 2})
    assert find_checkpoint(path).record == {"round": 5}


def test_no_tile_is_written_if_the_record_cannot_be_lowered(tmp_path, monkeypatch):
    path, old = tmp_path / "d.zarr", entries_of(N, N, "float32", 1)
    left_at(path, old, {"round": 5})
    with opened(path, resume=True) as writer:
        writer.lower({"round": 2})
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, os.strerror(errno.EIO))))
            for _ in range(2):
                with pytest.raises(StorageFailed):
                    writer.write(0, 0, old + 1)
    assert find_checkpoint(path).record == {"round": 5}
    with opened(path, resume=True) as writer:
        found = np.empty_like(old)
        writer.read_rows(0, found)
    np.testing.assert_array_equal(found, old)


def test_the_record_goes_before_the_tiles(tmp_path, monkeypatch):
    """Whoever begins anew, and whoever discards, leaves no record of tiles that are gone or of something else."""
    path = tmp_path / "d.zarr"
    for begin_anew in (lambda: opened(path, overwrite=True), lambda: discard_checkpoint(path)):
        left_at(path, entries_of(N, N, "float32", 1), {"round": 5}, overwrite=True)
        synced = []

        def tree(folder, *more, synced=synced, **keys):
            assert not (base(path) / "record.json").exists()
            assert base(path) in synced
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(atomic, "sync_path", lambda path, synced=synced: synced.append(path))
            patch.setattr("shutil.rmtree", tree)
            with pytest.raises(KeyboardInterrupt):
                begin_anew()
        assert find_checkpoint(path) is None


def test_abort_removes_the_checkpoint_too(tmp_path):
    left_at(tmp_path / "d.zarr", entries_of(N, N, "float32"), {})
    with opened(tmp_path / "d.zarr", resume=True) as writer:
        writer.abort()
    assert list(tmp_path.iterdir()) == []
    left_at(tmp_path / "d.zarr", entries_of(N, N, "float32"), {})
    discard_checkpoint(tmp_path / "d.zarr")
    discard_checkpoint(tmp_path / "d.zarr")
    assert list(tmp_path.iterdir()) == []


def test_leftovers_without_a_record_are_cleared(tmp_path):
    tiles = base(tmp_path / "d.zarr") / "store" / "distances" / "c" / "0"
    tiles.mkdir(parents=True)
    (tiles / "0").write_bytes(b"rubbish")
    with opened(tmp_path / "d.zarr", resume=True) as writer:
        assert writer.record() is None
        with pytest.raises(StorageFailed, match="No such file"):
            writer.read_rows(0, np.empty((N, N), np.float32))


def test_a_checkpoint_is_neither_overlooked_nor_mixed_up(tmp_path):
    path = tmp_path / "d.zarr"
    left_at(path, entries_of(N, N, "float32"), {"round": 1})
    with pytest.raises(Conflict, match=r"--resume.*--overwrite"):
        opened(path)
    other = line_graph(N)
    other.weights[3] = 6
    for wrong, name in [
        ({"graph": other}, "graph"),
        ({"dtype": "float64"}, "type"),
        ({"sources": np.arange(N - 1)}, "sources"),
        ({"attributes": {"max_hops": 3}}, "max_hops"),
        ({"compression": "zstd"}, "compression"),
    ]:
        with pytest.raises(Conflict, match=f"of another {name} .*--overwrite"):
            opened(path, resume=True, **wrong)
    assert find_checkpoint(path).record == {"round": 1}
    # how it was solved does not matter
    with opened(path, resume=True, attributes={"algorithm": "dijkstra", "plan": {"threads": 9}}) as writer:
        assert writer.record() == {"round": 1}
    with opened(path, overwrite=True) as writer:
        assert writer.record() is None
    assert find_checkpoint(path) is None


@pytest.mark.parametrize("gone", ["store", "store/distances", "store/distances/c"])
def test_tiles_that_were_moved_away_are_missed_before_any_work(tmp_path, gone):
    path, entries = tmp_path / "d.zarr", entries_of(N, N, "float32")
    left_at(path, entries, {"round": 1})
    (base(path) / gone).rename(tmp_path / "away")
    said = r"has a checkpoint of .*, but the tiles that belong to it are gone from .*--overwrite"
    for resume in (False, True):
        with pytest.raises(Conflict, match=said):
            opened(path, resume=resume)
    assert "are gone from" in find_checkpoint(path).fault
    (tmp_path / "away").rename(base(path) / gone)
    assert find_checkpoint(path).fault is None
    with opened(path, resume=True) as writer:
        found = np.empty_like(entries)
        writer.read_rows(0, found)
        np.testing.assert_array_equal(found, entries)


def test_a_missing_tile_is_named_with_a_way_out(tmp_path):
    path, entries = tmp_path / "d.zarr", entries_of(N, N, "float32")
    left_at(path, entries, {"round": 1})
    (base(path) / "store" / "distances" / "c" / "0" / "0").unlink()
    with opened(path, resume=True) as writer:
        with pytest.raises(StorageFailed, match=r"tile \(0, 0\).* is missing, although .*--overwrite"):
            writer.read_rows(0, np.empty_like(entries))
        with pytest.raises(StorageFailed, match=r"1 of \d+ tiles were never written"):
            writer.seal({})


@pytest.mark.parametrize("moved", ["store", "store/distances", "store/distances/c"])
def test_tiles_of_another_solve_are_not_taken_for_those_of_the_record(tmp_path, moved):
    path, other = tmp_path / "d.zarr", tmp_path / "e.zarr"
    left_at(path, entries_of(N, N, "float32", 1), {"round": 1})
    left_at(other, entries_of(N, N, "float32", 2), {"round": 1})
    (base(path) / moved).rename(tmp_path / "away")
    (base(other) / moved).rename(base(path) / moved)
    assert "are not those of its record" in find_checkpoint(path).fault
    with pytest.raises(Conflict, match=r"are not those of its record: .*--overwrite"):
        opened(path, resume=True)
    with opened(path, resume=True, overwrite=True) as writer:
        assert writer.record() is None


def test_a_checkpoint_that_was_moved_whole_resumes_under_its_new_name(tmp_path):
    path, other = tmp_path / "d.zarr", tmp_path / "e.zarr"
    entries = entries_of(N, N, "float32", 1)
    left_at(path, entries, {"round": 1})
    base(path).rename(base(other))
    assert find_checkpoint(path) is None
    with opened(other, resume=True) as writer:
        assert writer.record() == {"round": 1}
        writer.seal({})
    with open_matrix(other) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(N)), entries)
    assert not (other / "distances" / "c" / ".stamp").exists()
    verify_matrix(other)


def test_a_checkpoint_of_an_earlier_version_has_no_stamp_and_resumes(tmp_path):
    path, entries = tmp_path / "d.zarr", entries_of(N, N, "float32", 1)
    left_at(path, entries, {"round": 1})
    record = base(path) / "record.json"
    document = json.loads(record.read_text())
    del document["stamp"], document["digest"]
    (base(path) / "store" / "distances" / "c" / ".stamp").unlink()
    working_dir._put_record(base(path), json.dumps({**document, "digest": working_dir._digest(document)}).encode())
    with opened(path, resume=True) as writer:
        writer.commit({"round": 2})
    assert find_checkpoint(path).fault is None
    assert "stamp" in json.loads(record.read_text())


def test_overwrite_with_resume_goes_on_where_it_can(tmp_path):
    path = tmp_path / "d.zarr"
    make_store(path, N, seed=1)
    entries = entries_of(N, N, "float32", 2)
    left_at(path, entries, {"round": 1}, overwrite=True)
    with pytest.raises(Conflict, match="exists already"):
        opened(path, resume=True)
    with opened(path, resume=True, overwrite=True) as writer:
        assert writer.record() == {"round": 1}
        writer.seal({})
    with open_matrix(path) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(N)), entries)
    assert [p.name for p in tmp_path.iterdir()] == ["d.zarr"]


def test_the_next_writer_is_told_who_writes_until_the_working_folder_is_gone(tmp_path, monkeypatch):
    """So nobody begins in the folder that the first one is about to remove."""
    path, said, real = tmp_path / "d.zarr", [], working_dir.WorkingDir._remove

    def second():
        try:
            Writing(path, "solve").release()
        except Conflict as error:
            said.append(str(error))

    def removing(place):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        real(place)

    monkeypatch.setattr(working_dir.WorkingDir, "_remove", removing)
    with opened(path) as writer:
        writer.write(0, 0, entries_of(N, N, "float32", 1))
        writer.seal({})
    assert len(said) == 1
    assert f"apsp solve, process {os.getpid()}" in said[0]
    second()
    assert len(said) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_two_processes_do_not_work_on_one_target(tmp_path):
    with opened(tmp_path / "d.zarr") as writer:
        writer.commit({})
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(Conflict, match="another process"):
                opened(tmp_path / "d.zarr", **options)
        with pytest.raises(Conflict, match="another process"):
            discard_checkpoint(tmp_path / "d.zarr")


@pytest.mark.parametrize("flip", [b"7", b"{"])
def test_a_damaged_record_is_said_to_be_damaged(tmp_path, flip):
    path = tmp_path / "d.zarr"
    left_at(path, entries_of(N, N, "float32"), {"round": 5})
    record = base(path) / "record.json"
    data = record.read_bytes()
    record.write_bytes(data.replace(b"5", flip, 1))
    for look in (lambda: find_checkpoint(path), lambda: opened(path, resume=True), lambda: opened(path)):
        with pytest.raises(StorageFailed, match=r"record\.json is damaged.*--overwrite"):
            look()
    with opened(path, overwrite=True) as writer:
        assert writer.record() is None


def test_a_record_of_a_later_format_is_refused(tmp_path):
    path = tmp_path / "d.zarr"
    left_at(path, entries_of(N, N, "float32"), {})
    record = base(path) / "record.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "format": 2}))
    with pytest.raises(StorageFailed, match="format 2; this program reads 1"):
        opened(path, resume=True)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("again", [False, True], ids=["same process", "another process"])
@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "lose", "empty"])
def test_a_damaged_tile_is_found_and_named(tmp_path, damage, again, compression):
    path = tmp_path / "d.zarr"
    writer = opened(path, compression=compression)
    writer.write(0, 0, entries_of(N, N, "float32"))
    writer.commit({})
    if again:
        writer.leave()
        writer = opened(path, resume=True, compression=compression)
    tile = base(path) / "store" / "distances" / "c" / "1" / "0"
    data = bytearray(tile.read_bytes())
    if damage == "lose":
        tile.unlink()
    else:
        data[len(data) // 2] ^= 16
        tile.write_bytes({"flip": data, "cut": data[:-9], "grow": data + b"123", "empty": b""}[damage])
    with writer, pytest.raises(StorageFailed, match=r"c/1/0"):
        writer.read_rows(0, np.empty((N, N), np.float32))
    assert find_checkpoint(path) is not None


def test_a_tile_that_slipped_back_is_found_in_the_process_that_wrote_it(tmp_path):
    path = tmp_path / "d.zarr"
    with opened(path) as writer:
        writer.write(0, 0, entries_of(N, N, "float32", 1))
        tile = base(path) / "store" / "distances" / "c" / "0" / "0"
        before = tile.read_bytes()
        writer.write(0, 0, entries_of(N, N, "float32", 2))
        tile.write_bytes(before)
        with pytest.raises(StorageFailed, match="not the one that was written last"):
            writer.read_rows(0, np.empty((N, N), np.float32))


def test_sealing_reads_what_nobody_has_read_and_refuses_what_is_damaged(tmp_path):
    path = tmp_path / "d.zarr"
    left_at(path, entries_of(N, N, "float32"), {})
    tile = base(path) / "store" / "distances" / "c" / "2" / "0"
    data = bytearray(tile.read_bytes())
    data[3] ^= 1
    tile.write_bytes(data)
    with opened(path, resume=True) as writer, pytest.raises(StorageFailed, match="damaged"):
        writer.seal({})
    assert not path.exists()
    assert find_checkpoint(path) is not None


class Refused(OSError):
    pass


def refusing(monkeypatch, place, name, code, when):
    """Let the ``when``-th call of a function of the operating system fail."""
    real, calls = getattr(place, name), []

    def call(*args, **kwargs):
        calls.append(name)
        if len(calls) == when:
            raise Refused(code, os.strerror(code))
        return real(*args, **kwargs)

    monkeypatch.setattr(place, name, call)
    return calls


@pytest.mark.parametrize(
    ("place", "name", "code", "least"),
    [
        (os, "writev", errno.ENOSPC, 10),
        (os, "fsync", errno.EIO, 3),
        (os, "fdatasync", errno.EIO, 3),
        (atomic, "_renameat2", errno.EIO, 3),
        (os, "preadv", errno.EIO, 3),
        (Path, "replace", errno.EIO, 2),
    ],
)
def test_any_failing_operation_is_one_clear_error_and_the_checkpoint_stays(
    tmp_path, monkeypatch, place, name, code, least
):
    failures = 0
    while resumed_with_failure(tmp_path, monkeypatch, (place, name, code), failures + 1):
        failures += 1
    assert failures >= least


def resumed_with_failure(tmp_path, monkeypatch, what, when) -> bool:
    """Whether there was a ``when``-th call to let fail; whatever happened, the matrix can be finished."""
    place, name, code = what
    path = tmp_path / f"{when}.zarr"
    old, new = (entries_of(N, N, "float32", seed) for seed in (1, 2))
    left_at(path, old, {"round": 1})
    try:
        with monkeypatch.context() as patch, opened(path, resume=True) as writer:
            calls = refusing(patch, place, name, code, when)
            writer.read_rows(0, np.empty_like(old))
            writer.write(0, 0, new)
            writer.commit({"round": 2})
            writer.seal({})
    except StorageFailed as error:
        message = str(error)
    else:
        assert len(calls) < when
        with open_matrix(path) as matrix:
            np.testing.assert_array_equal(matrix.rows(range(N)), new)
        return False
    assert os.strerror(code) in message
    if not path.exists():  # else only making the new name durable failed, and nothing can be taken back
        with opened(path, resume=True) as writer:
            found = np.empty_like(old)
            writer.read_rows(0, found)
            # every tile is one or the other, and those that the record speaks of are new
            for first in range(0, N, 64):
                assert any((found[first : first + 64] == some[first : first + 64]).all() for some in (old, new))
            if writer.record() == {"round": 2}:
                np.testing.assert_array_equal(found, new)
            writer.write(0, 0, new)
            writer.seal({})
    verify_matrix(path)
    return True


@pytest.mark.parametrize(
    ("place", "name", "pending"),
    [(direct, "settle_file", 0), (direct, "settle_file", 128), (atomic, "sync_path", 128), (atomic, "sync_data", 128)],
)
def test_nothing_is_committed_after_a_failure(tmp_path, monkeypatch, place, name, pending):
    """The system tells a loss once: a second fsync of the same file succeeds, and the bytes are lost."""
    monkeypatch.setattr(working, "_PENDING", pending)
    entries = entries_of(N, N, "float32", 1)
    with opened(tmp_path / "d.zarr") as writer:

        def work():
            writer.write(0, 0, entries)
            writer.commit({"round": 1})

        if name == "sync_data":
            writer.write(0, 0, entries)  # so that the next ones replace tiles
        with monkeypatch.context() as patch:
            refusing(patch, place, name, errno.EIO, 1)
            with pytest.raises(StorageFailed, match=os.strerror(errno.EIO)):
                work()
        for _ in range(2):
            with pytest.raises(StorageFailed, match=os.strerror(errno.EIO)):
                writer.commit({"round": 1})
        assert writer.record() is None
    assert find_checkpoint(tmp_path / "d.zarr") is None


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_rows_that_change_while_they_are_written_make_no_damaged_tile(tmp_path, monkeypatch, compression):
    entries, real = entries_of(N, N, "int32"), matrix_writer.crc32c

    def changing(data, before=0):
        entries[:] -= 1
        found = real(data, before)
        entries[:] -= 1
        return found

    monkeypatch.setattr(matrix_writer, "crc32c", changing)
    with opened(tmp_path / "d.zarr", dtype="int32", compression=compression) as writer:
        before = entries.copy()
        writer.write(0, 0, entries)
        found = np.empty_like(entries)
        writer.read_rows(0, found)
    assert ((entries < found) & (found <= before)).all()


@pytest.mark.parametrize("most", [0, 10**6])
def test_new_tiles_of_a_large_matrix_are_written_past_the_page_cache(tmp_path, monkeypatch, most):
    """Of tiles that are long enough; the last bytes, no whole block, go the usual way."""
    sizes, real = [], direct.write

    def watched(handle, buffers, size):
        sizes.append(size)
        return real(handle, buffers, size)  # whether that is to be had here

    monkeypatch.setattr(direct, "write", watched)
    monkeypatch.setattr(working, "_PENDING", most)
    n, path = 400, tmp_path / "d.zarr"
    entries = entries_of(n, n, "float32")
    with opened(path, n=n) as writer:
        tiles, each = writer.grid.tiles, writer.grid.tile_bytes(4)
        writer.write(0, 0, entries)
        assert sizes == ([] if most else [each] * tiles)
        writer.seal({})
    with open_matrix(path) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(n)), entries)
    verify_matrix(path)


def test_where_names_cannot_be_exchanged_tiles_are_replaced(tmp_path, monkeypatch):
    def unknown(*_):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(atomic, "_renameat2", unknown)
    test_rows_come_back_as_last_written_and_the_sealed_store_holds_them(tmp_path, 150, "float32", "none")


def test_a_replaced_tile_is_not_written_over_before_its_folder_is_durable(tmp_path, monkeypatch):
    """After a power cut the old name may lead to the old file: it must still hold the old tile then."""
    synced, real, real_data = [], os.fsync, os.fdatasync
    used: list[tuple[int, int]] = []

    def noting(sync):
        def call(handle):
            synced.append(os.fstat(handle).st_ino)
            sync(handle)

        return call

    monkeypatch.setattr(os, "fsync", noting(real))
    monkeypatch.setattr(os, "fdatasync", noting(real_data))
    overwrite = atomic.overwrite_file

    def watched(path, buffers, size, **options):
        if path.exists():
            used.append((path.stat().st_ino, len(synced)))
        overwrite(path, buffers, size, **options)

    monkeypatch.setattr(atomic, "overwrite_file", watched)
    folder = tmp_path / "c"
    folder.mkdir()
    (tmp_path / "spare").mkdir()
    pool = file_pool.FilePool(tmp_path / "spare", 1)
    band = folder.stat().st_ino
    for k in range(3):
        (folder / str(k)).write_bytes(b"old")
    retired: dict[int, int] = {}
    for turn in range(30):
        path = folder / str(turn % 3)
        old = path.stat().st_ino
        pool.write(path, [np.full(100, turn, np.uint8)], 100)
        retired[old] = len(synced)
    assert used
    for inode, at in used:
        assert band in synced[:at], inode
    assert sum(1 for inode in synced if inode == band) >= 2
    assert len(list((tmp_path / "spare").iterdir())) <= file_pool.spare_files(1)


def test_threads_write_and_read_different_tiles_at_once(tmp_path):
    n = 640
    with opened(tmp_path / "d.zarr", n=n, dtype="int32") as writer, ThreadPoolExecutor(8) as pool:
        for seed in range(6):
            entries = entries_of(n, n, "int32", seed)

            def turn(first, entries=entries):
                writer.write(first, 0, entries[first : first + 64])
                found = np.empty((64, n), np.int32)
                writer.read_rows(first, found)
                np.testing.assert_array_equal(found, entries[first : first + 64])

            committing = threading.Thread(target=writer.commit, args=({"round": seed},))
            committing.start()
            list(pool.map(turn, range(0, n, 64)))
            committing.join()
        assert writer.record() == {"round": 5}
        writer.seal({})
    verify_matrix(tmp_path / "d.zarr")


def test_a_kill_between_publishing_and_tidying_up_leaves_the_new_store_and_no_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "d.zarr"
    make_store(path, N, seed=1)
    left_at(path, entries_of(N, N, "float32", 2), {"round": 1}, overwrite=True)
    writer = opened(path, resume=True, overwrite=True)
    with monkeypatch.context() as patch:
        patch.setattr("storage.matrix.working_dir.WorkingDir._remove", lambda _: None)
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        writer.seal({})
    writer._place._release()
    assert base(path).exists()
    assert find_checkpoint(path) is None
    create_matrix(path, line_graph(N), MatrixSpec("float32", np.inf), overwrite=True).abort()
    opened(path, overwrite=True, resume=True).leave()
    assert [p.name for p in tmp_path.iterdir()] == ["d.zarr"]
    with open_matrix(path) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(N)), entries_of(N, N, "float32", 2))


@pytest.mark.parametrize("resume", [False, True])
def test_a_finished_store_that_was_moved_away_before_tidying_up_is_no_checkpoint(tmp_path, monkeypatch, caplog, resume):
    path, entries = tmp_path / "d.zarr", entries_of(N, N, "float32", 2)
    left_at(path, entries, {"round": 1})
    writer = opened(path, resume=True)
    with monkeypatch.context() as patch:
        patch.setattr("storage.matrix.working_dir.WorkingDir._remove", lambda _: None)
        writer.seal({})
    writer._place._release()
    path.rename(tmp_path / "elsewhere.zarr")
    assert base(path).exists()
    assert find_checkpoint(path) is None
    with opened(path, resume=resume) as writer:
        assert writer.record() is None
        writer.write(0, 0, entries + 1)
        writer.seal({})
    assert [record.message for record in caplog.records] == [
        f"the store finished at {path} is no longer there; solving anew"
    ]
    verify_matrix(path)
    verify_matrix(tmp_path / "elsewhere.zarr")
    assert {p.name for p in tmp_path.iterdir()} == {"d.zarr", "elsewhere.zarr"}


def test_a_kill_just_before_publishing_leaves_the_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "d.zarr"
    entries = entries_of(N, N, "float32", 2)
    left_at(path, entries, {"round": 1})
    for _ in range(2):
        writer = opened(path, resume=True)
        with monkeypatch.context() as patch:
            patch.setattr(atomic.Staging, "publish", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("killed")))
            with pytest.raises(RuntimeError):
                writer.seal({})
        writer.leave()
        assert find_checkpoint(path).record == {"round": 1}
    with opened(path, resume=True) as writer:
        writer.seal({})
    with open_matrix(path) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(N)), entries)


@pytest.mark.parametrize("size", [100, 2**16, 2**16 + 4, 2**18 - 1, 2**20 + 4096])
def test_files_past_the_page_cache_hold_what_was_written(tmp_path, monkeypatch, size):
    data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    pieces = [data[: size // 3], data[size // 3 : size // 2].tobytes(), data[size // 2 :]]
    refused = []

    def refusing(flag_of):
        def call(handle, command, *value):
            if command == fcntl.F_SETFL and value[0] & os.O_DIRECT:
                refused.append(size)
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return flag_of(handle, command, *value)

        return call

    for turn in range(2):  # the second time as where the file system does not know it
        if turn:
            monkeypatch.setattr("storage.files.direct.fcntl.fcntl", refusing(fcntl.fcntl))
        path = tmp_path / str(turn)
        path.write_bytes(b"longer before" * size)
        atomic.overwrite_file(path, pieces, size)
        assert path.read_bytes() == data.tobytes()
        found = direct.load_file(path)
        np.testing.assert_array_equal(found, data)
        assert found.ctypes.data % 4096 == 0
        place = direct.buffer_for(size)[: len(data)]  # from where files are written without another copy
        place[:] = data[::-1]
        atomic.overwrite_file(path, [place[: size - 4], data[:4][::-1].copy()], size)
        assert path.read_bytes() == data[::-1].tobytes()
    assert len(refused) == 3 * (size >= 2**16)


@pytest.mark.parametrize("part", ["graph", "graph/heads", "graph/weights"])
def test_a_folder_that_cannot_be_listed_fails_the_seal(tmp_path, monkeypatch, part):
    """A seal that leaves out what it cannot see would be taken for whole."""
    real = os.scandir

    def scandir(path):
        if str(path).endswith(f"/{part}"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path)

    with opened(tmp_path / "d.zarr") as writer:
        writer.write(0, 0, entries_of(N, N, "float32"))
        writer.commit({"round": 1})
        monkeypatch.setattr(os, "scandir", scandir)
        with pytest.raises(StorageFailed, match="Input/output error"):
            writer.seal({})
        monkeypatch.undo()
    assert not (tmp_path / "d.zarr").exists()
    assert find_checkpoint(tmp_path / "d.zarr") is not None


def test_every_file_and_folder_below_a_folder_is_made_durable(tmp_path, monkeypatch):
    for name in ("a/b/one", "a/two", "three", "a/.hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "empty").mkdir()
    synced = []
    monkeypatch.setattr(atomic, "sync_path", lambda path: synced.append(str(path)))
    atomic.sync_tree(tmp_path)
    every = [str(tmp_path), *(str(path) for path in tmp_path.rglob("*"))]
    assert sorted(synced) == sorted(every)
    for path in every:  # a folder after all that it names
        assert all(synced.index(path) < synced.index(above) for above in every if path.startswith(f"{above}/"))
    with pytest.raises(FileNotFoundError):
        atomic.sync_tree(tmp_path / "lost")


@pytest.mark.parametrize("before", [{}, {"weight_column": None}, {"weight_column": "other"}])
def test_a_checkpoint_is_resumed_whatever_the_column_of_the_weights_was_called(tmp_path, monkeypatch, before):
    from dataclasses import replace

    path, entries, graph = tmp_path / "d.zarr", entries_of(N, N, "float32"), line_graph(N)
    named = replace(graph, weight_column=before.get("weight_column"))
    left_at(path, entries, {"round": 7}, graph=named)
    if not before:  # checkpoints of earlier versions have no such attribute
        assert "weight_column" not in find_checkpoint(path).identity
    with opened(path, resume=True, graph=replace(graph, weight_column="length_m")) as writer:
        assert writer.record() == {"round": 7}
