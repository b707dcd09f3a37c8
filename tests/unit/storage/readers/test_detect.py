"""Formats are told by content; names break ties."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from storage.errors import InvalidGraph
from storage.readers import _MODULES, FORMATS, ReadLimits, read_graph
from storage.readers.detect import detect
from storage.readers.source import Source

CASES = [
    ("x.txt", "c hello\np sp 2 1\na 1 2 3\n", "dimacs"),
    ("x.csv", "a 0 1 3\n", "dimacs"),
    ("x.txt", "p tw 2 1\n1 2\n", "dimacs"),
    ("x.txt", "%%matrixmarket MATRIX coordinate pattern general\n2 2 1\n1 2\n", "mtx"),
    ("x.txt", "3 2\n2\n1 3\n2\n", "edges"),
    ("x.graph", "3 2\n2\n1 3\n2\n", "metis"),
    ("x.graph", "4 4\n2 4\n1 3\n2 4\n1 3\n", "metis"),
    ("x.txt", "5 5\n2\n1 3 4\n2 4\n3 2 5\n4\n", "metis"),
    ("x.graph", "# SNAP\n1 2\n2 3\n", "edges"),
    ("x.txt", 'Creator "x"\ngraph [ directed 1 node [ id 1 ] ]\n', "gml"),
    ("x.txt", "graph\n[\n node [ id 1 ]\n]\n", "gml"),
    ("x.txt", "<?xml version='1.0'?>\n<graphml><graph edgedefault='directed'/></graphml>", "graphml"),
    ("x.txt", "<graphml/>", "graphml"),
    ("x.txt", "<NUMBER OF NODES> 2\n<END OF METADATA>\n~ init_node term_node length ;\n\t1\t2\t3\t;\n", "tntp"),
    ("x.txt", "NAME: x\nDIMENSION : 2\n", "tsplib"),
    ("x.txt", "3\n1\n0 1 0.5\n", "algs4"),
    ("x.txt", "3\n1\n0 1\n", "algs4"),
    ("x.txt", "2\t5\t0\n0\t1\t1\t1\t[0]\n1\t1\t0\n", "rcpsp-max"),
    ("x.gr", "c only\nc comments\n", "dimacs"),
    ("x.mtx", "1 2\n2 3\n", "edges"),
    ("x.txt", "a b 3\nb c 4\n", "edges"),
    ("x.txt", "p q\nq r\n", "edges"),
    ("x.txt", "graph theory\ntheory book\n", "edges"),
]


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_told_by_content(tmp_path: Path, name: str, text: str, expected: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert detect(Source(path, ReadLimits())) == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [(b"\x93NUMPY\x01\x00", "npy"), (b"PK\x03\x04", "npz"), (b"PAR1", "parquet"), (b"SQLite format 3\0", "gpkg")],
)
def test_binary_marks(tmp_path: Path, start: bytes, expected: str) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(start + b"\x00" * 50)
    assert detect(Source(path, ReadLimits())) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"type": "FeatureCollection", "features": []}', "GeoJSON"),
    ],
)
def test_files_of_maps_are_named_with_what_to_do(tmp_path: Path, text: str, name: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(InvalidGraph, match=f"{name}.*gdf.drop"):
        read_graph(path)


@pytest.mark.parametrize("text", ["<!DOCTYPE html>\n<html></html>", "<html><body>", "\n<HTML>"])
def test_html_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.gr"
    path.write_text(text)
    with pytest.raises(InvalidGraph, match="HTML"):
        read_graph(path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("digraph { a -> b }\n", "Graphviz DOT"),
        ("strict graph X {\n", "Graphviz DOT"),
        (">>graph6<<A_\n", "graph6"),
        (">>sparse6<<:An\n", "graph6 or sparse6"),
        ("LEDA.GRAPH\nstring\n", "LEDA"),
        ("DL n=3\n", "UCINET DL"),
        ("nodedef>name VARCHAR\n", "GDF"),
    ],
)
def test_formats_that_are_not_read_are_named(tmp_path: Path, text: str, name: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(InvalidGraph, match=f"line 1: this looks like (a )?{name}"):
        read_graph(path)


def test_every_format_has_a_reader_and_a_description() -> None:
    assert set(FORMATS) == set(_MODULES)
    assert all(FORMATS.values())


def test_the_documentation_names_every_format_and_its_limits() -> None:
    text = (Path(__file__).resolve().parents[4] / "docs" / "formats.md").read_text()
    for name in FORMATS:
        assert f"| `{name}` |" in text
    for field in fields(ReadLimits):
        assert f"`{field.name}`" in text


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("3 2\n2\n1 3\n2\n")
    graph, receipt = read_graph(path, format="metis")
    assert (graph.n, graph.m, receipt.format) == (3, 2, "metis")
    with pytest.raises(InvalidGraph):
        read_graph(path, format="mtx")
