"""Tests readers on random input: the graph that was written is read, and the fast parser agrees with the strict one."""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import ApspError, InvalidGraph
from storage.graph.graph import Graph, build_graph, graph_digest
from storage.readers import ReadLimits, read_graph
from storage.readers.source import Block
from storage.readers.tables.table import ArcTable, Layout

Arc = tuple[int, int, float]
RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

whole = st.integers(-(2**53), 2**53)
lengths = st.one_of(whole, st.floats(allow_nan=False, allow_infinity=False, width=64))


@st.composite
def arc_lists(draw: st.DrawFn, weights: st.SearchStrategy[float] = lengths) -> tuple[int, list[Arc]]:
    """Vertices 0 .. n - 1 and arcs without self loops (whose sign would matter)."""
    n = draw(st.integers(2, 12))
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1])
    arcs = draw(st.lists(st.tuples(ends, weights), min_size=1, max_size=30))
    return n, [(u, v, w) for (u, v), w in arcs]


def expected(n: int, arcs: list[Arc], base: int, directed: bool) -> Graph:
    labels = np.arange(base, n + base)
    return build_graph(
        [u for u, _, _ in arcs], [v for _, v, _ in arcs], [w for _, _, w in arcs], labels=labels, directed=directed
    )[0]


def rows(arcs: list[Arc], base: int, form: str = "{} {} {!r}\n") -> str:
    return "".join(form.format(u + base, v + base, w) for u, v, w in arcs)


def minima(arcs: list[Arc]) -> dict[tuple[int, int], float]:
    best: dict[tuple[int, int], float] = {}
    for u, v, w in arcs:
        best[u, v] = min(w, best.get((u, v), w))
    return best


def as_edges(n: int, arcs: list[Arc]) -> bytes:
    # A self loop of weight 0 at each vertex makes all of them occur.
    return ("from,to,weight\n" + rows(arcs, 0, "{},{},{!r}\n") + "".join(f"{i},{i},0\n" for i in range(n))).encode()


def as_matrix_market(n: int, arcs: list[Arc]) -> bytes:
    return f"%%MatrixMarket matrix coordinate real general\n{n} {n} {len(arcs)}\n{rows(arcs, 1)}".encode()


def as_algs4(n: int, arcs: list[Arc]) -> bytes:
    return f"{n}\n{len(arcs)}\n{rows(arcs, 0)}".encode()


def as_gml(n: int, arcs: list[Arc]) -> bytes:
    nodes = "".join(f"node [ id {i} ]\n" for i in range(n))
    edges = rows(arcs, 0, "edge [ source {} target {} weight {!r} ]\n")
    return f"graph [ directed 1\n{edges}{nodes}]\n".encode()


def as_graphml(n: int, arcs: list[Arc]) -> bytes:
    nodes = "".join(f'<node id="{i}"/>' for i in range(n))
    edges = rows(arcs, 0, '<edge source="{}" target="{}"><data key="w">{!r}</data></edge>')
    key = '<key id="w" for="edge" attr.name="weight" attr.type="double"/>'
    return f'<graphml>{key}<graph edgedefault="directed">{nodes}{edges}</graph></graphml>'.encode()


def as_npz(n: int, arcs: list[Arc]) -> bytes:
    best = minima(arcs)
    u, v = zip(*best, strict=True)
    out = io.BytesIO()
    matrix = scipy.sparse.coo_array((np.array(list(best.values()), float), (u, v)), shape=(n, n))
    scipy.sparse.save_npz(out, matrix)
    return out.getvalue()


def as_parquet(n: int, arcs: list[Arc]) -> bytes:
    out = io.BytesIO()
    everyone = [(i, i, 0.0) for i in range(n)]
    u, v, w = zip(*arcs, *everyone, strict=True)
    pl.DataFrame({"source": u, "target": v, "weight": [float(x) for x in w]}).write_parquet(out)
    return out.getvalue()


WRITERS: dict[str, tuple[Callable[[int, list[Arc]], bytes], int]] = {
    "edges": (as_edges, 0),
    "mtx": (as_matrix_market, 1),
    "algs4": (as_algs4, 0),
    "gml": (as_gml, 0),
    "graphml": (as_graphml, 0),
    "npz": (as_npz, 0),
    "parquet": (as_parquet, 0),
}


