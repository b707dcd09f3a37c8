"""Prepared graphs in an object store: files and answers are those of a folder; sealed last, never mixed, never half."""

from __future__ import annotations

import secrets

import numpy as np
import pytest

import apsp
from engine.api.from_tables import reweighting as door
from engine.api.from_tables.reweighting import reweight
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.model.problem import Options
from engine.streaming import part_journal
from storage.errors import Cancelled, Conflict, InvalidRequest, NotFound, StorageFailed
from storage.matrix.format import ROOT_DOCUMENT
from storage.remote.generation import Generation
from storage.remote.objects import Objects
from tests.s3 import S3Server
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.api.test_prepared_weights import COMPARED, files_of


@pytest.fixture
def address(s3: S3Server, tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return f"{s3.address}/{secrets.token_hex(4)}/p"


def generations(address):
    return {name.split("/")[0] for name in Objects(address).names()} - {ROOT_DOCUMENT}


def objects_of(address):
    """What ``files_of`` compares of a folder, of the sealed generation."""
    (generation,) = generations(address)
    there = Objects(address).below(generation)
    return {name: there.read(name) for name in there.names() if name.split("/")[0] in COMPARED}


def weights_of(graph, factor):
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    return tails, graph.heads, graph.weights * factor


def cached(tmp_path):
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.parametrize("directed", [True, False])
def test_objects_are_the_files_of_a_folder_and_answer_the_same(tmp_path, address, directed):
    graph = grid_graph(9) if directed else apsp.build_graph([0, 1, 2], [1, 2, 3], [3, 4, 5], directed=False)[0]
    prepare(graph, tmp_path / "p")
    outcome = prepare(graph, address)
    assert files_of(tmp_path / "p") == objects_of(address)
    assert cached(tmp_path) == []
    every = np.arange(graph.n)
    with open_result(tmp_path / "p") as near, open_result(address) as far:
        assert isinstance(far, PreparedMatrix)
        assert outcome.summary["bytes"] == far.table_bytes
        assert (far.shape, far.dtype, far.bytes) == (near.shape, near.dtype, near.bytes)
        np.testing.assert_array_equal(far.rows(every), near.rows(every))
        np.testing.assert_array_equal(far.columns(every[:3]), near.columns(every[:3]))
        np.testing.assert_array_equal(far.entries(every, every[::-1]), near.entries(every, every[::-1]))
        pairs = [apsp.near_pairs(each, Options(cutoff=9)) for each in (near, far)]
        np.testing.assert_array_equal(pairs[0].lengths, pairs[1].lengths)
        tables = [apsp.measure(each, measures=["reached", "sum"]) for each in (near, far)]
        np.testing.assert_array_equal(tables[0]["sum"], tables[1]["sum"])
        route = apsp.Router(far).route(0, graph.n - 1)
        assert route is None or route.length == near.entries([0], [graph.n - 1])[0]
    assert apsp.verify(address, "all").searched == graph.n


def test_one_is_replaced_only_where_that_is_asked_and_not_twice(tmp_path, address):
    with pytest.raises(NotFound):
        open_result(address)
    prepare(grid_graph(4), address)
    with pytest.raises(Conflict, match="exists already"):
        prepare(grid_graph(5), address)
    first, second = (Generation.at(address, overwrite=True) for _ in range(2))
    before = open_result(address)
    prepare(grid_graph(5), (tmp_path / "a", first))
    with pytest.raises(Conflict, match="was changed meanwhile"):
        prepare(grid_graph(6), (tmp_path / "b", second))
    assert generations(address) == {first.name}, "what the second one had sent is removed"
    with open_result(address) as found:
        assert found.n == 25
    with pytest.raises(StorageFailed, match="replaced or removed"):
        before.entries([0], [5])


def test_new_weights_between_folders_and_addresses(tmp_path, address):
    graph = grid_graph(9)
    prepare(graph, tmp_path / "p")
    prepare(graph, address)
    given, want = weights_of(graph, 3), tmp_path / "want"
    reweight(tmp_path / "p", given, out=want)
    for source, out in ((address, f"{address}-2"), (tmp_path / "p", f"{address}-3"), (address, tmp_path / "down")):
        reweight(source, given, out=out)
        assert (objects_of(out) if isinstance(out, str) else files_of(out)) == files_of(want)
    few = (given[0][:1], given[1][:1], given[2][:1])
    reweight(tmp_path / "p", few, changed=True)
    for _ in range(2):  # the second time, nothing changes
        reweight(address, few, changed=True)
        assert objects_of(address) == files_of(tmp_path / "p")
    with pytest.raises(Conflict, match="exists already"):
        reweight(address, given, out=f"{address}-2")
    reweight(address, given, out=f"{address}/", overwrite=True)
    with open_result(address) as found:
        np.testing.assert_array_equal(found.graph().weights, graph.weights * 3)
    assert cached(tmp_path) == []


def test_of_two_that_get_new_weights_one_wins(tmp_path, address, monkeypatch):
    graph = grid_graph(4)
    prepare(graph, address)
    real = door.reweighted_place

    def overtaken(*args, **more):
        monkeypatch.setattr(door, "reweighted_place", real)
        reweight(address, weights_of(graph, 2))
        return real(*args, **more)

    monkeypatch.setattr(door, "reweighted_place", overtaken)
    with pytest.raises((Conflict, StorageFailed), match=r"replaced|changed meanwhile"):
        reweight(address, weights_of(graph, 5))
    with open_result(address) as found:
        np.testing.assert_array_equal(found.graph().weights, graph.weights * 2)


def test_damaged_and_lost_objects_are_named(address):
    prepare(grid_graph(9), address)
    (generation,) = generations(address)
    there = Objects(address).below(generation)
    for name in ("tables/forward/c/0", "tables/backward/c/0", "parts/starts/c/0"):
        data = there.read(name)
        for wrong in (data[:-1], data + b"x", data[:3] + bytes([data[3] ^ 1]) + data[4:], b""):
            there.write(name, wrong)
            with open_result(address) as found, pytest.raises(StorageFailed, match=f"damaged: {name}"):
                found.entries([0], [1])
            with pytest.raises(StorageFailed, match=name):
                apsp.verify(address)
        there.remove([name])
        with open_result(address) as found, pytest.raises(StorageFailed, match=f"{name} is missing"):
            found.entries([0], [1])
        there.write(name, data)
    there.remove([ROOT_DOCUMENT])
    with pytest.raises(StorageFailed, match=r"zarr\.json is missing"):
        open_result(address)


class Stop(Exception):
    pass


def test_objects_of_other_places_or_versions_are_named(address, monkeypatch):
    monkeypatch.setattr("storage.prepared.writer.TABLE_CHUNK", 300)
    graph, other = grid_graph(9), address + "-other"
    prepare(graph, address)
    prepare(type(graph)(graph.indptr, graph.heads, graph.weights + 1, graph.labels, True, True), other)
    here, there = (Objects(where).below(*generations(where)) for where in (address, other))
    for name, place in (("tables/forward/c/0", "tables/forward/c/1"), ("parts/starts/c/0", "parts/starts/c/0"),
                        ("tables/backward/c/2", "tables/backward/c/2"), ("graph/weights/c/0",) * 2):  # fmt: skip
        whole, taken = here.read(name), (here if name != place else there).read(place)
        if whole == taken:
            continue
        here.write(name, taken)
        with open_result(address) as found, pytest.raises(StorageFailed, match=f"damaged: {name}"):
            found.check()
        with open_result(address) as found, pytest.raises(StorageFailed, match=f"damaged: {name}"):
            found.entries(np.repeat(range(graph.n), graph.n), np.tile(range(graph.n), graph.n))
        here.write(name, whole)
    assert apsp.verify(address, "all").searched == graph.n


def test_a_run_that_ends_anywhere_leaves_no_half(tmp_path, address, monkeypatch):
    """Stopped before each request that writes: what was there stays, and the next run leaves nothing else behind."""
    prepare(grid_graph(3), address)
    real, done = Objects.write, 0
    while True:
        left = done + 1

        def counted(self, name, data):
            nonlocal left
            left -= 1
            if left == 0:
                raise Stop
            real(self, name, data)

        monkeypatch.setattr(Objects, "write", counted)
        try:
            prepare(grid_graph(5), address, overwrite=True)
            break
        except Stop:
            done += 7
            with open_result(address) as found:
                assert found.n == 9
            assert len(generations(address)) == 1
    assert done > 20
    monkeypatch.setattr(Objects, "write", real)
    assert len(generations(address)) == 1
    prepare(grid_graph(5), tmp_path / "want")
    assert objects_of(address) == files_of(tmp_path / "want")


def test_what_a_killed_run_has_sent_is_removed_by_the_next(tmp_path, address, monkeypatch):
    monkeypatch.setattr(Generation, "abandon", lambda _self: None)  # as after a kill
    monkeypatch.setattr(Generation, "seal", lambda _self, _digest: (_ for _ in ()).throw(Stop))
    with pytest.raises(Stop):
        prepare(grid_graph(4), address)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert len(generations(address)) == 1
    with pytest.raises(NotFound):
        open_result(address)
    made = Generation.at(address, overwrite=False)
    left = generations(address)
    prepare(grid_graph(4), (tmp_path / "p", made))
    assert generations(address) == {made.name} != left


def test_a_stopped_run_goes_on_from_its_working_folder(tmp_path, address, monkeypatch):
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    monkeypatch.setattr(part_journal, "LARGE", 0)

    class Stopping(apsp.Monitor):
        now = ""

        def begin(self, phase, total, unit):
            self.now = phase

        def cancelled(self):
            return self.now == "write"

    graph, work = grid_graph(9), tmp_path / "work"
    work.mkdir()
    with pytest.raises(Cancelled):
        prepare(graph, address, work=work, monitor=Stopping())
    assert generations(address) == set()
    outcome = prepare(graph, address, work=work)
    assert any(outcome.summary["resumed"].values())
    prepare(graph, tmp_path / "want")
    assert objects_of(address) == files_of(tmp_path / "want")


def test_what_does_not_go_together_is_refused(tmp_path, address):
    with pytest.raises(InvalidRequest, match="--work is for results that go to s3"):
        prepare(grid_graph(2), tmp_path / "p", work=tmp_path)
    with pytest.raises(NotFound, match="--work"):
        prepare(grid_graph(2), address, work=tmp_path / "none")
    with pytest.raises(StorageFailed, match="no-such-bucket"):
        prepare(grid_graph(2), "s3://no-such-bucket/p")
    with pytest.raises(InvalidRequest, match="no address of objects"):
        prepare(grid_graph(2), "s3://B/p")
    apsp.solve_to_store(grid_graph(2), address)
    with pytest.raises(InvalidRequest, match="solved store"):
        reweight(address, weights_of(grid_graph(2), 2))
