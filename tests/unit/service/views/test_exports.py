"""Parts of a matrix in files, compared with what NumPy finds in the whole matrix."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from service.jobs.results import ResultReader
from service.views import exports, representations
from service.views.exports import WRITERS, ExportedPart
from service.views.representations import Selection
from storage.errors import InvalidRequest
from storage.graph.graph import Graph, build_graph
from tests.unit.service.support import UNREACHABLE, Bench

N = 23
Line = tuple[str, str, float | None]


def random_graph(real: bool) -> Graph:
    """Few lengths, so that many distances are equal; some vertices reach little."""
    chance = np.random.default_rng(7)
    tails, heads = chance.integers(0, N, (2, 40))
    lengths = chance.integers(1, 4, 40) * (0.1 if real else 1)
    graph, _ = build_graph(tails, heads, lengths, labels=[f"v{i:02}" for i in range(N)], directed=True)
    return graph


@pytest.fixture(params=sorted(UNREACHABLE))
def solved(request: pytest.FixtureRequest, bench: Bench) -> tuple[ResultReader, np.ndarray]:
    """A result, and its distances in the stored type, inf where there is no path."""
    dtype = request.param
    job, distances = bench.solved(random_graph(dtype.startswith("float")), dtype)
    return ResultReader(bench.settings.store(job)), distances.astype(dtype) if dtype[0] == "f" else distances


def expected(distances: np.ndarray, sources: list[int], targets: list[int], part: ExportedPart) -> list[Line]:
    """The lines of a long table, one by one."""
    lines: list[Line] = []
    for u in sources:
        row = [(distances[u, v], j, v) for j, v in enumerate(targets)]
        if part.filtered:
            row = [entry for entry in row if np.isfinite(entry[0])]
        if part.within is not None:
            row = [entry for entry in row if entry[0] <= distances.dtype.type(part.within)]
        if part.nearest is not None:
            row = sorted(entry for entry in row if part.itself or entry[2] != u)[: part.nearest]
        lines += [(f"v{u:02}", f"v{v:02}", float(str(d)) if np.isfinite(d) else None) for d, _, v in row]
    return lines


SOME = [3, 0, 17, 22, 9]
PARTS = [
    (None, None, {}),
    (SOME, None, {"within": 3}),
    (SOME, [9, 3, 1, 0], {"within": 0.3}),
    (None, None, {"nearest": 4}),
    (SOME, [5, 22, 3, 2, 8], {"nearest": 2, "within": 5}),
    ([1], [1], {"nearest": 1}),
    (SOME, [17, 0, 3, 6], {"nearest": 1, "itself": True}),
]


@pytest.mark.parametrize(("sources", "targets", "filters"), PARTS)
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_long_tables_have_the_entries_that_are_wanted(solved, sources, targets, filters, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(representations, "BATCH", 3 * N)  # several batches
    result, distances = solved
    columns = None if targets is None else np.array(targets)
    rows = Selection(result, np.arange(N) if sources is None else np.array(sources), columns)
    part, told = ExportedPart(rows, **filters), []
    WRITERS[kind](part, tmp_path / "x", told.append, False)
    wanted = expected(distances, sources or list(range(N)), targets or list(range(N)), part)
    table = pl.read_csv(tmp_path / "x") if kind == ".csv" else pl.read_parquet(tmp_path / "x")
    assert table.columns == ["source", "target", "distance"]
    if kind == ".parquet":
        assert table["distance"].to_numpy().dtype == distances.dtype or distances.dtype == np.float64
    numbers = [None if d is None else float(str(distances.dtype.type(d))) for d in table["distance"]]
    assert list(zip(table["source"], table["target"], numbers, strict=True)) == wanted
    assert sum(told) == len(rows.sources)


@pytest.mark.parametrize(("sources", "targets", "filters"), PARTS)
def test_wide_tables_and_arrays_have_a_place_for_every_entry(solved, sources, targets, filters, tmp_path):
    result, distances = solved
    columns = None if targets is None else np.array(targets)
    rows = Selection(result, np.arange(N) if sources is None else np.array(sources), columns)
    part = ExportedPart(rows, **filters)
    sources, targets = sources or list(range(N)), targets or list(range(N))
    wanted = np.full((len(sources), len(targets)), np.inf)
    for source, target, distance in expected(distances, sources, targets, part):
        if distance is not None:
            wanted[sources.index(int(source[1:])), targets.index(int(target[1:]))] = distance
    WRITERS[".npy"](part, tmp_path / "x.npy", lambda _: None, False)
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), wanted, rtol=1e-7)
    assert part.least_bytes(".npy") == (tmp_path / "x.npy").stat().st_size - 128
    for kind, read in ((".csv", pl.read_csv), (".parquet", pl.read_parquet)):
        WRITERS[kind](part, tmp_path / "x", lambda _: None, True)
        table = read(tmp_path / "x")
        assert table.columns == ["source", *(f"v{v:02}" for v in targets)]
        assert table["source"].to_list() == [f"v{u:02}" for u in sources]
        found = table.drop("source").cast(pl.Float64).fill_null(np.inf).to_numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-7)


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_columns_of_a_wide_table_are_called_as_the_targets_are(kind, bench: Bench, tmp_path):
    """Names that Polars, or a file, could take for none, for another, or for a mark of its own."""
    names = sorted(["", "column_0", "column_1", " ", "a,b", 'say "hi"', "line\nbreak", "target", "distance", "null"])
    graph, _ = build_graph([0, 1], [1, 0], [1, 1], labels=names, directed=True)
    result = ResultReader(bench.settings.store(bench.solved(graph, "int32")[0]))
    WRITERS[kind](ExportedPart(Selection(result, np.arange(10), None)), tmp_path / "x", lambda _: None, True)
    if kind == ".csv":
        with (tmp_path / "x").open(newline="") as file:
            header, *rows = csv.reader(file)
    else:
        table = pl.read_parquet(tmp_path / "x")
        header, rows = table.columns, table.rows()
    assert header == ["source", *names]
    assert [[str(entry) for entry in row].index("0") - 1 for row in rows] == list(range(10))


def test_what_a_wide_table_cannot_hold_is_refused(bench: Bench, monkeypatch):
    graph, _ = build_graph([0, 1], [1, 0], [1, 1], labels=["source", "x"], directed=True)
    result = ResultReader(bench.settings.store(bench.solved(graph, "int32")[0]))
    part = ExportedPart(Selection(result, np.arange(2), None))
    with pytest.raises(InvalidRequest, match="called 'source'"):
        next(part.wide())
    monkeypatch.setattr(exports, "MOST_COLUMNS", 1)
    with pytest.raises(InvalidRequest, match="2 targets are too many"):
        next(part.wide())


def test_the_size_of_a_table_is_at_least_what_is_said(solved, tmp_path: Path):
    result, _ = solved
    whole = ExportedPart(Selection(result, np.arange(N), None))
    WRITERS[".csv"](whole, tmp_path / "x.csv", lambda _: None, False)
    assert 0 < whole.least_bytes(".csv") <= (tmp_path / "x.csv").stat().st_size
    assert ExportedPart(whole.rows, within=1).least_bytes(".csv") == whole.least_bytes(".parquet") == 0


def test_a_question_within_a_distance_has_the_same_answer(solved):
    result, distances = solved
    for limit in (0.3, 2, 1e9):
        lines = expected(
            distances, [17], list(range(N)), ExportedPart(Selection(result, np.array([17]), None), within=limit)
        )
        found = result.within("v17", limit)
        wanted = sorted(((d, t) for _, t, d in lines), key=lambda pair: (pair[0], pair[1]))
        assert list(zip(found["distances"], found["targets"], strict=True)) == wanted
    assert result.within("v17", -1)["targets"] == []
    with pytest.raises(InvalidRequest, match="no distance"):
        result.within("v17", float("nan"))
