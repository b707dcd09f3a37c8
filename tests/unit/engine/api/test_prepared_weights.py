"""New weights of prepared graphs: answers of SciPy, files of preparing anew, versions, kills, and refusals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import apsp
from engine.api.from_tables import reweighting
from engine.api.from_tables.reweighting import reweight
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.api.verify import verify_store
from engine.graph.profile import GraphProfile
from engine.model.problem import Options
from engine.streaming import part_journal
from storage.errors import Cancelled, Conflict, InvalidRequest, NegativeCycle, NotFound, StorageFailed
from storage.graph.graph import build_graph, graph_digest
from storage.prepared import writer
from storage.prepared.journal import journal_folder
from tests.property.test_prepared import check_entries, expected
from tests.unit.engine.api.test_prepared import Stops, grid_graph

#: Answers are compared with these files of a graph that is prepared from the start.
COMPARED = ("tables", "sections", "elimination", "parts", "graph", "vertex", "closed")


def arcs_of(graph):
    """Labels of tails and heads, and weights; an edge is listed once."""
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    kept = np.flatnonzero(tails < graph.heads) if not graph.directed else np.arange(graph.arcs)
    return graph.labels[tails[kept]], graph.labels[graph.heads[kept]], graph.weights[kept]


def files_of(folder):
    found = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {str(name): data for name, data in found.items() if name.parts[0] in COMPARED}


@pytest.fixture
def lattice():
    return grid_graph(20)


@pytest.fixture
def place(tmp_path, lattice):
    prepare(lattice, tmp_path / "p")
    return tmp_path / "p"


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("count", [1, 3, 10_000])
def test_files_are_those_of_preparing_anew(tmp_path, monkeypatch, directed, count):
    monkeypatch.setattr(writer, "TABLE_CHUNK", 500)
    monkeypatch.setattr(reweighting, "TABLE_CHUNK", 500)
    graph, rng = grid_graph(20, directed=directed), np.random.default_rng(count)
    prepare(graph, tmp_path / "p")
    tails, heads, weights = arcs_of(graph)
    for k in range(3):
        some = rng.choice(len(weights), min(count, len(weights)), replace=False)
        weights = weights.copy()
        weights[some] = rng.integers(0, 1000, len(some))
        outcome = reweight(tmp_path / "p", (tails[some], heads[some], weights[some]), changed=True)
        new = build_graph(tails, heads, weights, n=graph.n, directed=directed)[0]
        prepare(new, tmp_path / "anew", overwrite=True)
        assert files_of(tmp_path / "p") == files_of(tmp_path / "anew")
        assert outcome.summary["parts"] >= outcome.summary["eliminated"]
        assert ("resumed" in outcome.summary) == (outcome.summary["eliminated"] == outcome.summary["parts"]), k
    assert sorted(path.name for path in tmp_path.iterdir()) == ["anew", "p"]


KINDS = ("directed", "undirected", "disconnected", "parallel", "zero", "single", "negative", "floats", "terminals")


@pytest.mark.parametrize("kind", KINDS)
def test_answers_to_new_weights_are_those_of_scipy(tmp_path, kind):
    for seed in range(4):
        rng = np.random.default_rng((seed, KINDS.index(kind)))
        n = 1 if kind == "single" else int(rng.integers(2, 40))
        ends = rng.integers(0, n, (2, 0 if kind == "single" else int(rng.integers(1, 4 * n))))
        if kind == "disconnected":
            ends = ends[:, (ends[0] < n // 2) == (ends[1] < n // 2)]
        if kind == "parallel":
            ends = np.tile(ends, 3)
        directed, path = kind != "undirected", tmp_path / f"{kind}-{seed}"
        weights = rng.integers(1, 100, ends.shape[1])
        count = min(2, n) if kind == "terminals" else 0
        graph = replace(build_graph(*ends, weights, n=n, directed=directed)[0], terminals=count)
        prepare(graph, path, Options(threads=1))
        for turn in range(3):
            height = rng.integers(0, 60, n)
            weights = rng.integers(0, 100, ends.shape[1]) * (1.0 if kind != "floats" else 0.37)
            if kind == "zero":
                weights = rng.integers(0, 2, len(weights)) * 50.0
            if kind == "negative" and turn != 1:
                weights += height[ends[0]] - height[ends[1]]
            if turn == 1 and kind != "terminals":
                weights[rng.random(len(weights)) < 0.3] = np.inf
            reweight(path, (*ends, weights), options=Options(threads=1))
            want_graph = build_graph(*ends, weights, n=n, directed=directed)[0]
            with open_result(path) as matrix:
                if kind == "terminals":
                    with_terminals = replace(want_graph, terminals=count)
                    solve_to_store(with_terminals, Options(device="cpu"), tmp_path / "s.zarr", overwrite=True)
                    with open_result(tmp_path / "s.zarr") as solved:
                        np.testing.assert_array_equal(matrix.rows(range(n)), solved.rows(range(n)))
                    continue
                assert graph_digest(matrix.graph()) == graph_digest(want_graph)
                want = expected(want_graph, matrix.dtype, matrix.unreachable)
                if matrix.dtype.kind == "f":
                    found = matrix.rows(range(n))
                    np.testing.assert_allclose(found, want, rtol=1e-5)
                    want = found
                check_entries(matrix, want)


def test_versions_lie_side_by_side_and_share_files(tmp_path, place, lattice):
    tails, heads, weights = arcs_of(lattice)
    before = files_of(place)
    reweight(place, (tails, heads, weights * 2), out=tmp_path / "double")
    reweight(place, (tails[:1], heads[:1], [0]), out=tmp_path / "one", changed=True)
    assert files_of(place) == before
    for name in ("double", "one"):
        same = (tmp_path / name / "parts" / "borders" / "c" / "0", place / "parts" / "borders" / "c" / "0")
        assert same[0].samefile(same[1])
    with open_result(place) as one, open_result(tmp_path / "double") as two:
        np.testing.assert_array_equal(2 * one.rows(range(9)).astype(np.int64), two.rows(range(9)))
    for path in (place, tmp_path / "double", tmp_path / "one"):
        assert verify_store(path, "all").searched == lattice.n
    with pytest.raises(Conflict, match="exists already"):
        reweight(place, (tails, heads, weights), out=tmp_path / "one")
    reweight(place, (tails, heads, weights * 3), out=tmp_path / "one", overwrite=True)
    assert verify_store(tmp_path / "one", 5).searched == 5


def test_readers_of_the_old_version_are_undisturbed(place, lattice):
    tails, heads, weights = arcs_of(lattice)
    with open_result(place) as old, open_result(place) as unread:
        want = old.rows(range(lattice.n))
        old.columns(range(lattice.n))  # from now on, all tables are in memory
        reweight(place, (tails, heads, weights * 2))
        with pytest.raises(StorageFailed, match="open it again"):
            unread.entries([0], [1])
        np.testing.assert_array_equal(old.entries(np.zeros(lattice.n, int), np.arange(lattice.n)), want[0])
        assert not old.current()
    with open_result(place) as new:
        np.testing.assert_array_equal(new.rows(range(lattice.n)), 2 * want.astype(np.int64))


def test_files_are_copied_where_they_cannot_be_linked(tmp_path, place, lattice, monkeypatch):
    def refuses(*_, **__):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuses)
    tails, heads, _ = arcs_of(lattice)
    reweight(place, (tails[:1], heads[:1], [0]), out=tmp_path / "one", changed=True)
    assert not (tmp_path / "one" / "vertex" / "c" / "0").samefile(place / "vertex" / "c" / "0")
    assert verify_store(tmp_path / "one", "all").searched == lattice.n


def test_a_prepared_graph_without_what_elimination_found_is_computed_whole(tmp_path, lattice, monkeypatch):
    """As prepared graphs of earlier versions are."""
    monkeypatch.setattr(writer.PreparedWriter, "add_eliminated", lambda *_: None)
    prepare(lattice, tmp_path / "old")
    monkeypatch.undo()
    assert not (tmp_path / "old" / "elimination").exists()
    tails, heads, weights = arcs_of(lattice)
    outcome = reweight(tmp_path / "old", (tails[:1], heads[:1], [0]), changed=True)
    assert outcome.summary["eliminated"] == outcome.summary["parts"]
    weights = weights.copy()
    weights[0] = 0
    prepare(build_graph(tails, heads, weights, n=lattice.n, directed=True)[0], tmp_path / "anew")
    assert files_of(tmp_path / "old") == files_of(tmp_path / "anew")


def test_refusals_leave_everything_as_it_was(tmp_path, place, lattice):
    tails, heads, weights = arcs_of(lattice)
    solve_to_store(grid_graph(3), Options(device="cpu"), tmp_path / "solved")
    before = files_of(place)
    cases = [
        (InvalidRequest, "'s3://B/p' is no address of objects", {"prepared": "s3://B/p"}),
        (InvalidRequest, "'s3://B/p' is no address of objects", {"out": "s3://B/p"}),
        (InvalidRequest, "is a solved store", {"prepared": tmp_path / "solved"}),
        (NotFound, "there is no store", {"prepared": tmp_path / "missing"}),
        (NotFound, "have no new weight", {"weights": (tails[1:], heads[1:], weights[1:])}),
        (NotFound, "entry 0: the prepared graph has no arc 0 -> 399", {"weights": ([0], [399], [1]), "changed": True}),
        (NegativeCycle, "negative cycle", {"weights": (tails, heads, weights - 1000)}),
        (InvalidRequest, "negative fractions", {"weights": ([0], [1], [-0.5]), "changed": True}),
        (InvalidRequest, "says how a file is read", {"weight": "km"}),
        (Conflict, "lies inside the sealed store", {"out": place / "inner"}),
    ]
    for error, said, given in cases:
        asked = {"prepared": place, "weights": (tails, heads, weights), **given}
        with pytest.raises(error, match=said):
            reweight(asked.pop("prepared"), asked.pop("weights"), **asked)
    assert files_of(place) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "solved"]


def test_damage_is_refused_and_not_carried_over(tmp_path, place, lattice):
    path = place / "elimination" / "rests" / "c" / "0"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StorageFailed, match="elimination/rests"):
        reweight(place, ([0], [1], [0]), out=tmp_path / "q", changed=True)
    assert not (tmp_path / "q").exists()


def test_damage_to_any_file_is_refused_or_found_later(tmp_path):
    """Files are shared without being read, except metadata; what is damaged then does not agree with the new seal."""
    prepare(grid_graph(8), tmp_path / "p")
    for path in sorted(path for path in (tmp_path / "p").rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for damaged in (whole[: len(whole) // 2], whole.replace(whole[-1:], b"?"), b""):
            path.write_bytes(damaged)
            try:
                reweight(tmp_path / "p", ([0], [1], [0]), out=tmp_path / "q", changed=True, overwrite=True)
                verify_store(tmp_path / "q", "all")  # passes where the damaged file was neither read nor shared
            except StorageFailed as error:
                assert "is damaged" in str(error) or "is no sealed" in str(error)  # noqa: PT017 - either is right
        path.write_bytes(whole)


def test_two_writers_of_one_place_exclude_each_other(place):
    class Second(apsp.Monitor):
        error = None

        def begin(self, phase, total, unit):
            if phase == "write":
                with pytest.raises(Conflict, match="another process is writing"):
                    reweight(place, ([0], [1], [7]), changed=True)
                self.error = True

    monitor = Second()
    reweight(place, ([0], [1], [0]), changed=True, monitor=monitor)
    assert monitor.error


def test_a_prepared_graph_that_was_replaced_meanwhile_is_not_overwritten(place, monkeypatch):
    class Replaces(apsp.Monitor):
        def begin(self, phase, total, unit):
            self.planned = phase == "plan"

        def advance(self, amount):
            if self.planned:
                prepare(grid_graph(20, seed=5), place, overwrite=True)

    with pytest.raises(Conflict, match="was replaced by another process"):
        reweight(place, ([0], [1], [0]), changed=True, monitor=Replaces())
    with open_result(place) as matrix:
        assert graph_digest(matrix.graph()) == graph_digest(grid_graph(20, seed=5))


def test_a_solve_that_replaces_the_folder_meanwhile_is_not_lost(place):
    class Solves(apsp.Monitor):
        def begin(self, phase, total, unit):
            if phase == "write":
                solve_to_store(grid_graph(3), Options(device="cpu"), place, overwrite=True)

    with pytest.raises(Conflict, match="was replaced by another process"):
        reweight(place, ([0], [1], [0]), changed=True, monitor=Solves())
    with open_result(place) as matrix:
        assert matrix.shape == (9, 9)


def test_float64_stays_unless_another_type_is_asked(tmp_path):
    graph = build_graph([0, 1], [1, 2], [0.1, 0.2], n=3, directed=True)[0]
    prepare(graph, tmp_path / "p", Options(dtype="float64"))
    for options, dtype in ((None, "float64"), (Options(dtype="float32"), "float32"), (None, "float32")):
        reweight(tmp_path / "p", ([0], [1], [0.1000000001]), changed=True, options=options)
        with open_result(tmp_path / "p") as matrix:
            assert matrix.dtype == dtype
            assert matrix.entries([0], [1]) == np.dtype(dtype).type(0.1000000001)


@pytest.mark.parametrize("phase", ["weights", "plan", "prepare", "extend", "write"])
def test_a_cancelled_run_leaves_the_old_version(tmp_path, place, phase):
    before = files_of(place)
    with pytest.raises(Cancelled):
        reweight(place, ([0], [1], [0]), changed=True, monitor=Stops(phase))
    assert files_of(place) == before
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    """From every step at which it may stop, in both kinds of runs, with the same files."""
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    monkeypatch.setattr(part_journal, "LARGE", 0)
    graph = grid_graph(25)
    tails, heads, weights = arcs_of(graph)
    prepare(graph, tmp_path / "whole")
    prepare(build_graph(tails, heads, weights * 2, n=graph.n, directed=True)[0], tmp_path / "double")

    class StopsAfter(apsp.Monitor):
        def __init__(self, steps):
            self.left, self.counts = steps, False

        def begin(self, phase, total, unit):
            self.counts = phase.startswith("prepare")

        def advance(self, amount):
            self.left -= self.counts

        def cancelled(self):
            return self.left <= 0 and self.counts

    def run(kind, monitor=None):
        if kind == "prepare":
            return prepare(graph, tmp_path / "p", monitor=monitor)
        return reweight(tmp_path / "whole", (tails, heads, weights * 2), out=tmp_path / "p", monitor=monitor)

    for kind, want in (("prepare", "whole"), ("reweight", "double")):
        outcome, stops = None, 0
        while outcome is None:
            try:
                outcome = run(kind, StopsAfter(4 + stops))
            except Cancelled:
                stops += 1
                assert not (tmp_path / "p").exists()
                assert journal_folder(tmp_path / "p").exists()
        assert stops > 2
        assert all(outcome.summary["resumed"][step] > 0 for step in ("eliminate", "extend"))
        assert files_of(tmp_path / "p") == files_of(tmp_path / want)
        assert not journal_folder(tmp_path / "p").exists()
        shutil.rmtree(tmp_path / "p")


def test_damage_to_what_was_committed_is_refused_or_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    graph = grid_graph(25)
    for name, refused in (("0.bin", True), ("record.json", False), ("1.bin", None)):
        with pytest.raises(Cancelled):
            prepare(graph, tmp_path / "p", monitor=Stops("prepare backward"))
        path = journal_folder(tmp_path / "p") / name
        data = path.read_bytes()
        path.write_bytes(data[:-1] if refused is None else data[:-1] + bytes([data[-1] ^ 1]))
        if refused:
            with pytest.raises(StorageFailed, match=r"0\.bin is damaged; remove"):
                prepare(graph, tmp_path / "p")
            shutil.rmtree(journal_folder(tmp_path / "p"))
            continue
        assert set(prepare(graph, tmp_path / "p").summary["resumed"].values()) == {0}
        assert verify_store(tmp_path / "p", 5).searched == 5
        shutil.rmtree(tmp_path / "p")


def test_another_graph_does_not_go_on_from_it(tmp_path, monkeypatch):
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    with pytest.raises(Cancelled):
        prepare(grid_graph(25), tmp_path / "p", monitor=Stops("prepare backward"))
    assert journal_folder(tmp_path / "p").exists()
    outcome = prepare(grid_graph(25, seed=1), tmp_path / "p")
    assert set(outcome.summary["resumed"].values()) == {0}
    assert verify_store(tmp_path / "p", "all").searched == 625


def test_the_dissection_of_a_killed_run_is_taken_up_by_planning(tmp_path, monkeypatch):
    monkeypatch.setattr(part_journal, "LARGE", 0)
    graph = grid_graph(25)
    with pytest.raises(Cancelled):
        prepare(graph, tmp_path / "p", monitor=Stops("prepare"))
    monkeypatch.setattr("engine.graph.profile.dissect", lambda *_: pytest.fail("the dissection was found again"))
    prepare(GraphProfile(graph), tmp_path / "p")
    assert verify_store(tmp_path / "p", "all").searched == 625


KILLED = """
import os, sys, signal
import numpy as np
from storage.files import atomic
from storage.prepared import journal, writer
from engine.streaming import part_journal
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.api.test_prepared_weights import arcs_of
from engine.api.prepared import prepare
from engine.api.from_tables.reweighting import reweight
kind, place, out, when = sys.argv[1:]
part_journal.EVERY, part_journal.LARGE = 0.0, 0
left = int(when)
def dies(real):
    def call(*args, **keywords):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **keywords)
    return call
