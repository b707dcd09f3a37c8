"""The matrix store: what goes in comes out, through this reader, zarr and xarray; and what is damaged is refused."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from storage.errors import Conflict, InvalidRequest, NotFound, StorageFailed
from storage.files import atomic
from storage.graph.graph import graph_digest
from storage.matrix.reader import MatrixSpec, create_matrix, matrix_bytes, open_matrix
from tests.stores import UNREACHABLE, entries_of, line_graph, make_store, verify_matrix

TYPES = ["uint16", "int32", "float32", "float64"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d.zarr"


def tile_file(path, i=0, j=0):
    return path / "distances" / "c" / str(i) / str(j)


def begin(path, n=100, dtype="float32", *, overwrite=False, **fields):
    return create_matrix(path, line_graph(n), MatrixSpec(dtype, UNREACHABLE[dtype], **fields), overwrite=overwrite)


class TestRoundTrip:
    @pytest.mark.parametrize("compression", ["none", "zstd"])
    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize("n", [0, 1, 63, 64, 150])
    def test_rows_and_entries(self, path, n, dtype, compression):
        entries = make_store(path, n, dtype, compression=compression)
        with open_matrix(path) as matrix:
            assert (matrix.shape, matrix.dtype) == ((n, n), np.dtype(dtype))
            for _ in range(2):  # the second time without reading whole tiles
                np.testing.assert_array_equal(matrix.rows(range(n)), entries)
                for u in range(0, n, 50):
                    np.testing.assert_array_equal(matrix.row(u), entries[u])
        verify_matrix(path)

    @pytest.mark.parametrize("compression", ["none", "zstd"])
    def test_several_tiles_across(self, path, compression):
        sources = np.array([9000, 5, 17, *range(100, 250)])
        entries = make_store(path, 9001, "float32", compression=compression, sources=sources)
        with open_matrix(path) as matrix:
            assert matrix.grid.counts == (3, 2)
            for _ in range(2):
                np.testing.assert_array_equal(matrix.rows(sources), entries)
                np.testing.assert_array_equal(matrix.row(17), entries[2])
        assert zarr.open_group(path, mode="r")["distances"][1, 9000] == entries[1, 9000]
        verify_matrix(path)

    @pytest.mark.parametrize("count", [0, 1, 50, 5000])
    @pytest.mark.parametrize("compression", ["none", "zstd"])
    def test_entries_of_many_pairs(self, path, count, compression):
        entries = make_store(path, 9000, "int32", sources=np.arange(200), compression=compression)
        rng = np.random.default_rng(count)
        sources, targets = rng.integers(0, 200, count), rng.integers(0, 9000, count)
        with open_matrix(path) as matrix:
            for _ in range(2):
                found = matrix.entries(sources, targets)
                assert found.dtype == np.int32
                np.testing.assert_array_equal(found, entries[sources, targets])

    def test_rows_in_any_order_and_twice(self, path):
        entries = make_store(path, 150)
        with open_matrix(path) as matrix:
            np.testing.assert_array_equal(matrix.rows([149, 0, 149, 64]), entries[[149, 0, 149, 64]])
            assert matrix.rows([]).shape == (0, 150)

    def test_unreachable_and_attributes(self, path):
        make_store(path, 5, "int32", seed=7)
        with open_matrix(path) as matrix:
            assert matrix.unreachable == 2**30 - 1
            assert matrix.unreachable.dtype == np.int32
            assert matrix.directed is True
            assert matrix.summary == {"seed": 7, "mean": 2.5, "radius": "Infinity"}
            attributes = matrix.attributes
        assert attributes.pop("software").startswith("apsp ")
        assert attributes == {
            "type": "int32",
            "unreachable": 2**30 - 1,
            "unit": "weight",
            "directed": True,
            "algorithm": "dijkstra",
            "plan": {"threads": 2},
            "graph": graph_digest(line_graph(5)),
            "max_hops": None,
            "cutoff": None,
            "sources": "all",
            "targets": "all",
            "compression": "none",
        }

    def test_floats_say_infinity(self, path):
        make_store(path, 5)
        with open_matrix(path) as matrix:
            assert matrix.unreachable == np.inf
            assert matrix.attributes["unreachable"] == np.inf
        text = (path / "zarr.json").read_text()
        document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        assert document["attributes"]["unreachable"] == "Infinity"

    def test_hops_are_the_unit_of_unweighted_graphs(self, path):
        graph = line_graph(0, weighted=False)
        create_matrix(path, graph, MatrixSpec("uint16", 32767)).seal({})
        with open_matrix(path) as matrix:
            assert matrix.attributes["unit"] == "hops"

    @pytest.mark.parametrize("text", [False, True])
    def test_graph_comes_back(self, path, text):
        make_store(path, 100, text=text)
        graph = line_graph(100, text=text)
        with open_matrix(path) as matrix:
            again = matrix.graph()
            assert again is matrix.graph()
            assert graph_digest(again) == graph_digest(graph)
            assert again.weights.dtype == graph.weights.dtype
            assert again.weighted
            np.testing.assert_array_equal(matrix.labels, graph.labels)

    def test_vertices_by_name(self, path):
        make_store(path, 100, text=True)
        with open_matrix(path) as matrix:
            assert matrix.vertex("v000042ß") == 42
            with pytest.raises(NotFound, match="nobody"):
                matrix.vertex("nobody")

    @pytest.mark.parametrize("n", [0, 1, 100])
    @pytest.mark.parametrize("itemsize", [2, 4, 8])
    def test_matrix_bytes_are_exact(self, path, n, itemsize):
        make_store(path, n, {2: "uint16", 4: "int32", 8: "float64"}[itemsize])
        found = sum(f.stat().st_size for f in (path / "distances" / "c").rglob("*") if f.is_file())
        assert found == matrix_bytes((n, n), itemsize)


class TestSubset:
    def test_rows_are_named_by_vertex(self, path):
        sources = np.array([70, 3, 99])
        entries = make_store(path, 100, "int32", sources=sources)
        with open_matrix(path) as matrix:
            assert matrix.shape == (3, 100)
            np.testing.assert_array_equal(matrix.sources, sources)
            np.testing.assert_array_equal(matrix.source_labels, line_graph(100).labels[sources])
            assert [matrix.source_position(v) for v in (70, 3, 99)] == [0, 1, 2]
            np.testing.assert_array_equal(matrix.row(99), entries[2])
            np.testing.assert_array_equal(matrix.entries([3, 70], [5, 6]), [entries[1, 5], entries[0, 6]])

    def test_unsolved_sources_are_not_found(self, path):
        make_store(path, 100, sources=np.array([70, 3]))
        with open_matrix(path) as matrix:
            with pytest.raises(NotFound, match=r"vertex 8589934595 was not solved .* holds 2 of 100"):
                matrix.row(1)
            with pytest.raises(NotFound, match="index 100 does not exist; the graph has 100"):
                matrix.source_position(100)
            with pytest.raises(NotFound, match="index -1 does not exist"):
                matrix.entries([3], [-1])
            with pytest.raises(InvalidRequest, match="2 sources do not pair with 1 targets"):
                matrix.entries([3, 70], [1])

    def test_no_source_at_all(self, path):
        make_store(path, 10, sources=np.zeros(0, np.int64))
        with open_matrix(path) as matrix:
            assert matrix.shape == (0, 10)
        verify_matrix(path)

    @pytest.mark.parametrize(
        ("sources", "message"),
        [([1, 2, 1], "source 1 is given more than once"), ([1, 100], "source 100 is no"), ([[1]], "must be a list")],
    )
    def test_bad_sources(self, path, sources, message):
        with pytest.raises(InvalidRequest, match=message):
            begin(path, sources=np.array(sources))
        assert list(path.parent.iterdir()) == []


class TestOtherClients:
    @pytest.mark.parametrize("text", [False, True])
    @pytest.mark.parametrize("dtype", TYPES)
    @pytest.mark.parametrize("compression", ["none", "zstd"])
    def test_xarray_has_labelled_dimensions(self, path, text, dtype, compression):
        sources = np.array([70, 3, 99])
        entries = make_store(path, 100, dtype, sources=sources, text=text, compression=compression)
        labels = line_graph(100, text=text).labels
        with xr.open_zarr(path, chunks=None) as data:
            assert data.distances.dims == ("source", "target")
            assert data.distances.dtype == np.dtype(dtype)
            assert data.distances.sel(source=labels[3], target=labels[42]).item() == entries[1, 42]
            some = data.distances.sel(source=list(labels[[99, 70]]), target=list(labels[5:8]))
            np.testing.assert_array_equal(some.values, entries[[2, 0], 5:8])
            np.testing.assert_array_equal(data.vertex.values, labels)
            assert data.attrs["type"] == dtype
            assert data.distances.attrs["unit"] == "weight"

    @pytest.mark.parametrize("n", [0, 1])
    @pytest.mark.parametrize("text", [False, True])
    def test_xarray_opens_the_smallest(self, path, n, text):
        make_store(path, n, text=text)
        with xr.open_zarr(path, chunks=None) as data:
            assert data.distances.shape == (n, n)
        with xr.open_zarr(path, group="graph", chunks=None) as data:
            assert data.indptr.shape == (n + 1,)

    @pytest.mark.parametrize("consolidated", [True, False])
    def test_zarr_lists_and_reads_everything(self, path, consolidated):
        entries = make_store(path, 100, "uint16", text=True)
        group = zarr.open_group(path, mode="r", use_consolidated=consolidated)
        names = {name for name, _ in group.members(max_depth=None)}
        assert {"distances", "source", "target", "vertex", "graph/indptr", "graph/heads", "graph/weights"} <= names
        np.testing.assert_array_equal(group["distances"][:], entries)
        np.testing.assert_array_equal(group["graph/heads"][:], line_graph(100).heads)
        assert group["distances"].metadata.dimension_names == ("source", "target")

    @pytest.mark.parametrize("dtype", TYPES)
    def test_a_lost_tile_is_neither_a_distance_nor_unreachable(self, path, dtype):
        make_store(path, 100, dtype)
        tile_file(path).unlink()
        lost = zarr.open_group(path, mode="r")["distances"][:64]
        if np.dtype(dtype).kind == "f":
            assert np.isnan(lost).all()
        else:
            assert (lost == np.iinfo(dtype).max).all()
            assert np.iinfo(dtype).max > UNREACHABLE[dtype]

    def test_a_sentinel_equal_to_the_fill_value_is_refused(self, path):
        with pytest.raises(InvalidRequest, match="65535 of uint16 must lie below 65535"):
            create_matrix(path, line_graph(3), MatrixSpec("uint16", 65535))


class TestRefusals:
    def test_nothing_there(self, path):
        with pytest.raises(NotFound, match="no store at"):
            open_matrix(path)

    def test_a_file(self, path):
        path.write_text("x")
        with pytest.raises(StorageFailed, match="is no matrix store"):
            open_matrix(path)

    def test_a_folder_without_seal(self, path):
        zarr.create_group(path)
        with pytest.raises(StorageFailed, match="no sealed matrix store"):
            open_matrix(path)
        (path / "zarr.json").unlink()
        with pytest.raises(StorageFailed, match=r"unsealed or damaged: zarr\.json"):
            open_matrix(path)

    def test_every_flipped_byte_of_the_root_document_is_noticed(self, path):
        make_store(path, 3)
        document = path / "zarr.json"
        good = document.read_bytes()
        quiet = 0
        for k in range(0, len(good), 29):
            document.write_bytes(good[:k] + bytes([good[k] ^ 1]) + good[k + 1 :])
            try:
                open_matrix(path).close()
                quiet += 1
                assert json.loads(document.read_bytes()) == json.loads(good)  # only white space differs
            except StorageFailed:
                pass
        assert quiet < len(good) / 29 / 2

    def test_another_store_version(self, path):
        make_store(path, 3)
        document = json.loads((path / "zarr.json").read_bytes())
        document["attributes"]["seal"]["version"] = 99
        (path / "zarr.json").write_text(json.dumps(document))
        with pytest.raises(StorageFailed, match="store version 99; this program reads versions 1 to 8"):
            open_matrix(path)

    @pytest.mark.parametrize("how", ["missing", "short", "long", "flipped", "swapped"])
    @pytest.mark.parametrize("compression", ["none", "zstd"])
    def test_damaged_tiles(self, path, how, compression):
        make_store(path, 150, compression=compression)
        file = tile_file(path, 1)
        data = file.read_bytes()
        if how == "missing":
            file.unlink()
        elif how == "swapped":
            file.write_bytes(tile_file(path, 0).read_bytes())
        else:
            flipped = data[:500] + bytes([data[500] ^ 4]) + data[501:]
            file.write_bytes({"short": data[:-1], "long": data + b"x", "flipped": flipped}[how])
        with open_matrix(path) as matrix:
            matrix.row(63)
            message = r"damaged: tile \(1, 0\), rows 64 to 127, columns 0 to 149, file distances/c/1/0: it"
            with pytest.raises(StorageFailed, match=message):
                matrix.row(64)
            with pytest.raises(StorageFailed, match=message):
                matrix.entries([0, 64], [0, 0])
        with pytest.raises(StorageFailed, match=message):
            verify_matrix(path)

    @pytest.mark.parametrize("how", ["missing", "short"])
    def test_tiles_damaged_after_they_were_verified(self, path, how):
        make_store(path, 150)
        with open_matrix(path) as matrix:
            matrix.rows(range(150))
            file = tile_file(path, 1)
            if how == "missing":
                file.unlink()
            else:
                os.truncate(file, 100)
            for read in (lambda: matrix.row(64), lambda: matrix.entries([64], [100])):
                with pytest.raises(StorageFailed, match=r"tile \(1, 0\)"):
                    read()

    @pytest.mark.parametrize("name", ["target", "source", "manifest/crc32c", "manifest/bytes"])
    @pytest.mark.parametrize("how", ["missing", "flipped"])
    def test_damaged_labels_and_manifest(self, path, name, how):
        make_store(path, 150)
        [file] = [f for f in (path / name / "c").rglob("*") if f.is_file()]
        data = file.read_bytes()
        file.unlink()
        if how == "flipped":
            file.write_bytes(data[:8] + bytes([data[8] ^ 1]) + data[9:])
        with pytest.raises(StorageFailed, match=name):
            open_matrix(path)

    def test_damaged_graph(self, path):
        make_store(path, 150)
        (path / "graph" / "heads" / "c" / "0").unlink()
        with open_matrix(path) as matrix:
            matrix.row(3)
            with pytest.raises(StorageFailed, match="graph/heads"):
                matrix.graph()
        with pytest.raises(StorageFailed, match="graph/heads"):
            verify_matrix(path)

    @pytest.mark.parametrize("before", ["true", "{"])
    def test_facts_of_the_graph_that_were_changed(self, path, before):
        """An edge that goes one way only would be taken both ways."""
        make_store(path, 150)
        file = path / "graph" / "zarr.json"
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, "false" if before == "true" else "[", 1))
        with open_matrix(path) as matrix, pytest.raises(StorageFailed, match=r"graph/zarr\.json"):
            matrix.graph()


class TestWriting:
    def test_bad_arguments(self, path):
        with pytest.raises(InvalidRequest, match="unknown compression 'lzma'; known are none, zstd"):
            begin(path, compression="lzma")
        with pytest.raises(InvalidRequest, match="sets these attributes itself: graph, type"):
            begin(path, attributes={"type": "x", "graph": "y"})
        with pytest.raises(InvalidRequest, match="complex128"):
            create_matrix(path, line_graph(3), MatrixSpec(complex, 0))
        with pytest.raises(NotFound, match=r"the folder .*absent does not exist"):
            begin(path.parent / "absent" / "d.zarr")

    def test_bad_blocks(self, path):
        with begin(path) as writer:
            with pytest.raises(InvalidRequest, match="must be float32 of 2 dimensions, not float64 of 2"):
                writer.write(0, 0, np.zeros((64, 100)))
            with pytest.raises(InvalidRequest, match="not float32 of 1"):
                writer.write(0, 0, np.zeros(100, np.float32))
            with pytest.raises(InvalidRequest, match="rows 0 to 63 cut a tile"):
                writer.write(0, 0, np.zeros((63, 100), np.float32))

    def test_missing_tiles_prevent_the_seal(self, path):
        with begin(path, 150) as writer:
            writer.write(64, 0, np.zeros((64, 150), np.float32))
            with pytest.raises(StorageFailed, match=r"2 of 3 tiles were never written, the first is \(0, 0\)"):
                writer.seal({})
        assert list(path.parent.iterdir()) == []

    def test_a_tile_written_twice_holds_the_last(self, path):
        entries = entries_of(100, 100, "float32")
        with begin(path) as writer:
            writer.write(0, 0, np.zeros((100, 100), np.float32))
            writer.write(0, 0, entries)
            writer.seal({})
        with open_matrix(path) as matrix:
            np.testing.assert_array_equal(matrix.rows(range(100)), entries)
        verify_matrix(path)

    def test_nothing_shows_before_the_seal(self, path):
        with begin(path) as writer:
            writer.write(0, 0, np.zeros((100, 100), np.float32))
            assert not path.exists()
            [staging] = [one for one in path.parent.iterdir() if one.is_dir()]
            with pytest.raises(StorageFailed, match="unsealed"):
                open_matrix(staging)
            with pytest.raises(FileNotFoundError):
                zarr.open_group(staging, mode="r")
        assert list(path.parent.iterdir()) == []

    def test_a_closed_writer_refuses(self, path):
        writer = begin(path)
        writer.abort()
        writer.abort()
        with pytest.raises(Conflict, match="closed"):
            writer.write(0, 0, np.zeros((100, 100), np.float32))
        with pytest.raises(Conflict, match="closed"):
            writer.seal({})

    def test_abort_waits_for_writes_in_flight(self, path, monkeypatch):
        inside, go_on = threading.Event(), threading.Event()
        write_file = atomic.write_file

        def slow(*arguments, **options):
            inside.set()
            assert go_on.wait(10)
            write_file(*arguments, **options)

        writer = begin(path)
        monkeypatch.setattr(atomic, "write_file", slow)
        with ThreadPoolExecutor(2) as pool:
            write = pool.submit(writer.write, 0, 0, np.zeros((100, 100), np.float32))
            assert inside.wait(10)
            abort = pool.submit(writer.abort)
            go_on.set()
            write.result(10)
            abort.result(10)
        assert list(path.parent.iterdir()) == []

    def test_short_writes_go_on(self, path, monkeypatch):
        writev = os.writev

        def stingy(handle, buffers):
            return writev(handle, [memoryview(buffers[0]).cast("B")[:1001]])

        monkeypatch.setattr(os, "writev", stingy)
        entries = make_store(path, 150)
        monkeypatch.undo()
        with open_matrix(path) as matrix:
            np.testing.assert_array_equal(matrix.rows(range(150)), entries)
        verify_matrix(path)


class TestFailingDisk:
    def fail(self, monkeypatch, name, code):
        def broken(*_arguments, **_options):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, name, broken)

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
    def test_tiles(self, path, monkeypatch, code):
        with begin(path) as writer:
            self.fail(monkeypatch, "writev", code)
            message = (
                rf"cannot write tile .*/distances/c/0/0: {os.strerror(code)} \(25,604 bytes asked, [\d,]+ bytes free\)"
            )
            with pytest.raises(StorageFailed, match=message):
                writer.write(0, 0, np.zeros((100, 100), np.float32))
            monkeypatch.undo()
            with pytest.raises(StorageFailed, match="2 of 2 tiles were never written"):
                writer.seal({})
        assert list(path.parent.iterdir()) == []

    @pytest.mark.parametrize("operation", ["fsync", "writev"])
    def test_sealing(self, path, monkeypatch, operation):
        old = make_store(path, 100, seed=1)
        with begin(path, overwrite=True) as writer:
            writer.write(0, 0, np.zeros((100, 100), np.float32))
            with monkeypatch.context() as patch:
                self.fail(patch, operation, errno.EIO)
                with pytest.raises(StorageFailed, match=r"cannot finish .*: Input/output error"):
                    writer.seal({})
        assert list(path.parent.iterdir()) == [path]
        with open_matrix(path) as matrix:
            np.testing.assert_array_equal(matrix.row(5), old[5])

    def test_a_seal_that_failed_may_be_tried_again(self, path, monkeypatch):
        with begin(path) as writer:
            writer.write(0, 0, np.zeros((100, 100), np.float32))
            with monkeypatch.context() as patch:
                self.fail(patch, "fsync", errno.EIO)
                with pytest.raises(StorageFailed):
                    writer.seal({})
            writer.seal({})
        verify_matrix(path)

    def test_creating(self, path, monkeypatch):
        self.fail(monkeypatch, "writev", errno.ENOSPC)
        with pytest.raises(StorageFailed, match="No space left on device"):
            begin(path)
        monkeypatch.undo()
        assert list(path.parent.iterdir()) == []

    def test_a_real_limit_of_the_file_size(self, path):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with begin(path, 1000) as writer:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
            try:
                with pytest.raises(StorageFailed, match=r"File too large \(256,004 bytes asked"):
                    writer.write(0, 0, np.zeros((1000, 1000), np.float32))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
                signal.signal(signal.SIGXFSZ, handler)
        assert list(path.parent.iterdir()) == []


class TestOverwriting:
    def test_an_existing_store_is_kept_unless_asked(self, path):
        make_store(path, 100, seed=1)
        with pytest.raises(Conflict, match="exists already"):
            begin(path)
        make_store(path, 150, seed=2, overwrite=True)
        with open_matrix(path) as matrix:
            assert matrix.summary["seed"] == 2
        assert list(path.parent.iterdir()) == [path]

    def test_overwrite_without_an_old_store(self, path):
        make_store(path, 100, overwrite=True)
        verify_matrix(path)

    @pytest.mark.parametrize("content", ["file", "folder", "foreign zarr", "link"])
    def test_nothing_but_a_store_is_ever_replaced(self, path, content):
        if content == "file":
            path.write_text("precious")
        elif content == "folder":
            path.mkdir()
            (path / "precious").write_text("precious")
        elif content == "foreign zarr":
            zarr.create_group(path)
        else:
            make_store(path.with_name("real.zarr"), 10)
            path.symlink_to(path.with_name("real.zarr"))
        said = "is a symbolic link, which is not replaced; give the path .*real.zarr, or remove the link"
        if content != "link":
            said = "is no matrix store of this program and is not replaced"
        with pytest.raises(Conflict, match=said):
            begin(path, overwrite=True)

    def test_the_old_store_answers_until_the_seal(self, path):
        old = make_store(path, 100, seed=1)
        with begin(path, overwrite=True) as writer:
            writer.write(0, 0, np.zeros((100, 100), np.float32))
            with open_matrix(path) as matrix:
                np.testing.assert_array_equal(matrix.row(5), old[5])
            writer.seal({})
        with open_matrix(path) as matrix:
            assert not matrix.row(5).any()

    def test_a_reader_of_a_replaced_store_never_sees_the_new_one(self, path):
        make_store(path, 150, seed=1)
        with open_matrix(path) as matrix:
            matrix.row(5)
            make_store(path, 150, seed=2, overwrite=True)
            assert not matrix.current()
            for read in (lambda: matrix.row(5), lambda: matrix.row(100), lambda: matrix.entries([5], [5])):
                with pytest.raises(StorageFailed, match="was replaced or removed while open"):
                    read()

    def test_two_writers_without_overwrite(self, path):
        with begin(path) as first, begin(path) as second:
            for writer in (first, second):
                writer.write(0, 0, np.zeros((100, 100), np.float32))
            first.seal({"winner": 1})
            with pytest.raises(Conflict, match="exists already"):
                second.seal({"winner": 2})
        with open_matrix(path) as matrix:
            assert matrix.summary == {"winner": 1}
        assert list(path.parent.iterdir()) == [path]

    def test_two_overwriters_leave_the_last(self, path):
        make_store(path, 100)
        with begin(path, overwrite=True) as first, begin(path, overwrite=True) as second:
            for writer in (first, second):
                writer.write(0, 0, np.zeros((100, 100), np.float32))
            second.seal({"winner": 2})
            first.seal({"winner": 1})
        with open_matrix(path) as matrix:
            assert matrix.summary == {"winner": 1}
        assert list(path.parent.iterdir()) == [path]


class TestWithoutExchange:
    """File systems that know no renameat2 flags."""

    @pytest.fixture(autouse=True)
    def _no_renameat2(self, monkeypatch):
        def unsupported(*_arguments):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(atomic, "_renameat2", unsupported)

    def test_create_and_overwrite(self, path):
        make_store(path, 100, seed=1)
        make_store(path, 100, seed=2, overwrite=True)
        with open_matrix(path) as matrix:
            assert matrix.summary["seed"] == 2
        assert list(path.parent.iterdir()) == [path]

    def test_no_clobbering(self, path):
        with begin(path) as writer:
            writer.write(0, 0, np.zeros((100, 100), np.float32))
            make_store(path, 10, seed=3)
            with pytest.raises(Conflict):
                writer.seal({})
        with open_matrix(path) as matrix:
            assert matrix.summary["seed"] == 3

    def test_between_the_two_renames_the_old_store_opens(self, path):
        old = make_store(path, 100, seed=1)
        path.rename(atomic.set_aside(path))
        with open_matrix(path) as matrix:
            np.testing.assert_array_equal(matrix.row(7), old[7])
        with begin(path.with_name("other.zarr")):
            assert atomic.set_aside(path).exists()
        with pytest.raises(Conflict, match="exists already"):
            begin(path)
        assert sorted(path.parent.iterdir()) == [path]
        verify_matrix(path)

    def test_a_second_rename_that_fails_brings_the_old_store_back(self, path, monkeypatch):
        make_store(path, 100, seed=1)
        rename = Path.rename

        def refuse(self, target):
            if "staging" in self.name:
                raise OSError(errno.EIO, "no")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", refuse)
        with pytest.raises(StorageFailed, match="cannot put the finished store"):
            make_store(path, 100, seed=2, overwrite=True)
        with open_matrix(path) as matrix:
            assert matrix.summary["seed"] == 1
        assert list(path.parent.iterdir()) == [path]


class TestStaleStaging:
    def test_dead_writers_are_cleared_and_live_ones_are_not(self, path):
        dead = path.with_name(f".{path.name}.staging-0123")
        (dead / "distances" / "c").mkdir(parents=True)
        other = path.with_name(".other.zarr.staging-0123")
        other.mkdir()
        with begin(path) as live:
            assert not dead.exists()
            assert other.exists()
            with begin(path):
                live.write(0, 0, np.zeros((100, 100), np.float32))
                live.seal({})
        verify_matrix(path)

    def test_names_with_wildcards(self, tmp_path):
        innocent = tmp_path / ".abc.staging-0"
        innocent.mkdir()
        path = tmp_path / "a*c"
        (tmp_path / ".a*c.staging-0").mkdir()
        make_store(path, 3)
        assert innocent.exists()
        assert not (tmp_path / ".a*c.staging-0").exists()


def test_files_are_durable_before_the_seal_and_the_seal_before_the_name(path, monkeypatch):
    """Every file and folder of the store is synced after its last change; the root document comes later still."""
    events = []
    fsync, exchange_or_rename = os.fsync, atomic._renameat2

    def note_fsync(handle):
        events.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    def note_rename(source, target, flags):
        events.append("rename")
        exchange_or_rename(source, target, flags)
        staged.append(str(source))

    staged = []
    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(atomic, "_renameat2", note_rename)
    make_store(path, 150, text=True)
    [folder] = staged
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert after == [str(path.parent)]
    names = [name.removeprefix(folder).lstrip("/") for name in before]
    assert names[-2:] == ["zarr.json", ""]
    expected = {p.relative_to(path).as_posix() for p in path.rglob("*")}
    assert expected <= set(names)
    assert names.index("zarr.json") > max(names.index(name) for name in expected - {"zarr.json"})


def test_a_closed_matrix_says_so(path):
    make_store(path, 3)
    matrix = open_matrix(path)
    matrix.close()
    matrix.close()
    with pytest.raises(StorageFailed, match="has been closed"):
        matrix.row(0)


def test_many_threads_read_one_matrix(path):
    entries = make_store(path, 300, compression="zstd")
    with open_matrix(path) as matrix, ThreadPoolExecutor(8) as pool:
        for u, row in zip(range(300), pool.map(matrix.row, range(300)), strict=True):
            np.testing.assert_array_equal(row, entries[u])


def test_one_row_reads_few_bytes(path):
    """Wide store, three bands: the first row of a band verifies its tiles, the next reads its own bytes only."""
    n = 50_000
    entries = make_store(path, n, "uint16", sources=np.arange(192))

    def touched(u):
        counter = Path("/proc/self/io")
        before = int(counter.read_text().split()[1])
        row = matrix.row(u)
        after = int(counter.read_text().split()[1])
        np.testing.assert_array_equal(row, entries[u])
        return after - before - 200  # the counter's own text

    with open_matrix(path) as matrix:
        assert touched(100) <= 1.1 * 64 * n * 2
        assert touched(101) <= 1.1 * n * 2
