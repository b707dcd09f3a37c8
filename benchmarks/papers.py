"""The tables of published papers with our column beside theirs.

    python -m benchmarks.papers            print the tables from the recorded results
    python -m benchmarks.papers --measure  on a GPU: measure every size, record, print

Ours: device time between events, median, on graphs of the papers' kind: every vertex has four arcs to random others
(m = 4n), whole numbers from 1 to 100 in float32.  Theirs: as printed, on their hardware, which is named.  Where we do
not hold a paper's figures their column is a dash: Xing's and Fixstars', all of Okuyama's of 2010 but the share of the
peak that the abstract states, all of Okuyama's of 2008 but one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results" / "gpu_papers.json"
SEARCHES: Final = RESULTS.with_name("gpu_search.json")
PAPER: Final = "Takafuji, Nakano, Ito: single-kernel blocked Floyd-Warshall, NVIDIA V100"

#: Takafuji et al., Table I: n -> milliseconds of the single kernel, one graph.  65,536 is not in the paper.
TABLE_1: Final[dict[int, float | None]] = {
    64: 0.0388,
    128: 0.0737,
    256: 0.146,
    512: 0.388,
    1024: 1.36,
    2048: 7.04,
    4096: 48.3,
    8192: 378.0,
    16384: 3020.0,
    32768: 24897.0,
    65536: None,
}
#: Takafuji et al., Table II: (graphs, n) -> milliseconds of one launch; only rows whose figure we hold have theirs.
TABLE_2: Final[dict[tuple[int, int], float | None]] = {
    (4, 64): None,
    (64, 64): None,
    (2048, 64): 0.644,
    (4, 256): None,
    (64, 256): None,
    (256, 256): 3.74,
    (4, 1024): None,
    (64, 1024): 50.2,
}
#: Okuyama, Ino, Hagihara: Fast blocked Floyd-Warshall algorithm on the GPU (in Japanese), 2010, Tables 1-3.  Held is
#: the abstract (https://cir.nii.ac.jp/crid/1050564287852717824): about 70 % of the GPU's peak; the iterative method 4 %
#: faster than a recursive one at 256 ... 1,024 vertices, 1-10 % slower above.  It names neither n nor GPU.
SHARES: Final = (256, 512, 1024, 2048, 4096, 8192, 16384)
OKUYAMA: Final = (
    "Okuyama, Ino, Hagihara 2010, Tables 1-3 (abstract: about 70 % of peak, iterative; GPU not named there)"
)
#: Okuyama, Ino, Hagihara: A task parallel algorithm for computing the costs of all-pairs shortest paths on the
#: CUDA-compatible GPU (ISPA 2008), Tables 1 and 2: n -> seconds, random graphs with m = 4n.  Of their figures we hold
#: this one, and the abstract's range over the search of one source at a time (Harish and Narayanan): 3.4 to 15 times.
TASK_PARALLEL: Final = "Okuyama, Ino, Hagihara 2008, Tables 1-2: batched searches, random graphs, m = 4n"
TABLES_2008: Final = {32768: 21.4}
#: Textbook peak: one addition and one minimum an update, 64 minima a clock and multiprocessor.
UPDATES_A_CLOCK: Final = 64
#: Xing, Table 1: matrix products against Floyd-Warshall.
PRODUCTS: Final = (1024, 2048, 4096, 8192)
#: Fixstars' table.
LARGE: Final = (8192, 16384)
#: Pivots of the naive order that are timed; the rest take as long.
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
#: Rates that other papers report for their fastest GPU code, 10^12 updates a second a GPU; two operations an update.
RATES: Final = (
    ("DSNAPSHOT (Kannan et al., SC 2020), distributed, 24,576 V100, 136 PF/s", 136e15 / 24576 / 2e12),
    ("Sao et al. (HPDC 2021), with host offload, V100, about 5.3 TF/s a GPU", 5.3 / 2),
    ("Matsumoto et al. (IEICE 2012), hybrid, distances and paths, i7-2600K with HD 6970, 1.1 TF/s", 1.1 / 2),
)


def sparse_weights(n: int, *, seed: int = 1, degree: int = 4) -> Any:
    """The weight matrix of a graph with ``degree`` random arcs out of every vertex, float32, on the device."""
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
            solver.close(d)  # builds kernels, allocates panels
        repeats = 21 if n <= 2048 else 5 if n <= 8192 else 3 if n <= 16384 else 1
        ms = milliseconds(lambda d=d: solver.close(d), prepare=lambda d=d, s=start: cupy.copyto(d, s), repeats=repeats)
        record.add(table=1, n=n, ms=ms, rate_T=n**3 / ms * 1e-9)
        del d, start
        solver.release()
        pool.free_all_blocks()
    for graphs, n in TABLE_2:
        start = cupy.stack([sparse_weights(n, seed=i % 8 + 1) for i in range(graphs)])
        d = start.copy()
        solver.ahead.close(d)
        ms = milliseconds(lambda d=d: solver.ahead.close(d), prepare=lambda d=d, s=start: cupy.copyto(d, s), repeats=11)
        record.add(table=2, graphs=graphs, n=n, ms=ms, rate_T=graphs * n**3 / ms * 1e-9)
    del start, d
    pool.free_all_blocks()
    _measure_others(record, solver)
    record.write()


def _measure_others(record: Any, solver: Any) -> None:
    """Share of peak, products against Floyd-Warshall, naive and recursive orders."""
    import cupy

    from benchmarks.kernels.gpu_squaring import power
    from benchmarks.kernels.gpu_timing import milliseconds

    for n in PRODUCTS:
        start = sparse_weights(n)
        d = start.copy()
        solver.close(d)
        closed = d.copy()
        fw = milliseconds(lambda d=d: solver.close(d), prepare=lambda d=d, s=start: cupy.copyto(d, s), repeats=5)
        squared = power(solver.bulk, start)
        assert bool((squared == closed).all())
        product = milliseconds(lambda s=start: power(solver.bulk, s), repeats=1)
        record.add(table="products", n=n, floyd_warshall_ms=fw, product_ms=product)
    for n in LARGE:
        record.add(table="large", n=n, naive_pivots=NAIVE_PIVOTS, **_orders(n, solver))
        solver.release()
        cupy.get_default_memory_pool().free_all_blocks()


def _orders(n: int, solver: Any) -> dict[str, float]:
    """Milliseconds of the naive, the recursive and our order; all but the first give the same matrix."""
    import cupy

    from benchmarks.kernels.gpu_timing import milliseconds

    start, plain = sparse_weights(n), _Plain()
    d, want = start.copy(), start.copy()
    solver.close(want)

    def timed(run: Any) -> float:
        return milliseconds(lambda: run(d), prepare=lambda: cupy.copyto(d, start), repeats=1)

    row = {"naive_ms": timed(lambda d: plain.naive(d, NAIVE_PIVOTS)) * n / NAIVE_PIVOTS}
    orders = {
        "recursive_ms": lambda d: plain.recursive(d, solver),
        "recursive_product_ms": solver.recursive,
        "ours_ms": solver.close,
    }
    for name, order in orders.items():
        row[name] = timed(order)
        assert bool((d == want).all()), name
    return row


class _Plain:
    """The simple kernels that the naive and the recursive order are measured with."""

    def __init__(self) -> None:
        import cupy

        module = cupy.RawModule(code=_PLAIN)
        self._cupy, self._pivot, self._product = cupy, module.get_function("pivot"), module.get_function("product")

    def naive(self, d: Any, pivots: int) -> None:
        """One launch for each of the first ``pivots`` vertices, one thread an entry."""
        n = len(d)
        for k in range(pivots):
            self._pivot((n // 256, n), (256,), (d, self._cupy.int32(n), self._cupy.int32(k)))

    def recursive(self, d: Any, solver: Any, base: int = 1024) -> None:
        """Closure by halves over a product through tiles of 32 in shared memory; blocks of ``base`` as ours."""
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
    """Markdown, from a recorded result."""
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
    """Markdown of the batched searches, from what ``benchmarks.kernels.gpu_search`` recorded."""
    rows = [row for row in record["rows"] if "ms" in row and row.get("form") != "floyd-warshall"]
    orders = {row["n"]: row["ms"] for row in record["rows"] if row.get("form") == "floyd-warshall"}
    lines = [
        "",
        f"{TASK_PARALLEL}; seconds, device time. Ours: {record['gpu']}, commit {record['commit']}, {record['date']}",
        "",
        "| n | theirs | ours | times faster | Floyd-Warshall, ours |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in (row for row in rows if row["graph"] == "random" and row["dtype"] == "int32"):
        theirs, ours = TABLES_2008.get(row["n"]), row["ms"] / 1e3
        held = ("-", "-") if theirs is None else (f"{theirs:g}", f"{theirs / ours:.0f}")
        dense = f"{orders[row['n']] / 1e3:.3g}" if row["n"] in orders else "-"
        lines.append(f"| {row['n']:,} | {held[0]} | {ours:.3g} | {held[1]} | {dense} |")
    lines += ["", "Other graphs and types (their Table 2 is not held)", "", "| graph | n | type | ours |"]
    lines += ["| --- | --- | --- | --- |"]
    for row in rows:
        if (row["graph"], row["dtype"]) != ("random", "int32"):
            lines.append(f"| {row['graph']} | {row['n']:,} | {row['dtype']} | {row['ms'] / 1e3:.3g} |")
    return lines


def _shares(record: dict[str, Any], ones: dict[int, dict[str, float]]) -> list[str]:
    bound = max(record["sm_clock_mhz_under_load"]) * 1e6 * record.get("multiprocessors", 132) * UPDATES_A_CLOCK / 1e12
    return [
        "",
        f"{OKUYAMA}: share of peak, ours of {bound:.1f} x 10^12 updates/s ({UPDATES_A_CLOCK} minima a clock and SM)",
        "",
        "| n | theirs | ours |",
        "| --- | --- | --- |",
        "| not said | about 70 % | |",
        *(f"| {n:,} | - | {100 * ones[n]['rate_T'] / bound:.0f} % |" for n in SHARES if n in ones),
    ]


def _products(record: dict[str, Any]) -> list[str]:
    rows = [row for row in record["rows"] if row["table"] == "products"]
    return [
        "",
        "Xing, Table 1: matrix products (log2 n squarings) against Floyd-Warshall, milliseconds; theirs not held",
        "",
        "| n | theirs, product | theirs, Floyd-Warshall | product | Floyd-Warshall | product / Floyd-Warshall |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {row['n']:,} | - | - | {row['product_ms']:,.4g} | {row['floyd_warshall_ms']:,.4g} "
            f"| {row['product_ms'] / row['floyd_warshall_ms']:.1f} |"
            for row in rows
        ),
    ]


def _large(record: dict[str, Any]) -> list[str]:
    names = ("naive_ms", "recursive_ms", "recursive_product_ms", "ours_ms")
    return [
        "",
        f"Fixstars' table, milliseconds; theirs not held.  Naive: a launch a pivot ({NAIVE_PIVOTS} timed, times n / "
        f"{NAIVE_PIVOTS}); recursive: halves over tiles of 32 in shared memory; + product: over relax",
        "",
        "| n | theirs (all three) | naive | recursive | recursive + product | look-ahead |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {row['n']:,} | - | {' | '.join(f'{row[name]:,.4g}' for name in names)} |"
            for row in record["rows"]
            if row["table"] == "large"
        ),
    ]


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
    if SEARCHES.exists():
        print("\n".join(searches(json.loads(SEARCHES.read_text()))))


if __name__ == "__main__":
    main()
