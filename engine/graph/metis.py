"""Orders of elimination: first vertices of few neighbours, then nested dissection by METIS.

METIS orders large graphs in a process of its own, because it holds the interpreter's lock until it ends, which takes
minutes for millions of vertices.  Inside the solving process, no signal would be handled during that time, and no other
thread would run, such as the one that renews a runner's lease.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.errors import SolveFailed

Ints = npt.NDArray[np.int32]

#: Number of vertices and arcs that METIS orders in about a second.  Smaller graphs are ordered in this process, because
#: starting another process takes a third of a second.
SHORT: Final = 2**19
#: Vertices of up to LOW_DEGREE neighbours are eliminated before METIS orders the others, so that METIS has less work.
#: In graphs of more than SMALL vertices the limit is LOW_DEGREE_OF_LARGE, which makes smaller tables (decision 237).
LOW_DEGREE: Final = 3
LOW_DEGREE_OF_LARGE: Final = 2
SMALL: Final = 2**15
#: METIS also orders vertices of two or three neighbours if one of these has more than ``WIDE`` neighbours itself, and
#: all vertices that remain after ``ROUNDS`` rounds of elimination.
WIDE: Final = 64
ROUNDS: Final = 12


def elimination_order(indptr: Ints, heads: Ints) -> tuple[Ints, Ints]:
    """Order the vertices of a graph: first those of few neighbours, then the others by nested dissection.

    METIS then takes less time, because it orders only the others: 4 to 55 % of the vertices of the road networks of
    decision 237.

    Args:
        indptr: int32, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,): the head of each arc; the arcs are symmetric, without loops.

    Returns:
        The vertices in the order of elimination, and the place of each vertex in this order, shape (n,) each.

    Raises:
        SolveFailed: METIS ended without an order (see :func:`nested_dissection`).
    """
    from engine.graph._elimination import eliminate_low  # the process that runs METIS needs no numba

    n = len(indptr) - 1
    identity = np.arange(n, dtype=np.int32)
    if len(heads) == 0:
        return identity, identity
    most = LOW_DEGREE if n <= SMALL else LOW_DEGREE_OF_LARGE
    first, left, *rest = eliminate_low(indptr, heads, most, WIDE, ROUNDS)
    order = np.concatenate((first, left[nested_dissection(*rest)[0]])) if len(left) else first
    rank = np.empty(n, np.int32)
    rank[order] = identity
    return order, rank


def nested_dissection(indptr: Ints, heads: Ints) -> tuple[Ints, Ints]:
    """Order the vertices of a graph by nested dissection.

    Args:
        indptr, heads: the arcs as CSR, as in :func:`elimination_order`.

    Returns:
        The vertices in the order of elimination, and the place of each vertex in this order, shape (n,) each.

    Raises:
        SolveFailed: the process ended without an order, probably because memory ran out.
    """
    if len(indptr) + len(heads) < SHORT or not sys.executable:
        return _dissect(indptr, heads)
    sizes = np.array([len(indptr), len(heads)], np.int64)
    # -P keeps this folder off the module search path, where its modules would hide other modules of the same name
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # noqa: S603
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
                for array in (sizes, indptr, heads):
                    pipe.write(np.ascontiguousarray(array).data)
            found = np.frombuffer(child.stdout.read(), np.int32)
            status = child.wait()
        finally:
            child.kill()
    if status or len(found) != 2 * (len(indptr) - 1):
        raise SolveFailed(f"the nested dissection of the graph ended with status {status}, probably for want of memory")
    order, rank = found.reshape(2, -1)
    return order, rank


def _dissect(indptr: Ints, heads: Ints) -> tuple[Ints, Ints]:
    import pymetis

    order, rank = pymetis.nested_dissection(adjacency=pymetis.CSRAdjacency(indptr, heads))
    return np.asarray(order, np.int32), np.asarray(rank, np.int32)


def main() -> None:
    """Order the graph on the standard input; :func:`nested_dissection` starts this in a separate process."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal sends them to this process, too; the parent reacts
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":  # METIS does not notice the end of the parent, so have Linux kill this process then
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    rows, arcs = np.frombuffer(sys.stdin.buffer.read(16), np.int64)
    indptr, heads = (np.frombuffer(sys.stdin.buffer.read(4 * size), np.int32) for size in (rows, arcs))
    if len(indptr) == rows and len(heads) == arcs:  # else the parent has ended while it was sending the graph
        for array in _dissect(indptr, heads):
            sys.stdout.buffer.write(array.data)


if __name__ == "__main__":
    main()
