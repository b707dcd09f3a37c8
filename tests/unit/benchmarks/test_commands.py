"""The record of whole commands: what it holds if a run is cut off, and that programs must agree."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import commands


def told(total: float) -> dict[str, object]:
    """What a command prints, as ``run`` returns it."""
    return {"wall": 1.5, "plan": {"algorithm": "dijkstra"}, "summary": {"sum": total}, "seconds": {"search": 1.0}}


@pytest.fixture
def run_rows(monkeypatch, tmp_path):
    def run_rows(answer):
        record = tmp_path / "record.json"
        words = ["now=.", "before=.", "--rows", "thousand,rome", "--fast", str(tmp_path), "--out", str(record)]
        monkeypatch.setattr(sys, "argv", ["commands", *words])
        monkeypatch.setattr(commands, "run", answer)
        monkeypatch.setattr(commands, "make_graph", lambda n, folder: folder / str(n))
        return record

    return run_rows


def test_a_run_that_is_cut_off_keeps_the_rows_before(run_rows, capsys):
    def answer(program, caches, words):
        if words[1].endswith("rome99.gr"):
            raise KeyboardInterrupt
        return told(7)

    record = run_rows(answer)
    with pytest.raises(KeyboardInterrupt):
        commands.main()
    kept = json.loads(record.read_text())
    assert [one["program"] for one in kept["rows"]] == ["now"] * 4 + ["before"] * 4
    assert {one["row"] for one in kept["rows"]} == {"thousand"}
    assert "| n = 1,000, first | 1.50 | 1.50 |" in commands.table(kept)


def test_programs_that_disagree_end_it(run_rows):
    totals = iter(range(100))
    run_rows(lambda *_: told(next(totals)))
    with pytest.raises(AssertionError, match="the programs disagree"):
        commands.main()
