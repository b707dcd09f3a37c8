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
    assert "| 1,024 | 359 | 140 | 1 | 0.25 |" in lines
    assert "| 3,072 | 5,709 | 982 | - | - |" in lines
    assert "| 8,192 | 25,460 | 604 | 4 | 3 | 2 | 1 |" in lines
    assert "| 1,024 | 13.82 | 15.88 | 17.21 | 0.25 | 55.28 | 26 % |" in lines


def test_streams_print_at_the_sizes_of_both() -> None:
    rows = [{"n": 8192, "synchronous_s": 0.07, "asynchronous_s": 0.05}]
    lines = papers.streams({"rows": rows, "gpu": "a GPU", "commit": "c0ffee", "date": "today"})
    assert "| 8,192 | - | - | 0.07 | 0.05 |" in lines
    assert "| 15,360 | 919 | 533.9 | - | - |" in lines


def test_searches_print_beside_the_figures_that_are_held() -> None:
    rows = [
        {"graph": "random", "n": 32768, "dtype": "int32", "form": "sweep", "ms": 50.0},
        {"graph": "random", "n": 1024, "dtype": "int32", "form": "sweep", "ms": 1.0},
        {"graph": "ring", "n": 1024, "dtype": "int32", "form": "lists", "ms": 2.0},
        {"graph": "roads", "n": 5000, "dtype": "int32", "locked_s": 2.0},
        {"graph": "any", "n": 1024, "form": "floyd-warshall", "dtype": "float32", "ms": 0.25},
    ]
    lines = papers.searches({"rows": rows, "gpu": "a GPU", "commit": "c0ffee", "date": "today"})
    assert "| 32,768 | 75.3 | 21.44 | - | 0.05 | 429 | - |" in lines
    assert "| 1,024 | 0.827 | 0.044 | 0.131 | 0.001 | 44 | 0.00025 |" in lines
    assert lines[-1] == "| ring | 1,024 | int32 | 0.002 |"
