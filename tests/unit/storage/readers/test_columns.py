"""Which columns are read as what: vertices, lengths, similarities; the same rule in every format that has columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.graph import Graph, Receipt
from storage.readers import FORMATS, read_graph
from storage.readers.named import NO_DIRECTION


def read(tmp_path: Path, text: str, name: str = "graph.txt", **options: object) -> tuple[Graph, Receipt]:
    path = tmp_path / name
    path.write_text(text)
    return read_graph(path, **options)  # type: ignore[arg-type]


def arcs(graph: Graph) -> dict[tuple[object, object], float]:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    labels = graph.labels.tolist()
    return {(labels[u], labels[v]): float(w) for u, v, w in zip(tails, graph.heads, graph.weights, strict=True)}


STRING = "protein1 protein2 neighborhood combined_score\nA B 0 900\nB C 3 150\n"


# ---- vertex columns -------------------------------------------------------------------------------------------------


def test_vertex_columns_by_name_and_by_number(tmp_path: Path) -> None:
    text = "id,length,here,there\n1,2.5,a,b\n2,3.5,b,c\n"
    for source, target in (("here", "there"), ("3", "4"), ("HERE", "4")):
        graph, receipt = read(tmp_path, text, source=source, target=target)
        assert arcs(graph) == {("a", "b"): 2.5, ("b", "c"): 3.5}
        assert receipt.weight_column == "length"
    turned, _ = read(tmp_path, text, source="there", target="here")
    assert arcs(turned) == {("b", "a"): 2.5, ("c", "b"): 3.5}
    bare, _ = read(tmp_path, "7 1 2\n8 2 3\n", source="2", target="3", weight="1")
    assert arcs(bare) == {(1, 2): 7.0, (2, 3): 8.0}


def test_one_vertex_column_leaves_the_other_to_the_names(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, "a,from,to,km\n9,1,2,5\n8,2,3,6\n", source="a")
    assert arcs(graph) == {(9, 2): 5.0, (8, 3): 6.0}


def test_columns_of_momepy_are_found(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, "mm_len,geometry_id,node_start,node_end\n264.1,7,0,1\n10.5,8,1,2\n", weight="mm_len")
    assert arcs(graph) == {(0, 1): 264.1, (1, 2): 10.5}


def test_of_names_that_differ_in_the_case_of_letters_the_one_that_is_given_counts(tmp_path: Path) -> None:
    text = "From,from,to,Time,time\n1,5,2,10,11\n2,6,3,20,21\n"
    for source, weight, wanted in (
        ("from", "time", {(5, 2): 11, (6, 3): 21}),
        ("From", "Time", {(1, 2): 10, (2, 3): 20}),
    ):
        assert arcs(read(tmp_path, text, source=source, target="TO", weight=weight)[0]) == wanted
    with pytest.raises(InvalidRequest, match=r"columns 4 .'Time'. and 5 .'time'. have one name: .* such as --weight 4"):
        read(tmp_path, text, source="from", target="to", weight="TIME")


@pytest.mark.parametrize(
    ("text", "options", "said", "number"),
    [
        ("from,to,km,km\n1,2,3,4\n", {}, "columns 3 .'km'. and 4 .'km'. have one name", {"weight": "4"}),
        ("from,to,km,km\n1,2,3,4\n", {"weight": "km"}, "such as --weight 3", {"weight": "4"}),
        ("from,to,x,x\n1,2,3,4\n", {"length_of": "x + 0"}, "such as --length-of '.3'", {"length_of": "$4 + 0"}),
        ("from,to,from,km\n1,2,3,4\n", {}, "such as --from 1", {"source": "1", "target": "to"}),
        ("from,to,to,km\n1,7,2,4\n", {"source": "from", "target": "to"}, "--to 2", {"source": "from", "target": "3"}),
    ],
)
def test_of_two_columns_of_one_name_the_number_of_one_is_asked(
    tmp_path: Path, text: str, options: dict[str, object], said: str, number: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read(tmp_path, text, **options)
    assert arcs(read(tmp_path, text, **number)[0]) == {(1, 2): 4.0}


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({"source": "x"}, "source", "no column 'x': the header has a, b, km"),
        ({"target": "4"}, "target", "no column 4: the rows have 3"),
        ({"source": "a", "target": "1"}, "target", "both ends"),
        ({"source": "a", "target": "km", "weight": "3"}, "weight", "holds vertices"),
        ({"length_of": "1 - y"}, "length_of", "no column 'y'"),
        ({"length_of": "1 - km", "weight": "km"}, "length_of", "exclude"),
        ({"length_of": "1 - km", "unweighted": True}, "length_of", "exclude"),
        ({"labels": "name"}, "labels", "no meaning for edges files, only for gml, graphml"),
        ({"centroids_through": True}, "centroids_through", "no meaning for edges files, only for tntp"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, options: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        read(tmp_path, "a,b,km\n1,2,3\n", **options)
    assert caught.value.field == field


def test_a_vertex_that_cannot_be_read_is_refused_with_its_column(tmp_path: Path) -> None:
    with pytest.raises(InvalidGraph, match=r"line 3: vertex '264.1' is not a whole number \(column 'to'\)"):
        read(tmp_path, "from,to,km\n1,2,3\n2,264.1,3\n3,4,5\n")


@pytest.mark.parametrize("option", ["source", "target", "labels", "length_of", "centroids_through"])
def test_options_without_meaning_are_refused_by_every_format(tmp_path: Path, option: str) -> None:
    samples = {"dimacs": "p sp 2 1\na 1 2 3\n", "metis": "2 1\n2\n1\n", "algs4": "2\n1\n0 1 2\n"}
    assert samples.keys() < FORMATS.keys()
    for name, text in samples.items():
        with pytest.raises(InvalidRequest, match=f"no meaning for {name} files"):
            read(tmp_path, text, format=name, **{option: True if option == "centroids_through" else "1 / x"})


# ---- similarities and formulas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        "combined_score",
        "score",
        "Similarity",
        "confidence",
        "correlation",
        "probability",
        "prob",
        "rating",
        "cosine_sim",
    ],
)
def test_a_similarity_is_never_taken_for_a_length(tmp_path: Path, column: str) -> None:
    with pytest.raises(InvalidRequest, match="similarity") as caught:
        read(tmp_path, f"u,v,{column}\n1,2,0.9\n2,3,0.2\n")
    assert f"--weight {column!r}" in str(caught.value)
    assert f"--length-of '1 - {column}'" in str(caught.value)
    assert "--unweighted" in str(caught.value)


def test_string_is_refused_and_read_as_one_says(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="'1000 - combined_score'"):
        read(tmp_path, STRING)
    assert arcs(read(tmp_path, STRING, weight="combined_score")[0]) == {("A", "B"): 900, ("B", "C"): 150}
    graph, receipt = read(tmp_path, STRING, length_of="1000 - combined_score")
    assert arcs(graph) == {("A", "B"): 100, ("B", "C"): 850}
    assert graph.integral
    assert (receipt.weight_column, receipt.length_of) == ("combined_score", "1000 - combined_score")
    graph, receipt = read(tmp_path, STRING, unweighted=True)
    assert not graph.weighted
    assert (receipt.weight_column, receipt.length_of) == (None, None)


def test_a_length_beside_a_similarity_is_read_and_the_rest_is_named(tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, "u,v,score,dist\n1,2,0.9,4\n2,3,0.1,5\n")
    assert arcs(graph) == {(1, 2): 4, (2, 3): 5}
    assert receipt.notes == ("not read: column score", NO_DIRECTION)


def test_a_word_that_only_begins_like_one_is_none(tmp_path: Path) -> None:
    assert arcs(read(tmp_path, "u,v,km,simple\n1,2,3,4\n")[0]) == {(1, 2): 3}


def test_formula_over_blocks_and_bad_rows(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i + 1},{(i % 7) + 1}\n" for i in range(1, 200_001))
    graph, _ = read(tmp_path, f"# remark\nu,v,w\n\n{rows}", length_of="1 / w")
    assert graph.m == 200_000
    assert np.array_equal(graph.weights, 1.0 / ((np.arange(1, 200_001) % 7) + 1))
    rows = rows.replace("\n150000,150001,", "\n# another\n150000,150001,0\n1,3,")
    with pytest.raises(InvalidGraph, match="1 / w is inf, which is no length") as caught:
        read(tmp_path, f"# remark\nu,v,w\n\n{rows}", length_of="1 / w")
    assert caught.value.line == 150_004
    assert (tmp_path / "graph.txt").read_text().split("\n")[150_003] == "150000,150001,0"


def test_negative_lengths_of_a_formula_are_negative_arcs(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, "u,v,rate\n1,2,4\n2,3,0.5\n", length_of="-log(rate)")
    assert graph.weights.tolist() == pytest.approx([-np.log(4), -np.log(0.5)])


def test_parquet_follows_the_same_rules(tmp_path: Path) -> None:
    path = tmp_path / "edges.parquet"
    pl.DataFrame({"u": [1, 2], "v": [2, 3], "score": [0.5, 0.0], "other": [1, 1]}).write_parquet(path)
    with pytest.raises(InvalidRequest, match="similarity"):
        read_graph(path)
    graph, receipt = read_graph(path, length_of="1 - score", source="v", target="u")
    assert arcs(graph) == {(2, 1): 0.5, (3, 2): 1.0}
    assert (receipt.weight_column, receipt.length_of) == ("score", "1 - score")
    assert receipt.notes == ("not read: column other", NO_DIRECTION)
    with pytest.raises(InvalidGraph, match="row 2: 1 / score is inf"):
        read_graph(path, length_of="1 / score")


# ---- attributes -----------------------------------------------------------------------------------------------------

GML = """graph [
  node [ id 1 label "Oslo" ]
  node [ id 2 label "Bergen" ]
  node [ id 3 label "A &#38; B" ]
  edge [ source 1 target 2 score 0.75 ]
  edge [ source 2 target 3 score 0.25 ]
]
"""
GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="label" attr.type="string"/>
<key id="d1" for="edge" attr.name="score" attr.type="double"/>
<graph edgedefault="undirected">
<node id="n1"><data key="d0">Oslo</data></node>
<node id="n2"><data key="d0">Bergen</data></node>
<node id="n3"><data key="d0">A &amp; B</data></node>
<edge source="n1" target="n2"><data key="d1">0.75</data></edge>
<edge source="n2" target="n3"><data key="d1">0.25</data></edge>
</graph></graphml>
"""


