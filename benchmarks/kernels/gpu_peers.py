"""Min-plus products by others on the same GPU: PyTorch, a Triton kernel, tiles through shared memory.

    python -m benchmarks.kernels.gpu_peers

PyTorch and Triton are needed here only.  Two more run where they are given:

- ``APSP_CUTLASS``: a library built from ``cutlass_minplus.cu``, CUTLASS's product with cuASR's arithmetic and tiles;
- ``APSP_TROPICAL_GEMM``: ``tropical_gemm.cu`` of the crate tropical-gemm-cuda.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.kernels.gpu_timing import Record, milliseconds
from engine.devices.cuda.context import modules
from engine.devices.cuda.launch import Launcher

_SHARED = r"""
extern "C" __global__ void naive(float* c, const float* a, const float* b, int m, int n, int k) {
  const int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 32 + threadIdx.y;
  float r = c[(size_t)i * n + j];
  for (int q = 0; q < k; q++) r = fminf(r, a[(size_t)i * k + q] + b[(size_t)q * n + j]);
  c[(size_t)i * n + j] = r;
}
extern "C" __global__ void tiled(float* c, const float* a, const float* b, int m, int n, int k) {
  __shared__ float s[32][32], t[32][33];
  const int x = threadIdx.x, y = threadIdx.y, j = blockIdx.x * 32 + x, i = blockIdx.y * 32 + y;
  float r = c[(size_t)i * n + j];
  for (int q = 0; q < k; q += 32) {
    s[y][x] = a[(size_t)i * k + q + x];
    t[y][x] = b[(size_t)(q + y) * n + j];
    __syncthreads();
    for (int p = 0; p < 32; p++) r = fminf(r, s[y][p] + t[p][x]);
    __syncthreads();
  }
  c[(size_t)i * n + j] = r;
}
"""


#: Names of the tiles in ``cutlass_minplus.cu``.
_SHAPES = (
    "cuASR's for compute capability 8.0 (64 x 128 x 16, 3 stages)",
    "cuASR's for 5.0 (128 x 128 x 8, 2 stages)",
    "128 x 128 x 8, 4 stages",
    "128 x 128 x 8, 2 stages, wide warps",
)


def _cutlass(path: str, c: Any, a: Any, b: Any) -> dict[str, Callable[[], object]]:
    """Products by CUTLASS, one for each tile."""
    import cupy

    product = ctypes.CDLL(path).minplus
    product.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 3, *[ctypes.c_int] * 3, ctypes.c_void_p]

    def run(shape: int) -> None:
        stream = cupy.cuda.get_current_stream().ptr
        (m, k), n = a.shape, b.shape[1]
        status = product(shape, c.data.ptr, a.data.ptr, b.data.ptr, m, n, k, stream)
        if status:
            raise RuntimeError(f"CUTLASS answers {status}")

    return {f"CUTLASS, min-plus, {name}": partial(run, i) for i, name in enumerate(_SHAPES)}


def _tropical_gemm(path: str, c: Any, a: Any, b: Any) -> dict[str, Callable[[], object]]:
    """tropical-gemm's product; it wants columns, so the transposed operands change places, and C is overwritten."""
    import cupy

    code = Path(path).read_text(encoding="utf-8")
    kernel = cupy.RawModule(code=code).get_function("tropical_minplus_f32_nn")
    (m, k), n = a.shape, b.shape[1]
    blocks = -(-n // 64) * -(-m // 64)
    arguments = (b, a, c, cupy.int32(n), cupy.int32(m), cupy.int32(k))
    return {"tropical-gemm's CUDA kernel (the product alone)": lambda: kernel((blocks,), (16, 16), arguments)}


def main(side: int = 8192, depth: int = 1024) -> None:
    """Measure and record; every peer's result is compared with ours."""
    import cupy
    import torch

    from benchmarks.kernels.torch_and_triton import compiled_slab, torch_product, triton_kernel

    record = Record("gpu_peers")
    rng = cupy.random.RandomState(1)
    start, a, b = (rng.randint(1, 1000, s).astype("f4") for s in ((side, side), (side, depth), (depth, side)))
    start += 1000
    c = start.copy()
    launcher = Launcher(modules(), "float32", nonnegative=True)
    launcher.relax(c, a, b)
    want = c.copy()
    tc, ta, tb = (torch.from_dlpack(x) for x in (c, a, b))
    module = cupy.RawModule(code=_SHARED)
    simple = {k: module.get_function(k) for k in ("naive", "tiled")}
    arguments = (c, a, b, cupy.int32(side), cupy.int32(side), cupy.int32(depth))

    def compiled() -> None:
        for q in range(0, depth, 32):
            tc.copy_(compiled_slab(tc, ta[:, q : q + 32], tb[q : q + 32]))

    def by_triton(m: int, n: int, warps: int) -> None:
        triton_kernel[(side // n, side // m)](tc, ta, tb, side, depth, M=m, N=n, num_warps=warps)

    runs: dict[str, Callable[[], object]] = {
        "relax": lambda: launcher.relax(c, a, b),
        "naive": lambda: simple["naive"]((side // 32, side // 32), (32, 32), arguments),
        "tiles of 32 in shared memory": lambda: simple["tiled"]((side // 32, side // 32), (32, 32), arguments),
        "PyTorch": lambda: torch_product(tc, ta, tb),
        "PyTorch compiled": compiled,
        "Triton 64x64": lambda: by_triton(64, 64, 4),
        "Triton 128x64": lambda: by_triton(128, 64, 4),
        "Triton 128x128": lambda: by_triton(128, 128, 8),
    }
    for variable, some in (("APSP_CUTLASS", _cutlass), ("APSP_TROPICAL_GEMM", _tropical_gemm)):
        if os.environ.get(variable):
            runs |= some(os.environ[variable], c, a, b)
    for name, run in runs.items():  # PyTorch and cupy share the default stream
        try:
            cupy.copyto(c, start)
            run()
            correct = bool((cupy.minimum(c, start) == want).all())
            ms = milliseconds(run, repeats=3)
        except Exception as error:
            record.add(peer=name, failed=str(error).splitlines()[0][:120])
            continue
        record.add(peer=name, m=side, k=depth, ms=ms, rate_T=side * side * depth / ms * 1e-9, correct=correct)
    record.write()


if __name__ == "__main__":
    main()
