"""Tests that our readers read files that NetworkX has written, to the same graph that NetworkX reads from them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import InvalidGraph
from storage.graph.graph import Graph
from storage.readers import read_graph

RELAXED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

whole = st.integers(-(10**6), 10**6)
fractions = st.floats(-1e9, 1e9, allow_nan=False)
#: Names that every writer can write: those of lists stand between blanks, and # starts a comment there.
words = st.text(
    st.characters(categories=("L", "N", "P", "S"), exclude_characters="#{}[]\"'&<>\\,;|"), min_size=1, max_size=6
)


@st.composite
def graphs(draw: st.DrawFn) -> nx.Graph[Any]:
    """Graphs of every kind of NetworkX, without self loops (whose sign would matter) and without lone vertices."""
    kind = draw(st.sampled_from([nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]))
    names = draw(st.one_of(st.lists(st.integers(-5, 2000), min_size=2, max_size=8, unique=True), names_of_words()))
    ends = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda e: e[0] != e[1])
    edges = draw(st.lists(st.tuples(ends, st.one_of(whole, fractions)), min_size=1, max_size=15))
    graph: nx.Graph[Any] = kind()
    for (u, v), weight in edges:
        graph.add_edge(u, v, weight=weight, colour="red")
    return graph


def names_of_words() -> st.SearchStrategy[list[str]]:
    """Names, at least one of which is no number: a file of numbers cannot say that they are meant as text."""
    return st.lists(words, min_size=2, max_size=8, unique=True).map(lambda names: [f"n{name}" for name in names])


def arcs_of(graph: Graph) -> dict[tuple[Any, Any], float]:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = graph.labels.tolist()
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return {(names[u], names[v]): w for u, v, w in rows}


def least(graph: nx.Graph[Any]) -> dict[tuple[Any, Any], float]:
    arcs: dict[tuple[Any, Any], float] = {}
    for u, v, weight in graph.edges(data="weight"):
        for ends in [(u, v)] if graph.is_directed() else [(u, v), (v, u)]:
            arcs[ends] = min(arcs.get(ends, np.inf), weight)
    return arcs


def numbered(graph: nx.Graph[Any], first: int) -> nx.Graph[Any]:
    return nx.relabel_nodes(graph, {node: first + i for i, node in enumerate(graph)})


def same_kind(graph: nx.Graph[Any]) -> dict[str, Any]:
    """For the lists, which do not say what vertices and edges are."""
    nodes = int if all(isinstance(node, int) for node in graph) else str
    return {"create_using": type(graph), "nodetype": nodes}


Form = tuple[Callable[..., bytes], Callable[..., Any], Callable[..., Any]]


def written(write: Callable[..., None], graph: nx.Graph[Any], **options: Any) -> bytes:
    out = io.BytesIO()
    write(graph, out, **options)
    return out.getvalue()


def as_json(data: Callable[..., Any], back: Callable[..., nx.Graph[Any]]) -> Form:
    return (
        lambda graph: json.dumps(data(graph)).encode(),
        lambda content, _: back(json.loads(content)),
        lambda graph: graph,
    )


#: Writer, NetworkX's own reader, and what becomes of the vertices' names.
FORMS: dict[str, Form] = {
    "node-link": as_json(nx.node_link_data, nx.node_link_graph),
    "adjacency": as_json(nx.adjacency_data, nx.adjacency_graph),
    "graphml": (
        lambda graph: written(nx.write_graphml_xml, graph),
        lambda content, graph: nx.read_graphml(io.BytesIO(content), node_type=same_kind(graph)["nodetype"]),
        lambda graph: graph,
    ),
    "gexf": (
        lambda graph: written(nx.write_gexf, graph),
        lambda content, graph: nx.read_gexf(io.BytesIO(content), node_type=same_kind(graph)["nodetype"]),
        lambda graph: graph,
    ),
    "gml": (
        lambda graph: written(nx.write_gml, graph),
        lambda content, _: nx.read_gml(io.BytesIO(content), label="id"),
        lambda graph: numbered(graph, 0),
    ),
    "pajek": (
        lambda graph: written(nx.write_pajek, graph),
        lambda content, _: nx.relabel_nodes(
            graph := nx.read_pajek(io.BytesIO(content)), {node: int(graph.nodes[node]["id"]) for node in graph}
        ),
        lambda graph: numbered(graph, 1),
    ),
    "edgelist": (
        lambda graph: written(nx.write_edgelist, graph),
        lambda content, graph: nx.read_edgelist(io.BytesIO(content), **same_kind(graph)),
        lambda graph: graph,
    ),
    "multiline": (
        lambda graph: written(nx.write_multiline_adjlist, graph),
        lambda content, graph: nx.read_multiline_adjlist(io.BytesIO(content), **same_kind(graph)),
        lambda graph: graph,
    ),
    "weighted": (
        lambda graph: written(nx.write_weighted_edgelist, graph),
        lambda content, graph: nx.read_weighted_edgelist(io.BytesIO(content), **same_kind(graph)),
        lambda graph: graph,
    ),
}
LISTS = ("edgelist", "multiline", "weighted")


@pytest.mark.parametrize("form", FORMS)
@RELAXED
@given(graph=graphs())
def test_read_as_networkx_reads_it(form: str, graph: nx.Graph[Any], tmp_path: Path) -> None:
    write, back, renamed = FORMS[form]
    content = write(graph)
    path = tmp_path / "file"
    path.write_bytes(content)
    try:
        found, _ = read_graph(path, directed=graph.is_directed() if form in LISTS else None)
    except InvalidGraph as error:
        # A sentence that says that there are two readings is an answer, too; only lists may need it.
        if form in LISTS and "--format" in str(error):
            return
        raise
    assert arcs_of(found) == least(renamed(graph)), content
    assert found.directed == graph.is_directed()
    assert arcs_of(found) == least(back(content, graph)), content
