// power: all distances of a small graph by repeated squaring, in one cooperative launch.
//
// Below about 300 vertices, the latency of the rounds limits Floyd-Warshall: at n = 256 with tiles of 32 there are 8
// rounds, each with three hops through memory.  Squaring does log2(n) times the work, but has only log2(n) steps, in
// each of which the whole device computes: a block computes a strip of ROWS x 32 entries, and its warps share k.  The
// kernel stops when a squaring changes nothing.

namespace {

#ifndef ROWS
#define ROWS 16
#endif
constexpr int COLUMNS = 32, WARPS = 8, THREADS = 32 * WARPS, MOST = 256;
constexpr int TALL = ROWS / 4, WIDE = 4;  // entries of a lane: 4 x 8 lanes cover the tile
constexpr int LD_A = MOST + 4, LD_B = COLUMNS;

INLINE void load4(const Single* p, Single* r) {
  UNROLL for (int i = 0; i < 4; i += 16 / sizeof(Single)) load16(p + i, r + i);
}

INLINE Single smaller(Single a, Single b) { return Arithmetic::one(a, b, 0); }

}  // namespace

struct Square {
  Element* d;          // n x n, weights in, distances out
  Single* even;        // two scratch matrices, n padded to a multiple of 32 each way
  Single* odd;
  u32* state;          // arrivals at the barrier; then, for each step, the last launch in which it changed an entry
  int* negative;       // becomes 1 if some diagonal entry falls below zero
  long long ld;
  int n, padded, steps;
  u32 launch;          // differs from that of earlier launches, so that nothing need be cleared
};

// Waits until all blocks have arrived; in a cooperative launch every block is resident.  Together the blocks add 2^31,
// so each barrier flips the highest bit and nothing need be cleared or counted.
INLINE void grid_barrier(u32* arrivals) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const u32 share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    u32 before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(arrivals), "r"(share) : "memory");
    while ((((u32)load_acquire((const int*)arrivals) ^ before) & 0x80000000u) == 0) {
    }
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS) power(const __grid_constant__ Square g) {
  extern __shared__ __align__(16) unsigned char memory[];
  Single* const a_strip = (Single*)memory;               // ROWS x n
  Single* const b_strip = a_strip + ROWS * LD_A;         // n x COLUMNS
  Single* const sums = b_strip;                          // later the warps' results, WARPS x ROWS x COLUMNS
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int across = g.padded / COLUMNS;
  const int row0 = blockIdx.x / across * ROWS, column0 = blockIdx.x % across * COLUMNS;
  const int lane_row = lane / 8 * TALL, lane_column = lane % 8 * WIDE;

  for (int step = 0; step < g.steps; step++) {
    const Single* const from = step % 2 ? g.odd : g.even;
    Single* const to = step % 2 ? g.even : g.odd;
    if (step == 0) {  // read the matrix itself, widened and padded
      for (int e = thread; e < ROWS * g.padded; e += THREADS) {
        const int r = row0 + e / g.padded, c = e % g.padded;
        a_strip[e / g.padded * LD_A + c] =
            r < g.n && c < g.n ? (Single)g.d[r * g.ld + c] : (Single)(Element)Arithmetic::unreachable();
      }
      for (int e = thread; e < g.padded * COLUMNS; e += THREADS) {
        const int r = e / COLUMNS, c = column0 + e % COLUMNS;
        b_strip[e] = r < g.n && c < g.n ? (Single)g.d[r * g.ld + c] : (Single)(Element)Arithmetic::unreachable();
      }
    } else {
      constexpr int CHUNK = 16 / sizeof(Single);
      for (int e = thread * CHUNK; e < ROWS * g.padded; e += THREADS * CHUNK)
        copy16(a_strip + e / g.padded * LD_A + e % g.padded, from + (size_t)(row0 + e / g.padded) * g.padded + e % g.padded);
      for (int e = thread * CHUNK; e < g.padded * COLUMNS; e += THREADS * CHUNK)
        copy16(b_strip + e, from + (size_t)(e / COLUMNS) * g.padded + column0 + e % COLUMNS);
      copy_commit();
      copy_wait<0>();
    }
    __syncthreads();

    Single c[TALL][WIDE];
    UNROLL for (int i = 0; i < TALL; i++)
      UNROLL for (int j = 0; j < WIDE; j++) c[i][j] = (Single)(Element)Arithmetic::unreachable();
    const int share = g.padded / WARPS;  // a multiple of 4
#pragma unroll 2
    for (int k = warp * share; k < (warp + 1) * share; k += 4) {
      Single a[TALL][4], b[4][WIDE];
      UNROLL for (int h = 0; h < 4; h++) load4(b_strip + (k + h) * LD_B + lane_column, b[h]);
      UNROLL for (int i = 0; i < TALL; i++) load4(a_strip + (lane_row + i) * LD_A + k, a[i]);
      UNROLL for (int i = 0; i < TALL; i++)
        UNROLL for (int j = 0; j < WIDE; j++) {
          c[i][j] = Arithmetic::two(c[i][j], a[i][0], b[0][j], a[i][1], b[1][j]);
          c[i][j] = Arithmetic::two(c[i][j], a[i][2], b[2][j], a[i][3], b[3][j]);
        }
    }
    __syncthreads();  // B has been read, so its memory can take the warps' results
    UNROLL for (int i = 0; i < TALL; i++)
      UNROLL for (int j = 0; j < WIDE; j++) sums[(warp * ROWS + lane_row + i) * COLUMNS + lane_column + j] = c[i][j];
    __syncthreads();
    const bool last = step + 1 == g.steps;
    bool changed = false;
    Single kept[ROWS * COLUMNS / THREADS];
    UNROLL for (int q = 0; q < ROWS * COLUMNS / THREADS; q++) {
      const int e = thread + q * THREADS, r = e / COLUMNS, col = e % COLUMNS;
      const Single before = a_strip[r * LD_A + column0 + col];
      Single least = before;
      UNROLL for (int w = 0; w < WARPS; w++) least = smaller(least, sums[w * ROWS * COLUMNS + e]);
      changed |= least != before;
      kept[q] = least;
      if (!last) __stcg(to + (size_t)(row0 + r) * g.padded + column0 + col, least);
    }
    const int any = __syncthreads_or(changed);
    if (any && thread == 0) *(volatile u32*)(g.state + 1 + step) = g.launch;
    bool done = last;
    if (!last) {
      grid_barrier(g.state);
      done = (u32)load_acquire((const int*)(g.state + 1 + step)) != g.launch;
    } else if (step == 0) {  // wait, because other blocks still read the weights
      grid_barrier(g.state);
    }
    if (done) {
      UNROLL for (int q = 0; q < ROWS * COLUMNS / THREADS; q++) {
        const int e = thread + q * THREADS, r = row0 + e / COLUMNS, col = column0 + e % COLUMNS;
        if (r < g.n && col < g.n) {
          if (Arithmetic::SIGNED && r == col && Arithmetic::negative(kept[q])) *g.negative = 1, kept[q] = 0;
          g.d[r * g.ld + col] = (Element)kept[q];
        }
      }
      return;
    }
  }
}
