"""Tables that are read in chunks: each once, only those that are needed, by many threads at a time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from storage.errors import StorageFailed
from storage.prepared.chunks import CheckedTable

ENTRIES = np.arange(1050, dtype=np.int32)


def table_of(reads, *, damaged=()):
    def read(k, piece):
        reads.append(k)
        time.sleep(0.001)
        piece[:] = -1 if k in damaged else ENTRIES[k * 100 : k * 100 + 100]
        if k in damaged:
            raise StorageFailed(f"chunk {k} is damaged")

    return CheckedTable(len(ENTRIES), 100, np.dtype(np.int32), read, 3)


def spans(*pairs):
    return tuple(np.array(ends, np.int64) for ends in zip(*pairs, strict=True))


def test_only_the_chunks_of_the_spans_are_read_and_each_once():
    reads = []
    table = table_of(reads)
    table.need(*spans((100, 200)))
    assert reads == [1]
    table.need(*spans((150, 160), (399, 601), (1049, 1050)))
    assert sorted(reads) == [1, 3, 4, 5, 6, 10]
    assert table.read_bytes == 4 * 550
    assert not table.complete
    np.testing.assert_array_equal(table.values[300:700], ENTRIES[300:700])
    np.testing.assert_array_equal(table.whole(), ENTRIES)
    assert sorted(reads) == list(range(11))
    assert table.complete
    table.need(*spans((0, 1050)))
    table.need(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert len(reads) == 11


def test_a_damaged_chunk_is_refused_whenever_it_is_needed_and_others_are_not():
    table = table_of([], damaged={2})
    for _ in range(3):
        with pytest.raises(StorageFailed, match="chunk 2"):
            table.need(*spans((0, 50), (299, 301)))
    table.need(*spans((0, 50), (300, 301)))
    np.testing.assert_array_equal(table.values[:100], ENTRIES[:100])
    np.testing.assert_array_equal(table.values[300:400], ENTRIES[300:400])
    with pytest.raises(StorageFailed, match="chunk 2"):
        table.whole()
    assert not table.complete


def test_what_is_not_admitted_is_not_read():
    reads = []
    table = table_of(reads)

    def refuse(needed):
        raise MemoryError(str(needed))

    with pytest.raises(MemoryError, match=r"^600$"):
        table.need(*spans((0, 1), (1000, 1001)), refuse)
    assert reads == []
    table.whole()
    table.whole(refuse)


def test_many_threads_need_chunks_at_once():
    reads = []
    table, start = table_of(reads), threading.Barrier(8)

    def ask(seed):
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(20):
            first = int(rng.integers(0, 1049))
            last = min(1050, first + int(rng.integers(1, 120)))
            table.need(*spans((first, last)))
            if not (table.values[first:last] == ENTRIES[first:last]).all():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
    assert len(reads) == len(set(reads))


def test_an_empty_table_is_complete():
    table = CheckedTable(0, 1, np.dtype(np.uint16), lambda *_: None, 1)
    assert table.complete
    assert table.whole().shape == (0,)
