"""What a solve makes of a checkpoint: every recorded form with every wanted one, by a table and on the disk."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra, johnson

from engine.api.solve import make_plan, solve_to_store
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.tiling import FINISHED, LOWERED, WALKS, Tiling
from engine.streaming import checkpoint, host_tier, progress_record, schedule
from engine.streaming.forms import UNKNOWN, CheckpointForm, Way, fingerprint, way_on
from storage.errors import Cancelled, Conflict
from storage.graph.graph import Graph, build_graph
from storage.matrix.frame import MatrixSpec
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint, open_working
from tests.stepping import keep_in_step
from tests.stores import verify_matrix

ROWS = CheckpointForm("float64", "rows")
WHOLE = CheckpointForm("float64", "whole")
TRUE = CheckpointForm("float64", "rounds", (64, 128))
HALF = replace(TRUE, half=True)
WIDER = replace(TRUE, cut=(64, 192))
HALF_WIDER = replace(WIDER, half=True)
REDUCED = replace(TRUE, potentials="12345678")
REDUCED_WIDER = replace(WIDER, potentials="12345678")
OTHERWISE = replace(TRUE, potentials="87654321")
OLD = replace(TRUE, potentials=UNKNOWN)
PASSES = replace(TRUE, kind="passes")
WIDER_PASSES = replace(WIDER, kind="passes")
REDUCED_PASSES = replace(REDUCED, kind="passes")
OTHER_TYPE = replace(TRUE, dtype="float32")
OTHER_ROWS = replace(ROWS, dtype="float32")

RECORDED = {
    "rows": ROWS, "true": TRUE, "half": HALF, "wider": WIDER, "half wider": HALF_WIDER,
    "reduced": REDUCED, "reduced wider": REDUCED_WIDER, "otherwise": OTHERWISE, "old": OLD,
    "other type": OTHER_TYPE, "other rows": OTHER_ROWS, "passes": PASSES, "reduced passes": REDUCED_PASSES,
}  # fmt: skip
WANTED = {
    "rows": ROWS, "whole": WHOLE, "true": TRUE, "half": HALF, "wider": WIDER, "half wider": HALF_WIDER,
    "reduced": REDUCED, "reduced wider": REDUCED_WIDER, "passes": PASSES, "wider passes": WIDER_PASSES,
}  # fmt: skip
#: C continue, L lower, F forget, R refuse
TABLE = """
recorded       rows whole true half wider half-wider reduced reduced-wider passes wider-passes
rows           C    R     R    R    R     R          R       R             R      R
true           R    C     C    L    L     L          F       F             L      L
half           R    C     F    C    F     L          F       F             F      F
wider          R    C     L    L    C     L          F       F             L      L
half-wider     R    C     F    L    F     C          F       F             F      F
reduced        R    F     F    F    F     F          C       L             F      F
reduced-wider  R    F     F    F    F     F          L       C             F      F
otherwise      R    F     F    F    F     F          F       F             F      F
old            R    F     F    F    F     F          F       F             F      F
other-type     R    R     R    R    R     R          R       R             R      R
other-rows     R    R     R    R    R     R          R       R             R      R
passes         R    C     L    L    L     L          F       F             C      L
reduced-passes R    F     F    F    F     F          L       L             F      F
"""
LETTERS = {"C": Way.CONTINUE, "L": Way.LOWER, "F": Way.FORGET, "R": Way.REFUSE}


def cases() -> dict[tuple[str, str], Way]:
    head, *lines = [line.split() for line in TABLE.strip().splitlines()]
    return {
        (line[0].replace("-", " "), wanted.replace("-", " ")): LETTERS[letter]
        for line in lines
        for wanted, letter in zip(head[1:], line[1:], strict=True)
    }


def test_the_table_has_every_case():
    assert set(cases()) == {(recorded, wanted) for recorded in RECORDED for wanted in WANTED}


@pytest.mark.parametrize(("recorded", "wanted"), cases())
def test_the_way_on_is_that_of_the_table(recorded, wanted):
    assert way_on(RECORDED[recorded], WANTED[wanted]) is cases()[recorded, wanted]


def test_forms_are_read_from_records_and_plans():
    record = {"kind": "rounds", "height": 64, "width": 128, "symmetric": True, "potentials": None}
    assert CheckpointForm.of_record(record, "float64") == HALF
    del record["potentials"]
    assert CheckpointForm.of_record(record, "float64") == replace(OLD, half=True)
    record = {"kind": "passes", "height": 64, "width": 128, "symmetric": False, "potentials": None}
    assert CheckpointForm.of_record(record, "float64") == PASSES
    assert CheckpointForm.of_record({"kind": "rows", "rows": 64}, "float64") == ROWS
    streaming = Tiling("host", 64, 128, symmetric=True)
    for algorithm, streamed, form in [
        ("dijkstra", None, ROWS), ("partitioned", None, ROWS), ("blocked-floyd-warshall", None, WHOLE),
        ("repeated-squaring", None, WHOLE), ("blocked-floyd-warshall", streaming, HALF),
    ]:  # fmt: skip
        assert CheckpointForm.of_plan(SimpleNamespace(algorithm=algorithm, dtype="float64", streaming=streamed)) == form


def test_potentials_are_told_apart_by_what_they_are():
    assert fingerprint(None) is None
    one, other = np.array([0, -1, -2]), np.array([0, -1, -3.0])
    assert fingerprint(one) == fingerprint(one.astype(np.float64)) != fingerprint(other)


# ---- on the disk ----------------------------------------------------------------------------------------------------

N = 300
KIND = WORK_TYPES["int32"]
#: (tier, height, width, kind) of rounds or passes; (tier) memory writes whole distances
PLACES = {
    "true": ("host", 64, 128, ""), "half": ("host", 64, 128, "half"), "wider": ("store", 64, 192, ""),
    "half wider": ("store", 64, 192, "half"), "higher": ("store", 128, 128, ""),
    "half higher": ("host", 128, 128, "half"), "whole": ("memory", 0, 0, ""),
    "passes": ("host", 64, 128, "passes"), "wider passes": ("store", 64, 192, "passes"),
}  # fmt: skip


def sample(*, directed: bool, both_signs: bool = False) -> Graph:
    rng = np.random.default_rng(5)
    tails, heads = rng.integers(0, N, (2, 4 * N))
    weights = rng.integers(1, 1000, 4 * N)
    if both_signs:
        height = rng.random(N) * 300
        weights = rng.random(4 * N) * 100 + height[tails] - height[heads]
    return build_graph(tails, heads, weights, n=N, directed=directed)[0]


def plan_for(graph: Graph, place: str) -> Plan:
    dtype = "int32" if graph.integral else "float64"
    plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", dtype=dtype, device="cpu"))
    tier, height, width, kind = PLACES[place]
    if tier == "memory":
        return replace(plan, tier="host", streaming=None)
    if not graph.integral and not graph.directed and tier == "store":
        tier = "host"
    streaming = Tiling(tier, height, width, symmetric=kind == "half", passes=kind == "passes")
    return replace(plan, tier=tier, streaming=streaming)


class Killed(BaseException):
    """The process is no more; what is on the disk stays as it is."""


class At(Monitor):
    """Stops, or dies, after some updates of ``relax`` or rows of ``write``."""

    def __init__(self, phase: str, share: float, *, kill: bool = False) -> None:
        self.phase, self.share, self.kill, self.on = phase, share, kill, False

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.on, self.total, self.done = phase == self.phase, total, 0

    def advance(self, amount: int) -> None:
        self.done += amount if self.on else 0
        if self.kill and self.on and self.done >= self.share * self.total:
            raise Killed

    def cancelled(self) -> bool:
        return not self.kill and self.on and self.done >= self.share * self.total


@pytest.fixture(autouse=True)
def never_on_its_own(monkeypatch):
    """Nothing is committed by the clock; whatever is stopped is kept."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 9e9)
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    keep_in_step(monkeypatch)


