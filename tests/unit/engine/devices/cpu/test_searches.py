"""Pieces of a batch: each is done once, what gives up leaves others, and the last one is told once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from engine.devices.cpu.searches import BlockRun, Done, Searches, Spaces, split_evenly


def test_all_pieces_are_done_once_and_the_end_is_told_once() -> None:
    seen: list[int] = []

    def piece(k: int):  # type: ignore[no-untyped-def]
        def run(worker: int) -> Done:
            rows = np.array([k])
            return Done(rows[:0], [lambda _: Done(rows)]) if k % 3 == 0 else Done(rows)

        return run

    searches, lock = Searches(piece(k) for k in range(100)), threading.Lock()

    def then(rows: np.ndarray, found: object) -> None:  # type: ignore[type-arg]
        assert found is None
        with lock:
            seen.extend(rows.tolist())

    def work(worker: int) -> list[tuple[int, bool]]:
        taken = []
        while searches.waiting:
            taken.append(searches.take(worker, then))
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [found for some in pool.map(work, range(4)) for found in some]
    taken += work(0)
    assert sorted(seen) == list(range(100))
    assert sum(rows for rows, _ in taken) == 100
    assert sum(last for _, last in taken) == 1
    assert searches.take(0) == (0, False)


def test_the_end_is_not_told_while_a_piece_is_being_done() -> None:
    go, began = threading.Event(), threading.Event()

    def slow(worker: int) -> Done:
        began.set()
        go.wait(30)
        return Done(np.array([0]))

    searches = Searches([slow, lambda _: Done(np.array([1]))])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(searches.take, 0)
        assert began.wait(30)
        assert searches.take(1) == (1, False)
        go.set()
        assert first.result(30) == (1, True)


def test_work_space_is_made_anew_for_another_key() -> None:
    spaces, made = Spaces(2), []

    def make() -> int:
        made.append(len(made))
        return made[-1]

    assert [spaces.of(0, "a", make), spaces.of(0, "a", make), spaces.of(1, "a", make), spaces.of(0, "b", make)] == [
        0, 0, 1, 2,
    ]  # fmt: skip
    with pytest.raises(IndexError):
        spaces.of(2, "a", make)


def test_rows_are_cut_as_numpy_cuts_them() -> None:
    for count in (0, 1, 5, 32, 63):
        rows = np.arange(count) * 3
        for parts in (1, 2, 7, 32, 64, 100):
            found = [part.tolist() for part in split_evenly(rows, parts)]
            assert found == [part.tolist() for part in np.array_split(rows, parts) if len(part)]


class Group:
    """A group of blocks that searches each by itself, and remembers the blocks that one call was given."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []

    def search(self, rows: np.ndarray, worker: int) -> Done:  # type: ignore[type-arg]
        return Done(rows)

    def search_all(self, blocks: BlockRun, threads: int, seconds: float, *, facts: bool) -> Done | None:
        self.given = [rows.tolist() for rows in blocks]
        return Done(blocks.rows)


def test_each_block_of_a_run_is_a_piece() -> None:
    group, seen = Group(), list[int]()
    searches = Searches([BlockRun.of(group, np.array_split(np.arange(7), 3)), lambda _: Done(np.array([9]))])
    assert searches.count == 4
    taken = [searches.take(0, lambda rows, _: seen.extend(rows.tolist())) for _ in range(5)]
    assert seen == [0, 1, 2, 3, 4, 5, 6, 9]
    assert taken == [(3, False), (2, False), (2, False), (1, True), (0, False)]


def test_one_call_is_given_the_blocks_of_all_runs_of_a_group() -> None:
    group, other = Group(), Group()
    searches = Searches([
        BlockRun.of(group, np.array_split(np.arange(4), 2)),
        BlockRun.of(other, [np.array([7])]),
        BlockRun.of(group, [np.array([5, 6])]),
    ])  # fmt: skip
    assert searches.take(0) == (2, False)
    assert searches.take_all(1, 1.0) == (4, False)
    assert group.given == [[2, 3], [5, 6]]
    assert other.given == []
    assert searches.take(0) == (1, True)
