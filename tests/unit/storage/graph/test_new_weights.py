"""New weights matched to the arcs of a graph: any order and format, every arc or only changed ones, and refusals."""

from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np
import pytest

from storage.errors import InvalidGraph, InvalidRequest, NegativeCycle, NotFound
from storage.graph.graph import build_graph, graph_digest
from storage.graph.new_weights import arc_weights, read_weights, reweighted

NONE = np.zeros(0, np.int64)
ROADS = ["a,b,3", "b,c,4", "c,d,1", "d,a,2"]


def roads(directed=True):
    labels = np.array(["a", "b", "c", "d"], np.dtypes.StringDType())
    return build_graph([0, 1, 2, 3], [1, 2, 3, 0], [3, 4, 1, 2], labels=labels, directed=directed)[0]


def written(tmp_path, lines, name="w.csv", head="from,to,km"):
    path = tmp_path / name
    text = "\n".join([head, *lines, ""])
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def from_file(graph, path, closed=NONE, *, changed=False, **reading):
    return reweighted(graph, closed, read_weights(path, reading, directed=graph.directed), changed=changed)


@pytest.mark.parametrize("directed", [True, False])
def test_the_order_of_lines_does_not_matter(tmp_path, directed):
    graph = roads(directed)
    lines = ["d,a,20", "a,b,30", "c,d,10", "b,c,40"]
    if not directed:
        lines[2] = "d,c,10"
    new = from_file(graph, written(tmp_path, lines))
    want = build_graph([0, 1, 2, 3], [1, 2, 3, 0], [30, 40, 10, 20], labels=graph.labels, directed=directed)[0]
    assert graph_digest(new.graph) == graph_digest(want)
    assert len(new.closed) == 0
    assert len(new.changed) == (4 if directed else 8)


def test_changed_arcs_alone(tmp_path):
    graph = roads()
    new = from_file(graph, written(tmp_path, ["b,c,9"]), changed=True)
    assert new.graph.weights.tolist() == [3, 9, 1, 2]
    assert new.changed.tolist() == [1 * 4 + 2]
    with pytest.raises(NotFound, match=r"3 of 4 arcs have no new weight, the first is a -> b; .*--changed"):
        from_file(graph, written(tmp_path, ["b,c,9"]))


UNDIRECTED = {
    "w.graphml": """<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="w" for="edge" attr.name="weight"
        attr.type="int"/><graph edgedefault="undirected"><node id="b"/><node id="a"/><edge source="b" target="a">
        <data key="w">9</data></edge></graph></graphml>""",
    "w.gml": 'graph [ directed 0 node [ id 0 label "b" ] node [ id 1 label "a" ] edge [ source 0 target 1 weight 9 ] ]',
    "w.net": '*Vertices 2\n1 "b"\n2 "a"\n*Edges\n1 2 9\n',
    "w.csv": "Source,Target,Type,Weight\nb,a,Undirected,9\n",
    "w.json": '{"directed": false, "nodes": [{"id": "b"}, {"id": "a"}], '
    '"links": [{"source": "b", "target": "a", "weight": 9}]}',
}


def two_ways(directed: bool):
    """a - b both ways, and b -> c."""
    tails, heads, weights = ([0, 1, 1], [1, 0, 2], [3, 5, 4]) if directed else ([0, 1], [1, 2], [3, 4])
    labels = np.array(["a", "b", "c"], np.dtypes.StringDType())
    return build_graph(tails, heads, weights, labels=labels, directed=directed)[0]


def arcs(graph):
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = [str(label) for label in graph.labels]
    return {f"{names[t]}{names[h]}": float(w) for t, h, w in zip(tails, graph.heads, graph.weights, strict=True)}


@pytest.mark.parametrize("reading", [{}, {"directed": True}, {"directed": False}])
@pytest.mark.parametrize("line", ["a,b,9", "b,a,9"])
def test_either_way_of_writing_names_an_undirected_edge(tmp_path, line, reading):
    new = from_file(two_ways(False), written(tmp_path, [line]), changed=True, **reading)
    assert arcs(new.graph) == {"ab": 9, "ba": 9, "bc": 4, "cb": 4}


