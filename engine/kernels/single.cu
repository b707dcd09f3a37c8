// single: Floyd-Warshall of one block, or of many graphs of one size, in one launch.
//
// After Takafuji, Nakano and Ito, "A single kernel for blocked Floyd-Warshall": the matrix is cut into SIDE x SIDE
// tiles and each update of a tile by a pivot is a task.  Blocks draw tasks from one counter, in an order in which a
// task waits only for earlier ones, and wait on per-tile flags that count the rounds done.  Some block is always
// working on the earliest unfinished task, so there is no deadlock however few blocks are resident.
//
// Beyond the paper: a block draws its next task while it works on the present one; three warps poll the three flags of
// a task at once; and the pivot and the panels of round k + 1 are finished in the same task as their update of round k,
// which saves two hops through memory in every round.
//
// Flags and counter only increase.  A launch receives their present values (``base``, ``drawn``), so nothing is
// cleared.

#ifndef SIDE
#define SIDE 64
#endif
#ifndef THREAD_ROWS
#define THREAD_ROWS (SIDE == 64 ? 8 : 2)
#endif
#ifndef UNROLLED
#define UNROLLED 4
#endif
#ifndef BLOCKS
#define BLOCKS 1  // resident blocks per multiprocessor for which the compiler limits registers
#endif
#ifndef BY_TILE
#define BY_TILE 0  // 1: checks whether each tile can be moved whole; 0: checks the matrix once (docs/kernels.md)
#endif

namespace {

constexpr int AT_ONCE = UNROLLED;  // steps of four k in the loop body of a product
constexpr int ROWS = THREAD_ROWS, COLUMNS = 4;  // entries of a thread
constexpr int ACROSS = SIDE / COLUMNS, DOWN = SIDE / ROWS, THREADS = ACROSS * DOWN;
// Neighbouring threads read neighbouring rows of A (interleaved) or rows ROWS apart, whichever causes no bank conflict;
// pivots need rows ROWS apart.
constexpr bool INTERLEAVED = ROWS == 8;
// Where many tiles keep every block busy, A and B are fetched in two parts of k, and the first is multiplied while the
// second arrives.  With few tiles latency counts, and one part is faster.
constexpr int PARTS = ROWS == 8 ? 2 : 1, DEPTH = SIDE / PARTS;
constexpr int LD_A = SIDE + 4, LD_B = SIDE;  // A is read down its columns: padded against bank conflicts

template <class T>
INLINE void load4(const T* p, T* r) {
  UNROLL for (int i = 0; i < 4; i += 16 / sizeof(T)) load16(p + i, r + i);
}
template <int N, class T>
INLINE void load_column(const T* p, T* r) {
  if constexpr (N % 4 == 0) {
    UNROLL for (int i = 0; i < N; i += 4) load4(p + i, r + i);
  } else {
    UNROLL for (int i = 0; i < N; i++) r[i] = p[i];
  }
}
template <class T>
INLINE void store4(T* p, const T* r) {
  UNROLL for (int i = 0; i < 4; i += 16 / sizeof(T)) store16(p + i, r + i);
}

}  // namespace

struct Block {
  Element* d;            // the first graph
  long long ld, stride;  // elements per row, elements per graph
  int n, tiles;          // vertices; tiles per side
  int graphs, group;     // graphs; how many of them advance together
  int aligned;           // whether every row starts at 16 bytes; without BY_TILE also whether n is a multiple of SIDE
  int base;              // value of all flags before this launch
  u32 drawn;             // value of the counter before this launch
  u32* counter;
  int* flags;            // graphs x tiles x tiles
  int* negative;         // becomes 1 if some diagonal entry falls below zero
};

// ---- tiles between memory, registers and shared memory --------------------------------------------------------------
// A thread holds the entries in the ROWS rows row_of(i) and in four neighbouring columns, from 4 * x on.

INLINE int row_of(int i) {
  const int y = threadIdx.x / ACROSS;
  return INTERLEAVED ? y + DOWN * i : y * ROWS + i;
}

// Whether a rectangle lies inside the matrix, so that all of it can be moved 16 bytes (uint16: 8) at a time.
INLINE bool whole(const Block& g, int row0, int column0, int rows, int columns) {
  return g.aligned && (!BY_TILE || (row0 + rows <= g.n && column0 + columns <= g.n));
}

