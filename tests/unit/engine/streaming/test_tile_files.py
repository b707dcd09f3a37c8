"""Tiles in memory that a kernel writes: the same files as those that Python writes, and the same errors."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.solve import solve_to_store
from engine.execution import compiling
from engine.model.problem import Options
from engine.streaming import tile_files
from storage.files import memory
from storage.files.checksum import crc32c
from storage.graph.graph import build_graph
from storage.matrix import grid, writer
from storage.matrix.frame import MatrixSpec
from storage.matrix.reader import open_matrix
from storage.matrix.working import open_working
from tests.stores import UNREACHABLE, entries_of, line_graph, verify_matrix


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch):
    monkeypatch.setattr(writer, "in_memory", lambda _folder: True)
    monkeypatch.setattr("storage.quantities.writing.in_memory", lambda _folder: True)
    tile_files.try_put()  # compiles


def tiles_of(path: Path, array: str = "distances") -> dict[str, bytes]:
    folder = path / array / "c"
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def written(path: Path, block: np.ndarray, put: memory.PutTile | None, **fields) -> dict[str, bytes]:
    rows, columns = block.shape
    sources = None if rows == columns else np.arange(rows)
    spec = MatrixSpec(block.dtype.name, UNREACHABLE[block.dtype.name], sources=sources, **fields)
    with open_working(path, line_graph(columns), spec) as store:
        store.put = put
        step = max(1, store.tile[0])
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda row: store.write(row, 0, block[row : row + step]), range(0, rows, step)))
        store.seal({})
    verify_matrix(path)
    return tiles_of(path)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (64, 64), (150, 150), (3, 9000), (70, 17000)])
def test_the_kernel_writes_the_files_that_python_writes(tmp_path, rows, columns, dtype, compression):
    block = entries_of(rows, columns, dtype, 5)
    expected = written(tmp_path / "python", block, None, compression=compression)
    assert written(tmp_path / "kernel", block, tile_files.put, compression=compression) == expected
    assert len(expected) == grid.layout(block.shape, block.itemsize).tiles


@pytest.mark.parametrize("strides", ["of columns", "backwards", "every other row"])
def test_entries_that_do_not_follow_one_another_are_written_in_their_order(tmp_path, strides):
    block = entries_of(200, 200, "int32", 2)
    other = {
        "of columns": np.asfortranarray(block),
        "backwards": block[::-1, ::-1].copy()[::-1, ::-1],
        "every other row": np.repeat(block, 2, axis=0)[::2],
    }[strides]
    assert written(tmp_path / "kernel", other, tile_files.put) == written(tmp_path / "python", block, None)


def test_a_longer_file_is_replaced_whole(tmp_path):
    path, part = tmp_path / "tile", entries_of(4, 5, "int32")
    path.write_bytes(b"longer" * 1000)
    place = np.full(4 * 5 * 4 + 4, 77, np.uint8)
    checksum = tile_files.put(str(path), part, place, 20)
    assert path.read_bytes() == part.tobytes() + checksum.to_bytes(4, "little")
    assert checksum == crc32c(part.tobytes())


@contextmanager
def longest_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_the_system_refuses_is_raised_with_its_reason(tmp_path):
    part, place = entries_of(64, 64, "int32"), np.zeros(64 * 64 * 4 + 4, np.uint8)
    for path, code in ((tmp_path / "no" / "such", errno.ENOENT), (tmp_path, errno.EISDIR), ("/dev/full", errno.ENOSPC)):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared
            tile_files.put(str(path), part, place, 256)
        assert (caught.value.errno, caught.value.filename) == (code, str(path))
    with longest_file(5000), pytest.raises(OSError) as caught:  # the first write writes a part  # noqa: PT011
        tile_files.put(str(tmp_path / "long"), part, place, 256)
    assert caught.value.errno == errno.EFBIG


def test_a_tile_that_failed_is_not_counted_as_written(tmp_path):
    block = entries_of(100, 100, "int32")
    with open_working(tmp_path / "d", line_graph(100), MatrixSpec("int32", UNREACHABLE["int32"])) as store:
        store.put = tile_files.put
        store.write(0, 0, block)
        store.commit({"rows": 100})
    with open_working(tmp_path / "d", line_graph(100), MatrixSpec("int32", UNREACHABLE["int32"]), resume=True) as store:
        found = np.empty_like(block)
        store.read_rows(0, found)
        np.testing.assert_array_equal(found, block)
        store.abort()
    with open_working(tmp_path / "d", line_graph(100), MatrixSpec("int32", UNREACHABLE["int32"])) as store:
        store.put = tile_files.put
        with longest_file(5000), pytest.raises(Exception, match="cannot write tile"):
            store.write(0, 0, block)
        with pytest.raises(Exception, match="never written"):
            store.seal({})


def graph_of(n: int):
    draw = np.random.default_rng(n)
    tails, heads = draw.integers(0, n, (2, 4 * n))
    return build_graph(tails, heads, draw.integers(1, 99, 4 * n), n=n, directed=True)[0]


def test_only_large_stores_in_memory_are_hastened_and_only_if_the_kernel_is_there(tmp_path, monkeypatch):
    spec = MatrixSpec("int32", UNREACHABLE["int32"])

    def chosen(name: str) -> memory.PutTile | None:
        with open_working(tmp_path / name, line_graph(200), spec) as store:
            compiling.hasten(store)
            return store.put

    assert chosen("few tiles") is None
    monkeypatch.setattr(compiling, "MANY_TILES", 3)
    assert chosen("many tiles") is tile_files.put
    monkeypatch.setattr(writer, "in_memory", memory.in_memory)  # which tests' folders are not
    assert chosen("on a disk") is None
    monkeypatch.setattr(writer, "in_memory", lambda _folder: True)
    monkeypatch.setattr(tile_files, "checksum_address", lambda: None)
    assert chosen("without the C function") is None
    monkeypatch.undo()
    monkeypatch.setattr(writer, "in_memory", lambda _folder: True)
    monkeypatch.setattr(compiling, "MANY_TILES", 3)

    def refused() -> None:
        raise tile_files.NotCompiledError("_put is not compiled")

    monkeypatch.setattr(tile_files, "try_put", refused)
    assert chosen("not compiled") is None


def written_by_the_kernel(monkeypatch) -> set[str]:
    """Let the kernel write all tiles from now on; return the set that receives their paths."""
    real, used = tile_files.put, set[str]()

    def noted(path, *given):
        used.add(path)
        return real(path, *given)

    monkeypatch.setattr(tile_files, "put", noted)
    monkeypatch.setattr(compiling, "MANY_TILES", 0)
    return used


@pytest.mark.parametrize("weight", [1, 99])
def test_sums_along_paths_are_the_same_with_the_kernel(tmp_path, monkeypatch, weight):
    draw = np.random.default_rng(1)
    tails, heads = draw.integers(0, 300, (2, 1200))
    graph = build_graph(tails, heads, draw.integers(1, 1 + weight, 1200), n=300, directed=True)[0]
    graph = replace(graph, quantities={"toll": draw.integers(0, 9, graph.arcs)})
    options = Options(device="cpu", also=("toll",))
    solve_to_store(graph, options, tmp_path / "python")
    used = written_by_the_kernel(monkeypatch)
    solve_to_store(graph, options, tmp_path / "kernel")
    verify_matrix(tmp_path / "kernel")
    assert tiles_of(tmp_path / "kernel", "also/toll") == (expected := tiles_of(tmp_path / "python", "also/toll"))
    assert sum("/toll/" in name for name in used) == len(expected) > 0


@pytest.mark.parametrize("algorithm", ["dijkstra", "blocked-floyd-warshall"])
def test_solves_are_the_same_with_the_kernel(tmp_path, monkeypatch, algorithm):
    graph, options = graph_of(300), Options(device="cpu", algorithm=algorithm, dtype="int32")
    solve_to_store(graph, options, tmp_path / "python")
    used = written_by_the_kernel(monkeypatch)
    solve_to_store(graph, options, tmp_path / "kernel")
    verify_matrix(tmp_path / "kernel")
    assert tiles_of(tmp_path / "kernel") == tiles_of(tmp_path / "python")
    assert sum("/distances/" in name for name in used) == len(tiles_of(tmp_path / "kernel"))
    with open_matrix(tmp_path / "kernel") as matrix:
        assert matrix.rows([0]).shape == (1, 300)
