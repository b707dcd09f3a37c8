"""Prints the tables of published papers, with our figures in a column beside those of the paper.

    python -m benchmarks.papers            print the tables from the recorded results
    python -m benchmarks.papers --measure  on a GPU: measure every size, record, print

The columns *ours* hold medians of the device time between two CUDA events, on graphs like those of the papers: every
vertex has four arcs to random vertices (m = 4n), with whole weights from 1 to 100 in float32.  The columns *theirs*
hold the figures that the paper printed, for the hardware that the title names.  A dash means that there is no figure.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.papers_held import (
    LARGE,
    OKUYAMA,
    PAPER,
    SHARES,
    TABLE_1,
    TABLE_2,
    TABLES_2008,
    TASK_PARALLEL,
    XING_1,
    XING_2,
)

if TYPE_CHECKING:
    from benchmarks.kernels.gpu_timing import Record
    from engine.devices.cuda.floyd_warshall import Solver

RESULTS: Final = Path(__file__).parent / "results" / "gpu_papers.json"
SEARCHES: Final = RESULTS.with_name("gpu_search.json")
STREAMS: Final = RESULTS.with_name("gpu_stream_xing.json")
#: Updates of a multiprocessor in one clock at the theoretical peak: 64 minima, each with one addition.
UPDATES_A_CLOCK: Final = 64
#: Sizes at which matrix products are timed against Floyd-Warshall.
PRODUCTS: Final = (1024, 2048, 3072, 4096, 5120, 8192)
#: Number of pivots of the naive order that are timed; each of the other pivots takes the same time.
NAIVE_PIVOTS: Final = 256
_PLAIN: Final = r"""
extern "C" __global__ void pivot(float* d, int n, int k) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  d[(size_t)i * n + j] = fminf(d[(size_t)i * n + j], d[(size_t)i * n + k] + d[(size_t)k * n + j]);
}
extern "C" __global__ void product(float* c, const float* a, const float* b, int depth, int lda, int ldb, int ldc) {
  __shared__ float s[32][32], t[32][33];
  const int x = threadIdx.x, y = threadIdx.y, j = blockIdx.x * 32 + x, i = blockIdx.y * 32 + y;
  float r = c[(size_t)i * ldc + j];
  for (int q = 0; q < depth; q += 32) {
    s[y][x] = a[(size_t)i * lda + q + x];
    t[y][x] = b[(size_t)(q + y) * ldb + j];
    __syncthreads();
    for (int p = 0; p < 32; p++) r = fminf(r, s[y][p] + t[p][x]);
    __syncthreads();
  }
  c[(size_t)i * ldc + j] = r;
}
"""
#: Rates that other papers report for their fastest GPU code, in 10^12 updates a second for each GPU.  An update counts
#: as two operations.
RATES: Final = (
    ("DSNAPSHOT (Kannan et al., SC 2020), distributed, 24,576 V100, 136 PF/s", 136e15 / 24576 / 2e12),
    ("Sao et al. (HPDC 2021), with host offload, V100, about 5.3 TF/s a GPU", 5.3 / 2),
    ("Matsumoto et al. (IEICE 2012), hybrid, distances and paths, i7-2600K with HD 6970, 1.1 TF/s", 1.1 / 2),
)


def sparse_weights(n: int, *, seed: int = 1, degree: int = 4) -> Any:
    """Return the weight matrix (float32, on the device) of a graph with ``degree`` random arcs out of every vertex."""
    import cupy

    rng = cupy.random.RandomState(seed)
    d = cupy.full((n, n), cupy.inf, "f4")
    rows = cupy.arange(n)
    for _ in range(degree):
        d[rows, rng.randint(0, n, n)] = rng.randint(1, 101, n).astype("f4")
    d[rows, rows] = 0
    return d


def measure(largest: int) -> None:
    """Measure all sizes up to ``largest`` (Table I) and write ``RESULTS``."""
    import cupy

    from benchmarks.kernels.gpu_timing import Record, milliseconds
    from engine.devices.cuda.context import modules
    from engine.devices.cuda.floyd_warshall import Solver

    record = Record("gpu_papers")
    solver = Solver(modules(), "float32", nonnegative=True)
    pool = cupy.get_default_memory_pool()
    for n in (size for size in TABLE_1 if size <= largest):
        start = sparse_weights(n)
        d = start.copy()
        if n <= 32768:
            solver.close(d)  # compiles the kernels, and allocates the panels
        repeats = 21 if n <= 2048 else 5 if n <= 8192 else 3 if n <= 16384 else 1
        ms = milliseconds(partial(solver.close, d), prepare=partial(cupy.copyto, d, start), repeats=repeats)
        record.add(table=1, n=n, ms=ms, rate_T=n**3 / ms * 1e-9)
        del d, start
        solver.release()
        pool.free_all_blocks()
    for graphs, n in TABLE_2:
        start = cupy.stack([sparse_weights(n, seed=i % 8 + 1) for i in range(graphs)])
        d = start.copy()
        solver.ahead.close(d)
        ms = milliseconds(partial(solver.ahead.close, d), prepare=partial(cupy.copyto, d, start), repeats=11)
        record.add(table=2, graphs=graphs, n=n, ms=ms, rate_T=graphs * n**3 / ms * 1e-9)
    del start, d
    pool.free_all_blocks()
    _measure_others(record, solver)
    record.write()


def _measure_others(record: Record, solver: Solver) -> None:
    """Record the times of matrix products beside Floyd-Warshall, and those of the naive and the recursive orders."""
    import cupy

    from benchmarks.kernels.gpu_squaring import power
    from benchmarks.kernels.gpu_timing import milliseconds

    for n in PRODUCTS:
        start = sparse_weights(n)
        d = start.copy()
        solver.close(d)
        closed = d.copy()
        fw = milliseconds(partial(solver.close, d), prepare=partial(cupy.copyto, d, start), repeats=5)
        squared = power(solver.bulk, start)
        assert bool((squared == closed).all())
        product = milliseconds(partial(power, solver.bulk, start), repeats=1)
        record.add(table="products", n=n, floyd_warshall_ms=fw, product_ms=product)
    for n in LARGE:
        record.add(table="large", n=n, naive_pivots=NAIVE_PIVOTS, **_orders(n, solver))
        solver.release()
        cupy.get_default_memory_pool().free_all_blocks()


def _orders(n: int, solver: Solver) -> dict[str, float]:
    """Return milliseconds of the naive, the recursive and our order; all but the naive one must give the same matrix.

    Of the naive order, only ``NAIVE_PIVOTS`` pivots are run.
    """
    import cupy

    from benchmarks.kernels.gpu_timing import milliseconds

    start, plain = sparse_weights(n), _Plain()
    d, want = start.copy(), start.copy()
    solver.close(want)

    def timed(run: Callable[[Any], object]) -> float:
        return milliseconds(lambda: run(d), prepare=lambda: cupy.copyto(d, start), repeats=1)

    row = {"naive_ms": timed(lambda d: plain.naive(d, NAIVE_PIVOTS)) * n / NAIVE_PIVOTS}
    orders: dict[str, Callable[[Any], object]] = {
        "recursive_ms": lambda d: plain.recursive(d, solver),
        "recursive_product_ms": solver.recursive,
        "ours_ms": solver.close,
    }
    for name, order in orders.items():
        row[name] = timed(order)
        assert bool((d == want).all()), name
    return row


class _Plain:
    """The simple kernels with which the naive and the recursive order are measured."""

    def __init__(self) -> None:
        import cupy

        module = cupy.RawModule(code=_PLAIN)
        self._cupy, self._pivot, self._product = cupy, module.get_function("pivot"), module.get_function("product")

    def naive(self, d: Any, pivots: int) -> None:
        """Relax all entries over each of the first ``pivots`` vertices: a launch for each vertex, a thread an entry."""
        n = len(d)
        for k in range(pivots):
            self._pivot((n // 256, n), (256,), (d, self._cupy.int32(n), self._cupy.int32(k)))

    def recursive(self, d: Any, solver: Solver, base: int = 1024) -> None:
        """Close a matrix recursively by halves, with products over tiles of 32 x 32 in shared memory.

        Our own kernel closes blocks of up to ``base`` vertices.
        """
        n = len(d)
        if n <= base:
            solver.ahead.close(d)
            return
        half = n // 2
        a, b, c, e = d[:half, :half], d[:half, half:], d[half:, :half], d[half:, half:]
        for one, row, column, other in ((a, b, c, e), (e, c, b, a)):
            self.recursive(one, solver, base)
            self._relax(row, one, row.copy())
            self._relax(column, column.copy(), one)
            self._relax(other, column, row)

    def _relax(self, c: Any, a: Any, b: Any) -> None:
        (m, n), int32 = c.shape, self._cupy.int32
        leading = (int32(x.strides[0] // 4) for x in (a, b, c))
        self._product((n // 32, m // 32), (32, 32), (c, a, b, int32(a.shape[1]), *leading))


def tables(record: dict[str, Any]) -> list[str]:
    """Return the tables of one device in Markdown, from a recorded result."""
    ones = {row["n"]: row for row in record["rows"] if row["table"] == 1}
    many = {(row["graphs"], row["n"]): row for row in record["rows"] if row["table"] == 2}
    clock = "-".join(map(str, sorted(set(record["sm_clock_mhz_under_load"]))))
    lines = [
        f"Ours: {record['gpu']}, {clock} MHz, driver {record['driver']}, commit {record['commit']}, {record['date']}.",
        "",
        f"Table I ({PAPER}): one graph, milliseconds",
        "",
        "| n | theirs | ours | times faster | ours, 10^12 updates/s |",
        "| --- | --- | --- | --- | --- |",
        *(_row(f"{n:,}", theirs, ones[n]) for n, theirs in TABLE_1.items() if n in ones),
        "",
        "Table II (the same): many graphs in one launch, milliseconds",
        "",
        "| graphs x n | theirs | ours | times faster | ours, 10^12 updates/s |",
        "| --- | --- | --- | --- | --- |",
        *(_row(f"{m:,} x {n:,}", theirs, many[m, n]) for (m, n), theirs in TABLE_2.items() if (m, n) in many),
        "",
        "Rates that others report, 10^12 updates/s a GPU, against ours at n = 32,768",
        "",
        "| whose | theirs | ours |",
        "| --- | --- | --- |",
    ]
    if 32768 in ones:
        lines += [f"| {whose} | {rate:.2f} | {ones[32768]['rate_T']:.1f} |" for whose, rate in RATES]
    return [*lines, *_shares(record, ones), *_products(record), *_large(record)]


def searches(record: dict[str, Any]) -> list[str]:
    """Return the tables of batched searches in Markdown, from a record of ``benchmarks.kernels.gpu_search``."""
    rows = [row for row in record["rows"] if "ms" in row and row.get("form") != "floyd-warshall"]
    orders = {row["n"]: row["ms"] for row in record["rows"] if row.get("form") == "floyd-warshall"}
    lines = [
        "",
        f"{TASK_PARALLEL}; seconds, device time. Ours: {record['gpu']}, commit {record['commit']}, {record['date']}",
        "",
        "| n | Harish's | theirs | their Floyd-Warshall | ours | times faster | Floyd-Warshall, ours |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in (row for row in rows if row["graph"] == "random" and row["dtype"] == "int32"):
        theirs, ours = TABLES_2008.get(row["n"], (None, None, None)), row["ms"] / 1e3
        faster = "-" if theirs[1] is None else f"{theirs[1] / ours:.0f}"
        dense = f"{orders[row['n']] / 1e3:.3g}" if row["n"] in orders else "-"
        held = " | ".join(map(_held, theirs))
        lines.append(f"| {row['n']:,} | {held} | {ours:.3g} | {faster} | {dense} |")
    lines += ["", "Other graphs and types", "", "| graph | n | type | ours |"]
    lines += ["| --- | --- | --- | --- |"]
    for row in rows:
        if (row["graph"], row["dtype"]) != ("random", "int32"):
            lines.append(f"| {row['graph']} | {row['n']:,} | {row['dtype']} | {row['ms'] / 1e3:.3g} |")
    return lines


def _shares(record: dict[str, Any], ones: dict[int, dict[str, float]]) -> list[str]:
    bound = max(record["sm_clock_mhz_under_load"]) * 1e6 * record.get("multiprocessors", 132) * UPDATES_A_CLOCK / 1e12
    return [
        "",
        f"{OKUYAMA}; milliseconds. Share of peak, ours of {bound:.1f} x 10^12 updates/s ({UPDATES_A_CLOCK} minima a "
        "clock and SM), theirs at 8,192: 72.7 %, 65.9 % and 72.7 %",
        "",
        "| n | iterative A | iterative B | recursive | ours | A / ours | ours, of peak |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {n:,} | {' | '.join(map(_held, theirs or (None,) * 3))} | {ones[n]['ms']:,.4g} "
            f"| {_held(theirs[0] / ones[n]['ms'] if theirs else None)} | {100 * ones[n]['rate_T'] / bound:.0f} % |"
            for n, theirs in SHARES.items()
            if n in ones
        ),
    ]


def _products(record: dict[str, Any]) -> list[str]:
    rows = {row["n"]: row for row in record["rows"] if row["table"] == "products"}
    ones = {row["n"]: row["ms"] for row in record["rows"] if row["table"] == 1}
    lines = [
        "",
        "Xing et al., Table 1 (GeForce GTX 560 Ti): matrix products (ours log2 n squarings) and Floyd-Warshall, ms",
        "",
        "| n | theirs, product | theirs, Floyd-Warshall | ours, product | ours, Floyd-Warshall |",
        "| --- | --- | --- | --- | --- |",
    ]
    for n in sorted({*XING_1, *rows}):
        ours = (rows.get(n, {}).get("product_ms"), rows.get(n, {}).get("floyd_warshall_ms", ones.get(n)))
        cells = [*(1e3 * seconds for seconds in XING_1[n]), *ours] if n in XING_1 else [None, None, *ours]
        lines.append(f"| {n:,} | {' | '.join(map(_held, cells))} |")
    return lines


def streams(record: dict[str, Any]) -> list[str]:
    """Return a table in Markdown of matrices that exceed the memory of the device.

    Args:
        record: a record of ``benchmarks.kernels.gpu_stream``.
    """
    ours = {row["n"]: (row["synchronous_s"], row["asynchronous_s"]) for row in record["rows"]}
    lines = [
        "",
        f"Xing et al., Table 2 (GeForce GTX 560 Ti), seconds, beyond the GPU's memory.  Ours: {record['gpu']}, commit "
        f"{record['commit']}, {record['date']}, from host memory through slots",
        "",
        "| n | theirs, batches | theirs, streams | ours, batches | ours, streams |",
        "| --- | --- | --- | --- | --- |",
    ]
    for n in sorted({*XING_2, *ours}):
        cells = (*XING_2.get(n, (None, None)), *ours.get(n, (None, None)))
        lines.append(f"| {n:,} | {' | '.join(map(_held, cells))} |")
    return lines


def _large(record: dict[str, Any]) -> list[str]:
    names = ("naive_ms", "recursive_ms", "recursive_product_ms", "ours_ms")
    lines = [
        "",
        f"Fixstars' table (GeForce GTX 980), milliseconds.  Ours, naive: a launch a pivot ({NAIVE_PIVOTS} timed, times "
        f"n / {NAIVE_PIVOTS}); recursive: halves over tiles of 32 in shared memory; + product: over relax",
        "",
        "| n | theirs, naive | theirs, recursive + product | naive | recursive | recursive + product | look-ahead |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in (row for row in record["rows"] if row["table"] == "large"):
        cells = (*LARGE[row["n"]], *(row[name] for name in names))
        lines.append(f"| {row['n']:,} | {' | '.join(map(_held, cells))} |")
    return lines


def _held(value: float | None) -> str:
    """Return a figure, or a dash where there is none."""
    return "-" if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _row(name: str, theirs: float | None, ours: dict[str, float]) -> str:
    printed, faster = ("-", "-") if theirs is None else (f"{theirs:,g}", f"{theirs / ours['ms']:.1f}")
    return f"| {name} | {printed} | {ours['ms']:,.4g} | {faster} | {ours['rate_T']:.3g} |"


def main() -> None:
    """Measure if asked to, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure on the GPU and record first")
    parser.add_argument("--largest", type=int, default=max(TABLE_1), help="largest n of Table I")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.largest)
        from benchmarks.kernels.gpu_timing import results_folder

        print("\n".join(tables(json.loads((results_folder() / RESULTS.name).read_text()))))
        return
    print("\n".join(tables(json.loads(RESULTS.read_text()))))
    print("\n".join(searches(json.loads(SEARCHES.read_text()))))
    print("\n".join(streams(json.loads(STREAMS.read_text()))))


if __name__ == "__main__":
    main()
