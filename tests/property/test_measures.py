"""Compares measures with NetworkX and with plain code of their definitions, on random graphs of all kinds."""

from __future__ import annotations

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest

from engine.api.measuring import measure
from engine.api.near import near_pairs
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.devices.cpu import bfs_bits
from engine.model.problem import Options
from engine.rows.measures import MeasureSink
from storage.graph.graph import build_graph
from storage.readers import read_graph
from tests.reference_options import read_arguments

ALGORITHMS = ("dijkstra", "recursive-floyd-warshall", "partitioned", "auto", "bfs")
GRAPHS = 300


def random_graph(rng, most=24):
    """A NetworkX graph with the vertices 0 to n - 1, n below ``most``, often in several pieces."""
    n, directed = int(rng.integers(1, most)), bool(rng.integers(2))
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(n))
    kind = int(rng.integers(4))  # hops; whole with zeros; fractions; large whole numbers
    for u, v in rng.integers(0, n, (int(rng.integers(0, 3 * n + 1)), 2)).tolist():
        weight = [1, int(rng.integers(0, 6)), float(rng.random() * 5), int(rng.integers(0, 2**24))][kind]
        if u != v:
            graph.add_edge(u, v, weight=weight)
    return graph, kind


def built(graph, kind):
    edges = list(graph.edges(data="weight"))
    tails, heads = [u for u, _, _ in edges], [v for _, v, _ in edges]
    weights = None if kind == 0 else np.array([w for *_, w in edges], np.float64 if kind == 2 else np.int64)
    return build_graph(tails, heads, weights, n=len(graph), directed=graph.is_directed())[0]


def lengths(graph, kind, direction):
    """Rows of distances as dictionaries: from each vertex, or to each."""
    around = graph.reverse() if direction == "in" and graph.is_directed() else graph
    weight = None if kind == 0 else "weight"
    return {v: nx.single_source_dijkstra_path_length(around, v, weight=weight or (lambda *_: 1)) for v in graph}


def share(decay, value, middle, distance):
    """How much an opportunity counts, as the functions of R5 define it."""
    if decay == "step":
        return float(distance <= middle)
    if decay == "exponential":
        return 0.5 ** (distance / middle)
    if decay == "linear":
        first, last = middle - value / 2, middle + value / 2
        return 1.0 if distance <= first else 0.0 if distance >= last else (last - distance) / value

    def g(t):
        return 1 + math.exp(min(700, (t - middle) * math.pi / (value * math.sqrt(3))))

    return g(0) / g(distance)


def by_definition(row, me, columns, asked):
    """The measures of a row, from its distances as a dictionary."""
    others = {v: row[v] for v in columns if v in row and v != me}
    all_others = [v for v in columns if v != me]
    total, reached, largest = math.fsum(others.values()), len(others), max(others.values(), default=math.nan)
    plain = reached / total if total > 0 else 0.0
    found = {
        "reached": reached,
        "sum": total,
        "mean": total / reached if reached else math.nan,
        "closeness": plain * reached / len(all_others) if plain else 0.0,
        "closeness_plain": plain,
        "harmonic": math.fsum(1 / d for d in others.values() if d),
        "eccentricity": largest,
        "farthest": min((v for v in others if others[v] == largest), default=-1),
    }
    for limit in asked["within"]:
        found[f"within_{limit}"] = sum(d <= limit for d in others.values())
    ordered = sorted(others.values())
    for q in asked["quantiles"]:
        place = max(0, math.ceil(Fraction(str(q)) * reached) - 1)
        found[f"quantile_{q}"] = ordered[place] if ordered else math.nan
    near = sorted(others, key=lambda v: (others[v], v))
    for k in range(asked["nearest"]):
        found[f"nearest_{k + 1}"] = near[k] if k < len(near) else -1
        found[f"nearest_{k + 1}_distance"] = others[near[k]] if k < len(near) else math.nan
    for name, numbers in asked["opportunities"].items():
        for limit in asked["within"]:
            found[f"{name}_{limit}"] = math.fsum(
                numbers[v] * share(asked["decay"], asked["decay_value"], limit, row[v]) for v in columns if v in row
            )
    return found


