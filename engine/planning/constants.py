"""The numbers that predictions are made with: the meaning and unit of each, and what is known about its origin.

Each number is defined here once, with a record in ``RECORDS``.  ``Basis`` says how a number came about.  ``machine`` is
empty for measured numbers whose machine was not written down.  ``since`` is the commit that gave the number its value.

A number that shapes an algorithm or a kernel, such as the height of a tile, is not an estimate and stays with that code
(``engine.model.blocks``, ``engine.model.device_layout``, ``engine.model.tiling``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from engine.model.pace import PASSING, PROCESSORS, RESIDENT


class Basis(Enum):
    """How a number came about."""

    MEASURED = "measured, or fitted to measured times"
    COUNTED = "counted from what the code allocates or does"
    DECIDED = "decided: a limit or a trade-off, not a property of a machine"


@dataclass(frozen=True)
class Constant:
    """The record of one number.

    Attributes:
        value: the number, or a table with a number for each case.
        unit: its unit.
        basis: how it came about.
        machine: where it was measured; empty for numbers that were not measured.
        since: the commit that set the value.
    """

    value: object
    unit: str
    basis: Basis
    machine: str
    since: str


@dataclass(frozen=True)
class RoundShares:
    """The times that a round on GPUs takes in addition to its products, as shares of the time of the products.

    Attributes:
        closing: the time of closing a panel as wide as the matrix, in a directed graph.
        closing_half: the same in an undirected graph, whose stripes hold half of the entries.
        low_rows: the share that products by *low* stripes (stripes of few rows) lose is this number divided by the rows
            of the stripe.  For the heights in ``LOW_STRIPES``, that table holds the share instead.
        low_resident: in rounds, the share that low stripes lose is multiplied by (this number + the fraction of the
            stripes that are streamed).
        shallow: what products by a pivot block of width ``shallow_width`` lose, because they load operands more often.
        shallow_width: a width of a pivot block, in vertices.
        few_slots: the time of waiting, if fewer than SLOTS stripes are in flight.
        few_panels: in passes, the time of waiting for a panel, if the device holds two panels only.  Together with
            ``shallow_pass`` it was fitted to 14.3 instead of 16.0 T updates/s, measured on an H100.
        shallow_pass: in passes, what products by stripes of ``shallow_width`` rows lose; for lower stripes, times
            (``shallow_width`` / height) to the power of 3/2 (measured shares: 0.06 at 256 rows, 0.7 at 64 rows).
    """

    closing: float = 0.5
    closing_half: float = 1.5
    low_rows: float = 8
    low_resident: float = 0.2
    shallow: float = 0.03
    shallow_width: float = 1024
    few_slots: float = 0.01
    few_panels: float = 0.12
    shallow_pass: float = 0.01


#: The record of each number of this module, by name.
RECORDS: Final[dict[str, Constant]] = {}
_T = TypeVar("_T")

UNRECORDED: Final = "not recorded"
EPYC: Final = "AMD EPYC (Zen 5), two virtual processors"
H200: Final = "one NVIDIA H200, 16 processors"
FOUR_H200: Final = "four NVIDIA H200 of one host, a worker each"


def _measured(name: str, value: _T, unit: str, since: str, machine: str = UNRECORDED) -> _T:
    RECORDS[name] = Constant(value, unit, Basis.MEASURED, machine, since)
    return value


def _counted(name: str, value: _T, unit: str, since: str) -> _T:
    RECORDS[name] = Constant(value, unit, Basis.COUNTED, "", since)
    return value


def _decided(name: str, value: _T, unit: str, since: str) -> _T:
    RECORDS[name] = Constant(value, unit, Basis.DECIDED, "", since)
    return value


# ---- every solve ----------------------------------------------------------------------------------------------------

#: Memory of the process in addition to the arrays that estimates count: kernels and their compiler, the store's writer,
#: the allocator.
PROCESS_BYTES: Final = _measured("PROCESS_BYTES", 192 * 2**20, "bytes", "9ca5347")
#: Bytes by which a process's memory differs from one run to the next; budgets for prepared graphs are larger by this
#: number.
RESIDENT_SPREAD: Final = _decided("RESIDENT_SPREAD", 16 * 2**20, "bytes", "07da101")
#: Usual rows of a tile of the store.  ``storage.matrix.grid`` decides the rows of a tile; planning needs them only to
#: predict the size of buffers.
BAND_ROWS: Final = _counted("BAND_ROWS", 64, "rows", "9ca5347")
#: Size that a batch of rows should have when it is sent to the sink.
BATCH_BYTES: Final = _decided("BATCH_BYTES", 64 * 2**20, "bytes", "9ca5347")
#: A batch needs this many rows for each thread to keep all threads busy, as a thread computes several rows at once.
BUSY_ROWS: Final = _decided("BUSY_ROWS", 128, "rows per thread", "30a7ab0")
#: The same for breadth-first searches, of which a thread makes this many at once.
BUSY_BITS: Final = _decided("BUSY_BITS", 512, "rows per thread", "d6dcf7d")
#: Rate at which the weight matrix is filled.
FILL_RATE: Final = _measured("FILL_RATE", 4e9, "bytes per second", "19050b3")
#: Up to this size a matrix is streamed only if it does not fit in memory: the solve ends before the first commit, and
#: streaming could hardly be faster.
STREAMED_FROM: Final = _decided("STREAMED_FROM", 16 << 20, "bytes of the matrix", "58bd0eb")
#: The largest difference, in bytes, between the memory of two processes that plan the same problem.  A budget that a
#: refusal names is larger by this number, so that another process does not refuse the job with this budget.
RESIDENT_SPARE: Final = _decided("RESIDENT_SPARE", 8 * 2**20, "bytes", "d387507")
#: More GPUs share a streamed matrix only if they are predicted to take less than this share of the time that fewer GPUs
#: take.
MORE_GPUS_PAY: Final = _decided("MORE_GPUS_PAY", 0.95, "ratio of seconds", "24ee8ce")
#: For long solves, a candidate that commits its progress is preferred to a candidate that does not, if it takes less
#: than this many times the seconds of the other candidate.
UNKEPT: Final = _decided("UNKEPT", 1.25, "ratio of seconds", "ffd677c")
#: A solve in memory that takes at least this time, on a GPU or on a CPU, should commit copies to the store.  Without
#: these copies, its work would be lost if the process ended.
LONG_ON_GPU: Final = _decided("LONG_ON_GPU", 120.0, "seconds", "ffd677c")
LONG_ON_CPU: Final = _decided("LONG_ON_CPU", 60.0, "seconds", "6ecede7")

#: Times that ``benchmarks/start.py`` measured: CREATE_SECONDS to make the folders of a store, SEAL_SECONDS to seal it,
#: START_SECONDS to import the modules that compute and load their compiled kernels.
CREATE_SECONDS: Final = _measured("CREATE_SECONDS", 0.01, "seconds", "ddb7d5c")
SEAL_SECONDS: Final = _measured("SEAL_SECONDS", 0.02, "seconds", "ddb7d5c")
START_SECONDS: Final = _measured("START_SECONDS", 0.3, "seconds", "ddb7d5c")

# ---- a GPU ----------------------------------------------------------------------------------------------------------

#: Time until a GPU has been found and is ready.  Planning waits for that, so no candidate counts it.  Planning looks
#: for no GPU if processors are predicted to finish within this time, unless a GPU was asked for.
DEVICE_START: Final = _measured("DEVICE_START", 0.5, "seconds", "48bfa8c")
#: Time of a solve on the GPU in addition to its work: loading kernels, page-locking buffers.
DEVICE_LAUNCH: Final = _measured("DEVICE_LAUNCH", 0.05, "seconds", "48bfa8c")
#: Rows from the device are written at up to this many times the rate of rows that processors compute: the device has
#: found their sums and largest distances, and the processors have no other work.  With two threads there is no gain.
DEVICE_WRITE_GAIN: Final = _measured("DEVICE_WRITE_GAIN", 2.5, "ratio of rates, 16 threads", "dfe019e", H200)
#: Rate of copies from the device into an array in the host's memory.
DEVICE_HOST_RATE: Final = _measured("DEVICE_HOST_RATE", 3.6e10, "bytes per second", "67da0db", H200)
#: Rate at which arcs are sent to the device, in the working type, row pointers included.
DEVICE_INGEST_RATE: Final = _measured("DEVICE_INGEST_RATE", 2e9, "bytes per second", "48bfa8c")
#: Share of the rate of large products that a whole solve on one or several GPUs reaches.
DEVICE_EFFICIENCY: Final = _measured("DEVICE_EFFICIENCY", 0.95, "share", "48bfa8c")

# ---- Floyd-Warshall and squaring in memory --------------------------------------------------------------------------

#: Time to start a thread of a solve that consists of products; the first thread exists already.  63 threads took 6 ms.
THREAD_SECONDS: Final = _measured("THREAD_SECONDS", 1e-4, "seconds", "1072a06")

#: Share of the rate of large products that a whole solve on processors reaches (benchmarks/kernels/
#: cpu_floyd_warshall.py); the blocked order, whose products are thinner, reaches BLOCKED_SHARE of that.
CLOSURE_EFFICIENCY: Final = _measured("CLOSURE_EFFICIENCY", 0.9, "share", "19050b3", EPYC)
BLOCKED_SHARE: Final = _measured("BLOCKED_SHARE", 0.95, "share", "19050b3", EPYC)
#: Share of the rate of large products that min-plus powers reach.
SQUARING_EFFICIENCY: Final = _measured("SQUARING_EFFICIENCY", 0.9, "share", "19050b3", EPYC)
#: Share of ``DEVICE_EFFICIENCY`` that the recursive order reaches on a GPU, because its closing and packing do not
#: overlap with products.
RECURSIVE_SHARE: Final = _measured("RECURSIVE_SHARE", 0.9, "share", "8e3610f")
#: Least time of a round on a GPU: n = 4,096, solved in eight rounds of 512 vertices, took 5.3 ms.
ROUND_SECONDS: Final = _measured("ROUND_SECONDS", 0.65e-3, "seconds", "3bb8f87", H200)

# ---- searches on processors -----------------------------------------------------------------------------------------

#: A searching thread holds this many bytes for each vertex: a row of tentative distances (256 bytes), or a heap entry,
#: its position and a distance.
LABEL_BYTES: Final = _counted("LABEL_BYTES", 288, "bytes per thread and vertex", "1c7192d")
#: Fewer searches than this are made one by one with a heap; this many or more are made side by side, in the lanes of
#: vectors.
HEAP_BELOW: Final = _measured("HEAP_BELOW", 12, "searches", "30a7ab0")
#: Size of the tentative distances of one vertex that are relaxed side by side, one for each source of a block.
LANE_BYTES: Final = _counted("LANE_BYTES", 256, "bytes", "30a7ab0")
#: While a search with a heap scans the arcs for a single source, this number of blocks of sources can be searched.  The
#: sources of a block are searched side by side, in the lanes of vectors.  Vectors are faster, but relax arcs several
#: times.  Measured: 0.2 to 1 on graphs of 500 to 5,000 vertices.
LANE_BLOCKS: Final = _measured("LANE_BLOCKS", 0.37, "blocks for a heap's source", "30a7ab0")
#: Copying the graph into the form of the searches takes the time of this number of arc scans for each arc and vertex.
#: PREPARING_UNORDERED holds for graphs of more than ORDERED_ARCS arcs per vertex, whose vertices are not reordered.
#: Measured on undirected graphs: 0.4 to 3.5 with reordering, and 0.01 to 0.03 without.
PREPARING_SCANS: Final = _measured("PREPARING_SCANS", 3, "arc scans", "9c79369", EPYC)
PREPARING_UNORDERED: Final = _measured("PREPARING_UNORDERED", 0.5, "arc scans", "9c79369", EPYC)
ORDERED_ARCS: Final = _decided("ORDERED_ARCS", 32, "arcs of a vertex", "9c79369")
#: A graph counts as a lattice if the hops across it are at least this many times the square root of n; its separators
#: are then likely to be small.
LATTICE: Final = _decided("LATTICE", 0.5, "arcs by the root of vertices", "9c79369")
#: If the labels of a block of sources take more than CROWDED_BYTES, they leave the processor's own cache, and each
#: further thread slows down all threads by this share of their time.  Measured with blocks of 4 to 59 MB: 1.0 to 1.7
#: times the processor time with 8 threads, and 1.3 to 1.8 times with 16.
CROWDED: Final = _measured("CROWDED", 0.03, "share for each further thread", "5ebac92", H200)
CROWDED_BYTES: Final = _decided("CROWDED_BYTES", 2**22, "bytes", "5ebac92")
#: Searches side by side relax the weighted arcs of lattices more often than the arcs of other graphs.  The factor is
#: predicted as width / LATTICE_WIDTH, where width = n / (hops across), but at most as (square root of n) /
#: LATTICE_SIDE.  Measured factors on roads: 1.1 to 1.5 at 1,000 vertices, 2.3 at 2,600, 2.9 to 3.3 at 4,096, 2.8 to 4.6
#: from 10,000 to 14,400.
LATTICE_WIDTH: Final = _measured("LATTICE_WIDTH", 12, "vertices", "9c79369", EPYC)
LATTICE_SIDE: Final = _measured("LATTICE_SIDE", 25, "root of vertices", "9c79369", EPYC)
#: Finding potentials takes about this number of passes over the arcs.
POTENTIAL_PASSES: Final = _measured("POTENTIAL_PASSES", 30, "passes", "19050b3")
#: Breadth-first searches: HOP_SOURCES sources are searched together as a block.  Blocks may be smaller so that every
#: thread has a block, but hold at least HOP_SOURCES_LEAST sources.
HOP_SOURCES: Final = _counted("HOP_SOURCES", 512, "sources per block", "1c7192d")
HOP_SOURCES_LEAST: Final = _decided("HOP_SOURCES_LEAST", 32, "sources per block", "1c7192d")
#: A breadth-first step over a block takes, for each arc, this share of the time in which a search with a heap scans an
#: arc, and twice that for each vertex.  Measured for 1,000 to 60,000 vertices: 0.08 to 0.3, the larger shares where
#: rows of bits need more cache.
HOP_STEP: Final = _measured("HOP_STEP", 0.12, "times in which a heap scans an arc", "1c7192d")
#: Writing an entry of the result of a breadth-first search takes this share of the time in which a search with a heap
#: scans an arc.
HOP_ENTRY: Final = _measured("HOP_ENTRY", 0.02, "times in which a heap scans an arc", "1c7192d")
#: A thread that searches breadth first holds, for each vertex, eleven rows of one bit per source, and two bytes of
#: marks.
HOP_BYTES: Final = _counted("HOP_BYTES", 11 * 64 + 2, "bytes per thread and vertex", "1c7192d")

# ---- searches on a GPU ----------------------------------------------------------------------------------------------

#: Rates at which tentative distances are pulled over arcs, by the form of the search.  They count each arc once,
#: although it is relaxed several times (docs/kernels.md).  For another chip they are scaled by its rate of int32
#: products (PULL_CHIP_RATE).
PULL_RATES: Final = _measured(
    "PULL_RATES", {"sweep": 3.0e11, "lists": 6.0e10, "hops": 1.0e11}, "bytes per second", "dfe019e", H200
)
#: Time of all searches of a solve in addition to pulling tentative distances: arcs are sorted and sent, and ``lists``
#: need an order of the vertices first.  Breadth-first searches (``hops``) do not split a vertex with many in-arcs, so
#: each step waits for the vertex that has most.  On as-caida20070917, where a vertex has 1,452 in-arcs, a whole solve
#: took 4.3 ms longer than with ``sweep``.
SEARCH_START: Final = _measured(
    "SEARCH_START", {"sweep": 0.2e-3, "lists": 4e-3, "hops": 4.2e-3}, "seconds", "fa715c2", H200
)
#: With this number of arcs per vertex, sweeps take twice as long for each arc as on a sparse graph: tentative distances
#: are corrected more often, and heads of many arcs are split.  Measured with graphs of 4 arcs per vertex, and with
#: complete graphs, on which sweeps take seven times as long.
TWICE_AS_LONG: Final = _measured("TWICE_AS_LONG", 700, "arcs per vertex", "d77fe26", H200)
#: Rate at which tentative distances are converted to entries of the result.
LABELS_OUT_RATE: Final = _measured("LABELS_OUT_RATE", 2e12, "bytes per second", "dfe019e", H200)
#: Rate of int32 products on the GPU on which ``PULL_RATES`` were measured.
PULL_CHIP_RATE: Final = _measured("PULL_CHIP_RATE", 17.8e12, "updates per second", "dfe019e", H200)

# ---- partitioned ----------------------------------------------------------------------------------------------------

#: Share of one thread's rate of large products that steps 1 and 2 of ``engine.algorithms.partitioned`` reach; most of
#: their products are too small for several threads.
PARTS_EFFICIENCY: Final = _measured("PARTS_EFFICIENCY", 0.6, "share", "8d926e8")
#: Time that a thread takes for each part, whatever its size.
PART_SECONDS: Final = _measured("PART_SECONDS", 1.2e-4, "seconds", "5956763")
#: Share of the rate of large products that sweeps reach.
SWEEP_EFFICIENCY: Final = _measured("SWEEP_EFFICIENCY", 0.9, "share", "e7b0deb")
#: Time of a thread for each entry of the matrix in addition to its updates: the entry is cleared and put in its column.
ENTRY_SECONDS: Final = _measured("ENTRY_SECONDS", 1.6e-9, "seconds", "20ac598")
#: Time that launches and waits take for each part in each batch of rows on the device.
DEVICE_PART_SECONDS: Final = _measured("DEVICE_PART_SECONDS", 1.2e-5, "seconds", "8d926e8")
#: Share of the rate of large products that the products over borders reach on the device; many of these are small.
DEVICE_SWEEP_EFFICIENCY: Final = _measured("DEVICE_SWEEP_EFFICIENCY", 0.3, "share", "25ac831")
#: Time until the first rows are swept, in addition to the products on the processors: arrays of parts are packed and
#: sent, and the sequence of launches is recorded.  Measured: 0.04 to 0.06 s on graphs of 13,000 to 40,000 vertices.
DEVICE_SWEEP_START: Final = _measured("DEVICE_SWEEP_START", 0.05, "seconds", "5c9673f")
#: Time for each entry on the device in addition to its updates: the entry is cleared, put in its column and added to
#: the sums of its row.
DEVICE_ENTRY_SECONDS: Final = _measured("DEVICE_ENTRY_SECONDS", 4e-12, "seconds", "8d926e8")

# ---- streaming ------------------------------------------------------------------------------------------------------

#: Share of the rate of large products that whole solves in rounds reach on processors (docs/benchmarks.md).
ROUNDS_EFFICIENCY: Final = _measured("ROUNDS_EFFICIENCY", 0.88, "share", "ffd677c", EPYC)
#: Loading the panel into the processors' caches, once for each stripe, takes as long as relaxing PANEL_LOAD_ROWS rows.
#: For undirected graphs the panel is also packed for each stripe; loading and packing take as long as relaxing
#: PANEL_PACK_ROWS rows.
PANEL_LOAD_ROWS: Final = _measured("PANEL_LOAD_ROWS", 14, "rows", "cfbf7ba")
PANEL_PACK_ROWS: Final = _measured("PANEL_PACK_ROWS", 40, "rows", "ffd677c")
#: Stripes in host memory in addition to the panels: two are read ahead, one is relaxed, three are written.  With GPUs
#: there are GPU_STRIPE_BUFFERS more.
STRIPE_BUFFERS: Final = _counted("STRIPE_BUFFERS", 6, "stripes", "ffd677c")
GPU_STRIPE_BUFFERS: Final = _decided("GPU_STRIPE_BUFFERS", 4, "stripes", "9ffb42c")
#: Memory of the eight threads that read and write tiles; each thread holds one tile.
TILE_THREADS_BYTES: Final = _counted("TILE_THREADS_BYTES", 8 * 2**21, "bytes", "ffd677c")
#: Disk space of the tiles in flight and of spare files, in addition to the store itself: this share of the store, but
#: at most SPARE_FILES files.
SPARE_DISK: Final = _decided("SPARE_DISK", 1 / 16, "share of the store", "ffd677c")
SPARE_FILES: Final = _decided("SPARE_FILES", 64, "files of 2 MiB", "ffd677c")
#: Host memory that the CUDA driver takes during a solve, in addition to what it held when the solve was planned.
DRIVER_BYTES: Final = _measured("DRIVER_BYTES", 2**30, "bytes", "8ff42bb")
#: Several GPUs may share a matrix of at least this size, even if one GPU could hold it.
SHARED_FROM: Final = _decided("SHARED_FROM", 16384, "vertices", "6abc271")
#: In GPU solves that use the disk, two activities (products and copies, writing and mirroring, or writing and products)
#: overlap, except for this share of the shorter activity.
UNHIDDEN: Final = _measured("UNHIDDEN", 0.15, "share", "b1b2e23")
#: Copies take longer by the share COPY_START_ROWS / (height of a stripe), as each stripe waits for the disk, the bus
#: and the device once; and by the share FEW_SLOTS if fewer than SLOTS stripes are in flight.
COPY_START_ROWS: Final = _measured("COPY_START_ROWS", 8, "rows", "8a7fa53")
FEW_SLOTS: Final = _measured("FEW_SLOTS", 0.02, "share", "b1b2e23")
#: At some width of the pivot block, copying a stripe takes as long as relaxing it.  A pivot block should be BUS_MARGIN
#: times as wide, so that copies hide behind products.
BUS_MARGIN: Final = _decided("BUS_MARGIN", 1.25, "ratio of widths", "8a7fa53")
#: One process starts the products of all GPUs that share passes.  This is the least time between two starts while rows
#: are written.  With stripes and panels of 1,024 rows, four GPUs made 44.8 T updates/s in the pass up for n = 120,000.
#: For n = 200,000, whose products take longer, they made 66.3 T updates/s, as many as in the pass down.
FEEDING_SECONDS: Final = _measured("FEEDING_SECONDS", 0.0028, "s", "277f812", H200)
#: ROUND_SHARES holds the times that a round on GPUs takes in addition to its products; planning compares layouts with
#: them.  LOW_STRIPES holds, for heights of a stripe, the share of time that products lose because low stripes do not
#: fill waves of thread blocks.
ROUND_SHARES: Final = _measured("ROUND_SHARES", RoundShares(), "shares of the products of a round", "8a7fa53", H200)
LOW_STRIPES: Final = _measured("LOW_STRIPES", {1024: 0.0, 512: 0.005}, "share by rows", "8a7fa53", H200)
#: MIRROR_RATE: rate at which one thread mirrors the upper half of a matrix.  MIRROR_THREADS: the largest number of
#: threads for which the bandwidth of memory suffices; sixteen threads took 0.78 s for a matrix of 17.2 GB.
MIRROR_RATE: Final = _measured("MIRROR_RATE", 6e9, "bytes per second", "dd24fed", H200)
MIRROR_THREADS: Final = _measured("MIRROR_THREADS", 4, "threads", "dd24fed", H200)
#: Bytes that mirroring in the store reads and writes for each byte of the matrix: it reads the upper half about twice
#: and writes the lower half.
FINISH_SHARE: Final = _counted("FINISH_SHARE", 1.5, "bytes per byte of the matrix", "ffd677c")

# ---- many workers ---------------------------------------------------------------------------------------------------

#: Time that the driver, the scheduler and a worker, one after the other, spend on managing a task.
CONTROL_SECONDS: Final = _measured("CONTROL_SECONDS", 0.01, "seconds", "b2eda1d")
#: Idle time of a worker in a round, by how far rounds overlap (``engine.model.pace``).  The time in which panels are
#: closed is not counted.  Measured with four GPUs and pivot blocks of 2,048 vertices for tasks that overlap, and with
#: two GPUs and 2,048 and 4,096 vertices for tasks that do not.
IDLE_SECONDS: Final = _measured(
    "IDLE_SECONDS", {PROCESSORS: 0.01, RESIDENT: 0.015, PASSING: 0.06}, "seconds", "4c3f87e", FOUR_H200
)
#: Closing a panel on a GPU takes longer by this time for each entry of its pivot block.  Closing runs many small
#: kernels in sequence, and each waits until a thread block of the products that run at the same time has finished.
CLOSING_WAITS: Final = _measured("CLOSING_WAITS", 1.3e-8, "seconds by width squared", "4c3f87e", FOUR_H200)
#: Time to allocate page-locked memory for panels, while the first stripes are made.
LOCKING_SECONDS: Final = _measured("LOCKING_SECONDS", 7.0e-11, "seconds per byte", "4c3f87e", FOUR_H200)
#: TASK_SECONDS: time that the scheduler spends on each task.  ROUND_TASKS: number of tasks that a worker gets in a
#: round.
TASK_SECONDS: Final = _measured("TASK_SECONDS", 0.002, "seconds", "5eb569d")
ROUND_TASKS: Final = _counted("ROUND_TASKS", {"cpu": 3, "cuda": 4}, "tasks per worker and round", "5eb569d")
#: The largest disk space that panels take in the exchange folder between two commits, as a share of the matrix.
PANEL_DISK: Final = _decided("PANEL_DISK", 0.25, "share of the matrix", "b2eda1d")

# ---- many graphs ----------------------------------------------------------------------------------------------------

#: A graph is solved alone if one thread is predicted to take at least this long.
ALONE_FROM: Final = _decided("ALONE_FROM", 1.0, "seconds", "03e17ba")
#: Time that a launch for a stack of graphs takes in addition to its updates: from Python to the device and back.
STACK_LAUNCH: Final = _measured("STACK_LAUNCH", 3e-4, "seconds", "03e17ba")
#: Rate of filling a stack in pageable memory, copying it to the device and back, and taking it apart.
STACK_RATE: Final = _measured("STACK_RATE", 2e9, "bytes per second", "03e17ba")
#: Share of the rate of large products that a stack of small graphs reaches (docs/kernels.md).
STACK_EFFICIENCY: Final = _measured("STACK_EFFICIENCY", 0.5, "share", "03e17ba", H200)
#: The largest size of one stack; a second stack is filled while the matrices of the first are copied out of it.
STACK_BYTES: Final = _decided("STACK_BYTES", 2**28, "bytes", "03e17ba")
#: Time that one thread takes for the files of a store other than its distances: about forty small files.
STORE_SECONDS: Final = _measured("STORE_SECONDS", 0.03, "seconds", "03e17ba")
