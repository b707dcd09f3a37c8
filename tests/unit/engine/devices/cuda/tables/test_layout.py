"""Indices over the parts of prepared graphs for a GPU, and the budget of its memory; no GPU is needed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks import graphs
from engine.devices.cuda.tables.layout import BATCH, COLUMNS, COLUMNS_64, ROW_STEP, TableLayout, check_budget
from engine.graph.partition import CPU_GRAIN, Grain, Parts, find_parts
from engine.graph.profile import GraphProfile
from storage.errors import DoesNotFit
from storage.graph.graph import Graph, build_graph


def parts_of(graph: Graph, grain: Grain = CPU_GRAIN) -> Parts:
    found = find_parts(GraphProfile(graph), grain, graph.n**2)
    assert found is not None
    return found


def forest() -> Graph:
    tails = np.arange(400)
    keep = tails % 9 > 1
    return build_graph(tails[keep], tails[keep] // 9 * 9, np.ones(keep.sum()), n=450, directed=False)[0]


GRAPHS = {"road": lambda: graphs.road(900), "ring": lambda: graphs.ring(700), "forest": forest}


@pytest.mark.parametrize("grain", [CPU_GRAIN, Grain(1, 0.0, 0.0, 0.0)])
@pytest.mark.parametrize("name", GRAPHS)
def test_lines_meet_where_walks_up_the_tree_meet(name: str, grain: Grain) -> None:
    parts = parts_of(GRAPHS[name](), grain)
    layout, parents, widths = TableLayout(parts, 4), parts.parents, parts.widths()
    for a, b in np.random.default_rng(0).integers(0, parts.count, (500, 2)).tolist():
        low, high, x, y = min(a, b), max(a, b), a, b
        while x != y and min(x, y) >= 0:
            x, y = (int(parents[x]), y) if x < y else (x, int(parents[y]))
        want = widths[x] if x == y and x >= 0 else 0
        k = (high - low).bit_length() - 1
        found = widths[a] if a == b else min(layout.meets[k, low], layout.meets[k, high - 2**k])
        assert found == want, (a, b)


def test_a_single_part_and_no_part() -> None:
    one = TableLayout(parts_of(graphs.grid(4), Grain(64, 1e9, 1e9, 0.0)), 4)
    assert one.meets.shape[1] == one.parts.count
    none = TableLayout(Parts(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int32),
                             np.zeros(1, np.int64), np.zeros(0, np.int32)), 4)  # fmt: skip
    assert none.meets.shape == (1, 0)
    assert none.items()[0].shape == (0, 2)


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_items_hold_every_column_once_and_parents_come_before(itemsize: int) -> None:
    parts = parts_of(graphs.road(900))
    items, levels = TableLayout(parts, itemsize).items()
    high = COLUMNS_64 if itemsize == 8 else COLUMNS
    assert levels[-1] == len(items)
    columns = [
        np.arange(first, min(first + high, parts.sizes[part])) + parts.starts[part] for part, first in items.tolist()
    ]
    np.testing.assert_array_equal(np.sort(np.concatenate(columns)), np.arange(len(parts.position)))
    level = np.empty(parts.count, np.int64)
    for k, (begin, end) in enumerate(pairwise(levels)):
        level[items[begin:end, 0]] = k
    inner = parts.parents >= 0
    assert (level[parts.parents[inner]] == level[inner] - 1).all()


def test_lines_end_where_tables_of_the_next_vertex_begin() -> None:
    parts = parts_of(graphs.road(900))
    layout = TableLayout(parts, 4)
    found = layout.lines(np.arange(len(parts.position)))
    np.testing.assert_array_equal(found["end"], np.cumsum(parts.widths()[parts.owner()]))
    np.testing.assert_array_equal(found["part"], parts.owner())


def test_a_batch_takes_what_fits() -> None:
    layout = TableLayout(parts_of(graphs.road(900)), 4)
    assert layout.batch(900, 10**6, 2**40) == BATCH
    assert layout.batch(900, 1, 2**40) == ROW_STEP
    assert layout.batch(900, 10**6, 0) == ROW_STEP
    memory = 2**20
    found = layout.batch(900, 10**6, memory)
    assert ROW_STEP < found < BATCH
    assert layout.row_bytes(900, found) <= memory < layout.row_bytes(900, 2 * found + ROW_STEP)
    assert layout.bytes(900, 2) > layout.bytes(900, 1) > int(layout.sizes @ layout.widths) * 4


def test_tables_larger_than_the_memory_are_refused_with_both_numbers() -> None:
    check_budget("p", 10**9, 10**5, 4, 2 * 10**9)
    numbers = r"^the tables of p do not fit on the GPU: 1,\d+,\d+,\d+ bytes are needed, 1,000,000,000 may be used; --"
    with pytest.raises(DoesNotFit, match=numbers) as caught:
        check_budget("p", 10**9, 10**5, 4, 10**9)
    assert caught.value.available == 10**9
