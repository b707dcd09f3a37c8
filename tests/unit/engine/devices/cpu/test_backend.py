"""The CPU backend, held to the contract alone and as a team; what its machine code is, and that it is compiled once."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import from_dtype, njit, types

from engine.devices.cpu import relax, vector
from engine.devices.cpu.backend import CpuBackend
from engine.model.blocks import PACK_BYTES
from engine.model.dtypes import WORK_TYPES
from tests import oracle
from tests.contracts.backend import SHAPES, SIZES, BackendContract

ROOT = Path(__file__).resolve().parents[5]


class TestAlone(BackendContract):
    def make(self):
        return CpuBackend(1)


class TestTeam(BackendContract):
    def make(self):
        return CpuBackend(3)

    @pytest.fixture(autouse=True)
    def share_everything(self, monkeypatch):
        """Small products are worth no second thread; here they all get three."""
        monkeypatch.setattr(relax, "ALONE", 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nonnegative", [True, False])
def test_results_do_not_depend_on_the_number_of_threads(dtype: str, nonnegative: bool) -> None:
    rng = np.random.default_rng(2)
    a, b, c = (rng.random(shape).astype(dtype) for shape in ((350, 600), (600, 410), (350, 410)))
    results = []
    for threads in (1, 2, 5):
        backend = CpuBackend(threads)
        out = c.copy()
        backend.relax(out, a, b, nonnegative=nonnegative)
        backend.shutdown()
        results.append(out)
    assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 names its registers by width")
@pytest.mark.skipif(vector.VECTOR_BYTES < 32, reason="the narrowest registers are the only ones here")
@pytest.mark.parametrize("dtype", list(WORK_TYPES))
def test_the_register_tile_is_held_in_the_widest_registers(dtype: str) -> None:
    @njit
    def one_tile(c, a, b, depth, by_bits):  # type: ignore[no-untyped-def]
        vector.relax_tile(c, 0, 100, a, 0, b, 0, depth, by_bits)

    entries, packed = from_dtype(np.dtype(dtype))[::1], from_dtype(vector.packed_dtype(np.dtype(dtype)))[::1]
    one_tile.compile((entries, packed, entries, types.intp, types.boolean))
    asm = next(iter(one_tile.inspect_asm().values()))
    register = {64: "zmm", 32: "ymm"}[vector.VECTOR_BYTES]
    expected = [{"uint16": "vpminuw", "int32": "vpminsd", "float32": "vminps", "float64": "vminpd"}[dtype]]
    if dtype.startswith("float") and vector.FUSED:
        expected.append(r"vfmadd\w+" + expected[0][-2:])
    for name in expected:
        found = len(re.findall(rf"{name}\s.*{register}", asm))
        assert found >= vector.TILE_ROWS * vector.TILE_VECTORS, name
    # with sixteen registers LLVM keeps one of twelve minima of floats in memory, or three of 24
    most = 0 if register == "zmm" or not dtype.startswith("float") else 8
    for loop in _loops(asm):
        minima = len(re.findall(rf"min\w+\s.*{register}", loop))
        spilled = len(re.findall(rf"mov\w+\s+%{register}\d+, -?\d*\(%rsp", loop))
        assert spilled * max(most, 1) <= (minima if most else 0) or minima == 0, "registers are spilled"


def _loops(asm: str) -> list[str]:
    """Return the text of each loop: from a label to a jump back to it."""
    lines = asm.splitlines()
    labels = {found[1]: i for i, line in enumerate(lines) if (found := re.match(r"(\.LBB\w+):", line))}
    jumps = [(i, found[1]) for i, line in enumerate(lines) if (found := re.search(r"\tj\w+\s+(\.LBB\w+)", line))]
    return ["\n".join(lines[labels[to] : i]) for i, to in jumps if labels.get(to, i) < i]


def test_workspace_is_what_is_allocated() -> None:
    for threads in (1, 4):
        space = relax.Workspace(threads)
        assert space.packs(np.dtype(np.float64))
        allocated = [buffer.base for buffer in space._bytes]  # with the bytes that aligning takes
        assert 0 < sum(x.nbytes for x in allocated if x is not None) <= threads * PACK_BYTES
        assert all(x.ctypes.data % vector.VECTOR_BYTES == 0 for x in space.packs(np.dtype(np.uint16)))


@pytest.mark.parametrize("rows", [1, 100, 1024, 5000])
@pytest.mark.parametrize("columns", [1, 130, 1024, 9000])
@pytest.mark.parametrize("threads", [1, 2, 64])
def test_items_fit_the_pack_buffers_and_occupy_everybody(rows: int, columns: int, threads: int) -> None:
    for itemsize in (2, 4, 8):
        high, wide = relax.item_shape(rows, columns, itemsize, threads)
        assert high >= 1
        assert wide * itemsize <= relax.ITEM_BYTES
        items = -(-rows // high) * -(-columns // wide)
        if threads > 1 and rows * columns >= 2**20:
            assert items >= min(2 * threads, 64)


SECOND_START = """
import sys, time
import numpy as np
from engine.graph import kernels

