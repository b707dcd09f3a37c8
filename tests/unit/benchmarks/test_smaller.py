"""The benchmark of small answers: calls alternate, the least counts, and quantities are timed in whole commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apsp import open as open_store
from benchmarks import smaller
from benchmarks.start import took
from storage.graph.graph import Graph, build_graph


def test_calls_alternate_and_all_that_they_return_is_kept() -> None:
    called: list[str] = []

    def work(name: str) -> str:
        called.append(name)
        return f"{name}{len(called)}"

    found = smaller.by_turns(3, [lambda: work("a"), lambda: work("b")])
    assert called == ["a", "b"] * 3
    assert found == [["a1", "a3", "a5"], ["b2", "b4", "b6"]]


def test_the_least_processor_seconds_of_each_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    def work(*seconds: float) -> object:
        left = iter(seconds)

        def one() -> None:
            nonlocal clock
            clock += next(left)

        return one

    monkeypatch.setattr(smaller.time, "process_time", lambda: clock)
    first, second = work(5.0, 2.0, 3.0), work(7.0, 9.0, 8.0)
    assert smaller.least(3, first, second) == [2.0, 7.0]  # type: ignore[arg-type]


def small_graph() -> Graph:
    """A ring of 12 vertices, which are named from 0, and a vertex 12 without arcs."""
    ring = np.arange(12)
    return build_graph(ring, np.roll(ring, -1), np.full(12, 3), directed=True, n=13)[0]


@pytest.fixture
def sums_of_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smaller, "read_graph", lambda *_, **__: (small_graph(), None))
    monkeypatch.setattr(smaller, "read_arguments", lambda _: {})


@pytest.mark.usefixtures("sums_of_rings")
@pytest.mark.parametrize(("rows", "unit"), [(None, False), (5, True)])
def test_commands_sum_what_is_said(rows: int | None, unit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def watched(words: list[str], program: Path) -> tuple[float, float]:
        seconds = took(words, program)
        with open_store(words[words.index("-o") + 1]) as matrix:
            commands.append(words)
            summed = words[words.index("--also") + 1].split(",") if "--also" in words else []
            assert list(matrix.also) == summed
            assert matrix.shape == (rows or 12, 12)
            weight = 1 if unit else 3
            assert matrix.entries([0], [11]).item() == 11 * weight
            for name in summed:
                assert 11 <= matrix.also[name].entries([0], [11]).item() <= 1100
        return seconds

    monkeypatch.setattr(smaller, "SUMMED", (("ring", rows, unit),))
    monkeypatch.setattr(smaller, "QUANTITIES", (2,))
    monkeypatch.setattr(smaller, "took", watched)
    (row,) = smaller.quantities(Path("none"), 2, 1)
    assert [("--also" in words) for words in commands] == [False, True]
    assert all(words[words.index("--threads") + 1] == "2" for words in commands)
    assert ("hops" if unit else "weights") in row[0]
    assert f"{rows or 12} rows" in row[0]


@pytest.mark.usefixtures("sums_of_rings")
def test_commands_alternate_and_increases_are_shares_of_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without quantities a command takes 2 wall and 4 processor seconds; each of 1, 2 and 4 adds 1, 0.8 and 0.5."""
    asked: list[int] = []
    wall = {0: 2.0, 1: 3.0, 2: 3.6, 4: 4.0}

    def told(words: list[str], program: Path) -> tuple[float, float]:
        Path(words[words.index("-o") + 1]).mkdir()
        count = words[words.index("--also") + 1].count(",") + 1 if "--also" in words else 0
        later = asked.count(count)
        asked.append(count)
        # the least wall seconds and the least processor seconds are those of different runs
        return wall[count] + (0, 1, 2)[later], 2 * wall[count] + (1, 2, 0)[later]

    monkeypatch.setattr(smaller, "SUMMED", (("ring", None, False),))
    monkeypatch.setattr(smaller, "took", told)
    (row,) = smaller.quantities(Path("none"), 2, 3)
    assert asked == [0, 1, 2, 4] * 3
    assert row[1:] == ("wall 2.00 s; 0.50, 0.40, 0.25; processor 4.00 s; 0.50, 0.40, 0.25", "<= 0.5 each")


@pytest.mark.usefixtures("sums_of_rings")
def test_a_refused_command_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smaller, "SUMMED", (("ring", None, False),))
    monkeypatch.setattr(smaller, "took", lambda *_: (0.1, 0.1))  # ended with 2, and wrote no store
    with pytest.raises(FileNotFoundError):
        next(smaller.quantities(Path("none"), 1, 1))