def compare(table, wanted, *, exact):
    """Ties of floats that were added in another order may fall to another vertex at the same distance."""
    assert list(table.columns) == list(wanted[0])
    for name, column in table.columns.items():
        right = np.array([row[name] for row in wanted], np.float64)
        if exact or name not in table.vertex_columns:
            np.testing.assert_allclose(column, right, rtol=1e-9, atol=1e-12, err_msg=name)


def asked_of(rng, n):
    decay = ["step", "exponential", "linear", "logistic"][int(rng.integers(4))]
    return {
        "within": sorted({int(c) for c in rng.integers(1, 9, int(rng.integers(1, 4)))}),
        "quantiles": [0, 0.07, 0.5, 1][: int(rng.integers(5))],
        "nearest": int(rng.integers(0, 5)),
        "opportunities": {"jobs": rng.integers(0, 100, n), "beds": np.where(rng.random(n) < 0.2, 1.5, 0.0)},
        "decay": decay,
        "decay_value": {"linear": 3.0, "logistic": 1.5}.get(decay),
    }


@pytest.mark.parametrize("part", range(6))
def test_random_graphs_have_the_measures_of_their_definitions(part):
    ties = 0
    for seed in range(part, GRAPHS, 6):
        rng = np.random.default_rng(seed)
        graph, kind = random_graph(rng)
        n, direction = len(graph), ["out", "in"][int(rng.integers(2))]
        asked, whole = asked_of(rng, n), list(range(n))
        some = [sorted(rng.choice(n, int(rng.integers(1, n + 1)), replace=False).tolist()) for _ in range(2)]
        sources, targets = (side if rng.random() < 0.4 else whole for side in some)
        algorithm = ALGORITHMS[seed % 5 if kind == 0 else seed % 4]
        options = Options(
            sources=tuple(sources), targets=tuple(targets[::-1]), algorithm=algorithm, threads=1 + seed % 2
        )
        table = measure(built(graph, kind), options, direction=direction, **asked)
        rows, columns = (sources, targets) if direction == "out" else (targets[::-1], sources)
        assert table.vertices.tolist() == rows
        found = lengths(graph, kind, direction)
        compare(table, [by_definition(found[v], v, columns, asked) for v in rows], exact=kind != 2)
        ties += kind != 2
    assert ties > 20, "or no vertex is compared"


@pytest.mark.parametrize("part", range(3))
def test_hops_that_are_searched_by_bits_have_the_measures_of_their_definitions(part, monkeypatch):
    """No row is written, whatever is asked: the searches reduce each step."""
    monkeypatch.setattr(bfs_bits, "LEAST", 1)
    reduced, usual = [], MeasureSink.gather

    def gather(sink, row, block, some=None, found=None):
        reduced.append(found is not None and found.reduced is not None)
        usual(sink, row, block, some, found)

    monkeypatch.setattr(MeasureSink, "gather", gather)
    for seed in range(part, 150, 3):
        rng = np.random.default_rng(7000 + seed)
        n, directed = int(rng.integers(2, 60)), bool(rng.integers(2))
        graph = nx.gnm_random_graph(n, int(rng.integers(1, 3 * n)), seed=seed, directed=directed)
        asked, direction = asked_of(rng, n), ["out", "in"][int(rng.integers(2))]
        sources = sorted(rng.choice(n, int(rng.integers(1, n + 1)), replace=False).tolist())
        sides = {"sources" if direction == "out" else "targets": tuple(sources)}
        edges = list(graph.edges)
        tails, heads = [u for u, _ in edges], [v for _, v in edges]
        built_graph, _ = build_graph(tails, heads, None, n=n, directed=directed)
        table = measure(
            built_graph, Options(**sides, algorithm="bfs", threads=1 + seed % 2), direction=direction, **asked
        )
        found = lengths(graph, 0, direction)
        compare(table, [by_definition(found[v], v, range(n), asked) for v in sources], exact=True)
    assert sum(reduced) > 0.9 * len(reduced)


