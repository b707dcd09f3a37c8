"""Tables of which only the chunks that a question needs are read: right or refused, never wrong."""

from __future__ import annotations

import numpy as np
import pytest

from engine.algorithms.prepared import panels
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.api.routes import Router
from engine.api.verify import verify_store
from storage.errors import StorageFailed
from storage.graph.graph import build_graph
from storage.prepared import writer
from tests.unit.engine.api.test_prepared import grid_graph

CHUNK = 499
QUESTIONS = {
    "pair": lambda m, u, v: m.entries([u], [v]),
    "pairs": lambda m, u, v: m.entries([u, v, u], [v, u, u]),
    "row": lambda m, u, _: m.rows([u]),
    "rows": lambda m, u, v: m.rows([v, u]),
    "column": lambda m, _, v: m.columns([v]),
    "inward": lambda m, u, v: m.rows_towards([v, u]),
    "block": lambda m, u, v: m.block([u, v], [v, 0, u]),
    "nearest": lambda m, u, _: np.stack([*m.nearest(u, 3)]),
    "eccentricities": lambda m, u, v: m.eccentricities([u, v]),
    "path": lambda m, u, v: np.array(Router(m).route(u, v).vertices),
    "tile": lambda m, *_: np.frombuffer(m.zarr_store.read("distances/c/0/0"), np.uint8),
}


def reversed_too(kind):
    graph = grid_graph(14, directed=kind != "undirected")
    if kind == "floats":
        tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
        return build_graph(tails, graph.heads, graph.weights / 7, n=graph.n, directed=True)[0]
    return graph


@pytest.fixture(scope="module", params=["directed", "undirected", "floats"])
def place(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "TABLE_CHUNK", CHUNK)
        path = tmp_path_factory.mktemp("tables") / "p"
        prepare(reversed_too(request.param), path)
    return path


def chunks_of(place):
    return [path for path in place.rglob("c/*") if {"tables", "elimination"} & {*path.parts}]


@pytest.mark.parametrize("question", QUESTIONS)
def test_with_one_damaged_chunk_an_answer_is_right_or_refused(place, question):
    ask = QUESTIONS[question]
    pairs = np.random.default_rng(1).integers(0, 196, (2, 2)).tolist()
    with open_result(place) as whole:
        want = [ask(whole, u, v) for u, v in pairs]
    paths, refused = chunks_of(place), 0
    assert len(paths) > 20
    for path in paths:
        data = path.read_bytes()
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
        with open_result(place) as matrix:
            for (u, v), right in zip(pairs, want, strict=True):
                try:
                    np.testing.assert_array_equal(ask(matrix, u, v), right)
                except StorageFailed:
                    refused += 1
                    named = path.relative_to(place).as_posix()
                    with pytest.raises(StorageFailed, match=f"{named} does not agree with the seal"):
                        ask(matrix, u, v)
        path.write_bytes(data)
    assert refused > 0
    if question == "pair":
        assert refused < len(paths)


def test_verify_finds_every_damaged_chunk(place):
    for path in chunks_of(place)[::9]:
        data = path.read_bytes()
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 4]) + data[-8:])
        with pytest.raises(StorageFailed, match=path.relative_to(place).as_posix()):
            verify_store(place, 0)
        path.write_bytes(data)


def test_a_single_distance_reads_the_chunks_of_two_lines(place, monkeypatch):
    read = []
    inner = PreparedMatrix._read_chunk

    def counted(self, name, piece):
        read.append((name, piece.nbytes))
        inner(self, name, piece)

    monkeypatch.setattr(PreparedMatrix, "_read_chunk", counted)
    with open_result(place) as matrix:
        assert matrix.held_bytes == 0
        found = matrix.entries([3], [190])
        line = matrix.n * matrix.dtype.itemsize
        held = sum(size for _, size in read)
        assert {name.split("/")[0] for name, _ in read} == {"tables"}
        assert held == matrix.held_bytes <= 2 * (line + 2 * CHUNK * matrix.dtype.itemsize) < matrix.table_bytes / 2
        before = len(read)
        np.testing.assert_array_equal(matrix.entries([3], [190]), found)
        assert len(read) == before
        matrix.rows([3])
        assert not matrix.loaded
        matrix.rows(range(matrix.n))
        assert matrix.loaded
        assert len({name for name, _ in read}) == len(read)  # none was read twice


def test_rows_of_a_graph_prepared_without_elimination_are_the_same(place, monkeypatch):
    """As of files that older versions wrote: lengths from borders are gathered from the other tables."""
    every = np.arange(196)
    with open_result(place) as matrix:
        want = matrix.rows(every), matrix.columns(every)
        assert panels.cheapest(196, 196, 196, 50.0, sweeps=True)[1] > 0
    inner = PreparedMatrix.checked
    monkeypatch.setattr(
        PreparedMatrix,
        "checked",
        lambda self, where, **how: None if "elimination" in where else inner(self, where, **how),
    )
    with open_result(place) as matrix:
        np.testing.assert_array_equal(matrix.rows(every), want[0])
        np.testing.assert_array_equal(matrix.columns(every), want[1])
