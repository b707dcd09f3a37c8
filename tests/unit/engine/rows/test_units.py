"""Sums along paths of fractions: rows are searched in whole units and stored as floats."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.algorithms import dijkstra as searches
from engine.api import planning, verify
from engine.api.solve import make_plan, solve_to_store
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import ArraySink
from engine.rows.floats import UnitsToFloats
from engine.rows.sums import cutoff_in_units, units_counted
from engine.streaming import checkpoint
from storage.errors import Cancelled
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix

N = 60


def graph_of(weights: Any, n: int = N, **more: Any) -> Graph:
    draw, m = np.random.default_rng(1), len(weights)
    ring = np.arange(n)
    tails, heads = np.append(ring, draw.integers(0, n, m - n)), np.append(np.roll(ring, -1), draw.integers(0, n, m - n))
    return build_graph(tails, heads, weights, n=n, directed=True, quantities={"q": draw.integers(1, 9, m)}, **more)[0]


def tenths(m: int = 5 * N) -> np.ndarray:
    return np.random.default_rng(2).integers(1, 90, m) / 10


@pytest.mark.parametrize(
    ("weights", "per"),
    [
        (np.full(N, 0.1), 10),
        (np.full(N, 0.375), 1000),
        (np.full(N, 2.0**-12), 2**12),
        (np.full(N, 0.1 + 1e6), 10),
        (np.full(N, 0.1 + 1e8), 0),  # 60 times this is beyond int32 in tenths
        (np.full(N, 1 / 3), 0),
        (np.arange(N), 0),  # whole numbers are searched as they are
        (np.full(N, 3.0), 0),
    ],
)
def test_the_units_of_weights(weights: np.ndarray, per: int) -> None:
    assert units_counted(graph_of(weights)) == per


@pytest.mark.parametrize("searched", ["uint16", "int32"])
@pytest.mark.parametrize("floats", ["float32", "float64"])
@pytest.mark.parametrize("per", [10, 1000, 2**12])
def test_rows_become_the_nearest_floats(searched: str, floats: str, per: int) -> None:
    kind, draw = WORK_TYPES[searched], np.random.default_rng(3)
    rows = draw.integers(0, int(kind.largest) + 1, (150, 7)).astype(kind.dtype)  # several tiles of rows
    rows[draw.random(rows.shape) < 0.2] = kind.sentinel()
    sink = ArraySink((160, 7), floats)
    UnitsToFloats(sink, per, kind, WORK_TYPES[floats], 7).write(10, 0, rows)
    exact = [[np.inf if v == kind.sentinel() else float(Fraction(int(v), per)) for v in row] for row in rows]
    assert np.array_equal(sink.array[10:], np.array(exact).astype(floats))


@pytest.mark.parametrize(
    ("cutoff", "per", "units"),
    [
        (0.3, 10, 3),
        (0.29, 10, 2),
        (0.7, 10, 7),
        (5, 4, 20),
        (1e300, 10, 2**30 - 2),  # no length is longer
        (1.7e308, 10**9, 2**30 - 2),
    ],
)
def test_a_cutoff_counts_on_paper(cutoff: float, per: int, units: float) -> None:
    assert cutoff_in_units(cutoff, per) == units
    assert cutoff_in_units(None, per) is None


@pytest.mark.parametrize("per", [*(10**power for power in range(10)), *(2**power for power in range(1, 31))])
def test_a_cutoff_admits_the_length_that_it_is_the_nearest_float_of(per: int) -> None:
    """Floats are written in at most 17 digits, and multiples of 2^-25 have more."""
    for units in (1, 2, 3, 7, 1000, per % 2**30 + 1, *np.random.default_rng(per).integers(1, 2**30 - 1, 200).tolist()):
        cutoff = float(Fraction(units, per))
        assert cutoff_in_units(cutoff, per) == units
        assert cutoff_in_units(np.nextafter(cutoff, 0), per) == units - 1
        assert cutoff_in_units(np.nextafter(cutoff, np.inf), per) == units


@pytest.mark.parametrize("unit", [0.1, 2.0**-12, 2.0**-25, 1 + 2.0**-20, 2.0**-30])
@pytest.mark.parametrize("cutoff", [1, 2, 3, None])
def test_vertices_at_the_cutoff_are_reached(tmp_path: Path, unit: float, cutoff: int | None) -> None:
    graph, _ = build_graph([0, 1, 2], [1, 2, 3], [unit] * 3, n=4, directed=True, quantities={"q": [1, 2, 4]})
    last = 1.7e308 if cutoff is None else {0.1: cutoff / 10}.get(unit, unit * cutoff)
    options = Options(also=("q",), cutoff=last)
    solve_to_store(graph, options, tmp_path / "d.zarr")
    with open_matrix(tmp_path / "d.zarr") as found:
        assert np.isfinite(found.rows([0])).sum() == 1 + (cutoff or 3)
        assert found.also["q"].rows([0])[0, : 1 + (cutoff or 3)].tolist() == [0, 1, 3, 7][: 1 + (cutoff or 3)]


def test_sums_leave_the_type_and_the_size_of_the_distances() -> None:
    graph = graph_of(tenths())
    plain, summed = (make_plan(graph, Options(device="cpu", also=also)) for also in ((), ("q",)))
    assert (plain.dtype, plain.counted) == ("float32", None)
    assert (summed.dtype, summed.counted) == ("float32", ("uint16", 10))
    assert "searched in uint16 as multiples of 0.1" in summed.dtype_reason
    tiles = sum(phase.bytes for phase in summed.phases if phase.name == "sum")
    assert abs(summed.disk - plain.disk - tiles) < 2**16  # one file is a little larger
    assert "counted" not in summed.to_dict()


@pytest.mark.parametrize("dtype", ["auto", "float32", "float64"])
@pytest.mark.parametrize("algorithm", ["auto", "dijkstra", "partitioned", "recursive-floyd-warshall"])
@pytest.mark.parametrize("some", [{}, {"sources": (5, 1), "targets": (2, 9, 4)}, {"cutoff": 7.3}])
def test_stores_hold_the_distances_on_paper(tmp_path: Path, dtype: str, algorithm: str, some: dict[str, Any]) -> None:
    graph, path = graph_of(tenths()), tmp_path / "d.zarr"
    whole = graph_of(np.rint(tenths() * 10).astype(np.int64))
    also, limit = ("q",), some.get("cutoff", np.inf)
    solve_to_store(graph, Options(also=also, dtype=dtype, algorithm=algorithm, **some), path)
    asked = Options(also=also, **(some | ({"cutoff": 73} if "cutoff" in some else {})))
    solve_to_store(whole, asked, tmp_path / "whole.zarr")
    with open_matrix(path) as found, open_matrix(tmp_path / "whole.zarr") as wanted:
        assert found.dtype == ("float32" if dtype == "auto" else dtype)
        sources = asked.sources or range(N)
        units = wanted.rows(sources).astype(np.float64)
        there = (units != wanted.unreachable) & (units <= 10 * limit)
        assert np.array_equal(found.rows(sources), np.where(there, units / 10, np.inf).astype(found.dtype))
        assert np.array_equal(found.also["q"].rows(sources), wanted.also["q"].rows(sources))
        summary, other = found.summary, wanted.summary
    assert summary["reached"] == other["reached"]
    assert summary["diameter"] == pytest.approx(other["diameter"] / 10, rel=1e-6)
    assert verify.verify_store(path, "all").searched == len(sources)


class Stop(Monitor):
    """Asks to stop after some rows of the search."""

    def __init__(self, rows: int) -> None:
        self._left, self._counts = rows, False

    def begin(self, phase: str, total: int, unit: str) -> None:
        self._counts = phase == "search"

    def advance(self, amount: int) -> None:
        self._left -= amount if self._counts else 0

    def cancelled(self) -> bool:
        return self._left <= 0


def begin_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stopped solves commit, however short they are, and search few rows at a time."""
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    monkeypatch.setattr(searches, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(searches, "BUSY_SECONDS", 0.0)
    monkeypatch.setattr(searches, "FIRST_ENTRIES", 0)
    monkeypatch.setattr(searches, "BUSY_ENTRIES", 0)


@pytest.mark.parametrize("dtype", ["auto", "float64"])
def test_a_stopped_solve_goes_on_in_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    begin_early(monkeypatch)
    n, m = 1500, 4000
    graph = graph_of(np.random.default_rng(2).integers(1, 90, m) / 10, n)
    options, path = Options(also=("q",), dtype=dtype, algorithm="dijkstra", threads=1), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        solve_to_store(graph, options, path, monitor=Stop(1))
    solve_to_store(graph, Options(also=("q",), threads=2), path, resume=True)
    solve_to_store(graph, options, tmp_path / "once.zarr")
    with open_matrix(path) as found, open_matrix(tmp_path / "once.zarr") as wanted:
        assert found.dtype == wanted.dtype
        assert np.array_equal(found.rows(range(n)), wanted.rows(range(n)))
        assert np.array_equal(found.also["q"].rows(range(n)), wanted.also["q"].rows(range(n)))
        assert found.summary == wanted.summary


@pytest.mark.parametrize("earlier", [False, True])
def test_a_cutoff_keeps_its_rule_when_a_solve_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    """Earlier versions compared rounded lengths with the cutoff; a store that they began has this rule in all rows."""
    begin_early(monkeypatch)
    n, m, path = 1500, 4000, tmp_path / "d.zarr"
    graph = graph_of(np.random.default_rng(2).integers(1, 90, m) / 10, n)
    options = Options(also=("q",), dtype="float64", algorithm="dijkstra", threads=1, cutoff=4.7)
    with monkeypatch.context() as before:
        if earlier:
            before.setattr(planning, "units_searched", lambda *_: 0)
        with pytest.raises(Cancelled):
            solve_to_store(graph, options, path, monitor=Stop(1))
        solve_to_store(graph, options, tmp_path / "once.zarr")
    solve_to_store(graph, Options(also=("q",), cutoff=4.7), path, resume=True)
    solve_to_store(graph, options, tmp_path / "paper.zarr")
    with open_matrix(path) as found, open_matrix(tmp_path / "once.zarr") as wanted:
        assert np.array_equal(found.rows(range(n)), wanted.rows(range(n)))
        assert np.array_equal(found.also["q"].rows(range(n)), wanted.also["q"].rows(range(n)))
        with open_matrix(tmp_path / "paper.zarr") as paper:
            assert (wanted.summary["reached"] < paper.summary["reached"]) == earlier