INLINE void read4(const Block& g, bool all, const Element* d, int row, int column, Single* r) {
  const Element* const p = d + (size_t)row * g.ld + column;
  if (sizeof(Element) == sizeof(Single) && all) {
    if constexpr (sizeof(Single) == 8) {
      const double2 u = __ldcg((const double2*)p), v = __ldcg((const double2*)p + 1);
      r[0] = u.x, r[1] = u.y, r[2] = v.x, r[3] = v.y;
    } else {
      const uint4 v = __ldcg((const uint4*)p);
      r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
    }
  } else if (all) {  // uint16, four entries in 8 bytes
    const uint2 v = __ldcg((const uint2*)p);
    r[0] = (Single)(v.x & 0xffffu), r[1] = (Single)(v.x >> 16);
    r[2] = (Single)(v.y & 0xffffu), r[3] = (Single)(v.y >> 16);
  } else {
    UNROLL for (int j = 0; j < 4; j++)
      r[j] = row < g.n && column + j < g.n ? (Single)__ldcg(p + j) : (Single)(Element)Arithmetic::unreachable();
  }
}

INLINE void write4(const Block& g, bool all, Element* d, int row, int column, const Single* r) {
  Element* const p = d + (size_t)row * g.ld + column;
  if (sizeof(Element) == sizeof(Single) && all) {
    if constexpr (sizeof(Single) == 8) {
      __stcg((double2*)p, make_double2(r[0], r[1]));
      __stcg((double2*)p + 1, make_double2(r[2], r[3]));
    } else __stcg((uint4*)p, make_uint4(r[0], r[1], r[2], r[3]));
  } else if (all) {
    __stcg((uint2*)p, make_uint2((u32)r[0] | (u32)r[1] << 16, (u32)r[2] | (u32)r[3] << 16));
  } else {
    UNROLL for (int j = 0; j < 4; j++)
      if (row < g.n && column + j < g.n) __stcg(p + j, (Element)r[j]);
  }
}

// Starts the copy of a rectangle into shared memory; finished after copy_wait and a barrier.
template <int TALL, int WIDE>
INLINE void fetch(const Block& g, const Element* d, int row0, int column0, Single* to, int ld_to) {
  const bool all = whole(g, row0, column0, TALL, WIDE);
  UNROLL for (int e = threadIdx.x; e < TALL * WIDE / 4; e += THREADS) {
    const int row = e / (WIDE / 4), column = e % (WIDE / 4) * 4;
    Single* const at = to + row * ld_to + column;
    if (sizeof(Element) == sizeof(Single) && all) {
      const Element* const p = d + (size_t)(row0 + row) * g.ld + column0 + column;
      UNROLL for (int b = 0; b < 4; b += 16 / sizeof(Single)) copy16(at + b, p + b);
    } else {
      Single r[4];
      read4(g, all, d, row0 + row, column0 + column, r);
      store4(at, r);
    }
  }
}

INLINE void fetch_a(const Block& g, const Element* d, int i, int k, int part, Single* a_tile) {
  const int from = part * DEPTH;
  fetch<SIDE, DEPTH>(g, d, i * SIDE, k * SIDE + from, a_tile + from, LD_A);
}

INLINE void fetch_b(const Block& g, const Element* d, int k, int j, int part, Single* b_tile) {
  const int from = part * DEPTH;
  fetch<DEPTH, SIDE>(g, d, k * SIDE + from, j * SIDE, b_tile + from * LD_B, LD_B);
}

INLINE void keep(Single* to, int ld_to, const Single (&c)[ROWS][COLUMNS]) {
  const int x = threadIdx.x % ACROSS;
  UNROLL for (int i = 0; i < ROWS; i++) store4(to + row_of(i) * ld_to + x * 4, c[i]);
}

// ---- the two pieces of arithmetic -----------------------------------------------------------------------------------

// c = min(c, A (x) B) over one part of k, A and B in shared memory.
INLINE void multiply_part(Single (&c)[ROWS][COLUMNS], const Single* a_tile, const Single* b_tile, int part) {
  const int x = threadIdx.x % ACROSS;
#pragma unroll AT_ONCE
  for (int k = part * DEPTH; k < (part + 1) * DEPTH; k += 4) {
    Single a[ROWS][4], b[4][4];
    UNROLL for (int h = 0; h < 4; h++) load4(b_tile + (k + h) * LD_B + x * 4, b[h]);
    UNROLL for (int i = 0; i < ROWS; i++) load4(a_tile + row_of(i) * LD_A + k, a[i]);
    UNROLL for (int i = 0; i < ROWS; i++)
      UNROLL for (int j = 0; j < 4; j++) {
        c[i][j] = Arithmetic::two(c[i][j], a[i][0], b[0][j], a[i][1], b[1][j]);
        c[i][j] = Arithmetic::two(c[i][j], a[i][2], b[2][j], a[i][3], b[3][j]);
      }
  }
}

