"""Sections of chunks: a question reads those that hold its lines, and no section is used before it was checked."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from engine.api.from_tables import reweighting
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.model.problem import Options
from storage.errors import StorageFailed
from storage.files.checksum import crc32c
from storage.matrix.format import FileMark
from storage.matrix.tiles import StoreFolder
from storage.prepared import chunks, reader, sections, writer
from storage.prepared.chunks import CheckedTable
from storage.prepared.line_files import LineFiles
from storage.prepared.sections import SectionChecks, checksums_of_file, running_checksums, section_entries
from storage.prepared.writer import PreparedWriter, write_chunk
from tests.unit.engine.api.test_prepared import grid_graph

#: Entries in a chunk of a table, and bytes of a section: several of each, and lines that lie in two sections.
CHUNK, SECTION = 1 << 12, 256


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(writer, "TABLE_CHUNK", CHUNK)
    monkeypatch.setattr(sections, "SECTION_BYTES", SECTION)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A prepared lattice, and its distances."""
    place = tmp_path_factory.mktemp("sections") / "p"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "TABLE_CHUNK", CHUNK)
        patch.setattr(sections, "SECTION_BYTES", SECTION)
        prepare(grid_graph(20), place, Options(threads=1))
    with open_result(place) as matrix:
        return place, matrix.block(range(400), range(400))


@pytest.fixture
def place(tmp_path, made):
    shutil.copytree(made[0], tmp_path / "p")
    return tmp_path / "p"


@pytest.fixture
def reads(monkeypatch):
    """Bytes of each read of a table's file."""
    found, usual = [], os.preadv

    def preadv(handle, buffers, *place):
        found.append(sum(memoryview(buffer).nbytes for buffer in buffers))
        return usual(handle, buffers, *place)

    monkeypatch.setattr(reader.os, "preadv", preadv)
    return found


