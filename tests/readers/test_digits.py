"""Numbers of thousands of digits, which Python refuses to read, are refused as any other that is too large."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import ApspError, InvalidGraph, InvalidRequest
from storage.readers import FORMATS, read_graph
from storage.readers.fields import is_number, weight
from storage.readers.tables.text_rows import normalise

HUGE = "9" * 5000
SAMPLES = [
    f"{HUGE} 2 3\n2 3 4\n", f"1 {HUGE} 3\n", f"1 2 {HUGE}\n", f"1 2 -{HUGE}\n", f"{HUGE} {HUGE}\n2 3 4\n1\n", HUGE,
    f"# Nodes: {HUGE} Edges: {HUGE}\n1 2\n", f"p sp {HUGE} 1\na 1 2 3\n", f"p sp 2 1\na 1 2 {HUGE}\n",
    f"from,to,km\n1,{HUGE},3\n", f"from,to,km\n1,2,{HUGE}\n", f"{HUGE} 1\n2\n1\n3\n", f"2 1 001 {HUGE}\n2 1\n1 1\n",
    f"%%MatrixMarket matrix coordinate integer general\n{HUGE} 2 1\n1 2 3\n",
    f"%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 2 {HUGE}\n",
    f"graph [ node [ id {HUGE} ] edge [ source {HUGE} target 1 ] ]",
    f"graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 value {HUGE} ] ]",
    f'<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed"><node id="{HUGE}"/>'
    f'<edge source="{HUGE}" target="{HUGE}"/></graph></graphml>',
    f"TYPE: TSP\nDIMENSION: {HUGE}\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\n"
    "EDGE_WEIGHT_SECTION\n0 1\n1 0\nEOF\n",
    f"<NUMBER OF NODES> {HUGE}\n<NUMBER OF LINKS> 1\n<END OF METADATA>\n~\n\t1\t2\t3\t4\t5\t;\n",
]  # fmt: skip


@pytest.mark.parametrize("kind", [None, *FORMATS])
def test_every_reader_answers_with_an_error_of_ours_or_a_graph(kind: str | None, tmp_path: Path):
    refused = 0
    for number, text in enumerate(SAMPLES):
        path = tmp_path / f"{number}.txt"
        path.write_text(text)
        try:
            read_graph(path, format=kind, mode="walking" if kind == "osm" else None)
        except ApspError:
            refused += 1
    assert refused >= (3 if kind == "adjlist" else 12), "an edge list takes some of them for names"


def test_a_weight_column_of_that_number_is_no_column(tmp_path: Path):
    path = tmp_path / "graph.txt"
    path.write_text("1 2 3\n")
    with pytest.raises(InvalidRequest, match="no column"):
        read_graph(path, weight=HUGE)


def test_a_link_table_without_links_says_so(tmp_path: Path):
    path = tmp_path / "net.tntp"
    path.write_text("<NUMBER OF NODES> 2\n<NUMBER OF LINKS> 0\n<END OF METADATA>\n~\t1\t2\t;\n\t")
    with pytest.raises(InvalidGraph, match="no link"):
        read_graph(path)


def test_a_million_digits_are_looked_at_once():
    """Here a pattern that tries every way to split them would take hours."""
    digits = "9" * 1_000_000
    for token in (digits, f"{digits}.", f"{digits}x", f".{digits}x", f"{digits}.{digits}x", f"{digits}e"):
        with pytest.raises(InvalidGraph):
            weight(token, 1)
        assert is_number(token) == (token in (digits, f"{digits}."))


def test_a_million_blanks_go_as_fast_as_they_came(tmp_path: Path):
    """Here one pass for each blank would take hours."""
    path = tmp_path / "graph.csv"
    for blank in (" ", "\t", "\n"):
        run, within = blank * 1_000_000, "" if blank == "\n" else blank * 1_000_000
        path.write_text(f"from,to,km\na,b{within},3\nb,{within}c,4{run}\n")
        graph, _ = read_graph(path)
        assert (graph.n, graph.arcs, graph.weights.tolist()) == (3, 2, [3, 4])


@pytest.mark.parametrize("mark", [b",", b";"])
def test_blanks_beside_marks_go_however_many(mark: bytes):
    for count in (0, 1, 3, 4, 5, 6, 100, 5000):
        blanks = b" " * count
        data = b"a  b" + blanks + mark + blanks + b"c" + blanks + b"\n" + blanks + b"\n" * count + b"d" + mark + b"e\n"
        assert normalise(data, mark.decode()) == b"a  b" + mark + b"c\nd" + mark + b"e\n"
