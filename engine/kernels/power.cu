// power: all distances of a small graph by repeated squaring, in one cooperative launch.
//
// Below about 300 vertices, the latency of the rounds limits Floyd-Warshall: at n = 256 with tiles of 32 there are 8
// rounds, each with three hops through memory.  Squaring does log2(n) times the work, but has only log2(n) steps, in
// each of which the whole device computes: a block computes a tile of ROWS x 32 entries, and its warps share k.
//
// The kernel stops when a squaring changes nothing.  The barrier between two steps tells this, too.

namespace {

#ifndef ROWS
#define ROWS 16
#endif
constexpr int COLUMNS = 32, WARPS = 8, THREADS = 32 * WARPS, MOST = 256;
constexpr int SPLIT = ROWS == 16 && sizeof(Single) == 4 ? 2 : 1;  // groups of lanes, which take turns with k
constexpr int TALL = ROWS / 4 * SPLIT, WIDE = 4;  // entries of a lane; 32 / SPLIT lanes cover the tile
constexpr int LD_A = MOST + 4, LD_B = COLUMNS, PARTIAL = WARPS * SPLIT;

INLINE void load4(const Single* p, Single* r) {
  UNROLL for (int i = 0; i < 4; i += 16 / sizeof(Single)) load16(p + i, r + i);
}

INLINE void store4(Single* p, const Single* r) {
  UNROLL for (int i = 0; i < 4; i += 16 / sizeof(Single)) store16(p + i, r + i);
}

INLINE Single smaller(Single a, Single b) { return Arithmetic::one(a, b, 0); }

}  // namespace

struct State {
  u32 arrivals;  // at the barrier
  u32 changed;   // stamp of the last step that changed an entry
};

struct Square {
  Element* d;          // n x n, weights in, distances out
  Single* even;        // two scratch matrices, n padded to a multiple of 32 each way
  Single* odd;
  State* state;        // aligned to 8 bytes
  int* negative;       // becomes 1 if some diagonal entry falls below zero
  long long ld;
  int n, padded, steps;
  int aligned;         // whether every row of d starts at 16 bytes
  u32 stamp;           // of the first step; steps of all launches have different ones, so that nothing need be cleared
};

// Waits until all blocks have arrived; in a cooperative launch every block is resident.  Together the blocks add 2^31,
// so each barrier flips the highest bit, and nothing need be cleared or counted.  Returns whether some block has
// changed an entry in the step with this stamp: arrivals and stamp are read at once, which saves a trip to memory.  A
// block that is ahead may have stored the next step's stamp, but only if this step changed an entry.
INLINE bool grid_barrier(State* state, bool changed, u32 stamp) {
  __shared__ int any;
  const int here = __syncthreads_or(changed);
  if (threadIdx.x == 0) {
    const u32 share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    if (here) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(&state->changed), "r"(stamp) : "memory");
    u32 before;
    u64 both;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before) : "l"(&state->arrivals), "r"(share) : "memory");
    do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(both) : "l"(state) : "memory");
    while ((((u32)both ^ before) & 0x80000000u) == 0);
    any = (u32)(both >> 32) - stamp < 2;
  }
  __syncthreads();
  return any;
}

// Starts the copy of a rectangle of the weights by one warp, ``tall`` x 4 * ``wide`` entries; those outside the matrix
// are unreachable.  Piece ``e`` of four entries is in row ``e % ROWS`` or, with ACROSS, at place ``e % 8`` of a row.
template <bool ACROSS>
INLINE void read_weights(const Square& g, int row0, int column0, int tall, int wide, Single* to, int ld_to) {
#pragma unroll 4
  for (int e = threadIdx.x % 32; e < tall * wide; e += 32) {
    const int r = ACROSS ? e / 8 : e % ROWS, c = (ACROSS ? e % 8 : e / ROWS) * 4, row = row0 + r, column = column0 + c;
    const Element* const from = g.d + row * g.ld + column;
    Single* const at = to + r * ld_to + c;
    if (sizeof(Element) == sizeof(Single) && g.aligned && row < g.n && column + 4 <= g.n) {
      UNROLL for (int j = 0; j < 4; j += 16 / sizeof(Single)) copy16(at + j, from + j);
    } else {
      Single read[4];
      UNROLL for (int j = 0; j < 4; j++)
        read[j] = row < g.n && column + j < g.n ? (Single)__ldcg(from + j) : (Single)(Element)Arithmetic::unreachable();
      store4(at, read);
    }
  }
}