// c = min(c, A (x) B) over all k: each part of k is one group of copies and is multiplied as soon as these have
// arrived.
INLINE void multiply(Single (&c)[ROWS][COLUMNS], const Single* a_tile, const Single* b_tile) {
#pragma unroll 1  // the code of all tasks together has to stay in the instruction cache
  for (int part = 0; part < PARTS; part++) {
    if (part + 1 < PARTS) copy_wait<1>();
    else copy_wait<0>();
    __syncthreads();
    multiply_part(c, a_tile, b_tile, part);
  }
}

// Closes one tile in registers (rows ROWS * y + i), with two pivots and one barrier per step: the owners of the next
// two pivot rows and columns publish them as soon as they have them.  Each thread closes the 2 x 2 pivot itself: it
// relaxes rows k and k + 1 by each other; then the lengths of paths through k are column k + row k, and likewise for
// k + 1.
INLINE void close_tile(Single (&c)[ROWS][COLUMNS], Single* shared) {
  const int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
  constexpr int PAIR = 2 * SIDE, PERIOD = ROWS > COLUMNS ? ROWS : COLUMNS;
  Single *const rows = shared, *const columns = shared + 2 * PAIR;  // two buffers of two rows, of two columns
  UNROLL for (int h = 0; h < 2; h++) {
    if (y == 0) store4(rows + h * SIDE + x * COLUMNS, c[h]);
    if (x == 0) {
      UNROLL for (int i = 0; i < ROWS; i++) columns[h * SIDE + y * ROWS + i] = c[i][h];
    }
  }
#pragma unroll 1
  for (int k0 = 0; k0 < SIDE; k0 += PERIOD) {
    UNROLL for (int kk = 0; kk < PERIOD; kk += 2) {  // so that register indices are constants
      __syncthreads();
      const Single *const row = rows + (kk / 2 & 1) * PAIR, *const column = columns + (kk / 2 & 1) * PAIR;
      const int k = k0 + kk;
      Single b0[COLUMNS], b1[COLUMNS], a0[ROWS], a1[ROWS];
      load4(row + x * COLUMNS, b0);
      load4(row + SIDE + x * COLUMNS, b1);
      const Single forth = row[k + 1], back = row[SIDE + k];  // d[k][k + 1], d[k + 1][k]
      load_column<ROWS>(column + y * ROWS, a0);
      load_column<ROWS>(column + SIDE + y * ROWS, a1);
      UNROLL for (int j = 0; j < COLUMNS; j++) {
        const Single first = b0[j];
        b0[j] = Arithmetic::one(b0[j], forth, b1[j]);
        b1[j] = Arithmetic::one(b1[j], back, first);
      }
      UNROLL for (int i = 0; i < ROWS; i++)
        UNROLL for (int j = 0; j < COLUMNS; j++) c[i][j] = Arithmetic::two(c[i][j], a0[i], b0[j], a1[i], b1[j]);
      const int next = k + 2;
      Single *const to_row = rows + ((kk / 2 + 1) & 1) * PAIR, *const to_column = columns + ((kk / 2 + 1) & 1) * PAIR;
      if (next < SIDE) {
        if (y == next / ROWS) {
          UNROLL for (int h = 0; h < 2; h++) store4(to_row + h * SIDE + x * COLUMNS, c[(kk + 2 + h) % ROWS]);
        }
        if (x == next / COLUMNS) {
          UNROLL for (int h = 0; h < 2; h++)
            UNROLL for (int i = 0; i < ROWS; i++) to_column[h * SIDE + y * ROWS + i] = c[i][(kk + 2 + h) % COLUMNS];
        }
      }
    }
  }
}

// ---- tasks ----------------------------------------------------------------------------------------------------------

enum Kind { PIVOT, PANEL, REST };
struct Task {
  Kind kind;
  int k, i, j;
};