def step(graph: Graph, path: Path, place: str, monitor: Monitor | None = None) -> None:
    options = Options(dtype="int32" if graph.integral else "float64")
    solve_to_store(graph, options, path, plan=plan_for(graph, place), resume=True, monitor=monitor)


def wrong(graph: Graph, path: Path) -> int:
    """Entries of the sealed store that SciPy has otherwise."""
    verify_matrix(path)
    search = johnson if graph.weights.min() < 0 else dijkstra
    expected = search(csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(N, N)))
    with open_matrix(path) as matrix:
        rows = matrix.rows(range(N))
        found = rows.astype(float)
        found[rows == matrix.unreachable] = np.inf
    return int((~np.isclose(found, expected, rtol=0, atol=0 if graph.integral else 1e-6)).sum())


def test_a_resume_in_another_layout_that_is_killed_leaves_no_record_of_what_it_overwrote(tmp_path):
    """A third of the matrix was wrong: stripes were remade from the arcs over tiles that the record called closed."""
    graph, path = sample(directed=True), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        step(graph, path, "wider", At("relax", 0.25))
    reached = [level for level, _ in find_checkpoint(path).record["levels"]]
    assert min(reached) == -1
    assert max(reached) >= 0
    with pytest.raises(Killed):
        step(graph, path, "higher", At("relax", 0.7, kill=True))
    assert {level for level, _ in find_checkpoint(path).record["levels"]} == {-1}
    step(graph, path, "wider")
    assert wrong(graph, path) == 0


