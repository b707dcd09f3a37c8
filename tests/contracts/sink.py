"""What every sink promises; a test class per sink inherits it and says how to make one and how to read it back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.stores import entries_of

ROWS, COLUMNS = 200, 9000


class SinkContract:
    """``make`` gives a sink of ROWS x COLUMNS of a type, ``finish`` the array that it then holds."""

    def make(self, tmp_path, dtype):
        raise NotImplementedError

    def finish(self, sink):
        raise NotImplementedError

    @pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
    def test_bands_from_many_threads(self, tmp_path, dtype):
        entries = entries_of(ROWS, COLUMNS, dtype)
        sink = self.make(tmp_path, dtype)
        height = sink.tile[0]
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda r: sink.write(r, 0, entries[r : r + height]), range(0, ROWS, height)):
                pass
        np.testing.assert_array_equal(self.finish(sink), entries)

    def test_several_bands_at_once(self, tmp_path):
        entries = entries_of(ROWS, COLUMNS, "int32")
        sink = self.make(tmp_path, "int32")
        cut = 2 * sink.tile[0]
        sink.write(0, 0, entries[:cut])
        sink.write(cut, 0, entries[cut:])
        np.testing.assert_array_equal(self.finish(sink), entries)

    def test_single_tiles_in_any_order(self, tmp_path):
        entries = entries_of(ROWS, COLUMNS, "float32")
        sink = self.make(tmp_path, "float32")
        height, width = sink.tile
        corners = [(r, c) for r in range(0, ROWS, height) for c in range(0, COLUMNS, width)]
        for r, c in reversed(corners):
            sink.write(r, c, entries[r : r + height, c : c + width].copy())
        np.testing.assert_array_equal(self.finish(sink), entries)

    @pytest.mark.parametrize("view", ["transposed", "every second column", "upside down"])
    def test_strided_blocks(self, tmp_path, view):
        entries = entries_of(ROWS, COLUMNS, "float32")
        if view == "transposed":
            block = np.ascontiguousarray(entries.T).T
        elif view == "every second column":
            block = np.repeat(entries, 2, axis=1)[:, ::2]
        else:
            block = entries[::-1].copy()[::-1]
        sink = self.make(tmp_path, "float32")
        sink.write(0, 0, block)
        np.testing.assert_array_equal(self.finish(sink), entries)

    def test_a_block_may_be_reused_after_the_call(self, tmp_path):
        entries = entries_of(ROWS, COLUMNS, "float32")
        sink = self.make(tmp_path, "float32")
        height = sink.tile[0]
        buffer = np.empty((height, COLUMNS), np.float32)
        for r in range(0, ROWS, height):
            rows = min(height, ROWS - r)
            buffer[:rows] = entries[r : r + rows]
            sink.write(r, 0, buffer[:rows])
            buffer[:] = -1
        np.testing.assert_array_equal(self.finish(sink), entries)