def test_a_row_of_a_directed_file_is_one_arc_and_of_an_undirected_one_both(tmp_path):
    path = written(tmp_path, ["b,a,9"])
    assert arcs(from_file(two_ways(True), path, changed=True).graph) == {"ab": 3, "ba": 9, "bc": 4}
    assert arcs(from_file(two_ways(True), path, changed=True, directed=False).graph) == {"ab": 9, "ba": 9, "bc": 4}


@pytest.mark.parametrize("name", UNDIRECTED)
def test_a_file_that_says_that_it_is_undirected_counts_both_ways(tmp_path, name):
    path = tmp_path / name
    path.write_text(UNDIRECTED[name])
    named = {"labels": "label"} if path.suffix in (".gml", ".net") else {}
    new = from_file(two_ways(True), path, changed=True, **named)
    assert arcs(new.graph) == {"ab": 9, "ba": 9, "bc": 4}
    one = from_file(two_ways(True), path, changed=True, directed=True, **named)
    assert arcs(one.graph) == {"ab": 3, "ba": 9, "bc": 4}
    assert arcs(from_file(two_ways(False), path, changed=True, **named).graph) == {"ab": 9, "ba": 9, "bc": 4, "cb": 4}


def test_an_undirected_row_of_a_one_way_arc_is_refused_with_what_helps(tmp_path):
    path = written(tmp_path, ["a,b,7", "b,c,9"])
    with pytest.raises(
        NotFound, match=r"line 3: the prepared graph has no arc c -> b; .*this file is undirected: --dir"
    ):
        from_file(two_ways(True), path, changed=True, directed=False)


def test_an_undirected_list_of_both_ends_is_taken_as_it_stands(tmp_path):
    path = tmp_path / "w.metis"
    path.write_text("3 2 1\n2 5\n1 5 3 6\n2 6\n")
    graph = build_graph([1, 2, 2, 3], [2, 1, 3, 2], [1, 1, 1, 1], directed=True)[0]
    assert from_file(graph, path).graph.weights.tolist() == [5, 5, 6, 6]


def test_parallel_arcs_and_loops_are_treated_as_readers_do(tmp_path):
    new = from_file(roads(), written(tmp_path, [*ROADS, "a,b,2", "a,a,1", "a,b,7"]))
    assert new.graph.weights.tolist() == [2, 4, 1, 2]
    with pytest.raises(NegativeCycle):
        from_file(roads(), written(tmp_path, [*ROADS, "a,a,-1"]))


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        ({"parallel": "greatest"}, "the least of parallel arcs counts"),
        ({"unit": "km"}, "keep unit"),
        ({"coordinates": "plane"}, "keep unit and coordinates"),
    ],
)
def test_options_that_new_weights_cannot_follow_are_refused(tmp_path, reading, said):
    path = written(tmp_path, ["a,b,5", "a,b,7"])
    with pytest.raises(InvalidRequest, match=said) as refused:
        from_file(roads(), path, changed=True, **reading)
    assert refused.value.field in reading
    assert from_file(roads(), path, changed=True, parallel="least").graph.weights[0] == 5


@pytest.mark.parametrize(
    ("weighted", "changed", "kept"), [(True, True, "greatest"), (True, False, "least"), (False, True, "least")]
)
def test_which_of_parallel_arcs_was_kept_holds_as_long_as_weights_are_kept(weighted, changed, kept):
    weights = [1.0, 9.0, 2.0] if weighted else None
    graph = build_graph([0, 0, 1], [1, 1, 2], weights, n=3, directed=True, parallel="greatest")[0]
    assert graph.weighted == weighted
    given = arc_weights([0, 1], [1, 2], [3.0, 4.0])
    assert reweighted(graph, NONE, given, changed=changed).graph.parallel == kept