@pytest.mark.parametrize("chunk", [1, 5, 63, 64, 65, 100, 1000, 1024])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_sections_cover_a_chunk(chunk, itemsize):
    section = section_entries(chunk, itemsize)
    assert 0 < section * itemsize <= SECTION
    count = -(-chunk // section)
    assert -(-chunk // count) == section  # so that the number of sections says how large they are


@pytest.mark.parametrize("kind", ["uint16", "int32", "float64"])
def test_every_changed_bit_is_found_in_its_section(kind):
    data = np.random.default_rng(1).integers(0, 1000, 300).astype(kind)
    section = section_entries(300, data.itemsize)
    checks = SectionChecks(running_checksums(data, section)[None, :], 300)
    assert checks.section == section
    assert int(checks.running[0, -1]) == crc32c(data)
    assert checks.agree(0, data)
    for bit in range(0, data.nbytes * 8, 37):
        other = data.copy()
        other.view(np.uint8)[bit // 8] ^= 1 << bit % 8
        hit = bit // 8 // data.itemsize // section
        for k in range(checks.together):
            assert checks.agree(k, other[k * section : (k + 1) * section]) == (k != hit)
        assert not checks.agree(0, other)


@pytest.mark.parametrize("length", [300, 299, 1])
def test_the_checksums_of_a_file_are_those_of_its_writer(tmp_path, length):
    data = np.arange(length, dtype=np.int32)
    written = write_chunk(tmp_path / "c", data, 300, 7)
    found = checksums_of_file(tmp_path / "c", 300, data.dtype)
    np.testing.assert_array_equal(found, written.running)
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:100])
    with pytest.raises(StorageFailed, match="too short"):
        checksums_of_file(tmp_path / "c", 300, data.dtype)


def test_a_small_question_reads_little_more_than_its_lines(made, reads):
    place, want = made
    with open_result(place) as matrix:
        size = matrix.dtype.itemsize
        line = int(matrix._tables_here.widths.max()) * size
        most = (line // SECTION + 2) * SECTION  # of one line, which may begin and end inside a section
        rng = np.random.default_rng(3)
        for _ in range(20):
            u, v = rng.integers(0, 400, 2)
            reads.clear()
            assert matrix.entries([u], [v])[0] == want[u, v]
            assert sum(reads) <= 2 * most
        us, vs = rng.integers(0, 400, 2), rng.integers(0, 400, 3)
        reads.clear()
        np.testing.assert_array_equal(matrix.block(us, vs), want[np.ix_(us, vs)])
        assert sum(reads) <= 5 * most
        assert CHUNK * size > 3 * most  # so that whole chunks would be more


def test_all_is_read_in_whole_chunks(made, reads):
    place, want = made
    with open_result(place) as matrix:
        _ = matrix.entries([0], [0]), reads.clear()
        np.testing.assert_array_equal(matrix.block(range(400), range(400)), want)
        assert len(reads) <= matrix.table_bytes / (CHUNK * matrix.dtype.itemsize) + 40


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_no_section_is_used_that_was_changed(place, made, name):
    """A bit of every tenth section is turned; questions that need one are refused, and others get their answer."""
    want = made[1]
    with open_result(place) as matrix:
        tables, size = matrix._tables_here, matrix.dtype.itemsize
        ends = tables.lines(matrix._row_places)
        begins = ends[1] - tables.widths[ends[0]]
        last = int(ends[1].max())
    section, hit = SECTION // size, set(range(3, last * size // SECTION, 10))
    for k in hit:
        file, at = place / f"tables/{name}/c/{k * section // CHUNK}", k * section % CHUNK * size + 5
        data = bytearray(file.read_bytes())
        data[at] ^= 16
        file.write_bytes(data)
    refused = 0
    with open_result(place) as matrix:
        files = matrix.line_files(name)
        assert files is not None
        for v in range(0, 400, 3):
            touched = not hit.isdisjoint(range(int(begins[v]) // section, (int(ends[1][v]) - 1) // section + 1))
            refused += touched
            pair = ([v], [0]) if name == "forward" else ([0], [v])
            if touched:
                with pytest.raises(StorageFailed, match=f"tables/{name}/c/[0-9]+ does not agree with the seal"):
                    matrix.entries(*pair)
                with pytest.raises(StorageFailed, match=f"tables/{name}/c/[0-9]+ does not agree with the seal"):
                    files.read(int(begins[v]), int(ends[1][v]))
            else:
                assert matrix.entries(*pair)[0] == want[pair[0][0], pair[1][0]]
                assert len(files.read(int(begins[v]), int(ends[1][v]))) == ends[1][v] - begins[v]
        with pytest.raises(StorageFailed, match="does not agree with the seal"):
            matrix.block(range(400), range(400))
    assert 20 < refused < 120


@pytest.mark.parametrize("how", ["cut", "longer", "gone"])
def test_files_of_another_length_are_refused(place, how):
    for file in (place / "tables/forward/c").iterdir():
        data = file.read_bytes()
        file.unlink()
        if how != "gone":
            file.write_bytes(data[:-9] if how == "cut" else data + b"\0")
    with open_result(place) as matrix, pytest.raises(StorageFailed, match="is damaged: tables/forward/c/"):
        matrix.entries([3], [5])


def test_damaged_checksums_are_refused(place):
    file = place / "sections/forward/c/0/0"
    data = bytearray(file.read_bytes())
    data[1] ^= 1
    file.write_bytes(data)
    with open_result(place) as matrix, pytest.raises(StorageFailed, match="sections/forward/c/0/0 does not agree"):
        matrix.entries([3], [5])


def test_tables_of_earlier_versions_are_read_in_whole_chunks(tmp_path, made, reads, monkeypatch):
    monkeypatch.setattr(PreparedWriter, "_add_sections", lambda *_: None)
    prepare(grid_graph(20), tmp_path / "old", Options(threads=1))
    assert not (tmp_path / "old" / "sections").exists()
    with open_result(tmp_path / "old") as matrix:
        reads.clear()
        assert matrix.entries([3], [390])[0] == made[1][3, 390]
        assert set(reads) == {CHUNK * matrix.dtype.itemsize + 4}
        np.testing.assert_array_equal(matrix.block(range(400), range(400)), made[1])
        assert matrix.line_files("forward")._together == 1  # type: ignore[union-attr]


def test_lines_are_checked_by_section(tmp_path):
    entries = np.arange(100, dtype=np.int32)
    (tmp_path / "t/c").mkdir(parents=True)
    written = write_chunk(tmp_path / "t/c/0", entries, 128, 0)
    assert isinstance(written.mark, FileMark)
    checks = SectionChecks(written.running[None, :], 128)
    data = bytearray((tmp_path / "t/c/0").read_bytes())
    data[4 * 70] ^= 1
    (tmp_path / "t/c/0").write_bytes(data)
    files = LineFiles(StoreFolder(tmp_path), "t", 128, entries.dtype, [written.mark], checks=checks)
    assert files.peek(3, 9) is None
    np.testing.assert_array_equal(files.read(3, 9), entries[3:9])
    np.testing.assert_array_equal(files.peek(0, 64), entries[:64])
    for begin in (0, 64, 99):
        assert files.peek(begin, 100) is None
        with pytest.raises(StorageFailed, match="t/c/0 does not agree with the seal"):
            files.read(begin, 100)


@pytest.mark.parametrize("told", [True, False])
def test_a_shared_chunk_that_was_damaged_is_not_vouched_for(tmp_path, monkeypatch, told):
    """Sections of a store without them get checksums when new weights share its chunks, from what the seal knows."""
    with monkeypatch.context() as earlier:
        earlier.setattr(PreparedWriter, "_add_sections", lambda *_: None)
        prepare(grid_graph(20), tmp_path / "old", Options(threads=1))
    usual, damaged, monkey = reweighting._made, list[int](), monkeypatch
    monkey.setattr(reweighting, "TABLE_CHUNK", CHUNK, raising=False)

    def made(base, *given):
        found = usual(base, *given)
        shared = sorted(found[1]["forward"])
        file = tmp_path / "old/tables/forward/c" / str(shared[0])
        data = bytearray(file.read_bytes())
        data[100] ^= 1
        if told:  # with a checksum of its own that is right: only the seal tells
            data[-4:] = crc32c(bytes(data[:-4])).to_bytes(4, "little")
        file.write_bytes(data)
        damaged.append(shared[0])
        return found

    monkey.setattr(reweighting, "_made", made)
    with open_result(tmp_path / "old") as matrix:
        graph = matrix.graph()
        arc = [matrix.labels[0]], [matrix.labels[graph.heads[0]]], [int(graph.weights[0]) + 1]
    with pytest.raises(StorageFailed, match="is damaged"):
        reweighting.reweight(tmp_path / "old", arc, out=tmp_path / "new", changed=True, options=Options(threads=1))
    assert len(damaged) == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("page", [4096, 2**14, 2**16])
@pytest.mark.parametrize("some", [False, True])
def test_memory_of_dropped_sections_is_given_back_whatever_the_size_of_pages(monkeypatch, page, some):
    monkeypatch.setattr(chunks.mmap, "PAGESIZE", page)

    def read(first, piece):
        piece[:] = np.arange(first * 2048 + 1, first * 2048 + 1 + len(piece))

    table = CheckedTable(1 << 20, 2048, np.dtype(np.int32), read, 1, True, 256)
    given, pages = set[int](), table._pages

    class Pages:
        def madvise(self, how, first, size):
            given.update(range(first // 4096, (first + size) // 4096))
            pages.madvise(how, first, size)

    monkeypatch.setattr(table, "_pages", Pages())
    table.bring(table.wanted(None))
    before, stay = table.values.copy(), np.zeros(table.sections, bool)
    stay[5::40] = some
    assert table.drop(stay, 1 << 30) == (~stay).sum() * 8192
    for k in np.flatnonzero(stay):
        np.testing.assert_array_equal(table.values[k * 2048 : (k + 1) * 2048], before[k * 2048 : (k + 1) * 2048])
    beside = {place for k in np.flatnonzero(stay) for place in range(k * 8192 // page, -(-(k + 1) * 8192 // page))}
    assert given == {p for p in range((1 << 22) // 4096) if p * 4096 // page not in beside}
    table.bring(table.wanted(None))
    np.testing.assert_array_equal(table.values, before)


def test_what_elimination_has_found_counts_once_however_often_it_cannot_be_read(place):
    file = place / "elimination/across/c/0"
    good = file.read_bytes()
    file.write_bytes(good[:50] + bytes([good[50] ^ 255]) + good[51:])
    with open_result(place, memory=3_000_000) as matrix:
        for _ in range(3):
            with pytest.raises(StorageFailed):
                matrix.rows([0])
        assert matrix._whole_bytes == 0
        file.write_bytes(good)
        assert matrix.rows([0]).shape == (1, 400)
        assert matrix._whole_bytes > 0