def by_networkx(graph, weight):
    """Columns by NetworkX's own functions, which look at distances to a vertex, but for the eccentricity."""
    found = {
        "closeness": nx.closeness_centrality(graph, distance=weight),
        "closeness_plain": nx.closeness_centrality(graph, distance=weight, wf_improved=False),
        "harmonic": nx.harmonic_centrality(graph, distance=weight),
    }
    both = nx.is_strongly_connected if graph.is_directed() else nx.is_connected
    if len(graph) > 1 and both(graph):
        found["eccentricity"] = nx.eccentricity(graph, weight=weight)
    return found


def agrees_with_networkx(graph, built_graph, weight):
    """Compare all columns, and return their names."""
    inward, outward = measure(built_graph, direction="in"), measure(built_graph, measures=["eccentricity"])
    right = by_networkx(graph, weight)
    for column, numbers in right.items():
        found = (outward if column == "eccentricity" else inward)[column]
        np.testing.assert_allclose(found, [numbers[v] for v in graph], rtol=1e-11, err_msg=column)
    return set(right)


@pytest.mark.parametrize("part", range(4))
def test_columns_are_those_of_networkx(part):
    """Of 300 graphs, directed and not, connected and not, small and large enough for searches by bits."""
    seen = []
    for seed in range(part, GRAPHS, 4):
        rng = np.random.default_rng(5000 + seed)
        graph, kind = random_graph(rng, most=24 if seed % 5 else 80)
        if seed // 4 % 2:  # a cycle through all vertices, so that all are reached
            nx.add_cycle(graph, graph, weight=1 if kind == 0 else 3)
            graph.remove_edges_from(nx.selfloop_edges(graph))
        seen.append(agrees_with_networkx(graph, built(graph, kind), None if kind == 0 else "weight"))
    assert sum("eccentricity" in columns for columns in seen) > 20


@pytest.mark.data
@pytest.mark.parametrize("name", ["lesmis.graph", "netscience.mtx", "celegans_metabolic.graph", "Ragusa16.mtx",
                                  "email-Eu-core.txt", "SiouxFalls_net.tntp"])  # fmt: skip
def test_real_graphs_have_the_columns_of_networkx(data_dir, name):
    graph, _ = read_graph(data_dir / name, **read_arguments(name))
    other = nx.DiGraph() if graph.directed else nx.Graph()
    other.add_nodes_from(range(graph.n))
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    other.add_weighted_edges_from(zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True))
    agrees_with_networkx(other, graph, "weight" if graph.weighted else None)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_what_is_within_a_distance_is_within_it_on_paper(places, tmp_path):
    """Near pairs and measures of decimals agree with exact sums, in every type and by every algorithm."""
    edges = 0
    for seed in range(8):
        rng, per = np.random.default_rng(seed), 10**places
        n, m = 40, 90
        tails, heads, units = rng.integers(0, n, m), rng.integers(0, n, m), rng.integers(1, 4, m)
        graph, _ = build_graph(tails, heads, units / per, n=n, directed=True)
        whole, _ = build_graph(tails, heads, units, n=n, directed=True)
        limits = [k / per for k in (3, 6, 7)]
        right = measure(whole, within=[3, 6, 7], measures=["reached"])
        for algorithm in ("dijkstra", "partitioned", "recursive-floyd-warshall"):
            for dtype in ("auto", "float32"):
                table = measure(graph, Options(algorithm=algorithm, dtype=dtype), within=limits, measures=["reached"])
                for one, other in zip(list(table.columns)[1:], list(right.columns)[1:], strict=True):
                    np.testing.assert_array_equal(table[one], right[other], err_msg=f"{algorithm} {dtype}")
        prepare(graph, tmp_path / f"{seed}.prepared")
        with open_result(tmp_path / f"{seed}.prepared") as tables:
            assert isinstance(tables, PreparedMatrix)
            table = measure(tables, within=limits, measures=["reached"])
            for limit, name in zip(limits, list(right.columns)[1:], strict=True):
                pairs, again = (near_pairs(one, Options(cutoff=limit)) for one in (graph, tables))
                np.testing.assert_array_equal(np.diff(pairs.indptr), right[name])
                np.testing.assert_array_equal(np.diff(again.indptr), right[name])
                edges += int((pairs.lengths > limit).sum())  # a little more in binary, and not on paper
    assert edges > 20 or places > 1, "or no sum is rounded up"