kernels.BESIDE = "nowhere"
from engine.devices.cpu import relax as cpu_relax
from engine.devices.cpu.backend import CpuBackend

backend = CpuBackend(1)
started = time.perf_counter()
block = np.zeros((130, 130), "uint16")
backend.relax(block, block.copy(), block.copy(), nonnegative=True)
backend.close(block, nonnegative=True)
for dtype in ("uint16", "float32"):  # the kernel that is compiled fastest, of which two forms are kept
    block = np.zeros((130, 130), dtype)
    backend.transpose(block, block, lower=True)
kernels = (cpu_relax._relax_items, cpu_relax.close_whole, cpu_relax._transpose_items)
print(sum(sum(k.stats.cache_misses.values()) for k in kernels), sum(len(k.stats.cache_hits) for k in kernels))
"""


def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    counts = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", SECOND_START], env=environment, capture_output=True, text=True, check=True
        )
        counts.append([int(word) for word in run.stdout.split()])
    assert counts[0][0] >= 4
    assert counts[1] == [0, 4]


#: A baseline x86, AVX2 with and without fused multiply-adds: the widths that this machine's own choice hides.  CI takes
#: the one that most machines without AVX-512 are.
OTHERS = {"x86-64": "+sse2", "haswell": "+avx2,+fma,+avx,+sse4.2,+sse4.1,+ssse3,+sse3,+sse2", "x86-64-v2": "+sse4.1"}

CHECK_OTHER = """
import sys
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/unit/engine/devices/cpu/test_backend.py::TestAlone"]))
"""


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the other machines are x86 ones")
@pytest.mark.parametrize("name", OTHERS)
def test_other_machines(name: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": OTHERS[name],
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    run = subprocess.run(
        [sys.executable, "-c", CHECK_OTHER], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    width = subprocess.run(
        [sys.executable, "-c", "from engine.devices.cpu import vector as v; print(v.VECTOR_BYTES, v.FUSED)"],
        env=environment, capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert width.stdout.split() == (["32", "True"] if name == "haswell" else ["16", "False"])


def test_a_closed_block_of_one_machine_is_closed_on_all() -> None:
    """The leaf and the recursion above it agree with the textbook on float32 to the last bits of a sum."""
    weights = oracle.random_weights(200, seed=3, density=0.05)
    weights[np.isfinite(weights)] *= 0.37
    found = oracle.encode(weights, "float32")
    backend = CpuBackend(1)
    backend.close(found, nonnegative=True)
    backend.shutdown()
    np.testing.assert_allclose(oracle.decode(found), oracle.closure(weights), rtol=1e-6)


def chances(rows: int, columns: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.7)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_greatest_products(threads: int, shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    a, b, c = chances(rows, depth, 1), chances(depth, columns, 2), chances(rows, columns, 3) / 2
    expected = c.copy()
    for k in range(depth):
        np.maximum(expected, a[:, k : k + 1] * b[k], out=expected)
    backend = CpuBackend(threads)
    backend.relax(c, a, b, nonnegative=None)
    backend.shutdown()
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("n", SIZES)
def test_a_block_of_products_is_closed(n: int) -> None:
    """Powers of two, which no multiplication rounds."""
    rng = np.random.default_rng(n)
    found = 0.5 ** rng.integers(1, 9, (n, n)) * (rng.random((n, n)) < 4 / n)
    np.fill_diagonal(found, 1)
    expected = found.copy()
    for k in range(n):
        np.maximum(expected, expected[:, k : k + 1] * expected[k], out=expected)
    backend = CpuBackend(1)
    backend.close(found, nonnegative=None)
    backend.shutdown()
    np.testing.assert_array_equal(found, expected)
