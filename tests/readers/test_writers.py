"""What writers of other programs make of one table, one matrix and one graph: read right, or refused; none silent."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.graph import Graph
from storage.readers import read_graph

Arcs = dict[tuple[object, object], float]
Write = Callable[[Any], str | bytes]


def arcs_of(graph: Graph) -> Arcs:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = graph.labels.tolist()
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return {(names[u], names[v]): w for u, v, w in rows}


def right_or_refused(tmp_path: Path, content: str | bytes, arcs: Arcs, readable: bool, name: str = "file") -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        graph, receipt = read_graph(path)
    except (InvalidGraph, InvalidRequest):
        assert not readable
        return
    assert readable, (arcs_of(graph), receipt)
    assert arcs_of(graph) == arcs, receipt


def to_bytes(write: Callable[[Any, Any], object]) -> Write:
    def make(source: Any) -> bytes:
        out = io.BytesIO()
        write(source, out)
        return out.getvalue()

    return make


def markdown(frame: pd.DataFrame) -> str:
    pytest.importorskip("tabulate")
    return frame.to_markdown()


# ---------------------------------------------------------------- pandas

#: Writer; whether an edge table, a matrix with names in its index, and a matrix without an index are read from it.
PANDAS: dict[str, tuple[Write, bool, bool, bool]] = {
    "csv": (lambda frame: frame.to_csv(), True, True, False),
    "csv without index": (lambda frame: frame.to_csv(index=False), True, True, True),
    "tab": (lambda frame: frame.to_csv(sep="\t"), True, True, False),
    "tab without index": (lambda frame: frame.to_csv(sep="\t", index=False), True, True, True),
    "semicolon, decimal comma": (lambda frame: frame.to_csv(sep=";", decimal=","), True, True, False),
    "quoted": (lambda frame: frame.to_csv(quoting=1), True, True, False),
    "quoted without index": (lambda frame: frame.to_csv(quoting=1, index=False), True, True, True),
    "quoted text": (lambda frame: frame.to_csv(quoting=2, index=False), True, True, True),
    "text without index": (lambda frame: frame.to_string(index=False), True, True, True),
    "parquet": (to_bytes(lambda frame, out: frame.to_parquet(out)), True, False, False),
    "json": (lambda frame: frame.to_json(), False, False, False),
    "json records": (lambda frame: frame.to_json(orient="records"), False, False, False),
    "json lines": (lambda frame: frame.to_json(orient="records", lines=True), False, False, False),
    "json split": (lambda frame: frame.to_json(orient="split"), False, False, False),
    "json table": (lambda frame: frame.to_json(orient="table"), False, False, False),
    "json index": (lambda frame: frame.to_json(orient="index"), False, False, False),
    "json values": (lambda frame: frame.to_json(orient="values"), False, False, False),
    "html": (lambda frame: frame.to_html(), False, False, False),
    "markdown": (markdown, False, False, False),
    "xml": (to_bytes(lambda frame, out: frame.to_xml(out, parser="etree")), False, False, False),
}
TABLES: dict[str, pd.DataFrame] = {
    "names": pd.DataFrame({"source": ["Ada", "Bob", "Eve"], "target": ["Bob", "Eve", "Zoë"], "weight": [3, 2, 7]}),
    "numbers": pd.DataFrame({"source": [10, 20, 30], "target": [20, 30, 40], "weight": [3, 2, 7]}),
    "fractions": pd.DataFrame({"source": [10, 20, 30], "target": [20, 30, 40], "weight": [0.5, 2.25, 7]}),
    "two rows": pd.DataFrame({"source": ["Ada", "Bob"], "target": ["Bob", "Eve"], "weight": [3, 2]}),
    "no weights": pd.DataFrame({"source": ["Ada", "Bob", "Eve"], "target": ["Bob", "Eve", "Zoë"]}),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", PANDAS)
def test_edge_tables_of_pandas(name: str, table: str, tmp_path: Path) -> None:
    write, readable, _, _ = PANDAS[name]
    frame = TABLES[table]
    weights = frame["weight"] if "weight" in frame else [1] * len(frame)
    arcs = dict(zip(zip(frame["source"], frame["target"], strict=True), weights, strict=True))
    right_or_refused(tmp_path, write(frame), arcs, readable)


@pytest.mark.parametrize("fractions", [False, True])
@pytest.mark.parametrize("n", [3, 4, 7, 60])
@pytest.mark.parametrize("name", PANDAS)
def test_matrices_of_pandas(name: str, n: int, fractions: bool, tmp_path: Path) -> None:
    write, _, named, bare = PANDAS[name]
    matrix = np.arange(1, n * n + 1).reshape(n, n) + (0.5 if fractions else 0)
    np.fill_diagonal(matrix, 0)
    at = [(i, j) for i in range(n) for j in range(n) if i != j]
    towns = [f"town {i:02d}" if name not in ("xml", "text without index") else f"town{i:02d}" for i in range(n)]
    both = pd.DataFrame(matrix, index=towns, columns=towns)
    right_or_refused(tmp_path, write(both), {(towns[i], towns[j]): matrix[i, j] for i, j in at}, named)
    # The columns alone are named: with pandas' own numbers of rows this is no square matrix.
    columns = pd.DataFrame(matrix, columns=towns)
    right_or_refused(tmp_path, write(columns), {(towns[i], towns[j]): matrix[i, j] for i, j in at}, bare)
    # Neither is named: both are numbered.
    plain = pd.DataFrame(matrix, columns=None if name != "parquet" else [str(i) for i in range(n)])
    if name != "xml":  # whose writer refuses columns that are numbers
        right_or_refused(tmp_path, write(plain), {(i, j): matrix[i, j] for i, j in at}, named)


@pytest.mark.parametrize("n", [3, 4, 7])
def test_matrices_of_pandas_without_names_of_columns(n: int, tmp_path: Path) -> None:
    matrix = np.arange(1, n * n + 1).reshape(n, n)
    np.fill_diagonal(matrix, 0)
    right_or_refused(tmp_path, pd.DataFrame(matrix).to_csv(header=False), {}, False)
    right_or_refused(tmp_path, pd.DataFrame(matrix, index=list("abcdefg")[:n]).to_csv(header=False), {}, False)


# ---------------------------------------------------------------- NumPy and SciPy

#: Writer, whether it is read, and the number of the first vertex.
ARRAYS: dict[str, tuple[Write, bool, int]] = {
    "savetxt": (to_bytes(lambda m, out: np.savetxt(out, m)), True, 0),
    "savetxt of whole numbers": (to_bytes(lambda m, out: np.savetxt(out, m, fmt="%d")), True, 0),
    "savetxt with commas": (to_bytes(lambda m, out: np.savetxt(out, m, fmt="%d", delimiter=",")), True, 0),
    "savetxt with a header": (
        to_bytes(lambda m, out: np.savetxt(out, m, fmt="%d", delimiter=",", header="the distances")),
        True,
        0,
    ),
    "save": (to_bytes(lambda m, out: np.save(out, m)), True, 0),
    "savez": (to_bytes(lambda m, out: np.savez(out, m)), False, 0),
    "print": (str, False, 0),
    "repr": (repr, False, 0),
    "array2string": (lambda m: np.array2string(m, separator=", "), False, 0),
    "tolist": (lambda m: str(m.tolist()), False, 0),
    "mmwrite": (to_bytes(lambda m, out: scipy.io.mmwrite(out, m)), True, 1),
    "mmwrite of a sparse matrix": (to_bytes(lambda m, out: scipy.io.mmwrite(out, scipy.sparse.csr_array(m))), True, 1),
    "save_npz": (to_bytes(lambda m, out: scipy.sparse.save_npz(out, scipy.sparse.csr_array(m))), True, 0),
    "print of a sparse matrix": (lambda m: str(scipy.sparse.csr_array(m)), False, 0),
    "print of a sparse matrix in COO": (lambda m: str(scipy.sparse.coo_array(m)), False, 0),
    "rows of coordinates": (lambda m: "\n".join(str(row) for row in zip(*np.nonzero(m), strict=True)), False, 0),
}


@pytest.mark.parametrize("n", [4, 5, 40])
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_numpy_and_scipy(name: str, n: int, tmp_path: Path) -> None:
    write, readable, first = ARRAYS[name]
    matrix = np.arange(1, n * n + 1).reshape(n, n)
    np.fill_diagonal(matrix, 0)
    arcs = {(i + first, j + first): matrix[i, j] for i in range(n) for j in range(n) if i != j}
    right_or_refused(tmp_path, write(matrix), arcs, readable)


# ---------------------------------------------------------------- NetworkX

#: Writers that are not among those of ``test_other_programs``; none is read.
NETWORKX: dict[str, Write] = {
    "network text": lambda graph: "\n".join(nx.generate_network_text(graph)),
    "network text in ASCII": lambda graph: "\n".join(nx.generate_network_text(graph, ascii_only=True)),
    "latex": nx.to_latex,
    "edges as a list": lambda graph: str(list(graph.edges)),
    "edges a line": lambda graph: "\n".join(map(str, graph.edges(data="weight"))),
    "edges without weights a line": lambda graph: "\n".join(map(str, graph.edges)),
    "dictionary of lists": lambda graph: str(nx.to_dict_of_lists(graph)),
    "adjacency a line": lambda graph: "\n".join(f"{u}: {' '.join(map(str, graph[u]))}" for u in graph),
    "graph6": lambda graph: nx.to_graph6_bytes(graph.to_undirected()),
    "sparse6": lambda graph: nx.to_sparse6_bytes(graph.to_undirected()),
}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", NETWORKX)
def test_writers_of_networkx_that_are_refused(name: str, directed: bool, tmp_path: Path) -> None:
    graph: nx.Graph[Any] = nx.cycle_graph(6, nx.DiGraph if directed else nx.Graph)
    nx.set_edge_attributes(graph, 5, "weight")
    right_or_refused(tmp_path, NETWORKX[name](graph), {}, False)


@pytest.mark.parametrize("vertices", [[10, 20, 30, 40], ["Ada", "Bob", "Eve", "Zoë"]])
def test_tables_and_matrices_of_networkx(vertices: list[Any], tmp_path: Path) -> None:
    graph: nx.DiGraph[Any] = nx.DiGraph()
    a, b, c, d = vertices
    graph.add_weighted_edges_from([(a, b, 3), (b, c, 2), (c, d, 7), (d, a, 4), (b, a, 9)])
    arcs = {(u, v): w for u, v, w in graph.edges(data="weight")}
    right_or_refused(tmp_path, nx.to_pandas_edgelist(graph).to_csv(index=False), arcs, True)
    right_or_refused(tmp_path, nx.to_pandas_edgelist(graph).to_csv(), arcs, True)
    right_or_refused(tmp_path, nx.to_pandas_adjacency(graph).to_csv(), arcs, True)
    right_or_refused(tmp_path, nx.to_pandas_adjacency(graph, dtype=int).to_csv(), arcs, True)


# ---------------------------------------------------------------- igraph

#: Suffix, whether it is read, and whether its vertices are numbers.
IGRAPH = {
    "ncol": (True, False),
    "lgl": (False, False),
    "pajek": (True, True),
    "gml": (True, True),
    "graphml": (True, True),
    "dimacs": (False, True),
    "edgelist": (True, True),
    "leda": (False, False),
    "dot": (False, False),
}


@pytest.mark.parametrize("form", IGRAPH)
def test_writers_of_igraph(form: str, tmp_path: Path) -> None:
    igraph = pytest.importorskip("igraph")
    readable, numbered = IGRAPH[form]
    names = ["Ada", "Bob", "Eve", "Zoe"]
    rows = [(0, 1, 3), (1, 2, 2), (2, 3, 7), (3, 0, 4)]
    graph = igraph.Graph([row[:2] for row in rows], directed=form not in ("lgl",))
    graph.vs["name"] = names
    graph.es["weight"] = [weight for _, _, weight in rows]
    path = tmp_path / "file"
    if form == "dimacs":
        graph.es["capacity"] = graph.es["weight"]
        graph.write_dimacs(str(path), 0, 3)
    elif form == "leda":
        graph.write_leda(str(path), names="name", weights="weight")
    else:
        graph.write(str(path), format=form)
    first = {"pajek": 1}.get(form, 0)
    label = {i: i + first if numbered else name for i, name in enumerate(names)}
    if form == "graphml":
        label = {i: f"n{i}" for i in range(4)}
    arcs = {(label[u], label[v]): 1 if form == "edgelist" else weight for u, v, weight in rows}
    right_or_refused(tmp_path, path.read_bytes(), arcs, readable)
