"""Min-plus products by others on the same GPU: PyTorch, a Triton kernel, tiles through shared memory.

    python -m benchmarks.kernels.gpu_peers

PyTorch and Triton are needed here only.
"""

from __future__ import annotations

from typing import Any

import cupy
import torch
import triton
import triton.language as tl

from benchmarks.kernels.gpu_timing import Record, milliseconds
from engine.backends.cuda_launch import Launcher
from engine.backends.cuda_modules import modules

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


@triton.jit
def _triton_kernel(c, a, b, n, k, M: tl.constexpr, N: tl.constexpr):  # noqa: N803, PLR0917
    rows = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.program_id(0) * N + tl.arange(0, N)
    at = c + rows[:, None] * n + columns[None, :]
    least = tl.load(at)
    for q in range(k):
        left = tl.load(a + rows * k + q)
        right = tl.load(b + q * n + columns)
        least = tl.minimum(least, left[:, None] + right[None, :])
    tl.store(at, least)


def _torch_product(c: Any, a: Any, b: Any) -> None:
    for q in range(a.shape[1]):
        torch.minimum(c, a[:, q : q + 1] + b[q : q + 1], out=c)


@torch.compile(dynamic=False)
def _compiled_slab(c: Any, a: Any, b: Any) -> Any:
    return torch.minimum(c, (a[:, :, None] + b[None]).amin(1))


def main(side: int = 8192, depth: int = 1024) -> None:
    """Measure and record; every peer's result is compared with ours."""
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
            tc.copy_(_compiled_slab(tc, ta[:, q : q + 32], tb[q : q + 32]))

    def by_triton(m: int, n: int, warps: int) -> None:
        _triton_kernel[(side // n, side // m)](tc, ta, tb, side, depth, M=m, N=n, num_warps=warps)

    runs = {
        "relax": lambda: launcher.relax(c, a, b),
        "naive": lambda: simple["naive"]((side // 32, side // 32), (32, 32), arguments),
        "tiles of 32 in shared memory": lambda: simple["tiled"]((side // 32, side // 32), (32, 32), arguments),
        "PyTorch": lambda: _torch_product(tc, ta, tb),
        "PyTorch compiled": compiled,
        "Triton 64x64": lambda: by_triton(64, 64, 4),
        "Triton 128x64": lambda: by_triton(128, 64, 4),
        "Triton 128x128": lambda: by_triton(128, 128, 8),
    }
    for name, run in runs.items():  # PyTorch and cupy share the default stream
        try:
            cupy.copyto(c, start)
            run()
            correct = bool((c == want).all())
            ms = milliseconds(run, repeats=3)
        except Exception as error:
            record.add(peer=name, failed=str(error).splitlines()[0][:120])
            continue
        record.add(peer=name, m=side, k=depth, ms=ms, rate_T=side * side * depth / ms * 1e-9, correct=correct)
    record.write()


if __name__ == "__main__":
    main()
