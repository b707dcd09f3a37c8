"""OpenStreetMap extracts: written by libosmium, read by apsp, and compared with a reader of plain loops."""

from __future__ import annotations

import gzip
import itertools
import math
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import osmium
import pytest

from storage.errors import InvalidGraph, InvalidRequest, LimitExceeded
from storage.graph.graph import Graph
from storage.readers import ReadLimits, read_graph
from storage.readers.networks.osm_modes import MODES

Node = tuple[float, float, dict[str, str]]
Way = tuple[list[int], dict[str, str]]


def write(path: Path, nodes: dict[int, Node], ways: list[Way]) -> Path:
    """Write an extract; the ending of the name decides the format."""
    made = osmium.osm.mutable
    with osmium.SimpleWriter(str(path), overwrite=True) as writer:
        for id_, (lon, lat, tags) in sorted(nodes.items()):
            writer.add_node(made.Node(id=id_, location=(lon, lat), tags=tags, version=1))
        for id_, (refs, tags) in enumerate(ways, 1):
            writer.add_way(made.Way(id=id_, nodes=refs, tags=tags, version=1))
    return path


def metres(a: Node, b: Node) -> float:
    """The angle between two vectors, where the reader has the haversine formula."""
    one, two = (
        np.array([math.cos(y) * math.cos(x), math.cos(y) * math.sin(x), math.sin(y)])
        for x, y in ((math.radians(p[0]), math.radians(p[1])) for p in (a, b))
    )
    return 6_371_008.8 * math.atan2(float(np.linalg.norm(np.cross(one, two))), float(one @ two))


def reference(nodes: dict[int, Node], ways: list[Way], mode: str) -> dict[tuple[int, int], float]:
    """Arcs of the largest part, in metres, by plain loops; none where two parts are as large as each other."""
    kind = MODES[mode]
    used = [(refs, tags) for refs, tags in ways if kind.speed(tags) and any(kind.directions(tags)) and len(refs) > 1]
    seen = Counter(ref for refs, _ in used for ref in refs)
    ends = {ref for refs, _ in used for ref in (refs[0], refs[-1])}
    graph = nx.DiGraph()
    for refs, tags in used:
        forward, backward = kind.directions(tags)
        stop = [i for i, ref in enumerate(refs) if seen[ref] > 1 or ref in ends]
        for first, last in itertools.pairwise(stop):
            piece = refs[first : last + 1]
            if any(ref not in nodes or kind.stops(nodes[ref][2]) for ref in piece):
                continue
            length = sum(metres(nodes[a], nodes[b]) for a, b in itertools.pairwise(piece))
            for allowed, u, v in ((forward, piece[0], piece[-1]), (backward, piece[-1], piece[0])):
                if allowed and u != v:
                    graph.add_edge(u, v, length=min(length, graph.get_edge_data(u, v, {"length": math.inf})["length"]))
    parts = sorted(nx.strongly_connected_components(graph), key=len, reverse=True)
    if len(parts) > 1 and len(parts[0]) == len(parts[1]):
        return {}
    return {(u, v): d["length"] for u, v, d in graph.subgraph(parts[0] if parts else ()).edges(data=True)}


def arcs(graph: Graph) -> dict[tuple[int, int], float]:
    tails = np.repeat(graph.labels, np.diff(graph.indptr)).tolist()
    pairs = zip(tails, graph.labels[graph.heads].tolist(), strict=True)
    return dict(zip(pairs, graph.weights.tolist(), strict=True))


