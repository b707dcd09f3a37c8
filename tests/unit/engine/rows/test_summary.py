"""The summary gathered on the way must equal the one recomputed from the whole matrix."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from engine.devices.cpu.row_facts import count_rows, row_facts
from engine.model.dtypes import WORK_TYPES
from engine.model.rows import ArraySink, FoundFacts, RowFacts
from engine.rows.summary import BINS, Summary, SummarySink
from storage.errors import SolveFailed


def gather(matrix: np.ndarray, integral: bool, bands: list[slice], sources: np.ndarray | None = None) -> dict:
    rows = np.arange(len(matrix)) if sources is None else sources
    sink = SummarySink(ArraySink(matrix.shape, matrix.dtype), rows, matrix.shape[1], integral=integral)
    for band in bands:
        sink.write(band.start, 0, matrix[band])
    return sink.summary(np.arange(100, 100 + matrix.shape[1]))


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("bands", [[slice(0, 9)], [slice(5, 9), slice(0, 5)]])
def test_counts_sums_and_extremes(dtype: str, bands: list[slice]) -> None:
    kind = WORK_TYPES[dtype]
    rng = np.random.default_rng(1)
    values = rng.integers(0, 3000, (9, 9)).astype(dtype)
    values[rng.random((9, 9)) < 0.3] = kind.sentinel()
    np.fill_diagonal(values, 0)
    values[3] = kind.sentinel()  # reaches nobody
    values[3, 3] = 0
    found = gather(values, True, bands)
    finite = (values != kind.sentinel()) & ~np.eye(9, dtype=bool)
    wide = np.where(finite, values.astype(float), -1)
    assert found["pairs"] == 72
    assert found["reached"] == finite.sum()
    assert found["sum"] == wide[finite].sum()
    assert found["mean"] == pytest.approx(wide[finite].mean())
    farthest = wide.max(1)
    assert found["diameter"] == farthest.max()
    reach = finite.sum(1) + 1
    central = finite.any(1) & (10 * reach >= 9 * reach.max())
    assert found["radius"] == farthest[central].min()
    assert farthest[found["center"] - 100] == found["radius"]
    assert (found["central_sources"], found["central_reach"]) == (central.sum(), reach[central].min())
    u, v = found["diameter_pair"]
    assert values[u - 100, v - 100] == found["diameter"]
    assert found["center"] != 103


def test_a_histogram_grows_and_keeps_its_counts() -> None:
    values = np.array([[0, 1, 5], [40_000, 0, 7], [10**6, 3, 0]], np.int32)
    found = gather(values, True, [slice(0, 1), slice(1, 2), slice(2, 3)])["histogram"]
    edges, counts = found["edges"], found["counts"]
    assert sum(counts) == 6
    assert edges[-1] > 10**6
    assert len(counts) <= BINS
    assert len(edges) == len(counts) + 1
    again = np.histogram([1, 5, 40_000, 7, 10**6, 3], edges)[0]
    assert counts == again.tolist()


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("width", [16, 64, 256])
def test_distances_on_the_edge_of_a_bin_belong_to_the_bin_that_begins_there(dtype: str, width: int) -> None:
    edges = np.arange(0, BINS * width, width)
    values = np.stack([edges, edges + width - 1]).astype(dtype)
    found = gather(values, True, [slice(0, 2)], np.array([0, BINS - 1]))["histogram"]
    assert len(found["counts"]) == BINS
    assert set(found["counts"][1:-1]) == {2}


@pytest.mark.parametrize("integral", [True, False])
def test_the_summary_does_not_depend_on_the_order_of_rows_or_on_threads(integral: bool) -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 10 ** rng.integers(1, 7, (40, 1)), (40, 40)).astype("float64") / (1 if integral else 7)
    np.fill_diagonal(values, 0)
    first = gather(values, integral, [slice(k, k + 1) for k in range(40)])
    assert gather(values, integral, [slice(k, k + 1) for k in reversed(range(40))]) == first
    sink = SummarySink(ArraySink(values.shape, values.dtype), np.arange(40), 40, integral=integral)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda some: sink.gather(0, values, some), rng.permutation(40).reshape(10, 4)))
    assert sink.summary(np.arange(100, 140)) == first


@pytest.mark.parametrize("tiny", [2.2e-308, 5e-324])
def test_distances_so_short_that_a_bin_s_inverse_overflows(tiny: float) -> None:
    values = np.array([[0, tiny, 0], [tiny, 0, np.inf], [3.0, 1e300, 0]])
    bands = [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert sum(gather(values, False, bands[:2])["histogram"]["counts"]) == 3
    assert sum(gather(values, False, bands)["histogram"]["counts"]) == 5


def test_negative_distances_are_counted_apart() -> None:
    values = np.array([[0, -2.5], [4.0, 0]], np.float32)
    found = gather(values, False, [slice(0, 2)])
    assert found["histogram"]["below_zero"] == 1
    assert found["sum"] == 1.5
    assert (found["diameter"], found["radius"]) == (4.0, -2.5)


def test_chosen_sources_leave_out_their_own_entry() -> None:
    values = np.array([[3, 8, 0, 1], [0, 2, 9, 4]], np.int32)
    found = gather(values, True, [slice(0, 2)], np.array([2, 0]))
    assert (found["pairs"], found["reached"], found["sum"]) == (6, 6, 27)
    assert found["diameter_pair"] == [100, 102]


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_to_reach(n: int) -> None:
    found = gather(np.zeros((n, n), np.int32), True, [slice(0, n)] if n else [])
    assert (found["pairs"], found["reached"], found["mean"], found["diameter"]) == (0, 0, None, None)


def test_parts_of_rows_are_refused() -> None:
    sink = SummarySink(ArraySink((2, 4), "int32"), np.arange(2), 4, integral=True)
    with pytest.raises(ValueError, match="whole rows"):
        sink.write(0, 2, np.zeros((2, 2), np.int32))


def test_a_float32_extreme_reads_like_the_distance_itself() -> None:
    values = np.array([[0, 1.86], [0.3, 0]], np.float32)
    found = gather(values, False, [slice(0, 2)])
    assert (found["diameter"], found["radius"]) == (1.86, 0.3)


def chain_of(n: int, *, entrance: bool, dead_end: bool) -> np.ndarray:
    """Distances on a ring of n vertices, an entrance into it, and a pair of vertices away from it."""
    size = n + 3
    values = np.full((size, size), 2**30 - 1, np.int32)
    values[:n, :n] = (np.arange(n) - np.arange(n)[:, None]) % n
    if entrance:
        values[n, :n] = 1 + values[0, :n] + n  # from farther away than any vertex of the ring
    if dead_end:
        values[n + 1, n + 2] = 1
    np.fill_diagonal(values, 0)
    return values


@pytest.mark.parametrize("entrance", [True, False])
def test_a_dead_end_is_no_centre_and_neither_is_an_entrance(entrance: bool) -> None:
    """The dead end has eccentricity 1; the entrance reaches one vertex more than the ring, and is compared with it."""
    values = chain_of(20, entrance=entrance, dead_end=True)
    found = gather(values, True, [slice(0, 23)])
    assert found["radius"] == 19
    assert found["center"] in range(100, 120)
    assert found["central_sources"] == 20 + entrance
    assert found["central_reach"] == 20


def test_a_source_among_few_targets_reaches_itself() -> None:
    """Sources 0, 1, 2 and targets 0, 1: each reaches all, though two of them reach but one other."""
    values = np.array([[0, 5], [4, 0], [9, 9]], np.int32)
    targets = np.array([0, 1])
    sink = SummarySink(ArraySink((3, 2), "int32"), np.arange(3), 3, integral=True, targets=targets)
    sink.write(0, 0, values)
    found = sink.summary(np.arange(3))
    assert (found["radius"], found["center"]) == (4, 1)
    assert (found["central_sources"], found["central_reach"]) == (3, 2)


def test_parts_bring_what_their_rows_reach() -> None:
    values = chain_of(20, entrance=True, dead_end=True)
    whole = Summary(np.arange(23), 23, integral=True)
    for first in (12, 0):
        rows = np.arange(first, min(23, first + 12))
        part = SummarySink(ArraySink((len(rows), 23), "int32"), rows, 23, integral=True)
        part.write(0, 0, values[rows])
        whole.join(part.part(first))
    found = whole.summary(np.arange(100, 123))
    assert (found["radius"], found["central_sources"], found["central_reach"]) == (19, 21, 20)


@pytest.mark.parametrize("wrong", [-np.inf, np.nan])
@pytest.mark.parametrize("integral", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_distance_that_is_no_number_ends_the_solve(wrong: float, integral: bool, dtype: str) -> None:
    values = np.ones((9, 9), dtype)
    values[4, 7] = wrong
    with pytest.raises(SolveFailed, match=r"sum of row 4 of the matrix is (-inf|nan)"):
        gather(values, integral, [slice(0, 9)])


@pytest.mark.parametrize("dtype", WORK_TYPES)
def test_rows_may_come_in_any_order_and_as_runs(dtype: str) -> None:
    """Rows that ascend by one are added as a slice, others one by one: the summary is the same."""
    kind, rng = WORK_TYPES[dtype], np.random.default_rng(8)
    matrix = rng.integers(0, 50, (12, 12)).astype(dtype)
    matrix[rng.random((12, 12)) < 0.4] = kind.sentinel()
    matrix[5] = kind.sentinel()  # reaches nobody
    np.fill_diagonal(matrix, 0)
    found = []
    for parts in (
        [range(12)],
        [range(3), range(3, 12)],
        [[7, 2, 5], [0, 1, 3, 4, 6, 8, 9, 10, 11]],
        [[5], range(5), range(6, 12)],
    ):
        sink = SummarySink(ArraySink(matrix.shape, matrix.dtype), np.arange(12), 12, integral=True)
        for part in parts:
            rows = np.array(part)
            facts = RowFacts(*row_facts(matrix, rows, rows))
            sink.gather(0, matrix, rows, FoundFacts(facts, partial(count_some, matrix, rows)))
        found.append(sink.summary(np.arange(12)))
    assert found == [found[0]] * 4
    assert found[0] == gather(matrix, True, [slice(0, 12)]) | {
        name: found[0][name] for name in ("diameter_pair", "center") if name in found[0]
    }


def count_some(matrix: np.ndarray, rows: np.ndarray, width: float, counts: np.ndarray) -> int:
    return count_rows(matrix, rows, width, counts, rows)


@pytest.mark.parametrize("largest", [7, 2**61, 2**62])
def test_sums_of_whole_numbers_are_exact(largest: int) -> None:
    """Beyond int64, too."""
    summary, many = Summary(np.arange(5), 9, integral=True), np.ones(5, np.int64)
    sums = np.full(5, largest)
    summary.add(0, RowFacts(many, sums, np.ones(5, np.int32), many), lambda _width, _counts: 0)
    assert summary.summary(np.arange(9))["sum"] == 5 * largest
