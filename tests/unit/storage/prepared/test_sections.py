"""Sections of chunks: a question reads those that hold its lines, and no section is used before it was checked."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.model.problem import Options
from storage.errors import StorageFailed
from storage.matrix.format import FileMark, crc32c
from storage.matrix.tiles import StoreFolder
from storage.prepared import reader, sections, writer
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
