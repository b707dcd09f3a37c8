"""Tables of changed weights against those of a graph prepared from the start, every entry of every table."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from engine.algorithms import elimination
from engine.algorithms.both_ways import FoundTables, find_tables
from engine.algorithms.eliminated import Eliminated
from engine.algorithms.part_lengths import PartWork
from engine.algorithms.reweighting import change_tables
from engine.devices.cpu.backend import CpuBackend
from engine.graph.partition import CPU_GRAIN, Grain, find_parts
from engine.graph.profile import GraphProfile
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import Monitor
from storage.errors import Cancelled
from storage.graph.graph import build_graph

#: Many small parts, parts as usual, and one large part.
GRAINS = (Grain(1, 0.0, 0.0, 0.0), CPU_GRAIN, Grain(64, 0.0, 1e9, 0.0))


@pytest.fixture(scope="module")
def backend():
    found = CpuBackend(2)
    yield found
    found.shutdown()


def random_arcs(rng, n, directed):
    """A sparse graph of lattice and random arcs; some vertices may be alone."""
    side = max(1, int(n**0.5))
    at = np.arange(side * side).reshape(side, side)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel(), rng.integers(0, n, n // 20)])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel(), rng.integers(0, n, n // 20)])
    if directed:
        tails, heads = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    kept = rng.random(len(tails)) < 0.9
    return tails[kept], heads[kept]


def copied(found):
    eliminated = found.eliminated
    again = Eliminated.of(
        eliminated.parts, *(a.copy() for a in (eliminated.upward, eliminated.across, eliminated.rests))
    )
    return FoundTables(found.forward.copy(), None if found.backward is None else found.backward.copy(), again)


def whole(found):
    """All bytes of tables and of what elimination found."""
    some = [found.forward, found.eliminated.upward, found.eliminated.across, found.eliminated.rests]
    return [array.tobytes() for array in (*some, *([] if found.backward is None else [found.backward]))]


def changed_weights(rng, weights, integral):
    """New weights of a few arcs: falls, rises, zero; infinity closes an arc."""
    new = weights.astype(np.float64)
    some = rng.choice(len(new), min(len(new), int(rng.integers(1, 6))), replace=False)
    drawn = rng.integers(0, 300, len(some)) / (1 if integral else 7)
    new[some] = np.where(rng.random(len(some)) < 0.2, np.inf, np.where(rng.random(len(some)) < 0.2, 0, drawn))
    return new


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dtype", ["uint16", "int32", "float64"])
@pytest.mark.parametrize("seed", range(6))
def test_every_table_is_that_of_preparing_anew(backend, monkeypatch, directed, dtype, seed):
    rng, kind = np.random.default_rng((seed, directed)), WORK_TYPES[dtype]
    n = int(rng.integers(1, 700))
    if seed % 2:
        monkeypatch.setattr(elimination, "PART_UPDATES", 3000)  # so that large parts lie above small ones
    tails, heads = random_arcs(rng, n, directed)
    whole_graph = build_graph(tails, heads, np.ones(len(tails)), n=n, directed=directed)[0]
    parts = find_parts(GraphProfile(whole_graph), GRAINS[seed % 3], n * n)
    ends, at = np.repeat(np.arange(n), np.diff(whole_graph.indptr)), whole_graph.heads
    edges = np.flatnonzero(ends < at) if not directed else np.arange(len(at))
    ends, at = ends[edges], at[edges]
    weights = rng.integers(0, 100, len(ends)) / (1 if kind.integer else 7)
    make = lambda values: build_graph(ends, at, values, n=n, directed=directed)[0]  # noqa: E731
    found = find_tables(PartWork(backend, make(weights), parts, kind, True, Monitor()))
    for _ in range(6 if len(ends) else 0):
        old, weights = weights, changed_weights(rng, weights, kind.integer)
        first = np.minimum(parts.position[ends], parts.position[at])[old != weights]
        holds = np.zeros(parts.count, bool)
        holds[parts.owner()[first]] = True
        work = PartWork(backend, make(weights), parts, kind, True, Monitor())
        before, want = copied(found), find_tables(work)
        touched = change_tables(work, found, holds)
        assert whole(found) == whole(want)
        sizes = parts.sizes * parts.widths()
        for told, table, was in (
            (touched.forward, found.forward, before.forward),
            (touched.backward, found.backward, before.backward),
        ):
            if table is not None:
                cuts = np.concatenate(([0], np.cumsum(sizes)))
                differs = [(table[a:b] != was[a:b]).any() for a, b in itertools.pairwise(cuts)]
                np.testing.assert_array_equal(told, differs)


def test_a_change_that_shortens_nothing_touches_no_table(backend):
    tails, heads = random_arcs(np.random.default_rng(1), 400, True)
    graph = build_graph(tails, heads, np.full(len(tails), 3), n=400, directed=True)[0]
    arc = graph.indptr[7]
    graph.weights[arc] = 10**6
    parts = GraphProfile(graph).parts(CPU_GRAIN)
    found = find_tables(PartWork(backend, graph, parts, WORK_TYPES["int32"], True, Monitor()))
    weights = graph.weights.copy()
    weights[arc] += 1
    holds = np.zeros(parts.count, bool)
    holds[parts.owner()[min(parts.position[7], parts.position[graph.heads[arc]])]] = True
    other = replace(graph, weights=weights)
    touched = change_tables(PartWork(backend, other, parts, WORK_TYPES["int32"], True, Monitor()), found, holds)
    assert not touched.forward.any()
    assert not touched.backward.any()
    assert 0 < touched.eliminated.sum() < parts.count


class Stops(Monitor):
    def cancelled(self):
        return True


def test_a_wish_to_stop_is_heard(backend):
    tails, heads = random_arcs(np.random.default_rng(1), 400, True)
    graph = build_graph(tails, heads, np.full(len(tails), 3), n=400, directed=True)[0]
    parts = GraphProfile(graph).parts(CPU_GRAIN)
    found = find_tables(PartWork(backend, graph, parts, WORK_TYPES["int32"], True, Monitor()))
    with pytest.raises(Cancelled):
        change_tables(
            PartWork(backend, graph, parts, WORK_TYPES["int32"], True, Stops()), found, np.ones(parts.count, bool)
        )
