"""Further arrays of a store: written, sealed, read, found damaged, and taken up again after a stop."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

from storage.errors import Conflict, InvalidRequest, StorageFailed
from storage.files import direct
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import MatrixSpec, open_matrix
from storage.matrix.working import open_working
from storage.quantities import writing

N = 150
INT = 2**30 - 1


def graph_of(seed: int = 1) -> Graph:
    rng = np.random.default_rng(seed)
    tails, heads = rng.integers(0, N, (2, 400))
    quantities = {"toll 1": rng.random(400), "metres": rng.integers(0, 9, 400)}
    return build_graph(tails, heads, rng.integers(1, 9, 400), n=N, directed=True, quantities=quantities)[0]


def spec_of(graph: Graph, compression: str = "none") -> MatrixSpec:
    also = {"toll 1": ("float64", float("inf")), "metres": ("int32", float(INT))}
    return MatrixSpec("int32", INT, also={name: also[name] for name in graph.quantities}, compression=compression)


def blocks(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 99, (N, N)).astype(np.int32), rng.random((N, N)), rng.integers(0, 9, (N, N)).astype(np.int32)


def write_rows(writer, first: int, last: int, seed: int = 0) -> None:
    distances, toll, metres = (block[first:last] for block in blocks(seed))
    writer.also["toll 1"].write(first, toll)
    writer.also["metres"].write(first, metres)
    writer.write(first, 0, distances)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_is_written_is_read(tmp_path, compression):
    graph, path = graph_of(), tmp_path / "d.zarr"
    with open_working(path, graph, spec_of(graph, compression)) as writer:
        write_rows(writer, 0, N)
        writer.seal({})
    _, toll, metres = blocks()
    with open_matrix(path) as matrix:
        matrix.check()
        assert list(matrix.also) == ["toll 1", "metres"]
        assert np.array_equal(matrix.also["toll 1"].rows(range(N)), toll)
        assert np.array_equal(matrix.also["metres"].block([3, 149], [7, 5]), metres[[3, 149]][:, [7, 5]])
        assert np.array_equal(matrix.also["metres"].entries([3, 149], [7, 5]), metres[[3, 149], [7, 5]])
        stored = matrix.graph().quantities
        assert all(np.array_equal(stored[name], values) for name, values in graph.quantities.items())
        assert sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) == matrix.bytes + (
            (path / "zarr.json").stat().st_size
        )
    group = zarr.open_group(path, mode="r")
    assert np.array_equal(group["also/toll 1"][...], toll)
    assert group["also/metres"].chunks == group["distances"].chunks
    assert group.attrs["seal"]["version"] == 6


def test_a_damaged_or_lost_tile_is_found(tmp_path):
    graph, path = graph_of(), tmp_path / "d.zarr"
    with open_working(path, graph, spec_of(graph)) as writer:
        write_rows(writer, 0, N)
        writer.seal({})
    tile = path / "also" / "metres" / "c" / "1" / "0"
    data = bytearray(tile.read_bytes())
    data[9] ^= 1
    tile.write_bytes(data)
    with open_matrix(path) as matrix, pytest.raises(StorageFailed, match=r"also/metres/c/1/0: its checksum"):
        matrix.check()
    tile.unlink()
    with open_matrix(path) as matrix, pytest.raises(StorageFailed, match=r"also/metres/c/1/0: it is missing"):
        matrix.also["metres"].rows([100])


def test_a_stopped_solve_is_taken_up(tmp_path):
    graph, path = graph_of(), tmp_path / "d.zarr"
    with open_working(path, graph, spec_of(graph)) as writer:
        write_rows(writer, 0, 64)
        writer.commit({"kind": "rows", "rows": 64})
        write_rows(writer, 64, 128, seed=9)
    tiles = tmp_path / ".d.zarr.working" / "store" / "also" / "metres" / "c"
    (tiles / "2").mkdir()
    (tiles / "2" / "0~").write_bytes(b"half a ti")
    with open_working(path, graph, spec_of(graph), resume=True) as writer:
        write_rows(writer, 64, N)
        writer.seal({})
    with open_matrix(path) as matrix:
        matrix.check()
        assert np.array_equal(matrix.also["toll 1"].rows(range(N)), blocks()[1])
        assert np.array_equal(matrix.also["metres"].rows(range(N)), blocks()[2])
    assert not list(path.rglob("*~"))


@pytest.mark.parametrize(("damage", "told"), [("lost", "was never written"), ("torn", "is damaged")])
def test_a_committed_tile_that_is_not_whole_is_no_part_of_a_store(tmp_path, damage, told):
    graph, path = graph_of(), tmp_path / "d.zarr"
    with open_working(path, graph, spec_of(graph)) as writer:
        write_rows(writer, 0, 64)
        writer.commit({"kind": "rows", "rows": 64})
    tile = tmp_path / ".d.zarr.working" / "store" / "also" / "toll 1" / "c" / "0" / "0"
    if damage == "lost":
        tile.unlink()
    else:
        tile.write_bytes(tile.read_bytes()[:-9] + b"123456789")
    with open_working(path, graph, spec_of(graph), resume=True) as writer:
        write_rows(writer, 64, N)
        with pytest.raises(StorageFailed, match=told):
            writer.seal({})


def test_nothing_is_committed_after_an_fsync_that_failed(tmp_path, monkeypatch):
    """The system tells a loss once: a second fsync of the same file succeeds, and the bytes are lost."""
    graph = graph_of()

    def lost(path):
        raise OSError(5, "the disk has lost something")

    with open_working(tmp_path / "d.zarr", graph, spec_of(graph)) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(direct, "settle_file", lost)
            patch.setattr(writing, "_PENDING", 0)
            with pytest.raises(StorageFailed, match="lost something"):
                write_rows(writer, 0, N)
        with pytest.raises(StorageFailed, match="lost something"):
            writer.commit({"rows": 64})
        assert writer.record() is None


def test_other_quantities_are_another_matrix(tmp_path):
    graph, path = graph_of(), tmp_path / "d.zarr"
    with open_working(path, graph, spec_of(graph)) as writer:
        write_rows(writer, 0, 64)
        writer.commit({"kind": "rows", "rows": 64})
    for other in (graph_of(2), build_graph([0], [1], [1], n=N, directed=True)[0]):
        with pytest.raises(Conflict):
            open_working(path, other, spec_of(other), resume=True)


def test_what_is_refused(tmp_path):
    graph = graph_of()
    with pytest.raises(InvalidRequest, match="no quantity far"):
        open_working(tmp_path / "d.zarr", graph, MatrixSpec("int32", INT, also={"far": ("int32", INT)}))
    with pytest.raises(InvalidRequest, match="written into folders only"):
        open_working(tmp_path / "d.zarr", graph, spec_of(graph), address="s3://nowhere/x")
    with open_working(tmp_path / "d.zarr", graph, spec_of(graph)) as writer:
        for block in (np.zeros((64, N)), np.zeros((64, 3), np.int32)):
            with pytest.raises(InvalidRequest, match="whole rows of int32"):
                writer.also["metres"].write(0, block)
        with pytest.raises(InvalidRequest, match="cut a tile"):
            writer.also["metres"].write(3, np.zeros((64, N), np.int32))


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "__x", "a.", "a\n", "x" * 81, "c*", "zarr.json"])
def test_names_that_are_no_folders(name):
    with pytest.raises(InvalidRequest, match="cannot name an array"):
        build_graph([0], [1], [1], n=2, directed=True, quantities={name: [1]})
