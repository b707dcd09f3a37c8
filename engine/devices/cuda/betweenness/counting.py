"""Counts shortest paths from finished rows of distances on the device, so that no row is copied to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.code.kernel_set import ARITHMETICS
from engine.devices.cuda.context import Modules, allocate, upload
from engine.devices.cuda.outgoing import told_nobody
from engine.model import traffic
from engine.model.dtypes import WorkType
from engine.model.rows import CountedPaths, CountingSink

_NETWORK: Final = np.dtype(
    [*((name, "u8") for name in ("into", "out", "tails", "weights_into", "heads", "weights")), ("n", "i4")], align=True
)
_SPACE: Final = np.dtype(
    [*((name, "u8") for name in ("sigma", "coeff", "vertices", "ends", "over", "order", "starts")), ("arcs", "i8")],
    align=True,
)
#: Threads per block of the counting kernel.
_THREADS: Final = 128
#: The number of blocks of the counting kernel that run on a multiprocessor at the same time.
_RESIDENT: Final = 8
#: The largest number of rows that a matrix sends to :class:`Counting` at a time.
_BAND: Final = 4096
#: For the kernel that adds up the sums of all counting blocks: threads per block, and the largest number of blocks.
_JOINING: Final = (256, 1024)


class Counting:
    """Counts paths on a stream of its own, and keeps all sums on the device until :meth:`finish`.

    It has the methods ``send``, ``finish`` and ``release`` of :class:`engine.devices.cuda.reducing.Reducing`, so a
    matrix sends rows to either in the same way.

    Args:
        found: the kernels of the device.
        sink: takes the counts.
        kind: the working type of the rows, an integer type.

    Attributes:
        band: the largest number of rows that a caller should send at a time.
        stream: the stream on which paths are counted.
        told: called with the number of rows that have been counted, in the thread that calls ``finish``.
    """

    def __init__(self, found: Modules, sink: CountingSink, kind: WorkType) -> None:
        self.told: Callable[[int], None] = told_nobody
        self._found, self._cupy, self._sink, self._asked = found, found.cupy, sink, sink.counting
        self.band = max(1, min(_BAND, len(self._asked.sources)))
        self.stream = self._cupy.cuda.Stream(non_blocking=True)
        self._arithmetic = ARITHMETICS[kind.name, False]
        self._blocks = max(1, min(self._asked.most, _RESIDENT * found.multiprocessors))
        self._there: dict[str, Any] = {}
        self._sent: list[tuple[int, int]] = []

    def send(self, rows: Any, first: int) -> Any:
        """Queue the counting of ``rows``, which are rows ``first``, ... of the matrix.

        Args:
            rows: on the device, shape (rows, columns); either complete, or completed by work queued on ``stream``.
            first: the row of the matrix at which ``rows`` begin.

        Returns:
            An event of the device; after it ``rows`` may be overwritten.
        """
        with self.stream:
            self._open()
            there, count = self._there, len(rows)
            if count:
                some = slice(first, first + count)
                pitch = np.int64(rows.strides[0] // rows.itemsize)
                given = there["sources"][some], there["own"][some], there["kept"], there["told"][some]
                self._found.get("passing", self._arithmetic)(
                    (min(count, self._blocks),), (_THREADS,),
                    (there["network"], there["space"], rows, pitch, np.int32(count), *given),
                )  # fmt: skip
        self._sent.append((first, count))
        left = self._cupy.cuda.Event(disable_timing=True)
        left.record(self.stream)
        return left

    def finish(self) -> None:
        """Wait until all rows that were sent are counted, and give the counts to the sink."""
        self.stream.synchronize()
        sent, self._sent = self._sent, []
        numbers = [np.arange(first, first + count) for first, count in sent]
        if not sent:
            return
        rows = np.concatenate(numbers)
        with self.stream:
            vertices, ends, over = (self._joined(name) for name in ("vertices", "ends", "over"))
            told = self._there["told"].get()[rows]
        self.stream.synchronize()
        traffic.moved("read", told.nbytes + vertices.nbytes + ends.nbytes + over.nbytes)
        self._sink.take_counted(CountedPaths(rows, vertices, ends, over, told))
        self.told(len(rows))

    def release(self) -> None:
        """Discard counts that were not fetched, and free the device memory; a second call does nothing."""
        self.stream.synchronize()
        self._sent.clear()
        self._there.clear()

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """At the first call, send the arcs to the device and allocate the work space of all blocks."""
        if self._there:
            return
        asked, there, cupy, blocks = self._asked, self._there, self._cupy, self._blocks
        n, arcs = len(asked.kept), len(asked.out[1])
        sides: dict[str, npt.NDArray[Any]] = {
            "into": asked.into[0], "tails": asked.into[1], "weights_into": asked.into[2],
            "out": asked.out[0], "heads": asked.out[1], "weights": asked.out[2],
        }  # fmt: skip
        for name, array in sides.items():
            there[name] = upload(cupy, array) if array.size else None
        for name, array in (("sources", asked.sources), ("own", asked.own), ("kept", asked.kept)):
            there[name] = upload(cupy, array)
        there["told"] = allocate(cupy, (len(asked.sources), 3), np.float64)
        shapes: dict[str, tuple[int, npt.DTypeLike]] = {
            "sigma": (n, "f8"), "coeff": (n, "f8"), "order": (n, "i4"), "starts": (n, "i4"), "vertices": (n, "f8"),
            "ends": (n * asked.ends, "f8"), "over": (arcs * asked.over, "f8"),
        }  # fmt: skip
        for name, (width, kind) in shapes.items():
            there[name] = allocate(cupy, (blocks, width), kind) if width else None
        for name in ("vertices", "ends", "over"):
            self._clear(name)
        there["network"] = _described(_NETWORK, there, n=n)
        there["space"] = _described(_SPACE, there, arcs=arcs)

    def _clear(self, name: str) -> None:
        array = self._there[name]
        if array is not None:
            array.data.memset_async(0, array.nbytes)

    def _joined(self, name: str) -> npt.NDArray[np.float64]:
        """Return the sum of array ``name`` over all blocks, and set the array to 0."""
        array = self._there[name]
        if array is None:
            return np.zeros(0)
        blocks, width = array.shape
        out = allocate(self._cupy, (width,), np.float64)
        threads, most = _JOINING
        self._found.get("joined", ARITHMETICS["int32", False])(
            (min(most, -(-width // threads)),), (threads,), (array, np.int64(width), np.int32(blocks), out)
        )
        self._clear(name)
        found: npt.NDArray[np.float64] = out.get()
        return found


def counting_of(found: Modules, sink: object, kind: WorkType) -> Counting | None:
    """Return a :class:`Counting` for a sink that takes counts of paths; None for any other sink."""
    return Counting(found, sink, kind) if isinstance(sink, CountingSink) else None


def counted_bytes(sink: object) -> int:
    """Return the bytes of device memory that counting takes for ``sink``; 0 if the sink takes no counts."""
    return sink.counting.bytes if isinstance(sink, CountingSink) else 0


def _described(form: np.dtype[Any], there: dict[str, Any], **numbers: int) -> npt.NDArray[Any]:
    """Return a struct of ``passing.cu``.  A field takes its value from ``numbers``; a field not named there takes the
    address of the array of that name in ``there``, or 0 if there is no such array.
    """
    made = np.zeros((), form)
    for name in form.names or ():
        array = there.get(name)
        made[name] = numbers.get(name, 0 if array is None else array.data.ptr)
    return made
