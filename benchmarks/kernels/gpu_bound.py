"""The bound of each instruction mix: the inner update of relax over shared memory, without loads from memory, barriers.

python -m benchmarks.kernels.gpu_bound
"""

from __future__ import annotations

from functools import partial
from importlib import resources

from benchmarks.kernels.gpu_timing import Record, milliseconds
from engine.devices.cuda.code.kernel_set import ARITHMETICS
from engine.devices.cuda.context import modules

_SOURCE = """
constexpr int ROWS = 8, COLUMNS = sizeof(Word) == 8 ? 4 : 8, DEPTH = 16;
extern "C" __global__ void __launch_bounds__(256, 2) bound(Word* out, int rounds, u32 one) {
  __shared__ __align__(16) Word a_tile[DEPTH][128], b_tile[DEPTH][128];
  for (int e = threadIdx.x; e < DEPTH * 128; e += 256)
    a_tile[e / 128][e % 128] = (Word)(e % 97), b_tile[e / 128][e % 128] = (Word)(e % 89);
  __syncthreads();
  Word c[ROWS][COLUMNS];
  UNROLL for (int i = 0; i < ROWS; i++)
    UNROLL for (int j = 0; j < COLUMNS; j++) c[i][j] = Arithmetic::unreachable();
  const int x = threadIdx.x % 8 * Arithmetic::WIDTH, y = threadIdx.x / 8 % 4 * Arithmetic::WIDTH;
#pragma unroll 1
  for (int r = 0; r < rounds; r++) {
    asm volatile("" ::: "memory");  // read shared memory again each round
    UNROLL for (int k = 0; k < DEPTH; k += 2) {
      Word a[2][ROWS], b[2][COLUMNS];
      UNROLL for (int h = 0; h < 2; h++) {
        UNROLL for (int i = 0; i < ROWS; i += Arithmetic::WIDTH) load16(&a_tile[k + h][y + i * 4], &a[h][i]);
        UNROLL for (int j = 0; j < COLUMNS; j += Arithmetic::WIDTH) load16(&b_tile[k + h][x + j * 8], &b[h][j]);
      }
      Arithmetic::update<ROWS, COLUMNS>(c, a[0], b[0], a[1], b[1], one);
    }
  }
  Word sum = 0;
  UNROLL for (int i = 0; i < ROWS; i++)
    UNROLL for (int j = 0; j < COLUMNS; j++) sum += c[i][j];
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
"""


def main() -> None:
    """Measure and record."""
    import cupy

    record, common = Record("gpu_bound"), (resources.files("engine") / "kernels" / "common.cuh").read_text()
    blocks, rounds = 2 * modules().multiprocessors, 4000
    for (dtype, signed), arithmetic in ARITHMETICS.items():
        if (dtype, signed) in (("int32", True), ("float64", False)):
            continue
        options = ("--std=c++17", f"-DARITHMETIC={arithmetic.name}")
        kernel = cupy.RawModule(code=common + _SOURCE, options=options).get_function("bound")
        out = cupy.empty(blocks * 256, "f8")
        arguments = (out, cupy.int32(rounds), cupy.uint32(1))
        kernel((blocks,), (256,), arguments)
        ms = milliseconds(partial(kernel, (blocks,), (256,), arguments))
        columns = 4 if arithmetic.word == 8 else 8
        updates = blocks * 256 * rounds * 16 * 8 * columns * arithmetic.lanes
        record.add(dtype=dtype, signed=signed, ms=ms, rate_T=updates / ms * 1e-9)
    record.write()


if __name__ == "__main__":
    main()
