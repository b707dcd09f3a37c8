"""Tests sums along paths, betweenness and assignment of real graphs against references with their own readers."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import apsp
from storage.graph.graph import Graph

pytestmark = pytest.mark.data

#: the arcs of a file: tail, head, and its columns as texts
Lines = list[tuple[int, int, dict[str, str]]]


def lines_of(path: Path) -> tuple[Lines, int]:
    """Return the arcs of a TNTP or CSV file, and the first vertex through which paths may pass."""
    text = path.read_text().splitlines()
    if path.suffix == ".csv":
        names = text[0].split(",")
        rows = [line.split(",") for line in text[1:]]
        return [(int(row[0]), int(row[1]), dict(zip(names, row, strict=True))) for row in rows], 0
    through = next(int(line.split(">")[1]) for line in text if line.startswith("<FIRST THRU NODE>"))
    header = next(k for k, line in enumerate(text) if line.startswith("~") and "init_node" in line)
    names = text[header].strip("~; \t").split()
    rows = [line.strip(" \t;").split() for line in text[header + 1 :] if line.strip(" \t;")]
    return [(int(row[0]), int(row[1]), dict(zip(names, row, strict=True))) for row in rows], through


class Sums:
    """Sums along the tie-broken paths of a source: by Dijkstra over (length, arcs), then backwards by least labels.

    Args:
        lines: the arcs.
        through: the first vertex that paths may pass.
        weight: the column that is the length; None counts arcs.
        also: the columns that are summed.
        number: what an entry of a column is: exact, or a float where lengths are floats.
    """

    def __init__(self, lines: Lines, through: int, weight: str | None, also: list[str], number: Any) -> None:
        self.through, self.out, self.into = through, {}, {}
        self.best: dict[tuple[int, int], tuple[Any, ...]] = {}
        for u, v, row in lines:
            arc = (1 if weight is None else number(row[weight]), *(Fraction(row[name]) for name in also))
            if u != v and ((u, v) not in self.best or arc < self.best[u, v]):
                self.best[u, v] = arc
        for (u, v), arc in self.best.items():
            self.out.setdefault(u, []).append((v, arc[0]))
            self.into.setdefault(v, []).append((u, arc[0]))
        self.vertices = sorted({*self.out, *self.into})

    def row(self, source: int) -> dict[int, tuple[Any, ...]]:
        """Return length and sums to each vertex that is reached."""
        found: dict[int, tuple[Any, int]] = {}
        heap: list[tuple[Any, int, int]] = [(0, 0, source)]
        while heap:
            length, arcs, v = heapq.heappop(heap)
            if v in found:
                continue
            found[v] = length, arcs
            if v >= self.through or v == source:
                for head, weight in self.out.get(v, []):
                    if head not in found:
                        heapq.heappush(heap, (length + weight, arcs + 1, head))
        sums: dict[int, tuple[Any, ...]] = {}
        for v in sorted(found, key=found.__getitem__):
            if v == source:
                sums[v] = (0,) * len(next(iter(self.best.values())))
                continue
            length, arcs = found[v]
            before = min(
                u
                for u, weight in self.into[v]
                if u in found
                and (u >= self.through or u == source)
                and (found[u][0] + weight, found[u][1] + 1) == (length, arcs)
            )
            rest = (a + b for a, b in zip(sums[before][1:], self.best[before, v][1:], strict=True))
            sums[v] = (length, *rest)
        return sums


SKIMS: list[Any] = [
    ("SiouxFalls_net.tntp", "free_flow_time", ["capacity", "length"], 1),
    ("Anaheim_net.tntp", "length", ["free_flow_time", "capacity"], 7),
    ("Anaheim_net.tntp", "free_flow_time", ["length"], 7),
    ("monaco_drive.csv", None, ["length_m"], 40),
    pytest.param("Winnipeg_net.tntp", "length", ["free_flow_time", "capacity"], 1, marks=pytest.mark.long),
    pytest.param("ChicagoSketch_net.tntp", "free_flow_time", ["length"], 1, marks=pytest.mark.long),
    pytest.param("helsinki_drive.csv", None, ["length_m"], 1, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("file", "weight", "also", "step"), SKIMS)
def test_skims_are_the_sums_along_the_tie_broken_paths(
    file: str, weight: str | None, also: list[str], step: int, data_dir: Path, tmp_path: Path
) -> None:
    reading: dict[str, Any] = {"unweighted": True} if weight is None else {"weight": weight}
    graph, _ = apsp.read_graph(data_dir / file, also=also, **reading)
    apsp.solve_to_store(graph, tmp_path / "s.zarr", apsp.Options(also=tuple(also)))
    decimal = max(len(row[weight].partition(".")[2]) for _, _, row in lines_of(data_dir / file)[0]) if weight else 0
    right = Sums(*lines_of(data_dir / file), weight, also, Fraction if decimal < 6 else float)
    with apsp.open(tmp_path / "s.zarr") as matrix:
        place = {int(name): k for k, name in enumerate(graph.labels.tolist())}
        assert set(place) >= set(right.vertices)
        for source in right.vertices[::step]:
            wanted = np.full((1 + len(also), graph.n), np.inf)
            for vertex, sums in right.row(source).items():
                wanted[:, place[vertex]] = [float(value) for value in sums]
            row = matrix.row(place[source])
            np.testing.assert_allclose(
                np.where(row == matrix.unreachable, np.inf, row),
                wanted[0],
                rtol=1e-12 if row.dtype.itemsize > 4 or row.dtype.kind != "f" else 2**-24,
            )
            for name, column in zip(also, wanted[1:], strict=True):
                sums = matrix.also[name].row(place[source])
                found = np.where(sums == matrix.also[name].unreachable, np.inf, sums)
                np.testing.assert_allclose(found, column, rtol=1e-12, err_msg=f"{name} from {source}")


def networkx_of(graph: Graph) -> nx.DiGraph:
    """Return the graph for NetworkX, with weights in thousandths, which are whole; an arc into a terminal leads to a
    vertex of its own, ("to", v), from which none leads on.
    """
    whole = np.rint(graph.weights * 1000.0).astype(int)
    np.testing.assert_allclose(whole / 1000, graph.weights, rtol=1e-12)
    made = nx.DiGraph() if graph.directed else nx.Graph()
    made.add_nodes_from(range(graph.n))
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    for u, v, weight in zip(tails.tolist(), graph.heads.tolist(), whole.tolist(), strict=True):
        made.add_edge(u, ("to", v) if v < graph.terminals else v, weight=weight)
    return made


BETWEEN: list[Any] = [
    ("celegansneural.gml", {"weight": "value"}),
    ("celegans_metabolic.graph", {}),
    ("monaco_drive.csv", {}),
    pytest.param("power.graph", {}, marks=pytest.mark.long),
    pytest.param("helsinki_drive.csv", {"unweighted": True}, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("file", "reading"), BETWEEN)
def test_betweenness_is_networkxs(file: str, reading: Mapping[str, Any], data_dir: Path) -> None:
    graph, _ = apsp.read_graph(data_dir / file, **reading)
    whole, weight = networkx_of(graph), None if (graph.weights == 1).all() else "weight"
    for raw, endpoints in ((False, False), (True, True)):
        found = apsp.betweenness(graph, normalized=not raw, endpoints=endpoints)
        wanted = nx.betweenness_centrality(whole, normalized=not raw, weight=weight, endpoints=endpoints)
        np.testing.assert_allclose(found.values, [wanted[v] for v in range(graph.n)], rtol=1e-9, atol=1e-12)
    over = apsp.betweenness(graph, arcs=True)
    edges = nx.edge_betweenness_centrality(whole, weight=weight)
    assert over.heads is not None
    assert len(over) == len(edges)
    for u, v, value in zip(over.tails.tolist(), over.heads.tolist(), over.values.tolist(), strict=True):
        assert value == pytest.approx(edges[u, v] if (u, v) in edges else edges[v, u], rel=1e-9)


@pytest.mark.parametrize(
    ("file", "step"),
    [("SiouxFalls_net.tntp", 1), ("Anaheim_net.tntp", 5), pytest.param("Winnipeg_net.tntp", 3, marks=pytest.mark.long)],
)
def test_assigned_demands_share_all_shortest_paths_and_pass_no_zone(file: str, step: int, data_dir: Path) -> None:
    graph, _ = apsp.read_graph(data_dir / file, weight="length")
    graph = replace(graph, weights=np.round(graph.weights, 3))  # Winnipeg's lengths were single floats once
    assert (graph.weights > 0).all()
    zones = range(0, graph.terminals or graph.n, step)
    pairs = [(u, v) for u in zones for v in zones]
    flows = np.array([(7 * u + 3 * v) % 11 + 0.5 for u, v in pairs])
    ends = np.array(pairs)
    found = apsp.assign(graph, apsp.Demands(ends[:, 0], ends[:, 1], flows))
    whole, wanted, cost = networkx_of(graph), {}, 0.0
    for (u, v), flow in zip(pairs, flows.tolist(), strict=True):
        if u == v:
            continue
        target: Any = ("to", v) if v < graph.terminals else v
        paths = list(nx.all_shortest_paths(whole, u, target, weight="weight"))
        cost += flow * nx.path_weight(whole, paths[0], "weight") / 1000
        for path in paths:
            for arc in nx.utils.pairwise(path):
                wanted[arc] = wanted.get(arc, 0.0) + flow / len(paths)
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr)).tolist()
    heads = [("to", v) if v < graph.terminals else v for v in graph.heads.tolist()]
    right = [wanted.get(arc, 0.0) for arc in zip(tails, heads, strict=True)]
    np.testing.assert_allclose(found.flow, right, rtol=1e-9, atol=1e-9)
    assert found.cost == pytest.approx(cost)
    assert found.lost == 0