def test_a_solve_in_memory_over_reduced_lengths_that_is_killed_leaves_no_record_of_them(tmp_path):
    """Half of the matrix was wrong: true lengths and lengths over reduced weights were mixed."""
    graph, path = sample(directed=True, both_signs=True), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        step(graph, path, "true", At("relax", 0.6))
    assert find_checkpoint(path).record["potentials"] is not None
    with pytest.raises(Killed):
        step(graph, path, "whole", At("write", 0.4, kill=True))
    assert {level for level, _ in find_checkpoint(path).record["levels"]} == {-1}
    step(graph, path, "true")
    assert wrong(graph, path) == 0


@pytest.mark.parametrize(("second", "share"), [*((place, 0.8) for place in PLACES), ("true", 0.15), ("wider", 0.15)])
@pytest.mark.parametrize("first", [place for place in PLACES if place != "whole"])
def test_any_form_after_any_form_and_back(tmp_path, monkeypatch, first, second, share):
    """Stopped in one form, killed in another, ended in the first: whatever was lowered or forgotten, nothing is wrong.

    The second turn copies host memory all the time, and dies in the middle of it.
    """
    graph, path = sample(directed=False), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        step(graph, path, first, At("relax", share))
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(host_tier, "COST", 1e9)
    with pytest.raises(Killed):
        step(graph, path, second, At("write" if second == "whole" else "relax", 0.5, kill=True))
    step(graph, path, first)
    assert wrong(graph, path) == 0


@pytest.mark.parametrize("share", [0.2, 0.45, 0.7, 0.95])
@pytest.mark.parametrize("second", ["true", "wider", "whole", "passes", "wider passes"])
@pytest.mark.parametrize("first", ["true", "wider", "passes", "wider passes"])
def test_passes_after_rounds_and_rounds_after_passes(tmp_path, monkeypatch, first, second, share):
    """A directed graph with arcs of both signs; stopped early or late, killed, and ended in a third form."""
    graph, path = sample(directed=True, both_signs=share < 0.5), tmp_path / "d.zarr"
    if not graph.integral and "wider" in (*first.split(), *second.split()):
        pytest.skip("rounded potentials want all rows at once")
    with pytest.raises(Cancelled):
        step(graph, path, first, At("relax", share))
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(host_tier, "COST", 1e9)
    with suppress(Killed):  # a resume may find everything done
        step(graph, path, second, At("write" if second == "whole" else "relax", 0.5, kill=True))
    step(graph, path, "passes" if first == "true" else first)
    assert wrong(graph, path) == 0