// Task ``t`` of one graph.  The first tasks are the pivot and the panels of round 0.  Then, for each round k, come row
// and column k + 1, whose tasks also finish the next pivot and its panels, then the two tiles (k + 1, k) and (k, k + 1)
// as panels of round k + 1, then all other tiles.  Tiles are counted from k + 1 on, cyclically.
INLINE Task task_of(int t, int tiles) {
  const int others = tiles - 1, head = 1 + 2 * others;
  Task r;
  if (t < head) {
    r.k = 0;
    r.kind = t ? PANEL : PIVOT;
    const int x = (t + 1) / 2;
    r.i = t % 2 ? 0 : x;
    r.j = t % 2 ? x : 0;
    return r;
  }
  const int per = others * others + 2, q = t - head, p = q % per;
  r.k = q / per;
  r.kind = REST;
  if (p < 2 * others - 1) {
    const int x = (p + 1) / 2;
    r.i = p % 2 ? 0 : x;
    r.j = p % 2 ? x : 0;
  } else if (p < 2 * others + 1) {
    r.kind = PANEL;
    r.i = p == 2 * others - 1 ? r.k + 1 : r.k;
    r.j = p == 2 * others - 1 ? r.k : r.k + 1;
    r.k++;  // after the last round this is ``tiles``, and there is nothing to do
    return r;
  } else {
    const int rest = p - (2 * others + 1);
    r.i = 1 + rest / (others - 1);
    r.j = 1 + rest % (others - 1);
  }
  r.i += r.k + 1;
  r.j += r.k + 1;
  if (r.i >= tiles) r.i -= tiles;
  if (r.j >= tiles) r.j -= tiles;
  return r;
}

INLINE void await(const Block& g, const int* flags, int i, int j, int rounds) {
  if (rounds == 0) return;
  const int* const flag = flags + i * g.tiles + j;
  while (load_acquire(flag) - g.base < rounds) {
  }
}

// Exchanges the interleaved rows that threads hold for neighbouring rows; with ``back``, the other way round.
INLINE void regroup(Single (&c)[ROWS][COLUMNS], Single* shared, int x, int y, bool back) {
  UNROLL for (int i = 0; i < ROWS; i++) store4(shared + (back ? y * ROWS + i : row_of(i)) * LD_B + x * 4, c[i]);
  __syncthreads();
  UNROLL for (int i = 0; i < ROWS; i++) load4(shared + (back ? row_of(i) : y * ROWS + i) * LD_B + x * 4, c[i]);
}

// A diagonal entry below zero is a negative cycle or a rounding error.  It is reported and reset to zero, because
// otherwise later rounds would add it repeatedly.
INLINE void settle_diagonal(const Block& g, Single (&p)[ROWS][COLUMNS], int x, int y) {
  if constexpr (Arithmetic::SIGNED) {
    UNROLL for (int i = 0; i < ROWS; i++)
      UNROLL for (int j = 0; j < COLUMNS; j++)
        if (y * ROWS + i == x * COLUMNS + j && Arithmetic::negative(p[i][j])) *g.negative = 1, p[i][j] = 0;
  }
}