def test_infinity_closes_an_arc_and_a_number_opens_it_again(tmp_path):
    graph = roads()
    new = from_file(graph, written(tmp_path, ["b,c,inf"]), changed=True)
    assert new.graph.arcs == 3
    assert new.closed.tolist() == [6]
    assert new.graph.integral
    again = from_file(new.graph, written(tmp_path, ["b,c,4"]), new.closed, changed=True)
    assert graph_digest(again.graph) == graph_digest(graph)
    assert len(again.closed) == 0
    # a closed arc need not be given, and an unknown one may be given if it is closed
    still = from_file(new.graph, written(tmp_path, ["a,b,3", "c,d,1", "d,a,2", "a,c,inf", "x,y,inf"]), new.closed)
    assert graph_digest(still.graph) == graph_digest(new.graph)
    assert still.closed.tolist() == [6]
    assert len(still.changed) == 0


@pytest.mark.parametrize("name", ["w.csv", "w.csv.gz"])
def test_what_is_unknown_is_named_with_its_line(tmp_path, name):
    path = written(tmp_path, [*ROADS, "c,a,5"], name)
    with pytest.raises(NotFound, match=rf"{name}, line 6: the prepared graph has no arc c -> a"):
        from_file(roads(), path)
    path = written(tmp_path, ["a,b,1", "b,x,5"], name)
    with pytest.raises(NotFound, match=rf"{name}, line 3: the prepared graph has no vertex x"):
        from_file(roads(), path, changed=True)
    assert from_file(roads(directed=False), written(tmp_path, ["a,d,5"]), changed=True).graph.weights[1] == 5


def test_parquet_names_the_row(tmp_path):
    pl = pytest.importorskip("polars")
    path = tmp_path / "w.parquet"
    pl.DataFrame({"source": ["a", "c"], "target": ["b", "a"], "weight": [1.5, 2.0]}).write_parquet(path)
    with pytest.raises(NotFound, match=r"w.parquet, row 2: the prepared graph has no arc c -> a"):
        from_file(roads(), path, changed=True)
    pl.DataFrame({"source": ["a", "c"], "target": ["b", "d"], "weight": [1.5, 2.0]}).write_parquet(path)
    assert from_file(roads(), path, changed=True).graph.weights.tolist() == [1.5, 4, 2, 2]


def test_a_column_is_named_and_a_file_without_weights_refused(tmp_path):
    path = written(tmp_path, ["a,b,1,10", "b,c,1,20", "c,d,1,30", "d,a,1,40"], head="from,to,km,minutes")
    assert from_file(roads(), path, weight="minutes").graph.weights.tolist() == [10, 20, 30, 40]
    with pytest.raises(InvalidRequest, match=r"has no weights; name the column"):
        from_file(roads(), written(tmp_path, ["a,b", "b,c"], head="from,to"), changed=True)


def test_edges_listed_at_both_ends_must_agree(tmp_path):
    graph = build_graph([1, 2], [2, 3], [1, 1], directed=False)[0]
    path = tmp_path / "g.graph"
    path.write_text("3 2 001\n2 5\n1 5 3 7\n2 7\n")
    assert from_file(graph, path).graph.weights.tolist() == [5, 5, 7, 7]
    path.write_text("3 2 001\n2 5\n1 6 3 7\n2 7\n")
    with pytest.raises(InvalidGraph, match="edge 1 - 2 has two weights"):
        from_file(graph, path)
    path.write_text("3 3 001\n2 3 2 5\n1 5 1 3 3 7\n2 7\n")
    assert from_file(graph, path).graph.weights.tolist() == [3, 3, 7, 7]
    path.write_text("3 3 001\n2 3 2 5\n1 7 1 5 3 7\n2 7\n")  # the last ones agree, the least ones do not
    with pytest.raises(InvalidGraph, match="edge 1 - 2 has two weights, 3 and 5"):
        from_file(graph, path)