def town(seed: int) -> tuple[dict[int, Node], list[Way]]:
    draw = random.Random(seed)
    count = draw.randrange(4, 40)
    ids = [10**10 * draw.randrange(2) + i for i in range(1, count + 1)]
    tags: list[dict[str, str]] = [{}, {}, {}, {}, {"barrier": "bollard"}, {"barrier": "gate"}, {"barrier": "stile"}]
    nodes = {i: (25 + draw.random() / 20, 60 + draw.random() / 20, draw.choice(tags)) for i in ids}
    kinds = ["residential", "residential", "footway", "cycleway", "motorway", "service", "steps", "track", "proposed"]
    more: list[dict[str, str]] = [
        *({} for _ in range(6)),
        *({"oneway": value} for value in ("yes", "-1", "no", "reversible")),
        *({"access": value} for value in ("private", "yes", "destination")),
        {"foot": "no"}, {"bicycle": "yes"}, {"motor_vehicle": "no"}, {"area": "yes"},
        {"junction": "roundabout"}, {"oneway": "yes", "oneway:bicycle": "no"}, {"service": "parking_aisle"},
    ]  # fmt: skip
    ways = []
    for _ in range(draw.randrange(1, 30)):
        refs = [draw.choice(ids) for _ in range(draw.randrange(2, 7))]
        refs = [ref for ref, _ in itertools.groupby(refs)]
        ways.append((refs, {"highway": draw.choice(kinds), **draw.choice(more)}))
    if draw.random() < 0.3:
        del nodes[draw.choice(ids)]  # as at the border of an extract
    return nodes, ways


@pytest.mark.parametrize("mode", MODES)
def test_arcs_are_those_of_plain_loops(mode: str, tmp_path: Path) -> None:
    told = 0
    for seed in range(40):
        nodes, ways = town(seed)
        path = write(tmp_path / ("town.osm.pbf" if seed % 2 else "town.osm"), nodes, ways)
        kept = {i: (round(lon, 7), round(lat, 7), tags) for i, (lon, lat, tags) in nodes.items()}
        expected = reference(kept, ways, mode)
        if not expected:
            continue  # no arc, or two parts of the same size
        graph, _ = read_graph(path, mode=mode, weight="metres")
        told += 1
        found = arcs(graph)
        assert found.keys() == expected.keys(), seed
        assert graph.coordinates is not None
        assert graph.coordinates.geographic
        places = zip(graph.coordinates.x.tolist(), graph.coordinates.y.tolist(), strict=True)
        assert dict(zip(graph.labels.tolist(), places, strict=True)) == {
            v: kept[v][:2] for arc in expected for v in arc
        }
        assert graph.directed == MODES[mode].directed
        for arc, length in found.items():
            assert length == pytest.approx(expected[arc], abs=0.051)
    assert told > 10


SQUARE: dict[int, Node] = {
    1: (25.0, 60.0, {}), 2: (25.01, 60.0, {}), 3: (25.01, 60.01, {}), 4: (25.0, 60.01, {}), 5: (25.02, 60.0, {}),
}  # fmt: skip


def test_seconds_are_metres_by_speed(tmp_path: Path) -> None:
    ways: list[Way] = [
        ([1, 2, 3, 4, 1], {"highway": "residential", "maxspeed": "20 mph"}),
        ([2, 5], {"highway": "steps"}),
    ]
    path = write(tmp_path / "a.osm.pbf", SQUARE, ways)
    drive, receipt = read_graph(path, mode="driving")
    assert receipt.format == "osm"
    assert (receipt.weight_column, drive.unit) == ("seconds", "s")
    assert drive.n == 1  # only one of its nodes is an end or a junction
    walk, _ = read_graph(path, mode="walking")
    short = metres(SQUARE[1], SQUARE[2])
    assert arcs(walk)[1, 2] == pytest.approx(short / 5 * 3.6, abs=0.051)
    assert arcs(walk)[2, 5] == pytest.approx(short / 2.5 * 3.6, abs=0.051)
    ways = [([1, 2], {"highway": "residential", "maxspeed": "20 mph"})]
    drive, _ = read_graph(write(tmp_path / "b.osm.pbf", SQUARE, ways), mode="driving")
    assert arcs(drive)[1, 2] == arcs(drive)[2, 1] == pytest.approx(short / (20 * 1.609344) * 3.6, abs=0.051)
    hops, _ = read_graph(path, mode="walking", unweighted=True)
    assert set(arcs(hops).values()) == {1}


