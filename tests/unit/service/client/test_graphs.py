"""Every kind of graph that a caller may have becomes a file that the readers understand as the same graph."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from service.client.graphs import prepared
from service.client.names import Names
from storage.errors import InvalidGraph, InvalidRequest, NotFound
from storage.options import ReadingOptions
from storage.readers import read_graph

Arcs = dict[tuple[Any, Any], float]


def understood(graph: Any, **how: Any) -> tuple[set[Any], Arcs]:
    """Vertices and arcs, named as the caller names them, after the round trip through the file."""
    with prepared(graph, ReadingOptions(**how)) as upload:
        query = upload.query
        read, _ = read_graph(
            upload.file,
            format=query.get("format"),
            directed=query.get("directed"),
            weight=query.get("weight"),
            unweighted=bool(query.get("unweighted")),
        )
        names = upload.names
    labels = [int(v) if read.labels.dtype.kind in "iu" else str(v) for v in read.labels]
    vertices = names.vertices(labels)
    tails = np.repeat(np.arange(read.n), np.diff(read.indptr))
    arcs = {(vertices[u], vertices[v]): float(w) for u, v, w in zip(tails, read.heads, read.weights, strict=True)}
    return set(vertices), arcs


def arcs_of(graph: nx.Graph, weight: str = "weight") -> Arcs:
    """The lightest arc between every two vertices, in both directions where there is none."""
    found: Arcs = {}
    for u, v, w in graph.edges(data=weight, default=1):
        for pair in [(u, v)] if graph.is_directed() else [(u, v), (v, u)]:
            if u != v:
                found[pair] = min(found.get(pair, np.inf), float(w))
    return found


def named() -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a, b", 'say "hi"', 2.5), ('say "hi"', "<b>é</b>", 1), ("<b>é</b>", "a, b", 0)])
    graph.add_node("alone")
    return graph


@pytest.mark.parametrize(
    "graph",
    [
        named(),
        nx.path_graph(5),
        nx.grid_2d_graph(2, 3),
        nx.MultiGraph([(1, 2, {"weight": 3}), (1, 2, {"weight": 2}), (7, 7)]),
        nx.Graph([("x", 1, {"weight": 2}), (1, (2, 3), {})]),
        nx.Graph([(-5, 2**62), (2**62, 0)]),
        nx.empty_graph(3),
        nx.Graph(),
        nx.DiGraph([(1.5, 2.5)]),
    ],
    ids=["named", "path", "grid", "multi", "mixed", "large", "empty", "nothing", "floats"],
)
def test_networkx(graph):
    assert understood(graph) == (set(graph.nodes), arcs_of(graph))


def test_networkx_with_another_weight_without_one_and_with_none():
    graph = nx.Graph([("a", "b", {"km": 3.5, "weight": 1}), ("b", "c", {})])
    assert understood(graph, weight="km")[1] == arcs_of(graph, "km")
    assert set(understood(graph, unweighted=True)[1].values()) == {1.0}
    with pytest.raises(InvalidRequest, match="no edge has the attribute 'miles'"):
        understood(graph, weight="miles")
    with pytest.raises(InvalidRequest, match="not a function"):
        understood(graph, weight=lambda u, v, d: 1)


@pytest.mark.parametrize("vertex", [1, np.int64(1)])
def test_two_vertices_of_one_name_are_refused(vertex):
    with pytest.raises(InvalidRequest, match="two vertices are called '1'"):
        understood(nx.Graph([(vertex, "1")]))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok"])
@pytest.mark.parametrize("kind", [np.float64, np.int32, np.bool_])
def test_scipy(form, kind):
    matrix = sparse.random_array((6, 6), density=0.4, rng=1, data_sampler=lambda size: np.arange(1, size + 1)).astype(
        kind
    )
    vertices, arcs = understood(matrix.asformat(form))
    dense = matrix.toarray()
    np.fill_diagonal(dense, 0)
    assert vertices == set(range(6))
    assert arcs == {(int(u), int(v)): float(dense[u, v]) for u, v in np.argwhere(dense)}


def test_scipy_adds_up_what_is_stored_twice_and_keeps_a_stored_zero():
    matrix = sparse.coo_matrix(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 2])), (3, 3))
    assert understood(matrix)[1] == {(0, 1): 3.0, (1, 2): 0.0}


def test_a_dense_matrix():
    array = np.array([[0, 2.5, np.inf], [0, 0, 1], [4, 0, 9]])
    expected = {(0, 1): 2.5, (1, 2): 1.0, (2, 0): 4.0}
    assert understood(array) == ({0, 1, 2}, expected)
    assert understood(np.asfortranarray(array))[1] == expected
    assert understood(np.ma.masked_invalid(array))[1] == expected
    assert understood(array, directed=False)[1] == expected | {(v, u): w for (u, v), w in expected.items()}


TABLE = {"from": ["a", "b"], "to": ["b", "c, d"], "km": [1.5, 2]}
TABLE_ARCS = {("a", "b"): 1.5, ("b", "c, d"): 2.0}


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(TABLE),
        pd.DataFrame(TABLE).astype({"from": "category", "to": object}),
        pd.DataFrame({**TABLE, "when": pd.to_datetime(["2026-01-01"] * 2)})[["when", "to", "from", "km"]],
        pl.DataFrame(TABLE),
        pl.LazyFrame(TABLE),
        pl.DataFrame(TABLE, schema_overrides={"from": pl.Categorical}),
    ],
    ids=["pandas", "pandas-kinds", "pandas-order", "polars", "lazy", "categorical"],
)
def test_tables(table):
    assert understood(table)[1] == TABLE_ARCS


@pytest.mark.parametrize("library", [pd, pl])
def test_columns_of_a_table_can_be_named(library):
    table = library.DataFrame({"kind": ["x", "y"], "one": [3, 4], "two": [4, 5], "cost": [1, 1], "toll": [7, 8]})
    assert understood(table, source="one", target="two", weight="toll")[1] == {(3, 4): 7.0, (4, 5): 8.0}
    assert understood(table, source="two", target="one", unweighted=True)[1] == {(4, 3): 1.0, (5, 4): 1.0}
    with pytest.raises(InvalidRequest, match="no column 'tol'; there are kind, one"):
        understood(table, weight="tol")


@pytest.mark.parametrize("library", [pd, pl])
def test_tables_follow_the_rules_of_edge_lists(library):
    ends = {"u": [1, 2], "v": [2, 3]}
    for columns, said in (
        ({**ends, "key": [0, 0]}, "'key' holds numbers, but is not named like a length"),
        ({**ends, "time": [1289241912, 1289241942]}, "the values of 'time' are dates"),
        ({"id": [1, 2], "x": [2, 3], "y": [1.5, 2]}, "'id' does not read like a column of vertices"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            understood(library.DataFrame(columns))
    both = {**ends, "km": [1.5, 2], "Type": ["Undirected", "Undirected"]}
    assert understood(library.DataFrame(both))[1] == {(1, 2): 1.5, (2, 1): 1.5, (2, 3): 2.0, (3, 2): 2.0}
    assert understood(library.DataFrame(both), directed=True)[1] == {(1, 2): 1.5, (2, 3): 2.0}
    with pytest.raises(InvalidGraph, match="both directed and undirected"):
        understood(library.DataFrame({**ends, "km": [1.5, 2], "directed": [True, False]}))


def test_nullable_whole_numbers_of_pandas():
    table = pd.DataFrame({"u": [1, 2], "v": [2, 3], "w": [4, 5]}).astype("Int64")
    assert understood(table)[1] == {(1, 2): 4.0, (2, 3): 5.0}


def test_a_gap_in_a_table_is_named():
    table = pd.DataFrame({"u": ["a", None], "v": ["b", "c"], "w": [1, 2]})
    with pytest.raises(InvalidRequest, match="edge 2 lacks a vertex"):
        understood(table)


@pytest.mark.parametrize(
    "arrays",
    [
        ([1, 2], [2, 3], [4, 5.5]),
        (np.array([1, 2]), np.array([2, 3], np.uint8), np.array([4, 5.5], np.float32)),
        (pd.Series([1, 2]), pl.Series([2, 3]), (np.array([4, 5.5]))),
    ],
)
def test_arrays(arrays):
    assert understood(arrays)[1] == {(1, 2): 4.0, (2, 3): 5.5}
    assert understood(arrays[:2])[1] == {(1, 2): 1.0, (2, 3): 1.0}


HUGE = 2**63

BEYOND: dict[str, Any] = {
    "arrays of unsigned numbers": (np.array([1, HUGE], np.uint64), np.array([2, 3]), [4, 5.5]),
    "unsigned numbers of pandas": pd.DataFrame({"u": np.array([1, HUGE], np.uint64), "v": [2, 3], "w": [4, 5.5]}),
    "unsigned numbers of polars": pl.DataFrame({"u": [1, HUGE], "v": [2, 3], "w": [4.0, 5.5]}),
}


@pytest.mark.parametrize("name", BEYOND)
def test_unsigned_numbers_beyond_int64_are_refused(name):
    with pytest.raises(InvalidGraph, match=f"row 2: {HUGE} in column '.*' is beyond the range of int64"):
        understood(BEYOND[name])


@pytest.mark.parametrize("huge", [HUGE, 2**64, -HUGE - 1])
def test_python_numbers_beyond_int64_keep_their_names(huge):
    expected = {(1, 2): 4.0, (huge, 3): 5.5}
    assert understood(([1, huge], [2, 3], [4, 5.5]))[1] == expected
    assert understood(([1, huge], np.array([2, 3]), [4, 5.5]))[1] == expected
    table = {"u": pd.Series([1, huge], dtype=object), "v": [2, 3], "w": [4, 5.5]}
    assert understood(pd.DataFrame(table))[1] == expected
    graph = nx.DiGraph([(1, 2, {"weight": 4}), (huge, 3, {"weight": 5.5})])
    assert understood(graph)[1] == expected


def test_the_least_number_of_int64_is_a_vertex():
    assert understood((np.array([1, -HUGE]), np.array([2, 3]), [4, 5.5]))[1] == {(1, 2): 4.0, (-HUGE, 3): 5.5}


def test_equal_vertices_of_a_list_and_an_array_are_one():
    """2.0 == 2, so the path 1 - 2 - 3 has three vertices whatever holds its columns."""
    vertices, arcs = understood(([1.0, 2.0], np.array([2, 3]), [4, 5.5]))
    assert vertices == {1, 2, 3}
    assert arcs == {(1, 2): 4.0, (2, 3): 5.5}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_a_mask_hides_is_not_sent(place):
    arrays = [np.array([0, 1]), np.array([1, 2]), np.array([3.0, 4.0])]
    arrays[place] = np.ma.array(arrays[place], mask=[False, True])
    with pytest.raises(InvalidRequest, match="has 1 masked entries"):
        understood(tuple(arrays))


@pytest.mark.parametrize("kind", ["<f2", ">f4", "longdouble", ">i8", "?", "u1"])
def test_weights_of_any_type_of_numbers(kind):
    weights = np.array([1, 0]).astype(kind)
    assert understood(([0, 1], [1, 2], weights)) == ({0, 1, 2}, {(0, 1): 1.0, (1, 2): 0.0})


@pytest.mark.parametrize("weights", [["1", "1e-400"], [1, Decimal("1e-400")]], ids=["texts", "decimals"])
def test_weights_that_float64_takes_for_0_are_refused(weights):
    with pytest.raises(InvalidRequest, match="entry 2 of weights is so small that float64 would take it for 0"):
        understood(([0, 1], [1, 2], weights))


@pytest.mark.parametrize("graph", [nx.DiGraph([("a", "\ud800")]), (["a"], ["\udfff"], [1])], ids=["networkx", "arrays"])
def test_halves_of_characters_are_refused(graph):
    with pytest.raises(InvalidRequest, match="half a character"):
        understood(graph)


def test_arrays_of_text():
    assert understood((np.array(["a", "b"]), ["b", "c"]))[1] == {("a", "b"): 1.0, ("b", "c"): 1.0}


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (np.zeros((2, 3)), r"shape \(2, 3\)"),
        (np.array([["a", "b"], ["c", "d"]]), "holds no weights"),
        ((np.array([1.5]), np.array([2.5])), "not float64"),
        (([1, 2], [3]), "of one length"),
        (([1], [2], ["far"]), "no numbers"),
        (([1], [2], [None]), "edge 1 has no weight"),
        (object(), "object is no graph; give the path"),
        (7, "int is no graph"),
        ({"a": {"b": 1}}, "dict is no graph"),
        (pl.DataFrame({"only": [1]}), "needs two columns"),
    ],
)
def test_what_is_no_graph_is_refused_with_its_reason(graph, said):
    with pytest.raises(InvalidRequest, match=said):
        understood(graph)


def test_a_file_goes_as_it_is(tmp_path):
    path = tmp_path / "roads.csv"
    path.write_text("u,v,w\n1,2,3\n")
    with prepared(str(path), ReadingOptions(weight="w"), "mine") as upload:
        assert upload.file == path
        assert {k: v for k, v in upload.query.items() if v is not None} == {
            "weight": "w", "name": "mine", "filename": "roads.csv",
        }  # fmt: skip
    assert path.exists()
    with pytest.raises(NotFound, match="there is no file"), prepared(tmp_path / "none", ReadingOptions()):
        pass


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with prepared(nx.path_graph(3), ReadingOptions()) as upload:
        assert upload.file.parent == tmp_path
    with pytest.raises(InvalidRequest):
        understood(np.zeros((2, 3)))
    assert list(tmp_path.iterdir()) == []


def test_names_lead_there_and_back():
    names = Names([(0, 1), "x", 7])
    assert [names.label(v) for v in ((0, 1), "x", 7)] == ["(0, 1)", "x", "7"]
    assert names.vertices(["(0, 1)", "7"]) == [(0, 1), 7]
    assert Names().label(np.int32(3)) == 3
    with pytest.raises(InvalidRequest, match="text, not 1"):
        Names().label(1.5)


LIGHT = """
import sys
import service.client
heavy = {"engine", "fastapi", "zarr", "numpy", "scipy", "polars", "pandas", "networkx", "xarray", "matplotlib", "numba"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
from service.client.graphs import prepared
from storage.options import ReadingOptions
import scipy.sparse
with prepared(scipy.sparse.eye_array(3), ReadingOptions()):
    pass
assert not (heavy - {"numpy", "scipy"}) & sys.modules.keys()
"""


def test_importing_the_client_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4]
    )
    assert done.returncode == 0, done.stderr
