"""The sink of measures: every working type, blocks in any order and from threads, sums beyond 32 bits."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from engine.api.measuring import measure
from engine.graph.selection import Narrow, Rectangle
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.rows import FactSink, FoundFacts, NullSink, ReducedLevels, ReducedRows, ReducingSink, RowFacts
from engine.rows.asked_measures import MEASURES, asked_measures
from engine.rows.measures import MeasureSink
from storage.errors import SolveFailed
from storage.graph.graph import build_graph


def sink_of(kind, n, sources=None, targets=None, **request):
    wanted = Rectangle(n, *(None if side is None else np.array(side) for side in (sources, targets)), None)
    return MeasureSink(wanted, WORK_TYPES[kind], asked_measures(n, 0.0, request))


def rows_of(kind, n, seed=0):
    """Distances with many ties, some unreachable, 0 on the diagonal."""
    rng, work = np.random.default_rng(seed), WORK_TYPES[kind]
    values = rng.integers(0, 50, (n, n)).astype(work.dtype)
    values[rng.random((n, n)) < 0.3] = work.sentinel()
    np.fill_diagonal(values, 0)
    return values


@pytest.mark.parametrize("kind", WORK_TYPES)
def test_kernels_agree_with_numpy(kind):
    n = 300
    block, weights = rows_of(kind, n), np.random.default_rng(5).random(n) * 10
    block[7] = WORK_TYPES[kind].sentinel()  # reaches nothing
    block[7, 7] = 0
    asked = {"within": [3, 20.5], "quantiles": [0, 0.25, 0.5, 1], "nearest": 70, "opportunities": {"w": weights}}
    found = sink_of(kind, n, **asked)
    found.write(0, 0, block)
    columns = found.columns()
    assert columns["sum"].dtype == (np.int64 if WORK_TYPES[kind].integer else np.float64)
    for i in range(n):
        finite = block[i].astype(np.float64)
        finite[block[i] == WORK_TYPES[kind].sentinel()] = np.inf
        near = finite < np.inf
        for limit in (3, 20.5):
            name = f"{limit:g}"
            assert columns[f"within_{name}"][i] == (finite <= limit).sum() - 1
            assert columns[f"w_{name}"][i] == pytest.approx(weights[finite <= limit].sum())
        others = np.delete(finite, i)
        others = others[others < np.inf]
        for q in (0, 0.25, 0.5, 1):
            right = np.quantile(others, q, method="inverted_cdf") if len(others) else np.nan
            np.testing.assert_equal(columns[f"quantile_{q:g}"][i], right)
        places = [j for j in np.lexsort((np.arange(n), finite)) if near[j] and j != i]
        for k in range(70):
            assert columns[f"nearest_{k + 1}"][i] == (places[k] if k < len(places) else -1)
        assert columns["farthest"][i] == (finite.tolist().index(others.max()) if len(others) else -1)
    assert columns["reached"][7] == columns["sum"][7] == columns["closeness"][7] == columns["harmonic"][7] == 0
    assert np.isnan([columns[name][7] for name in ("mean", "eccentricity", "quantile_0.5", "nearest_1_distance")]).all()


@pytest.mark.parametrize("shape", ["ascending", "descending", "equal", "organ pipe"])
def test_quantiles_of_ordered_rows(shape):
    n = 1001
    row = {
        "ascending": np.arange(n),
        "descending": np.arange(n)[::-1],
        "equal": np.full(n, 9),
        "organ pipe": np.minimum(np.arange(n), np.arange(n)[::-1]),
    }[shape].astype(np.int32)
    found = sink_of("int32", n + 1, sources=[n], targets=range(n), quantiles=[0.1, 0.5, 0.9])
    found.write(0, 0, row[None])
    got = [found.columns()[f"quantile_{q}"][0] for q in (0.1, 0.5, 0.9)]
    assert got == [np.quantile(row, q, method="inverted_cdf") for q in (0.1, 0.5, 0.9)]


def test_a_share_is_what_its_digits_say():
    """0.07 * 100 is a little above 7 in binary, and 7 of 100 entries are no farther than the seventh."""
    found = sink_of("uint16", 101, sources=[100], targets=range(100), quantiles=[0.07])
    found.write(0, 0, np.arange(1, 101, dtype=np.uint16)[None])
    assert found.columns()["quantile_0.07"][0] == 7


def test_sums_pass_32_bits_and_stay_exact():
    n, far = 70_000, WORK_TYPES["int32"].sentinel()
    row = np.full((1, n), int(far) - 1, np.int32)
    row[0, 0] = 0
    found = sink_of("int32", n, sources=[0], opportunities={"w": np.full(n, 2.0**36)}, within=[2.0**30])
    found.write(0, 0, row)
    assert found.columns()["sum"][0] == (n - 1) * (int(far) - 1) > 2**45
    assert found.columns()[f"w_{2**30}"][0] == n * 2.0**36
    assert found.columns()[f"within_{2**30}"][0] == n - 1


@pytest.mark.parametrize("kind", WORK_TYPES)
def test_a_limit_beyond_the_type_reaches_what_is_reached(kind):
    found = sink_of(kind, 40, within=[1e300], opportunities={"w": np.ones(40)})
    block = rows_of(kind, 40)
    found.write(0, 0, block)
    columns = found.columns()
    np.testing.assert_array_equal(columns[f"within_{int(1e300)}"], columns["reached"])
    np.testing.assert_array_equal(columns[f"w_{int(1e300)}"], columns["reached"] + 1)


def test_a_sum_that_is_not_finite_is_a_fault():
    found = sink_of("float64", 3)
    with pytest.raises(SolveFailed, match="row 0"):
        found.write(0, 0, np.array([[0, 1.7e308, 1.7e308]]))


def test_blocks_may_come_in_any_order_from_several_threads():
    n, asked = 256, {"within": [9], "nearest": 3, "quantiles": [0.5], "opportunities": {"w": np.arange(256.0)}}
    block = rows_of("uint16", n)
    once, parts = sink_of("uint16", n, **asked), sink_of("uint16", n, **asked)
    once.write(0, 0, block)

    def some(first):
        rows = np.array([3, 1, 0, 2])
        parts.gather(first, block[first : first + 4], rows)
        parts.keep(first, block[first : first + 4])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(some, range(n - 4, -1, -4)))
    for name, column in once.columns().items():
        np.testing.assert_array_equal(parts.columns()[name], column)


def test_facts_that_are_known_are_not_looked_for():
    found, block = sink_of("uint16", 4, measures=["sum"]), np.zeros((2, 4), np.uint16)
    facts = RowFacts(np.array([3]), np.array([42]), np.array([20], np.uint16), np.array([2]))
    found.gather(1, block, np.array([1]), FoundFacts(facts, lambda *_: 0))
    assert found.columns()["sum"].tolist() == [0, 0, 42, 0]


def test_it_is_a_sink_that_wants_whole_rows():
    found = sink_of("uint16", 4)
    assert isinstance(found, FactSink)
    assert found.place is None
    with pytest.raises(ValueError, match="whole rows"):
        found.write(0, 0, np.zeros((1, 3), np.uint16))


@pytest.mark.parametrize("shape", ["whole", "decimal", "negative", "beyond int32"])
@pytest.mark.parametrize("limits", [[3], [3, 9, 20], [1, 3, 9, 20], [0, 1, 3, 9, 20, 60]])
def test_columns_of_any_numbers_within_any_number_of_limits(shape, limits):
    """Whole numbers whose sums fit 31 bits are added as such, four limits at a time; the sums are exact."""
    n, rng = 300, np.random.default_rng(3)
    whole = rng.integers(0, 1000, (2, n)).astype(float)
    given = {"whole": whole, "decimal": whole + 0.25, "negative": whole - 500, "beyond int32": whole * 2.0**25}[shape]
    for kind in ("uint16", "int32", "float64"):
        block = rows_of(kind, n, seed=2)
        found = sink_of(kind, n, within=limits, opportunities={"a": given[0], "b": given[1]})
        found.write(0, 0, block)
        for limit in limits:
            for name, numbers in zip("ab", given, strict=True):
                right = np.where(block <= limit, numbers, 0.0).sum(axis=1)  # multiples of 1/4: exact in any order
                np.testing.assert_array_equal(found.columns()[f"{name}_{limit}"], right)


@pytest.mark.parametrize("decay", ["exponential", "linear", "logistic"])
@pytest.mark.parametrize("kind", WORK_TYPES)
def test_decays_are_close_to_those_of_numpy_at_any_distance(kind, decay):
    n = 400
    distances = np.unique(np.concatenate([np.arange(200), np.geomspace(200, 32_000, 200).astype(int)]))[:n]
    block = np.full((1, n), WORK_TYPES[kind].sentinel(), WORK_TYPES[kind].dtype)
    block[0, : len(distances)] = distances
    for middle in (1, 45.5, 10_000):
        for j in range(0, len(distances), 7):
            one = np.zeros(n)
            one[j] = 1.0
            value = {"linear": 33.0, "logistic": 7.5}.get(decay)
            found = sink_of(kind, n, sources=[n - 1], opportunities={"w": one}, within=[middle], decay=decay,
                            decay_value=value, measures=["reached"])  # fmt: skip
            found.write(0, 0, block)
            d = float(distances[j])
            with np.errstate(over="ignore"):
                right = {
                    "exponential": 0.5 ** (d / middle),
                    "linear": min(1.0, max(0.0, (middle + 16.5 - d) / 33)),
                    "logistic": (1 + np.exp(-middle * np.pi / (7.5 * 3**0.5)))
                    / (1 + np.exp((d - middle) * np.pi / (7.5 * 3**0.5))),
                }[decay]
            got = found.columns()[f"w_{middle:g}" if middle != 10_000 else "w_10000"][0]
            assert got == pytest.approx(right, rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("kind", WORK_TYPES)
def test_quantiles_where_most_distances_share_a_bin(kind):
    """One distance far beyond all others leaves these in the first bin, where they have to be told apart."""
    n, work = 5000, WORK_TYPES[kind]
    row = np.random.default_rng(4).integers(1, 40, n).astype(work.dtype)
    row[17] = {"float64": 1e300, "float32": 1e38}.get(kind, work.largest)
    row[3000:3100] = work.sentinel()
    row[0] = 0
    shares = [0, 0.1, 0.5, 0.9, 0.99, 1]
    found = sink_of(kind, n, sources=[0], quantiles=shares, measures=["reached"])
    found.write(0, 0, row[None])
    others = row[1:][row[1:] != work.sentinel()].astype(np.float64)
    for share in shares:
        assert found.columns()[f"quantile_{share:g}"][0] == np.quantile(others, share, method="inverted_cdf")


def test_levels_tell_the_same_as_rows():
    n, rng = 70, np.random.default_rng(6)
    block = rng.integers(1, 9, (n, n)).astype(np.uint16)
    block[rng.random((n, n)) < 0.2] = WORK_TYPES["uint16"].sentinel()
    block[5] = WORK_TYPES["uint16"].sentinel()
    np.fill_diagonal(block, 0)
    asked = {"within": [0, 2.5, 4, 8, 1e9], "quantiles": [0, 0.07, 0.5, 1], "measures": ["harmonic"]}
    by_rows, by_levels = sink_of("uint16", n, **asked), sink_of("uint16", n, **asked)
    by_rows.write(0, 0, block)
    levels = np.stack([(block == d).sum(axis=1) for d in range(9)], axis=1)
    levels[:, 0] -= 1
    nothing = RowFacts(*(np.zeros(n, np.int64) for _ in range(4)))
    assert by_levels.levels_suffice
    by_levels.gather(0, np.empty((n, 0), np.uint16), None, FoundFacts(nothing, lambda *_: 0, levels))
    for name, column in by_rows.columns().items():
        np.testing.assert_allclose(by_levels.columns()[name], column, rtol=1e-14, err_msg=name)
    for more in ({"nearest": 1}, {"within": [1], "opportunities": {"w": np.ones(n)}}):
        assert not sink_of("uint16", n, **more).levels_suffice


@pytest.mark.parametrize("kind", WORK_TYPES)
@pytest.mark.parametrize("decay", ["step", "exponential"])
def test_columns_in_another_order_give_the_same_measures(kind, decay):
    n, width, far = 300, 320, WORK_TYPES[kind].sentinel()
    rng, block = np.random.default_rng(3), rows_of(kind, n, 4)
    block[7] = far  # reaches nothing
    block[7, 7] = 0
    block[8] = 5  # the first of equal distances is the first by label, not by place
    block[8, 8] = 0
    places = rng.permutation(width)[:n].astype(np.int32)
    moved = np.full((n, width), far, block.dtype)
    moved[:, places] = block
    few = np.where(rng.random(n) < 0.1, rng.integers(1, 9, n), 0)
    asked = {"within": [3, 20.5], "quantiles": [0, 0.3, 1], "nearest": 9, "decay": decay}
    for weights in ({"all": rng.random(n)}, {"whole": rng.integers(0, 9, n)}, {"few": few}):
        usual, other = (sink_of(kind, n, **asked, opportunities=weights) for _ in range(2))
        usual.write(0, 0, block)
        assert other.any_order
        for first in range(0, n, 100):
            some = moved[first : first + 100].copy()
            other.take(first - 20, np.arange(20, 20 + len(some)), some, places)
        others = other.columns()
        for name, column in usual.columns().items():
            np.testing.assert_allclose(others[name], column, rtol=1e-13, err_msg=name)


def test_only_rows_to_all_vertices_may_be_in_another_order():
    assert sink_of("int32", 9, sources=[1, 4]).any_order
    assert not sink_of("int32", 9, targets=[1, 4]).any_order


def reduced(asked, rows, first):
    """What a device returns for rows ``first``, ... of a request, computed one entry at a time."""
    if asked.columns is not None:
        rows = rows[:, asked.columns]
    far = WORK_TYPES[rows.dtype.name].sentinel()
    if asked.cutoff is not None:
        rows = np.where(rows >= asked.cutoff, far, rows)
    found = {name: [] for name in ("facts", "inverses", "within", "quantiles", "nearest", "distances", "weights")}
    middles = asked.limits if asked.decay is None else asked.decay[2]
    for i, row in enumerate(rows):
        own = asked.own[first + i]
        near = [j for j in range(len(row)) if row[j] != far and j != own]
        near.sort(key=lambda j: (row[j], j))
        lengths = [float(row[j]) for j in near]
        top = next((j for j in near if row[j] == lengths[-1]), -1)
        found["facts"].append((len(near), sum(lengths), lengths[-1] if near else 0, top))
        found["inverses"].append(sum(1 / x for x in row.tolist() if x != 0 and x != far))
        found["within"].append([sum(x < float(limit) for x in lengths) for limit in asked.limits])
        ranks = [max(0, -(-a * len(near) // b) - 1) for a, b in asked.shares.tolist()]
        found["quantiles"].append([lengths[rank] if near else np.nan for rank in ranks])
        more = asked.nearest - len(near)
        found["nearest"].append((near + [-1] * more)[: asked.nearest])
        found["distances"].append((lengths + [np.nan] * more)[: asked.nearest])

        def share(x, limit):
            if asked.decay is None:
                return float(x < limit)
            return 0.0 if x == far else float(2.0 ** (-float(x) / limit))  # exponential

        held = [(row[j], asked.weights[:, k]) for k, j in enumerate(asked.held)]
        kinds = range(len(asked.weights))
        found["weights"].append([[sum(share(x, m) * w[kind] for x, w in held) for m in middles] for kind in kinds])
    count, limits = len(rows), len(asked.limits)
    reached, sums, largest, farthest = (np.array(column) for column in zip(*found.pop("facts"), strict=True))
    sums = sums.astype(np.int64 if rows.dtype.kind in "iu" else np.float64)
    facts = RowFacts(reached, sums, largest.astype(rows.dtype), farthest)
    shapes = {"within": (count, limits), "quantiles": (count, len(asked.shares)), "weights": (count, -1, limits)}
    shapes |= {"nearest": (count, asked.nearest), "distances": (count, asked.nearest), "inverses": (count,)}
    shapes["weights"] = (count, len(asked.weights), limits)
    integers = ("within", "nearest")
    arrays = {
        name: np.array(column, np.int64 if name in integers else np.float64).reshape(shapes[name])
        for name, column in found.items()
    }
    return ReducedRows(facts, **arrays)


@pytest.mark.parametrize("decay", ["step", "exponential"])
@pytest.mark.parametrize(("targets", "cutoff"), [(None, None), ([0, 3, 4, 17, 38], None), (None, 20.0), ([2, 9], 7.5)])
@pytest.mark.parametrize("kind", WORK_TYPES)
def test_what_a_device_reduces_is_what_threads_reduce(kind, targets, cutoff, decay):
    n = 40
    block, sources = rows_of(kind, n, seed=3), np.array([1, 4, 9, 30, 39])
    rows = block[sources]
    rows[2], rows[2, sources[2]] = WORK_TYPES[kind].sentinel(), 0
    jobs, beds = np.random.default_rng(5).integers(0, 9, n), np.eye(1, n, 3)[0]
    request = {"within": [3, 20.5], "quantiles": [0, 0.25, 0.5, 1], "nearest": 7, "decay": decay}
    request["opportunities"] = {"jobs": jobs, "beds": beds}
    wanted = Rectangle(n, sources, None if targets is None else np.array(targets), cutoff)
    sinks = [MeasureSink(wanted, WORK_TYPES[kind], asked_measures(n, 0.0, request)) for _ in range(2)]
    there, here = (Narrow(sink, wanted) if wanted.narrow else sink for sink in sinks)
    here.write(0, 0, rows)
    assert isinstance(there, ReducingSink)
    asked = there.reduction
    for first in (0, 2):
        there.take_reduced(first, reduced(asked, rows[first : first + 3], first))
    for name, column in sinks[1].columns().items():
        np.testing.assert_allclose(sinks[0].columns()[name], column, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("asked", [{"within": [0, 2, 5]}, {"quantiles": [0, 0.5, 0.9, 1]}, {}])
def test_levels_tell_what_rows_tell(asked):
    n, rng = 40, np.random.default_rng(8)
    rows = rng.integers(1, 9, (n, n)).astype(np.uint16)
    rows[rng.random((n, n)) < 0.4] = WORK_TYPES["uint16"].sentinel()
    rows[3] = WORK_TYPES["uint16"].sentinel()
    np.fill_diagonal(rows, 0)
    asked = {"measures": ["reached", "sum", "mean", "closeness", "harmonic", "eccentricity"], **asked}
    there, here = sink_of("uint16", n, **asked), sink_of("uint16", n, **asked)
    assert there.reduction.levels
    here.write(0, 0, rows)
    levels = np.array([[(np.delete(row, i) == hops).sum() for hops in range(11)] for i, row in enumerate(rows)])
    there.take_levels(0, levels[:30])
    there.take_levels(30, levels[30:])
    for name, column in here.columns().items():
        np.testing.assert_allclose(there.columns()[name], column, rtol=1e-12, err_msg=name)
    for more in ({"nearest": 1}, {"measures": ["farthest"]}, {"within": [1], "opportunities": {"a": np.ones(n)}}):
        assert not sink_of("uint16", n, **more).reduction.levels


@pytest.mark.parametrize(("columns", "limits", "nearest", "expected"), [
    (32, 8, 256, True), (33, 1, 0, False), (32, 9, 0, False), (0, 1, 257, False),
])  # fmt: skip
def test_what_takes_more_memory_than_rows_is_read_from_rows(columns, limits, nearest, expected):
    request = {
        "opportunities": {f"c{k}": np.ones(300, np.int64) for k in range(columns)},
        "within": [float(k + 1) for k in range(limits)], **({"nearest": nearest} if nearest else {}),
    }  # fmt: skip
    assert (sink_of("uint16", 300, **request).level_reduction is not None) == expected


@pytest.mark.parametrize("decay", [("exponential", None), ("linear", 6.0), ("logistic", 1.5)])
def test_weights_whose_sum_overflows_fade_before_they_are_added(decay):
    """Over hops as in rows: three weights at distance 2, each near the largest float64, count a small part each."""
    n = 40
    graph, _ = build_graph(np.zeros(n - 1, np.int64), np.arange(1, n), None, n=n, directed=False)
    huge = np.where((np.arange(n) > 0) & (np.arange(n) < 4), 1.5e308, 0)
    request = {"within": [0.25], "opportunities": {"huge": huge}, "decay": decay[0], "decay_value": decay[1]}
    by_hops, by_rows = (
        measure(graph, Options(algorithm=name, threads=1), **request)["huge_0.25"] for name in ("bfs", "dijkstra")
    )
    np.testing.assert_allclose(by_hops, by_rows, rtol=1e-12)
    assert np.isfinite(by_hops).any()


@pytest.mark.parametrize("kind", WORK_TYPES)
@pytest.mark.parametrize("decay", [("step", None), ("exponential", None), ("linear", 3.0), ("logistic", 1.5)])
def test_what_searches_reduce_by_level_is_what_rows_tell(kind, decay):
    """The request, applied to the targets at each number of hops, gives the columns that whole rows give."""
    n, rng = 40, np.random.default_rng(9)
    rows = rng.integers(1, 12, (n, n)).astype(WORK_TYPES[kind].dtype)
    rows[rng.random((n, n)) < 0.4] = WORK_TYPES[kind].sentinel()
    np.fill_diagonal(rows, 0)
    request = {"within": [1, 2.5, 7, 1e9], "nearest": 3, "decay": decay[0], "decay_value": decay[1]}
    few = {"few": np.where(rng.random(n) < 0.2, 1.5, 0)}
    for weights in (few, {"all": rng.integers(0, 9, n), "more": rng.integers(0, 10**7, n)}):
        there, here = (sink_of(kind, n, **request, opportunities=weights) for _ in range(2))
        asked = there.level_reduction
        assert asked.nearest == 3
        assert asked.weights.dtype == (np.float64 if weights is few else np.int32)
        here.write(0, 0, rows)
        at = [(rows == hops).astype(np.float64) for hops in range(12)]
        sums = sum(np.einsum("rv,kv,l->rkl", at[d], asked.weights, asked.shares[:, d]) for d in range(12))
        near = [
            sorted((row[v], v) for v in range(n) if at[0][i, v] == 0 and row[v] < 12)[:3] for i, row in enumerate(rows)
        ]
        nearest, distances = (
            np.array([[v for _, v in row] for row in near]),
            np.array([[d for d, _ in row] for row in near]),
        )
        levels = np.stack([(one - (d == 0) * np.eye(n)).sum(1).astype(np.int64) for d, one in enumerate(at)], axis=1)
        facts = RowFacts(*(np.zeros(n, np.int64) for _ in range(4)))
        found = FoundFacts(facts, lambda *_: 0, levels, ReducedLevels(sums, nearest, distances.astype(np.float64)))
        there.gather(0, np.empty((n, 0), rows.dtype), None, found)
        right, columns = here.columns(), there.columns()
        for name in right.keys() - MEASURES:
            np.testing.assert_allclose(columns[name], right[name], rtol=1e-12, err_msg=name)


def test_rows_serve_where_levels_would_take_more_memory_or_lack_columns():
    n = 300
    many = {f"w{k}": np.ones(n) for k in range(129)}
    for more in ({"nearest": 257}, {"opportunities": many, "within": [1, 2]}):
        assert sink_of("uint16", n, **more).level_reduction is None
    assert sink_of("uint16", n, targets=[1, 5], nearest=2).level_reduction is None
    assert sink_of("uint16", n, nearest=256).level_reduction.nearest == 256
    nothing = sink_of("uint16", n, within=[2], quantiles=[0.5]).level_reduction
    assert nothing.weights.shape == (0, n)
    assert nothing.nearest == 0


def test_only_sinks_that_reduce_are_reduced():
    wanted = Rectangle(9, None, np.array([1, 2]), None)
    assert not isinstance(NullSink(9), ReducingSink)
    assert Narrow(NullSink(9), wanted).reduction is None


def test_results_that_are_not_finite_are_refused():
    sink = sink_of("float64", 3, sources=[0], within=[2])
    found = reduced(sink.reduction, np.array([[0.0, 1.0, 2.0]]), 0)
    wrong = replace(found, facts=replace(found.facts, sums=np.array([np.inf])))
    with pytest.raises(SolveFailed, match="sum of row 0"):
        sink.take_reduced(0, wrong)
