"""Every damaged, odd and border-line file is either read as BROKEN.json says or refused by line or field."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from storage.errors import InvalidGraph, LimitExceeded
from storage.graph.graph import graph_digest
from storage.readers import read_graph

pytestmark = pytest.mark.data

#: Files that must read to the graph that BROKEN.json names, with the options they need.
SAME: dict[str, dict[str, bool]] = {
    "ches_array.mtx": {"directed": False},  # a general matrix that happens to be symmetric
    "ches_banner_case.mtx": {},
    "ches_both_triangles.mtx": {},
    "ches_fortran.mtx": {},
    "ches_ok.mtx": {},
    "ches_upper.mtx": {},
    "sioux_bom.gr": {},
    "sioux_cr.gr": {},
    "sioux_crlf.gr": {},
    "sioux_duplicates.gr": {},
    "sioux_excel.csv": {},
    "sioux_late_comments.gr": {},
    "sioux_latin1.gr": {},
    "sioux_mixed_ends.gr": {},
    "sioux_no_header.csv": {},
    "sioux_no_newline.gr": {},
    "sioux_no_p.gr": {},
    "sioux_ok.csv": {},
    "sioux_ok.gr": {},
    "sioux_ok.gr.gz": {},
    "sioux_quoted.csv": {},
    "sioux_self_loops.gr": {},
    "sioux_spaces.gr": {},
    "sioux_swapped.csv": {},
    "sioux_two_members.gr.gz": {},
    "sioux_utf16.gr": {},
}

#: Files that must read, with their n and m.
READ: dict[str, tuple[int, int]] = {
    "sioux_isolated.gr": (30, 76),
    "sioux_n0.gr": (0, 0),
    "sioux_no_arcs.gr": (24, 0),
    "sioux_overflow_int32.gr": (24, 76),
    # Defective for a solver only: the reader has nothing against a negative arc, the engine names the cycle.
    "sioux_negative_arc.gr": (24, 76),
    # As found, and sensible: any key may stand before 'graph' in GML.
    "celegansneural_as_found.gml": (297, 2345),
    "dolphins_s_loop.csv": (62, 318),
    "karate_multi_edge.csv": (34, 156),
    "negative-vertex-id.csv": (3, 2),
}

#: Files that must be refused: the line named (None: the whole file is at fault) and words of the message.
REFUSED: dict[str, tuple[int | None, str]] = {
    "USA-road-d.NY_as_found.gr": (5, "declares 733846 arcs, the file has 16"),
    "ches_complex.mtx": (1, "complex values are no weights"),
    "ches_missing_value.mtx": (59, "expected 3 fields, found 2"),
    "ches_nnz_high.mtx": (2, "declares 171 entries, the file has 170"),
    "ches_nnz_low.mtx": (2, "declares 169 entries, the file has 170"),
    "ches_no_banner.mtx": (1, "%%MatrixMarket line is missing"),
    "ches_rectangular.mtx": (2, "39 x 40"),
    "ches_skew.mtx": (1, "skew-symmetric"),
    "ches_zero_index.mtx": (3, "vertex 0"),
    "facebook_combined_as_found.txt.gz": (1, "at least two fields, found '0'"),
    "p2p-Gnutella08_as_found.txt": (1, "damaged count"),
    "sioux_bad_crc.gr.gz": (None, "gzip stream is damaged"),
    "sioux_blank_weights.csv": (31, "the weight is missing"),
    "sioux_comments_only.gr": (None, "only comments"),
    "sioux_count_high.gr": (2, "declares 77 arcs, the file has 76"),
    "sioux_count_low.gr": (2, "declares 75 arcs, the file has 76"),
    "sioux_decimal_comma.gr": (32, "'8,5'"),
    "sioux_empty.gr": (None, "the file is empty"),
    "sioux_extra_column.gr": (32, "expected 4 fields, found 5"),
    # Readable as a number, but DIMACS weights are whole: a fraction means that something went wrong upstream.
    "sioux_float_weight.gr": (32, "'8.25' is not a whole number"),
    "sioux_header_again.csv": (31, "weight 'weight' is not a number"),
    "sioux_html.gr": (1, "HTML page"),
    "sioux_huge_float.gr": (32, "1e309"),
    "sioux_huge_n.gr": (2, "4,000,000,000 vertices"),
    "sioux_inf.gr": (32, "'inf'"),
    "sioux_lfs_pointer.gr": (1, "Git LFS pointer"),
    "sioux_missing_weight.gr": (32, "expected 4 fields, found 3"),
    # BROKEN.json points at the p line; the message names both it and the arc.
    "sioux_n_low.gr": (41, "vertex 24 is outside 1 .. 23 (line 2 declares 23 vertices)"),
    "sioux_nan.gr": (32, "'nan'"),
    "sioux_negative_id.gr": (32, "vertex -17"),
    "sioux_not_gzip.gr.gz": (None, "promises gzip"),
    "sioux_nul.gr": (40, "NUL byte"),
    "sioux_overflow_int64.gr": (32, "beyond 2^53"),
    "sioux_overflow_sum.gr": (3, "beyond 2^53"),
    "sioux_p_last.gr": (78, "arcs stand before it"),
    "sioux_ragged.csv": (31, "expected 3 fields, found 2"),
    "sioux_text_weight.gr": (32, "'n/a'"),
    "sioux_thousands.gr": (32, "'1,008'"),
    "sioux_truncated.gr": (2, "declares 76 arcs, the file has 46"),
    "sioux_truncated.gr.gz": (None, "cut off"),
    "sioux_two_p.gr": (3, "a second p line"),
    "sioux_vertex_float.gr": (32, "'17.0'"),
    "sioux_vertex_text.gr": (32, "'x17'"),
    "sioux_wrong_kind.gr": (2, "'p edge' is another DIMACS format"),
    "sioux_zero_based.gr": (3, "vertex 0"),
    "soc-Epinions1.txt.gz": (None, "cut off"),
}

#: Where the line differs from the one in BROKEN.json on purpose.
_OTHER_LINE = {"sioux_n_low.gr", "sioux_html.gr", "sioux_lfs_pointer.gr"}


def _facts(data_dir: Path) -> dict[str, dict[str, object]]:
    facts: dict[str, dict[str, object]] = json.loads((data_dir / "broken" / "BROKEN.json").read_text())
    return facts


def test_the_tables_cover_every_file_once(data_dir: Path) -> None:
    names = [*SAME, *READ, *REFUSED]
    assert len(names) == 81
    assert sorted(names) == sorted(_facts(data_dir))


def test_the_tables_follow_the_classes(data_dir: Path) -> None:
    for name, fact in _facts(data_dir).items():
        if fact["class"] in ("valid", "harmless"):
            assert name not in REFUSED, name
        if fact["class"] == "defective":
            assert name in REFUSED or name == "sioux_negative_arc.gr", name
        if "line" in fact and name in REFUSED and name not in _OTHER_LINE:
            assert REFUSED[name][0] == fact["line"], name


@pytest.mark.parametrize("name", sorted(SAME))
def test_reads_to_the_same_graph(name: str, data_dir: Path) -> None:
    base = str(_facts(data_dir)[name]["same_graph_as"])
    expected, _ = read_graph(data_dir / "broken" / base)
    graph, _ = read_graph(data_dir / "broken" / name, **SAME[name])
    assert graph_digest(graph) == graph_digest(expected)


@pytest.mark.parametrize("name", sorted(READ))
def test_reads(name: str, data_dir: Path) -> None:
    graph, _ = read_graph(data_dir / "broken" / name)
    assert (graph.n, graph.m) == READ[name]
    fact = _facts(data_dir)[name]
    assert (fact.get("n", graph.n), fact.get("m", graph.m)) == READ[name]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refuses_and_says_where(name: str, data_dir: Path) -> None:
    line, words = REFUSED[name]
    with pytest.raises((InvalidGraph, LimitExceeded)) as caught:
        read_graph(data_dir / "broken" / name)
    message = str(caught.value)
    assert words in message
    if line is not None:
        assert message.startswith(f"line {line}: ")


def test_sioux_and_chesapeake_themselves(data_dir: Path) -> None:
    """The bases, against the sources they were made from."""
    sioux, _ = read_graph(data_dir / "broken" / "sioux_ok.gr")
    source, _ = read_graph(data_dir / "SiouxFalls_net.tntp")
    assert graph_digest(sioux) == graph_digest(source)
    chesapeake, _ = read_graph(data_dir / "broken" / "ches_ok.mtx")
    assert chesapeake.m == 170
    assert not chesapeake.weighted
    assert np.array_equal(chesapeake.labels, np.arange(1, 40))