def test_notes_say_what_is_left_out(tmp_path: Path) -> None:
    nodes = {**SQUARE, 6: (25.5, 60.0, {}), 7: (25.6, 60.0, {}), 8: (25.03, 60.0, {"barrier": "bollard"})}
    ways: list[Way] = [
        ([1, 2, 3], {"highway": "residential"}), ([6, 7], {"highway": "residential"}),
        ([2, 9], {"highway": "residential"}), ([2, 8], {"highway": "residential"}),
        ([1, 4], {"route": "ferry"}), ([1, 4], {"highway": "construction"}),
    ]  # fmt: skip
    _, receipt = read_graph(write(tmp_path / "a.osm.pbf", nodes, ways), mode="driving")
    told = "\n".join(receipt.notes)
    for part in ("4 of 5 ways are open for driving", "3 of 5 junctions", "2 stretches", "1 node of theirs", "1 ferry"):
        assert part in told, told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs --mode: walking, cycling, driving"),
        ({"mode": "flying"}, "'flying' is unknown"),
        ({"mode": "driving", "directed": False}, "driving is directed"),
        ({"mode": "walking", "directed": True}, "walking is undirected"),
        ({"mode": "walking", "weight": "length"}, "seconds and metres, not 'length'"),
        ({"mode": "walking", "labels": "name"}, "--labels has no meaning"),
    ],
)
def test_options_are_checked(options: Any, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.osm.pbf", SQUARE, [([1, 2], {"highway": "residential"})])
    with pytest.raises(InvalidRequest, match=said):
        read_graph(path, **options)


def test_other_formats_have_no_mode(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("from,to,weight\n1,2,3\n")
    with pytest.raises(InvalidRequest, match="--mode has no meaning for edges files"):
        read_graph(tmp_path / "a.csv", mode="walking")


def test_formats_are_told_by_content(tmp_path: Path) -> None:
    ways: list[Way] = [([1, 2, 3], {"highway": "residential"})]
    pbf, text = (write(tmp_path / name, SQUARE, ways) for name in ("a.osm.pbf", "a.osm"))
    odd, packed = tmp_path / "odd.bin", tmp_path / "b.osm.gz"
    shutil.copy(pbf, odd)
    packed.write_bytes(gzip.compress(text.read_bytes()))
    found = {str(arcs(read_graph(path, mode="walking")[0])) for path in (pbf, text, odd, packed)}
    assert len(found) == 1


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    nodes: dict[int, Node] = {i: (25 + i / 1e4, 60.0, {}) for i in range(1, 3000)}
    good = write(tmp_path / "a.osm.pbf", nodes, [([*nodes], {"highway": "residential"})]).read_bytes()
    draw = random.Random(1)
    told = 0
    for k in range(120):
        bad = bytearray(good[: draw.randrange(20, len(good))] if k % 2 else good)
        for _ in range(draw.randrange(1, 5)):
            bad[draw.randrange(min(15, len(bad)), len(bad))] = draw.randrange(256)
        (tmp_path / "bad.osm.pbf").write_bytes(bad)
        try:
            read_graph(tmp_path / "bad.osm.pbf", mode="driving", format="osm")
        except (InvalidGraph, LimitExceeded):
            told += 1
    assert told > 60
    empty = write(tmp_path / "b.osm.pbf", nodes, [([1, 2], {"building": "yes"})])
    with pytest.raises(InvalidGraph, match="no way for driving"):
        read_graph(empty, mode="driving")


def test_limits_hold(tmp_path: Path) -> None:
    nodes: dict[int, Node] = {i: (25 + i / 1e4, 60.0, {}) for i in range(1, 3000)}
    path = write(tmp_path / "a.osm.pbf", nodes, [([*nodes], {"highway": "residential"})])
    with pytest.raises(LimitExceeded, match="max_arcs"):
        read_graph(path, mode="driving", limits=ReadLimits(max_arcs=1000))


@pytest.mark.parametrize(
    ("mode", "tags", "speed", "directions"),
    [
        ("driving", {"highway": "motorway"}, 110, (True, False)),
        ("driving", {"highway": "motorway", "oneway": "no"}, 110, (True, True)),
        ("driving", {"highway": "residential", "maxspeed": "none"}, 130, (True, True)),
        ("driving", {"highway": "residential", "maxspeed": "FI:urban"}, 30, (True, True)),
        ("driving", {"highway": "residential", "maxspeed": "500"}, 30, (True, True)),
        ("driving", {"highway": "residential", "access": "no", "motorcar": "yes"}, 30, (True, True)),
        ("driving", {"highway": "residential", "vehicle": "no"}, 0, (True, True)),
        ("driving", {"highway": "footway", "motorcar": "yes"}, 0, (True, True)),
        ("driving", {"highway": "service", "service": "parking_aisle"}, 0, (True, True)),
        ("driving", {"highway": "trunk", "motorroad": "yes"}, 85, (True, True)),
        ("walking", {"highway": "trunk", "motorroad": "yes"}, 0, (True, True)),
        ("walking", {"highway": "motorway"}, 0, (True, True)),
        ("walking", {"highway": "cycleway"}, 0, (True, True)),
        ("walking", {"highway": "cycleway", "foot": "designated"}, 5, (True, True)),
        ("walking", {"highway": "residential", "oneway": "yes", "maxspeed": "50"}, 5, (True, True)),
        ("cycling", {"highway": "residential", "oneway": "yes"}, 16, (True, False)),
        ("cycling", {"highway": "residential", "oneway": "yes", "oneway:bicycle": "no"}, 16, (True, True)),
        ("cycling", {"highway": "residential", "oneway": "yes", "cycleway:left": "opposite_lane"}, 16, (True, True)),
        ("cycling", {"highway": "residential", "oneway": "-1"}, 16, (False, True)),
        ("cycling", {"highway": "footway"}, 0, (True, True)),
        ("cycling", {"highway": "footway", "bicycle": "yes"}, 10, (True, True)),
        ("cycling", {"highway": "steps", "bicycle": "yes"}, 0, (True, True)),
    ],
)
def test_rules_of_ways(mode: str, tags: dict[str, str], speed: float, directions: tuple[bool, bool]) -> None:
    assert MODES[mode].speed(tags) == speed
    assert MODES[mode].directions(tags) == directions


@pytest.mark.parametrize(
    ("mode", "tags", "stops"),
    [
        ("driving", {}, False),
        ("driving", {"barrier": "bollard"}, True),
        ("driving", {"barrier": "gate"}, False),
        ("driving", {"barrier": "gate", "access": "private"}, True),
        ("driving", {"barrier": "bollard", "motor_vehicle": "yes"}, False),
        ("driving", {"access": "private"}, False),
        ("cycling", {"barrier": "bollard"}, False),
        ("walking", {"barrier": "stile"}, False),
        ("walking", {"barrier": "gate", "foot": "no"}, True),
    ],
)
def test_rules_of_barriers(mode: str, tags: dict[str, str], stops: bool) -> None:
    assert MODES[mode].stops(tags) == stops


@pytest.mark.parametrize(("weight", "unit"), [("seconds", "s"), ("metres", "m")])
def test_junctions_keep_their_coordinates_and_weights_their_unit(tmp_path: Path, weight: str, unit: str) -> None:
    nodes: dict[int, Node] = {30: (24.9, 60.1, {}), 4: (24.95, 60.15, {}), 7: (24.92, 60.11, {}), 9: (25.0, 60.2, {})}
    streets = [([30, 7, 4], {"highway": "residential"}), ([4, 9], {"highway": "residential"})]
    path = write(tmp_path / "town.osm.pbf", nodes, streets)
    graph, _ = read_graph(path, mode="driving", weight=weight)
    assert graph.labels.tolist() == [4, 9, 30]  # 7 only bends the line
    placed = graph.coordinates
    assert placed is not None
    assert placed.geographic
    np.testing.assert_allclose(np.stack([placed.x, placed.y], axis=1), [nodes[k][:2] for k in (4, 9, 30)], atol=1e-7)
    assert graph.unit == unit
    assert read_graph(path, mode="driving", weight=weight, unit="h")[0].unit == "h"
    assert read_graph(path, mode="driving", unweighted=True)[0].unit is None