@pytest.mark.parametrize("text", [GML, GRAPHML], ids=["gml", "graphml"])
def test_attributes_follow_the_same_rules(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequest, match="similarity"):
        read(tmp_path, text)
    assert not read(tmp_path, text, unweighted=True)[0].weighted
    graph, receipt = read(tmp_path, text, length_of="1 - score", labels="label")
    assert graph.labels.tolist() == ["A & B", "Bergen", "Oslo"]
    assert arcs(graph) == {
        ("Oslo", "Bergen"): 0.25, ("Bergen", "Oslo"): 0.25, ("A & B", "Bergen"): 0.75, ("Bergen", "A & B"): 0.75,
    }  # fmt: skip
    assert (receipt.weight_column, receipt.length_of) == ("score", "1 - score")
    assert "the vertices are named by their attribute 'label'" in receipt.notes
    bad = text.replace("0.25", "0")
    with pytest.raises(InvalidGraph, match="1 / score is inf") as caught:
        read(tmp_path, bad, length_of="1 / score")
    assert caught.value.line == next(
        i for i, line in enumerate(bad.split("\n"), 1) if "score 0 " in line or ">0<" in line
    )


@pytest.mark.parametrize("text", [GML, GRAPHML], ids=["gml", "graphml"])
def test_labels_that_do_not_name_are_refused_by_line(tmp_path: Path, text: str) -> None:
    line = next(i for i, row in enumerate(text.split("\n"), 1) if "Bergen" in row)
    with pytest.raises(InvalidGraph, match="'Oslo' stands also on line") as caught:
        read(tmp_path, text.replace("Bergen", "Oslo"), labels="label", unweighted=True)
    assert caught.value.line == line
    with pytest.raises(InvalidGraph, match="is empty"):
        read(tmp_path, text.replace("Bergen", ""), labels="label", unweighted=True)
    with pytest.raises(InvalidRequest, match="no attribute 'name'; they have"):
        read(tmp_path, text, labels="name", unweighted=True)
    lacking = text.replace('label "Bergen"', "").replace('<data key="d0">Bergen</data>', "")
    with pytest.raises(InvalidGraph, match="has no 'label'") as caught:
        read(tmp_path, lacking, labels="label", unweighted=True)
    assert caught.value.line == line


def test_labels_that_are_numbers_sort_as_numbers(tmp_path: Path) -> None:
    text = "graph [ node [ id 1 label 10 ]\nnode [ id 2 label 9 ]\nedge [ source 1 target 2 ] ]\n"
    graph, _ = read(tmp_path, text, labels="label")
    assert graph.labels.tolist() == [9, 10]
    graph, _ = read(tmp_path, text.replace("label 9", 'label "09"'), labels="label")
    assert graph.labels.tolist() == ["09", "10"]
