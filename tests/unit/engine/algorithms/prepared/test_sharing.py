"""Threads of a request: they hold for the questions of the thread that asks, and for as long as it asks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from engine.algorithms.prepared.sharing import ThreadLimit, share
from engine.api.from_tables.measuring import PreparedMeasurement
from engine.api.from_tables.near import PreparedNear
from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.model.problem import Options
from tests.unit.engine.api.test_prepared import grid_graph


def test_a_limit_is_of_one_thread_and_ends():
    limit, inside, out = ThreadLimit(), threading.Event(), threading.Event()

    def other():
        with limit.using(7):
            inside.set()
            out.wait(10)
            return limit.wanted

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(other)
        assert inside.wait(10)
        assert limit.wanted is None
        with limit.using(2), limit.using(None):
            assert limit.wanted == 2
        with pytest.raises(KeyError), limit.using(3):
            raise KeyError
        assert limit.wanted is None
        out.set()
        assert found.result() == 7


@pytest.mark.parametrize(("threads", "count", "least"), [(1, 10, 1), (4, 10, 3), (3, 0, 5), (8, 5, 1)])
def test_all_work_is_shared_once(threads, count, least):
    done = []
    share(threads, count, least, lambda first, last: done.extend(range(first, last)))
    assert sorted(done) == list(range(count))


def test_requests_leave_the_threads_of_the_matrix_as_they_were(tmp_path, monkeypatch):
    monkeypatch.setattr("engine.execution.survey.usable_processors", lambda *_: 8)
    prepare(grid_graph(12), tmp_path / "p")
    with open_result(tmp_path / "p") as matrix:
        matrix.threads, start = 5, threading.Barrier(6)
        want = matrix.rows(range(144))
        plain = PreparedMeasurement(matrix, Options(), measures=["mean"]).run()

        def near(threads):
            asked = PreparedNear(matrix, Options(cutoff=10**6, threads=threads))
            start.wait(30)
            made = asked.make_plan().threads, len(asked.run().indices), asked.way.swept
            return made, matrix.threads

        def measure(threads):
            asked = PreparedMeasurement(matrix, Options(threads=threads), measures=["mean"])
            start.wait(30)
            same = asked.run().columns["mean"].tolist() == plain.columns["mean"].tolist()
            return asked.make_plan().threads, same, matrix.threads

        with ThreadPoolExecutor(6) as pool:
            pairs, tables = pool.map(near, (1, 2, 3)), pool.map(measure, (1, 2, 3))
            assert [after for _, after in pairs] == [5, 5, 5]
            assert list(tables) == [(1, True, 5), (2, True, 5), (3, True, 5)]
        for threads in (1, 2, 1):
            with matrix.using(threads):
                np.testing.assert_array_equal(matrix.rows(range(144)), want)
                assert matrix._sweepers[True].threads == threads
        assert matrix.threads == 5
