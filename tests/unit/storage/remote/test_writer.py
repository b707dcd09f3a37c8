"""Stores in an object store: sealed by one put, gone on with elsewhere, never mixed, never half."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from storage.errors import Conflict, InvalidRequest, NotFound, StorageFailed
from storage.graph.graph import Receipt, graph_digest
from storage.graph.graph_store import GraphStore
from storage.matrix.frame import MatrixSpec
from storage.matrix.reader import open_matrix
from storage.matrix.shared import GuestMatrix
from storage.matrix.working import find_checkpoint, open_working
from storage.remote import objects, reader
from storage.remote import writer as remote
from storage.remote.addresses import checkpoint_stat, claim_of, discard_remote
from storage.remote.objects import Objects
from storage.remote.writer import RemoteMatrix, fetch_checkpoint
from tests.s3 import S3Server
from tests.stores import UNREACHABLE, entries_of, line_graph, verify_matrix

N = 150


@pytest.fixture
def address(s3: S3Server) -> str:
    return f"{s3.address}/{secrets.token_hex(4)}/d.zarr"


def opened(folder: Path, address: str, *, n=N, dtype="float32", **more) -> RemoteMatrix:
    folder.mkdir(exist_ok=True)
    graph = line_graph(n)
    fields = {name: more.pop(name) for name in ("sources", "compression") if name in more}
    spec = MatrixSpec(dtype, UNREACHABLE[dtype], **fields)
    found = open_working(folder / "d.zarr", graph, spec, address=address, **more)
    assert isinstance(found, RemoteMatrix)
    return found


def sealed(folder: Path, address: str, seed: int, **more) -> np.ndarray:
    entries = entries_of(N, N, "float32", seed)
    with opened(folder, address, **more) as writer:
        writer.write(0, 0, entries)
        writer.seal({"seed": seed})
    return entries


def names(address: str) -> list[str]:
    return sorted(Objects(address).names())


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(("n", "dtype"), [(1, "int32"), (64, "uint16"), (150, "float32"), (9000, "int32")])
def test_what_was_written_is_read(tmp_path, address, n, dtype, compression):
    rows = min(n, 100)
    sources = np.arange(rows) if rows < n else None
    entries = entries_of(rows, n, dtype, 1)
    with opened(tmp_path, address, n=n, dtype=dtype, sources=sources, compression=compression) as writer:
        writer.write(0, 0, entries)
        writer.seal({"seed": 1})
    assert list(tmp_path.iterdir()) == [], "the working folder is gone, and nothing was put where it stood"
    with open_matrix(address) as matrix:
        np.testing.assert_array_equal(matrix.rows(np.arange(rows)), entries)
        picked = np.arange(n) % rows
        np.testing.assert_array_equal(matrix.entries(picked, np.arange(n)), entries[picked, np.arange(n)])
        assert matrix.peek(0, 0) == (entries[0, 0] if rows == n else None)
        assert matrix.summary == {"seed": 1}
        assert matrix.graph().n == n
        assert matrix.bytes == sum(size for name, size in sizes(address).items() if name.count("/") > 1)
    verify_matrix(address)


def sizes(address: str) -> dict[str, int]:
    return {name: len(Objects(address).read(name)) for name in names(address)}


def test_any_zarr_client_reads_the_generation(tmp_path, address):
    import zarr
    from obstore.store import S3Store
    from zarr.storage import ObjectStore

    entries = sealed(tmp_path, address, 3)
    store = S3Store.from_url(address, client_options={"allow_http": True})
    root = zarr.open_group(ObjectStore(store, read_only=True), mode="r", zarr_format=3)
    generation = root.attrs["apsp"]["generation"]
    np.testing.assert_array_equal(root[generation]["distances"][...], entries)


def test_there_is_no_store_before_the_seal_and_none_is_replaced_unasked(tmp_path, address):
    with pytest.raises(NotFound):
        open_matrix(address)
    with opened(tmp_path, address) as writer:
        writer.write(0, 0, entries_of(N, N, "float32", 1))
        with pytest.raises(NotFound):
            open_matrix(address)
        writer.seal()
    with pytest.raises(Conflict, match="exists already"):
        opened(tmp_path, address)
    before = open_matrix(address)
    entries = sealed(tmp_path, address, 2, overwrite=True)
    with open_matrix(address) as matrix:
        np.testing.assert_array_equal(matrix.rows(np.arange(N)), entries)
    with pytest.raises(StorageFailed, match="replaced or removed"):
        before.rows([5])
    assert len({name.split("/")[0] for name in names(address)} - {"zarr.json"}) == 1, "the old one is removed"


def test_of_two_who_seal_one_wins(tmp_path, address):
    first, second = opened(tmp_path / "a", address), opened(tmp_path / "b", address)
    for seed, writer in enumerate((first, second)):
        writer.write(0, 0, entries_of(N, N, "float32", seed))
    first.seal({"won": True})
    with pytest.raises(Conflict):
        second.seal({"won": False})
    second.abort()
    verify_matrix(address)
    with open_matrix(address) as matrix:
        assert matrix.summary == {"won": True}


def test_of_two_who_replace_one_wins(tmp_path, address):
    sealed(tmp_path / "0", address, 0)
    first, second = (opened(tmp_path / name, address, overwrite=True) for name in "ab")
    for seed, writer in enumerate((first, second)):
        writer.write(0, 0, entries_of(N, N, "float32", seed))
    second.seal({"won": 2})
    with pytest.raises(Conflict):
        first.seal({"won": 1})
    first.leave()
    with open_matrix(address) as matrix:
        assert matrix.summary == {"won": 2}
    verify_matrix(address)


def test_a_tile_that_is_lost_or_damaged_is_no_number(tmp_path, address):
    sealed(tmp_path, address, 1)
    place = Objects(address)
    tile = next(name for name in names(address) if name.endswith("/c/0/0"))
    data = place.read(tile)
    for harm in (data[:-1], bytes([data[0] ^ 1]) + data[1:], b""):
        place.write(tile, harm)
        with open_matrix(address) as matrix, pytest.raises(StorageFailed, match=r"tile \(0, 0\)"):
            matrix.row(0)
    place.remove([tile])
    with pytest.raises(StorageFailed, match=r"tile \(0, 0\).*missing"):
        verify_matrix(address)
    label = next(name for name in names(address) if "/source/c/" in name)
    place.write(label, b"x")
    with pytest.raises(StorageFailed, match="does not agree with the seal"):
        open_matrix(address)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_checkpoint_is_gone_on_with_elsewhere(tmp_path, address, elsewhere):
    entries = entries_of(N, N, "float32", 1)
    with opened(tmp_path / "a", address) as writer:
        writer.write(0, 0, entries[:64])
        writer.commit({"rows": 64})
    assert checkpoint_stat(address) is not None
    folder = tmp_path / ("b" if elsewhere else "a")
    folder.mkdir(exist_ok=True)
    assert fetch_checkpoint(folder / "d.zarr", address)
    assert find_checkpoint(folder / "d.zarr").record == {"rows": 64}
    with opened(folder, address, resume=True) as writer:
        assert writer.record() == {"rows": 64}
        found = np.empty((64, N), np.float32)
        writer.read_rows(0, found)
        np.testing.assert_array_equal(found, entries[:64])
        writer.write(64, 0, entries[64:])
        writer.seal({})
    with open_matrix(address) as matrix:
        np.testing.assert_array_equal(matrix.rows(np.arange(N)), entries)
    verify_matrix(address)
    assert checkpoint_stat(address) is None
    assert not any(name.startswith("checkpoint") for name in names(address))


def test_tiles_of_other_processes_are_sent(tmp_path, address):
    entries = entries_of(N, N, "float32", 1)
    with opened(tmp_path, address) as writer:
        writer.write(0, 0, np.zeros_like(entries))
        writer.commit({"rows": N})
        writer._wait_for_sender()  # so that what was sent is no longer what is here
        room = writer.make_exchange_dir()
        guest = GuestMatrix(room.parents[1] / "store", room, writer.grid, "float32", "none")
        places = [
            (i, j, *writer.grid.slices(i, j))
            for i in range(writer.grid.counts[0])
            for j in range(writer.grid.counts[1])
        ]
        writer.adopt(room, (guest.write_tile(i, j, entries[rows, columns]) for i, j, rows, columns in places))
        writer.seal()
    with open_matrix(address) as matrix:
        np.testing.assert_array_equal(matrix.rows(np.arange(N)), entries)
    verify_matrix(address)


def test_a_record_of_nothing_takes_back_what_was_sent(tmp_path, address):
    entries = entries_of(N, N, "float32", 1)
    record = {"kind": "rounds", "height": 64, "width": 64, "symmetric": False}
    with opened(tmp_path, address) as writer:
        writer.write(0, 0, entries)
        writer.commit({**record, "levels": [[1, 2], [0, 1]]})
        writer._wait_for_sender()
        assert checkpoint_stat(address) is not None
        writer.commit({**record, "levels": [[-1, 3]]})
        assert checkpoint_stat(address) is None
        writer.write(0, 0, entries + 1)
    assert checkpoint_stat(address) is None, "leaving sends nothing that cannot be gone on from"


def test_what_was_sent_is_taken_back_before_the_record_is_lowered(tmp_path, address, monkeypatch):
    """Should the object store refuse that, no tile is written, neither here nor there."""
    entries = entries_of(N, N, "float32", 1)
    record = {"kind": "rounds", "height": 64, "width": 64, "symmetric": False}
    nothing = {**record, "levels": [[-1, 3]]}
    with opened(tmp_path, address) as writer:
        writer.write(0, 0, entries)
        writer.commit({**record, "levels": [[1, 2], [0, 1]]})
        writer._wait_for_sender()
        writer.lower(nothing)
        with monkeypatch.context() as patch:
            patch.setattr(writer._objects, "remove", lambda _: (_ for _ in ()).throw(StorageFailed("refused")))
            for _ in range(2):
                with pytest.raises(StorageFailed, match="refused"):
                    writer.write(0, 0, entries + 1)
        assert writer.record()["levels"] == [[1, 2], [0, 1]]
        assert checkpoint_stat(address) is not None
        found = np.empty_like(entries)
        writer.read_rows(0, found)
        np.testing.assert_array_equal(found, entries)
        writer.write(0, 0, entries + 1)
        assert writer.record() == nothing
        assert checkpoint_stat(address) is None


@pytest.mark.parametrize("lowered", [[[0, 3]], [[-1, 3]]])
def test_a_lowered_record_leaves_alone_what_another_machine_would_go_on_from(tmp_path, address, lowered):
    """Every solve has a generation of its own: what is overwritten here is not what was sent before."""
    old, entries = entries_of(N, N, "float32", 1), entries_of(N, N, "float32", 2)
    record = {"kind": "rounds", "height": 64, "width": 64, "symmetric": False}
    folders = [tmp_path / name for name in ("here", "there")]
    for folder in folders:
        folder.mkdir()
    with opened(folders[0], address) as writer:
        writer.write(0, 0, old)
        writer.commit({**record, "levels": [[1, 3]]})
    with opened(folders[0], address, resume=True) as writer:
        writer.lower({**record, "width": 128, "levels": lowered})
        writer.write(0, 0, entries)
        assert writer.record()["levels"] == lowered
        fetch_checkpoint(folders[1] / "d.zarr", address)
        assert find_checkpoint(folders[1] / "d.zarr").record["levels"] == [[1, 3]]
        writer._place.record = None  # killed: nothing more is sent
    with opened(folders[1], address, resume=True) as writer:
        found = np.empty_like(old)
        writer.read_rows(0, found)
    np.testing.assert_array_equal(found, old)


def test_what_others_have_done_since_counts_more_than_what_is_here(tmp_path, address):
    entries = entries_of(N, N, "float32", 1)
    with opened(tmp_path / "a", address) as writer:
        writer.write(0, 0, entries[:64])
        writer.commit({"rows": 64})
    (tmp_path / "b").mkdir()
    fetch_checkpoint(tmp_path / "b" / "d.zarr", address)
    with opened(tmp_path / "b", address, resume=True) as writer:
        writer.write(64, 0, entries[64:128])
        writer.commit({"rows": 128})
    fetch_checkpoint(tmp_path / "a" / "d.zarr", address)
    assert find_checkpoint(tmp_path / "a" / "d.zarr").record == {"rows": 128}


def test_a_checkpoint_that_was_fetched_survives_a_power_cut(tmp_path, address, monkeypatch):
    with opened(tmp_path / "a", address) as writer:
        writer.write(0, 0, entries_of(N, N, "float32", 1))
        writer.commit({"rows": N})
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino) or fsync(handle))
    folder = tmp_path / "b"
    folder.mkdir()
    assert fetch_checkpoint(folder / "d.zarr", address)
    paths = [folder, *folder.rglob("*")]
    assert {path.stat().st_ino for path in paths} <= set(synced)
    [record] = (synced.index(path.stat().st_ino) for path in paths if path.name == "record.json")
    assert all(synced.index(path.stat().st_ino) < record for path in paths if path.parent.parent.name == "c")


def test_without_a_checkpoint_there_is_none(tmp_path, address):
    assert not fetch_checkpoint(tmp_path / "d.zarr", address)
    Objects(address).write("checkpoint.json", b"{}")
    with pytest.raises(StorageFailed, match="damaged"):
        fetch_checkpoint(tmp_path / "d.zarr", address)


def test_an_aborted_solve_leaves_nothing(tmp_path, address):
    writer = opened(tmp_path, address)
    writer.write(0, 0, entries_of(N, N, "float32", 1))
    writer.commit({"rows": N})
    writer.abort()
    assert names(address) == []
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_removed_whole(tmp_path, address):
    sealed(tmp_path, address, 1)
    discard_remote(address)
    assert names(address) == []
    discard_remote(address)


def test_an_open_store_notices_that_it_is_gone(tmp_path, address, monkeypatch):
    monkeypatch.setattr(reader, "_CURRENT_SECONDS", 0.0)
    sealed(tmp_path, address, 1)
    with open_matrix(address) as matrix:
        assert matrix.current()
        discard_remote(address)
        until = time.monotonic() + 60
        while matrix.current() and time.monotonic() < until:
            time.sleep(0.02)
        assert not matrix.current()


def test_files_are_opened_as_from_a_disk(tmp_path, address):
    sealed(tmp_path, address, 1)
    with open_matrix(address) as matrix:
        handle = matrix.open_file("zarr.json")
        document = json.loads(os.read(handle, 10**7))
        os.close(handle)
        assert document["attributes"]["seal"]["digest"] == matrix.digest
        with pytest.raises(NotFound):
            matrix.open_file("../zarr.json")
        assert matrix.holds("distances/c/0/0")
        assert not matrix.holds("distances/c/99/0")
        Objects(address).remove(name for name in names(address) if name.endswith("/c/0/0"))
        assert not matrix.holds("distances/c/0/0")


def test_addresses_and_servers_that_are_none(tmp_path, monkeypatch):
    for wrong in ("s3://", "s3://B", "s3://bucket?x", "gs://bucket/x", "s3://bucket//x"):
        with pytest.raises(InvalidRequest, match="no address"):
            Objects(wrong)


def test_the_tiles_of_a_row_are_fetched_side_by_side_and_once(tmp_path, address, monkeypatch):
    n = 20_000
    entries = entries_of(3, n, "int32", 1)
    with opened(tmp_path, address, n=n, dtype="int32", sources=np.arange(3)) as writer:
        writer.write(0, 0, entries)
        writer.seal({})
    asked, read = [], Objects.read
    monkeypatch.setattr(Objects, "read", lambda place, name: asked.append(name) or read(place, name))
    with open_matrix(address) as matrix:
        for _ in range(2):
            np.testing.assert_array_equal(matrix.rows([2, 0]), entries[[2, 0]])
            columns = np.arange(0, n, 7)
            np.testing.assert_array_equal(matrix.entries(np.ones(len(columns), int), columns), entries[1, columns])
    tiles = [name for name in asked if "/distances/c/" in name]
    assert len(tiles) == len(set(tiles)) == matrix.grid.tiles > 2


def test_large_files_go_in_parts(tmp_path, address, monkeypatch):
    monkeypatch.setattr(objects, "PART_BYTES", 5 << 20)
    data = os.urandom(11 << 20)
    (tmp_path / "large").write_bytes(data)
    (tmp_path / "small").write_bytes(b"x")
    place = Objects(address)
    place.send([(tmp_path / "large", "a/large"), (tmp_path / "small", "small")])
    assert place.stat("a/large").size == len(data)
    for name in ("a/large", "small"):
        place.fetch(name, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == (tmp_path / Path(name).name).read_bytes()
    with pytest.raises(NotFound):
        place.fetch("nothing", tmp_path / "back")
    assert (place.total(), place.total("a/")) == (len(data) + 1, len(data))


def test_graphs_are_copied_from_the_object_store(tmp_path, address):
    graph = line_graph(N)
    receipt = Receipt("edges", None, graph.arcs, 0, 0, 0, "weight")
    graph_id, digest = GraphStore(tmp_path / "here", address).add(graph, receipt)
    place = Objects(address).below("graphs")
    place.remove([f"{graph_id}/graph.json"])  # the upload was cut short
    with pytest.raises(NotFound):
        GraphStore(tmp_path / "there", address).load(graph_id)
    assert GraphStore(tmp_path / "here", address).add(graph, receipt) == (graph_id, digest), "it is finished"
    loaded, found = GraphStore(tmp_path / "there", address).load(graph_id)
    assert (graph_digest(loaded), found) == (digest, receipt)
    assert [path.name for path in (tmp_path / "there" / "graphs").iterdir()] == [graph_id]
    discard_remote(address)
    assert GraphStore(tmp_path / "there", address).load(graph_id)[0].n == N, "from the copy"


def test_few_tiles_are_kept():
    kept = reader.Kept(100)
    for k in range(10):
        kept.put((0, 0, k), np.zeros(30, np.uint8))
    assert [kept.get((0, 0, k)) is not None for k in range(10)] == [False] * 7 + [True] * 3


def fenced(address: str, claim: int) -> dict[str, bytes]:
    """The objects of a claim, the seal among them."""
    there = Objects(address)
    return {name: there.read(name) for name in there.names() if name == "zarr.json" or claim_of(name) == claim}


def _commit(writer: RemoteMatrix) -> None:
    writer.commit({"rows": 1})
    writer._wait_for_sender()


def _commit_nothing(writer: RemoteMatrix) -> None:
    writer.commit({"kind": "rounds", "height": 64, "width": 64, "symmetric": False, "levels": [[-1, 3]]})


#: all that a claim may do that was stopped and wakes
_DEEDS = {
    "commits": _commit,
    "commits nothing": _commit_nothing,
    "sends": lambda writer: writer._send_checkpoint(),
    "leaves": lambda writer: writer.leave(),
    "aborts": lambda writer: writer.abort(),
    "seals": lambda writer: writer.seal({"of": "the old one"}),
    "tidies": lambda writer: writer._made.tidy(),
}


@pytest.mark.parametrize("finished", [False, True], ids=["a successor that works", "a finished successor"])
@pytest.mark.parametrize("deed", _DEEDS)
def test_a_claim_that_was_overtaken_changes_nothing_of_its_successors(tmp_path, address, deed, finished):
    entries = entries_of(N, N, "float32", 1)
    stale = opened(tmp_path / "a", address, claim=9)
    stale.write(0, 0, entries)
    stale.commit({"rows": 64})
    stale._wait_for_sender()
    (tmp_path / "b").mkdir()
    assert fetch_checkpoint(tmp_path / "b" / "d.zarr", address)
    with opened(tmp_path / "b", address, resume=True, claim=10) as writer:
        writer.write(0, 0, entries)
        writer.commit({"rows": 128})
        writer._wait_for_sender()
        if finished:
            writer.seal({"of": 10})
        before = fenced(address, 10)
        with contextlib.suppress(Conflict):
            _DEEDS[deed](stale)
        after = fenced(address, 10)
        sealed_by_stale = {"zarr.json"} & (after.keys() - before.keys())
        assert sealed_by_stale == ({"zarr.json"} if deed == "seals" and not finished else set())
        assert {name: data for name, data in after.items() if name in before} == before
        (tmp_path / "c").mkdir()
        if not finished:
            assert fetch_checkpoint(tmp_path / "c" / "d.zarr", address)
            assert find_checkpoint(tmp_path / "c" / "d.zarr").record == {"rows": 128}
            with contextlib.suppress(Conflict):
                writer.seal({"of": 10})
    with open_matrix(address) as matrix:
        np.testing.assert_array_equal(matrix.rows(np.arange(N)), entries)
    verify_matrix(address)
    with contextlib.suppress(Conflict):
        stale.abort()


def test_of_many_checkpoints_the_one_of_the_highest_claim_counts(tmp_path, address):
    entries = entries_of(N, N, "float32", 1)
    for claim, rows in ((100, 64), (9, 128), (0, 128)):
        with opened(tmp_path / str(claim), address, claim=claim) as writer:
            writer.write(0, 0, entries)
            writer.commit({"rows": rows})
    (tmp_path / "b").mkdir()
    assert fetch_checkpoint(tmp_path / "b" / "d.zarr", address)
    assert find_checkpoint(tmp_path / "b" / "d.zarr").record == {"rows": 64}


def test_a_checkpoint_that_is_replaced_while_it_is_fetched_is_fetched_again(tmp_path, address, monkeypatch):
    entries = entries_of(N, N, "float32", 1)
    stale = opened(tmp_path / "a", address, claim=9)
    stale.write(0, 0, entries)
    stale.commit({"rows": 64})
    stale._wait_for_sender()
    each, times = remote.each, []

    def overtaken(*arguments) -> None:
        each(*arguments)
        if threading.current_thread().name == "send-checkpoint":
            return
        times.append(1)
        if len(times) == 1:
            stale._sent_at = -1e9
            _commit(stale)
        if len(times) == 2:
            stale.abort()

    monkeypatch.setattr(remote, "each", overtaken)
    (tmp_path / "b").mkdir()
    assert not fetch_checkpoint(tmp_path / "b" / "d.zarr", address), "in the end it was gone"
    assert find_checkpoint(tmp_path / "b" / "d.zarr") is None
    assert len(times) == 2
