"""Numbers with the nouns that they count."""

from __future__ import annotations

import pytest

from storage.counted import counted, singular


@pytest.mark.parametrize(
    ("nouns", "noun"),
    [
        ("rows", "row"), ("vertices", "vertex"), ("entries", "entry"), ("batches", "batch"), ("matrices", "matrix"),
        ("searches", "search"), ("indices", "index"), ("processors", "processor"), ("losses", "loss"), ("work", "work"),
        ("boxes", "box"), ("bytes", "byte"), ("pieces", "piece"), ("places", "place"), ("", ""),
    ],
)  # fmt: skip
def test_singular(nouns: str, noun: str):
    assert singular(nouns) == noun


def test_numbers():
    assert [counted(n, "vertices") for n in (0, 1, 2)] == ["0 vertices", "1 vertex", "2 vertices"]
    assert counted(12345, "vertices") == "12,345 vertices"
    assert counted(1, "near pairs") == "1 near pair"