def test_a_resume_of_passes_in_another_cut_keeps_what_was_lowered(tmp_path):
    graph, path = sample(directed=True), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        step(graph, path, "passes", At("relax", 0.8))
    record = find_checkpoint(path).record
    levels = np.repeat(*np.array(record["levels"]).T)
    assert set(levels) == {LOWERED, FINISHED}
    found = progress_record.levels_of(record, Tiling("store", 64, 192, passes=True), N)
    assert (found >= WALKS).all()
    assert (found == FINISHED).any()
    assert (progress_record.levels_of(record, Tiling("store", 64, 192), N) == -1).all()
    half = Tiling("store", 64, 128, passes=True)
    rounds = {"kind": "rounds", "height": 64, "width": 64, "symmetric": False, "levels": [[2, 2], [1, 3]]}
    assert progress_record.levels_of(rounds, half, N).tolist() == [LOWERED, LOWERED, -1, -1, -1]


def test_until_a_tile_is_written_the_record_stays_what_it_is(tmp_path):
    graph, path = sample(directed=True), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        step(graph, path, "wider", At("relax", 0.25))
    before = find_checkpoint(path).record
    with pytest.raises(Killed):
        step(graph, path, "true", At("ingest", 0.5, kill=True))
    assert find_checkpoint(path).record == before


def test_a_resume_over_host_memory_that_is_stopped_at_once_keeps_what_is_worth_more(tmp_path):
    graph, path = sample(directed=True), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        step(graph, path, "wider", At("relax", 0.25))
    before = find_checkpoint(path).record
    plan, matrix = plan_for(graph, "true"), np.zeros((N, N), np.int32)
    with open_working(path, graph, MatrixSpec("int32", int(KIND.unreachable)), resume=True) as writer:
        journal = checkpoint.Journal(writer, plan, dict)
        assert (progress_record.take_up(journal, plan.streaming, N) == -1).all()
        with host_tier.KeptHostTier(matrix, plan.streaming, journal) as tier:
            tier.save()
    assert find_checkpoint(path).record == before
    step(graph, path, "wider")
    assert wrong(graph, path) == 0


def test_a_save_that_runs_out_of_its_time_leaves_no_record_of_what_it_overwrote(tmp_path, monkeypatch):
    """Rounds over host memory that begin anew are told to stop, and copy a part of the matrix before time is up."""
    graph, path = sample(directed=True), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        step(graph, path, "wider", At("relax", 0.25))
    copied, copy = [], host_tier.KeptHostTier._copy

    def short(tier, first, last, left):
        copy(tier, first, last, left)
        copied.append(first)
        if len(copied) == 2:
            tier._stopping = True

    with monkeypatch.context() as patch:
        patch.setattr(host_tier.KeptHostTier, "_copy", short)
        with pytest.raises(Cancelled):
            step(graph, path, "true", At("relax", 0.5))
    assert len(copied) == 2
    assert {level for level, _ in find_checkpoint(path).record["levels"]} == {-1}
    step(graph, path, "wider")
    assert wrong(graph, path) == 0


def test_records_of_programs_that_did_not_keep_the_law_are_begun_anew(tmp_path, monkeypatch):
    graph, path = sample(directed=True), tmp_path / "d.zarr"
    with monkeypatch.context() as patch:
        real = checkpoint.Journal._record
        patch.setattr(
            checkpoint.Journal, "_record", lambda *a: {k: v for k, v in real(*a).items() if k != "potentials"}
        )
        with pytest.raises(Cancelled):
            step(graph, path, "wider", At("relax", 0.6))
    begun = []
    monkeypatch.setattr(
        schedule, "run", lambda *a, **k: begun.append(k["first_round"]) or (_ for _ in ()).throw(Cancelled(""))
    )
    with pytest.raises(Cancelled):
        step(graph, path, "wider")
    assert begun == [0]


def test_another_type_is_refused_and_the_checkpoint_stays(tmp_path):
    graph, path = sample(directed=True), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        step(graph, path, "wider", At("relax", 0.5))
    before = find_checkpoint(path)
    for options in (Options(dtype="float64"), Options(algorithm="dijkstra")):
        with pytest.raises(Conflict, match="cannot go on from that"):
            solve_to_store(graph, options, path, resume=True)
    assert find_checkpoint(path) == before
    assert progress_record.levels_of(before.record, Tiling("store", 64, 192), N).max() >= 0
