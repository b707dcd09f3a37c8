"""Tables that are read in chunks: only those that are needed, each once while there is memory, by many threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from storage.errors import DoesNotFit, StorageFailed
from storage.prepared.chunks import CheckedTable, TableMemory

ENTRIES = np.arange(1050, dtype=np.int32)
#: Entries in a chunk: 400 bytes.
CHUNK = 100


def table_of(reads, *, damaged=(), passing=False, wait=0.001):
    def read(k, piece):
        reads.append(k)
        time.sleep(wait)
        piece[:] = -1 if k in damaged else ENTRIES[k * CHUNK : k * CHUNK + CHUNK]
        if k in damaged:
            raise StorageFailed(f"chunk {k} is damaged")

    return CheckedTable(len(ENTRIES), CHUNK, np.dtype(np.int32), read, 3, passing)


def refuse(needed):
    raise DoesNotFit(str(needed), resource="memory", needed=needed, available=0, candidates=[])


def memory_of(*tables, most=2**40):
    """The memory of some tables, ``most`` bytes in all."""
    return TableMemory(tables, lambda: most - sum(table.read_bytes for table in tables), refuse)


def spans(*pairs):
    return tuple(np.array(ends, np.int64) for ends in zip(*pairs, strict=True))


def need(memory, table, *pairs):
    with memory.using([(table, spans(*pairs) if pairs else (np.zeros(0, np.int64),) * 2)]):
        pass


@pytest.mark.parametrize("passing", [False, True])
def test_only_the_chunks_of_the_spans_are_read_and_each_once(passing):
    reads = []
    table = table_of(reads, passing=passing)
    memory = memory_of(table)
    need(memory, table, (100, 200))
    assert reads == [1]
    need(memory, table, (150, 160), (399, 601), (1049, 1050))
    assert sorted(reads) == [1, 3, 4, 5, 6, 10]
    assert table.read_bytes == 4 * 550
    assert not memory.complete
    np.testing.assert_array_equal(table.values[300:700], ENTRIES[300:700])
    with memory.using([(table, None)]):
        np.testing.assert_array_equal(table.values, ENTRIES)
    assert sorted(reads) == list(range(11))
    assert memory.complete
    need(memory, table, (0, 1050))
    need(memory, table)
    assert len(reads) == 11


def test_a_damaged_chunk_is_refused_whenever_it_is_needed_and_others_are_not():
    table = table_of([], damaged={2})
    memory = memory_of(table)
    for _ in range(3):
        with pytest.raises(StorageFailed, match="chunk 2"):
            need(memory, table, (0, 50), (299, 301))
    need(memory, table, (0, 50), (300, 301))
    np.testing.assert_array_equal(table.values[:100], ENTRIES[:100])
    np.testing.assert_array_equal(table.values[300:400], ENTRIES[300:400])
    with pytest.raises(StorageFailed, match="chunk 2"):
        table.whole()
    assert not table.complete


@pytest.mark.parametrize("passing", [False, True])
def test_what_there_is_no_room_for_is_not_read(passing):
    reads = []
    table = table_of(reads, passing=passing)
    with pytest.raises(DoesNotFit, match=r"^600$"):
        need(memory_of(table, most=599), table, (0, 1), (1000, 1001))
    assert reads == []
    table.whole()
    need(memory_of(table, most=0), table, (0, 1050))  # it is there


def test_the_chunks_that_were_not_used_for_longest_clear_for():
    reads = []
    table, other = table_of(reads, passing=True), table_of([], passing=True)
    memory = memory_of(table, other, most=1200)
    for k in (0, 1, 2, 0):
        need(memory, table, (k * CHUNK, k * CHUNK + 1))
    assert reads == [0, 1, 2]
    with memory.using([(other, spans((5, 6)))]):  # of another table, for which chunk 1 goes
        assert other.values[5] == 5
    need(memory, table, (0, 1), (200, 201))
    assert reads == [0, 1, 2]
    need(memory, table, (100, 101))
    assert reads == [0, 1, 2, 1]
    assert table.read_bytes + other.read_bytes <= 1200
    np.testing.assert_array_equal(table.values[100:200], ENTRIES[100:200])


def test_the_memory_of_dropped_chunks_is_given_back():
    """Pages that hold nothing but a dropped chunk are zero when they are read again; so nobody has read the others."""
    chunk, count = 1 << 16, 8
    dtype = np.dtype(np.int32)
    table = CheckedTable(count * chunk, chunk, dtype, lambda k, piece: piece.fill(k + 1), 1, True)
    memory = memory_of(table, most=2 * chunk * dtype.itemsize)
    for k in range(count):
        with memory.using([(table, spans((k * chunk, (k + 1) * chunk)))]):
            assert (table.values[k * chunk : (k + 1) * chunk] == k + 1).all()
    assert [bool(table.values[k * chunk : (k + 1) * chunk].any()) for k in range(count)] == [False] * 6 + [True] * 2


def test_a_table_larger_than_the_memory_of_the_machine_can_be_opened():
    table = CheckedTable(1 << 42, 1 << 21, np.dtype(np.int32), lambda k, piece: piece.fill(k), 1, True)
    memory = memory_of(table)
    with memory.using([(table, spans((0, 1), ((1 << 42) - 1, 1 << 42)))]):
        assert table.values[[0, -1]].tolist() == [0, (1 << 21) - 1]


@pytest.mark.parametrize("most", [2**40, 2000, 1200])
def test_many_threads_need_chunks_at_once(most):
    """What a thread needs stays until it has used it, although others need more than there is memory for."""
    reads, passing = [], most < 2**40
    table, start = table_of(reads, passing=passing, wait=0.0), threading.Barrier(8)
    memory = memory_of(table, most=most)

    def ask(seed):
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(60):
            first = int(rng.integers(0, 1049))
            last = min(1050, first + int(rng.integers(1, 120)))
            with memory.using([(table, spans((first, last)))]):
                time.sleep(0)
                if not (table.values[first:last] == ENTRIES[first:last]).all():
                    return False
                if table.read_bytes > most:
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
    assert passing or len(reads) == len(set(reads))
    assert not memory._asking


def test_a_question_that_fails_keeps_no_room():
    table = table_of([], damaged={2}, passing=True)
    memory = memory_of(table, most=800)
    for _ in range(3):
        with pytest.raises(StorageFailed, match="chunk 2"):
            need(memory, table, (200, 300))
        need(memory, table, (0, 200))
        need(memory, table, (300, 500))


def test_a_question_that_waited_drops_nothing_from_tables_that_became_complete():
    """What is complete is used without being held, so nothing of it may go, whatever memory is left then."""
    reading, may_read, free = threading.Event(), threading.Event(), [10**6]

    def read(k, piece):
        reading.set()
        assert may_read.wait(10)
        piece.fill(k + 1)

    table = CheckedTable(200, CHUNK, np.dtype(np.int32), read, 1, True)
    memory = TableMemory([table], lambda: free[0], refuse)
    let_go = threading.Event()

    def first():
        with memory.using([(table, None)]):
            assert let_go.wait(10)

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        assert reading.wait(10)
        free[0] = 0
        other = pool.submit(need, memory, table, (0, 1))  # waits for the first question
        while not memory._clearing:
            time.sleep(0.001)
        free[0] = -(10**6)
        may_read.set()
        while not memory.complete:
            time.sleep(0.001)
        with memory.using([(table, spans((100, 200)))]):
            let_go.set()
            one.result(10)
            other.result(10)
            assert (table.values[100:] == 2).all()
    assert memory.complete


@pytest.mark.parametrize("step", ["_release", "_count"])
def test_an_interrupt_while_chunks_are_dropped_leaves_none_that_counts_as_read(monkeypatch, step):
    table, other = table_of([], passing=True), table_of([], passing=True)
    memory = memory_of(table, other, most=2 * 4200)
    need(memory, table, (0, 1050))
    need(memory, other, (0, 1000))
    memory._free = lambda: 0
    inner, calls = getattr(CheckedTable, step), []

    def interrupted(self, *given):
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return inner(self, *given)

    monkeypatch.setattr(CheckedTable, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        need(memory, other, (1000, 1050))
    memory._free = lambda: 10**6
    table.values[...] = -1  # whatever the system leaves in pages that were given back
    table._there[table._there] = False
    with memory.using([(table, None), (other, None)]):
        np.testing.assert_array_equal(table.values, ENTRIES)
        np.testing.assert_array_equal(other.values, ENTRIES)
    assert not memory._clearing
    assert not memory._asking


def test_a_question_that_was_lost_holds_nobody_up():
    """An interrupt may end a question before its end is told; others wait no longer than it is remembered."""
    table = table_of([], passing=True)
    memory = memory_of(table, most=800)
    lost = memory.using([(table, spans((0, 200)))])
    lost.__enter__()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(need, memory, table, (300, 500))
        time.sleep(0.05)
        assert not waiting.done()
        del lost
        waiting.result(10)


def test_tables_that_stay_are_read_one_question_after_the_other_where_memory_is_short():
    reads = []
    table = table_of(reads, wait=0.05)
    memory = memory_of(table, most=1000)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(need, memory, table, (first, first + 200)) for first in (0, 300)]
        failed = [one.exception(10) for one in asked]
    assert sorted(type(error).__name__ for error in failed) == ["DoesNotFit", "NoneType"]
    assert table.read_bytes == 800


def test_an_empty_table_is_complete():
    for passing in (False, True):
        table = CheckedTable(0, 1, np.dtype(np.uint16), lambda *_: None, 1, passing)
        assert table.complete
        assert table.whole().shape == (0,)
