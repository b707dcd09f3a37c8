"""Compares the matrix store with the disk: writing tiles, syncing them, layouts, rows, compression.

Run ``python -m benchmarks.store --folder DIR`` with a folder on the disk to measure; each comparison prints a Markdown
table.  Its candidates alternate, and the best of several runs counts, because other work on the machine and its disk
changes the times: use the ratios.  *Raw* means that as many threads write the same bytes into files of the same size
with ``os.write``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse.csgraph
import zarr
from zarr.codecs import Crc32cCodec

from storage.files import atomic
from storage.graph.graph import Graph
from storage.matrix.grid import TileGrid, layout
from storage.matrix.reader import MatrixSpec, create_matrix, matrix_bytes, open_matrix
from storage.readers import read_graph

MIB = 1 << 20
Row = Sequence[object]


def empty_graph(n: int) -> Graph:
    """Return a graph of ``n`` vertices without arcs, because writing the matrix does not depend on arcs."""
    none = np.zeros(0, np.int32)
    return Graph(np.zeros(n + 1, np.int64), none, none, np.arange(n, dtype=np.int64), directed=True, weighted=True)


def table(title: str, head: Row, rows: Iterable[Row]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n\n| {' | '.join(map(str, head))} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(f'{x:.2f}' if isinstance(x, float) else str(x) for x in row)} |", flush=True)


def best(candidates: dict[str, Callable[[], tuple[float, ...]]], repeats: int) -> dict[str, tuple[float, ...]]:
    """Run the candidates ``repeats`` times in alternation, and return the least seconds of each."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            os.sync()
            found[name].append(run())
    return {name: tuple(min(times) for times in zip(*runs, strict=True)) for name, runs in found.items()}


def spread(work: Callable[[int], object], count: int, threads: int) -> None:
    """Call ``work`` with each number from 0 to ``count`` - 1, from several threads."""
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, range(count)):
            pass


