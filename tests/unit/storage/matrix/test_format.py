"""Marks of files in a seal: files that end with their own CRC-32C are told from each other.

All of them have one CRC-32C, so a seal that had no more could not tell a file of one result from that of another.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from engine.api.from_tables.compacting import prepare_compact
from engine.api.from_tables.reweighting import reweight
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.api.verify import verify_store
from engine.model.problem import Options
from storage.errors import StorageFailed
from storage.files.checksum import crc32c
from storage.graph.graph import Graph, build_graph
from storage.matrix import format as formats
from storage.matrix.download import labels_of, side_files
from storage.matrix.format import FileMark, data_mark, file_mark, sealed_files
from tests.stores import forget_contents

#: Entries of a chunk of a table: so few that small tables have many chunks.
CHUNK = 200


def with_own(data: bytes) -> bytes:
    return data + crc32c(data).to_bytes(4, "little")


@pytest.mark.parametrize("length", [0, 1, 4, 5, 4096])
def test_files_that_end_with_their_own_checksum_differ(length: int, tmp_path: Path):
    rng = np.random.default_rng(length)
    one, other = (with_own(rng.bytes(length)) for _ in range(2))
    assert crc32c(one) == crc32c(other)
    mark = data_mark(one)
    assert mark == file_mark(_written(tmp_path / "f", one)) == (length + 4, crc32c(one), crc32c(one[:-4]))
    assert mark.agrees(mark)
    assert data_mark(other).agrees(mark) == (one == other)
    assert not data_mark(one[:-1]).agrees(mark)
    assert not data_mark(one[:-1] + bytes([one[-1] ^ 1])).agrees(mark)


def test_other_files_have_one_checksum(tmp_path: Path):
    for data in (b"", b"abc", b"abcd" * 9):
        assert file_mark(_written(tmp_path / "f", data)) == (len(data), crc32c(data), crc32c(data))
        assert data_mark(data).agrees(data_mark(data))
        assert not data_mark(data + b"x").agrees(data_mark(data))


def test_a_file_longer_than_what_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    data = with_own(np.random.default_rng(1).bytes(100))
    for size in (1, 2, 3, 7, 103, 104, 105):
        monkeypatch.setattr(formats, "_CHECK_BYTES", size)
        assert file_mark(_written(tmp_path / "f", data)) == data_mark(data)


def test_seals_of_earlier_versions_are_read():
    data = with_own(b"content")
    seal = {"files": {"a": [len(data), crc32c(data)], "b": [3, crc32c(b"abc")]}}
    marks = sealed_files(seal)
    assert data_mark(data).agrees(marks["a"])
    assert data_mark(with_own(b"CONTENT")).agrees(marks["a"])  # that is why seals say more now
    assert not data_mark(data[:-1] + b"?").agrees(marks["a"])
    assert (marks["a"].told, marks["b"].told) == (False, True)
    assert sealed_files({**seal, "contents": {"a": crc32c(b"content")}})["a"] == data_mark(data)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def lattice(seed: int, *, directed: bool = True) -> Graph:
    side = 9
    at = np.arange(side * side).reshape(side, side)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    weights = np.random.default_rng(seed).integers(1, 100, 2 * len(tails))
    if not directed:
        return build_graph(tails, heads, weights[: len(tails)], directed=False)[0]
    return build_graph(np.concatenate([tails, heads]), np.concatenate([heads, tails]), weights, directed=True)[0]


def make(form: str, path: Path, seed: int) -> None:
    """Make a result of a form; two seeds give results whose files have the same names and sizes."""
    graph, options = lattice(seed), Options(threads=1, device="cpu")
    if form == "solved":
        solve_to_store(graph, options, path)
    elif form == "compact":
        prepare_compact(graph, path, options)
    elif form == "reweighted":
        prepare(lattice(7), path, options)
        tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
        reweight(path, (tails, graph.heads, graph.weights), options=options)
    else:
        prepare(graph, path, options)


@pytest.mark.parametrize("form", ["solved", "prepared", "compact", "reweighted"])
def test_no_file_of_another_result_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str):
    """As after a copy that ended halfway: every file in turn is that of a result of other weights."""
    monkeypatch.setattr("storage.prepared.writer.TABLE_CHUNK", CHUNK)
    monkeypatch.setattr("engine.api.from_tables.reweighting.TABLE_CHUNK", CHUNK)
    make(form, tmp_path / "one", 1)
    make(form, tmp_path / "other", 2)
    names = [path.relative_to(tmp_path / "one") for path in sorted((tmp_path / "one").rglob("*")) if path.is_file()]
    tried = 0
    for name in names:
        there, here = ((tmp_path / which / name).read_bytes() for which in ("other", "one"))
        if there == here or name.name == "zarr.json":
            continue
        (tmp_path / "one" / name).write_bytes(there)
        with pytest.raises(StorageFailed, match="damaged"):
            verify_store(tmp_path / "one", 0)
        (tmp_path / "one" / name).write_bytes(here)
        tried += 1
    verify_store(tmp_path / "one", 0)
    assert tried >= (4 if form == "solved" else 10)


@pytest.mark.parametrize("form", ["prepared", "compact", "reweighted"])
def test_no_chunk_of_another_place_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str):
    monkeypatch.setattr("storage.prepared.writer.TABLE_CHUNK", CHUNK)
    monkeypatch.setattr("engine.api.from_tables.reweighting.TABLE_CHUNK", CHUNK)
    path = tmp_path / "p"
    make(form, path, 1)
    with open_result(path) as matrix:
        expected = matrix.rows(range(matrix.n))
    for folder in sorted(path.glob("*/*/c")):
        chunks = sorted(folder.iterdir())
        for one, other in pairwise(chunks):
            data = one.read_bytes(), other.read_bytes()
            if data[0] == data[1] or len(data[0]) != len(data[1]):
                continue
            one.write_bytes(data[1])
            other.write_bytes(data[0])
            with pytest.raises(StorageFailed, match="damaged"):
                verify_store(path, 0)
            with open_result(path) as matrix:
                for v in range(0, matrix.n, 20):
                    try:
                        found = matrix.entries(np.full(matrix.n, v), np.arange(matrix.n))
                    except StorageFailed as error:
                        assert "does not agree with the seal" in str(error)  # noqa: PT017 - others may be answered
                    else:
                        np.testing.assert_array_equal(found, expected[v])
            one.write_bytes(data[0])
            other.write_bytes(data[1])
    verify_store(path, 0)


def test_chunks_that_are_shared_are_told_from_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """New weights share equal chunks with the prepared graph before, whose seal tells what they hold, or not."""
    monkeypatch.setattr("storage.prepared.writer.TABLE_CHUNK", CHUNK)
    monkeypatch.setattr("engine.api.from_tables.reweighting.TABLE_CHUNK", CHUNK)
    make("prepared", tmp_path / "old", 1)
    forget_contents(tmp_path / "old")
    graph, base = lattice(1), tmp_path / "old"
    for step in ("first", "second"):
        one = ([0], [int(graph.heads[0])], [float(graph.weights[0]) + 1])
        reweight(base, one, changed=True, out=tmp_path / step, options=Options(threads=1))
        seal = json.loads((tmp_path / step / "zarr.json").read_bytes())["attributes"]["seal"]
        marks = sealed_files(seal)
        assert all(mark.told for mark in marks.values())
        assert all(file_mark(tmp_path / step / name) == mark for name, mark in marks.items())
        verify_store(tmp_path / step, "all")
        base = tmp_path / step
    first, second = (tmp_path / step / "tables" / "forward" / "c" for step in ("first", "second"))
    assert any(a.stat().st_ino == b.stat().st_ino for a, b in zip(first.iterdir(), second.iterdir(), strict=True))


def test_labels_that_a_client_fetched(tmp_path: Path):
    graph = lattice(1)
    for name, first in (("a", 0), ("b", 5)):
        labelled = Graph(graph.indptr, graph.heads, graph.weights, graph.labels + first, directed=True, weighted=True)
        prepare(labelled, tmp_path / name, Options(threads=1))
    document = (tmp_path / "a" / "zarr.json").read_bytes()
    names = side_files(document, ("vertex",))
    own, others = ({name: (tmp_path / at / name).read_bytes() for name in names} for at in ("a", "b"))
    assert labels_of(document, own, "vertex") == list(range(graph.n))
    with pytest.raises(StorageFailed, match="arrived damaged"):
        labels_of(document, others, "vertex")


def test_a_mark_is_a_tuple_of_numbers():
    assert FileMark.of(4, 5, b"") == (4, 5, 5)


@pytest.mark.parametrize("size", [2**10, 2**17])
@pytest.mark.parametrize("kind", [">i4", "<f8", "?", "S8", "M8[s]"])
def test_checksums_of_arrays_of_any_type_are_those_of_their_bytes(size, kind):
    data = np.random.default_rng(1).integers(0, 2, size, dtype=np.uint8)
    array = data.view(kind)
    assert crc32c(array) == google_crc32c.value(data.tobytes())
    assert crc32c(np.ascontiguousarray(array[::2])) == google_crc32c.value(array[::2].tobytes())
    if size == 2**17:
        assert crc32c(memoryview(data).cast("i")) == google_crc32c.value(data.tobytes())