@pytest.mark.parametrize(("weight", "said"), [(float("nan"), "NaN"), (-np.inf, "-inf"), (2.0**60, "2\\^53")])
def test_what_is_no_length_is_refused(weight, said):
    given = arc_weights(["a"], ["b"], np.array([weight]) if not weight > 2**55 else np.array([2**60]))
    with pytest.raises(InvalidGraph, match=said):
        reweighted(roads(), NONE, given, changed=True)


def test_arrays_are_checked():
    with pytest.raises(InvalidRequest, match="same length"):
        arc_weights(["a"], ["b", "c"], [1])
    with pytest.raises(InvalidGraph, match="must be numbers"):
        arc_weights(["a"], ["b"], ["x"])
    with pytest.raises(NotFound, match="entry 1: the prepared graph has no vertex 7"):
        reweighted(roads(), NONE, arc_weights(["a", "7"], ["b", "a"], [1, 1]), changed=True)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_masked_arrays_and_halves_of_characters_are_refused(place):
    arrays = [["a", "b"], ["b", "c"], [1, 2]]
    hidden = [np.ma.array(one, mask=[False, True]) if at == place else one for at, one in enumerate(arrays)]
    with pytest.raises(InvalidRequest, match="has 1 masked entries"):
        arc_weights(*hidden)
    if place < 2:
        broken = [["a", "\ud800"] if at == place else one for at, one in enumerate(arrays)]
        with pytest.raises(InvalidGraph, match="half a character"):
            arc_weights(*broken)


def test_numbers_beyond_labels_are_unknown():
    graph = build_graph([-1, 1], [1, 2], [1, 2], directed=True)[0]
    with pytest.raises(NotFound, match="no vertex 18446744073709551615"):
        reweighted(graph, NONE, arc_weights(np.array([2**64 - 1], np.uint64), [1], [9]), changed=True)


def test_labels_that_are_numbers_may_be_given_as_text():
    graph = build_graph([10, 20], [20, 30], [1, 2], directed=True)[0]
    new = reweighted(graph, NONE, arc_weights(["20", "10"], ["30", "20"], [5, 6]), changed=False)
    assert new.graph.weights.tolist() == [6, 5]
    with pytest.raises(NotFound, match="no vertex 010"):
        reweighted(graph, NONE, arc_weights(["010"], ["20"], [5]), changed=True)


def test_hops_become_weights_and_terminals_stay():
    graph = build_graph([0, 1], [1, 2], None, n=3, directed=True)[0]
    new = reweighted(replace(graph, terminals=1), NONE, arc_weights([0, 1], [1, 2], [1, 1]), changed=False)
    assert (new.graph.weighted, new.graph.terminals) == (True, 1)
    with pytest.raises(InvalidRequest, match="terminals"):
        reweighted(replace(graph, terminals=1), NONE, arc_weights([0, 1], [1, 2], [1, -1]), changed=False)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_random_changes_make_the_graph_that_building_makes(directed, seed):
    rng = np.random.default_rng((seed, directed))
    n = int(rng.integers(1, 12))
    ends = {(int(u), int(v)) for u, v in rng.integers(0, n, (30, 2)) if u != v and (directed or u < v)}
    pairs = np.array(sorted(ends)).reshape(-1, 2)
    graph, closed = build_graph(*pairs.T, np.ones(len(pairs)), n=n, directed=directed)[0], NONE
    now = np.ones(len(pairs))
    for _ in range(4):
        some = rng.random(len(pairs)) < 0.5
        now[some] = rng.choice([0, 1, 2.5, 7, np.inf], some.sum())
        order = rng.permutation(np.flatnonzero(some))
        new = reweighted(graph, closed, arc_weights(*pairs[order].T, now[order]), changed=True)
        want = build_graph(*pairs.T, now, n=n, directed=directed)[0]
        assert graph_digest(new.graph) == graph_digest(want)
        assert new.graph.weights.dtype == want.weights.dtype
        assert new.known == len(pairs) * (1 if directed else 2)
        assert len(new.closed) == np.isinf(now).sum() * (1 if directed else 2)
        graph, closed = new.graph, new.closed
