"""Launches the search kernels on one GPU, in three forms; one launch searches a batch of sources.

*Sweep*: the whole device sweeps over all vertices for one block of sources after another.  *Lists*: each thread block
has sources and lists of its own.  *Hops*: breadth-first search, for arcs that all weigh 1.  ``search.cu`` and
``hops.cu`` describe the algorithms, docs/kernels.md their speed.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.arcs import IncomingArcs
from engine.devices.cuda.code.kernel_set import ARITHMETICS, KERNELS
from engine.devices.cuda.context import Modules, allocate, upload
from engine.devices.cuda.row_facts import RowFactsReader
from engine.model.device_layout import HOPS_ROWS, LIST_ROW, ROW, list_groups, sweep_groups
from engine.model.dtypes import WorkType

_POINTERS: Final = (
    "chunks", "into", "tails", "heads", "weights", "out_of", "next", "place", "sources", "rows", "out", "labels",
    "scratch", "state",
)  # fmt: skip
_SEARCH: Final = np.dtype(
    [*((f, "u8") for f in _POINTERS), ("ld", "i8"), ("limit", "i8")]
    + [(f, "i4") for f in ("n", "vertices", "chunk_count", "source_count", "groups")],
    align=True,
)
_WALK: Final = np.dtype(
    [
        *((f, "u8") for f in ("chunks", "tails", "heads", "sources", "out", "rows", "stamps", "state")),
        *(("ld", "i8"), ("limit", "i8"), ("n", "i4"), ("chunk_count", "i4"), ("source_count", "i4")),
    ],
    align=True,
)
_STATE: Final = 32  # words of state of the launch, and of each group of thread blocks
#: The largest number of thread blocks per multiprocessor in a cooperative launch.
SWEEP_BLOCKS: Final = 4


class SearchKernels:
    """The arcs of one graph on the device, and memory for the labels (tentative distances) of each group of thread
    blocks.
    """

    def __init__(
        self,
        found: Modules,
        arcs: IncomingArcs,
        kind: WorkType,
        *,
        labels: WorkType,
        form: str,
        rows: int,
        levels: bool = False,
    ) -> None:
        """Copy the arcs to the device.

        Args:
            found: the kernels of the device.
            arcs: weights non-negative.
            kind: the type of the matrix.
            labels: the type of the labels: the type of the matrix, or uint16 if the matrix has int32.
            form: ``sweep``, ``lists`` or ``hops`` (arcs of weight 1; labels are ignored).
            rows: the number of sources of the largest batch.
            levels: whether ``hops`` counts vertices at each number of hops in place of writing rows.
        """
        self._modules, self._cupy, self._kind, self._labels = found, found.cupy, kind, labels
        self._n, self._vertices, self.form, self._levels = len(arcs.place), arcs.vertices, form, levels
        self._arithmetic = ARITHMETICS[("int32" if levels else (kind if form == "hops" else labels).name), False]
        send = partial(upload, self._cupy)
        self._place = arcs.place
        self._arrays: dict[str, Any] = {"place": send(arcs.place), "tails": send(arcs.tails)}
        if form == "lists":
            out_of, following = arcs.outgoing()
            self._arrays |= {"into": send(arcs.into), "out_of": send(out_of), "next": send(following)}
        else:
            self._arrays |= {"chunks": send(arcs.chunks()), "heads": send(arcs.heads)}
        if form != "hops":
            self._arrays["weights"] = send(_as_labels(arcs.weights, labels))
        self._groups = self._scratch(found, labels.itemsize, rows)

    def _scratch(self, found: Modules, itemsize: int, rows: int) -> int:
        """Allocate labels and lists; return the number of groups of thread blocks."""
        vertices, groups = self._vertices, 1
        if self.form == "hops":
            self._arrays["rows"] = allocate(self._cupy, ((3 if self._levels else HOPS_ROWS) * self._n, ROW), "u1")
            self._arrays["stamps"] = self._cupy.zeros(2 * self._n, "i4")
        else:
            sweeping = self.form == "sweep"
            groups = list_groups(vertices, rows, itemsize, found.multiprocessors)
            if sweeping:
                groups = sweep_groups(self._arrays["tails"].size, rows, itemsize)
            self._arrays["labels"] = allocate(self._cupy, (groups * vertices, ROW if sweeping else LIST_ROW), "u1")
            self._arrays["scratch"] = self._cupy.zeros((groups, 2 if sweeping else 3, vertices), "i4")
        state = np.zeros((1 + groups, _STATE), np.uint32)
        state[:, 1:3] = 1  # stamps begin at 1, because marks in fresh memory are 0
        self._state, self._zeros = upload(self._cupy, state), self._cupy.zeros(1 + groups, "u4")
        return groups

    def search(self, sources: npt.NDArray[np.int64], out: Any, limit: int) -> None:
        """Queue a search.

        Args:
            sources: vertex indices, shape (rows,).
            out: on the device, shape (rows, n); receives the distances.  With ``levels``: uint32, shape (256, rows);
                receives the number of vertices at each number of hops.
            limit: the search is given up after this number of sweeps (hops: steps) of a block of sources; for lists,
                after this number of visits per vertex on average.
        """
        here = self._place[sources]
        order = np.argsort(here, kind="stable") if self.form == "lists" else np.arange(len(here))
        self._arrays["sources"] = self._cupy.asarray(here[order].astype(np.int32))
        self._arrays["rows_of"] = self._cupy.asarray(order.astype(np.int32))
        self._clear(0, len(self._state))
        if self.form == "hops":
            self._launch_hops(len(here), out, limit)
        else:
            self._launch(len(here), out, limit)

    def given_up(self, reader: RowFactsReader) -> bool:
        """Return whether the last search passed its limit; waits for the device."""
        return bool(reader.words(self._state[0, :1])[0])

    def last_level(self, reader: RowFactsReader) -> int:
        """Return the largest number of hops of all searches so far, if levels are counted."""
        return int(reader.words(self._state[0, :_STATE])[6])

    def release(self) -> None:
        """Free the device memory."""
        self._arrays.clear()

    def _launch(self, count: int, out: Any, limit: int) -> None:
        arguments = np.zeros((), _SEARCH)
        for name in _POINTERS:
            array = self._arrays.get("rows_of" if name == "rows" else name)
            arguments[name] = array.data.ptr if array is not None else 0
        arguments["out"], arguments["ld"], arguments["state"] = out.data.ptr, out.shape[1], self._state.data.ptr
        arguments["n"], arguments["vertices"], arguments["source_count"] = self._n, self._vertices, count
        arguments["groups"] = self._groups
        widened = "_widened" if self._labels is not self._kind else ""
        if self.form == "sweep":
            arguments["limit"], arguments["chunk_count"] = limit, self._arrays["chunks"].size - 1
            self._cooperate("search_sweep" + widened, arguments, self._groups)
            return
        self._clear(1, 1)
        arguments["limit"] = limit * self._vertices
        shared = list_shared(self._vertices)
        name = "search_lists" + widened
        kernel = self._modules.get(name, self._arithmetic, max(shared, 48 * 1024))
        kernel((self._groups,), (KERNELS[name].threads,), (arguments,), shared_mem=shared)

    def _clear(self, word: int, groups: int) -> None:
        """Queue setting a word to 0 in each of the first ``groups`` rows of the state; a copy does this, because cupy
        would have to compile a kernel for it.
        """
        runtime, stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream().ptr
        to, kind = self._state.data.ptr + 4 * word, runtime.memcpyDeviceToDevice
        runtime.memcpy2DAsync(to, 4 * _STATE, self._zeros.data.ptr, 4, 4, groups, kind, stream)

    def _launch_hops(self, count: int, out: Any, limit: int) -> None:
        arguments = np.zeros((), _WALK)
        for name in ("chunks", "tails", "heads", "sources", "rows", "stamps"):
            arguments[name] = self._arrays[name].data.ptr
        self._clear(1, 1)
        arguments["out"], arguments["ld"], arguments["state"] = out.data.ptr, out.shape[1], self._state.data.ptr
        arguments["limit"], arguments["n"], arguments["source_count"] = limit, self._n, count
        arguments["chunk_count"] = self._arrays["chunks"].size - 1
        self._cooperate("hops_levels" if self._levels else "hops", arguments, 1)

    def _cooperate(self, name: str, arguments: npt.NDArray[Any], groups: int) -> None:
        """Queue a cooperative launch: its thread blocks wait for each other, so all of them must be resident."""
        kernel, threads = self._modules.get(name, self._arithmetic), KERNELS[name].threads
        driver = self._modules.driver
        resident = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.ptr, threads, 0)
        blocks = min(resident, SWEEP_BLOCKS) * self._modules.multiprocessors // groups * groups
        pointers = np.array([arguments.ctypes.data], "u8")
        stream = self._cupy.cuda.get_current_stream().ptr
        driver.launchCooperativeKernel(kernel.ptr, blocks, 1, 1, threads, 1, 1, 0, stream, pointers.ctypes.data)


def list_shared(vertices: int) -> int:
    """Return the bytes of shared memory of a block of the lists form: three bits per vertex."""
    return 3 * -(-vertices // 32) * 4


def _as_labels(weights: npt.NDArray[Any], kind: WorkType) -> npt.NDArray[Any]:
    """Return weights in the type of the labels, capped at *unreachable*: an arc longer than every distance is on no
    shortest path.
    """
    weights = weights + 0  # -0.0, whose bits sort below every number, becomes 0.0
    if kind.integer:
        weights = np.minimum(weights, int(kind.unreachable))
    return weights.astype(kind.dtype)
