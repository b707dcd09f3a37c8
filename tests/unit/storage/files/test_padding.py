"""Tiles that are assembled in a thread's buffer before they are written."""

from __future__ import annotations

import numpy as np
import pytest

from storage.files import direct


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (2, 5), (3, 4), (1, 2), (0, 0)])
@pytest.mark.parametrize("dtype", ["uint16", "int32", "float64"])
def test_a_tile_is_padded_whatever_the_buffer_held_before(dtype, rows, columns):
    direct.buffer_for(4096)[:] = 7
    part = np.arange(rows * columns).reshape(columns, rows).T.astype(dtype)
    found = direct.padded(part, (3, 5), np.dtype(dtype).type(9), 4)
    wanted = np.full((3, 5), 9, dtype)
    wanted[:rows, :columns] = part
    assert found.dtype == dtype
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, wanted)
    assert len(direct.buffer_for(1)) >= found.nbytes + 4
