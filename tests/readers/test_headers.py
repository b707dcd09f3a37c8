"""Edge lists with headers, remarks and size lines: each is read right or refused, none is read as something else."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from storage.errors import InvalidGraph, InvalidRequest
from storage.graph.graph import Graph, Receipt
from storage.readers import read_graph

Arcs = dict[tuple[object, object], float]
ASSUMED = "the file does not say whether its edges are directed"


def read(tmp_path: Path, content: str | bytes, name: str = "g.csv", **options: Any) -> tuple[Graph, Receipt]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_graph(path, **options)


def arcs_of(graph: Graph) -> Arcs:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = graph.labels.tolist()
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return {(names[u], names[v]): w for u, v, w in rows}


def both(arcs: Arcs) -> Arcs:
    return arcs | {(v, u): w for (u, v), w in arcs.items()}


def table(index: bool = False, header: bool = True, sep: str = ",", **columns: list[Any]) -> str:
    """A table as pandas writes it."""
    out = io.StringIO()
    pd.DataFrame(columns).to_csv(out, index=index, header=header, sep=sep)
    return out.getvalue()


def savetxt(rows: list[list[float]], header: str, **options: Any) -> str:
    """An array as NumPy writes it."""
    out = io.StringIO()
    np.savetxt(out, np.array(rows), header=header, **options)
    return out.getvalue()


UV = {"u": [5, 6], "v": [6, 7]}
LENGTHS: Arcs = {(5, 6): 1.5, (6, 7): 2}
ONES: Arcs = {(5, 6): 1, (6, 7): 1}

# ---------------------------------------------------------------- which column is the length


@pytest.mark.parametrize(
    "name",
    [
        "weight", "w", "length", "Distance", "cost", "value", "km", "m", "miles", "mile", "metres", "meters",
        "kilometres", "kilometers", "time", "travel_time", "travelTime", "traveltime", "duration", "impedance",
        "minutes", "mins", "seconds", "secs", "sec", "hours", "hrs", "Total_Length", "min_transfer_time", "dist:float",
        "weight:double", "length_m", "time_s", "distance (km)", "Distance [m]", "free_flow_time", "FREE_FLOW_TIME",
        "FreeFlowTime", "mm_len", "SHAPE_Leng", "cost_usd", "edgeWeight", "total_minutes", "LengthKM", "len_m",
        "drive time",
    ],
)  # fmt: skip
def test_columns_named_like_a_length_are_read(name: str, tmp_path: Path) -> None:
    graph, receipt = read(tmp_path, table(**UV, lanes=[3, 9], **{name: [1.5, 2]}))
    assert arcs_of(graph) == LENGTHS
    assert receipt.weight_column == name
    assert "not read: column lanes" in receipt.notes


@pytest.mark.parametrize(
    "name",
    [
        "key", "lanes", "line", "capacity", "bandwidth", "frequency", "trips", "n", "year", "rank", "timestamp",
        "gamma", "DestinationRank", "transfer_type", "departure_time", "start_time", "end_time", "UNIXTS", "sign",
        "Relationship", "speed_kmh", "maxspeed", "max_weight", "maxlength", "inverse_distance", "weight_class",
        "distance_rank", "cost_per_km", "name_length", "weighted", "lengthy", "simple", "oneway",
        "number_of_hours", "2019", "osmid",
    ],
)  # fmt: skip
def test_columns_of_other_names_are_never_a_length(name: str, tmp_path: Path) -> None:
    content = table(**UV, **{name: [1, 2]}) if name != "2019" else "from,to,2019\n5,6,1\n6,7,2\n"
    with pytest.raises(InvalidRequest, match="not named like a length") as caught:
        read(tmp_path, content)
    assert caught.value.field == "weight"
    assert f"--weight {name!r}" in str(caught.value)
    assert "--unweighted" in str(caught.value)
    assert arcs_of(read(tmp_path, content, weight=name)[0]) == {(5, 6): 1, (6, 7): 2}
    assert arcs_of(read(tmp_path, content, unweighted=True)[0]) == ONES


@pytest.mark.parametrize("name", ["cor", "corr", "correlation", "r", "p_value", "pvalue", "p", "p.value", "adj.P.Val",
                                  "padj", "PValue", "prob", "rating", "combined_score"])  # fmt: skip
def test_similarities_and_p_values_are_no_lengths(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="which is no length"):
        read(tmp_path, table(**UV, **{name: [0.25, 0.5]}))
    path = tmp_path / "g.parquet"
    pl.DataFrame({**UV, name: [0.25, 0.5]}).write_parquet(path)
    with pytest.raises(InvalidRequest, match="which is no length"):
        read_graph(path)


DATES = [1289241912, 1289241942]

#: Content, options; the arcs, or words of the refusal.
CASES: dict[str, tuple[str, dict[str, Any], Arcs | str]] = {
    # -------- several numbers
    "two numbers, none named": (table(**UV, lanes=[1, 2], year=[3, 4]), {}, "columns 'lanes', 'year' hold numbers"),
    "two lengths": (table(**UV, minutes=[8, 9], length=[1.5, 2]), {}, LENGTHS),
    "GTFS transfers": (
        table(from_stop_id=[5, 6], to_stop_id=[6, 7], transfer_type=[2, 2], min_transfer_time=[1.5, 2]),
        {},
        LENGTHS,
    ),
    "ArcGIS": (
        table(
            ObjectID=[1, 2], Name=["a", "b"], OriginID=[5, 6], DestinationID=[6, 7], DestinationRank=[1, 1],
            Total_Length=[1.5, 2],
        ),
        {},
        LENGTHS,
    ),
    "lanes and minutes": (table(orig=[5, 6], dest=[6, 7], lanes=[2, 3], minutes=[1.5, 2]), {}, LENGTHS),
    "Bitcoin OTC": (table(SOURCE=[5, 6], TARGET=[6, 7], RATING=[4, 2], TIME=DATES), {}, "'RATING' reads like"),
    "dates alone": (table(source=[5, 6], target=[6, 7], time=DATES), {}, "the values of 'time' are dates"),
    "dates beside a length": (table(**UV, time=DATES, km=[1.5, 2]), {}, LENGTHS),
    "dates in text": (table(**UV, time=["2020-01-01", "2020-01-02"], km=[1.5, 2]), {}, LENGTHS),
    "a number with gaps": (table(**UV, lanes=[None, 2]), {}, "'lanes' holds numbers"),
    "decimal commas of an unknown name": ("u\tv\tBreite\n5\t6\t1,5\n6\t7\t2,0\n", {}, "'Breite' holds numbers"),
    "decimal commas of a length": ("u\tv\tLänge\n5\t6\t1,5\n6\t7\t2,0\n", {}, "'1,5' is not a number"),
    "decimal commas without a header": ("5\t6\t1,5\n6\t7\t2,0\n", {}, "'1,5' is not a number"),
    "text only": (table(**UV, road=["a", "b"]), {}, ONES),
    "an end that is asked for": (table(a=[5, 6], b=[6, 7], lanes=[1, 2]), {"source": "a", "target": "b"}, "'lanes'"),
    # -------- which columns are the vertices
    "fid, nodea, nodeb": (table(fid=[1, 2], nodea=[5, 6], nodeb=[6, 7], length=[1.5, 2]), {}, LENGTHS),
    "index, stop_a, stop_b": (table(index=[0, 1], stop_a=[5, 6], stop_b=[6, 7], minutes=[1.5, 2]), {}, LENGTHS),
    "node1, node2": (table(id=[0, 1], node1=[5, 6], node2=[6, 7], km=[1.5, 2]), {}, LENGTHS),
    "stations and their line": (table(station1=[5, 6], station2=[6, 7], line=[1, 1]), {}, "'line' holds numbers"),
    "linkSource": ("linkSource,linkTarget\nAda,Bob\nBob,Eve\n", {}, {("Ada", "Bob"): 1, ("Bob", "Eve"): 1}),
    "Neo4j": (":START_ID,:END_ID,:TYPE,dist:float\n5,6,R,1.5\n6,7,R,2\n", {}, LENGTHS),
    "source before start": (
        table(start=[1, 2], end=[2, 3], source=[5, 6], target=[6, 7], length=[1.5, 2]),
        {},
        LENGTHS,
    ),
    "v and w": (table(v=[5, 6], w=[6, 7], weight=[1.5, 2]), {}, LENGTHS),
    "unknown ends and a length": (table(residue=[5, 6], other=[6, 7], distance=[1.5, 2]), {}, LENGTHS),
    "a length, then unknown ends": (table(distance=[1.5, 2], residue=[5, 6], other=[6, 7]), {}, LENGTHS),
    "unknown ends, a text": (table(a=[5, 6], b=[6, 7], km=[1.5, 2], road=["x", "y"]), {}, "--from COLUMN"),
    "unknown names": (table(alpha=[5, 6], beta=[6, 7], gamma=[1, 2]), {}, "--from COLUMN and --to COLUMN"),
    "unknown names, a weight": (table(alpha=[5, 6], beta=[6, 7], gamma=[1.5, 2]), {"weight": "gamma"}, LENGTHS),
    "neighbours": (table(id=[5, 6], nn1=[6, 7], nn2=[7, 8], nn3=[8, 9]), {}, "'id' does not read like"),
    "coordinates": (
        table(lon1=[1.0, 2], lat1=[1.0, 2], lon2=[1.0, 2], lat2=[1.0, 2], len=[1.5, 2]),
        {},
        "'lon1' does not read like",
    ),
    "WKT": (table(WKT=["LINESTRING (0 0, 1 1)"] * 2, id=[1, 2], length=[1.5, 2]), {}, "'WKT' does not read like"),
    "nodes of Gephi": (table(Id=[1, 2], Label=["Ada", "Bob"], timeset=[None, None]), {}, "'Id' does not read like"),
    "nodes with places": (table(id=[1, 2], x=[1, 2], y=[2, 3]), {}, "'id' does not read like"),
    "nodes with text": (table(id=[1, 2], name=["p", "q"], a=[1, 2], b=[1, 2], c=[1, 2]), {}, "does not read like"),
    "nodes, unweighted": (table(id=[1, 2], name=["p", "q"]), {"unweighted": True}, "does not read like"),
    "places": (table(x=[1, 2], y=[2, 3]), {}, "'x' does not read like"),
    "triples": ("subject,predicate,object\nAda,likes,Bob\nBob,likes,Eve\n", {}, "say --from 1 --to 3"),
    "triples by tabs": ("subject\tpredicate\tobject\nAda\tlikes\tBob\nBob\tlikes\tAda\n", {}, "'subject' does not"),
    "facts": ("head,relation,tail\nAda,likes,Bob\nBob,likes,Eve\n", {}, "head before tail"),
    "a target first": (table(to=[6, 7], there=[5, 6], km=[1.5, 2]), {}, "the opposite of their names"),
    "a length before one vertex": (table(time=[1, 2], place=[5, 6]), {}, "too few"),
    "one end that is asked for": ("5 6 1.5\n6 7 2\n", {"target": "2"}, "both --from COLUMN and --to COLUMN"),
    # -------- the first line
    "words above mixed labels": ("foo bar\n1 2\n2 3\nx17 y\n", {}, "may name the columns or be an arc"),
    "u and v above names": ("u,v\nAda,Bob\nBob,Eve\n", {}, "may name the columns or be an arc"),
    "u and v among names": ("u,v\nv,w\nw,u\n", {}, {("u", "v"): 1, ("v", "w"): 1, ("w", "u"): 1}),
    "a first row that lacks its weight": ("A,B,NA\nB,C,5\nC,D,6\n", {}, "the weight is missing"),
    "a first row that lacks its weight, empty": ("A,B,\nB,C,5\nC,D,6\n", {}, "the weight is missing"),
    "vertices node1 and node2": (
        "node1,node2\nnode2,node3\n",
        {},
        {("node1", "node2"): 1, ("node2", "node3"): 1},
    ),
    "vertices node1 and node2 with lengths": (
        "node1 node2 5\nnode2 node3 6\n",
        {},
        {("node1", "node2"): 5, ("node2", "node3"): 6},
    ),
    "node1 and node2 above node3": ("node1,node2\nnode3,node4\n", {}, "may name the columns or be an arc"),
    "node1 and node2 above names": ("node1,node2\nAda,Bob\n", {}, {("Ada", "Bob"): 1}),
    "BioGRID": (
        "Official Symbol Interactor A\tOfficial Symbol Interactor B\tScore\nAda\tBob\t-\nBob\tEve\t-\n",
        {},
        {("Ada", "Bob"): 1, ("Bob", "Eve"): 1},
    ),
    "names only": ("A,B\nB,C\n", {}, {("A", "B"): 1, ("B", "C"): 1}),
    # -------- row numbers
    "pandas": (table(index=True, source=[5, 6], target=[6, 7], km=[1.5, 2]), {}, LENGTHS),
    "pandas, read and written again": (
        pd.read_csv(io.StringIO(table(index=True, a=[5, 6], b=[6, 7], km=[1.5, 2]))).to_csv(index=False),
        {},
        LENGTHS,
    ),
    "pandas without a header": (table(index=True, header=False, u=[5, 7], v=[7, 9], w=[3, 2]), {}, "--from 2 --to 3"),
    "the same, as asked": (
        table(index=True, header=False, u=[5, 6], v=[6, 7], w=[1.5, 2]),
        {"source": "2", "target": "3", "weight": "4"},
        LENGTHS,
    ),
    "pandas without a header, a path": (
        table(index=True, header=False, u=[1, 2], v=[2, 3], w=[3, 2]),
        {},
        "column 1 counts the rows",
    ),
    "pandas without a header, names": (
        table(index=True, header=False, u=["Ada", "Bob"], v=["Bob", "Eve"], w=[3, 2]),
        {},
        "column 1 counts the rows",
    ),
    "R without a header": ('"1" 5 7 3\n"2" 7 9 2\n', {}, "column 1 counts the rows"),
    "a path from 1 on": ("1,2,5,9\n2,3,6,9\n", {}, {(1, 2): 5, (2, 3): 6}),
    # -------- dates without a header
    "SNAP temporal": ("9 8 1217567877\n1 1 1217573801\n13 1 1217606247\n", {}, "say --weight 3"),
    "SNAP temporal, unweighted": ("5 6 1217567877\n6 7 1217573801\n", {"unweighted": True}, ONES),
    "large lengths": ("5 6 1.5\n6 7 2\n7 8 1217573801\n", {}, {(5, 6): 1.5, (6, 7): 2, (7, 8): 1217573801}),
    # -------- headers in comments
    "savetxt": (savetxt([[5, 6, 1.5], [6, 7, 2]], "from,to,km", delimiter=",", fmt=["%d", "%d", "%g"]), {}, LENGTHS),
    "savetxt by blanks": (savetxt([[5, 6, 1.5], [6, 7, 2]], "u v dist", fmt=["%d", "%d", "%g"]), {}, LENGTHS),
    "savetxt, turned": (
        savetxt([[1.5, 5, 6], [2, 6, 7]], "length u v", fmt=["%g", "%d", "%d"]),
        {},
        LENGTHS,
    ),
    "savetxt, lanes": (
        savetxt([[5, 6, 1], [6, 7, 2]], "made today\nu v lanes", fmt="%d"),
        {},
        "'lanes' holds numbers",
    ),
    "savetxt by commas, unknown": (savetxt([[5, 6, 1], [6, 7, 2]], "a,b,f", delimiter=",", fmt="%d"), {}, "--from"),
    "STRING on the web": (
        "#node1\tnode2\tnode1_string_id\tnode2_string_id\tcombined_score\nAda\tBob\tx.1\tx.2\t0.9\nBob\tEve\tx.2\tx.3\t0.4\n",
        {},
        "'combined_score' reads like a similarity",
    ),
    "SNAP, a sign": ("# Directed graph: x.txt\n# FromNodeId\tToNodeId\tSign\n5\t6\t1\n6\t7\t-1\n", {}, "'Sign' holds"),
    "a remark of as many words": ("# my nice graph\n5 6 1.5\n6 7 2\n", {}, LENGTHS),
    "a remark with as many commas": ("# Made by me, today\n5,6\n6,7\n", {}, ONES),
    # -------- directions
    "SNAP, undirected": (
        "# Undirected graph (each unordered pair of nodes is saved once): x.txt\n# Nodes: 3 Edges: 2\n"
        "# FromNodeId\tToNodeId\n5\t6\n6\t7\n",
        {},
        both(ONES),
    ),
    "SNAP, undirected, as asked": ("# Undirected graph: x.txt\n5\t6\n6\t7\n", {"directed": True}, ONES),
    "SNAP, directed, as asked": ("# Directed graph: x.txt\n5\t6\n6\t7\n", {"directed": False}, both(ONES)),
    "directed: no": ("# directed: no\n5 6\n6 7\n", {}, both(ONES)),
    "directed=true": ("# directed=true\n5 6\n6 7\n", {}, ONES),
    "a vague remark": ("# Directed version of an undirected graph\n5 6\n6 7\n", {}, "say --undirected or --directed"),
    "a vague remark, decided": ("# An undirected graph of friends\n5 6\n6 7\n", {"directed": False}, both(ONES)),
    "two remarks": ("# Directed graph\n# Undirected graph\n5 6\n6 7\n", {}, "say --undirected or --directed"),
    "KONECT, sym": ("% sym unweighted\n% 2 3 3\n5 6\n6 7\n", {}, both(ONES)),
    "KONECT, asym": ("% asym weighted\n5 6 1.5\n6 7 2\n", {}, LENGTHS),
    "KONECT, with dates": ("% asym unweighted\n5 6 1 1217567877\n6 7 1 1217567878\n", {}, ONES),
    "KONECT, counts": ("% sym positive\n5 6 3\n6 7 2\n", {}, "line 1 says 'positive', so column 3 holds counts"),
    "KONECT, signs": ("% asym signed\n5 6 1\n6 7 -1\n", {"unweighted": True}, ONES),
    "KONECT, bip": ("% bip unweighted\n1 1\n1 2\n2 1\n", {}, "two kinds"),
    "KONECT, bip, whatever one says": ("% bip unweighted\n1 1\n1 2\n2 1\n", {"directed": True}, "two kinds"),
    "KONECT, bip with letters": ("% bip unweighted\n1 i1\n1 i2\n", {}, both({("1", "i1"): 1, ("1", "i2"): 1})),
    "directed, yes": (table(**UV, km=[1.5, 2], directed=["true", "true"]), {}, LENGTHS),
    "directed, no": (table(**UV, km=[1.5, 2], directed=[0, 0]), {}, both(LENGTHS)),
    "directed, both": (table(**UV, km=[1.5, 2], directed=[0, 1]), {}, "edges both directed and undirected"),
    "directed, some word": (table(**UV, km=[1.5, 2], directed=["a", "b"]), {}, "says no direction"),
    "Type, some word": (table(**UV, km=[1.5, 2], Type=["Directed", "?"]), {}, "says no direction"),
    "Type, kinds of edges": (table(**UV, km=[1.5, 2], type=["road", "rail"]), {}, LENGTHS),
    "Gephi without weights": (
        "Source,Target,Type,Label\n5,6,Undirected,\n6,7,Undirected,\n",
        {},
        both(ONES),
    ),
    "Type against a remark": ("# Directed graph\nu,v,Type\n5,6,Undirected\n6,7,Undirected\n", {}, "line 1 says"),
    # -------- size lines
    "a size line of few": ("3 2\n1 2\n2 3\n", {}, "'3 2' may count vertices"),
    "a size line of few, from 0": ("3 2\n0 1\n1 2\n", {}, "'3 2' may count vertices"),
    "a size line of few, as a comment": ("# Nodes: 3 Edges: 2\n1 2\n2 3\n", {}, {(1, 2): 1, (2, 3): 1}),
    "a size line of few, as an arc": ("source target\n3 2\n2 1\n1 3\n", {}, {(3, 2): 1, (2, 1): 1, (1, 3): 1}),
    "a size line that is none": ("1 2\n2 3\n3 1\n", {}, {(1, 2): 1, (2, 3): 1, (3, 1): 1}),
    "no size line, for it has three fields": (
        "3 2 9\n1 2 5\n2 3 1\n",
        {"unweighted": True},
        {(3, 2): 1, (1, 2): 1, (2, 3): 1},
    ),
    "a size line above names": ("3 2\nAda Bob\nBob Eve\n", {}, "'3 2' counts the 2 rows below"),
    "a size line of names": ("3,2\nAda,Bob\nBob,Eve\n", {}, "'3 2' counts the 2 rows below"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_right_or_refused_and_none_silent(name: str, tmp_path: Path) -> None:
    content, options, expected = CASES[name]
    if isinstance(expected, str):
        with pytest.raises((InvalidGraph, InvalidRequest)) as caught:
            read(tmp_path, content, **options)
        assert expected in str(caught.value)
    else:
        graph, receipt = read(tmp_path, content, **options)
        assert receipt.format == "edges"
        assert arcs_of(graph) == expected


def test_a_size_line_among_many_is_believed_and_told(tmp_path: Path) -> None:
    pairs = "".join(f"{i} {i + 1}\n" for i in range(40))
    graph, receipt = read(tmp_path, f"# made today\n50 40\n{pairs}")
    assert (graph.n, graph.m) == (50, 40)
    assert "line 2 declares 50 vertices: 0 .. 49" in receipt.notes
    assert read(tmp_path, f"source target\n50 40\n{pairs}")[0].n == 42


# ---------------------------------------------------------------- what the receipt says of directions


@pytest.mark.parametrize(
    ("content", "directed", "said"),
    [
        ("1 2\n2 3\n", None, ASSUMED),
        ("u,v,km\n1,2,3\n", None, ASSUMED),
        ("1 2\n2 3\n", True, ""),
        ("1 2\n2 3\n", False, ""),
        ("# Undirected graph: x\n1 2\n2 3\n", None, "line 1 says that the edges are undirected"),
        ("# x\n# Directed graph\n1 2\n2 3\n", None, "line 2 says that the edges are directed"),
        ("# Directed graph\n1 2\n2 3\n", False, "directed; they are read the other way, as asked"),
        ("% sym unweighted\n1 2\n2 3\n", True, "undirected; they are read the other way, as asked"),
        ("u,v,type\n1,2,undirected\n", None, "column 'type': all edges are undirected"),
    ],
)
def test_the_receipt_says_who_decided_on_directions(
    content: str, directed: bool | None, said: str, tmp_path: Path
) -> None:
    notes = " ".join(read(tmp_path, content, directed=directed)[1].notes)
    assert said in notes
    assert (ASSUMED in notes) == (said == ASSUMED)


# ---------------------------------------------------------------- Parquet has the same rules

PARQUET: dict[str, tuple[dict[str, list[Any]], dict[str, Any], Arcs | str]] = {
    "a length": ({**UV, "lanes": [1, 2], "Total_Length": [1.5, 2]}, {}, LENGTHS),
    "none": ({**UV, "key": [0, 0]}, {}, "'key' holds numbers"),
    "dates": ({**UV, "time": DATES}, {}, "the values of 'time' are dates"),
    "dates that may be missing": ({**UV, "time": [None, DATES[0]], "km": [1.5, 2]}, {}, LENGTHS),
    "nodes": ({"id": [1, 2], "x": [1, 2], "y": [1, 2]}, {}, "'id' does not read like"),
    "an index": ({"__index_level_0__": [0, 1], "stop_a": [5, 6], "stop_b": [6, 7], "minutes": [1.5, 2]}, {}, LENGTHS),
    "geometry": ({"geometry": [b"x", b"y"], "id": [1, 2], "length": [1.5, 2]}, {}, "'geometry' does not read like"),
    "undirected": ({**UV, "km": [1.5, 2], "Type": ["Undirected"] * 2}, {}, both(LENGTHS)),
    "undirected, as asked": ({**UV, "km": [1.5, 2], "Type": ["Undirected"] * 2}, {"directed": True}, LENGTHS),
    "false": ({**UV, "km": [1.5, 2], "directed": [False, False]}, {}, both(LENGTHS)),
    "mixed": ({**UV, "km": [1.5, 2], "directed": [False, True]}, {}, "edges both directed and undirected"),
}


@pytest.mark.parametrize("name", PARQUET)
def test_tables_of_parquet(name: str, tmp_path: Path) -> None:
    columns, options, expected = PARQUET[name]
    path = tmp_path / "g.parquet"
    pl.DataFrame(columns).write_parquet(path)
    if isinstance(expected, str):
        with pytest.raises((InvalidGraph, InvalidRequest), match=expected):
            read_graph(path, **options)
    else:
        graph, receipt = read_graph(path, **options)
        assert arcs_of(graph) == expected
        assert (ASSUMED in " ".join(receipt.notes)) == ("directed" not in options and "directed" not in name
                                                        and name != "false")  # fmt: skip


# ---------------------------------------------------------------- so have the attributes of edges


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("travelTime", "2.5", 2.5),
        ("lanes", "2", 1),
        ("time", "1289241912", "values are dates"),
        ("cor", "0.5", "no length"),
    ],
)
def test_attributes_of_edges(attribute: str, value: str, expected: float | str, tmp_path: Path) -> None:
    text = f"graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 {attribute} {value} ] ]\n"
    if isinstance(expected, str):
        with pytest.raises(InvalidRequest, match=expected):
            read(tmp_path, text, "g.gml")
    else:
        assert arcs_of(read(tmp_path, text, "g.gml")[0])[1, 2] == expected