@pytest.mark.parametrize("name", sorted(WRITERS))
@pytest.mark.parametrize("directed", [True, False])
@RELAXED
@given(case=arc_lists(), packed=st.booleans())
def test_what_was_written_comes_back(
    name: str, directed: bool, case: tuple[int, list[Arc]], packed: bool, tmp_path: Path
) -> None:
    n, arcs = case
    write, base = WRITERS[name]
    content = write(n, arcs)
    path = tmp_path / "g"
    path.write_bytes(gzip.compress(content) if packed else content)
    graph, receipt = read_graph(path, directed=directed)
    assert receipt.format == name
    assert receipt.compression == ("gzip" if packed else None)
    assert graph_digest(graph) == graph_digest(expected(n, arcs, base, directed))


@RELAXED
@given(case=arc_lists(whole))
def test_dimacs_comes_back(case: tuple[int, list[Arc]], tmp_path: Path) -> None:
    n, arcs = case
    path = tmp_path / "g.gr"
    path.write_text(f"c x\np sp {n} {len(arcs)}\n" + rows(arcs, 1, "a {} {} {}\n"))
    assert graph_digest(read_graph(path)[0]) == graph_digest(expected(n, arcs, 1, True))


@RELAXED
@given(case=arc_lists(st.integers(1, 2**40)), flags=st.sampled_from(["1", "011", "101", "111"]))
def test_metis_comes_back(case: tuple[int, list[Arc]], flags: str, tmp_path: Path) -> None:
    n, arcs = case
    graph = expected(n, arcs, 1, False)
    before = "7 " * (flags.zfill(3)[0] == "1") + "8 " * (flags.zfill(3)[1] == "1")
    lines = [f"{n} {graph.m} {flags}"]
    for u in range(n):
        span = slice(graph.indptr[u], graph.indptr[u + 1])
        pairs = zip((graph.heads[span] + 1).tolist(), graph.weights[span].tolist(), strict=True)
        lines.append(before + " ".join(f"{v} {w}" for v, w in pairs))
    path = tmp_path / "g.graph"
    path.write_text("\n".join(lines) + "\n")
    assert graph_digest(read_graph(path)[0]) == graph_digest(graph)


@RELAXED
@given(case=arc_lists())
def test_dense_matrices_come_back_without_their_zeros(case: tuple[int, list[Arc]], tmp_path: Path) -> None:
    n, arcs = case
    matrix = np.zeros((n, n))
    for (u, v), w in minima(arcs).items():
        matrix[u, v] = w
    np.save(tmp_path / "g.npy", matrix)
    present = [(u, v, w) for (u, v), w in minima(arcs).items() if w != 0]
    try:
        graph, _ = read_graph(tmp_path / "g.npy")
    except InvalidGraph:
        assert may_mean_something_else(matrix)
        return
    assert graph_digest(graph) == graph_digest(expected(n, present, 0, True))


def may_mean_something_else(matrix: np.ndarray) -> bool:
    """Whether a number that is there more than once may stand for no arc, or one triangle has all the entries."""
    values, counts = np.unique(matrix[matrix != 0], return_counts=True)
    codes = values[(counts > 1) & ((values == -1) | (values >= 999))]
    return bool(len(codes)) or not np.tril(matrix).any() or not np.triu(matrix).any()


@pytest.mark.parametrize("entry", [-1.0, 9999.0, 1e15, 1e25, 3e22, 1e30, 1.7e308])
def test_codes_for_no_arc_in_dense_matrices_are_refused(entry: float, tmp_path: Path) -> None:
    matrix = np.array([[0, 2, entry], [3, 0, 4], [entry, 5, 0]])
    np.save(tmp_path / "g.npy", matrix)
    with pytest.raises(InvalidGraph, match="may stand for no arc"):
        read_graph(tmp_path / "g.npy")
    assert may_mean_something_else(matrix)
    assert not may_mean_something_else(np.where(matrix == entry, 6, matrix))


printing = st.characters(blacklist_categories=["Cs", "Cc", "Zs", "Zl", "Zp"])
names = st.text(printing | st.sampled_from(' ,"'), min_size=1, max_size=6).filter(
    lambda s: s[0] not in "#%\ufeff" and s.strip() == s
)