// The same for a scratch matrix, all of which exists, in pieces of 16 bytes.
template <bool ACROSS>
INLINE void read_square(const Square& g, const Single* d, int row0, int column0, int tall, int wide, Single* to,
                        int ld_to) {
  constexpr int PIECE = 16 / sizeof(Single), PIECES = COLUMNS / PIECE;
#pragma unroll 4
  for (int e = threadIdx.x % 32; e < tall * wide * 4 / PIECE; e += 32) {
    const int r = ACROSS ? e / PIECES : e % ROWS, c = (ACROSS ? e % PIECES : e / ROWS) * PIECE;
    copy16(to + r * ld_to + c, d + (row0 + r) * g.padded + column0 + c);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) power(const __grid_constant__ Square g) {
  extern __shared__ __align__(16) unsigned char memory[];
  Single* const a_strip = (Single*)memory;               // ROWS x n
  Single* const b_strip = a_strip + ROWS * LD_A;         // n x COLUMNS
  Single* const sums = b_strip;                          // later the partial results, PARTIAL x ROWS x COLUMNS
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int across = g.padded / COLUMNS, tile_row = blockIdx.x / across, tile_column = blockIdx.x % across;
  const int row0 = tile_row * ROWS, column0 = tile_column * COLUMNS;
  const int turn = lane / (32 / SPLIT), lane_row = lane % (32 / SPLIT) / 8 * TALL, lane_column = lane % 8 * WIDE;
  // A warp copies its own part of k and waits for no other warp.  The part is a multiple of 4; if its halves are, too,
  // the first is multiplied while the second arrives.
  const int share = g.padded / WARPS, own = warp * share;
  const int parts = share % 8 || sizeof(Single) == 8 ? 1 : 2, depth = share / parts;

  for (int step = 0; step < g.steps; step++) {
    const Single* const from = step % 2 ? g.odd : g.even;
    Single* const to = step % 2 ? g.even : g.odd;
    UNROLL for (int part = 0; part < 2; part++)
      if (part < parts) {
        const int at = own + part * depth;
        if (step == 0) {
          read_weights<false>(g, row0, at, ROWS, depth / 4, a_strip + at, LD_A);
          read_weights<true>(g, at, column0, depth, 8, b_strip + at * LD_B, LD_B);
        } else {
          read_square<false>(g, from, row0, at, ROWS, depth / 4, a_strip + at, LD_A);
          read_square<true>(g, from, at, column0, depth, 8, b_strip + at * LD_B, LD_B);
        }
        copy_commit();
      }
    Single c[TALL][WIDE];
    UNROLL for (int i = 0; i < TALL; i++)
      UNROLL for (int j = 0; j < WIDE; j++) c[i][j] = (Single)(Element)Arithmetic::unreachable();
#pragma unroll 1
    for (int part = 0; part < parts; part++) {
      if (part + 1 < parts) copy_wait<1>();
      else copy_wait<0>();
      __syncwarp();
#pragma unroll (2 / SPLIT)
      for (int k = own + part * depth + 4 * turn; k < own + (part + 1) * depth; k += 4 * SPLIT) {
        Single a[TALL][4], b[4][WIDE];
        UNROLL for (int h = 0; h < 4; h++) load4(b_strip + (k + h) * LD_B + lane_column, b[h]);
        UNROLL for (int i = 0; i < TALL; i++) load4(a_strip + (lane_row + i) * LD_A + k, a[i]);
        UNROLL for (int i = 0; i < TALL; i++)
          UNROLL for (int j = 0; j < WIDE; j++) {
            c[i][j] = Arithmetic::two(c[i][j], a[i][0], b[0][j], a[i][1], b[1][j]);
            c[i][j] = Arithmetic::two(c[i][j], a[i][2], b[2][j], a[i][3], b[3][j]);
          }
      }
    }
    __syncthreads();  // B has been read, so its memory can take the partial results
    UNROLL for (int i = 0; i < TALL; i++)
      store4(sums + ((warp * SPLIT + turn) * ROWS + lane_row + i) * COLUMNS + lane_column, c[i]);
    __syncthreads();
    const bool last = step + 1 == g.steps;
    bool changed = false;
    Single kept[ROWS * COLUMNS / THREADS];
    UNROLL for (int q = 0; q < ROWS * COLUMNS / THREADS; q++) {
      const int e = thread + q * THREADS, r = e / COLUMNS, col = e % COLUMNS;
      const Single before = a_strip[r * LD_A + column0 + col];
      Single least = before;
      UNROLL for (int w = 0; w < PARTIAL; w++) least = smaller(least, sums[w * ROWS * COLUMNS + e]);
      changed |= least != before;
      kept[q] = least;
      if (!last) __stcg(to + (size_t)(row0 + r) * g.padded + column0 + col, least);
    }
    // after the first step the barrier is needed even if it is the last, because other blocks still read the weights
    bool done = last;
    if (!last || step == 0) done |= !grid_barrier(g.state, changed, g.stamp + step);
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
