"""The papers' tables print from recorded results alone, and no figure is made up where a paper's is not held."""

from __future__ import annotations

import json

from benchmarks import papers


def test_tables_print_from_the_recorded_results() -> None:
    record = json.loads(papers.RESULTS.read_text())
    text = "\n".join(papers.tables(record))
    for name in ("Takafuji", "Table II", "Okuyama", "Xing", "Fixstars", "V100", record["gpu"], record["commit"]):
        assert name in text, name


def test_what_is_not_held_is_a_dash() -> None:
    rows = [
        {"table": 1, "n": 1024, "ms": 0.25, "rate_T": 4.3},
        {"table": "products", "n": 1024, "product_ms": 1.0, "floyd_warshall_ms": 0.25},
        {
            "table": "large",
            "n": 8192,
            "naive_ms": 4.0,
            "recursive_ms": 3.0,
            "recursive_product_ms": 2.0,
            "ours_ms": 1.0,
        },
    ]
    record = {"gpu": "G", "driver": "1", "commit": "c", "date": "d", "sm_clock_mhz_under_load": [1980], "rows": rows}
    lines = papers.tables(record)
    assert "| 1,024 | - | - | 1 | 0.25 | 4.0 |" in lines
    assert "| 8,192 | - | 4 | 3 | 2 | 1 |" in lines
    assert "| 1,024 | - | 26 % |" in lines
