"""The benchmark of betweenness: it runs with the programs that are installed, and with the program before by turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import betweenness as benchmark
from storage.graph.graph import build_graph


@pytest.mark.parametrize("threads", [1, 2])
def test_programs_that_are_not_installed_are_left_out(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "_installed", lambda name: False)
    ring = np.arange(9)
    graph = build_graph(ring, np.roll(ring, -1), None, directed=True)[0]
    found = benchmark.measured(graph, threads, 2, 25.0)
    assert {name: runs for name, (_, _, runs) in found.items()} == {"apsp": 2}


def test_every_program_that_is_installed_is_timed() -> None:
    ring = np.arange(9)
    graph = build_graph(ring, np.roll(ring, -1), None, directed=False)[0]
    expected = {
        "apsp",
        *(shown for name, shown in (("networkit", "NetworKit"), ("igraph", "igraph")) if benchmark._installed(name)),
    }
    assert benchmark.contenders(graph, 1).keys() == expected


@pytest.mark.data
def test_graphs_can_be_read(data_dir) -> None:  # type: ignore[no-untyped-def]
    small = benchmark._read(data_dir, "mediumEWD, weights")
    assert small.n == 250


class Scripted:
    """A process that times a program, but for the times, which are given.

    Args:
        called: the list to which each call is added, with the name of the program.
        name: the name of the program.
        times: for each contender the milliseconds of its calls, in order.
        answer: the contenders, as the process names them for a graph.
    """

    def __init__(self, called: list[tuple[str, str]], name: str, times: dict[str, list[float]], answer: str) -> None:
        self.called, self.name, self.answer = called, name, answer
        self.left = {each: iter(listed) for each, listed in times.items()}

    def ask(self, words: str) -> str:
        self.called.append((self.name, words))
        return self.answer

    def timed(self, contender: str) -> float:
        self.called.append((self.name, contender))
        return next(self.left[contender])


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Return a function that calls ``by_turns`` with given times; it returns the calls, and the cells of each row."""

    def by_turns(
        before: dict[str, list[float]], now: dict[str, list[float]], answers: tuple[str, str], **asked: Any
    ) -> tuple[list[tuple[str, str]], list[list[str]]]:
        called: list[tuple[str, str]] = []
        here = Path(benchmark.__file__).resolve().parents[1]

        def timer(root: Path, folder: Path) -> Scripted:
            assert folder == tmp_path / "graphs"
            first = root == (tmp_path / "before").resolve()
            assert first or root == here
            return Scripted(called, *(("before", before, answers[0]) if first else ("now", now, answers[1])))

        monkeypatch.setattr(benchmark, "TimedProgram", timer)
        given: dict[str, Any] = {"names": ["one"], "runs": 3, "seconds": 25.0, **asked}
        benchmark.by_turns(tmp_path / "graphs", tmp_path / "before", **given)
        lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
        return called, lines[2:]

    return by_turns


def test_programs_and_igraph_alternate(scripted: Any) -> None:
    """Medians and least times are those of each contender; igraph's are those of both processes together."""
    called, rows = scripted(
        {"apsp": [9.0, 5.0, 6.0], "igraph": [40.0, 80.0, 36.0]},
        {"apsp": [2.0, 4.0, 3.0], "igraph": [44.0, 12.0, 60.0]},
        ("apsp,igraph", "apsp,igraph"),
    )
    turn = [("before", "apsp"), ("before", "igraph"), ("now", "apsp"), ("now", "igraph")]
    assert called == [("before", "one"), ("now", "one"), *turn * 3]
    assert rows == [["one", "6 (5)", "3 (2)", "2.00", "42 (12)", "7.0, 14.0 x", "2.4, 6.0 x"]]


@pytest.mark.parametrize("answers", [("apsp", "apsp,igraph"), ("apsp,igraph", "apsp"), ("apsp", "apsp")])
def test_igraph_is_left_out_where_one_process_lacks_it(scripted: Any, answers: tuple[str, str]) -> None:
    called, rows = scripted({"apsp": [4.0, 8.0, 6.0]}, {"apsp": [2.0, 1.0, 3.0]}, answers)
    assert called[2:] == [("before", "apsp"), ("now", "apsp")] * 3
    assert rows == [["one", "6 (4)", "2 (1)", "3.00"]]


def test_igraph_has_no_further_turn_once_it_has_taken_its_seconds(scripted: Any) -> None:
    """It has taken 1.1 s after three calls, of which the last one began when it had taken less than 1 s."""
    called, rows = scripted(
        {"apsp": [4.0] * 4, "igraph": [600.0, 200.0]},
        {"apsp": [2.0] * 4, "igraph": [300.0]},
        ("apsp,igraph", "apsp,igraph"),
        runs=4,
        seconds=1.0,
    )
    both = [("before", "apsp"), ("now", "apsp")]
    first = [("before", "apsp"), ("before", "igraph"), ("now", "apsp"), ("now", "igraph")]
    assert called[2:] == [*first, *(("before", "apsp"), ("before", "igraph"), ("now", "apsp")), *both * 2]
    assert rows == [["one", "4 (4)", "2 (2)", "2.00", "300 (200)", "75.0, 150.0 x", "50.0, 100.0 x"]]


def test_each_graph_is_read_by_both_before_its_turns(scripted: Any) -> None:
    """And no time of one graph counts for the next."""
    called, rows = scripted(
        {"apsp": [4.0, 6.0, 40.0, 60.0]}, {"apsp": [1.0, 4.0, 10.0, 40.0]}, ("apsp", "apsp"), names=["a", "b"], runs=2
    )
    turn = [("before", "apsp"), ("now", "apsp")]
    assert called == [("before", "a"), ("now", "a"), *turn * 2, ("before", "b"), ("now", "b"), *turn * 2]
    assert rows == [["a", "5 (4)", "2.5 (1)", "2.00"], ["b", "50 (40)", "25 (10)", "2.00"]]