@RELAXED
@given(ends=st.lists(st.tuples(names, names), min_size=1, max_size=20))
def test_names_come_back(ends: list[tuple[str, str]], tmp_path: Path) -> None:
    quoted = ["{},{},5".format(*('"' + end.replace('"', '""') + '"' for end in pair)) for pair in [("x y", "z"), *ends]]
    path = tmp_path / "g.csv"
    path.write_text("from,to,km\n" + "\n".join(quoted) + "\n", encoding="utf-8")
    graph, _ = read_graph(path)
    everyone = sorted({"x y", "z"} | {end for pair in ends for end in pair})
    assert graph.labels.tolist() == everyone
    arcs = {(everyone.index(u), everyone.index(v)) for u, v in [("x y", "z"), *ends] if u != v}
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    assert set(zip(tails.tolist(), graph.heads.tolist(), strict=True)) == arcs


@RELAXED
@given(ids=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=40))
def test_any_numbers_may_be_vertices(ids: list[int], tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text("".join(f"{u} {v} 1\n" for u, v in itertools.pairwise(ids)))
    assert read_graph(path)[0].labels.tolist() == sorted(set(ids))


tokens = st.one_of(
    st.integers(0, 30).map(str),
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(
        [
            *("+5", "-0", "007", "1.", ".5", "1e3", "1E-2", "1D2", "inf", "-inf", "nan", "NaN", "", "x", "NA", "1,5"),
            *("0x10", "1_0", "٣", "½", '"5"', "#", "%", "1e309", "9007199254740992", "9007199254740993", "true", "a b"),
        ]
    ),
)
gaps = st.sampled_from([" ", " ", " ", "\t", "  ", ",", ", ", ";"])


@st.composite
def messy_blocks(draw: st.DrawFn) -> bytes:
    """A few lines that are mostly, but not always, rows of three fields."""
    gap = draw(gaps)
    lines = []
    for _ in range(draw(st.integers(1, 5))):
        size = draw(st.sampled_from([3, 3, 3, 3, 2, 4, 0]))
        line = gap.join(draw(st.lists(tokens, min_size=size, max_size=size)))
        lines.append(draw(st.sampled_from(["", "", "", " ", "a "])) + line + draw(st.sampled_from(["", "", " "])))
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize(
    "layout",
    [
        Layout(3),
        Layout(3, weight=None),
        Layout(3, separator=",", quoted=True),
        Layout(3, separator=";", decimal_comma=True, quoted=True),
        Layout(4, 1, 2, 3, mark="a", comments="c", integer=True, infinite=False, first=1, last=20),
        Layout(3, first=1, last=20, integer=True),
        Layout(3, 2, 1, 0),
    ],
    ids=["blanks", "pairs", "commas", "semicolons", "dimacs", "bounded", "swapped"],
)
@settings(max_examples=300, deadline=None)
@given(data=messy_blocks())
def test_the_fast_way_never_disagrees_with_the_careful_one(layout: Layout, data: bytes) -> None:
    fast = ArcTable(layout, ReadLimits())._parse_columns(data)
    if fast is None:
        return
    careful = ArcTable(layout, ReadLimits())._parse_lines(Block(data, 1))
    assert np.array_equal(fast[0], careful[0])
    assert np.array_equal(fast[1], careful[1])
    if layout.weight is not None and len(careful[0]):
        assert fast[2] is not None
        assert np.array_equal(fast[2], careful[2])


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(content=st.one_of(st.binary(max_size=200), messy_blocks(), st.text(max_size=200).map(str.encode)))
def test_any_bytes_are_read_or_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "g"
    path.write_bytes(content)
    outcome: list[str] = []
    try:
        graph, receipt = read_graph(path, limits=ReadLimits(max_vertices=100_000))
        outcome += [str(graph.n), str(len(graph.labels))]
    except ApspError as error:
        outcome += [str(error), str(error)]
        json.dumps(error.details())
    else:
        assert receipt.entries >= graph.m
    assert outcome[0] == outcome[1] != ""


@RELAXED
@given(line=st.integers(1, 60), block=st.integers(1, 200))
def test_errors_name_the_line_whatever_the_blocks(line: int, block: int) -> None:
    lines = [b"%d %d 1\n" % (i, i + 1) for i in range(60)]
    lines[line - 1] = b"1 2 zwei\n"
    table = ArcTable(Layout(3), ReadLimits())
    at = (line - 1) // block * block
    for start in range(0, at, block):
        table.feed(Block(b"".join(lines[start : start + block]), start + 1))
    with pytest.raises(InvalidGraph) as caught:
        table.feed(Block(b"".join(lines[at : at + block]), at + 1))
    assert caught.value.line == line