// Performs one task on tile (i, j) of one graph.  ``a_tile`` and ``b_tile`` are shared memory for A and B.
INLINE void perform(const Block& g, const Task& t, Element* d, int* flags, Single* a_tile, Single* b_tile) {
  const int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
  const int row0 = t.i * SIDE, column0 = t.j * SIDE + x * 4;
  const bool leader = threadIdx.x == 0, all = whole(g, row0, t.j * SIDE, SIDE, SIDE);
  Single c[ROWS][COLUMNS];
  int done = t.k + 1;
  bool close = t.kind == PIVOT, panel = false;
  if (t.kind == PIVOT) {
    UNROLL for (int i = 0; i < ROWS; i++) read4(g, all, d, row0 + row_of(i), column0, c[i]);
  } else {
    const bool in_row = t.i == t.k, in_column = t.j == t.k;  // one of them holds for a panel
    if (threadIdx.x == 0) await(g, flags, t.i, t.j, t.k);
    if (threadIdx.x == 32) await(g, flags, in_row ? t.k : t.i, t.k, in_column ? 0 : t.k + 1);
    if (threadIdx.x == 64) await(g, flags, t.k, in_column ? t.k : t.j, in_row ? 0 : t.k + 1);
    __syncthreads();
    UNROLL for (int part = 0; part < PARTS; part++) {
      fetch_a(g, d, t.i, t.k, part, a_tile);
      fetch_b(g, d, t.k, t.j, part, b_tile);
      copy_commit();
      if (part == 0) UNROLL for (int i = 0; i < ROWS; i++) read4(g, all, d, row0 + row_of(i), column0, c[i]);
    }
    multiply(c, a_tile, b_tile);
    if (t.kind == REST && t.k + 1 < g.tiles) {
      const bool row = t.i == t.k + 1, column = t.j == t.k + 1;
      close = row && column;
      panel = row != column;
      if (row || column) done = t.k + 2;
    }
  }
  const int k1 = t.k + 1;
  if (panel) {  // relax this tile as a panel of the next round
    __syncthreads();
    const bool in_row = t.i == k1;
    keep(in_row ? b_tile : a_tile, in_row ? LD_B : LD_A, c);
    if (leader) await(g, flags, k1, k1, k1 + 1);
    __syncthreads();
    UNROLL for (int part = 0; part < PARTS; part++) {
      if (in_row) fetch_a(g, d, k1, k1, part, a_tile);
      else fetch_b(g, d, k1, k1, part, b_tile);
      copy_commit();
    }
    multiply(c, a_tile, b_tile);
  }
  if (close) {
    __syncthreads();
    if (INTERLEAVED) regroup(c, b_tile, x, y, false);
    settle_diagonal(g, c, x, y);
    close_tile(c, a_tile);
    settle_diagonal(g, c, x, y);
    if (INTERLEAVED) regroup(c, b_tile, x, y, true);
  }
  UNROLL for (int i = 0; i < ROWS; i++) write4(g, all, d, row0 + row_of(i), column0, c[i]);
  __syncthreads();
  if (leader) store_release(flags + t.i * g.tiles + t.j, g.base + done);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) single(const __grid_constant__ Block g) {
  extern __shared__ __align__(16) unsigned char memory[];
  Single* const a_tile = (Single*)memory;
  Single* const b_tile = a_tile + SIDE * LD_A;
  u32* const drawn = (u32*)(b_tile + SIDE * LD_B);  // last, so that the tiles are aligned to all banks
  const int others = g.tiles - 1;
  const u32 per_graph = 1 + 2 * others + (others * others + 2) * g.tiles, total = per_graph * g.graphs;
  if (threadIdx.x == 0) drawn[0] = atomicAdd(g.counter, 1u) - g.drawn;
  for (int slot = 0;; slot ^= 1) {
    __syncthreads();
    const u32 task = drawn[slot];
    if (task >= total) return;
    u32 ahead = 0;
    if (threadIdx.x == 0) ahead = atomicAdd(g.counter, 1u) - g.drawn;
    // groups of graphs come one after the other; within a group, the same task of all graphs comes next to each other
    const u32 per_group = per_graph * g.group, group = task / per_group, rest = task - group * per_group;
    const u32 size = min(g.group, g.graphs - (int)group * g.group), graph = group * g.group + rest % size;
    const Task t = task_of((int)(rest / size), g.tiles);
    if (t.k < g.tiles)
      perform(g, t, g.d + (size_t)graph * g.stride, g.flags + (size_t)graph * g.tiles * g.tiles, a_tile, b_tile);
    if (threadIdx.x == 0) drawn[slot ^ 1] = ahead;
  }
}

// Closes graphs of at most one tile, with a block for each: there are no tasks to draw and no flags to wait for.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) lone(const __grid_constant__ Block g) {
  __shared__ __align__(16) Single tile[INTERLEAVED ? SIDE * LD_B : 1], pivots[8 * SIDE];
  const int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
  const bool all = whole(g, 0, 0, SIDE, SIDE);
  Element* const d = g.d + (size_t)blockIdx.x * g.stride;
  Single c[ROWS][COLUMNS];
  UNROLL for (int i = 0; i < ROWS; i++) read4(g, all, d, row_of(i), x * 4, c[i]);
  if (INTERLEAVED) regroup(c, tile, x, y, false);
  settle_diagonal(g, c, x, y);
  close_tile(c, pivots);
  settle_diagonal(g, c, x, y);
  if (INTERLEAVED) regroup(c, tile, x, y, true);
  UNROLL for (int i = 0; i < ROWS; i++) write4(g, all, d, row_of(i), x * 4, c[i]);
}
