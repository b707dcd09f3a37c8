"""The kernel that gathers facts of finished rows of any semiring: pairs with a path, least and greatest value."""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.row_facts import ABREAST, CHUNK, _reached
from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def _extremes(row, unreachable, ends, least, greatest):  # type: ignore[no-untyped-def]
    """Lower the entries of ``least`` and raise those of ``greatest``, both of shape (ABREAST,), to the values of
    ``row``.

    ``ends`` holds the largest and the smallest number of the type, which stand for entries without a path.
    """
    high, low = ends
    whole = len(row) - len(row) % ABREAST
    for first in range(0, whole, ABREAST):
        for k in range(ABREAST):  # without branches, so that LLVM vectorises the loop
            x = row[first + k]
            small, large = (high if x == unreachable else x), (low if x == unreachable else x)
            least[k] = small if small < least[k] else least[k]
            greatest[k] = large if large > greatest[k] else greatest[k]
    for x in row[whole:]:
        if x != unreachable:
            least[0], greatest[0] = min(least[0], x), max(greatest[0], x)


@njit(nogil=True, cache=True)
def value_facts(block, rows, own, unreachable, ends):  # type: ignore[no-untyped-def]
    """Return the number of values in some rows, the least and the greatest of them; a source's own value does not
    count.

    Args:
        block: shape (block's rows, columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        own: int64, shape (rows,): the column of the source of each row; -1 for none.
        unreachable: the value for *no path*, in the type of ``block``.
        ends: the largest and the smallest number of this type; they are returned where there is no value.
    """
    least, greatest = np.full(ABREAST, ends[0], block.dtype), np.full(ABREAST, ends[1], block.dtype)
    reached = 0
    for i in range(len(rows)):
        row, mine = block[rows[i]], own[i]
        for first in range(0, len(row), CHUNK):  # each chunk stays in the first-level cache between the two loops
            some, before = row[first : first + CHUNK], mine - first
            reached += _reached(some, unreachable)
            if 0 <= before < len(some):
                reached -= some[before] != unreachable
                _extremes(some[:before], unreachable, ends, least, greatest)
                _extremes(some[before + 1 :], unreachable, ends, least, greatest)
            else:
                _extremes(some, unreachable, ends, least, greatest)
    return reached, least.min(), greatest.max()