def raw_write(folder: Path, grid: TileGrid, itemsize: int, threads: int, *, flush: bool) -> tuple[float, float]:
    """Return the seconds to write the store's bytes as plain files, and the seconds until they are synced, too.

    ``flush`` says whether the kernel is asked to write each file to the disk at once.
    """
    shutil.rmtree(folder, ignore_errors=True)
    down, across = grid.counts
    data = np.random.default_rng(0).bytes(grid.tile_bytes(itemsize))
    begin = time.perf_counter()
    for i in range(down):
        (folder / str(i)).mkdir(parents=True)

    def one(k: int) -> None:
        i, j = divmod(k, across)
        handle = os.open(folder / str(i) / str(j), os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(handle, data)
        if flush:
            atomic._begin_writeback(handle)
        os.close(handle)

    spread(one, down * across, threads)
    written = time.perf_counter() - begin
    atomic.sync_tree(folder)
    durable = time.perf_counter() - begin
    shutil.rmtree(folder)
    return written, durable


def store_write(path: Path, n: int, band: np.ndarray, threads: int, compression: str = "none") -> tuple[float, float]:
    """Return the seconds until all tiles are written, and until the store is sealed, which syncs all files."""
    shutil.rmtree(path, ignore_errors=True)
    begin = time.perf_counter()
    with create_matrix(path, empty_graph(n), MatrixSpec(band.dtype, np.inf, compression=compression)) as writer:
        height = writer.tile[0]
        spread(lambda i: writer.write(i * height, 0, band[: min(height, n - i * height)]), -(-n // height), threads)
        written = time.perf_counter() - begin
        writer.seal({})
    durable = time.perf_counter() - begin
    shutil.rmtree(path)
    return written, durable


def zarr_write(
    path: Path, n: int, band: np.ndarray, threads: int, shards: tuple[int, int] | None
) -> tuple[float, float]:
    """Return what :func:`store_write` returns, for zarr's own writer with the same chunks and checksums.

    ``shards`` is the shape of a shard; None for chunks without shards.
    """
    shutil.rmtree(path, ignore_errors=True)
    begin = time.perf_counter()
    grid = layout((n, n), band.itemsize)
    array = zarr.create_array(
        path,
        shape=(n, n),
        chunks=grid.tile,
        shards=shards,
        dtype=band.dtype,
        compressors=[Crc32cCodec()],
        config={"write_empty_chunks": True},
    )
    height = shards[0] if shards else grid.tile[0]

    def one(i: int) -> None:
        array[i * height : (i + 1) * height] = band[: min(height, n - i * height)]

    spread(one, -(-n // height), threads)
    written = time.perf_counter() - begin
    atomic.sync_tree(path)
    durable = time.perf_counter() - begin
    shutil.rmtree(path)
    return written, durable


def compare_writers(folder: Path, n: int, threads: int, repeats: int) -> None:
    """Compare raw files, this store, zarr's writer, and zarr's writer with shards."""
    grid, target = layout((n, n), 4), folder / "bench.zarr"
    band = np.random.default_rng(1).random((1024, n), np.float32)
    wide = tuple(side * count for side, count in zip(grid.tile, (1024 // 64, grid.counts[1]), strict=True))
    times = best(
        {
            "raw files": lambda: raw_write(folder / "raw", grid, 4, threads, flush=False),
            "raw files, early writeback": lambda: raw_write(folder / "raw", grid, 4, threads, flush=True),
            "this store": lambda: store_write(target, n, band, threads),
            "zarr, plain chunks": lambda: zarr_write(target, n, band, threads, None),
            "zarr, shards of 1,024 rows": lambda: zarr_write(target, n, band, threads, (wide[0], wide[1])),
        },
        repeats,
    )
    size, (raw_written, raw_durable) = matrix_bytes((n, n), 4), times["raw files"]
    table(
        f"Writing {n:,} x {n:,} float32, {size / 1e9:.2f} GB, tiles {grid.tile[0]} x {grid.tile[1]}, {threads} threads",
        ("writer", "GB/s written", "of raw", "GB/s durable", "of raw"),
        ((k, size / w / 1e9, raw_written / w, size / d / 1e9, raw_durable / d) for k, (w, d) in times.items()),
    )


def compare_tiles(folder: Path, n: int, threads: int, repeats: int) -> None:
    """Compare the raw write speed of tile shapes, among which the layout of stores may choose."""
    shapes = [(64, 4096), (64, 8192), (64, 16384), (64, n), (256, 8192), (512, 512), (2048, 2048)]
    grids = {f"{r} x {c}": TileGrid((n, n), (r, c)) for r, c in shapes}
    times = best({k: partial(raw_write, folder / "raw", g, 4, threads, flush=True) for k, g in grids.items()}, repeats)
    table(
        f"Tile shapes, raw, early writeback, n = {n:,}, float32",
        ("tile", "MiB", "files", "GB/s durable", "bytes of one row's tiles / of 64 rows"),
        (
            (
                k,
                g.tile_bytes(4) / MIB,
                g.tiles,
                g.total_bytes(4) / times[k][1] / 1e9,
                g.counts[1] * g.tile_bytes(4) / (256 * n),
            )
            for k, g in grids.items()
        ),
    )


def bytes_read(work: Callable[[], object]) -> int:
    """Return the bytes that ``work`` reads with system calls (Linux)."""

    def counter() -> int:
        return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])

    before = counter()
    between = counter()
    work()
    return counter() - between - (between - before)


def row_cost(folder: Path, n: int) -> None:
    """Compare the bytes that are read for one row by this program's reader and by zarr."""
    path, rows = folder / "rows.zarr", 192
    shutil.rmtree(path, ignore_errors=True)
    sources = np.arange(rows, dtype=np.int64)
    with create_matrix(path, empty_graph(n), MatrixSpec(np.float32, np.inf, sources=sources)) as writer:
        writer.write(0, 0, np.random.default_rng(2).random((rows, n), np.float32))
        writer.seal({})
    matrix, array = open_matrix(path), zarr.open_array(path / "distances", mode="r")
    matrix.row(0), array[0]
    allowed, result = 64 * n * 4, []
    for name, work in (
        ("this store, first row of a band", lambda: matrix.row(100)),
        ("this store, next row", lambda: matrix.row(101)),
        ("zarr", lambda: array[100]),
    ):
        begin = time.perf_counter()
        touched = bytes_read(work)
        result.append((name, f"{touched:,}", touched / allowed, (time.perf_counter() - begin) * 1e3))
    table(f"One row of n = {n:,}, float32 (cached)", ("reader", "bytes", "of 64 rows", "ms"), result)
    shutil.rmtree(path)


def scattered(folder: Path, n: int) -> None:
    """Time distances of random pairs, with a store that was just opened, and again."""
    path, rng = folder / "pairs.zarr", np.random.default_rng(3)
    shutil.rmtree(path, ignore_errors=True)
    with create_matrix(path, empty_graph(n), MatrixSpec(np.float32, np.inf)) as writer:
        writer.write(0, 0, rng.random((n, n), np.float32))
        writer.seal({})
    result: list[Row] = []
    for pairs in (100, 10_000):
        with open_matrix(path) as matrix:
            for turn in ("first", "again"):
                sources, targets = rng.integers(0, n, pairs), rng.integers(0, n, pairs)
                begin = time.perf_counter()
                matrix.entries(sources, targets)
                result.append((pairs, turn, (time.perf_counter() - begin) * 1e3))
    table(f"Distances of random pairs, n = {n:,}, float32 (cached)", ("pairs", "turn", "ms"), result)
    shutil.rmtree(path)


def compare_solve(folder: Path, file: Path, dtype: str, threads: int, repeats: int) -> None:
    """Compare a solve whose time the disk determines with raw writes of the same bytes; both include the syncing."""
    from engine.api.solve import make_plan, solve_to_store
    from engine.model.problem import Options

    graph = read_graph(file)[0]
    options, path = Options(dtype=dtype, threads=threads, device="cpu"), folder / "solved.zarr"
    plan = make_plan(graph, options, out=path)
    grid, itemsize = layout((graph.n, graph.n), np.dtype(dtype).itemsize), np.dtype(dtype).itemsize

    def solve() -> tuple[float, ...]:
        begin = time.perf_counter()
        solve_to_store(graph, options, path, plan=plan)
        took = time.perf_counter() - begin
        shutil.rmtree(path)
        return (took,)

    runs = {
        "raw": lambda: raw_write(folder / "raw", grid, itemsize, threads, flush=True)[1:],
        f"solve, {plan.algorithm}": solve,
    }
    found = best(runs, repeats)
    size = matrix_bytes((graph.n, graph.n), itemsize)
    rows = [(name, f"{size / took / 1e9:.2f}", f"{found['raw'][0] / took:.2f}") for name, (took,) in found.items()]
    table(f"{file.name} in {dtype}: {size / 1e9:.2f} GB, {threads} threads", ("", "GB/s durable", "of raw"), rows)


def compare_compression(folder: Path, file: Path, dtype: str) -> None:
    """Compare size and processor seconds of a real graph's matrix without and with compression, on one thread."""
    graph, _ = read_graph(file)
    arcs = scipy.sparse.csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    entries = scipy.sparse.csgraph.dijkstra(arcs, directed=True)
    unreachable = np.inf if np.dtype(dtype).kind == "f" else {"uint16": 2**15 - 1, "int32": 2**30 - 1}[dtype]
    entries = np.where(np.isinf(entries), unreachable, entries).astype(dtype)
    result = []
    store_write(folder / "compressed.zarr", 64, np.zeros((64, 64), np.float32), 1, "zstd")  # imports are not timed
    for compression in ("none", "zstd"):
        path = folder / "compressed.zarr"
        shutil.rmtree(path, ignore_errors=True)
        begin = time.process_time()
        with create_matrix(path, graph, MatrixSpec(dtype, unreachable, compression=compression)) as writer:
            writer.write(0, 0, entries)
            writer.seal({})
        written = time.process_time() - begin
        size = sum(f.stat().st_size for f in (path / "distances" / "c").rglob("*") if f.is_file())
        with open_matrix(path) as matrix:
            begin = time.process_time()
            matrix.rows(range(graph.n))
            everything = time.process_time() - begin
            begin = time.process_time()
            for u in range(0, graph.n, max(1, graph.n // 200)):
                matrix.row(u)
            row = (time.process_time() - begin) / len(range(0, graph.n, max(1, graph.n // 200)))
        result.append(
            (
                compression,
                size / entries.nbytes,
                entries.nbytes / written / 1e9,
                entries.nbytes / everything / 1e9,
                row * 1e3,
            )
        )
    head = ("compression", "size / entries", "GB/s written", "GB/s read, all rows", "ms a row")
    table(f"{file.name}: n = {graph.n:,}, {dtype}", head, result)
    shutil.rmtree(path)


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("bench-store"), help="scratch folder on the disk to measure"
    )
    parser.add_argument("--n", type=int, default=16_384)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("writers", "tiles", "rows", "pairs", "none"), action="append")
    parser.add_argument("--graph", type=Path, action="append", default=[], help="measure compression on its matrix")
    parser.add_argument("--dtype", default="int32")
    parser.add_argument("--solve", type=Path, action="append", default=[], help="a whole solve of it against the disk")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    only = asked.only or ("writers", "tiles", "rows", "pairs")
    if "writers" in only:
        compare_writers(asked.folder, asked.n, asked.threads, asked.repeats)
    if "tiles" in only:
        compare_tiles(asked.folder, asked.n, asked.threads, asked.repeats)
    if "rows" in only:
        row_cost(asked.folder, 50_000)
    if "pairs" in only:
        scattered(asked.folder, asked.n)
    for file in asked.solve:
        compare_solve(asked.folder, file, asked.dtype, asked.threads, asked.repeats)
    for file in asked.graph:
        compare_compression(asked.folder, file, asked.dtype)


if __name__ == "__main__":
    main()
