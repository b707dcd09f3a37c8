"""Node-link and adjacency JSON with one or two members changed: read as NetworkX does, or refused."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from storage.errors import ApspError, InvalidGraph
from storage.readers import read_graph

ODD = [0, 1, 2.0, -1, "1", "a", "", True, False, None, [], [1], {}, {"id": 1}, [["a"]], "true", math.inf, "01", " 1"]
NAMES = ["foo", "key", "id", "source", "directed", "weight", "links", "edges", "multigraph", "label"]


def sound(chance: random.Random) -> dict[str, Any]:
    """A graph as NetworkX writes it."""
    several, directed = chance.random() < 0.4, chance.random() < 0.5
    kind = {
        (False, False): nx.Graph,
        (False, True): nx.DiGraph,
        (True, False): nx.MultiGraph,
        (True, True): nx.MultiDiGraph,
    }
    graph = kind[several, directed]()
    vertices: list[Any] = list(range(chance.randint(2, 4)))
    if chance.random() < 0.3:
        vertices = list(map(str, vertices))
    graph.add_nodes_from(vertices)
    for _ in range(chance.randint(0, 5)):
        graph.add_edge(*chance.sample(vertices, 2), weight=chance.randint(1, 9))
    form = chance.choice(["links", "edges", "adjacency"])
    return nx.adjacency_data(graph) if form == "adjacency" else nx.node_link_data(graph, edges=form)


def spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from spots(inner, (*path, key))


def change(document: dict[str, Any], chance: random.Random) -> None:
    """Change, remove, repeat or add one member somewhere."""
    path = chance.choice([path for path in spots(document) if path])
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    last, how = path[-1], chance.random()
    if how < 0.4:
        place[last] = chance.choice(ODD)
    elif how < 0.6:
        del place[last]
    elif isinstance(place, list):
        place.insert(last, copy.deepcopy(place[last])) if how < 0.8 else place.reverse()
    else:
        place[chance.choice(NAMES)] = chance.choice(ODD)


def lengths(document: dict[str, Any]) -> tuple[set[str], dict[tuple[str, str], float]]:
    """Vertices, and lengths of arcs, of the graph that NetworkX reads."""
    if "adjacency" in document:
        graph = nx.adjacency_graph(document)
    else:
        graph = nx.node_link_graph(document, edges="links" if "links" in document else "edges")
    found: dict[tuple[str, str], float] = {}
    for tail, head, weight in graph.edges(data="weight", default=1):
        for ends in [(tail, head)] if graph.is_directed() else [(tail, head), (head, tail)]:
            if tail != head and float(weight) < math.inf:
                found[str(ends[0]), str(ends[1])] = min(
                    found.get((str(ends[0]), str(ends[1])), math.inf), float(weight)
                )
    return set(map(str, graph)), found


@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_is_what_networkx_reads(tmp_path: Path, seed: int):
    chance, path = random.Random(seed), tmp_path / "graph.json"
    read = 0
    for _ in range(150):
        document = sound(chance)
        for _ in range(chance.randint(0, 2)):
            change(document, chance)
        text = json.dumps(document)
        path.write_text(text)
        try:
            graph, receipt = read_graph(path)
        except ApspError:
            continue
        read += 1
        given = document.pop("graph", None)
        pairs = isinstance(given, list) and all(isinstance(one, list) and len(one) == 2 for one in given)
        if not (given is None or isinstance(given, dict) or pairs):
            assert any("graph" in note for note in receipt.notes), text
        for i, edge in enumerate(chain.from_iterable(document.get("adjacency", ()))):
            if edge.get("key") is None:  # NetworkX wants a key in every neighbour of a multigraph
                edge["key"] = f"key {i}"
        document.setdefault("graph", {})
        names = list(map(str, graph.labels))
        arcs = {
            (names[tail], names[graph.heads[at]]): float(graph.weights[at])
            for tail in range(graph.n) for at in range(graph.indptr[tail], graph.indptr[tail + 1])
        }  # fmt: skip
        assert (set(names), arcs) == lengths(document), text
    assert read > 50


NODES = '"nodes": [{"id": 0}, {"id": 1}]'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"directed": false, "multigraph": false, NODES, "links": [{"source": 0, "target": 1, "weight": 2}, '
         '{"source": 1, "target": 0, "weight": 3}]}', "the edge '0' - '1' has the weights 2 and 3"),
        ('{"directed": true, "multigraph": false, NODES, "adjacency": [[{"id": 1, "weight": 2}, '
         '{"id": 1, "weight": 3}], []]}', "'multigraph' is false"),
        ('{"directed": true, "multigraph": true, NODES, "edges": [{"source": 0, "target": 1, "key": [1]}]}', "'key'"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(tmp_path: Path, text: str, words: str):
    path = tmp_path / "graph.json"
    path.write_text(text.replace("NODES", NODES))
    with pytest.raises(InvalidGraph, match=words):
        read_graph(path)


def test_one_weight_said_twice_and_parallel_edges_are_read(tmp_path: Path):
    path = tmp_path / "graph.json"
    edges = '"links": [{"source": 0, "target": 1, "weight": 2}, {"source": 1, "target": 0, "weight": W}]'
    for several, directed, weight in (("false", "false", 2), ("true", "false", 3), ("false", "true", 3)):
        path.write_text(
            f'{{"directed": {directed}, "multigraph": {several}, {NODES}, {edges.replace("W", str(weight))}}}'
        )
        assert read_graph(path)[0].arcs == 2


@pytest.mark.parametrize("value", ['"x"', "1", "true", '[["a"]]', "[1]"])
def test_attributes_of_no_known_form_are_named(tmp_path: Path, value: str):
    path = tmp_path / "graph.json"
    path.write_text(f'{{"directed": true, "graph": {value}, {NODES}, "links": []}}')
    assert any("graph" in note for note in read_graph(path)[1].notes)