os.fsync, os.writev, os.link = dies(os.fsync), dies(os.writev), dies(os.link)
atomic._renameat2 = dies(atomic._renameat2)
os.replace = os.rename = dies(os.rename)
graph = grid_graph(12)
tails, heads, weights = arcs_of(graph)
if kind == "files":  # all tables at once never fit
    from dataclasses import replace
    from engine.api import prepared_planning
    from engine.distributed.prepared import planning
    planning.LEAST_UPDATES, estimate = 10_000, prepared_planning.estimate_prepared
    prepared_planning.estimate_prepared = lambda *given, **more: replace(estimate(*given, **more), memory=2**50)
if kind in ("prepare", "files"):
    prepare(graph, out, overwrite=True)
elif kind == "all":
    reweight(place, (tails, heads, weights * 2), out=None if out == place else out)
else:
    reweight(place, (tails[:1], heads[:1], [0]), out=None if out == place else out, changed=True)
print("done", int(when) - left)
"""


def killed_at(kind, place, out, when):
    words = [sys.executable, "-c", KILLED, kind, str(place), str(out), str(when)]
    run = subprocess.run(words, check=False, env=os.environ, capture_output=True, text=True)
    assert run.returncode in (0, -signal.SIGKILL), run.stderr
    return run.returncode != 0


def kill_at_every(tmp_path, kind, *, in_place, step):
    """Kill at every ``step``-th call that changes the disk; what is there is then one version or the other, whole."""
    graph = grid_graph(12)
    tails, heads, weights = arcs_of(graph)
    prepare(graph, tmp_path / "base")
    new = {"prepare": weights, "files": weights, "all": weights * 2, "one": np.concatenate([[0], weights[1:]])}[kind]
    prepare(build_graph(tails, heads, new, n=graph.n, directed=True)[0], tmp_path / "want")
    want, old = files_of(tmp_path / "want"), files_of(tmp_path / "base")
    work, when, kills = tmp_path / "work", 1, 0
    work.mkdir()
    while True:
        shutil.rmtree(work)
        shutil.copytree(tmp_path / "base", work / "base")
        out = work / "base" if in_place else work / "p"
        if not killed_at(kind, work / "base", out, when):
            break
        kills += 1
        if out.exists():
            assert files_of(out) in (want, old)
            assert verify_store(out, 3).searched == 3
        assert files_of(work / "base") in ((old, want) if in_place else (old,))
        if in_place and kind not in ("prepare", "files"):
            tables = (tails, heads, new)
            reweight(out, tables)
        elif kind in ("prepare", "files"):  # goes on in memory
            prepare(graph, out, overwrite=True)
        else:
            reweight(work / "base", (tails, heads, new), out=out, overwrite=True)
        assert files_of(out) == want
        assert sorted(path.name for path in work.iterdir()) == (["base"] if in_place else ["base", "p"])
        when += step
    assert kills > 3


@pytest.mark.timeout(3600)
@pytest.mark.long
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("kind", ["prepare", "files", "all", "one"])
def test_a_run_killed_anywhere_leaves_one_version_whole(tmp_path, kind, in_place):
    kill_at_every(tmp_path, kind, in_place=in_place, step=3)
